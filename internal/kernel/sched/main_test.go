package sched

import (
	"testing"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/kerneltest"
)

func TestMain(m *testing.M) {
	before := threadsOfSelf()
	kerneltest.Main(m, map[string]func(string) int{
		"faults": func(string) int { return touchPages() }, "rename": func(string) int { return renameProcess() },
		"pinned-spin": pinned, "pinned-spin4": pinned, "pinned-nap": pinned, "read-file": useMemory, "take-memory": useMemory,
		"name-threads": nameThreads, "flood-metrics": flood,
		"threads": func(string) int { return startThreads(before) },
	})
}

// open opens the module by itself.
func open(t *testing.T, o Options) *Sched {
	t.Helper()
	p := New(o)
	kerneltest.Open(t, p)
	return p
}

func TestCallsFitOlderVerifiers(t *testing.T) {
	kerneltest.CallsFitOlderVerifiers(t, map[string]func() (*ebpf.CollectionSpec, error){
		"cgroups": loadCgroups, "contention": loadContention, "reclaim": loadReclaim, "counters": loadCounters,
		"appmetrics": loadAppmetrics,
	})
}
