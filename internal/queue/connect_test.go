package queue

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestURLsAreShownWithoutSecrets(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		if got, err := redacted(in); err != nil || got != want {
			t.Errorf("%q is shown as %q, %v; want %q", in, got, err, want)
		}
	}
	f("nats://a:4222", "nats://a:4222")
	f("a:4222, tls://b:4222", "nats://a:4222,tls://b:4222")
	f("nats://user:secret@a:4222", "nats://xxxxx@a:4222")
	f("nats://a-token@a:4222,nats://u:p@b", "nats://xxxxx@a:4222,nats://xxxxx@b")
	for _, in := range []string{"", "nats://", "nats://u:secret@a:port", "nats://u:sec ret@a"} {
		if got, err := redacted(in); err == nil || strings.Contains(err.Error(), "sec") {
			t.Errorf("%q is shown as %q, %v", in, got, err)
		}
	}
	_, err := Connect(Server{URL: "nats://u:secret@127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err == nil || strings.Contains(err.Error(), "secret") || errors.Unwrap(err) == nil {
		t.Errorf("connecting to nobody: %v", err)
	}
	if _, err = Connect(Server{URL: "nats://127.0.0.1:1", CA: "/nowhere/ca.pem"},
		slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "/nowhere/ca.pem") {
		t.Errorf("a missing CA: %v", err)
	}
}
