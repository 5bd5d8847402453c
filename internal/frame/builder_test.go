package frame

import (
	"testing"
	"time"

	"outsight/internal/model"
)

// TestNothingIsLostWithRows lets edges and containers come, count and go, and holds the sums of all rows against what was
// counted.
func TestNothingIsLostWithRows(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	b := NewBuilder(start)
	var counted uint64
	type live struct {
		c *model.Container
		e model.EdgeCounters
	}
	alive := map[int]*live{}
	var frames []*Frame
	for second := range 2000 {
		now := start.Add(time.Duration(second) * time.Second)
		s := &model.Snapshot{Time: now, Host: model.Host{Name: "h", Cores: 2}}
		if second%7 == 0 {
			alive[second] = &live{c: &model.Container{ID: string(rune('a'+second%26)) + time.Duration(second).String(),
				Name: "job", Runtime: model.Docker}}
		}
		for at, l := range alive {
			l.e.SentBytes += uint64(second)
			l.e.Requests++
			if l.e.Latency == nil {
				l.e.Latency = &model.Histogram{}
			}
			l.e.Latency.Merge(&model.Histogram{Count: 1, SumNS: 5, Offset: int32(second % 50), Buckets: []uint64{1}})
			counted += uint64(second)
			c := *l.c
			if at < second-60 {
				c.Ended = now
				delete(alive, at)
			}
			counters := l.e
			counters.Latency = l.e.Latency.Clone()
			s.Containers = append(s.Containers, model.ContainerSample{Container: &c,
				CPU: &model.CPUCounters{UsageNS: l.e.SentBytes}})
			s.Edges = append(s.Edges, model.Edge{Instance: uint64(at + 1), Side: model.RoleClient,
				Client: model.Peer{Container: &c}, Counters: counters,
				Endpoints: []model.Endpoint{{EndpointKey: model.EndpointKey{Protocol: model.HTTP, Name: "GET /"},
					Latency: l.e.Latency.Clone()}}})
		}
		f := b.Build(s)
		frames = append(frames, f)
		check := func(table TableID, column string, want uint64) {
			t.Helper()
			got := uint64(0)
			for row := range f.Tables[table].IDs {
				n, _ := f.Tables[table].Columns[Column(table, column)].At(row)
				got += n
			}
			if got != want {
				t.Fatalf("second %d: the %s of all rows are %d, %d were counted", second, column, got, want)
			}
		}
		check(Edges, "request_bytes", counted)
		check(Containers, "cpu", counted)
		inEdges, inEndpoints := uint64(0), uint64(0)
		for row := range f.Tables[Edges].IDs {
			inEdges += f.Tables[Edges].Histograms[Histogram(Edges, "latency")].total(row)
		}
		for row := range f.Tables[Endpoints].IDs {
			inEndpoints += f.Tables[Endpoints].Histograms[Histogram(Endpoints, "latency")].total(row)
		}
		if inEdges != inEndpoints || inEdges == 0 {
			t.Fatalf("second %d: %d transactions of edges, %d of endpoints", second, inEdges, inEndpoints)
		}
		for table := range f.Tables {
			ids := f.Tables[table].IDs
			for i := 1; i < len(ids); i++ {
				if ids[i] <= ids[i-1] {
					t.Fatalf("the rows of %s are not in order: %v", Schema[table].Name, ids)
				}
			}
		}
	}
	last := frames[len(frames)-1]
	if n := len(last.Tables[Containers].IDs); n > 9+600/7+3 {
		t.Errorf("%d rows of containers are left", n)
	}
	states := map[uint64]int{}
	for row := range last.Tables[Containers].IDs {
		states[last.Tables[Containers].Attribute(State, row)]++
	}
	if states[Live] == 0 || states[Gone] == 0 || states[Summed] != 1 {
		t.Errorf("rows by their state: %v", states)
	}
}

// TestCountersThatFall: the source of a counter restarts, and its row does not.
func TestCountersThatFall(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	b := NewBuilder(start)
	c := &model.Container{ID: "a", Name: "a"}
	at := func(i int, cpu, requests uint64) *Frame {
		return b.Build(&model.Snapshot{Time: start.Add(time.Duration(i) * time.Second), Containers: []model.ContainerSample{{
			Container: c, CPU: &model.CPUCounters{UsageNS: cpu, RunQueue: &model.Histogram{Count: requests, Offset: 3,
				Buckets: []uint64{requests}}}}}})
	}
	for i, step := range []struct{ cpu, queue, wantCPU, wantQueue uint64 }{{10, 4, 10, 4}, {30, 5, 30, 5}, {5, 1, 35, 6},
		{8, 3, 38, 8}, {1, 1, 39, 9}, {2, 2, 40, 10}} {
		f := at(i, step.cpu, step.queue)
		cpu, _ := f.Tables[Containers].Columns[Column(Containers, "cpu")].At(0)
		queue := f.Tables[Containers].Histograms[Histogram(Containers, "run_queue")].At(0)
		if cpu != step.wantCPU || queue.Count != step.wantQueue {
			t.Errorf("step %d: CPU %d and %d waits, want %d and %d", i, cpu, queue.Count, step.wantCPU, step.wantQueue)
		}
	}
}

