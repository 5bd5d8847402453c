package parquet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

var start = time.Date(2026, 11, 24, 12, 40, 0, 0, time.UTC)

const minutes = 55

// simulate makes the key frames of a host whose containers are replaced all the time. Its agent restarts once if restart
// is a minute.
func simulate(host string, seed uint64, restart int) (all []*frame.Frame) {
	r := rand.New(rand.NewPCG(seed, 7))
	b, made := frame.NewBuilder(start), 0
	var edges []*model.Edge
	cpu := map[string]uint64{}
	add := func(i int) *model.Edge {
		made++
		c := &model.Container{ID: fmt.Sprintf("%s-%d", host, made), Name: fmt.Sprint("job-", i%3),
			PodNamespace: "shop", PodName: fmt.Sprint("cart-", i%2)}
		return &model.Edge{Instance: uint64(made), Side: model.RoleClient + model.Role(i%2),
			Client: model.Peer{Container: c, Process: fmt.Sprint("worker-", i%2)}, Server: model.Peer{Process: "db"}}
	}
	for i := range 6 {
		edges = append(edges, add(i))
	}
	for minute := range minutes {
		if minute == restart {
			b = frame.NewBuilder(start.Add(time.Duration(minute)*time.Minute - time.Second))
			for _, e := range edges {
				e.Counters = model.EdgeCounters{}
				cpu[e.Client.Container.ID] = 0
			}
		}
		if minute%3 == 2 {
			i := r.IntN(len(edges))
			edges[i] = add(i)
		}
		s := &model.Snapshot{Time: start.Add(time.Duration(minute) * time.Minute), Host: model.Host{Name: host}}
		for _, e := range edges {
			e.Counters.SentBytes += r.Uint64N(1000)
			e.Counters.ReceivedBytes += r.Uint64N(5000)
			latency := &model.Histogram{}
			latency.Merge(e.Counters.Latency)
			for range 1 + r.IntN(5) {
				one := time.Duration(1+r.IntN(1000)) * time.Millisecond
				latency.Merge(&model.Histogram{Count: 1, SumNS: uint64(one), Offset: model.BucketOf(one), Buckets: []uint64{1}})
			}
			e.Counters.Latency = latency
			cpu[e.Client.Container.ID] += r.Uint64N(1e9)
			s.Containers = append(s.Containers, model.ContainerSample{Container: e.Client.Container,
				CPU: &model.CPUCounters{UsageNS: cpu[e.Client.Container.ID]}})
			s.Edges = append(s.Edges, *e)
		}
		all = append(all, b.Build(s))
	}
	return all
}

