package agent

import (
	"time"

	"outsight/internal/container"
	"outsight/internal/model"
)

// Forwarding times packets on their way through network namespaces. It is called by the goroutine that reads the Counters.
type Forwarding interface {
	FollowForwarding([]model.ForwardingNamespace)
	ReadForwarding() []model.KernelForward
}

// forwardsFor is for how long after it has forwarded something a namespace is timed.
const forwardsFor = 5 * time.Minute

// forwards knows which namespaces forward.
type forwards struct{ of map[uint32]*forward }

// forward is a namespace.
type forward struct {
	packets uint64
	// grew is when that was seen to grow, and read when it was read as it is.
	grew, read time.Time
	rate       float64
}

// update finds out which namespaces forward; a usage is of the container at its index.
func (f *forwards) update(now time.Time, containers []*model.Container, usages []container.Usage,
	kernel Forwarding) map[uint32]model.KernelForward {
	seen := make(map[uint32]bool)
	var wanted []model.ForwardingNamespace
	for i, c := range containers {
		packets := usages[i].Forwarded
		if packets == 0 && f.of[c.NetNS] == nil || seen[c.NetNS] || !c.Ended.IsZero() {
			continue
		}
		seen[c.NetNS] = true
		n := f.of[c.NetNS]
		if n == nil {
			n = &forward{packets: packets, read: now}
			f.of[c.NetNS] = n
		}
		if packets > n.packets {
			n.rate, n.grew = float64(packets-n.packets)/max(now.Sub(n.read).Seconds(), 1), now
		}
		if packets != n.packets {
			n.packets, n.read = packets, now
		}
		if !n.grew.IsZero() {
			wanted = append(wanted, model.ForwardingNamespace{NetNS: c.NetNS, PID: c.PID, PacketsPerSecond: n.rate,
				Idle: now.Sub(n.grew) > forwardsFor})
		}
	}
	for id := range f.of {
		if !seen[id] {
			delete(f.of, id)
		}
	}
	kernel.FollowForwarding(wanted)
	counted := make(map[uint32]model.KernelForward)
	for _, k := range kernel.ReadForwarding() {
		counted[k.NetNS] = k
	}
	return counted
}

// forwardCounters are those of a container; nil where its namespace has forwarded nothing.
func forwardCounters(u *container.Usage, k model.KernelForward) *model.ForwardCounters {
	if u.Forwarded == 0 {
		return nil
	}
	return &model.ForwardCounters{Packets: u.Forwarded, Took: k.Took, Unmatched: k.Unmatched, TimedOneIn: k.TimedOneIn}
}
