package frame

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// TestMemoryIsUsedAgain: frames that are decoded into memory of others, larger and smaller ones and of other columns, are
// what Decode makes of them.
func TestMemoryIsUsedAgain(t *testing.T) {
	var all [][2][]byte
	for _, edges := range []int{60, 3, 200, 1, 30} {
		key, f := sampleFrames(1+edges/8, edges, 0.6)
		all = append(all, [2][]byte{Encode(nil, key, nil), Encode(nil, f, key)})
	}
	projections := []*Projection{nil, NewProjection(map[TableID][]string{Hosts: nil, Edges: {"latency", "request_bytes"}}),
		NewProjection(map[TableID][]string{Hosts: nil, Containers: nil})}
	random := rand.New(rand.NewPCG(1, 7))
	var memory Memory
	for range 60 {
		var key, wantedKey *Frame
		data, only := all[random.IntN(len(all))], projections[random.IntN(len(projections))]
		for _, one := range data {
			want, err := DecodeOnly(one, wantedKey, only)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeInto(&memory, one, key, only)
			if err != nil {
				t.Fatal(err)
			}
			if wantedKey == nil {
				wantedKey, key = want, got
			}
			if !reflect.DeepEqual(got.Strings, want.Strings) {
				t.Fatalf("texts %q, want %q", got.Strings, want.Strings)
			}
			for i := range want.Tables {
				a, b := &got.Tables[i], &want.Tables[i]
				if len(a.IDs) != len(b.IDs) || len(a.Histograms) != len(b.Histograms) || !reflect.DeepEqual(a.Columns, b.Columns) ||
					len(b.IDs) > 0 && !reflect.DeepEqual(a.Attributes, b.Attributes) {
					t.Fatalf("%s: %+v, want %+v", Schema[i].Name, a, b)
				}
				for k := range b.Histograms {
					for row := range b.IDs {
						if a, b := a.Histograms[k].At(row), b.Histograms[k].At(row); !reflect.DeepEqual(a, b) {
							t.Fatalf("%s, row %d: %+v, want %+v", Schema[i].Name, row, a, b)
						}
					}
				}
			}
		}
		memory.Release()
	}
}
