package stamp

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// ReflectorOptions of a Reflector. The zero value answers nobody.
type ReflectorOptions struct {
	// Peer says whether an address may ask, and with which key; nil is nobody, and a nil key open packets. The session's
	// number is that of an authenticated packet, which nobody vouches for yet; 0 of one that is too short for that.
	Peer func(from netip.Addr, session uint16) (key Key, ok bool)
	// MaxPerSecond bounds the packets that one address is answered (1000), Sessions those that are remembered (4096).
	MaxPerSecond float64
	Sessions     int
	// Clock is the error estimate of this host's clock; nil for one that is not synchronized, and a second off.
	Clock func() ErrorEstimate
	// Answered is told of each request that was answered, once the kernel has said when the reply left, by the goroutine of
	// Run. It is for who runs both ends; nil for nobody.
	Answered func(Answer)
}

// Answer is a request that a Reflector answered.
type Answer struct {
	From    netip.AddrPort
	Session uint16
	// Number is the sender's.
	Number         uint32
	Received, Sent time.Time
	// KernelReceived and KernelSent are whether the times are the kernel's.
	KernelReceived, KernelSent bool
}

// maxLeaving bounds the replies of which the kernel has not said yet when they left.
const maxLeaving = 1024

// ReflectorStats count what a Reflector received.
type ReflectorStats struct {
	Answered uint64 `json:"answered"`
	// Strangers were not answered because nobody knows them, Limited because they asked too often.
	Strangers uint64 `json:"strangers"`
	Limited   uint64 `json:"limited"`
	// Malformed packets were too short or had a wrong form, Forged ones a wrong HMAC, Replayed ones a number that was
	// answered already in an authenticated session.
	Malformed uint64 `json:"malformed"`
	Forged    uint64 `json:"forged"`
	Replayed  uint64 `json:"replayed"`
	// Evicted sessions were forgotten for want of room.
	Evicted uint64 `json:"evicted_sessions"`
}

// Reflector answers session senders. A reply is never longer than its request, unless that is shorter than a reply can be:
// then it is not answered, since a forged sender's address would receive more than the forger has sent.
type Reflector struct {
	options ReflectorOptions
	socket  *socket
	counts  struct {
		answered, strangers, limited, malformed, forged, replayed, evicted atomic.Uint64
	}
	// mu guards sessions and order, which has them from the longest unused on.
	mu       sync.Mutex
	sessions map[sessionKey]*session
	// leaving has the answers of which the kernel has not said yet when they left, by its identification. It is Run's.
	leaving map[uint32]Answer
}

type sessionKey struct {
	peer netip.AddrPort
	id   uint16
}

// session is what is known of a sender.
type session struct {
	limit *rate.Limiter
	used  time.Time
	// next is the number of the next reply: the reflector counts for itself, so that loss is told apart by direction.
	next               uint32
	received, answered uint32
	// newest number that was received, and a bit for each of the replayWindow up to it that was.
	newest uint32
	seen   [replayWindow / 64]uint64
}

// replayWindow is how far a packet may be behind the newest: what comes at a packet each millisecond and a second late.
const replayWindow = 1024

// NewReflector makes a reflector on a socket. Nothing is answered before Run.
func NewReflector(conn *net.UDPConn, o ReflectorOptions) (*Reflector, error) {
	if o.MaxPerSecond == 0 {
		o.MaxPerSecond = 1000
	}
	if o.Sessions == 0 {
		o.Sessions = 4096
	}
	if o.Clock == nil {
		o.Clock = func() ErrorEstimate { return ErrorEstimate{Error: time.Second} }
	}
	s, err := newSocket(conn)
	if err != nil {
		return nil, err
	}
	return &Reflector{options: o, socket: s, sessions: map[sessionKey]*session{}, leaving: map[uint32]Answer{}}, nil
}

// Stats count what was received so far.
func (r *Reflector) Stats() ReflectorStats {
	c := &r.counts
	return ReflectorStats{c.answered.Load(), c.strangers.Load(), c.limited.Load(), c.malformed.Load(), c.forged.Load(),
		c.replayed.Load(), c.evicted.Load()}
}

// Run answers until ctx ends, and closes the socket.
func (r *Reflector) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { r.socket.conn.Close() })
	defer stop()
	defer r.socket.conn.Close()
	defer r.leave()
	buffer := make([]byte, MaxLength)
	for {
		n, a, err := r.socket.receive(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && Transient(err):
			continue
		case err != nil:
			return fmt.Errorf("reading STAMP requests: %w", err)
		}
		if reply := r.answer(buffer[:n], a); reply != nil {
			// A reply that cannot be sent is one that was lost.
			if id, err := r.socket.send(reply.bytes, a, reply.tos); err == nil {
				r.counts.answered.Add(1)
				if r.options.Answered != nil {
					r.leaving[id] = reply.answer
				}
			}
		}
		r.socket.departures(r.departed) // a reply cannot hold its own
		if !r.socket.stamped || len(r.leaving) > maxLeaving {
			r.leave()
		}
	}
}

// departed tells of a reply when the kernel sent it.
func (r *Reflector) departed(id uint32, at time.Time) {
	if answer, ok := r.leaving[id]; ok {
		answer.Sent, answer.KernelSent = at, true
		r.options.Answered(answer)
		delete(r.leaving, id)
	}
}

