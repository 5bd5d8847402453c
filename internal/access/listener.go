package access

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// Limits of a Listener.
type Limits struct {
	// Authenticated bounds the connections that have sent an admitted request, Unauthenticated the others.
	Authenticated, Unauthenticated int
	// Stall is how long a client may take to read writePiece bytes of an answer (DefaultStall).
	Stall time.Duration
}

// Limits of the addresses of a server (senders; the page and the API) and of an agent (/metrics; the socket of the
// command line). An agent has two connections: its frames, and the question for its desired state that waits. So 10,000
// agents have room.
var (
	SenderLimits  = Limits{Authenticated: 24576, Unauthenticated: 512}
	PageLimits    = Limits{Authenticated: 1024, Unauthenticated: 256}
	MetricsLimits = Limits{Authenticated: 64, Unauthenticated: 32}
	SocketLimits  = Limits{Authenticated: 32, Unauthenticated: 32}
)

const (
	// DefaultStall is how long a client may take to read writePiece bytes: one that reads less than 2 KB/s is
	// disconnected.
	DefaultStall = 30 * time.Second
	// writePiece is how many bytes are written at a time, and how many the kernel may buffer beyond the client's
	// window.
	writePiece = 64 << 10
)

// Listener bounds connections. It always accepts: when a limit is reached, the oldest connection of the address with
// the most is closed, so that nobody locks others out by holding connections open.
type Listener struct {
	net.Listener
	name   string
	limits Limits
	// mu guards what follows, and conn.table.
	mu                             sync.Mutex
	authenticated, unauthenticated connTable
	// unadmitted counts admitted requests whose connections found the table of authenticated ones full.
	unadmitted uint64

	slow atomic.Uint64
}

// Limit bounds the connections of l, which Drops calls name. TLS has to wrap the result.
func Limit(l net.Listener, name string, limits Limits) *Listener {
	if limits.Stall == 0 {
		limits.Stall = DefaultStall
	}
	return &Listener{Listener: l, name: name, limits: limits,
		authenticated: newConnTable(limits.Authenticated), unauthenticated: newConnTable(limits.Unauthenticated)}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	bound(inner)
	c := &conn{Conn: inner, listener: l, from: source(inner.RemoteAddr())}
	l.mu.Lock()
	victim := l.unauthenticated.evict()
	l.unauthenticated.add(c)
	l.mu.Unlock()
	if victim != nil {
		victim.Conn.Close()
	}
	return c, nil
}

// bound bounds what the kernel buffers of an answer, and disconnects a client that reads nothing. Not every connection
// has these options, and they are not required.
func bound(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, writePiece)
		_ = unix.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(2*DefaultStall/time.Millisecond))
	})
}

// source is the unit in which connections are counted: an IPv4 address, or the /64 prefix of an IPv6 address.
func source(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{} // a unix socket
	}
	ip, bits := at.Addr().Unmap().WithZone(""), 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // the bits fit
	return p
}

// connTable has connections by their source, oldest first.
type connTable struct {
	max      int
	count    int
	evicted  uint64
	bySource map[netip.Prefix][]*conn
}

func newConnTable(most int) connTable {
	return connTable{max: most, bySource: map[netip.Prefix][]*conn{}}
}

func (p *connTable) add(c *conn) {
	p.bySource[c.from] = append(p.bySource[c.from], c)
	p.count++
	c.table = p
}

func (p *connTable) remove(c *conn) {
	all := p.bySource[c.from]
	i := slices.Index(all, c)
	all = slices.Delete(all, i, i+1)
	if p.bySource[c.from] = all; len(all) == 0 {
		delete(p.bySource, c.from)
	}
	p.count--
	c.table = nil
}

// largestSource returns the connections of the source with the most.
func (p *connTable) largestSource() (most []*conn) {
	for _, all := range p.bySource {
		if len(all) > len(most) {
			most = all
		}
	}
	return most
}

// evict removes the oldest connection of the largest source if the table is full. The caller closes it.
func (p *connTable) evict() *conn {
	if p.count < p.max {
		return nil
	}
	all := p.largestSource()
	if len(all) == 0 {
		return nil
	}
	victim := all[0]
	p.remove(victim)
	p.evicted++
	return victim
}

