package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// ServerOptions of NewServer. Window and Talks are required.
type ServerOptions struct {
	// Window is what happened on the hosts of a tenant between two moments. Talks are who talked in one, but for what was
	// sent to services that are to be ignored: those of the measurements themselves.
	Window func(ctx context.Context, tenant string, from, to time.Time) (*frame.Window, error)
	Talks  func(w *frame.Window, ignore func(service netip.AddrPort) bool) Talks
	// Rate bounds what a host sends of packets and answers, in bit/s (DefaultRate); below 0 nothing is measured.
	Rate int64
	// Containers is how many pairs of containers are measured of two hosts (DefaultContainers); below 0 none are.
	Containers int
	// Classes are the classes of service (DSCP) in which the network between two hosts is measured; none for 0 alone.
	Classes []uint8
	// Secret is what keys are derived from; nil for what Registry has, and otherwise a new one.
	Secret []byte
	// Registry keeps the agents, and the secret, for the next server; nil for none.
	Registry Registry
	// Interval is for how long a pair goes on to be measured that talks no more (10 s). Every is the least time between two
	// decisions (1 s).
	Interval, Every time.Duration
	// Wait is how long a question waits for another state (30 s). Lease is how long a state holds without an answer (75 s).
	// Absent is after how long an agent is forgotten that does not ask (15 s). Settle is how long a server that begins
	// takes nothing away from agents that have a state of another one: the longest pause of an agent (45 s). With a Registry
	// it knows all agents, and does so only until it has frames of Interval of each of them.
	Wait, Lease, Absent, Settle time.Duration
	// MaxAgents bounds those of a tenant (10,000), MaxTenants the tenants (1000).
	MaxAgents, MaxTenants int
	Logger                *slog.Logger
}

// Registry keeps small values by keys, as a cluster's key-value store does.
type Registry interface {
	All(context.Context) (map[string][]byte, error)
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
}

const (
	// perAgent is how many questions an agent may ask in a second, perTenant how many all of a tenant may.
	perAgent, perAgentBurst   = 2, 10
	perTenant, perTenantBurst = 1000, 2000
	// most of the time nothing is computed: a decision is followed by so many times as long without one.
	idleFactor = 20
	// secretKey is that of the registry's secret; agentKey begins those of agents.
	secretKey, agentKey = "secret", "agent."
	secretBytes         = 32
)

// Server answers agents.
type Server struct {
	options ServerOptions
	// kick wakes Run up. done is closed when it ends.
	kick, done chan struct{}
	begun      time.Time
	secret     []byte
	// mu guards tenants and what is in them.
	mu      sync.Mutex
	tenants map[string]*tenant
	counts  struct{ questions, limited, full, refused, refusedContainers, unreachable, failed atomic.Uint64 }
}

// tenant has agents of its own, which know of no others.
type tenant struct {
	name   string
	agents map[string]*agent
	held   Held
	limit  *rate.Limiter
	// decided is when the states were.
	decided   time.Time
	addresses *Addresses
	// settled is closed when what is decided may take something away from agents that have a state of another server.
	settled   chan struct{}
	isSettled bool
}

type agent struct {
	Agent
	state *State
	// told is the version of the last state that this server told it.
	told string
	// changed is closed when there is another state; a question that came later closes asked. Waiting questions have both.
	changed, asked chan struct{}
	waiting        int
	// heard is when a question came or went last.
	heard time.Time
	limit *rate.Limiter
	// kept says that the registry has it as it is.
	kept bool
}

