package fleet

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// measured is a session to a peer, of n packets that took so long there and back; one in ten was lost on the way there.
func measured(peer string, n uint64, there, back time.Duration) model.ProbeSession {
	of := func(d time.Duration) *model.Histogram {
		return &model.Histogram{Count: n, SumNS: n * uint64(d), Offset: model.BucketOf(d), Buckets: []uint64{n}}
	}
	return model.ProbeSession{Peer: peer, Interval: time.Second, Answered: true, Sent: n, Received: n - n/10, Lost: n / 10,
		LostThere: n / 10, RoundTrip: of(there + back), Variation: of((there + back) / 10), There: of(there), Back: of(back),
		AboveThere: of(there / 4), AboveBack: of(back / 4),
		ClockError: time.Microsecond}
}

// probed is a frame of an agent with sessions.
func (a *agent) probed(at time.Duration, sessions ...model.ProbeSession) *frame.Frame {
	return a.Build(&model.Snapshot{Time: start.Add(at), Host: a.host, Probes: &model.ProbeSample{Sessions: sessions}})
}

// TestBetween: every number of the registry is known of a measured pair of hosts, and there is there for whoever asks.
func TestBetween(t *testing.T) {
	a := newAgent("a", start)
	w := windowOf(hostSpans("a", frame.Span{Before: a.probed(0, measured("b", 10, 1e6, 3e6)),
		After: a.probed(10*time.Second, measured("b", 110, 1e6, 3e6))}))
	between := Between(Probes(w))
	for _, n := range model.ProbeNumbers {
		if n.Group != model.GroupProbes {
			continue
		}
		if v, ok := between("a", "b", n.Key); !ok || math.IsNaN(v) {
			t.Errorf("%s from a to b is %v (%v)", n.Key, v, ok)
		}
		for _, pair := range [][2]string{{"a", "c"}, {"a", "a"}} {
			if v, ok := between(pair[0], pair[1], n.Key); ok {
				t.Errorf("%s of %v is %v", n.Key, pair, v)
			}
		}
	}
	for _, c := range []struct {
		from, to, key string
		want          float64
	}{
		{"a", "b", "probe_round_trip_p50", 4e-3}, {"b", "a", "probe_round_trip_p99", 4e-3},
		{"a", "b", "probe_delay_there_p50", 1e-3}, {"b", "a", "probe_delay_there_p50", 3e-3},
		{"a", "b", "probe_delay_back_p99", 3e-3}, {"b", "a", "probe_delay_back_p99", 1e-3},
		{"a", "b", "probe_above_minimum_there_p99", 0.25e-3}, {"b", "a", "probe_above_minimum_there_p99", 0.75e-3},
		{"a", "b", "probe_jitter", 0.4e-3}, {"b", "a", "probe_loss_ratio", 0.1},
		{"a", "b", "probe_lost_there", 10}, {"b", "a", "probe_lost_there", 0},
		{"a", "b", "probe_lost_back", 0}, {"b", "a", "probe_lost_back", 10},
	} {
		if got, ok := between(c.from, c.to, c.key); !ok || math.Abs(got-c.want) > model.RelativeError*c.want {
			t.Errorf("%s from %s to %s is %v (%v), want %v", c.key, c.from, c.to, got, ok, c.want)
		}
	}
}

