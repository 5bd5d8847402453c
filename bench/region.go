package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/region"
	"outsight/internal/netns"
	"outsight/internal/region/readwire"
)

// Where the host that is read answers: its kernel, and beside it a server of UDP and one of TCP.
const (
	regionHost   = "10.217.1.2"
	regionPort   = 7117
	epollPort    = 7118
	tcpPort      = 7119
	regionBudget = 150 // microseconds, of the 99th percentile
	// regionRounds is how often each row is measured: the 99th percentile of one round has ten reads above it.
	regionRounds = 5
	// tornLook is how many words are looked at, at all hooks together, for one that nobody wrote.
	tornLook = 1_000_000_000
)

var regionHooks = []region.Hook{region.HookNative, region.HookGeneric, region.HookTCX}

// measureRegion takes how long a read of 1 KB takes that the kernel answers, beside a server that sleeps in epoll and one
// of TCP: with idle CPUs, with full ones, and where the servers' group has used up its CPU quota. The reader has a CPU of
// its own, with the priority of real time; the kernel's work for packets, servers and load are on another one.
func measureRegion(ctx context.Context, o options) ([]row, error) {
	w, err := newRegionWire()
	if err != nil {
		return nil, err
	}
	defer w.remove()
	key := readwire.NewKey(1)
	var rows []row
	for _, c := range []struct {
		name  string
		hogs  int
		quota bool
	}{{"idle CPUs", 0, false}, {"full CPUs", 2 * runtime.NumCPU(), false}, {"CPU quota used up", 1, true}} {
		latencies, err := w.latencies(ctx, o, key, c.name, c.hogs, c.quota)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, latencies...)
	}
	var torn, words int
	for _, hook := range regionHooks {
		speeds, tornHere, wordsHere, err := w.speeds(ctx, o, key, hook)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", hook, err)
		}
		rows = append(rows, speeds...)
		torn, words = torn+tornHere, words+wordsHere
	}
	rows = append(rows, row{what: "torn words: kernel, all hooks", value: float64(torn), unit: "words",
		detail: fmt.Sprintf("of %d, while a writer changes all bytes of each", words)})
	return rows, o.document("region.md", "latency", rowsTable(rows))
}

// regionWire are two network namespaces with a wire between them.
type regionWire struct{ client, host string }

func newRegionWire() (*regionWire, error) {
	w := &regionWire{fmt.Sprintf("outsight-bench-%d-client", os.Getpid()), fmt.Sprintf("outsight-bench-%d-host", os.Getpid())}
	for _, arguments := range [][]string{
		{"netns", "add", w.client}, {"netns", "add", w.host},
		{"-n", w.host, "link", "add", "e0", "type", "veth", "peer", "name", "e0", "netns", w.client},
		{"-n", w.client, "address", "add", "10.217.1.1/24", "dev", "e0"},
		{"-n", w.host, "address", "add", regionHost + "/24", "dev", "e0"},
		{"-n", w.client, "link", "set", "e0", "up"}, {"-n", w.host, "link", "set", "e0", "up"},
	} {
		if out, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
			w.remove()
			return nil, fmt.Errorf("ip %v: %w: %s", arguments, err, out)
		}
	}
	// The kernel's work for the host's packets is on the first CPU, as the servers are.
	out, err := exec.Command("ip", "netns", "exec", w.host, "sh", "-c",
		"echo 1 >/sys/class/net/e0/queues/rx-0/rps_cpus").CombinedOutput()
	if err != nil {
		w.remove()
		return nil, fmt.Errorf("steering packets: %w: %s", err, out)
	}
	return w, nil
}

func (w *regionWire) remove() {
	for _, name := range []string{w.client, w.host} {
		exec.Command("ip", "netns", "del", name).Run()
	}
}

func (w *regionWire) inside(name string, f func() error) error {
	file, err := os.Open("/run/netns/" + name)
	if err != nil {
		return err
	}
	defer file.Close()
	return netns.Inside(file, f)
}

