package net

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
)

// wire is a link between two network namespaces that loses, copies, delays and reorders packets, and has an exact log
// of it. Its ends are devices of user space, so that every frame is at most as large as the link allows.
//
//	client 10.214.0.1, fd14::1 ── wire ── 10.214.0.2, fd14::2 server
type wire struct {
	t      *testing.T
	prefix string
	// delay is added to each packet. Of the packets with data from the client to the server each lose-th is lost, each
	// duplicate-th is told twice, and each hold-th is overtaken by the next two; 0 for none.
	delay                 time.Duration
	lose, duplicate, hold int
	mu                    sync.Mutex
	log                   wireLog
	devices               [2]int
}

// wireLog is of packets with data from the client to the server.
type wireLog struct {
	// taken were given to the wire, given were received from it; bytes are those of the data.
	taken, takenBytes, given, givenBytes int
	lost, duplicated, reordered          int
	// distinctBytes are those given of a connection, each once, if none was lost for good.
	distinctBytes int
}

func newWire(t *testing.T) *wire {
	w := &wire{t: t, prefix: fmt.Sprintf("oswire%d", os.Getpid())}
	for i, name := range []string{"client", "server"} {
		command(t, "ip", "netns", "add", w.prefix+name)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", w.prefix+name).Run() })
		w.within(name, func() {
			fd := openTAP(t)
			t.Cleanup(func() { unix.Close(fd) })
			w.devices[i] = fd
			command(t, "ip", "link", "set", "lo", "up")
			command(t, "ip", "address", "add", fmt.Sprintf("10.214.0.%d/24", i+1), "dev", "wire")
			command(t, "ip", "address", "add", fmt.Sprintf("fd14::%d/64", i+1), "dev", "wire", "nodad")
			command(t, "ip", "link", "set", "wire", "up")
		})
	}
	return w
}

// vxlanPort is that of RFC 7348.
const vxlanPort = 4789

// vxlan is what VXLAN's devices are made with; outer is what the wire's addresses begin with.
var vxlan = tunnel{[]string{"vxlan", "id", "7", "dstport", strconv.Itoa(vxlanPort)}, "10.214.0."}

type tunnel struct {
	device []string
	outer  string
}

// overlay encapsulates what goes between other addresses of the two ends: 10.230.0.1 and fd30::1, 10.230.0.2 and fd30::2.
func (w *wire) overlay(by tunnel) {
	w.t.Helper()
	for i, name := range []string{"client", "server"} {
		w.within(name, func() {
			words := append([]string{"ip", "link", "add", "overlay", "type"}, by.device...)
			if by.device[0] != "geneve" {
				words = append(words, "local", by.outer+strconv.Itoa(i+1))
			}
			command(w.t, append(words, "remote", by.outer+strconv.Itoa(2-i))...)
			command(w.t, "ip", "address", "add", fmt.Sprintf("10.230.0.%d/24", i+1), "dev", "overlay")
			command(w.t, "ip", "address", "add", fmt.Sprintf("fd30::%d/64", i+1), "dev", "overlay", "nodad")
			command(w.t, "ip", "link", "set", "overlay", "mtu", "1400", "up") // so that nothing is cut up once encapsulated
		})
	}
}

// start carries packets from now on.
func (w *wire) start() {
	var done sync.WaitGroup
	stop := make(chan struct{})
	for i := range w.devices {
		done.Go(func() { w.carry(w.devices[i], w.devices[1-i], i == 0, stop) })
	}
	w.t.Cleanup(func() {
		close(stop)
		done.Wait()
	})
}

// within calls f in a namespace.
func (w *wire) within(name string, f func()) {
	w.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and ends with the goroutine
		fd, err := unix.Open("/run/netns/"+w.prefix+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			w.t.Error(err)
			return
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			w.t.Error(err)
			return
		}
		f()
	}()
	<-done
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// tap sees the packets at an end of the wire.
func (w *wire) tap(name string) (tap kerneltest.Tap) {
	w.t.Helper()
	w.within(name, func() {
		var err error
		if tap, err = kerneltest.OpenTap(w.t, "wire"); err != nil {
			w.t.Error(err)
		}
	})
	return tap
}

func openTAP(t *testing.T) int {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	request, err := unix.NewIfreq("wire")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		t.Fatal(err)
	}
	return fd
}

