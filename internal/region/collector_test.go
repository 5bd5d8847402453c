package region

import (
	"context"
	"errors"
	"slices"
	"testing"

	"outsight/internal/model"
)

// Ids of the regions of edges, and offsets in their records.
const (
	testEdges, testDatagrams                          = 2, 3
	usedAt, generationAt, ownerAt, bytesAt, edgeBytes = 0, 8, 16, 24, 32
)

// hostOfEdges has two regions of edges: one says whose a record is, the other has a counter alone.
func hostOfEdges(t *testing.T) local {
	t.Helper()
	field := func(name string, at uint32, role Role, metric int) Field {
		return Field{Name: name, Offset: at, Type: TypeU64, Role: role, Count: 1, Refers: None, Via: None, Metric: metric,
			ServerMetric: metric}
	}
	control := Control{EpochNS: 5, CPUs: 1, Metrics: []Metric{{Name: "bytes", Per: 1}, {Name: "packets", Per: 1}},
		Regions: []Region{
			{Name: "edges", ID: testEdges, Index: IndexEdge, RecordBytes: edgeBytes, Records: 64, Lanes: 1, Generation: 1, Fields: []Field{
				field("used", usedAt, RoleOwner, -1), field("generation", generationAt, RoleGeneration, -1),
				field("key.owner", ownerAt, RoleKey, -1), field("bytes", bytesAt, RoleCounter, 0)}},
			{Name: "datagrams", ID: testDatagrams, Index: IndexEdge, RecordBytes: 8, Records: 64, Lanes: 1, Generation: 1, Fields: []Field{
				field("packets", 0, RoleCounter, 1)}}}}
	l := local{ControlID: memory(ControlBytes), DictionaryID: memory(DictionaryBytes(1)), testEdges: memory(64 * edgeBytes),
		testDatagrams: memory(64 * 8)}
	w, err := NewWriter(l[ControlID], l[DictionaryID], control)
	if err == nil {
		_, err = w.Update(Names{}, 1, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// putEdge writes all of an edge.
func (l local) putEdge(index int, generation, owner, bytes, packets uint64) {
	put(l[testEdges], index*edgeBytes+generationAt, generation)
	put(l[testEdges], index*edgeBytes+ownerAt, owner)
	put(l[testEdges], index*edgeBytes+bytesAt, bytes)
	put(l[testDatagrams], index*8, packets)
	put(l[testEdges], index*edgeBytes+usedAt, 1)
}

// changing does something once, when a region has been read.
type changing struct {
	local
	after  uint32
	change func()
}

func (c *changing) ReadAll(ctx context.Context, reads []Read) error {
	for i, r := range reads {
		if err := c.local.ReadAll(ctx, reads[i:i+1]); err != nil {
			return err
		}
		if r.Region == c.after && c.change != nil {
			c.change()
			c.change = nil
		}
	}
	return nil
}

func (c *changing) Read(ctx context.Context, region uint32, offset uint64, into []byte) error {
	return c.ReadAll(ctx, []Read{{Region: region, Offset: offset, Into: into}})
}

// TestEdgeTakesAPlace: an edge that takes the place of another one while they are read has nothing of what that one
// counted, and is there with its own at the next reading. The others are there all the time.
func TestEdgeTakesAPlace(t *testing.T) {
	l := hostOfEdges(t)
	l.putEdge(1, 1, 100, 10, 1000)
	l.putEdge(2, 1, 200, 20, 2000)
	l.putEdge(40, 1, 300, 30, 3000) // too far away to be read with the others
	r := &changing{local: l}
	c := NewCollector(r)
	f := func(what string, want map[model.CgroupID][2]uint64) {
		t.Helper()
		s, err := c.Collect(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		got := map[model.CgroupID][2]uint64{}
		for _, e := range s.Edges {
			got[e.Key.Owner] = [2]uint64{e.Figures.Of("bytes").Count, e.Figures.Of("packets").Count}
		}
		if len(got) != len(want) || len(s.Edges) != len(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
		for owner, figures := range want {
			if got[owner] != figures {
				t.Errorf("%s: edge of %d is %v, want %v", what, owner, got[owner], figures)
			}
		}
	}
	f("first", map[model.CgroupID][2]uint64{100: {10, 1000}, 200: {20, 2000}, 300: {30, 3000}})
	r.after, r.change = testDatagrams, func() { l.putEdge(2, 2, 201, 21, 2001) }
	f("when it takes the place", map[model.CgroupID][2]uint64{100: {10, 1000}, 300: {30, 3000}})
	f("and then", map[model.CgroupID][2]uint64{100: {10, 1000}, 201: {21, 2001}, 300: {30, 3000}})
	put(l[testEdges], edgeBytes+usedAt, 0)
	f("when one has ended", map[model.CgroupID][2]uint64{201: {21, 2001}, 300: {30, 3000}})
}

// TestChangesDuringAReading: where names change while figures are read, these are read again by the new ones.
func TestChangesDuringAReading(t *testing.T) {
	l, w := host(t)
	if _, err := w.Update(names(1), 1e8, 1e9); err != nil {
		t.Fatal(err)
	}
	put(l[2], 8*2, 100)
	put(l[4], 2*32+8, 6)
	put(l[2], 8*3, 101)
	put(l[4], 3*32+8, 7)
	r := &changing{local: l, after: 4}
	c := NewCollector(r)
	if _, err := c.Collect(context.Background()); err != nil {
		t.Fatal(err)
	}
	c.Thorough = 1 << 62 // no look for new ones but by names
	r.change = func() {
		if _, err := w.Update(names(2), 1e8, 1e9); err != nil {
			t.Error(err)
		}
	}
	s, err := c.Collect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	const execs = "container_process_execs_total"
	if len(s.Containers) != 2 || s.Containers[0].Figures.Of(execs).Count != 6 || s.Containers[1].Figures.Of(execs) == nil ||
		s.Containers[1].Figures.Of(execs).Count != 7 {
		t.Errorf("%+v", s.Containers)
	}
}

// TestSampleIsThereAtTheNextReading: who compares a sample with the one before has both, also where readings failed
// between them.
func TestSampleIsThereAtTheNextReading(t *testing.T) {
	l := hostOfEdges(t)
	l.putEdge(1, 1, 100, 10, 1000)
	r := &changing{local: l}
	c := NewCollector(r)
	collect := func() *Sample {
		t.Helper()
		s, err := c.Collect(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	is := func(what string, s *Sample, bytes uint64) {
		t.Helper()
		if len(s.Edges) != 1 || s.Edges[0].Figures.Of("bytes").Count != bytes {
			t.Errorf("%s: %+v, want one edge of %d bytes", what, s.Edges, bytes)
		}
	}
	first := collect()
	put(l[testEdges], edgeBytes+bytesAt, 11)
	edges := r.local[testEdges]
	for range 3 {
		delete(r.local, testEdges)
		if _, err := c.Collect(context.Background()); !errors.Is(err, ErrGone) {
			t.Fatalf("got %v, want %v", err, ErrGone)
		}
		r.local[testEdges] = edges
	}
	second := collect()
	is("the first", first, 10)
	is("the second", second, 11)
	put(l[testEdges], edgeBytes+bytesAt, 12)
	third := collect()
	is("the second at the third", second, 11)
	is("the third", third, 12)
}

// TestReadsAfterOthers: stages are what the reads say, and nothing is left out.
func TestReadsAfterOthers(t *testing.T) {
	f := func(after string, want ...int) {
		t.Helper()
		reads := make([]Read, len(after))
		for i := range reads {
			reads[i] = Read{Offset: uint64(i), After: after[i] == 'a'}
		}
		var got []int
		next := uint64(0)
		for stage := range Stages(reads) {
			got = append(got, len(stage))
			for _, r := range stage {
				if r.Offset != next {
					t.Errorf("%q: read %d comes, want %d", after, r.Offset, next)
				}
				next++
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: stages of %d reads, want %d", after, got, want)
		}
	}
	f("")
	f("...", 3)
	f("a..", 3)
	f("..a.", 2, 2)
	f("..aa", 2, 1, 1)
}
