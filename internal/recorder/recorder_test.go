package recorder

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/csvy"
	"outsight/internal/model"
	"outsight/internal/monotonic"
)

const interval = 50 * time.Millisecond

// script stands for the kernel and the host: it hands over the ticks that a test writes. The real
// ones run in internal/kernel and in test/e2e.
type script struct {
	ticks   []model.Tick
	losses  model.TickLosses
	ignored []model.CgroupID
	owners  map[model.CgroupID]*model.Container
	running []*model.Container
	// next is the number of the next tick; begun is when number 0 was due.
	next, begun uint64
}

func newScript() *script {
	return &script{owners: map[model.CgroupID]*model.Container{}, begun: monotonic.Now() + uint64(interval),
		running: []*model.Container{{ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime}}}
}

func (s *script) Interval() time.Duration { return interval }

func (s *script) Drain(take func(*model.Tick)) error {
	for i := range s.ticks {
		take(&s.ticks[i])
	}
	s.ticks = nil
	return nil
}

func (s *script) Losses() model.TickLosses          { return s.losses }
func (s *script) Ignore(id model.CgroupID)          { s.ignored = append(s.ignored, id) }
func (s *script) Containers() []*model.Container    { return s.running }
func (s *script) add(c *model.Container)            { s.running, s.owners[c.Cgroup] = append(s.running, c), c }
func (s *script) at(number uint64) (beganNS uint64) { return s.begun + number*uint64(interval) + 1000 }
func (s *script) Lookup(id model.CgroupID) *model.Container {
	if c := s.owners[id]; c != nil {
		return c
	}
	return s.running[0]
}

// end takes a container off the host at the time of a tick.
func (s *script) end(c *model.Container, clock clock, number uint64) {
	s.running = slices.DeleteFunc(s.running, func(r *model.Container) bool { return r == c })
	ended := *c
	ended.Ended = clock.at(s.at(number))
	s.owners[c.Cgroup] = &ended
}

// tick adds one in which each of the groups has used 10 ms of CPU since the tick with number 0.
func (s *script) tick(samples ...model.TickSample) {
	began := s.at(s.next)
	s.ticks = append(s.ticks, model.Tick{Number: s.next, DueNS: began - 1000, BeganNS: began, CostNS: 70,
		Samples: samples})
	s.next++
}

func sample(id model.CgroupID, cpu uint64) model.TickSample {
	return model.TickSample{Group: id, CPUNS: cpu, RunQueueNS: cpu / 2, Waits: cpu / 10, SentBytes: 3 * cpu, Running: 1,
		Asking: 2, Serving: 1,
		HasMemory: cpu%3 > 0, MemoryBytes: 4096 * (cpu % 1000), HasThrottled: true, ThrottledNS: cpu / 7,
		ThrottledPeriods: cpu / 100}
}

// files stands for the control group files: one number, which counts the readings.
type files struct {
	readings float64
	err      error
	// all is whether the last reading was to leave nothing out.
	all bool
}

func (f *files) Columns() []string { return []string{"memory.current"} }
func (f *files) Version() int      { return 2 }
func (f *files) Forget(string)     {}
func (f *files) Read(_ *model.Container, values []float64, all bool) error {
	f.readings++
	f.all = all
	values[0] = f.readings
	return f.err
}

// sheet is what was written of one container.
type sheet struct {
	head   csvy.Head
	rows   [][]float64
	at     []time.Time
	lost   uint64
	closed bool
	full   int
}

func (w *sheet) Row(at time.Time, values []float64) error {
	if w.full > 0 && len(w.rows) == w.full {
		return errors.New("the disk is full")
	}
	w.rows, w.at = append(w.rows, slices.Clone(values)), append(w.at, at)
	return nil
}
func (w *sheet) Lost(ticks uint64) error { w.lost += ticks; return nil }
func (w *sheet) Close() error            { w.closed = true; return nil }

func (w *sheet) column(t *testing.T, name string) (values []float64) {
	t.Helper()
	i := w.head.Index(name)
	if i < 0 {
		t.Fatalf("no column %q", name)
	}
	for _, row := range w.rows {
		values = append(values, row[i])
	}
	return values
}

type sheets map[string]*sheet

func (s sheets) create(h csvy.Head) (Writer, error) {
	w := &sheet{head: h}
	s[h.Container.ID] = w
	return w, nil
}

