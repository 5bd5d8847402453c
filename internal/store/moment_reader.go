package store

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/prometheus/model/histogram"

	"outsight/internal/model"
)

// keptMoment is where the values of one of the times are read from: a file, or memory where it is nil.
type keptMoment struct {
	at    int64
	file  *os.File
	index *momentIndex
}

// block is that of a source, nil where it has none.
func (m *keptMoment) block(key string) *momentBlock {
	i, ok := slices.BinarySearchFunc(m.index.blocks, key,
		func(b momentBlock, key string) int { return strings.Compare(b.key, key) })
	if !ok {
		return nil
	}
	return &m.index.blocks[i]
}

// momentMerger puts what a source had at several moments side by side, of which some are in files.
type momentMerger struct {
	unzip  *zstd.Decoder
	packed []byte
	// blocks are what was decompressed, by moment; moment is that which is read.
	blocks [][]byte
	moment int

	things []mergedThing
	rows   []mergedRow
	values []mergedValue // of a row one after the other, one for each moment
	// byKey finds things where their order is another than before; it has the first indexed of them.
	byKey   map[string]int32
	indexed int
	names   []int32 // of the block, as numbers of what is asked for; -1 for others
	kinds   []string
	allKind map[string]string
}

// mergedThing is a keptThing, at any of the moments.
type mergedThing struct {
	key         []byte
	live        *keptThing
	first, last int32 // of its rows; -1 where there is none
}

// mergedRow is a series of a thing.
type mergedRow struct {
	name, next  int32
	kind        string
	isHistogram bool
}

// mergedValue is one of a row at a moment: a number, or a histogram, encoded or not.
type mergedValue struct {
	known   bool
	number  float64
	encoded []byte
	native  *histogram.Histogram
}

// begin forgets the source before.
func (g *momentMerger) begin(moments int) error {
	g.moment = 0
	if g.unzip == nil {
		var err error
		if g.unzip, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxMomentBlock),
			zstd.IgnoreChecksum(true)); err != nil {
			return err
		}
		g.byKey, g.allKind = map[string]int32{}, map[string]string{}
	}
	for len(g.blocks) < moments {
		g.blocks = append(g.blocks, nil)
	}
	g.things, g.rows, g.values, g.indexed = g.things[:0], g.rows[:0], g.values[:0], 0
	clear(g.byKey)
	return nil
}

// thing is the number of the one with a key. guess is where it is if this moment has the things of the one before in
// the same order.
func (g *momentMerger) thing(key []byte, guess int, first bool) int {
	if guess < len(g.things) && string(g.things[guess].key) == string(key) {
		return guess
	}
	if !first {
		for ; g.indexed < len(g.things); g.indexed++ {
			g.byKey[string(g.things[g.indexed].key)] = int32(g.indexed)
		}
		if i, ok := g.byKey[string(key)]; ok {
			return int(i)
		}
	}
	g.things = append(g.things, mergedThing{key: key, first: -1, last: -1})
	return len(g.things) - 1
}

// row is the value of a series of a thing at a moment, of so many. guess is the row that it is in if this moment has
// those of the one before.
func (g *momentMerger) row(thing int, guess, name int32, kind string, isHistogram bool, moment, moments int) (at int32,
	v *mergedValue) {
	th := &g.things[thing]
	is := func(i int32) bool {
		r := &g.rows[i]
		return r.name == name && r.isHistogram == isHistogram && r.kind == kind
	}
	if at = guess; at < 0 || !is(at) {
		for at = th.first; at >= 0 && !is(at); at = g.rows[at].next {
		}
	}
	if at < 0 {
		at = int32(len(g.rows))
		g.rows = append(g.rows, mergedRow{name: name, next: -1, kind: kind, isHistogram: isHistogram})
		for range moments {
			g.values = append(g.values, mergedValue{})
		}
		if th.last >= 0 {
			g.rows[th.last].next = at
		} else {
			th.first = at
		}
		th.last = at
	}
	return at, &g.values[int(at)*moments+moment]
}

// next is the row to guess after that.
func (g *momentMerger) next(at int32) int32 {
	if at < 0 {
		return -1
	}
	return g.rows[at].next
}

// merge reads a source's values at all moments; false where memory has not all of them.
func (r *keptReader) merge(s *keptSource, key string, moments []keptMoment) (results []model.NamedResult, known bool,
	err error) {
	g := &r.merger
	defer func() {
		if m := &moments[g.moment]; m.file != nil {
			if p := recover(); p != nil { // of a histogram that makes no sense
				err = &badMoment{m.at, fmt.Errorf("%w: %v", errBadMoment, p)}
			}
		}
	}()
	if err := g.begin(len(moments)); err != nil {
		return nil, false, err
	}
	// Nobody who appends waits for the disk.
	for i := range moments {
		if err := g.load(&moments[i], key, i); err != nil {
			return nil, false, &badMoment{moments[i].at, err}
		}
	}
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	for i := range moments {
		g.moment = i
		switch m := &moments[i]; {
		case m.file != nil && len(g.blocks[i]) > 0:
			if err := r.mergeBlock(g.blocks[i], i, len(moments)); err != nil {
				return nil, false, &badMoment{m.at, err}
			}
		case m.file != nil: // it has nothing of the source
		case s != nil && s.begun:
			if !r.mergeMemory(s, m.at, i, len(moments)) {
				return nil, false, nil
			}
		}
	}
	return r.merged(s, len(moments)), true, nil
}

