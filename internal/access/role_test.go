package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRolesOfTokens(t *testing.T) {
	f := func(tenants bool, entry string, want Roles, fault string) {
		t.Helper()
		tokens := map[string][]string{"": {entry}}
		if tenants {
			tokens = map[string][]string{"shop": {entry}}
		}
		a, err := NewAuthenticator(tokens)
		if fault != "" {
			if err == nil || !strings.Contains(err.Error(), fault) {
				t.Errorf("%q: got %v, want %q", entry, err, fault)
			}
			return
		}
		if err != nil {
			t.Errorf("%q: %v", entry, err)
			return
		}
		token, _, _ := strings.Cut(entry, " ")
		if g, ok := a.find("Bearer " + token); !ok || g.roles != want {
			t.Errorf("%q: got %v (%v), want %v", entry, g.roles, ok, want)
		}
	}
	f(false, tokenA, Send|Read|Record|Administer, "")
	f(false, tokenA+" send", Send, "")
	f(false, tokenA+"  read,record", Read|Record, "")
	f(false, tokenA+" read, record administer", Read|Record|Administer, "")
	f(false, tokenA+" reed", 0, `role "reed" is unknown: want send, read, record or administer`)
	f(false, tokenA+" Send", 0, `role "Send" is unknown`)
	f(false, tokenA+" read,"+tokenB, 0, "is unknown")
	f(true, tokenA, Send|Read|Record, "")
	f(true, tokenA+" read", Read, "")
	f(true, tokenA+" read,administer", 0, "has the role administer")
	operator := func(entry, fault string) {
		t.Helper()
		a, err := NewAuthenticator(map[string][]string{"shop": {tokenA}, "": {entry}})
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("the operator's %q: %v, want %q", entry, err, fault)
		}
		if err == nil {
			if g, _ := a.find("Bearer " + tokenB); g.roles != Administer {
				t.Errorf("the operator's %q has %v", entry, g.roles)
			}
		}
	}
	operator(tokenB, "")
	operator(tokenB+" administer", "")
	operator(tokenB+" read", "has the role read")
}

// Only a token with the role that a route names gets there; one without a token gets the public ones alone.
func TestMuxAsksForRoles(t *testing.T) {
	roles := map[string]Roles{"send": Send, "read": Read, "record": Record, "administer": Administer}
	tokens := map[string]string{}
	var entries []string
	for name := range roles {
		tokens[name] = "a-token-with-role-" + name
		entries = append(entries, tokens[name]+" "+name)
	}
	a, err := NewAuthenticator(map[string][]string{"": entries})
	if err != nil {
		t.Fatal(err)
	}
	m := NewMux(a, nil)
	needs := map[string]Roles{"/open": Public, "/send": Send, "/read": Read, "/record": Record,
		"/administer": Administer, "/either": Read | Administer}
	for path, roles := range needs {
		m.Handle(roles, path, respond("through"))
	}
	if len(m.Routes()) != len(needs) {
		t.Errorf("routes %v", m.Routes())
	}
	ask := func(path, token string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		m.ServeHTTP(w, r)
		return w.Code
	}
	for path, needed := range needs {
		want := http.StatusUnauthorized
		if needed == Public {
			want = http.StatusOK
		}
		for _, token := range []string{"", tokenC} {
			if got := ask(path, token); got != want {
				t.Errorf("%s with token %q: %d, want %d", path, token, got, want)
			}
		}
		for name, has := range roles {
			want := http.StatusForbidden
			if needed == Public || has&needed != 0 {
				want = http.StatusOK
			}
			if got := ask(path, tokens[name]); got != want {
				t.Errorf("%s as %s: %d, want %d", path, name, got, want)
			}
		}
	}
	if got := ask("/elsewhere", tokens["administer"]); got != http.StatusNotFound {
		t.Errorf("a path without a route: %d", got)
	}
	counts := map[string]uint64{}
	for _, r := range a.Refusals() {
		counts[r.Reason] = r.Count
	}
	if counts["unauthorized"] != 10 || counts["forbidden"] != 14 {
		t.Errorf("refused %v", counts)
	}
	// What was asked for a token before is not asked again, and what had none has no role.
	for g, want := range map[grant]int{{roles: Send}: http.StatusOK, {}: http.StatusForbidden} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, withGrant(httptest.NewRequest(http.MethodGet, "/send", nil), g))
		if w.Code != want {
			t.Errorf("with %v: %d, want %d", g.roles, w.Code, want)
		}
	}
}

// A token that may not send is refused to senders.
func TestSendersNeedTheirRole(t *testing.T) {
	a, err := NewAuthenticator(map[string][]string{"": {tokenA + " send", tokenB + " read,record,administer", tokenC}})
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]bool{tokenA: true, tokenB: false, tokenC: true, "another-token-of-16": false} {
		if _, ok := (Senders{a}).Check("Bearer " + token); ok != want {
			t.Errorf("%s: %v, want %v", token, ok, want)
		}
	}
	if a.Refused() != 2 {
		t.Errorf("%d refused, want 2", a.Refused())
	}
}

