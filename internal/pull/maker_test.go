package pull

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/region"
)

// figuresOf are a figure for each column that regions have of an entity, by its series: the n-th counts n and something.
func figuresOf[T any](of model.Entity, rows []model.Row[T]) (all region.Figures, counts map[string]uint64) {
	counts = map[string]uint64{}
	has := region.Columns(of)
	for i := range rows {
		for _, c := range rows[i].Columns {
			if !slices.Contains(has, c.Name) {
				continue
			}
			m := &region.Metric{Name: rows[i].Name, LabelName: c.Label.Name, LabelValue: c.Label.Value, Per: 1}
			n := uint64(1000 + len(all))
			f := region.Figure{Metric: m, Count: n, Less: 5 * n}
			if c.Histogram != nil {
				f.Histogram = &model.Histogram{Count: n, SumNS: n, ZeroCount: n}
			}
			all, counts[c.Name] = append(all, f), n
		}
	}
	return all, counts
}

// checkFilled holds what the registry reads of an entity against what its figures were.
func checkFilled[T any](t *testing.T, rows []model.Row[T], of *T, want map[string]uint64) {
	t.Helper()
	for i := range rows {
		for _, c := range rows[i].Columns {
			n, regions := want[c.Name]
			if !regions {
				continue
			}
			var got uint64
			ok := false
			switch {
			case c.Count != nil:
				got, ok = c.Count(of)
			case c.Value != nil: // the quota
				var value float64
				value, ok = c.Value(of)
				got = uint64(math.Round(value * model.Microcores))
			case c.Histogram != nil:
				var h *model.Histogram
				if h, ok = c.Histogram(of); h != nil {
					got = h.Count
				}
			}
			if !ok || got != n {
				t.Errorf("%s is %d (%v), the region says %d", c.Name, got, ok, n)
			}
		}
	}
}

// TestAllThatRegionsHave: each figure of a region is in the frame's column of its name, and not in another one.
func TestAllThatRegionsHave(t *testing.T) {
	figures, want := figuresOf(model.OfContainer, model.ContainerRows)
	if len(want) < 20 {
		t.Fatalf("%d columns of containers, want those of the registry", len(want))
	}
	c := containerState{container: &model.Container{}}
	var sum counters
	c.levels.fill(figures)
	sum.fill(figures)
	sample := sampleOf(&c, &sum)
	checkFilled(t, model.ContainerRows, &sample, want)
	for _, side := range []model.Role{model.RoleClient, model.RoleServer} {
		for _, transport := range []model.Transport{model.TCP, model.UDP} {
			figures, want := figuresOf(model.OfEdge, model.EdgeRows)
			e := model.Edge{Side: side, Transport: transport}
			if fillEdge(&e.Counters, side, figures); transport == model.TCP {
				for _, ofUDP := range []string{"request_packets", "response_packets", "one_way"} {
					delete(want, ofUDP)
				}
			} else {
				for _, ofTCP := range []string{"failures_refused", "failures_timed_out", "failures_unreachable"} {
					delete(want, ofTCP)
				}
			}
			checkFilled(t, model.EdgeRows, &e, want)
		}
	}
}

// world is a host whose counters grow, and what was truly counted.
type world struct {
	random *rand.Rand
	now    time.Time
	groups []groupReading
	edges  []edgeReading
	disks  []model.KernelDisk
	// endpoints are one of each edge.
	endpoints []endpointReading
	counted
	// next counts control groups, and records those of endpoints.
	next, records uint64
	// ahead is by how much the clock of reader b is.
	ahead time.Duration
}

// counted is what was counted in all, of ended things too: CPU time, bytes of edges and of disks, and requests to disks, and of endpoints.
type counted struct{ cpu, bytes, disk, requests, asked uint64 }

var worldBegan = time.Unix(1_700_000_000, 0)

func newWorld(seed uint64) *world {
	return &world{random: rand.New(rand.NewPCG(seed, 1)), now: worldBegan.Add(time.Second)}
}

