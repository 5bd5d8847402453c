package groups

import (
	"os"
	"os/exec"
	"testing"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// Each process that is killed for lack of memory is counted once, as in the file.
func TestKillsAreThoseOfTheFile(t *testing.T) {
	p := open(t)
	group, directories := newGroup(t, "kills")
	memory := directories[model.MemoryController]
	limit, events := memory+"/memory.max", memory+"/memory.events"
	if v1() {
		limit, events = memory+"/memory.limit_in_bytes", memory+"/memory.oom_control"
	}
	if err := os.WriteFile(limit, []byte("33554432"), 0); err != nil {
		t.Fatal(err)
	}
	pid, stop := group.Start(t, "idle")
	defer stop()
	slot := watch(t, p, pid, idsOf(t, directories))
	for kills := uint64(1); kills <= 2; kills++ {
		if err := exec.Command("sh", "-c", "echo $$ > "+memory+"/cgroup.procs; exec tail /dev/zero").Run(); err == nil {
			t.Fatal("it was not killed")
		}
		kerneltest.Eventually(t, "the file counts the kill", func() bool { return key(t, events, "oom_kill") == kills })
		if f, ok := figures(t, p, slot); !ok || !f.HasKills || f.Kills != kills {
			t.Errorf("%d kills, want %d", f.Kills, kills)
		}
	}
	if err := p.UnwatchGroup(slot); err != nil {
		t.Fatal(err)
	}
}
