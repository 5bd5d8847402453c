package recorder

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"outsight/internal/csvy"
	"outsight/internal/model"
	"outsight/internal/monotonic"
	"outsight/internal/report"
)

// service adds ticks of a service that answers at each, beside a host that does nothing.
type service struct {
	*script
	sent uint64
}

func newService() *service {
	s := &service{script: newScript()}
	s.begun = monotonic.Now() // what is to come is never too old
	s.add(&model.Container{ID: "web", Name: "web", Cgroup: 10})
	return s
}

// answers adds ticks in each of which it has sent.
func (s *service) answers(ticks int) {
	for range ticks {
		s.sent += 1000
		s.tick(model.TickSample{Group: 10, CPUNS: s.sent, SentBytes: s.sent})
	}
}

// stands adds ticks in which requests wait and nothing is done.
func (s *service) stands(ticks int) {
	for range ticks {
		s.tick(model.TickSample{Group: 10, CPUNS: s.sent, SentBytes: s.sent, Serving: 3})
	}
}

// TestWhatIsAroundAnAnomalyIsKept: found by the analysis of recordings, and there when the ticks
// around it are forgotten, in the next process, too.
func TestWhatIsAroundAnAnomalyIsKept(t *testing.T) {
	s, o := newService(), FlightOptions{Keep: 30 * time.Second, CgroupVersion: 2,
		Anomalies: AnomalyOptions{Detect: report.Anomalies, Directory: filepath.Join(t.TempDir(), "anomalies")}}
	f := NewFlight(s, s, o)
	scan := func() {
		f.drain()
		f.scan(s.at(s.next))
	}
	s.answers(399)
	stalled := s.next
	s.stands(3)
	s.answers(58) // 23 s
	scan()
	a := f.Anomalies()
	if len(a.List) != 1 || a.List[0].Number != 1 || a.List[0].Resource != "stall" || a.List[0].Container != "web" ||
		a.List[0].WaitedMS < 100 {
		t.Fatalf("%+v", a)
	}
	found := a.List[0]
	if at := f.sums.clock.at(s.at(stalled)); found.From.Before(at.Add(-interval)) || found.From.After(at) ||
		found.To.Sub(found.From) < 100*time.Millisecond ||
		found.To.Sub(found.From) > 200*time.Millisecond {
		t.Errorf("from %v to %v, want 150 ms or so at %v", found.From, found.To, at)
	}
	// What follows comes later; nothing is found twice.
	for range 10 {
		s.answers(200)
		scan()
	}
	f.mu.Lock()
	f.evict(s.at(s.next))
	f.mu.Unlock()
	if got := f.blocks[0].FirstNumber; got < 700 {
		t.Fatalf("tick %d is still there: the test tests nothing", got)
	}
	check := func(f *Flight) {
		t.Helper()
		if a := f.Anomalies(); len(a.List) != 1 || a.List[0].Text != found.Text || !a.List[0].From.Equal(found.From) ||
			a.Dropped > 0 || a.Problem != "" {
			t.Fatalf("%+v", a)
		}
		kept := sheets{}
		if _, err := f.Anomaly(1).Write(time.Time{}, Options{Create: kept.create}); err != nil {
			t.Fatal(err)
		}
		ticks := kept["web"].column(t, csvy.Tick)
		if first, last := ticks[0], ticks[len(ticks)-1]; first < 197 || first > 200 || last < 599 || last > 602 ||
			len(ticks) != int(last-first)+1 {
			t.Errorf("%d ticks from %v to %v, want 403 or so around tick %d", len(ticks), first, last, stalled)
		}
		if f.Anomaly(2) != nil {
			t.Error("there is an anomaly 2")
		}
	}
	check(f)
	f = NewFlight(s, s, o)
	check(f)
	s.answers(1)
	s.stands(3)
	s.answers(300)
	scan()
	if a := f.Anomalies().List; len(a) != 2 || a[1].Number != 2 {
		t.Errorf("%+v", a)
	}
}

