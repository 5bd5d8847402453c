package ingest

import (
	"sync"
	"time"
)

// clockVote decides whether the senders agree with this server's clock, while the store rejects samples because it
// already has some of the future: if they agree, the stored ones are wrong.
type clockVote struct {
	// mu guards the rest.
	mu sync.Mutex
	// agreeing and disagreeing are the senders of a trial that began at since, by uptime.
	agreeing, disagreeing map[string]struct{}
	since                 time.Duration
}

// maxVoters bounds the senders counted on each side.
const maxVoters = 1000

// add counts a sender, whose clock agrees with this server's or is ahead. It reports whether a vote is over that more
// than two thirds of the senders won for this server's clock.
func (a *clockVote) add(sender string, agrees bool, uptime time.Duration) (agreed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.agreeing == nil || uptime-a.since > 2*clockProbation {
		a.agreeing, a.disagreeing, a.since = map[string]struct{}{}, map[string]struct{}{}, uptime
	}
	into := a.disagreeing
	if agrees {
		into = a.agreeing
	}
	if len(into) < maxVoters {
		into[sender] = struct{}{}
	}
	if uptime-a.since < clockProbation {
		return false
	}
	agreed = len(a.agreeing) > 2*len(a.disagreeing)
	a.agreeing = nil
	return agreed
}

// compareClocks counts the vote of a request that was refused because the store has samples of the future.
func (i *Ingest) compareClocks(r *request, b *Batch, received, doubtful time.Time) {
	newest := time.Time{}
	for n := range b.Series {
		if t := b.Series[n].Time; t.After(newest) {
			newest = t
		}
	}
	// A batch that was spooled for hours does not vote, nor does any while this server's own clock is suspect.
	agrees := newest.After(received.Add(-i.options.Limits.Ahead))
	if later := b.Rejected[Future] > 0; !received.Equal(doubtful) || !agrees && !later {
		return
	}
	name := r.address
	if n := len(r.batch) - batchNumberBytes; n > 0 {
		name = r.batch[:n]
	}
	if i.clockVote.add(r.tenant+"/"+name, agrees && b.Rejected[Future] == 0, i.options.Uptime()) {
		i.options.Logger.Error("senders have this server's time: the samples of the future in the store are wrong and are set aside")
		i.options.FutureIsWrong()
	}
}
