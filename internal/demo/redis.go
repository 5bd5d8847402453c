package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// redisClient speaks to Redis, one command and one reply at a time on each connection, and
// nothing else. A general client greets, names and pipelines on its own, and then the service
// no longer knows how many commands were sent; here the count is exact.
type redisClient struct {
	network string // "tcp"
	address string
	tally   *tally
	free    chan *redisConn // idle connections
	tokens  chan struct{}   // one per connection that may exist
}

type redisConn struct {
	net.Conn
	r *bufio.Reader
}

const maxRedisConns = 64

func newRedisClient(address string, l *ledger) *redisClient {
	return &redisClient{
		network: "tcp", address: address, tally: l.call("redis"),
		free: make(chan *redisConn, maxRedisConns), tokens: make(chan struct{}, maxRedisConns),
	}
}

// do sends one command and returns its reply: nil, a string, an int64 or a []any of these.
func (c *redisClient) do(ctx context.Context, command ...string) (any, error) {
	conn, err := c.take(ctx)
	if err != nil {
		return nil, fmt.Errorf("redis %s: %w", command[0], err)
	}
	value, err := c.exchange(conn, command)
	var refused redisError
	if err != nil && !errors.As(err, &refused) {
		conn.Close()
		<-c.tokens
		return nil, fmt.Errorf("redis %s: %w", command[0], err)
	}
	c.free <- conn
	if err != nil {
		return nil, fmt.Errorf("redis %s: %w", command[0], err)
	}
	return value, nil
}

func (c *redisClient) take(ctx context.Context) (*redisConn, error) {
	select {
	case conn := <-c.free: // rather an idle connection than a new one
		return conn, nil
	default:
	}
	select {
	case conn := <-c.free:
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case c.tokens <- struct{}{}:
	}
	conn, err := (&net.Dialer{Timeout: callTimeout}).DialContext(ctx, c.network, c.address)
	if err != nil {
		c.tally.failures.Add(1)
		<-c.tokens
		return nil, err
	}
	counted := newCountedConn(conn, c.tally)
	return &redisConn{Conn: counted, r: bufio.NewReader(counted)}, nil
}

func (c *redisClient) exchange(conn *redisConn, command []string) (any, error) {
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(appendCommand(nil, command)); err != nil {
		return nil, err
	}
	c.tally.requests.Add(1)
	return readRedisReply(conn.r, 0)
}

func (c *redisClient) closeIdle() {
	for {
		select {
		case conn := <-c.free:
			conn.Close()
			<-c.tokens
		default:
			return
		}
	}
}

// appendCommand writes a command as an array of bulk strings.
func appendCommand(b []byte, command []string) []byte {
	b = append(strconv.AppendInt(append(b, '*'), int64(len(command)), 10), "\r\n"...)
	for _, s := range command {
		b = append(strconv.AppendInt(append(b, '$'), int64(len(s)), 10), "\r\n"...)
		b = append(append(b, s...), "\r\n"...)
	}
	return b
}

// redisError is an error that Redis answered with; the connection is still good.
type redisError string

func (e redisError) Error() string { return string(e) }

const (
	maxRedisLine  = 4096
	maxRedisArray = 1024
	maxRedisDepth = 4
)

// readRedisReply reads one reply of protocol version 2.
func readRedisReply(r *bufio.Reader, depth int) (any, error) {
	line, err := readRedisLine(r)
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], string(line[1:])
	switch kind {
	case '+':
		return rest, nil
	case '-':
		if depth > 0 { // one element of an array: the elements after it are still to be read
			return redisError(rest), nil
		}
		return nil, redisError(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reading a reply: number %q: %w", rest, err)
	}
	switch {
	case kind == ':':
		return n, nil
	case n == -1 && (kind == '$' || kind == '*'):
		return nil, nil
	case kind == '$' && n >= 0 && n <= maxBodyBytes:
		return readRedisBulk(r, int(n))
	case kind == '*' && n >= 0 && n <= maxRedisArray && depth < maxRedisDepth:
		values := make([]any, n)
		for i := range values {
			if values[i], err = readRedisReply(r, depth+1); err != nil {
				return nil, err
			}
		}
		return values, nil
	}
	return nil, fmt.Errorf("reading a reply: %q is not a reply that this client takes", line)
}

func readRedisLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("reading a reply: %w", err)
	}
	if len(line) < 3 || len(line) > maxRedisLine || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("reading a reply: malformed line %q", line)
	}
	return line[:len(line)-2], nil
}

func readRedisBulk(r *bufio.Reader, n int) (any, error) {
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("reading a reply of %d bytes: %w", n, err)
	}
	if b[n] != '\r' || b[n+1] != '\n' {
		return nil, fmt.Errorf("reading a reply of %d bytes: it goes on with %q", n, b[n:])
	}
	return string(b[:n]), nil
}
