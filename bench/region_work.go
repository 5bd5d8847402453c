package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/region/readwire"
)

// regionWork serves what the part region compares with, spinWork takes all of a CPU.
const (
	regionWork, spinWork = "region-server", "spin"
	tcpRequestBytes      = 16
)

// serveRegion answers packets of reads, without looking at their MACs, and requests over TCP, with 1 KB of memory.
func serveRegion() error {
	memory := make([]byte, readwire.MaxBytes)
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", tcpPort))
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				request := make([]byte, tcpRequestBytes)
				for {
					if _, err := io.ReadFull(conn, request); err != nil {
						return
					}
					if _, err := conn.Write(memory); err != nil {
						return
					}
				}
			}()
		}
	}()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: epollPort}); err != nil {
		return err
	}
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return err
	}
	const kindAt, kindReply = 5, 2 // docs/format/region-read.md
	packet, events := make([]byte, 2048), make([]unix.EpollEvent, 1)
	fmt.Println("ready")
	for {
		if _, err := unix.EpollWait(poll, events, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for {
			n, from, err := unix.Recvfrom(fd, packet, 0)
			if err != nil {
				break // there is no more
			}
			if n > readwire.HeaderBytes {
				packet[kindAt] = kindReply
				copy(packet[readwire.HeaderBytes:n], memory)
				unix.Sendto(fd, packet[:n], 0, from)
			}
		}
	}
}

// cpuGroup is a control group of processes on the first CPU, with a fifth of it or all of it.
type cpuGroup struct {
	directory string
	processes []*exec.Cmd
}

func newCPUGroup(quota bool) (*cpuGroup, error) {
	const periodUS, quotaUS = "100000", "20000"
	g := &cpuGroup{directory: fmt.Sprintf("/sys/fs/cgroup/cpu/outsight-bench-%d", os.Getpid())}
	file, value := "cpu.cfs_quota_us", quotaUS
	if _, err := os.Stat(filepath.Dir(g.directory)); err != nil { // cgroup v2
		g.directory = fmt.Sprintf("/sys/fs/cgroup/outsight-bench-%d", os.Getpid())
		file, value = "cpu.max", quotaUS+" "+periodUS
		os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu"), 0)
	}
	if err := os.Mkdir(g.directory, 0o755); err != nil {
		return nil, err
	}
	if quota {
		if err := os.WriteFile(filepath.Join(g.directory, file), []byte(value), 0); err != nil {
			return nil, errors.Join(err, os.Remove(g.directory))
		}
	}
	return g, nil
}

// start starts this program as a work, in the network namespace of the calling thread, and waits until it is ready.
func (g *cpuGroup) start(work string) error {
	cmd := exec.Command("/bin/sh", "-c", `echo $$ >"$1/cgroup.procs" && exec taskset -c 0 "$2"`, "sh", g.directory, "/proc/"+
		strconv.Itoa(os.Getpid())+"/exe")
	cmd.Env = append(os.Environ(), workVariable+"="+work)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.processes = append(g.processes, cmd)
	if work != regionWork {
		return nil
	}
	line := make([]byte, 16)
	if n, err := out.Read(line); err != nil || !strings.HasPrefix(string(line[:n]), "ready") {
		return fmt.Errorf("%s says %q: %w", work, line[:n], err)
	}
	return nil
}

// remove ends the processes and takes the group away.
func (g *cpuGroup) remove() error {
	for _, p := range g.processes {
		p.Process.Kill()
		p.Wait()
	}
	err := os.Remove(g.directory)
	for range 100 { // the last of them may still be ending
		if err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
		err = os.Remove(g.directory)
	}
	return err
}
