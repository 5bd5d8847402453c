package block

import (
	"testing"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/kernel/sched"
	"outsight/internal/model"
)

func TestMain(m *testing.M) {
	kerneltest.Main(m, map[string]func(string) int{
		"sync": func(string) int { return syncFile() },
	})
}

// blockAndGroups is the module with the one that it needs.
type blockAndGroups struct {
	*Block
	groups *sched.Sched
}

// open opens the modules.
func open(t *testing.T, o Options) *blockAndGroups {
	t.Helper()
	groups := sched.New(sched.Options{})
	p := &blockAndGroups{New(o, groups), groups}
	groups.UseSlots(p.Block)
	kerneltest.Open(t, groups, p.Block)
	return p
}

// Forget forgets a group in both, as the loader does: its slot last.
func (p *blockAndGroups) Forget(id model.CgroupID) {
	p.Block.Forget(id)
	p.groups.Forget(id)
}