// respond answers for a region of 1 KB in the namespace of the host, until it is closed.
func (w *regionWire) respond(hook region.Hook, key readwire.Key) (r *region.Responder, memory *host.Table[uint64], err error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "counted", Type: ebpf.Array, KeySize: 4, ValueSize: 8,
		MaxEntries: readwire.MaxBytes / 8, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, nil, err
	}
	defer m.Close()
	err = w.inside(w.host, func() (err error) {
		r, err = region.Open(region.Options{Interface: "e0", Port: regionPort, Hook: hook, MaxReads: 10_000_000,
			Keys: []readwire.Key{key}, Allow: []netip.Prefix{netip.MustParsePrefix("10.217.1.1/32")}})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if err = r.Add(0, m); err == nil {
		memory, err = host.MapTable[uint64](m)
	}
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return r, memory, nil
}

// passing lets the client's end take what a native program at the host's end sends: veth needs a program at both.
func (w *regionWire) passing() (attached io.Closer, err error) {
	const pass = 2
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()}})
	if err != nil {
		return nil, err
	}
	defer program.Close()
	err = w.inside(w.client, func() error {
		device, err := net.InterfaceByName("e0")
		if err != nil {
			return err
		}
		attached, err = link.AttachXDP(link.XDPOptions{Interface: device.Index, Program: program, Flags: link.XDPDriverMode})
		return err
	})
	return attached, err
}

// latencies are those of each way in one condition of the host.
func (w *regionWire) latencies(ctx context.Context, o options, key readwire.Key, condition string, hogs int,
	quota bool) (rows []row, err error) {
	group, err := newCPUGroup(quota)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, group.remove()) }()
	work := func(work string) error { return w.inside(w.host, func() error { return group.start(work) }) }
	if err := work(regionWork); err != nil {
		return nil, err
	}
	for range hogs {
		if err := work(spinWork); err != nil {
			return nil, err
		}
	}
	add := func(way string, budget float64, read func() error) error {
		var all, p99 []float64
		for range regionRounds {
			took, err := timeReads(ctx, o.reads, read)
			if err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			all, p99 = append(all, took...), append(p99, percentile(took, 0.99))
		}
		text := fmt.Sprintf("p99 of %d rounds %.3g to %.3g us; median %.3g us, worst %.3g us of %d reads 1 ms apart", regionRounds,
			slices.Min(p99), slices.Max(p99), median(all), percentile(all, 1), len(all))
		progress("%s, %s: %s", condition, way, text)
		rows = append(rows, row{what: "1 KB read, p99, " + condition + ": " + way, value: median(p99), unit: "us", budget: budget,
			detail: text})
		return nil
	}
	for _, hook := range regionHooks {
		err := func() error {
			if hook == region.HookNative {
				passing, err := w.passing()
				if err != nil {
					return err
				}
				defer passing.Close()
			}
			r, memory, err := w.respond(hook, key)
			if err != nil {
				return err
			}
			defer r.Close()
			defer memory.Close()
			read, end, err := w.packetReader(regionPort, key)
			if err != nil {
				return err
			}
			defer end()
			return add("kernel, "+string(hook), regionBudget, read)
		}()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", hook, err)
		}
	}
	read, end, err := w.packetReader(epollPort, key)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := add("a server asleep in epoll", 0, read); err != nil {
		return nil, err
	}
	read, end, err = w.tcpReader()
	if err != nil {
		return nil, err
	}
	defer end()
	return rows, add("TCP of Go", 0, read)
}

