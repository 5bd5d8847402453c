package access

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// ByTenant gives each request to the handler of its tenant, chosen by the token alone. Handlers has one for each of a's
// Tenants; all of them serve the same page, and the same /metrics, which are sums over all tenants and for the operator
// alone.
func ByTenant(a *Authenticator, handlers map[string]http.Handler) http.Handler {
	tenants := a.Tenants()
	if len(tenants) == 0 || len(tenants) != len(handlers) {
		panic(fmt.Sprintf("BUG: %d tenants have %d handlers", len(tenants), len(handlers)))
	}
	public := handlers[tenants[0]]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isPublic(r.URL.Path) {
			// What the handler does not hold to be public asks for a role, and this is none.
			public.ServeHTTP(w, withGrant(r, grant{}))
			return
		}
		g, ok := a.find(r.Header.Get("Authorization"))
		switch {
		case !ok:
			a.refuse(w, r)
		case a.isOperator(g.tenant) != (r.URL.Path == "/metrics"):
			refuse(w, http.StatusForbidden, "forbidden",
				"/metrics has sums over all tenants: a token of the operator reads it, and nothing else")
		case a.isOperator(g.tenant):
			public.ServeHTTP(w, withGrant(r, g))
		default:
			handlers[g.tenant].ServeHTTP(w, withGrant(r, g))
		}
	})
}

// maxHandlers bounds the tenants whose handlers ByHeader keeps: whoever asks can name any.
const maxHandlers = 256

// ByHeader gives each request to the handler of the tenant that it names in one of TenantHeaders, made by forTenant
// when it is first named, and kept. What names none goes to all, or is refused where all is nil; public is for what
// tells of no tenant: the page's own files, health checks and /metrics. Nobody proves here that the tenant is
// theirs.
func ByHeader(public, all http.Handler, forTenant func(string) http.Handler) http.Handler {
	b := &byHeader{forTenant: forTenant, handlers: map[string]http.Handler{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isPublic(r.URL.Path) || r.URL.Path == "/metrics" {
			public.ServeHTTP(w, r)
			return
		}
		tenant, err := NamedTenant(r.Header.Values)
		switch {
		case err != nil:
			refuse(w, http.StatusBadRequest, "bad_data", err.Error())
		case tenant != "":
			b.of(tenant).ServeHTTP(w, r)
		case all != nil:
			all.ServeHTTP(w, r)
		default:
			refuse(w, http.StatusBadRequest, "bad_data", ErrNoTenant.Error())
		}
	})
}

type byHeader struct {
	forTenant func(string) http.Handler
	// mu guards handlers.
	mu       sync.Mutex
	handlers map[string]http.Handler
}

func (b *byHeader) of(tenant string) http.Handler {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.handlers[tenant]
	if h == nil {
		for other := range b.handlers {
			if len(b.handlers) < maxHandlers {
				break
			}
			// Any: one that is asked for again is made again.
			delete(b.handlers, other)
		}
		h = b.forTenant(tenant)
		b.handlers[tenant] = h
	}
	return h
}

// isPublic is whether a path leads to a file of the page or a health check, of which no tenant's handler is asked. Mux
// decides by itself what needs a token.
func isPublic(path string) bool {
	return path != "/metrics" && path != "/api" && !strings.HasPrefix(path, "/api/")
}

// unauthorized answers in the form of Prometheus's API, which the page understands as well. Basic
// is not offered: browsers would ask the user by themselves, for each request.
func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	refuse(w, http.StatusUnauthorized, "unauthorized", `a token is needed: send it as "Authorization: Bearer TOKEN"`)
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// Who asked may have gone, which nobody needs to know.
	_ = json.NewEncoder(w).Encode(struct {
		Status    string `json:"status"`
		ErrorType string `json:"errorType"`
		Error     string `json:"error"`
	}{"error", kind, message})
}