func (w *world) step() {
	w.now = w.now.Add(700 * time.Millisecond)
	if len(w.groups) == 0 || w.random.IntN(4) == 0 {
		w.next++
		w.groups = append(w.groups, groupReading{ID: model.CgroupID(w.next)})
		w.edges = append(w.edges, edgeReading{ID: edgeID{uint32(w.next % 3), uint32(w.next)}, Key: model.KernelEdgeKey{
			Owner: 1, Role: model.RoleClient, Service: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(w.next)}), 80)}})
		w.endpoints = append(w.endpoints, w.newEndpoint(w.edges[len(w.edges)-1].ID))
		w.disks = append(w.disks, model.KernelDisk{Entry: w.next, Group: model.CgroupID(w.next), BlockGroup: w.next,
			Device: model.BlockDevice{Major: 8, Minor: uint32(w.next % 2 * 16), Name: []string{"sda", "sdb"}[w.next%2]}})
	}
	for i := range w.groups {
		n := w.random.Uint64N(100)
		w.groups[i].Counters.CPU.UsageNS += n
		w.cpu += n
	}
	for i := range w.edges {
		n := w.random.Uint64N(100)
		w.edges[i].Counters.SentBytes += n
		w.bytes += n
	}
	for i := range w.disks {
		n := w.random.Uint64N(100)
		read := &w.disks[i].Counters.Read
		read.Operations, read.Bytes = read.Operations+1, read.Bytes+n
		read.Latency = &model.Histogram{Count: read.Operations, ZeroCount: read.Operations}
		w.disk, w.requests = w.disk+n, w.requests+1
	}
	for i := range w.endpoints {
		n, m := w.random.Uint64N(10), w.random.Uint64N(3)
		e := &w.endpoints[i].Endpoint
		if e.Latency != nil {
			n += e.Latency.Count
			w.asked -= e.Latency.Count
		}
		e.Aside, e.Latency = e.Aside+m, &model.Histogram{Count: n, ZeroCount: n}
		w.asked += n + m
	}
}

// newEndpoint is a record of an endpoint that has begun.
func (w *world) newEndpoint(of edgeID) endpointReading {
	w.records++
	return endpointReading{w.records, of, model.Endpoint{EndpointKey: model.EndpointKey{Protocol: model.HTTP, Name: "GET /"}}}
}

// end ends a control group and an edge that have been read, and gives the record of another edge's endpoint up.
func (w *world) end() {
	if len(w.groups) > 1 {
		w.groups, w.edges, w.disks = slices.Delete(w.groups, 1, 2), slices.Delete(w.edges, 1, 2), slices.Delete(w.disks, 1, 2)
		w.endpoints = slices.Delete(w.endpoints, 1, 2)
		w.endpoints[0] = w.newEndpoint(w.edges[0].ID)
	}
}

// read is a reading of now.
func (w *world) read(reader string, term, number uint64) *reading {
	at := w.now
	if reader == "b" {
		at = at.Add(w.ahead)
	}
	return &reading{From: "web1:1", Reader: reader, Term: term, Number: number, At: at, EpochNS: uint64(worldBegan.UnixNano()),
		Host: "web1", CPUs: 2, Containers: []containerReading{{Container: model.Container{ID: model.HostContainerID, Name: "host",
			Runtime: model.HostRuntime}}}, Groups: slices.Clone(w.groups), Edges: slices.Clone(w.edges), HasDisks: true, Disks: slices.Clone(w.disks),
		Endpoints: slices.Clone(w.endpoints)}
}

