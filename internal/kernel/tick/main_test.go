package tick

import (
	"outsight/internal/kernel/block"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/kernel/net"
	"outsight/internal/kernel/sched"
	"testing"
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

// make makes the modules; open opens them.
func newModules() *modules {
	groups, edges := sched.New(sched.Options{}), net.New(net.Options{WithoutEndpoints: true})
	disks := block.New(block.Options{}, groups)
	groups.UseSlots(disks)
	return &modules{New(Options{FirstSlot: sched.FirstSlot, Types: kerneltest.Types}, groups, edges, disks), groups, edges, disks}
}

func open(t *testing.T) *modules {
	t.Helper()
	m := newModules()
	kerneltest.Open(t, m.sched, m.net, m.block, m.Tick)
	return m
}
