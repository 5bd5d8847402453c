package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

// cluster are two nodes of Kubernetes: web on the first asks db on the second; agent is a DaemonSet, proxy has its host's
// network, and idle does little.
type cluster struct {
	start time.Time
	at    map[string]*model.Container
}

func newCluster(start time.Time) *cluster {
	c := &cluster{start, map[string]*model.Container{}}
	add := func(name, kind, address string) {
		c.at[name] = &model.Container{ID: strings.Repeat(fmt.Sprintf("%x", len(c.at)+1), 64), Name: name,
			Runtime: model.Containerd, PodName: name + "-pod", PodNamespace: "shop", Workload: name, WorkloadKind: kind,
			Addresses: []netip.Addr{netip.MustParseAddr(address)}, Started: start}
	}
	add("web", "Deployment", "10.1.1.2")
	add("sidecar", "Deployment", "10.1.1.2")
	c.at["sidecar"].PodName, c.at["sidecar"].Workload = "web-pod", "web"
	add("agent", "DaemonSet", "10.1.1.3")
	add("db", "Deployment", "10.1.2.2")
	add("proxy", "Deployment", "192.168.0.2")
	add("idle", "Deployment", "10.1.2.4")
	c.at["db"].Listeners = []netip.AddrPort{netip.MustParseAddrPort("10.1.2.2:5432")}
	return c
}

