package container

import (
	"fmt"
	"syscall"
	"testing"

	"outsight/internal/model"
)

// BenchmarkRead reads 50 containers with one process each, as the agent does every second. The
// budget of the whole agent is 5 ms of CPU for that second.
func BenchmarkRead(b *testing.B) {
	f, containers := fiftyContainers(b)
	usages := make([]Usage, len(containers))
	b.ReportAllocs()
	before := processTime(b)
	for b.Loop() {
		f.Read(containers, usages)
	}
	b.ReportMetric(float64(processTime(b)-before)/1e3/float64(b.N), "cpu-us/op")
	for i := range usages {
		if usages[i].Err != nil || usages[i].Memory == nil || usages[i].Network == nil {
			b.Fatalf("%+v", usages[i])
		}
	}
}

// processTime is the CPU time of this process in ns: other than the time of day it does not
// depend on what else the machine does.
func processTime(b *testing.B) int64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// BenchmarkFile reports which of the files costs how much.
func BenchmarkFile(b *testing.B) {
	f, containers := fiftyContainers(b)
	for k := range fileKinds {
		if f.sources[k].mount == "" {
			continue
		}
		b.Run(f.sources[k].names[0], func(b *testing.B) {
			g := &groupFiles{}
			g.reset()
			defer f.closeGroup(g)
			for b.Loop() {
				if _, err := f.text(containers[0], g, k); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func fiftyContainers(b *testing.B) (*Files, []*model.Container) {
	l := hostLayout(b)
	f := NewFiles(l, Options{})
	b.Cleanup(f.Close)
	var containers []*model.Container
	for i := range 50 {
		path := fmt.Sprintf("/osct-bench/%s", testID(i))
		id := makeGroup(b, l, path)
		pid, netns := enterOwnNetwork(b, l, path)
		containers = append(containers, &model.Container{ID: testID(i), CgroupPath: path, Cgroup: id,
			PID: pid, NetNS: netns})
	}
	return f, containers
}
