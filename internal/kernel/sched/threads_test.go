package sched

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

func threadsOfSelf() int {
	tasks, _ := os.ReadDir("/proc/self/task")
	return len(tasks)
}

// startThreads starts threads that stay, and tells how many there are more than before, and than now.
func startThreads(before int) int {
	now := threadsOfSelf()
	var started sync.WaitGroup
	for range 20 {
		started.Add(1)
		go func() {
			runtime.LockOSThread()
			started.Done()
			select {}
		}()
	}
	started.Wait()
	after := threadsOfSelf()
	fmt.Println(after-before, after-now)
	bufio.NewReader(os.Stdin).ReadByte()
	return 0
}

// A thread that began while the workload joined the group may be counted or not.
func TestThreadStarts(t *testing.T) {
	p := open(t, Options{})
	g := kerneltest.NewGroup(t, "threads")
	cmd := g.Workload("threads")
	in, out := kerneltest.StartTalking(t, cmd)
	var most, least uint64
	if _, err := fmt.Fscan(out, &most, &least); err != nil || least < 15 {
		t.Fatalf("%d to %d threads began (%v), want about 20", least, most, err)
	}
	var c model.CgroupCounters
	kerneltest.Eventually(t, fmt.Sprintf("%d threads are counted", least), func() bool {
		c = readGroup(t, p, g.ID(t))
		return c.ThreadStarts >= least
	})
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if c = readGroup(t, p, g.ID(t)); c.ThreadStarts > most+1 || c.Forks > 1 { // one may have begun since
		t.Errorf("%d threads and %d processes began, want %d to %d threads", c.ThreadStarts, c.Forks, least, most)
	}
}
