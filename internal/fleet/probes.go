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

// Probe is what was measured of the network between two hosts, by the one that sends.
type Probe struct {
	From string `json:"from"`
	To   string `json:"to"`
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

// The metrics that are read: counters by where they go, and levels.
var (
	probeCounters = map[string]func(p *probeSums, direction string) *uint64{
		metric("outsight_probe_sent_packets_total", "peer"):      func(p *probeSums, _ string) *uint64 { return &p.Sent },
		metric("outsight_probe_lost_packets_total", "peer"):      func(p *probeSums, _ string) *uint64 { return &p.Lost },
		metric("outsight_probe_duplicate_packets_total", "peer"): func(p *probeSums, _ string) *uint64 { return &p.Duplicates },
		metric("outsight_probe_route_changes_total", "peer"):     func(p *probeSums, _ string) *uint64 { return &p.RouteChanges },
		metric("outsight_probe_lost_one_way_packets_total", "peer"): func(p *probeSums, d string) *uint64 {
			return ofDirection(d, &p.LostThere, &p.LostBack)
		},
		metric("outsight_probe_reordered_packets_total", "peer"): func(p *probeSums, d string) *uint64 {
			return ofDirection(d, &p.ReorderedThere, &p.ReorderedBack)
		},
	}
	probeHistograms = map[string]func(p *probeSums, direction string) *model.Histogram{
		metric("outsight_probe_round_trip_duration_seconds", "peer"): func(p *probeSums, _ string) *model.Histogram {
			return &p.roundTrip
		},
		metric("outsight_probe_round_trip_variation_seconds", "peer"): func(p *probeSums, _ string) *model.Histogram {
			return &p.variation
		},
		metric("outsight_probe_one_way_duration_seconds", "peer"): func(p *probeSums, d string) *model.Histogram {
			return ofDirection(d, &p.there, &p.back)
		},
		metric("outsight_probe_above_minimum_duration_seconds", "peer"): func(p *probeSums, d string) *model.Histogram {
			return ofDirection(d, &p.aboveThere, &p.aboveBack)
		},
	}
	probeInterval = metric("outsight_probe_interval_seconds", "peer")
	probeAnswered = metric("outsight_probe_answered", "peer")
	probeClock    = metric("outsight_probe_clock_error_seconds", "peer")
	probeHops     = metric("outsight_probe_hops", "peer")
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

// Probes are those of a window, in order of the hosts.
func Probes(w *frame.Window) []Probe {
	all := []Probe{}
	for i := range w.Hosts {
		all = append(all, probesOf(&w.Hosts[i], w.To)...)
	}
	return all
}

func probesOf(of *frame.HostSpans, to time.Time) (all []Probe) {
	s := spans{HostSpans: of}
	sums := map[[2]string]*probeSums{}
	session := func(labels []string) *probeSums {
		key := [2]string{labels[0], labels[1]}
		p := sums[key]
		if p == nil {
			dscp, _ := strconv.Atoi(labels[1])
			p = &probeSums{Probe: Probe{From: of.Host, To: labels[0], DSCP: dscp}}
			sums[key] = p
		}
		return p
	}
	for i := range of.Spans {
		after := of.Spans[i].After
		d := frame.Since(frame.Labelled, s.before(i), after)
		for name, counter := range probeCounters {
			eachLabelled(after, name, func(row int, labels []string) {
				if n, _ := d.Gain(0, row); n > 0 {
					*counter(session(labels), labels[2]) += n
				}
			})
		}
		for name, histogram := range probeHistograms {
			eachLabelled(after, name, func(row int, labels []string) {
				var gained frame.Durations
				gained.Reset()
				if d.AddHistogram(&gained, 0, row); gained.Count > 0 {
					gained.AddTo(histogram(session(labels), labels[2]))
				}
			})
		}
	}
	if last := of.Spans[len(of.Spans)-1].After; to.Sub(last.Time) < quietHost {
		eachLabelled(last, probeInterval, func(row int, labels []string) {
			p, seconds := session(labels), valueIn(last, probeInterval, row)
			p.Running, p.Reflector, p.IntervalSeconds = true, labels[2], &seconds
		})
		eachLabelled(last, probeAnswered, func(row int, labels []string) {
			session(labels).Answered = valueIn(last, probeAnswered, row) > 0
		})
		eachLabelled(last, probeClock, func(row int, labels []string) {
			seconds := valueIn(last, probeClock, row)
			session(labels).ClockErrorSeconds = &seconds
		})
		eachLabelled(last, probeHops, func(row int, labels []string) {
			p := session(labels)
			p.Route, p.Hops = labels[2], int(valueIn(last, probeHops, row))
		})
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
	slices.SortFunc(all, func(x, y Probe) int { return cmp.Or(cmp.Compare(x.To, y.To), cmp.Compare(x.DSCP, y.DSCP)) })
	return all
}

// Between is what probes measured from one host to another, by a key of model.ProbeNumbers. Where only the other host
// sends, there and back are exchanged.
func Between(probes []Probe) func(from, to, key string) (float64, bool) {
	byHosts := map[[2]string]*Probe{}
	for i := range probes {
		p := &probes[i]
		// The usual class of service comes first.
		if at := [2]string{p.From, p.To}; byHosts[at] == nil {
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
