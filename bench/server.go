package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"outsight/internal/frame"
	"outsight/internal/ingest"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

const (
	simulatedContainers, simulatedEdges = 50, 200
	// ingestTime is how long the server is fed as fast as it takes, paceTime how long each number of agents sends once
	// a second.
	ingestTime, paceTime = 20 * time.Second, 15 * time.Second
	// behind is how long the server may take to store what it took before it counts as overrun.
	behind = 3 * time.Second
	// liveGoal is what a series may take in memory while it is written to, in bytes.
	liveGoal = 5000
)

// measureServer finds how many samples a server takes on one core, over the whole way: sockets, queue with every
// message on the disk, store. The agents are simulated on the other core, where there is one.
func measureServer(ctx context.Context, o options) ([]row, error) {
	// The maps first: they may use all cores, which threads that were started by one with fewer may not.
	large, err := measureGraph(ctx)
	if err != nil {
		return nil, err
	}
	if err := leaveFirstCPU(); err != nil {
		return nil, err
	}
	var rows []row
	var curve [][]string
	ingested, err := measureIngest(ctx, o, 0)
	if err != nil {
		return nil, err
	}
	full := ingested.rateRows()
	rows = append(rows, full...)
	curve = append(curve, []string{"agents, once a second", "samples/s", "CPU of one core", "resident",
		"queue at the end", ""})
	most := 1
	for _, n := range []int{10, 20, 30, 35, 40, 45, 50, 55, 60, 65, 70, 80} {
		line, held, err := measurePace(ctx, o, n)
		if err != nil {
			return nil, err
		}
		curve = append(curve, line)
		if !held {
			break
		}
		most = n
		rows = append(rows[:len(full)], row{what: "server: agents held on one core, at one batch a second",
			value: float64(n), unit: "agents",
			detail: fmt.Sprintf("%d containers and %d edges each", simulatedContainers, simulatedEdges)},
			row{what: "server: edges updated per second, on one core", value: float64(n * simulatedEdges), unit: "edges/s",
				detail: fmt.Sprintf("%d agents with %d edges each; each edge has %d series", n, simulatedEdges, seriesOfEdge())})
	}
	rows = append(rows, large...)
	killed, err := measureKills(ctx)
	if err != nil {
		return nil, err
	}
	torn, err := measureFrameLogKills(ctx)
	if err != nil {
		return nil, err
	}
	rows = append(rows, killed, torn)
	return rows, o.document("server.md", "server", rowsTable(rows)+"\n"+markdown(curve)+"\n"+fleet(rows, most))
}

// leaveFirstCPU keeps this process off CPU 0, on which the server runs.
func leaveFirstCPU() error {
	if runtime.NumCPU() == 1 {
		return nil
	}
	var others unix.CPUSet
	for cpu := 1; cpu < runtime.NumCPU(); cpu++ {
		others.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &others); err != nil {
		return fmt.Errorf("leaving CPU 0 to the server: %w", err)
	}
	return nil
}

// fleet says how many servers many agents need, by what was measured.
func fleet(rows []row, held int) string {
	const agents = 1000
	at := slices.IndexFunc(rows, func(r row) bool { return r.what == rowPerCPU })
	if at < 0 {
		panic("BUG: no row " + rowPerCPU)
	}
	each, cpu := len(newSimulated(0).series), rows[at].value
	series := float64(agents * each)
	return fmt.Sprintf(`**%d agents** like these have %d × %d = %.2f million series and send as many samples a second.
That is %.2f million / %.0f = %.1f cores. One server stores what it receives in one thread, so that it does not
use that many cores: it takes %d / %d = %d servers of one core, every one with agents of its own.
`, agents, agents, each, series/1e6, series/1e6, cpu, series/cpu, agents, held, (agents+held-1)/held)
}

const rowPerCPU = "server: samples per second of CPU time"

// fedServer is a server, alone on CPU 0, and agents that feed it.
type fedServer struct {
	*process
	address string
	dir     string
	agents  []*simulated
}

