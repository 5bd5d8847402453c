package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"

	"outsight/bench/truth"
	"outsight/internal/kernel"
	"outsight/internal/kernel/host"
	"outsight/internal/kernel/region"
	outside "outsight/internal/region"
	"outsight/internal/region/readwire"
)

// connectionCounts are those of paper 004's figure 9, and edgeReadings how often each way reads all edges.
var connectionCounts = []int{1000, 4000, 16000}

const (
	edgeReadings = 9
	// edgesPerConnection: each end of a connection is an edge.
	edgesPerConnection = 2
	holdWork           = "hold-connections"
	// heldVariable is the first of a process's connections, and how many there are.
	heldVariable = "OUTSIGHT_BENCH_HELD"
)

// measureRegionEdges takes how long reading the records of all edges takes: as system calls give them on the host, from
// memory that is mapped, and by packets that the host's kernel answers. Each connection is to an address of its own, so
// that each end is an edge of its own, as in paper 004's table of connections.
func measureRegionEdges(ctx context.Context, o options) (rows []row, err error) {
	w, err := newRegionWire()
	if err != nil {
		return nil, err
	}
	defer w.remove()
	for _, n := range connectionCounts {
		measured, err := w.edgeReads(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("%d connections: %w", n, err)
		}
		rows = append(rows, measured...)
	}
	return rows, o.document("region.md", "edges", rowsTable(rows))
}

