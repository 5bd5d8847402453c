package agent

import (
	"bufio"
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

// sentFor is what a sender says that it wrote for one purpose.
func sentFor(s Sender, to string) uint64 {
	for _, sent := range s.Sent() {
		if sent.To == to {
			return sent.Bytes
		}
	}
	return 0
}

// Every byte that who asks reads from the socket is counted, under what it asked for, on one connection that asks
// for both by turns.
func TestAnswersAreWhatTheClientReceives(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("recorded ", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter,
		_ *http.Request) {
		io.WriteString(w, strings.Repeat("up 1\n", 50_000))
	})
	mux.HandleFunc("/api/file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	var answers Answers
	l := listenLocal(t)
	serve(t, answers.Page(l), mux)

	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	var heard atomic.Uint64
	c := hearing{raw, &heard}
	in := bufio.NewReader(c)
	want := map[string]uint64{}
	for _, path := range []string{"/metrics", "/api/file", "/api/missing", "/metrics", "/api/file"} {
		before := heard.Load()
		request, err := http.NewRequest("GET", "http://"+l.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := request.Write(c); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(in, request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		if in.Buffered() != 0 {
			t.Fatalf("%d bytes after the answer to %s", in.Buffered(), path)
		}
		to := "api"
		if path == "/metrics" {
			to = "metrics"
		}
		want[to] += heard.Load() - before
	}
	if want["metrics"] < 500_000 || want["api"] < 1_800_000 {
		t.Fatalf("received %v", want)
	}
	for to, n := range want {
		eventually(t, "what was received is counted for "+to, func() bool { return sentFor(&answers, to) == n })
	}
	if n := sentFor(&answers, "socket"); n != 0 {
		t.Errorf("%d bytes for the command line, which asked for nothing", n)
	}
}

// Over TLS it is what goes over the wire, and requests of HTTP/2 count for what they ask for as well.
func TestAnswersOverTLS(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(certified.Certificate())
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter,
		_ *http.Request) {
		io.WriteString(w, strings.Repeat("m", 100_000))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("a", 300_000)) })
	for _, protocol := range []string{"http/1.1", "h2"} {
		var answers Answers
		l := listenLocal(t)
		serve(t, tls.NewListener(answers.Page(l), &tls.Config{Certificates: certified.TLS.Certificates,
			NextProtos: []string{protocol}}), mux)
		var heard atomic.Uint64
		transport := &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return hearing{c, &heard}, err
			},
			TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: "example.com"}, ForceAttemptHTTP2: protocol == "h2",
		}
		client := &http.Client{Transport: transport}
		for _, path := range []string{"/metrics", "/page", "/metrics"} {
			answer, err := client.Get("https://" + l.Addr().String() + path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, answer.Body); err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
		}
		eventually(t, protocol+": what was received is counted", func() bool {
			return sentFor(&answers, "metrics")+sentFor(&answers, "api") == heard.Load()
		})
		if m, a := sentFor(&answers, "metrics"), sentFor(&answers, "api"); m < 200_000 || m > 250_000 || a < 300_000 {
			t.Errorf("%s: %d bytes for /metrics and %d for the page", protocol, m, a)
		}
		transport.CloseIdleConnections()
	}
}

// What senders tell is in the snapshots.
func TestSnapshotsTellWhatWasSent(t *testing.T) {
	s := newScript()
	sources := s.sources()
	var answers Answers
	sources.Answers = &answers
	answers.metrics.Store(42)
	got := New(sources, Options{}).read().Self.Sent
	want := []model.SentBytes{{To: "metrics", Bytes: 42}, {To: "api"}, {To: "socket"}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
