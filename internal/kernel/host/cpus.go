package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// SwitchCPUs makes every CPU switch once: until then it is not known since when the thread that
// runs on it does. A CPU that is offline or not allowed is left out.
func SwitchCPUs(cpus int) {
	all := make([]int, cpus)
	for cpu := range all {
		all[cpu] = cpu
	}
	VisitCPUs(all, func() {}) // the thread is moved there, which is a switch
}

// VisitCPUs does something on each of the CPUs that is online and allowed.
func VisitCPUs(cpus []int, do func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return
	}
	defer unix.SchedSetaffinity(0, &allowed)
	for _, cpu := range cpus {
		var one unix.CPUSet
		one.Set(cpu)
		if unix.SchedSetaffinity(0, &one) == nil {
			do()
		}
	}
}
