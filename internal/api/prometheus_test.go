package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	promapi "github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	prommodel "github.com/prometheus/common/model"

	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

var promStart = time.Unix(1_700_000_000, 0)

func promLabels(id string) []model.Label {
	return []model.Label{{Name: "host", Value: "h"}, {Name: "id", Value: id}}
}

// promStore holds eleven seconds of a counter for each of two ids, of a histogram, and of
// numbers that JSON has no form for.
func promStore(t testing.TB) *store.Store {
	t.Helper()
	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range 11 {
		at, n := promStart.Add(time.Duration(i)*time.Second), uint64(i)
		h := &model.Histogram{Count: 6 * n, SumNS: 9e9 * n, ZeroCount: n, Offset: 0, Buckets: []uint64{2 * n, 0, 3 * n}}
		err := st.Append(context.Background(), []model.Series{
			{Name: "c_total", Labels: promLabels("a"), Kind: model.Counter, Time: at, Value: float64(3 * n)},
			{Name: "c_total", Labels: promLabels("b<\"\n"), Kind: model.Counter, Time: at, Value: 0.1 * float64(n)},
			{Name: "h_seconds", Labels: promLabels("a"), Kind: model.HistogramSeries, Time: at, Histogram: h},
			{Name: "odd", Labels: promLabels("nan"), Kind: model.Gauge, Time: at, Value: math.NaN()},
			{Name: "odd", Labels: promLabels("inf"), Kind: model.Gauge, Time: at, Value: math.Inf(-1)},
			{Name: "odd", Labels: promLabels("tiny"), Kind: model.Gauge, Time: at, Value: 1e-7},
			{Name: "odd", Labels: promLabels("huge"), Kind: model.Gauge, Time: at, Value: 1e21},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return st
}

func promGet(t testing.TB, h http.Handler, path string, form url.Values) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/"+path+"?"+form.Encode(), nil))
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("%s: content type %q", path, got)
	}
	return w.Code, w.Body.String()
}

func sameJSON(t testing.TB, what, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Errorf("%s: %v in %s", what, err, got)
		return
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func TestPrometheusAnswers(t *testing.T) {
	h := Prometheus(promStore(t))
	f := func(path, form, data string) {
		t.Helper()
		values, err := url.ParseQuery(form)
		if err != nil {
			t.Fatal(err)
		}
		code, body := promGet(t, h, path, values)
		if code != http.StatusOK {
			t.Errorf("%s?%s: got %d", path, form, code)
		}
		sameJSON(t, path+"?"+form, body, `{"status":"success","data":`+data+`}`)
		if len(values["match[]"]) > 1 || path == "label/id/values" || path == "metadata" {
			return
		}
		// The same as a form.
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/api/v1/"+path, strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		h.ServeHTTP(w, r)
		sameJSON(t, "POST "+path, w.Body.String(), body)
	}
	f("query", "query=c_total&time=1700000010", `{"resultType":"vector","result":[
		{"metric":{"__name__":"c_total","host":"h","id":"a"},"value":[1700000010,"30"]},
		{"metric":{"__name__":"c_total","host":"h","id":"b<\"\n"},"value":[1700000010,"1"]}]}`)
	f("query", "query=c_total{id='a'}&time=2023-11-14T22:13:25.5Z", `{"resultType":"vector","result":[
		{"metric":{"__name__":"c_total","host":"h","id":"a"},"value":[1700000005.5,"15"]}]}`)
	f("query", "query=h_seconds&time=1700000001.004", `{"resultType":"vector","result":[
		{"metric":{"__name__":"h_seconds","host":"h","id":"a"},"histogram":[1700000001.004,{"count":"6","sum":"9",
		"buckets":[[3,"-0.000001024","0.000001024","1"],[0,"0.9785720620876999","1","2"],[0,"1.0218971486541166","1.0442737824274138","3"]]}]}]}`)
	f("query", "query=odd&time=1700000010", `{"resultType":"vector","result":[
		{"metric":{"__name__":"odd","host":"h","id":"nan"},"value":[1700000010,"NaN"]},
		{"metric":{"__name__":"odd","host":"h","id":"inf"},"value":[1700000010,"-Inf"]},
		{"metric":{"__name__":"odd","host":"h","id":"tiny"},"value":[1700000010,"1e-07"]},
		{"metric":{"__name__":"odd","host":"h","id":"huge"},"value":[1700000010,"1e+21"]}]}`)
	f("query", "query=vector(1)%2B1&time=5", `{"resultType":"vector","result":[{"metric":{},"value":[5,"2"]}]}`)
	f("query", "query=1.5&time=-1.25", `{"resultType":"scalar","result":[-1.25,"1.5"]}`)
	f("query", `query="x"&time=1`, `{"resultType":"string","result":[1,"x"]}`)
	f("query", "query=none&time=1", `{"resultType":"vector","result":[]}`)
	f("query", "query=c_total{id='a'}[2s]&time=1700000010", `{"resultType":"matrix","result":[
		{"metric":{"__name__":"c_total","host":"h","id":"a"},"values":[[1700000009,"27"],[1700000010,"30"]]}]}`)
	f("query_range", "query=c_total{id='a'}&start=1700000000&end=1700000010&step=5s", `{"resultType":"matrix","result":[
		{"metric":{"__name__":"c_total","host":"h","id":"a"},"values":[[1700000000,"0"],[1700000005,"15"],[1700000010,"30"]]}]}`)
	f("query_range", "query=sum(h_seconds)&start=1700000001&end=1700000001.5&step=0.5&timeout=5s&stats=all", `{"resultType":"matrix","result":[{"metric":{},"histograms":[
		[1700000001,{"count":"6","sum":"9","buckets":[[3,"-0.000001024","0.000001024","1"],[0,"0.9785720620876999","1","2"],[0,"1.0218971486541166","1.0442737824274138","3"]]}],
		[1700000001.5,{"count":"6","sum":"9","buckets":[[3,"-0.000001024","0.000001024","1"],[0,"0.9785720620876999","1","2"],[0,"1.0218971486541166","1.0442737824274138","3"]]}]]}]}`)
	f("query", "query=c_total{id='a'}&time=1700000050&lookback_delta=30s", `{"resultType":"vector","result":[]}`)
	f("series", "match[]=h_seconds&match[]=c_total{id='a'}",
		`[{"__name__":"c_total","host":"h","id":"a"},{"__name__":"h_seconds","host":"h","id":"a"}]`)
	f("series", "match[]=h_seconds&start=1600000000&end=1600000001", `[]`)
	f("series", "match[]=h_seconds&start="+url.QueryEscape(promMinTime)+"&end="+url.QueryEscape(promMaxTime),
		`[{"__name__":"h_seconds","host":"h","id":"a"}]`)
	f("labels", "", `["__name__","host","id"]`)
	f("labels", "match[]=none", `[]`)
	f("label/id/values", "match[]=odd", `["huge","inf","nan","tiny"]`)
	f("format_query", "query=sum(c_total)by(id)", `"sum by (id) (c_total)"`)
	f("query_exemplars", "query=c_total&start=1&end=2", `[]`)
	f("metadata", "metric="+otlp.ContainerMemoryUsage,
		`{"container_memory_usage_bytes":[{"type":"gauge","help":"Memory in use, page cache included","unit":"bytes"}]}`)
	f("metadata", "metric=none", `{}`)
}

func TestPrometheusMetadata(t *testing.T) {
	h := Prometheus(promStore(t))
	read := func(form string) map[string][]promMetric {
		t.Helper()
		values, _ := url.ParseQuery(form)
		_, body := promGet(t, h, "metadata", values)
		var answer struct{ Data map[string][]promMetric }
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		return answer.Data
	}
	if got := read(""); len(got) != len(otlp.Metrics()) || got[otlp.EdgeTransactionDuration][0].Type != "histogram" ||
		got[otlp.ContainerCPUUsage][0].Type != "counter" {
		t.Errorf("got %v", got)
	}
	if got := read("limit=3&limit_per_metric=1"); len(got) != 3 {
		t.Errorf("got %d, want 3", len(got))
	}
}

func TestPrometheusErrors(t *testing.T) {
	st := promStore(t)
	h := Prometheus(st)
	f := func(path, form string, status int, kind string) {
		t.Helper()
		values, err := url.ParseQuery(form)
		if err != nil {
			t.Fatal(err)
		}
		code, body := promGet(t, h, path, values)
		var answer promEnvelope
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		if code != status || answer.Status != "error" || answer.ErrorType != kind || answer.Error == "" {
			t.Errorf("%s?%.60s: got %d %s, want %d %s", path, form, code, body, status, kind)
		}
	}
	f("query", "", 400, "bad_data")
	f("query", "query=sum(", 400, "bad_data")
	f("query", "query=1&time=yesterday", 400, "bad_data")
	f("query", "query=1&time=NaN", 400, "bad_data")
	f("query", "query=1&time=1e300", 400, "bad_data")
	f("query", "query=1&time=1e15", 400, "bad_data")
	f("query", "query=1&timeout=-1", 400, "bad_data")
	f("query", "query=1&limit=-1", 400, "bad_data")
	f("query", "query="+strings.Repeat("1%2B", 30000)+"1", 400, "bad_data")
	f("query", "query=1&time=1&timeout=0.000000001", 503, "timeout")
	f("query", "query=c_total*on(host)c_total&time=1700000010", 422, "execution")
	f("query_range", "query=1&start=1&end=2", 400, "bad_data")
	f("query_range", "query=1&start=2&end=1&step=1", 400, "bad_data")
	f("query_range", "query=1&start=1&step=1", 400, "bad_data")
	f("query_range", "query=1&start=0&end=11001&step=1", 400, "bad_data")
	f("query_range", "query=1&start=0&end=1&step=0", 400, "bad_data")
	f("query_range", "query=1&start=0&end=1&step=1e300", 400, "bad_data")
	f("query_range", "query=c_total[5m]&start=0&end=1&step=1", 400, "bad_data")
	f("series", "", 400, "bad_data")
	f("series", "match[]={}", 400, "bad_data")
	f("series", "match[]=a"+strings.Repeat("&match[]=a", maxMatchers), 400, "bad_data")
	f("labels", "limit=x", 400, "bad_data")
	f("labels", "start=x", 400, "bad_data")
	f("metadata", "limit=x", 400, "bad_data")
	f("format_query", "query=(", 400, "bad_data")
	f("nothing", "", 404, "not_found")
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	f("query", "query=1", 503, "unavailable")
	f("labels", "", 503, "unavailable")

	for err, want := range map[error]int{store.ErrBusy: 503, store.ErrStorage: 500, store.ErrCanceled: 499,
		errors.New("else"): 500} {
		if code, _ := promErrorKind(fmt.Errorf("wrapped: %w", err)); code != want {
			t.Errorf("%v: got %d, want %d", err, code, want)
		}
	}
}

func TestPrometheusLimitWarns(t *testing.T) {
	h := Prometheus(promStore(t))
	f := func(path string, form url.Values) {
		t.Helper()
		_, body := promGet(t, h, path, form)
		var answer struct {
			Warnings []string
			Data     json.RawMessage
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Warnings) != 1 ||
			strings.Count(body, "huge")+strings.Count(body, "inf")+strings.Count(body, "nan") != 1 {
			t.Errorf("%s: got %s, %v", path, body, err)
		}
	}
	f("query", url.Values{"query": {"odd"}, "time": {"1700000010"}, "limit": {"1"}})
	f("series", url.Values{"match[]": {"odd"}, "limit": {"1"}})
	f("label/id/values", url.Values{"match[]": {"odd"}, "limit": {"1"}})
}

func TestPrometheusRequests(t *testing.T) {
	h := Prometheus(promStore(t))
	f := func(r *http.Request, want int) *httptest.ResponseRecorder {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s %s: got %d %s, want %d", r.Method, r.URL.Path, w.Code, w.Body, want)
		}
		return w
	}
	f(httptest.NewRequest(http.MethodDelete, "/api/v1/series", nil), http.StatusMethodNotAllowed)
	f(httptest.NewRequest(http.MethodPost, "/api/v1/metadata", nil), http.StatusMethodNotAllowed)
	large := httptest.NewRequest(http.MethodPost, "/api/v1/query",
		strings.NewReader("query="+strings.Repeat("a", maxPrometheusForm)))
	large.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	f(large, http.StatusRequestEntityTooLarge)
	f(httptest.NewRequest(http.MethodGet, "/api/v1/query?query=%zz", nil), http.StatusBadRequest)

	f(httptest.NewRequest(http.MethodGet, "/api/v1/query?query=c_total[1h]&time=1700000010", nil), http.StatusOK)
	r := httptest.NewRequest(http.MethodGet, "/api/v1/metadata", nil)
	plain := f(r, http.StatusOK).Body.Bytes()
	r.Header.Set("Accept-Encoding", "gzip")
	w := f(r, http.StatusOK)
	z, err := gzip.NewReader(w.Body)
	if err != nil || w.Header().Get("Content-Encoding") != "gzip" {
		t.Fatal(err)
	}
	if unpacked, err := io.ReadAll(z); err != nil || !bytes.Equal(unpacked, plain) {
		t.Errorf("the packed answer differs: %v", err)
	}
}

func TestPrometheusDurations(t *testing.T) {
	for _, v := range []string{"1", "0", "0.5", "1e3", "5m", "1h30m", "1y2w3d4h5m6s7ms", "90s", "", "m", "5", "1s1h",
		"1.5h", "-1", "99999999999y", "1e300", "NaN", " 1s", "0ms"} {
		got, ok := parsePromDuration(v)
		want, err := prommodel.ParseDuration(v)
		switch {
		case err == nil && (!ok || got != time.Duration(want)):
			t.Errorf("%q: got %v %t, want %v", v, got, ok, time.Duration(want))
		case err != nil && ok && !isNumber(v):
			t.Errorf("%q: got %v, want an error", v, got)
		}
	}
}

func isNumber(v string) bool {
	_, err := json.Number(v).Float64()
	return err == nil
}

// The official client understands every answer.
func TestPrometheusGoClient(t *testing.T) {
	server := httptest.NewServer(Prometheus(promStore(t)))
	defer server.Close()
	client, err := promapi.NewClient(promapi.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c, ctx := promv1.NewAPI(client), context.Background()
	end := promStart.Add(10 * time.Second)

	v, _, err := c.Query(ctx, `h_seconds`, end)
	if vector, ok := v.(prommodel.Vector); err != nil || !ok || vector[0].Histogram.Count != 60 ||
		len(vector[0].Histogram.Buckets) != 3 {
		t.Errorf("query: got %v, %v", v, err)
	}
	v, _, err = c.QueryRange(ctx, `c_total{id="a"}`, promv1.Range{Start: promStart, End: end, Step: time.Second})
	if matrix, ok := v.(prommodel.Matrix); err != nil || !ok || len(matrix[0].Values) != 11 ||
		matrix[0].Values[10].Value != 30 {
		t.Errorf("range: got %v, %v", v, err)
	}
	series, _, err := c.Series(ctx, []string{"c_total", "h_seconds"}, promStart, end, promv1.WithLimit(100))
	if err != nil || len(series) != 3 {
		t.Errorf("series: got %v, %v", series, err)
	}
	names, _, err := c.LabelNames(ctx, nil, time.Time{}, time.Time{})
	if err != nil || len(names) != 3 {
		t.Errorf("labels: got %v, %v", names, err)
	}
	values, _, err := c.LabelValues(ctx, "id", []string{"odd"}, promStart, end)
	if err != nil || len(values) != 4 {
		t.Errorf("values: got %v, %v", values, err)
	}
	metadata, err := c.Metadata(ctx, "", "")
	if err != nil || len(metadata) != len(otlp.Metrics()) {
		t.Errorf("metadata: got %v, %v", metadata, err)
	}
	build, err := c.Buildinfo(ctx)
	if err != nil || build.Version != store.Version() {
		t.Errorf("buildinfo: got %v, %v", build, err)
	}
	if exemplars, err := c.QueryExemplars(ctx, "c_total", promStart, end); err != nil || len(exemplars) != 0 {
		t.Errorf("exemplars: got %v, %v", exemplars, err)
	}
	if rules, err := c.Rules(ctx); err != nil || len(rules.Groups) != 0 {
		t.Errorf("rules: got %v, %v", rules, err)
	}
	if alerts, err := c.Alerts(ctx); err != nil || len(alerts.Alerts) != 0 {
		t.Errorf("alerts: got %v, %v", alerts, err)
	}
	var failed *promv1.Error
	if _, _, err := c.Query(ctx, "sum(", end); !errors.As(err, &failed) || failed.Type != promv1.ErrBadData {
		t.Errorf("bad query: got %v", err)
	}
}

func TestPrometheusPromtool(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Fatal("promtool is not installed (Debian: prometheus)")
	}
	server := httptest.NewServer(Prometheus(promStore(t)))
	defer server.Close()
	f := func(want string, args ...string) {
		t.Helper()
		out, err := exec.Command("promtool", append([]string{"query"}, args...)...).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("promtool query %q: got %q, %v, want %q", args, out, err, want)
		}
	}
	f("c_total{host=\"h\", id=\"a\"} => 30 @[1700000010]\n",
		"instant", server.URL, `c_total{id="a"}`, "--time=1700000010")
	f("{} =>\n0 @[1700000000]\n15 @[1700000005]\n30 @[1700000010]\n",
		"range", server.URL, `sum(c_total{id="a"})`, "--start=1700000000", "--end=1700000010", "--step=5s")
	f("{__name__=\"h_seconds\", host=\"h\", id=\"a\"}\n", "series", server.URL, "--match=h_seconds",
		"--start=1700000000", "--end=1700000010")
	f("huge\ninf\nnan\ntiny\n", "labels", server.URL, "id", "--match=odd", "--start=1700000000", "--end=1700000010")
}

