package predict

import (
	"math"

	"outsight/internal/graph"
)

// hostCPUs is what the threads of a container find at the CPUs of its host.
type hostCPUs struct {
	// line is what the application takes of them; left is what all others leave of cores.
	line        *Demand
	left, cores float64
	// mine are the container, and those of which a thread takes more of a CPU for a request than one of its own: the kernel
	// gives each a fair share, so that they do not keep it waiting.
	mine []heavy
}

// heavy is what a container takes, of which share of the requests that it got.
type heavy struct {
	line  *Demand
	share float64
}

// notWaiting is the least utilisation of a thread that is said to be used up where it waits for a CPU for the rest of the
// time. With less the CPUs of the host are the limit: a half is what it gets of a CPU that it shares with one other thread that
// is always ready to run, as there is on a host that is used up. The demo shop's payment had 0.8 at its limit (decision 196). It
// is chosen in the middle of the two, and neither measured nor derived more closely.
const notWaiting = 2.0 / 3

// findHosts finds what goes on at the hosts of containers that are used up by one thread; line answers that of a resource.
func findHosts(resources []Resource, cores map[string]float64, line func(*Resource) *Demand) {
	hosts := map[string]*Resource{}
	for i := range resources {
		hosts[resources[i].Node] = &resources[i]
	}
	for i := range resources {
		r := &resources[i]
		r.host = nil
		h := hosts[graph.CPUsOf(r.Host)]
		if h == nil || h == r || line(h) == nil || line(r) == nil || h.Parallel <= 0 || cores[r.Host] < h.Parallel || r.ParallelBy != "threads" ||
			r.serial == nil {
			continue
		}
		r.host = &hostCPUs{line: line(h), left: h.Parallel, cores: cores[r.Host]}
		for j := range resources {
			if o := &resources[j]; o.Host == r.Host && o != h && line(o) != nil && perThread(o, line(o)) >= perThread(r, line(r)) {
				r.host.mine = append(r.host.mine, heavy{line(o), o.share})
			}
		}
	}
}

// perThread is the CPU time of a thread for a request, in seconds.
func perThread(r *Resource, line *Demand) float64 {
	return line.PerRequest * r.share / max(r.Parallel, 1)
}

// slowdown is how many times as long as alone a thread of the container runs, for what lighter ones take of the CPUs of its
// host, at a rate at the entries: M/M/c with the processors shared, 1 + C / (c (1 - ρ)), where C is Erlang's probability that all
// c of them are busy. Infinite where they are used up.
func (h *hostCPUs) slowdown(rate float64) float64 {
	if h == nil {
		return 1
	}
	rest := h.line.Utilisation(rate, h.left).Value * h.left
	for _, m := range h.mine {
		rest -= m.line.Cores(rate * m.share).Value
	}
	used := (max(rest, 0) + h.cores - h.left) / h.cores
	if used >= 1 {
		return math.Inf(1)
	}
	c := math.Round(h.cores)
	return 1 + erlangWait(int(c), used)/c
}

// erlangWait is the mean wait at M/M/c, as a multiple of how long requests take over the number of servers: C / (1 - ρ), where C is
// Erlang's probability that all servers, utilised by ρ below 1, are busy.
func erlangWait(servers int, utilised float64) float64 {
	// Erlang's B of a number of servers follows from that of one less.
	blocked, load := 1.0, utilised*float64(servers)
	for n := 1; n <= servers; n++ {
		blocked = load * blocked / (float64(n) + load*blocked)
	}
	return blocked / (1 - utilised*(1-blocked)) / (1 - utilised)
}

// used is the line of what is used up first of a container, and of how much: its busiest thread, or its cores.
func (r *Resource) used(whole *Demand) (line *Demand, parallel float64) {
	if r.serial != nil && r.ParallelBy == "threads" {
		return r.serial, 1
	}
	return whole, r.Parallel
}

// slowed is the rate at which the thread is busy or waits for a CPU all the time, where that is below the limit that it has by
// its own CPU time alone; used answers its utilisation at a rate of its own.
func (r *Resource) slowed(limit float64, used func(rate float64) float64) float64 {
	full := func(rate float64) bool { return used(rate)*r.host.slowdown(rate/r.share) >= 1 }
	if r.host == nil || !full(limit) {
		return limit
	}
	low, high := 0.0, limit
	for range 60 {
		if middle := (low + high) / 2; full(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	if used(low) < notWaiting {
		return limit
	}
	return low
}
