package demo

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	enterRole = "enter"
	// enterFD is the descriptor on which the launcher says that all is set up.
	enterFD = 3
)

// enter waits until the launcher has put this process into its control groups and given its
// network namespace an address, and then becomes the program in args, after its host name. So
// a part's first socket is made where it belongs, as in a container.
func enter(args []string) error {
	if len(args) < 2 {
		return errors.New("demo service enter: host name and program expected")
	}
	// The signal of a launcher's death is a property of a thread, and an exec keeps that of the
	// thread that calls it, which need not be the one that the launcher has set it for.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("demo service enter: asking for a signal when the launcher ends: %w", err)
	}
	gate := os.NewFile(enterFD, "gate")
	if _, err := gate.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("demo service enter: the launcher has gone: %w", err)
	}
	gate.Close()
	if err := syscall.Sethostname([]byte(args[0])); err != nil {
		return fmt.Errorf("demo service enter: setting the host name: %w", err)
	}
	err := syscall.Exec(args[1], args[1:], os.Environ())
	return fmt.Errorf("demo service enter: running %q: %w", args[1], err)
}
