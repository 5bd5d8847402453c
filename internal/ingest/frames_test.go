package ingest_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/ingest"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/queue"
	"outsight/internal/quota"
)

// frameAgent makes frames of one host, whose edges' counters tell which frame it is.
type frameAgent struct {
	builder  *frame.Builder
	snapshot *model.Snapshot
	key      *frame.Frame
	last     *frame.Frame
}

func newFrameAgent(host string, began time.Time) *frameAgent {
	c := &model.Container{ID: strings.Repeat("c", 64), Name: "cart", Runtime: model.Docker}
	return &frameAgent{builder: frame.NewBuilder(began), snapshot: &model.Snapshot{Host: model.Host{Name: host},
		Containers: []model.ContainerSample{{Container: c, CPU: &model.CPUCounters{}}},
		Edges:      []model.Edge{{Instance: 1, Client: model.Peer{Container: c}}}}}
}

// next is the frame of a time, encoded.
func (a *frameAgent) next(at time.Time) []byte {
	a.snapshot.Time = at
	a.snapshot.Edges[0].Counters.Opens++
	a.last = a.builder.Build(a.snapshot)
	if a.last.IsKey() {
		a.key = a.last
	}
	return frame.Encode(nil, a.last, a.key)
}

func (s *server) postFrame(t testing.TB, data []byte, h header) (status int, wantKey bool, said string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.http.URL+frame.Path, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", frame.ContentType)
	for name, value := range h {
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header.Get(frame.WantKeyHeader) != "", string(text)
}

// numbers are those of the frames of a host in a log, by what windows of one frame each say.
func (s *server) requests(t testing.TB, tenant, host string, times ...time.Time) (requests []uint64) {
	t.Helper()
	column := frame.Column(frame.Edges, "connections_opened")
	for w, err := range s.log.Windows(t.Context(), framelog.Query{Tenant: tenant, Hosts: []string{host}, Times: times}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range w.Hosts {
			for _, span := range h.Spans {
				n, _ := span.After.Tables[frame.Edges].Columns[column].At(0)
				requests = append(requests, n)
			}
		}
	}
	return requests
}

// Frames are in the log once, whatever is sent twice; windows of it have what was counted.
func TestFrames(t *testing.T) {
	s := start(t, t.TempDir(), setup{frames: true})
	began := time.Now().Truncate(time.Minute).Add(-2 * time.Minute)
	a := newFrameAgent("web-1", began)
	var times []time.Time
	for n := range 90 {
		at := began.Add(time.Duration(n) * time.Second)
		times = append(times, at)
		data := a.next(at)
		for range 1 + n%2 {
			if status, want, said := s.postFrame(t, data, nil); status != http.StatusOK || want {
				t.Fatalf("frame %d: %d, wants a key: %v, %s", n, status, want, said)
			}
		}
	}
	stats := s.drained(t)
	if stats.Frames != 90 || stats.FramesStored != 90 || stats.Duplicates != 45 || stats.FrameRequests != 135 ||
		stats.KeysWanted != 0 {
		t.Errorf("%+v", stats)
	}
	if got := s.log.Stats(); got.Frames != 90 || got.Hosts != 1 {
		t.Errorf("%+v", got)
	}
	var want []uint64
	for n := range times[1:] {
		want = append(want, uint64(n+2))
	}
	if got := s.requests(t, "", "web-1", times...); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What is no frame is refused, and is in no queue.
func TestMalformedFrames(t *testing.T) {
	s := start(t, t.TempDir(), setup{frames: true})
	now := time.Now()
	good := newFrameAgent("web-1", now).next(now)
	cases := map[string]struct {
		data   []byte
		header header
		status int
	}{
		"nothing":       {nil, nil, http.StatusBadRequest},
		"cut off":       {good[:len(good)-1], nil, http.StatusBadRequest},
		"something":     {[]byte("something"), nil, http.StatusBadRequest},
		"no host":       {newFrameAgent("", now).next(now), nil, http.StatusBadRequest},
		"a line's end":  {newFrameAgent("web\n1", now).next(now), nil, http.StatusBadRequest},
		"ahead":         {newFrameAgent("h", now).next(now.Add(time.Hour)), nil, http.StatusBadRequest},
		"old":           {newFrameAgent("h", now).next(now.Add(-25 * time.Hour)), nil, http.StatusBadRequest},
		"another type":  {good, header{"Content-Type": "text/plain"}, http.StatusUnsupportedMediaType},
		"an encoding":   {good, header{"Content-Encoding": "gzip"}, http.StatusUnsupportedMediaType},
		"too large":     {make([]byte, 9<<20), nil, http.StatusRequestEntityTooLarge},
		"a changed end": {changed(good, len(good)-3), nil, http.StatusBadRequest},
	}
	for name, c := range cases {
		if status, _, said := s.postFrame(t, c.data, c.header); status != c.status {
			t.Errorf("%s: %d %q, want %d", name, status, said, c.status)
		}
	}
	stats := s.drained(t)
	if stats.Frames != 0 || stats.Refused[ingest.WrongTime] != 2 || stats.Refused[ingest.Malformed] != 6 ||
		stats.Refused[ingest.Unsupported] != 2 || stats.Refused[ingest.TooLarge] != 1 {
		t.Errorf("%+v", stats)
	}
}

func changed(data []byte, at int) []byte {
	other := bytes.Clone(data)
	other[at] ^= 0x55
	return other
}

// A frame whose key frame is not known is taken, and its agent asked for a key frame once. A frame that does not fit to
// its key frame is refused.
func TestFramesWithoutTheirKey(t *testing.T) {
	s := start(t, t.TempDir(), setup{frames: true})
	minute := time.Now().Truncate(time.Minute).Add(-2 * time.Minute)
	a := newFrameAgent("web-1", minute)
	key := a.next(minute)
	for n := range 3 {
		status, want, said := s.postFrame(t, a.next(minute.Add(time.Duration(n+1)*time.Second)), nil)
		if status != http.StatusOK || want != (n == 0) {
			t.Errorf("frame %d: %d, wants a key: %v, %s", n, status, want, said)
		}
	}
	s.drained(t)
	if status, want, said := s.postFrame(t, key, nil); status != http.StatusOK || want {
		t.Errorf("key frame: %d, wants a key: %v, %s", status, want, said)
	}
	last := a.next(minute.Add(4 * time.Second))
	if status, _, said := s.postFrame(t, changed(last, len(last)-3), nil); status != http.StatusBadRequest {
		t.Errorf("a changed frame: %d %s", status, said)
	}
	if status, want, said := s.postFrame(t, last, nil); status != http.StatusOK || want {
		t.Errorf("a frame after its key: %d, wants a key: %v, %s", status, want, said)
	}
	stats := s.drained(t)
	// The log cannot read those that came before their key frame.
	if got := s.log.Stats(); stats.KeysWanted != 1 || stats.Frames != 5 || got.Frames != 2 || got.KeyMissing != 3 {
		t.Errorf("%+v, %+v", stats, got)
	}
}

// Tenants have frames of their own, also of hosts of one name.
func TestFramesOfTenants(t *testing.T) {
	o := twoTenants
	o.Quotas = quota.Table{"flood": {SamplesPerSecond: 1}}
	s := start(t, t.TempDir(), setup{frames: true, Options: o})
	minute := time.Now().Truncate(time.Minute).Add(-time.Minute)
	for _, tenant := range []string{"flood", "shop"} {
		a := newFrameAgent("web-1", minute)
		for n := range 10 {
			status, _, said := s.postFrame(t, a.next(minute.Add(time.Duration(n)*time.Second)),
				header{otlp.TenantHeader: tenant})
			// The rate is of ten seconds: the second frame is more than that.
			want := http.StatusOK
			if tenant == "flood" && n >= 2 {
				want = http.StatusTooManyRequests
			}
			if status != want && !(tenant == "flood" && n < 5) {
				t.Errorf("%s %d: %d %s", tenant, n, status, said)
			}
		}
	}
	s.drained(t)
	if got := s.requests(t, "shop", "web-1", minute, minute.Add(9*time.Second)); !slices.Equal(got, []uint64{10}) {
		t.Errorf("the shop has %v", got)
	}
	hosts, err := s.log.Hosts(t.Context(), "flood")
	if err != nil || len(hosts) != 1 {
		t.Errorf("%v, %v", hosts, err)
	}
}

// A frame for which there is no room is refused until there is.
func TestFullQueueOfFrames(t *testing.T) {
	s := start(t, t.TempDir(), setup{frames: true, idle: true, frameQueue: queue.Options{MaxBytes: 1 << 20}})
	minute := time.Now().Truncate(time.Minute).Add(-time.Minute)
	full := 0
	for n := range 10_000 {
		// Each host has a key frame, which is of some kilobytes.
		status, _, said := s.postFrame(t, newFrameAgent(fmt.Sprint("web-", n), minute).next(minute), nil)
		if status == http.StatusTooManyRequests {
			full++
			break
		}
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, said)
		}
	}
	if stats, _ := s.ingest.Stats(t.Context()); full != 1 || stats.Refused[ingest.Full] != 1 || stats.Frames == 0 {
		t.Errorf("%+v", stats)
	}
}

