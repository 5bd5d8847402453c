// Package clickhouse holds the log of frames in ClickHouse against frames in memory, in real engines.
package clickhouse

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/framelog/clickhouse"
	"outsight/internal/graph"
	"outsight/internal/model"
)

const tenant = "it's a \\tenant"

// record makes frames of two hosts over six minutes, in the order of their times. The agent of the second restarts.
func record(start time.Time) (all []framelog.Encoded) {
	for i, host := range []string{"a'host", "b\\host"} {
		h := newHistory(host, uint64(i+1), start.Add(-time.Hour))
		h.restart(start)
		for second := 0; second < 360; second += 3 {
			now := start.Add(time.Duration(second)*time.Second + time.Duration(i)*time.Millisecond)
			if i == 1 && second == 150 {
				h.restart(now)
			}
			all = append(all, h.encode(tenant, h.step(now)))
		}
	}
	slices.SortStableFunc(all, func(x, y framelog.Encoded) int { return x.Time.Compare(y.Time) })
	return all
}

// files is the embedded log with the same frames.
func files(t *testing.T, all []framelog.Encoded) framelog.Log {
	t.Helper()
	l, err := framelog.Open(t.TempDir(), framelog.Options{TidyEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for batch := range slices.Chunk(all, 50) {
		if err := l.Append(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestWindows(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			address := engine.start(t).address + "outsight"
			first, second := open(t, address, clickhouse.Options{}), open(t, address, clickhouse.Options{})
			all := record(time.Now().Truncate(time.Minute).Add(-10 * time.Minute))
			// Two servers store batches in turn, and each batch that the first one stored is redelivered to the second.
			for i, batch := range batches(all, 37) {
				of := first
				if i%3 == 2 {
					of = second
				}
				if err := of.Append(t.Context(), batch); err != nil {
					t.Fatal(err)
				}
				if i%3 == 1 {
					if err := second.Append(t.Context(), batch); err != nil {
						t.Fatal(err)
					}
				}
			}
			want := files(t, all)
			start := all[0].Time
			times := []time.Time{start.Add(-time.Second)}
			for _, seconds := range []int{1, 44, 61, 149, 151, 1000} {
				times = append(times, start.Add(time.Duration(seconds)*time.Second))
			}
			for _, moments := range [][]time.Time{times, {times[1], times[6]}} {
				checkWindows(t, second, want, framelog.Query{Tenant: tenant, Times: moments})
			}
			checkWindows(t, first, want, framelog.Query{Tenant: tenant, Times: []time.Time{times[1], times[5]}, Hosts: []string{"a'host"},
				Only: frame.NewProjection(map[frame.TableID][]string{frame.Containers: {"cpu", "run_queue"}, frame.Edges: nil})})
			hosts, err := first.Hosts(t.Context(), tenant)
			wantHosts, wantErr := want.Hosts(t.Context(), tenant)
			if err != nil || wantErr != nil || len(hosts) != 2 || fmt.Sprint(hosts) != fmt.Sprint(wantHosts) {
				t.Errorf("hosts: %+v %v, want %+v", hosts, err, wantHosts)
			}
			if stats := first.Stats(); stats.Frames != len(all) || stats.Hosts != 2 || stats.Bytes == 0 {
				t.Errorf("stats: %+v, want %d frames", stats, len(all))
			}
			newest, err := first.Newest(t.Context(), tenant)
			if err != nil {
				t.Fatal(err)
			}
			wantNewest, err := want.Newest(t.Context(), tenant)
			if err != nil || len(newest) != 2 || len(wantNewest) != 2 {
				t.Fatalf("%d newest frames, want %d: %v", len(newest), len(wantNewest), err)
			}
			for i := range newest {
				if text := differs(frame.Span{After: newest[i]}, frame.Span{After: wantNewest[i]}); text != "" {
					t.Errorf("the newest frame of %s: %s", wantNewest[i].Host, text)
				}
			}
		})
	}
}

func open(t *testing.T, address string, o clickhouse.Options) *clickhouse.Log {
	t.Helper()
	l, err := clickhouse.Open(address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func batches(all []framelog.Encoded, size int) (some [][]framelog.Encoded) {
	for batch := range slices.Chunk(all, size) {
		some = append(some, batch)
	}
	return some
}

// checkWindows holds the windows of a log against those of another, and the maps that are made of them.
func checkWindows(t *testing.T, l, of framelog.Log, q framelog.Query) {
	t.Helper()
	next, stop := iter.Pull2(of.Windows(t.Context(), q))
	defer stop()
	n := 0
	for w, err := range l.Windows(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		want, err, ok := next()
		if err != nil || !ok {
			t.Fatal(err, ok)
		}
		n++
		if len(w.Hosts) != len(want.Hosts) {
			t.Fatalf("window %d has %d hosts, want %d", n, len(w.Hosts), len(want.Hosts))
		}
		for i := range w.Hosts {
			got, want := w.Hosts[i], want.Hosts[i]
			if got.Host != want.Host || len(got.Spans) != len(want.Spans) {
				t.Fatalf("window %d: %s has %d spans, want %d of %s", n, got.Host, len(got.Spans), len(want.Spans), want.Host)
			}
			for k := range got.Spans {
				if text := differs(got.Spans[k], want.Spans[k]); text != "" {
					t.Fatalf("window %d, %s, span %d: %s", n, got.Host, k, text)
				}
			}
		}
		for _, by := range []graph.Grouping{graph.ByContainer, graph.ByProcess, graph.ByHost} {
			if got, want := mapOf(t, w, by), mapOf(t, want, by); got != want {
				t.Errorf("window %d: the map by %s is\n%s\nwant\n%s", n, by, got, want)
			}
		}
	}
	if n != len(q.Times)-1 {
		t.Errorf("%d windows, want %d", n, len(q.Times)-1)
	}
}

func mapOf(t *testing.T, w *frame.Window, by graph.Grouping) string {
	t.Helper()
	text, err := graph.JSON(graph.FromFrames(w, graph.Options{By: by}))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// differs says in what two spans differ, that is, in what they tell of the window.
func differs(got, want frame.Span) string {
	if !sameHeader(got.After, want.After) || !sameHeader(got.Before, want.Before) {
		return "its frames are others"
	}
	if (got.Before == got.After) != (want.Before == want.After) {
		return "it is not of one frame"
	}
	for t := range frame.NumTables {
		x, y := frame.Since(t, got.Before, got.After), frame.Since(t, want.Before, want.After)
		if !slices.Equal(x.After.IDs, y.After.IDs) || !slices.Equal(x.Before.IDs, y.Before.IDs) {
			return frame.Schema[t].Name + " has other rows"
		}
		for row, id := range x.After.IDs {
			if text := rowDiffers(t, got, want, x, y, row); text != "" {
				return fmt.Sprintf("row %d of %s: %s", id, frame.Schema[t].Name, text)
			}
		}
	}
	return ""
}

func sameHeader(x, y *frame.Frame) bool {
	if x == nil || y == nil {
		return x == y
	}
	return x.Host == y.Host && x.Epoch == y.Epoch && x.Boot == y.Boot && x.Number == y.Number && x.Key == y.Key &&
		x.Time.Equal(y.Time) && x.ClockError == y.ClockError
}

func sameDurations(x, y *frame.Durations) bool {
	for bucket := int32(model.MinBucket); bucket <= model.MaxBucket; bucket++ {
		if x.At(bucket) != y.At(bucket) {
			return false
		}
	}
	return x.Count == y.Count && x.SumNS == y.SumNS && x.Zero == y.Zero && x.Overflow == y.Overflow
}

func rowDiffers(t frame.TableID, got, want frame.Span, x, y *frame.Difference, row int) string {
	info := &frame.Schema[t]
	for a := range info.Attributes {
		n, m := x.After.Attributes[a][row], y.After.Attributes[a][row]
		if info.Attributes[a].Kind == frame.Text {
			if g, w := got.After.Strings[n], want.After.Strings[m]; g != w {
				return fmt.Sprintf("%s is %q, want %q", info.Attributes[a].Name, g, w)
			}
		} else if n != m {
			return fmt.Sprintf("%s is %d, want %d", info.Attributes[a].Name, n, m)
		}
	}
	if b := x.BeforeRow[row]; b >= 0 && len(info.Columns) > 0 && t != frame.Hosts &&
		x.Before.Attributes[frame.State][b] != y.Before.Attributes[frame.State][b] {
		return "its state was another one"
	}
	for c := range x.After.Columns {
		n, ok := x.Gain(c, row)
		m, known := y.Gain(c, row)
		if n != m || ok != known {
			return fmt.Sprintf("%s gained %d %v, want %d %v", info.Columns[c].Name, n, ok, m, known)
		}
		if k := info.Columns[c].Kind; k == frame.Counter && !info.Columns[c].File || k == frame.Integral {
			continue
		}
		n, ok = x.After.Columns[c].At(row)
		m, known = y.After.Columns[c].At(row)
		if n != m || ok != known {
			return fmt.Sprintf("%s is %d %v, want %d %v", info.Columns[c].Name, n, ok, m, known)
		}
	}
	for h := range x.After.Histograms {
		var n, m frame.Durations
		n.Reset()
		m.Reset()
		x.AddHistogram(&n, h, row)
		y.AddHistogram(&m, h, row)
		if !sameDurations(&n, &m) || x.Gained(h, row) != y.Gained(h, row) {
			return fmt.Sprintf("%s gained %d in %d ns, want %d in %d", info.Histograms[h].Name, n.Count, n.SumNS, m.Count, m.SumNS)
		}
		if (x.After.Histograms[h].At(row) == nil) != (y.After.Histograms[h].At(row) == nil) {
			return info.Histograms[h].Name + " is not known, or should not be"
		}
	}
	return ""
}