func (p *connTable) drop(name string) model.Drop {
	return model.Drop{Name: name, Count: p.evicted, Capacity: uint64(p.max), Used: uint64(p.count)}
}

// admit moves a connection to the authenticated ones. If that table is full, a connection of a source with more is
// closed for it; if there is none, it stays among the unauthenticated ones, and may be evicted.
func (l *Listener) admit(c *conn) {
	if c.authenticated.Load() {
		return
	}
	l.mu.Lock()
	var victim *conn
	if c.table == &l.unauthenticated {
		if to := &l.authenticated; to.count >= to.max && len(to.largestSource()) <= len(to.bySource[c.from])+1 {
			l.unadmitted++
			l.mu.Unlock()
			return
		}
		victim = l.authenticated.evict()
		l.unauthenticated.remove(c)
		l.authenticated.add(c)
		c.authenticated.Store(true)
	}
	l.mu.Unlock()
	if victim != nil {
		victim.Conn.Close()
	}
}

// Drops are the limits, with how many connections were evicted from each table, and how many were closed because their
// clients did not read.
func (l *Listener) Drops() []model.Drop {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	authenticated := l.authenticated.drop(l.name + "/connections")
	unauthenticated := l.unauthenticated.drop(l.name + "/unauthenticated-connections")
	authenticated.Count += l.unadmitted
	return []model.Drop{authenticated, unauthenticated, {Name: l.name + "/slow-readers", Count: l.slow.Load()}}
}

// Listeners are all listeners of a process; they implement agent.Reporter.
type Listeners struct{ all []*Listener }

// Limit is the function Limit; the listener is added.
func (l *Listeners) Limit(inner net.Listener, name string, limits Limits) *Listener {
	limited := Limit(inner, name, limits)
	l.all = append(l.all, limited)
	return limited
}

// Drops are those of all listeners.
func (l *Listeners) Drops() (drops []model.Drop) {
	for _, one := range l.all {
		drops = append(drops, one.Drops()...)
	}
	return drops
}

// Features returns none.
func (l *Listeners) Features() []model.Feature { return nil }

// conn is a connection of a Listener.
type conn struct {
	net.Conn
	listener *Listener
	from     netip.Prefix
	// table has the connection; nil once it is closed. The listener's mu guards it.
	table         *connTable
	authenticated atomic.Bool
	// until is the deadline set by the caller, in ns since 1970; 0 for none.
	until atomic.Int64
}

// remote is the remote address, and leads to the connection: an HTTP server passes the address alone to handlers.
type remote struct {
	net.Addr
	conn *conn
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return remote{c.Conn.RemoteAddr(), c} }

type connKey struct{}

// Admit marks the connection of an admitted request as authenticated.
func Admit(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.listener.admit(c)
	}
}

// Write writes in pieces, each of which the client must read in time. A deadline of the caller holds as well.
func (c *conn) Write(b []byte) (n int, err error) {
	for {
		piece := b[n:min(len(b), n+writePiece)]
		deadline, own := time.Now().Add(c.listener.limits.Stall), true
		if until := c.until.Load(); until != 0 && until < deadline.UnixNano() {
			deadline, own = time.Unix(0, until), false
		}
		if err := c.Conn.SetWriteDeadline(deadline); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(piece)
		n += m
		if err != nil {
			if timedOut(err) && own {
				c.listener.slow.Add(1)
			}
			return n, err
		}
		if n == len(b) {
			return n, nil
		}
	}
}

func timedOut(err error) bool {
	e, ok := err.(interface{ Timeout() bool })
	return ok && e.Timeout()
}

func (c *conn) keep(t time.Time) {
	ns := int64(0)
	if !t.IsZero() {
		ns = t.UnixNano()
	}
	c.until.Store(ns)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.keep(t)
	return c.Conn.SetDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.keep(t)
	return c.Conn.SetWriteDeadline(t)
}

// CloseWrite lets an HTTP server close its half of a connection first, as it does when a request's body is unread.
func (c *conn) CloseWrite() error {
	if below, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return below.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	if c.table != nil {
		c.table.remove(c)
	}
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
