package access

import (
	"context"
	"net/http"
)

// Mux is an http.ServeMux whose routes each say which roles they need. What is on no route is not there.
type Mux struct {
	auth   *Authenticator
	door   *Door
	mux    http.ServeMux
	routes []Route
}

// Route is a pattern of http.ServeMux, and the roles of which a token needs one; Public for everybody.
type Route struct {
	Pattern string
	Needs   Roles
}

// NewMux asks auth who somebody is, unless ByTenant has done that already, and door by which name and from which page
// they come. Both may be nil.
func NewMux(auth *Authenticator, door *Door) *Mux { return &Mux{auth: auth, door: door} }

// Handle is that of http.ServeMux, for those who have one of the roles.
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

// Routes are all that there are.
func (m *Mux) Routes() []Route { return m.routes }

// ServeHTTP implements http.Handler.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.door.admitsHost(w, r) {
		m.mux.ServeHTTP(w, r)
	}
}

func (m *Mux) require(needs Roles, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !m.door.admitsOrigin(w, r) {
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

// withGrant lets a Mux know what a request may do.
func withGrant(r *http.Request, g grant) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), grantKey{}, g))
}
