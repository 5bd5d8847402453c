package agent

import (
	"path/filepath"
	"testing"
	"testing/synctest"

	"outsight/internal/energy"
	"outsight/internal/model"
)

// work adds to the script's groups what it says.
type work struct {
	ns       map[model.CgroupID]uint64
	cycles   map[model.CgroupID]uint64
	packages []model.PackageTime
}

func (w *work) ReadWork(groups []model.CgroupCounters) ([]model.PackageTime, error) {
	for i := range groups {
		g := &groups[i]
		g.WorkNS, g.Work = []uint64{w.ns[g.ID]}, []uint64{w.cycles[g.ID]}
		g.Perf = []model.PerfCounters{{PMU: "cpu", Known: 15, Counts: [4]uint64{w.cycles[g.ID], 2 * w.cycles[g.ID]},
			EnabledNS: 2, RunningNS: 1}}
	}
	return append([]model.PackageTime(nil), w.packages...), nil
}

// What control groups count is their container's, also after they are gone, and energy follows it; the
// parts add up to what the host used. Without hardware meters the model measures.
func TestEnergyOfContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newScript()
		host.add("web", 10, 11)
		host.add("db", 20)
		w := &work{ns: map[model.CgroupID]uint64{}, cycles: map[model.CgroupID]uint64{}, packages: []model.PackageTime{{}}}
		ids := []model.CgroupID{1, 10, 11, 20}
		for _, id := range ids {
			host.cgroups = append(host.cgroups, used(id, 0))
		}
		host.step = func(n int) {
			for _, id := range ids {
				w.ns[id] += uint64(id) * 1e6
				w.cycles[id] += uint64(id) * 1e6
				w.packages[0].BusyNS += uint64(id) * 1e6
			}
			w.packages[0].IdleNS += 1e9
			if n == 3 {
				host.removed = []model.CgroupID{11}
			}
		}
		sources := host.sources()
		empty := t.TempDir()
		sources.Work, sources.Energy = w, energy.New(energy.Options{SysFS: empty, ProcFS: filepath.Join(empty, "proc")})
		a := New(sources, Options{})
		var last *model.Snapshot
		for n := range 6 {
			last = a.read()
			if n == 0 && (last.Energy == nil || len(last.Energy.Parts) != 0) {
				t.Errorf("energy %+v in the first snapshot, want none yet", last.Energy)
			}
		}
		of := map[string]model.ContainerSample{}
		var containers, system uint64
		for _, c := range last.Containers {
			of[c.Container.ID] = c
			for _, e := range c.Energy {
				if e.Source != "model" || e.Domain != "psys" {
					t.Errorf("%s has %+v, want the model's", c.Container.ID, e)
				}
				if c.Container.ID == model.HostContainerID {
					system += e.MicroJoules
				} else {
					containers += e.MicroJoules
				}
			}
		}
		// Six readings of group 10, five of 11: it was given back after the fifth.
		if got, want := of["web"].Perf[0].Counts[0], uint64(6*10e6+5*11e6); got != want {
			t.Errorf("web has %d cycles, want %d", got, want)
		}
		if got, want := of["db"].Perf[0], (model.PerfCounters{PMU: "cpu", Known: 15, Counts: [4]uint64{120e6, 240e6},
			EnabledNS: 2, RunningNS: 1}); got != want {
			t.Errorf("db has %+v, want %+v", got, want)
		}
		p := last.Energy.Parts[0]
		if p.Containers != containers || p.System != system || containers == 0 || system == 0 || p.Idle == 0 {
			t.Errorf("parts %+v, containers have %d and the host %d", p, containers, system)
		}
		// An unknown CPU of one thread, five seconds: 0.68 W each, and 3.43 W more while it is busy.
		busyNS := uint64(5 * 42e6)
		if whole, want := p.Containers+p.Idle+p.System, (680000*(5e9+busyNS)+3430000*busyNS)/1e9; whole != want {
			t.Errorf("the parts are %d, want %d", whole, want)
		}
	})
}
