// Package queue keeps messages in a NATS JetStream stream until a consumer has processed them. It is the client
// alone: the NATS server may be in the same process or be a cluster elsewhere.
//
// A message is durable when Publish has returned without an error. It is delivered at least once, in order, and
// deleted when the consumer has acknowledged it.
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
	// MaxBytes bounds the pending messages (1 GiB). A full queue refuses new ones and loses no old one.
	MaxBytes int64
	// MaxDeadLetterBytes bounds the dead letters (64 MiB); the oldest are removed first.
	MaxDeadLetterBytes int64
	// InFlight bounds the bytes of messages that are being published (32 MiB).
	InFlight int64
	// PublishTimeout is how long Publish waits for InFlight and for the server (5 s).
	PublishTimeout time.Duration
	// Duplicates is how long a message's ID is remembered (2 min).
	Duplicates time.Duration
	// AckWait is after how long without an acknowledgement or a sign of progress a message is redelivered (1 min).
	AckWait time.Duration
	// Replicas of the streams in a cluster (those of existing streams, 1 for new ones).
	Replicas int
	Logger   *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Stream = cmp.Or(o.Stream, "OUTSIGHT")
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<30)
	o.MaxDeadLetterBytes = cmp.Or(o.MaxDeadLetterBytes, 64<<20)
	o.InFlight = cmp.Or(o.InFlight, 32<<20)
	o.PublishTimeout = cmp.Or(o.PublishTimeout, 5*time.Second)
	o.Duplicates = cmp.Or(o.Duplicates, 2*time.Minute)
	o.AckWait = cmp.Or(o.AckWait, time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// consumerName is the only consumer of a stream.
const consumerName = "store"

// Queue is a stream and its consumer. Its methods may be called at the same time, Consume once.
type Queue struct {
	options  Options
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	inFlight *semaphore.Weighted
	// lastRecovered is the sequence of the last message that was in the stream at Open.
	lastRecovered uint64
	// next is the sequence expected next, deleted are those after it that were deleted before Open. Only Consume uses
	// both.
	next    uint64
	deleted map[uint64]bool
	counts  struct {
		published, duplicates, retried, full, failed, acknowledged, redelivered, deadLettered, lost atomic.Uint64
	}
}

// replicas is wanted, else the number of an existing stream, else 1.
func replicas(ctx context.Context, js jetstream.JetStream, name string, wanted int) int {
	if wanted > 0 {
		return wanted
	}
	s, err := js.Stream(ctx, name)
	if err != nil {
		return 1 // creating the stream reports what is wrong
	}
	return max(1, s.CachedInfo().Config.Replicas)
}

// Open creates the stream if it is missing, and takes it over from any other Queue: one process reads a stream. It
// retries while a cluster starts or has no leader, until ctx ends.
func Open(ctx context.Context, conn *nats.Conn, o Options) (*Queue, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("opening the queue: %w", err)
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		attempt, cancel := context.WithTimeout(ctx, openTimeout)
		q, err := open(attempt, conn, js, o.withDefaults())
		cancel()
		if err == nil || ctx.Err() != nil || !isUnavailable(err) {
			return q, err
		}
		sleep(ctx, pause)
	}
}

// errReplicating means that the servers chosen for the consumer do not have the stream yet.
var errReplicating = errors.New("the stream is being replicated")

// openTimeout bounds an attempt to open a stream: a cluster never answers requests that arrived while it had no leader.
const openTimeout = 10 * time.Second

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
		Name: deadLetterStream(o.Stream), Subjects: []string{subject(deadLetterStream(o.Stream))},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxBytes: o.MaxDeadLetterBytes, Storage: jetstream.FileStorage,
		Replicas: replicas(ctx, js, deadLetterStream(o.Stream), o.Replicas),
	})
	if err != nil {
		return nil, fmt.Errorf("making the stream %q: %w", deadLetterStream(o.Stream), err)
	}
	// A new consumer starts with the oldest message at once. That of a killed server would deliver the unacknowledged
	// messages only after AckWait, behind younger ones.
	if err := q.stream.DeleteConsumer(ctx, consumerName); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("taking over the consumer of %q: %w", o.Stream, err)
	}
	info, err := q.stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return nil, fmt.Errorf("asking for the state of %q: %w", o.Stream, err)
	}
	q.lastRecovered, q.next = info.State.LastSeq, info.State.FirstSeq
	q.deleted = make(map[uint64]bool, len(info.State.Deleted))
	for _, seq := range info.State.Deleted {
		q.deleted[seq] = true
	}
	_, err = q.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, AckWait: o.AckWait, MaxDeliver: -1,
		MaxAckPending: 100_000,
	})
	if hasCode(err, codeNoResources) {
		err = fmt.Errorf("%w: %w", errReplicating, err)
	}
	if err != nil {
		return nil, fmt.Errorf("making the consumer of %q: %w", o.Stream, err)
	}
	return q, nil
}

