package agent

import (
	"maps"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// Names of parts that the agent's own process works for; the first ones have kernel programs as well.
const (
	partGroups      = "groups"
	partContention  = "contention"
	partCounters    = "counters"
	partConnections = "connections"
	partDisks       = "disks"
	partFiles       = "files"
	partContainers  = "containers"
	partEnergy      = "energy"
	// partApplications has a kernel program.
	partApplications = "applications"
	partExport       = "export"
	partServing      = "serving"
	partRest         = "rest"
)

// ownParts have no kernel programs.
var ownParts = []model.Part{
	{Name: partContainers, Purpose: "which containers there are, and what they are called", Fixed: true},
	{Name: partEnergy, Purpose: "energy, and whose it is", Fixed: true},
	{Name: partExport, Purpose: "handing on what was read: to the store, or to a server", Fixed: true},
	{Name: partServing, Purpose: "answers to who asks: for /metrics, the page and its data, the command line",
		Fixed: true},
}

// restOfAll is what is not attributed to another part.
var restOfAll = model.Part{Name: partRest, Purpose: "unattributed: the clearing of unused memory, writing to the " +
	"network, waiting", Fixed: true}

// spending sums the CPU time of this process by the parts for which its threads worked. The zero value works.
type spending struct {
	mu sync.Mutex // guards ns
	ns map[string]uint64
}

// on begins work for a part; the work is all that this goroutine does until it calls end. No work is within another.
func (s *spending) on(part string) (end func()) {
	runtime.LockOSThread() // its time is that of the thread
	begun := threadTime()
	return func() {
		took := threadTime() - begun
		runtime.UnlockOSThread()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ns == nil {
			s.ns = make(map[string]uint64)
		}
		s.ns[part] += took
	}
}

// with is what was spent so far, with what others report.
func (s *spending) with(others map[string]uint64) map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := maps.Clone(s.ns)
	if sums == nil {
		sums = make(map[string]uint64)
	}
	for part, ns := range others {
		sums[part] += ns
	}
	return sums
}

// threadTime is the CPU time of the calling thread in ns.
func threadTime() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic("BUG: no clock of a thread's CPU time: " + err.Error())
	}
	return uint64(t.Nano())
}