// TestScanReadsWhatIsAroundAStrain: what is usual before it and what follows, and not all that is new.
func TestScanReadsWhatIsAroundAStrain(t *testing.T) {
	s, rows := newService(), 0
	f := NewFlight(s, s, FlightOptions{Anomalies: AnomalyOptions{Detect: func(list []*csvy.Recording) []model.Anomaly {
		for _, r := range list {
			rows = max(rows, len(r.At))
		}
		return report.Anomalies(list)
	}}})
	s.answers(400)
	s.stands(3)
	s.answers(600)
	f.drain()
	f.scan(s.at(s.next))
	around := int((history + settled + reach) / interval)
	if n := len(f.Anomalies().List); n != 1 || rows < around || rows > around+10 {
		t.Errorf("%d anomalies in %d of 1003 rows, want 1 in %d or some more", n, rows, around)
	}
	// One that begins before a scan and ends after it is found by the next.
	s.stands(2)
	f.drain()
	f.scan(s.at(s.next))
	s.stands(2)
	s.answers(100)
	f.drain()
	f.scan(s.at(s.next))
	if n := len(f.Anomalies().List); n != 2 {
		t.Errorf("%d anomalies, want 2", n)
	}
	rows = 0
	s.answers(600)
	f.drain()
	f.scan(s.at(s.next))
	if rows > 0 {
		t.Errorf("%d rows were looked at though nothing was strained", rows)
	}
}

// TestAnomaliesAtTheEndAreSaved: what there is of an anomaly is in its file when the process ends.
func TestAnomaliesAtTheEndAreSaved(t *testing.T) {
	s, o := newService(), FlightOptions{Anomalies: AnomalyOptions{Detect: report.Anomalies, Directory: t.TempDir()}}
	f := NewFlight(s, s, o)
	s.answers(300)
	s.stands(4)
	s.answers(50)
	f.drain()
	f.scan(s.at(s.next))
	f.save(true)
	os.WriteFile(filepath.Join(o.Anomalies.Directory, "8.json"), []byte(`{"Number": 8,`), 0o600)
	f = NewFlight(s, s, o)
	kept := sheets{}
	if _, err := f.Anomaly(1).Write(time.Time{}, Options{Create: kept.create}); err != nil ||
		len(kept["web"].rows) != 254 {
		t.Errorf("%d rows, error %v, want those from 10 s before to the end", len(kept["web"].rows), err)
	}
	if a := f.Anomalies(); len(a.List) != 1 || a.Problem == "" || f.kept.next != 9 {
		t.Errorf("%+v, next %d", a, f.kept.next)
	}
}

// TestAnomaliesShareWhatIsAroundThem: two that are close take no more than one, after a restart, too.
func TestAnomaliesShareWhatIsAroundThem(t *testing.T) {
	s, o := newService(), FlightOptions{Anomalies: AnomalyOptions{Detect: report.Anomalies, Directory: t.TempDir()}}
	f := NewFlight(s, s, o)
	s.answers(300)
	s.stands(4)
	s.answers(10)
	s.stands(4)
	s.answers(600)
	f.drain()
	f.scan(s.at(s.next))
	again := NewFlight(s, s, o)
	least := 0
	for i := range f.kept.list[0].Data.Blocks {
		least += f.kept.list[0].Data.Blocks[i].size()
	}
	if len(f.kept.list) != 2 || len(again.kept.list) != 2 || f.kept.bytes > least+least/2 ||
		again.kept.bytes != f.kept.bytes {
		t.Errorf("%d anomalies in %d bytes, read again %d in %d", len(f.kept.list), f.kept.bytes, len(again.kept.list),
			again.kept.bytes)
	}
}

