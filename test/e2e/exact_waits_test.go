package e2e

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"outsight/bench/traffic"
)

// TestWaitsAreNotSlowRequests: answers that take long by their nature do not make a service slow.
// A slow answer does.
func TestWaitsAreNotSlowRequests(t *testing.T) {
	t.Parallel()
	o := shared(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T) netip.AddrPort
		// counter has one at each end, if it is set.
		counter string
		slow    bool
	}{
		{"a slow answer", slowAnswer, "transactions", true},
		{"nginx sends a file for seconds", download, "transfers", false},
		{"a long poll", longPoll, "held_requests", false},
		{"a WebSocket", webSocket, "", false},
		{"LISTEN and NOTIFY", listenNotify, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			service := c.run(t)
			for _, side := range []string{"client", "server"} {
				selector := fmt.Sprintf(`{side=%q,service=%q}`, side, service)
				eventually(t, func() error {
					opened, closed := o.query("sum(outsight_edge_connections_opened_total"+selector+")").sum(),
						o.query("sum(outsight_edge_connections_closed_total"+selector+")").sum()
					if opened == 0 || closed != opened {
						return fmt.Errorf("%s: %v connections opened, %v closed", selector, opened, closed)
					}
					return nil
				})
				var worst float64
				for _, slow := range o.query("histogram_fraction(1, +Inf, outsight_edge_transaction_duration_seconds" +
					selector + ")") {
					if slow.value > worst { // NaN where there is no transaction at all
						worst = slow.value
					}
				}
				if (worst > 0) != c.slow {
					t.Errorf("%s: %v of the requests took over a second", selector, worst)
				}
				if c.counter != "" {
					if n := o.number("sum(outsight_edge_" + c.counter + "_total" + selector + ")"); n != 1 {
						t.Errorf("%s: %v %s, want 1", selector, n, c.counter)
					}
				}
			}
		})
	}
}

// download reads a large file from nginx for four seconds.
func download(t *testing.T) netip.AddrPort {
	server, err := traffic.StartNginx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	conn := connect(t, server.Address)
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n", traffic.NginxLarge)
	const slices = 80
	for range slices {
		if _, err := io.CopyN(io.Discard, onlyReader{conn}, traffic.NginxLargeBytes/slices); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	io.Copy(io.Discard, onlyReader{conn}) // the size of the reply's head
	return server.Address
}

// onlyReader hides what else a connection can do.
type onlyReader struct{ io.Reader }

// slowAnswer answers after two seconds.
func slowAnswer(t *testing.T) netip.AddrPort { return answerAfter(t, 2*time.Second) }

// longPoll answers after more than ten seconds.
func longPoll(t *testing.T) netip.AddrPort { return answerAfter(t, 10500*time.Millisecond) }

func answerAfter(t *testing.T, delay time.Duration) netip.AddrPort {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(delay)
		io.WriteString(w, "news")
	}))
	defer server.Close()
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != "news" {
		t.Fatalf("the answer is %q: %v", text, err)
	}
	return netip.MustParseAddrPort(server.Listener.Addr().String())
}

// webSocket lets each end send when it likes: what the server sends seconds after a message of
// the client's is no answer to it.
func webSocket(t *testing.T) netip.AddrPort {
	message := append([]byte{0x81, 4}, "news"...) // a text frame
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
		for range 2 {
			io.ReadFull(buffered, make([]byte, 10))
			time.Sleep(2500 * time.Millisecond)
			conn.Write(message)
		}
	}))
	defer server.Close()
	address := netip.MustParseAddrPort(server.Listener.Addr().String())
	conn := connect(t, address)
	defer conn.Close()
	io.WriteString(conn, "GET /chat HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade: %v, %v", response, err)
	}
	for range 2 {
		conn.Write([]byte{0x81, 0x84, 0, 0, 0, 0, 'p', 'i', 'n', 'g'}) // a text frame, masked
		if _, err := io.ReadFull(reader, make([]byte, len(message))); err != nil {
			t.Fatal(err)
		}
	}
	return address
}

// listenNotify waits seconds for notices of a database, which another connection causes.
func listenNotify(t *testing.T) netip.AddrPort {
	server, err := traffic.StartPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	listener, notifier := newSession(t, server.Address), newSession(t, server.Address)
	listener.ask("LISTEN news")
	for range 2 {
		time.Sleep(2500 * time.Millisecond)
		notifier.ask("NOTIFY news")
		listener.await('A')
	}
	listener.ask("SELECT 1")
	listener.Close()
	notifier.Close()
	return server.Address
}

// session is a connection to PostgreSQL that speaks as little of its protocol as is needed.
type session struct {
	net.Conn
	t *testing.T
}

func newSession(t *testing.T, address netip.AddrPort) session {
	s := session{connect(t, address), t}
	parameters := "user\x00postgres\x00database\x00postgres\x00\x00"
	startup := binary.BigEndian.AppendUint32(nil, uint32(8+len(parameters)))
	s.Write(append(binary.BigEndian.AppendUint32(startup, 3<<16), parameters...))
	s.await('Z')
	return s
}

// ask makes a query and reads until the server is ready for the next.
func (s session) ask(query string) {
	s.t.Helper()
	s.Write(append(append(binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(5+len(query))), query...), 0))
	s.await('Z')
}

// await reads messages up to the first of a kind.
func (s session) await(kind byte) {
	s.t.Helper()
	for head := make([]byte, 5); head[0] != kind; {
		if _, err := io.ReadFull(s, head); err != nil {
			s.t.Fatal(err)
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(s, body); err != nil || head[0] == 'E' {
			s.t.Fatalf("PostgreSQL answers %q: %v", body, err)
		}
	}
}

func connect(t *testing.T, address netip.AddrPort) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
