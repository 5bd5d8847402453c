package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// What is handed to the consumer at a time is bounded by these.
	groupMessages = 256
	groupBytes    = 16 << 20
	groupTime     = 100 * time.Millisecond
)

// Delivery is a message that is handed to the consumer.
type Delivery struct {
	Header func(name string) string
	Data   []byte
	// Sequence of the message in the stream. Leftover ones were there when the queue was opened: a process before this
	// one may have begun with them.
	Sequence uint64
	Leftover bool
	// Lost is how many messages just before it the queue's server could not read.
	Lost uint64
	// Done is the consumer's own: that it has dealt with the message, should the group be handed to it again.
	Done bool
	// aside is why it is set aside, empty otherwise.
	aside string
	msg   *nats.Msg
}

// SetAside keeps the message apart from those that wait, for a person to look at, and never hands it out again.
func (d *Delivery) SetAside(why string) { d.aside = why }

// Consume hands groups of messages to handle, in order, until ctx ends. All of a group are acknowledged when handle
// returns nil. When it fails, the same group is handed to it again after a pause, as long as it takes.
func (q *Queue) Consume(ctx context.Context, handle func(context.Context, []*Delivery) error) error {
	for ctx.Err() == nil {
		group, err := q.fetch(ctx)
		if err != nil {
			q.options.Logger.Warn("reading the queue does not work", "error", err)
			wait(ctx, time.Second)
			continue
		}
		if len(group) == 0 {
			continue
		}
		if err := q.deal(ctx, group, handle); err != nil {
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
			d.Sequence, d.Leftover = meta.Sequence.Stream, meta.Sequence.Stream <= q.leftover
			if meta.NumDelivered > 1 {
				q.counts.redelivered.Add(1)
			}
			d.Lost = q.follow(meta.Sequence.Stream)
		}
		group = append(group, d)
	}
	return group, nil
}

// follow counts the messages between the one before and this one that were never handed out: the server has lost them.
func (q *Queue) follow(seq uint64) (lost uint64) {
	if seq < q.next {
		return 0 // it was handed out before
	}
	if seq > q.next {
		lost = seq - q.next
		for gone := range q.deleted {
			if q.next <= gone && gone < seq {
				lost--
			}
		}
	}
	if lost > 0 {
		q.counts.lost.Add(lost)
		q.options.Logger.Error("messages of the queue are lost: its server could not read them", "messages", lost,
			"first", q.next, "last", seq-1)
	}
	q.next = seq + 1
	return lost
}

func (q *Queue) deal(ctx context.Context, group []*Delivery, handle func(context.Context, []*Delivery) error) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := handle(ctx, group)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		q.options.Logger.Warn("messages wait in the queue", "messages", len(group), "error", err)
		for _, d := range group {
			// What fails here is handed out again after AckWait, which does no harm.
			_ = d.msg.InProgress()
		}
		wait(ctx, pause)
	}
	for _, d := range group {
		if d.aside != "" {
			if err := q.setAside(ctx, d); err != nil {
				q.options.Logger.Warn("a message could not be set aside and stays in the queue", "error", err)
				continue
			}
			q.counts.aside.Add(1)
		}
		if err := d.msg.Ack(); err == nil {
			q.counts.acknowledged.Add(1)
		}
	}
	return nil
}

func (q *Queue) setAside(ctx context.Context, d *Delivery) error {
	msg := nats.NewMsg(subject(aside(q.options.Stream)))
	msg.Data = d.Data
	for name, values := range d.msg.Header {
		if !strings.HasPrefix(name, "Nats-") {
			msg.Header[name] = values
		}
	}
	msg.Header.Set("Outsight-Aside", d.aside)
	if _, err := q.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("writing to %q: %w", msg.Subject, err)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
