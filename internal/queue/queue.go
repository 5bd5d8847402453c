// Package queue keeps messages in a NATS JetStream stream until somebody has dealt with them. It is the
// client's side alone: the server may be in the same process or be a cluster elsewhere.
//
// A message is kept from the moment on that Publish has returned without an error. It is handed to the
// consumer at least once, in order, and is gone when the consumer has acknowledged it.
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"
)

// Errors of Publish. After ErrFull the same message may be sent again later; ErrTooLarge it will always be.
var (
	ErrFull     = errors.New("queue is full")
	ErrTooLarge = errors.New("message is too large for the queue")
)

// Options of a Queue. A zero field means its default.
type Options struct {
	// Stream is the stream's name ("OUTSIGHT"), its subject is the same in lower case.
	Stream string
	// MaxBytes bounds the messages that wait (1 GiB). A full queue refuses new ones and loses no old one.
	MaxBytes int64
	// MaxAsideBytes bounds the messages that were set aside (64 MiB); the oldest go first.
	MaxAsideBytes int64
	// InFlight bounds the bytes of messages that are being published (32 MiB).
	InFlight int64
	// Patience is how long Publish waits for room in flight and for the server (5 s).
	Patience time.Duration
	// Duplicates is how long a message's ID is remembered (2 min).
	Duplicates time.Duration
	// AckWait is how long a consumer that says nothing may take before a message is handed out again (1 min).
	AckWait time.Duration
	// Replicas of the streams in a cluster (as many as they have, or 1 where they are missing).
	Replicas int
	Logger   *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Stream = cmp.Or(o.Stream, "OUTSIGHT")
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<30)
	o.MaxAsideBytes = cmp.Or(o.MaxAsideBytes, 64<<20)
	o.InFlight = cmp.Or(o.InFlight, 32<<20)
	o.Patience = cmp.Or(o.Patience, 5*time.Second)
	o.Duplicates = cmp.Or(o.Duplicates, 2*time.Minute)
	o.AckWait = cmp.Or(o.AckWait, time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// consumerName is the consumer's. A stream has one reader.
const consumerName = "store"

// Queue is a stream and its consumer. Its methods may be called at the same time, Consume once.
type Queue struct {
	options  Options
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	inFlight *semaphore.Weighted
	// leftover is the last message that was there at Open.
	leftover uint64
	// next is the message that should be handed out next, deleted those behind it that were gone at Open. Both are
	// Consume's.
	next    uint64
	deleted map[uint64]bool
	counts  struct {
		published, duplicates, retried, full, failed, acknowledged, redelivered, aside, lost atomic.Uint64
	}
}

// replicas is how many a stream should have: wanted, else what whoever made it has chosen, else 1.
func replicas(ctx context.Context, js jetstream.JetStream, name string, wanted int) int {
	if wanted > 0 {
		return wanted
	}
	s, err := js.Stream(ctx, name)
	if err != nil {
		return 1 // it is made, or making it says what is wrong
	}
	return max(1, s.CachedInfo().Config.Replicas)
}

// Open makes the stream where it is missing, and takes it over from any other Queue: a stream is read by one process.
// While a cluster comes up or has no leader it waits, until ctx ends.
func Open(ctx context.Context, conn *nats.Conn, o Options) (*Queue, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("opening the queue: %w", err)
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		attempt, cancel := context.WithTimeout(ctx, openTime)
		q, err := open(attempt, conn, js, o.withDefaults())
		cancel()
		if err == nil || ctx.Err() != nil || !isAway(err) {
			return q, err
		}
		wait(ctx, pause)
	}
}

// errComing means that the servers which are to have the consumer do not have the stream yet.
var errComing = errors.New("copies of the stream are being made")

// openTime bounds an attempt to open a stream: a cluster does not answer what came while it had no leader.
const openTime = 10 * time.Second

