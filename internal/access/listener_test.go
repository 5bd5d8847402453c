package access

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/test/issuer"
)

var loopback net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8470}

// serveLimited serves a handler on loopback, with TLS (and HTTP/2) if there is a configuration.
func serveLimited(t *testing.T, limits Limits, config *tls.Config, handler http.Handler) *Listener {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Limit(inner, "test", limits)
	server := Server(handler, slog.New(slog.DiscardHandler))
	ended := make(chan error)
	go func() { ended <- server.Serve((&Access{TLS: config}).Secure(l)) }()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return l
}

func dial(t *testing.T, l *Listener, from string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func drops(l *Listener) map[string]model.Drop {
	all := map[string]model.Drop{}
	for _, d := range l.Drops() {
		all[d.Name] = d
	}
	return all
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// Who opens many connections and shows no token loses his own oldest, not those of others; who has a token keeps his.
func TestUnauthenticatedConnectionsAreEvicted(t *testing.T) {
	a, err := NewAuthenticator(map[string][]string{"": {tokenA}})
	if err != nil {
		t.Fatal(err)
	}
	mux := NewMux(a, nil)
	mux.Handle(Read, "/api/", respond("data"))
	l := serveLimited(t, Limits{Authenticated: 8, Unauthenticated: 8}, nil, mux)
	ask := func(c net.Conn, token string) (int, error) {
		fmt.Fprintf(c, "GET /api/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", token)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, err
	}
	known := dial(t, l, "127.0.0.2")
	if code, err := ask(known, tokenA); code != 200 {
		t.Fatalf("with a token: %d, %v", code, err)
	}
	other := dial(t, l, "127.0.0.3")
	if code, err := ask(other, tokenB); code != 401 {
		t.Fatalf("with a wrong token: %d, %v", code, err)
	}
	var flood []net.Conn
	for range 100 {
		flood = append(flood, dial(t, l, "127.0.0.4"))
	}
	// The oldest of the flood are closed, each for a newer one.
	for _, c := range flood[:93] {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatal("an old connection of the flood was answered")
		}
	}
	if code, err := ask(known, tokenA); code != 200 {
		t.Errorf("with a token, during the flood: %d, %v", code, err)
	}
	if code, err := ask(other, tokenB); code != 401 {
		t.Errorf("another one without a token, during the flood: %d, %v", code, err)
	}
	late := dial(t, l, "127.0.0.5")
	if code, err := ask(late, tokenA); code != 200 {
		t.Errorf("a new one with a token, during the flood: %d, %v", code, err)
	}
	d := drops(l)
	if s := d["test/unauthenticated-connections"]; s.Count != 94 || s.Capacity != 8 || s.Used != 7 {
		t.Errorf("unauthenticated connections %+v", s)
	}
	if k := d["test/connections"]; k.Count != 0 || k.Used != 2 {
		t.Errorf("known ones %+v", k)
	}
	for _, c := range append(flood, known, other, late) {
		c.Close()
	}
	eventually(t, "connections are still counted", func() bool {
		d := drops(l)
		return d["test/connections"].Used+d["test/unauthenticated-connections"].Used == 0
	})
	if len(l.authenticated.bySource)+len(l.unauthenticated.bySource) != 0 {
		t.Error("sources without connections are kept")
	}
}

// One source with a token does not keep others with a token out.
func TestAuthenticatedConnectionsAreShared(t *testing.T) {
	l := Limit(nil, "test", Limits{Authenticated: 4, Unauthenticated: 100})
	add := func(from string) *conn {
		c := &conn{Conn: nopConn{}, listener: l, from: netip.MustParsePrefix(from + "/32")}
		l.mu.Lock()
		l.unauthenticated.add(c)
		l.mu.Unlock()
		l.admit(c)
		return c
	}
	var greedy []*conn
	for range 6 {
		greedy = append(greedy, add("10.0.0.1"))
	}
	for i, c := range greedy {
		if c.authenticated.Load() != (i < 4) {
			t.Errorf("connection %d of one source: known %v", i, c.authenticated.Load())
		}
	}
	modest := add("10.0.0.2")
	if !modest.authenticated.Load() || greedy[0].table != nil || greedy[1].table != &l.authenticated {
		t.Error("another source did not get the place of the oldest of the first")
	}
	add("10.0.0.2")
	if fourth := add("10.0.0.2"); fourth.authenticated.Load() {
		t.Error("two sources do not have two places each")
	}
	if d := drops(l)["test/connections"]; d.Used != 4 || d.Count != 2+2+1 {
		t.Errorf("%+v", d)
	}
}

type nopConn struct{ net.Conn }

func (nopConn) Close() error { return nil }

func TestSourceOfAConnection(t *testing.T) {
	for address, want := range map[string]string{
		"10.1.2.3:80": "10.1.2.3/32", "[::ffff:10.1.2.3]:80": "10.1.2.3/32",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64",
	} {
		if got := source(named(address)); got.String() != want {
			t.Errorf("%s: %v, want %s", address, got, want)
		}
	}
	if got := source(named("@")); got.IsValid() {
		t.Errorf("a unix socket: %v", got)
	}
}

type named string

func (n named) Network() string { return "tcp" }
func (n named) String() string  { return string(n) }

// Headers of more than 16 KiB, and what net/http reads beyond, are refused before anything is done.
func TestLargeHeadersAreRefused(t *testing.T) {
	asked := false
	l := serveLimited(t, PageLimits, nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	c := dial(t, l, "127.0.0.1")
	go fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 1<<20))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge || asked {
		t.Errorf("got %d, asked %v", answer.StatusCode, asked)
	}
}

