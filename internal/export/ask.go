package export

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"outsight/internal/control"
	"outsight/internal/frame"
)

// Ask implements control.Asker, with the credentials by which frames are sent.
func (e *Exporter) Ask(ctx context.Context, path string, body []byte) (control.Answer, error) {
	u, err := url.Parse(e.url)
	if err != nil {
		return control.Answer{}, fmt.Errorf("asking the server: %w", err)
	}
	// A proxy may have the server below a path of its own.
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), frame.Path) + path
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return control.Answer{}, fmt.Errorf("asking the server: %w", err)
	}
	r.Header.Set("Content-Type", control.ContentType)
	e.introduce(r)
	reply, err := e.client.Do(r)
	if err != nil {
		return control.Answer{}, fmt.Errorf("asking the server: %w", err)
	}
	defer reply.Body.Close()
	a := control.Answer{Status: reply.StatusCode, RetryAfter: e.retryAfter(reply)}
	if a.Body, err = io.ReadAll(io.LimitReader(reply.Body, control.MaxStateBytes+1)); err != nil {
		return control.Answer{}, fmt.Errorf("reading the server's answer: %w", err)
	}
	return a, nil
}

// LocalAddress is the address of this host from which the server is reached; the zero Addr where it is not.
func (e *Exporter) LocalAddress() netip.Addr {
	u, err := url.Parse(e.url)
	if err != nil {
		return netip.Addr{}
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	// Nothing is sent: the kernel looks for the route.
	c, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}
