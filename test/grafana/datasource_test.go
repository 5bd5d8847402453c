package grafana

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/test/issuer"
)

const token = "0123456789abcdef"

// TestDataSource lets the data source ask a server that lets everybody in, and one that wants TLS, a token and, for a
// tenant's series, the tenant's name in a header.
func TestDataSource(t *testing.T) {
	begin := time.Now().Add(-time.Hour).Truncate(time.Minute)
	outsight := build(t, "../../cmd/outsight")
	serve := func(arguments ...string) string {
		return start(t, "", outsight, append([]string{"server", "--data", fill(t, begin), "--listen", "127.0.0.1:0",
			"--otlp", "", "--otlp-http", ""}, arguments...)...)
	}
	authority := issuer.New(t, "grafana")
	cert, key := authority.Leaf("server", x509.ExtKeyUsageServerAuth)
	ca, err := os.ReadFile(authority.CA)
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	everybody := serve()
	guarded := serve("--token-file", tokens, "--tenant-header=optional", "--tls-cert", cert, "--tls-key", key)
	tls := func(uid string, settings map[string]any, secrets map[string]string) source {
		s := source{UID: uid, URL: guarded, Settings: map[string]any{"tlsAuthWithCACert": true},
			Secrets: map[string]string{"tlsCACert": string(ca)}}
		maps.Copy(s.Settings, settings)
		maps.Copy(s.Secrets, secrets)
		return s
	}
	basic := tls("basic", nil, map[string]string{"basicAuthPassword": token})
	basic.BasicAuth, basic.BasicAuthUser = true, "grafana"
	bearer := map[string]any{"httpHeaderName1": "Authorization", "httpHeaderName2": "X-Scope-OrgID"}
	g := open(t, begin,
		source{UID: "open", URL: everybody},
		source{UID: "get", URL: everybody, Settings: map[string]any{"httpMethod": "GET", "timeInterval": "5s"}},
		tls("nobody", nil, nil),
		basic,
		tls("bearer", bearer, map[string]string{"httpHeaderValue1": "Bearer " + token}),
		tls("shop", bearer, map[string]string{"httpHeaderValue1": "Bearer " + token, "httpHeaderValue2": "shop"}),
	)
	run := func(name string, test func(*grafana, *testing.T)) {
		t.Run(name, func(t *testing.T) {
			own := *g
			own.t = t
			test(&own, t)
		})
	}
	run("health", (*grafana).testHealth)
	run("values", (*grafana).testValues)
	run("native histograms", (*grafana).testHistograms)
	run("errors", (*grafana).testErrors)
	run("resources", (*grafana).testResources)
	run("tenant", (*grafana).testTenant)
	run("dashboards", (*grafana).testDashboards)
}

func (g *grafana) testHealth(t *testing.T) {
	for _, uid := range []string{"open", "get", "basic", "bearer", "shop"} {
		if status, message, application := g.health(uid); status != "OK" || application != "Prometheus" {
			t.Errorf("%s: %s %q, %q", uid, status, message, application)
		}
	}
	if status, message, _ := g.health("nobody"); status != "ERROR" || !strings.Contains(message, "401") {
		t.Errorf("without a token: %s %q", status, message)
	}
}

// legend is what a panel shows beside the line of a frame.
func (f *frame) legend() string { return f.Schema.Fields[1].Config.DisplayNameFromDS }

const cpu = `sum by (host, name) (rate(container_cpu_usage_seconds_total{name="web"}[$__rate_interval]))`

