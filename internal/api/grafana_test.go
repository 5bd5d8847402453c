package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"outsight/internal/access"
	"outsight/internal/store"
)

// What Grafana's Prometheus data source sends: its test of the connection, its editor, a panel, a
// dashboard's variables, and alerting's lists. The paths and parameters are those of the data
// source's documentation and of the API that it names.
func TestGrafanaAsks(t *testing.T) {
	a, err := access.NewAuthenticator(map[string][]string{"": {tokenA}})
	if err != nil {
		t.Fatal(err)
	}
	st := promStore(t)
	h := New(Options{Prometheus: Prometheus(st), Auth: a})
	f := func(method, path, form, want string) {
		t.Helper()
		var r *http.Request
		if method == http.MethodPost {
			r = httptest.NewRequest(method, "/api/v1/"+path, strings.NewReader(form))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		} else {
			r = httptest.NewRequest(method, "/api/v1/"+path+"?"+form, nil)
		}
		r.Header.Set("Accept-Encoding", "identity")
		r.Header.Set("User-Agent", "Grafana/11.2.0")
		r.Header.Set("X-Grafana-Org-Id", "1")
		r.SetBasicAuth("outsight", tokenA)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var answer struct {
			Status string
			Data   json.RawMessage
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK ||
			answer.Status != "success" || !strings.Contains(string(answer.Data), want) {
			t.Errorf("%s %s %s: %d %.300s, want %s", method, path, form, w.Code, w.Body, want)
		}
	}
	times := "start=1700000000&end=1700000010"
	f("POST", "query", "query=1%2B1&time=1700000010.123", `"2"`)
	f("GET", "status/buildinfo", "", `"version"`)
	f("POST", "query_range", url.Values{"query": {`sum by (id) (rate(c_total{host=~".*"}[15s]))`},
		"start": {"1700000000"}, "end": {"1700000010"}, "step": {"5"}}.Encode(), `"matrix"`)
	f("POST", "query_range", "query=c_total&start=2023-11-14T22:13:20Z&end=2023-11-14T22:13:30Z&step=1.000", `"values"`)
	f("POST", "query", "query=c_total%5B5s%5D&time=1700000010", `"matrix"`)
	f("GET", "label/__name__/values", times, `"c_total"`)
	f("GET", "label/__name__/values", times+"&match%5B%5D=%7Bid%3D%22nan%22%7D", `["odd"]`)
	f("GET", "label/id/values", times+"&match%5B%5D=c_total&limit=40000", `"a"`)
	f("POST", "labels", times+"&match%5B%5D=%7B__name__%3D%22c_total%22%7D", `"id"`)
	f("GET", "labels", times, `"host"`)
	f("POST", "series", times+"&match%5B%5D=c_total", `"__name__":"c_total"`)
	f("GET", "series", times+"&match%5B%5D=c_total&match%5B%5D=odd", `"nan"`)
	f("GET", "metadata", "limit_per_metric=1", `"container_cpu_usage_seconds_total"`)
	f("GET", "metadata", "metric=container_cpu_usage_seconds_total", `"counter"`)
	f("POST", "query_exemplars", "query=c_total&"+times, `[]`)
	f("GET", "query_exemplars", "query=c_total&"+times, `[]`)
	f("GET", "rules", "", `"groups":[]`)
	f("GET", "alerts", "", `"alerts":[]`)
	f("POST", "format_query", "query=sum(rate(c_total%5B5m%5D))by(id)", `sum by (id) (rate(c_total[5m]))`)
}

// Metrics that only the remote store knows are described as well, but not to a tenant: their names
// may be another one's.
func TestMetadataOfTheRemoteStore(t *testing.T) {
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/metadata" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Write([]byte(`{"status":"success","data":{"theirs_total":[{"type":"counter","help":"Theirs.","unit":""}],"container_info":[{"type":"gauge","help":"not ours","unit":""}]}}`))
	}))
	remote := openPeer(t, store.RemoteOptions{URL: peer.URL})
	ask := func(h http.Handler, query string) string {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/metadata"+query, nil))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
		return w.Body.String()
	}
	all := ask(Prometheus(remote), "")
	if !strings.Contains(all, `"theirs_total":[{"type":"counter","help":"Theirs.","unit":""}]`) ||
		!strings.Contains(all, `"container_cpu_usage_seconds_total"`) || strings.Contains(all, "not ours") {
		t.Errorf("got %s", all)
	}
	if one := ask(Prometheus(remote), "?limit=1"); strings.Contains(one, "theirs_total") {
		t.Errorf("got %s", one)
	}
	if own := ask(Prometheus(store.ForTenant(remote, "a")), ""); strings.Contains(own, "theirs") ||
		!strings.Contains(own, `"container_info"`) {
		t.Errorf("a tenant reads %s", own)
	}
	peer.Close()
	if away := ask(Prometheus(remote), ""); !strings.Contains(away, `"warnings":["metadata of the remote store`) ||
		!strings.Contains(away, `"container_info"`) {
		t.Errorf("got %s", away)
	}
}
