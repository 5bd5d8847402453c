package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// timeline has the frames of agents, one each second, and visits them in stretches of several.
type timeline struct {
	frames map[string][]*frame.Frame
	agents map[string]*agent
}

func newTimeline() *timeline {
	return &timeline{map[string][]*frame.Frame{}, map[string]*agent{}}
}

// tell adds a frame of a host at a second. A peer may have a route, as in "b by 192.0.2.1", and before it containers that are
// measured, as in "web>db:b".
func (l *timeline) tell(second int, host string, containers, peers []string) {
	if l.agents[host] == nil {
		l.agents[host] = newAgent(host, start)
	}
	s := &model.Snapshot{Time: start.Add(time.Duration(second) * time.Second), Host: l.agents[host].host,
		Probes: &model.ProbeSample{}, Containers: []model.ContainerSample{{Container: &model.Container{
			ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime}}}}
	for _, name := range containers {
		s.Containers = append(s.Containers, model.ContainerSample{Container: &model.Container{
			ID: fmt.Sprint(host, name), Name: name, Runtime: model.Docker}})
	}
	for _, peer := range peers {
		name, by, _ := strings.Cut(peer, " by ")
		route, _ := model.ParseRoute(by)
		one := model.ProbeSession{Peer: name, Interval: time.Second, Route: route}
		if ends, peer, ok := strings.Cut(name, ":"); ok {
			one.Peer = peer
			one.Client, one.Server, _ = strings.Cut(ends, ">")
		}
		s.Probes.Sessions = append(s.Probes.Sessions, one)
	}
	l.frames[host] = append(l.frames[host], l.agents[host].Build(s))
}

// events are those of seconds from and to, looked at in stretches of step.
func (l *timeline) events(from, to, step int) (told []string) {
	var e Events
	last := func(host string, second int) (found *frame.Frame) {
		for _, f := range l.frames[host] {
			if !f.Time.After(start.Add(time.Duration(second) * time.Second)) {
				found = f
			}
		}
		return found
	}
	for at := from; at < to; at += step {
		w := &frame.Window{From: start.Add(time.Duration(at) * time.Second), To: start.Add(time.Duration(at+step) * time.Second)}
		for host := range l.frames {
			if after := last(host, at+step); after != nil {
				w.Hosts = append(w.Hosts, hostSpans(host, frame.Span{Before: last(host, at), After: after}))
			}
		}
		e.Visit(w)
	}
	for _, event := range e.All() {
		about := event.Container
		if event.Kind == RouteChanged {
			about = event.Before + " > " + event.Now
		}
		if event.Client != "" {
			about = strings.Join(strings.Fields(event.Client+">"+event.Server+" "+event.FromBefore+" "+event.ToBefore+" "+about), " ")
		}
		told = append(told, fmt.Sprintf("%v %s %s %s %s", event.Time.Sub(start).Seconds(), event.Kind, event.From, event.To, about))
	}
	slices.Sort(told)
	return told
}