// TestMeanAndHighest of a level: the mean of a window is the difference of integrals.
func TestMeanAndHighest(t *testing.T) {
	start := time.Unix(1_800_000_000, 0).Truncate(time.Minute)
	b := NewBuilder(start)
	c := &model.Container{ID: "a", Name: "a"}
	var frames []*Frame
	for i := range 61 {
		bytes := uint64(100)
		if i == 30 {
			bytes = 1000
		}
		sample := model.ContainerSample{Container: c, Memory: &model.MemorySample{UsageBytes: bytes}}
		if i >= 40 && i < 50 { // it is not known
			sample.Memory = nil
		}
		frames = append(frames, b.Build(&model.Snapshot{Time: start.Add(time.Duration(i) * time.Second),
			Containers: []model.ContainerSample{sample}}))
	}
	get := func(f *Frame, name string) uint64 {
		n, _ := f.Tables[Containers].Columns[Column(Containers, name)].At(0)
		return n
	}
	if got := get(frames[60], "memory_usage.integral") - get(frames[0], "memory_usage.integral"); got != 49*100+1000 {
		t.Errorf("the integral gained %d byte seconds, want %d", got, 49*100+1000)
	}
	if !frames[0].IsKey() || frames[30].IsKey() || !frames[60].IsKey() || frames[59].Key != 1 {
		t.Error("key frames are not those that begin a minute")
	}
	for i, want := range map[int]uint64{29: 100, 30: 1000, 45: 1000, 59: 1000, 60: 1000} {
		if got := get(frames[i], "memory_usage.highest"); got != want {
			t.Errorf("the highest at %d s is %d, want %d", i, got, want)
		}
	}
}

// TestForceKey: a key frame out of turn is told completely, with texts of its own, and rows go on.
func TestForceKey(t *testing.T) {
	start := time.Unix(1_800_000_000, 0).Truncate(time.Minute)
	b, w := NewBuilder(start), newShop(3, 5)
	var frames []*Frame
	for second := range 4 {
		if second == 2 {
			b.ForceKey()
		}
		frames = append(frames, b.Build(w.at(start, second)))
	}
	for i, want := range []uint64{1, 1, 3, 3} {
		if frames[i].Key != want {
			t.Errorf("frame %d is told as changes of %d, want %d", i+1, frames[i].Key, want)
		}
	}
	for second, f := range frames {
		whole, err := Decode(Encode(nil, f, frames[f.Key-1]), frames[f.Key-1])
		if err != nil {
			t.Fatal(err)
		}
		for row := range whole.Tables[Containers].IDs {
			if got, want := whole.Text(Containers, ContainerName, row), w.containers[row].Name; got != want {
				t.Errorf("second %d: row %d is %q, want %q", second, row, got, want)
			}
		}
		if got := whole.Tables[Edges].Histograms[Histogram(Edges, "latency")].At(4); got == nil ||
			got.Count != 40*uint64(second+1) {
			t.Errorf("second %d: the last edge has %+v", second, got)
		}
	}
}

// TestSumIsFixed: what becomes known of a row soon after its begin decides which row sums it; what changes later does
// not, for frames that name the sum may be kept by then.
func TestSumIsFixed(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	b := NewBuilder(start)
	at := func(second int, name string) uint64 {
		f := b.Build(&model.Snapshot{Time: start.Add(time.Duration(second) * time.Second),
			Containers: []model.ContainerSample{{Container: &model.Container{ID: "a", Name: name}}}})
		return f.Tables[Containers].Attribute(Sum, 0)
	}
	unnamed, named, later := at(0, ""), at(3, "web"), at(60, "other")
	if unnamed == named || later != named {
		t.Errorf("the rows of the sums are %d, %d and %d", unnamed, named, later)
	}
}

// TestBoot: the kernel's name of a boot distinguishes boots also where the clock was set.
func TestBoot(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	of := func(id string, booted time.Time) uint64 {
		return Of(&model.Snapshot{Time: now, Host: model.Host{BootID: id, BootTime: booted}}).Boot
	}
	first := of("c5b1e8a6-1", now)
	if first == 0 || of("c5b1e8a6-1", now.Add(3*time.Second)) != first || of("c5b1e8a6-2", now) == first {
		t.Error("boots are not told apart by their names")
	}
	if of("", now) != uint64(now.Unix()) || of("", time.Time{}) != 0 {
		t.Error("without a name it is not the time of the boot")
	}
}
