package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
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
	var clients []string
	for _, e := range want {
		clients = append(clients, e.client)
	}
	o.settled(fmt.Sprintf(`histogram_count(outsight_edge_transaction_duration_seconds{client=~%q})`,
		strings.Join(clients, "|")))

	drawn := checkDrawn(t, o.graph(), want)
	for _, e := range want {
		e.check(t, o, "client", drawn[e.String()].ClientSide)
		e.check(t, o, "server", drawn[e.String()].ServerSide)
	}
}

func (e edge) String() string { return e.client + " -> " + e.server }

func (e edge) check(t *testing.T, o *outsight, side string, drawn *drawnSide) {
	t.Helper()
	books := drawnSide{float64(e.transactions), float64(e.requestBytes), float64(e.responseBytes)}
	if drawn == nil || *drawn != books {
		t.Errorf("%s, %s side: the map has %+v, want %+v", e, side, drawn, books)
	}
	e.checkSeries(t, o, side)
}

func (e edge) checkSeries(t *testing.T, o *outsight, side string) {
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
		if len(found) == 0 && count.want == 0 {
			continue // what never counted anything is no series
		}
		if len(found) != 1 {
			t.Errorf("%s, %s side: %s: no series %s", e, side, count.name, count.expression)
			continue
		}
		if got := found[0].value; got != float64(count.want) {
			t.Errorf("%s, %s side: %v %s, want %d", e, side, got, count.name, count.want)
		}
	}
}

// drawnMap is the service map, from the page's API or from `outsight map`.
type drawnMap struct {
	Nodes []struct{ ID, Name string }
	Edges []drawnEdge
}

type drawnEdge struct {
	Client, Server string
	Transport      string
	Paired         bool
	ClientSide     *drawnSide `json:"client_side"`
	ServerSide     *drawnSide `json:"server_side"`
}

type drawnSide struct {
	Transactions  float64
	RequestBytes  float64 `json:"request_bytes"`
	ResponseBytes float64 `json:"response_bytes"`
}

// graph asks for the map of the last five minutes, as the page does.
func (o *outsight) graph() drawnMap {
	o.t.Helper()
	response, err := client.Get("http://" + o.address + "/api/outsight/graph?from=now-5m")
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close()
	var m drawnMap
	if err := json.NewDecoder(response.Body).Decode(&m); err != nil || response.StatusCode != 200 {
		o.t.Fatalf("the graph: %s: %v", response.Status, err)
	}
	return m
}

// own lists the TCP edges that have a container of the true edges at an end, by "client -> server".
// Names that containers ask Docker's own resolver for are UDP edges beside them.
func (m drawnMap) own(want []edge) map[string]drawnEdge {
	ends := map[string]bool{}
	for _, e := range want {
		for _, name := range []string{e.client, e.server} {
			ends[name] = strings.HasPrefix(name, unique(""))
		}
	}
	names := map[string]string{}
	for _, node := range m.Nodes {
		names[node.ID] = node.Name
	}
	edges := map[string]drawnEdge{}
	for _, e := range m.Edges {
		if e.Transport == "udp" {
			continue
		}
		client, server := names[e.Client], names[e.Server]
		if ends[client] || ends[server] {
			edges[client+" -> "+server] = e
		}
	}
	return edges
}

// checkDrawn holds a map against the true edges.
func checkDrawn(t *testing.T, m drawnMap, want []edge) map[string]drawnEdge {
	t.Helper()
	var truth []string
	for _, e := range want {
		truth = append(truth, e.String())
	}
	slices.Sort(truth)
	own := m.own(want)
	if drawn := slices.Sorted(maps.Keys(own)); !slices.Equal(drawn, truth) {
		t.Errorf("the map has the edges\n %s\nwant\n %s", strings.Join(drawn, "\n "), strings.Join(truth, "\n "))
	}
	for name, e := range own {
		if !e.Paired {
			t.Errorf("%s is not paired in the map", name)
		}
	}
	return own
}