func startFed(ctx context.Context, o options, agents int) (s *fedServer, err error) {
	s = &fedServer{address: "127.0.0.1:14318"}
	if s.dir, err = os.MkdirTemp("/var/tmp", "outsight-bench-"); err != nil {
		return nil, err
	}
	binary := filepath.Join(o.binaries, "outsight")
	s.process, err = startServer(ctx, s.address, "taskset", "-c", "0", "env", "GOMAXPROCS=1", binary, "server",
		"--otlp", "",
		"--otlp-http", s.address, "--listen", "127.0.0.1:18470", "--data", s.dir, "--max-series", "2000000")
	if err != nil {
		os.RemoveAll(s.dir)
		return nil, err
	}
	for i := range agents {
		s.agents = append(s.agents, newSimulated(i))
	}
	return s, nil
}

func (s *fedServer) close() {
	s.stop()
	os.RemoveAll(s.dir)
}

// metric is a number of the server's /metrics.
func (s *fedServer) metric(name string) float64 {
	answer, err := http.Get("http://127.0.0.1:18470/metrics")
	if err != nil {
		return -1
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	_, after, _ := strings.Cut("\n"+string(text), "\n"+name+" ")
	value, _, _ := strings.Cut(after, "\n")
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return -1
	}
	return v
}

// usage is the CPU time and the resident memory of the server.
func (s *fedServer) usage() (cpu time.Duration, rss int64, err error) {
	dir := fmt.Sprintf("/proc/%d/", s.command.Process.Pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return 0, 0, err
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	fields := strings.Fields(string(after))
	if len(fields) < 22 {
		return 0, 0, fmt.Errorf("%sstat has %d fields", dir, len(fields))
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	pages, err3 := strconv.ParseInt(fields[21], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, pages * int64(os.Getpagesize()),
		errors.Join(err1, err2, err3)
}

// simulated is an agent with containers and edges whose counters grow.
type simulated struct {
	series   []model.Series
	snapshot *model.Snapshot
	// churn is which share of the edges, with all their series, ends in a minute and is followed by as many new ones.
	churn float64
	begun int // edges that took the place of another

	encoder *zstd.Encoder
	buffer  []byte
	data    []byte
	number  int
	name    string
	at      time.Time
}

func newSimulated(n int) *simulated {
	a := &simulated{name: fmt.Sprintf("simulated%03d", n), at: time.Now().Add(-12 * time.Hour).Truncate(time.Second)}
	a.encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(256<<10))
	a.snapshot = simulatedSnapshot(n, a.at)
	a.series = otlp.FromFrame(frame.Of(a.snapshot), otlp.SeriesOptions{})
	return a
}

// replace ends as many edges as churn has due by now, evenly over the minute. A new one has another port, so that all
// its series are new.
func (a *simulated) replace() {
	due := int(a.churn * simulatedEdges * float64(a.number) / 60)
	if a.begun >= due {
		return
	}
	for ; a.begun < due; a.begun++ {
		e := &a.snapshot.Edges[a.begun%simulatedEdges]
		e.Service = netip.AddrPortFrom(e.Service.Addr(), 10_000+uint16(a.begun/simulatedEdges))
	}
	a.snapshot.Time = a.at
	series := otlp.FromFrame(frame.Of(a.snapshot), otlp.SeriesOptions{})
	for i := range series {
		if old := &a.series[i]; slices.Equal(old.Labels, series[i].Labels) {
			series[i] = *old
		}
	}
	a.series = series
}

// seriesOfEdge is how many series a simulated edge has.
func seriesOfEdge() int {
	s := simulatedSnapshot(0, time.Now())
	whole := len(otlp.FromFrame(frame.Of(s), otlp.SeriesOptions{}))
	s.Edges = nil
	return (whole - len(otlp.FromFrame(frame.Of(s), otlp.SeriesOptions{}))) / simulatedEdges
}

func simulatedSnapshot(host int, at time.Time) *model.Snapshot {
	h := func() *model.Histogram {
		h := &model.Histogram{Count: 400, SumNS: 1e9, Offset: -300, Buckets: make([]uint64, 40)}
		for i := range h.Buckets {
			h.Buckets[i] = 10
		}
		return h
	}
	s := &model.Snapshot{Time: at, Window: time.Second, Host: model.Host{Name: fmt.Sprintf("host-%03d.example", host),
		Cores: 8}}
	var containers []*model.Container
	for i := range simulatedContainers {
		c := &model.Container{ID: fmt.Sprintf("%032x%032x", host, i), Name: fmt.Sprintf("service-%d", i),
			Image:   fmt.Sprintf("registry.example/shop/service-%d:1.2.3", i),
			Runtime: model.Docker, Started: at.Add(-time.Hour)}
		containers = append(containers, c)
		s.Containers = append(s.Containers, model.ContainerSample{Container: c,
			CPU:       &model.CPUCounters{UsageNS: 1e9, Voluntary: 7, RunQueue: h()},
			Processes: &model.ProcessCounters{TaskCounters: model.TaskCounters{Forks: 1}, Threads: 4},
			Throttle:  &model.ThrottleCounters{Periods: 10},
			Memory:    &model.MemorySample{UsageBytes: 11e6}, Disk: &model.DiskCounters{ReadBytes: 21},
			Network: &model.NetworkCounters{ReceiveBytes: 31}, TCP: &model.TCPCounters{}})
	}
	for i := range simulatedEdges {
		s.Edges = append(s.Edges, model.Edge{Side: model.RoleClient,
			Client:  model.Peer{Container: containers[i%simulatedContainers]},
			Server:  model.Peer{Container: containers[(i*7+1)%simulatedContainers]},
			Service: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / 250), byte(i % 250)}), uint16(8000+i)),
			Paired:  true, Confidence: model.Exact, Counters: model.EdgeCounters{SentBytes: 100, ReceivedBytes: 2000,
				Opens: 3, Requests: 20, Replies: 20,
				Latency: h(), TimeToFirstByte: h(), RTT: h(), Duration: h()}})
	}
	return s
}

