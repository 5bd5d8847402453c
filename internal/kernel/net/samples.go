package net

import (
	"fmt"
	"time"

	"outsight/internal/kernel/host"
)

// sampleInterval is how long a round of samples lasts. It begins with the wall clock's, so that all hosts sample the
// same connections; see samples.h.
const sampleInterval = time.Minute

// beginSamples begins the round of a time.
func (r *edgeReader) beginSamples(now time.Time) error {
	round := uint32(now.Unix() / int64(sampleInterval/time.Second))
	if round == r.sampleRound {
		return nil
	}
	if err := r.objects.SampleRound.Set(round); err != nil {
		return fmt.Errorf("beginning a round of samples: %w", err)
	}
	r.sampleRound = round
	return nil
}

// samplesOf are the hashes of some connections of an edge.
func samplesOf(edge *edgesEdge) (hashes []uint64) {
	for i := range edge.Samples {
		if hash := host.Load(&edge.Samples[i]); hash != 0 {
			hashes = append(hashes, hash)
		}
	}
	return hashes
}
