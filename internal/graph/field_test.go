package graph

import (
	"testing"

	"outsight/internal/model"
)

// Fields that tests alone ask for by name.
var (
	DiskReadBytes = containerTable.field("disk_read_bytes")
	MemoryUsage   = containerTable.field("memory_usage")
	Threads       = containerTable.field("threads")
	Transfers     = edgeTable.field("transfers")
	Held          = edgeTable.field("held")
	Pushes        = edgeTable.field("pushes")
	Resets        = edgeTable.field("resets")
	TimedOut      = edgeTable.field("timed_out")
	Continued     = edgeTable.field("continued")
	WindowLimited = edgeTable.field("window_limited")
)

// Each column of an edge that is no state is in the sum of two edges: added up, or the least.
func TestFoldHasEveryField(t *testing.T) {
	var a, b values
	for i := range edgeTable.columns {
		a.set(ofEdge|Field(i), float64(i+1))
		b.set(ofEdge|Field(i), float64(10*i+5))
	}
	a.fold(&b, edgeTable.leasts)
	for i, c := range edgeTable.columns {
		want := float64(i+1) + float64(10*i+5)
		if c.Fold == model.Least {
			want = float64(i + 1)
		}
		if got := a.of(ofEdge | Field(i)); got != want {
			t.Errorf("%s: got %v, want %v", c.Name, got, want)
		}
	}
	var none values
	none.fold(&a, edgeTable.leasts)
	if none != a {
		t.Errorf("the sum with nothing is %v, want %v", none, a)
	}
}