// Beside chunks a length does not count: what follows the last chunk is the next request, whatever the length says.
func TestChunksEndARequest(t *testing.T) {
	l := serveLimited(t, PageLimits, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %q %v", r.URL.Path, body, err)
	}))
	c := dial(t, l, "127.0.0.1")
	fmt.Fprint(c, "POST /first HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"2\r\nab\r\n0\r\n\r\nGET /second HTTP/1.1\r\nHost: localhost\r\n\r\n")
	answers := bufio.NewReader(c)
	for _, want := range []string{`/first "ab" <nil>`, `/second "" <nil>`} {
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil || string(body) != want {
			t.Errorf("got %q, %v, want %q", body, err, want)
		}
	}
}

// secured is TLS for a server and a client that trusts it.
func secured(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	i := issuer.New(t, "ours")
	cert, key := i.Leaf("server", x509.ExtKeyUsageServerAuth)
	a, err := (&Files{Cert: cert, Key: key}).Open(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return a.TLS, &tls.Config{RootCAs: i.Pool()}
}

// A reader that takes nothing of an answer loses it, whatever carries it; one that is slow and takes it has all of it,
// though that takes several times as long as a reader may stall.
func TestSlowReaders(t *testing.T) {
	const stall, length = time.Second, 64 << 20
	overTLS, trust := secured(t)
	for name, config := range map[string]*tls.Config{"HTTP/1": nil, "HTTP/2": overTLS} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			l := serveLimited(t, Limits{Authenticated: 8, Unauthenticated: 8, Stall: stall}, config,
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					piece := make([]byte, 1<<20)
					for range length / len(piece) {
						if _, err := w.Write(piece); err != nil {
							ended <- err
							return
						}
					}
					ended <- nil
				}))
			ask := func() *http.Response {
				transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: trust,
					DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
						c, err := (&net.Dialer{}).DialContext(ctx, network, address)
						if err == nil {
							err = c.(*net.TCPConn).SetReadBuffer(64 << 10)
						}
						return c, err
					}}
				t.Cleanup(transport.CloseIdleConnections)
				scheme := "http"
				if config != nil {
					scheme = "https"
				}
				answer, err := (&http.Client{Transport: transport}).Get(scheme + "://" + l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { answer.Body.Close() })
				return answer
			}
			living := ask()
			if want := map[bool]int{true: 1, false: 2}[config == nil]; living.ProtoMajor != want {
				t.Fatalf("it is %s", living.Proto)
			}
			for read, wait := int64(0), time.NewTicker(stall/2); ; {
				// Some pieces are waited for, so that the whole takes longer than a stall.
				if read < 6*(4<<20) {
					<-wait.C
				}
				n, err := io.CopyN(io.Discard, living.Body, 4<<20)
				if read += n; err != nil {
					if !errors.Is(err, io.EOF) || read != length {
						t.Errorf("a slow reader has %d bytes: %v", read, err)
					}
					wait.Stop()
					break
				}
			}
			if err := <-ended; err != nil {
				t.Errorf("answering a slow reader: %v", err)
			}
			if n := drops(l)["test/slow-readers"].Count; n != 0 {
				t.Errorf("%d slow readers, of one that takes all", n)
			}
			ask()
			if err := <-ended; err == nil {
				t.Error("an answer that nobody reads was written")
			}
			if n := drops(l)["test/slow-readers"].Count; n != 1 {
				t.Errorf("%d slow readers, want 1", n)
			}
		})
	}
}

// A deadline that a handler sets holds where it is the earlier one.
func TestHandlersOwnDeadline(t *testing.T) {
	overTLS, trust := secured(t)
	for name, config := range map[string]*tls.Config{"HTTP/1": nil, "HTTP/2": overTLS} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			l := serveLimited(t, Limits{Authenticated: 8, Unauthenticated: 8, Stall: time.Hour}, config,
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					answer := http.NewResponseController(w)
					if err := answer.Flush(); err != nil { // the client has the header, however slow the machine is
						t.Error(err)
					}
					if err := answer.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
						t.Error(err)
					}
					piece := make([]byte, 1<<20)
					for {
						if _, err := w.Write(piece); err != nil {
							ended <- err
							return
						}
					}
				}))
			scheme := "http"
			if config != nil {
				scheme = "https"
			}
			transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: trust}
			t.Cleanup(transport.CloseIdleConnections)
			answer, err := (&http.Client{Transport: transport}).Get(scheme + "://" + l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { answer.Body.Close() })
			<-ended
			if n := drops(l)["test/slow-readers"].Count; n != 0 {
				t.Errorf("%d slow readers, of a deadline of the handler's", n)
			}
		})
	}
}

// A sender of a body has so long for it, and a handler that has it all has longer.
func TestBodiesHaveADeadline(t *testing.T) {
	read := make(chan time.Time, 8)
	h := paced(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	for body, want := range map[string]int{"": 0, "all of it": 2} {
		w := &deadlines{read: read}
		r, err := http.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		h.ServeHTTP(w, r)
		if len(read) != want {
			t.Fatalf("body %q: %d deadlines, want %d", body, len(read), want)
		}
		if want == 0 {
			continue
		}
		if first, last := <-read, <-read; first.IsZero() || !last.IsZero() {
			t.Errorf("deadlines %v and %v, want one and none", first, last)
		}
	}
}

type deadlines struct {
	http.ResponseWriter
	read chan time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read <- t
	return nil
}
