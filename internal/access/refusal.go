package access

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"outsight/internal/model"
)

// turnedAway counts requests that were refused for one reason.
type turnedAway struct {
	count atomic.Uint64
	// last is the latest, nil where there was none.
	last atomic.Pointer[model.Refusal]
}

func (t *turnedAway) add(r *http.Request) {
	t.count.Add(1)
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	t.last.Store(&model.Refusal{Last: time.Now(), From: host})
}

// refusals is at most one entry.
func (t *turnedAway) refusals(reason string) []model.Refusal {
	count := t.count.Load()
	if count == 0 {
		return nil
	}
	r := model.Refusal{}
	// The count comes first, so that there may be none yet.
	if last := t.last.Load(); last != nil {
		r = *last
	}
	r.What, r.Reason, r.Count = model.RefusedReaders, reason, count
	return []model.Refusal{r}
}

// refuse answers a reader that has no token, or a wrong one, and counts it.
func (a *Authenticator) refuse(w http.ResponseWriter, r *http.Request) {
	if a != nil { // ByTenant has asked for the token, and there was none
		a.refused.Add(1)
		a.readers.add(r)
	}
	unauthorized(w)
}

// forbid answers a reader whose token has none of the roles that are needed, and counts it.
func (a *Authenticator) forbid(w http.ResponseWriter, r *http.Request, needs Roles) {
	if a != nil {
		a.forbidden.add(r)
	}
	refuse(w, http.StatusForbidden, "forbidden",
		fmt.Sprintf("this token may not: a token with the role %v is needed (roles stand after the token in the file of tokens)", needs))
}

// RefusedReaders counts requests for the page's data, the API and the metrics that had no valid token. Senders' are
// counted by who takes them.
func (a *Authenticator) RefusedReaders() uint64 {
	if a == nil {
		return 0
	}
	return a.readers.count.Load()
}

// Refusals are the readers that were refused: at most an entry for each reason.
func (a *Authenticator) Refusals() []model.Refusal {
	if a == nil {
		return nil
	}
	return append(a.readers.refusals("unauthorized"), a.forbidden.refusals("forbidden")...)
}
