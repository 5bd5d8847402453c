package tick

import (
	"testing"

	"outsight/internal/kernel/block"
	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/kernel/net"
	"outsight/internal/kernel/sched"
	"outsight/internal/model"
)

func TestMain(m *testing.M) {
	kerneltest.Main(m, map[string]func(string) int{
		"record": func(string) int { return recordUntilKilled() },
	})
}

// modules are the module and those that it reads.
type modules struct {
	*Tick
	sched *sched.Sched
	net   *net.Net
	block *block.Block
}

// newModules makes the modules; open opens them.
func newModules() *modules {
	groups, edges := sched.New(sched.Options{}), net.New(net.Options{WithoutEndpoints: true})
	disks := block.New(block.Options{}, groups)
	groups.UseSlots(disks)
	return &modules{New(Options{FirstSlot: sched.FirstSlot, Types: kerneltest.Types}, groups, edges, disks), groups,
		edges, disks}
}

func open(t *testing.T) *modules {
	t.Helper()
	m := newModules()
	kerneltest.Open(t, m.sched, m.net, m.block, m.Tick)
	return m
}

// Forget forgets a group in all modules, as the loader does: its slot last.
func (m *modules) Forget(id model.CgroupID) {
	for _, each := range []host.Module{m.Tick, m.block, m.net, m.sched} {
		each.Forget(id)
	}
}
