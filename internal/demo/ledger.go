package demo

import (
	"net"
	"sync"
	"sync/atomic"
)

// Counts are what a service itself knows of its traffic with one peer, as one end sees it.
// Counters only grow.
type Counts struct {
	// Opened counts connections established, Closed those this end has closed, Failures
	// attempts that failed.
	Opened   uint64 `json:"opened"`
	Closed   uint64 `json:"closed"`
	Failures uint64 `json:"failures"`
	// Requests counts requests fully written by a client or taken up by a server.
	Requests uint64 `json:"requests"`
	// SentBytes and ReceivedBytes are what write and read on the connections returned.
	SentBytes     uint64 `json:"sent_bytes"`
	ReceivedBytes uint64 `json:"received_bytes"`
}

// tally is a Counts that several connections add to at the same time.
type tally struct {
	opened, closed, failures, requests, sent, received atomic.Uint64
}

func (t *tally) counts() Counts {
	return Counts{
		Opened: t.opened.Load(), Closed: t.closed.Load(), Failures: t.failures.Load(),
		Requests: t.requests.Load(), SentBytes: t.sent.Load(), ReceivedBytes: t.received.Load(),
	}
}

// maxPeers bounds a ledger; what comes after is counted together as otherPeers.
const (
	maxPeers   = 64
	otherPeers = "others"
)

// ledger holds one tally per peer of a service.
type ledger struct {
	mu      sync.Mutex        // guards the two maps, not the tallies
	calls   map[string]*tally // by the name of the server called
	callers map[string]*tally // by the address of the client
}

func newLedger() *ledger {
	return &ledger{calls: map[string]*tally{}, callers: map[string]*tally{}}
}

func (l *ledger) call(server string) *tally   { return l.in(l.calls, server) }
func (l *ledger) caller(client string) *tally { return l.in(l.callers, client) }

func (l *ledger) in(m map[string]*tally, key string) *tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m[key] == nil && len(m) >= maxPeers {
		key = otherPeers
	}
	if m[key] == nil {
		m[key] = &tally{}
	}
	return m[key]
}

func (l *ledger) counts() (calls, callers map[string]Counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls, callers = map[string]Counts{}, map[string]Counts{}
	for k, t := range l.calls {
		calls[k] = t.counts()
	}
	for k, t := range l.callers {
		callers[k] = t.counts()
	}
	return calls, callers
}

// countedConn counts what passes through a connection. It hides the ReadFrom and WriteTo of a
// TCP connection on purpose: sendfile and splice would pass by the count.
type countedConn struct {
	net.Conn
	tally *tally
	once  sync.Once
}

func newCountedConn(c net.Conn, t *tally) *countedConn {
	t.opened.Add(1)
	return &countedConn{Conn: c, tally: t}
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tally.received.Add(uint64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.tally.sent.Add(uint64(n))
	return n, err
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.tally.closed.Add(1) })
	return c.Conn.Close()
}

// countedListener accepts connections that count to the tally of their client's address.
type countedListener struct {
	net.Listener
	ledger *ledger
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newCountedConn(c, l.ledger.caller(hostOf(c.RemoteAddr().String()))), nil
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
