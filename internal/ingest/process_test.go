package ingest_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"outsight/internal/export"
	"outsight/internal/framelog"
	"outsight/internal/ingest"
	"outsight/internal/model"
	"outsight/internal/queue"
	"outsight/internal/store"
)

// roleEnv makes the test binary play another process.
const roleEnv = "OUTSIGHT_INGEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "server":
		fmt.Println(serve(os.Getenv("DIR"), os.Getenv("ADDRESS")))
	case "nats":
		fmt.Println(natsNode(os.Getenv("DIR"), os.Getenv("ADDRESS")))
	case "agent":
		fmt.Println(watch(os.Getenv("DIR"), "http://"+os.Getenv("ADDRESS")))
	default:
		os.Exit(m.Run())
	}
}

// serve is a server until it is killed.
func serve(dir, address string) error {
	kept, err := store.Open(dir, store.Options{OutOfOrder: 24 * time.Hour})
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	embedded, err := ingest.Embed(dir+"/queue", 256<<20, log)
	if err != nil {
		return err
	}
	conn, err := embedded.Connect()
	if err != nil {
		return err
	}
	q, err := queue.Open(context.Background(), conn, queue.Options{MaxBytes: 64 << 20, Logger: log})
	if err != nil {
		return err
	}
	of, err := queue.Open(context.Background(), conn, queue.Options{Stream: "OUTSIGHT-FRAMES", MaxBytes: 64 << 20,
		Logger: log})
	if err != nil {
		return err
	}
	frames, err := framelog.Open(dir+"/frames", framelog.Options{Logger: log})
	if err != nil {
		return err
	}
	in, err := ingest.New(q, kept, ingest.Options{Dir: dir + "/queue", Logger: log,
		Frames: &ingest.Frames{Queue: of, Log: frames}})
	if err != nil {
		return err
	}
	go in.Run(context.Background())
	mux := http.NewServeMux()
	mux.Handle("/metrics", in.Metrics())
	mux.Handle("/", in.Handler())
	return http.ListenAndServe(address, mux)
}

const (
	agentSeries = 20
	agentPace   = 5 * time.Millisecond
)

// counterAt is what the agent's counters have at a time: any sample can be checked by itself.
func counterAt(at time.Time, series int) float64 {
	return float64(at.UnixMilli()%1e9*7) + float64(series)
}

// watch is an agent until it is killed. Of each batch and each frame that is in the spool it tells the time, and of frames
// epoch and number.
func watch(dir, server string) error {
	e, err := export.Open(export.Options{Server: server, Spool: dir, MaxBackoff: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	go e.Run(context.Background())
	frames := newFrameAgent("h", time.Now())
	last := time.Time{}
	for tick := time.NewTicker(agentPace); ; <-tick.C {
		at := time.Now().Truncate(time.Millisecond)
		if !at.After(last) { // a tick was late
			continue
		}
		last = at
		var batch []model.Series
		for i := range agentSeries {
			batch = append(batch, model.Series{Name: "chaos_total", Kind: model.Counter, Time: at, Value: counterAt(at, i),
				Labels: []model.Label{{Name: "host", Value: "h"}, {Name: "id", Value: strconv.Itoa(i)}}})
		}
		batch = append(batch, model.Series{Name: "chaos_seconds", Kind: model.HistogramSeries, Time: at,
			Labels: []model.Label{{Name: "host", Value: "h"}},
			Histogram: &model.Histogram{Count: uint64(at.UnixMilli()), SumNS: uint64(at.UnixMilli()), Offset: -5,
				Buckets: []uint64{uint64(at.UnixMilli())}}})
		if err := e.Put(batch); err != nil {
			return err
		}
		fmt.Println(at.UnixMilli())
		frames.next(at)
		if err := e.Consume(context.Background(), frames.last); err != nil {
			return err
		}
		fmt.Println(at.UnixMilli(), frames.last.Epoch, frames.last.Number)
	}
}

// process is a child that is killed and started again.
type process struct {
	role, dir, address string
	cmd                *exec.Cmd
	out                *os.File
	ended              chan struct{}
	killed             bool
}

func (p *process) start(t testing.TB) {
	t.Helper()
	p.cmd = exec.Command(os.Args[0], "-test.run=^$")
	p.cmd.Env = append(os.Environ(), roleEnv+"="+p.role, "DIR="+p.dir, "ADDRESS="+p.address)
	p.cmd.Stdout, p.cmd.Stderr = p.out, os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.killed, p.ended = false, make(chan struct{})
	go func() {
		defer close(p.ended)
		p.cmd.Wait()
	}()
}

// end is for processes that may have been killed.
func (p *process) end() {
	p.cmd.Process.Kill()
	<-p.ended
}

// check fails the test when the process has ended by itself.
func (p *process) check(t testing.TB) {
	t.Helper()
	select {
	case <-p.ended:
	default:
		return
	}
	if !p.killed {
		said, err := os.ReadFile(p.out.Name())
		t.Fatalf("the %s at %s ended by itself (%v): %s (%v)", p.role, p.address, p.cmd.ProcessState, said, err)
	}
}

func outputFile(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// waitFor waits until it is done. It fails at once when one of the processes ends, without which it cannot be.
func waitFor(t testing.TB, what string, done func() bool, processes ...*process) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		for _, p := range processes {
			p.check(t)
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
