package access

import (
	"context"
	"net/http"
)

// Mux is an http.ServeMux with the roles that each route needs. Other paths do not exist.
type Mux struct {
	auth   *Authenticator
	hosts  *HostPolicy
	mux    http.ServeMux
	routes []Route
}

// Route is a pattern of http.ServeMux, and the roles of which a token needs one; Public for everybody.
type Route struct {
	Pattern string
	Needs   Roles
}

// NewMux makes a Mux that finds the grant of a request by auth, unless ByTenant has done so, and checks its host and
// origin by hosts. Both may be nil.
func NewMux(auth *Authenticator, hosts *HostPolicy) *Mux { return &Mux{auth: auth, hosts: hosts} }

// Handle is that of http.ServeMux, for tokens with one of the roles.
func (m *Mux) Handle(needs Roles, pattern string, handler http.Handler) {
	m.routes = append(m.routes, Route{pattern, needs})
	if needs != Public {
		handler = m.require(needs, handler)
	}
	m.mux.Handle(pattern, handler)
}

// HandleFunc is Handle for a function.
func (m *Mux) HandleFunc(needs Roles, pattern string, handler http.HandlerFunc) {
	m.Handle(needs, pattern, handler)
}

// Routes returns all routes.
func (m *Mux) Routes() []Route { return m.routes }

// ServeHTTP implements http.Handler.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.hosts.allowsHost(w, r) {
		m.mux.ServeHTTP(w, r)
	}
}

func (m *Mux) require(needs Roles, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !m.hosts.allowsOrigin(w, r) {
			return
		}
		g, ok := r.Context().Value(grantKey{}).(grant)
		if !ok {
			if g, ok = m.auth.find(r.Header.Get("Authorization")); !ok {
				m.auth.refuse(w, r)
				return
			}
		}
		if g.roles&needs == 0 {
			m.auth.forbid(w, r, needs)
			return
		}
		Admit(r)
		next.ServeHTTP(w, r)
	})
}

type grantKey struct{}

// withGrant passes the grant of a request on to a Mux.
func withGrant(r *http.Request, g grant) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), grantKey{}, g))
}
