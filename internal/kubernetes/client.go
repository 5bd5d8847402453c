package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// fileLimit bounds a kubeconfig, a certificate or a token; statusLimit the text of a refusal.
	fileLimit   = 1 << 20
	statusLimit = 64 << 10
	// tokenAge is how long a token from a file is used before the file is read again. Kubernetes
	// replaces it when a fifth of its life is left.
	tokenAge = time.Minute
)

// statusError is a refusal of the API server.
type statusError struct {
	Code       int    `json:"code"`
	Reason     string `json:"reason"`
	Message    string `json:"message"`
	retryAfter time.Duration
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message)
}

// refused tells whether err is the API server's answer with a code.
func refused(err error, codes ...int) bool {
	var status *statusError
	if !errors.As(err, &status) {
		return false
	}
	for _, code := range codes {
		if status.Code == code {
			return true
		}
	}
	return false
}

// client asks one API server.
type client struct {
	base   string
	http   *http.Client
	config Config

	mu        sync.Mutex // guards what follows
	token     string
	tokenRead time.Time
}

func newClient(config Config) (*client, error) {
	base, err := url.Parse(config.Server)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("the API server is %q, want a URL", config.Server)
	}
	security := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: config.ServerName, InsecureSkipVerify: config.Insecure}
	if len(config.CA) > 0 {
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM(config.CA) {
			return nil, errors.New("the certificate authority of the API server has no PEM certificate")
		}
	}
	if config.Certificate != nil {
		security.Certificates = []tls.Certificate{*config.Certificate}
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: security, ForceAttemptHTTP2: true,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 8,
		// A watch of a server that was cut off is silent, as one without events is.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	return &client{base: strings.TrimSuffix(base.String(), "/"), config: config, token: config.Token,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the token is for this server alone
		}}}, nil
}

// get asks for path and returns the body, or a *statusError. A 401 is asked once more with a token
// that is read anew.
func (c *client) get(ctx context.Context, path string, query url.Values, accept string) (io.ReadCloser, error) {
	body, err := c.try(ctx, path, query, accept)
	if refused(err, http.StatusUnauthorized) && c.config.TokenFile != "" {
		c.mu.Lock()
		c.tokenRead = time.Time{}
		c.mu.Unlock()
		body, err = c.try(ctx, path, query, accept)
	}
	return body, err
}

func (c *client) try(ctx context.Context, path string, query url.Values, accept string) (io.ReadCloser, error) {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", "outsight")
	token, err := c.bearer()
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	return nil, readStatus(response)
}

// readStatus is what a response that is no success says.
func readStatus(response *http.Response) error {
	status := &statusError{}
	text, _ := io.ReadAll(io.LimitReader(response.Body, statusLimit))
	if json.Unmarshal(text, status) != nil || status.Message == "" {
		status.Reason, status.Message = http.StatusText(response.StatusCode), string(text[:min(len(text), 200)])
	}
	status.Code = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		status.retryAfter = time.Duration(min(seconds, 300)) * time.Second
	}
	return status
}

// bearer is the client's token: projected tokens live for an hour and are replaced in their file.
func (c *client) bearer() (string, error) {
	if c.config.TokenFile == "" {
		return c.token, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.tokenRead) < tokenAge {
		return c.token, nil
	}
	text, err := readLimited(c.config.TokenFile)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	c.token, c.tokenRead = string(bytes.TrimSpace(text)), time.Now()
	return c.token, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// readLimited reads a file that a person or a kubelet wrote.
func readLimited(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, fileLimit+1))
	if err == nil && len(text) > fileLimit {
		err = fmt.Errorf("%q has more than %d bytes", path, fileLimit)
	}
	return text, err
}
