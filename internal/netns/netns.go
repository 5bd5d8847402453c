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
