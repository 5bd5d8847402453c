package fleet

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// Probe is what was measured of the network between two hosts, by the one that sends, or between two containers of theirs.
type Probe struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Client and Server are the names of the containers, on From and on To, in whose own network namespaces the packets were
	// sent and reflected; empty between hosts.
	Client string `json:"client,omitempty"`
	Server string `json:"server,omitempty"`
	// DSCP is the class of service of the packets, Reflector where the other host answers, and IntervalSeconds the time
	// between two packets: of a session that runs.
	DSCP            int      `json:"dscp"`
	Reflector       string   `json:"reflector,omitempty"`
	IntervalSeconds *float64 `json:"interval_seconds,omitempty"`
	// Running says that the session ran at the end of the window; Answered that one of the last packets then was.
	Running  bool `json:"running"`
	Answered bool `json:"answered"`
	// Sent packets of the window are those of which it is known what became of them. LostThere and LostBack are those of
	// Lost of which it is known in which direction.
	Sent           uint64   `json:"sent"`
	Lost           uint64   `json:"lost"`
	LostThere      uint64   `json:"lost_there"`
	LostBack       uint64   `json:"lost_back"`
	LossRatio      *float64 `json:"loss_ratio,omitempty"`
	Duplicates     uint64   `json:"duplicates"`
	ReorderedThere uint64   `json:"reordered_there"`
	ReorderedBack  uint64   `json:"reordered_back"`
	// JitterSeconds is by how much two consecutive round trips differ, on average.
	RoundTrip     *Delay   `json:"round_trip,omitempty"`
	JitterSeconds *float64 `json:"jitter_seconds,omitempty"`
	// There and Back are one-way delays, off by ClockErrorSeconds at most; nil where not both clocks are kept.
	There             *Delay   `json:"there,omitempty"`
	Back              *Delay   `json:"back,omitempty"`
	ClockErrorSeconds *float64 `json:"clock_error_seconds,omitempty"`
	// AboveThere and AboveBack are by how much packets took longer than the fastest of the last minute in their direction.
	AboveThere *Delay `json:"above_minimum_there,omitempty"`
	AboveBack  *Delay `json:"above_minimum_back,omitempty"`
	// Route has the addresses of the routers between the hosts, as model.Route writes them, and Hops is one more than their
	// number: of a session that runs. RouteChanges is how often they were others in the window.
	Route        string `json:"route,omitempty"`
	Hops         int    `json:"hops,omitempty"`
	RouteChanges uint64 `json:"route_changes"`
}

// Delay is how long packets took, in seconds.
type Delay struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
}

func delayOf(h *model.Histogram) *Delay {
	if h.Count == 0 {
		return nil
	}
	// What takes longer is lost.
	quantile := func(q float64) float64 { return min(h.Quantile(q), model.OverflowThreshold.Seconds()) }
	return &Delay{h.Count, h.Mean(), quantile(0.5), quantile(0.9), quantile(0.99)}
}

// ProbeColumns are what Probes reads of frames.
var ProbeColumns = frame.NewProjection(map[frame.TableID][]string{frame.Labelled: nil})

// probeMetrics are the metrics of a kind of sessions that are read.
type probeMetrics struct {
	prefix     string
	containers bool
}

var (
	hostProbes      = probeMetrics{"outsight_probe_", false}
	containerProbes = probeMetrics{"outsight_container_probe_", true}
)

// name is that of a metric of the kind.
func (m probeMetrics) name(of string) string {
	if m.containers {
		return metric(m.prefix+of, "client")
	}
	return metric(m.prefix+of, "peer")
}

// probeKey is which session of a host it is.
type probeKey struct{ peer, dscp, client, server string }

// session is that of labels, and more what comes behind those that every metric of the kind has.
func (m probeMetrics) session(labels []string) (key probeKey, more string) {
	if m.containers {
		return probeKey{peer: labels[2], dscp: "0", client: labels[0], server: labels[1]}, labels[3]
	}
	return probeKey{peer: labels[0], dscp: labels[1]}, labels[2]
}

// each calls f for the rows of a metric of the kind in a frame.
func (m probeMetrics) each(f *frame.Frame, of string, each func(row int, key probeKey, more string)) {
	eachLabelled(f, m.name(of), func(row int, labels []string) {
		key, more := m.session(labels)
		each(row, key, more)
	})
}

