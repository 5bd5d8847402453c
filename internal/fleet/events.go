package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	// PairMeasured and PairEnded are the begin and the end of the measurement of the network between two hosts, or between two
	// containers on them.
	PairMeasured EventKind = "pair_measured"
	PairEnded    EventKind = "pair_ended"
	// PairHandedOver is PairMeasured of two containers that were measured on other hosts up to a minute before, because one
	// of them runs on another host now.
	PairHandedOver EventKind = "pair_handed_over"
	// RouteChanged says that the packets which measure the network go by other routers than before.
	RouteChanged EventKind = "route_changed"
	// ContainerMoved says that a container of this name ran on one host, and then on another one instead.
	ContainerMoved EventKind = "container_moved"
)

// Event is something that happened to hosts.
type Event struct {
	Kind EventKind `json:"kind"`
	// Time is that of the first frame that tells it; it happened in the WithinSeconds before.
	Time          time.Time `json:"time"`
	WithinSeconds float64   `json:"within_seconds"`
	// From and To are the host that sends and the other one, or the host that had the container and the one that has it.
	From string `json:"from"`
	To   string `json:"to"`
	// Client and Server are the containers on From and To that are measured, as Probe has them; empty for the hosts.
	Client string `json:"client,omitempty"`
	Server string `json:"server,omitempty"`
	// FromBefore and ToBefore are the hosts that had them before, of PairHandedOver.
	FromBefore string `json:"from_before,omitempty"`
	ToBefore   string `json:"to_before,omitempty"`
	// Container is the name of one that moved: that of the container, or namespace/pod/container.
	Container string `json:"container,omitempty"`
	// Before and Now are the two routes, as model.Route writes them.
	Before string `json:"before,omitempty"`
	Now    string `json:"now,omitempty"`
}

// EventColumns are what Events reads of frames.
var EventColumns = frame.NewProjection(map[frame.TableID][]string{frame.Containers: {}, frame.Labelled: {}})

// Events tells what happened from windows that follow one another. The zero value has seen none.
type Events struct {
	hosts map[string]*watched
	// names are where the containers of a name run, gone where one ran that runs nowhere now.
	names map[string]map[string]residence
	gone  map[string]departure
	all   []Event
}

// watched is what was known of a host last.
type watched struct {
	time time.Time
	// peers are to whom it measures the network, with the routes; containers the names of those that run there.
	peers      map[probedPair]string
	containers map[string]bool
}

// probedPair is to whom a host measures the network: another host, or from a container to one there.
type probedPair struct{ peer, client, server string }

// residence is that of a container on a host: since when, and whether that was seen.
type residence struct {
	since time.Time
	seen  bool
}

type departure struct {
	host string
	time time.Time
}

// Visit takes in the next window.
func (e *Events) Visit(w *frame.Window) {
	if e.hosts == nil {
		e.hosts, e.names, e.gone = map[string]*watched{}, map[string]map[string]residence{}, map[string]departure{}
	}
	silence := max(quietHost, 2*w.To.Sub(w.From)) // old frames are further apart
	for i := range w.Hosts {
		h := &w.Hosts[i]
		if len(h.Spans) == 0 {
			continue
		}
		if e.hosts[h.Host] == nil {
			e.begin(h)
		}
		for _, span := range h.Spans {
			if span.After != nil && span.After.Time.After(e.hosts[h.Host].time) {
				e.see(h.Host, span.After.Time, peersIn(span.After), containersIn(span.After))
			}
		}
		if last := e.hosts[h.Host].time; w.To.Sub(last) >= silence {
			e.see(h.Host, last, nil, nil)
		}
	}
}

// begin takes what a host had before the first window as known. Where its agent began in the window it had nothing.
func (e *Events) begin(h *frame.HostSpans) {
	of := &watched{}
	e.hosts[h.Host] = of
	before := h.Spans[0].Before
	if before == nil {
		return
	}
	of.time, of.peers, of.containers = before.Time, peersIn(before), containersIn(before)
	for name := range of.containers {
		e.place(name, h.Host, residence{since: before.Time})
	}
}

func (e *Events) place(name, host string, r residence) {
	if e.names[name] == nil {
		e.names[name] = map[string]residence{}
	}
	e.names[name][host] = r
}

