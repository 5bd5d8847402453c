package graph

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"outsight/internal/clocks/simulated"
	"outsight/internal/frame"
	"outsight/internal/model"
)

// crossedHosts are two hosts with an edge between them, whose packets both sampled by their own clocks.
func crossedHosts(c *simulated.Hosts, count int, clockError time.Duration) *frame.Window {
	return crossedCards(c, count, clockError, func(float64, bool) time.Duration { return 0 })
}

// crossedCards are crossedHosts that also saw packets at their uplinks: stack is for how long those there of a time were in
// the stack of their sender, or of their receiver, of the whole time that they took; those back have that of time 0.
func crossedCards(c *simulated.Hosts, count int, clockError time.Duration,
	stack func(at float64, sender bool) time.Duration) *frame.Window {
	return crossedEnds(c, count, clockError, stack, [2]time.Duration{})
}

// timedHosts are crossedHosts whose client waits so long for the first byte of a reply, of which the server takes so long.
func timedHosts(c *simulated.Hosts, clockError, whole, server time.Duration) *frame.Window {
	return crossedEnds(c, 60, clockError, func(float64, bool) time.Duration { return 0 }, [2]time.Duration{whole, server})
}

func crossedEnds(c *simulated.Hosts, count int, clockError time.Duration,
	stack func(at float64, sender bool) time.Duration, firstByte [2]time.Duration) *frame.Window {
	client, server := newPairedHost("a", "192.0.2.1"), newPairedHost("b", "192.0.2.2")
	dialling := client.dials(client.runs("web", nil), "192.0.2.2:80")
	serving := server.serves(server.runs("db", []string{"0.0.0.0:80"}), "192.0.2.2:80", "192.0.2.1")
	for i, e := range []*model.Edge{dialling, serving} {
		e.Connections = []uint64{7, 8, 9}
		e.Counters = model.EdgeCounters{Opens: 1, SentBytes: uint64(100 + i), ReceivedBytes: uint64(101 - i)}
		if took := firstByte[i]; took > 0 {
			e.Counters.TimeToFirstByte = latency(50, took)
		}
	}
	end := time.Unix(1_800_000_000, 0)
	at := func(seconds float64) time.Time { return end.Add(time.Duration((seconds - 10) * 1e9)) }
	packet := uint64(1 << 40)
	for way, points := range c.Packets(rand.New(rand.NewPCG(1, 2)), count) {
		from, to := dialling, serving
		if way == 1 {
			from, to = serving, dialling
		}
		for _, p := range points {
			sent := p.At // by the first host's clock, of which a packet back has its arrival
			if way == 1 {
				sent -= p.Took
			}
			packet++
			of := p.At
			if way == 1 {
				of = 0
			}
			from.PacketSamples = append(from.PacketSamples, model.PacketSample{Packet: packet, Sent: true, Time: at(sent),
				Stack: stack(of, true)})
			to.PacketSamples = append(to.PacketSamples, model.PacketSample{Packet: packet, Time: at(sent + p.Took),
				Stack: stack(of, false)})
		}
	}
	// What the other host did not see, a packet sent twice, and one received twice.
	dialling.PacketSamples = append(dialling.PacketSamples, model.PacketSample{Packet: 1, Sent: true, Time: end},
		model.PacketSample{Packet: 2, Sent: true, Time: end}, model.PacketSample{Packet: 2, Sent: true, Time: end},
		model.PacketSample{Packet: packet, Time: end})
	serving.PacketSamples = append(serving.PacketSamples, model.PacketSample{Packet: 2, Time: end},
		model.PacketSample{Packet: 3, Time: end})
	w := &frame.Window{From: end.Add(-10 * time.Second), To: end}
	for _, m := range []*pairedHost{client, server} {
		m.Time, m.ClockError, m.Edges[0].Instance = end, clockError, 1
		f := framesOf(&model.Snapshot{Time: w.From, Host: m.Host}, &m.Snapshot)
		w.Hosts = append(w.Hosts, frame.HostSpans{Host: m.Host.Name, Spans: []frame.Span{{Before: f[0], After: f[1]}}})
	}
	return w
}