func TestSecretFilesOfOthers(t *testing.T) {
	f := func(mode os.FileMode, owner, user int, want string) {
		t.Helper()
		err := secretFault("tokens", mode, owner, user)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("mode %v of %d read by %d: %v, want %q", mode, owner, user, err, want)
		}
	}
	f(0o600, 1000, 1000, "")
	f(0o440, 0, 65532, "") // as a Secret of Kubernetes is mounted
	f(0o400, 0, 0, "")
	f(0o644, 0, 0, "")
	f(0o622, 0, 0, "can be written by others than its owner (mode 0622)")
	f(0o620, 0, 0, "chmod go-w")
	f(0o602, 1000, 1000, "chmod go-w")
	f(0o600, 1000, 0, "belongs to user 1000")
	f(0o600, 1001, 1000, "chown it to root or to user 1000")
	f(os.ModeNamedPipe|0o666, 1000, 0, "")

	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(tokenA+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o666: true, 0o660: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := ReadTokens(path)
		if (err != nil) != refused || (CheckSecretFile(path) != nil) != refused {
			t.Errorf("mode %v: %v, %v", mode, err, CheckSecretFile(path))
		}
	}
	if err := CheckSecretFile(""); err != nil {
		t.Errorf("no file: %v", err)
	}
}

// What a page of somebody else makes a browser send is refused, by its own name or by another's.
func TestForeignPages(t *testing.T) {
	hosts, err := newHostPolicy("allow-host", "proxy.example, Other.Example.", false,
		[]string{"gateway:8470", ":8471", "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	mux := NewMux(nil, hosts)
	mux.Handle(Read, "/api/", respond("data"))
	mux.Handle(Public, "/", respond("page"))
	senders := (&Access{Hosts: hosts}).Senders(respond("taken"))
	ask := func(h http.Handler, method, path, host string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.Host = host
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, loopback))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	f := func(want int, host string, headers ...string) {
		t.Helper()
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for name, h := range map[string]http.Handler{"the API": mux, "senders": senders} {
				if w := ask(h, method, "/api/v1/query", host, headers...); w.Code != want {
					t.Errorf("%s %s as %s with %q: %d %s, want %d", method, name, host, headers, w.Code, w.Body, want)
				}
			}
		}
	}
	const at = "localhost:8470"
	f(200, at)
	f(200, at, "Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:8470")
	f(200, at, "Sec-Fetch-Site", "none")
	f(200, at, "Origin", "http://localhost:8470")
	f(403, at, "Sec-Fetch-Site", "cross-site")
	f(403, at, "Sec-Fetch-Site", "same-site", "Origin", "http://localhost:3000")
	f(403, at, "Sec-Fetch-Site", "cross-site", "Origin", "http://localhost:8470")
	f(403, at, "Sec-Fetch-Site", "nonsense")
	f(403, at, "Origin", "http://evil.example")
	f(403, at, "Origin", "http://localhost:3000")
	f(403, at, "Origin", "null")
	f(403, at, "Origin", "://")
	// A proxy that does not pass the name on, and whose pages come over plain HTTP.
	f(200, "127.0.0.1:8470", "Origin", "http://proxy.example")
	f(200, "127.0.0.1:8470", "Sec-Fetch-Site", "same-site", "Origin", "https://other.example:8443")
	// Names.
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "[::1]:8470", "10.0.0.1:1", "LOCALHOST:8470", "x.localhost",
		"gateway:8470", "proxy.example", "PROXY.example.:80", own, own + ":8470"} {
		f(200, host)
	}
	for _, host := range []string{"evil.example", "evil.example:8470", "localhost.evil.example",
		"127.0.0.1.evil.example", "", "proxy.example.evil"} {
		f(403, host)
	}
	if w := ask(mux, "GET", "/", "evil.example"); w.Code != 403 ||
		!strings.Contains(w.Body.String(), "--allow-host evil.example") {
		t.Errorf("the page by a foreign name: %d %s", w.Code, w.Body)
	}
	// A link from elsewhere leads to the page.
	if w := ask(mux, "GET", "/", at, "Sec-Fetch-Site", "cross-site"); w.Code != 200 {
		t.Errorf("the page by a link: %d %s", w.Code, w.Body)
	}
	if w := ask(mux, "POST", "/api/v1/query", at, "Origin", "http://evil.example"); !strings.Contains(w.Body.String(),
		"--allow-host") {
		t.Errorf("the refusal does not name the flag: %s", w.Body)
	}
	reasons := map[string]bool{}
	for _, r := range hosts.Refusals() {
		reasons[r.Reason] = r.Count > 0
	}
	if !reasons["foreign-host"] || !reasons["foreign-page"] {
		t.Errorf("refusals %+v", hosts.Refusals())
	}
	// Where a token is asked for, a foreign page has none to show: names do not matter, origins still do.
	hosts.Authenticated = true
	f(200, "outsight.outsight.svc.cluster.local:8470")
	f(403, "outsight.outsight:8470", "Sec-Fetch-Site", "cross-site")
	if _, err := newHostPolicy("allow-host", "http://proxy.example", false, nil); err == nil ||
		!strings.Contains(err.Error(), "--allow-host") {
		t.Errorf("a URL as a name: %v", err)
	}
}
