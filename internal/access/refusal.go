package access

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"outsight/internal/model"
)

// refusalCount counts the requests refused for one reason.
type refusalCount struct {
	count atomic.Uint64
	// last is the latest; nil if there was none.
	last atomic.Pointer[model.Refusal]
}

func (t *refusalCount) add(r *http.Request) {
	t.count.Add(1)
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	t.last.Store(&model.Refusal{Last: time.Now(), From: host})
}

// refusals has at most one entry.
func (t *refusalCount) refusals(reason string) []model.Refusal {
	count := t.count.Load()
	if count == 0 {
		return nil
	}
	r := model.Refusal{}
	// count is stored before last, so that last may still be nil.
	if last := t.last.Load(); last != nil {
		r = *last
	}
	r.What, r.Reason, r.Count = model.RefusedReaders, reason, count
	return []model.Refusal{r}
}

// refuse answers and counts a reader without a valid token.
func (a *Authenticator) refuse(w http.ResponseWriter, r *http.Request) {
	if a != nil { // ByTenant has asked for the token, and there was none
		a.refused.Add(1)
		a.readers.add(r)
	}
	unauthorized(w)
}

// forbid answers and counts a reader whose token has none of the needed roles.
func (a *Authenticator) forbid(w http.ResponseWriter, r *http.Request, needs Roles) {
	if a != nil {
		a.forbidden.add(r)
	}
	refuse(w, http.StatusForbidden, "forbidden",
		fmt.Sprintf("this token may not: a token with the role %v is needed (roles stand after the token in the file of tokens)", needs))
}

// RefusedReaders counts the requests for the page, the API and the metrics without a valid token. The protocols of
// senders count theirs.
func (a *Authenticator) RefusedReaders() uint64 {
	if a == nil {
		return 0
	}
	return a.readers.count.Load()
}

// Refusals are the refused readers, at most one entry for each reason.
func (a *Authenticator) Refusals() []model.Refusal {
	if a == nil {
		return nil
	}
	return append(a.readers.refusals("unauthorized"), a.forbidden.refusals("forbidden")...)
}
