package api

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"outsight/internal/framelog"
	"outsight/internal/model"
	"outsight/internal/store"
)

// serve is for work on the page: it serves a real log and a real store that a made-up shop writes to.
//
//	go test ./internal/api -serve 127.0.0.1:8470
var (
	serve         = flag.String("serve", "", "serve a made-up shop at this address instead of testing")
	withoutPromQL = flag.Bool("without-promql", false, "serve it without PromQL")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if series := os.Getenv(littleServer); series != "" {
		n, err := strconv.Atoi(series)
		if err == nil {
			err = serveLittle(n)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if *serve != "" {
		if err := serveShop(*serve); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func serveShop(address string) error {
	dir, err := os.MkdirTemp("", "outsight-page-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	st, err := store.Open(filepath.Join(dir, "series"), store.Options{})
	if err != nil {
		return err
	}
	log, err := framelog.Open(filepath.Join(dir, "frames"), framelog.Options{})
	if err != nil {
		return err
	}
	k := kept{log: log, series: st, agents: map[string]*sending{}}
	now := time.Now().Truncate(time.Second)
	sh := newShop(now.Add(-8 * time.Minute))
	for t := sh.start; t.Before(now); t = t.Add(time.Second) {
		if err := k.send(sh.at(t)); err != nil {
			return err
		}
	}
	if err := k.flush(); err != nil {
		return err
	}
	go func() {
		for t := range time.Tick(time.Second) {
			if err := errors.Join(k.send(sh.at(t)), k.flush()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	o := Options{Log: log, Version: "0.1", Sources: []string{"agent in this process"}}
	if !*withoutPromQL {
		o.Prometheus = Prometheus(st)
	}
	fmt.Println("http://" + address + "/")
	return http.ListenAndServe(address, New(o))
}

// shop makes snapshots of a made-up application: every counter is a function of time.
type shop struct {
	start      time.Time
	containers []*model.Container
	byName     map[string]*model.Container
}

// work is what a container does, per second.
var work = []struct {
	name, image string
	cores, wait float64 // wait is the p99 of the run queue in seconds
	memory      uint64
}{
	{"gateway", "nginx:1.27", 0.31, 0.0004, 38 << 20},
	{"catalogue", "shop/catalogue:2.4", 0.22, 0.0009, 121 << 20},
	{"cart", "shop/cart:1.9", 0.11, 0.0006, 84 << 20},
	{"payment", "shop/payment:3.0", 0.58, 0.019, 96 << 20},
	{"worker", "shop/worker:3.0", 0.07, 0.0005, 64 << 20},
	{"redis", "redis:7", 0.05, 0.0002, 21 << 20},
	{"postgres", "postgres:16", 0.17, 0.0007, 412 << 20},
	{"batch-report-generator-nightly", "shop/report:0.3", 0.01, 0.0001, 17 << 20},
	{"resolver", "coredns:1.11", 0.02, 0.0001, 19 << 20},
	{"statsd", "statsd:0.10", 0.01, 0.0001, 25 << 20},
	{"host", "", 0.09, 0.0003, 903 << 20},
}

var calls = []struct {
	client, server, service string
	rate                    float64
	request, response       uint64
	client50, server50      float64 // 0: that side is not counted
	tail                    float64 // share of transactions that take 80 ms more
}{
	{"198.51.100.24", "gateway", "172.18.0.2:80", 180, 420, 6100, 0, 0.011, 0.012},
	{"198.51.100.87", "gateway", "172.18.0.2:80", 35, 420, 6100, 0, 0.012, 0.012},
	{"gateway", "catalogue", "172.18.0.3:8080", 215, 380, 5200, 0.0031, 0.0029, 0},
	{"gateway", "cart", "172.18.0.4:8080", 84, 610, 900, 0.0023, 0.0021, 0.004},
	{"gateway", "payment", "172.18.0.5:8080", 21, 800, 450, 0.0092, 0.0090, 0.06},
	{"catalogue", "postgres", "172.18.0.8:5432", 430, 210, 1900, 0.00071, 0.00062, 0},
	{"cart", "redis", "172.18.0.7:6379", 168, 92, 310, 0.00013, 0.00006, 0},
	{"payment", "postgres", "172.18.0.8:5432", 21, 350, 120, 0.0012, 0.0011, 0},
	{"payment", "203.0.113.40", "203.0.113.40:443", 21, 1400, 900, 0.048, 0, 0.02},
	{"worker", "redis", "172.18.0.7:6379", 40, 60, 200, 0.00012, 0.00006, 0},
	{"worker", "payment", "172.18.0.5:8080", 2, 500, 120, 0.011, 0.0105, 0.1},
	{"catalogue", "resolver", "172.18.0.9:53", 12, 45, 130, 0.0004, 0.0003, 0},
	{"cart", "statsd", "172.18.0.10:8125", 95, 60, 0, 0.001, 0.001, 0},
	{"batch-report-generator-nightly", "postgres", "172.18.0.8:5432", 3, 300, 9000, 0.004, 0.003, 0},
}

// asked are the endpoints of a server and their share of its requests.
var asked = map[string][]struct {
	model.EndpointKey
	share, p50 float64
}{
	"gateway": {{httpKey("GET /", "2xx"), 0.6, 0.009}, {httpKey("GET /product/:id", "2xx"), 0.3, 0.012},
		{httpKey("GET /product/:id", "4xx"), 0.02, 0.001}, {httpKey("POST /checkout", "2xx"), 0.05, 0.04},
		{httpKey("POST /checkout", "5xx"), 0.01, 0.09}},
	"catalogue": {{httpKey("GET /products", "2xx"), 0.7, 0.002}, {httpKey("GET /product/:id", "2xx"), 0.3, 0.004}},
	"payment":   {{httpKey("POST /charge", "2xx"), 0.95, 0.009}, {httpKey("POST /charge", "5xx"), 0.05, 0.07}},
	"redis": {{endpointKey(model.Redis, "GET", "ok"), 0.7, 0.0001}, {endpointKey(model.Redis, "SET", "ok"), 0.2,
		0.00014}, {endpointKey(model.Redis, "INCR", "error"), 0.01, 0.0001}},
	"resolver": {{endpointKey(model.DNS, "A", "ok"), 0.8, 0.0003}, {endpointKey(model.DNS, "AAAA", "nxdomain"), 0.2,
		0.0003}},
}

func httpKey(name, status string) model.EndpointKey { return endpointKey(model.HTTP, name, status) }

func endpointKey(p model.Protocol, name, status string) model.EndpointKey {
	return model.EndpointKey{Protocol: p, Name: name, Status: status}
}

// process is what a container runs.
var process = map[string]string{"gateway": "nginx", "catalogue": "server.js", "cart": "com.shop.Cart",
	"payment": "payment.py",
	"worker":  "worker.py", "redis": "redis-server", "postgres": "postgres", "resolver": "coredns", "statsd": "node"}

func newShop(start time.Time) *shop {
	s := &shop{start: start, byName: map[string]*model.Container{}}
	for i, w := range work {
		c := &model.Container{ID: fmt.Sprintf("%012x%052x", 0xabc123456789+i*7919*65537, i), Name: w.name,
			Image: w.image, Runtime: model.Docker,
			Started: start.Add(-time.Hour), CgroupPath: "/docker/" + w.name}
		if w.name == "host" {
			c.ID, c.Runtime, c.Started = model.HostContainerID, model.HostRuntime, time.Time{}
		}
		s.containers = append(s.containers, c)
		s.byName[w.name] = c
	}
	return s
}

// spread is a histogram of n durations around a median, with a tail. Of every 100 in a row the
// same ones have the same duration, so that no bucket ever falls.
func spread(n uint64, p50, tail float64) *model.Histogram {
	factors := [...]float64{0.9, 0.97, 1.07, 1.2, 1.45, 1.9}
	h := &model.Histogram{}
	add := func(n uint64, seconds float64) {
		d := time.Duration(seconds * 1e9)
		if n > 0 {
			h.Merge(&model.Histogram{Count: n, SumNS: n * uint64(d), Offset: model.BucketOf(d), Buckets: []uint64{n}})
		}
	}
	for slot := range uint64(100) {
		share := n / 100
		if slot < n%100 {
			share++
		}
		at := slot * 37 % 100
		switch {
		case float64(at) < tail*100:
			add(share, p50+0.08)
		case at > 97:
			add(share, p50*factors[5])
		default:
			add(share, p50*factors[at%5])
		}
	}
	return h
}

// elapsed is how many seconds of constant work would have been done at t: it swings a little.
func (s *shop) elapsed(t time.Time, phase float64) float64 {
	x := t.Sub(s.start).Seconds()
	return x + 6*math.Sin(x/30+phase) - 6*math.Sin(phase) + 1.2*math.Sin(x/4+phase) - 1.2*math.Sin(phase)
}

func (s *shop) at(t time.Time) *model.Snapshot {
	snapshot := &model.Snapshot{Time: t, Window: time.Second, Host: model.Host{Name: "shop-1", Kernel: "6.18.5",
		Cores: 2, MemoryBytes: 4 << 30,
		BootTime: s.start.Add(-time.Hour), CgroupLayout: "hybrid"}}
	for i, w := range work {
		x := s.elapsed(t, float64(i))
		disk := uint64(0)
		if w.name == "postgres" {
			disk = uint64(x * 240_000)
		}
		c := model.ContainerSample{Container: s.containers[i],
			CPU: &model.CPUCounters{UsageNS: uint64(x * w.cores * 1e9), Voluntary: uint64(x * 900),
				Involuntary: uint64(x * 40), RunQueue: spread(uint64(x*900), w.wait/3, 0)},
			Processes: &model.ProcessCounters{TaskCounters: model.TaskCounters{Forks: uint64(x / 10)}, Threads: uint64(4 + i)},
			Memory: &model.MemorySample{UsageBytes: w.memory + uint64(2e5*math.Sin(x/20)+3e5),
				WorkingSetBytes: w.memory * 7 / 10, RSSBytes: w.memory / 2, CacheBytes: w.memory / 3},
			Disk: &model.DiskCounters{ReadBytes: disk / 9, WriteBytes: disk, Writes: disk / 8192},
			Network: &model.NetworkCounters{ReceiveBytes: uint64(x * 90_000), TransmitBytes: uint64(x * 150_000),
				ReceivePackets: uint64(x * 300), TransmitPackets: uint64(x * 280)},
		}
		if w.name == "host" {
			c.Network = nil
		}
		snapshot.Containers = append(snapshot.Containers, c)
	}
	for i, c := range calls {
		x := s.elapsed(t, float64(i)/2)
		n := uint64(x * c.rate)
		udp := c.server == "resolver" || c.server == "statsd"
		counters := func(p50 float64, sent, received uint64) model.EdgeCounters {
			e := model.EdgeCounters{SentBytes: n * sent, ReceivedBytes: n * received, Opens: 8 + n/1000,
				Closes: n / 1000, Latency: spread(n, p50, c.tail),
				Requests: n + uint64(i%3), Replies: n, TimeToFirstByte: spread(n, p50*0.8, 0), RTT: spread(n, p50/9, 0),
				RTTMinNS: uint64(p50 * 1e8), JitterSumNS: n * uint64(p50*2e7)}
			if udp {
				e = model.EdgeCounters{SentBytes: e.SentBytes, ReceivedBytes: e.ReceivedBytes, SentPackets: n, Latency: e.Latency}
			}
			switch c.server {
			case "resolver":
				e.ReceivedPackets = n
			case "statsd":
				e.Latency, e.OneWay = nil, n
			}
			if c.server == "payment" {
				e.Retransmits, e.Aborts, e.Resets, e.TimedOut = n/500, n/900, n/1100, n/2500
				e.Requests += e.Aborts
			}
			if c.server == "redis" {
				e.Pushes, e.Held, e.Transfers, e.UnseenBytes = n/70, n/600, n/800, n/4
			}
			return e
		}
		client, server := s.peer(c.client), s.peer(c.server)
		e := model.Edge{Client: client, Server: server, Service: netip.MustParseAddrPort(c.service),
			Paired: c.client50 > 0 && c.server50 > 0}
		if e.Paired {
			e.Confidence = model.Exact
		}
		if c.client == "batch-report-generator-nightly" {
			e.Paired, e.Confidence = false, model.ByAddress
		}
		if udp {
			e.Transport = model.UDP
		}
		for _, a := range asked[c.server] {
			e.Endpoints = append(e.Endpoints, model.Endpoint{EndpointKey: a.EndpointKey,
				Latency: spread(uint64(float64(n)*a.share), a.p50, c.tail)})
		}
		if c.client50 > 0 {
			e.Side, e.Counters = model.RoleClient, counters(c.client50, c.request, c.response)
			snapshot.Edges = append(snapshot.Edges, e)
		}
		if c.server50 > 0 {
			e.Side, e.Counters = model.RoleServer, counters(c.server50, c.response, c.request)
			snapshot.Edges = append(snapshot.Edges, e)
		}
	}
	age := uint64(t.Sub(s.start).Seconds())
	snapshot.Self = model.SelfSample{IdleNS: age * 1e8, CPUNS: age * 3e6, RSSBytes: 31 << 20, ReadNS: 900_000,
		Programs: []model.ProgramCost{{Name: "sched_switch", Runs: age * 9000, RunTimeNS: age * 9000 * 120},
			{Name: "sock_send", Runs: age * 2000, RunTimeNS: age * 2000 * 140}},
		Drops: []model.Drop{{Name: "edges", Capacity: 16384, Used: 18}, {Name: "cgroups", Capacity: 4096, Used: 11}},
		Features: []model.Feature{
			{Name: "tp_btf/sched_switch", Purpose: "CPU time and run-queue delay", State: model.FeatureWorks, Required: true},
			{Name: "tp_btf/sock_send_length", Purpose: "bytes and transactions of connections",
				State: model.FeatureWorks, Required: true},
			{Name: "containerd", Purpose: "names of containerd's containers", State: model.FeatureAbsent,
				Reason: "/run/containerd/containerd.sock: no such file",
				Remedy: "Names come from cgroup paths until containerd runs"},
		}}
	return snapshot
}

func (s *shop) peer(name string) model.Peer {
	if c, ok := s.byName[name]; ok {
		return model.Peer{Container: c, Process: process[name]}
	}
	return model.Peer{Address: netip.MustParseAddr(name)}
}

// without is the snapshot without a container and its edges.
func without(s *model.Snapshot, name string) *model.Snapshot {
	c := *s
	c.Containers, c.Edges = nil, nil
	for _, x := range s.Containers {
		if x.Container.Name != name {
			c.Containers = append(c.Containers, x)
		}
	}
	for _, e := range s.Edges {
		if !strings.Contains(e.Client.Name()+" "+e.Server.Name(), name) {
			c.Edges = append(c.Edges, e)
		}
	}
	return &c
}
