package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"crypto/x509"

	"outsight/internal/access"
	"outsight/internal/export"
	"outsight/internal/model"
	"outsight/internal/store"
	"outsight/test/issuer"
)

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
	kept, err := store.Open(dir+"/data", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	in, err := openReceiver(t.Context(), receiveFlags{http: "127.0.0.1:0", queueBytes: 64 << 20, stream: "OUTSIGHT"}, door, dir+"/data", 1000, kept, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	defer in.close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- in.run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
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
		err = e.Put([]model.Series{{Name: "sent", Kind: model.Gauge, Time: time.Now(), Value: 1, Labels: []model.Label{{Name: "host", Value: name}}}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	start(tokens, "known")
	stranger := start(other, "stranger")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
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
