package api

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// policy lets the page load its own files and ask its own server, and nothing else: no inline
// script or style, no frame, no other host.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *server) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !s.addressed(r) {
			writeError(w, http.StatusForbidden, "this server listens on loopback and is not called %q", r.Host)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// addressed is whether a request names the server as its user would. It matters on loopback
// only, where any page in the user's browser can reach the server under a name of its own.
func (s *server) addressed(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	if at, err := netip.ParseAddrPort(local.String()); err != nil || !at.Addr().Unmap().IsLoopback() {
		return true
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(s.Hosts, host)
}