// TestQueriesPage runs the SQL of docs/queries.md in DuckDB over the Parquet files of hosts with churn, and compares the
// answers with the differences of frames.
func TestQueriesPage(t *testing.T) {
	dir := t.TempDir()
	hosts := [][]*frame.Frame{simulate("host-1", 1, -1), simulate("host-2", 2, 30), simulate("host-3", 3, -1)[25:]}
	for _, frames := range hosts {
		for _, hour := range []time.Time{start.Truncate(time.Hour), start.Truncate(time.Hour).Add(time.Hour)} {
			_, err := Write(filepath.Join(dir, "history"), frames[0].Host, hour, func(yield func(*frame.Frame, error) bool) {
				for _, f := range frames {
					if f.Time.Truncate(time.Hour).Equal(hour) && !yield(f, nil) {
						return
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	removed := 0
	for _, window := range [][2]time.Duration{{20, 50}, {22, 24}, {5, 45}} {
		since, until := start.Add(window[0]*time.Minute), start.Add(window[1]*time.Minute)
		for _, span := range spans(hosts[0], since, until) {
			d := frame.Since(frame.Edges, span.Before, span.After)
			for row := range d.After.IDs {
				if d.HasRemoved(row) {
					removed++
				}
			}
		}
		got := runPage(t, dir, since, until)
		want := expected(hosts, since, until)
		for _, answers := range [][][][]any{got, want} { // rows that are equal are in no order
			for _, rows := range answers {
				slices.SortFunc(rows, func(a, b []any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got\n%v\nwant\n%v", window, got, want)
		}
		for i, rows := range got {
			if len(rows) == 0 {
				t.Errorf("%v: query %d has no answer", window, i)
			}
		}
	}
	if removed == 0 {
		t.Error("no row was added to another one in a window")
	}
}

func runPage(t *testing.T, dir string, since, until time.Time) (answers [][][]any) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/queries.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ = bytes.Cut(page, []byte("## SQL"))
	var sql strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(page, -1) {
		sql.Write(block[1])
	}
	text := sql.String()
	for name, at := range map[string]time.Time{"since": since, "until": until} {
		text = regexp.MustCompile(`(SET VARIABLE `+name+` = TIMESTAMP) '[^']*'`).ReplaceAllString(text,
			"$1 '"+at.Format(time.DateTime)+"'")
	}
	if err := os.WriteFile(filepath.Join(dir, "page.sql"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	python, err := exec.Command("../../../scripts/python").Output()
	if err != nil {
		t.Fatalf("scripts/python: %v", err)
	}
	script, err := filepath.Abs("testdata/run_sql.py")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(strings.TrimSpace(string(python)), script, "page.sql")
	command.Dir, command.Stderr = dir, os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var rows [][]any
		if err := d.Decode(&rows); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, rows)
	}
	// The bound in seconds follows from the bucket.
	for i, row := range answers[len(answers)-1] {
		answers[len(answers)-1][i] = row[:4]
	}
	return answers
}

// spans are the frames of a window, as framelog.Log finds them.
func spans(frames []*frame.Frame, since, until time.Time) (all []frame.Span) {
	byEpoch := map[uint64][]*frame.Frame{}
	var epochs []uint64
	for _, f := range frames {
		if byEpoch[f.Epoch] == nil {
			epochs = append(epochs, f.Epoch)
		}
		byEpoch[f.Epoch] = append(byEpoch[f.Epoch], f)
	}
	for _, epoch := range epochs {
		var span frame.Span
		for _, f := range byEpoch[epoch] {
			if !f.Time.After(until) {
				span.After = f
			}
			if !f.Time.After(since) {
				span.Before = f
			}
		}
		if span.After == nil || span.After.Time.Before(since.Add(-5*time.Minute)) {
			continue
		}
		if span.Before == nil && len(all) == 0 {
			span.Before = byEpoch[epoch][0]
		}
		all = append(all, span)
	}
	return all
}

// expected are the answers to the page's queries.
func expected(hosts [][]*frame.Frame, since, until time.Time) [][][]any {
	processes, byHost, pods, slow := map[[4]string]float64{}, map[string]float64{}, [][]any{}, map[[2]string]*frame.Durations{}
	for _, frames := range hosts {
		for _, span := range spans(frames, since, until) {
			f := span.After
			d := frame.Since(frame.Edges, span.Before, f)
			for row := range d.After.IDs {
				in, _ := d.Gain(frame.Column(frame.Edges, "request_bytes"), row)
				out, _ := d.Gain(frame.Column(frame.Edges, "response_bytes"), row)
				byHost[f.Host] += float64(in + out)
				if d.After.Attribute(frame.EdgeSide, row) != uint64(model.RoleClient) {
					continue
				}
				client := nameOf(f, uint32(d.After.Attribute(frame.EdgeClient, row)))
				server := nameOf(f, uint32(d.After.Attribute(frame.EdgeServer, row)))
				processes[[4]string{client, f.Text(frame.Edges, frame.EdgeClientProcess, row), server,
					f.Text(frame.Edges, frame.EdgeServerProcess, row)}] += float64(in + out)
				key := [2]string{client, server}
				if slow[key] == nil {
					slow[key] = &frame.Durations{}
				}
				d.AddHistogram(slow[key], frame.Histogram(frame.Edges, "latency"), row)
			}
			c := frame.Since(frame.Containers, span.Before, f)
			for row := range c.After.IDs {
				text := func(a frame.Attribute) any { return f.Text(frame.Containers, a, row) }
				if text(frame.ContainerPod) != "cart-0" {
					continue
				}
				cpu, _ := c.Gain(frame.Column(frame.Containers, "cpu"), row)
				pods = append(pods, []any{f.Host, text(frame.ContainerNamespace), text(frame.ContainerPod),
					text(frame.ContainerName), text(frame.ContainerKey), stateName(c.After.Attribute(frame.State, row)), float64(cpu)})
			}
		}
	}
	answers := make([][][]any, 4)
	for k, n := range processes {
		answers[0] = append(answers[0], []any{orNull(k[0]), k[1], orNull(k[2]), k[3], n})
	}
	for host, n := range byHost {
		answers[1] = append(answers[1], []any{host, n})
	}
	answers[2] = pods
	for k, h := range slow {
		if h.Count > 0 {
			answers[3] = append(answers[3], []any{orNull(k[0]), orNull(k[1]), float64(h.Count), percentile99(h)})
		}
	}
	return answers
}

func nameOf(f *frame.Frame, container uint32) string {
	row, ok := f.Tables[frame.Containers].Find(container)
	if !ok {
		return ""
	}
	return f.Text(frame.Containers, frame.ContainerName, row)
}

// orNull is a name as SQL has it: null where there is no container.
func orNull(name string) any {
	if name == "" {
		return nil
	}
	return name
}

func percentile99(h *frame.Durations) float64 {
	passed := uint64(0)
	for bucket := h.First; bucket <= h.Last; bucket++ {
		if passed += h.At(bucket); passed*100 >= h.Count*99 {
			return float64(bucket)
		}
	}
	return 0
}
