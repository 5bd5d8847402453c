package host

import (
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"github.com/cilium/ebpf"
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
