package graph

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// framesOf are the frames of an agent that saw these snapshots.
func framesOf(snapshots ...*model.Snapshot) (all []*frame.Frame) {
	b := frame.NewBuilder(snapshots[0].Time)
	for _, s := range snapshots {
		all = append(all, b.Build(s))
	}
	return all
}

// windowBetween is a window of one host between two frames of an agent.
func windowBetween(before, after *frame.Frame) *frame.Window {
	return &frame.Window{From: before.Time, To: after.Time, Hosts: []frame.HostSpans{{Host: after.Host,
		Spans: []frame.Span{{Before: before, After: after}}}}}
}

// fromFrames is the graph between two snapshots of an agent, by their frames. Without prev it is all that cur has.
func fromFrames(prev, cur *model.Snapshot, by Grouping) *Graph {
	if cur == nil {
		return FromFrames(&frame.Window{}, Options{By: by})
	}
	if prev == nil {
		prev = &model.Snapshot{Time: cur.Time, Host: cur.Host}
	}
	frames := framesOf(prev, cur)
	return FromFrames(windowBetween(frames[0], frames[1]), Options{By: by})
}

// graphOf is fromFrames by container.
func graphOf(prev, cur *model.Snapshot) *Graph { return fromFrames(prev, cur, ByContainer) }

var groupings = []Grouping{ByContainer, ByPod, ByProcess, ByWorkload, ByNamespace, ByHost}

// exact is a duration of which any sum is exact in seconds, too.
const exact = 1953125 // nanoseconds: 1/512 s

