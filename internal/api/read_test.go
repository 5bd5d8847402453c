package api

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outsight/internal/access"
	"outsight/internal/store"
)

// A Prometheus that has us in its configuration of remote read answers queries over our series as we do.
func TestPrometheusReadsFromUs(t *testing.T) {
	st := promStore(t)
	auth, err := access.NewAuthenticator(map[string][]string{"": {tokenA}})
	if err != nil {
		t.Fatal(err)
	}
	us := httptest.NewServer(New(st, Options{Prometheus: Prometheus(st), Auth: auth}))
	defer us.Close()
	them := startPeer(t, "prometheus", "/-/ready", func(address, dir string) []string {
		config := filepath.Join(dir, "prometheus.yml")
		text := fmt.Sprintf("remote_read:\n- url: %s/api/v1/read\n  read_recent: true\n  authorization: {credentials: %s}\n", us.URL, tokenA)
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return []string{"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + address,
			"--enable-feature=native-histograms", "--log.level=warn"}
	})
	// It leaves out native histograms, as all do before release 2.44.
	for _, query := range []string{`c_total{id="a"}`, `sum(rate(c_total[9s500ms]))`, `odd{id="huge"}`, `absent_total`} {
		form := url.Values{"query": {query}, "time": {fmt.Sprint(promStart.Unix() + 10)}}
		code, want := promGet(t, Prometheus(st), "query", form)
		if code != http.StatusOK || query != "absent_total" && !strings.Contains(want, `"value"`) {
			t.Fatalf("%s: we answer %d %s", query, code, want)
		}
		answer, err := http.Get(them + "/api/v1/query?" + form.Encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, query, string(got), want)
	}
}

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
		if w.Code != code || !strings.Contains(w.Body.String(), want) || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v %s, want %d %q", method, w.Code, w.Header(), w.Body, code, want)
		}
	}
	ours := New(st, Options{Prometheus: Prometheus(st), Auth: auth})
	f(ours, http.MethodPost, "", http.StatusUnauthorized, "a token is needed")
	f(ours, http.MethodPost, tokenA, http.StatusBadRequest, "snappy")
	f(ours, http.MethodGet, tokenA, http.StatusMethodNotAllowed, "only POST")
	for _, view := range []Backend{elsewhere, store.ForTenant(elsewhere, "shop")} {
		f(Prometheus(view), http.MethodPost, "", http.StatusNotImplemented, "the series are in another system")
	}
}