// see compares what a host has at a moment with what it had.
func (e *Events) see(host string, at time.Time, peers map[probedPair]string, containers map[string]bool) {
	was := e.hosts[host]
	tell := func(event Event) {
		event.Time = at
		if !was.time.IsZero() {
			event.WithinSeconds = at.Sub(was.time).Seconds()
		}
		e.all = append(e.all, event)
	}
	moved := func(from, to, container string) {
		tell(Event{Kind: ContainerMoved, From: from, To: to, Container: container})
	}
	pair := func(kind EventKind, to probedPair) Event {
		return Event{Kind: kind, From: host, To: to.peer, Client: to.client, Server: to.server}
	}
	for to, now := range peers {
		before, known := was.peers[to]
		if !known {
			tell(pair(PairMeasured, to))
			continue
		}
		var changed bool
		if peers[to], changed = nextRoute(before, now); changed {
			event := pair(RouteChanged, to)
			event.Before, event.Now = before, now
			tell(event)
		}
	}
	for to := range was.peers {
		if _, still := peers[to]; !still {
			tell(pair(PairEnded, to))
		}
	}
	for name := range containers {
		if was.containers[name] {
			continue
		}
		if from, ok := e.gone[name]; ok && from.host != host {
			moved(from.host, host, name)
		}
		delete(e.gone, name)
		e.place(name, host, residence{at, true})
	}
	for name := range was.containers {
		if containers[name] {
			continue
		}
		of := e.names[name]
		left := of[host]
		delete(of, host)
		switch len(of) {
		case 0:
			e.gone[name] = departure{host, at}
		case 1:
			// Both ran for a while. A name that several hosts have all the time moves nowhere.
			for other, r := range of {
				if r.seen && r.since.After(left.since) {
					moved(host, other, name)
				}
			}
		}
	}
	e.hosts[host] = &watched{at, peers, containers}
}

// All are the events so far, the newest first.
func (e *Events) All() []Event {
	all := slices.Clone(e.all)
	handOver(all)
	slices.SortStableFunc(all, func(x, y Event) int {
		return cmp.Or(y.Time.Compare(x.Time), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.From, y.From),
			cmp.Compare(x.To, y.To), cmp.Compare(x.Container, y.Container), cmp.Compare(x.Client, y.Client),
			cmp.Compare(x.Server, y.Server))
	})
	return all
}

// handedOver is how far the end of one measurement and the begin of the next may be apart.
const handedOver = time.Minute

// handOver finds the pairs of containers that go on to be measured on other hosts.
func handOver(all []Event) {
	type names struct{ client, server string }
	ended := map[names][]*Event{}
	for i := range all {
		if e := &all[i]; e.Kind == PairEnded && e.Client != "" {
			ended[names{e.Client, e.Server}] = append(ended[names{e.Client, e.Server}], e)
		}
	}
	for i := range all {
		e := &all[i]
		if e.Kind != PairMeasured || e.Client == "" {
			continue
		}
		apart := func(end *Event) time.Duration { return e.Time.Sub(end.Time).Abs() }
		var last *Event
		for _, end := range ended[names{e.Client, e.Server}] {
			// The hosts' frames are looked at one after the other: the begin may be told first.
			if (end.From != e.From || end.To != e.To) && apart(end) <= handedOver && (last == nil || apart(end) < apart(last)) {
				last = end
			}
		}
		if last != nil {
			e.Kind, e.FromBefore, e.ToBefore = PairHandedOver, last.From, last.To
		}
	}
}

// nextRoute is what is known of a route after it was told, and whether it changed. A route that is not known is empty.
func nextRoute(before, now string) (route string, changed bool) {
	if before == now || now == "" {
		return before, false
	}
	x, err := model.ParseRoute(before)
	y, err2 := model.ParseRoute(now)
	if err != nil || err2 != nil {
		return now, false
	}
	if x.Same(y) {
		return y.Merge(x).String(), false
	}
	return now, true
}

// peersIn are to whom sessions run in a frame, with the route of each; empty where that is not known. Of several classes of
// service it is that of the least.
func peersIn(f *frame.Frame) map[probedPair]string {
	peers, class := map[probedPair]string{}, map[probedPair]int{}
	for _, m := range []probeMetrics{hostProbes, containerProbes} {
		m.each(f, "interval_seconds", func(_ int, key probeKey, _ string) {
			peers[probedPair{key.peer, key.client, key.server}] = ""
		})
		m.each(f, "hops", func(_ int, key probeKey, route string) {
			to := probedPair{key.peer, key.client, key.server}
			dscp, err := strconv.Atoi(key.dscp)
			if least, known := class[to]; err == nil && (!known || dscp < least) {
				class[to], peers[to] = dscp, route
			}
		})
	}
	return peers
}

// containersIn are the names of the containers that run in a frame.
func containersIn(f *frame.Frame) map[string]bool {
	names := map[string]bool{}
	t := &f.Tables[frame.Containers]
	for row := range t.IDs {
		text := func(a frame.Attribute) string { return f.Text(frame.Containers, a, row) }
		switch model.Runtime(text(frame.ContainerRuntime)) {
		case model.HostRuntime, model.Systemd:
			continue // each host has those of its own
		}
		if t.Attribute(frame.State, row) != frame.Live || text(frame.ContainerName) == "" {
			continue
		}
		names[f.ContainerTitle(row)] = true
	}
	return names
}
