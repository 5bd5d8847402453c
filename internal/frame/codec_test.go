package frame

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"outsight/internal/model"
)

// randomFrame makes a frame of any values. One that follows key has some of its rows, changed, and some of its own.
func randomFrame(r *rand.Rand, key *Frame) *Frame {
	f := &Frame{Header: Header{Host: "host", Epoch: 1_800_000_000_000_000_000, Boot: 1_799_000_000, Number: 7, Key: 7,
		Time: time.Unix(1_800_000_100, int64(r.IntN(1e9))).UTC(), ClockError: time.Duration(r.IntN(1e6))},
		Strings: []string{""}}
	if key != nil {
		f.Number, f.Strings = key.Number+1+uint64(r.IntN(50)), slices.Clone(key.Strings)
	}
	for range r.IntN(20) {
		f.Strings = append(f.Strings, fmt.Sprint("text ", r.IntN(1000)))
	}
	for t := range f.Tables {
		var old *Table
		if key != nil {
			old = &key.Tables[t]
		}
		randomTable(r, TableID(t), f, old)
	}
	return f
}

func randomTable(r *rand.Rand, t TableID, f *Frame, old *Table) {
	ids := []uint32{1}
	from := map[uint32]int{}
	if old != nil {
		for i, id := range old.IDs {
			from[id] = i
		}
	}
	if t != Hosts {
		ids = ids[:0]
		more := r.IntN(80)
		if old != nil {
			drop := r.IntN(3) * r.IntN(60)
			for _, id := range old.IDs {
				if r.IntN(100) >= drop {
					ids = append(ids, id)
				}
			}
			more = r.IntN(3) * r.IntN(10)
		}
		for range more {
			ids = append(ids, 1+uint32(r.IntN(300)), 1+r.Uint32N(math.MaxUint32))
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	info, d := &Schema[t], newDraft(t, len(ids), &scratch{})
	busy := r.IntN(3) * r.IntN(50) // per cent of values that change
	change := func() bool { return r.IntN(100) < busy }
	for row, id := range ids {
		d.row, d.IDs[row] = row, id
		was, there := from[id]
		for a := range info.Attributes {
			if there {
				d.Attributes[a][row] = old.Attributes[a][was]
			}
			if !there || change() {
				limit := 3
				if info.Attributes[a].Kind == Text {
					limit = len(f.Strings)
				}
				d.Attributes[a][row] = uint64(r.IntN(limit))
			}
		}
		for c := range info.Columns {
			v, ok := uint64(0), false
			if there {
				v, ok = old.Columns[c].At(was)
			}
			if !there || change() {
				v, ok = v+r.Uint64()>>r.IntN(64), c%4 > 0 && (c%4 > 1 || r.IntN(3) > 0)
				if info.isFloat(c) && isInfinite(v) {
					v = math.Float64bits(r.NormFloat64())
				}
			}
			if ok {
				d.set(c, v)
			}
		}
		for h := range info.Histograms {
			var one *model.Histogram
			if there {
				one = old.Histograms[h].At(was).Clone()
			}
			if h%3 > 0 && (!there || change()) {
				if one == nil {
					one = &model.Histogram{}
				}
				one.Merge(randomHistogram(r))
				if r.IntN(10) == 0 {
					one = randomHistogram(r) // it fell
				}
			}
			d.setHistogram(h, one)
			d.Histograms[h].End[row] = uint32(len(d.Histograms[h].Bucket))
		}
	}
	f.Tables[t] = d.finish(&Table{})
}

func randomHistogram(r *rand.Rand) *model.Histogram {
	h := &model.Histogram{SumNS: r.Uint64N(1e12), ZeroCount: r.Uint64N(2), OverflowCount: r.Uint64N(2),
		Offset: minBucket + r.Int32N(maxBucket-minBucket-40), Buckets: make([]uint64, 1+r.IntN(40))}
	for i := range h.Buckets {
		h.Buckets[i] = r.Uint64N(3) * r.Uint64N(1000)
	}
	h.Buckets[0], h.Buckets[len(h.Buckets)-1] = 1, 1
	h.Count = h.ZeroCount + h.OverflowCount
	for _, n := range h.Buckets {
		h.Count += n
	}
	return h
}

// difference says where two frames differ; empty where they do not.
func difference(a, b *Frame) string {
	ha, hb := a.Header, b.Header
	if !ha.Time.Equal(hb.Time) {
		return fmt.Sprintf("times %v and %v", ha.Time, hb.Time)
	}
	if ha.Time, hb.Time = (time.Time{}), (time.Time{}); ha != hb {
		return fmt.Sprintf("headers %+v and %+v", a.Header, b.Header)
	}
	if !slices.Equal(a.Strings, b.Strings) {
		return fmt.Sprintf("%d and %d texts", len(a.Strings), len(b.Strings))
	}
	for t := range a.Tables {
		x, y, info := &a.Tables[t], &b.Tables[t], &Schema[t]
		if !slices.Equal(x.IDs, y.IDs) {
			return fmt.Sprintf("%s: rows %v and %v", info.Name, x.IDs, y.IDs)
		}
		for row := range x.IDs {
			for i := range info.Attributes {
				if x.Attributes[i][row] != y.Attributes[i][row] {
					return fmt.Sprintf("%s row %d: %s %d and %d", info.Name, row, info.Attributes[i].Name,
						x.Attributes[i][row], y.Attributes[i][row])
				}
			}
			for i := range info.Columns {
				v, ok := x.Columns[i].At(row)
				w, there := y.Columns[i].At(row)
				if v != w || ok != there {
					return fmt.Sprintf("%s row %d: %s %d (%t) and %d (%t)", info.Name, row, info.Columns[i].Name, v, ok, w, there)
				}
			}
			for i := range info.Histograms {
				g, h := x.Histograms[i].At(row), y.Histograms[i].At(row)
				if !reflect.DeepEqual(g, h) {
					return fmt.Sprintf("%s row %d: %s %+v and %+v", info.Name, row, info.Histograms[i].Name, g, h)
				}
			}
		}
	}
	return ""
}

// TestRoundTrip encodes and decodes frames of random values, after a key frame as it was made and as it was decoded.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		key := randomFrame(r, nil)
		data := Encode(nil, key, nil)
		gotKey, err := Decode(data, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if d := difference(key, gotKey); d != "" {
			t.Fatalf("seed %d: key frame: %s", seed, d)
		}
		for range 5 {
			f := randomFrame(r, key)
			data := Encode([]byte("before"), f, key)[6:]
			for _, of := range []*Frame{key, gotKey} {
				got, err := Decode(data, of)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if d := difference(f, got); d != "" {
					t.Fatalf("seed %d: %s", seed, d)
				}
			}
			h, err := DecodeHeader(data)
			if err != nil || h != (Header{f.Host, f.Epoch, f.Boot, f.Number, f.Key, f.Time, f.ClockError}) {
				t.Fatalf("seed %d: header %+v, %v", seed, h, err)
			}
		}
		if d := difference(key, gotKey); d != "" {
			t.Fatalf("seed %d: the key frame was changed: %s", seed, d)
		}
	}
}

func TestWrongKey(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	key := randomFrame(r, nil)
	f := randomFrame(r, key)
	data := Encode(nil, f, key)
	other := *key
	other.Number, other.Key = 8, 8
	for _, wrong := range []*Frame{nil, f, &other} {
		if _, err := Decode(data, wrong); !errors.Is(err, ErrNoKey) {
			t.Errorf("got %v, want ErrNoKey", err)
		}
	}
}
