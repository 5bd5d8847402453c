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
	// Known bounds the connections that have sent a request which was let in, Strangers those that have not yet.
	Known, Strangers int
	// Stall is how long a reader may take for writePiece bytes of an answer; 0 for DefaultStall.
	Stall time.Duration
}

// The limits of addresses of a server: senders, the page and the API; and of an agent: /metrics and the command
// line's socket.
var (
	SenderLimits  = Limits{Known: 4096, Strangers: 512}
	PageLimits    = Limits{Known: 1024, Strangers: 256}
	MetricsLimits = Limits{Known: 64, Strangers: 32}
	SocketLimits  = Limits{Known: 32, Strangers: 32}
)

const (
	// DefaultStall is how long a reader may take for writePiece bytes: who takes less than 2 KB a second is cut off.
	DefaultStall = 30 * time.Second
	// writePiece is how much is written at a time, and how much the kernel takes beyond what the other end has room for.
	writePiece = 64 << 10
)

// Listener bounds connections. It always accepts: where there are too many, the longest open one of the address with
// the most gives its place up, so that nobody keeps others out by what he holds open.
type Listener struct {
	net.Listener
	name   string
	limits Limits
	// mu guards what follows, and the places of connections.
	mu               sync.Mutex
	known, strangers places
	// unadmitted counts admitted requests for whose connections there was no place among the known ones.
	unadmitted uint64

	slow atomic.Uint64
}

// Limit bounds the connections of l, which Drops names so. What goes over TLS is secured around it.
func Limit(l net.Listener, name string, limits Limits) *Listener {
	if limits.Stall == 0 {
		limits.Stall = DefaultStall
	}
	return &Listener{Listener: l, name: name, limits: limits,
		known: newPlaces(limits.Known), strangers: newPlaces(limits.Strangers)}
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
	victim := l.strangers.makeRoom()
	l.strangers.add(c)
	l.mu.Unlock()
	if victim != nil {
		victim.Conn.Close()
	}
	return c, nil
}

// bound keeps what the kernel holds of an answer small, and drops who takes none of it. Not every connection has these
// options, and all goes on without them.
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

// source is who counts as one: an IPv4 address, or the 64 bits of an IPv6 address of which hosts have all the rest.
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

// places are connections by their source, in the order in which they came.
type places struct {
	max     int
	count   int
	evicted uint64
	of      map[netip.Prefix][]*conn
}

func newPlaces(most int) places { return places{max: most, of: map[netip.Prefix][]*conn{}} }

func (p *places) add(c *conn) {
	p.of[c.from] = append(p.of[c.from], c)
	p.count++
	c.place = p
}

func (p *places) remove(c *conn) {
	all := p.of[c.from]
	i := slices.Index(all, c)
	all = slices.Delete(all, i, i+1)
	if p.of[c.from] = all; len(all) == 0 {
		delete(p.of, c.from)
	}
	p.count--
	c.place = nil
}

// fullest has the most connections.
func (p *places) fullest() (most []*conn) {
	for _, all := range p.of {
		if len(all) > len(most) {
			most = all
		}
	}
	return most
}

// makeRoom takes the oldest connection of the fullest source out, where there is no room for another one. The caller
// closes it.
func (p *places) makeRoom() *conn {
	if p.count < p.max {
		return nil
	}
	all := p.fullest()
	if len(all) == 0 {
		return nil
	}
	victim := all[0]
	p.remove(victim)
	p.evicted++
	return victim
}

func (p *places) drop(name string) model.Drop {
	return model.Drop{Name: name, Count: p.evicted, Capacity: uint64(p.max), Used: uint64(p.count)}
}

// admit moves a connection to the known ones. Where all places are taken, one of a source with more is closed for it;
// if there is none, it stays among the strangers, and may be closed for the next of them.
func (l *Listener) admit(c *conn) {
	if c.known.Load() {
		return
	}
	l.mu.Lock()
	var victim *conn
	if c.place == &l.strangers {
		if l.known.count >= l.known.max && len(l.known.fullest()) <= len(l.known.of[c.from])+1 {
			l.unadmitted++
			l.mu.Unlock()
			return
		}
		victim = l.known.makeRoom()
		l.strangers.remove(c)
		l.known.add(c)
		c.known.Store(true)
	}
	l.mu.Unlock()
	if victim != nil {
		victim.Conn.Close()
	}
}

// Drops are the bounds, with how many connections were closed for others: those that had shown nothing yet, and the
// rest; and how many because their readers took nothing.
func (l *Listener) Drops() []model.Drop {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known, strangers := l.known.drop(l.name+"/connections"), l.strangers.drop(l.name+"/unauthenticated-connections")
	known.Count += l.unadmitted
	return []model.Drop{known, strangers, {Name: l.name + "/slow-readers", Count: l.slow.Load()}}
}

// Listeners are all that a process has, in the form in which an agent reports what it drops.
type Listeners struct{ all []*Listener }

// Limit is the function of this name.
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

// Features are none.
func (l *Listeners) Features() []model.Feature { return nil }

// conn is a connection of a Listener.
type conn struct {
	net.Conn
	listener *Listener
	from     netip.Prefix
	// place is where it counts, nil once it was closed; the listener's mu guards it.
	place *places
	known atomic.Bool
	// until is the deadline that was asked for, in nanoseconds since 1970; 0 for none.
	until atomic.Int64
}

// remote is the address of the other end, and leads to the connection: what serves requests shows its address alone.
type remote struct {
	net.Addr
	conn *conn
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return remote{c.Conn.RemoteAddr(), c} }

type connKey struct{}

// Admit says that a request of a Server was let in: its connection is a stranger's no more.
func Admit(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.listener.admit(c)
	}
}

// Write writes in pieces, each of which the other end must take in time. A deadline that was set holds as well.
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

// CloseWrite lets a server end its half of a connection first, as it does where a request's body is unread.
func (c *conn) CloseWrite() error {
	if below, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return below.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	if c.place != nil {
		c.place.remove(c)
	}
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
