package framelog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"outsight/internal/frame"
)

// truth is what was counted when a frame was made.
type truth struct {
	at      time.Time
	epoch   uint64
	number  uint64
	counted uint64
}

// fleet is a few hosts over some time, and what they counted.
type fleet struct {
	hosts  []string
	truth  map[string][]truth
	frames []Encoded // in the order in which they arrive
	length time.Duration
}

// longFleet is the fleet of several tests.
var longFleet = sync.OnceValue(func() *fleet { return newFleet(50 * time.Minute) })

// newFleet simulates hosts whose containers come and go and whose agents restart. One begins late and ends early, one
// is silent for a while, and the frames of one come late for a part of the time.
func newFleet(length time.Duration) *fleet {
	f := &fleet{truth: map[string][]truth{}, length: length}
	random := rand.New(rand.NewPCG(11, 12))
	var hosts []*simulated
	for i := range 5 {
		f.hosts = append(f.hosts, fmt.Sprint("host-", i))
		hosts = append(hosts, newSimulated(f.hosts[i], uint64(i), 4+i, start.Add(-time.Second)))
	}
	var late []Encoded
	for second := range int(length / time.Second) {
		for i, h := range hosts {
			now := start.Add(time.Duration(second)*time.Second + time.Duration(i)*70*time.Millisecond)
			part := float64(second) / length.Seconds()
			if i == 1 && (part < 0.2 || part > 0.7) || i == 2 && part > 0.4 && part < 0.65 {
				continue
			}
			if random.IntN(400) == 0 {
				h.restart(now.Add(-time.Second / 2))
			}
			if random.IntN(20) == 0 {
				h.churn()
			}
			e := h.next(now)
			f.truth[h.name] = append(f.truth[h.name], truth{e.Time, e.Epoch, e.Number, h.counted})
			if i == 3 && part > 0.3 && part < 0.5 {
				late = append(late, e)
				continue
			}
			f.frames = append(f.frames, e)
		}
		if float64(second) > 0.6*length.Seconds() && len(late) > 0 {
			f.frames = append(f.frames, late[:min(7, len(late))]...)
			late = late[min(7, len(late)):]
		}
	}
	f.frames = append(f.frames, late...)
	return f
}

// newestTruth is the newest that is no later than a time, of an epoch.
func newestTruth(all []truth, epoch uint64, at time.Time) (found truth, ok bool) {
	for _, one := range all {
		if one.epoch == epoch && !one.at.After(at) {
			found, ok = one, true
		}
	}
	return found, ok
}

// wanted is what a window is to say of a host: for each epoch the numbers of the frames, 0 for none before, and the
// sum.
func (f *fleet) wanted(host string, from, to time.Time) (spans [][3]uint64, sum uint64) {
	all := f.truth[host]
	done := map[uint64]bool{}
	for _, one := range all { // epochs in order
		if done[one.epoch] {
			continue
		}
		done[one.epoch] = true
		after, ok := newestTruth(all, one.epoch, to)
		if !ok || from.Sub(after.at) > Silence {
			continue
		}
		before, ok := newestTruth(all, one.epoch, from)
		if !ok || from.Sub(before.at) > Silence {
			if before = (truth{}); len(spans) == 0 || one.epoch <= uint64(from.UnixNano()) {
				for _, first := range all {
					if first.epoch == one.epoch && first.at.After(from) {
						before = first
						break
					}
				}
			}
		}
		spans = append(spans, [3]uint64{one.epoch, before.number, after.number})
		sum += after.counted - before.counted
	}
	return spans, sum
}

func (f *fleet) log(t *testing.T, o Options, c *clock) *Files {
	t.Helper()
	log := open(t, t.TempDir(), o)
	for i := 0; i < len(f.frames); i += 50 {
		batch := f.frames[i:min(i+50, len(f.frames))]
		c.now = start
		for j := range batch {
			if batch[j].Time.After(c.now) {
				c.now = batch[j].Time
			}
		}
		mustAppend(t, log, batch...)
	}
	c.now = start.Add(f.length)
	return log
}

