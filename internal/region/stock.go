package region

// stock is memory that is taken in parts, and all of it again for the next reading.
type stock[T any] struct {
	all  []T
	used int
}

// take is a part of n, with what was there before.
func (s *stock[T]) take(n int) []T {
	if s.used+n > len(s.all) {
		s.all, s.used = make([]T, max(n, 2*len(s.all))), 0 // who has a part of the other one keeps it
	}
	part := s.all[s.used : s.used+n : s.used+n]
	s.used += n
	return part
}

// memory is that of a reading: its sample, and what is needed meanwhile.
type readingMemory struct {
	sample  Sample
	figures stock[Figure]
	lists   stock[Figures]
	edges   []EdgeFigures
	stayed  []*EdgeFigures
}

// begin makes all of it free.
func (m *readingMemory) begin() {
	s := &m.sample
	*s = Sample{Containers: s.Containers[:0], Groups: s.Groups[:0], Edges: s.Edges[:0], Disks: s.Disks[:0],
		Endpoints: s.Endpoints[:0]}
	m.figures.used, m.lists.used = 0, 0
}