// wireFrame is a packet in the wire.
type wireFrame struct {
	frame    []byte
	at       time.Time
	number   int // of those with data; -1: it has none
	length   int
	sequence uint32
	// overtaken is by how many it is to be overtaken yet.
	overtaken int
	copies    int
}

// parse finds out whether a frame has data, of what VXLAN encapsulates whether that has.
func (f *wireFrame) parse() {
	f.number = -1
	f.parseIP(f.frame[14:])
}

func (f *wireFrame) parseIP(ip []byte) {
	protocol, header := ip[6], 40
	size := header + int(binary.BigEndian.Uint16(ip[4:]))
	if ip[0]>>4 == 4 {
		protocol, header = ip[9], int(ip[0]&15)*4
		size = int(binary.BigEndian.Uint16(ip[2:]))
	} else if ip[0]>>4 != 6 {
		return
	}
	switch protocol {
	case unix.IPPROTO_TCP:
		f.length = size - header - int(ip[header+12]>>4)*4
		f.sequence = binary.BigEndian.Uint32(ip[header+4:])
	case unix.IPPROTO_UDP:
		if binary.BigEndian.Uint16(ip[header+2:]) == vxlanPort {
			f.parseIP(ip[header+8+8+14:])
			return
		}
		f.length = size - header - 8
	}
	if f.length > 0 {
		f.number = 0
	}
}

// carry carries frames in their order, but for those that are held back.
func (w *wire) carry(from, to int, isRequest bool, stop chan struct{}) {
	var queue, held []*wireFrame
	var numbers, newest int
	var first, highest uint32 // of the sequence numbers
	give := func(f *wireFrame) {
		for range 1 + f.copies {
			for {
				if _, err := unix.Write(to, f.frame); err != unix.EAGAIN {
					break
				}
			}
		}
		if f.number < 0 {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.log.given += 1 + f.copies
		w.log.givenBytes += (1 + f.copies) * f.length
		w.log.duplicated += f.copies
		if f.number < newest && (f.sequence == 0 || int32(f.sequence-highest) < 0) {
			w.log.reordered++
		}
		newest = max(newest, f.number)
		if end := f.sequence + uint32(f.length); highest == 0 || int32(end-highest) > 0 {
			highest = end
		}
		w.log.distinctBytes = int(highest - first)
	}
	buffer := make([]byte, 65536)
	for {
		select {
		case <-stop:
			return
		default:
		}
		wait := int64(10 * time.Millisecond)
		if len(queue) > 0 {
			wait = max(0, int64(time.Until(queue[0].at.Add(w.delay))))
		}
		ready := []unix.PollFd{{Fd: int32(from), Events: unix.POLLIN}}
		timeout := unix.NsecToTimespec(wait)
		unix.Ppoll(ready, &timeout, nil)
		n, err := unix.Read(from, buffer)
		if err == nil {
			f := &wireFrame{frame: slices.Clone(buffer[:n]), at: time.Now()}
			if f.parse(); f.number == 0 && isRequest {
				numbers++
				f.number = numbers
				each := func(n int) bool { return n > 0 && numbers%n == 0 }
				w.mu.Lock()
				if w.log.taken == 0 {
					first = f.sequence
				}
				w.log.taken++
				w.log.takenBytes += f.length
				switch {
				case each(w.lose):
					w.log.lost++
					f = nil
				case each(w.duplicate):
					f.copies = 1
				case each(w.hold):
					f.overtaken = 2
				}
				w.mu.Unlock()
			} else {
				f.number = -1
			}
			if f != nil {
				queue = append(queue, f)
			}
		}
		for len(queue) > 0 && time.Since(queue[0].at) >= w.delay {
			f := queue[0]
			queue = queue[1:]
			if f.overtaken > 0 {
				held = append(held, f)
				continue
			}
			give(f)
			if f.number > 0 {
				for _, h := range held {
					h.overtaken--
				}
			}
			held = slices.DeleteFunc(held, func(h *wireFrame) bool {
				if h.overtaken <= 0 {
					give(h)
				}
				return h.overtaken <= 0
			})
		}
		// Nothing follows that would overtake it.
		held = slices.DeleteFunc(held, func(h *wireFrame) bool {
			late := time.Since(h.at) > w.delay+50*time.Millisecond
			if late {
				give(h)
			}
			return late
		})
	}
}

func (w *wire) logged() wireLog {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log
}
