package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/graph"
)

// errNoLog says that there are no frames to answer from.
var errNoLog = errors.New("this server keeps no frames")

// windowData is what the log holds of a window.
type windowData struct {
	from, to time.Time
	window   *frame.Window
	// rows are the labelled rows that losses are made of, once they have been read.
	rows []labelledRow
}

// windows reads the windows between moments, and visits one after the other.
func (s *server) windows(ctx context.Context, times []time.Time, hosts []string,
	visit func(i int, w *frame.Window) error) error {
	if s.Log == nil {
		return errNoLog
	}
	i := 0
	for w, err := range s.Log.Windows(ctx, framelog.Query{Tenant: s.Tenant, Times: times, Hosts: hosts}) {
		if err != nil {
			return fmt.Errorf("reading the frames from %s to %s: %w", times[0].Format(time.RFC3339),
				times[len(times)-1].Format(time.RFC3339), err)
		}
		if err := visit(i, w); err != nil {
			return err
		}
		i++
	}
	return ctx.Err()
}

// read reads one window.
func (s *server) read(ctx context.Context, from, to time.Time, hosts []string) (*windowData, error) {
	data := &windowData{from: from, to: to, window: &frame.Window{From: from, To: to}}
	err := s.windows(ctx, []time.Time{from, to}, hosts, func(_ int, w *frame.Window) error {
		data.window = w
		return nil
	})
	return data, err
}

// graphOf is the graph of a window, with at most so many edges. Its memory is the request's.
func (s *server) graphOf(ctx context.Context, w *frame.Window, by graph.Grouping, edges int) *graph.Graph {
	g := graph.FromFrames(w, graph.Options{By: by, MaxEdges: edges})
	if h := heldOf(ctx); h != nil {
		h.all = append(h.all, g)
	}
	return g
}

// newest are the newest spans of the hosts that were heard of in the window.
func (d *windowData) newest() []newestSpan {
	var all []newestSpan
	for i := range d.window.Hosts {
		h := &d.window.Hosts[i]
		if n := len(h.Spans); n > 0 && len(h.Spans[n-1].After.Tables[frame.Hosts].IDs) > 0 {
			all = append(all, newestSpan{h, h.Spans[n-1].After})
		}
	}
	return all
}

// newestSpan is a host and its newest frame.
type newestSpan struct {
	*frame.HostSpans
	frame *frame.Frame
}

// observed is how much of the window was observed of the host.
func observed(h *frame.HostSpans) time.Duration {
	if len(h.Spans) == 0 {
		return 0
	}
	first := h.Spans[0].Before
	if first == nil {
		first = h.Spans[0].After
	}
	return max(h.Spans[len(h.Spans)-1].After.Time.Sub(first.Time), 0)
}

// hostLevel is a level of a host, nil where it could not be had.
func hostLevel(f *frame.Frame, column int) *float64 {
	v, ok := hostValue(f, column)
	if !ok {
		return nil
	}
	return &v
}

// hostValue is what a column of a host is, in the metric's unit.
func hostValue(f *frame.Frame, column int) (float64, bool) {
	t := &f.Tables[frame.Hosts]
	if len(t.IDs) == 0 || column >= len(t.Columns) {
		return 0, false
	}
	n, ok := t.Columns[column].At(0)
	return inUnit(&frame.Schema[frame.Hosts].Columns[column], n), ok
}

// inUnit is a value of a column in the metric's unit.
func inUnit(c *frame.ColumnInfo, n uint64) float64 {
	if c.Kind == frame.LevelFloat {
		return fromBits(n) / c.Per
	}
	return float64(n) / c.Per
}

// hostGain is what a counter of a host gained in the window; ok is false where it could not be had.
func hostGain(h *frame.HostSpans, column int) (sum float64, ok bool) {
	for i := range h.Spans {
		span := &h.Spans[i]
		if n, known := frame.Since(frame.Hosts, beforeOf(h, i), span.After).Gain(column, 0); known {
			sum, ok = sum+float64(n), true
		}
	}
	return sum / frame.Schema[frame.Hosts].Columns[column].Per, ok
}

// beforeOf is what a span's counters are counted from: nil where they began at 0 in it.
func beforeOf(h *frame.HostSpans, span int) *frame.Frame {
	if before := h.Spans[span].Before; before != nil || span > 0 {
		return before
	}
	return h.Spans[span].After // when its counters began is not in the window
}

// hostRate is by how much a counter of a host grew per second; nil where that is not known.
func hostRate(h *frame.HostSpans, column int) *float64 {
	seconds := observed(h).Seconds()
	sum, ok := hostGain(h, column)
	if !ok || seconds <= 0 {
		return nil
	}
	sum /= seconds
	return &sum
}
