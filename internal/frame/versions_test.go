package frame

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// otherVersion is a program that has other columns.
type otherVersion struct {
	schema []TableInfo
	block  block
	// tables answers what a frame of it has.
	tables func(f *Frame) []Table
}

func newVersion(change func(t *TableInfo), tables func(f *Frame) []Table) *otherVersion {
	v := &otherVersion{schema: slices.Clone(Schema[:]), tables: tables}
	for i := range v.schema {
		t := &v.schema[i]
		t.Attributes, t.Columns, t.Histograms = slices.Clone(t.Attributes), slices.Clone(t.Columns), slices.Clone(t.Histograms)
		change(t)
	}
	raw := appendSchema(nil, v.schema)
	v.block = block{compress(nil, raw), len(raw)}
	return v
}

func (v *otherVersion) encode(f, key *Frame) []byte {
	e, added, old := &encoded{}, f.Strings, []Table(nil)
	if key == nil {
		e.blocks[schemaBlock] = v.block
	} else {
		added, old = added[len(key.Strings):], v.tables(key)
	}
	return encode(nil, &f.Header, e, added, v.tables(f), old, v.schema)
}

// TestOtherVersions: columns are matched by name. What is not known is passed over, what is not there is empty.
func TestOtherVersions(t *testing.T) {
	newer := newVersion(func(t *TableInfo) {
		t.Attributes = slices.Insert(t.Attributes, 1, AttributeInfo{Name: "colour"})
		t.Columns = slices.Insert(t.Columns, 0, ColumnInfo{Name: "dreams", Per: 1})
		t.Histograms = append(t.Histograms, ColumnInfo{Name: "depth", Per: 1})
	}, func(f *Frame) (all []Table) {
		for _, t := range f.Tables {
			more := Values{}
			for i := range t.IDs {
				more.Of = append(more.Of, uint64(i)*f.Number)
			}
			t.Attributes = slices.Insert(slices.Clone(t.Attributes), 1, make([]uint64, len(t.IDs)))
			t.Columns = slices.Insert(slices.Clone(t.Columns), 0, more)
			t.Histograms = append(slices.Clone(t.Histograms), Histograms{})
			all = append(all, t)
		}
		return all
	})
	newer.schema = slices.Insert(newer.schema, 2, TableInfo{Name: "moods", Attributes: []AttributeInfo{{Name: "mood"}}})
	raw := appendSchema(nil, newer.schema)
	newer.block = block{compress(nil, raw), len(raw)}
	without := newer.tables
	newer.tables = func(f *Frame) []Table {
		return slices.Insert(without(f), 2, Table{IDs: []uint32{3, 9}, Attributes: [][]uint64{{f.Number, 2}}})
	}
	older := newVersion(func(t *TableInfo) {
		if t.Name == "edges" {
			t.Attributes, t.Columns, t.Histograms = t.Attributes[:10], t.Columns[2:], t.Histograms[1:]
		}
		t.Columns = slices.Clone(t.Columns)
		if t.Name == "containers" {
			t.Columns[1].Per = 12345 // the same name, and something else
		}
	}, func(f *Frame) []Table {
		all := slices.Clone(f.Tables[:])
		e := &all[Edges]
		e.Attributes, e.Columns, e.Histograms = e.Attributes[:10], e.Columns[2:], e.Histograms[1:]
		return all
	})
	lacking := func(f *Frame) *Frame {
		g := *f
		e := &g.Tables[Edges]
		e.Attributes, e.Columns, e.Histograms = slices.Clone(e.Attributes), slices.Clone(e.Columns), slices.Clone(e.Histograms)
		for a := 10; a < len(e.Attributes); a++ {
			e.Attributes[a] = make([]uint64, len(e.IDs))
		}
		e.Columns[0], e.Columns[1], e.Histograms[0] = Values{}, Values{}, Histograms{}
		c := &g.Tables[Containers]
		c.Columns = slices.Clone(c.Columns)
		c.Columns[1] = Values{}
		return &g
	}
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 3))
		key := randomFrame(r, nil)
		f := randomFrame(r, key)
		check := func(v *otherVersion, want func(f *Frame) *Frame) {
			t.Helper()
			gotKey, err := Decode(v.encode(key, nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(v.encode(f, key), gotKey)
			if err != nil {
				t.Fatal(err)
			}
			if d := difference(want(key), gotKey); d != "" {
				t.Fatalf("key frame: %s", d)
			}
			if d := difference(want(f), got); d != "" {
				t.Fatal(d)
			}
		}
		check(newer, func(f *Frame) *Frame { return f })
		check(older, lacking)
	}
}