// TestWindows holds 300 random windows against what was counted: to the last count, and of the right frames.
func TestWindows(t *testing.T) {
	fleet := longFleet()
	c := &clock{start}
	o := c.options()
	o.SegmentBytes, o.SegmentAge, o.Fine = 300_000, 5*time.Minute, 2*time.Hour
	log := fleet.log(t, o, c)
	random := rand.New(rand.NewPCG(21, 22))
	epochs, fromZero, partly := 0, 0, 0
	for range 300 {
		times := []time.Time{start.Add(time.Duration(random.Int64N(int64(fleet.length))) - time.Minute)}
		for range 1 + random.IntN(4) {
			length := time.Duration(random.Int64N(int64(fleet.length) / 4))
			times = append(times, times[len(times)-1].Add(length))
		}
		n := 0
		for w, err := range log.Windows(context.Background(), Query{Tenant: "t", Times: times}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			if !w.From.Equal(times[n-1]) || !w.To.Equal(times[n]) {
				t.Fatalf("window %v to %v, want %v to %v", w.From, w.To, times[n-1], times[n])
			}
			by := map[string][]frame.Span{}
			for _, h := range w.Hosts {
				by[h.Host] = h.Spans
			}
			for _, host := range fleet.hosts {
				want, sum := fleet.wanted(host, w.From, w.To)
				got, gained := [][3]uint64(nil), uint64(0)
				for _, s := range by[host] {
					number := uint64(0)
					if s.Before != nil {
						number = s.Before.Number
					} else {
						fromZero++
					}
					got = append(got, [3]uint64{s.After.Epoch, number, s.After.Number})
					gained += total(s.After) - total(s.Before)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) || gained != sum {
					t.Fatalf("%s from %v to %v: frames %v with %d, want %v with %d", host, w.From, w.To, got, gained, want, sum)
				}
				if len(got) > 1 {
					epochs++
				}
			}
			if len(w.Hosts) < len(fleet.hosts) {
				partly++
			}
		}
		if n != len(times)-1 {
			t.Fatalf("%d windows of %d moments", n, len(times))
		}
	}
	if epochs == 0 || fromZero == 0 || partly == 0 {
		t.Errorf("%d windows with restarts, %d spans from zero, %d windows in which a host was not there", epochs, fromZero,
			partly)
	}
	if s := log.Stats(); s.Frames != len(fleet.frames) || s.Damaged+s.Rejected+s.KeyMissing > 0 || s.Segments < 5 {
		t.Errorf("stats: %+v", s)
	}
}

