package network

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"outsight/internal/model"
)

// lingerViews is for how many views an edge stays in the answer after the kernel forgot it. Then its sum is forgotten:
// frames remember it, and if it comes back it is another instance, which begins at 0.
const lingerViews = 300

// edgeKey is what makes two edges one.
type edgeKey struct {
	side           model.Role
	client, server string
	// The processes at the two ends, empty where not known.
	clientProcess, serverProcess string
	service                      netip.AddrPort
	transport                    model.Transport
}

// other is the key of the same relation as its other end counts it. Processes are left out: one
// end may know one that the other does not.
func (k edgeKey) other() edgeKey {
	k.side = model.RoleClient + model.RoleServer - k.side
	return k.ends()
}

// ends is k without the processes.
func (k edgeKey) ends() edgeKey {
	k.clientProcess, k.serverProcess = "", ""
	return k
}

// others is the key of what the counting end has with everybody. Without a service and without processes,
// whose names have no bound, there is one for each end.
func (k edgeKey) others() edgeKey {
	k = k.ends()
	k.service = netip.AddrPort{}
	unknown := model.Peer{}
	if k.side == model.RoleServer {
		k.client = unknown.ID()
	} else {
		k.server = unknown.ID()
	}
	return k
}

// ledger sums kernel edges to edges. A sum is what the kernel edges count now that are assigned
// to the edge, and what those had counted that are gone or were assigned to another one since.
type ledger struct {
	options Options
	// idle are the edges without a kernel edge, at most options.MaxEdges.
	idle int
	// quotas by container, and by name those of containers that are gone and have not yet got theirs back; all and
	// allEndpoints are those of all containers together.
	quotas, leftQuotas map[string]*quota
	// over is what containers would have had more, by name.
	over              map[string]*overQuota
	all, allEndpoints *rate.Limiter
	// refused edges and endpoints found none of those.
	refused, refusedEndpoints uint64
	// now is the time of the view.
	now      time.Time
	lines    map[lineKey]*line
	totals   map[edgeKey]*total
	view     uint64
	overflow uint64
	// instances counts the totals that there ever were.
	instances uint64
	// ordered are all totals in order of their keys, nil when there are others or one has another key; shown are those
	// of the view before.
	ordered, shown []*total
	// before is the time of the view before, zero in the first.
	before time.Time
	// answer and spare are memory of the last answer and of the one before.
	answer, spare []model.Edge
}

type lineKey struct {
	key      model.KernelEdgeKey
	instance uint32
}

// line is one kernel edge.
type line struct {
	to *total
	// last is its latest state; base the state in which it was assigned to the total.
	last, base     model.EdgeCounters
	mostInFlight   uint64
	knowsMost      bool
	endpoints      map[model.EndpointKey]lineEndpoint
	client, server model.Peer
	connections    []uint64
	samples        []model.PacketSample
	confidence     model.Confidence
	view           uint64
	// wants is the key of its own edge where it counts for another one.
	wants *edgeKey
}

// total is one edge.
type total struct {
	key edgeKey
	// instance is a number of its own, which stays when more becomes known of the ends. No count ever moves from one
	// instance to another.
	instance uint64
	// start is when the sum was zero, zero where that is not known.
	start          time.Time
	client, server model.Peer
	backend        netip.AddrPort
	via            string
	confidence     model.Confidence
	// gone is what lines counted that are here no longer.
	gone          model.EdgeCounters
	goneEndpoints tally
	// connections are those of its lines, the last that there were.
	connections []uint64
	// samples are those of the packets of its lines in the current view.
	samples []model.PacketSample
	// admitted endpoints count under their own names.
	admitted map[model.EndpointKey]bool
	// others are the admitted ones called "other".
	others int
	quota  *quota
	lines  int
	// idle is the view in which the last line went.
	idle uint64

	// sum, and endpoints in order, are of the view being entered: they are added up where stale is set, by whoever changes
	// what the total counts, and else those of the view before.
	sum          model.EdgeCounters
	mostInFlight uint64
	// knowsMost stays where no line is left.
	knowsMost bool
	endpoints []model.Endpoint
	stale     bool
	// paired: the other end of the relation is shown, too.
	paired bool
}

