package kubernetes

import (
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

// TestTokenRotates: a token from a file is read again as soon as the old one is refused.
func TestTokenRotates(t *testing.T) {
	s := serve(t)
	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	accepted := "old"
	list := s.lists[podsPath]
	s.lists[podsPath] = func(n int, w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+accepted {
			replay(t, "13-unauthorized")(n, w, r)
			return
		}
		list(n, w, r)
	}
	s.watches[podsPath] = func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 0 {
			accepted = "new"
			write("new")
			text(410, gone)(n, w, r) // it has to list again, with a token that is no good any more
			return
		}
		s.hold(w, r)
	}
	c := runs(t, Config{Server: s.URL, TokenFile: token}, Options{Node: "node-b"}, quick)
	eventually(t, "the second watch", func() bool { return len(s.requests("watch", podsPath)) == 2 })
	// Each list is one request, but the one with the old token, which is repeated at once.
	if n := len(s.requests("list", podsPath)); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
	if f := c.feature("pods"); f.State != model.FeatureWorks {
		t.Errorf("pods are %+v", f)
	}
}

func TestRefusedTokenIsSaid(t *testing.T) {
	s := serve(t)
	s.lists[podsPath] = replay(t, "13-unauthorized")
	c := runs(t, Config{Server: s.URL, Token: "expired"}, Options{Node: "node-b"}, quick)
	<-c.Synced()
	if f := c.feature("pods"); !strings.Contains(f.Reason, "401 Unauthorized") || !strings.Contains(f.Remedy, "token") {
		t.Errorf("pods are %+v", f)
	}
}

func TestCompressedAnswers(t *testing.T) {
	s := serve(t)
	_, _, body := recorded(t, "04-pods-list")
	s.lists[podsPath] = func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("accepted encodings are %q", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, body)
		z.Close()
	}
	c := follows(t, s, Options{})
	<-c.Synced()
	if c.Pods() != 2 {
		t.Errorf("%d pods, want 2", c.Pods())
	}
}

// TestSilentServerIsGivenUp: an answer that stops in the middle is asked for again, and what it
// had said already stays.
func TestSilentServerIsGivenUp(t *testing.T) {
	s := serve(t)
	_, _, body := recorded(t, "04-pods-list")
	s.lists[podsPath] = inTurn(func(_ int, w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, body[:len(body)*3/4])
		s.hold(w, r)
	}, replay(t, "04-pods-list"))
	pace := quick
	pace.request = 300 * time.Millisecond
	c := runs(t, Config{Server: s.URL}, Options{Node: "node-b"}, pace)
	eventually(t, "both pods", func() bool { return c.Pods() == 2 })
	if n := len(s.requests("list", podsPath)); n != 2 {
		t.Errorf("%d lists, want 2", n)
	}
}