// TestThinning: after it windows are coarser and as exact.
func TestThinning(t *testing.T) {
	fleet := longFleet()
	c := &clock{start}
	o := c.options()
	o.SegmentBytes, o.SegmentAge = 300_000, 2*time.Minute
	o.Fine, o.Middle, o.MiddleEvery = 10*time.Minute, 25*time.Minute, 10*time.Second
	log := fleet.log(t, o, c)
	before := log.Stats()
	for range 3 {
		if err := log.Tidy(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	after := log.Stats()
	if after.Frames+int(after.Thinned) != len(fleet.frames) || after.Frames > len(fleet.frames)/2 ||
		after.Bytes >= before.Bytes || after.Damaged > 0 {
		t.Errorf("stats: %+v, before %+v", after, before)
	}
	checkThinned(t, fleet, log, o)
	reopened := log.dir
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log = open(t, reopened, o)
	if s := log.Stats(); s.Frames != after.Frames {
		t.Errorf("%d frames after it was opened again, %d before", s.Frames, after.Frames)
	}
	checkThinned(t, fleet, log, o)
}

func checkThinned(t *testing.T, fleet *fleet, log *Files, o Options) {
	t.Helper()
	counted := map[string]map[[2]uint64]truth{}
	for host, all := range fleet.truth {
		counted[host] = map[[2]uint64]truth{}
		for _, one := range all {
			counted[host][[2]uint64{one.epoch, one.number}] = one
		}
	}
	random := rand.New(rand.NewPCG(31, 32))
	for range 300 {
		from := start.Add(time.Duration(random.Int64N(int64(fleet.length))))
		to := from.Add(time.Duration(random.Int64N(int64(fleet.length) / 2)))
		for w, err := range log.Windows(context.Background(), Query{Tenant: "t", Times: []time.Time{from, to}}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range w.Hosts {
				want, _ := fleet.wanted(h.Host, from, to)
				if len(want) != len(h.Spans) {
					var got [][3]uint64
					for _, s := range h.Spans {
						got = append(got, [3]uint64{s.After.Epoch, 0, s.After.Number})
					}
					t.Fatalf("%s from %v to %v: epochs %v, want %v", h.Host, from, to, got, want)
				}
				for i, s := range h.Spans {
					after, sum := counted[h.Host][[2]uint64{s.After.Epoch, s.After.Number}], uint64(0)
					if s.Before != nil {
						sum = counted[h.Host][[2]uint64{s.Before.Epoch, s.Before.Number}].counted
					}
					if got := total(s.After) - total(s.Before); got != after.counted-sum {
						t.Fatalf("%s gained %d, want %d", h.Host, got, after.counted-sum)
					}
					// The frame is the newest one but for those that were left out.
					all := fleet.truth[h.Host]
					newest, _ := newestTruth(all, s.After.Epoch, to)
					grain := time.Minute
					switch age := start.Add(fleet.length).Sub(newest.at); {
					case age < o.Fine:
						grain = 0
					case age < o.Middle:
						grain = o.MiddleEvery
					}
					if late := newest.at.Sub(s.After.Time); late > grain || newest.epoch != want[i][0] {
						t.Fatalf("%s at %v: the frame of %v, %v earlier than the newest", h.Host, to, s.After.Time, late)
					}
				}
			}
		}
	}
}

// TestNewest has the newest frame of each host, however old.
func TestNewest(t *testing.T) {
	fleet := newFleet(20 * time.Minute)
	c := &clock{start}
	log := fleet.log(t, c.options(), c)
	all, err := log.Newest(context.Background(), "t")
	if err != nil || len(all) != len(fleet.hosts) {
		t.Fatalf("%d frames, %v", len(all), err)
	}
	for i, f := range all {
		known := fleet.truth[fleet.hosts[i]]
		want := known[len(known)-1]
		if f.Host != fleet.hosts[i] || f.Epoch != want.epoch || f.Number != want.number || total(f) != want.counted {
			t.Errorf("%s: frame %d of %d, want %+v", f.Host, f.Number, f.Epoch, want)
		}
	}
}

// TestUnreadableFrames: the one before takes the place of a frame that cannot be decoded, and a key frame that cannot
// be takes all others with it.
func TestUnreadableFrames(t *testing.T) {
	h := newSimulated("h", 1, 3, start)
	c := &clock{start.Add(time.Hour)}
	log := open(t, t.TempDir(), c.options())
	var all []Encoded
	for i := range 150 {
		all = append(all, h.next(start.Add(time.Duration(i)*time.Second)))
	}
	all[100].Data = []byte("no frame")
	all[60].Data = []byte("no key frame") // that of 61 to 119
	mustAppend(t, log, all...)
	at := func(seconds int, want uint64, damaged uint64) {
		t.Helper()
		times := []time.Time{start.Add(5 * time.Second), start.Add(time.Duration(seconds) * time.Second)}
		for w, err := range log.Windows(context.Background(), Query{Tenant: "t", Times: times}) {
			if err != nil {
				t.Fatal(err)
			}
			if got := w.Hosts[0].Spans[0].After.Number; got != want {
				t.Errorf("second %d: frame %d, want %d", seconds, got, want)
			}
		}
		if got := log.Stats().Damaged; got != damaged {
			t.Errorf("second %d: %d damaged, want %d", seconds, got, damaged)
		}
	}
	at(130, 131, 0)
	at(59, 60, 0)
	at(110, 60, 1)
	at(100, 60, 1)
	at(130, 131, 1)
}
