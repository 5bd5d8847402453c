package ingest_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"outsight/internal/ingest"
	"outsight/internal/queue"
)

// TestLeases: a lease ends when nobody renews it, terms grow with each renewal of anybody, and members hear each other.
func TestLeases(t *testing.T) {
	e, err := ingest.Embed(t.TempDir(), 64<<20, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	conn, err := e.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g, err := queue.OpenGroup(ctx, conn, "PULL", 0)
	if err != nil {
		t.Fatal(err)
	}
	heard, ended := make(chan string, 10), make(chan error, 1)
	hearing, deafen := context.WithCancel(ctx)
	go func() { ended <- g.Receive(hearing, func(m []byte) { heard <- string(m) }) }()
	newest := uint64(0)
	renew := func(member string) []string {
		t.Helper()
		term, members, err := g.Renew(ctx, member)
		if err != nil || term <= newest {
			t.Fatalf("the term of %s is %d after %d: %v", member, term, newest, err)
		}
		newest = term
		return members
	}
	renew("a")
	if got := renew("b"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("members are %v, want a and b", got)
	}
	if err := g.Leave(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if got := renew("b"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("after a has left, members are %v", got)
	}
	renew("a")
	for slices.Contains(renew("b"), "a") { // which is renewed no more
		time.Sleep(50 * time.Millisecond)
	}
	for message := ""; message != "hello"; {
		if err := g.Send([]byte("hello")); err != nil { // until it is listened to
			t.Fatal(err)
		}
		select {
		case message = <-heard:
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("nothing was heard")
		}
	}
	if deafen(); <-ended != nil {
		t.Error("it has not ended well")
	}
}
