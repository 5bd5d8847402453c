package api

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"outsight/internal/access"
	"outsight/internal/store"
)

func TestWhoMayReadRemotely(t *testing.T) {
	st := promStore(t)
	auth, err := access.NewAuthenticator(map[string][]string{"": {tokenA}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody answers there
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	elsewhere, err := store.OpenRemote(store.RemoteOptions{URL: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	f := func(h http.Handler, method, token string, code int, want string) {
		t.Helper()
		r := httptest.NewRequest(method, "/api/v1/read", strings.NewReader("no request"))
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != code || !strings.Contains(w.Body.String(), want) ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v %s, want %d %q", method, w.Code, w.Header(), w.Body, code, want)
		}
	}
	ours := New(Options{Prometheus: Prometheus(st), Auth: auth})
	f(ours, http.MethodPost, "", http.StatusUnauthorized, "a token is needed")
	f(ours, http.MethodPost, tokenA, http.StatusBadRequest, "snappy")
	f(ours, http.MethodGet, tokenA, http.StatusMethodNotAllowed, "only POST")
	for _, view := range []Backend{elsewhere, store.ForTenant(elsewhere, "shop")} {
		f(Prometheus(view), http.MethodPost, "", http.StatusNotImplemented, "the series are in another system")
	}
}
