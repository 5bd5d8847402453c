package container

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// ErrEnded says that a container has no process any more.
var ErrEnded = errors.New("it has ended")

// ErrNoNamespace says that a container has no network namespace of its own, or that none is known.
var ErrNoNamespace = errors.New("it has no network namespace of its own that is known")

// Open is OpenProcess of the container with an ID, if it has a network namespace of its own. The error is ErrEnded where
// none runs, and ErrNoNamespace.
func (r *Registry) Open(id string) (*os.File, error) {
	r.mu.RLock()
	m := r.members[id]
	var c *model.Container
	if m != nil && m.running() {
		c = m.current
	}
	r.mu.RUnlock()
	switch {
	case c == nil:
		return nil, fmt.Errorf("container %.64s: %w", id, ErrEnded)
	case c.NetNS == 0 || c.NetNS == r.proc.hostNetNS || id == model.HostContainerID:
		return nil, fmt.Errorf("container %s: %w", c.Name, ErrNoNamespace)
	}
	return r.OpenProcess(c)
}

// OpenProcess opens the first process of a container as a pidfd, by which its namespaces can be entered: it means this
// process for good, also after its pid is used again, and keeps no namespace alive. It becomes readable when the process
// ends. For the host it is a process in the host's namespaces. The error is ErrEnded where the process is gone.
func (r *Registry) OpenProcess(c *model.Container) (*os.File, error) {
	pid := c.PID
	if c.ID == model.HostContainerID {
		pid = r.proc.hostPID
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, syscall.ESRCH):
		return nil, fmt.Errorf("container %s: %w", c.Name, ErrEnded)
	case err != nil:
		return nil, fmt.Errorf("opening process %d of container %s: %w", pid, c.Name, err)
	}
	// Only now the pid cannot come to mean another process between the check and the use.
	if err := r.proc.trust(pid, c.CgroupPath); err != nil && c.ID != model.HostContainerID {
		unix.Close(fd)
		return nil, fmt.Errorf("container %s: %w", c.Name, ErrEnded)
	}
	// Waiting for it is the runtime's, for which it must not block.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("opening process %d of container %s: %w", pid, c.Name, err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}
