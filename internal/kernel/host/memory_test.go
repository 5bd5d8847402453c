package host

import (
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// Histograms that are read by one system call are those that are read by one each, wherever in the map they lie.
func TestHistogramsAtOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it makes a map, which takes root")
	}
	const entries, most = 9, 4
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8 * HistogramCells, MaxEntries: entries})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range uint32(entries) {
		var h kernelHistogram
		for c := range h.Cells {
			h.Cells[c] = random.Uint64N(1 << 40)
		}
		if err := m.Put(i, &h); err != nil {
			t.Fatal(err)
		}
	}
	together, single := Histograms{Cells: m}, Histograms{Cells: m, single: true}
	for count := 1; count <= most; count++ {
		for index := 0; index+count <= entries; index++ {
			got, err := together.Read(index, count, 7)
			want, wantErr := single.Read(index, count, 7)
			if err != nil || wantErr != nil {
				t.Fatal(err, wantErr)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%d histograms from %d on differ", count, index)
			}
		}
	}
	if together.single {
		t.Error("the kernel does not read several entries at once")
	}
	if _, err := together.Read(entries-1, 2, 0); err == nil {
		t.Error("what is behind the end was read")
	}
}

// Histograms that are read where they lie are those that are read by system calls, whether or not they were read before,
// have counted in other buckets since, or lie beyond what is mapped.
func TestMappedHistograms(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it makes a map, which takes root")
	}
	const lanes = 2
	const entries = lanes * (mostMapped/(8*lanes*HistogramCells) + 10) // more than can be mapped
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8 * HistogramCells, MaxEntries: entries,
		Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mapped := MapHistograms(m)
	cached := make([]CachedHistogram, entries/lanes)
	counts := make([]uint64, len(cached))
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 5 {
		mapped.Begin()
		for slot := range cached {
			index := slot*lanes + random.IntN(lanes)
			var h kernelHistogram
			if err := m.Lookup(uint32(index), &h); err != nil {
				t.Fatal(err)
			}
			h.Cells[random.IntN(200*(round%3)+100)] += 3
			h.Cells[random.IntN(835)] += uint64(round % 2)
			counts[slot] += 3 + uint64(round%2)
			if err := m.Put(uint32(index), &h); err != nil {
				t.Fatal(err)
			}
			before := cached[slot].histogram
			var was model.Histogram
			if before != nil {
				was = *before
				was.Buckets = slices.Clone(before.Buckets)
			}
			got := cached[slot].ReadMapped(mapped, slot*lanes, lanes, counts[slot], uint64(round))
			want, err := mapped.Read(slot*lanes, lanes, uint64(round))
			if err != nil {
				t.Fatal(err)
			}
			if sameDurations := want.Since(got); got.Count != want.Count || got.SumNS != want.SumNS ||
				got.ZeroCount != want.ZeroCount || got.OverflowCount != want.OverflowCount || sameDurations.Count != 0 {
				t.Fatalf("round %d, slot %d: %+v, want %+v", round, slot, got, want)
			}
			if before != nil && !reflect.DeepEqual(before, &was) {
				t.Fatalf("round %d, slot %d: the answer before has changed", round, slot)
			}
		}
	}
	if least := mostMapped - 8*lanes*HistogramCells - 2*os.Getpagesize(); mapped.bytes > mostMapped || mapped.bytes < least {
		t.Errorf("%d bytes are mapped, want %d to %d", mapped.bytes, least, mostMapped)
	}
	for range 2*mappingKept + 1 {
		mapped.Begin()
	}
	if len(mapped.mapped) != 0 || mapped.bytes != 0 {
		t.Errorf("%d with %d bytes are mapped that are not read", len(mapped.mapped), mapped.bytes)
	}
}
