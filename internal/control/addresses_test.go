package control

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// addressed is a host with containers that have addresses.
type addressed struct {
	name    string
	builder *frame.Builder
	all     []netip.Addr
}

func newAddressed(name string) *addressed {
	return &addressed{name: name, builder: frame.NewBuilder(time.Unix(1_800_000_000, 0))}
}

func (h *addressed) frame(n int) *frame.Frame {
	s := &model.Snapshot{Host: model.Host{Name: h.name}, Time: time.Unix(1_800_000_000+int64(n), 0)}
	for i, a := range h.all {
		if i%100 == 0 {
			id := fmt.Sprint("c", i)
			s.Containers = append(s.Containers, model.ContainerSample{Container: &model.Container{ID: id, Name: id}})
		}
		c := s.Containers[len(s.Containers)-1].Container
		c.Addresses = append(c.Addresses, a)
	}
	return h.builder.Build(s)
}

func windowOf(n int, hosts []*addressed) *frame.Window {
	w := &frame.Window{}
	for _, h := range hosts {
		w.Hosts = append(w.Hosts, frame.HostSpans{Host: h.name, Spans: []frame.Span{{After: h.frame(n)}}})
	}
	return w
}

// TestAddresses: after each of many changes the index says of each address what the frames say.
func TestAddresses(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var hosts []*addressed
	for i := range 20 {
		hosts = append(hosts, newAddressed(fmt.Sprintf("h%02d", i)))
	}
	address := func() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(rnd.IntN(2)), byte(rnd.IntN(256))}) }
	x := NewAddresses()
	for round := range 50 {
		present := slices.Clone(hosts)
		rnd.Shuffle(len(present), func(i, j int) { present[i], present[j] = present[j], present[i] })
		present = present[:10+rnd.IntN(11)]
		for _, h := range present {
			switch rnd.IntN(3) {
			case 0: // as it was
			case 1:
				h.all = append(h.all, address(), address())
			default:
				h.all = h.all[:rnd.IntN(len(h.all)+1)]
			}
		}
		x.Update(windowOf(round, present))
		for a := netip.MustParseAddr("10.0.0.0"); a != netip.MustParseAddr("10.0.2.0"); a = a.Next() {
			var want []string
			for _, h := range present {
				if slices.Contains(h.all, a) {
					want = append(want, h.name)
				}
			}
			slices.Sort(want)
			if got := x.Lookup(a); !slices.Equal(got, want) {
				t.Fatalf("round %d: %v is of %v, want %v", round, a, got, want)
			}
		}
	}
	if x.Update(&frame.Window{}); len(x.at) != 0 || len(x.hosts) != 0 {
		t.Errorf("%d addresses and %d hosts are left", len(x.at), len(x.hosts))
	}
}

// manyAddresses are 800,000 on 1000 hosts.
func manyAddresses() (hosts []*addressed) {
	for i := range 1000 {
		h := newAddressed(fmt.Sprintf("h%04d", i))
		for n := range 800 {
			h.all = append(h.all, netip.AddrFrom4([4]byte{10, byte(i >> 2), byte(i<<6) | byte(n>>8), byte(n)}))
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// BenchmarkLookup finds the host of one of 800,000 addresses.
func BenchmarkLookup(b *testing.B) {
	hosts := manyAddresses()
	x := NewAddresses()
	x.Update(windowOf(0, hosts))
	if len(x.at) != 800_000 {
		b.Fatalf("%d addresses", len(x.at))
	}
	n := 0
	for b.Loop() {
		h := hosts[n*7919%len(hosts)]
		if got := x.Lookup(h.all[n%len(h.all)]); len(got) != 1 || got[0] != h.name {
			b.Fatalf("got %v, want %s", got, h.name)
		}
		n++
	}
}

// BenchmarkUpdate takes a window in of which nothing has changed.
func BenchmarkUpdate(b *testing.B) {
	w := windowOf(0, manyAddresses())
	x := NewAddresses()
	x.Update(w)
	for b.Loop() {
		x.Update(w)
	}
}
