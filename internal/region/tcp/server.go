package tcp

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"outsight/internal/model"
	"outsight/internal/region"
)

// Bounds of a Server.
const (
	maxConnections = 64
	// BytesPerSecond is what one connection may read, with as much at once, and MessagesPerSecond how many messages.
	BytesPerSecond    = 64 << 20
	MessagesPerSecond = 1000
	// firstWait is for how long a connection may be silent before its first message, idleWait before a later one, and
	// messageWait how long one message may take to come, or a reply to go.
	firstWait   = 10 * time.Second
	idleWait    = 5 * time.Minute
	messageWait = 10 * time.Second
)

// Options of NewServer. The zero value works.
type Options struct {
	// Allow are the networks from which readers may come; none is all.
	Allow  []netip.Prefix
	Logger *slog.Logger
	// BytesPerSecond is what one connection may read (default BytesPerSecond).
	BytesPerSecond int
	// Files lets use copy from a region that is none of those that are always there, and tells whether there is one of this id.
	// use does not keep the memory.
	Files func(id uint32, use func(memory []byte)) bool
	// Connector makes connections by another transport; nil for none.
	Connector Connector
}

// Connector makes connections by another transport for readers that have a key.
type Connector interface {
	// Connect takes what a reader told of its end, OfferBytes, and answers what the reader is to know of this one.
	Connect(offer []byte) (answer []byte, c Connection, err error)
}

// Connection is one by another transport. It lasts as long as the TCP connection by which it was asked for.
type Connection interface {
	// Ended is closed when the other transport is no more; the reader's TCP connection is ended then.
	Ended() <-chan struct{}
	Close() error
}

// Server answers reads of regions.
type Server struct {
	listener net.Listener
	regions  map[uint32][]byte
	keys     map[uint32][]byte
	options  Options

	connections atomic.Int64
	// refused connections for their address, and for the bound; replies by their status.
	foreign, crowded atomic.Uint64
	replies          [statuses]atomic.Uint64
}

// NewServer serves regions, by their ids the memory of each, which begins at a multiple of 8, to who has one of the keys.
func NewServer(l net.Listener, regions map[uint32][]byte, keys []region.Key, o Options) *Server {
	s := &Server{listener: l, regions: regions, keys: make(map[uint32][]byte, len(keys)), options: o}
	for _, k := range keys {
		s.keys[k.ID] = k.Secret
	}
	if s.options.Logger == nil {
		s.options.Logger = slog.New(slog.DiscardHandler)
	}
	if s.options.BytesPerSecond == 0 {
		s.options.BytesPerSecond = BytesPerSecond
	}
	return s
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	defer context.AfterFunc(ctx, func() { s.listener.Close() })()
	for {
		c, err := s.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting a reader of regions: %w", err)
		}
		if !s.allowed(c.RemoteAddr()) {
			s.foreign.Add(1)
			c.Close()
			continue
		}
		if s.connections.Add(1) > maxConnections {
			s.connections.Add(-1)
			s.crowded.Add(1)
			c.Close()
			continue
		}
		running.Go(func() {
			defer s.connections.Add(-1)
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			if err := s.serve(c); err != nil && !errors.Is(err, io.EOF) {
				s.options.Logger.Debug("a reader of regions is gone", "address", c.RemoteAddr(), "error", err)
			}
		})
	}
}

func (s *Server) allowed(a net.Addr) bool {
	if len(s.options.Allow) == 0 {
		return true
	}
	from, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return false
	}
	for _, p := range s.options.Allow {
		if p.Contains(from.Addr().Unmap()) {
			return true
		}
	}
	return false
}

// connection is what is known of one reader.
type connection struct {
	net.Conn
	challenge [challengeBytes]byte
	sequence  uint64
	bytes     *rate.Limiter
	messages  *rate.Limiter
	// secret is the key of the last message that was authentic.
	secret []byte
	// in has what has come of messages, message the one that is being answered, buffer its reply.
	in      *bufio.Reader
	message [requestBytes + MaxReads*readBytes + macBytes]byte
	reads   []wanted
	buffer  []byte
	// other is the reader's connection by another transport.
	other Connection
}

func (s *Server) serve(c net.Conn) error {
	r := &connection{Conn: c, in: bufio.NewReader(c), bytes: rate.NewLimiter(rate.Limit(s.options.BytesPerSecond), max(s.options.BytesPerSecond,
		MaxBytes)), messages: rate.NewLimiter(MessagesPerSecond, MessagesPerSecond)}
	if _, err := rand.Read(r.challenge[:]); err != nil {
		return err
	}
	hello := binary.LittleEndian.AppendUint32(helloMagic[:], version)
	hello = append(binary.LittleEndian.AppendUint32(hello, 0), r.challenge[:]...)
	if err := r.write(hello); err != nil {
		return err
	}
	defer func() {
		if r.other != nil {
			_ = r.other.Close() // where it cannot be closed, its transport has ended
		}
	}()
	for wait := firstWait; ; wait = idleWait {
		deadline := time.Now().Add(wait)
		if r.other != nil {
			deadline = time.Time{} // its reader has nothing more to say: that its host is gone tells keep-alive
		}
		if err := c.SetReadDeadline(deadline); err != nil {
			return err
		}
		on, err := s.answer(r)
		if err != nil || !on {
			return err
		}
	}
}