// leave tells of the replies of which the kernel does not say when they left.
func (r *Reflector) leave() {
	for _, answer := range r.leaving {
		r.options.Answered(answer)
	}
	clear(r.leaving)
}

type outgoing struct {
	bytes  []byte
	tos    uint8
	answer Answer
}

// answer is the reply to a packet; nil where there is none.
func (r *Reflector) answer(b []byte, a arrival) *outgoing {
	if r.options.Peer == nil {
		r.counts.strangers.Add(1)
		return nil
	}
	claimed := uint16(0)
	if len(b) >= authenticatedLength {
		claimed = binary.BigEndian.Uint16(b[authenticatedLayout.session:])
	}
	key, known := r.options.Peer(a.from.Addr(), claimed)
	if !known {
		r.counts.strangers.Add(1)
		return nil
	}
	request, err := ParseRequest(b, key, a.at)
	switch {
	case errors.Is(err, ErrHMAC):
		r.counts.forged.Add(1)
		return nil
	case errors.Is(err, ErrTLV):
		// RFC 8972 section 4.6: it is answered, and what could not be read is marked. Here the base packet alone is.
		request.Extensions = nil
		r.counts.malformed.Add(1)
	case err != nil || len(b) < openLength:
		r.counts.malformed.Add(1)
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.session(sessionKey{a.from, request.Session}, a.at)
	if !s.limit.AllowN(a.at, 1) {
		r.counts.limited.Add(1)
		return nil
	}
	if key != nil && !s.first(request.Sequence) {
		r.counts.replayed.Add(1)
		return nil
	}
	s.received++
	reply := Reply{Sequence: s.next, Received: a.at, Session: request.Session, Request: request, TTL: a.ttl,
		Error: r.options.Clock()}
	reply.Error.Format = request.Error.Format
	s.next++
	var tos uint8
	reply.Extensions, tos = s.extensions(request.Extensions, a, cmp.Or(reply.Error.Source, ClockFree))
	s.answered++
	reply.Sent = time.Now()
	out := &outgoing{reply.Append(make([]byte, 0, len(b)), key), tos, Answer{From: a.from, Session: request.Session,
		Number: request.Sequence, Received: a.at, Sent: reply.Sent, KernelReceived: a.stamped}}
	for len(out.bytes) < len(b) { // padding of a sender that wants packets of one length
		out.bytes = append(out.bytes, 0)
	}
	return out
}

// extensions are those of a request, filled in.
func (s *session) extensions(asked Extensions, a arrival, source uint8) (filled Extensions, tos uint8) {
	for _, e := range asked {
		one := Extension{Flags: e.Flags &^ (Unrecognized | Malformed), Type: e.Type, Value: e.Value}
		switch {
		case e.Flags&Unverified != 0:
			// What nobody vouches for is not followed.
		case e.Type == ExtraPadding:
		case e.Type == DirectMeasurement && len(e.Value) == 12:
			c, _ := Extensions{one}.Counters()
			one.Value = Counters{c.SenderSent, s.received, s.answered}.Extension().Value
		case e.Type == ClassOfService && len(e.Value) == 4:
			c, _ := Extensions{one}.Service()
			tos = c.Wanted << 2
			one.Value = Service{c.Wanted, a.tos >> 2, a.tos & 3}.Extension().Value
		case e.Type == TimestampInformation && len(e.Value) == 4:
			by := uint8(StampProgram)
			if a.stamped {
				by = StampKernel
			}
			one.Value = Clocks{source, by, source, StampProgram}.Extension().Value
		case e.Type == DirectMeasurement || e.Type == ClassOfService || e.Type == TimestampInformation:
			one.Flags |= Malformed
		default:
			one.Flags |= Unrecognized
		}
		filled = append(filled, one)
	}
	return filled, tos
}

// session finds or begins that of a sender. r.mu must be held.
func (r *Reflector) session(key sessionKey, now time.Time) *session {
	s := r.sessions[key]
	if s == nil {
		if len(r.sessions) >= r.options.Sessions {
			r.evict()
		}
		s = &session{limit: rate.NewLimiter(rate.Limit(r.options.MaxPerSecond), int(max(r.options.MaxPerSecond/10, 10)))}
		r.sessions[key] = s
	}
	s.used = now
	return s
}

// evict forgets an eighth of the sessions, of those that a look at some finds the longest unused. r.mu must be held.
func (r *Reflector) evict() {
	for range max(r.options.Sessions/8, 1) {
		var oldest sessionKey
		looked := 0
		for key, s := range r.sessions { // in random order
			if looked == 0 || s.used.Before(r.sessions[oldest].used) {
				oldest = key
			}
			if looked++; looked == 16 {
				break
			}
		}
		delete(r.sessions, oldest)
		r.counts.evicted.Add(1)
	}
}

// first reports whether a number was not received before. Numbers that are too old to tell were.
func (s *session) first(number uint32) bool {
	if s.received == 0 {
		s.newest = number
	}
	ahead := int32(number - s.newest)
	if ahead <= -replayWindow {
		return false
	}
	for range min(ahead, replayWindow) { // those between are not seen yet
		s.newest++
		s.seen[s.newest/64%(replayWindow/64)] &^= 1 << (s.newest % 64)
	}
	if ahead > 0 {
		s.newest = number
	}
	word, bit := &s.seen[number/64%(replayWindow/64)], uint64(1)<<(number%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}
