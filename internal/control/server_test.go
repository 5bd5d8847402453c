package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"outsight/internal/frame"
)

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// site is a server, what happens on its hosts, and agents that ask it.
type site struct {
	t      *testing.T
	server *Server
	// mu guards the rest.
	mu    sync.Mutex
	talks map[string][]Talk
	err   error
	away  bool
	// frames are of these hosts, since then; none where there are no hosts.
	frames []string
	since  time.Time
}

func newSite(t *testing.T, o ServerOptions) *site {
	s := &site{t: t, talks: map[string][]Talk{}}
	o.Window = func(_ context.Context, tenant string, from, to time.Time) (*frame.Window, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		w := &frame.Window{From: from, To: to, Hosts: []frame.HostSpans{{Host: tenant}}}
		for _, host := range s.frames {
			before := frameAt(s.since)
			if s.since.Before(from) {
				before = frameAt(from)
			}
			w.Hosts = append(w.Hosts, frame.HostSpans{Host: host, Spans: []frame.Span{{Before: before, After: frameAt(to)}}})
		}
		return w, s.err
	}
	o.Talks = func(w *frame.Window, _ func(netip.AddrPort) bool) Talks {
		s.mu.Lock()
		defer s.mu.Unlock()
		return Talks{Hosts: s.talks[w.Hosts[0].Host]}
	}
	s.server = NewServer(o)
	return s
}

func frameAt(at time.Time) *frame.Frame { return &frame.Frame{Header: frame.Header{Time: at}} }

func (s *site) run() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.server.Run(ctx); err != nil {
			s.t.Error(err)
		}
	})
	return func() { cancel(); running.Wait() }
}

// change puts another server at the place of this one.
func (s *site) change(next *site) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = next.server
}

func (s *site) talk(tenant string, talks ...Talk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.talks[tenant] = talks
}

// asker is an agent's way to a server.
type asker struct {
	*site
	tenant string
}

func (a asker) Ask(ctx context.Context, path string, body []byte) (Answer, error) {
	a.mu.Lock()
	away, server := a.away, a.server
	a.mu.Unlock()
	if away {
		return Answer{}, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	server.ServeTenant(w, httptest.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body)), a.tenant)
	return Answer{Status: w.Code, Body: w.Body.Bytes()}, ctx.Err()
}

// follower is an agent.
type follower struct {
	mu    sync.Mutex
	state *State
	times int
}

func (s *site) follow(ctx context.Context, tenant string, q Question) *follower {
	f := &follower{}
	apply := func(state *State) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.state = state
		f.times++
	}
	go Follow(ctx, ClientOptions{Server: asker{s, tenant}, Question: func() Question { return q }, Apply: apply})
	return f
}

func (f *follower) peers() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == nil {
		return nil
	}
	for _, s := range f.state.Sessions {
		names = append(names, "to "+s.Peer)
	}
	for _, p := range f.state.Peers {
		names = append(names, "from "+p.Name)
	}
	slices.Sort(names)
	return names
}

// key is that of the first session.
func (f *follower) key() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Sessions[0].Key
}

// told is how often it was told a state.
func (f *follower) told() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.times
}

func (f *follower) want(t *testing.T, names ...string) {
	t.Helper()
	if got := f.peers(); !slices.Equal(got, names) {
		t.Errorf("an agent has %v, want %v", got, names)
	}
}

// TestFollow: a pair that talks has a session within a second, its end ends it, and tenants know nothing of each other.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSite(t, ServerOptions{})
		stop := s.run()
		a := s.follow(ctx, "shop", agentAt("a", "192.0.2.1").Question)
		b := s.follow(ctx, "shop", agentAt("b", "192.0.2.2").Question)
		other := s.follow(ctx, "bank", agentAt("b", "192.0.2.2").Question)
		time.Sleep(5 * time.Second)
		a.want(t)
		s.talk("shop", talkOf("a", "b", 1))
		time.Sleep(1100 * time.Millisecond)
		a.want(t, "to b")
		b.want(t, "from a")
		other.want(t)
		time.Sleep(10 * time.Minute) // leases are renewed, and nothing is told again
		if a.want(t, "to b"); a.told() > 3 {
			t.Errorf("the agent was told its state %d times", a.told())
		}
		s.talk("shop")
		time.Sleep(1100 * time.Millisecond)
		a.want(t)
		b.want(t)
		cancel()
		stop()
		synctest.Wait()
	})
}