// NewServer makes a server. No question is answered before Run.
func NewServer(o ServerOptions) *Server {
	o.Rate, o.Containers = cmp.Or(o.Rate, DefaultRate), cmp.Or(o.Containers, DefaultContainers)
	o.Interval, o.Every = cmp.Or(o.Interval, 10*time.Second), cmp.Or(o.Every, time.Second)
	o.Wait, o.Lease = cmp.Or(o.Wait, 30*time.Second), cmp.Or(o.Lease, 75*time.Second)
	o.Absent, o.Settle = cmp.Or(o.Absent, 15*time.Second), cmp.Or(o.Settle, 45*time.Second)
	o.MaxAgents, o.MaxTenants = cmp.Or(o.MaxAgents, 10_000), cmp.Or(o.MaxTenants, 1000)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{options: o, kick: make(chan struct{}, 1), done: make(chan struct{}), begun: time.Now(),
		secret: o.Secret, tenants: map[string]*tenant{}}
}

// refusal is why a question is not answered.
type refusal struct {
	status int
	after  time.Duration
	error
}

// ServeTenant answers a question of an agent of a tenant, whose right to send was checked.
func (s *Server) ServeTenant(w http.ResponseWriter, r *http.Request, tenant string) {
	state, err := s.answer(w, r, tenant)
	var refused refusal
	switch {
	case errors.As(err, &refused):
		if refused.after > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(max(refused.after.Seconds(), 1))))
		}
		http.Error(w, err.Error(), refused.status)
	case err != nil: // who asked has gone
	default:
		w.Header().Set("Content-Type", ContentType)
		_ = json.NewEncoder(w).Encode(state)
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, of string) (*State, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, refusal{http.StatusMethodNotAllowed, 0, errors.New("want POST")}
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxQuestionBytes+1))
	if err != nil {
		return nil, refusal{http.StatusBadRequest, 0, fmt.Errorf("reading the question: %w", err)}
	}
	q, err := ParseQuestion(body)
	if err != nil {
		return nil, refusal{http.StatusBadRequest, 0, err}
	}
	var seen netip.Addr
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		seen = from.Addr().Unmap()
	}
	a, asked, err := s.hear(of, q, seen)
	if err != nil {
		return nil, err
	}
	defer s.leave(a)
	return s.await(r.Context(), of, a, asked, q.Version)
}

// hear takes in what an agent tells of itself. asked is closed by its next question.
func (s *Server) hear(of string, q Question, seen netip.Addr) (a *agent, asked <-chan struct{}, err error) {
	s.counts.questions.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	t := s.tenants[of]
	if t == nil {
		if len(s.tenants) >= s.options.MaxTenants {
			s.counts.full.Add(1)
			return nil, nil, refusal{http.StatusTooManyRequests, s.options.Wait, errors.New("too many tenants ask")}
		}
		t = newTenant(of)
		s.tenants[of] = t
	}
	a = t.agents[q.Host]
	if !t.limit.AllowN(now, 1) || a != nil && !a.limit.AllowN(now, 1) {
		s.counts.limited.Add(1)
		return nil, nil, refusal{http.StatusTooManyRequests, time.Second, errors.New("questions come too fast")}
	}
	if a == nil {
		if len(t.agents) >= s.options.MaxAgents {
			s.counts.full.Add(1)
			return nil, nil, refusal{http.StatusTooManyRequests, s.options.Wait,
				fmt.Errorf("%d agents ask already, which is the bound", len(t.agents))}
		}
		a = &agent{changed: make(chan struct{}), asked: make(chan struct{}), limit: rate.NewLimiter(perAgent, perAgentBurst)}
		t.agents[q.Host] = a
		s.wake()
	}
	if told := (Agent{q, seen}); !sameAgent(&told, &a.Agent) {
		a.kept = false
		s.wake()
	}
	a.Agent, a.heard = Agent{q, seen}, now
	a.waiting++
	close(a.asked) // one question of a host waits: the newest
	a.asked = make(chan struct{})
	return a, a.asked, nil
}

func newTenant(name string) *tenant {
	return &tenant{name: name, agents: map[string]*agent{}, limit: rate.NewLimiter(perTenant, perTenantBurst),
		addresses: NewAddresses(), settled: make(chan struct{})}
}

