package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"time"

	"outsight/internal/model"
	"outsight/internal/queue"
)

// Refusal is why a whole request was refused.
type Refusal uint8

// The refusals. Busy, Full and TooFast are worth another try. WrongTime is of a frame.
const (
	Unauthorized Refusal = iota
	Malformed
	TooLarge
	Unsupported
	Busy
	Full
	TooFast
	WrongTime
	Failed
	refusals
)

// String names r as metrics do.
func (r Refusal) String() string {
	return [refusals]string{"unauthorized", "malformed", "too_large", "unsupported", "busy", "queue_full", "rate",
		"time", "failed"}[r]
}

// counts are the counters behind Stats.
type counts struct {
	requests                                      [2]atomic.Uint64
	points, samples, duplicates, appended, poison atomic.Uint64
	bytes                                         atomic.Uint64
	frameRequests, frameBytes, frames             atomic.Uint64
	framesStored, keysWanted                      atomic.Uint64
}

// Transports, as indexes of Stats.Requests.
const (
	overHTTP = iota
	overGRPC
)

// Stats counts accepted, rejected and refused requests since New.
type Stats struct {
	// HTTP and GRPC requests, of which Refused were turned away whole.
	HTTP, GRPC uint64
	Refused    [refusals]uint64
	// Bytes of decompressed bodies, and Points in them, of which Rejected were not accepted.
	Bytes, Points uint64
	Rejected      Rejections
	// Samples that were accepted, and are durable in the queue. Appended ones are in the store. Duplicates are repeated
	// requests, Poison are messages that became dead letters.
	Samples, Appended, Duplicates, Poison uint64
	// FrameRequests are requests with frames, refused ones too, and FrameBytes what is in them as it came. Frames were
	// accepted, and are durable in their queue; FramesStored were given to the log. Agents were asked for KeysWanted key
	// frames.
	FrameRequests, FrameBytes, Frames, FramesStored, KeysWanted uint64
	// KeyBytes are of key frames that are kept to check others, of at most MaxKeyBytes.
	KeyBytes, MaxKeyBytes int64
	// FrameQueue is that of frames. Lag and Lost are of both queues.
	FrameQueue queue.Stats
	// InFlight bytes of requests that are being worked on, of at most MaxInFlight.
	InFlight, MaxInFlight int64
	Queue                 queue.Stats
	// Lost are messages that were taken and cannot be read: their blocks in the queue are damaged.
	Lost uint64
	// Lag is how long the oldest message in the queue has waited.
	Lag time.Duration
}

// Stats returns the counts. If the queue does not answer, its part is incomplete, and there is an error.
func (i *Ingest) Stats(ctx context.Context) (Stats, error) {
	s := Stats{
		HTTP: i.counts.requests[overHTTP].Load(), GRPC: i.counts.requests[overGRPC].Load(), Bytes: i.counts.bytes.Load(),
		Points: i.counts.points.Load(), Samples: i.counts.samples.Load(), Appended: i.counts.appended.Load(),
		Duplicates: i.counts.duplicates.Load(), Poison: i.counts.poison.Load(),
		InFlight: i.inFlight.total(), MaxInFlight: i.options.InFlight,
	}
	for r := range s.Refused {
		s.Refused[r] = i.all.requests[r].count.Load()
	}
	for r := range s.Rejected {
		s.Rejected[r] = i.all.points[r].count.Load()
	}
	var err error
	if s.Queue, err = i.queue.Stats(ctx); err == nil && !s.Queue.Oldest.IsZero() {
		s.Lag = max(0, i.options.Now().Sub(s.Queue.Oldest))
	}
	s.Lost = i.options.Repaired.Lost + s.Queue.Lost
	if i.options.Frames == nil {
		return s, err
	}
	s.FrameRequests, s.FrameBytes = i.counts.frameRequests.Load(), i.counts.frameBytes.Load()
	s.Frames, s.FramesStored = i.counts.frames.Load(), i.counts.framesStored.Load()
	s.KeysWanted, s.KeyBytes, s.MaxKeyBytes = i.counts.keysWanted.Load(), i.keys.used(), i.keys.most
	var framesErr error
	if s.FrameQueue, framesErr = i.options.Frames.Queue.Stats(ctx); framesErr == nil && !s.FrameQueue.Oldest.IsZero() {
		s.Lag = max(s.Lag, i.options.Now().Sub(s.FrameQueue.Oldest))
	}
	s.Lost += s.FrameQueue.Lost
	return s, errors.Join(err, framesErr)
}

