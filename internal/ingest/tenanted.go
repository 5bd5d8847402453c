package ingest

import "net/http"

// Tenanted serves what a sender asks beside what it sends: requests are checked as those with frames are, and refused
// and counted in the same way.
func (i *Ingest) Tenanted(next func(w http.ResponseWriter, r *http.Request, tenant string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, _, err := i.admit(r.Header.Values)
		if err != nil {
			i.refuseRequest(sender{tenant, r.RemoteAddr}, err)
			responder{w: w}.failed(err, i.retryAfter(err))
			return
		}
		next(w, r, tenant)
	})
}