// packetReader reads 1 KB by a packet, with system calls that block: the runtime's threads are not in the way.
func (w *regionWire) packetReader(port int, key readwire.Key) (read func() error, end func(), err error) {
	fd, from, err := w.socket(unix.SOCK_DGRAM, port)
	if err != nil {
		return nil, nil, err
	}
	nonce, packet := uint64(0), make([]byte, 0, 2048)
	return func() error {
		nonce++
		packet = readwire.AppendRequest(packet[:0], readwire.Request{Length: readwire.MaxBytes, Nonce: nonce}, from, key)
		if _, err := unix.Write(fd, packet); err != nil {
			return err
		}
		for {
			n, err := unix.Read(fd, packet[:cap(packet)])
			if err != nil {
				return fmt.Errorf("waiting for an answer: %w", err)
			}
			r, err := readwire.DecodeReply(packet[:n])
			if err != nil || r.Status != readwire.Done {
				return fmt.Errorf("the answer is %v, %w", r.Status, err)
			}
			if r.Nonce == nonce {
				return nil
			}
		}
	}, func() { unix.Close(fd) }, nil
}

func (w *regionWire) tcpReader() (read func() error, end func(), err error) {
	fd, _, err := w.socket(unix.SOCK_STREAM, tcpPort)
	if err != nil {
		return nil, nil, err
	}
	request, data := make([]byte, tcpRequestBytes), make([]byte, readwire.MaxBytes)
	return func() error {
		if _, err := unix.Write(fd, request); err != nil {
			return err
		}
		for n := 0; n < len(data); {
			more, err := unix.Read(fd, data[n:])
			if err != nil || more == 0 {
				return fmt.Errorf("%d bytes of an answer: %w", n, errors.Join(err, io.EOF))
			}
			n += more
		}
		return nil
	}, func() { unix.Close(fd) }, nil
}

// socket is a connected one of the client, which waits 10 s at most.
func (w *regionWire) socket(kind, port int) (fd int, from netip.AddrPort, err error) {
	fd = -1
	err = w.inside(w.client, func() error {
		if fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		to := &unix.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(regionHost).As4()}
		begun := time.Now()
		err := unix.Connect(fd, to)
		for errors.Is(err, unix.ECONNREFUSED) && time.Since(begun) < 10*time.Second { // the server is starting
			time.Sleep(10 * time.Millisecond)
			err = unix.Connect(fd, to)
		}
		if err != nil {
			return err
		}
		if kind == unix.SOCK_STREAM {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
				return err
			}
		}
		return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	})
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return -1, from, err
	}
	name, err := unix.Getsockname(fd)
	local, ok := name.(*unix.SockaddrInet4)
	if err != nil || !ok {
		unix.Close(fd)
		return -1, from, fmt.Errorf("the socket's own address is %v: %w", name, err)
	}
	return fd, netip.AddrPortFrom(netip.AddrFrom4(local.Addr), uint16(local.Port)), nil
}

// timeReads tells how many microseconds each read took, by a thread with the priority of real time on the last CPU.
func timeReads(ctx context.Context, reads int, read func() error) (took []float64, err error) {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- func() error {
			var last unix.CPUSet
			last.Set(runtime.NumCPU() - 1)
			if err := unix.SchedSetaffinity(0, &last); err != nil {
				return err
			}
			realTime := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}
			if err := unix.SchedSetAttr(0, realTime, 0); err != nil {
				return fmt.Errorf("asking for the priority of real time: %w", err)
			}
			for range 10 { // addresses are found, and what is slow the first time
				if err := read(); err != nil {
					return err
				}
			}
			pause := unix.Timespec{Nsec: 1e6}
			for range reads {
				if err := ctx.Err(); err != nil {
					return err
				}
				unix.Nanosleep(&pause, nil)
				begun := time.Now()
				if err := read(); err != nil {
					return err
				}
				took = append(took, float64(time.Since(begun).Nanoseconds())/1000)
			}
			return nil
		}()
	}()
	err = <-done
	return took, err
}

