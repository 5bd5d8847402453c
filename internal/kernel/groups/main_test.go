package groups

import (
	"testing"

	"github.com/cilium/ebpf/btf"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
)

func TestMain(m *testing.M) { kerneltest.Main(m, nil, &shared) }

var shared = kerneltest.Shared[*Groups]{New: func() (*Groups, []host.Module) {
	p := New(Options{})
	return p, []host.Module{p}
}}

// needTasks skips on kernels that are too old: a program cannot get a task by its number before Linux 6.2.
func needTasks(t *testing.T) {
	t.Helper()
	types, err := kerneltest.Types.Kernel()
	if err != nil {
		t.Skipf("the kernel has no types: %v", err)
	}
	var function *btf.Func
	if types.TypeByName("bpf_task_from_pid", &function) != nil {
		t.Skip("the kernel has no function bpf_task_from_pid")
	}
}

func open(t *testing.T) *Groups {
	t.Helper()
	needTasks(t)
	return shared.Open(t)
}