// answer reads one message and answers it. on is false where no other one is to be read.
func (s *Server) answer(c *connection) (on bool, err error) {
	b := c.message[:]
	if _, err := io.ReadFull(c.in, b[:1]); err != nil {
		return false, err
	}
	if err := c.SetReadDeadline(time.Now().Add(messageWait)); err != nil {
		return false, err
	}
	if _, err := io.ReadFull(c.in, b[1:requestBytes]); err != nil {
		return false, err
	}
	n, err := parseCount(b)
	if err != nil {
		return false, s.refuse(c, nil, reply{status: statusMalformed})
	}
	end := requestBytes + n*readBytes
	if _, err := io.ReadFull(c.in, b[requestBytes:end+macBytes]); err != nil {
		return false, err
	}
	q, err := parseRequest(b[:end], c.reads[:0])
	if err != nil {
		return false, s.refuse(c, nil, reply{status: statusMalformed})
	}
	secret, known := s.keys[q.key]
	if want := mac(secret, "request", c.challenge[:], b[:end]); !known || !hmac.Equal(want, b[end:end+macBytes]) ||
		q.sequence != c.sequence+1 {
		return false, s.refuse(c, nil, reply{status: statusKey, sequence: q.sequence})
	}
	c.sequence, c.secret, c.reads = q.sequence, secret, q.reads
	if q.offer != nil {
		return true, s.connect(c, &q)
	}
	return true, s.read(c, &q)
}

// connect answers an authentic request for a connection by another transport. There is one for each of TCP.
func (s *Server) connect(c *connection, q *request) error {
	r := reply{status: statusTransport, sequence: q.sequence}
	if !c.messages.AllowN(time.Now(), 1) {
		r.status = statusRate
		return s.refuse(c, q, r)
	}
	if s.options.Connector == nil || c.other != nil {
		return s.refuse(c, q, r)
	}
	answer, other, err := s.options.Connector.Connect(q.offer)
	if err != nil {
		s.options.Logger.Warn("a reader has no connection", "address", c.RemoteAddr(), "error", err)
		return s.refuse(c, q, r)
	}
	c.other = other
	go func() {
		<-other.Ended() // also by Close
		c.Close()
	}()
	s.replies[statusOK].Add(1)
	r = reply{sequence: q.sequence, length: uint32(len(answer))}
	b := append(r.append(nil), answer...)
	return c.write(append(b, mac(c.secret, "reply", c.challenge[:], q.nonce[:], b)...))
}

// read answers an authentic request.
func (s *Server) read(c *connection, q *request) error {
	r := reply{sequence: q.sequence}
	for _, w := range q.reads {
		r.length += w.length
	}
	if now := time.Now(); !c.messages.AllowN(now, 1) || !c.bytes.AllowN(now, int(r.length)) {
		return s.refuse(c, q, reply{status: statusRate, sequence: q.sequence})
	}
	size := replyBytes + int(r.length) + macBytes
	if cap(c.buffer) < size {
		c.buffer = make([]byte, 0, size)
	}
	b := r.append(c.buffer[:0])
	for i, w := range q.reads {
		var err error
		known := s.use(w.region, func(memory []byte) {
			var part []byte
			if part, err = region.Part(memory, w.offset, int(w.length)); err == nil {
				at := len(b)
				b = b[:at+len(part)]
				err = region.Copy(b[at:], part)
			}
		})
		if !known {
			return s.refuse(c, q, reply{status: statusRegion, sequence: q.sequence, read: uint32(i)})
		}
		if err != nil {
			return s.refuse(c, q, reply{status: statusBounds, sequence: q.sequence, read: uint32(i)})
		}
	}
	s.replies[statusOK].Add(1)
	return c.write(append(b, mac(c.secret, "reply", c.challenge[:], q.nonce[:], b)...))
}

// use lets use copy from a region; false where there is none of this id.
func (s *Server) use(id uint32, use func(memory []byte)) bool {
	if memory, known := s.regions[id]; known {
		use(memory)
		return true
	}
	return s.options.Files != nil && s.options.Files(id, use)
}

// refuse answers without data; q is nil where the request was not authentic: the reply is not, either.
func (s *Server) refuse(c *connection, q *request, r reply) error {
	s.replies[r.status].Add(1)
	b := r.append(nil)
	if q == nil {
		return c.write(append(b, make([]byte, macBytes)...))
	}
	return c.write(append(b, mac(c.secret, "reply", c.challenge[:], q.nonce[:], b)...))
}

func (c *connection) write(b []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(messageWait)); err != nil {
		return err
	}
	_, err := c.Write(b)
	return err
}

// Features are none of its own.
func (s *Server) Features() []model.Feature { return nil }

// Drops tells what was refused, by the reason.
func (s *Server) Drops() []model.Drop {
	all := []model.Drop{
		{Name: "region/tcp/address", Count: s.foreign.Load()},
		{Name: "region/tcp/connections", Count: s.crowded.Load(), Capacity: maxConnections,
			Used: uint64(s.connections.Load())},
	}
	for i := statusOK + 1; i < statuses; i++ {
		all = append(all, model.Drop{Name: "region/tcp/" + statusNames[i], Count: s.replies[i].Load()})
	}
	return all
}

// Close ends it.
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