// next is the batch of the next second.
func (a *simulated) next() {
	a.grow()
	a.buffer = otlp.Encode(a.buffer[:0], a.series)
	a.data = a.encoder.EncodeAll(a.buffer, a.data[:0])
}

// grow is what happens in a second: all counters and a tenth of the histograms grow, and edges end.
func (a *simulated) grow() {
	a.number++
	a.at = a.at.Add(time.Second)
	a.replace()
	for i := range a.series {
		s := &a.series[i]
		s.Time = a.at
		if s.Histogram == nil {
			s.Value += float64((i*a.number)%977) + 1
		} else if (i+a.number)%10 == 0 {
			s.Histogram.Buckets[a.number%40]++
			s.Histogram.Count++
			s.Histogram.SumNS += 1e6
		}
	}
}

// send sends the batch until it is taken, and tells how often the server said to come again.
func (a *simulated) send(ctx context.Context, address string) (turnedAway int, err error) {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+ingest.Path, bytes.NewReader(a.data))
		if err != nil {
			return turnedAway, err
		}
		r.Header.Set("Content-Type", "application/x-protobuf")
		r.Header.Set("Content-Encoding", "zstd")
		r.Header.Set(otlp.BatchHeader, fmt.Sprintf("%s/%0*d", a.name, otlp.BatchNumberDigits, a.number))
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return turnedAway, err
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		switch {
		case answer.StatusCode == http.StatusOK && len(text) == 0:
			return turnedAway, nil
		case answer.StatusCode != http.StatusTooManyRequests:
			return turnedAway, fmt.Errorf("the server answers %s %q", answer.Status, text)
		}
		turnedAway++
		time.Sleep(100 * time.Millisecond)
	}
}

