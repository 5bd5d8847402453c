package api

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"outsight/internal/graph"
	"outsight/internal/model"
)

// endsHost is a host with a container, at a second after begin.
func endsHost(name, address, container string, second int) *model.Snapshot {
	at := func(id, text string) *model.Container {
		return &model.Container{ID: id, Name: id, Runtime: model.Docker, Addresses: []netip.Addr{netip.MustParseAddr(text)}}
	}
	host, own := at(model.HostContainerID, address), at(container, address)
	host.Runtime = model.HostRuntime
	return &model.Snapshot{Time: begin.Add(time.Duration(second) * time.Second), ClockError: 50 * time.Microsecond,
		Host: model.Host{Name: name}, Containers: []model.ContainerSample{{Container: host}, {Container: own}}}
}

// TestEndsSeries: of an edge between two hosts there are the delays in each direction, of one within a host where its time
// goes, both as the map tells them; and nothing of hosts that are silent.
func TestEndsSeries(t *testing.T) {
	const seconds, sending, receiving = 15, 100 * time.Microsecond, 200 * time.Microsecond
	end := begin.Add(seconds * time.Second)
	k := openKept(t, func() time.Time { return end })
	service := netip.MustParseAddrPort("192.0.2.2:5432")
	for i := range seconds + 1 {
		n := uint64(i)
		a, b := endsHost("a", "192.0.2.1", "web", i), endsHost("b", "192.0.2.2", "db", i)
		web, db := a.Containers[1].Container, b.Containers[1].Container
		db.Listeners = []netip.AddrPort{service}
		cache := &model.Container{ID: "cache", Name: "cache", Runtime: model.Docker}
		a.Containers = append(a.Containers, model.ContainerSample{Container: cache})
		across := model.EdgeCounters{Opens: 1, SentBytes: 100 * n, ReceivedBytes: 100 * n}
		a.Edges = []model.Edge{{Instance: 1, Side: model.RoleClient, Client: model.Peer{Container: web},
			Server: model.Peer{Address: service.Addr()}, Service: service, Connections: []uint64{7, 8}, Counters: across}}
		b.Edges = []model.Edge{{Instance: 1, Side: model.RoleServer, Server: model.Peer{Container: db, Address: service.Addr()},
			Client: model.Peer{Address: netip.MustParseAddr("192.0.2.1")}, Service: service, Connections: []uint64{7, 8}, Counters: across}}
		for at := max(i-9, 0); at <= i; at++ { // 5 ms there, and 1 ms back; 0.1 ms of it in the sender's stack, and 0.2 in the receiver's
			for packet := range 2 {
				there, back := uint64(1000+10*at+packet), uint64(9000+10*at+packet)
				sent := begin.Add(time.Duration(at)*time.Second - time.Duration(100+packet)*time.Millisecond)
				client, server := &a.Edges[0].PacketSamples, &b.Edges[0].PacketSamples
				*client = append(*client, model.PacketSample{Packet: there, Sent: true, Time: sent, Stack: sending},
					model.PacketSample{Packet: back, Time: sent.Add(time.Millisecond), Stack: receiving})
				*server = append(*server, model.PacketSample{Packet: there, Time: sent.Add(5 * time.Millisecond), Stack: receiving},
					model.PacketSample{Packet: back, Sent: true, Time: sent, Stack: sending})
			}
		}
		for side, of := range map[model.Role]struct{ firstByte, delay time.Duration }{
			model.RoleClient: {8 * time.Millisecond, time.Millisecond}, model.RoleServer: {4 * time.Millisecond, 2 * time.Millisecond}} {
			counters := model.EdgeCounters{Opens: 1, SentBytes: n, ReceivedBytes: n, TimeToFirstByte: &model.Histogram{},
				Packets: model.PacketCounters{Delay: &model.Histogram{}}}
			for range i {
				counters.TimeToFirstByte.Add(of.firstByte)
				counters.Packets.Delay.Add(of.delay)
			}
			a.Edges = append(a.Edges, model.Edge{Instance: 2, Side: side, Client: model.Peer{Container: web},
				Server: model.Peer{Container: cache}, Service: netip.MustParseAddrPort("192.0.2.1:6379"), Paired: true, Counters: counters})
		}
		for _, s := range []*model.Snapshot{a, b} {
			if err := k.send(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	compute := EndsSeries(Options{Log: k.log}, seconds*time.Second)
	series, err := compute(t.Context(), "", end)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, s := range series {
		labels := map[string]string{}
		for _, l := range s.Labels {
			labels[l.Name] = l.Value
		}
		key := fmt.Sprint(s.Name, " ", labels["client"], "@", labels["client_host"], ">", labels["server"], "@", labels["server_host"],
			" ", labels["direction"]+labels["part"], " ", labels["quantile"])
		if _, twice := got[key]; twice || labels["transport"] != "tcp" || labels["client_id"] != "web" {
			t.Errorf("%s: %v", key, labels)
		}
		got[key] = s.Value
	}
	want := func(name, rest string, value float64) {
		t.Helper()
		key := name + " " + rest
		v, ok := got[key]
		if !ok || math.Abs(v-value) > value*model.RelativeError+1e-9 {
			t.Errorf("%s is %v, %v, want %v", key, v, ok, value)
		}
		delete(got, key)
	}
	for part, seconds := range map[string]float64{"client": 1e-3, "network_there": 2e-3, "server": 4e-3, "network_back": 1e-3} {
		want(model.EndsTime, "web@a>cache@a "+part+" ", seconds)
	}
	for direction, seconds := range map[string]float64{"there": 5e-3, "back": 1e-3} {
		way := "web@a>db@b " + direction + " "
		for _, q := range []string{"0.5", "0.99"} {
			want(model.EndsDelay, way+q, seconds)
			want(model.EndsAboveMinimum, way+q, 0)
			for part, of := range map[string]float64{"sender_stack": sending.Seconds(), "receiver_stack": receiving.Seconds(),
				"wire": seconds - (sending + receiving).Seconds()} {
				want(model.EndsPart, "web@a>db@b "+direction+part+" "+q, of)
			}
		}
		want(model.EndsDelayError, way, 100e-6)
		want(model.EndsJitter, way, 0)
		want(model.EndsMatched, way, 20)
	}
	if len(got) > 0 {
		t.Errorf("besides there are %v", got)
	}
	// The map tells the same.
	var g graph.Graph
	get200(t, New(Options{Log: k.log, Now: func() time.Time { return end }}), "/api/outsight/graph?from=now-15s", &g)
	for _, e := range g.Edges {
		if e.Split == nil && (e.Network == nil || e.Network.DelayThereP50 == nil || math.Abs(float64(*e.Network.DelayThereP50)-5e-3) > 1e-4) {
			t.Errorf("the map has of %s the network %+v", e.ID, e.Network)
		}
	}
	if series, err := compute(t.Context(), "", end.Add(time.Minute)); err != nil || len(series) > 0 {
		t.Errorf("a minute after the last frames there are %d series, %v", len(series), err)
	}
}
