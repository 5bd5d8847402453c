package region

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Alive is ErrGone where the other end of a connection, on which nothing is to come, is closed. It does not wait.
func Alive(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var received error
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, received = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	switch {
	case err != nil:
		return err
	case errors.Is(received, unix.EAGAIN):
		return nil
	case received != nil || n == 0:
		return ErrGone
	}
	return nil
}