// The metrics that are read: counters and histograms by where they go.
var (
	probeCounters = map[string]func(p *probeSums, direction string) *uint64{
		"sent_packets_total":      func(p *probeSums, _ string) *uint64 { return &p.Sent },
		"lost_packets_total":      func(p *probeSums, _ string) *uint64 { return &p.Lost },
		"duplicate_packets_total": func(p *probeSums, _ string) *uint64 { return &p.Duplicates },
		"route_changes_total":     func(p *probeSums, _ string) *uint64 { return &p.RouteChanges },
		"lost_one_way_packets_total": func(p *probeSums, d string) *uint64 {
			return ofDirection(d, &p.LostThere, &p.LostBack)
		},
		"reordered_packets_total": func(p *probeSums, d string) *uint64 {
			return ofDirection(d, &p.ReorderedThere, &p.ReorderedBack)
		},
	}
	probeHistograms = map[string]func(p *probeSums, direction string) *model.Histogram{
		"round_trip_duration_seconds":  func(p *probeSums, _ string) *model.Histogram { return &p.roundTrip },
		"round_trip_variation_seconds": func(p *probeSums, _ string) *model.Histogram { return &p.variation },
		"one_way_duration_seconds": func(p *probeSums, d string) *model.Histogram {
			return ofDirection(d, &p.there, &p.back)
		},
		"above_minimum_duration_seconds": func(p *probeSums, d string) *model.Histogram {
			return ofDirection(d, &p.aboveThere, &p.aboveBack)
		},
	}
)

func ofDirection[T any](direction string, there, back *T) *T {
	if direction == "back" {
		return back
	}
	return there
}

// probeSums are the sums of a session.
type probeSums struct {
	Probe
	roundTrip, variation, there, back, aboveThere, aboveBack model.Histogram
}

// quietHost is after how long without a frame it is not known any more what runs on a host.
const quietHost = 15 * time.Second

// Probes are those of a window, in order of the hosts: first those between hosts, then those between containers.
func Probes(w *frame.Window) []Probe {
	all := []Probe{}
	for i := range w.Hosts {
		all = append(all, probesOf(&w.Hosts[i], w.To)...)
	}
	return all
}

func probesOf(of *frame.HostSpans, to time.Time) (all []Probe) {
	s := spans{HostSpans: of}
	sums := map[probeKey]*probeSums{}
	session := func(key probeKey) *probeSums {
		p := sums[key]
		if p == nil {
			dscp, _ := strconv.Atoi(key.dscp)
			p = &probeSums{Probe: Probe{From: of.Host, To: key.peer, DSCP: dscp, Client: key.client, Server: key.server}}
			sums[key] = p
		}
		return p
	}
	for i := range of.Spans {
		after := of.Spans[i].After
		d := frame.Since(frame.Labelled, s.before(i), after)
		for _, m := range []probeMetrics{hostProbes, containerProbes} {
			for name, counter := range probeCounters {
				m.each(after, name, func(row int, key probeKey, direction string) {
					if n, _ := d.Gain(0, row); n > 0 {
						*counter(session(key), direction) += n
					}
				})
			}
			for name, histogram := range probeHistograms {
				m.each(after, name, func(row int, key probeKey, direction string) {
					var gained frame.Durations
					gained.Reset()
					if d.AddHistogram(&gained, 0, row); gained.Count > 0 {
						gained.AddTo(histogram(session(key), direction))
					}
				})
			}
		}
	}
	if last := of.Spans[len(of.Spans)-1].After; to.Sub(last.Time) < quietHost {
		for _, m := range []probeMetrics{hostProbes, containerProbes} {
			m.levels(last, session)
		}
	}
	for _, p := range sums {
		if p.Sent > 0 {
			ratio := float64(p.Lost) / float64(p.Sent)
			p.LossRatio = &ratio
		}
		if jitter := p.variation.Mean(); !math.IsNaN(jitter) {
			p.JitterSeconds = &jitter
		}
		p.RoundTrip, p.There, p.Back = delayOf(&p.roundTrip), delayOf(&p.there), delayOf(&p.back)
		p.AboveThere, p.AboveBack = delayOf(&p.aboveThere), delayOf(&p.aboveBack)
		all = append(all, p.Probe)
	}
	slices.SortFunc(all, func(x, y Probe) int {
		between := cmp.Compare(min(len(x.Client), 1), min(len(y.Client), 1))
		return cmp.Or(between, cmp.Compare(x.To, y.To), cmp.Compare(x.DSCP, y.DSCP), cmp.Compare(x.Client, y.Client),
			cmp.Compare(x.Server, y.Server))
	})
	return all
}

