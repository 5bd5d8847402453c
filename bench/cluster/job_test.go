package cluster

import (
	"slices"
	"testing"
)

func TestTasksHaveTheBytesOfTheJob(t *testing.T) {
	j := Job{Scan: 3000, Shuffle: 900}
	w := j.tasks([]string{"a", "b", "c", "d"}, []string{"x", "y", "z", "u"}, "driver")
	if len(w) != 4 {
		t.Fatalf("%d tasks, want 4", len(w))
	}
	x := w["x"]
	want := map[string]int64{"a": 300, "b": 2100, "c": 300, "d": 300}
	for at, size := range want {
		if x.Read[at] != size {
			t.Errorf("x reads %d bytes of %s, want %d", x.Read[at], at, size)
		}
	}
	if len(x.Send) != 3 || x.Send["y"] != 300 || x.Send["z"] != 300 || x.Send["u"] != 300 {
		t.Errorf("x sends %v, want 300 to each other", x.Send)
	}
	if x.Driver != "driver" || x.Result != 30 {
		t.Errorf("x gives %d bytes to %s, want 30 to driver", x.Result, x.Driver)
	}
}

func TestSpreadIsEven(t *testing.T) {
	c := &Cluster{options: Options{Hosts: 4}, nodes: make([]node, 9)}
	count := make([]int, 4)
	for _, host := range c.Spread() {
		count[host]++
	}
	if slices.Min(count) != 2 || slices.Max(count) != 3 {
		t.Errorf("hosts have %v containers, want 2 or 3 each", count)
	}
}

func TestPayloadIsWithoutHeaders(t *testing.T) {
	if got := (Sent{Bytes: 2*1514 + 66, Packets: 3}).Payload(); got != 2*1448 {
		t.Errorf("two full frames and an acknowledgement have %v bytes, want 2896", got)
	}
}
