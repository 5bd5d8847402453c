// Package clickhouse holds the log of frames in ClickHouse against frames in memory, in real engines.
package clickhouse

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/framelog/clickhouse"
)

const tenant = "it's a \\tenant"

// stored is what was given to a log: the frames of each host, by time.
type stored struct {
	hosts  []string
	frames map[string][]*frame.Frame
	all    []framelog.Encoded
	times  []time.Time
}

// record makes frames of two hosts over six minutes. The agent of the second restarts.
func record(start time.Time) *stored {
	s := &stored{hosts: []string{"a'host", "b\\host"}, frames: map[string][]*frame.Frame{}}
	for i, host := range s.hosts {
		h := newHistory(host, uint64(i+1), start.Add(-time.Hour))
		h.restart(start)
		for second := 0; second < 360; second += 3 {
			now := start.Add(time.Duration(second)*time.Second + time.Duration(i)*time.Millisecond)
			if i == 1 && second == 150 {
				h.restart(now)
			}
			f := h.step(now)
			s.frames[host] = append(s.frames[host], f)
			s.all = append(s.all, h.encode(tenant, f))
		}
	}
	slices.SortStableFunc(s.all, func(x, y framelog.Encoded) int { return x.Time.Compare(y.Time) })
	return s
}

// newest is the newest frame of an epoch that is no later than a time.
func (s *stored) newest(host string, epoch uint64, at time.Time) (found *frame.Frame) {
	for _, f := range s.frames[host] {
		if f.Epoch == epoch && !f.Time.After(at) {
			found = f
		}
	}
	return found
}

// window is what a log is to answer.
func (s *stored) window(from, to time.Time) *frame.Window {
	w := &frame.Window{From: from, To: to}
	for _, host := range s.hosts {
		of := frame.HostSpans{Host: host}
		var epochs []uint64
		for _, f := range s.frames[host] {
			if !slices.Contains(epochs, f.Epoch) && !f.Time.After(to) {
				epochs = append(epochs, f.Epoch)
			}
		}
		for i, epoch := range epochs {
			before, after := s.newest(host, epoch, from), s.newest(host, epoch, to)
			if before == nil && i == 0 {
				before = s.frames[host][0]
			}
			if before == after && i < len(epochs)-1 {
				continue
			}
			of.Spans = append(of.Spans, frame.Span{Before: before, After: after})
		}
		if len(of.Spans) > 0 {
			w.Hosts = append(w.Hosts, of)
		}
	}
	return w
}

func TestWindows(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			address := engine.start(t)
			first := open(t, address+"outsight", clickhouse.Options{})
			second := open(t, address+"outsight", clickhouse.Options{})
			s := record(time.Now().Truncate(time.Minute).Add(-10 * time.Minute))
			// Two servers store batches in turn, and each batch that the first one stored is redelivered to the second.
			for i, batch := range batches(s.all, 37) {
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
			start := s.all[0].Time
			times := []time.Time{start.Add(-time.Second)}
			for _, seconds := range []int{1, 44, 45, 61, 149, 151, 290, 1000} {
				times = append(times, start.Add(time.Duration(seconds)*time.Second))
			}
			for _, moments := range [][]time.Time{times, {times[1], times[8]}, {times[2], times[3]}} {
				checkWindows(t, second, s, moments)
			}
			hosts, err := first.Hosts(t.Context(), tenant)
			if err != nil || len(hosts) != 2 || hosts[0].Name != s.hosts[0] || !hosts[0].First.Equal(start) ||
				!hosts[1].Last.Equal(s.all[len(s.all)-1].Time) {
				t.Errorf("hosts: %+v %v", hosts, err)
			}
			if stats := first.Stats(); stats.Frames != len(s.all) || stats.Hosts != 2 || stats.Bytes == 0 {
				t.Errorf("stats: %+v, want %d frames", stats, len(s.all))
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

func checkWindows(t *testing.T, l framelog.Log, s *stored, times []time.Time) {
	t.Helper()
	n := 0
	for w, err := range l.Windows(t.Context(), framelog.Query{Tenant: tenant, Times: times}) {
		if err != nil {
			t.Fatal(err)
		}
		want := s.window(times[n], times[n+1])
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
	}
	if n != len(times)-1 {
		t.Errorf("%d windows, want %d", n, len(times)-1)
	}
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
	for c := range info.Columns {
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
	for h := range info.Histograms {
		var n, m frame.Durations
		n.Reset()
		m.Reset()
		x.AddHistogram(&n, h, row)
		y.AddHistogram(&m, h, row)
		if n != m || x.Gained(h, row) != y.Gained(h, row) {
			return fmt.Sprintf("%s gained %d in %d ns, want %d in %d", info.Histograms[h].Name, n.Count, n.SumNS, m.Count, m.SumNS)
		}
		if (x.After.Histograms[h].At(row) == nil) != (y.After.Histograms[h].At(row) == nil) {
			return info.Histograms[h].Name + " is not known, or should not be"
		}
	}
	return ""
}