// levels says what runs in a frame.
func (m probeMetrics) levels(f *frame.Frame, session func(probeKey) *probeSums) {
	level := func(of string, set func(p *probeSums, v float64, more string)) {
		m.each(f, of, func(row int, key probeKey, more string) { set(session(key), valueIn(f, m.name(of), row), more) })
	}
	level("interval_seconds", func(p *probeSums, v float64, reflector string) {
		p.Running, p.Reflector, p.IntervalSeconds = true, reflector, &v
	})
	level("answered", func(p *probeSums, v float64, _ string) { p.Answered = v > 0 })
	level("clock_error_seconds", func(p *probeSums, v float64, _ string) { p.ClockErrorSeconds = &v })
	level("hops", func(p *probeSums, v float64, route string) { p.Route, p.Hops = route, int(v) })
}

// Between is what probes between hosts measured from one host to another, by a key of model.ProbeNumbers. Where only the other host
// sends, there and back are exchanged.
func Between(probes []Probe) func(from, to, key string) (float64, bool) {
	byHosts := map[[2]string]*Probe{}
	for i := range probes {
		p := &probes[i]
		// The usual class of service comes first.
		if at := [2]string{p.From, p.To}; byHosts[at] == nil && p.Client == "" {
			byHosts[at] = p
		}
	}
	return func(from, to, key string) (float64, bool) {
		p, there, back := byHosts[[2]string{from, to}], "there", "back"
		if p == nil {
			p, there, back = byHosts[[2]string{to, from}], back, there
		}
		if p == nil {
			return 0, false
		}
		return p.number(key, there, back)
	}
}

// BetweenContainers is what was measured between two containers, by their hosts and IDs and a key of model.ProbeNumbers: on
// two hosts by probes, all the time, and on one host the capacity, on request.
func BetweenContainers(w *frame.Window, probes []Probe) func(clientHost, client, serverHost, server, key string) (float64, bool) {
	capacity := capacities(w)
	type ends struct{ from, client, to, server string }
	byEnds := map[ends]*Probe{}
	for i := range probes {
		p := &probes[i]
		if at := (ends{p.From, p.Client, p.To, p.Server}); p.Client != "" && byEnds[at] == nil {
			byEnds[at] = p
		}
	}
	titles := map[[2]string]string{} // by host and ID: probes have what people call a container
	if len(byEnds) > 0 {
		for i := range w.Hosts {
			for _, span := range w.Hosts[i].Spans {
				for row := range span.After.Tables[frame.Containers].IDs {
					titles[[2]string{w.Hosts[i].Host, span.After.Text(frame.Containers, frame.ContainerKey, row)}] = span.After.ContainerTitle(row)
				}
			}
		}
	}
	return func(clientHost, client, serverHost, server, key string) (float64, bool) {
		if clientHost == serverHost {
			return capacity(clientHost, client, server, key)
		}
		x, y := titles[[2]string{clientHost, client}], titles[[2]string{serverHost, server}]
		p, there, back := byEnds[ends{clientHost, x, serverHost, y}], "there", "back"
		if p == nil { // the other one is the client of another edge of the two
			p, there, back = byEnds[ends{serverHost, y, clientHost, x}], back, there
		}
		if p == nil {
			return 0, false
		}
		return p.number(key, there, back)
	}
}

// number is one of the probe; there and back are what a key calls its directions.
func (p *Probe) number(key, there, back string) (float64, bool) {
	known := func(v *float64) (float64, bool) {
		if v == nil {
			return 0, false
		}
		return *v, true
	}
	delay := func(d *Delay, of func(*Delay) float64) (float64, bool) {
		if d == nil {
			return 0, false
		}
		return of(d), true
	}
	p50, p99 := func(d *Delay) float64 { return d.P50 }, func(d *Delay) float64 { return d.P99 }
	switch key {
	case "probe_round_trip_p50":
		return delay(p.RoundTrip, p50)
	case "probe_round_trip_p99":
		return delay(p.RoundTrip, p99)
	case "probe_delay_" + there + "_p50":
		return delay(p.There, p50)
	case "probe_delay_" + there + "_p99":
		return delay(p.There, p99)
	case "probe_delay_" + back + "_p50":
		return delay(p.Back, p50)
	case "probe_delay_" + back + "_p99":
		return delay(p.Back, p99)
	case "probe_above_minimum_" + there + "_p99":
		return delay(p.AboveThere, p99)
	case "probe_above_minimum_" + back + "_p99":
		return delay(p.AboveBack, p99)
	case "probe_jitter":
		return known(p.JitterSeconds)
	case "probe_loss_ratio":
		return known(p.LossRatio)
	case "probe_lost_" + there:
		return float64(p.LostThere), p.Sent > 0
	case "probe_lost_" + back:
		return float64(p.LostBack), p.Sent > 0
	}
	return 0, false
}