func open(ctx context.Context, conn *nats.Conn, js jetstream.JetStream, o Options) (_ *Queue, err error) {
	q := &Queue{options: o, conn: conn, js: js, inFlight: semaphore.NewWeighted(o.InFlight)}
	q.stream, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: o.Stream, Subjects: []string{subject(o.Stream)}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, MaxBytes: o.MaxBytes, Storage: jetstream.FileStorage,
		Replicas:   replicas(ctx, js, o.Stream, o.Replicas),
		Duplicates: o.Duplicates, AllowDirect: true,
	})
	if err != nil {
		return nil, fmt.Errorf("making the stream %q: %w", o.Stream, err)
	}
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: aside(o.Stream), Subjects: []string{subject(aside(o.Stream))}, Retention: jetstream.LimitsPolicy,
		Discard: jetstream.DiscardOld, MaxBytes: o.MaxAsideBytes, Storage: jetstream.FileStorage,
		Replicas: replicas(ctx, js, aside(o.Stream), o.Replicas),
	})
	if err != nil {
		return nil, fmt.Errorf("making the stream %q: %w", aside(o.Stream), err)
	}
	// A new consumer begins with the oldest message at once. The one of a server that was killed would hand out what
	// that one had only after AckWait, behind younger messages.
	if err := q.stream.DeleteConsumer(ctx, consumerName); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("taking over the consumer of %q: %w", o.Stream, err)
	}
	info, err := q.stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return nil, fmt.Errorf("asking for the state of %q: %w", o.Stream, err)
	}
	q.leftover, q.next, q.deleted = info.State.LastSeq, info.State.FirstSeq, make(map[uint64]bool, len(info.State.Deleted))
	for _, seq := range info.State.Deleted {
		q.deleted[seq] = true
	}
	_, err = q.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, AckWait: o.AckWait, MaxDeliver: -1,
		MaxAckPending: 100_000,
	})
	if hasCode(err, codeNoResources) {
		err = fmt.Errorf("%w: %w", errComing, err)
	}
	if err != nil {
		return nil, fmt.Errorf("making the consumer of %q: %w", o.Stream, err)
	}
	return q, nil
}

func aside(stream string) string { return stream + "-ASIDE" }

// Message is what is kept.
type Message struct {
	// ID: within Options.Duplicates, a second message of the same ID is taken and forgotten.
	ID     string
	Header map[string]string
	Data   []byte
}

// MaxBytes is the greatest size of a message with its header.
func (q *Queue) MaxBytes() int64 { return q.conn.MaxPayload() }

// Kept is what became of a message: its place in the stream, and whether one of its ID is kept already.
type Kept struct {
	Sequence  uint64
	Duplicate bool
}

// Publish keeps m. Errors are ErrFull, ErrTooLarge, that of ctx and
// those of the connection; after any but ErrTooLarge m may be kept all the same.
func (q *Queue) Publish(ctx context.Context, m Message) (Kept, error) {
	ctx, cancel := context.WithTimeout(ctx, q.options.Patience)
	defer cancel()
	msg := nats.NewMsg(subject(q.options.Stream))
	msg.Data = m.Data
	for name, value := range m.Header {
		msg.Header.Set(name, value)
	}
	size := int64(msg.Size()) + int64(len(m.ID)) + headerRoom
	if size > q.MaxBytes() || size > q.options.InFlight {
		return Kept{}, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, min(q.MaxBytes(), q.options.InFlight))
	}
	if err := q.inFlight.Acquire(ctx, size); err != nil {
		q.counts.full.Add(1)
		return Kept{}, fmt.Errorf("%w: %d bytes wait to be written: %w", ErrFull, q.options.InFlight, err)
	}
	defer q.inFlight.Release(size)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ack, err := q.js.PublishMsg(ctx, msg, jetstream.WithMsgID(m.ID))
		switch {
		case err == nil:
			q.counts.published.Add(1)
			if ack.Duplicate {
				q.counts.duplicates.Add(1)
			}
			return Kept{ack.Sequence, ack.Duplicate}, nil
		case !isBusy(err) && !isAway(err):
			q.counts.failed.Add(1)
			if isFull(err) {
				return Kept{}, fmt.Errorf("%w: %w", ErrFull, err)
			}
			return Kept{}, fmt.Errorf("writing to the queue: %w", err)
		}
		q.counts.retried.Add(1)
		select {
		case <-ctx.Done():
			if isAway(err) {
				q.counts.failed.Add(1)
				return Kept{}, fmt.Errorf("writing to the queue: %w", err)
			}
			q.counts.full.Add(1)
			return Kept{}, fmt.Errorf("%w: %w", ErrFull, err)
		case <-time.After(pause):
		}
	}
}

// headerRoom is more than the names of the headers that are added take.
const headerRoom = 256

// Codes of JetStream's errors.
const (
	codeTooManyRequests = 10167
	codeStoreFailed     = 10077 // the stream's own bounds among others
	codeNoStorage       = 10047
	codeNoResources     = 10023
	codeUnavailable     = 10008
	codeNotLeader       = 10009
	codeNoPeers         = 10005 // of those that there should be, too few have come yet
)

func isBusy(err error) bool { return hasCode(err, codeTooManyRequests) }
func isFull(err error) bool {
	return hasCode(err, codeStoreFailed) || hasCode(err, codeNoStorage) || hasCode(err, codeNoResources)
}

// isAway is whether there is nobody to answer, as while a cluster elects a leader.
func isAway(err error) bool {
	return errors.Is(err, errComing) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, context.DeadlineExceeded) || hasCode(err, codeUnavailable) || hasCode(err, codeNotLeader) ||
		hasCode(err, codeNoPeers)
}

func hasCode(err error, code jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == code
}
