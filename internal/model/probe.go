package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ProbeSample is what an agent's measurements of the network to other hosts have counted.
type ProbeSample struct {
	// Sessions are those that run, in order of the peer and the class.
	Sessions  []ProbeSession
	Reflector ReflectorCounters
}

// ProbeSession is what a session of STAMP to the reflector of another host counted since it began.
type ProbeSession struct {
	// Peer is the name of the other host, Reflector where it answers.
	Peer      string
	Reflector netip.AddrPort
	// DSCP is the class of service of the packets.
	DSCP uint8
	// Interval between two packets.
	Interval time.Duration
	// Answered says that one of the last packets was: the session is not lost.
	Answered bool
	// Sent packets are those of which it is known what became of them: they are Received or Lost. Lost ones were not
	// answered within a second. LostThere and LostBack are those of which the reflector's counts tell where, which is known
	// with the next answer.
	Sent, Received, Lost, LostThere, LostBack uint64
	// Duplicates are answers that came twice; reordered packets came after what was sent later (RFC 4737).
	Duplicates, ReorderedThere, ReorderedBack uint64
	// RoundTrip is without the reflector's own time. Variation is by how much two consecutive ones differ: its mean is the
	// jitter.
	RoundTrip, Variation *Histogram
	// There and Back are one-way delays; nil where not both clocks are kept. ClockError bounds how far they are off; 0 where
	// that is not known.
	There, Back *Histogram
	ClockError  time.Duration
	// AboveThere and AboveBack are by how much packets took longer than the fastest of the last minute in the same direction,
	// which needs no common clock.
	AboveThere, AboveBack *Histogram
	// Route is by which routers the packets go, nil before that is known; RouteChanges is how often they were others.
	Route        Route
	RouteChanges uint64
}

// Route is the routers between two hosts, the nearest first; the zero Addr is one that does not answer.
type Route []netip.Addr

const (
	noRouters    = "direct"
	silentRouter = "*"
)

// String has the addresses with blanks between them, * for a router that does not answer, and direct where there is none.
func (r Route) String() string {
	if len(r) == 0 {
		return noRouters
	}
	var b strings.Builder
	for i, a := range r {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a.IsValid() {
			b.WriteString(a.String())
		} else {
			b.WriteString(silentRouter)
		}
	}
	return b.String()
}

// ParseRoute reads what String writes.
func ParseRoute(text string) (Route, error) {
	if text == noRouters {
		return Route{}, nil
	}
	var r Route
	for one := range strings.SplitSeq(text, " ") {
		if one == silentRouter {
			r = append(r, netip.Addr{})
			continue
		}
		a, err := netip.ParseAddr(one)
		if err != nil {
			return nil, fmt.Errorf("reading a route: %w", err)
		}
		r = append(r, a)
	}
	return r, nil
}

// Same reports whether two routes are of the same length and have no two routers that differ. One that does not answer may
// be any.
func (r Route) Same(other Route) bool {
	return slices.EqualFunc(r, other, func(a, b netip.Addr) bool { return a == b || !a.IsValid() || !b.IsValid() })
}

// Merge is a route with the routers that answered in one of two that are the same.
func (r Route) Merge(other Route) Route {
	merged := slices.Clone(r)
	for i, a := range other {
		if !merged[i].IsValid() {
			merged[i] = a
		}
	}
	return merged
}

// ReflectorCounters count the packets that an agent's reflector received.
type ReflectorCounters struct {
	Answered, Strangers, Limited, Malformed, Forged, Replayed uint64
}

var (
	probeLabels          = []string{"peer", "dscp"}
	probeDirectionLabels = []string{"peer", "dscp", "direction"}
)

func (s *ProbeSession) labels(extra ...Label) []Label {
	return append([]Label{NewLabel("peer", s.Peer), NewLabel("dscp", strconv.Itoa(int(s.DSCP)))}, extra...)
}

func there(s *ProbeSession) []Label { return s.labels(NewLabel("direction", "there")) }
func back(s *ProbeSession) []Label  { return s.labels(NewLabel("direction", "back")) }

// ofProbes reads each session of a host's measurements.
func ofProbes(read func(*ProbeSession, *Sink)) func(*Snapshot, *Sink) {
	return func(s *Snapshot, to *Sink) {
		if s.Probes == nil {
			return
		}
		for i := range s.Probes.Sessions {
			read(&s.Probes.Sessions[i], to)
		}
	}
}

