package api

import (
	"encoding/csv"
	"fmt"
	"math"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"outsight/internal/graph"
)

// matrixJSON is the answer as a client reads it.
type matrixJSON struct {
	By, Side      string
	Numbers       []matrixNumber
	Rows, Columns []struct {
		ID, Name, Kind string
		Others         int
		Sum            map[string]graph.Seconds
	}
	Cells []struct {
		Row, Column int
		Edges       []string
		EdgeCount   int `json:"edge_count"`
		Numbers     map[string]graph.Seconds
	}
	Total        map[string]graph.Seconds
	Completeness struct{ State string }
}

// The matrix has what the edges of the map have, as JSON and as CSV, in whatever grouping and however few rows.
func TestMatrixIsOfTheGraph(t *testing.T) {
	h, _, _ := filled(t, 40, nil)
	for _, by := range []string{"container", "process", "host"} {
		var g graphAnswer
		get200(t, h, "/api/outsight/graph?from=now-5m&by="+by, &g)
		for _, top := range []int{1, 100} {
			query := fmt.Sprintf("/api/outsight/matrix?from=now-5m&by=%s&top=%d", by, top)
			var m matrixJSON
			get200(t, h, query, &m)
			if m.By != by || m.Side != "best" || m.Completeness.State != "complete" || len(m.Rows) > top+1 {
				t.Errorf("%s: by %s, side %s, %s, %d rows", query, m.By, m.Side, m.Completeness.State, len(m.Rows))
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", query+"&format=csv", nil))
			lines, err := csv.NewReader(w.Body).ReadAll()
			if err != nil || len(lines) != len(m.Cells)+1 {
				t.Fatalf("%s: %d lines of CSV for %d cells: %v", query, len(lines), len(m.Cells), err)
			}
			for _, key := range []string{"bytes", "transactions", "retransmits", "connections_opened"} {
				want := 0.0
				for _, e := range g.Edges {
					best := e.Best()
					if key == "bytes" {
						want += best.Of(graph.RequestBytes) + best.Of(graph.ResponseBytes)
					} else if v, ok := best.Number(key); ok {
						want += v
					}
				}
				cells, rows, columns, table := 0.0, 0.0, 0.0, 0.0
				for _, c := range m.Cells {
					cells += float64(c.Numbers[key])
				}
				for _, r := range m.Rows {
					rows += float64(r.Sum[key])
				}
				for _, c := range m.Columns {
					columns += float64(c.Sum[key])
				}
				for _, line := range lines[1:] {
					for i, name := range lines[0] {
						if name == key && line[i] != "" {
							v, err := strconv.ParseFloat(line[i], 64)
							if err != nil {
								t.Fatal(err)
							}
							table += v
						}
					}
				}
				for _, got := range []float64{cells, rows, columns, table, float64(m.Total[key])} {
					if math.Abs(got-want) > 1e-9*want {
						t.Errorf("%s: %s is %v, of the edges %v", query, key, got, want)
					}
				}
				if want == 0 && key != "retransmits" {
					t.Errorf("%s: the edges have no %s", query, key)
				}
			}
		}
	}
}

// What is asked for is in the answer, and nothing else; queries are there where the series are.
func TestMatrixNumbersAreThoseAskedFor(t *testing.T) {
	k, _, now := fill(t, 40, nil)
	for _, promQL := range []PromQL{PromQLFull, PromQLContainers, PromQLOff} {
		h := New(Options{Log: k.log, Now: func() time.Time { return now }, PromQL: promQL})
		var m matrixJSON
		get200(t, h, "/api/outsight/matrix?numbers=p99,bytes&side=server_side", &m)
		if m.Side != "server_side" || len(m.Numbers) != 2 || m.Numbers[0].Key != "p99" || m.Numbers[0].Additive ||
			!m.Numbers[1].Additive || m.Numbers[1].Unit != "B" || len(m.Total) != 2 {
			t.Errorf("%+v, in all %v", m.Numbers, m.Total)
		}
		if (m.Numbers[0].Query != "") != (promQL == PromQLFull) {
			t.Errorf("with series %q the query is %q", promQL, m.Numbers[0].Query)
		}
	}
	h := New(Options{Log: k.log, Now: func() time.Time { return now }})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/api/outsight/matrix?format=csv&numbers=bytes", nil))
	if head := w.Header(); head.Get("Content-Type") != "text/csv; charset=utf-8; header=present" ||
		head.Get("Content-Disposition") != `attachment; filename="outsight-matrix.csv"` {
		t.Errorf("headers of CSV: %v", head)
	}
}
