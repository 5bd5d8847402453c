package fleet

import (
	"reflect"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

var start = time.Unix(1_800_000_000, 0).UTC()

// agent is a simulated one: its frames are of snapshots of itself.
type agent struct {
	*frame.Builder
	host model.Host
}

func newAgent(name string, boot time.Time) *agent {
	return &agent{frame.NewBuilder(start), model.Host{Name: name, Cores: 4, MemoryBytes: 8 << 30, Kernel: "6.12",
		CgroupLayout: "v2", BootTime: boot}}
}

func (a *agent) at(second int, self model.SelfSample) *frame.Frame {
	return a.Build(&model.Snapshot{Time: start.Add(time.Duration(second) * time.Second), Host: a.host, Self: self})
}

func windowOf(hosts ...frame.HostSpans) *frame.Window {
	return &frame.Window{From: start, To: start.Add(10 * time.Second), Hosts: hosts}
}

func hostSpans(name string, spans ...frame.Span) frame.HostSpans {
	return frame.HostSpans{Host: name, Spans: spans}
}

func TestHosts(t *testing.T) {
	a := newAgent("a", start)
	w := windowOf(hostSpans("a", frame.Span{Before: a.at(0, model.SelfSample{IdleNS: 100e9, StealNS: 7e9, CPUNS: 1e9}),
		After: a.at(10, model.SelfSample{IdleNS: 120e9, StealNS: 8e9, CPUNS: 2e9, RSSBytes: 5 << 20, ReadNS: 3e6,
			AvailableBytes: 1 << 30})}))
	all := Hosts(w)
	if len(all) != 1 {
		t.Fatalf("%d hosts", len(all))
	}
	h := all[0]
	if *h.Idle != 2 || *h.Steal != 0.1 || *h.Other != 0 || *h.AgentCPUCores != 0.1 || h.AgentCPUSeconds != 2 ||
		h.AgentMemoryBytes != 5<<20 || h.Cores != 4 || *h.MemoryBytes != 8<<30 || h.CoveredSeconds != 10 {
		t.Errorf("got %+v", h)
	}
	if h.Kernel != "6.12" || h.CgroupLayout != "v2" || h.Version == "" || !h.LastHeard.Equal(start.Add(10*time.Second)) {
		t.Errorf("got %+v", h)
	}
	if h.Numbers["agent_read_seconds"] != 0.003 || h.Numbers["memory_available_bytes"] != 1<<30 {
		t.Errorf("got %v", h.Numbers)
	}
}

// TestHostAcrossARestart: what the kernel keeps in a file goes on, what the agent counts begins anew.
func TestHostAcrossARestart(t *testing.T) {
	for _, reboot := range []bool{false, true} {
		boot, steal := start, 13.0-7
		if reboot {
			boot, steal = start.Add(5*time.Second), 1+12
		}
		a, b := newAgent("a", start), newAgent("a", boot)
		w := windowOf(hostSpans("a",
			frame.Span{Before: a.at(0, model.SelfSample{StealNS: 7e9, CPUNS: 9e9}),
				After: a.at(4, model.SelfSample{StealNS: 8e9, CPUNS: 10e9})},
			frame.Span{After: b.at(10, model.SelfSample{StealNS: 12e9 + func() uint64 {
				if reboot {
					return 0
				}
				return 1e9
			}(), CPUNS: 2e9})}))
		h := Hosts(w)[0]
		if *h.Steal*10 != steal || *h.AgentCPUCores*10 != 1+2 {
			t.Errorf("reboot %v: %v s stolen, want %v; %v s of the agent, want 3", reboot, *h.Steal*10, steal,
				*h.AgentCPUCores*10)
		}
	}
}

func TestHostWithOneFrame(t *testing.T) {
	f := newAgent("a", start).at(3, model.SelfSample{IdleNS: 5e9, Drops: []model.Drop{{Name: "edges", Count: 9}}})
	for _, w := range []*frame.Window{windowOf(hostSpans("a", frame.Span{After: f})),
		windowOf(hostSpans("a", frame.Span{Before: f, After: f}))} {
		if h := Hosts(w)[0]; h.Idle != nil || h.Cores != 4 {
			t.Errorf("got %+v", h)
		}
		if got := Losses(w); len(got) != 0 {
			t.Errorf("lost %+v", got)
		}
	}
}

func TestCompleteness(t *testing.T) {
	a, b := newAgent("a", start), newAgent("b", start)
	drops := func(of ...model.Drop) model.SelfSample { return model.SelfSample{Drops: of} }
	w := windowOf(
		hostSpans("a", frame.Span{
			Before: a.at(0, drops(model.Drop{Name: "edges", Count: 5}, model.Drop{Name: "disks", Count: 3})),
			After: a.at(10, drops(model.Drop{Name: "edges", Count: 9, Used: 100, Capacity: 100},
				model.Drop{Name: "disks", Count: 3},
				model.Drop{Name: "listeners", Count: 1, Used: 5, Capacity: 10}, model.Drop{Name: "agent/sink-otlp", Count: 2},
				model.Drop{Name: "container/open-files", Count: 2}))}),
		hostSpans("b", frame.Span{Before: b.at(5, drops()), After: b.at(10, drops())}))
	want := Completeness{WindowSeconds: 10, CoveredSeconds: 10, State: Incomplete,
		Tables: []Loss{{Host: "a", Name: "edges", Dropped: 4, Used: 100, Capacity: 100, Full: true, Affects: AffectsEdges},
			{Host: "a", Name: "listeners", Dropped: 1, Used: 5, Capacity: 10, Affects: AffectsNames}},
		Sinks: []Loss{{Host: "a", Name: "agent/sink-otlp", Dropped: 2}}}
	if got := CompletenessOf(w, false); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	w.Hosts = w.Hosts[1:]
	if got := CompletenessOf(w, false); got.State != Complete || got.CoveredSeconds != 5 {
		t.Errorf("got %+v of a host that lost nothing", got)
	}
	if got := CompletenessOf(w, true); got.State != Incomplete {
		t.Errorf("got %+v though connections are in no edge", got)
	}
}

func TestStatus(t *testing.T) {
	feature := model.Feature{Name: "tp_btf/sched_switch", Purpose: "CPU time", State: model.FeatureAbsent, Reason: "why",
		Remedy: "what", Required: true}
	self := model.SelfSample{Features: []model.Feature{feature}, CPUNS: 4e9,
		Drops:    []model.Drop{{Name: "edges", Count: 9, Used: 7, Capacity: 100}, {Name: "cgroups", Count: 1}},
		Programs: []model.ProgramCost{{Name: "sched_switch", Runs: 12, RunTimeNS: 5e8}}}
	w := windowOf(hostSpans("a", frame.Span{After: newAgent("a", start).at(0, self)}))
	got := StatusOf(w)
	if len(got.Hosts) != 1 || got.Hosts[0].AgentCPUSeconds != 4 {
		t.Errorf("got %+v", got.Hosts)
	}
	got.Hosts = nil
	want := Status{Features: []Feature{{"a", feature}},
		Drops: []Drop{{"a", model.Drop{Name: "cgroups", Count: 1}},
			{"a", model.Drop{Name: "edges", Count: 9, Used: 7, Capacity: 100}}},
		Programs: []Program{{"a", "sched_switch", 12, 0.5}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
