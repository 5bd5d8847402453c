package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"outsight/internal/access"
	"outsight/internal/api"
	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/ingest"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// Without a file of tenants, senders and readers say whose series they mean: who names a tenant reads that one's
// alone; who names none reads all, or where it is required, nothing.
func TestTenantsByHeader(t *testing.T) {
	for _, mode := range []tenantHeader{headerOff, headerOptional, headerRequired} {
		t.Run(string(mode), func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			kept, in := openReceiverIn(t, t.TempDir()+"/data", access.Access{}, mode)
			runReceiver(t, in)
			server := httptest.NewServer(serveFrom(kept, access.Access{}, mode, api.Options{Metrics: in.metrics(), Logger: log}))
			defer server.Close()
			ask := func(method, target, header, tenant string, body []byte) (int, string) {
				t.Helper()
				r, err := http.NewRequest(method, target, bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/x-protobuf")
				if tenant != "" {
					r.Header.Set(header, tenant)
				}
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				text, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Fatal(err)
				}
				return answer.StatusCode, string(text)
			}
			now := time.Now()
			sent := 0
			for _, tenant := range []string{"shop", "bank", ""} {
				body := otlp.Encode(nil, []model.Series{{Name: "of_" + tenant, Kind: model.Gauge, Time: now, Value: 1,
					Labels: []model.Label{{Name: "host", Value: "h"}}}})
				code, text := ask(http.MethodPost, "http://"+in.http.Addr().String()+"/v1/metrics", otlp.TenantHeader, tenant, body)
				want := http.StatusOK
				if tenant == "" && mode == headerRequired {
					want = http.StatusBadRequest
				} else {
					sent++
				}
				if code != want {
					t.Errorf("sending as %q: %d %q, want %d", tenant, code, text, want)
				}
			}
			for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
				results, err := kept.Instant(t.Context(), `count({__name__=~"of_.*"})`, now)
				if err == nil && len(results) == 1 && results[0].Points[0].Value == float64(sent) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("stored %v, %v, want %d series", results, err, sent)
				}
			}
			query := server.URL + "/api/v1/query?" + url.Values{"query": {`{__name__=~"of_.*"}`},
				"time": {fmt.Sprint(now.Unix() + 1)}}.Encode()
			values := server.URL + "/api/v1/label/__name__/values"
			reads := func(header, tenant string, code int, names ...string) {
				t.Helper()
				for _, target := range []string{query, values} {
					got, text := ask(http.MethodGet, target, header, tenant, nil)
					if got != code {
						t.Errorf("reading as %q: %d %q, want %d", tenant, got, text, code)
					}
					for _, name := range []string{"of_shop", "of_bank", `of_"`} {
						if found, want := strings.Contains(text, name), strings.Contains(strings.Join(names, " "), name); found != want {
							t.Errorf("reading as %q: %s is in the answer: %v, want %v: %s", tenant, name, found, want, text)
						}
					}
				}
			}
			switch all := []string{"of_shop", "of_bank", `of_"`}; mode {
			case headerOff:
				reads("", "", http.StatusOK, all...)
				reads(otlp.TenantHeader, "shop", http.StatusOK, all...)
			case headerOptional:
				reads("", "", http.StatusOK, all...)
			case headerRequired:
				reads("", "", http.StatusBadRequest)
			}
			if mode != headerOff {
				reads(otlp.TenantHeader, "shop", http.StatusOK, "of_shop")
				reads("X-Scope-OrgID", "bank", http.StatusOK, "of_bank")
				reads("X-Scope-OrgID", "nobody", http.StatusOK)
				reads("X-Scope-OrgID", "shop|bank", http.StatusBadRequest)
			}
			for _, path := range []string{"/", "/healthz", "/metrics"} {
				if code, text := ask(http.MethodGet, server.URL+path, "", "", nil); code != http.StatusOK {
					t.Errorf("%s: %d %.200q", path, code, text)
				}
			}
		})
	}
}

// TestMapsOfTenantsByHeader: who names a tenant sees the map of its hosts alone, and who names none that of the hosts that
// named none either.
func TestMapsOfTenantsByHeader(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	frames, err := framelog.Open(t.TempDir(), framelog.Options{TidyEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { frames.Close() })
	for _, tenant := range []string{ingest.DefaultTenant, "shop"} {
		f := frame.NewBuilder(now.Add(-time.Minute)).Build(&model.Snapshot{Time: now.Add(-time.Second),
			Host: model.Host{Name: "host-of-" + tenant, Cores: 2}, Containers: []model.ContainerSample{{
				Container: &model.Container{ID: tenant, Name: "app-of-" + tenant, Runtime: model.Docker}}}})
		one := framelog.Encoded{Tenant: tenant, Header: f.Header, Data: frame.Encode(nil, f, nil)}
		if err := frames.Append(t.Context(), []framelog.Encoded{one}); err != nil {
			t.Fatal(err)
		}
	}
	kept, _ := openReceiverIn(t, t.TempDir()+"/data", access.Access{}, headerOptional)
	server := httptest.NewServer(serveFrom(kept, access.Access{}, headerOptional, api.Options{Log: frames}))
	defer server.Close()
	for tenant, want := range map[string]string{"": ingest.DefaultTenant, ingest.DefaultTenant: ingest.DefaultTenant,
		"shop": "shop", "nobody": ""} {
		var text bytes.Buffer
		root := newRoot()
		root.SetArgs([]string{"map", "--server", server.URL, "--output", "json", "--tenant", tenant})
		root.SetOut(&text)
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		for _, of := range []string{ingest.DefaultTenant, "shop"} {
			if got := strings.Contains(text.String(), "app-of-"+of); got != (of == want) {
				t.Errorf("as %q: the container of %s is in the map: %v: %s", tenant, of, got, &text)
			}
		}
		for _, path := range []string{"hosts", "extent"} { // the page asks for them
			r, err := http.NewRequest(http.MethodGet, server.URL+"/api/outsight/"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(otlp.TenantHeader, tenant)
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Fatalf("%s as %q: %s %s %v", path, tenant, answer.Status, body, err)
			}
			if path == "extent" && strings.Contains(string(body), `"from":null`) != (want == "") {
				t.Errorf("extent as %q: %s", tenant, body)
			}
			for _, of := range []string{ingest.DefaultTenant, "shop"} {
				if path == "hosts" && strings.Contains(string(body), "host-of-"+of) != (of == want) {
					t.Errorf("hosts as %q, want that of %q: %s", tenant, want, body)
				}
			}
		}
	}
}