func sameAgent(x, y *Agent) bool {
	return x.Epoch == y.Epoch && x.Port == y.Port && x.Containers == y.Containers && x.Seen == y.Seen && slices.Equal(x.Addresses, y.Addresses)
}

func (s *Server) leave(a *agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.waiting--
	a.heard = time.Now()
}

func (s *Server) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// await waits for a state that is another one than version.
func (s *Server) await(ctx context.Context, of string, a *agent, asked <-chan struct{}, version string) (*State,
	error) {
	timer := time.NewTimer(s.options.Wait)
	defer timer.Stop()
	s.mu.Lock()
	t := s.tenants[of]
	s.mu.Unlock()
	for {
		s.mu.Lock()
		state, changed := a.state, a.changed
		free, settling := t.free(a, version), t.settled
		s.mu.Unlock()
		if state != nil && state.Version != version && free {
			return s.told(of, a, version)
		}
		if free {
			settling = nil
		}
		select {
		case <-settling:
		case <-changed:
		case <-asked:
			return s.told(of, a, version)
		case <-timer.C:
			return s.told(of, a, version)
		case <-s.done:
			return nil, refusal{http.StatusServiceUnavailable, time.Second, errors.New("the server ends")}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// free reports whether an agent that has the state of this version may be told another one: it goes on with that of another
// server while this one has begun anew and does not know yet which agents there are, or who talks. Server.mu must be held.
func (t *tenant) free(a *agent, version string) bool {
	return version == "" || version == a.told || t.isSettled
}

// told is the state of an agent that has the one of this version. Without decisions the lease is not renewed.
func (s *Server) told(of string, a *agent, version string) (*State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[of]
	if a.state == nil || t == nil || time.Since(t.decided) > s.options.Lease {
		return nil, refusal{http.StatusServiceUnavailable, time.Second, errors.New("nothing is decided yet")}
	}
	switch {
	case version == a.state.Version:
		a.told = version
	case t.free(a, version):
		a.told = a.state.Version
		return s.leased(a.state), nil
	}
	return s.leased(&State{Version: version, Unchanged: true}), nil
}

// leased is a state with the time for which it holds.
func (s *Server) leased(state *State) *State {
	told := *state
	told.LeaseSeconds = s.options.Lease.Seconds()
	return &told
}

// Run decides until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	defer close(s.done)
	if err := s.open(ctx); err != nil {
		return err
	}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.kick:
		}
		begun := time.Now()
		for _, t := range s.allTenants() {
			s.decide(ctx, t)
		}
		took := time.Since(begun)
		// What wakes this up waits for as long as keeps it cheap.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(idleFactor*took, time.Minute)):
		}
		tick.Reset(max(s.options.Every-time.Since(begun), 0))
	}
}

