package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outsight/internal/model"
)

// hearing counts what a connection receives.
type hearing struct {
	net.Conn
	heard *atomic.Uint64
}

func (c hearing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.heard.Add(uint64(n))
	return n, err
}

// serve answers on l until the test ends.
func serve(t *testing.T, l net.Listener, handler http.Handler) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ServeHTTP(ctx, l, handler, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func listenLocal(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// testPatience bounds every wait. It is generous: only what is broken takes as long.
const testPatience = 3 * time.Minute

// eventually waits until it is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testPatience); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so after %v", what, testPatience)
		}
	}
}

// Every byte that a client reads from the socket is counted: answers, files that the kernel sends by itself, and over TLS
// what goes over the wire, of HTTP/2 as well.
func TestAnswersAreWhatTheClientReceives(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(certified.Certificate())
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("recorded ", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, strings.Repeat("up 1\n", 50_000))
	})
	mux.HandleFunc("/api/file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	for _, protocol := range []string{"", "http/1.1", "h2"} {
		var answers Answers
		l := listenLocal(t)
		scheme, counted := "http", answers.Count(l)
		if protocol != "" {
			scheme = "https"
			counted = tls.NewListener(counted, &tls.Config{Certificates: certified.TLS.Certificates,
				NextProtos: []string{protocol}})
		}
		serve(t, counted, mux)
		var heard atomic.Uint64
		transport := &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return hearing{c, &heard}, err
			},
			TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: "example.com"}, ForceAttemptHTTP2: protocol == "h2",
		}
		client := &http.Client{Transport: transport}
		for _, path := range []string{"/metrics", "/api/file", "/api/missing", "/metrics", "/api/file"} {
			answer, err := client.Get(scheme + "://" + l.Addr().String() + path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, answer.Body); err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
		}
		eventually(t, protocol+": what was received is counted", func() bool { return answers.sent.Load() == heard.Load() })
		if n := heard.Load(); n < 2_300_000 || n > 2_500_000 {
			t.Errorf("%s: %d bytes received, want 2.3 MB and what goes with them", protocol, n)
		}
		transport.CloseIdleConnections()
	}
}

// What was sent is in the snapshots.
func TestSnapshotsHaveWhatWasSent(t *testing.T) {
	s := newScript()
	sources := s.sources()
	var answers Answers
	sources.Answers = &answers
	answers.sent.Store(42)
	got := New(sources, Options{}).read().Self.Sent
	want := []model.SentBytes{{To: "http", Bytes: 42}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
