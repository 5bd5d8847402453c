package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"time"
)

const (
	// maxConnsPerPeer bounds connections, maxBodyBytes one body.
	maxConnsPerPeer = 1024
	maxBodyBytes    = 1 << 20
	callTimeout     = 10 * time.Second
)

// peer is an HTTP server that a service calls over kept-alive, counted connections.
type peer struct {
	name, address string
	tally         *tally
	http          *http.Client
}

func newPeer(name, address string, l *ledger) *peer {
	t := l.call(name)
	dialer := &net.Dialer{Timeout: callTimeout}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			t.failures.Add(1)
			return nil, err
		}
		return newCountedConn(c, t), nil
	}
	return &peer{name: name, address: address, tally: t, http: &http.Client{
		Timeout: callTimeout,
		Transport: &http.Transport{
			DialContext: dial, DisableCompression: true, MaxIdleConns: maxConnsPerPeer,
			MaxIdleConnsPerHost: maxConnsPerPeer, MaxConnsPerHost: maxConnsPerPeer,
		},
	}}
}

// reply is an HTTP reply that has been read to its end.
type reply struct {
	status int
	body   []byte
	// sent is when a connection had been found and the request was about to be written.
	sent time.Time
}

// do sends one request and reads the whole reply.
func (p *peer) do(ctx context.Context, method, path string, body []byte) (reply, error) {
	var out reply
	trace := &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { out.sent = time.Now() },
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				p.tally.requests.Add(1)
			}
		},
	}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), method,
		"http://"+p.address+path, bytes.NewReader(body))
	if err != nil {
		return out, fmt.Errorf("calling %s: %w", p.name, err)
	}
	response, err := p.http.Do(request)
	if err != nil {
		return out, fmt.Errorf("calling %s: %w", p.name, err)
	}
	defer response.Body.Close()
	out.status = response.StatusCode
	out.body, err = io.ReadAll(io.LimitReader(response.Body, maxBodyBytes))
	if err != nil {
		return out, fmt.Errorf("reading the reply of %s: %w", p.name, err)
	}
	return out, nil
}

// get is do for requests of which only a reply with status 200 is of use.
func (p *peer) get(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := p.do(ctx, method, path, body)
	if err == nil && r.status != http.StatusOK {
		err = fmt.Errorf("calling %s: %s %s: status %d", p.name, method, path, r.status)
	}
	return r.body, err
}

func (p *peer) closeIdle() { p.http.CloseIdleConnections() }

// respond writes a whole reply with its length.
func respond(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // an error means that the client has gone: nobody waits for the answer
}

func respondJSON(w http.ResponseWriter, body []byte) {
	respond(w, http.StatusOK, "application/json", body)
}

func respondError(w http.ResponseWriter, status int, err error) {
	respond(w, status, "text/plain; charset=utf-8", []byte(err.Error()+"\n"))
}