func crossedEdge(t *testing.T, w *frame.Window) *Network {
	t.Helper()
	g := FromFrames(w, Options{})
	if len(g.Edges) != 1 || g.Edges[0].ClientSide == nil || g.Edges[0].ServerSide == nil {
		t.Fatalf("the edges are %+v", g.Edges)
	}
	n := g.Edges[0].Network
	if n == nil {
		n = &Network{}
	}
	return n
}

func told(v *Seconds) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(*v)*1e3)
}

// TestDelaysAcrossHosts: the packets that both hosts sampled tell the delay each way within what is known of the clocks,
// and exactly by how much it was above the least.
func TestDelaysAcrossHosts(t *testing.T) {
	full := func(at float64) float64 { // a queue fills in the last three of ten seconds
		if at < 7 {
			return 0
		}
		return 8e-3
	}
	for _, c := range []struct {
		name   string
		clocks simulated.Hosts
		kept   time.Duration
		// there and back are p50, ± and p99 above the least, in ms.
		there, back string
	}{
		{"kept clocks", simulated.Hosts{There: 1e-3, Back: 5e-3}, 100 * time.Microsecond, "1.0 0.2 0.1", "5.0 0.2 0.1"},
		{"kept worse than the delay", simulated.Hosts{There: 1e-3, Back: 5e-3}, time.Millisecond, "- - 0.1", "5.0 2.0 0.1"},
		{"free clocks", simulated.Hosts{Offset: 0.2, There: 3e-3, Back: 3e-3}, 0, "- - 0.1", "- - 0.1"},
		{"a queue there", simulated.Hosts{Offset: 0.2, Drift: 50e-6, There: 1e-3, Back: 1e-3, Queue: full}, 0, "- - 8.1", "- - 0.1"},
		{"a queue there, kept", simulated.Hosts{There: 1e-3, Back: 1e-3, Queue: full}, 50 * time.Microsecond, "1.0 0.1 8.1", "1.0 0.1 0.1"},
	} {
		w := crossedHosts(&c.clocks, 60, c.kept)
		n := crossedEdge(t, w)
		if n.MatchedThere == nil || *n.MatchedThere != 60 || n.MatchedBack == nil || *n.MatchedBack != 60 {
			t.Errorf("%s: %v packets matched there, %v back, want 60", c.name, n.MatchedThere, n.MatchedBack)
			continue
		}
		there := told(n.DelayThereP50) + " " + told(n.DelayThereError) + " " + told(n.AboveThereP99)
		back := told(n.DelayBackP50) + " " + told(n.DelayBackError) + " " + told(n.AboveBackP99)
		if there != c.there || back != c.back {
			t.Errorf("%s: there %s, back %s, want %s and %s", c.name, there, back, c.there, c.back)
		}
	}
	few := crossedEdge(t, crossedHosts(&simulated.Hosts{There: 1e-3, Back: 1e-3}, minCrossed-1, time.Microsecond))
	if *few != (Network{}) {
		t.Errorf("of few packets it is told %+v", few)
	}
}

