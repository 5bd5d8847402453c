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

// refused reports whether err is the API server's answer with a code.
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
	config Config
	// security is what every connection begins with.
	security *tls.Config
	// login is nil where no program logs in.
	login *login

	mu        sync.Mutex // guards what follows
	token     string
	tokenRead time.Time
	http      *http.Client
	// shown is the number of the credential whose certificate http shows.
	shown uint64
}

func newClient(config Config) (*client, error) {
	base, err := url.Parse(config.Server)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("the API server is %q, want a URL", config.Server)
	}
	security := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: config.ServerName,
		InsecureSkipVerify: config.Insecure}
	if len(config.CA) > 0 {
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM(config.CA) {
			return nil, errors.New("the certificate authority of the API server has no PEM certificate")
		}
	}
	if config.Certificate != nil {
		security.Certificates = []tls.Certificate{*config.Certificate}
	}
	c := &client{base: strings.TrimSuffix(base.String(), "/"), config: config, security: security, token: config.Token}
	if config.Plugin != nil {
		c.login = newLogin(config.Plugin)
	}
	c.http = c.open(nil)
	return c, nil
}

// open makes connections that show a certificate, or Config's where it is nil.
func (c *client) open(certificate *tls.Certificate) *http.Client {
	security := c.security.Clone()
	if certificate != nil {
		security.Certificates = []tls.Certificate{*certificate}
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: security, ForceAttemptHTTP2: true,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 8,
		// A watch of a server that was cut off is silent, as one without events is.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the token is for this server alone
	}}
}

// get asks for path and returns the body, or a *statusError. A 401 is asked once more with a token
// that is read anew, or what a program gives anew.
func (c *client) get(ctx context.Context, path string, query url.Values, accept string) (io.ReadCloser, error) {
	shown, err := c.credential(ctx)
	if err != nil {
		return nil, err
	}
	body, err := c.try(ctx, path, query, accept, shown)
	if !refused(err, http.StatusUnauthorized) || c.config.TokenFile == "" && c.login == nil {
		return body, err
	}
	if c.login != nil {
		c.login.refused(shown.number)
	} else {
		c.mu.Lock()
		c.tokenRead = time.Time{}
		c.mu.Unlock()
	}
	if shown, err = c.credential(ctx); err != nil {
		return nil, err
	}
	return c.try(ctx, path, query, accept, shown)
}

// credential is what to show: of the program if there is one, else the token. Where the program gives a certificate,
// what is asked from now on goes over connections that show it.
func (c *client) credential(ctx context.Context) (shown credential, err error) {
	if c.login == nil {
		shown.token, err = c.bearer()
		return shown, err
	}
	if shown, err = c.login.current(ctx); err != nil {
		return shown, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if shown.number > c.shown && (shown.certificate != nil || c.shown > 0) {
		c.http.CloseIdleConnections()
		c.http, c.shown = c.open(shown.certificate), shown.number
	}
	return shown, nil
}

func (c *client) try(ctx context.Context, path string, query url.Values, accept string,
	shown credential) (io.ReadCloser, error) {
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
	if shown.token != "" {
		request.Header.Set("Authorization", "Bearer "+shown.token)
	}
	c.mu.Lock()
	asker := c.http
	c.mu.Unlock()
	response, err := asker.Do(request)
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

func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.http.CloseIdleConnections()
}

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