// totals are what the frames of a host have counted between two.
func totals(t *testing.T, f *frame.Frame) (all counted) {
	t.Helper()
	for row := range f.Tables[frame.Labelled].IDs {
		labelled := &f.Tables[frame.Labelled]
		n, _ := labelled.Columns[0].At(row)
		switch f.Text(frame.Labelled, frame.LabelledMetric, row) {
		case "container_disk_io_bytes_total":
			all.disk += n
		case "container_disk_operations_total":
			all.requests += n
		}
	}
	sum := func(table frame.TableID, column string) (n uint64) {
		of := &f.Tables[table].Columns[frame.Column(table, column)]
		for row := range f.Tables[table].IDs {
			value, _ := of.At(row)
			n += value
		}
		return n
	}
	all.asked = sum(frame.Endpoints, "requests")
	all.cpu, all.bytes = sum(frame.Containers, "cpu"), sum(frame.Edges, "request_bytes")
	return all
}

// TestWhoReadsDoesNotMatter: two servers read at once, by clocks that differ, and what they read comes late, twice, in
// another order or never. The frame after the last reading has everything exactly once.
func TestWhoReadsDoesNotMatter(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(seed)
			w.ahead = time.Duration(w.random.Int64N(int64(6*time.Second))) - 3*time.Second
			w.step()
			first := w.read("a", 1, 1)
			m := newMaker(first, earlier{})
			m.take(first)
			frames := []*frame.Frame{m.frame()}
			waiting := []*reading{}
			numbers := map[string]uint64{"a": 1}
			for turn := range 200 {
				w.step()
				reader := []string{"a", "b"}[w.random.IntN(2)]
				numbers[reader]++
				waiting = append(waiting, w.read(reader, uint64(1+turn/10), numbers[reader]))
				if w.random.IntN(3) > 0 {
					continue
				}
				w.random.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
				for _, r := range append(waiting, waiting...) {
					if w.random.IntN(5) > 0 && !m.isOlder(r) {
						m.take(r)
						if m.isDue(10 * time.Millisecond) {
							frames = append(frames, m.frame())
						}
					}
				}
				waiting = waiting[:0]
				// What ends has been read before, and is not in any reading that is still to come.
				numbers["b"]++
				last := w.read("b", uint64(2+turn/10), numbers["b"])
				if m.take(last); w.random.IntN(4) == 0 {
					w.end()
				}
			}
			w.step()
			m.take(w.read("b", 1000, 1000))
			w.now = w.now.Add(10 * time.Second)
			m.take(w.read("b", 1000, 1001))
			if !m.isDue(time.Second) {
				t.Fatal("no frame is due a second later")
			}
			frames = append(frames, m.frame())
			var before counted
			for i, f := range frames {
				now := totals(t, f)
				if now.cpu < before.cpu || now.bytes < before.bytes || now.disk < before.disk || now.requests < before.requests ||
					now.asked < before.asked {
					t.Fatalf("frame %d has %+v, the one before %+v", i, now, before)
				}
				before = now
			}
			if before != w.counted || len(frames) < 5 {
				t.Errorf("%d frames have %+v, counted were %+v", len(frames), before, w.counted)
			}
		})
	}
}

// TestServerBegunAnew: where frames of the same life of an agent are stored, a new server counts from its first reading on;
// where the agent has begun since, from the agent's begin on.
func TestServerBegunAnew(t *testing.T) {
	for _, c := range []struct {
		name   string
		before earlier
		all    bool
	}{
		{"of no frames", earlier{}, true},
		{"of frames of this life", earlier{true, worldBegan.Add(time.Millisecond)}, false},
		{"of frames of an earlier life", earlier{true, worldBegan.Add(-time.Millisecond)}, true},
	} {
		w := newWorld(1)
		w.step()
		first := w.read("a", 1, 1)
		before := w.counted
		m := newMaker(first, c.before)
		m.take(first)
		m.frame()
		w.step()
		w.now = w.now.Add(time.Second)
		m.take(w.read("a", 1, 2))
		m.take(w.read("a", 1, 3)) // a disk of a group that began just before shows at the reading after
		want := w.counted
		if !c.all {
			want = counted{want.cpu - before.cpu, want.bytes - before.bytes, want.disk - before.disk,
				want.requests - before.requests, want.asked - before.asked}
		}
		f := m.frame()
		if got := totals(t, f); got != want {
			t.Errorf("%s: %+v, want %+v of %+v", c.name, got, want, w.counted)
		}
		if began := time.Unix(0, int64(f.Epoch)); c.all != (began.Sub(worldBegan) < time.Millisecond) {
			t.Errorf("%s: the epoch is %v, the agent's %v", c.name, began, worldBegan)
		}
	}
}

