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
	// PairMeasured and PairEnded are the begin and the end of the measurement of the network between two hosts.
	PairMeasured EventKind = "pair_measured"
	PairEnded    EventKind = "pair_ended"
	// RouteChanged says that the packets which measure the network between two hosts go by other routers than before.
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
	// peers are the hosts to which it measures the network, with the routes; containers the names of those that run there.
	peers      map[string]string
	containers map[string]bool
}

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
func (e *Events) see(host string, at time.Time, peers map[string]string, containers map[string]bool) {
	was := e.hosts[host]
	tell := func(event Event) {
		event.Time = at
		if !was.time.IsZero() {
			event.WithinSeconds = at.Sub(was.time).Seconds()
		}
		e.all = append(e.all, event)
	}
	add := func(kind EventKind, from, to, container string) {
		tell(Event{Kind: kind, From: from, To: to, Container: container})
	}
	for peer, now := range peers {
		before, measured := was.peers[peer]
		if !measured {
			add(PairMeasured, host, peer, "")
			continue
		}
		var changed bool
		if peers[peer], changed = nextRoute(before, now); changed {
			tell(Event{Kind: RouteChanged, From: host, To: peer, Before: before, Now: now})
		}
	}
	for peer := range was.peers {
		if _, measured := peers[peer]; !measured {
			add(PairEnded, host, peer, "")
		}
	}
	for name := range containers {
		if was.containers[name] {
			continue
		}
		if from, ok := e.gone[name]; ok && from.host != host {
			add(ContainerMoved, from.host, host, name)
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
					add(ContainerMoved, host, other, name)
				}
			}
		}
	}
	e.hosts[host] = &watched{at, peers, containers}
}

// All are the events so far, the newest first.
func (e *Events) All() []Event {
	all := slices.Clone(e.all)
	slices.SortStableFunc(all, func(x, y Event) int {
		return cmp.Or(y.Time.Compare(x.Time), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.From, y.From),
			cmp.Compare(x.To, y.To), cmp.Compare(x.Container, y.Container))
	})
	return all
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

// peersIn are the hosts to which sessions run in a frame, with the route to each; empty where that is not known. Of several
// classes of service it is that of the least.
func peersIn(f *frame.Frame) map[string]string {
	peers, class := map[string]string{}, map[string]int{}
	eachLabelled(f, probeInterval, func(_ int, labels []string) { peers[labels[0]] = "" })
	eachLabelled(f, probeHops, func(_ int, labels []string) {
		peer := labels[0]
		dscp, err := strconv.Atoi(labels[1])
		if least, known := class[peer]; err == nil && (!known || dscp < least) {
			class[peer], peers[peer] = dscp, labels[2]
		}
	})
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
