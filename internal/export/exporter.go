package export

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// Options of an Exporter. Server and Spool are required.
type Options struct {
	// Server is the URL of the server, http or https. Without a path, frame.Path is added, or otlpPath where OTLP is set.
	Server string
	// OTLP sends series as OTLP to any backend, rather than frames. A Server whose path ends with otlpPath sets it.
	OTLP bool
	// SendEvery is the time between two frames that are sent; 0 sends all. Key frames are sent in any case.
	SendEvery time.Duration
	// Spool is the directory of batches that are not sent yet.
	Spool string
	// MaxBytes bounds it (256 MiB).
	MaxBytes int64
	// Tenant and Token are sent as headers; empty for none.
	Tenant, Token string
	// TLS for https; nil for the system's certificates.
	TLS *tls.Config
	// MaxBackoff bounds the time between two attempts (30 s).
	MaxBackoff time.Duration
	Logger     *slog.Logger
}

// otlpPath is where a server takes OTLP.
const otlpPath = "/v1/metrics"

// DefaultMaxBytes bounds the spool where Options has no bound.
const DefaultMaxBytes = 256 << 20

// Exporter sends to a server.
type Exporter struct {
	options Options
	// url is where frames go, otlpURL where series go that an older agent has left in the spool.
	url, otlpURL string
	instance     string
	spool        *Spool
	client       *http.Client
	encoder      *zstd.Encoder
	// written wakes Run up.
	written chan struct{}
	number  uint64
	buffer  []byte
	frames  frames
	counts  struct {
		batches, samples, sent, retries, refused, rejected, unwritten, keyless atomic.Uint64
		// bytes written to connections, TLS and headers included.
		bytes atomic.Uint64
	}
	state state
}

// state is the result of the last attempt, for logs and Features.
type state struct {
	// mu guards the rest.
	mu sync.Mutex
	// err is that of the last attempt; since is when the first of consecutive failures was.
	err   error
	since time.Time
}

// Open opens the spool and prepares the exporter. Nothing is sent before Run.
func Open(o Options) (*Exporter, error) {
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	address, err := parseServer(o.Server)
	if err != nil {
		return nil, err
	}
	o.OTLP = o.OTLP || strings.HasSuffix(address.Path, otlpPath)
	e := &Exporter{options: o, written: make(chan struct{}, 1)}
	e.url, e.otlpURL = at(address, frame.Path), at(address, otlpPath)
	if o.OTLP {
		e.url = e.otlpURL
	}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("naming this instance of the agent: %w", err)
	}
	e.instance = hex.EncodeToString(random[:])
	e.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(256<<10), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("making a compressor: %w", err)
	}
	e.client = &http.Client{
		Timeout: time.Minute,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: e.dial, TLSClientConfig: o.TLS, MaxIdleConns: 1,
			IdleConnTimeout:    90 * time.Second,
			DisableCompression: true, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		},
		// A redirect must not make the client send the token to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if e.spool, err = OpenSpool(o.Spool, o.MaxBytes); err != nil {
		return nil, err
	}
	return e, nil
}

// ErrServer means that Options.Server is no valid URL.
var ErrServer = errors.New("not the URL of a server")

func parseServer(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%w: %q, want http://HOST:PORT or https://HOST:PORT", ErrServer, server)
	}
	return u, nil
}

// at is the URL of a path of a server; one that has a path already stays.
func at(server *url.URL, path string) string {
	u := *server
	if strings.Trim(u.Path, "/") == "" {
		u.Path = path
	}
	return u.String()
}

// Put writes a batch of OTLP to the spool: all series that the host has at one time. It must not be called concurrently.
func (e *Exporter) Put(series []model.Series) error {
	e.buffer = otlp.Encode(e.buffer[:0], series)
	return e.write(uint64(len(series)), e.encoder.EncodeAll(e.buffer, nil))
}

// write writes a batch to the spool.
func (e *Exporter) write(samples uint64, data []byte) error {
	e.number++
	b := Batch{
		Name:    fmt.Sprintf("%s/%0*d", e.instance, otlp.BatchNumberDigits, e.number),
		Samples: samples,
		Data:    data,
	}
	if err := e.spool.Put(b); err != nil {
		e.counts.unwritten.Add(1)
		return err
	}
	e.counts.batches.Add(1)
	e.counts.samples.Add(b.Samples)
	select {
	case e.written <- struct{}{}:
	default:
	}
	return nil
}

// Close closes the spool; Run must have returned. The next Exporter of the same directory sends what is left in it.
func (e *Exporter) Close() error {
	e.client.CloseIdleConnections()
	return errors.Join(e.encoder.Close(), e.spool.Close())
}