// probeRows are the metrics of what is measured between hosts, by the host that sends.
var probeRows = []Row[Snapshot]{
	{Name: "outsight_probe_interval_seconds", OTel: "outsight.probe.interval", Unit: "s", Kind: Gauge,
		Help: "Time between two packets of the session that measures the network to another host; it is there while the " +
			"session runs, with where the other host's reflector answers",
		Labels: []string{"peer", "dscp", "reflector"}, Each: ofProbes(func(s *ProbeSession, to *Sink) {
			to.Add(s.Interval.Seconds(), s.labels(NewLabel("reflector", s.Reflector.String()))...)
		})},
	{Name: "outsight_probe_answered", OTel: "outsight.probe.answered", Kind: Gauge,
		Help:   "1 while the other host answers the packets of the session, 0 where the last ones were all lost",
		Labels: probeLabels, Each: ofProbes(func(s *ProbeSession, to *Sink) { to.Add(boolean(s.Answered), s.labels()...) })},
	{Name: "outsight_probe_sent_packets_total", OTel: "outsight.probe.sent_packets", Unit: "{packet}", Kind: Counter,
		Help:   "Packets that were sent to measure the network to another host, and then answered or given up",
		Labels: probeLabels, Each: ofProbes(func(s *ProbeSession, to *Sink) { to.Add(float64(s.Sent), s.labels()...) })},
	{Name: "outsight_probe_lost_packets_total", OTel: "outsight.probe.lost_packets", Unit: "{packet}", Kind: Counter,
		Help:   "Those of them that were not answered within a second",
		Labels: probeLabels, Each: ofProbes(func(s *ProbeSession, to *Sink) { to.Add(float64(s.Lost), s.labels()...) })},
	{Name: "outsight_probe_lost_one_way_packets_total", OTel: "outsight.probe.lost_one_way_packets", Unit: "{packet}",
		Kind: Counter,
		Help: "Lost packets of which the reflector's counts tell in which direction they were lost, which is known with " +
			"the next answer",
		Labels: probeDirectionLabels, Each: ofProbes(func(s *ProbeSession, to *Sink) {
			to.Add(float64(s.LostThere), there(s)...)
			to.Add(float64(s.LostBack), back(s)...)
		})},
	{Name: "outsight_probe_duplicate_packets_total", OTel: "outsight.probe.duplicate_packets", Unit: "{packet}",
		Kind: Counter, Help: "Answers to measuring packets that came twice",
		Labels: probeLabels, Each: ofProbes(func(s *ProbeSession, to *Sink) { to.Add(float64(s.Duplicates), s.labels()...) })},
	{Name: "outsight_probe_reordered_packets_total", OTel: "outsight.probe.reordered_packets", Unit: "{packet}",
		Kind: Counter, Help: "Measuring packets that came after what was sent later (RFC 4737)",
		Labels: probeDirectionLabels, Each: ofProbes(func(s *ProbeSession, to *Sink) {
			to.Add(float64(s.ReorderedThere), there(s)...)
			to.Add(float64(s.ReorderedBack), back(s)...)
		})},
	{Name: "outsight_probe_round_trip_duration_seconds", OTel: "outsight.probe.round_trip.duration", Unit: "s",
		Kind: HistogramSeries,
		Help: "Round trips between two hosts, from interface to interface by the kernels' times, without the time that the " +
			"other host's reflector took",
		Labels: probeLabels, Each: ofProbes(func(s *ProbeSession, to *Sink) { to.AddHistogram(s.RoundTrip, s.labels()...) })},
	{Name: "outsight_probe_round_trip_variation_seconds", OTel: "outsight.probe.round_trip.variation", Unit: "s",
		Kind:   HistogramSeries,
		Help:   "By how much two consecutive round trips between two hosts differ: the mean is the jitter",
		Labels: probeLabels,
		Each:   ofProbes(func(s *ProbeSession, to *Sink) { to.AddHistogram(s.Variation, s.labels()...) })},
	{Name: "outsight_probe_one_way_duration_seconds", OTel: "outsight.probe.one_way.duration", Unit: "s",
		Kind: HistogramSeries,
		Help: "Delays between two hosts in each direction; not there unless time daemons keep the clocks of both, and off " +
			"by at most outsight_probe_clock_error_seconds",
		Labels: probeDirectionLabels, Each: ofProbes(func(s *ProbeSession, to *Sink) {
			to.AddHistogram(s.There, there(s)...)
			to.AddHistogram(s.Back, back(s)...)
		})},
	{Name: "outsight_probe_above_minimum_duration_seconds", OTel: "outsight.probe.above_minimum.duration", Unit: "s",
		Kind: HistogramSeries,
		Help: "By how much packets took longer than the fastest of the last minute in the same direction: queues on the way. " +
			"The clocks of the two hosts are not in it",
		Labels: probeDirectionLabels, Each: ofProbes(func(s *ProbeSession, to *Sink) {
			to.AddHistogram(s.AboveThere, there(s)...)
			to.AddHistogram(s.AboveBack, back(s)...)
		})},
	{Name: "outsight_probe_clock_error_seconds", OTel: "outsight.probe.clock_error", Unit: "s", Kind: Gauge,
		Help: "Bound of how far the clocks of two hosts are apart, as both kernels estimate it; not there unless time " +
			"daemons keep both",
		Labels: probeLabels, Each: ofProbes(func(s *ProbeSession, to *Sink) {
			if s.ClockError > 0 {
				to.Add(s.ClockError.Seconds(), s.labels()...)
			}
		})},
	{Name: "outsight_probe_hops", OTel: "outsight.probe.hops", Unit: "{hop}", Kind: Gauge,
		Help: "Hops of the packets to another host, which is the last of them; route has the addresses of the routers in " +
			"order, * for one that does not answer, and direct where there is none",
		Labels: []string{"peer", "dscp", "route"}, Each: ofProbes(func(s *ProbeSession, to *Sink) {
			if s.Route != nil {
				to.Add(float64(len(s.Route)+1), s.labels(NewLabel("route", s.Route.String()))...)
			}
		})},
	{Name: "outsight_probe_route_changes_total", OTel: "outsight.probe.route_changes", Unit: "{change}", Kind: Counter,
		Help:   "How often the packets to another host took a route by other routers than before",
		Labels: probeLabels,
		Each:   ofProbes(func(s *ProbeSession, to *Sink) { to.Add(float64(s.RouteChanges), s.labels()...) })},
	{Name: "outsight_probe_reflector_packets_total", OTel: "outsight.probe.reflector.packets", Unit: "{packet}",
		Kind: Counter,
		Help: "Packets that the agent's reflector received: answered, of strangers, more often than agreed (limited), " +
			"malformed, with a wrong HMAC (forged), or replayed",
		Labels: []string{"result"}, Each: func(s *Snapshot, to *Sink) {
			if s.Probes == nil {
				return
			}
			r := &s.Probes.Reflector
			for _, c := range []struct {
				result string
				count  uint64
			}{{"answered", r.Answered}, {"stranger", r.Strangers}, {"limited", r.Limited}, {"malformed", r.Malformed},
				{"forged", r.Forged}, {"replayed", r.Replayed}} {
				to.Add(float64(c.count), NewLabel("result", c.result))
			}
		}},
}

