package store

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// flow is the way of the series of a selector, up to the whole expression.
type flow struct {
	ops []*labelOp
	// literal are the labels of a series that the query itself makes.
	literal labels.Labels

	// group is the index of the first opGroup in ops, or their number. From there on, series with the same key are one.
	group   int
	key     []string
	without bool
	// alone means that each series may be a group of its own.
	alone bool
	seen  map[uint64]struct{}
	hash  []byte
}

type opKind uint8

const (
	// opBuild adds a label to series, opGroup aggregates them, opPreallocate allocates the points of all steps.
	opBuild opKind = iota
	opGroup
	opPreallocate
)

// labelOp is what happens to series in one part of an expression.
type labelOp struct {
	kind opKind
	// name is the label of opBuild. Its value has at most times the bytes of all sources together, and more. keeps
	// means that the value may also stay as it is, varies that it depends on more than the sources.
	name          string
	sources       []string
	times         int64
	more          growth
	keeps, varies bool
	// names are the labels that opGroup keeps, or the ones that it drops.
	names        []string
	without      bool
	preallocated int64
}

// pass leads series through operations.
func pass(flows []*flow, ops ...*labelOp) {
	for _, f := range flows {
		for _, op := range ops {
			if op.kind != opPreallocate || op.preallocated > 0 {
				f.ops = append(f.ops, op)
			}
		}
	}
}

// prepare finds the stored labels that distinguish series after the first aggregation.
func (f *flow) prepare() {
	f.group = slices.IndexFunc(f.ops, func(op *labelOp) bool { return op.kind == opGroup })
	if f.group < 0 {
		f.group = len(f.ops)
		return
	}
	f.seen = map[uint64]struct{}{}
	group := f.ops[f.group]
	f.key, f.without = slices.Clone(group.names), group.without
	for _, op := range slices.Backward(f.ops[:f.group]) {
		if op.kind != opBuild || slices.Contains(f.key, op.name) == f.without {
			continue // the label is not looked at
		}
		f.alone = f.alone || op.varies
		if f.without {
			f.key = slices.DeleteFunc(f.key, func(name string) bool { return slices.Contains(op.sources, name) })
			continue
		}
		if !op.keeps {
			f.key = slices.DeleteFunc(f.key, func(name string) bool { return name == op.name })
		}
		f.key = append(f.key, op.sources...)
	}
	slices.Sort(f.key)
	f.key = slices.Compact(f.key)
}

// charge is what a series of these labels takes on its way: at most so many bytes, and so many times the longest value
// that is stored, which is longest so far.
func (f *flow) charge(of labels.Labels, longest int64) (bytes, times int64, err error) {
	size := int64(of.ByteSize())
	if len(f.ops) == 0 {
		return seriesCost + size, 0, nil
	}
	state := labelState{stored: of, size: growth{more: size}, longest: longest}
	if bytes, times, err = state.run(f.ops[:f.group]); err != nil || f.group == len(f.ops) {
		return bytes + size, times, err
	}
	bytes += size
	if f.isNew(of) {
		b, t, err := state.run(f.ops[f.group:])
		return bytes + b, times + t, err
	}
	return bytes, times, nil
}

// isNew reports whether a series is the first of its group.
func (f *flow) isNew(of labels.Labels) bool {
	if f.alone {
		return true
	}
	var key uint64
	if f.without {
		key, f.hash = of.HashWithoutLabels(f.hash, f.key...)
	} else {
		key, f.hash = of.HashForLabels(f.hash, f.key...)
	}
	if _, known := f.seen[key]; known {
		return false
	}
	f.seen[key] = struct{}{}
	return true
}

// labelState is how long the labels of a series may be.
type labelState struct {
	stored  labels.Labels
	built   []builtLabel
	groups  []*labelOp
	size    growth // of all labels
	longest int64
}

type builtLabel struct {
	name string
	size growth
}

// run is the memory of a series during the operations: the greatest size of its labels, twice, since an operation holds
// input and output, and the points of both.
func (s *labelState) run(ops []*labelOp) (bytes, times int64, err error) {
	var most growth
	var room, rooms int64
	for _, op := range ops {
		switch op.kind {
		case opBuild:
			s.build(op)
			if s.size.more+multiply(s.size.factor, max(s.longest, 1)) > maxBuiltLabels {
				return 0, 0, badQuery("the query may give a series more than %d KiB of labels: use fewer label_replace, label_join and count_values, "+
					"or shorter replacements", maxBuiltLabels>>10)
			}
			most = most.or(s.size)
		case opGroup:
			s.keep(op)
		case opPreallocate:
			room, rooms = max(room, op.preallocated), min(rooms+1, 2)
		}
	}
	return seriesCost + 2*most.more + rooms*room, 2 * most.factor, nil
}

// of is how long the value of a label may be.
func (s *labelState) of(name string) growth {
	for _, b := range s.built {
		if b.name == name {
			return b.size
		}
	}
	for _, op := range s.groups {
		if slices.Contains(op.names, name) == op.without {
			return growth{}
		}
	}
	return growth{more: int64(len(s.stored.Get(name)))}
}

func (s *labelState) build(op *labelOp) {
	made := op.more
	for _, source := range op.sources {
		if op.times > 0 {
			g := s.of(source).times(op.times, 0)
			made.factor, made.more = min(made.factor+g.factor, plenty), min(made.more+g.more, plenty)
		}
	}
	before := s.of(op.name)
	if op.keeps {
		made = made.or(before)
	}
	s.set(op.name, made)
	s.size.factor = min(s.size.factor+made.factor-before.factor, plenty)
	s.size.more = min(s.size.more+made.more-before.more+int64(len(op.name)), plenty)
}

func (s *labelState) set(name string, size growth) {
	for i := range s.built {
		if s.built[i].name == name {
			s.built[i].size = size
			return
		}
	}
	s.built = append(s.built, builtLabel{name, size})
}

// keep is what an aggregation leaves of the labels.
func (s *labelState) keep(op *labelOp) {
	var size growth
	if op.without {
		size = s.size
		for _, name := range op.names {
			dropped := s.of(name)
			size.factor, size.more = max(size.factor-dropped.factor, 0), max(size.more-dropped.more, 0)
		}
	} else {
		for _, name := range op.names {
			kept := s.of(name)
			size.factor, size.more = min(size.factor+kept.factor, plenty), min(size.more+kept.more+int64(len(name)), plenty)
		}
	}
	s.built = slices.DeleteFunc(s.built,
		func(b builtLabel) bool { return slices.Contains(op.names, b.name) == op.without })
	s.groups = append(s.groups, op)
	s.size = size
}
