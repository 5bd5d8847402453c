package cells

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"outsight/internal/model"
)

const batch = 4096

// kernelCells computes the cells of up to batch values in the kernel.
func kernelCells(t *testing.T, objects *cellsObjects, values []uint64) []uint32 {
	t.Helper()
	padded := make([]uint64, batch)
	copy(padded, values)
	if err := objects.Values.Set(padded); err != nil {
		t.Fatal(err)
	}
	if _, err := objects.Compute.Run(&ebpf.RunOptions{}); err != nil {
		t.Fatalf("running the program: %v", err)
	}
	cells := make([]uint32, batch)
	if err := objects.Cells.Get(cells); err != nil {
		t.Fatal(err)
	}
	return cells[:len(values)]
}

func wantCell(ns uint64) uint32 {
	switch {
	case ns <= uint64(model.ZeroThreshold):
		return 0
	case ns >= uint64(model.OverflowThreshold):
		return 834
	}
	return uint32(model.BucketOf(time.Duration(ns))-model.MinBucket) + 1
}

func TestKernelComputesTheCellsOfModel(t *testing.T) {
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	var objects cellsObjects
	if err := loadCellsObjects(&objects, nil); err != nil {
		t.Fatalf("loading: %v", err)
	}
	defer objects.Close()

	values := []uint64{0, 1, 1023, 1024, 1025, 1<<36 - 1, 1 << 36, 1<<36 + 1, 1 << 63, math.MaxUint64}
	for exponent := -9; exponent <= 6; exponent++ { // whole seconds' powers of two are boundaries
		boundary := uint64(math.Exp2(float64(exponent)) * 1e9)
		values = append(values, boundary-1, boundary, boundary+1)
	}
	for j := model.MinBucket; j <= model.MaxBucket; j++ { // both sides of every boundary
		boundary := uint64(model.BucketUpperBound(int32(j)) * 1e9)
		values = append(values, boundary-1, boundary+2)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300_000 {
		values = append(values, uint64(math.Exp2(random.Float64()*40)))
	}
	for len(values) > 0 {
		n := min(batch, len(values))
		for i, got := range kernelCells(t, &objects, values[:n]) {
			if want := wantCell(values[i]); got != want {
				t.Fatalf("%d ns: kernel says cell %d, model %d", values[i], got, want)
			}
		}
		values = values[n:]
	}
}
