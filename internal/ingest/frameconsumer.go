package ingest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/queue"
)

// processFrames appends a group of messages to the log at once. They leave the queue once the log has them on the disk.
func (i *Ingest) processFrames(ctx context.Context, group []*queue.Delivery) error {
	defer i.frameSuspects.end()
	var batch []framelog.Encoded
	var of []*queue.Delivery
	// flush is before a message that has to be alone: a frame needs its key frame before it.
	flush := func() error {
		err := i.appendFrames(ctx, batch, of)
		batch, of = nil, nil
		return err
	}
	for _, d := range group {
		if d.Done {
			continue
		}
		alone, last := i.frameSuspects.has(d), group[len(group)-1].Sequence
		if alone {
			if err := flush(); err != nil {
				return err
			}
			last = d.Sequence
		}
		if len(batch) == 0 {
			if err := i.frameSuspects.begin(d, last); err != nil {
				i.setAside(d, err)
				continue
			}
		}
		e, err := encodedOf(d)
		if err != nil {
			i.setAside(d, err)
			continue
		}
		batch, of = append(batch, e), append(of, d)
		if alone {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// setAside makes a message a dead letter.
func (i *Ingest) setAside(d *queue.Delivery, err error) {
	i.options.Logger.Warn("a message cannot be stored: it is a dead letter now", "sequence", d.Sequence, "error", err)
	i.counts.poison.Add(1)
	d.DeadLetter(err.Error())
	d.Done = true
}

func encodedOf(d *queue.Delivery) (e framelog.Encoded, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v at %s", errPoison, p, debug.Stack())
		}
	}()
	e = framelog.Encoded{Tenant: d.Header(headerTenant), Data: d.Data}
	if e.Header, err = frame.DecodeHeader(d.Data); err != nil {
		err = fmt.Errorf("%w: %w", errPoison, err)
	}
	return e, err
}

// appendFrames appends frames to the log. If the log panics, it gets each alone, and those that make it panic are dead
// letters.
func (i *Ingest) appendFrames(ctx context.Context, batch []framelog.Encoded, of []*queue.Delivery) error {
	if len(batch) == 0 {
		return nil
	}
	err := i.appendToLog(ctx, batch)
	switch {
	case err == nil:
	case errors.Is(err, framelog.ErrRejected):
		// The log counts them. The others are stored.
		i.options.Logger.Warn("frames were not stored", "error", err)
	case errors.Is(err, errPoison) && len(batch) > 1:
		for n := range batch {
			if err := i.appendFrames(ctx, batch[n:n+1], of[n:n+1]); err != nil {
				return err
			}
		}
		return nil
	case errors.Is(err, errPoison):
		i.setAside(of[0], err)
		return nil
	default:
		return err
	}
	for _, d := range of {
		d.Done = true
	}
	i.counts.framesStored.Add(uint64(len(batch)))
	return nil
}

// appendToLog is the log's Append with panics turned into errors.
func (i *Ingest) appendToLog(ctx context.Context, batch []framelog.Encoded) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v at %s", errPoison, p, debug.Stack())
		}
	}()
	return i.options.Frames.Log.Append(ctx, batch)
}
