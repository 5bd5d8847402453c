package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// leaseTime is for how long a lease holds that is not renewed.
const leaseTime = 1500 * time.Millisecond

// pendingBytes bounds the messages that wait to be taken.
const pendingBytes = 64 << 20

// openWait is after how long a cluster is asked once more for its bucket: a request that comes while it chooses a leader may
// never be answered.
const openWait = 5 * time.Second

// Group are processes that know of each other: each has a lease in a bucket of JetStream's key-value store, which the
// store removes when it is not renewed. They tell each other messages, which are not kept.
type Group struct {
	conn    *nats.Conn
	bucket  jetstream.KeyValue
	name    string
	dropped atomic.Uint64
}

// OpenGroup makes the bucket of a group if it is missing. Its copies are as many as it has, and replicas for a new one (1).
// It tries until ctx ends.
func OpenGroup(ctx context.Context, conn *nats.Conn, name string, replicas int) (*Group, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("opening the group %q: %w", name, err)
	}
	open := func() (jetstream.KeyValue, error) {
		ctx, cancel := context.WithTimeout(ctx, openWait)
		defer cancel()
		kv, err := js.KeyValue(ctx, name)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, History: 1, Replicas: max(replicas, 1),
				TTL: leaseTime, MaxBytes: 1 << 20})
		}
		return kv, err
	}
	kv, err := open()
	for errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		kv, err = open()
	}
	if err != nil {
		return nil, fmt.Errorf("opening the group %q: %w", name, err)
	}
	return &Group{conn: conn, bucket: kv, name: name}, nil
}

// Renew takes the lease of a member, or renews it. Its term is the revision of the bucket: it is greater than that of all
// leases that were taken or renewed before. Members are those that have a lease, in order.
func (g *Group) Renew(ctx context.Context, member string) (term uint64, members []string, err error) {
	if term, err = g.bucket.Put(ctx, member, nil); err != nil {
		return 0, nil, fmt.Errorf("renewing the lease of %q in %q: %w", member, g.name, err)
	}
	all, err := g.bucket.ListKeys(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("reading the leases of %q: %w", g.name, err)
	}
	defer func() { _ = all.Stop() }() // nothing more is wanted of it
	for {
		select {
		case key, more := <-all.Keys():
			if more {
				members = append(members, key)
				continue
			}
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("reading the leases of %q: %w", g.name, ctx.Err())
		}
		break
	}
	slices.Sort(members)
	return term, slices.Compact(members), nil
}

// Leave gives the lease of a member back.
func (g *Group) Leave(ctx context.Context, member string) error {
	if err := g.bucket.Purge(ctx, member); err != nil {
		return fmt.Errorf("giving the lease of %q in %q back: %w", member, g.name, err)
	}
	return nil
}

func (g *Group) subject() string { return "outsight.group." + g.name }

// Send tells the others, who get it if they can.
func (g *Group) Send(message []byte) error {
	if err := g.conn.Publish(g.subject(), message); err != nil {
		return fmt.Errorf("telling the group %q: %w", g.name, err)
	}
	return nil
}

// Receive calls take with what is sent, by this process too, until ctx ends.
func (g *Group) Receive(ctx context.Context, take func(message []byte)) error {
	s, err := g.conn.SubscribeSync(g.subject())
	if err != nil {
		return fmt.Errorf("listening to the group %q: %w", g.name, err)
	}
	defer func() { _ = s.Unsubscribe() }() // the connection may be gone
	if err := s.SetPendingLimits(-1, pendingBytes); err != nil {
		return fmt.Errorf("listening to the group %q: %w", g.name, err)
	}
	for {
		m, err := s.NextMsgWithContext(ctx)
		if dropped, e := s.Dropped(); e == nil && dropped > 0 {
			g.dropped.Store(uint64(dropped))
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrSlowConsumer): // what was lost is counted
		case err != nil:
			return fmt.Errorf("listening to the group %q: %w", g.name, err)
		default:
			take(m.Data)
		}
	}
}

// Dropped is how many messages were lost because they were not taken fast enough.
func (g *Group) Dropped() uint64 { return g.dropped.Load() }
