package sched

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
)

// maxThreads bounds the threads whose run-queue waits are known where tasks have no storage of
// their own. Each takes 80 bytes.
const maxThreads = 65536

// storeTasksIn makes task_states a hash by thread id, with room for so many or maxThreads, where tasks have no
// storage (before 5.11), or anyway with most.
func storeTasksIn(object *cgroupsSpecs, most uint32) error {
	err := features.HaveMapType(ebpf.TaskStorage)
	if most > 0 {
		err = ebpf.ErrNotSupported
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		states := object.TaskStates
		states.Type, states.Flags, states.MaxEntries = ebpf.Hash, 0, cmp.Or(most, maxThreads)
	} else if err != nil {
		return fmt.Errorf("probing for task storage: %w", err)
	}
	return object.TasksHaveStorage.Set(err == nil)
}
