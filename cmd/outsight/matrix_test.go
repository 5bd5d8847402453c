package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
)

// TestCapacityInMatrix: what was measured between two containers on request is in their cell, there and back, with how long
// ago that was, and in no other cell.
func TestCapacityInMatrix(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	container := func(id, address string) *model.Container {
		return &model.Container{ID: id, Name: "name-" + id, Runtime: model.Docker, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	}
	host := &model.Container{ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime}
	web, db := container("web", "172.17.0.2"), container("db", "172.17.0.3")
	b := frame.NewBuilder(now)
	at := func(second int) *frame.Frame {
		s := &model.Snapshot{Time: now.Add(time.Duration(second) * time.Second), Host: model.Host{Name: "a", Cores: 1},
			Containers: []model.ContainerSample{{Container: host}, {Container: web}, {Container: db}},
			Capacities: []model.Capacity{
				{From: "web", To: "db", FromName: "name-web", ToName: "name-db", BytesPerSecond: 1.25e8, Measured: now.Add(-time.Minute)},
				{From: "db", To: "web", FromName: "name-db", ToName: "name-web", BytesPerSecond: 2.5e8, Measured: now.Add(-30 * time.Second)},
				{From: "host", To: "db", FromName: "host", ToName: "name-db", BytesPerSecond: 5e8, Measured: now}}}
		for i, c := range []*model.Container{web, host} {
			for _, side := range []model.Role{model.RoleClient, model.RoleServer} {
				s.Edges = append(s.Edges, model.Edge{Instance: uint64(len(s.Edges) + 1), Side: side, Client: model.Peer{Container: c},
					Server: model.Peer{Container: db}, Service: netip.MustParseAddrPort("172.17.0.3:5432"), Paired: true,
					Counters: model.EdgeCounters{SentBytes: uint64(1000 * (second + 1) * (2 - i))}})
			}
		}
		s.Edges = append(s.Edges, model.Edge{Instance: 9, Side: model.RoleClient, Client: model.Peer{Container: db},
			Server: model.Peer{Container: host}, Service: netip.MustParseAddrPort("172.17.0.1:53"),
			Counters: model.EdgeCounters{SentBytes: uint64(second + 1)}})
		return b.Build(s)
	}
	before, after := at(0), at(10)
	w := &frame.Window{From: before.Time, To: after.Time,
		Hosts: []frame.HostSpans{{Host: "a", Spans: []frame.Span{{Before: before, After: after}}}}}
	write := func(by graph.Grouping, output string, numbers ...string) []byte {
		t.Helper()
		var out bytes.Buffer
		o := matrixOptions{windowFlags: windowFlags{by: by, output: output}, numbers: numbers, top: 10}
		if err := o.write(&out, w); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	keys := []string{"capacity_there", "capacity_back", "capacity_age"}
	type cell map[string]float64
	want := map[[2]string]cell{{"name-web", "name-db"}: {keys[0]: 1.25e8, keys[1]: 2.5e8, keys[2]: 70},
		{"host", "name-db"}: {keys[0]: 5e8, keys[2]: 10}, {"name-db", "host"}: {keys[1]: 5e8, keys[2]: 10}}
	for _, numbers := range [][]string{keys, nil} {
		var m struct {
			Rows, Columns []struct{ Name string }
			Cells         []struct {
				Row, Column int
				Numbers     cell
			}
			Total cell
		}
		if err := json.Unmarshal(write("", "json", numbers...), &m); err != nil {
			t.Fatal(err)
		}
		if len(m.Cells) != len(want) || m.Total[keys[0]] != 0 {
			t.Errorf("%d cells, want %d; in all %v", len(m.Cells), len(want), m.Total)
		}
		for _, c := range m.Cells {
			ends := [2]string{m.Rows[c.Row].Name, m.Columns[c.Column].Name}
			for _, key := range keys {
				got, ok := c.Numbers[key]
				if wanted, there := want[ends][key]; ok != there || math.Abs(got-wanted) > 1e-6*wanted {
					t.Errorf("%v: %s is %v (%v), want %v (%v)", ends, key, got, ok, wanted, there)
				}
			}
		}
	}
	lines, err := csv.NewReader(bytes.NewReader(write("", "csv", keys...))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := slices.Index(lines[0], "capacity_age")
	if column < 0 || !slices.ContainsFunc(lines[1:], func(line []string) bool {
		v, err := strconv.ParseFloat(line[column], 64)
		return err == nil && math.Abs(v-70) < 1e-6
	}) {
		t.Errorf("the table is %v", lines)
	}
	if text := write("", "text", "capacity_there"); !bytes.Contains(text, []byte("125")) {
		t.Errorf("the text is\n%s", text)
	}
	// Of hosts and pods there is none.
	for _, by := range []graph.Grouping{graph.ByHost, graph.ByPod} {
		if text := write(by, "json"); bytes.Contains(text, []byte("capacity_")) {
			t.Errorf("by %s there is\n%s", by, text)
		}
	}
}
