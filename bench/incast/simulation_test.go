package incast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// plain has a network without jitter and a thread that takes no time, so that results have closed forms.
func plain(hosts int, p Policy) Setup {
	return Setup{
		Network: Network{Link: 10 * Gbit, HostLink: 40 * Gbit, Delay: 10 * time.Microsecond, MTU: 4096, Header: 80},
		Switch:  Switch{Buffer: 64 << 20, PFC: true},
		Load:    Load{Hosts: hosts, Bytes: 128 << 10, Fragment: 4 << 10},
		Policy:  p,
	}
}

func run(t testing.TB, s Setup) Result {
	t.Helper()
	r, err := Run(s)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	if r.Sent != r.Received+r.Dropped || r.SentBytes != r.ReceivedBytes+r.DroppedBytes {
		t.Errorf("%v: %d packets (%d bytes) sent, %d (%d) received, %d (%d) dropped", s.Policy, r.Sent, r.SentBytes,
			r.Received, r.ReceivedBytes, r.Dropped, r.DroppedBytes)
	}
	fragments := s.Load.Hosts * ((s.Load.Bytes + s.Load.Fragment - 1) / s.Load.Fragment)
	if r.Requests != fragments+r.Repeated {
		t.Errorf("%v: %d requests, %d repeated, of %d fragments", s.Policy, r.Requests, r.Repeated, fragments)
	}
	if useful := r.ReceivedBytes; r.Useless == 0 && r.Repeated == 0 && useful != r.WireBytes {
		t.Errorf("%v: %d bytes received of %d", s.Policy, useful, r.WireBytes)
	}
	if r.Utilisation > 1 {
		t.Errorf("%v: the link carried %v of what it can", s.Policy, r.Utilisation)
	}
	return r
}

// near compares with what is expected in seconds, to a nanosecond or a millionth.
func near(t *testing.T, what string, got time.Duration, want float64) {
	t.Helper()
	if math.Abs(got.Seconds()-want) > math.Max(1e-9, want*1e-6) {
		t.Errorf("%s took %v, want %.9f s", what, got, want)
	}
}

// TestOneFragmentEachRoundTrip: a flow whose credit is one fragment has one each round trip.
func TestOneFragmentEachRoundTrip(t *testing.T) {
	s := plain(1, Policy{Credit, 4 << 10})
	r := run(t, s)
	wire := float64(4096+80) * 8
	near(t, "32 round trips", r.Elapsed, 32*(2*10e-6+wire/40e9+wire/10e9))
	if want := 4096 + 80; r.QueueMost != want {
		t.Errorf("the queue had %d bytes, want the packet that is sent, %d", r.QueueMost, want)
	}
}

// TestLinkIsNeverIdle: when everything is asked for at once, the link is idle for the first round trip alone.
func TestLinkIsNeverIdle(t *testing.T) {
	for _, hosts := range []int{1, 7, 100} {
		s := plain(hosts, Policy{})
		r := run(t, s)
		first := 2*10e-6 + float64(4096+80)*8/40e9
		near(t, fmt.Sprint(hosts, " hosts"), r.Elapsed, first+float64(s.WireBytes())*8/10e9)
	}
}

// TestCreditOfBandwidthAndDelayIsEnough: one flow uses all of the link if its credit is the product of bandwidth and delay,
// and its share of it if it has less.
func TestCreditOfBandwidthAndDelayIsEnough(t *testing.T) {
	s := plain(1, Policy{Credit, 40 << 10})
	s.Load.Bytes = 64 << 20
	if r := run(t, s); r.Utilisation < 0.999 {
		t.Errorf("%v of the link was used with %d bytes of credit, want all", r.Utilisation, s.Policy.Bytes)
	}
	s.Policy.Bytes = 12 << 10
	wire := float64(4096+80) * 8
	want := 3 * wire / 10e9 / (2*10e-6 + wire/40e9 + wire/10e9)
	if r := run(t, s); math.Abs(r.Utilisation-want) > 0.01*want {
		t.Errorf("%v of the link was used with %d bytes of credit, want %v", r.Utilisation, s.Policy.Bytes, want)
	}
}