// TestProbesOfContainers: sessions of containers are told with their names beside those of their hosts, of which they change
// nothing; one that runs no more has ended.
func TestProbesOfContainers(t *testing.T) {
	a := newAgent("a", start)
	of := func(n uint64, client string, there time.Duration) model.ProbeSession {
		s := measured("b", n, there, there)
		s.Client, s.Server = client, "shop/db-0/db"
		s.Reflector, s.Route = netip.MustParseAddrPort("10.1.2.2:8620"), model.Route{netip.MustParseAddr("10.1.1.1")}
		return s
	}
	before := a.probed(0, measured("b", 10, 1e6, 1e6), of(10, "web", 5e6), of(10, "job", 7e6))
	after := a.probed(10*time.Second, measured("b", 110, 1e6, 1e6), of(110, "web", 5e6))
	all := Probes(windowOf(hostSpans("a", frame.Span{Before: before, After: after})))
	if len(all) != 2 {
		t.Fatalf("got %+v", all)
	}
	hosts, web := all[0], all[1]
	if hosts.Client != "" || hosts.To != "b" || hosts.Sent != 100 || hosts.RoundTrip.P50 > 2.1e-3 {
		t.Errorf("between the hosts %+v", hosts)
	}
	if web.Client != "web" || web.Server != "shop/db-0/db" || web.From != "a" || web.To != "b" || web.Sent != 100 ||
		web.Lost != 10 || web.LostThere != 10 || !web.Running || !web.Answered || *web.IntervalSeconds != 1 ||
		web.Reflector != "10.1.2.2:8620" || web.Hops != 2 || web.Route != "10.1.1.1" || *web.ClockErrorSeconds != 1e-6 {
		t.Errorf("between the containers %+v", web)
	}
	if trip, way := web.RoundTrip.P50, web.There.P50; math.Abs(trip-10e-3) > model.RelativeError*10e-3 ||
		math.Abs(way-5e-3) > model.RelativeError*5e-3 || web.AboveBack == nil || web.JitterSeconds == nil {
		t.Errorf("between the containers round trips of %v, one way %v", trip, way)
	}
	// Of the hosts' own network nothing changes, whichever end asks.
	for _, ends := range [][2]string{{"a", "b"}, {"b", "a"}} {
		if got, ok := Between(all)(ends[0], ends[1], "probe_round_trip_p50"); !ok || got != hosts.RoundTrip.P50 {
			t.Errorf("between the hosts the round trip is %v (%v)", got, ok)
		}
	}
	later := a.probed(20*time.Second, measured("b", 110, 1e6, 1e6))
	all = Probes(windowOf(hostSpans("a", frame.Span{Before: before, After: later})))
	if len(all) != 2 || all[1].Running || all[1].Answered || all[1].Reflector != "" || all[1].Sent != 100 {
		t.Errorf("after the end there is %+v", all)
	}
}

// TestBetweenContainers: what is measured between two containers is that of their own session, by their IDs, whoever of the
// two is asked for first; and not that of others, or of their hosts.
func TestBetweenContainers(t *testing.T) {
	a, b := newAgent("a", start), newAgent("b", start)
	at := func(of *agent, second int, n uint64, containers ...*model.Container) *frame.Frame {
		s := &model.Snapshot{Time: start.Add(time.Duration(second) * time.Second), Host: of.host, Probes: &model.ProbeSample{}}
		for _, c := range containers {
			s.Containers = append(s.Containers, model.ContainerSample{Container: c})
		}
		if of == a {
			own := measured("b", n, 5e6, 7e6)
			own.Client, own.Server = "web", "shop/db-0/db"
			s.Probes.Sessions = []model.ProbeSession{measured("b", n, 1e6, 1e6), own}
		}
		return of.Build(s)
	}
	web := &model.Container{ID: "w1", Name: "web", Runtime: model.Docker}
	db := &model.Container{ID: "d1", Name: "db", PodName: "db-0", PodNamespace: "shop", Runtime: model.Containerd}
	cache := &model.Container{ID: "c1", Name: "cache", Runtime: model.Docker}
	w := windowOf(hostSpans("a", frame.Span{Before: at(a, 0, 10, web), After: at(a, 10, 110, web)}),
		hostSpans("b", frame.Span{Before: at(b, 0, 0, db, cache), After: at(b, 10, 0, db, cache)}))
	between := BetweenContainers(w, Probes(w))
	f := func(want float64, clientHost, client, serverHost, server, key string) {
		t.Helper()
		got, ok := between(clientHost, client, serverHost, server, key)
		if ok != (want > 0) || math.Abs(got-want) > model.RelativeError*want {
			t.Errorf("%s of %s on %s and %s on %s is %v (%v), want %v", key, client, clientHost, server, serverHost, got, ok, want)
		}
	}
	f(12e-3, "a", "w1", "b", "d1", "probe_round_trip_p50")
	f(5e-3, "a", "w1", "b", "d1", "probe_delay_there_p50")
	f(7e-3, "b", "d1", "a", "w1", "probe_delay_there_p50")
	f(0.1, "a", "w1", "b", "d1", "probe_loss_ratio")
	f(0, "a", "w1", "b", "c1", "probe_loss_ratio")
	f(0, "b", "w1", "a", "d1", "probe_loss_ratio")
	f(0, "a", model.HostContainerID, "b", model.HostContainerID, "probe_round_trip_p50")
	f(0, "a", "w1", "a", "w1", "probe_round_trip_p50")
	f(0, "a", "w1", "b", "d1", "capacity_there")
}
