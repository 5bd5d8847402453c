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
	// Sessions are those that run, in order of the peer, the class, the client and the server.
	Sessions []ProbeSession
	// Reflector is the sum of the host's and of those in containers.
	Reflector ReflectorCounters
	// Senders and Reflectors count why sockets were not in containers.
	Senders, Reflectors SocketFailures
}

// SocketFailures count how often there was no socket in a container: because it had Ended or ended then, because its
// network namespace was Unknown, or because making it Failed for another reason.
type SocketFailures struct{ Ended, Unknown, Failed uint64 }

// ProbeSession is what a session of STAMP to the reflector of another host counted since it began.
type ProbeSession struct {
	// Peer is the name of the other host, Reflector where it answers.
	Peer      string
	Reflector netip.AddrPort
	// DSCP is the class of service of the packets.
	DSCP uint8
	// Client and Server are the names of the two containers whose network namespaces have the sockets; empty of a session
	// between hosts.
	Client, Server string
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

// Add adds what another reflector counted.
func (c *ReflectorCounters) Add(other *ReflectorCounters) {
	c.Answered += other.Answered
	c.Strangers += other.Strangers
	c.Limited += other.Limited
	c.Malformed += other.Malformed
	c.Forged += other.Forged
	c.Replayed += other.Replayed
}

// sessionKind is a kind of sessions: what their metrics' names begin with, the labels of each, and what texts call the ends.
type sessionKind struct {
	prefix, otel string
	names        []string
	labels       func(*ProbeSession) []Label
	is           func(*ProbeSession) bool
	other, both  string
}

var (
	hostSessions = sessionKind{"outsight_probe_", "outsight.probe.", []string{"peer", "dscp"},
		func(s *ProbeSession) []Label {
			return []Label{NewLabel("peer", s.Peer), NewLabel("dscp", strconv.Itoa(int(s.DSCP)))}
		},
		func(s *ProbeSession) bool { return s.Client == "" }, "another host", "two hosts"}
	containerSessions = sessionKind{"outsight_container_probe_", "outsight.container_probe.", []string{"client", "server", "peer"},
		func(s *ProbeSession) []Label {
			return []Label{NewLabel("client", s.Client), NewLabel("server", s.Server), NewLabel("peer", s.Peer)}
		},
		func(s *ProbeSession) bool { return s.Client != "" }, "a container on another host",
		"the network namespaces of two containers"}
)

// row makes a row of each session of the kind, with another label if more is not empty.
func (k *sessionKind) row(name, otel, unit string, kind SeriesKind, help, more string, read func(*ProbeSession, func(label string) []Label,
	*Sink)) Row[Snapshot] {
	names := k.names
	if more != "" {
		names = append(slices.Clone(names), more)
	}
	return Row[Snapshot]{Name: k.prefix + name, OTel: k.otel + otel, Unit: unit, Kind: kind, Help: help, Labels: names,
		Each: func(s *Snapshot, to *Sink) {
			if s.Probes == nil {
				return
			}
			for i := range s.Probes.Sessions {
				one := &s.Probes.Sessions[i]
				if !k.is(one) {
					continue
				}
				read(one, func(label string) []Label {
					if more == "" {
						return k.labels(one)
					}
					return append(k.labels(one), NewLabel(more, label))
				}, to)
			}
		}}
}

// rows are the metrics of what is measured, by the host that sends.
func (k *sessionKind) rows() []Row[Snapshot] {
	const there, back = "there", "back"
	type labels = func(string) []Label
	count := func(of func(*ProbeSession) uint64) func(*ProbeSession, labels, *Sink) {
		return func(s *ProbeSession, l labels, to *Sink) { to.Add(float64(of(s)), l("")...) }
	}
	counts := func(of func(*ProbeSession) (there, back uint64)) func(*ProbeSession, labels, *Sink) {
		return func(s *ProbeSession, l labels, to *Sink) {
			x, y := of(s)
			to.Add(float64(x), l(there)...)
			to.Add(float64(y), l(back)...)
		}
	}
	histogram := func(of func(*ProbeSession) *Histogram) func(*ProbeSession, labels, *Sink) {
		return func(s *ProbeSession, l labels, to *Sink) { to.AddHistogram(of(s), l("")...) }
	}
	histograms := func(of func(*ProbeSession) (there, back *Histogram)) func(*ProbeSession, labels, *Sink) {
		return func(s *ProbeSession, l labels, to *Sink) {
			x, y := of(s)
			to.AddHistogram(x, l(there)...)
			to.AddHistogram(y, l(back)...)
		}
	}
	return []Row[Snapshot]{
		k.row("interval_seconds", "interval", "s", Gauge, "Time between two packets of the session that measures the network to "+k.other+
			"; it is there while the session runs, with where the reflector answers", "reflector",
			func(s *ProbeSession, l labels, to *Sink) { to.Add(s.Interval.Seconds(), l(s.Reflector.String())...) }),
		k.row("answered", "answered", "", Gauge, "1 while the packets of the session are answered, 0 where the last ones were all lost", "",
			func(s *ProbeSession, l labels, to *Sink) { to.Add(boolean(s.Answered), l("")...) }),
		k.row("sent_packets_total", "sent_packets", "{packet}", Counter, "Packets that were sent to measure the network to "+k.other+
			", and then answered or given up", "", count(func(s *ProbeSession) uint64 { return s.Sent })),
		k.row("lost_packets_total", "lost_packets", "{packet}", Counter, "Those of them that were not answered within a second", "",
			count(func(s *ProbeSession) uint64 { return s.Lost })),
		k.row("lost_one_way_packets_total", "lost_one_way_packets", "{packet}", Counter, "Lost packets of which the reflector's counts tell in which "+
			"direction they were lost, which is known with the next answer", "direction",
			counts(func(s *ProbeSession) (there, back uint64) { return s.LostThere, s.LostBack })),
		k.row("duplicate_packets_total", "duplicate_packets", "{packet}", Counter, "Answers to measuring packets that came twice", "",
			count(func(s *ProbeSession) uint64 { return s.Duplicates })),
		k.row("reordered_packets_total", "reordered_packets", "{packet}", Counter, "Measuring packets that came after what was sent later (RFC 4737)",
			"direction", counts(func(s *ProbeSession) (there, back uint64) { return s.ReorderedThere, s.ReorderedBack })),
		k.row("round_trip_duration_seconds", "round_trip.duration", "s", HistogramSeries, "Round trips between "+k.both+", from interface to interface "+
			"by the kernels' times, without the time that the reflector took", "",
			histogram(func(s *ProbeSession) *Histogram { return s.RoundTrip })),
		k.row("round_trip_variation_seconds", "round_trip.variation", "s", HistogramSeries, "By how much two consecutive round trips between "+k.both+
			" differ: the mean is the jitter", "", histogram(func(s *ProbeSession) *Histogram { return s.Variation })),
		k.row("one_way_duration_seconds", "one_way.duration", "s", HistogramSeries, "Delays between "+k.both+" in each direction; not there unless "+
			"time daemons keep the clocks of both hosts, and off by at most "+k.prefix+"clock_error_seconds", "direction",
			histograms(func(s *ProbeSession) (there, back *Histogram) { return s.There, s.Back })),
		k.row("above_minimum_duration_seconds", "above_minimum.duration", "s", HistogramSeries, "By how much packets took longer than the fastest of the "+
			"last minute in the same direction: queues on the way. The clocks of the two hosts are not in it", "direction",
			histograms(func(s *ProbeSession) (there, back *Histogram) { return s.AboveThere, s.AboveBack })),
		k.row("clock_error_seconds", "clock_error", "s", Gauge, "Bound of how far the clocks of two hosts are apart, as both kernels estimate "+
			"it; not there unless time daemons keep both", "", func(s *ProbeSession, l labels, to *Sink) {
			if s.ClockError > 0 {
				to.Add(s.ClockError.Seconds(), l("")...)
			}
		}),
		k.row("hops", "hops", "{hop}", Gauge, "Hops of the packets to "+k.other+", which is the last of them; route has the addresses "+
			"of the routers in order, * for one that does not answer, and direct where there is none", "route",
			func(s *ProbeSession, l labels, to *Sink) {
				if s.Route != nil {
					to.Add(float64(len(s.Route)+1), l(s.Route.String())...)
				}
			}),
		k.row("route_changes_total", "route_changes", "{change}", Counter, "How often the packets to "+k.other+" took a route by other routers "+
			"than before", "", count(func(s *ProbeSession) uint64 { return s.RouteChanges })),
	}
}

// probeRows are the metrics of what is measured between hosts, and between containers of two.
var probeRows = append(slices.Concat(hostSessions.rows(), containerSessions.rows()),
	Row[Snapshot]{Name: "outsight_container_probe_failures_total", OTel: "outsight.container_probe.failures", Unit: "{failure}",
		Kind: Counter,
		Help: "How often there was no socket in a container, to send measuring packets or to reflect them, because the " +
			"container had ended or ended then, its network namespace was unknown, or making it failed for another reason",
		Labels: []string{"end", "reason"}, Each: func(s *Snapshot, to *Sink) {
			if s.Probes == nil {
				return
			}
			for _, e := range []struct {
				end string
				of  *SocketFailures
			}{{"sender", &s.Probes.Senders}, {"reflector", &s.Probes.Reflectors}} {
				for _, c := range []struct {
					reason string
					count  uint64
				}{{"ended", e.of.Ended}, {"unknown", e.of.Unknown}, {"failed", e.of.Failed}} {
					to.Add(float64(c.count), NewLabel("end", e.end), NewLabel("reason", c.reason))
				}
			}
		}},
	Row[Snapshot]{Name: "outsight_probe_reflector_packets_total", OTel: "outsight.probe.reflector.packets", Unit: "{packet}",
		Kind: Counter,
		Help: "Packets that the agent's reflectors received: answered, of strangers, more often than agreed (limited), " +
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
		}})

