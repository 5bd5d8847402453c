package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"outsight/internal/access"
)

const (
	tokenA = "aaaaaaaaaaaaaaaa-1"
	tokenB = "bbbbbbbbbbbbbbbb-1"
)

// What tells something needs a token, whatever way its path is written; the page and the health
// checks do not.
func TestWhatNeedsAToken(t *testing.T) {
	a, err := access.NewAuthenticator(map[string][]string{"": {tokenA}})
	if err != nil {
		t.Fatal(err)
	}
	st := promStore(t)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "m 1\n") })
	h := New(Options{Prometheus: Prometheus(st), Metrics: metrics, Auth: a})
	f := func(method, path string, want int) {
		t.Helper()
		for _, token := range []string{"", tokenB} {
			r := httptest.NewRequest(method, "/", nil)
			r.URL.Path, r.URL.RawPath = path, ""
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s %s with token %q: %d, want %d", method, path, token, w.Code, want)
			}
			if want == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s %s: no challenge", method, path)
			}
			if strings.Contains(w.Body.String(), "c_total") {
				t.Errorf("%s %s: it tells %s", method, path, w.Body)
			}
		}
	}
	for _, path := range []string{"/api/v1/query", "/api/v1/labels", "/api/outsight/graph", "/api/outsight/status",
		"/metrics", "/api", "/api/"} {
		f(http.MethodGet, path, http.StatusUnauthorized)
		f(http.MethodPost, path, http.StatusUnauthorized)
		f(http.MethodConnect, path, http.StatusUnauthorized)
	}
	for _, path := range []string{"/", "/index.html", "/healthz", "/readyz"} {
		f(http.MethodGet, path, http.StatusOK)
	}
	// The first three are sent to the clean path, which needs one.
	f(http.MethodGet, "//api/v1/labels", http.StatusTemporaryRedirect)
	f(http.MethodGet, "/x/../api/v1/labels", http.StatusTemporaryRedirect)
	f(http.MethodGet, "/./metrics", http.StatusTemporaryRedirect)
	f(http.MethodConnect, "//api/v1/labels", http.StatusMethodNotAllowed)
	f(http.MethodGet, "/API/v1/labels", http.StatusNotFound)

	r := httptest.NewRequest(http.MethodGet, "/api/v1/labels", nil)
	r.Header.Set("Authorization", "Bearer "+tokenA)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"host"`) {
		t.Errorf("with the token: %d %s", w.Code, w.Body)
	}
}
