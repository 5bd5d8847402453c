package fleet

import "outsight/internal/frame"

// Power is what a host takes, in watts: what it would with nothing to do, and what its work takes besides.
type Power struct{ Idle, Work float64 }

// metricEnergy has the labels domain, source and part.
var metricEnergy = metric("outsight_host_energy_joules_total", "domain")

// PowerOf is the mean power of each host of a window, by name, of which a meter tells it.
func PowerOf(w *frame.Window) map[string]Power {
	all := map[string]Power{}
	for i := range w.Hosts {
		if p, ok := powerOf(&w.Hosts[i]); ok {
			all[w.Hosts[i].Host] = p
		}
	}
	return all
}

func powerOf(of *frame.HostSpans) (Power, bool) {
	seconds := Covered(of).Seconds()
	if seconds <= 0 {
		return Power{}, false
	}
	s := spans{HostSpans: of}
	m := frame.LabelledMetrics[metricEnergy]
	perJoule := m.Per()
	byDomain := map[string]Power{}
	for i := range of.Spans {
		after := of.Spans[i].After
		d := frame.Since(frame.Labelled, s.before(i), after)
		eachLabelled(after, metricEnergy, func(row int, labels []string) {
			n, _ := d.Gain(0, row)
			watts := float64(n) / perJoule / seconds
			p := byDomain[labels[0]]
			if labels[2] == "idle" {
				p.Idle += watts
			} else {
				p.Work += watts
			}
			byDomain[labels[0]] = p
		})
	}
	// The whole machine has its packages in it, and a package its cores.
	if p, ok := byDomain["psys"]; ok {
		return p, true
	}
	p, ok := byDomain["package"]
	if !ok {
		p, ok = byDomain["core"]
	}
	memory := byDomain["dram"]
	return Power{p.Idle + memory.Idle, p.Work + memory.Work}, ok
}