// ProbeNumbers are what was measured between two hosts: there is from the one to the other, and back from the other to
// the one. $match stands for the labels of the session; where the other host sends, there and back are exchanged. Behind
// them are those of GroupCapacity, between two containers of one host.
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
	const measured = "Of measuring packets between the two hosts, or containers, from interface to interface"
	add("probe_round_trip_p50", "Measured round trip p50", "s", measured, quantile("0.5", trip, ""), false)
	add("probe_round_trip_p99", "Measured round trip p99", "s", measured, quantile("0.99", trip, ""), false)
	directions := []struct{ name, to string }{{"there", "server"}, {"back", "client"}}
	for _, d := range directions {
		meaning := "Of measuring packets to the " + d.to + " or its host; where time daemons keep the clocks of both"
		more := `,direction="` + d.name + `"`
		add("probe_delay_"+d.name+"_p50", "Measured delay "+d.name+" p50", "s", meaning, quantile("0.5", way, more), false)
		add("probe_delay_"+d.name+"_p99", "Measured delay "+d.name+" p99", "s", meaning, quantile("0.99", way, more), false)
		add("probe_above_minimum_"+d.name+"_p99", "Measured above the least "+d.name+" p99", "s",
			"By how much measuring packets to the "+d.to+" or its host took longer than the fastest of the last minute",
			quantile("0.99", above, more), false)
	}
	add("probe_jitter", "Measured jitter", "s", "By how much two consecutive round trips differ, on average",
		"histogram_avg(sum(rate(outsight_probe_round_trip_variation_seconds{$match}[$window])))", false)
	add("probe_loss_ratio", "Measured loss", "ratio", "Share of measuring packets that were not answered within a second",
		increase("outsight_probe_lost_packets_total", "")+" / "+increase("outsight_probe_sent_packets_total", ""), true)
	for _, d := range directions {
		add("probe_lost_"+d.name, "Measured loss "+d.name, "",
			"Measuring packets that were lost on the way to the "+d.to+" or its host",
			increase("outsight_probe_lost_one_way_packets_total", `,direction="`+d.name+`"`), true)
	}
	capacity := func(key, title, to string) {
		const query = "max(outsight_path_capacity_bytes_per_second{$match})"
		all = append(all, Shown{Number{Key: key, Title: title, Unit: "B/s", Group: GroupCapacity, Formula: Derived,
			Meaning: "What the path to the " + to + " carried when somebody last measured it, as by outsight probe --capacity",
			Query:   query}, query})
	}
	capacity("capacity_there", "Capacity there", "server’s container")
	capacity("capacity_back", "Capacity back", "client’s container")
	const age = "time() - min(outsight_path_capacity_measured_timestamp_seconds{$match})"
	all = append(all, Shown{Number{Key: "capacity_age", Title: "Capacity measured before", Unit: "s", Group: GroupCapacity,
		Formula: Derived, Meaning: "How long before the end of the window the capacity was measured; of two directions the older",
		Query: age}, age})
	return all
}()
