package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"outsight/internal/container"
	"outsight/internal/frame"
	"outsight/internal/model"
)

// script is a host that does what a test says: sources whose every reading is known.
type script struct {
	mu         sync.Mutex
	containers []*model.Container
	removed    []model.CgroupID
	owners     map[model.CgroupID]*model.Container
	cgroups    []model.CgroupCounters
	edges      []model.KernelEdge
	listening  []model.Listener
	err        error
	forgotten  []model.CgroupID
	events     chan model.CgroupEvent
	handled    []model.CgroupEvent
	// step runs before each reading.
	step func(reading int)
	n    int
}

func newScript() *script {
	host := &model.Container{ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime}
	return &script{
		containers: []*model.Container{host},
		owners:     map[model.CgroupID]*model.Container{1: host},
		events:     make(chan model.CgroupEvent, 8),
	}
}

func (s *script) Collect() container.Collection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.step != nil {
		s.step(s.n)
	}
	s.n++
	c := container.Collection{Containers: s.containers, Removed: s.removed}
	s.removed = nil
	s.containers = slices.DeleteFunc(slices.Clone(s.containers),
		func(c *model.Container) bool { return !c.Ended.IsZero() })
	return c
}

func (s *script) Lookup(id model.CgroupID) *model.Container {
	if c := s.owners[id]; c != nil {
		return c
	}
	return s.owners[1]
}

func (s *script) Find(id model.CgroupID) (*model.Container, bool) { return s.Lookup(id), true }

func (s *script) HandleEvent(e model.CgroupEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handled = append(s.handled, e)
}

func (s *script) Events() <-chan model.CgroupEvent { return s.events }
func (s *script) ForgetCgroup(id model.CgroupID) {
	s.forgotten = append(s.forgotten, id)
	s.cgroups = slices.DeleteFunc(slices.Clone(s.cgroups), func(c model.CgroupCounters) bool { return c.ID == id })
}
func (s *script) ReadListeners() ([]model.Listener, error)         { return s.listening, s.err }
func (s *script) ReadEdges() ([]model.KernelEdge, error)           { return s.edges, s.err }
func (s *script) ReadCgroups() ([]model.CgroupCounters, error)     { return s.cgroups, s.err }
func (s *script) Read(all []*model.Container, u []container.Usage) { readUsages(all, u) }

func (s *script) add(id string, groups ...model.CgroupID) *model.Container {
	c := &model.Container{ID: id, Name: id, Runtime: model.Docker, Cgroup: groups[0]}
	s.containers = append(s.containers, c)
	for _, g := range groups {
		s.owners[g] = c
	}
	return c
}

func (s *script) end(id string) {
	for i, c := range s.containers {
		if c.ID == id {
			ended := *c
			ended.Ended = time.Now()
			s.containers[i] = &ended
		}
	}
}

func (s *script) sources() Sources { return Sources{Counters: s, Registry: s, Lifecycle: s, Files: s} }

// readUsages tells of each container that runs 7 threads.
func readUsages(all []*model.Container, u []container.Usage) {
	for i, c := range all {
		if c.Ended.IsZero() {
			threads := uint64(7)
			u[i].Threads = &threads
		}
	}
}

func used(id model.CgroupID, ns uint64) model.CgroupCounters {
	return model.CgroupCounters{ID: id, TaskCounters: model.TaskCounters{Forks: ns}, CPU: model.CPUCounters{
		UsageNS: ns, RunQueue: &model.Histogram{Count: ns, SumNS: ns * 2000, Offset: -500, Buckets: []uint64{ns}},
	}}
}

// render writes containers as "id usage/forks/waits", "+" with the ones that ended.
func render(s *model.Snapshot) string {
	var parts []string
	for _, c := range s.Containers {
		ended := ""
		if !c.Container.Ended.IsZero() {
			ended = "+"
		}
		if c.CPU == nil {
			parts = append(parts, fmt.Sprintf("%s%s -", c.Container.ID, ended))
			continue
		}
		var waits uint64
		if c.CPU.RunQueue != nil {
			waits = c.CPU.RunQueue.Count
		}
		parts = append(parts, fmt.Sprintf("%s%s %d/%d/%d", c.Container.ID, ended, c.CPU.UsageNS, c.Processes.Forks, waits))
	}
	return strings.Join(parts, ", ")
}

