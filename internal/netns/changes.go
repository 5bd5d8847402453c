package netns

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Changes tells whether Links or DefaultRoutes of a network namespace may have other answers than before. It is for one
// goroutine.
type Changes struct {
	fd     int
	buffer [4 << 10]byte
}

// WatchChanges begins to watch the network namespace of the thread.
func WatchChanges() (*Changes, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watching interfaces: %w", err)
	}
	groups := unix.SockaddrNetlink{Family: unix.AF_NETLINK,
		Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE}
	if err := unix.Bind(fd, &groups); err != nil {
		_ = unix.Close(fd) // nothing was written
		return nil, fmt.Errorf("watching interfaces: %w", err)
	}
	return &Changes{fd: fd}, nil
}

// Any reports whether the kernel has told of any since the last call. It does not wait, and is true where that is not
// known: the kernel had no room for what it would have told, or cannot be asked.
func (c *Changes) Any() (some bool) {
	for {
		_, _, err := unix.Recvfrom(c.fd, c.buffer[:], unix.MSG_TRUNC)
		switch {
		case err == nil, errors.Is(err, unix.ENOBUFS):
			some = true
		case errors.Is(err, unix.EINTR):
		default:
			return some || !errors.Is(err, unix.EAGAIN)
		}
	}
}

// Close ends it.
func (c *Changes) Close() error { return unix.Close(c.fd) }