func newLedger(o Options) *ledger {
	return &ledger{options: o, lines: make(map[lineKey]*line), totals: make(map[edgeKey]*total),
		quotas: make(map[string]*quota), leftQuotas: make(map[string]*quota), over: make(map[string]*overQuota),
		all: limiter(o.MaxNewEdges), allEndpoints: limiter(4 * o.MaxNewEdges)}
}

// enter adds a view of that time and makes the edges of it that a container in present counted.
func (g *ledger) enter(at time.Time, seen []sighting, present map[string]bool) []model.Edge {
	defer func() { g.before = at }()
	g.view++
	g.now = at
	for i := range seen {
		g.update(&seen[i])
	}
	for k, l := range g.lines {
		if l.view != g.view {
			g.leave(l)
			delete(g.lines, k)
		}
	}
	edges := g.sum(present)
	g.forget(present)
	return edges
}

func (g *ledger) update(s *sighting) {
	client, server := s.ends()
	k := lineKey{s.edge.Key, s.edge.Instance}
	l := g.lines[k]
	if l == nil {
		l = &line{}
		g.lines[k] = l
		g.assign(l, s, client, server)
	} else {
		if !l.last.Precedes(&s.edge.Counters) {
			// The kernel forgot this edge and began anew between two views.
			l.to.keep(&l.last, &l.base)
			l.keepEndpoints()
			l.last, l.base, l.endpoints = model.EdgeCounters{}, model.EdgeCounters{}, nil
		}
		g.reassign(l, s, client, server)
	}
	if l.last != s.edge.Counters || l.mostInFlight != s.edge.MostInFlight || l.knowsMost != s.edge.KnowsMost ||
		len(l.samples) > 0 || len(s.edge.PacketSamples) > 0 || !slices.Equal(l.connections, s.edge.Connections) {
		l.last, l.connections, l.samples = s.edge.Counters, s.edge.Connections, s.edge.PacketSamples
		l.mostInFlight, l.knowsMost = s.edge.MostInFlight, s.edge.KnowsMost
		l.to.stale = true
	}
	l.takeEndpoints(s.edge.Endpoints)
	l.view = g.view
	l.to.describe(l, s)
}

// describe copies what a line says about its total, except numbers.
func (t *total) describe(l *line, s *sighting) {
	if t.key == t.key.others() {
		if t.key.side == model.RoleServer {
			t.server.Container = l.server.Container
		} else {
			t.client.Container = l.client.Container
		}
		return
	}
	t.client.Container, t.server.Container = l.client.Container, l.server.Container
	t.confidence = max(t.confidence, l.confidence)
	if s.via != "" {
		t.via = s.via
	}
	if s.backend.IsValid() {
		t.backend = s.backend
	}
}

// assign puts a line to the total of its ends.
func (g *ledger) assign(l *line, s *sighting, client, server model.Peer) {
	l.client, l.server, l.confidence = client, server, s.confidence
	known := len(g.totals)
	own, counting := keyOf(s, client, server)
	k := g.admit(own, counting)
	if l.wants = nil; k != own {
		l.wants = &own
	}
	g.put(l, k, known)
}

// keyOf is the key of what is seen between two ends, and the one that counted.
func keyOf(s *sighting, client, server model.Peer) (own edgeKey, counting model.Peer) {
	counting = client
	if s.server() {
		counting = server
	}
	return edgeKey{
		side: s.edge.Key.Role, client: client.ID(), server: server.ID(), service: s.service, transport: s.edge.Key.Transport,
		clientProcess: client.Process, serverProcess: server.Process,
	}, counting
}

// put puts a line to the total with key k. There were as many totals before as known.
func (g *ledger) put(l *line, k edgeKey, known int) {
	client, server := peersOf(k, l.client, l.server)
	l.to = g.total(k, client, server)
	l.to.lines++
	l.to.stale = true
	if len(g.totals) > known && l.last.Precedes(&l.base) {
		l.to.start = g.before // when the line had counted nothing
	}
}

