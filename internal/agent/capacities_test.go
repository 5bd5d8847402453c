package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// keeper has capacities, as an agent does, and nothing else.
type keeper struct {
	noFlights
	capacities
}

func (k *keeper) KeepCapacity(c model.Capacity) { k.keep(c) }

// TestCapacities: what is told at the socket is kept, the newest of a pair, until one of its containers ends; what is no
// capacity is refused.
func TestCapacities(t *testing.T) {
	k := &keeper{}
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- ServeHTTP(ctx, l, SocketHandler(func() *frame.Frame { return nil }, k), slog.New(slog.DiscardHandler))
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	c := NewClient(path)
	defer c.Close()
	now := time.Now().Truncate(time.Millisecond)
	of := func(from, to string, v float64, ago time.Duration) model.Capacity {
		return model.Capacity{From: from, To: to, FromName: "name of " + from, ToName: "name of " + to, BytesPerSecond: v,
			Measured: now.Add(-ago)}
	}
	for _, one := range []model.Capacity{of("web", "db", 1e9, time.Minute), of("db", "web", 2e9, time.Minute),
		of("web", "db", 3e9, time.Second), of("web", "db", 4e9, time.Hour), of("web", "host", 5e9, 0), of("web", "gone", 6e9, 0)} {
		if err := c.KeepCapacity(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	for what, bad := range map[string]model.Capacity{"nothing": {}, "no speed": of("web", "db", 0, 0),
		"less than nothing": of("web", "db", -1, 0), "one end": of("web", "web", 1, 0), "tomorrow": of("web", "db", 1, -24*time.Hour),
		"a long name": of("web", strings.Repeat("x", 2000), 1, 0), "much text": of("web", strings.Repeat("x", 20_000), 1, 0)} {
		if err := c.KeepCapacity(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "400") {
			t.Errorf("%s: %v", what, err)
		}
	}
	container := func(id string) *model.Container { return &model.Container{ID: id} }
	ended := container("gone")
	ended.Ended = now
	all := []*model.Container{container("db"), ended, container(model.HostContainerID), container("web")}
	equal := func(x, y model.Capacity) bool {
		same := x.Measured.Equal(y.Measured)
		x.Measured, y.Measured = time.Time{}, time.Time{}
		return same && x == y
	}
	want := []model.Capacity{of("db", "web", 2e9, time.Minute), of("web", "db", 3e9, time.Second), of("web", "host", 5e9, 0)}
	if got := k.of(all); !slices.EqualFunc(got, want, equal) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	all[0].Ended = now
	if got := k.of(all); !slices.EqualFunc(got, want[2:], equal) {
		t.Errorf("after the end of db there are %+v", got)
	}
	all[0].Ended = time.Time{}
	if got := k.of(all); !slices.EqualFunc(got, want[2:], equal) {
		t.Errorf("another one of the name has %+v", got)
	}
	for i := range 2 * maxCapacities {
		k.keep(of("web", fmt.Sprint(i), 1, time.Duration(maxCapacities-i)*time.Second))
	}
	if len(k.by) != maxCapacities {
		t.Errorf("%d are kept, want %d", len(k.by), maxCapacities)
	}
	if _, ok := k.by[[2]string{"web", "0"}]; ok {
		t.Error("the oldest is kept")
	}
	if _, err := parseCapacity(bytes.NewReader(nil)); err == nil {
		t.Error("no text is a capacity")
	}
}