// feed lets all agents send, each when its turn has come, until ctx ends.
func (s *fedServer) feed(ctx context.Context, turn func(*simulated) bool) (turnedAway int, err error) {
	var group sync.WaitGroup
	var away atomic.Int64
	failed := make(chan error, len(s.agents))
	for _, a := range s.agents {
		group.Go(func() {
			for turn(a) {
				a.next()
				n, err := a.send(ctx, s.address)
				away.Add(int64(n))
				if err != nil && ctx.Err() == nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err = <-failed:
	default:
	}
	return int(away.Load()), err
}

// warm lets each agent send once: that makes the series, which happens once.
func (s *fedServer) warm(ctx context.Context) error {
	sent := map[*simulated]bool{}
	var mu sync.Mutex
	_, err := s.feed(ctx, func(a *simulated) bool {
		mu.Lock()
		defer mu.Unlock()
		again := sent[a]
		sent[a] = true
		return !again
	})
	if err != nil {
		return err
	}
	return s.await(ctx, func() bool { return s.metric("outsight_queue_messages") == 0 })
}

// ingested is what a server took that was fed as fast as it answers. Memory is in bytes per live series.
type ingested struct {
	churn                 float64
	series, seriesOfAgent int
	perSecond, perCPU     float64
	inUse, resident       float64
	inUseText, residentOf string
}

func (m *ingested) detail() string {
	text := fmt.Sprintf("%d agents as fast as they are answered, %d series, %v", m.series/m.seriesOfAgent, m.series,
		ingestTime)
	if m.churn > 0 {
		text += fmt.Sprintf("; %.0f %% of the edges end in each minute of the agents' time", 100*m.churn)
	}
	return text
}

// suffix tells rows with churn from those without.
func (m *ingested) suffix() string {
	if m.churn > 0 {
		return fmt.Sprintf("; %.0f %% of the edges end each minute", 100*m.churn)
	}
	return ""
}

func (m *ingested) rateRows() []row {
	return []row{
		{what: "server: samples from the socket to the store, per second" + m.suffix(), value: m.perSecond,
			unit: "samples/s", detail: m.detail()},
		{what: rowPerCPU + m.suffix(), value: m.perCPU, unit: "samples/s", detail: "the same run"},
	}
}

// memoryRows has the rate, too: it depends on how many series begin and end.
func (m *ingested) memoryRows() []row {
	return []row{
		{what: rowPerCPU + m.suffix(), value: m.perCPU, unit: "samples/s", detail: m.detail()},
		{what: "server: memory in use per live series" + m.suffix(), value: m.inUse, unit: "B", budget: liveGoal,
			detail: m.inUseText},
		{what: "server: resident memory per live series" + m.suffix(), value: m.resident, unit: "B",
			detail: m.residentOf + "; it has what waits to be collected, too"},
	}
}

// measureIngest feeds a server for ingestTime with agents whose edges end at the rate churn, a share per minute of
// their own time.
func measureIngest(ctx context.Context, o options, churn float64) (*ingested, error) {
	const agents = 8
	s, err := startFed(ctx, o, agents)
	if err != nil {
		return nil, err
	}
	defer s.close()
	for _, a := range s.agents {
		a.churn = churn
	}
	_, emptyResident, err := s.usage()
	if err != nil {
		return nil, err
	}
	empty := s.metric("outsight_heap_live_bytes")
	if err := s.warm(ctx); err != nil {
		return nil, err
	}
	appended := "outsight_ingest_appended_samples_total"
	began, before := time.Now(), s.metric(appended)
	cpu, _, err := s.usage()
	if err != nil {
		return nil, err
	}
	if _, err := s.feed(ctx, func(*simulated) bool { return time.Since(began) < ingestTime }); err != nil {
		return nil, err
	}
	if err := s.await(ctx, func() bool { return s.metric("outsight_queue_messages") == 0 }); err != nil {
		return nil, err
	}
	took, samples := time.Since(began), s.metric(appended)-before
	after, rss, err := s.usage()
	if err != nil {
		return nil, err
	}
	used := after - cpu
	live := s.metric("outsight_heap_live_bytes")
	m := &ingested{churn: churn, seriesOfAgent: len(s.agents[0].series), perSecond: samples / took.Seconds(),
		perCPU: samples / used.Seconds()}
	m.series = m.seriesOfAgent * agents
	m.inUse, m.resident = (live-empty)/float64(m.series), float64(rss-emptyResident)/float64(m.series)
	m.inUseText = fmt.Sprintf("%.0f MiB in use, %.0f MiB without series", live/(1<<20), empty/(1<<20))
	m.residentOf = fmt.Sprintf("%d MiB resident, %d MiB without series", rss>>20, emptyResident>>20)
	return m, nil
}

// measurePace lets agents send once a second, each at its own time.
func measurePace(ctx context.Context, o options, agents int) (line []string, held bool, err error) {
	s, err := startFed(ctx, o, agents)
	if err != nil {
		return nil, false, err
	}
	defer s.close()
	if err := s.warm(ctx); err != nil {
		return nil, false, err
	}
	began := time.Now()
	due := map[*simulated]time.Time{}
	for i, a := range s.agents {
		due[a] = began.Add(time.Duration(i) * time.Second / time.Duration(agents))
	}
	var mu sync.Mutex
	late := time.Duration(0)
	cpu, _, err := s.usage()
	if err != nil {
		return nil, false, err
	}
	before := s.metric("outsight_ingest_appended_samples_total")
	away, err := s.feed(ctx, func(a *simulated) bool {
		mu.Lock()
		at := due[a]
		due[a] = at.Add(time.Second)
		mu.Unlock()
		if time.Since(began) > paceTime {
			return false
		}
		time.Sleep(time.Until(at))
		mu.Lock()
		late = max(late, time.Since(at))
		mu.Unlock()
		return true
	})
	if err != nil {
		return nil, false, err
	}
	queued := s.metric("outsight_queue_messages")
	after, rss, err := s.usage()
	if err != nil {
		return nil, false, err
	}
	took := time.Since(began)
	rate := (s.metric("outsight_ingest_appended_samples_total") - before) / took.Seconds()
	held = late < behind && away == 0 && queued < float64(agents)*behind.Seconds()
	verdict := "held"
	if !held {
		verdict = fmt.Sprintf("overrun: senders up to %v late, %d times turned away", late.Round(100*time.Millisecond), away)
	}
	return []string{strconv.Itoa(agents), fmt.Sprintf("%.0f", rate),
		fmt.Sprintf("%.0f %%", 100*(after-cpu).Seconds()/took.Seconds()),
		fmt.Sprintf("%.0f MiB", float64(rss)/(1<<20)), fmt.Sprintf("%.0f messages", queued), verdict}, held, nil
}

// measureKills runs the test that kills server and agent at random instants, a hundred times.
func measureKills(ctx context.Context) (row, error) {
	c := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-tags", "long", "-run", "^TestKilledAtAnyInstant$",
		"./internal/ingest")
	c.Env = append(os.Environ(), "OUTSIGHT_KILLS=100")
	out, err := c.CombinedOutput()
	if err != nil {
		return row{}, fmt.Errorf("killing server and agent: %w: %s", err, out)
	}
	m := regexp.MustCompile(`100 kills.*`).Find(out)
	if m == nil {
		return row{}, fmt.Errorf("killing server and agent: it said %s", out)
	}
	return row{what: "server: batches lost or doubled in 100 SIGKILLs of server and agent", value: 0, unit: "batches",
		detail: string(m)}, nil
}

// measureFrameLogKills runs the test that kills what appends to a frame log, a hundred times, and the one that cuts
// segments off.
func measureFrameLogKills(ctx context.Context) (row, error) {
	c := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^Test(Killed|TornSegment)$", "./internal/framelog")
	c.Env = append(os.Environ(), "OUTSIGHT_KILLS=100")
	out, err := c.CombinedOutput()
	if err != nil {
		return row{}, fmt.Errorf("killing what appends to a frame log: %w: %s", err, out)
	}
	m := regexp.MustCompile(`100 kills.*`).Find(out)
	if m == nil {
		return row{}, fmt.Errorf("killing what appends to a frame log: it said %s", out)
	}
	return row{what: "server: frames lost or doubled in 100 SIGKILLs of a frame log", value: 0, unit: "frames",
		detail: string(m) + "; and a segment cut off at 1,000 random bytes"}, nil
}