// TestProjection: what is chosen is decoded, and all else is empty.
func TestProjection(t *testing.T) {
	only := NewProjection(map[TableID][]string{Hosts: nil, Edges: {"transactions", "latency"}})
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 4))
		key := randomFrame(r, nil)
		f := randomFrame(r, key)
		want := func(f *Frame) *Frame {
			g := *f
			for table := range g.Tables {
				if TableID(table) != Hosts && TableID(table) != Edges {
					g.Tables[table] = absent[table]
				}
			}
			e := &g.Tables[Edges]
			columns, histograms := make([]Values, len(e.Columns)), make([]Histograms, len(e.Histograms))
			c, h := Column(Edges, "transactions"), Histogram(Edges, "latency")
			columns[c], histograms[h] = e.Columns[c], e.Histograms[h]
			e.Columns, e.Histograms = columns, histograms
			return &g
		}
		gotKey, err := DecodeOnly(Encode(nil, key, nil), nil, only)
		if err != nil {
			t.Fatal(err)
		}
		if d := difference(want(key), gotKey); d != "" {
			t.Fatal(d)
		}
		got, err := Decode(Encode(nil, f, key), gotKey)
		if err != nil {
			t.Fatal(err)
		}
		if d := difference(want(f), got); d != "" {
			t.Fatal(d)
		}
	}
}

// TestMalformed: the errors of frames that are damaged, or made by somebody who means harm.
func TestMalformed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	key := randomFrame(r, nil)
	good := Encode(nil, key, nil)
	f := func(what string, data []byte, want string) {
		t.Helper()
		if _, err := Decode(data, nil); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	for n := range len(good) {
		f("cut off", good[:n], "malformed")
	}
	changed := func(at int, to byte) []byte {
		data := slices.Clone(good)
		data[at] = to
		return data
	}
	f("version", changed(4, 2), "version 2, this program reads 1")
	f("flags", changed(5, 1), "flags")
	f("a bomb", changed(71, 0xff), "block 1 of")
	f("too long", append(slices.Clone(good), 0), "behind its blocks")
	two := *key
	two.Tables[Hosts].IDs = []uint32{1, 2}
	two.Tables[Hosts].Attributes = make([][]uint64, len(Schema[Hosts].Attributes))
	for a := range two.Tables[Hosts].Attributes {
		two.Tables[Hosts].Attributes[a] = make([]uint64, 2)
	}
	two.Tables[Hosts].Columns = make([]Values, len(Schema[Hosts].Columns))
	f("two hosts", Encode(nil, &two, nil), "2 hosts")
	bad := func(t TableID, a Attribute, v uint64) []byte {
		g := *key
		table := &g.Tables[t]
		table.Attributes = slices.Clone(table.Attributes)
		table.Attributes[a] = slices.Clone(table.Attributes[a])
		table.Attributes[a][0] = v
		return Encode(nil, &g, nil)
	}
	f("a text", bad(Containers, ContainerName, uint64(len(key.Strings))), "name")
	f("a reference", bad(Edges, EdgeClient, 1<<32), "client")
	f("a time", bad(Edges, EdgeStart, 1<<60), "start")
	f("a state", bad(Edges, State, 3), "state 3")
	f("an owner", bad(Labelled, LabelledTable, uint64(NumTables)), "owner_table")
	for _, no := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		g := *key
		for c := range Schema[Hosts].Columns {
			if Schema[Hosts].isFloat(c) {
				g.Tables[Hosts].Columns = slices.Clone(key.Tables[Hosts].Columns)
				g.Tables[Hosts].Columns[c] = Values{Of: []uint64{math.Float64bits(no)}}
				f("a float", Encode(nil, &g, nil), Schema[Hosts].Columns[c].Name+" is infinite or no number")
			}
		}
	}
	g := *key
	g.Tables[Edges].Histograms = slices.Clone(g.Tables[Edges].Histograms)
	h := &g.Tables[Edges].Histograms[1]
	h.Bucket = slices.Clone(h.Bucket)
	h.Bucket[len(h.Bucket)-1] = maxBucket + 1 // the greatest of the last row that has one
	f("a bucket", Encode(nil, &g, nil), "histogram of row")
	header, e, err := decodeHeader(good)
	if err != nil {
		t.Fatal(err)
	}
	text := binary.AppendUvarint([]byte{2, 0}, MaxBlock+1) // two texts, the second longer than any block
	e.blocks[mainBlock] = block{compress(nil, text), len(text)}
	long := appendHeader(nil, &header, &e)
	for i := range e.blocks {
		long = append(long, e.blocks[i].compressed...)
	}
	f("a long text", append(long, e.apart...), "texts are longer")
}

// FuzzDecode: whatever the bytes are, what is decoded is a valid frame.
// smallFrames are a key frame and one after it of a few rows, short enough that a fuzzer makes many of them: what it finds
// of large ones it would spend its time on making smaller.
func smallFrames() (key, f *Frame) {
	h := newSampleHost(2, 2)
	key = h.step(1, 1)
	return key, h.step(1, 1)
}

