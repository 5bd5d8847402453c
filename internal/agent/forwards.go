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

// forward is a namespace. It is forgotten when no container is in it any more.
type forward struct {
	packets uint64
	// grew is when that was seen to grow, and read when it was read as it is.
	grew, read time.Time
	rate       float64
	// ended is the sum of what the kernel counted before newest began.
	ended, newest model.KernelForward
}

// update finds out which namespaces forward; a usage is of the container at its index.
func (f *forwards) update(now time.Time, containers []*model.Container, usages []container.Usage, kernel Forwarding) {
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
	for _, n := range f.of {
		n.newest.TimedOneIn = 0
	}
	for _, k := range kernel.ReadForwarding() {
		if n := f.of[k.NetNS]; n != nil {
			n.set(k)
		}
	}
}

// set takes what the kernel counted. It may begin anew, when another process stands for the namespace.
func (n *forward) set(k model.KernelForward) {
	if k.Instance != n.newest.Instance {
		n.ended = n.sum()
	}
	n.newest = k
}

func (n *forward) sum() model.KernelForward {
	s := n.newest
	s.Unmatched += n.ended.Unmatched
	if n.ended.Took == nil {
		return s
	}
	took := n.ended.Took
	if s.Took != nil {
		took = took.Clone()
		took.Merge(s.Took)
	}
	s.Took = took
	return s
}

// counters are those of a container in a namespace; nil where it has forwarded nothing.
func (f *forwards) counters(u *container.Usage, netns uint32) *model.ForwardCounters {
	if u.Forwarded == 0 {
		return nil
	}
	c := &model.ForwardCounters{Packets: u.Forwarded}
	if n := f.of[netns]; n != nil {
		k := n.sum()
		c.Took, c.Unmatched, c.TimedOneIn = k.Took, k.Unmatched, k.TimedOneIn
	}
	return c
}
