// Command hosts is two agents for the test of the page: what they tell of their containers is made up, and what they
// measure of the network between them is real, as the server that they ask decides. They have two addresses of this
// machine besides loopback, as one with a network and Docker has.
//
//	go run ./test/page/hosts http://127.0.0.1:4318
//	go run ./test/page/hosts http://127.0.0.1:4318 shop
//
// With shop they are three, whose containers use CPU and memory, and talk to each other across hosts.
//
// It ends when its input does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"outsight/internal/export"
	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/probe"
)

const (
	tick = 250 * time.Millisecond
	// moves is after how long a container of the one host is one of the other.
	moves = 6 * time.Second
	port  = 5432
	// sampled packets leave one after the other, and take so long, every second one longer.
	sampled, took, longer = 80 * time.Millisecond, time.Millisecond, 200 * time.Microsecond
	// Of that they are for so long in the stacks of the two hosts.
	sending, receiving = 100 * time.Microsecond, 200 * time.Microsecond
	// clockError is of each host.
	clockError = 100 * time.Microsecond
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hosts:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 && (len(args) != 2 || args[1] != "shop") {
		return errors.New("want the URL of a server's address for agents, and shop or nothing")
	}
	own, err := addresses()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	client := &host{name: "host-a", own: own[0], other: own[1], client: true, begun: time.Now()}
	server := &host{name: "host-b", own: own[1], other: own[0], begun: client.begun}
	hosts := []*host{client, server}
	if len(args) == 2 {
		third := &host{name: "host-c", own: netip.AddrFrom4([4]byte{127, 0, 0, 1}), begun: client.begun}
		hosts = append(hosts, third)
		for i, h := range hosts {
			h.shop = i + 1
		}
	}
	errs := make([]error, len(hosts))
	var running sync.WaitGroup
	for i, h := range hosts {
		running.Go(func() {
			errs[i] = h.run(ctx, args[0])
			cancel()
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// addresses are two of this machine, that of the host that sends first: what comes from a bridge of Docker to somewhere
// else is translated, so that it would be a stranger's.
func addresses() ([]netip.Addr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var own, bridges []netip.Addr
	for _, i := range interfaces {
		all, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		to := &own
		if _, err := os.Stat("/sys/class/net/" + i.Name + "/bridge"); err == nil {
			to = &bridges
		}
		for _, one := range all {
			if network, ok := one.(*net.IPNet); ok {
				if a, _ := netip.AddrFromSlice(network.IP); a.Unmap().Is4() && a.Unmap().IsGlobalUnicast() {
					*to = append(*to, a.Unmap())
				}
			}
		}
	}
	if len(own) == 0 || len(own)+len(bridges) < 2 {
		return nil, fmt.Errorf("this machine has the addresses %v, and of bridges %v: want two, one of them of no bridge", own,
			bridges)
	}
	return append(own, bridges...)[:2], nil
}

// host is an agent of one.
type host struct {
	name       string
	own, other netip.Addr
	client     bool
	shop       int // its number among the hosts of the shop, from 1; 0 for none
	begun      time.Time
	monitor    *probe.Monitor
	newest     atomic.Pointer[frame.Frame]
}

func (h *host) run(ctx context.Context, server string) error {
	spool, err := os.MkdirTemp("", "outsight-hosts-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(spool)
	o := export.Options{Server: server, Spool: spool, MaxBackoff: time.Second}
	return export.While(ctx, o, export.Files{}, func(e *export.Exporter) (err error) {
		h.monitor, err = probe.OpenMonitor(probe.MonitorOptions{Listen: netip.AddrPortFrom(h.own, 0).String(), Server: e})
		if err != nil {
			return err
		}
		measuring := make(chan error, 1)
		go func() { measuring <- h.monitor.Run(ctx, h.newest.Load, nil) }()
		builder, ticks := frame.NewBuilder(h.begun), time.NewTicker(tick)
		defer ticks.Stop()
		for {
			if e.WantsKey() {
				builder.ForceKey()
			}
			f := builder.Build(h.snapshot())
			h.newest.Store(f)
			if err := e.Consume(ctx, f); err != nil && ctx.Err() == nil {
				return err
			}
			select {
			case <-ctx.Done():
				return <-measuring
			case <-ticks.C:
			}
		}
	})
}

// snapshot has a web container here and a database there, and one that moves from here to there.
func (h *host) snapshot() *model.Snapshot {
	now := time.Now()
	container := func(name string) *model.Container {
		return &model.Container{ID: h.name + "-" + name, Name: name, Image: name + ":1", Runtime: model.Docker}
	}
	s := &model.Snapshot{Time: now, Host: model.Host{Name: h.name, Cores: 2, MemoryBytes: 4 << 30}, Probes: h.monitor.Sample(),
		ClockError: clockError}
	n := uint64(now.Sub(h.begun) / (10 * time.Millisecond))
	if h.shop > 0 {
		h.addShop(s, n)
		return s
	}
	e := model.Edge{Instance: 1, Service: netip.AddrPortFrom(h.own, port), Side: model.RoleServer,
		Client: model.Peer{Address: h.other}, Counters: counters(n, 2*time.Millisecond)}
	name := "shop-db"
	if h.client {
		name, e.Service, e.Side = "shop-web", netip.AddrPortFrom(h.other, port), model.RoleClient
		e.Counters = counters(n, 5*time.Millisecond)
		e.Counters.SentBytes, e.Counters.ReceivedBytes = e.Counters.ReceivedBytes, e.Counters.SentBytes
	}
	c := container(name)
	c.Addresses = []netip.Addr{h.own}
	if h.client {
		e.Client, e.Server = model.Peer{Container: c}, model.Peer{Address: h.other}
	} else {
		c.Listeners, e.Server = []netip.AddrPort{e.Service}, model.Peer{Container: c}
	}
	e.PacketSamples = h.samples(now)
	drops := &model.PacketDropCounters{Packets: n, By: []model.PacketDrops{{Reason: "SOCKET_RCVBUFF", Device: "eth0", Packets: n}}}
	own := []model.ApplicationMetric{{ApplicationKey: model.ApplicationKey{Name: "app_jobs_done_total",
		Labels: `method="GET"`, Kind: model.Counter}, Unit: "{job}", Help: "Jobs that were done", Count: n},
		{ApplicationKey: model.ApplicationKey{Name: "app_queue_length", Kind: model.Gauge}, Unit: "{job}",
			Help: "Jobs that wait", Level: -7.5}}
	s.Containers = []model.ContainerSample{{Container: c, Drops: drops, Applications: own}}
	s.Edges = []model.Edge{e}
	if h.client == (now.Sub(h.begun) < moves) {
		s.Containers = append(s.Containers, model.ContainerSample{Container: container("report")})
	}
	return s
}

// samples are of the packets of the last ten seconds: of each two one goes to the server and one back.
func (h *host) samples(now time.Time) (samples []model.PacketSample) {
	for i := max(0, now.Add(-model.PacketSamplesLast).Sub(h.begun)/sampled); ; i++ {
		sent := h.begun.Add(i * sampled)
		one := model.PacketSample{Packet: uint64(i) + 1<<40, Time: sent, Sent: (i%2 == 0) == h.client, Stack: sending}
		if !one.Sent {
			one.Time, one.Stack = sent.Add(took+i/2%2*longer), receiving
		}
		if one.Time.After(now) {
			return samples
		}
		samples = append(samples, one)
	}
}

// counters are those of n requests, as the server counts them.
func counters(n uint64, latency time.Duration) model.EdgeCounters {
	h := &model.Histogram{Count: n, SumNS: n * uint64(latency), Offset: model.BucketOf(latency), Buckets: []uint64{n}}
	return model.EdgeCounters{SentBytes: 800 * n, ReceivedBytes: 200 * n, Opens: 1, Requests: n, Replies: n, Latency: h,
		TimeToFirstByte: h}
}
