package grafana

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"outsight/test/deploy"
)

// shown is what a dashboard shows.
type shown struct {
	Variables map[string][]string
	Panels    []struct {
		Title  string
		Errors []string
		Frames []struct {
			Query  string
			Fields []struct {
				Name   string
				Values []any
			}
		}
	}
}

// testDashboards opens ours in a browser, each as it is, and one of them with values chosen for its variables.
func (g *grafana) testDashboards(t *testing.T) {
	type choice struct {
		Dashboard json.RawMessage     `json:"dashboard"`
		Chosen    map[string][]string `json:"chosen"`
		file      string
		asks      deploy.Dashboard
	}
	var choices []choice
	for _, file := range deploy.Dashboards(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		choices = append(choices, choice{text, map[string][]string{}, filepath.Base(file), deploy.ReadDashboard(t, file)})
	}
	chosen := choices[0]
	if chosen.file != "containers.json" {
		t.Fatalf("the first dashboard is %s", chosen.file)
	}
	chosen.Chosen = map[string][]string{"host": {"node"}, "name": {odd, "web"}}
	choices = append(choices, chosen)
	found := map[string][]string{
		"label_values(tenant)":                              {"bank", "shop"},
		`label_values(orders_total{tenant="shop"}, tenant)`: {"shop"},
		"metrics(orders.*)":                                 {"orders_total"},
		"label_names(orders_total)":                         {"host", "tenant"},
		`{__name__="orders_total",tenant="shop"}`:           {`orders_total{host="node",tenant="shop"}`},
		`query_result(orders_total{tenant="shop"})`:         {fmt.Sprintf(`orders_total{host="node",tenant="shop"} %d %d`, 2*seconds, g.end.UnixMilli())},
	}
	var queries []string
	for query := range found {
		queries = append(queries, query)
	}
	input, err := json.Marshal(map[string]any{"address": g.url, "uid": "open", "begin": g.begin.UnixMilli(),
		"end": g.end.UnixMilli(), "queries": queries, "dashboards": choices})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("node", "browser/ask.mjs")
	var problems bytes.Buffer
	command.Stdin, command.Stderr = bytes.NewReader(input), &problems
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, problems.String())
	}
	var answer struct {
		Explored struct {
			Health    struct{ Status, Message string }
			Exemplars bool
			Metrics   []string
			Metadata  map[string]struct{ Type, Help string }
			Found     map[string][]string
		}
		Dashboards []shown
		Faults     []string
	}
	if err := json.Unmarshal(output, &answer); err != nil {
		t.Fatal(err)
	}
	e := answer.Explored
	if e.Health.Status != "success" || !e.Exemplars || !slices.Contains(e.Metrics, "orders_total") ||
		e.Metadata["container_cpu_usage_seconds_total"].Type != "counter" {
		t.Errorf("the data source: %+v, exemplars %v, %d metrics, of which %d described", e.Health, e.Exemplars,
			len(e.Metrics), len(e.Metadata))
	}
	for query, want := range found {
		if got := e.Found[query]; !slices.Equal(got, want) {
			t.Errorf("%s finds %q, want %q", query, got, want)
		}
	}
	if len(answer.Faults) > 0 {
		t.Errorf("in the browser: %q", answer.Faults)
	}
	if len(answer.Dashboards) != len(choices) {
		t.Fatalf("%d dashboards, want %d", len(answer.Dashboards), len(choices))
	}
	variables := map[string][]string{"host": {"node"}, "name": {odd, "web"}, "client": {"web"}, "server": {"db"}}
	for i, d := range answer.Dashboards {
		if asks := choices[i].asks; len(d.Panels) != len(asks.Panels) || len(d.Variables) != len(asks.Templating.List) {
			t.Fatalf("%s: %d panels and %d variables, want %d and %d", choices[i].file, len(d.Panels), len(d.Variables),
				len(asks.Panels), len(asks.Templating.List))
		}
		for name, values := range d.Variables {
			if !slices.Equal(values, variables[name]) {
				t.Errorf("%s: $%s is one of %q, want %q", choices[i].file, name, values, variables[name])
			}
		}
		for j, p := range d.Panels {
			where, points := choices[i].file+": "+p.Title, 0
			for _, f := range p.Frames {
				for _, field := range f.Fields[min(1, len(f.Fields)):] {
					points += len(field.Values)
				}
			}
			if len(p.Errors) > 0 || points == 0 && !deploy.MayBeQuiet(where) {
				t.Errorf("%s: %d points, errors %q", where, points, p.Errors)
			}
			if queries := len(choices[i].asks.Panels[j].Targets); len(p.Frames) < queries {
				t.Errorf("%s: %d answers to %d queries", where, len(p.Frames), queries)
			}
		}
	}
	last := func(dashboard int, title, line string, want float64) (query string) {
		t.Helper()
		for _, p := range answer.Dashboards[dashboard].Panels {
			if p.Title != title {
				continue
			}
			for _, f := range p.Frames {
				for _, field := range f.Fields {
					if field.Name == line && len(field.Values) > 0 {
						if got, ok := field.Values[len(field.Values)-1].(float64); !ok || math.Abs(got-want) > 1e-9*want {
							t.Errorf("%s, %s: %v, want %v", title, line, field.Values[len(field.Values)-1], want)
						}
						return f.Query
					}
				}
			}
		}
		t.Errorf("there is no %s in %s", line, title)
		return ""
	}
	last(0, "CPU", "web", 0.1)
	last(0, "Context switches", "web voluntary", 1)
	last(1, "Requests", "web → db", 3)
	last(2, "Containers", "containers", 2)
	query := last(len(choices)-1, "CPU", odd, 0.2)
	if want := `{host=~"node",name=~"(` + strings.ReplaceAll(regexp.QuoteMeta(odd), `\`, `\\`); !strings.Contains(query,
		want[:len(want)-2]) || !strings.Contains(query, "[1m0s]") {
		t.Errorf("with chosen values: %s, want %s", query, want)
	}
}
