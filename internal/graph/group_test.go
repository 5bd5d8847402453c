package graph

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

// two snapshots of a host with a pod of two containers, a database, and processes of the host.
func grouped() (before, after *model.Snapshot) {
	pod := func(c *model.Container) *model.Container {
		c.PodName, c.PodNamespace = "web-1", "shop"
		return c
	}
	app, sidecar, db := pod(container("a1", "app")), pod(container("a2", "sidecar")), container("b1", "db")
	idle := container("c1", "idle")
	host := &model.Container{ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime}
	app.Started, sidecar.Started = start.Add(-2*time.Hour), start.Add(-time.Hour)
	at := func(seconds int, n uint64) *model.Snapshot {
		s := &model.Snapshot{Time: start.Add(time.Duration(seconds) * time.Second), Host: model.Host{Name: "node-1"}}
		for i, c := range []*model.Container{app, sidecar, db, idle, host} {
			s.Containers = append(s.Containers, model.ContainerSample{Container: c,
				CPU:    &model.CPUCounters{UsageNS: n * uint64(i+1) * 1e9, RunQueue: latency(n, time.Millisecond)},
				Memory: &model.MemorySample{UsageBytes: 100 * uint64(i+1), LimitBytes: 1000}})
		}
		end := func(c *model.Container, process string) model.Peer { return model.Peer{Container: c, Process: process} }
		both := func(client, server model.Peer, sent, received uint64) {
			for _, side := range []model.Role{model.RoleClient, model.RoleServer} {
				counters := model.EdgeCounters{SentBytes: n * sent, ReceivedBytes: n * received, Opens: n,
					Latency: latency(n, time.Millisecond)}
				if side == model.RoleServer {
					counters.SentBytes, counters.ReceivedBytes = counters.ReceivedBytes, counters.SentBytes
				}
				s.Edges = append(s.Edges, model.Edge{Side: side, Client: client, Server: server, Paired: true, Counters: counters})
			}
		}
		both(end(app, "com.shop.Web"), end(db, "postgres"), 10, 1000)
		both(end(app, "cron"), end(db, "postgres"), 1, 2)
		both(end(sidecar, "envoy"), end(app, "com.shop.Web"), 3, 4)
		both(end(host, "backup.py"), end(db, "postgres"), 5, 50)
		both(end(host, ""), end(db, "postgres"), 6, 60)
		return s
	}
	return at(0, 1), at(10, 11)
}

func drawn(g *Graph) string {
	var lines []string
	for _, n := range g.Nodes {
		cpu, memory := "", ""
		if n.Usage != nil {
			cpu, memory = fmt.Sprintf(" %v cores", *n.Usage.CPUCores),
				fmt.Sprintf(" %v bytes of %v", *n.Usage.MemoryBytes, *n.Usage.MemoryLimitBytes)
		}
		lines = append(lines, fmt.Sprintf("%s %s (%s)%s%s", n.Kind, n.Name, n.ID, cpu, memory))
	}
	for _, e := range g.Edges {
		lines = append(lines, fmt.Sprintf("%s: %v + %v bytes, %v + %v transactions, paired %v", e.ID,
			e.ClientSide.Of(RequestBytes), e.ClientSide.Of(ResponseBytes),
			e.ClientSide.Of(Transactions), e.ServerSide.Of(Transactions), e.Paired))
	}
	return strings.Join(lines, "\n")
}