func want[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	// A value that is missing (NaN) equals another.
	if !slices.EqualFunc(got, want, func(a, b T) bool { return a == b || a != a && b != b }) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func TestRowsSumTheGroupsOfAContainer(t *testing.T) {
	s, written := newScript(), sheets{}
	web := &model.Container{ID: "web", Name: "web", Cgroup: 10}
	s.add(web)
	s.owners[11] = web // a group inside of it
	r := New(s, s, &files{}, Options{Create: written.create})
	s.tick(sample(10, 100), sample(20, 5))
	s.tick(sample(10, 200), sample(11, 50), sample(20, 6))
	s.tick(sample(10, 300), sample(20, 7))  // the inner one is gone: what it used stays
	s.tick(sample(10, 300), sample(11, 20)) // it is there again, from zero
	s.tick()
	if err := r.drain(); err != nil {
		t.Fatal(err)
	}
	w := written["web"]
	want(t, "cpu", w.column(t, csvy.CPUNS), []float64{100, 250, 350, 370, 370})
	want(t, "sent", w.column(t, csvy.SentBytes), []float64{300, 750, 1050, 1110, 1110})
	want(t, "asking", w.column(t, csvy.RequestsAsking), []float64{2, 4, 2, 4, 0})
	want(t, "tick", w.column(t, csvy.Tick), []float64{0, 1, 2, 3, 4})
	want(t, "lateness", w.column(t, csvy.LatenessNS), []float64{1000, 1000, 1000, 1000, 1000})
	// The container's own group has the memory of those inside of it; without it there is none.
	want(t, "memory", w.column(t, csvy.MemoryBytes), []float64{4096 * 100, 4096 * 200, math.NaN(), math.NaN(), math.NaN()})
	want(t, "throttled", w.column(t, csvy.ThrottledNS), []float64{14, 28, 42, 42, math.NaN()})
	want(t, "the host's cpu", written[model.HostContainerID].column(t, csvy.CPUNS), []float64{5, 6, 7, 7, 7})
	if gap := w.at[1].Sub(w.at[0]); gap != interval {
		t.Errorf("rows are %v apart", gap)
	}
	if p := r.Progress(); p.Ticks != 5 || p.Rows != 10 || p.Containers != 2 || p.WorstLatenessNS != 1000 {
		t.Errorf("%+v", p)
	}
}

func TestContainersHaveRowsFromTheirFirstToTheirLastTick(t *testing.T) {
	s, written := newScript(), sheets{}
	idle := &model.Container{ID: "idle", Name: "idle", Cgroup: 9}
	s.add(idle) // no group of it ever runs
	r := New(s, s, &files{}, Options{Create: written.create})
	s.tick()
	if err := r.drain(); err != nil {
		t.Fatal(err)
	}
	web := &model.Container{ID: "web", Name: "web", Cgroup: 10}
	s.add(web)
	s.tick()
	s.tick(sample(10, 5))
	s.tick(sample(10, 6))
	if err := r.drain(); err != nil {
		t.Fatal(err)
	}
	s.tick(sample(10, 7))
	s.end(web, r.sums.clock, 4)
	s.tick(sample(10, 7)) // the kernel has not forgotten the group yet
	s.tick(sample(10, 7))
	if err := r.drain(); err != nil {
		t.Fatal(err)
	}
	w := written["web"]
	want(t, "tick", w.column(t, csvy.Tick), []float64{2, 3, 4})
	if !w.closed {
		t.Error("its file is not closed")
	}
	want(t, "the idle one's tick", written["idle"].column(t, csvy.Tick), []float64{0, 1, 2, 3, 4, 5, 6})
	// It is started again: another file.
	again := &model.Container{ID: "web", Name: "web", Cgroup: 12}
	s.add(again)
	s.tick(sample(12, 1))
	if err := errors.Join(r.drain(), r.drain()); err != nil {
		t.Fatal(err)
	}
	if written["web"] == w {
		t.Fatal("the second start has no file of its own")
	}
	want(t, "cpu of the second start", written["web"].column(t, csvy.CPUNS), []float64{1})
}

func TestOnlyWhatIsWanted(t *testing.T) {
	s, written := newScript(), sheets{}
	web, db := &model.Container{ID: "web", Name: "web", Image: "web:1", Cgroup: 10},
		&model.Container{ID: "db", Name: "db", Image: "db:1", Cgroup: 11}
	fresh := &model.Container{ID: "fresh", Name: "0123456789ab", Cgroup: 12}
	s.add(web)
	s.add(db)
	s.add(fresh)
	r := New(s, s, &files{}, Options{Create: written.create,
		Wanted: func(c *model.Container) bool { return c.Name == "web" || c.Name == "named" }})
	s.tick(sample(10, 1), sample(11, 1), sample(12, 1), sample(99, 1))
	if err := r.drain(); err != nil {
		t.Fatal(err)
	}
	if len(written) != 1 || written["web"] == nil {
		t.Errorf("written: %v", written)
	}
	// Only those whose names are known, and never the host's: they may be containers' one day.
	want(t, "ignored", s.ignored, []model.CgroupID{11})
	named := *fresh
	named.Name, named.Image = "named", "named:1"
	s.running[3], s.owners[12] = &named, &named
	s.tick(sample(10, 2), sample(12, 2))
	if err := r.drain(); err != nil {
		t.Fatal(err)
	}
	if written["fresh"] == nil || len(written["fresh"].rows) != 1 {
		t.Error("a container is not recorded once it has its name")
	}
}

func TestMissingTicksAreLost(t *testing.T) {
	s, written := newScript(), sheets{}
	r := New(s, s, &files{}, Options{Create: written.create})
	s.tick()
	s.next += 3
	s.tick()
	s.losses = model.TickLosses{Full: 3, Late: 2} // two more after the last tick
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	w := written[model.HostContainerID]
	if w.lost != 5 || r.Progress().Lost != 5 || !w.closed {
		t.Errorf("%d lost in the file, %d in all, closed %v", w.lost, r.Progress().Lost, w.closed)
	}
}

func TestReadingsAreInTheNextRow(t *testing.T) {
	for _, hold := range []bool{false, true} {
		s, written := newScript(), sheets{}
		s.begun = monotonic.Now() - uint64(time.Second)
		s.add(&model.Container{ID: "web", Name: "web", Cgroup: 10})
		f := &files{}
		r := New(s, s, f, Options{Create: written.create, HoldFiles: hold})
		s.tick() // before the first reading
		r.readFiles()
		s.begun += uint64(2 * time.Second)
		s.tick()
		s.tick()
		if err := r.drain(); err != nil {
			t.Fatal(err)
		}
		r.readFiles()
		r.readFiles()
		s.begun += uint64(time.Hour)
		s.tick()
		if err := r.drain(); err != nil {
			t.Fatal(err)
		}
		got, between := written["web"].column(t, "memory.current"), math.NaN()
		if hold {
			between = 1
		}
		if f.all != hold {
			t.Errorf("hold %v: all files are read: %v", hold, f.all)
		}
		for i, v := range []float64{math.NaN(), 1, between, 3} {
			if got[i] != v && !(math.IsNaN(got[i]) && math.IsNaN(v)) {
				t.Errorf("hold %v: row %d has %v, want %v", hold, i, got[i], v)
			}
		}
	}
}

func TestFailedFileEndsTheRecording(t *testing.T) {
	s, written := newScript(), sheets{}
	s.add(&model.Container{ID: "web", Name: "web", Cgroup: 10})
	r := New(s, s, &files{err: errors.New("no such device")}, Options{Create: func(h csvy.Head) (Writer, error) {
		w := &sheet{head: h, full: 2}
		written[h.Container.ID] = w
		return w, nil
	}})
	for range 5 {
		s.tick()
	}
	err := r.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%v", err)
	}
	for id, w := range written {
		if !w.closed || len(w.rows) > 2 {
			t.Errorf("%s: %d rows, closed %v", id, len(w.rows), w.closed)
		}
	}
	if err := r.FilesError(); err == nil {
		t.Error("a control group file that could not be read is not reported")
	}
}

func TestHeadTellsWhoseFileItIs(t *testing.T) {
	f := func(path, podUID, provider, driver, class string) {
		t.Helper()
		h := HeadOf(&model.Container{ID: "x", Runtime: model.Containerd, PodUID: podUID, CgroupPath: path}, 2, time.Now(), 1)
		if h.Provider != provider || h.Driver != driver || h.Container.QOSClass != class {
			t.Errorf("%s: %q %q %q", path, h.Provider, h.Driver, h.Container.QOSClass)
		}
	}
	f("/docker/x", "", "containerd", "cgroupfs", "")
	f("/system.slice/docker-x.scope", "", "containerd", "systemd", "")
	f("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-containerd-x.scope", "1", "kubernetes",
		"systemd", "BestEffort")
	f("/kubepods/burstable/pod1/x", "1", "kubernetes", "cgroupfs", "Burstable")
	f("/kubepods/pod1/x", "1", "kubernetes", "cgroupfs", "Guaranteed")
}
