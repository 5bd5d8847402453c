package export

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// frameReceiver takes frames, and decodes them with the key frames that it has got.
type frameReceiver struct {
	mu sync.Mutex
	// statuses are its next answers.
	statuses []int
	wantKey  bool
	// key is the last key frame, numbers those of all frames that could be decoded; failed is why one could not.
	key     *frame.Frame
	numbers []uint64
	failed  error
}

func (r *frameReceiver) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, _ := io.ReadAll(in.Body)
	if in.URL.Path != frame.Path || in.Header.Get("Content-Type") != frame.ContentType ||
		in.Header.Get("Content-Encoding") != "" {
		r.failed = fmt.Errorf("a request for %s with %v", in.URL.Path, in.Header)
	}
	if len(r.statuses) > 0 {
		status := r.statuses[0]
		r.statuses = r.statuses[1:]
		if status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
	}
	f, err := frame.Decode(data, r.key)
	if err != nil {
		r.failed = err
		return
	}
	if f.IsKey() {
		r.key = f
	}
	r.numbers = append(r.numbers, f.Number)
	if r.wantKey {
		r.wantKey = false
		w.Header().Set(frame.WantKeyHeader, "1")
	}
}

func (r *frameReceiver) seen(t *testing.T) []uint64 {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		t.Error(r.failed)
	}
	return slices.Clone(r.numbers)
}

// seconds makes frames from the begin of a minute on.
type seconds struct {
	builder *frame.Builder
	second  int
}

func newSeconds() *seconds { return &seconds{builder: frame.NewBuilder(time.Unix(1_800_000_000, 0))} }

// put makes frames and hands them to the exporter.
func (s *seconds) put(t *testing.T, e *Exporter, frames int) {
	t.Helper()
	for range frames {
		c := &model.Container{ID: "a", Name: "web"}
		f := s.builder.Build(&model.Snapshot{Time: time.Unix(1_800_000_000+int64(s.second), 0),
			Host: model.Host{Name: "h", Cores: 2}, Containers: []model.ContainerSample{{Container: c,
				CPU: &model.CPUCounters{UsageNS: uint64(s.second)}}}})
		s.second++
		if err := e.Consume(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFrames(t *testing.T) {
	r := &frameReceiver{statuses: []int{503, 200, 200, 503}}
	server := httptest.NewServer(r)
	defer server.Close()
	e := run(t, Options{Server: server.URL})
	s := newSeconds()
	s.put(t, e, 130) // three key frames
	eventually(t, "all frames", func() bool { return e.Stats().Spool.Batches == 0 })
	got := r.seen(t)
	if len(got) != 130 || got[0] != 1 || !slices.IsSorted(got) || r.key.Number != 121 {
		t.Errorf("got frames %v, the last key frame is %d", got, r.key.Number)
	}
	if stats := e.Stats(); stats.Sent != 130 || stats.Keyless != 0 || e.WantsKey() {
		t.Errorf("got %+v", stats)
	}
	r.mu.Lock()
	r.wantKey = true
	r.mu.Unlock()
	s.put(t, e, 1)
	eventually(t, "the frame", func() bool { return e.Stats().Spool.Batches == 0 })
	if !e.WantsKey() || e.WantsKey() {
		t.Error("the server's wish for a key frame is not heard once")
	}
	s.builder.ForceKey()
	s.put(t, e, 1)
	eventually(t, "the frame", func() bool { return e.Stats().Spool.Batches == 0 })
	r.seen(t)
	if r.key.Number != 132 {
		t.Errorf("the last key frame is %d, want the 132nd", r.key.Number)
	}
}

// Of a fleet that sends every ten seconds, key frames come at their times, and others ten seconds apart.
func TestFramesAreSentLessOften(t *testing.T) {
	r := &frameReceiver{}
	server := httptest.NewServer(r)
	defer server.Close()
	e := run(t, Options{Server: server.URL, SendEvery: 10 * time.Second})
	newSeconds().put(t, e, 125)
	eventually(t, "all frames", func() bool { return e.Stats().Spool.Batches == 0 })
	if got, want := r.seen(t), []uint64{1, 11, 21, 31, 41, 51, 61, 71, 81, 91, 101, 111, 121}; !slices.Equal(got, want) {
		t.Errorf("got frames %v, want %v", got, want)
	}
}

// What is told as changes of a key frame that was lost is not sent; it is counted, and a key frame is asked for.
func TestFramesOfALostKeyFrame(t *testing.T) {
	r := &frameReceiver{statuses: []int{400}}
	server := httptest.NewServer(r)
	defer server.Close()
	e := run(t, Options{Server: server.URL})
	s := newSeconds()
	s.put(t, e, 70)
	eventually(t, "all frames", func() bool { return e.Stats().Spool.Batches == 0 })
	got := r.seen(t)
	if stats := e.Stats(); len(got) != 10 || got[0] != 61 || stats.Keyless != 59 || stats.Refused != 1 {
		t.Errorf("got frames %v, %+v", got, stats)
	}
	// One that the agent's queue dropped.
	lost := newSeconds()
	f := lost.builder
	f.Build(&model.Snapshot{Time: time.Unix(1_800_000_000, 0)})
	lost.second = 1
	lost.put(t, e, 5)
	if stats := e.Stats(); stats.Keyless != 64 || !e.WantsKey() {
		t.Errorf("got %+v", stats)
	}
}

// When the spool is full, key frames are dropped with all that is told as their changes, and what is sent can be
// decoded.
func TestFramesOfAFullSpool(t *testing.T) {
	r := &frameReceiver{}
	server := httptest.NewServer(r)
	defer server.Close()
	e, err := Open(Options{Server: server.URL, Spool: t.TempDir(), MaxBytes: 2 * segmentBytes})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := newSeconds()
	for e.Stats().Spool.DroppedBatches == 0 {
		s.put(t, e, 60)
	}
	s.put(t, e, 10)
	kept := e.Stats()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx) }()
	eventually(t, "all frames", func() bool { return e.Stats().Spool.Batches == 0 })
	cancel()
	<-ended
	got, stats := r.seen(t), e.Stats()
	if uint64(len(got))+stats.Keyless != kept.Spool.Batches || stats.Keyless >= 60 ||
		got[len(got)-1] != uint64(s.second) {
		t.Errorf("%d frames sent, %d useless, of %d", len(got), stats.Keyless, kept.Spool.Batches)
	}
}
