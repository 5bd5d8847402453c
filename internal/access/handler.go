package access

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// ByTenant routes a request to the handler of its tenant, which is that of its token. handlers has one for each of a's
// Tenants. All of them serve the same page, and the same /metrics, which are sums over all tenants and for the operator
// alone.
func ByTenant(a *Authenticator, handlers map[string]http.Handler) http.Handler {
	tenants := a.Tenants()
	if len(tenants) == 0 || len(tenants) != len(handlers) {
		panic(fmt.Sprintf("BUG: %d tenants have %d handlers", len(tenants), len(handlers)))
	}
	public := handlers[tenants[0]]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isPublic(r.URL.Path) {
			// Routes that are not public need a role, which this request has not.
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

// maxHandlers bounds the handlers that ByHeader caches: a client can name any tenant.
const maxHandlers = 256

// ByHeader routes a request to the handler of the tenant that it names in one of TenantHeaders. forTenant makes the
// handler, which is cached. A request that names none goes to all, or is refused if all is nil; public serves what is
// not of a tenant: the page's files, health checks and /metrics. The tenant is not authenticated here.
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
			// Evict any: it is made again when needed.
			delete(b.handlers, other)
		}
		h = b.forTenant(tenant)
		b.handlers[tenant] = h
	}
	return h
}

// isPublic reports whether a path is a file of the page or a health check, which do not depend on the tenant. Mux
// decides by itself what needs a token.
func isPublic(path string) bool {
	return path != "/metrics" && path != "/api" && !strings.HasPrefix(path, "/api/")
}

// unauthorized answers in the form of Prometheus's API, which the page understands as well. Basic authentication is not
// offered: browsers would prompt the user for each request.
func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	refuse(w, http.StatusUnauthorized, "unauthorized", `a token is needed: send it as "Authorization: Bearer TOKEN"`)
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// The client may have disconnected: nothing to report.
	_ = json.NewEncoder(w).Encode(struct {
		Status    string `json:"status"`
		ErrorType string `json:"errorType"`
		Error     string `json:"error"`
	}{"error", kind, message})
}
