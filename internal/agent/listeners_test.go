package agent

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"outsight/internal/model"
)

func TestListenersAreAttached(t *testing.T) {
	s := newScript()
	s.add("web", 10, 11)
	s.listening = []model.Listener{
		{Owner: 11, Address: netip.MustParseAddrPort("0.0.0.0:80")}, {Owner: 10, Address: netip.MustParseAddrPort("[::]:9")},
		{Owner: 10, Address: netip.MustParseAddrPort("0.0.0.0:80")},
	}
	a := New(s.sources(), Options{})
	first, second := a.read().Containers[1].Container, a.read().Containers[1].Container
	if got, want := fmt.Sprint(first.Listeners), "[0.0.0.0:80 [::]:9]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if first != second {
		t.Error("a container that did not change is another value")
	}
	s.listening = nil
	if got := a.read().Containers[1].Container.Listeners; got != nil {
		t.Errorf("got %v after the listener was closed, want none", got)
	}
}

// The queue of an address is that of the fullest of its sockets, at the last reading alone; one that is not known is none.
func TestAcceptQueues(t *testing.T) {
	s := newScript()
	s.add("web", 10)
	a := New(s.sources(), Options{})
	address := netip.MustParseAddrPort("0.0.0.0:80")
	f := func(want model.AcceptQueue, all ...model.AcceptQueue) {
		t.Helper()
		s.listening = nil
		for i, q := range all {
			s.listening = append(s.listening, model.Listener{Owner: 10, NetNS: uint32(i), Address: address, AcceptQueue: q})
		}
		got := a.read().Containers[1].Listeners
		if len(got) != 1 || got[0].Address != address || got[0].AcceptQueue != want {
			t.Errorf("of %v: %+v, want %v", all, got, want)
		}
	}
	q := func(queued, limit uint64) model.AcceptQueue {
		return model.AcceptQueue{Queued: queued, QueueLimit: limit}
	}
	f(q(3, 10), q(3, 10))
	f(q(2, 4), q(3, 10), q(2, 4), q(0, 1))
	f(q(0, 4), q(0, 4))
	f(q(0, 0), q(0, 0))
	f(q(0, 4), q(0, 0), q(0, 4))
}

func TestListenerDropsOnlyGrow(t *testing.T) {
	s := newScript()
	s.add("web", 10)
	at := netip.MustParseAddrPort
	a := New(s.sources(), Options{})
	check := func(want string, listening ...model.Listener) {
		t.Helper()
		s.listening = listening
		got := ""
		for _, l := range a.read().Containers[1].Listeners {
			got += fmt.Sprintf("%v %d, ", l.Address, l.Drops)
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	web := model.Listener{Owner: 10, Address: at("0.0.0.0:80"), Drops: 3}
	other := model.Listener{Owner: 10, NetNS: 7, Address: at("0.0.0.0:80"), Drops: 2}
	quiet := model.Listener{Owner: 10, Address: at("0.0.0.0:70")}
	check("0.0.0.0:70 0, 0.0.0.0:80 5, ", web, other, quiet)
	web.Drops++
	check("0.0.0.0:80 6, ", web)
	web.Drops = 1 // another socket at the same address
	check("0.0.0.0:80 7, ", web)
	check("0.0.0.0:80 7, ")
	var many []model.Listener
	for i := range 2 * maxListeners {
		many = append(many, model.Listener{Owner: 10, Address: netip.AddrPortFrom(at("0.0.0.0:1").Addr(), uint16(1000+i)),
			Drops: 1})
	}
	s.listening = many
	got := a.read().Containers[1].Listeners
	if len(got) != maxListeners+1 || got[0] != (model.ListenerCounters{Drops: maxListeners + 1}) {
		t.Errorf("%d addresses, the first is %+v", len(got), got[0])
	}
}

// TestNewListenersAreBounded: a container that opens other ports all the time has no series for each of them, and
// what was dropped there counts all the same.
func TestNewListenersAreBounded(t *testing.T) {
	s := newScript()
	s.add("web", 10)
	a := New(s.sources(), Options{})
	seen := map[netip.AddrPort]bool{}
	drops := uint64(0)
	for i := range 1000 {
		s.listening = []model.Listener{{Owner: 10, Drops: 1,
			Address: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(1000+i))}}
		drops = 0
		for _, l := range a.read().Containers[1].Listeners {
			seen[l.Address] = true
			drops += l.Drops
		}
	}
	if len(seen) > 2*maxListeners+2 || drops != 1000 {
		t.Errorf("%d addresses had series, and counted %d drops; want at most %d and 1000", len(seen), drops,
			2*maxListeners+2)
	}
	s.listening = nil
	for i := range 1000 {
		s.listening = append(s.listening, model.Listener{Owner: 10,
			Address: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(1000+i))})
	}
	if n := len(a.read().Containers[1].Container.Listeners); n != maxAttached {
		t.Errorf("%d addresses are told of the container, want %d", n, maxAttached)
	}
}

// TestRestartsHaveOneQuotaOfListeners: a container that ends and starts again has what was left of its new addresses.
func TestRestartsHaveOneQuotaOfListeners(t *testing.T) {
	l := newListeners()
	web := &model.Container{ID: "web", Cgroup: 10}
	lookup := func(model.CgroupID) *model.Container { return web }
	holder := func(c *model.Container, _ uint32) *model.Container { return c }
	seen := map[netip.AddrPort]bool{}
	at := time.Unix(1000, 0)
	for i := range 20 {
		for k := range maxListeners / 2 {
			port := uint16(1000 + i*maxListeners + k)
			l.update(at, []model.Listener{{Owner: 10, Address: netip.AddrPortFrom(netip.IPv4Unspecified(), port)}}, lookup,
				holder)
			for _, c := range l.counters("web") {
				seen[c.Address] = true
			}
		}
		l.keep(at, []*model.Container{web})
		l.keep(at, nil)
	}
	if len(seen) > 2*maxListeners+2 {
		t.Errorf("%d addresses had series, want at most %d", len(seen), 2*maxListeners+2)
	}
	l.keep(at.Add(3*time.Hour), nil)
	if len(l.drops) != 0 {
		t.Error("the drops of a container that is gone are kept for ever")
	}
	for i := range 2 * maxGone {
		l.of(fmt.Sprint(i)).add(at, netip.AddrPortFrom(netip.IPv4Unspecified(), 80), 1)
	}
	l.keep(at, nil)
	if len(l.drops) != maxGone {
		t.Errorf("drops of %d containers are kept, want %d", len(l.drops), maxGone)
	}
}
