package readwire

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Options of Dial. The zero value works.
type Options struct {
	// Window is how many requests may be unanswered at a time (default 8). With 1, what is read first is also older:
	// records that are longer than MaxBytes need it.
	Window int
	// Timeout is how long an answer is waited for before the request is sent again (default 20 ms); it doubles each
	// time. Attempts bounds how often a request is sent (default 6).
	Timeout  time.Duration
	Attempts int
	// Alone has each request sent by itself. Otherwise requests of a length are sent by one system call, which the kernel
	// makes packets of (UDP_SEGMENT), as long as the host answers them.
	Alone bool
}

// Counters are what became of a client's requests.
type Counters struct {
	// Sent are requests, those that were sent again (Resent) among them. Answered are those whose answer came, Strays
	// packets that answer nothing that is being waited for.
	Sent, Resent, Answered, Strays uint64
	// Lost are requests that were given up after their last attempt.
	Lost uint64
	// Batches are system calls that sent several requests, Unanswered those of them of which none was answered in time.
	Batches, Unanswered uint64
}

// Read is a piece of a region: len(Data) bytes at Offset, both multiples of 8, within MaxBytes that begin at a multiple
// of BlockBytes.
type Read struct {
	Region uint32
	Offset uint64
	Data   []byte
	// Err is why Data was not read, nil where it was. It is a StatusError where the host refused.
	Err error
}

// StatusError is a host's refusal.
type StatusError struct {
	Region uint32
	Offset uint64
	Status Status
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("reading region %d at %d: %v", e.Region, e.Offset, e.Status)
}

// ErrNoAnswer is that of a read whose last attempt was not answered in time: the host is away, does not know the key,
// does not allow this address, or is asked too often. Hosts say nothing to who is not authentic.
var ErrNoAnswer = errors.New("no answer")

// Client reads one host. Its methods may be called by several goroutines, which take turns.
type Client struct {
	options  Options
	key      Key
	conn     *net.UDPConn
	from     netip.AddrPort
	counters struct{ sent, resent, answered, strays, lost, batches, unanswered atomic.Uint64 }

	// mu guards what follows, and the connection's reading side.
	mu      sync.Mutex
	nonces  *mathrand.ChaCha8
	packet  []byte
	waiting map[uint64]*attempt
	// attempts, order and pieces are those of the reading that goes on; their memory is that of the one before.
	attempts []attempt
	order    []int
	pieces   []Read
	together together
	// deadline is the socket's: no request of those that wait is overdue before. It is zero where it has to be set anew.
	deadline time.Time
}

// attempt is a request that is not answered yet.
type attempt struct {
	read     *Read
	nonce    uint64
	attempts int
	until    time.Time
	// batch is that with which it was sent, nil where it was sent by itself.
	batch *batch
}

// Dial makes a client of the host at an address. Nothing is sent.
func Dial(address string, key Key, o Options) (*Client, error) {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return nil, fmt.Errorf("reading regions of %s: %w", address, err)
	}
	var seed [32]byte
	rand.Read(seed[:])
	local := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	o.Window, o.Attempts = cmp.Or(o.Window, 8), cmp.Or(o.Attempts, 6)
	o.Timeout = cmp.Or(o.Timeout, 20*time.Millisecond)
	c := &Client{options: o, key: key, conn: conn.(*net.UDPConn), from: netip.AddrPortFrom(local.Addr(), local.Port()),
		nonces: mathrand.NewChaCha8(seed), packet: make([]byte, 0, 65536), waiting: make(map[uint64]*attempt)}
	if c.together.alone = o.Alone; !o.Alone {
		c.takeTogether()
	}
	return c, nil
}

// Close closes the socket. A reading that goes on ends with an error.
func (c *Client) Close() error { return c.conn.Close() }

// Counters are those up to now.
func (c *Client) Counters() Counters {
	n := &c.counters
	return Counters{Sent: n.sent.Load(), Resent: n.resent.Load(), Answered: n.answered.Load(), Strays: n.strays.Load(),
		Lost: n.lost.Load(), Batches: n.batches.Load(), Unanswered: n.unanswered.Load()}
}

// Read reads len(to) bytes of a region at an offset, both multiples of 8, in pieces of up to MaxBytes. Each piece is of
// a moment of its own, and its words of 8 bytes are whole.
func (c *Client) Read(ctx context.Context, region uint32, offset uint64, to []byte) error {
	return c.ReadAll(ctx, appendPieces(make([]Read, 0, len(to)/MaxBytes+2), region, offset, to))
}

// appendPieces appends a read in pieces that fit into packets.
func appendPieces(reads []Read, region uint32, offset uint64, to []byte) []Read {
	for len(to) > 0 {
		n := min(len(to), MaxBytes-int(offset%BlockBytes))
		reads = append(reads, Read{Region: region, Offset: offset, Data: to[:n]})
		to, offset = to[n:], offset+uint64(n)
	}
	return reads
}

// ReadAll reads pieces, several at a time and in any order. The error is that of the first piece that was not read;
// each has its own.
func (c *Client) ReadAll(ctx context.Context, reads []Read) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readAll(ctx, reads)
}

