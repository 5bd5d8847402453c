package ingest

import (
	"sync"
	"time"
)

// clockVote finds out whether senders have this server's time, while the store has samples of the future and takes
// none: then it is what is stored that is wrong.
type clockVote struct {
	// mu guards the rest.
	mu sync.Mutex
	// agree and disagree are the senders of a trial that began at since, by uptime.
	agreeing, disagreeing map[string]struct{}
	since           time.Duration
}

// maxVoters bounds the senders that are told apart.
const maxVoters = 1000

// add takes the time of a sender: it is this server's, or later. It answers whether a trial is over by which more than
// two of three senders have this server's time.
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

// compareClocks is told of a request that is not taken because what is stored is of the future.
func (i *Ingest) compareClocks(r *request, b *Batch, received, doubtful time.Time) {
	newest := time.Time{}
	for n := range b.Series {
		if t := b.Series[n].Time; t.After(newest) {
			newest = t
		}
	}
	// What was spooled for hours says nothing, nor does anybody while this server's own clock is not believed.
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
