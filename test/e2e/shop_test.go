package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"outsight/internal/demo"
)

// TestShop holds the map of the demo shop against what its services know themselves, with the
// agent started before the shop.
func TestShop(t *testing.T) {
	t.Parallel()
	o := shared(t)
	shop, err := demo.Start(t.Context(), demo.Options{
		Binary: outsightBinary, Instance: shopInstance, Rate: 200,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shop.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if shop.Mode() != "docker" || len(shop.Notices()) > 0 {
		t.Fatalf("the shop runs in mode %q: %q", shop.Mode(), shop.Notices())
	}
	eventually(t, func() error {
		if r := shop.Report(); r.Completed < 2000 {
			return fmt.Errorf("%d requests completed", r.Completed)
		}
		return nil
	})
	// The command line draws the same edges, from the agent's own snapshots.
	var now drawnMap
	if err := json.Unmarshal([]byte(o.run("map", "--output", "json", "--for", "3s")), &now); err != nil {
		t.Fatal(err)
	}
	var plan []edge
	for _, e := range shop.Edges() {
		plan = append(plan, edge{client: e.Client, server: e.Server})
	}
	checkDrawn(t, now, plan)

	if err := shop.Pause(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	truth, err := shop.Truth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []edge
	for _, e := range truth.Edges {
		want = append(want, shopEdge(t, e))
	}
	if len(want) != len(shop.Edges()) {
		t.Fatalf("the shop's books name %d edges, its plan %d", len(want), len(shop.Edges()))
	}
	checkEdges(t, o, want)
}

// shopEdge turns the books of an edge's ends into one truth; they must not contradict each other.
func shopEdge(t *testing.T, e demo.EdgeTruth) edge {
	t.Helper()
	var truths []edge
	if c := e.ClientSide; c != nil {
		truths = append(truths, edge{client: e.Client, server: e.Server, port: int(e.Port), transactions: c.Requests,
			requestBytes: c.SentBytes, responseBytes: c.ReceivedBytes, connections: c.Opened})
	}
	if s := e.ServerSide; s != nil {
		truths = append(truths, edge{client: e.Client, server: e.Server, port: int(e.Port), transactions: s.Requests,
			requestBytes: s.ReceivedBytes, responseBytes: s.SentBytes, connections: s.Opened})
	}
	if len(truths) == 0 || truths[0] != truths[len(truths)-1] {
		t.Fatalf("the books of %s -> %s: %+v", e.Client, e.Server, truths)
	}
	return truths[0]
}