// A frame that ended the process three times is a dead letter at the fourth; those beside it are stored.
func TestSuspectFrame(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, setup{frames: true, idle: true})
	minute := time.Now().Truncate(time.Minute).Add(-time.Minute)
	a := newFrameAgent("web-1", minute)
	for n := range 5 {
		if status, _, said := s.postFrame(t, a.next(minute.Add(time.Duration(n)*time.Second)), nil); status != http.StatusOK {
			t.Fatal(status, said)
		}
	}
	s.stop()
	for _, noted := range []struct {
		text   string
		stored int
	}{{"2 1 4\n", 5}, {"3 3 3\n", 4}} {
		// As processes left it that began with these messages and never came back.
		if err := os.WriteFile(dir+"/queue/suspect-frames", []byte(noted.text), 0o644); err != nil {
			t.Fatal(err)
		}
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		s := start(t, copied, setup{frames: true})
		stats := s.drained(t)
		if got := s.log.Stats(); got.Frames != noted.stored || stats.Poison != uint64(5-noted.stored) {
			t.Errorf("after %q %d frames are stored, %+v", noted.text, got.Frames, stats)
		}
		if _, err := os.Stat(copied + "/queue/suspect-frames"); !os.IsNotExist(err) {
			t.Errorf("suspects are still noted: %v", err)
		}
		s.stop()
	}
}