// FuzzDecode is to be run with -fuzzminimizetime 10x, as scripts/fuzz does: by default all of a short run goes by with
// making one input shorter, which hardly any compressed input can be.
func FuzzDecode(f *testing.F) {
	key, busy := smallFrames()
	encodedKey := Encode(nil, key, nil)
	f.Add(encodedKey, Encode(nil, busy, key))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		key, err := Decode(first, nil)
		if err != nil {
			key, _ = Decode(encodedKey, nil)
		} else {
			checkValid(t, key)
		}
		if f, err := Decode(second, key); err == nil {
			checkValid(t, f)
		} else if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNoKey) {
			t.Errorf("the error %v", err)
		}
	})
}

// FuzzTables changes what is compressed: FuzzDecode hardly gets that far.
func FuzzTables(f *testing.F) {
	key, busy := smallFrames()
	encodedKey := Encode(nil, key, nil)
	for _, of := range []*Frame{key, busy} {
		_, e, err := decodeHeader(Encode(nil, of, key))
		if err != nil {
			f.Fatal(err)
		}
		raw, err := decompress(nil, e.blocks[mainBlock])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(of.IsKey(), raw, e.apart)
	}
	f.Fuzz(func(t *testing.T, isKey bool, raw, apart []byte) {
		if len(raw) == 0 {
			return
		}
		h, e := busy.Header, encoded{apart: apart}
		if isKey {
			h = key.Header
			e.blocks[schemaBlock] = ownSchema().block
		}
		e.blocks[mainBlock] = block{compress(nil, raw), len(raw)}
		data := appendHeader(nil, &h, &e)
		for i := range e.blocks {
			data = append(data, e.blocks[i].compressed...)
		}
		data = append(data, apart...)
		if f, err := Decode(data, key); err == nil {
			checkValid(t, f)
		} else if !errors.Is(err, ErrMalformed) {
			t.Errorf("the error %v", err)
		}
		var memory Memory
		defer memory.Release()
		was, err := DecodeInto(&memory, encodedKey, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := DecodeInto(&memory, data, was, nil); err == nil {
			checkSums(Since(Edges, was, f))
		} else if !errors.Is(err, ErrMalformed) {
			t.Errorf("the error %v", err)
		}
	})
}

// checkSums adds up all histograms in both ways, which must not panic.
func checkSums(d *Difference) {
	for range 2 {
		for column := range d.After.Histograms {
			for row := range d.After.IDs {
				var sum Durations
				d.AddHistogram(&sum, column, row)
			}
		}
		addUp(d, 1)
	}
}

// checkValid holds what readers of frames rely on, and that the frame can be encoded again.
func checkValid(t *testing.T, f *Frame) {
	t.Helper()
	for table := range f.Tables {
		is, info := &f.Tables[table], &Schema[table]
		n := len(is.IDs)
		for i, id := range is.IDs {
			if id == 0 || i > 0 && is.IDs[i-1] >= id {
				t.Fatalf("%s: rows %v", info.Name, is.IDs)
			}
		}
		for a, values := range is.Attributes {
			if len(values) != n {
				t.Fatalf("%s: %d values of %s, %d rows", info.Name, len(values), info.Attributes[a].Name, n)
			}
			for _, v := range values {
				if info.Attributes[a].Kind == Text && v >= uint64(len(f.Strings)) {
					t.Fatalf("%s: text %d of %d", info.Name, v, len(f.Strings))
				}
			}
		}
		for at, c := range is.Columns {
			if info.isFloat(at) && slices.ContainsFunc(c.Of, isInfinite) {
				t.Fatalf("%s: a value of %s is infinite or no number", info.Name, info.Columns[at].Name)
			}
			if len(c.Of) != 0 && len(c.Of) != n || c.Missing != nil && len(c.Missing) != (n+63)/64 {
				t.Fatalf("%s: a column of %d values, %d rows", info.Name, len(c.Of), n)
			}
		}
		for _, h := range is.Histograms {
			if len(h.End) == 0 {
				continue
			}
			if len(h.End) != n || len(h.SumNS) != n || len(h.Bucket) != len(h.Count) || int(h.End[n-1]) != len(h.Bucket) {
				t.Fatalf("%s: histograms of %d rows, %d rows", info.Name, len(h.End), n)
			}
			for row := range n {
				index, _ := h.Buckets(row)
				for i, b := range index {
					if b < minBucket || b > maxBucket || i > 0 && index[i-1] >= b {
						t.Fatalf("%s: buckets %v", info.Name, index)
					}
				}
			}
		}
	}
	as := *f
	as.Key, as.Number = 1, 1
	again, err := Decode(Encode(nil, &as, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := difference(&as, again); d != "" {
		t.Fatal(d)
	}
}
