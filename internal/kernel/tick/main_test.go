package tick

import (
	"slices"
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
		"record": func(string) int { return recordUntilKilled() }, "talk": func(string) int { return talk() },
	}, &shared)
}

// modules are the module and those that it reads.
type modules struct {
	*Tick
	sched *sched.Sched
	net   *net.Net
	block *block.Block
}

// newModules makes the modules.
func newModules() *modules {
	groups, edges := sched.New(sched.Options{}), net.New(net.Options{WithoutEndpoints: true})
	disks := block.New(block.Options{}, groups)
	groups.UseSlots(disks)
	return &modules{New(Options{FirstSlot: sched.FirstSlot, Types: kerneltest.Types}, groups, edges, disks), groups,
		edges, disks}
}

// all are the modules in the order in which they are opened.
func (m *modules) all() []host.Module { return []host.Module{m.sched, m.net, m.block, m.Tick} }

// shared are the modules that all tests use: a recorder only reads them.
var shared = kerneltest.Shared[*modules]{New: func() (*modules, []host.Module) {
	m := newModules()
	return m, m.all()
}}

func open(t *testing.T) *modules {
	t.Helper()
	return shared.Open(t)
}

// Forget forgets a group in all modules, as the loader does: its slot last.
func (m *modules) Forget(id model.CgroupID) {
	for _, each := range slices.Backward(m.all()) {
		each.Forget(id)
	}
}