// percentile is the least value that a part of the values does not exceed.
func percentile(values []float64, part float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// speeds are reads in a second by one thread at several windows, what the kernel's program takes for one, and torn words
// while a writer writes.
func (w *regionWire) speeds(ctx context.Context, o options, key readwire.Key, hook region.Hook) (rows []row, torn, words int,
	err error) {
	if hook == region.HookNative {
		passing, err := w.passing()
		if err != nil {
			return nil, 0, 0, err
		}
		defer passing.Close()
	}
	r, memory, err := w.respond(hook, key)
	if err != nil {
		return nil, 0, 0, err
	}
	defer r.Close()
	defer memory.Close()
	dial := func(window int) (c *readwire.Client, err error) {
		err = w.inside(w.client, func() error {
			c, err = readwire.Dial(fmt.Sprintf("%s:%d", regionHost, regionPort), key, readwire.Options{Window: window})
			return err
		})
		return c, err
	}
	data := make([]byte, 64*readwire.MaxBytes)
	reads := make([]readwire.Read, 64)
	read := func(c *readwire.Client) error {
		for i := range reads {
			reads[i] = readwire.Read{Data: data[i*readwire.MaxBytes:][:readwire.MaxBytes]}
		}
		return c.ReadAll(ctx, reads)
	}
	for _, window := range []int{1, 16, 64} {
		c, err := dial(window)
		if err != nil {
			return nil, 0, 0, err
		}
		n, begun := 0, time.Now()
		for time.Since(begun) < o.run && err == nil {
			err = read(c)
			n += len(reads)
		}
		took := time.Since(begun)
		resent := c.Counters().Resent
		if err := errors.Join(err, c.Close()); err != nil {
			return nil, 0, 0, err
		}
		progress("%s, window %d: %.0f reads/s", hook, window, float64(n)/took.Seconds())
		rows = append(rows, row{what: fmt.Sprintf("reads of 1 KB by one client, window %d: kernel, %s", window, hook),
			value: float64(n) / took.Seconds(), unit: "1/s", detail: fmt.Sprintf("%d reads, %d sent again", n, resent)})
	}
	c, err := dial(16)
	if err != nil {
		return nil, 0, 0, err
	}
	defer c.Close()
	cost, err := answerCost(r, func() error { return read(c) }, o.run)
	if err != nil {
		return nil, 0, 0, err
	}
	torn, words, err = tornWords(memory, func() error { return read(c) }, data, tornLook/len(regionHooks))
	if err != nil {
		return nil, 0, 0, err
	}
	progress("%s: %d of %d words torn", hook, torn, words)
	return append(rows, row{what: "program for one read of 1 KB: kernel, " + string(hook), value: cost, unit: "ns",
		detail: "by the kernel's statistics, their own cost included"},
		row{what: "torn words: kernel, " + string(hook), value: float64(torn), unit: "words",
			detail: fmt.Sprintf("of %d, while a writer changes all bytes of each", words)}), torn, words, nil
}

// answerCost is what the program takes for one read, of which a packet may have several, in nanoseconds.
func answerCost(r *region.Responder, read func() error, length time.Duration) (float64, error) {
	statistics, err := host.EnableStatistics()
	if err != nil {
		return 0, err
	}
	defer statistics.Close()
	before, err := r.Cost()
	if err != nil {
		return 0, err
	}
	counted, err := r.Counters()
	if err != nil {
		return 0, err
	}
	for begun := time.Now(); time.Since(begun) < length; {
		if err := read(); err != nil {
			return 0, err
		}
	}
	after, err := r.Cost()
	if err != nil {
		return 0, err
	}
	now, err := r.Counters()
	return float64(after.RunTimeNS-before.RunTimeNS) / float64(now.Reads-counted.Reads), err
}

// tornWords counts words that nobody wrote, of so many at least, while a writer writes words whose bytes are the same.
func tornWords(memory *host.Table[uint64], read func() error, data []byte, least int) (torn, words int, err error) {
	var end atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := uint64(0); !end.Load(); n++ {
			for i := range memory.Entries {
				host.Store(&memory.Entries[i], n&0xff*0x0101010101010101)
			}
		}
	})
	defer writer.Wait()
	defer end.Store(true)
	for words <= least {
		if err := read(); err != nil {
			return torn, words, err
		}
		for at := 0; at < len(data); at += 8 {
			words++
			if word := binary.LittleEndian.Uint64(data[at:]); word%256*0x0101010101010101 != word {
				torn++
			}
		}
	}
	return torn, words, nil
}
