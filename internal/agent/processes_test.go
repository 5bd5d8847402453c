package agent

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"outsight/internal/model"
)

func perfOf(n uint64) []model.PerfCounters {
	return []model.PerfCounters{{PMU: "cpu", Known: 3, Counts: [4]uint64{n, 2 * n}, EnabledNS: n, RunningNS: n}}
}

// A container whose processes have a thousand names is bounded, says so, and its parts are the whole; nothing goes
// down.
func TestNamesOfProcessesAreBounded(t *testing.T) {
	p := newProcessWork()
	whole := uint64(0)
	var before map[string]uint64
	for i := range 1000 {
		p.add("c", fmt.Sprint("name-", i), perfOf(10))
		whole += 10
		parts := p.of("c", perfOf(whole))
		if len(parts) > maxProcessNames+1 {
			t.Fatalf("%d names after %d, want %d at most", len(parts), i, maxProcessNames+1)
		}
		sum, now := uint64(0), map[string]uint64{}
		for _, part := range parts {
			sum += part.Perf[0].Counts[1]
			now[part.Process] = part.Perf[0].Counts[1]
			if now[part.Process] < before[part.Process] {
				t.Fatalf("%s went from %d to %d", part.Process, before[part.Process], now[part.Process])
			}
		}
		if sum != 2*whole {
			t.Fatalf("the parts are %d of %d", sum, 2*whole)
		}
		before = now
	}
	if before["other"] != 20*(1000-maxProcessNames) || before["name-0"] != 20 {
		t.Errorf("got %v", before)
	}
	if d := p.drop(); d.Name != "process_names" || d.Count != 1000-maxProcessNames {
		t.Errorf("got %+v, want %d names without room", d, 1000-maxProcessNames)
	}
}

// What processes are ahead of their container by is not taken back later, and kinds of cores are kept apart.
func TestProcessesAheadOfTheirContainer(t *testing.T) {
	p := newProcessWork()
	random := rand.New(rand.NewPCG(1, 2))
	named, whole, last := uint64(0), uint64(0), uint64(0)
	for range 1000 {
		whole += random.Uint64N(100)
		if gained := random.Uint64N(100); named+gained <= whole+50 {
			p.add("c", "worker", perfOf(gained))
			named += gained
		}
		parts := p.of("c", perfOf(whole))
		if named == 0 {
			continue
		}
		other, worker := parts[0].Perf[0].Counts[0], parts[1].Perf[0].Counts[0]
		if worker != named || other < last || named+other > max(whole, named+last) {
			t.Fatalf("worker %d of %d and other %d after %d, of %d", worker, named, other, last, whole)
		}
		last = other
	}
	p.add("d", "fast", []model.PerfCounters{{PMU: "cpu_core", Known: 1, Counts: [4]uint64{5}}})
	p.add("d", "other", []model.PerfCounters{{PMU: "cpu_atom", Known: 1, Counts: [4]uint64{7}}})
	parts := p.of("d", []model.PerfCounters{{PMU: "cpu_core", Counts: [4]uint64{9}},
		{PMU: "cpu_atom", Counts: [4]uint64{7}}})
	if len(parts) != 2 || parts[0].Process != "fast" || parts[1].Perf[0].Counts[0] != 4 ||
		parts[1].Perf[1].Counts[0] != 7 {
		t.Errorf("got %+v", parts)
	}
	p.keep([]*model.Container{{ID: "d"}})
	if p.of("c", perfOf(1)) != nil || p.of("d", nil) == nil {
		t.Error("the wrong container was forgotten")
	}
}

// gainsOnce are processes of a control group.
type gainsOnce struct{ gains []model.ProcessGain }

func (g *gainsOnce) ReadProcesses() ([]model.ProcessGain, error) { return g.gains, nil }
func (g *gainsOnce) ReadWork(groups []model.CgroupCounters) ([]model.PackageTime, error) {
	for i := range groups {
		groups[i].Perf = perfOf(100)
	}
	return []model.PackageTime{}, nil
}

// Processes are of the container of their control group.
func TestProcessesOfAContainer(t *testing.T) {
	s := newScript()
	s.add("web", 7)
	s.cgroups = []model.CgroupCounters{used(7, 1000)}
	work := &gainsOnce{[]model.ProcessGain{{Group: 7, PID: 42, Process: "nginx", Perf: perfOf(60)}}}
	sources := s.sources()
	sources.Work, sources.ProcessWork = work, work
	for _, c := range New(sources, Options{}).read().Containers {
		if c.Container.ID != "web" {
			continue
		}
		if len(c.ProcessPerf) != 2 || c.ProcessPerf[0].Process != "nginx" || c.ProcessPerf[0].Perf[0].Counts[0] != 60 ||
			c.ProcessPerf[1].Process != "other" || c.ProcessPerf[1].Perf[0].Counts[0] != 40 {
			t.Errorf("got %+v", c.ProcessPerf)
		}
		return
	}
	t.Error("no container")
}