func FuzzPrometheusQuery(f *testing.F) {
	st := promStore(f)
	h := Prometheus(st)
	f.Add("sum by (id) (rate(c_total[5s]))", "1700000010", "1700000000", "1700000010", "1s", "h_seconds", "10")
	f.Add("histogram_quantile(0.99, h_seconds)", "2023-11-14T22:13:25.5Z", "-1", "1e9", "0.5", "{id=~'.*a'}", "")
	f.Add("c_total[5s:1s] @ end() offset -1s", promMinTime, promMaxTime, "", "1y", "{", "-1")
	f.Add("((((((((((((((((1))))))))))))))))", "NaN", "Inf", "0x1p-2", "1h1h", "{__name__='c_total'}",
		"99999999999999999999")
	f.Fuzz(func(t *testing.T, query, at, start, end, step, match, limit string) {
		form := url.Values{
			"query": {query}, "time": {at}, "start": {start}, "end": {end}, "step": {step},
			"match[]": {match}, "limit": {limit}, "timeout": {"1s"}, "lookback_delta": {step},
		}
		for _, path := range []string{"query", "query_range", "format_query", "series", "labels", "label/id/values",
			"metadata"} {
			code, body := promGet(t, h, path, form)
			var answer struct {
				Status, ErrorType string
				Data              json.RawMessage
			}
			if err := json.Unmarshal([]byte(body), &answer); err != nil {
				t.Fatalf("%s: %v in %q", path, err, body)
			}
			switch {
			case code == http.StatusOK && answer.Status == "success" && len(answer.Data) > 0:
			case code >= 400 && code < 500 && answer.Status == "error" && answer.ErrorType != "":
			case code == http.StatusServiceUnavailable && answer.ErrorType == "timeout":
			default:
				t.Fatalf("%s: %d %s", path, code, body)
			}
		}
	})
}
