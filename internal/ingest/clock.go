package ingest

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// clockProbation is how long a clock that has jumped must go on evenly before it is believed.
const clockProbation = 10 * time.Minute

// clock is this server's clock. A jump of it is suspect at first: samples from years ahead would make all others too
// old for as long as they are stored.
type clock struct {
	wall func() time.Time
	// uptime is the time since the start, which does not jump.
	uptime func() time.Duration
	// most is by how much the clock may be set without a doubt.
	most time.Duration
	log  *slog.Logger

	// mu guards the rest.
	mu sync.Mutex
	// began is when uptime was 0, by the trusted clock, suspectBegan by the suspect one, which jumped at uptime since.
	began, suspectBegan time.Time
	since               time.Duration
}

func newClock(wall func() time.Time, uptime func() time.Duration, most time.Duration, log *slog.Logger) *clock {
	return &clock{wall: wall, uptime: uptime, most: most, log: log, began: wall().Round(0).Add(-uptime())}
}

// now is the time. After a jump it is not known which of two it is.
func (c *clock) now() (earlier, later time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, uptime := c.wall().Round(0), c.uptime()
	began := wall.Add(-uptime)
	jump := began.Sub(c.began)
	if jump.Abs() <= c.most {
		c.began, c.suspectBegan = began, time.Time{}
		return wall, wall
	}
	if c.suspectBegan.IsZero() || began.Sub(c.suspectBegan).Abs() > c.most {
		c.suspectBegan, c.since = began, uptime
		c.log.Warn("the clock of this host has jumped: what is of the time in between is taken once the clock is believed", "by", jump, "believed_after", clockProbation)
	}
	if uptime-c.since >= clockProbation {
		c.began, c.suspectBegan = began, time.Time{}
		return wall, wall
	}
	believed := c.began.Add(uptime)
	if believed.Before(wall) {
		return believed, wall
	}
	return wall, believed
}

// uptime is the time since the host started, suspended or not.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("BUG: reading CLOCK_BOOTTIME: %v", err)) // every kernel since 2.6.39 has it
	}
	return time.Duration(t.Nano())
}