// reassign follows a change of what is known of a line's ends. Where more became known of the same connections, all
// that was counted gets the new ends, unless there is an edge of these already: counts stay in the instance that has
// them, so that nothing is counted twice. Where a container's address or the number of its namespace went to another
// container, each keeps what was counted in its time. What was known is not unlearnt.
func (g *ledger) reassign(l *line, s *sighting, client, server model.Peer) {
	client, learntClient := learn(l.client, client)
	server, learntServer := learn(l.server, server)
	if sameEnd(client, l.client) && sameEnd(server, l.server) && !settledLater(l.to.key.service, s.service) {
		l.client, l.server, l.confidence = client, server, max(l.confidence, s.confidence)
		g.promote(l)
		return
	}
	if !(learntClient && learntServer) && s.edge.Counters.Precedes(&l.last) {
		return // nothing was counted in the time of the other end
	}
	from := l.to
	if learntClient && learntServer && l.wants == nil && from.lines == 1 && from.goneIsZero() &&
		g.rename(l, s, client, server) {
		return
	}
	from.keep(&l.last, &l.base)
	l.keepEndpoints()
	from.depart(g.view)
	l.base = l.last
	g.assign(l, s, client, server)
	l.moveEndpoints()
}

// rename gives the total of a line, which is of nothing else, other ends. It answers false where there is an edge of
// these. The quotas do not matter: it has been admitted already.
func (g *ledger) rename(l *line, s *sighting, client, server model.Peer) bool {
	t := l.to
	k, _ := keyOf(s, client, server)
	if g.totals[k] != nil {
		return false
	}
	delete(g.totals, t.key)
	g.totals[k] = t
	g.ordered = nil
	t.key = k
	t.client, t.server = peersOf(k, client, server)
	t.quota = g.quota(t.countingPeer())
	l.client, l.server, l.confidence = client, server, s.confidence
	return true
}

// promote gives a line that counts for another edge its own when there is room by now. What it has counted so far
// stays where it is, so that no sum goes down.
func (g *ledger) promote(l *line) {
	if l.wants == nil {
		return
	}
	from, known := l.to, len(g.totals)
	k := g.readmit(*l.wants, from)
	if k == from.key {
		return
	}
	from.keep(&l.last, &l.base)
	l.keepEndpoints()
	from.depart(g.view)
	l.base = l.last
	if k == *l.wants {
		l.wants = nil
	}
	g.put(l, k, known)
	l.moveEndpoints()
}

// learn is what is known of an end after now was found, and whether all that was counted
// before was of that end too.
func learn(before, now model.Peer) (model.Peer, bool) {
	was, is := knowledge(before), knowledge(now)
	switch {
	case is < was:
		return before, true
	case is > was:
		return now, true
	case before.Process == "" || !sameContainer(before, now):
		return now, sameContainer(before, now)
	}
	now.Process = before.Process
	return now, true
}

func sameEnd(a, b model.Peer) bool { return a.Process == b.Process && sameContainer(a, b) }

// sameContainer compares the IDs of two ends without making strings of addresses.
func sameContainer(a, b model.Peer) bool {
	if a.Container == nil || b.Container == nil {
		return a.Container == b.Container && a.Address == b.Address
	}
	return a.Container.ID == b.Container.ID
}

// knowledge ranks what is known of an end: an address, "in no container", a container.
func knowledge(p model.Peer) int {
	switch {
	case p.Container == nil:
		return 0
	case p.Container.Runtime == model.HostRuntime:
		return 1
	}
	return 2
}

// leave ends a line.
func (g *ledger) leave(l *line) {
	l.to.keep(&l.last, &l.base)
	l.keepEndpoints()
	l.to.depart(g.view)
}

func (g *ledger) total(k edgeKey, client, server model.Peer) *total {
	t := g.totals[k]
	if t == nil {
		g.instances++
		t = &total{key: k, instance: g.instances, client: client, server: server}
		t.quota = g.quota(t.countingPeer())
		g.totals[k] = t
		g.ordered = nil
	}
	// An end with several addresses has none here.
	if t.client.Address != client.Address {
		t.client.Address = netip.Addr{}
	}
	if t.server.Address != server.Address {
		t.server.Address = netip.Addr{}
	}
	return t
}

// keep adds what a line counted between two states. The histogram is copied each time: the
// one before may have been handed out.
func (t *total) keep(to, from *model.EdgeCounters) {
	gained := to.Since(from)
	t.gone.Add(&gained)
	t.stale = true
}

func (t *total) depart(view uint64) {
	t.stale = true
	if t.lines--; t.lines == 0 {
		t.idle = view
	}
}

func (t *total) goneIsZero() bool {
	for _, n := range t.gone.Plain() {
		if *n != 0 {
			return false
		}
	}
	return t.gone.Latency == nil && len(t.goneEndpoints) == 0
}

