//go:build long

package ingest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"outsight/internal/export"
	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/ingest"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// poster sends foreign requests and remembers those that were answered with 200.
type poster struct {
	url   string
	taken []time.Time
}

func (p *poster) run(ctx context.Context) {
	for ctx.Err() == nil {
		at := time.Now().Truncate(time.Millisecond)
		series := []model.Series{{Name: "foreign_total", Kind: model.Counter, Time: at, Value: counterAt(at, 0),
			Labels: []model.Label{{Name: "id", Value: "x"}}}}
		answer, err := http.Post(p.url+ingest.Path, "application/x-protobuf", bytes.NewReader(otlp.Encode(nil, series)))
		if err == nil {
			if answer.StatusCode == http.StatusOK {
				p.taken = append(p.taken, at)
			}
			answer.Body.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(7 * time.Millisecond):
		}
	}
}

// kill ends a process that must still be there.
func (p *process) kill(t testing.TB) {
	t.Helper()
	p.check(t)
	p.cmd.Process.Kill()
	<-p.ended
	p.killed = true
}

// kills is how often the chaos test kills a process.
func kills(t testing.TB) int {
	n := 10
	if text := os.Getenv("OUTSIGHT_KILLS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// Server and agent are killed at random instants. In the end, all batches of the agent and all requests that were
// answered are in the store, each sample once, with its own value, and nothing else, and all frames are in the log once.
func TestKilledAtAnyInstant(t *testing.T) {
	address := net.JoinHostPort(ownHost, freePorts(t, 1)[0])
	began := time.Now().Add(-time.Second)
	srv := &process{role: "server", dir: t.TempDir(), address: address, out: outputFile(t, "server")}
	agent := &process{role: "agent", dir: t.TempDir(), address: address, out: outputFile(t, "agent")}
	srv.start(t)
	agent.start(t)
	t.Cleanup(func() {
		srv.end()
		agent.end()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	foreign := &poster{url: "http://" + address}
	posted := make(chan struct{})
	go func() { defer close(posted); foreign.run(ctx) }()
	agentKills := 0
	for range kills(t) {
		time.Sleep(rand.N(700 * time.Millisecond))
		p := srv
		if rand.IntN(3) == 0 {
			p = agent
			agentKills++
		}
		p.kill(t)
		time.Sleep(rand.N(200 * time.Millisecond))
		p.start(t)
	}
	// Both ends get their time to come to rest: first no more is made, then all of it is sent and stored.
	waitFor(t, "the server", func() bool { return metric(address, "outsight_ingest_samples_total") > 0 }, srv, agent)
	cancel()
	<-posted
	agent.kill(t)
	e, err := export.Open(export.Options{Server: "http://" + address, Spool: agent.dir,
		MaxBackoff: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	sending, stop := context.WithCancel(t.Context())
	sent := make(chan struct{})
	go func() { defer close(sent); e.Run(sending) }()
	waitFor(t, "the spool to be empty", func() bool { return e.Stats().Spool.Batches == 0 }, srv)
	stop()
	<-sent
	if s := e.Stats(); s.Refused != 0 || s.Rejected != 0 || s.Spool.DroppedBatches != 0 {
		t.Errorf("the agent lost batches: %+v", s)
	}
	e.Close()
	waitFor(t, "the queues to be empty", func() bool {
		return metric(address, "outsight_queue_messages") == 0 && metric(address, "outsight_frame_queue_messages") == 0
	}, srv)
	if n := metric(address, "outsight_ingest_poison_messages_total"); n != 0 {
		t.Errorf("%v messages were set aside", n)
	}
	srv.kill(t)

	frames := checkFrames(t, srv.dir, agent.out.Name(), agentKills)
	kept, err := store.Open(srv.dir, store.Options{OutOfOrder: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	end := time.Now().Add(time.Second)
	made := times(t, agent.out.Name())
	window := fmt.Sprintf("[%dms]", end.Sub(began).Milliseconds())
	for i := range agentSeries {
		stored := samples(t, kept, fmt.Sprintf("chaos_total{id=%q}", strconv.Itoa(i))+window, end, i)
		missing(t, fmt.Sprintf("series %d", i), stored, made)
		// A killed agent may have put a batch into the spool and not told of it.
		if extra := len(stored) - len(made); extra > agentKills+1 {
			t.Errorf("series %d: %d samples that nobody made", i, extra)
		}
	}
	results, err := kept.Instant(t.Context(), "chaos_seconds"+window, end)
	if err != nil || len(results) != 1 {
		t.Fatalf("%d histograms, %v", len(results), err)
	}
	inStore := map[int64]bool{}
	for _, p := range results[0].Points {
		inStore[p.Time.UnixMilli()] = true
		if p.Histogram.Count != float64(p.Time.UnixMilli()) {
			t.Fatalf("histogram at %v has %v", p.Time, p.Histogram.Count)
		}
	}
	missing(t, "histogram", inStore, made)
	stored := samples(t, kept, "foreign_total"+window, end, 0)
	var taken []int64
	for _, at := range foreign.taken {
		taken = append(taken, at.UnixMilli())
	}
	missing(t, "foreign requests", stored, taken)
	t.Logf("%d kills, %d of them of the agent: %d frames, %d batches and %d foreign requests, all there once", kills(t),
		agentKills, frames, len(made), len(taken))
	if frames < 50 || len(made) < 50 || len(taken) < 20 {
		t.Errorf("only %d batches and %d foreign requests: the test shows nothing", len(made), len(taken))
	}
}

// checkFrames looks for all frames that an agent told of in a server's log, and answers how many there are.
func checkFrames(t testing.TB, dir, told string, agentKills int) int {
	t.Helper()
	frames, err := framelog.Open(dir+"/frames", framelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer frames.Close()
	type id struct{ epoch, number uint64 }
	var made []id
	var times []time.Time
	for _, line := range wholeLines(t, told) {
		var at int64
		var one id
		if n, _ := fmt.Sscanf(line, "%d %d %d", &at, &one.epoch, &one.number); n == 3 {
			made, times = append(made, one), append(times, time.UnixMilli(at))
		}
	}
	n := 0
	q := framelog.Query{Times: append([]time.Time{times[0].Add(-time.Minute)}, times...)}
	for w, err := range frames.Windows(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Hosts) != 1 {
			t.Fatalf("frame %+v: %d hosts", made[n], len(w.Hosts))
		}
		last := w.Hosts[0].Spans[len(w.Hosts[0].Spans)-1].After
		if got := (id{last.Epoch, last.Number}); got != made[n] {
			t.Errorf("at %v the newest frame is %+v, want %+v", times[n], got, made[n])
		}
		opens, _ := last.Tables[frame.Edges].Columns[frame.Column(frame.Edges, "connections_opened")].At(0)
		if opens != last.Number {
			t.Errorf("frame %+v has counted %d", made[n], opens)
		}
		n++
	}
	stats := frames.Stats()
	// A killed agent may have put a frame into the spool and not told of it.
	if extra := stats.Frames - len(made); extra < 0 || extra > agentKills+1 || n != len(made) || stats.Damaged != 0 {
		t.Errorf("%d frames were made and %d found, %+v", len(made), n, stats)
	}
	return n
}

// wholeLines are the lines of a file, but for one that was cut off.
func wholeLines(t testing.TB, path string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line, whole := strings.CutSuffix(line, "\n"); whole {
			all = append(all, line)
		}
	}
	return all
}

// metric is a number of a server's /metrics, -1 where it does not answer.
func metric(address, name string) float64 {
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return -1
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(text, 64)
			if err == nil {
				return v
			}
		}
	}
	return -1
}

// times are those of the batches that an agent told of.
func times(t testing.TB, path string) (all []int64) {
	t.Helper()
	for _, line := range wholeLines(t, path) {
		if strings.Contains(line, " ") {
			continue // a frame
		}
		at, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			t.Fatalf("the agent said %q", line)
		}
		all = append(all, at)
	}
	return all
}

func samples(t testing.TB, kept *store.Store, query string, at time.Time, series int) map[int64]bool {
	t.Helper()
	results, err := kept.Instant(t.Context(), query, at)
	if err != nil || len(results) != 1 {
		t.Fatalf("%s: %d series, %v", query, len(results), err)
	}
	all := map[int64]bool{}
	for _, p := range results[0].Points {
		ms := p.Time.UnixMilli()
		if all[ms] {
			t.Errorf("%s: two samples at %d", query, ms)
		}
		all[ms] = true
		if want := counterAt(p.Time, series); p.Value != want {
			t.Errorf("%s: %v at %d, want %v", query, p.Value, ms, want)
		}
	}
	return all
}

func missing(t testing.TB, what string, stored map[int64]bool, wanted []int64) {
	t.Helper()
	n := 0
	for _, at := range wanted {
		if !stored[at] {
			n++
		}
	}
	if n > 0 {
		t.Errorf("%s: %d of %d are missing", what, n, len(wanted))
	}
}
