package graph

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

func matrixOf(t *testing.T, w *frame.Window, o MatrixOptions) *Matrix {
	t.Helper()
	x, err := MatrixFromFrames(w, o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func windowOfPair(prev, cur *model.Snapshot) *frame.Window {
	f := framesOf(prev, cur)
	return windowBetween(f[0], f[1])
}

func TestMatrixOfTheShop(t *testing.T) {
	w := windowOfPair(shop(start, 1), shop(start.Add(2*time.Second), 3))
	x := matrixOf(t, w, MatrixOptions{Numbers: []string{"bytes", "transactions", "p50", "p99", "connections_opened"}})
	b, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "shop-matrix.json", string(b)+"\n")
	var csv bytes.Buffer
	if err := x.WriteCSV(&csv); err != nil {
		t.Fatal(err)
	}
	golden(t, "shop-matrix.csv", csv.String())
	x = matrixOf(t, w, MatrixOptions{Rows: 2, Columns: 2})
	golden(t, "shop-matrix.txt", x.Text("bytes_per_second")+x.Text("p99")+x.Text("transactions"))
	if none := matrixOf(t, &frame.Window{}, MatrixOptions{}).Text("bytes"); none != "No traffic was seen.\n" {
		t.Errorf("of nothing: %q", none)
	}
}

// A hostile name is a text in a table and in a spreadsheet: neither an escape sequence, nor a line, nor a formula.
func TestMatrixOfHostileNames(t *testing.T) {
	evil, formula := container("f6", "\x1b[31m\",\nx\u202e<script>"), container("g7", "=cmd|' /C calc'!A0")
	s := &model.Snapshot{Time: start, Host: model.Host{Name: "vm"}, Edges: []model.Edge{
		edge(model.RoleClient, inside(evil), inside(formula), "10.0.0.1:80", model.EdgeCounters{SentBytes: 1})}}
	x := matrixOf(t, windowOfPair(&model.Snapshot{Time: start, Host: s.Host}, s), MatrixOptions{})
	var b bytes.Buffer
	if err := x.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(lines) != 2 || lines[1][0] != "�[31m\",�x�<script>" || lines[1][1] != "'=cmd|' /C calc'!A0" {
		t.Errorf("%v: %q", err, lines)
	}
	if text := x.Text("bytes"); strings.ContainsAny(text, "\x1b\u202e") || strings.Count(text, "\n") != 3 {
		t.Errorf("%q", text)
	}
}

// ofEdge is the number of one edge.
func (n *MatrixNumber) ofEdge(e *Edge) (float64, bool) {
	switch {
	case n.Probe != nil:
		return 0, false
	case n.ends != nil:
		return n.ends(e)
	}
	v, ok := n.of(e.Best())
	return v, ok && !(n.TCP && e.Transport == "udp" && v == 0)
}

// sumOf adds a number of all edges of a map up.
func sumOf(g *Graph, side Of, n *MatrixNumber) (sum float64) {
	for _, e := range g.Edges {
		s := map[Of]*Side{OfBest: e.Best(), OfClient: e.ClientSide, OfServer: e.ServerSide}[side]
		if s == nil {
			continue
		}
		if v, ok := n.of(s); ok {
			sum += v
		}
	}
	return sum
}

// TestMatrixAddsUp: of each number that adds up, the sums of all cells, of all rows and of all columns, and the total
// are the sum of all edges of the map, whatever is put together.
func TestMatrixAddsUp(t *testing.T) {
	for seed := range uint64(20) {
		w := windowOfPair(randomPair(rand.New(rand.NewPCG(seed, 1))))
		for _, by := range groupings {
			g := FromFrames(w, Options{By: by})
			for _, side := range []Of{OfBest, OfClient, OfServer} {
				for _, most := range []int{0, 1, 3} {
					checkSums(t, fmt.Sprintf("seed %d by %s, %s, %d rows", seed, by, side, most), g,
						matrixOf(t, w, MatrixOptions{By: by, Side: side, Rows: most, Columns: most + 1}), side)
				}
			}
		}
	}
}

func checkSums(t *testing.T, what string, g *Graph, x *Matrix, side Of) {
	t.Helper()
	edges := 0
	for _, c := range x.Cells {
		edges += c.EdgeCount
	}
	if edges != len(g.Edges) {
		t.Errorf("%s: cells of %d edges, the map has %d", what, edges, len(g.Edges))
	}
	for i := range MatrixNumbers {
		n := &MatrixNumbers[i]
		if !n.Additive {
			continue
		}
		var cells, rows, columns float64
		for _, c := range x.Cells {
			v, _ := c.Numbers.Number(n.Key)
			cells += v
		}
		for _, r := range x.Rows {
			v, _ := r.Sum.Number(n.Key)
			rows += v
		}
		for _, c := range x.Columns {
			v, _ := c.Sum.Number(n.Key)
			columns += v
		}
		total, _ := x.Total.Number(n.Key)
		want := sumOf(g, side, n)
		for name, got := range map[string]float64{"cells": cells, "rows": rows, "columns": columns, "total": total} {
			// Counts are exact; what is divided, like a rate, to the last digits of a number.
			if got != want && (n.Unit == "" || n.Unit == "B" || math.Abs(got-want) > 1e-12*math.Abs(want)) {
				t.Errorf("%s: %s of %s are %v, of the edges %v", what, n.Key, name, got, want)
			}
		}
	}
}

// TestMatrixCellIsItsEdge: where a cell is of one edge, each of its numbers is the edge's; where it is of several, its
// percentiles are of all their transactions.
func TestMatrixCellIsItsEdge(t *testing.T) {
	single, several := 0, 0
	for seed := range uint64(20) {
		w := windowOfPair(randomPair(rand.New(rand.NewPCG(seed, 1))))
		g := FromFrames(w, Options{})
		byID := map[string]*Edge{}
		for _, e := range g.Edges {
			byID[e.ID] = e
		}
		for _, c := range matrixOf(t, w, MatrixOptions{Rows: 2, Columns: 2}).Cells {
			if c.EdgeCount > MaxCellEdges {
				continue
			}
			var merged model.FloatHistogram
			for _, id := range c.Edges {
				merged.Merge(&byID[id].Best().latency)
			}
			for i := range MatrixNumbers {
				n := &MatrixNumbers[i]
				got, known := c.Numbers.Number(n.Key)
				want, there := n.ofEdge(byID[c.Edges[0]])
				if c.EdgeCount == 1 && (known != there || known && got != want) {
					t.Errorf("seed %d: %s of %s is %v, of the edge %v", seed, n.Key, c.Edges, got, want)
				}
			}
			if got, ok := c.Numbers.Number("p99"); c.EdgeCount > 1 && merged.Count > 0 && (!ok || got != merged.Quantile(0.99)) {
				t.Errorf("seed %d: the p99 of %s is %v, want %v", seed, c.Edges, got, merged.Quantile(0.99))
			}
			if c.EdgeCount == 1 {
				single++
			} else {
				several++
			}
		}
	}
	if single == 0 || several == 0 {
		t.Errorf("%d cells of one edge, %d of several", single, several)
	}
}

// TestMatrixOfHosts: what containers of two hosts said to one another is a cell of the two hosts, counted once though
// both hosts counted it.
func TestMatrixOfHosts(t *testing.T) {
	at := netip.MustParseAddrPort("10.0.0.2:5432")
	w := &frame.Window{From: start, To: start.Add(10 * time.Second)}
	for i, side := range []model.Role{model.RoleClient, model.RoleServer} {
		c := container(fmt.Sprint("c", i), side.String())
		e := model.Edge{Instance: 1, Side: side, Client: inside(c), Server: model.Peer{Address: at.Addr()}, Service: at,
			Counters: model.EdgeCounters{SentBytes: 500, ReceivedBytes: 20, RTT: latency(1, time.Millisecond),
				Latency: latency(3, time.Millisecond)}}
		c.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		if side == model.RoleServer {
			c.Addresses, c.Listeners = []netip.Addr{at.Addr()}, []netip.AddrPort{at}
			e.Client, e.Server = outside("10.0.0.1"), inside(c)
			e.Counters.SentBytes, e.Counters.ReceivedBytes = 20, 500
		}
		host := model.Host{Name: fmt.Sprint("host-", i)}
		f := framesOf(&model.Snapshot{Time: w.From, Host: host}, &model.Snapshot{Time: w.To, Host: host,
			Containers: []model.ContainerSample{{Container: c}}, Edges: []model.Edge{e}})
		w.Hosts = append(w.Hosts, frame.HostSpans{Host: host.Name, Spans: []frame.Span{{Before: f[0], After: f[1]}}})
	}
	x := matrixOf(t, w, MatrixOptions{By: ByHost})
	if len(x.Rows) != 1 || len(x.Columns) != 1 || len(x.Cells) != 1 {
		t.Fatalf("%d rows, %d columns, %d cells, want one of each", len(x.Rows), len(x.Columns), len(x.Cells))
	}
	c := x.Cells[0]
	requests, _ := c.Numbers.Number("request_bytes")
	replies, _ := c.Numbers.Number("response_bytes")
	transactions, _ := c.Numbers.Number("transactions")
	rtt, _ := x.Total.Number("rtt_p50")
	if x.Rows[0].Name != "host-0" || x.Columns[0].Name != "host-1" || x.Rows[0].Host != "host-0" || requests != 500 ||
		replies != 20 || transactions != 3 || math.Abs(rtt/1e-3-1) > model.RelativeError {
		t.Errorf("%s → %s: %v and %v bytes, %v transactions, round trip %v", x.Rows[0].Name, x.Columns[0].Name, requests,
			replies, transactions, rtt)
	}
}

// TestMatrixNumbers: each number of edges of the registry is one of the matrix, once.
func TestMatrixNumbers(t *testing.T) {
	keys := map[string]bool{}
	for _, n := range MatrixNumbers {
		if keys[n.Key] {
			t.Errorf("%s is there twice", n.Key)
		}
		keys[n.Key] = true
	}
	for _, n := range slices.Concat(model.Numbers(model.EdgeRows, model.SideGroups), model.EndsNumbers(), model.ProbeNumbers) {
		if !keys[n.Key] {
			t.Errorf("%s is not there", n.Key)
		}
	}
	for by, want := range map[Grouping][]string{ByHost: {"probe_jitter"}, ByContainer: {"probe_jitter", "capacity_age"},
		"": {"probe_jitter", "capacity_age"}, ByPod: nil} {
		all, err := FindMatrixNumbers(nil, by)
		for _, key := range []string{"probe_jitter", "capacity_age"} {
			got := slices.ContainsFunc(all, func(n *MatrixNumber) bool { return n.Key == key })
			if err != nil || got != slices.Contains(want, key) {
				t.Errorf("by %q there is %s: %v (%v)", by, key, got, err)
			}
		}
	}
	for key, want := range map[string]bool{"bytes": true, "transactions_per_second": true, "retransmits": true,
		"failures": true, "in_flight": true, "connections_open": true, "p99": false, "mean": false, "rtt_min": false,
		"jitter": false, "completeness": false} {
		if n, err := FindMatrixNumbers([]string{key}, ""); err != nil || n[0].Additive != want {
			t.Errorf("%s adds up: %v, want %v (%v)", key, !want, want, err)
		}
	}
	if _, err := MatrixFromFrames(&frame.Window{}, MatrixOptions{Numbers: []string{"nothing"}}); err == nil {
		t.Error("a number that nobody knows is accepted")
	}
	for name, want := range map[string]Of{"": OfBest, "best": OfBest, "client_side": OfClient, "server_side": OfServer,
		"usage": ""} {
		if got, err := ParseMatrixSide(name); got != want || (err != nil) != (want == "") {
			t.Errorf("side %q is %q, %v", name, got, err)
		}
	}
}

func BenchmarkMatrix100k(b *testing.B) {
	w := fleetWindow(500, 10, 200)
	for b.Loop() {
		if _, err := MatrixFromFrames(w, MatrixOptions{Rows: 50, Columns: 50}); err != nil {
			b.Fatal(err)
		}
	}
}