func (g *grafana) testValues(t *testing.T) {
	// A container uses a tenth of a CPU, all the time.
	for uid, window := range map[string]string{"open": "[1m0s]", "get": "[20s]", "basic": "[1m0s]", "bearer": "[1m0s]"} {
		frames := g.frames(uid, map[string]any{"expr": cpu, "range": true, "legendFormat": "{{name}} on {{host}}"})
		if len(frames) != 1 || frames[0].legend() != "web on node" ||
			!strings.Contains(frames[0].Schema.Meta.ExecutedQueryString, window) {
			t.Errorf("%s: %+v, want a rate over %s", uid, frames, window)
			continue
		}
		times, rates := frames[0].Data.Values[0], frames[0].Data.Values[1]
		for i, at := range times {
			// Over less than the window, at the beginning, it is less.
			if i < 60/15 {
				continue
			}
			if want := float64(g.end.UnixMilli()) - float64(len(times)-1-i)*15e3; at != want ||
				math.Abs(rates[i].(float64)-0.1) > 1e-9 {
				t.Errorf("%s: %v at %v, want 0.1 at %v", uid, rates[i], at, want)
			}
		}
		if most := seconds/15 + 1; len(times) < most-1 || len(times) > most {
			t.Errorf("%s: %d points, want one every 15 s", uid, len(times))
		}
	}
	f := func(query map[string]any, legend string, want float64) {
		t.Helper()
		query["instant"] = true
		frames := g.frames("open", query)
		if len(frames) != 1 || frames[0].legend() != legend || len(frames[0].Data.Values[1]) != 1 ||
			frames[0].Data.Values[1][0] != want {
			t.Errorf("%v: %+v, want %v of %q", query, frames, want, legend)
		}
	}
	last := float64(seconds + 1)
	f(map[string]any{"expr": "1 + 1"}, "1 + 1", 2)
	f(map[string]any{"expr": `sum(container_cpu_usage_seconds_total{name="web"})`, "legendFormat": "__auto"},
		`sum(container_cpu_usage_seconds_total{name="web"})`, last/10)
	f(map[string]any{"expr": `sum by (name) (container_cpu_usage_seconds_total{name="web"})`, "format": "table"},
		`{name="web"}`, last/10)
	f(map[string]any{"expr": `sum by (le) (increase(container_cpu_usage_seconds_total{name="web"}[$__range]))`,
		"legendFormat": "in $__range"}, "in $__range", seconds/10)

	// There are no exemplars, which is no error.
	if frames := g.frames("open", map[string]any{"expr": cpu, "range": true, "exemplar": true}); len(frames) != 1 {
		t.Errorf("with exemplars: %+v", frames)
	}
	// What PromQL has to say about a query stands over the panel.
	frames := g.frames("open", map[string]any{"expr": "rate(container_memory_working_set_bytes[1m])", "range": true})
	if len(frames) == 0 || len(frames[0].Schema.Meta.Notices) != 1 ||
		!strings.Contains(frames[0].Schema.Meta.Notices[0].Text, "metric might not be a counter") {
		t.Errorf("a rate of a gauge: %+v", frames)
	}
	// Points of a whole range at once, numbers that JSON has not, and nothing at all.
	if frames := g.frames("open", map[string]any{"expr": `container_cpu_usage_seconds_total{name="web"}[1m]`,
		"instant": true}); len(frames) != 1 || len(frames[0].Data.Values[0]) != 60/step {
		t.Errorf("a minute's points: %+v", frames)
	}
	for _, expr := range []string{"0 / 0", "-1 / 0", "1 / 0"} {
		if frames := g.frames("open", map[string]any{"expr": "vector(" + expr + ")",
			"range": true}); len(frames) != 1 || len(frames[0].Data.Values[1]) != seconds/15+1 {
			t.Errorf("%s: %+v", expr, frames)
		}
	}
	if frames := g.frames("open", map[string]any{"expr": "no_such_metric", "range": true}); len(frames) != 1 ||
		len(frames[0].Data.Values) != 0 {
		t.Errorf("nothing: %+v", frames)
	}
}

