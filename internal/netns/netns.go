// Package netns does things in other network namespaces.
package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrNotEntered says that a network namespace could not be entered.
var ErrNotEntered = errors.New("entering a network namespace")

// Inside calls f on a thread that is in a network namespace for the time being: that of a pidfd's process, or of a file
// of a namespace. The error is that of f, or has ErrNotEntered and its cause.
func Inside(of *os.File, f func() error) error {
	raw, err := of.SyscallConn()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotEntered, err)
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("%w: opening the own one: %w", ErrNotEntered, err)
			return
		}
		var entering error
		if err := raw.Control(func(fd uintptr) { entering = unix.Setns(int(fd), unix.CLONE_NEWNET) }); err != nil {
			entering = err
		}
		if err = entering; err == nil {
			err = f()
		} else {
			err = fmt.Errorf("%w: %w", ErrNotEntered, entering)
		}
		back := entering != nil || unix.Setns(own, unix.CLONE_NEWNET) == nil
		unix.Close(own)
		if back {
			runtime.UnlockOSThread()
		} // else it is still locked: the thread ends with the goroutine
		result <- err
	}()
	return <-result
}

// New makes a network namespace that nobody is in. It ends when the file is closed and no link or process holds it.
func New() (*os.File, error) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	defer own.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	made, err := os.Open("/proc/thread-self/ns/net")
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays locked, and so ends with the goroutine instead of serving others.
		return nil, errors.Join(err, fmt.Errorf("leaving a new network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return made, err
}