// snapshots are those of the two nodes after so many seconds.
func (c *cluster) snapshots(second int) []*model.Snapshot {
	n := uint64(second)
	node := func(number int, names ...string) *model.Snapshot {
		s := &model.Snapshot{Time: c.start.Add(time.Duration(second) * time.Second), Window: time.Second,
			Host: model.Host{Name: fmt.Sprintf("node-%d", number), Cores: 4, MemoryBytes: 8 << 30}}
		host := &model.Container{ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime,
			Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.168.0.%d", number))}}
		for _, of := range append([]*model.Container{host}, c.named(names)...) {
			s.Containers = append(s.Containers, model.ContainerSample{Container: of,
				CPU: &model.CPUCounters{UsageNS: n * 2e8}, Memory: &model.MemorySample{UsageBytes: 300 << 20, WorkingSetBytes: 256 << 20}})
		}
		return s
	}
	first, second2 := node(1, "web", "sidecar", "agent"), node(2, "db", "proxy", "idle")
	at := netip.MustParseAddrPort("10.1.2.2:5432")
	edge := model.Edge{Instance: 1, Side: model.RoleClient, Client: model.Peer{Container: c.at["web"], Address: netip.MustParseAddr("10.1.1.2")},
		Server: model.Peer{Address: at.Addr()}, Service: at,
		Counters: model.EdgeCounters{SentBytes: n * 1000, ReceivedBytes: n * 9000, Opens: 1, Requests: n * 10, Replies: n * 10,
			Latency: spread(n*10, 0.002, 0)}}
	first.Edges = append(first.Edges, edge)
	edge.Side, edge.Client, edge.Server = model.RoleServer, model.Peer{Address: netip.MustParseAddr("10.1.1.2")},
		model.Peer{Container: c.at["db"], Address: at.Addr()}
	edge.Counters.SentBytes, edge.Counters.ReceivedBytes = n*9000, n*1000
	second2.Edges = append(second2.Edges, edge)
	return []*model.Snapshot{first, second2}
}

func (c *cluster) named(names []string) (all []*model.Container) {
	for _, name := range names {
		all = append(all, c.at[name])
	}
	return all
}

func clusterServer(t *testing.T) http.Handler {
	t.Helper()
	end := begin.Add(3 * time.Minute)
	k, c := openKept(t, func() time.Time { return end }), newCluster(begin)
	for second := range 181 {
		for _, s := range c.snapshots(second) {
			if err := k.send(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	return New(Options{Log: k.log, Now: func() time.Time { return end }})
}

func TestPlace(t *testing.T) {
	h := clusterServer(t)
	var a placeAnswer
	get200(t, h, "/api/outsight/place?from=now-3m&preset=least-traffic&seed=1", &a)
	if len(a.Hosts) != 2 || a.Hosts[0].Cores != 4 || a.Hosts[0].MemoryBytes != 8<<30 {
		t.Fatalf("hosts are %+v", a.Hosts)
	}
	pinned := map[string]string{}
	for _, c := range a.Containers {
		pinned[c.Name] = c.Pinned
		if c.Name == "web-pod" && !(c.CPU.Mean > 0.39 && c.CPU.Mean < 0.41 && c.CPU.Peak >= c.CPU.Mean && c.Memory.Mean > 500<<20) {
			t.Errorf("the pod of two containers uses %+v and %+v", c.CPU, c.Memory)
		}
	}
	if len(pinned) != 6 || pinned["web-pod"] != "" || pinned["db-pod"] != "" || pinned["agent-pod"] == "" ||
		pinned["proxy-pod"] == "" || pinned["host"] == "" {
		t.Errorf("pinned are %v", pinned)
	}
	if b := a.Before.CrossBytes; b < 9900 || b > 10100 || a.After.CrossBytes != 0 || len(a.Moves) != 1 || len(a.Traffic) != 1 {
		t.Errorf("%v bytes between hosts, %v after the moves %+v", b, a.After.CrossBytes, a.Moves)
	}
	get200(t, h, "/api/outsight/place?from=now-3m&preset=least-traffic&apart=web,db", &a)
	if len(a.Moves) != 0 {
		t.Errorf("with web and db apart there are moves: %+v", a.Moves)
	}
}

// TestPlaceKeepsVolumes: what agents tell of volumes and labels of hosts keeps a pod where it is, with the reason, until a
// rule says otherwise.
func TestPlaceKeepsVolumes(t *testing.T) {
	end := begin.Add(time.Minute)
	k, c := openKept(t, func() time.Time { return end }), newCluster(begin)
	c.at["db"].Placement = model.LabelText([]model.Label{{Name: model.PlaceVolume, Value: "the volume data"},
		{Name: model.PlaceRequire, Value: "disk=ssd"}})
	c.at["web"].Placement = model.LabelText([]model.Label{{Name: model.PlaceStay, Value: "stays by its label"}})
	for second := range 61 {
		for _, s := range c.snapshots(second) {
			s.Containers[0].Container.Placement = model.LabelText([]model.Label{{Name: model.PlaceHostLabel, Value: "disk=ssd"}})
			if err := k.send(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	h := New(Options{Log: k.log, Now: func() time.Time { return end }})
	var a placeAnswer
	get200(t, h, "/api/outsight/place?from=now-1m&preset=least-traffic", &a)
	if len(a.Moves) != 0 || len(a.Kept) != 2 || a.Kept[0].Name != "db-pod" || a.Kept[0].Rule != "has the volume data" ||
		a.Kept[0].To != "node-1" || a.Hosts[0].Labels["disk"] != "ssd" {
		t.Errorf("moves %+v, kept %+v, hosts %+v", a.Moves, a.Kept, a.Hosts)
	}
	a = placeAnswer{}
	get200(t, h, "/api/outsight/place?from=now-1m&preset=least-traffic&movable=db", &a)
	if len(a.Moves) != 1 || a.Moves[0].Moves[0].Name != "db-pod" {
		t.Errorf("moves %+v, kept %+v", a.Moves, a.Kept)
	}
	a = placeAnswer{}
	get200(t, h, "/api/outsight/place?from=now-1m&preset=least-traffic&movable=db&require=db=disk%3Dssd&host_label=node-1=disk%3Dhdd", &a)
	if len(a.Moves) != 0 || len(a.Kept) != 2 || a.Kept[0].Rule != "requires the host labels disk=ssd" {
		t.Errorf("moves %+v, kept %+v", a.Moves, a.Kept)
	}
}

// TestPlaceByNodeLabels: labels that Kubernetes' nodes have are those of hosts, beside what agents tell and what a user does.
func TestPlaceByNodeLabels(t *testing.T) {
	end := begin.Add(time.Minute)
	k, c := openKept(t, func() time.Time { return end }), newCluster(begin)
	c.at["db"].Placement = model.LabelText([]model.Label{{Name: model.PlaceRequire, Value: "disk=ssd"}})
	c.at["web"].Placement = model.LabelText([]model.Label{{Name: model.PlaceStay, Value: "stays by its label"}})
	for second := range 61 {
		for _, s := range c.snapshots(second) {
			if err := k.send(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	moves := func(disk, query string) string {
		t.Helper()
		h := New(Options{Log: k.log, Now: func() time.Time { return end }, HostLabels: func() map[string]map[string]string {
			return map[string]map[string]string{"node-1": {"disk": disk}, "elsewhere": {"disk": "ssd"}}
		}})
		var a placeAnswer
		get200(t, h, "/api/outsight/place?from=now-1m&preset=least-traffic"+query, &a)
		if query == "" && a.Hosts[0].Labels["disk"] != disk {
			t.Errorf("hosts %+v", a.Hosts)
		}
		text := ""
		for _, step := range a.Moves {
			for _, m := range step.Moves {
				text += m.Name + " "
			}
		}
		for _, kept := range a.Kept {
			text += kept.Name + " " + kept.Rule + ";"
		}
		return text
	}
	f := func(disk, query, want string) {
		t.Helper()
		if got := moves(disk, query); !strings.HasPrefix(got, want) {
			t.Errorf("on a %s, %s: %q, want %q", disk, query, got, want)
		}
	}
	f("ssd", "", "db-pod ")
	f("hdd", "", "db-pod requires the host labels disk=ssd")
	f("hdd", "&host_label=node-1=disk%3Dssd", "db-pod ")
}

func TestPlaceByPower(t *testing.T) {
	end := begin.Add(time.Minute)
	k, c := openKept(t, func() time.Time { return end }), newCluster(begin)
	for second := range uint64(61) {
		for i, s := range c.snapshots(int(second)) {
			// The second node takes three times as much.
			joules := second * 1e6 * uint64(1+2*i)
			s.Energy = &model.EnergySample{Parts: []model.EnergyPart{{Domain: "package", Source: "powercap",
				Containers: 8 * joules, System: 2 * joules, Idle: 40 * joules}}}
			if err := k.send(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	var a placeAnswer
	get200(t, New(Options{Log: k.log, Now: func() time.Time { return end }}),
		"/api/outsight/place?from=now-1m&preset=lowest-energy", &a)
	first, second := a.Hosts[0], a.Hosts[1]
	if !within(first.IdleWatts, 40) || !within(second.IdleWatts, 120) || !within(first.WattsPerCore, 10/0.8) {
		t.Errorf("power is %+v and %+v", first, second)
	}
	// What has its host's network keeps the second node in use.
	if a.Before.Watts == nil || *a.After.Watts >= *a.Before.Watts || len(a.Moves) == 0 || a.After.HostsInUse != 1 {
		t.Errorf("power is %v, %v before; moves %+v", a.After.Watts, a.Before.Watts, a.Moves)
	}
}

func within(got, want float64) bool { return got > 0.98*want && got < 1.02*want }

func TestPlaceFormats(t *testing.T) {
	h := clusterServer(t)
	f := func(method, query, body string, code int, wants ...string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/api/outsight/place?from=now-3m&preset=least-traffic&"+query,
			strings.NewReader(body)))
		if w.Code != code {
			t.Errorf("%s %s: %d %s", method, query, w.Code, w.Body)
		}
		for _, want := range wants {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s %s: %s\nwant %q", method, query, w.Body, want)
			}
		}
	}
	f("GET", "format=text", "", 200, "2 hosts, 7 containers (3 may move)", "100.0 %", "-100.0 % of bytes between hosts")
	f("GET", "format=kubernetes", "", 200, "kind: Deployment", "kubernetes.io/hostname", "- node-")
	f("GET", "format=network-aware", "", 200, "kind: AppGroup", "minBandwidth:", "no delays between hosts")
	f("GET", "format=compose", "", 200, "services:")
	f("POST", "format=text", "stay: [web, db]\n", 200, "Nothing that moves is worth it")
	f("POST", "format=text", `{"apart": [["web", "db"]]}`, 200, "Nothing that moves is worth it")
	f("POST", "format=text", "stay: [nobody]\n", 400, "nobody")
	f("POST", "", strings.Repeat("a", maxRules+1), 400, "more than")
	f("GET", "format=text&move=db=node-1", "", 200, "Move db-pod to node-1: -100.0 % of bytes", "The moves that were chosen")
	f("POST", "format=text", "move: [db=node-1]\napart: [[web, db]]\n", 200, "Broken then: node-1: 2 containers")
	f("POST", "", `{"move": []}`, 200, `"moves":[]`, `"search":"chosen"`)
	f("POST", "format=text", "host_labels: {node-2: [disk=ssd]}\nrequire: {db: [disk=ssd], web: [disk=ssd]}\n", 200, "Move web-pod to node-2")
	f("GET", "require=db=disk%3Dssd", "", 400, "no host is known to have the labels")
	f("GET", "require=db=disk%3D(", "", 400, "no requirement")
	f("GET", "move=db=node-9", "", 400, "node-9")
	f("GET", "together=web,idle&apart=web,idle", "", 400, "together and apart")
	f("GET", "on=web=node-9", "", 400, "node-9")
	f("GET", "weight=money=1", "", 400, "money")
	f("GET", "format=xml", "", 400, "xml")
	f("GET", "weight=energy=1", "", 400, "no meter")
	f("GET", "headroom=2", "", 400, "headroom")
}