// TestMostHosts: n = B·U/S hosts are read in U.
func TestMostHosts(t *testing.T) {
	interval := 100 * time.Millisecond
	for _, p := range []Policy{{}, {BDP, 40 << 10}, {Credit, 1 << 20}, {Paced, 1 << 20}} {
		s := plain(1, p)
		n := s.MostHosts(interval)
		if simple := 10e9 / 8 * 0.1 / (128 << 10); float64(n) > simple || float64(n) < 0.97*simple {
			t.Fatalf("n = %d with headers, %v without", n, simple)
		}
		s.Load.Hosts, s.Load.Group = n, 64
		took := run(t, s).Elapsed.Seconds() / interval.Seconds()
		if took < 0.99 || took > 1.02 {
			t.Errorf("%v: reading n = %d hosts took %v of the interval, want 1", p.Flow, n, took)
		}
	}
}

// TestFigure10 has the paper's observations in Cluster1.
func TestFigure10(t *testing.T) {
	c := Cluster1()
	for _, hosts := range c.Hosts {
		none := run(t, c.With(hosts, Policy{}))
		if begun := none.Pauses > 0; begun != (hosts >= 256) {
			t.Errorf("%d hosts without flow control: %d pauses; they begin at 256", hosts, none.Pauses)
		}
		for _, p := range c.Policies()[2:] {
			r := run(t, c.With(hosts, p))
			if r.Pauses != 0 || r.Dropped != 0 || r.Marked != 0 {
				t.Errorf("%d hosts, %v: %d pauses, %d drops, %d marks", hosts, p, r.Pauses, r.Dropped, r.Marked)
			}
			if r.Utilisation < 0.97 {
				t.Errorf("%d hosts, %v: %v of the link used, want all of it", hosts, p.Flow, r.Utilisation)
			}
		}
		if bdp := run(t, c.With(hosts, Policy{BDP, c.BDP})); hosts <= 512 && bdp.Pauses != 0 {
			t.Errorf("%d hosts, BDP-FC: %d pauses", hosts, bdp.Pauses)
		}
	}
}

// TestFigure11 has the paper's observations in Cluster2, and what Paced makes better.
func TestFigure11(t *testing.T) {
	c := Cluster2()
	for _, hosts := range c.Hosts {
		bdp, credit, paced := run(t, c.With(hosts, Policy{BDP, c.BDP})), run(t, c.With(hosts, Policy{Credit, c.Total})),
			run(t, c.With(hosts, Policy{Paced, c.Total}))
		if bdp.Marked == 0 {
			t.Errorf("%d hosts, BDP-FC: no packet was marked", hosts)
		}
		if credit.Marked != 0 || paced.Marked != 0 {
			t.Errorf("%d hosts: %d packets marked with Credit-FC, %d with Paced", hosts, credit.Marked, paced.Marked)
		}
		if hosts >= 512 && (credit.Utilisation < 0.4 || credit.Utilisation > 0.6) {
			t.Errorf("%d hosts, Credit-FC: %v of the link used, about half in the paper", hosts, credit.Utilisation)
		}
		if hosts >= 256 && paced.Utilisation < 1.5*credit.Utilisation {
			t.Errorf("%d hosts: %v of the link used with Paced, %v with Credit-FC", hosts, paced.Utilisation,
				credit.Utilisation)
		}
		if paced.QueueMost > c.Setup.Switch.ECNMin/10 {
			t.Errorf("%d hosts, Paced: a queue of %d bytes", hosts, paced.QueueMost)
		}
	}
}

// TestPausesBeginAtTheThreshold: n ports that fill alike are paused when the queue is n·alpha/(1+n·alpha) of the buffer.
func TestPausesBeginAtTheThreshold(t *testing.T) {
	const hosts = 32
	s := plain(hosts, Policy{})
	s.Switch = Switch{Buffer: 4 << 20, Alpha: 1. / 16, PFC: true}
	threshold := float64(s.Switch.Buffer) * hosts * s.Switch.Alpha / (1 + hosts*s.Switch.Alpha)
	for _, share := range []float64{0.5, 0.9, 1.2, 2} {
		total := int(share*threshold) / 4176 * 4096
		for _, flow := range []Flow{Unlimited, BDP, Credit} {
			s.Load.Bytes = 4 << 20 / hosts
			s.Policy = Policy{flow, total / hosts}
			switch flow {
			case Credit:
				s.Policy.Bytes = total
			case Unlimited:
				s.Load.Bytes = total / hosts
			}
			r := run(t, s)
			if (r.Pauses > 0) != (share > 1) || r.Dropped != 0 {
				t.Errorf("%v, %v of the threshold: %d pauses, %d drops, queue %d", flow, share, r.Pauses, r.Dropped, r.QueueMost)
			}
			if r.Pauses > 0 && (r.Paused <= 0 || r.Paused >= 1) {
				t.Errorf("%v: paused for %v of the time", flow, r.Paused)
			}
		}
	}
}