// edgeReads are of the edges of so many connections.
func (w *regionWire) edgeReads(ctx context.Context, connections int) (rows []row, err error) {
	// Room for all of them, in the control group of this process, and more than is needed: a full table is not the question.
	most := 2 * edgesPerConnection * connections
	p, err := truth.Open(kernel.Options{MaxEdges: most, MaxGroupEdges: most})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	end, err := holdConnections(connections)
	if err != nil {
		return nil, err
	}
	defer end()
	edges, err := edgesOf(p)
	if err != nil {
		return nil, err
	}
	// An edge takes the first free index, beginning with 1: all of them are in the first entries.
	entries, wanted := edgesPerConnection*connections+1, edgesPerConnection*connections
	seen, err := p.ReadEdges()
	if err != nil {
		return nil, err
	}
	if len(seen) < wanted {
		return nil, fmt.Errorf("%d edges are counted, want %d at least", len(seen), wanted)
	}
	memory, err := edges.Memory(false)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	size := int(edges.Map.ValueSize())
	data := make([]byte, (entries*size+readwire.BlockBytes-1)/readwire.BlockBytes*readwire.BlockBytes)
	progress("%d connections: %d edges of %d bytes", connections, len(seen), size)
	add := func(way, detail string, read func() error) error {
		took := make([]float64, 0, edgeReadings)
		if err := read(); err != nil { // pages are found the first time
			return fmt.Errorf("%s: %w", way, err)
		}
		cpu, err := ownCPU()
		if err != nil {
			return err
		}
		for range edgeReadings {
			if err := ctx.Err(); err != nil {
				return err
			}
			begun := time.Now()
			if err := read(); err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			took = append(took, time.Since(begun).Seconds()*1e3)
		}
		after, err := ownCPU()
		r := quartiles(fmt.Sprintf("edges of %d connections, %s", connections, way), "ms", took, 0)
		r.detail = fmt.Sprintf("%s; %.3g ms of CPU time of the reading process; median of %d", detail,
			(after-cpu).Seconds()*1e3/edgeReadings, edgeReadings)
		rows = append(rows, r)
		return err
	}
	keys, values := make([]uint32, entries), reflect.MakeSlice(reflect.SliceOf(edges.Record), entries, entries).Interface()
	err = add("one system call for each", "BPF_MAP_LOOKUP_ELEM, on the host", func() error {
		for i := range entries {
			key := uint32(i)
			if err := edges.Map.Lookup(&key, data[i*size:(i+1)*size]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = add("one system call for all", "BPF_MAP_LOOKUP_BATCH, on the host", func() error {
		var cursor ebpf.MapBatchCursor
		n, err := edges.Map.BatchLookup(&cursor, keys, values, nil)
		if err != nil || n != entries {
			return fmt.Errorf("%d of %d entries were read: %w", n, entries, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = add("mapped memory", "what --region-socket hands out, by 8 bytes at a time", func() error {
		return outside.Copy(data[:entries*size], memory.Bytes[:entries*size])
	})
	if err != nil {
		return nil, err
	}
	key := readwire.NewKey(1)
	for _, hook := range []region.Hook{region.HookGeneric} {
		err := func() error {
			r, c, err := w.serve(hook, key, edges.Map)
			if err != nil {
				return err
			}
			defer r.Close()
			defer c.Close()
			return add("packets that the kernel answers ("+string(hook)+")", fmt.Sprintf("%d packets of 1 KB at most, window 16",
				len(data)/readwire.MaxBytes+1), func() error { return c.Read(ctx, 0, 0, data) })
		}()
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// edgesOf is the region of the kernel's edges.
func edgesOf(p *kernel.Probes) (*host.Region, error) {
	all := p.Regions()
	at := slices.IndexFunc(all, func(r host.Region) bool { return r.Name == "edges" })
	if at < 0 {
		return nil, errors.New("the kernel's edges are no region")
	}
	return &all[at], nil
}

// serve answers for a map, region 0, in the namespace of the host, at the addresses or at its own one, and makes a client in
// the other one.
func (w *regionWire) serve(hook region.Hook, key readwire.Key, m *ebpf.Map, addresses ...netip.Addr) (r *region.Responder, c *readwire.Client,
	err error) {
	err = w.inside(w.host, func() (err error) {
		r, err = region.Open(region.Options{Interface: "e0", Port: regionPort, Hook: hook, MaxReads: 10_000_000,
			Addresses: addresses, Keys: []readwire.Key{key}, Allow: []netip.Prefix{netip.MustParsePrefix("10.217.1.1/32")}})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if err := r.Add(0, m); err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	err = w.inside(w.client, func() (err error) {
		c, err = readwire.Dial(fmt.Sprintf("%s:%d", regionHost, regionPort), key, readwire.Options{Window: 16})
		return err
	})
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return r, c, nil
}

// ownCPU is the CPU time of all threads of this process, user and system.
func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// holdConnections has other processes hold connections until end is called: one process may not have so many descriptors.
func holdConnections(n int) (end func(), err error) {
	const each = 4000
	var all []*process
	end = func() {
		for _, p := range all {
			p.stop()
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for from := 0; from < n; from += each {
		p, err := startProcess("env", workVariable+"="+holdWork, fmt.Sprintf("%s=%d %d", heldVariable, from, min(each, n-from)), self)
		if err != nil {
			end()
			return nil, err
		}
		all = append(all, p)
	}
	for _, p := range all {
		if err := p.await(context.Background(), func() bool { return strings.Contains(p.output.String(), "ready") }); err != nil {
			end()
			return nil, err
		}
	}
	return end, nil
}

// hold opens connections on the loopback interface, each to an address of its own, until the process is ended.
func hold(held string) error {
	var from, n int
	if _, err := fmt.Sscan(held, &from, &n); err != nil {
		return fmt.Errorf("%s is %q: %w", heldVariable, held, err)
	}
	l, err := net.Listen("tcp4", ":0")
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	var open []net.Conn // what is not reachable is closed
	for i := from; i < from+n; i++ {
		to := netip.AddrFrom4([4]byte{127, 77, byte(i >> 8), byte(i)})
		client, err := net.Dial("tcp4", net.JoinHostPort(to.String(), port))
		if err != nil {
			return err
		}
		server, err := l.Accept()
		if err != nil {
			return err
		}
		open = append(open, client, server)
		if _, err := client.Write([]byte{0}); err != nil {
			return err
		}
		if _, err := server.Read(make([]byte, 1)); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
	runtime.KeepAlive(open)
	return nil
}
