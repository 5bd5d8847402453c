//go:build long

package ingest_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"outsight/internal/ingest"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/queue"
	"outsight/internal/store"
)

// insistent sends requests, and each of them until it is taken; every fifth it sends once more after that.
type insistent struct {
	url   string
	id    int
	taken []int64 // times in ms
	again int
}

func (p *insistent) run(t testing.TB, ctx context.Context, taken *atomic.Int64) {
	last := time.Time{}
	for ctx.Err() == nil {
		at := time.Now().Truncate(time.Millisecond)
		if !at.After(last) {
			at = last.Add(time.Millisecond)
		}
		last = at
		body := otlp.Encode(nil, []model.Series{{Name: "cluster_total", Kind: model.Counter, Time: at,
			Value:  counterAt(at, p.id),
			Labels: []model.Label{{Name: "id", Value: strconv.Itoa(p.id)}}}})
		p.send(t, body)
		p.taken = append(p.taken, at.UnixMilli())
		taken.Add(1)
		if len(p.taken)%5 == 0 {
			p.send(t, body)
			p.again++
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *insistent) send(t testing.TB, body []byte) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		answer, err := http.Post(p.url+ingest.Path, "application/x-protobuf", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusOK:
			return
		case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		default:
			t.Errorf("the server answers %s", answer.Status)
			return
		}
	}
	t.Error("a request was not taken in two minutes")
}

// TestClusterLosesItsLeader kills the server of a cluster that leads the stream, twice: all that was acknowledged is in
// the stream once and in the store, and the consumer goes on.
func TestClusterLosesItsLeader(t *testing.T) {
	all, urls := startCluster(t)
	log := slog.New(slog.DiscardHandler)
	conn, err := queue.Connect(queue.Server{URL: urls}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	opening, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	q, err := queue.Open(opening, conn, queue.Options{Replicas: nodes, MaxBytes: 64 << 20, MaxDeadLetterBytes: 1 << 20,
		Duplicates: 10 * time.Minute, AckWait: 5 * time.Second, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(t.TempDir(), store.Options{OutOfOrder: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	in, err := ingest.New(q, kept, ingest.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); in.Run(running) }()
	defer func() { stop(); <-ended }()
	web := httptest.NewServer(in.Handler())
	defer web.Close()

	began := time.Now().Add(-time.Second)
	sending, finish := context.WithCancel(t.Context())
	defer finish()
	var senders [4]*insistent
	var taken atomic.Int64
	var group sync.WaitGroup
	for i := range senders {
		senders[i] = &insistent{url: web.URL, id: i}
		group.Go(func() { senders[i].run(t, sending, &taken) })
	}
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	// info is nil while nobody answers.
	info := func() *jetstream.StreamInfo {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		s, err := js.Stream(ctx, "OUTSIGHT")
		if err != nil {
			return nil
		}
		return s.CachedInfo()
	}
	appended := func() uint64 {
		s, _ := in.Stats(t.Context()) // counted here, whoever is away
		return s.Appended
	}
	for range 2 {
		first := appended()
		waitFor(t, "samples before the kill", func() bool { return appended() >= first+50 }, all[:]...)
		leader := -1
		waitFor(t, "a stream with all of its copies", func() bool {
			s := info()
			if s == nil || s.Cluster == nil || len(s.Cluster.Replicas) != nodes-1 {
				return false
			}
			for _, r := range s.Cluster.Replicas {
				if !r.Current || r.Offline {
					return false
				}
			}
			_, err := fmt.Sscanf(s.Cluster.Leader, "node%d", &leader)
			return err == nil
		}, all[:]...)
		all[leader].kill(t)
		waitFor(t, "another leader", func() bool {
			s := info()
			return s != nil && s.Cluster != nil && s.Cluster.Leader != "" && s.Cluster.Leader != fmt.Sprint("node", leader)
		}, all[:]...)
		before, stored := taken.Load(), appended()
		waitFor(t, "requests that are taken after the kill", func() bool { return taken.Load() >= before+100 }, all[:]...)
		waitFor(t, "samples that are stored after the kill", func() bool { return appended() >= stored+100 }, all[:]...)
		all[leader].start(t)
	}
	finish()
	group.Wait()
	waitFor(t, "the queue to be empty", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Messages == 0
	}, all[:]...)
	var s *jetstream.StreamInfo
	waitFor(t, "the state of the stream", func() bool { s = info(); return s != nil }, all[:]...)
	if n := taken.Load(); s.State.LastSeq != uint64(n) {
		t.Errorf("%d requests were taken and the stream has had %d messages", n, s.State.LastSeq)
	}
	stats, err := q.Stats(t.Context())
	if err != nil || stats.DeadLettered != 0 || stats.DeadLetters != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	end, again := time.Now().Add(time.Second), 0
	for i, p := range senders {
		stored := samples(t, kept, fmt.Sprintf("cluster_total{id=%q}[%dms]", strconv.Itoa(i),
			end.Sub(began).Milliseconds()), end, i)
		missing(t, fmt.Sprint("sender ", i), stored, p.taken)
		if len(stored) != len(p.taken) {
			t.Errorf("sender %d: %d samples are stored, %d were sent", i, len(stored), len(p.taken))
		}
		again += p.again
	}
	if stats.Duplicates < uint64(again) || again < 20 {
		t.Errorf("%d requests were sent again and %d were known", again, stats.Duplicates)
	}
	t.Logf("%d requests, %d of them sent again: all there once; %d handed out again", taken.Load(), again,
		stats.Redelivered)
}
