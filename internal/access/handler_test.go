package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestNamedTenant(t *testing.T) {
	f := func(want, fault string, headers ...string) {
		t.Helper()
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Add(headers[i], headers[i+1])
		}
		got, err := NamedTenant(h.Values)
		if got != want || (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%q: got %q, %v, want %q, %q", headers, got, err, want, fault)
		}
	}
	f("", "")
	f("", "", "X-Scope-OrgID", "")
	f("shop", "", "X-Outsight-Tenant", "shop")
	f("shop", "", "x-scope-orgid", "shop")
	f("shop", "", "X-Outsight-Tenant", "shop", "X-Scope-OrgID", "shop")
	// What a proxy has set must not be overruled by what its client sent.
	f("", `"bank", and "shop" was named already`, "X-Outsight-Tenant", "shop", "X-Scope-OrgID", "bank")
	f("", `"bank", and "shop" was named already`, "X-Scope-OrgID", "shop", "X-Scope-OrgID", "bank")
	f("", "want up to 64 letters", "X-Scope-OrgID", "shop|bank")
	f("", "want up to 64 letters", "X-Outsight-Tenant", `a"} or {x="`)
	f("", "want up to 64 letters", "X-Outsight-Tenant", strings.Repeat("a", 65))
}

// respond answers with a name.
func respond(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
}

func TestByTenant(t *testing.T) {
	a, err := NewAuthenticator(map[string][]string{"shop": {tokenA}, "bank": {tokenB}, "": {tokenC}})
	if err != nil {
		t.Fatal(err)
	}
	h := ByTenant(a, map[string]http.Handler{"shop": respond("shop's"), "bank": respond("bank's")})
	f := func(path, token string, code int, want string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != code || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s with %s: %d %q, want %d %q", path, token, w.Code, w.Body, code, want)
		}
	}
	for _, path := range []string{"/api", "/api/v1/query", "/api/outsight/graph"} {
		f(path, tokenA, http.StatusOK, "shop's")
		f(path, tokenB, http.StatusOK, "bank's")
		f(path, tokenC, http.StatusForbidden, "a token of the operator reads it, and nothing else")
		f(path, "", http.StatusUnauthorized, "a token is needed")
	}
	f("/metrics", tokenA, http.StatusForbidden, "sums over all tenants")
	f("/metrics", "another one of 16", http.StatusUnauthorized, "a token is needed")
	f("/metrics", tokenC, http.StatusOK, "bank's") // each has the same
	f("/app.js", "", http.StatusOK, "bank's")
}

func TestByHeader(t *testing.T) {
	made := map[string]int{}
	forTenant := func(tenant string) http.Handler {
		made[tenant]++
		return respond("of " + tenant)
	}
	f := func(h http.Handler, path, tenant string, code int, want string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if tenant != "" {
			r.Header.Set("X-Scope-OrgID", tenant)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != code || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s as %q: %d %q, want %d %q", path, tenant, w.Code, w.Body, code, want)
		}
	}
	optional := ByHeader(respond("public"), respond("all"), forTenant)
	required := ByHeader(respond("public"), nil, forTenant)
	for _, path := range []string{"/api/v1/query", "/api/outsight/graph", "/api", "/api/v1/read"} {
		for _, h := range []http.Handler{optional, required} {
			f(h, path, "shop", http.StatusOK, "of shop")
			f(h, path, "bank", http.StatusOK, "of bank")
			f(h, path, "a b", http.StatusBadRequest, "want up to 64 letters")
		}
		f(optional, path, "", http.StatusOK, "all")
		f(required, path, "", http.StatusBadRequest, "a tenant is needed")
	}
	for _, path := range []string{"/", "/app.js", "/healthz", "/metrics"} {
		f(optional, path, "shop", http.StatusOK, "public")
		f(required, path, "", http.StatusOK, "public")
	}
	if made["shop"] != 2 || made["bank"] != 2 {
		t.Errorf("handlers were made %v times, want one for each tenant and server", made)
	}
	// Whoever asks can name any tenant.
	for n := range 3 * maxHandlers {
		f(optional, "/api", fmt.Sprint("t", n), http.StatusOK, fmt.Sprint("of t", n))
	}
	b := &byHeader{forTenant: forTenant, handlers: map[string]http.Handler{}}
	for n := range 3 * maxHandlers {
		b.of(fmt.Sprint("t", n))
	}
	if len(b.handlers) != maxHandlers {
		t.Errorf("%d handlers are kept, want %d", len(b.handlers), maxHandlers)
	}
}
