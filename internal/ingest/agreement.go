package ingest

import (
	"sync"
	"time"
)

// agreement finds out whether senders have this server's time, while the store has samples of the future and takes
// none: then it is what is stored that is wrong.
type agreement struct {
	// mu guards the rest.
	mu sync.Mutex
	// agree and disagree are the senders of a trial that began at since, by uptime.
	agree, disagree map[string]struct{}
	since           time.Duration
}

// maxWitnesses bounds the senders that are told apart.
const maxWitnesses = 1000

// note takes the time of a sender: it is this server's, or later. It answers whether a trial is over by which more than
// two of three senders have this server's time.
func (a *agreement) note(sender string, agrees bool, uptime time.Duration) (agreed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.agree == nil || uptime-a.since > 2*clockTrial {
		a.agree, a.disagree, a.since = map[string]struct{}{}, map[string]struct{}{}, uptime
	}
	into := a.disagree
	if agrees {
		into = a.agree
	}
	if len(into) < maxWitnesses {
		into[sender] = struct{}{}
	}
	if uptime-a.since < clockTrial {
		return false
	}
	agreed = len(a.agree) > 2*len(a.disagree)
	a.agree = nil
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
	if i.agreement.note(r.tenant+"/"+name, agrees && b.Rejected[Future] == 0, i.options.Uptime()) {
		i.options.Logger.Error("senders have this server's time: the samples of the future in the store are wrong and are set aside")
		i.options.FutureIsWrong()
	}
}