func deadLetterStream(stream string) string { return stream + "-ASIDE" }

// Message is what Publish stores.
type Message struct {
	// ID identifies the message: within Options.Duplicates, another one with the same ID is acknowledged and dropped.
	ID     string
	Header map[string]string
	Data   []byte
}

// MaxBytes is the greatest size of a message, in bytes, header included.
func (q *Queue) MaxBytes() int64 { return q.conn.MaxPayload() }

// Receipt is the result of Publish: the message's sequence in the stream, or, for a Duplicate, that of the first
// message with its ID.
type Receipt struct {
	Sequence  uint64
	Duplicate bool
}

// Publish stores m. Errors are ErrFull, ErrTooLarge, that of ctx and those of the connection; after any but ErrTooLarge
// m may have been stored all the same.
func (q *Queue) Publish(ctx context.Context, m Message) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, q.options.PublishTimeout)
	defer cancel()
	msg := nats.NewMsg(subject(q.options.Stream))
	msg.Data = m.Data
	for name, value := range m.Header {
		msg.Header.Set(name, value)
	}
	size := int64(msg.Size()) + int64(len(m.ID)) + headerReserve
	if size > q.MaxBytes() || size > q.options.InFlight {
		return Receipt{}, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, min(q.MaxBytes(), q.options.InFlight))
	}
	if err := q.inFlight.Acquire(ctx, size); err != nil {
		q.counts.full.Add(1)
		return Receipt{}, fmt.Errorf("%w: %d bytes are in flight, which is the limit: %w", ErrFull, q.options.InFlight, err)
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
			return Receipt{ack.Sequence, ack.Duplicate}, nil
		case !isBusy(err) && !isUnavailable(err):
			q.counts.failed.Add(1)
			if isFull(err) {
				return Receipt{}, fmt.Errorf("%w: %w", ErrFull, err)
			}
			return Receipt{}, fmt.Errorf("writing to the queue: %w", err)
		}
		q.counts.retried.Add(1)
		select {
		case <-ctx.Done():
			if isUnavailable(err) {
				q.counts.failed.Add(1)
				return Receipt{}, fmt.Errorf("writing to the queue: %w", err)
			}
			q.counts.full.Add(1)
			return Receipt{}, fmt.Errorf("%w: %w", ErrFull, err)
		case <-time.After(pause):
		}
	}
}

// headerReserve is more than the added headers take, in bytes.
const headerReserve = 256

// Codes of JetStream's errors.
const (
	codeTooManyRequests = 10167
	codeStoreFailed     = 10077 // the stream's own bounds among others
	codeNoStorage       = 10047
	codeNoResources     = 10023
	codeUnavailable     = 10008
	codeNotLeader       = 10009
	codeNoPeers         = 10005 // too few servers of the cluster have started
)

func isBusy(err error) bool { return hasCode(err, codeTooManyRequests) }
func isFull(err error) bool {
	return hasCode(err, codeStoreFailed) || hasCode(err, codeNoStorage) || hasCode(err, codeNoResources)
}

// isUnavailable reports whether no server could answer, for example during the election of a leader.
func isUnavailable(err error) bool {
	return errors.Is(err, errReplicating) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, context.DeadlineExceeded) || hasCode(err, codeUnavailable) || hasCode(err, codeNotLeader) ||
		hasCode(err, codeNoPeers)
}

func hasCode(err error, code jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == code
}