// TestLease: an agent whose server is away gives its sessions up after the lease, and has them again soon after the
// server is back, whether that is the same or another one.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSite(t, ServerOptions{Secret: secret})
		stop := s.run()
		s.talk("", talkOf("a", "b", 1))
		a := s.follow(ctx, "", agentAt("a", "192.0.2.1").Question)
		b := s.follow(ctx, "", agentAt("b", "192.0.2.2").Question)
		time.Sleep(5 * time.Second)
		a.want(t, "to b")
		set := func(away bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.away = away
		}
		set(true)
		stop()
		time.Sleep(60 * time.Second)
		a.want(t, "to b")
		time.Sleep(20 * time.Second)
		a.want(t)
		b.want(t)
		next := newSite(t, ServerOptions{Secret: secret})
		next.talk("", talkOf("a", "b", 1))
		s.change(next)
		stop = next.run()
		set(false)
		time.Sleep(time.Minute)
		a.want(t, "to b")
		// One that begins anew takes nothing away from agents while it does not know them all.
		told := a.told()
		next = newSite(t, ServerOptions{Secret: secret})
		next.talk("", talkOf("a", "b", 1))
		stop()
		s.change(next)
		stop = next.run()
		time.Sleep(2 * time.Minute)
		if a.want(t, "to b"); a.told() != told {
			t.Errorf("a server that began anew told a state %d times more", a.told()-told)
		}
		// Without frames nothing is decided, and what was holds no longer than the lease.
		next.mu.Lock()
		next.err = errors.New("the log cannot be read")
		next.mu.Unlock()
		time.Sleep(5 * time.Minute)
		a.want(t)
		cancel()
		stop()
		synctest.Wait()
	})
}

// TestAgentThatEnds: an agent that asks no more is no peer any more.
func TestAgentThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSite(t, ServerOptions{})
		stop := s.run()
		s.talk("", talkOf("a", "b", 1))
		a := s.follow(ctx, "", agentAt("a", "192.0.2.1").Question)
		short, end := context.WithCancel(ctx)
		s.follow(short, "", agentAt("b", "192.0.2.2").Question)
		time.Sleep(5 * time.Second)
		a.want(t, "to b")
		end()
		time.Sleep(17 * time.Second)
		a.want(t)
		cancel()
		stop()
		synctest.Wait()
	})
}

// registry is a Registry in memory.
type registry struct {
	mu  sync.Mutex
	all map[string][]byte
}

func (r *registry) All(context.Context) (map[string][]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]byte{}
	for k, v := range r.all {
		all[k] = v
	}
	return all, nil
}

func (r *registry) Put(_ context.Context, key string, value []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[key] = value
	return nil
}

func (r *registry) Delete(_ context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, key)
	return nil
}