func (g *grafana) testHistograms(t *testing.T) {
	const latency = `outsight_edge_transaction_duration_seconds{client="web",server="db",side="client"}`
	frames := g.frames("open", map[string]any{"expr": `sum(` + latency + `)`, "range": true, "format": "heatmap"})
	if len(frames) != 1 || frames[0].Schema.Meta.Type != "heatmap-cells" {
		t.Fatalf("%+v", frames)
	}
	columns := map[string][]any{}
	for i, field := range frames[0].Schema.Fields {
		columns[field.Name] = frames[0].Data.Values[i]
	}
	counts := map[any]float64{}
	for i, at := range columns["xMax"] {
		counts[at] += columns["count"][i].(float64)
		// Each bucket ends where the next but one of the 32 of an octave begins.
		if low, high := columns["yMin"][i].(float64),
			columns["yMax"][i].(float64); math.Abs(high/low-math.Pow(2, 1.0/32)) > 1e-9 {
			t.Errorf("a bucket from %v to %v", low, high)
		}
	}
	if len(counts) != seconds/15+1 {
		t.Errorf("histograms at %d times", len(counts))
	}
	for at, count := range counts {
		if want := 3 * (1 + at.(float64)/1e3 - float64(g.begin.Unix())); count != want {
			t.Errorf("%v observations at %v, want %v", count, at, want)
		}
	}
	at := g.frames("open", map[string]any{"expr": latency, "instant": true})
	if len(at) != 1 || at[0].Schema.Meta.Type != "heatmap-cells" || len(at[0].Data.Values[0]) != 2 {
		t.Errorf("an instant's two buckets: %+v", at)
	}
	for expr, want := range map[string]float64{
		"histogram_count(sum(rate(" + latency + "[1m])))":          3,
		"histogram_avg(sum(rate(" + latency + "[1m])))":            2,
		"histogram_fraction(0, 1, sum(rate(" + latency + "[1m])))": 1.0 / 3,
	} {
		frames := g.frames("open", map[string]any{"expr": expr, "instant": true})
		if len(frames) != 1 || math.Abs(frames[0].Data.Values[1][0].(float64)-want) > 1e-9 {
			t.Errorf("%s: %+v, want %v", expr, frames, want)
		}
	}
}

func (g *grafana) testErrors(t *testing.T) {
	for expr, want := range map[string]string{
		"sum(":                                  "parse error",
		"rate(orders_total)":                    "expected type range vector",
		"orders_total * orders_total":           "",
		"orders_total + on (host) orders_total": "many-to-many matching not allowed",
		`label_replace(orders_total, "host", "$1", "tenant", "(")`:                "invalid regular expression",
		strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + " + sum by": "parse error",
	} {
		r := g.query("open", map[string]any{"expr": expr, "range": true})
		if want == "" && r.Error != "" || !strings.Contains(r.Error, want) || (r.Error == "") != (r.Status == http.StatusOK) {
			t.Errorf("%.60s: %d %q, want %q", expr, r.Status, r.Error, want)
		}
	}
	if r := g.query("nobody", map[string]any{"expr": "1", "range": true}); !strings.Contains(r.Error, "401") {
		t.Errorf("without a token: %+v", r)
	}
}

