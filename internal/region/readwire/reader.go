package readwire

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"

	"outsight/internal/region"
)

// KeyOf is the key of packets that follows from a key of regions: the first 16 bytes of the HMAC-SHA-256 of
// "outsight region read" under its secret. So one file of keys serves all transports, and none tells another's key.
func KeyOf(k region.Key) (Key, error) {
	if k.ID > math.MaxUint16 {
		return Key{}, fmt.Errorf("key %d is for packets, want a number up to %d", k.ID, math.MaxUint16)
	}
	mac := hmac.New(sha256.New, k.Secret)
	mac.Write([]byte("outsight region read"))
	return Key{ID: uint16(k.ID), Secret: [16]byte(mac.Sum(nil))}, nil
}

// Reader is a Client as a region.Reader. A read that the kernel answered for in part only is an error as a whole.
type Reader struct{ *Client }

// Read implements region.Reader.
func (r Reader) Read(ctx context.Context, id uint32, offset uint64, into []byte) error {
	return r.ReadAll(ctx, []region.Read{{Region: id, Offset: offset, Into: into}})
}

// ReadAll implements region.Reader. What is sent again comes later than what was sent after it: so the pieces of an
// ordered read are asked for one after the other.
func (r Reader) ReadAll(ctx context.Context, reads []region.Read) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for stage := range region.Stages(reads) {
		if err := r.readStage(ctx, stage); err != nil {
			return asRegions(err)
		}
	}
	return nil
}

// readStage reads in any order. The caller holds mu.
func (r Reader) readStage(ctx context.Context, reads []region.Read) error {
	together := r.pieces[:0]
	for _, read := range reads {
		before := len(together)
		together = appendPieces(together, read.Region, read.Offset, read.Into)
		if pieces := together[before:]; read.Ordered && len(pieces) > 1 {
			together = together[:before]
			for i := range pieces {
				if err := r.readAll(ctx, pieces[i:i+1]); err != nil {
					return err
				}
			}
		}
	}
	r.pieces = together
	err := r.readAll(ctx, together)
	clear(together) // what was read into is not kept
	return err
}

// asRegions is an error as package region has it.
func asRegions(err error) error {
	var status *StatusError
	switch {
	case errors.Is(err, ErrNoAnswer):
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	case errors.As(err, &status) && status.Status == UnknownRegion:
		return fmt.Errorf("%w: %w", region.ErrGone, err)
	case errors.As(err, &status) && status.Status == OutOfBounds:
		return fmt.Errorf("%w: %w", region.ErrBounds, err)
	}
	return err
}
