package frame

import (
	"syscall"
	"testing"
)

// cpuTime is what the process has used: on a machine with other work, more steady than the time that passed.
func cpuTime() int64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

func reportCPU(b *testing.B) func() {
	before := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op") }
}
