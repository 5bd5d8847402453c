package ingest_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"outsight/internal/ingest"
	"outsight/internal/queue"
)

// TestRegistry: what was put into a registry is there for the next one, with its newest value, and what was deleted is
// not.
func TestRegistry(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	open := func() (*queue.Registry, func()) {
		embedded, err := ingest.Embed(dir, 512<<20, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := embedded.Connect()
		if err != nil {
			t.Fatal(err)
		}
		r, err := queue.OpenRegistry(ctx, conn, "OUTSIGHT-AGENTS", 0)
		if err != nil {
			t.Fatal(err)
		}
		return r, func() {
			conn.Close()
			if err := embedded.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	want := func(r *queue.Registry, pairs map[string]string) {
		t.Helper()
		all, err := r.All(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for k, v := range all {
			got[k] = string(v)
		}
		if !maps.Equal(got, pairs) {
			t.Errorf("got %v, want %v", slices.Sorted(maps.Keys(got)), pairs)
		}
	}
	r, shut := open()
	want(r, map[string]string{})
	for _, kv := range [][2]string{{"secret", "s"}, {"agent.a", "1"}, {"agent.b", "1"}, {"agent.a", "2"}} {
		if err := r.Put(ctx, kv[0], []byte(kv[1])); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time there is nothing to delete
		if err := r.Delete(ctx, "agent.b"); err != nil {
			t.Fatal(err)
		}
	}
	want(r, map[string]string{"secret": "s", "agent.a": "2"})
	shut()
	r, shut = open()
	defer shut()
	want(r, map[string]string{"secret": "s", "agent.a": "2"})
}