// TestRegistry: a server that takes over knows agents and keys of the one before, and forgets agents that do not come.
func TestRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &registry{all: map[string][]byte{"agent.broken": []byte("{")}}
		ctx, cancel := context.WithCancel(t.Context())
		s := newSite(t, ServerOptions{Registry: kept})
		stop := s.run()
		s.talk("", talkOf("a", "b", 1))
		a := s.follow(ctx, "", agentAt("a", "192.0.2.1").Question)
		s.follow(ctx, "", agentAt("b", "192.0.2.2").Question)
		time.Sleep(5 * time.Second)
		a.want(t, "to b")
		key := a.key()
		stop()
		cancel()
		synctest.Wait()
		s = newSite(t, ServerOptions{Registry: kept})
		s.talk("", talkOf("a", "b", 1))
		stop = s.run()
		ctx, cancel = context.WithCancel(t.Context())
		a = s.follow(ctx, "", agentAt("a", "192.0.2.1").Question)
		time.Sleep(1100 * time.Millisecond)
		a.want(t, "to b") // which has not asked this server
		if !bytes.Equal(a.key(), key) {
			t.Error("the second server has another key")
		}
		time.Sleep(17 * time.Second)
		a.want(t)
		if all, _ := kept.All(ctx); len(all) != 3 {
			t.Errorf("the registry has %d values, want the secret, a, and the broken one", len(all))
		}
		cancel()
		stop()
		synctest.Wait()
	})
}

// TestTakeOver: a server that takes over takes nothing away from agents before it has frames of the time in which they would
// have had to talk, however often they ask; where frames do not come, it does so in the end.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &registry{all: map[string][]byte{}}
		ctx, cancel := context.WithCancel(t.Context())
		s := newSite(t, ServerOptions{Registry: kept})
		stop := s.run()
		s.talk("", talkOf("a", "b", 1))
		a := s.follow(ctx, "", agentAt("a", "192.0.2.1").Question)
		b := s.follow(ctx, "", agentAt("b", "192.0.2.2").Question)
		time.Sleep(5 * time.Second)
		told := a.told() + b.told()
		next := func(talks []Talk, frames ...string) {
			stop()
			other := newSite(t, ServerOptions{Registry: kept, Wait: 3 * time.Second})
			other.frames, other.since = frames, time.Now()
			other.talk("", talks...)
			s.change(other)
			stop = other.run()
		}
		hold := func() {
			t.Helper()
			a.want(t, "to b")
			b.want(t, "from a")
			if n := a.told() + b.told(); n != told {
				t.Errorf("the agents were told %d states more", n-told)
			}
		}
		next(nil, "a", "b")
		time.Sleep(9 * time.Second)
		hold()
		time.Sleep(3 * time.Second)
		a.want(t)
		b.want(t)

		next([]Talk{talkOf("a", "b", 1)}, "a", "b")
		time.Sleep(12 * time.Second)
		told = a.told() + b.told()
		next(nil, "a") // of b there are no frames
		time.Sleep(43 * time.Second)
		hold()
		time.Sleep(4 * time.Second)
		a.want(t)
		b.want(t)
		cancel()
		stop()
		synctest.Wait()
	})
}

// TestFlood: questions of one host wait one at a time, and neither one host nor many can ask without bound.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSite(t, ServerOptions{MaxAgents: 20, MaxTenants: 2})
		stop := s.run()
		var asking sync.WaitGroup
		var mu sync.Mutex
		codes := map[int]int{}
		ask := func(tenant, host string) {
			asking.Go(func() {
				a, err := asker{s, tenant}.Ask(ctx, Path, encoded(t, agentAt(host, "192.0.2.1").Question))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					codes[a.Status]++
				}
			})
		}
		for range 1000 {
			ask("shop", "a")
		}
		time.Sleep(2 * time.Second)
		known := func(f func(tenants map[string]*tenant) int) int {
			s.server.mu.Lock()
			defer s.server.mu.Unlock()
			return f(s.server.tenants)
		}
		tenants := func(all map[string]*tenant) int { return len(all) }
		waiting := known(func(all map[string]*tenant) int { return all["shop"].agents["a"].waiting })
		mu.Lock()
		limited := codes[http.StatusTooManyRequests]
		mu.Unlock()
		if waiting > 1 || limited < 1000-perAgentBurst-2 {
			t.Errorf("%d questions of one host wait, %d of 1000 were refused", waiting, limited)
		}
		for i := range 100 {
			ask("shop", fmt.Sprint("host", i))
		}
		time.Sleep(2 * time.Second)
		if n := known(func(all map[string]*tenant) int { return len(all["shop"].agents) }); n != 20 {
			t.Errorf("%d agents are known, want 20", n)
		}
		ask("bank", "a")
		synctest.Wait()
		ask("third", "a")
		synctest.Wait()
		if n := known(tenants); n != 2 {
			t.Errorf("%d tenants are known, want 2", n)
		}
		counts := map[string]uint64{}
		for _, d := range s.server.Drops() {
			counts[d.Name] = d.Count
		}
		if counts["control/questions"] < 980 || counts["control/agents"] != 82 {
			t.Errorf("counted %v", counts)
		}
		// All of it is forgotten.
		cancel()
		asking.Wait()
		time.Sleep(20 * time.Second)
		if n := known(tenants); n != 0 {
			t.Errorf("%d tenants are left", n)
		}
		stop()
		synctest.Wait()
	})
}