// load reads what a file has of a source.
func (g *momentMerger) load(m *keptMoment, key string, moment int) (err error) {
	g.blocks[moment] = g.blocks[moment][:0]
	if m.file == nil {
		return nil
	}
	if b := m.block(key); b != nil {
		g.packed, g.blocks[moment], err = b.read(m.file, g.unzip, g.packed, g.blocks[moment])
	}
	return err
}

func (r *keptReader) mergeBlock(block []byte, moment, moments int) error {
	g := &r.merger
	d := momentDecoder{rest: block}
	g.names, g.kinds = g.names[:0], g.kinds[:0]
	for n := d.count(); n > 0; n-- {
		name := d.text()
		g.names = append(g.names, int32(slices.IndexFunc(r.names, func(asked string) bool { return asked == string(name) })))
	}
	for n := d.count(); n > 0; n-- {
		text := d.text()
		kind, ok := g.allKind[string(text)]
		if !ok {
			kind = string(text)
			g.allKind[kind] = kind
		}
		g.kinds = append(g.kinds, kind)
	}
	guess, begins := 0, len(g.things) == 0
	for n := d.count(); n > 0; n-- {
		thing := g.thing(d.text(), guess, begins)
		guess = thing + 1
		next := g.things[thing].first
		for rows := d.count(); rows > 0; rows-- {
			head, k := d.number(), d.number()
			if head>>1 >= uint64(len(g.names)) || k >= uint64(len(g.kinds)) {
				return errBadMoment
			}
			found := mergedValue{known: true}
			if head&1 == 1 {
				found.encoded = d.text()
			} else {
				found.number = d.value()
			}
			if name := g.names[head>>1]; name >= 0 {
				at, v := g.row(thing, next, name, g.kinds[k], head&1 == 1, moment, moments)
				*v, next = found, g.next(at)
			}
		}
	}
	if d.bad || len(d.rest) > 0 {
		return errBadMoment
	}
	return nil
}

func (r *keptReader) mergeMemory(s *keptSource, at int64, moment, moments int) bool {
	g := &r.merger
	view, ok := s.view(at)
	if !ok {
		return false
	}
	guess, begins := 0, len(g.things) == 0
	for _, th := range s.things {
		thing, next := -1, int32(-1)
		for i := range th.rows {
			row := &th.rows[i]
			name := r.place(row)
			if name < 0 {
				continue
			}
			v := mergedValue{known: true}
			if row.isHistogram {
				if v.native, v.encoded = view.histogram(row.slot); v.native == nil && len(v.encoded) == 0 {
					continue
				}
			} else if v.number, ok = view.number(row.slot); !ok {
				continue
			}
			if thing < 0 {
				thing = g.thing(unsafe.Slice(unsafe.StringData(th.key), len(th.key)), guess, begins) // it is only read
				guess, next = thing+1, g.things[thing].first
				g.things[thing].live = th
			}
			at, to := g.row(thing, next, name, row.kind, row.isHistogram, moment, moments)
			*to, next = v, g.next(at)
		}
	}
	return true
}

// merged are the results of what was merged.
func (r *keptReader) merged(s *keptSource, moments int) []model.NamedResult {
	g := &r.merger
	r.found = r.found[:0]
	for i := range g.things {
		th := &g.things[i]
		var labels map[string]string
		for at := th.first; at >= 0; at = g.rows[at].next {
			row := &g.rows[at]
			values := g.values[int(at)*moments : int(at+1)*moments]
			r.now = r.now[:0]
			zero := true
			for k := range values {
				v := &values[k]
				if !v.known {
					continue
				}
				g.moment = k
				p := model.Point{Time: r.times[k], Value: v.number}
				if row.isHistogram {
					if v.native != nil {
						p.Histogram = r.native(v.native)
					} else {
						p.Histogram = r.decode(v.encoded)
					}
					zero = zero && p.Histogram.Count == 0
				}
				zero = zero && p.Value == 0
				r.now = append(r.now, p)
			}
			if zero && r.sparse[row.name] {
				continue
			}
			if labels == nil {
				labels = labelsOf(th, s)
			}
			if !r.add(row.name, row.kind, labels) {
				return nil
			}
		}
	}
	clear(g.things) // of what may be gone
	clear(g.values)
	return r.taken()
}

// labelsOf are shared with the source's where it still has them.
func labelsOf(th *mergedThing, s *keptSource) map[string]string {
	if th.live == nil && s != nil {
		th.live = s.byLabels[string(th.key)]
	}
	if th.live != nil {
		return th.live.labels
	}
	return splitLabels(th.key)
}
