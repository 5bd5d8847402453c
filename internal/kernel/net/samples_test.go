package net

import (
	"slices"
	"testing"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// expectSameConnections holds that both ends of each edge between the groups sampled the same connections, whatever
// translates addresses in between.
func expectSameConnections(t *testing.T, p *Net, groups ...*kerneltest.Group) {
	t.Helper()
	all, err := p.ReadEdges()
	if err != nil {
		t.Fatal(err)
	}
	ids := map[model.CgroupID]bool{}
	for _, g := range groups {
		ids[g.ID(t)] = true
	}
	servers := 0
	for i := range all {
		server := &all[i]
		if server.Key.Role != model.RoleServer || !ids[server.Key.Owner] {
			continue
		}
		servers++
		client := slices.IndexFunc(all, func(e model.KernelEdge) bool {
			return e.Key.Role == model.RoleClient && e.Key.Owner == server.Key.Peer && e.Key.Peer == server.Key.Owner
		})
		if client < 0 {
			t.Fatalf("no client of %+v", server.Key)
		}
		common := 0
		for _, hash := range server.Connections {
			if slices.Contains(all[client].Connections, hash) {
				common++
			}
		}
		// A round that begins meanwhile parts the connections: each end has up to four of each round.
		if len(server.Connections) < 4 || len(server.Connections) > 8 || common < 4 {
			t.Errorf("%d of %d connections of a server are among the %d of its client", common, len(server.Connections),
				len(all[client].Connections))
		}
	}
	if servers == 0 {
		t.Error("no server was seen")
	}
}

// TestSamplesOfManyConnections: of many connections, both ends keep those with the least hashes, and no end keeps more.
func TestSamplesOfManyConnections(t *testing.T) {
	p := openShared(t)
	server := echoServer(t, "127.0.0.1", 0)
	const connections = 300
	for range connections {
		conn := kerneltest.Dial(t, server.Addr().String())
		if err := ask(conn, 1); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	counts(t, p, server.Addr(), model.RoleServer, "all connections are counted",
		func(c model.EdgeCounters) bool { return c.Opens == connections })
	counts(t, p, server.Addr(), model.RoleClient, "all connections are counted",
		func(c model.EdgeCounters) bool { return c.Opens == connections })
	client, other := edge(t, p, server.Addr(), model.RoleClient), edge(t, p, server.Addr(), model.RoleServer)
	common := 0
	for _, hash := range client.Connections {
		if slices.Contains(other.Connections, hash) {
			common++
		}
	}
	if n := len(client.Connections); common < 4 || n < 4 || n > 8 || len(other.Connections) > 8 {
		t.Errorf("the client has %x, the server %x", client.Connections, other.Connections)
	}
}
