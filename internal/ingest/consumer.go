package ingest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"outsight/internal/queue"
	"outsight/internal/store"
)

// Run appends the messages of the queue to the store, and frames to their log, until ctx ends or the store is closed.
func (i *Ingest) Run(ctx context.Context) error {
	if i.options.Frames == nil {
		return i.queue.Consume(ctx, i.process)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return i.queue.Consume(ctx, i.process) })
	group.Go(func() error { return i.options.Frames.Queue.Consume(ctx, i.processFrames) })
	return group.Wait()
}

// process appends a group of messages. They leave the queue once the store has them on the disk.
func (i *Ingest) process(ctx context.Context, group []*queue.Delivery) error {
	// Whatever the result: this process has survived these messages.
	defer i.suspects.end()
	for _, d := range group {
		if d.Done {
			continue
		}
		if d.Lost > 0 {
			i.admission.lost(d.Sequence)
		}
		if err := i.suspects.begin(d, d.Sequence); err != nil {
			d.DeadLetter(err.Error())
			i.admission.done(d.Header(headerID))
			d.Done = true
			i.counts.poison.Add(1)
			continue
		}
		if err := i.appendOne(ctx, d); err != nil {
			return err
		}
		i.admission.done(d.Header(headerID))
		d.Done = true
	}
	if err := i.store.Sync(); err != nil {
		return fmt.Errorf("writing the store to the disk: %w", err)
	}
	return nil
}

// appendOne appends a message, or makes it a dead letter if it can never be stored.
func (i *Ingest) appendOne(ctx context.Context, d *queue.Delivery) error {
	batch, err := i.batchOf(ctx, d)
	if err == nil {
		err = i.append(ctx, batch, d.Header(headerWhole) != "")
	}
	if !errors.Is(err, errPoison) {
		// After a panic, the batch may still be referenced, so it is not pooled.
		defer batch.release()
	}
	switch {
	case err == nil:
		i.counts.appended.Add(uint64(len(batch.Series)))
		return nil
	case errors.Is(err, store.ErrRejected):
		// The store counts the reasons. The other samples of the batch are stored.
		refused := uint64(0)
		var rejected *store.RejectedError
		if errors.As(err, &rejected) {
			refused = min(rejected.Samples, uint64(len(batch.Series)))
		}
		reported := min(i.admission.rejected(d.Header(headerID)), refused)
		i.reject(sender{tenant: d.Header(headerTenant)}, Refused, refused-reported, err.Error())
		i.counts.appended.Add(uint64(len(batch.Series)) - refused)
		i.options.Logger.Debug("the store refused some samples", "error", err)
		return nil
	case errors.Is(err, errPoison):
		i.options.Logger.Warn("a message cannot be stored: it is a dead letter now", "sequence", d.Sequence, "error", err)
		i.counts.poison.Add(1)
		d.DeadLetter(err.Error())
		return nil
	}
	return err
}

var errPoison = errors.New("message cannot be read")

// append is a store's Append with panics turned into errors: one message must not end the server repeatedly.
func (i *Ingest) append(ctx context.Context, b *Batch, whole bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v at %s", errPoison, p, debug.Stack())
		}
	}()
	if whole {
		return i.store.Append(ctx, b.Series)
	}
	return i.store.AppendPart(ctx, b.Series)
}

func (i *Ingest) batchOf(ctx context.Context, d *queue.Delivery) (b *Batch, err error) {
	if b := i.decoded.take(d.Header(headerID)); b != nil {
		return b, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v at %s", errPoison, p, debug.Stack())
		}
	}()
	received, err := strconv.ParseInt(d.Header(headerReceived), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: header %s: %w", errPoison, headerReceived, err)
	}
	size, _ := i.sizeOf(d.Data)
	body, err := i.decoder.DecodeAll(d.Data, i.bodies.get(size))
	if err != nil {
		return nil, fmt.Errorf("%w: decompressing: %w", errPoison, err)
	}
	defer i.bodies.put(body)
	tenant := d.Header(headerTenant)
	r := request{body: body, sender: sender{tenant: tenant}, batch: namedBatch(d.Header(headerID), tenant)}
	when := time.UnixMilli(received)
	if b, err = i.decode(ctx, r, when, when, math.MaxInt); errors.Is(err, errBusy) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", errPoison, err)
	}
	if length := d.Header(headerNames); length != "" {
		named, err := applyNames(d.Data, length, b.Series, i.decoder)
		switch {
		case errors.Is(err, errOtherSeries):
			i.options.Logger.Warn("a message is stored without the names in it", "sequence", d.Sequence, "error", err)
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errPoison, err)
		default:
			b.Series = named
		}
	}
	return b, nil
}