// TestSplitAcrossHosts: where the time goes is told between two hosts, there and back apart where their clocks are kept
// well, else together: no clock is in the sum.
func TestSplitAcrossHosts(t *testing.T) {
	const there, back, server, whole = 1e-3, 5e-3, 20e-3, 30e-3
	for _, c := range []struct {
		name  string
		hosts simulated.Hosts
		kept  time.Duration
		apart bool
	}{
		{"kept clocks", simulated.Hosts{There: there, Back: back}, 100 * time.Microsecond, true},
		{"free clocks", simulated.Hosts{There: there, Back: back, Offset: 0.2, Drift: 50e-6}, 0, false},
	} {
		w := timedHosts(&c.hosts, c.kept, time.Duration(whole*1e9), time.Duration(server*1e9))
		for _, grouped := range []bool{false, true} {
			o := Options{}
			if grouped {
				o.By = ByHost
			}
			e := FromFrames(w, o).Edges[0]
			s := e.Split
			if s == nil || (s.Both == nil) != c.apart || (s.There == nil) == c.apart || (s.Back == nil) == c.apart {
				t.Errorf("%s, by host %v: the split is %+v", c.name, grouped, s)
				continue
			}
			network := 0.0
			for _, v := range []*float64{s.There, s.Back, s.Both} {
				if v != nil {
					network += *v
				}
			}
			for name, of := range map[string][2]float64{"the network": {network, there + back}, "the server": {s.Server, server},
				"the client": {s.Client, whole - server - there - back}} {
				if math.Abs(of[0]-of[1]) > 3*model.RelativeError*whole {
					t.Errorf("%s, by host %v: %.2f ms in %s, want %.2f", c.name, grouped, of[0]*1e3, name, of[1]*1e3)
				}
			}
			if c.apart && math.Abs(*s.There-there) > float64(*e.Network.DelayThereError) {
				t.Errorf("%s, by host %v: %.2f ms there, want %.2f", c.name, grouped, *s.There*1e3, there*1e3)
			}
		}
	}
}

// TestAboveTheLeastIsExact: by how much packets are above the least is told to within 20 µs, with clocks that are apart
// and drift.
func TestAboveTheLeastIsExact(t *testing.T) {
	for _, drift := range []float64{0, 50e-6, -50e-6} {
		c := simulated.Hosts{Offset: -30e-3, Drift: drift, There: 1e-3, Back: 5e-3, Queue: func(at float64) float64 {
			return max(0, 5-math.Abs(at-5)) * 1e-3
		}}
		exact := c
		exact.Offset, exact.Drift = 0, 0
		got, want := crossedEdge(t, crossedHosts(&c, 60, 0)), crossedEdge(t, crossedHosts(&exact, 60, time.Microsecond))
		for i, pair := range [][2]*Seconds{{got.AboveThereP50, want.AboveThereP50}, {got.AboveThereP99, want.AboveThereP99},
			{got.AboveBackP50, want.AboveBackP50}, {got.AboveBackP99, want.AboveBackP99}} {
			if off := math.Abs(float64(*pair[0] - *pair[1])); off > 20e-6 {
				t.Errorf("drift %v, number %d: %v, want %v", drift, i, *pair[0], *pair[1])
			}
		}
	}
}

// TestJitterAcrossHosts: by how much one packet's delay differs from the next one's is told without any common clock.
func TestJitterAcrossHosts(t *testing.T) {
	// Every other packet there waits for 2 ms: 60 packets in ten seconds, one each sixth of a second.
	queue := func(at float64) float64 { return math.Mod(math.Round(at*6), 2) * 2e-3 }
	for _, drift := range []float64{0, 50e-6} {
		c := simulated.Hosts{Offset: 40e-3, Drift: drift, There: 1e-3, Back: 1e-3, Queue: queue}
		exact := c
		exact.Offset, exact.Drift = 0, 0
		got, want := crossedEdge(t, crossedHosts(&c, 60, 0)), crossedEdge(t, crossedHosts(&exact, 60, time.Microsecond))
		if got.JitterThere == nil || got.JitterBack == nil || want.JitterThere == nil {
			t.Fatalf("drift %v: the jitter is not told: %+v", drift, got)
		}
		if there, back := float64(*got.JitterThere), float64(*got.JitterBack); math.Abs(there-float64(*want.JitterThere)) > 20e-6 ||
			there < 10*back {
			t.Errorf("drift %v: jitter %v there, want %v; %v back, where no packet waits", drift, there, *want.JitterThere, back)
		}
	}
}