// randomPair are two snapshots of a host with containers in pods and outside, services, and edges of all kinds, of
// which some begin in between.
func randomPair(random *rand.Rand) (prev, cur *model.Snapshot) {
	var containers []*model.Container
	for i := range 2 + random.IntN(10) {
		c := container(fmt.Sprintf("%02d", i), fmt.Sprint("name-", i%7))
		if random.IntN(2) == 0 {
			c.PodNamespace, c.PodName = fmt.Sprint("ns-", i%2), fmt.Sprint("pod-", i%4)
			if random.IntN(3) > 0 {
				c.Workload, c.WorkloadKind = fmt.Sprint("workload-", i%2), "Deployment"
			}
		}
		if random.IntN(5) == 0 {
			c.ID, c.Runtime = fmt.Sprint("/system.slice/", i), model.Systemd
		}
		containers = append(containers, c)
	}
	containers = append(containers, &model.Container{ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime})
	end := func() model.Peer {
		p := model.Peer{}
		switch random.IntN(6) {
		case 0:
			p.Address = netip.AddrFrom4([4]byte{203, 0, 113, byte(random.IntN(60))})
		case 1:
			if random.IntN(4) > 0 {
				p.Address = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", 1+random.IntN(9)))
			}
		default:
			p.Container = containers[random.IntN(len(containers))]
			if random.IntN(3) > 0 {
				p.Process = fmt.Sprint("process-", random.IntN(3))
			}
		}
		return p
	}
	type history struct {
		model.Edge
		begins bool
	}
	var edges []history
	known := map[string]bool{}
	for i := range random.IntN(80) {
		e := history{begins: random.IntN(4) == 0}
		e.Instance, e.Side, e.Client, e.Server = uint64(i+1), model.RoleClient, end(), end()
		e.Confidence, e.Paired = model.Confidence(random.IntN(4)), random.IntN(2) == 0
		e.Service = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(4))}), 80)
		switch random.IntN(12) {
		case 0:
			e.Transport = model.UDP
		case 1:
			e.Via = "docker-proxy"
		case 2:
			e.Edge = model.Edge{Instance: uint64(i + 1), Side: model.RoleUnknown}
		}
		if e.Side == model.RoleClient && random.IntN(2) == 0 {
			e.Side = model.RoleServer
		}
		key := fmt.Sprint(e.Side, e.Client, e.Server, e.Service, e.Transport)
		if !known[key] {
			known[key] = true
			edges = append(edges, e)
		}
	}
	count := func(most int) uint64 { return uint64(max(0, random.IntN(2*most)-most)) }
	times := func() *model.Histogram {
		h := &model.Histogram{}
		for range random.IntN(4) {
			h.Merge(&model.Histogram{Count: 3, SumNS: exact * count(100), Offset: int32(random.IntN(100)) - 90,
				Buckets: []uint64{1, 2}})
		}
		if random.IntN(9) == 0 {
			h.Merge(&model.Histogram{Count: 2, SumNS: exact * 40_000, OverflowCount: 1, ZeroCount: 1})
		}
		return h
	}
	grow := func(c *model.EdgeCounters) {
		gained := model.EdgeCounters{Latency: times(), TimeToFirstByte: times(), RTT: times(), Duration: times(),
			RTTMinNS: exact * count(5)}
		packets := gained.Packets.Plain()
		for _, n := range gained.Plain() {
			if !slices.Contains(packets[:], n) { // the sums of testdata are older than they
				*n = count(1000)
			}
		}
		gained.JitterSumNS, gained.WindowLimitedNS, gained.SendLimitedNS = exact*count(9), exact*count(9), exact*count(9)
		if random.IntN(3) == 0 {
			gained = model.EdgeCounters{}
		}
		c.Add(&gained)
	}
	samples := make([]model.ContainerSample, len(containers))
	for i := range samples {
		samples[i] = model.ContainerSample{Container: containers[i], CPU: &model.CPUCounters{},
			Memory: &model.MemorySample{}, Disk: &model.DiskCounters{}, Processes: &model.ProcessCounters{}}
	}
	at := func(second int) *model.Snapshot {
		s := &model.Snapshot{Time: start.Add(time.Duration(second) * time.Second),
			Host: model.Host{Name: "vm", Cores: 2}}
		for i := range samples {
			one := &samples[i]
			cpu, memory, disk, processes := *one.CPU, *one.Memory, *one.Disk, *one.Processes
			cpu.UsageNS += exact * count(1000)
			cpu.RunQueue = cpu.RunQueue.Clone()
			if cpu.RunQueue == nil {
				cpu.RunQueue = &model.Histogram{}
			}
			cpu.RunQueue.Merge(times())
			memory.UsageBytes, memory.LimitBytes = count(1<<30), count(2)<<30
			memory.PageFaults += count(100)
			disk.ReadBytes += count(1 << 20)
			processes.Threads, processes.BusyThreads = count(9), float64(count(9))/4
			*one = model.ContainerSample{Container: one.Container, CPU: &cpu, Memory: &memory, Disk: &disk,
				Processes: &processes}
			s.Containers = append(s.Containers, *one)
		}
		for i := range edges {
			e := &edges[i]
			if e.begins && second == 0 {
				continue
			}
			grow(&e.Counters)
			for k := range e.Endpoints {
				latency := e.Endpoints[k].Latency.Clone()
				latency.Merge(times())
				e.Endpoints[k].Latency, e.Endpoints[k].Aside = latency, e.Endpoints[k].Aside+count(5)
			}
			for k := range random.IntN(3) {
				e.Endpoints = append(e.Endpoints, model.Endpoint{EndpointKey: model.EndpointKey{Protocol: model.HTTP,
					Name: fmt.Sprintf("GET /%d/%d", len(e.Endpoints), k), Status: []string{"2xx", "5xx"}[random.IntN(2)]},
					Latency: times(), Aside: count(3)})
			}
			copied := e.Edge
			copied.Endpoints = append([]model.Endpoint(nil), e.Endpoints...)
			s.Edges = append(s.Edges, copied)
		}
		return s
	}
	prev = at(0)
	return prev, at(4)
}

// withoutMeans is the JSON of a graph without the means of levels, which two snapshots do not have.
func withoutMeans(t *testing.T, g *Graph) string {
	t.Helper()
	for _, n := range g.Nodes {
		if n.Usage == nil {
			continue
		}
		for i := range usageNumbers {
			if f := usageNumbers[i].Formula; f == model.MeanLevel || f == model.PeakLevel {
				n.Usage.known &^= 1 << i
			}
		}
	}
	b, err := JSON(g)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// firstDifference is where two texts differ.
func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			from := max(0, i-12)
			return fmt.Sprintf("line %d: got\n%s\nwant\n%s", i, strings.Join(a[from:min(i+3, len(a))], "\n"),
				strings.Join(b[from:min(i+3, len(b))], "\n"))
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(a), len(b))
}

// TestFramesAreSnapshots: the graph of two frames is that which was made of the two snapshots by typed counters, before
// frames were: testdata has sums of those graphs' JSON.
func TestFramesAreSnapshots(t *testing.T) {
	var sums strings.Builder
	for seed := range uint64(40) {
		prev, cur := randomPair(rand.New(rand.NewPCG(seed, 1)))
		for _, by := range groupings {
			fmt.Fprintf(&sums, "%d %s %x\n", seed, by, sha256.Sum256([]byte(withoutMeans(t, fromFrames(prev, cur, by)))))
		}
	}
	golden(t, "random.sha256", sums.String())
}