func TestEvents(t *testing.T) {
	one := func(names ...string) []string { return names }
	for name, c := range map[string]struct {
		tell func(l *timeline)
		want []string
	}{
		"what is so from the beginning is no event": {func(l *timeline) {
			for i := range 40 {
				l.tell(i, "a", one("web"), one("b"))
				l.tell(i, "b", one("db"), nil)
			}
		}, nil},
		"a pair begins and ends": {func(l *timeline) {
			for i := range 40 {
				peers := one()
				if i >= 12 && i < 23 {
					peers = one("b")
				}
				l.tell(i, "a", nil, peers)
			}
		}, []string{"15 pair_measured a b ", "25 pair_ended a b "}},
		"a route changes; a router that is silent, and an agent that begins anew, change nothing": {func(l *timeline) {
			for i := range 60 {
				route := "192.0.2.1 192.0.2.2"
				switch {
				case i >= 12 && i < 20:
					route = "192.0.2.1 *"
				case i >= 27 && i < 33:
					route = ""
				case i >= 42:
					route = "192.0.2.9 192.0.2.2"
				}
				l.tell(i, "a", nil, one("b by "+route))
			}
		}, []string{"45 route_changed a b 192.0.2.1 192.0.2.2 > 192.0.2.9 192.0.2.2"}},
		"containers are measured beside their hosts, and by another route": {func(l *timeline) {
			for i := range 60 {
				peers := one("b")
				if i >= 12 && i < 43 {
					peers = one("b", "web>db:b by 192.0.2.1")
				}
				if i >= 22 && i < 43 {
					peers[1] = "web>db:b by 192.0.2.9"
				}
				l.tell(i, "a", nil, peers)
			}
		}, []string{"15 pair_measured a b web>db", "25 route_changed a b web>db 192.0.2.1 > 192.0.2.9", "45 pair_ended a b web>db"}},
		"containers are measured on other hosts; others have the same peers": {func(l *timeline) {
			for i := range 60 {
				a, c := one("web>db:b", "web>cache:b"), one()
				switch {
				case i >= 42: // the client moved
					a, c = one("web>cache:b"), one("web>db:d")
				case i >= 24: // the server did
					a = one("web>cache:b", "web>db:d")
				case i >= 22:
					a = a[1:]
				}
				l.tell(i, "a", nil, a)
				l.tell(i, "c", nil, c)
			}
		}, []string{"25 pair_ended a b web>db", "25 pair_handed_over a d web>db a b", "45 pair_ended a d web>db",
			"45 pair_handed_over c d web>db a d"}},
		"a measurement that begins anew after long is none that goes on": {func(l *timeline) {
			for i := range 140 {
				a, c := one(), one()
				if i < 12 {
					a = one("web>db:b")
				} else if i >= 92 {
					c = one("web>db:b")
				}
				l.tell(i, "a", nil, a)
				l.tell(i, "c", nil, c)
			}
		}, []string{"15 pair_ended a b web>db", "95 pair_measured c b web>db"}},
		"an agent begins": {func(l *timeline) {
			for i := range 40 {
				l.tell(i, "b", one("db"), nil)
				if i > 17 {
					l.tell(i, "a", one("web"), one("b"))
				}
			}
		}, []string{"20 pair_measured a b "}},
		"a host falls silent": {func(l *timeline) {
			for i := range 40 {
				l.tell(i, "b", one("db"), nil)
				if i < 8 {
					l.tell(i, "a", one("web"), one("b"))
				}
			}
		}, []string{"7 pair_ended a b "}},
		"a container is stopped here, and started there": {func(l *timeline) {
			for i := range 40 {
				on := map[string][]string{"a": one("db"), "b": one()}
				if i < 12 {
					on["a"] = one("db", "web")
				} else if i > 22 {
					on["b"] = one("web")
				}
				l.tell(i, "a", on["a"], nil)
				l.tell(i, "b", on["b"], nil)
			}
		}, []string{"25 container_moved a b web"}},
		"it is started there before it is stopped here": {func(l *timeline) {
			for i := range 40 {
				on := map[string][]string{"a": one("web"), "b": one()}
				if i > 12 {
					on["b"] = one("web")
				}
				if i > 22 {
					on["a"] = one()
				}
				l.tell(i, "a", on["a"], nil)
				l.tell(i, "b", on["b"], nil)
			}
		}, []string{"25 container_moved a b web"}},
		"the host that it was on is lost": {func(l *timeline) {
			for i := range 60 {
				if i < 8 {
					l.tell(i, "a", one("web"), nil)
				}
				if i < 30 {
					l.tell(i, "b", nil, nil)
				} else {
					l.tell(i, "b", one("web"), nil)
				}
			}
		}, []string{"30 container_moved a b web"}},
		"what every host has moves nowhere, nor what is replaced on its host": {func(l *timeline) {
			for i := range 40 {
				web := one("web")
				if i > 10 && i < 20 {
					web = one()
				}
				l.tell(i, "a", append(web, "logs"), nil)
				l.tell(i, "b", one("logs"), nil)
				if i < 25 {
					l.tell(i, "c", one("logs"), nil)
				} else {
					l.tell(i, "c", nil, nil)
				}
				if i > 27 {
					l.tell(i, "d", one("logs"), nil)
				}
			}
		}, nil},
	} {
		l := newTimeline()
		c.tell(l)
		end := 0
		for _, frames := range l.frames {
			end = max(end, int(frames[len(frames)-1].Time.Sub(start).Seconds()))
		}
		if got := l.events(0, end, 5); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestEventsSayHowSure: an event happened between two frames.
func TestEventsSayHowSure(t *testing.T) {
	l := newTimeline()
	for i := range 20 {
		peers := []string{"b"}[:min(i/10, 1)]
		l.tell(i, "a", nil, peers)
	}
	var e Events
	f := l.frames["a"]
	for _, at := range []int{0, 6, 12} {
		e.Visit(&frame.Window{From: f[at].Time, To: f[at+6].Time, Hosts: []frame.HostSpans{hostSpans("a",
			frame.Span{Before: f[at], After: f[at+6]})}})
	}
	if all := e.All(); len(all) != 1 || all[0].WithinSeconds != 6 || !all[0].Time.Equal(f[12].Time) {
		t.Errorf("%+v", all)
	}
}