// open reads what another server has kept.
func (s *Server) open(ctx context.Context) error {
	var kept map[string][]byte
	if s.options.Registry != nil {
		var err error
		if kept, err = s.options.Registry.All(ctx); err != nil {
			return fmt.Errorf("reading the registry of agents: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secret == nil {
		s.secret = kept[secretKey]
	}
	if len(s.secret) < secretBytes {
		s.secret = make([]byte, secretBytes)
		rand.Read(s.secret) // never fails
		if s.options.Registry != nil {
			if err := s.options.Registry.Put(ctx, secretKey, s.secret); err != nil {
				return fmt.Errorf("keeping the secret of agents' keys: %w", err)
			}
		}
	}
	for key, text := range kept {
		var one keptAgent
		if !strings.HasPrefix(key, agentKey) || json.Unmarshal(text, &one) != nil || s.tenants[one.Tenant] != nil &&
			s.tenants[one.Tenant].agents[one.Agent.Host] != nil {
			continue
		}
		if s.tenants[one.Tenant] == nil {
			s.tenants[one.Tenant] = newTenant(one.Tenant)
		}
		s.tenants[one.Tenant].agents[one.Agent.Host] = &agent{Agent: one.Agent, changed: make(chan struct{}),
			asked: make(chan struct{}), limit: rate.NewLimiter(perAgent, perAgentBurst), heard: time.Now(), kept: true}
	}
	return nil
}

// keptAgent is what the registry has of an agent.
type keptAgent struct {
	Tenant string `json:"tenant"`
	Agent  Agent  `json:"agent"`
}

// registryKey is made of letters that every registry takes.
func registryKey(tenant, host string) string {
	h := sha256.New()
	writeTexts(h, tenant, host)
	return agentKey + hex.EncodeToString(h.Sum(nil))
}

func (s *Server) allTenants() (all []*tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tenants {
		all = append(all, t)
	}
	slices.SortFunc(all, func(x, y *tenant) int { return cmp.Compare(x.name, y.name) })
	return all
}

// decide decides what the agents of a tenant are to do.
func (s *Server) decide(ctx context.Context, t *tenant) {
	agents, ended := s.present(t)
	now := time.Now()
	w, err := s.options.Window(ctx, t.name, now.Add(-s.options.Interval), now)
	if err != nil {
		if ctx.Err() == nil {
			s.counts.failed.Add(1)
			s.options.Logger.Warn("it cannot be decided what agents measure: frames cannot be read", "error", err)
		}
		return
	}
	t.addresses.Update(w)
	var talks Talks
	if len(agents) > 1 && s.options.Rate > 0 {
		talks = s.options.Talks(w, t.reflects(agents))
	}
	d := Decide(s.secret, t.name, agents, talks, t.held, Limits{s.options.Rate, s.options.Containers, s.options.Classes})
	s.counts.refused.Add(uint64(d.Refused))
	s.counts.refusedContainers.Add(uint64(d.RefusedContainers))
	s.counts.unreachable.Add(uint64(d.Unreachable))
	s.tell(t, d.Held)
	s.mu.Lock()
	for host, state := range d.States {
		a := t.agents[host]
		if a != nil && (a.state == nil || a.state.Version != state.Version) {
			a.state = state
			close(a.changed)
			a.changed = make(chan struct{})
		}
	}
	t.held, t.decided = d.Held, now
	if !t.isSettled && (now.Sub(s.begun) >= s.options.Settle || s.options.Registry != nil && covers(w, agents)) {
		t.isSettled = true
		close(t.settled)
	}
	if len(t.agents) == 0 && len(d.Held.Hosts) == 0 {
		delete(s.tenants, t.name)
	}
	s.mu.Unlock()
	s.keep(ctx, t, ended)
}

// covers reports whether a window has all that happened in it on the hosts of these agents.
func covers(w *frame.Window, agents map[string]*Agent) bool {
	covered := 0
	for i := range w.Hosts {
		h := &w.Hosts[i]
		if agents[h.Host] != nil && len(h.Spans) > 0 && h.Spans[0].Before != nil && !h.Spans[0].Before.Time.After(w.From) {
			covered++
		}
	}
	return covered == len(agents)
}

// reflects reports whether a service may be a reflector: one of an agent, or of a container on an agent's host, which has the
// same port.
func (t *tenant) reflects(agents map[string]*Agent) func(service netip.AddrPort) bool {
	reflectors, ports := map[netip.AddrPort]bool{}, map[uint16]bool{}
	for _, a := range agents {
		ports[a.Port] = true
		for _, address := range a.Addresses {
			reflectors[netip.AddrPortFrom(address, a.Port)] = true
		}
	}
	return func(service netip.AddrPort) bool {
		return reflectors[service] || ports[service.Port()] &&
			slices.ContainsFunc(t.addresses.Lookup(service.Addr()), func(host string) bool {
				return agents[host] != nil && agents[host].Port == service.Port()
			})
	}
}

// present are the agents that ask, and the hosts of those that do so no more, which it forgets.
func (s *Server) present(t *tenant) (agents map[string]*Agent, ended []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	agents = make(map[string]*Agent, len(t.agents))
	for host, a := range t.agents {
		if a.waiting == 0 && time.Since(a.heard) > s.options.Absent {
			delete(t.agents, host)
			ended = append(ended, host)
			continue
		}
		copied := a.Agent
		agents[host] = &copied
	}
	return agents, ended
}

// tell logs the pairs that begin and end.
func (s *Server) tell(t *tenant, held Held) {
	eachChange(held.Hosts, t.held.Hosts, func(p Pair, began bool) {
		what := "two hosts talk no more: the network between them is measured no more"
		if began {
			what = "two hosts talk: the network between them is measured"
		}
		s.options.Logger.Info(what, "tenant", t.name, "from", p.A, "to", p.B)
	})
	eachChange(held.Containers, t.held.Containers, func(p ContainerPair, began bool) {
		what := "two containers are measured no more"
		if began {
			what = "two containers talk: the network between their namespaces is measured"
		}
		s.options.Logger.Info(what, "tenant", t.name, "from", p.ClientHost, "client", p.Client, "to", p.ServerHost,
			"server", p.Server)
	})
}

// eachChange calls f for what is in one of two sets alone; began says that it is in the first.
func eachChange[K comparable](now, was map[K]bool, f func(key K, began bool)) {
	for key := range now {
		if !was[key] {
			f(key, true)
		}
	}
	for key := range was {
		if !now[key] {
			f(key, false)
		}
	}
}

// keep writes what changed to the registry.
func (s *Server) keep(ctx context.Context, t *tenant, ended []string) {
	if s.options.Registry == nil {
		return
	}
	var changed []Agent
	s.mu.Lock()
	for _, a := range t.agents {
		if !a.kept {
			changed = append(changed, a.Agent)
			a.kept = true
		}
	}
	s.mu.Unlock()
	for _, a := range changed {
		text, err := json.Marshal(keptAgent{t.name, a})
		if err == nil {
			err = s.options.Registry.Put(ctx, registryKey(t.name, a.Host), text)
		}
		if err != nil {
			s.options.Logger.Warn("the registry does not take an agent", "host", a.Host, "error", err)
			s.mu.Lock()
			if again := t.agents[a.Host]; again != nil {
				again.kept = false
			}
			s.mu.Unlock()
			return // and the others at the next decision
		}
	}
	for _, host := range ended {
		if err := s.options.Registry.Delete(ctx, registryKey(t.name, host)); err != nil {
			s.options.Logger.Warn("the registry does not forget an agent", "host", host, "error", err)
		}
	}
}

// HostsWith are the hosts of a tenant that have an address, or a container with it.
func (s *Server) HostsWith(of string, address netip.Addr) []string {
	s.mu.Lock()
	t := s.tenants[of]
	s.mu.Unlock()
	if t == nil {
		return nil
	}
	return t.addresses.Lookup(address)
}

// Drops are the bounds.
func (s *Server) Drops() []model.Drop {
	s.mu.Lock()
	agents, sessions, containers := 0, 0, 0
	for _, t := range s.tenants {
		agents, sessions = agents+len(t.agents), sessions+len(t.held.Hosts)
		containers += len(t.held.Containers)
	}
	tenants := len(s.tenants)
	s.mu.Unlock()
	return []model.Drop{
		{Name: "control/tenants", Used: uint64(tenants), Capacity: uint64(s.options.MaxTenants)},
		{Name: "control/agents", Count: s.counts.full.Load(), Used: uint64(agents),
			Capacity: uint64(max(tenants, 1) * s.options.MaxAgents)},
		{Name: "control/questions", Count: s.counts.limited.Load()},
		{Name: "control/sessions", Count: s.counts.refused.Load(), Used: uint64(sessions)},
		{Name: "control/container-sessions", Count: s.counts.refusedContainers.Load(), Used: uint64(containers)},
		{Name: "control/unreachable", Count: s.counts.unreachable.Load()},
	}
}
