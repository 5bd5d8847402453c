package model

// KernelContention is what the kernel counted of who ran while whom waited.
type KernelContention struct {
	Groups []CgroupContention
	// Pairs in no order.
	Pairs []CgroupPair
}

// CgroupContention is what the threads of one control group waited for, but for other groups. With
// the pairs of which it is the victim this adds up to all that they waited for a CPU.
type CgroupContention struct {
	ID CgroupID
	// Slot says what the counters stand for where ID is 0.
	Slot CgroupSlot
	ContentionRest
}

// CgroupPair is what one control group did to another.
type CgroupPair struct {
	// Victim waited and was preempted, Culprit ran.
	Victim, Culprit CgroupID
	// WaitNS is the time for which threads of Victim waited for a CPU while Culprit ran on it.
	WaitNS uint64
	// Preemptions counts threads of Victim that could have run on when one of Culprit took the CPU.
	Preemptions uint64
}

// ContentionRest is what threads waited for besides other containers, in nanoseconds, and how often
// they were taken off their CPU.
type ContentionRest struct {
	// OwnNS: other threads of the same container ran. IdleNS: nothing ran, which is the time that
	// a CPU takes to wake up. QuotaNS: the container's own CPU quota was used up.
	OwnNS, IdleNS, QuotaNS uint64
	// MigratedNS was waited on another CPU than the one that the thread then ran on, behind whom is not
	// known. OtherNS: who ran is not known any more, or found no room in a table.
	MigratedNS, OtherNS uint64
	// OwnPreemptions were by other threads of the same container, OtherPreemptions by whom is not
	// known. QuotaStops counts threads taken off their CPU because the quota was used up.
	OwnPreemptions, OtherPreemptions, QuotaStops uint64
}

// WaitNS is all that was waited for besides other containers.
func (c *ContentionRest) WaitNS() uint64 {
	return c.OwnNS + c.IdleNS + c.QuotaNS + c.MigratedNS + c.OtherNS
}

// Add adds what gained counted to c.
func (c *ContentionRest) Add(gained *ContentionRest) {
	c.OwnNS += gained.OwnNS
	c.IdleNS += gained.IdleNS
	c.QuotaNS += gained.QuotaNS
	c.MigratedNS += gained.MigratedNS
	c.OtherNS += gained.OtherNS
	c.OwnPreemptions += gained.OwnPreemptions
	c.OtherPreemptions += gained.OtherPreemptions
	c.QuotaStops += gained.QuotaStops
}

// Since is what c gained after before, an earlier state of the same counters.
func (c ContentionRest) Since(before *ContentionRest) ContentionRest {
	c.OwnNS -= before.OwnNS
	c.IdleNS -= before.IdleNS
	c.QuotaNS -= before.QuotaNS
	c.MigratedNS -= before.MigratedNS
	c.OtherNS -= before.OtherNS
	c.OwnPreemptions -= before.OwnPreemptions
	c.OtherPreemptions -= before.OtherPreemptions
	c.QuotaStops -= before.QuotaStops
	return c
}

// Contention is what a container's threads waited for.
type Contention struct {
	ContentionRest
	// By holds other containers, each at most once. Those that are too many or too small to be
	// distinguished are in OtherNS and OtherPreemptions.
	By []Contender
}

// Contender is another container that ran while a container waited.
type Contender struct {
	// ID and Name of the other container, as it was called last.
	ID, Name string
	// WaitNS and Preemptions as in CgroupPair, counted since the contender was first distinguished.
	WaitNS, Preemptions uint64
}

// WaitNS is all that was waited.
func (c *Contention) WaitNS() uint64 {
	sum := c.ContentionRest.WaitNS()
	for i := range c.By {
		sum += c.By[i].WaitNS
	}
	return sum
}
