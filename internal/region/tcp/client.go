package tcp

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"outsight/internal/region"
)

// Client reads regions of a host over TCP. It is a region.Reader. After an error that is none of a single read
// (region.ErrGone, region.ErrBounds) it is of no more use.
type Client struct {
	conn      net.Conn
	key       region.Key
	challenge [challengeBytes]byte
	sequence  uint64
	// reads, message and buffer are those of the last request and its reply, for their memory.
	reads           []wanted
	message, buffer []byte
}

// Dial connects to a Server at address.
func Dial(ctx context.Context, address string, key region.Key) (*Client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connecting to the regions of %s: %w", address, err)
	}
	c := &Client{conn: conn, key: key}
	if err := c.within(ctx, c.greet); err != nil {
		conn.Close()
		return nil, fmt.Errorf("connecting to the regions of %s: %w", address, err)
	}
	return c, nil
}

func (c *Client) greet() error {
	var b [helloBytes]byte
	if _, err := io.ReadFull(c.conn, b[:]); err != nil {
		// An address that is not allowed, and one connection too many, are closed without a word.
		return fmt.Errorf("%w: the host closed the connection: %w", region.ErrRefused, err)
	}
	if [8]byte(b[:]) != helloMagic {
		return fmt.Errorf("%w: it begins with %q", region.ErrNotRegion, b[:8])
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return fmt.Errorf("%w: version %d, want %d", region.ErrVersion, v, version)
	}
	c.challenge = [challengeBytes]byte(b[16:])
	return nil
}

// within does something before the deadline of ctx, and ends it when ctx ends.
func (c *Client) within(ctx context.Context, do func() error) error {
	deadline, _ := ctx.Deadline()
	if err := c.conn.SetDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	err := do()
	stop()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// Read implements region.Reader.
func (c *Client) Read(ctx context.Context, id uint32, offset uint64, into []byte) error {
	return c.ReadAll(ctx, []region.Read{{Region: id, Offset: offset, Into: into}})
}

// ReadAll implements region.Reader: in as few messages as their bounds allow.
func (c *Client) ReadAll(ctx context.Context, reads []region.Read) error {
	return c.within(ctx, func() error {
		for len(reads) > 0 {
			var part []region.Read
			part, reads = region.Split(reads, MaxReads, MaxBytes)
			if err := c.exchange(part); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Client) exchange(reads []region.Read) error {
	q := request{reads: c.reads[:0]}
	var length uint32
	for _, r := range reads {
		q.reads = append(q.reads, wanted{r.Region, uint32(len(r.Into)), r.Offset})
		length += uint32(len(r.Into))
	}
	c.reads = q.reads
	data, err := c.ask(&q)
	if err != nil {
		return err
	}
	if uint32(len(data)) != length {
		return fmt.Errorf("%w: a reply of %d bytes, want %d", region.ErrDamaged, len(data), length)
	}
	for _, one := range reads {
		data = data[copy(one.Into, data):]
	}
	return nil
}

// Connect asks the host for a connection by another transport than this one: the offer, of OfferBytes, is this end of it,
// and the answer the host's. Both are authentic. The other transport's connection lasts as long as this one: see Alive.
func (c *Client) Connect(ctx context.Context, offer []byte) (answer []byte, err error) {
	if len(offer) != OfferBytes {
		return nil, fmt.Errorf("BUG: an offer of %d bytes, want %d", len(offer), OfferBytes)
	}
	err = c.within(ctx, func() error {
		data, err := c.ask(&request{offer: offer})
		answer = bytes.Clone(data)
		return err
	})
	return answer, err
}

// Alive is region.ErrGone where the host has ended the connection.
func (c *Client) Alive() error { return region.Alive(c.conn.(*net.TCPConn)) }

// ask sends a request and takes its reply, whose bytes hold until the next one.
func (c *Client) ask(q *request) ([]byte, error) {
	c.sequence++
	q.key, q.sequence = c.key.ID, c.sequence
	if _, err := rand.Read(q.nonce[:]); err != nil {
		return nil, err
	}
	b := q.append(c.message[:0])
	c.message = append(b, mac(c.key.Secret, "request", c.challenge[:], b)...)
	if _, err := c.conn.Write(c.message); err != nil {
		return nil, gone(err)
	}
	// What comes first tells how much follows: nothing comes behind a reply.
	if len(c.buffer) == 0 {
		c.buffer = make([]byte, 4096)
	}
	got, err := io.ReadAtLeast(c.conn, c.buffer, replyBytes)
	if err != nil {
		return nil, gone(err)
	}
	head := c.buffer[:replyBytes]
	r, err := parseReply(head)
	if err != nil {
		return nil, fmt.Errorf("%w: a reply begins with %q", region.ErrDamaged, head[:4])
	}
	if r.length > MaxBytes || r.status != statusOK && r.length != 0 {
		return nil, fmt.Errorf("%w: a reply of %d bytes with status %d", region.ErrDamaged, r.length, r.status)
	}
	size := replyBytes + int(r.length) + macBytes
	if got > size {
		return nil, fmt.Errorf("%w: %d bytes follow a reply", region.ErrDamaged, got-size)
	}
	if len(c.buffer) < size {
		c.buffer = append(make([]byte, 0, size), c.buffer[:got]...)[:size]
		head = c.buffer[:replyBytes]
	}
	if _, err := io.ReadFull(c.conn, c.buffer[got:size]); err != nil {
		return nil, gone(err)
	}
	data, sealed := c.buffer[replyBytes:size-macBytes], c.buffer[size-macBytes:size]
	if r.status == statusKey || r.status == statusMalformed {
		return nil, r.status.err(r.read) // the host cannot say this with a key
	}
	if r.sequence != c.sequence || !hmac.Equal(sealed, mac(c.key.Secret, "reply", c.challenge[:], q.nonce[:], head, data)) {
		return nil, fmt.Errorf("%w: the reply is not from a host that has the key", region.ErrRefused)
	}
	return data, r.status.err(r.read)
}

// gone is an error of a connection that had been there.
func gone(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", region.ErrGone, err)
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