// counting is the end that counted.
func (t *total) counting() string {
	if t.key.side == model.RoleServer {
		return t.key.server
	}
	return t.key.client
}

func (t *total) countingPeer() model.Peer {
	if t.key.side == model.RoleServer {
		return t.server
	}
	return t.client
}

// sum makes the edges of the current view, in order of their keys, and marks those of which
// the other end is there too.
func (g *ledger) sum(present map[string]bool) []model.Edge {
	g.addUp()
	shown := g.inOrder(present)
	edges := g.spare[:0]
	if edges == nil || cap(edges) > 2*len(shown)+keptSightings {
		edges = make([]model.Edge, 0, len(shown)) // the first, or there were many more
	}
	for _, t := range shown {
		edges = append(edges, model.Edge{
			Instance: t.instance, Side: t.key.side, Client: t.client, Server: t.server, Service: t.key.service,
			Transport: t.key.transport, Start: t.start, Backend: t.backend, Via: t.via, Confidence: t.confidence, Counters: t.sum,
			MostInFlight: t.mostInFlight, KnowsMost: t.knowsMost, Endpoints: t.endpoints, Paired: t.paired, Connections: t.connections, PacketSamples: t.samples,
		})
	}
	clear(edges[len(edges):cap(edges)]) // what ended is not kept
	g.answer, g.spare = edges, g.answer
	return edges
}

// addUp adds up what lines have counted for the totals for which that has changed.
func (g *ledger) addUp() {
	for _, t := range g.totals {
		if !t.stale {
			continue
		}
		t.sum, t.samples, t.mostInFlight = t.gone, nil, 0
		if t.lines > 0 {
			t.connections = nil
		}
	}
	for _, l := range g.lines {
		if !l.to.stale {
			continue
		}
		gained := l.last.Since(&l.base)
		l.to.sum.Add(&gained)
		l.to.mostInFlight += l.mostInFlight
		l.to.knowsMost = l.to.knowsMost || l.knowsMost
		l.to.takeConnections(l.connections)
		l.to.samples = append(l.to.samples, l.samples...)
	}
	g.sumEndpoints()
	for _, t := range g.totals {
		t.stale = false
	}
}

// inOrder are the totals that a container in present counted, in order of their keys.
func (g *ledger) inOrder(present map[string]bool) []*total {
	reordered := g.ordered == nil
	if reordered {
		g.ordered = slices.SortedFunc(maps.Values(g.totals), compareTotals)
	}
	shown := make([]*total, 0, len(g.ordered))
	for _, t := range g.ordered {
		if present[t.counting()] {
			shown = append(shown, t)
		}
	}
	if reordered || !slices.Equal(shown, g.shown) {
		sides := make(map[edgeKey]bool, len(shown))
		for _, t := range shown {
			sides[t.key.ends()] = true
		}
		for _, t := range shown {
			t.paired = sides[t.key.other()]
		}
		g.shown = shown
	}
	return shown
}

// maxConnections is how many connections of an edge are told.
const maxConnections = 8

// takeConnections adds the connections of a line. Of many it keeps those with the least hashes, as the kernel programs
// and other hosts do.
func (t *total) takeConnections(more []uint64) {
	if len(more) == 0 {
		return
	}
	all := slices.Concat(t.connections, more)
	slices.Sort(all)
	all = slices.Compact(all)
	t.connections = all[:min(len(all), maxConnections)]
}

// forget drops edges without a kernel edge: those of which the counting container is gone, those that have lingered,
// and those past the bound, the longest idle first.
func (g *ledger) forget(present map[string]bool) {
	g.forgetQuotas(present)
	var idle []*total
	for k, t := range g.totals {
		switch {
		case t.lines > 0:
		case !present[t.counting()], g.view-t.idle >= lingerViews:
			delete(g.totals, k)
			g.ordered = nil
		default:
			idle = append(idle, t)
		}
	}
	if g.idle = len(idle); g.idle <= g.options.MaxEdges {
		return
	}
	slices.SortFunc(idle, compareIdle)
	for _, t := range idle[:len(idle)-g.options.MaxEdges] {
		delete(g.totals, t.key)
		g.ordered = nil
		g.overflow++
		g.idle--
	}
}

func (g *ledger) drop() model.Drop {
	return model.Drop{Name: "network idle edges", Count: g.overflow, Capacity: uint64(g.options.MaxEdges),
		Used: uint64(g.idle)}
}
