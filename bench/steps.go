package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	outsight "outsight/internal/agent"
	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/predict"
)

const (
	// loadStretches is in how many stretches of time a load is looked at.
	loadStretches = 4
	// Where durations are told, a load is looked at until lookRequests have come, at most lookLonger times as long as others: of
	// 3000 requests 30 are above p99, which is known to a fifth then if they come one by one (1 / √30).
	lookRequests, lookLonger = 3000, 2.5
)

// lookTime is for how long a load is looked at that is so many times the first one.
func lookTime(look time.Duration, rate, times float64) time.Duration {
	if times < toldFrom {
		return look
	}
	return max(look, min(time.Duration(lookRequests/rate*float64(time.Second)), time.Duration(lookLonger*float64(look))))
}

// loadStep is what was seen while an application was asked at a rate.
type loadStep struct {
	// Name says what was tried; empty for a load from which it is learnt.
	Name string `json:"name,omitempty"`
	// Asked and Served are rates per second. Idle is the share of the time in which the host's CPUs have nothing to do, Seconds
	// for how long it was looked at.
	Asked   float64 `json:"asked"`
	Served  float64 `json:"served"`
	Idle    float64 `json:"idle"`
	Seconds float64 `json:"seconds"`
	// Frames is how many there are.
	Frames int `json:"frames"`
	frames []*frame.Frame

	graph    *graph.Graph
	analysis *graph.Analysis
}

// loadRun is what was seen of an application while its load was raised: it can be saved and judged again without measuring.
type loadRun struct {
	// Prefix is that of the names of the application's containers; empty is that all are.
	Prefix string `json:"prefix"`
	// Machine says where and when it was seen.
	Machine string `json:"machine"`
	// Proof is what was used up at the highest load.
	Proof string      `json:"proof"`
	Cores float64     `json:"cores"`
	Steps []*loadStep `json:"steps"`
}

// keptUp is that what was asked for was served, but for chance: requests come at random.
func (s *loadStep) keptUp() bool { return s.Served >= saturated*s.Asked-3*math.Sqrt(s.Asked/s.Seconds) }

// usage is what a container used.
func (s *loadStep) usage(name string) *graph.Usage {
	for _, n := range s.graph.Nodes {
		if n.Name == name {
			return n.Usage
		}
	}
	return nil
}

// p99 is that of the entry in seconds, 0 where it is not known.
func (s *loadStep) p99() float64 {
	if len(s.analysis.Entries) == 0 || s.analysis.Entries[0].P99 == nil {
		return 0
	}
	return float64(*s.analysis.Entries[0].P99)
}

// add adds a step, and what is seen in it to the history, if there is one.
func (r *loadRun) add(s *loadStep, history *predict.History) error {
	s.Frames = len(s.frames)
	if s.Frames <= loadStretches {
		return fmt.Errorf("at %.0f/s there are %d frames", s.Asked, s.Frames)
	}
	r.Steps = append(r.Steps, s)
	if history != nil {
		for i := range loadStretches {
			at := func(n int) *frame.Frame { return s.frames[n*(len(s.frames)-1)/loadStretches] }
			_, a, cores := r.analysed(at(i), at(i+1))
			history.Add(a, cores, nil)
		}
	}
	s.graph, s.analysis, _ = r.analysed(s.frames[0], s.frames[len(s.frames)-1])
	progress("asked for %.0f/s, served %.0f/s, p99 %.1f ms; of a request:%s", s.Asked, s.Served, 1e3*s.p99(), s.costs())
	return nil
}

// analysed is the graph of the application between two frames, and its analysis.
func (r *loadRun) analysed(from, to *frame.Frame) (*graph.Graph, *graph.Analysis, map[string]float64) {
	g := graph.FromFrames(&frame.Window{From: from.Time, To: to.Time, Hosts: []frame.HostSpans{{Host: to.Host,
		Spans: []frame.Span{{Before: from, After: to}}}}}, graph.Options{})
	r.only(g)
	cores := map[string]float64{to.Host: r.Cores}
	return g, g.AnalyseWithConnections(cores), cores
}

// container is the name of one of the application's containers.
func (r *loadRun) container(name string) string { return r.Prefix + "-" + name }

// chanceSamples is how often the seconds of a step are drawn anew to find by how much what was seen is chance.
const chanceSamples = 100