// TestCreditDropsNothing: without PFC, what is over the buffer is dropped and asked for again, and a credit of no more than
// the buffer keeps that from happening.
func TestCreditDropsNothing(t *testing.T) {
	s := plain(64, Policy{})
	s.Switch = Switch{Buffer: 256 << 10}
	s.Controller.Timeout = 2 * time.Millisecond
	if r := run(t, s); r.Dropped == 0 || r.Repeated == 0 || r.QueueMost > s.Switch.Buffer {
		t.Errorf("without flow control: %d drops, %d repeated, queue %d", r.Dropped, r.Repeated, r.QueueMost)
	}
	for _, p := range []Policy{{Credit, 240 << 10}, {Paced, 240 << 10}} {
		s.Policy, s.Load.Group = p, 16
		if r := run(t, s); r.Dropped != 0 || r.Repeated != 0 || r.QueueMost > p.Bytes+p.Bytes/16 {
			t.Errorf("%v: %d drops, %d repeated, queue %d", p, r.Dropped, r.Repeated, r.QueueMost)
		}
	}
}

// TestPacedLeavesRoomForOthers: with packets of others on the link the window takes what they leave, and they wait little.
func TestPacedLeavesRoomForOthers(t *testing.T) {
	c := Cluster2()
	delay, used := map[Flow]time.Duration{}, map[Flow]float64{}
	for _, p := range []Policy{{Unlimited, 0}, {Credit, 256 << 10}, {Paced, 256 << 10}} {
		s := c.With(1024, p)
		s.Load.Others, s.Load.Group = 0.3, 64
		r := run(t, s)
		delay[p.Flow], used[p.Flow] = r.OthersDelay, r.Utilisation+r.OthersUsed
		if p.Flow == Paced && r.Marked != 0 {
			t.Errorf("Paced: %d packets marked", r.Marked)
		}
		if math.Abs(r.OthersUsed-0.3) > 0.02 {
			t.Errorf("%v: others took %v of the link, want 0.3", p.Flow, r.OthersUsed)
		}
	}
	if delay[Paced] > delay[Unlimited]/10 || used[Paced] < used[Credit] || used[Paced] < 0.9 {
		t.Errorf("others waited %v, the link was used %v", delay, used)
	}
}

// TestCardThatKnowsFewConnections: without groups each request of many hosts is a miss; in groups none is, after the first.
func TestCardThatKnowsFewConnections(t *testing.T) {
	s := plain(512, Policy{Credit, 2 << 20})
	s.Controller.Connections, s.Controller.Miss = 128, 5*time.Microsecond // a fragment takes 3.3 µs on the link
	if r := run(t, s); r.Utilisation > 0.7 {
		t.Errorf("%v of the link used with a card that fetches each connection", r.Utilisation)
	}
	s.Load.Group = 64
	if r := run(t, s); r.Utilisation < 0.9 {
		t.Errorf("%v of the link used with groups of 64", r.Utilisation)
	}
}

func TestSameSeedSameResult(t *testing.T) {
	c := Cluster2()
	s := c.With(300, Policy{BDP, 96 << 10})
	s.Load.Others, s.Seed = 0.2, 1
	first := run(t, s)
	if second := run(t, s); first != second {
		t.Errorf("two results of one setup:\n%+v\n%+v", first, second)
	}
	s.Seed = 2
	if other := run(t, s); first == other {
		t.Error("another seed gave the same result")
	}
}

