package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const (
	// framesGoal is how many agents at a frame a second one core should hold.
	framesGoal = 500
	// framesChurn is which share of edges and containers ends in a minute.
	framesChurn = 0.05
	// residentGoal is what a server with framesEdges edges may have resident, in MiB.
	residentGoal = 500
)

// measureAllFrames measures a server that takes frames.
func measureAllFrames(ctx context.Context, o options) ([]row, error) {
	if err := leaveFirstCPU(); err != nil {
		return nil, err
	}
	rows, err := measureFrames(ctx, o)
	if err != nil {
		return nil, err
	}
	progress("%v", rows)
	memory, err := measureFramesMemory(ctx, o)
	if err != nil {
		return nil, err
	}
	return append(rows, memory...), o.document("server.md", "frames", rowsTable(append(rows, memory...)))
}

// measureFrames finds how many agents that send frames a server holds on one core: from the socket over the queue, with
// every message on the disk, to the log of frames, with series of containers every 15 s.
func measureFrames(ctx context.Context, o options) ([]row, error) {
	const agents, rounds = 50, 180
	t := newTemplate(simulatedContainers, simulatedEdges, framesChurn, time.Second, rounds)
	s, err := startFrames(ctx, o, 1)
	if err != nil {
		return nil, err
	}
	defer s.close()
	all := newFrameAgents(t, agents)
	if _, _, err := sendRound(ctx, all, s.address, 0); err != nil {
		return nil, err
	}
	cpu, _, err := s.usage()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	sent := 0
	for range rounds - 1 {
		if _, _, err := sendRound(ctx, all, s.address, 0); err != nil {
			return nil, err
		}
		if sent += agents; time.Since(began) > ingestTime {
			break
		}
	}
	if err := s.drained(ctx); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, rss, err := s.usage()
	if err != nil {
		return nil, err
	}
	used := after - cpu
	detail := fmt.Sprintf("%d agents with %d containers and %d edges each, of which %.0f %% end in a minute, as fast as "+
		"they are answered; %d frames in %.1f s; %.0f B a key frame, %.0f B any other; %d MiB resident", agents,
		simulatedContainers, simulatedEdges, 100*framesChurn, sent, took.Seconds(), t.keySize(), t.otherSize(), rss>>20)
	return []row{
		{what: "frames: agents per core, at a frame a second", value: float64(sent) / used.Seconds(), unit: "agents",
			detail: detail},
		{what: "frames: CPU time of the server per frame", value: float64(used.Microseconds()) / float64(sent), unit: "µs",
			budget: 1e6 / framesGoal, detail: "the same run"},
		{what: "frames: taken per second on one core", value: float64(sent) / took.Seconds(), unit: "frames/s",
			detail: "the same run"},
	}, nil
}

func (t *template) keySize() float64 { return float64(t.keyBytes) / float64(max(t.keys, 1)) }
func (t *template) otherSize() float64 {
	return float64(t.others) / float64(max(len(t.frames)-t.keys, 1))
}

// framesServer is a server that takes frames.
type framesServer struct{ *fedServer }

// startFrames starts a server on so many CPUs, with the switches of outsight server.
func startFrames(ctx context.Context, o options, cpus int, more ...string) (*framesServer, error) {
	s := &fedServer{address: "127.0.0.1:14318"}
	var err error
	if s.dir, err = os.MkdirTemp("/var/tmp", "outsight-bench-"); err != nil {
		return nil, err
	}
	arguments := []string{"-c", "0-" + strconv.Itoa(cpus-1), "env", "GOMAXPROCS=" + strconv.Itoa(cpus),
		filepath.Join(o.binaries, "outsight"), "server", "--otlp", "", "--otlp-http", s.address,
		"--listen", "127.0.0.1:18470", "--data", s.dir}
	s.process, err = startServer(ctx, s.address, "taskset", append(arguments, more...)...)
	if err != nil {
		os.RemoveAll(s.dir)
		return nil, err
	}
	return &framesServer{s}, nil
}

// drained waits until all that was taken is in the log.
func (s *framesServer) drained(ctx context.Context) error {
	return s.await(ctx, func() bool { return s.metric("outsight_frame_queue_messages") == 0 })
}

