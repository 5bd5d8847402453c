package derive

import (
	"context"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/store"
)

func openStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.TempDir(), store.Options{OutOfOrder: time.Hour, Now: func() time.Time { return began }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func options() Options {
	return Options{Begin: func(tenant string) Series { return SeriesOf(tenant, true) }}
}

// waitFor waits until a Deriver has done with what was put.
func waitFor(t *testing.T, d *Deriver, done func(Stats) bool) Stats {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s := d.Stats()
		if done(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %+v", s)
		}
	}
}

// Of frames of each second, one in 15 s becomes series, and these have all that was counted, across an agent's restart too.
func TestEveryFifteenSeconds(t *testing.T) {
	kept := openStore(t)
	d := New(kept, options())
	go d.Run(t.Context())
	s := shop(began)
	derived := uint64(0)
	var last *frame.Frame
	for epoch := range 2 {
		b := frame.NewBuilder(s.Time)
		for n := range 150 {
			s.Time = s.Time.Add(time.Second)
			s.Edges[0].Counters.Opens = uint64(n + 1)
			f := b.Build(s)
			if !d.Due("", &f.Header) {
				continue
			}
			d.Put("", f)
			derived++
			last = f
			waitFor(t, d, func(s Stats) bool { return s.Derived == derived })
		}
		// One for each interval that has begun; the first frame of an epoch is always one.
		if want := uint64((epoch + 1) * 10); derived < want || derived > want+2 {
			t.Errorf("%d frames became series, want about %d", derived, want)
		}
	}
	if s := d.Stats(); s.Dropped+s.Rejected != 0 || s.Hosts != 1 {
		t.Errorf("%+v", s)
	}
	info := frame.Schema[frame.Edges].Columns[frame.Column(frame.Edges, "connections_opened")]
	results, err := kept.Instant(t.Context(), info.Metric+`{server_process="postgres"}`, last.Time)
	if err != nil || len(results) != 1 {
		t.Fatalf("%d series, %v", len(results), err)
	}
	want, _ := last.Tables[frame.Edges].Columns[frame.Column(frame.Edges, "connections_opened")].At(0)
	if got := results[0].Points[0].Value; got != float64(want) {
		t.Errorf("the newest value is %v, want %d", got, want)
	}
}

// blocked is a store that takes nothing until it may.
type blocked struct {
	*store.Store
	may chan struct{}
}

func (b blocked) Append(ctx context.Context, series []model.Series) error {
	select {
	case <-b.may:
	case <-ctx.Done():
		return ctx.Err()
	}
	return b.Store.Append(ctx, series)
}

// While the store takes nothing, frames are dropped and counted, and nobody waits. After that the series go on.
func TestNothingWaitsForTheStore(t *testing.T) {
	b := blocked{openStore(t), make(chan struct{})}
	o := options()
	o.Waiting = 2
	d := New(b, o)
	go d.Run(t.Context())
	builder, s := frame.NewBuilder(began), shop(began)
	put := func(n int) {
		s.Time = began.Add(time.Duration(n) * 15 * time.Second)
		d.Put("", builder.Build(s))
	}
	put(0)
	waitFor(t, d, func(s Stats) bool { return s.Waiting == 0 }) // it is being stored
	for n := range 10 {
		put(n + 1)
	}
	if s := d.Stats(); s.Dropped != 8 || s.Waiting != 2 || s.Derived != 0 {
		t.Errorf("%+v", s)
	}
	close(b.may)
	waitFor(t, d, func(s Stats) bool { return s.Derived == 3 })
	put(11)
	if s := waitFor(t, d, func(s Stats) bool { return s.Derived == 4 }); s.Dropped != 8 {
		t.Errorf("%+v", s)
	}
}

// A frame that is not newer than the last one is not taken, nor is one of more hosts than there may be.
func TestFramesThatAreNotDue(t *testing.T) {
	o := options()
	o.MaxHosts = 1
	d := New(openStore(t), o)
	f := frame.NewBuilder(began).Build(shop(began))
	if !d.Due("", &f.Header) {
		t.Error("the first is not due")
	}
	d.Put("", f)
	later, other := f.Header, f.Header
	later.Time, other.Host = began.Add(-time.Second), "web-2"
	if d.Due("", &f.Header) || d.Due("", &later) || d.Due("", &other) {
		t.Error("one is due that should not")
	}
	later.Time = began.Add(15 * time.Second)
	if !d.Due("", &later) {
		t.Error("the next is not due")
	}
	if (*Deriver)(nil).Due("", &f.Header) {
		t.Error("where nothing is derived, something is due")
	}
}