// readAll is ReadAll. The caller holds mu.
func (c *Client) readAll(ctx context.Context, reads []Read) error {
	defer clear(c.waiting)
	// A context that ends while nothing comes wakes the socket.
	stop := context.AfterFunc(ctx, func() { c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	c.deadline = time.Time{}
	c.attempts = slices.Grow(c.attempts[:0], len(reads))[:len(reads)]
	clear(c.attempts)
	c.order = inOrder(c.order[:0], reads)
	for left := c.order; len(left) > 0 || len(c.waiting) > 0; {
		for c.hasRoom(len(left)) {
			n := c.nextTogether(reads, left)
			if err := c.sendTogether(reads, left[:n]); err != nil {
				return err
			}
			left = left[n:]
		}
		if len(c.waiting) == 0 {
			break
		}
		if err := c.receive(ctx); err != nil {
			return err
		}
	}
	for i := range reads {
		if err := reads[i].Err; errors.Is(err, ErrNoAnswer) {
			return fmt.Errorf("reading region %d at %d of %v: %w", reads[i].Region, reads[i].Offset, c.conn.RemoteAddr(), err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func valid(r *Read) error {
	if n := len(r.Data); n == 0 || n%8 != 0 || r.Offset%8 != 0 || int(r.Offset%BlockBytes)+n > MaxBytes {
		return fmt.Errorf("BUG: %d bytes of region %d at %d are asked for, want multiples of 8 within %d bytes from a "+
			"multiple of %d", n, r.Region, r.Offset, MaxBytes, BlockBytes)
	}
	return nil
}

// request is the whole blocks that a piece lies in, without a nonce; before are the bytes before the piece.
func (r *Read) request() (q Request, before int) {
	before = int(r.Offset % BlockBytes)
	return Request{Region: r.Region, Offset: r.Offset - uint64(before),
		Length: uint16((before + len(r.Data) + BlockBytes - 1) / BlockBytes * BlockBytes)}, before
}

// append appends a request to the packet, with a new nonce: an answer to an earlier attempt is of an earlier moment. The
// caller holds mu.
func (c *Client) append(a *attempt, now time.Time) {
	a.nonce = c.nonces.Uint64()
	a.until = now.Add(c.options.Timeout << a.attempts)
	a.attempts++
	if a.until.Before(c.deadline) {
		c.deadline = time.Time{}
	}
	request, _ := a.read.request()
	request.Nonce = a.nonce
	c.packet = AppendRequest(c.packet, request, c.from, c.key)
	c.counters.sent.Add(1)
	if a.attempts > 1 {
		c.counters.resent.Add(1)
	}
	c.waiting[a.nonce] = a
}

// send sends a request by itself. The caller holds mu.
func (c *Client) send(a *attempt) error {
	a.batch = nil
	c.packet = c.packet[:0]
	c.append(a, time.Now())
	return c.write(c.packet)
}

func (c *Client) write(packet []byte) error {
	if _, err := c.conn.Write(packet); err != nil && !isRefused(err) {
		return fmt.Errorf("sending to %v: %w", c.conn.RemoteAddr(), err)
	}
	return nil
}

// receive takes what comes until something has come, or a request is overdue. The caller holds mu.
func (c *Client) receive(ctx context.Context) error {
	if c.deadline.IsZero() {
		for _, a := range c.waiting {
			if c.deadline.IsZero() || a.until.Before(c.deadline) {
				c.deadline = a.until
			}
		}
		if err := c.conn.SetReadDeadline(c.deadline); err != nil {
			return fmt.Errorf("waiting for %v: %w", c.conn.RemoteAddr(), err)
		}
		if err := ctx.Err(); err != nil { // after the deadline: whoever ends the context sets it after this
			return fmt.Errorf("waiting for %v: %w", c.conn.RemoteAddr(), err)
		}
	}
	packets, each, err := c.read()
	switch {
	case err == nil:
		for one := range slices.Chunk(packets, each) {
			c.takeAll(one)
		}
		if len(packets) == 0 {
			c.counters.strays.Add(1)
		}
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.resend(ctx)
	case isRefused(err):
		return nil // nobody listens there yet, or a router says so: the request is sent again in its time
	}
	return fmt.Errorf("waiting for %v: %w", c.conn.RemoteAddr(), err)
}

func (c *Client) resend(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("waiting for %v: %w", c.conn.RemoteAddr(), err)
	}
	c.deadline = time.Time{}
	now := time.Now()
	for nonce, a := range c.waiting {
		if a.until.After(now) {
			continue
		}
		delete(c.waiting, nonce)
		c.missed(a.batch)
		if a.attempts >= c.options.Attempts {
			c.counters.lost.Add(1)
			continue
		}
		if err := c.send(a); err != nil {
			return err
		}
	}
	return nil
}

// takeAll takes the replies of a packet, of which there may be several.
func (c *Client) takeAll(packet []byte) {
	for len(packet) > 0 {
		r, rest, err := cutReply(packet)
		if err != nil {
			c.counters.strays.Add(1)
			return
		}
		c.take(r)
		packet = rest
	}
}

// take finds whose answer a reply is.
func (c *Client) take(r Reply) {
	a := c.waiting[r.Nonce]
	if a == nil {
		c.counters.strays.Add(1)
		return
	}
	request, before := a.read.request()
	request.Nonce = r.Nonce
	if request != r.Request {
		c.counters.strays.Add(1)
		return
	}
	delete(c.waiting, r.Nonce)
	c.counters.answered.Add(1)
	c.together.answered(a.batch)
	if a.read.Err = nil; r.Status != Done {
		a.read.Err = &StatusError{a.read.Region, a.read.Offset, r.Status}
		return
	}
	copy(a.read.Data, r.Data[before:])
}

// NewKey is a new secret.
func NewKey(id uint16) Key {
	k := Key{ID: id}
	rand.Read(k.Secret[:])
	return k
}

// isRefused: an ICMP message came for an earlier packet.
func isRefused(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}