// ProbeNumbers are what was measured between two hosts: there is from the one to the other, and back from the other to
// the one. $match stands for the labels of the session; where the other host sends, there and back are exchanged.
var ProbeNumbers = func() (all []Shown) {
	const trip, way = "outsight_probe_round_trip_duration_seconds", "outsight_probe_one_way_duration_seconds"
	const above = "outsight_probe_above_minimum_duration_seconds"
	add := func(key, title, unit, meaning, query string, trouble bool) {
		all = append(all, Shown{Number{Key: key, Title: title, Unit: unit, Group: GroupProbes, Formula: Derived,
			Meaning: meaning, Query: query, Trouble: trouble}, query})
	}
	quantile := func(q, metric, more string) string {
		return "histogram_quantile(" + q + ", sum(rate(" + metric + "{$match" + more + "}[$window])))"
	}
	increase := func(metric, more string) string { return "sum(increase(" + metric + "{$match" + more + "}[$window]))" }
	const measured = "Of measuring packets between the two hosts, from interface to interface"
	add("probe_round_trip_p50", "Round trip of hosts p50", "s", measured, quantile("0.5", trip, ""), false)
	add("probe_round_trip_p99", "Round trip of hosts p99", "s", measured, quantile("0.99", trip, ""), false)
	directions := []struct{ name, to string }{{"there", "server"}, {"back", "client"}}
	for _, d := range directions {
		meaning := "Of measuring packets to the " + d.to + "’s host; where time daemons keep the clocks of both"
		more := `,direction="` + d.name + `"`
		add("probe_delay_"+d.name+"_p50", "Delay of hosts "+d.name+" p50", "s", meaning, quantile("0.5", way, more), false)
		add("probe_delay_"+d.name+"_p99", "Delay of hosts "+d.name+" p99", "s", meaning, quantile("0.99", way, more), false)
		add("probe_above_minimum_"+d.name+"_p99", "Above the least of hosts "+d.name+" p99", "s",
			"By how much measuring packets to the "+d.to+"’s host took longer than the fastest of the last minute",
			quantile("0.99", above, more), false)
	}
	add("probe_jitter", "Jitter of hosts", "s", "By how much two consecutive round trips differ, on average",
		"histogram_avg(sum(rate(outsight_probe_round_trip_variation_seconds{$match}[$window])))", false)
	add("probe_loss_ratio", "Lost between hosts", "ratio", "Share of measuring packets that were not answered within a second",
		increase("outsight_probe_lost_packets_total", "")+" / "+increase("outsight_probe_sent_packets_total", ""), true)
	for _, d := range directions {
		add("probe_lost_"+d.name, "Lost between hosts "+d.name, "",
			"Measuring packets that were lost on the way to the "+d.to+"’s host",
			increase("outsight_probe_lost_one_way_packets_total", `,direction="`+d.name+`"`), true)
	}
	return all
}()
