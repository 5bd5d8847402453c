package ingest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"outsight/internal/queue"
	"outsight/internal/store"
)

// Run brings what is in the queue into the store until ctx ends or the store is closed.
func (i *Ingest) Run(ctx context.Context) error {
	return i.queue.Consume(ctx, i.process)
}

// process appends a group of messages. They leave the queue once the store has them on the disk.
func (i *Ingest) process(ctx context.Context, group []*queue.Delivery) error {
	// Whatever came of it: this process has survived these messages.
	defer i.clearSuspect()
	for _, d := range group {
		if d.Done {
			continue
		}
		if d.Lost > 0 {
			i.admission.lost(d.Sequence)
		}
		if err := i.suspected(d); err != nil {
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

// appendOne appends a message, or sets it aside where that can never work.
func (i *Ingest) appendOne(ctx context.Context, d *queue.Delivery) error {
	batch, err := i.batchOf(ctx, d)
	if err == nil {
		err = i.append(ctx, batch, d.Header(headerWhole) != "")
	}
	if !errors.Is(err, errPoison) {
		// Whoever panicked may have kept anything of it.
		defer batch.release()
	}
	switch {
	case err == nil:
		i.counts.appended.Add(uint64(len(batch.Series)))
		return nil
	case errors.Is(err, store.ErrRejected):
		// The store counts why. The rest of the batch is in it.
		refused := uint64(0)
		var rejected *store.RejectedError
		if errors.As(err, &rejected) {
			refused = min(rejected.Samples, uint64(len(batch.Series)))
		}
		told := min(i.admission.rejected(d.Header(headerID)), refused)
		i.reject(sender{tenant: d.Header(headerTenant)}, Refused, refused-told, err.Error())
		i.counts.appended.Add(uint64(len(batch.Series)) - refused)
		i.options.Logger.Debug("the store refused some samples", "error", err)
		return nil
	case errors.Is(err, errPoison):
		i.options.Logger.Warn("a message is set aside", "sequence", d.Sequence, "error", err)
		i.counts.poison.Add(1)
		d.DeadLetter(err.Error())
		return nil
	}
	return err
}

var errPoison = errors.New("message cannot be read")

// append is a store's Append, whose panics are errors: one message must not end the server again and again.
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

// maxSuspectAttempts is how often the process may end while it works on one and the same message.
const maxSuspectAttempts = 3

// suspected notes on the disk that the work on a message begins that is older than this process, and fails where that
// was noted often enough before: then the process never came to its end.
func (i *Ingest) suspected(d *queue.Delivery) error {
	if i.options.Dir == "" || !d.Recovered {
		return nil
	}
	tries := uint64(0)
	if d.Sequence == i.suspect.sequence {
		tries = i.suspect.tries
	}
	if tries >= maxSuspectAttempts {
		return fmt.Errorf("the server ended %d times while it worked on this message", tries)
	}
	if err := os.WriteFile(i.suspectFile(), fmt.Appendf(nil, "%d %d\n", d.Sequence, tries+1), 0o600); err != nil {
		i.options.Logger.Warn("cannot note which message is worked on", "error", err)
	}
	return nil
}

// readSuspect reads what the process before this one was working on, if anything.
func (i *Ingest) readSuspect() {
	if text, err := os.ReadFile(i.suspectFile()); i.options.Dir != "" && err == nil {
		fmt.Sscanf(string(text), "%d %d", &i.suspect.sequence, &i.suspect.tries)
	}
}

func (i *Ingest) clearSuspect() {
	if i.options.Dir != "" {
		os.Remove(i.suspectFile())
	}
}

func (i *Ingest) suspectFile() string { return filepath.Join(i.options.Dir, "suspect") }