// TestBadQuestions are refused and change nothing.
func TestBadQuestions(t *testing.T) {
	s := newSite(t, ServerOptions{})
	f := func(method, body string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		s.server.ServeTenant(w, httptest.NewRequest(method, Path, strings.NewReader(body)), "")
		if w.Code != want {
			t.Errorf("%.60q: got %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
	f(http.MethodGet, "", http.StatusMethodNotAllowed)
	f(http.MethodPost, "", http.StatusBadRequest)
	f(http.MethodPost, `{"host":""}`, http.StatusBadRequest)
	f(http.MethodPost, `{"host":"a"}{"host":"b"}`, http.StatusBadRequest)
	f(http.MethodPost, `{"host":"a","port":70000}`, http.StatusBadRequest)
	f(http.MethodPost, `{"host":"`+strings.Repeat("a", 300)+`"}`, http.StatusBadRequest)
	f(http.MethodPost, `{"host":"a","addresses":[`+strings.Repeat(`"192.0.2.1",`, 64)+`"192.0.2.1"]}`, http.StatusBadRequest)
	f(http.MethodPost, `{"host":"a","version":"`+strings.Repeat("a", MaxQuestionBytes)+`"}`, http.StatusBadRequest)
	if len(s.server.tenants) != 0 {
		t.Errorf("%d tenants are known", len(s.server.tenants))
	}
}

// FuzzMessages: what is read of a foreign message is within its bounds, and is read again from what it is written as.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"host":"a","epoch":1,"addresses":["192.0.2.1","::1","fe80::1%eth0"],"port":862,"version":"x"}`))
	f.Add([]byte(`{"version":"x","lease_seconds":75,"sessions":[{"peer":"b","reflector":"192.0.2.2:862","number":3,` +
		`"key":"MDEyMzQ1Njc4OWFiY2RlZg==","interval_seconds":0.1}],"peers":[{"name":"c","addresses":["192.0.2.3"],` +
		`"number":4,"key":"MDEyMzQ1Njc4OWFiY2RlZg=="}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if q, err := ParseQuestion(text); err == nil {
			for _, a := range q.Addresses {
				if !a.IsGlobalUnicast() || a.Is4In6() {
					t.Errorf("the address %v", a)
				}
			}
			if again, err := ParseQuestion(encoded(t, q)); err != nil || fmt.Sprint(again) != fmt.Sprint(q) {
				t.Errorf("got %+v, %v again, want %+v", again, err, q)
			}
		}
		s, err := ParseState(text)
		if err != nil {
			return
		}
		for _, one := range s.Sessions {
			if one.Interval() < MinInterval || one.Interval() > MaxInterval || !one.Reflector.Addr().IsGlobalUnicast() {
				t.Errorf("the session %+v", one)
			}
		}
		if again, err := ParseState(encoded(t, s)); err != nil || fmt.Sprint(again) != fmt.Sprint(s) {
			t.Errorf("got %+v, %v again, want %+v", again, err, s)
		}
	})
}
