package net

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
)

// pairReader removes the pairs of connections whose close no program saw; see pairing.h.
type pairReader struct {
	sweep                 func() error
	round, marking, found *ebpf.Variable
	// last round, and when it began.
	last uint32
	at   time.Time
	used atomic.Uint64
}

// pairInterval is the time between two rounds. An entry may take up room for as long in vain, and a round goes over all of the
// room that there is.
const pairInterval = 30 * time.Second

// begin makes the next sweep of connections mark what is there, if it is time.
func (r *pairReader) begin(now time.Time) (bool, error) {
	if r.sweep == nil || now.Sub(r.at) < pairInterval {
		return false, nil
	}
	r.at = now
	r.last++
	return true, errors.Join(r.round.Set(r.last), r.marking.Set(uint32(1)))
}

// end removes what was not marked.
func (r *pairReader) end() error {
	if err := errors.Join(r.marking.Set(uint32(0)), r.found.Set(uint64(0)), r.sweep()); err != nil {
		return err
	}
	var found uint64
	if err := r.found.Get(&found); err != nil {
		return err
	}
	r.used.Store(found)
	return nil
}
