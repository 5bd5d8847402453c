package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// Bounds of one group of deliveries.
	groupMessages = 256
	groupBytes    = 16 << 20
	groupTime     = 100 * time.Millisecond
)

// PullLength is how many messages a connection has to hold for one pull: those of a group, and those about it. A queue
// makes a channel of that length many times a second; the library's default takes half a megabyte.
const PullLength = 2 * groupMessages

// Delivery is a message as the consumer gets it.
type Delivery struct {
	Header func(name string) string
	Data   []byte
	// Sequence of the message in the stream. Recovered messages were in the stream when the queue was opened: an earlier
	// process may have processed a part of them.
	Sequence  uint64
	Recovered bool
	// Lost is how many messages directly before this one the NATS server could not read.
	Lost uint64
	// Done is set and read by the consumer alone: the message is processed, so that a retry of its group skips it.
	Done bool
	// deadLetterReason is empty unless the message is to become a dead letter.
	deadLetterReason string
	msg              *nats.Msg
}

// DeadLetter keeps the message apart from those that wait, for a person to look at, and never hands it out again.
func (d *Delivery) DeadLetter(reason string) { d.deadLetterReason = reason }

// Consume calls handle with groups of messages, in order, until ctx ends. A group is acknowledged when handle returns
// nil. When it returns an error, it is called with the same group again, after a backoff, without a limit of attempts.
func (q *Queue) Consume(ctx context.Context, handle func(context.Context, []*Delivery) error) error {
	for ctx.Err() == nil {
		group, err := q.fetch(ctx)
		if err != nil {
			q.options.Logger.Warn("reading the queue failed: trying again", "error", err)
			sleep(ctx, time.Second)
			continue
		}
		if len(group) == 0 {
			continue
		}
		if err := q.process(ctx, group, handle); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) fetch(ctx context.Context) ([]*Delivery, error) {
	messages, err := q.pull(ctx)
	if err != nil && len(messages) == 0 {
		return nil, err
	}
	var group []*Delivery
	for _, msg := range messages {
		d := &Delivery{Data: msg.Data, Header: msg.Header.Get, msg: msg}
		if meta, err := msg.Metadata(); err == nil {
			d.Sequence, d.Recovered = meta.Sequence.Stream, meta.Sequence.Stream <= q.lastRecovered
			if meta.NumDelivered > 1 {
				q.counts.redelivered.Add(1)
			}
			d.Lost = q.countLost(meta.Sequence.Stream)
		}
		group = append(group, d)
	}
	return group, nil
}

// countLost returns how many messages between the last delivery and this one were never delivered: the NATS server has
// lost them.
func (q *Queue) countLost(seq uint64) (lost uint64) {
	if seq < q.next {
		return 0 // redelivered
	}
	if seq > q.next {
		lost = seq - q.next
		for deleted := range q.deleted {
			if q.next <= deleted && deleted < seq {
				lost--
			}
		}
	}
	if lost > 0 {
		q.counts.lost.Add(lost)
		q.options.Logger.Error("messages of the queue are lost: the NATS server could not read them", "messages", lost,
			"first", q.next, "last", seq-1)
	}
	q.next = seq + 1
	return lost
}

func (q *Queue) process(ctx context.Context, group []*Delivery, handle func(context.Context, []*Delivery) error) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := handle(ctx, group)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		q.options.Logger.Warn("messages could not be stored: they stay in the queue", "messages", len(group), "error", err)
		for _, d := range group {
			// After a failure here the message is redelivered after AckWait, which is harmless.
			_ = d.msg.InProgress()
		}
		sleep(ctx, pause)
	}
	for _, d := range group {
		if d.deadLetterReason != "" {
			if err := q.publishDeadLetter(ctx, d); err != nil {
				q.options.Logger.Warn("a dead letter could not be written: the message stays in the queue", "error", err)
				continue
			}
			q.counts.deadLettered.Add(1)
		}
		if err := d.msg.Ack(); err == nil {
			q.counts.acknowledged.Add(1)
		}
	}
	return nil
}

func (q *Queue) publishDeadLetter(ctx context.Context, d *Delivery) error {
	msg := nats.NewMsg(subject(deadLetterStream(q.options.Stream)))
	msg.Data = d.Data
	for name, values := range d.msg.Header {
		if !strings.HasPrefix(name, "Nats-") {
			msg.Header[name] = values
		}
	}
	msg.Header.Set("Outsight-Aside", d.deadLetterReason)
	if _, err := q.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("writing to %q: %w", msg.Subject, err)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