func TestGroupings(t *testing.T) {
	before, after := grouped()
	for by, want := range map[Grouping][]string{
		ByContainer: {
			"container app (a1) 1 cores 100 bytes of 1000",
			"container db (b1) 3 cores 300 bytes of 1000",
			"host host (host/node-1) 5 cores 500 bytes of 1000",
			"container idle (c1) 4 cores 400 bytes of 1000",
			"container sidecar (a2) 2 cores 200 bytes of 1000",
			"a1>b1: 110 + 10020 bytes, 20 + 20 transactions, paired true",
			"host/node-1>b1: 110 + 1100 bytes, 20 + 20 transactions, paired true",
			"a2>a1: 30 + 40 bytes, 10 + 10 transactions, paired true",
		},
		ByPod: {
			"container db (b1) 3 cores 300 bytes of 1000",
			"host host (host/node-1) 5 cores 500 bytes of 1000",
			"container idle (c1) 4 cores 400 bytes of 1000",
			"pod shop/web-1 (pod/shop/web-1) 3 cores 300 bytes of 2000",
			"host/node-1>b1: 110 + 1100 bytes, 20 + 20 transactions, paired true",
			"pod/shop/web-1>b1: 110 + 10020 bytes, 20 + 20 transactions, paired true",
			"pod/shop/web-1>pod/shop/web-1: 30 + 40 bytes, 10 + 10 transactions, paired true",
		},
		ByHost: {
			"host node-1 (all/node-1) 15 cores 1500 bytes of 5000",
			"all/node-1>all/node-1: 250 + 11160 bytes, 50 + 50 transactions, paired true",
		},
		ByProcess: {
			"process app/com.shop.Web (a1/com.shop.Web)",
			"process app/cron (a1/cron)",
			"process db/postgres (b1/postgres)",
			"host host (host/node-1) 5 cores 500 bytes of 1000",
			"process host/backup.py (host/node-1/backup.py)",
			"container idle (c1) 4 cores 400 bytes of 1000",
			"process sidecar/envoy (a2/envoy)",
			"a1/com.shop.Web>b1/postgres: 100 + 10000 bytes, 10 + 10 transactions, paired true",
			"a1/cron>b1/postgres: 10 + 20 bytes, 10 + 10 transactions, paired true",
			"host/node-1>b1/postgres: 60 + 600 bytes, 10 + 10 transactions, paired true",
			"host/node-1/backup.py>b1/postgres: 50 + 500 bytes, 10 + 10 transactions, paired true",
			"a2/envoy>a1/com.shop.Web: 30 + 40 bytes, 10 + 10 transactions, paired true",
		},
	} {
		if got := drawn(fromFrames(before, after, by)); got != strings.Join(want, "\n") {
			t.Errorf("by %s: got\n%s\nwant\n%s", by, got, strings.Join(want, "\n"))
		}
	}
	// Two containers' limits are one limit only where both have one.
	after.Containers[0].Memory.LimitBytes = 0
	if pod := fromFrames(before, after, ByPod).Node("pod/shop/web-1"); pod.Usage.MemoryLimitBytes != nil {
		t.Errorf("the pod has a limit of %v, one of its containers has none", *pod.Usage.MemoryLimitBytes)
	} else if fmt.Sprint(pod.Members) != "[a1 a2]" {
		t.Errorf("the pod has the containers %v", pod.Members)
	} else if want := float64(start.Add(-2 * time.Hour).Unix()); *pod.StartedSeconds != want {
		t.Errorf("the pod started at %v, its first container at %v", *pod.StartedSeconds, want)
	}
}

func TestParseGrouping(t *testing.T) {
	for name, want := range map[string]Grouping{"": ByContainer, "container": ByContainer, "pod": ByPod,
		"process": ByProcess, "host": ByHost} {
		if got, err := ParseGrouping(name); got != want || err != nil {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
	}
	if _, err := ParseGrouping("port"); err == nil || !strings.Contains(err.Error(), `"port"`) {
		t.Errorf("got %v", err)
	}
}

func TestHideBelow(t *testing.T) {
	before, after := grouped()
	for share, want := range map[float64]int{0: 5, 0.02: 3, 0.05: 2, 0.5: 1, 1: 0} {
		g := fromFrames(before, after, ByProcess)
		nodes := len(g.Nodes)
		if g.HideBelow(share); len(g.Edges) != want || g.HiddenEdges != 5-want || g.OmittedEdges != 0 {
			t.Errorf("%v: %d edges, %d hidden, want %d and %d", share, len(g.Edges), g.HiddenEdges, want, 5-want)
		}
		if len(g.Nodes) != nodes {
			t.Errorf("%v: containers are hidden", share)
		}
	}
	g := fromFrames(before, after, ByHost)
	if g.HideBelow(math.NaN()); len(g.Edges) != 0 {
		t.Error("no share is below none")
	}
}

// An edge is as sure as the least sure of its parts; idle ones are no part.
func TestConfidence(t *testing.T) {
	a, b := container("a1", "a"), container("b1", "b")
	e := func(service string, confidence model.Confidence, bytes uint64) model.Edge {
		e := edge(model.RoleClient, inside(a), inside(b), service, model.EdgeCounters{SentBytes: bytes})
		e.Confidence = confidence
		return e
	}
	s := &model.Snapshot{Time: start, Edges: []model.Edge{
		e("10.0.0.1:1", model.Exact, 5), e("10.0.0.1:2", model.ByListener, 6), e("10.0.0.1:3", model.NotFound, 0),
		edge(model.RoleClient, inside(a), outside("198.51.100.7"), "198.51.100.7:443", model.EdgeCounters{SentBytes: 1}),
	}}
	s.Edges[0].Via = "docker-proxy"
	g := graphOf(nil, s)
	if len(g.Edges) != 2 || g.UnmatchedShare != 0.5 || g.UnmatchedBytesShare != 1.0/12 {
		t.Fatalf("%d edges, of them unmatched %v with %v of the bytes", len(g.Edges), g.UnmatchedShare, g.UnmatchedBytesShare)
	}
	for _, e := range g.Edges {
		want, via := "listener", "docker-proxy"
		if e.Server != "b1" {
			want, via = "none", ""
		}
		if e.Confidence != want || e.Via != via {
			t.Errorf("%s: confidence %q via %q, want %q via %q", e.ID, e.Confidence, e.Via, want, via)
		}
	}
}