func (g *grafana) testResources(t *testing.T) {
	form := func(pairs ...string) url.Values {
		f := url.Values{"start": {fmt.Sprint(g.begin.Unix())}, "end": {fmt.Sprint(g.end.Unix())}}
		for i := 0; i < len(pairs); i += 2 {
			f.Add(pairs[i], pairs[i+1])
		}
		return f
	}
	list := func(uid, method, path string, form url.Values, want ...string) {
		t.Helper()
		var got []string
		if status := g.resource(uid, method, path, form, &got); status != http.StatusOK || !slices.Equal(got, want) {
			t.Errorf("%s: %s %s %v: %d %q, want %q", uid, method, path, form, status, got, want)
		}
	}
	for _, uid := range []string{"open", "get", "basic", "bearer"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if uid == "get" && method == http.MethodPost {
				continue // the data source's backend refuses it itself
			}
			list(uid, method, "api/v1/labels", form("match[]", `{__name__="orders_total"}`), "__name__", "host", "tenant")
			var series []map[string]string
			if status := g.resource(uid, method, "api/v1/series", form("match[]", "orders_total", "limit", "40000"),
				&series); status != http.StatusOK || len(series) != 2 || series[0]["host"] != "node" {
				t.Errorf("%s: %d %v", uid, status, series)
			}
		}
		list(uid, http.MethodGet, "api/v1/label/tenant/values", form("match[]", "orders_total", "limit", "40000"),
			"bank", "shop")
		list(uid, http.MethodGet, "api/v1/label/__name__/values", form("match[]", `{__name__=~".*orders.*"}`), "orders_total")
		var metadata map[string][]struct{ Type, Unit, Help string }
		status := g.resource(uid, http.MethodGet, "api/v1/metadata", url.Values{"limit": {"40000"}}, &metadata)
		if m := metadata["outsight_edge_transaction_duration_seconds"]; status != http.StatusOK || len(m) != 1 ||
			m[0].Type != "histogram" || m[0].Unit != "seconds" || m[0].Help == "" {
			t.Errorf("%s: %d %v", uid, status, m)
		}
		var about struct{ Version string }
		if status := g.resource(uid, http.MethodGet, "api/v1/status/buildinfo", nil, &about); status != http.StatusOK ||
			about.Version == "" {
			t.Errorf("%s: %d %+v", uid, status, about)
		}
		var rules struct{ Groups []any }
		if status := g.resource(uid, http.MethodGet, "api/v1/rules", nil, &rules); status != http.StatusOK ||
			rules.Groups == nil {
			t.Errorf("%s: %d %+v", uid, status, rules)
		}
		var exemplars []any
		// The times are in milliseconds here, as if they were seconds.
		if status := g.resource(uid, http.MethodGet, "api/v1/query_exemplars",
			url.Values{"query": {"test"}, "start": {fmt.Sprint(g.begin.UnixMilli())},
				"end": {fmt.Sprint(g.end.UnixMilli())}}, &exemplars); status != http.StatusOK || exemplars == nil {
			t.Errorf("%s: %d %v", uid, status, exemplars)
		}
		g.suggestions(t, uid, "", "__name__", "host", "tenant")
		g.suggestions(t, uid, "tenant", "bank", "shop")
	}
	if status := g.resource("nobody", http.MethodGet, "api/v1/labels", nil, nil); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
}

// suggestions are what the editor offers for a metric: names of labels, or values of one.
func (g *grafana) suggestions(t *testing.T, uid, label string, want ...string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"labelName": label,
		"queries": []string{"rate(orders_total[$__rate_interval])"}, "limit": 100,
		"start": g.begin.Format(time.RFC3339), "end": g.end.Format(time.RFC3339)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if status := g.decode(http.MethodPost, "/api/datasources/uid/"+uid+"/resources/suggestions", body,
		&got); status != http.StatusOK || !slices.Equal(got, want) {
		t.Errorf("%s: suggestions for %q: %d %q, want %q", uid, label, status, got, want)
	}
}

func (g *grafana) testTenant(t *testing.T) {
	for uid, want := range map[string]map[string]float64{"bearer": {"bank": seconds, "shop": 2 * seconds},
		"shop": {"shop": 2 * seconds}} {
		got := map[string]float64{}
		for _, f := range g.frames(uid, map[string]any{"expr": "orders_total", "instant": true,
			"legendFormat": "{{tenant}}"}) {
			got[f.legend()] = f.Data.Values[1][0].(float64)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", uid, got, want)
		}
		var tenants []string
		if status := g.resource(uid, http.MethodGet, "api/v1/label/tenant/values", nil,
			&tenants); status != http.StatusOK || !slices.Equal(tenants, slices.Sorted(maps.Keys(want))) {
			t.Errorf("%s: %d %q", uid, status, tenants)
		}
	}
}
