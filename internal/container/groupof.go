package container

import (
	"fmt"

	"outsight/internal/model"
)

// GroupOf is the control group of a process, in the hierarchy of the layout.
func (l *Layout) GroupOf(procRoot string, pid int) (model.CgroupID, error) {
	path, err := processes{root: procRoot}.cgroupPath(pid, l.Subsystem)
	if err != nil {
		return 0, err
	}
	stat, err := statDirectory(l.MountPoint + path)
	if err != nil {
		return 0, fmt.Errorf("the control group of process %d: %w", pid, err)
	}
	return model.CgroupID(stat.Ino), nil
}