// TestRandomSetups: whatever the setup, bytes are conserved (see run), and all hosts are read.
func TestRandomSetups(t *testing.T) {
	dropped, paused, marked := 0, 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		rate := func() Rate { return Gbit * Rate(1+r.IntN(100)) }
		micro := func(n int) time.Duration { return time.Duration(r.IntN(n*1000)) * time.Nanosecond }
		s := Setup{
			Network: Network{rate(), rate(), r.IntN(20), micro(50), micro(5), 512 << r.IntN(4), r.IntN(100)},
			Switch: Switch{Buffer: 64<<10 + r.IntN(1<<20), Alpha: float64(r.IntN(3)) / 4, PFC: r.IntN(2) == 0,
				Resume: r.IntN(8 << 10), ECNMin: r.IntN(100 << 10), ECNMax: r.IntN(400 << 10), ECNShare: r.Float64()},
			Controller: Controller{micro(2), micro(2), micro(1), r.IntN(20), r.IntN(30), micro(1), 20 * time.Millisecond},
			Load: Load{Hosts: 1 + r.IntN(60), Bytes: 1 + r.IntN(100<<10), Fragment: 1 << (9 + r.IntN(6)), Group: r.IntN(20),
				Others: float64(r.IntN(2)) * 0.3},
			Seed: seed,
		}
		s.Policy = Policy{Flow(r.IntN(4)), s.Load.Fragment * (1 + r.IntN(100))}
		result := run(t, s)
		if s.Switch.PFC && result.Dropped > 0 {
			t.Errorf("seed %d: %d packets dropped with PFC", seed, result.Dropped)
		}
		dropped, paused, marked = dropped+result.Dropped, paused+result.Pauses, marked+result.Marked
	}
	if dropped == 0 || paused == 0 || marked == 0 {
		t.Errorf("%d drops, %d pauses, %d marks: the setups are too tame", dropped, paused, marked)
	}
}

func TestSetupsThatMakeNoSense(t *testing.T) {
	f := func(want string, change func(*Setup)) {
		t.Helper()
		s := plain(2, Policy{Credit, 8 << 10})
		change(&s)
		if _, err := Run(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	f("links", func(s *Setup) { s.Network.Link = 0 })
	f("network", func(s *Setup) { s.Network.MTU = 0 })
	f("network", func(s *Setup) { s.Network.Delay = -1 })
	f("load", func(s *Setup) { s.Load.Hosts = 0 })
	f("others", func(s *Setup) { s.Load.Others = 1 })
	f("buffer", func(s *Setup) { s.Switch.Buffer = 100 })
	f("timeout", func(s *Setup) { s.Switch.PFC = false })
	f("policy", func(s *Setup) { s.Policy.Flow = 9 })
	f("fragment", func(s *Setup) { s.Policy.Bytes = 1 })
	f("1 of 2 hosts", func(s *Setup) { s.Bound, s.Load.Group = 500*time.Microsecond, 1 })
}

func TestAgendaIsInOrder(t *testing.T) {
	var a agenda
	r := rand.New(rand.NewPCG(1, 1))
	var last event
	for i := range 10000 {
		a.add(event{at: last.at + instant(r.IntN(50))})
		if i%3 != 0 {
			e := a.next()
			if e.at < last.at || e.at == last.at && e.order < last.order {
				t.Fatalf("event %d at %d after %d at %d", e.order, e.at, last.order, last.at)
			}
			last = e
		}
	}
}

func TestQueue(t *testing.T) {
	var q queue[int]
	var model []int
	r := rand.New(rand.NewPCG(2, 1))
	for i := range 5000 {
		switch k := r.IntN(5); {
		case k < 2:
			q.push(i)
			model = append(model, i)
		case k == 2:
			q.pushFirst(i)
			model = append([]int{i}, model...)
		case len(model) > 0:
			if got := q.pop(); got != model[0] {
				t.Fatalf("step %d: %d, want %d", i, got, model[0])
			}
			model = model[1:]
		}
		if q.size != len(model) {
			t.Fatalf("step %d: size %d, want %d", i, q.size, len(model))
		}
	}
}

func BenchmarkRun(b *testing.B) {
	c := Cluster1()
	for _, p := range c.Policies() {
		b.Run(p.Flow.String(), func(b *testing.B) {
			var packets int
			for b.Loop() {
				packets += run(b, c.With(1024, p)).Sent
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
		})
	}
}