// TestMissingIsNotZero: what no region has is missing in the frame.
func TestMissingIsNotZero(t *testing.T) {
	w := newWorld(1)
	w.step()
	r := w.read("a", 1, 1)
	r.HasDisks, r.Disks = false, nil
	r.Containers[0].Levels.Memory = level{7, true}
	m := newMaker(r, earlier{})
	m.take(r)
	f := m.frame()
	for row := range f.Tables[frame.Labelled].IDs {
		switch name := f.Text(frame.Labelled, frame.LabelledMetric, row); name {
		case "container_info", "outsight_feature_available", "outsight_build_info": // of names, and of who makes the frame
		default:
			t.Errorf("there is %s of a host whose disks were not read", name)
		}
	}
	for column, want := range map[string]bool{"cpu": true, "memory_usage": true, "memory_rss": false, "disk_reads": false,
		"throttled": false} {
		if _, got := f.Tables[frame.Containers].Columns[frame.Column(frame.Containers, column)].At(0); got != want {
			t.Errorf("%s is there: %v, want %v", column, got, want)
		}
	}
	for column, want := range map[string]bool{"request_bytes": true, "in_flight": true, "rtt_min": false} {
		if _, got := f.Tables[frame.Edges].Columns[frame.Column(frame.Edges, column)].At(0); got != want {
			t.Errorf("%s is there: %v, want %v", column, got, want)
		}
	}
}

// TestPressureDoesNotFall: an agent that begins may know of a lesser sum of the kernel, which is no restart; that of a container that
// begins again is one.
func TestPressureDoesNotFall(t *testing.T) {
	w := newWorld(1)
	w.step()
	var m *maker
	began := worldBegan
	for number, c := range []struct{ read, want uint64 }{{5_000_000, 5_000_000}, {4_999_000, 5_000_000}, {5_001_000, 5_001_000},
		{2000, 5_003_000}} {
		if number == 3 {
			began = began.Add(time.Minute)
		}
		w.now = w.now.Add(time.Second)
		r := w.read("a", 1, uint64(number+1))
		r.Containers[0].Container.Started = began
		r.Containers[0].Levels.Pressures[0][0] = level{c.read, true}
		if m == nil {
			m = newMaker(r, earlier{})
		}
		m.take(r)
		f := m.frame()
		got, ok := f.Tables[frame.Containers].Columns[frame.Column(frame.Containers, "pressure_cpu_waiting")].At(0)
		if !ok || got != c.want {
			t.Errorf("after %d ns the frame says %d (%v), want %d", c.read, got, ok, c.want)
		}
	}
}

// TestUnknownFrames: where it cannot be known which frames an earlier process has made, hosts count from now on, and an
// agent that begins later counts from its begin on.
func TestUnknownFrames(t *testing.T) {
	for _, c := range []struct {
		name    string
		settled error
		known   bool
	}{{"all are stored", nil, false}, {"some may wait", errors.New("the log is full"), true}} {
		p, err := New([]Host{{"web1:1", time.Second, ""}}, Options{Settled: func(context.Context) error { return c.settled },
			Newest: func(context.Context, string) ([]*frame.Frame, error) { return nil, nil }})
		if err != nil {
			t.Fatal(err)
		}
		known, err := p.known(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		of := known(hostKey{"", "web1"})
		if of.known != c.known || c.known && time.Since(of.time) > time.Minute {
			t.Errorf("%s: %+v", c.name, of)
		}
	}
}