// p99ByChance is between what p99 of a step would be in nine of ten cases if it were looked at again: of as many of its
// seconds, drawn with replacement. Requests of a second are alike, such as those behind a stall.
func (r *loadRun) p99ByChance(s *loadStep) (low, high float64) {
	random := rand.New(rand.NewPCG(1, uint64(len(s.frames))))
	all := make([]float64, 0, chanceSamples)
	for range chanceSamples {
		spans := make([]frame.Span, len(s.frames)-1)
		for i := range spans {
			at := random.IntN(len(spans))
			spans[i] = frame.Span{Before: s.frames[at], After: s.frames[at+1]}
		}
		first, last := s.frames[0], s.frames[len(s.frames)-1]
		g := graph.FromFrames(&frame.Window{From: first.Time, To: last.Time, Hosts: []frame.HostSpans{{Host: last.Host, Spans: spans}}},
			graph.Options{})
		r.only(g)
		if entries := g.Entries(); len(entries) > 0 && entries[0].P99 != nil {
			all = append(all, float64(*entries[0].P99))
		}
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return all[len(all)/20], all[len(all)-1-len(all)/20]
}

// only leaves the edges of the application's containers.
func (r *loadRun) only(g *graph.Graph) {
	if r.Prefix == "" {
		return
	}
	ours := map[string]bool{}
	for _, n := range g.Nodes {
		ours[n.ID] = strings.HasPrefix(n.Name, r.Prefix)
	}
	edges := g.Edges[:0]
	for _, e := range g.Edges {
		if ours[e.Client] || ours[e.Server] {
			edges = append(edges, e)
		}
	}
	g.Edges = edges
}

// collectFrames collects the frames of a host, from the next one on, until stop.
func collectFrames(ctx context.Context, host *outsight.Host) (stop func() []*frame.Frame, err error) {
	first := newFrame(ctx, host)
	if first == nil {
		return nil, ctx.Err()
	}
	all := []*frame.Frame{first}
	ctx, cancel := context.WithCancel(ctx)
	var collecting sync.WaitGroup
	collecting.Go(func() {
		for wait(ctx, 50*time.Millisecond) == nil {
			if f := host.Frame(); f != all[len(all)-1] {
				all = append(all, f)
			}
		}
	})
	return func() []*frame.Frame {
		cancel()
		collecting.Wait()
		return all
	}, nil
}

// newFrame waits for the next one; nil where ctx ends.
func newFrame(ctx context.Context, host *outsight.Host) *frame.Frame {
	last := host.Frame()
	for host.Frame() == last {
		if wait(ctx, 5*time.Millisecond) != nil {
			return nil
		}
	}
	return host.Frame()
}

// newLoadRun is of a host with as many CPUs as this one.
func newLoadRun(prefix string) *loadRun {
	return &loadRun{Prefix: prefix, Cores: float64(runtime.NumCPU())}
}

// save writes a run to a directory, as name.json and the frames in name.frames, each behind its length.
func (r *loadRun) save(directory, name string) (err error) {
	if r.Machine == "" {
		r.Machine = machine()
	}
	if directory == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(directory, 0o755), os.WriteFile(filepath.Join(directory, name+".json"), text, 0o644)); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(directory, name+".frames"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := bufio.NewWriter(file)
	for _, s := range r.Steps {
		for _, f := range s.frames {
			data := frame.Encode(nil, f.AsKey(), nil)
			if err := errors.Join(binary.Write(w, binary.LittleEndian, uint64(len(data))), second(w.Write(data))); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

func second[T any](_ T, err error) error { return err }

// readLoadRun reads what save wrote; its steps are not added yet.
func readLoadRun(directory, name string) (run *loadRun, steps []*loadStep, err error) {
	text, err := os.ReadFile(filepath.Join(directory, name+".json"))
	if err != nil {
		return nil, nil, err
	}
	run = &loadRun{}
	if err := json.Unmarshal(text, run); err != nil {
		return nil, nil, err
	}
	file, err := os.Open(filepath.Join(directory, name+".frames"))
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	reader := bufio.NewReader(file)
	for _, s := range run.Steps {
		for range s.Frames {
			var length uint64
			if err := binary.Read(reader, binary.LittleEndian, &length); err != nil {
				return nil, nil, err
			}
			data := make([]byte, length)
			if _, err := io.ReadFull(reader, data); err != nil {
				return nil, nil, err
			}
			f, err := frame.Decode(data, nil)
			if err != nil {
				return nil, nil, err
			}
			s.frames = append(s.frames, f)
		}
	}
	steps, run.Steps = run.Steps, nil
	return run, steps, nil
}

// costs writes what a request at the entries took of each resource in a step: CPU time, which part of it was polling, and how
// many threads waited for a CPU on average.
func (s *loadStep) costs() string {
	var text strings.Builder
	for _, r := range slices.SortedFunc(slices.Values(s.analysis.Resources), func(a, b graph.Resource) int { return cmp.Compare(a.Name, b.Name) }) {
		perRequest := func(cores float64) float64 { return 1e6 * cores / s.analysis.ArrivalRate }
		fmt.Fprintf(&text, "\n    %-28s %5.0f us a request, %4.0f of them polling; %.3f of %.3g cores, %.3f threads wait", r.Name,
			perRequest(r.CPUCores), perRequest(r.PollingCores), r.CPUCores, r.Parallel, r.Queued)
	}
	return text.String()
}