// logBytes are those of the log of frames on the disk.
func (s *framesServer) logBytes() (n int64) {
	filepath.WalkDir(filepath.Join(s.dir, "frames"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// measureFramesMemory finds the memory of a server with 500 hosts, 5,000 containers and 100,000 edges, and what an edge
// takes on the disk.
func measureFramesMemory(ctx context.Context, o options) ([]row, error) {
	const hosts, containers, edges, rounds = 500, 10, 200, 16
	t := newTemplate(containers, edges, framesChurn, time.Second, rounds)
	s, err := startFrames(ctx, o, 1)
	if err != nil {
		return nil, err
	}
	defer s.close()
	all := newFrameAgents(t, hosts)
	for range rounds {
		if _, _, err := sendRound(ctx, all, s.address, 0); err != nil {
			return nil, err
		}
	}
	if err := s.drained(ctx); err != nil {
		return nil, err
	}
	_, rss, err := s.usage()
	if err != nil {
		return nil, err
	}
	detail := fmt.Sprintf("%d hosts with %d containers and %d edges each, %d frames of each, series of containers", hosts,
		containers, edges, rounds)
	perFrame := float64(s.logBytes()) / float64(hosts*rounds)
	// A day: an hour of every second, then every 10 s; a key frame each minute.
	keys, fine, middle := 24*60., 59*60., 23*60*5.
	day := (keys*t.keySize() + (fine+middle)*t.otherSize()) / edges
	return []row{
		{what: "frames: resident memory of a server with 100,000 edges and 5,000 containers", value: float64(rss) / (1 << 20),
			unit: "MiB", budget: residentGoal, detail: detail},
		{what: "frames: memory in use of the same", value: s.metric("outsight_heap_live_bytes") / (1 << 20), unit: "MiB",
			detail: "what the last collection left"},
		{what: "frames: bytes in the log per frame", value: perFrame, unit: "B", detail: detail},
		{what: "frames: bytes on the disk per edge and day", value: day, unit: "B", detail: fmt.Sprintf("by the sizes of "+
			"frames, %.0f B a key frame and %.0f B any other: every second for an hour, then every 10 s", t.keySize(),
			t.otherSize())},
	}, nil
}

// measureFleet lets ever more agents send every 10 s, up to 10,000.
func measureFleet(ctx context.Context, o options) ([]row, error) {
	if err := leaveFirstCPU(); err != nil {
		return nil, err
	}
	const containers, edges, step, rounds = 20, 50, 10 * time.Second, 8
	t := newTemplate(containers, edges, framesChurn, step, rounds)
	curve := [][]string{{"agents, every 10 s", "frames/s", "CPU of one core", "CPU time per frame", "resident",
		"bytes in the log per frame", "latest answer", ""}}
	var rows []row
	for _, n := range o.fleet {
		line, one, err := measureFleetOf(ctx, o, t, n, step, rounds)
		if err != nil {
			return nil, err
		}
		curve, rows = append(curve, line), append(rows, one...)
	}
	return rows, o.document("server.md", "fleet", fmt.Sprintf("Agents with %d containers and %d edges each.\n\n%s",
		containers, edges, markdown(curve)))
}

func measureFleetOf(ctx context.Context, o options, t *template, n int, step time.Duration, rounds int) (line []string,
	rows []row, err error) {
	s, err := startFrames(ctx, o, 1)
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	agents := newFrameAgents(t, n)
	cpu, _, err := s.usage()
	if err != nil {
		return nil, nil, err
	}
	began, late, away := time.Now(), time.Duration(0), 0
	for range rounds {
		l, a, err := sendRound(ctx, agents, s.address, step)
		if err != nil {
			return nil, nil, err
		}
		late, away = max(late, l), away+a
	}
	queued := s.metric("outsight_frame_queue_messages")
	took := time.Since(began)
	after, rss, err := s.usage()
	if err != nil {
		return nil, nil, err
	}
	if err := s.drained(ctx); err != nil {
		return nil, nil, err
	}
	used := after - cpu
	verdict := "held"
	if late > step || away > 0 || queued > float64(n) {
		verdict = fmt.Sprintf("overrun: %d times turned away, %.0f frames waited at the end", away, queued)
	}
	sent := float64(n * rounds)
	per := float64(used.Microseconds()) / sent
	line = []string{strconv.Itoa(n), fmt.Sprintf("%.0f", sent/took.Seconds()),
		fmt.Sprintf("%.0f %%", 100*used.Seconds()/took.Seconds()), fmt.Sprintf("%.0f µs", per),
		fmt.Sprintf("%d MiB", rss>>20), fmt.Sprintf("%.0f", float64(s.logBytes())/sent),
		late.Round(time.Millisecond).String(), verdict}
	what := fmt.Sprintf("fleet of %d agents, every 10 s: ", n)
	return line, []row{
		{what: what + "CPU of one core", value: 100 * used.Seconds() / took.Seconds(), unit: "%", detail: verdict},
		{what: what + "resident memory", value: float64(rss) / (1 << 20), unit: "MiB", detail: verdict},
	}, nil
}
