package agent

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// keyWanter is a sink that wants a key frame at its third frame.
type keyWanter struct{ frames []*frame.Frame }

func (k *keyWanter) Consume(_ context.Context, f *frame.Frame) error {
	k.frames = append(k.frames, f)
	return nil
}

func (k *keyWanter) WantsKey() bool { return len(k.frames) == 3 }

// TestFrames: sinks get a frame a second, of the agent's epoch, and a key frame when one of them wants it.
func TestFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, sink := newScript(), &keyWanter{}
		s.add("web", 10)
		s.cgroups = []model.CgroupCounters{used(10, 5)}
		epoch := time.Now().Add(-time.Minute)
		a := New(s.sources(), Options{Sinks: map[string]Sink{"test": sink}, Epoch: epoch, Host: model.Host{Name: "h"}})
		if a.Frame() != nil {
			t.Error("there is a frame before the first reading")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := a.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if len(sink.frames) < 5 || a.Frame() != sink.frames[len(sink.frames)-1] {
			t.Fatalf("the sink got %d frames", len(sink.frames))
		}
		for i, f := range sink.frames {
			key := uint64(1)
			if i >= 3 {
				key = 4
			}
			if f.Number != uint64(i+1) || f.Key != key || f.Host != "h" || f.Epoch != uint64(epoch.UnixNano()) ||
				len(f.Tables[frame.Containers].IDs) != 2 {
				t.Errorf("frame %d: %+v", i, f.Header)
			}
		}
	})
}

// TestRowsOfWhatCannotBeRead: while the kernel's edges cannot be read, their rows do not end. Else what they counted
// would be there twice when they come again after they were summed.
func TestRowsOfWhatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.add("web", 10)
		edges := []model.KernelEdge{{Key: model.KernelEdgeKey{Owner: 10, Role: model.RoleClient,
			Service: netip.MustParseAddrPort("192.0.2.1:80")}, Counters: model.EdgeCounters{Opens: 3}}}
		a := New(s.sources(), Options{})
		opens := func() (n uint64) {
			time.Sleep(time.Second)
			a.step()
			t := &a.Frame().Tables[frame.Edges]
			for row := range t.IDs {
				v, _ := t.Columns[frame.Column(frame.Edges, "connections_opened")].At(row)
				n += v
			}
			return n
		}
		s.edges = edges
		opens()
		s.edges, s.err = nil, errors.New("map is away")
		for range int(frame.Linger/time.Second) + 10 {
			opens()
		}
		s.edges, s.err = edges, nil
		if n := opens(); n != 3 {
			t.Errorf("the frame has %d connections, want the 3 that were counted", n)
		}
	})
}

// contendedSource tells who disturbs whom, unless it has an error.
type contendedSource struct {
	read model.KernelContention
	err  error
}

func (c *contendedSource) ReadContention() (*model.KernelContention, error) { return &c.read, c.err }

// TestContentionThatCannotBeRead: where it is shed for long and comes back, what was counted is there once.
func TestContentionThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.add("web", 10)
		s.add("db", 20)
		s.cgroups = []model.CgroupCounters{used(10, 5), used(20, 5)}
		source := &contendedSource{read: model.KernelContention{Pairs: []model.CgroupPair{pair(10, 20, 7e6, 3)}}}
		sources := s.sources()
		sources.Contention = source
		a := New(sources, Options{})
		waited := func() (n uint64) {
			time.Sleep(time.Second)
			a.step()
			f := a.Frame()
			of := &f.Tables[frame.Labelled]
			for row := range of.IDs {
				if f.Text(frame.Labelled, frame.LabelledMetric, row) == "container_run_queue_wait_by_seconds_total" {
					v, _ := of.Columns[0].At(row)
					n += v
				}
			}
			return n
		}
		want := waited()
		if want != 7e6 {
			t.Fatalf("waits of %d ns were counted, want 7 ms", want)
		}
		source.err = errors.New("shed")
		for range int(frame.Linger/time.Second) + 10 {
			waited()
		}
		source.err = nil
		if got := waited(); got != want {
			t.Errorf("the frame has waits of %d ns, want the %d that were counted", got, want)
		}
	})
}