func TestAnomaliesAreBounded(t *testing.T) {
	s, dir := newService(), t.TempDir()
	var find []model.Anomaly
	f := NewFlight(s, s, FlightOptions{Anomalies: AnomalyOptions{Max: 4, Around: time.Second, Directory: dir,
		Detect: func([]*csvy.Recording) []model.Anomaly { return find }}})
	waited := []float64{5, 9, 1, 7, 3, 2, 6, 4}
	add := func(ms float64) {
		s.answers(1)
		s.stands(2) // or there would be no scan
		at := f.sums.clock.at(s.at(s.next - 1))
		find = []model.Anomaly{{Resource: "stall", ID: fmt.Sprint(s.next), From: at.Add(-interval), To: at, WaitedMS: ms}}
		s.answers(197)
		f.drain()
		f.scan(s.at(s.next))
	}
	for _, ms := range waited {
		add(ms)
	}
	var left []float64
	for _, k := range f.Anomalies().List {
		left = append(left, k.WaitedMS)
	}
	// The newer half, and of the others those that made wait the most.
	if a := f.Anomalies(); !slices.Equal(left, []float64{9, 7, 6, 4}) || a.Dropped != 4 {
		t.Errorf("%v are left, %d dropped", left, a.Dropped)
	}
	// The last is not whole yet.
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 3 {
		t.Errorf("files %v", files)
	}
	f.kept.o.MaxBytes = f.kept.bytes / 2
	add(8)
	if d := f.Drops()[2]; len(f.kept.list) == 0 || d.Used > d.Capacity || d.Count < 6 || d.Used == 0 {
		t.Errorf("%d are left: %+v", len(f.kept.list), d)
	}
}

// TestNoAnomalyWithoutAStrain: a scan is left out only where the analysis would have found nothing.
func TestNoAnomalyWithoutAStrain(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	found, quiet := 0, 0
	for range 400 {
		s := newService()
		s.add(&model.Container{ID: "db", Name: "db", Cgroup: 11})
		f := NewFlight(s, s, FlightOptions{Anomalies: AnomalyOptions{Detect: report.Anomalies}})
		f.kept.host.OnlineCores = 2
		s.answers(200)
		sums := [2]model.TickSample{{Group: 10, CPUNS: s.sent, SentBytes: s.sent}, {Group: 11}}
		kind, share := random.IntN(4), 0.7+0.5*random.Float64()
		for range 1 + random.IntN(10) {
			for i := range sums {
				x := &sums[i]
				x.Serving, x.Running = 0, 0
				switch used := uint64(share * float64(interval)); {
				case kind == 0: // both CPUs
					x.CPUNS += used
				case kind == 1 && i == 0: // one thread
					x.CPUNS += used
					x.Serving = 2
				case kind == 2:
					x.RunQueueNS += uint64(0.5 * share * float64(interval))
				case kind == 3 && i == 0:
					x.CPUNS += uint64(random.Float64() * share * 0.5 * float64(interval))
					x.Serving = uint32(random.IntN(3))
				}
			}
			s.tick(sums[0], sums[1])
		}
		for range 100 {
			sums[0].SentBytes += 1000
			s.tick(sums[0], sums[1])
		}
		f.drain()
		var r InMemory
		if _, err := f.Data(time.Hour).Write(time.Time{}, Options{Host: f.kept.host, Create: r.Create}); err != nil {
			t.Fatal(err)
		}
		strained := f.kept.strained > 0
		anomalies := report.Anomalies(r.List)
		if len(anomalies) > 0 {
			found++
			if !strained {
				t.Errorf("not looked for: %+v", anomalies[0])
			}
		}
		if !strained {
			quiet++
		}
	}
	if found < 50 || quiet < 50 {
		t.Errorf("%d of 400 had an anomaly, %d had none to look for: the test tests nothing", found, quiet)
	}
}

// BenchmarkScan is one scan of 20 containers and the host, all of which do something at each tick.
// At one every ten seconds, 10 ms are 0.1 % of a core.
func BenchmarkScan(b *testing.B) {
	s := newScript()
	var groups []model.CgroupID
	for i := range model.CgroupID(20) {
		c := &model.Container{ID: fmt.Sprint("c", i), Name: fmt.Sprint("c", i), Cgroup: 1000 + i}
		s.add(c)
		groups = append(groups, c.Cgroup)
	}
	groups = append(groups, 1)
	f := NewFlight(s, s, FlightOptions{Anomalies: AnomalyOptions{Detect: report.Anomalies}})
	for i := range uint64(440) { // 22 s
		var samples []model.TickSample
		for j, g := range groups {
			x := sample(g, i*uint64(interval)/uint64(20+j))
			x.Serving, x.Asking = uint32(i/3%2), uint32(i%2)
			samples = append(samples, x)
		}
		s.tick(samples...)
	}
	f.drain()
	for b.Loop() {
		f.kept.scanned, f.kept.strainedFrom, f.kept.strained = s.at(200), s.at(200), s.at(s.next-1)
		f.scan(s.at(440))
	}
}
