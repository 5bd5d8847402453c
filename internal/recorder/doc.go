// Package recorder makes recordings of the kernel's ticks: it sums control groups to containers, adds
// what the control group files say, and hands each container's rows to a writer. A Flight keeps the
// last minutes in memory instead.
package recorder

import (
	"time"

	"outsight/internal/model"
)

// Ticks is the kernel's timer and the ring that it fills. It is for one goroutine.
type Ticks interface {
	Interval() time.Duration
	// Drain hands over what was not yet handed over; a tick is only valid during the call.
	Drain(func(*model.Tick)) error
	Losses() model.TickLosses
	// Ignore leaves a control group out of the ticks to come.
	Ignore(model.CgroupID)
}

// Containers knows who runs.
type Containers interface {
	// Lookup finds the container of a control group; the host's where it is in none.
	Lookup(model.CgroupID) *model.Container
	// Containers are those that run, the host's included.
	Containers() []*model.Container
}

// DrainEvery is how often the ring is emptied: it lasts four times as long, unless ticks are so
// frequent that its bound cuts it short.
func DrainEvery(interval time.Duration) time.Duration {
	if interval < 10*time.Millisecond {
		return 250 * time.Millisecond
	}
	return 500 * time.Millisecond
}
