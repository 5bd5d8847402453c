package forward

import (
	"math/bits"
	"sync/atomic"
	"time"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// mostTimed is how many packets of a namespace are timed a second at most, about; with less than a quarter of that, more
// are.
const mostTimed = 4000

// maxLevel bounds levels: of 2^level packets one is timed.
const maxLevel = 20

// levels remembers from when on how many packets were noted.
type levels struct {
	since   time.Time
	stamped uint64
}

// levelOf is the least level at which no more are timed than should be.
func levelOf(packetsPerSecond float64) uint32 {
	times := packetsPerSecond / mostTimed
	if times <= 1 {
		return 0
	}
	return min(uint32(bits.Len64(uint64(times))), maxLevel)
}

// nextLevel is the level for a rate at which packets are noted at another one.
func nextLevel(level uint32, notedPerSecond float64) uint32 {
	switch {
	case notedPerSecond > mostTimed:
		return min(level+levelOf(notedPerSecond), maxLevel)
	case notedPerSecond < mostTimed/4 && level > 0:
		return level - 1
	}
	return level
}

func (n *namespace) level() uint32 { return atomic.LoadUint32(&n.table.Entries[0].Level) }

func (n *namespace) setLevel(level uint32) { atomic.StoreUint32(&n.table.Entries[0].Level, level) }

// ReadForwarding reads what was counted of the namespaces that are wanted, each by the process by which it was found.
func (p *Forward) ReadForwarding() (all []model.KernelForward) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, w := range p.wanted {
		if n := p.namespaces[w.NetNS]; n != nil && n.pid == w.PID {
			all = append(all, n.read(w.NetNS, now))
		}
	}
	return all
}

func (n *namespace) read(id uint32, now time.Time) model.KernelForward {
	f := &n.table.Entries[0]
	level := n.level()
	if matched := host.Load(&f.Matched); matched > 0 && (n.took == nil || n.took.Count != matched) {
		var cells [host.HistogramCells]uint64
		for i := range cells {
			cells[i] = host.Load(&f.Took.Cells[i])
		}
		n.took = host.HistogramOf(&cells, host.Load(&f.SumNs))
	}
	stamped := host.Load(&f.Stamped)
	if passed := now.Sub(n.levels.since); n.levels.since.IsZero() || passed >= time.Second/2 {
		if !n.levels.since.IsZero() {
			n.setLevel(nextLevel(level, float64(stamped-n.levels.stamped)/passed.Seconds()))
		}
		n.levels = levels{now, stamped}
	}
	return model.KernelForward{NetNS: id, Instance: n.instance, Took: n.took, Unmatched: host.Load(&f.Unmatched),
		TimedOneIn: 1 << level}
}