// Drops are the limits. Refusals for other reasons than a limit are in Ingest.Refusals.
func (s *Stats) Drops() []model.Drop {
	return []model.Drop{
		{Name: "ingest/in-flight-bytes", Count: s.Refused[Busy], Used: uint64(s.InFlight), Capacity: uint64(s.MaxInFlight)},
		{Name: "ingest/queue-bytes", Count: s.Refused[Full], Used: s.Queue.Bytes, Capacity: uint64(s.Queue.MaxBytes)},
		{Name: "ingest/frame-queue-bytes", Used: s.FrameQueue.Bytes, Capacity: uint64(s.FrameQueue.MaxBytes)},
		{Name: "ingest/key-frame-bytes", Used: uint64(s.KeyBytes), Capacity: uint64(s.MaxKeyBytes)},
		{Name: "ingest/poison-messages", Count: s.Poison, Used: s.Queue.DeadLetters + s.FrameQueue.DeadLetters},
		{Name: "ingest/damaged-messages", Count: s.Lost},
	}
}

// WriteMetrics writes the metrics of an ingest in Prometheus's text format.
func (s *Stats) WriteMetrics(w io.Writer) error {
	var b strings.Builder
	family := func(name, kind, help string, samples ...any) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		for n := 0; n < len(samples); n += 2 {
			fmt.Fprintf(&b, "%s%s %v\n", name, samples[n], samples[n+1])
		}
	}
	family("outsight_ingest_requests_total", "counter", "Requests to take metrics, refused ones too",
		`{transport="http"}`, s.HTTP, `{transport="grpc"}`, s.GRPC)
	var refused, rejected []any
	for r, n := range s.Refused {
		refused = append(refused, `{reason="`+Refusal(r).String()+`"}`, n)
	}
	for r, n := range s.Rejected {
		rejected = append(rejected, `{reason="`+Reason(r).String()+`"}`, n)
	}
	family("outsight_ingest_refused_requests_total", "counter", "Requests of which nothing was taken", refused...)
	family("outsight_ingest_bytes_total", "counter", "Bytes of requests after decompression", "", s.Bytes)
	family("outsight_ingest_points_total", "counter", "Data points in requests", "", s.Points)
	family("outsight_ingest_rejected_points_total", "counter", "Data points that were not taken", rejected...)
	family("outsight_ingest_samples_total", "counter", "Samples that were taken into the queue", "", s.Samples)
	family("outsight_ingest_appended_samples_total", "counter",
		"Samples that were brought from the queue into the store", "", s.Appended)
	family("outsight_ingest_duplicate_requests_total", "counter", "Requests that had been taken before", "", s.Duplicates)
	family("outsight_ingest_poison_messages_total", "counter",
		"Messages that became dead letters since they cannot be stored", "", s.Poison)
	family("outsight_ingest_frame_requests_total", "counter", "Requests with frames of agents, refused ones too", "",
		s.FrameRequests)
	family("outsight_ingest_frame_bytes_total", "counter", "Bytes of these requests", "", s.FrameBytes)
	family("outsight_ingest_frames_total", "counter", "Frames that were taken into their queue", "", s.Frames)
	family("outsight_ingest_stored_frames_total", "counter", "Frames that were brought from the queue to the log", "",
		s.FramesStored)
	family("outsight_ingest_wanted_key_frames_total", "counter",
		"Times that an agent was asked for a key frame, since the one that its frame needs was not known", "", s.KeysWanted)
	family("outsight_ingest_in_flight_bytes", "gauge", "Bytes of requests that are being worked on", "", s.InFlight)
	family("outsight_heap_live_bytes", "gauge",
		"Memory of this process that was in use when the collector of unused memory last looked", "", liveHeap())
	family("outsight_queue_messages", "gauge", "Messages that wait in the queue", "", s.Queue.Messages)
	family("outsight_queue_bytes", "gauge", "Bytes of messages that wait in the queue", "", s.Queue.Bytes)
	family("outsight_queue_capacity_bytes", "gauge", "Bytes for which the queue has room", "", s.Queue.MaxBytes)
	family("outsight_frame_queue_messages", "gauge", "Frames that wait in their queue", "", s.FrameQueue.Messages)
	family("outsight_frame_queue_bytes", "gauge", "Bytes of frames that wait in their queue", "", s.FrameQueue.Bytes)
	family("outsight_queue_lag_seconds", "gauge", "Time for which the oldest message has waited in the queue", "",
		s.Lag.Seconds())
	family("outsight_queue_aside_messages", "gauge", "Dead letters in their stream", "", s.Queue.DeadLetters+s.FrameQueue.DeadLetters)
	family("outsight_queue_lost_messages_total", "counter",
		"Messages that were taken and cannot be read: their blocks on the disk are damaged", "", s.Lost)
	family("outsight_queue_retries_total", "counter",
		"Times that the queue was busy and a message was offered to it again", "", s.Queue.Retried+s.FrameQueue.Retried)
	family("outsight_queue_redelivered_total", "counter", "Messages that the queue handed out again", "",
		s.Queue.Redelivered+s.FrameQueue.Redelivered)
	_, err := io.WriteString(w, b.String())
	return err
}

// liveHeap is the size of the heap after the last collection, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// Metrics answers /metrics.
func (i *Ingest) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		// Without an answer of the queue its numbers are zero; the others count.
		s, _ := i.Stats(ctx)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = s.WriteMetrics(w) // who asked has gone
		_ = i.writeQuotas(w)
	})
}
