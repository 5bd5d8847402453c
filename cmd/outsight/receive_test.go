package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/internal/access"
	"outsight/internal/api"
	"outsight/internal/export"
	"outsight/internal/ingest"
	"outsight/internal/model"
	"outsight/internal/store"
	"outsight/test/issuer"
)

// openReceiverIn opens a store and what takes senders' data to it, over HTTP on a port of its own.
func openReceiverIn(t *testing.T, data string, door access.Access, header tenantHeader) (*store.Store, *receiver) {
	t.Helper()
	kept, err := store.Open(data, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	in, err := openReceiver(t.Context(), receiveFlags{http: "127.0.0.1:0", queueBytes: 64 << 20, stream: "OUTSIGHT",
		header: header}, door,
		&access.Listeners{}, data, 1000, 1<<20, kept, &ingest.Frames{}, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.close() })
	return kept, in
}

// runReceiver runs it to the end of the test.
func runReceiver(t *testing.T, in *receiver) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- in.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestTenantsSeeTheirOwnRefusals: what a tenant's senders were refused is on this tenant's page alone, with what they
// were told.
func TestTenantsSeeTheirOwnRefusals(t *testing.T) {
	dir := t.TempDir()
	tenants := filepath.Join(dir, "tenants")
	if err := os.WriteFile(tenants, []byte("shop: [0123456789abcdef]\nbank: [fedcba9876543210]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	operator := filepath.Join(dir, "operator")
	if err := os.WriteFile(operator, []byte("an-operator-reads-sums\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	door, err := (&secureFlags{access.Files{Tenants: tenants, Tokens: operator}}).open(log, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kept, in := openReceiverIn(t, dir+"/data", door, headerOff)
	frames, err := (&frameFlags{}).open(dir+"/data", time.Hour, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { frames.Close() })
	page := serveFrom(kept, door, headerOff, api.Options{Log: frames, Logger: log, Refusals: in.ingest.Refusals,
		Bounds: func(ctx context.Context) []model.Drop {
			s, _ := in.ingest.Stats(ctx)
			return s.Drops()
		}})
	send := func(want int, token string, header ...string) {
		t.Helper()
		r := httptest.NewRequest("POST", ingest.Path, strings.NewReader("nonsense"))
		r.Header.Set("Content-Type", "application/x-protobuf")
		r.Header.Set("Authorization", "Bearer "+token)
		if len(header) > 0 {
			r.Header.Set(header[0], header[1])
		}
		w := httptest.NewRecorder()
		in.ingest.Handler().ServeHTTP(w, r)
		if w.Code != want {
			t.Fatalf("got %d %s, want %d", w.Code, w.Body, want)
		}
	}
	send(400, "0123456789abcdef")
	send(400, "0123456789abcdef")
	send(403, "fedcba9876543210", "X-Outsight-Tenant", "shop")
	send(401, "a-wrong-token-of-nobody")
	send(401, "an-operator-reads-sums") // and sends nothing
	send(401, "a-wrong-token-of-a-shop", "X-Outsight-Tenant", "shop")
	for token, want := range map[string]string{"0123456789abcdef": "unauthorized 1, malformed 2",
		"fedcba9876543210": "unauthorized 1"} {
		r := httptest.NewRequest("GET", "/api/outsight/status", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		var a struct {
			Drops    []any
			Refusals []struct {
				What, Reason, From, Said string
				Count                    int
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &a); w.Code != 200 || err != nil {
			t.Fatalf("%d %s, %v", w.Code, w.Body, err)
		}
		var got []string
		for _, r := range a.Refusals {
			got = append(got, fmt.Sprint(r.Reason, " ", r.Count))
			if r.What != model.RefusedRequests || r.From != "192.0.2.1" || r.Said == "" {
				t.Errorf("got %+v", r)
			}
		}
		if strings.Join(got, ", ") != want || len(a.Drops) != 0 {
			t.Errorf("with %s: got %q, drops %v, want %q", token, got, a.Drops, want)
		}
	}
	// All of them are counted for who runs the server.
	counted := map[string]uint64{}
	for _, r := range in.ingest.Refusals("") {
		counted[r.Reason] = r.Count
	}
	if len(counted) != 2 || counted["malformed"] != 2 || counted["unauthorized"] != 4 {
		t.Errorf("got %v", counted)
	}
	page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/outsight/status", nil))
	w := httptest.NewRecorder()
	in.metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(w.Body.String(), "\noutsight_api_refused_requests_total 1\n") {
		t.Errorf("a reader without a token is not counted:\n%s", w.Body)
	}
}

// TestAgentsSendOverTLS: what an agent sends with a token and TLS is in the store; one with another token keeps it.
func TestAgentsSendOverTLS(t *testing.T) {
	ours, dir := issuer.New(t, "ours"), t.TempDir()
	cert, key := ours.Leaf("server", x509.ExtKeyUsageServerAuth)
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tokens, other := write("tokens", "0123456789abcdef\n"), write("other", "fedcba9876543210\n")
	log := slog.New(slog.DiscardHandler)
	door, err := (&secureFlags{access.Files{Tokens: tokens, Cert: cert, Key: key}}).open(log, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kept, in := openReceiverIn(t, dir+"/data", door, headerOff)
	runReceiver(t, in)
	start := func(token, name string) *export.Exporter {
		t.Helper()
		o := export.Options{Server: "https://" + in.http.Addr().String(), Spool: filepath.Join(dir, name), Logger: log}
		if err := (&export.Files{Token: token, CA: ours.CA}).Read(&o); err != nil {
			t.Fatal(err)
		}
		e, err := export.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		sending, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); e.Run(sending) }()
		t.Cleanup(func() { stop(); <-stopped; e.Close() })
		err = e.Put([]model.Series{{Name: "sent", Kind: model.Gauge, Time: time.Now(), Value: 1,
			Labels: []model.Label{{Name: "host", Value: name}}}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	start(tokens, "known")
	stranger := start(other, "stranger")
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		results, err := kept.Instant(t.Context(), "sent", time.Now())
		refused := stranger.Stats().Retries > 0
		if err == nil && len(results) == 1 && results[0].Labels["host"] == "known" && refused {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("stored %v, %v; the stranger was refused: %v", results, err, refused)
		}
	}
}
