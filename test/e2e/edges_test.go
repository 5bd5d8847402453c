package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// edge is what is true of one edge, by the programs' own books.
type edge struct {
	client, server string
	port           int
	transactions   uint64
	requestBytes   uint64
	responseBytes  uint64
	// connections is 0 where nobody kept a book of them.
	connections uint64
}

// checkEdges holds the map against the true edges: no edge is missing, none is invented, both
// ends are paired, and every count is exact at both ends.
func checkEdges(t *testing.T, o *outsight, want []edge) {
	t.Helper()
	o.settled(`histogram_count(outsight_edge_transaction_duration_seconds)`)

	var truth []string
	for _, e := range want {
		truth = append(truth, e.client+" -> "+e.server)
	}
	slices.Sort(truth)
	if drawn := ownEdges(t, o); !slices.Equal(drawn, truth) {
		t.Errorf("the map has the edges\n %s\nwant\n %s", strings.Join(drawn, "\n "), strings.Join(truth, "\n "))
	}
	for _, e := range want {
		for _, side := range []string{"client", "server"} {
			e.check(t, o, side)
		}
	}
}

func (e edge) check(t *testing.T, o *outsight, side string) {
	t.Helper()
	selector := fmt.Sprintf(`{side=%q,client=%q,server=%q,service=~".*:%d"}`, side, e.client, e.server, e.port)
	for _, count := range []struct {
		name, expression string
		want             uint64
	}{
		{"transactions", "sum(histogram_count(outsight_edge_transaction_duration_seconds" + selector + "))", e.transactions},
		{"request bytes", "sum(outsight_edge_request_bytes_total" + selector + ")", e.requestBytes},
		{"response bytes", "sum(outsight_edge_response_bytes_total" + selector + ")", e.responseBytes},
		{"connections", "sum(outsight_edge_connections_opened_total" + selector + ")", e.connections},
		{"aborted transactions", "sum(outsight_edge_aborted_transactions_total" + selector + ")", 0},
		{"paired", "min(outsight_edge_paired" + selector + ")", 1},
	} {
		if count.name == "connections" && e.connections == 0 {
			continue
		}
		found := o.query(count.expression)
		if len(found) != 1 {
			t.Errorf("%s -> %s, %s side: %s: no series %s", e.client, e.server, side, count.name, count.expression)
			continue
		}
		if got := found[0].value; got != float64(count.want) {
			t.Errorf("%s -> %s, %s side: %v %s, want %d", e.client, e.server, side, got, count.name, count.want)
		}
	}
}

// ownEdges lists the edges of the map that have a container of this run at an end, as
// "client -> server", in order.
func ownEdges(t *testing.T, o *outsight) []string {
	t.Helper()
	var drawn struct {
		Nodes []struct{ ID, Name string }
		Edges []struct{ Client, Server string }
	}
	if err := json.Unmarshal([]byte(o.run("map", "--output", "json")), &drawn); err != nil {
		t.Fatalf("outsight map: %v", err)
	}
	names := map[string]string{}
	for _, node := range drawn.Nodes {
		names[node.ID] = node.Name
	}
	own := unique("")
	var edges []string
	for _, e := range drawn.Edges {
		client, server := names[e.Client], names[e.Server]
		if strings.HasPrefix(client, own) || strings.HasPrefix(server, own) {
			edges = append(edges, client+" -> "+server)
		}
	}
	slices.Sort(edges)
	return edges
}
