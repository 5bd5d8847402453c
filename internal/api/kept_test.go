package api

import (
	"context"
	"fmt"
	"iter"
	"math"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// kept is a real log of frames, and a real store of the series of the same snapshots.
type kept struct {
	log    *framelog.Files
	series *store.Store
	tenant string
	agents map[string]*sending
	batch  []framelog.Encoded
}

// sending is an agent: what makes its frames, and the last key frame.
type sending struct {
	builder *frame.Builder
	key     *frame.Frame
}

func openKept(t testing.TB, now func() time.Time) *kept {
	t.Helper()
	log, err := framelog.Open(t.TempDir(), framelog.Options{Now: now, TidyEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return &kept{log: log, agents: map[string]*sending{}}
}

// withSeries keeps the series of what is sent from now on, too.
func (k *kept) withSeries(t testing.TB) *kept {
	t.Helper()
	var err error
	if k.series, err = store.Open(t.TempDir(), store.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.series.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// restart makes the agent of a host another one, whose counters begin at 0.
func (k *kept) restart(host string) { delete(k.agents, host) }

// send makes a frame of a snapshot, which is stored by flush.
func (k *kept) send(s *model.Snapshot) error {
	a := k.agents[s.Host.Name]
	if a == nil {
		a = &sending{builder: frame.NewBuilder(s.Time)}
		k.agents[s.Host.Name] = a
	}
	f := a.builder.Build(s)
	if f.IsKey() {
		a.key = f
	}
	k.batch = append(k.batch, framelog.Encoded{Tenant: k.tenant, Header: f.Header, Data: frame.Encode(nil, f, a.key)})
	if k.series != nil {
		return k.series.Append(context.Background(), otlp.FromFrame(frame.Of(s), otlp.SeriesOptions{}))
	}
	return nil
}

func (k *kept) flush() error {
	batch := k.batch
	k.batch = nil
	return k.log.Append(context.Background(), batch)
}

// nothing is a log in which nothing is stored, or that cannot be read.
type nothing struct{ err error }

func (n nothing) Append(context.Context, []framelog.Encoded) error { return n.err }

func (n nothing) Windows(_ context.Context, q framelog.Query) iter.Seq2[*frame.Window, error] {
	return func(yield func(*frame.Window, error) bool) {
		for i := range q.Times[1:] {
			if !yield(&frame.Window{From: q.Times[i], To: q.Times[i+1]}, n.err) || n.err != nil {
				return
			}
		}
	}
}

func (n nothing) Hosts(context.Context, string) ([]framelog.Host, error) { return nil, n.err }
func (n nothing) Newest(context.Context, string) ([]*frame.Frame, error) { return nil, n.err }
func (n nothing) Stats() framelog.Stats                                  { return framelog.Stats{} }
func (n nothing) Close() error                                           { return nil }

// Without a log everything that needs one says so.
func TestWithoutALog(t *testing.T) {
	s := New(Options{})
	for _, path := range []string{"graph", "extent", "status", "changes", "chart?node=a&numbers=usage.cpu_cores",
		"lines?numbers=usage.cpu_cores", "labelled"} {
		code, body := ask(s, "/api/outsight/"+path)
		if want := fmt.Sprintf("{%q:%q}\n", "error", errNoLog); code != 404 || body != want {
			t.Errorf("%s: %d %s, want %s", path, code, body, want)
		}
	}
}

// last is the last value of a series, 0 where there is none.
func last(r model.QueryResult) float64 {
	if n := len(r.Points); n > 0 && !math.IsNaN(r.Points[n-1].Value) {
		return r.Points[n-1].Value
	}
	return 0
}
