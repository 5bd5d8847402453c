package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Registry keeps small values by keys in a bucket of JetStream's key-value store.
type Registry struct {
	bucket jetstream.KeyValue
	name   string
}

// OpenRegistry makes the bucket if it is missing. Its copies are as many as it has, and replicas for a new one (1).
func OpenRegistry(ctx context.Context, conn *nats.Conn, bucket string, replicas int) (*Registry, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("opening the bucket %q: %w", bucket, err)
	}
	kv, err := js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket, History: 1, Replicas: max(replicas, 1),
			MaxBytes: registryBytes})
	}
	if err != nil {
		return nil, fmt.Errorf("opening the bucket %q: %w", bucket, err)
	}
	return &Registry{kv, bucket}, nil
}

// registryBytes bounds a bucket.
const registryBytes = 256 << 20

// All are the values by their keys.
func (r *Registry) All(ctx context.Context) (map[string][]byte, error) {
	w, err := r.bucket.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("reading the bucket %q: %w", r.name, err)
	}
	defer func() { _ = w.Stop() }() // nothing more is wanted of it
	all := map[string][]byte{}
	for {
		select {
		case e := <-w.Updates():
			if e == nil { // all that was there
				return all, nil
			}
			all[e.Key()] = e.Value()
		case <-ctx.Done():
			return nil, fmt.Errorf("reading the bucket %q: %w", r.name, ctx.Err())
		}
	}
}

// Put stores a value.
func (r *Registry) Put(ctx context.Context, key string, value []byte) error {
	if _, err := r.bucket.Put(ctx, key, value); err != nil {
		return fmt.Errorf("writing %q to the bucket %q: %w", key, r.name, err)
	}
	return nil
}

// Delete removes a value, if it is there, and what is kept of it.
func (r *Registry) Delete(ctx context.Context, key string) error {
	if err := r.bucket.Purge(ctx, key); err != nil {
		return fmt.Errorf("removing %q from the bucket %q: %w", key, r.name, err)
	}
	return nil
}
