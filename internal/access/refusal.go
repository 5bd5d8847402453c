package access

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"outsight/internal/model"
)

// turnedAway counts readers without a token, or with a wrong one.
type turnedAway struct {
	count atomic.Uint64
	// last is the latest, nil where there was none.
	last atomic.Pointer[model.Refusal]
}

// refuse answers a reader that has no token, or a wrong one, and counts it.
func (a *Authenticator) refuse(w http.ResponseWriter, r *http.Request) {
	a.readers.count.Add(1)
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	a.readers.last.Store(&model.Refusal{Last: time.Now(), From: host})
	unauthorized(w)
}

// RefusedReaders counts requests for the page's data, the API and the metrics that had no valid token. Senders' are counted by
// who takes them.
func (a *Authenticator) RefusedReaders() uint64 {
	if a == nil {
		return 0
	}
	return a.readers.count.Load()
}

// Refusals are the readers that were refused: at most one entry.
func (a *Authenticator) Refusals() []model.Refusal {
	if a.RefusedReaders() == 0 {
		return nil
	}
	r := model.Refusal{}
	// The count comes first, so that there may be none yet.
	if last := a.readers.last.Load(); last != nil {
		r = *last
	}
	r.What, r.Reason, r.Count = model.RefusedReaders, "unauthorized", a.RefusedReaders()
	return []model.Refusal{r}
}
