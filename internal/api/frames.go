package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/graph"
)

// errNoLog says that there are no frames to answer from.
var errNoLog = errors.New("this server keeps no frames")

// windowData is what the log holds of a window.
type windowData struct {
	window *frame.Window
	// known are its hosts, once they have been read.
	known []fleet.Host
}

// What is read of frames: for a graph with its hosts and its completeness, for an analysis, and for a list of services.
var (
	graphColumns    = withFleet(graph.Columns())
	analysisColumns = withFleet(graph.AnalysisColumns())
	servicesColumns = withFleet(graph.ServiceColumns())
)

// withFleet adds what package fleet reads. Of Labelled that are drops and the agent's version, which are counters.
func withFleet(columns map[frame.TableID][]string) *frame.Projection {
	columns[frame.Hosts], columns[frame.Labelled] = nil, []string{frame.Schema[frame.Labelled].Columns[0].Name}
	return frame.NewProjection(columns)
}

// withProbes adds all of Labelled.
func withProbes(columns map[frame.TableID][]string) *frame.Projection {
	columns[frame.Hosts], columns[frame.Labelled] = nil, nil
	return frame.NewProjection(columns)
}

// windows reads the windows between moments, and visits one after the other.
func (s *server) windows(ctx context.Context, times []time.Time, hosts []string,
	visit func(i int, w *frame.Window) error) error {
	return s.windowsOf(ctx, framelog.Query{Times: times, Hosts: hosts}, visit)
}

// framesOf is the tenant whose frames are read.
func (s *server) framesOf() string { return cmp.Or(s.Tenant, s.FramesOf) }

// windowsOf reads the windows of a query.
func (s *server) windowsOf(ctx context.Context, q framelog.Query, visit func(i int, w *frame.Window) error) error {
	if s.Log == nil {
		return errNoLog
	}
	i, times := 0, q.Times
	q.Tenant = s.framesOf()
	for w, err := range s.Log.Windows(ctx, q) {
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
	return s.readOnly(ctx, from, to, hosts, nil)
}

// readOnly reads some columns of one window; nil for all. It is good until the request's answer is encoded.
func (s *server) readOnly(ctx context.Context, from, to time.Time, hosts []string,
	only *frame.Projection) (*windowData, error) {
	data := &windowData{window: &frame.Window{From: from, To: to}}
	q := framelog.Query{Times: []time.Time{from, to}, Hosts: hosts, Only: only}
	if h := heldOf(ctx); h != nil {
		q.Memory = &h.memory
	}
	err := s.windowsOf(ctx, q, func(_ int, w *frame.Window) error {
		data.window = w
		return nil
	})
	return data, err
}

// graphOf is the graph of a window.
func (s *server) graphOf(w *frame.Window, o graph.Options) *graph.Graph {
	o.Names = s.Names
	return graph.FromFrames(w, o)
}

// hosts are those of the window, in order of their names.
func (d *windowData) hosts() []fleet.Host {
	if d.known == nil {
		d.known = fleet.Hosts(d.window)
	}
	return d.known
}

// cores is how many CPUs each host has.
func (d *windowData) cores() map[string]float64 {
	cores := map[string]float64{}
	for _, h := range d.hosts() {
		cores[h.Name] = h.Cores
	}
	return cores
}

// completeness is how much of what happened the graph of the window has.
func (d *windowData) completeness(g *graph.Graph) fleet.Completeness {
	return fleet.CompletenessOf(d.window, g.Unplaced != nil)
}