func TestCountersOfContainers(t *testing.T) {
	s := newScript()
	s.add("web", 10, 11)
	a := New(s.sources(), Options{})
	var last *model.Snapshot
	check := func(want string) {
		t.Helper()
		last = a.read()
		if got := render(last); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	s.cgroups = []model.CgroupCounters{used(1, 5), used(10, 20), used(11, 3), used(99, 2),
		{Slot: model.IdleTime, CPU: model.CPUCounters{UsageNS: 77}},
		{Slot: model.OtherCgroups, CPU: model.CPUCounters{UsageNS: 8}}}
	check("host 7/7/7, web 23/23/23")
	if self := last.Self; self.IdleNS != 77 || self.OtherNS != 8 {
		t.Errorf("idle %d and others %d, want 77 and 8", self.IdleNS, self.OtherNS)
	}

	// A nested group is removed: what it counted stays, even that of its last moment.
	s.removed = []model.CgroupID{11}
	check("host 7/7/7, web 23/23/23")
	s.cgroups[2] = used(11, 4)
	check("host 7/7/7, web 24/24/24")
	if !slices.Equal(s.forgotten, []model.CgroupID{11}) {
		t.Errorf("%v were given back to the kernel, want 11", s.forgotten)
	}
	s.cgroups[1] = used(10, 21)
	check("host 7/7/7, web 25/25/25")

	// The container ends: it is in one more snapshot.
	s.end("web")
	s.removed = []model.CgroupID{10}
	s.cgroups[1] = used(10, 22)
	check("host 7/7/7, web+ 26/26/26")
	check("host 7/7/7")
	check("host 7/7/7")
	if len(a.groups.totals) != 1 {
		t.Errorf("%d containers are remembered, want the host alone", len(a.groups.totals))
	}

	// One that lived between two readings.
	s.add("job", 12)
	s.end("job")
	s.removed = []model.CgroupID{12}
	s.cgroups = []model.CgroupCounters{used(1, 6), used(12, 9), used(99, 2)}
	check("host 8/8/8, job+ 9/9/9")
	check("host 8/8/8")

	// A group that becomes known late: the host's sum does not go down.
	s.cgroups = []model.CgroupCounters{used(1, 6), used(99, 2), used(20, 4)}
	check("host 12/12/12")
	s.add("late", 20)
	s.cgroups[2] = used(20, 9)
	check("host 12/12/12, late 5/5/5")

	// The kernel had no room for a group for a while.
	s.cgroups[2] = used(20, 1)
	check("host 12/12/12, late 6/6/6")
}

func TestPublishedHistogramsDoNotChange(t *testing.T) {
	s := newScript()
	s.add("web", 10, 11, 12)
	a := New(s.sources(), Options{})
	type copied struct{ published, at *model.Histogram }
	var all []copied
	for n := range uint64(8) {
		s.cgroups = []model.CgroupCounters{used(10, 20+n)}
		if n%3 != 1 {
			s.cgroups = append(s.cgroups, used(11, 3+n))
		}
		if n == 4 {
			s.removed = []model.CgroupID{11}
		}
		for _, c := range a.read().Containers {
			all = append(all, copied{c.CPU.RunQueue, c.CPU.RunQueue.Clone()})
		}
	}
	for i, c := range all {
		if c.published != nil && (c.published.Count != c.at.Count || !slices.Equal(c.published.Buckets, c.at.Buckets)) {
			t.Errorf("histogram %d changed after it was handed out: %+v, was %+v", i, c.published, c.at)
		}
	}
}

func TestAFailingSourceLeavesTheRest(t *testing.T) {
	var log bytes.Buffer
	s := newScript()
	s.add("web", 10)
	s.cgroups = []model.CgroupCounters{used(10, 5)}
	s.edges = []model.KernelEdge{{Key: model.KernelEdgeKey{Owner: 10, Role: model.RoleClient,
		Service: netip.MustParseAddrPort("192.0.2.1:80")}, Counters: model.EdgeCounters{Opens: 3}}}
	a := New(s.sources(), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if n := len(a.read().Edges); n != 1 {
		t.Fatalf("%d edges, want 1", n)
	}
	cgroups, edges := s.cgroups, s.edges
	s.cgroups, s.edges, s.err = nil, nil, errors.New("map is away")
	for range 3 {
		snapshot := a.read()
		if got := render(snapshot); got != "host -, web -" || len(snapshot.Edges) != 0 {
			t.Errorf("got %s and %d edges while the kernel's maps cannot be read, want no numbers", got, len(snapshot.Edges))
		}
		if err := a.CountersError(); !errors.Is(err, s.err) {
			t.Errorf("the counters' error is %v, want %v", err, s.err)
		}
	}
	s.cgroups, s.edges, s.err = cgroups, edges, nil
	snapshot := a.read()
	if got := render(snapshot); got != "host 0/0/0, web 5/5/5" {
		t.Errorf("got %s after it came back", got)
	}
	if err := a.CountersError(); err != nil {
		t.Errorf("the counters' error is %v after they came back", err)
	}
	if len(snapshot.Edges) != 1 || snapshot.Edges[0].Counters.Opens != 3 {
		t.Errorf("got edges %+v after they came back, want one with the same count", snapshot.Edges)
	}
	if n := strings.Count(log.String(), "map is away"); n != 3 {
		t.Errorf("%d messages for three sources that failed three times, want 3:\n%s", n, &log)
	}
	if n := strings.Count(log.String(), "works again"); n != 3 {
		t.Errorf("%d messages that it works again, want 3:\n%s", n, &log)
	}
}

// frameRecorder is a sink that may take its time.
type frameRecorder struct {
	mu    sync.Mutex
	times []time.Time
	work  func(context.Context) error
}

func (r *frameRecorder) Consume(ctx context.Context, f *frame.Frame) error {
	r.mu.Lock()
	r.times = append(r.times, f.Time)
	r.mu.Unlock()
	if r.work == nil {
		return nil
	}
	return r.work(ctx)
}

func TestSnapshotsAreTakenAtWholeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Millisecond)
		s, sink := newScript(), &frameRecorder{}
		s.step = func(reading int) {
			if reading == 3 {
				time.Sleep(1200 * time.Millisecond) // a machine that is busy
			}
		}
		a := New(s.sources(), Options{Sinks: map[string]Sink{"test": sink}})
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		if err := a.Run(ctx); err != nil {
			t.Fatal(err)
		}
		begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		var got []time.Duration
		for _, at := range sink.times {
			got = append(got, at.Sub(begin))
		}
		want := []time.Duration{300 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second,
			6 * time.Second}
		if !slices.Equal(got, want) {
			t.Errorf("snapshots at %v, want %v", got, want)
		}
	})
}

func TestSlowAndFailingSinksDisturbNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := &frameRecorder{}
		slow := &frameRecorder{work: func(ctx context.Context) error { time.Sleep(3500 * time.Millisecond); return nil }}
		failing := &frameRecorder{work: func(context.Context) error { return errors.New("disk full") }}
		a := New(newScript().sources(), Options{Sinks: map[string]Sink{"quick": quick, "slow": slow, "failing": failing}})
		ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond)
		defer cancel()
		a.Run(ctx)
		if n := len(quick.times); n != 11 {
			t.Errorf("the quick sink got %d snapshots, want all 11", n)
		}
		drops := make(map[string]uint64)
		for _, q := range a.sinks {
			drops[q.name] = q.drop().Count
		}
		// Handed out at 0, 3.5, 7, 10.5 s, and while the agent ends one that waited.
		if n := len(slow.times); n+int(drops["slow"]) != 11 || n != 5 {
			t.Errorf("the slow sink got %d snapshots and lost %d, want 5 and 6", n, drops["slow"])
		}
		if drops["failing"] != 11 || drops["quick"] != 0 {
			t.Errorf("drops are %v, want 11 of failing and 0 of quick", drops)
		}
	})
}

func TestASinkThatHangsDoesNotKeepTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := &frameRecorder{work: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		a := New(newScript().sources(), Options{Sinks: map[string]Sink{"hung": hung}})
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		begin := time.Now()
		a.Run(ctx)
		if took := time.Since(begin); took != 2500*time.Millisecond+drainTime {
			t.Errorf("the agent ended after %v, want its end and the time for the last snapshots", took)
		}
	})
}

func TestEventsReachTheRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- New(s.sources(), Options{}).Run(ctx) }()
		event := model.CgroupEvent{Kind: model.CgroupMade, ID: 5, Path: "/docker/x"}
		s.events <- event
		synctest.Wait()
		s.mu.Lock()
		if !slices.Equal(s.handled, []model.CgroupEvent{event}) {
			t.Errorf("the registry got %v, want %v", s.handled, event)
		}
		s.mu.Unlock()
		close(s.events) // the agent goes on without
		time.Sleep(2 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSelf(t *testing.T) {
	snapshot := New(newScript().sources(), Options{}).read()
	if snapshot.Self.CPUNS == 0 || snapshot.Self.RSSBytes < 1<<20 || snapshot.Self.ReadNS == 0 {
		t.Errorf("own cost is %+v, want CPU time, memory and the time of reading", snapshot.Self)
	}
}

func BenchmarkRead(b *testing.B) {
	s := newScript()
	s.cgroups = []model.CgroupCounters{used(1, 5)}
	for i := range 50 {
		s.add(fmt.Sprintf("c%02d", i), model.CgroupID(100+i))
		s.cgroups = append(s.cgroups, used(model.CgroupID(100+i), 9))
		for j := range 4 {
			s.edges = append(s.edges, model.KernelEdge{Key: model.KernelEdgeKey{Owner: model.CgroupID(100 + i),
				NetNS: uint32(100 + i),
				Role:  model.RoleClient, Service: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + j)}), 80)}})
		}
	}
	a := New(s.sources(), Options{})
	b.ReportAllocs()
	for b.Loop() {
		a.read()
	}
}

type overQuotaSource []model.OverQuota

func (s *overQuotaSource) ReadOverQuota() []model.OverQuota { return *s }

// TestOverQuotaDoesNotGoBack: what a container had more stays in its sum when one of its groups is removed, and counts
// on with a new one.
func TestOverQuotaDoesNotGoBack(t *testing.T) {
	s := newScript()
	s.add("web", 10, 11)
	s.add("db", 20)
	found := overQuotaSource{{Owner: 10, Of: "edges", Count: 5}, {Owner: 11, Of: "edges", Count: 7},
		{Owner: 20, Of: "edges", Count: 1}}
	sources := s.sources()
	sources.Quotas = &found
	a := New(sources, Options{})
	expect := func(what string, web uint64) {
		t.Helper()
		want := fmt.Sprint([]model.Drop{{Name: "container-edges/db", Count: 1}, {Name: "container-edges/web", Count: web}})
		if got := fmt.Sprint(a.overQuota()); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	expect("two groups", 12)
	expect("nothing new", 12)
	found = overQuotaSource{{Owner: 11, Of: "edges", Count: 8}, {Owner: 20, Of: "edges", Count: 1}}
	expect("one is removed", 13)
	found = append(found, model.OverQuota{Owner: 10, Of: "edges", Count: 2})
	expect("one is new", 15)
	for i := range 2 * maxOverQuota {
		id := model.CgroupID(100 + i)
		s.add(fmt.Sprintf("job-%d", i), id)
		found = overQuotaSource{{Owner: id, Of: "edges", Count: 1}}
		a.overQuota()
	}
	if n := len(a.over.sums); n > maxOverQuota {
		t.Errorf("%d sums are kept, want at most %d", n, maxOverQuota)
	}
}
