package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"outsight/internal/model"
	"outsight/internal/quota"
)

// HistogramForm is how a Remote writes and reads histograms.
type HistogramForm string

// The forms of histograms. Native ones lose nothing; some systems drop them without a word.
// Classic ones are counters for each of some 50 bounds, and coarser. Both are written under Both,
// and the native ones are read.
const (
	Native  HistogramForm = "native"
	Classic HistogramForm = "classic"
	Both    HistogramForm = "both"
)

// WriteProtocol is a version of Prometheus's remote write.
type WriteProtocol string

// The versions of remote write. Auto begins with 2.0 and stays with 1.0 where that is not
// understood.
const (
	Auto   WriteProtocol = "auto"
	Write1 WriteProtocol = "1"
	Write2 WriteProtocol = "2"
)

// RemoteOptions of a Remote. A zero field means its default.
type RemoteOptions struct {
	// URL of the system; what is asked is below it: /api/v1/write, /api/v1/query and so on.
	URL string
	// WriteURL is the whole URL to write to, and ReadURL the one before /api/v1/, where they are
	// not below URL.
	WriteURL, ReadURL string
	// Protocol (Auto).
	Protocol WriteProtocol
	// Histograms (Native).
	Histograms HistogramForm
	// BucketsPerOctave are the bounds of classic histograms between a duration and twice that: a
	// power of two up to 32 (2, which is 56 series for each histogram).
	BucketsPerOctave int
	// Token, or else User and Password, go with each request, and so does Header.
	Token, User, Password string
	Header                http.Header
	// TLS has the authorities for the remote store's certificate, and this server's own (the system's roots).
	TLS *tls.Config
	// RetryFor is how long Append tries to write (1 min), WriteTimeout the time of one attempt
	// (20 s).
	RetryFor, WriteTimeout time.Duration
	// QueryTimeout and MaxQueries are as in Options.
	QueryTimeout time.Duration
	MaxQueries   int
	QueryBounds
	// MaxAnswerBytes bounds an answer that is read (64 MiB).
	MaxAnswerBytes int64
	// MaxSeries bounds the live series (100,000).
	MaxSeries int
	// LabelBytes, Tenants and Quotas are as in Options, of the live series.
	LabelBytes int64
	Tenants    *quota.Tenants
	Quotas     quota.Table
	// Logger gets warnings (none).
	Logger *slog.Logger
}

func (o RemoteOptions) withDefaults() (RemoteOptions, error) {
	setDefault(&o.Protocol, Auto)
	setDefault(&o.Histograms, Native)
	setDefault(&o.BucketsPerOctave, 2)
	setDefault(&o.RetryFor, time.Minute)
	setDefault(&o.WriteTimeout, 20*time.Second)
	setDefault(&o.QueryTimeout, 30*time.Second)
	setDefault(&o.MaxQueries, 4)
	setDefault(&o.MaxAnswerBytes, 64<<20)
	setDefault(&o.MaxSeries, 100_000)
	if err := o.QueryBounds.setDefaults(); err != nil {
		return o, err
	}
	setDefault(&o.LabelBytes, int64(o.MaxSeries)*labelBytesPerSeries)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.URL != "" {
		base := strings.TrimRight(o.URL, "/")
		setDefault(&o.WriteURL, base+"/api/v1/write")
		setDefault(&o.ReadURL, base)
	}
	o.ReadURL = strings.TrimRight(o.ReadURL, "/")
	for _, text := range []string{o.WriteURL, o.ReadURL} {
		u, err := url.Parse(text)
		if err != nil {
			return o, fmt.Errorf("URL %q of the remote store: %w", text, err)
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
			u.Fragment != "" {
			return o, fmt.Errorf("URL %q of the remote store: want http or https, a host and a path, as in http://metrics:9090", u.Redacted())
		}
	}
	switch {
	case o.Protocol != Auto && o.Protocol != Write1 && o.Protocol != Write2:
		return o, fmt.Errorf("protocol %q of the remote store: want %q, %q or %q", o.Protocol, Auto, Write1, Write2)
	case o.Histograms != Native && o.Histograms != Classic && o.Histograms != Both:
		return o, fmt.Errorf("histograms %q of the remote store: want %q, %q or %q", o.Histograms, Native, Classic, Both)
	case o.BucketsPerOctave < 1 || o.BucketsPerOctave > 1<<model.Scale || o.BucketsPerOctave&(o.BucketsPerOctave-1) != 0:
		return o, fmt.Errorf("%d buckets per octave: want 1, 2, 4, 8, 16 or 32", o.BucketsPerOctave)
	case o.Token != "" && o.User != "":
		return o, errors.New("a token and a user for the remote store: only one can be sent")
	case o.RetryFor < 0 || o.WriteTimeout < 0 || o.QueryTimeout < 0 || o.MaxQueries < 0 || o.MaxAnswerBytes < 0 ||
		o.MaxSeries < 0 || o.LabelBytes < 0:
		return o, fmt.Errorf("options of the remote store: a bound is negative")
	}
	return o, nil
}

// Remote is a store in another system that takes Prometheus's remote write and answers its query
// API. It has the methods of Store, and their errors. Its methods may be called at the same time.
type Remote struct {
	options RemoteOptions
	client  *http.Client
	parser  parser.Parser
	gate    *gate
	bounds  []bound

	// writing is a lock that a context can interrupt: it guards closed, tracker and protocol.
	writing  chan struct{}
	closed   bool
	tracker  tracker
	protocol WriteProtocol
	// stats are as of the last Append, since one may take long.
	stats   atomic.Pointer[Stats]
	written remoteCounts
	// answersTooLarge counts answers past MaxAnswerBytes.
	answersTooLarge, badAnswers atomic.Uint64
	closing                     sync.Once
	stop                        context.CancelFunc
	running                     context.Context
}

// remoteCounts are counters behind Stats.
type remoteCounts struct {
	requests, bytes, retries, failed atomic.Uint64
	// sent is what was written to connections, for whatever.
	sent atomic.Uint64
}

// OpenRemote makes a Remote. It sends nothing to the other system, which may start later.
func OpenRemote(options RemoteOptions) (*Remote, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Remote{
		options: options, parser: newParser(), gate: newGate(options.MaxQueries, options.QueryTimeout,
			options.QueryBounds, options.Quotas),
		writing: make(chan struct{}, 1), protocol: options.Protocol,
		tracker: newTracker(newSeriesUsage(options.MaxSeries, options.LabelBytes, options.Tenants, options.Quotas)),
	}
	r.tracker.ownsUsage = true
	r.client = newClient(&options, &r.written.sent)
	if options.Histograms != Native {
		r.bounds = classicBounds(options.BucketsPerOctave)
	}
	r.running, r.stop = context.WithCancel(context.Background())
	r.stats.Store(&Stats{MaxSeries: options.MaxSeries})
	return r, nil
}

// Append writes a batch as Store.Append does, with the beginnings and ends of series. It tries
// again for RetryFor while the other system is away or busy; what it refuses is ErrRejected and
// counted. Other errors are ErrClosed, ErrUnavailable, ErrAccess and that of ctx: then append the
// whole batch again later.
func (r *Remote) Append(ctx context.Context, series []model.Series) error {
	return r.append(ctx, series, false)
}

// AppendPart writes series as Store.AppendPart does.
func (r *Remote) AppendPart(ctx context.Context, series []model.Series) error {
	return r.append(ctx, series, true)
}

// Sync returns at once: what Append has written is the other system's to keep.
func (r *Remote) Sync() error { return nil }

func (r *Remote) append(ctx context.Context, series []model.Series, parts bool) error {
	select {
	case r.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("appending %d series: %w", len(series), ctx.Err())
	}
	defer func() { <-r.writing }()
	if r.closed {
		return fmt.Errorf("appending %d series: %w", len(series), ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("appending %d series: %w", len(series), err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.running, cancel)()
	err := r.tracker.append(&remoteAppender{remote: r, ctx: ctx}, series, parts)
	if err != nil && !errors.Is(err, ErrRejected) {
		r.written.failed.Add(uint64(len(series)))
	}
	stats := r.tracker.stats()
	stats.Series, stats.MaxSeries = stats.Live, r.options.MaxSeries
	r.stats.Store(&stats)
	return err
}

// Stats is the state of what this process has written and read.
func (r *Remote) Stats() Stats {
	s := *r.stats.Load()
	r.gate.addTo(&s)
	s.WriteRequests, s.WriteBytes, s.WriteRetries = r.written.requests.Load(), r.written.bytes.Load(),
		r.written.retries.Load()
	s.SentBytes = r.written.sent.Load()
	s.Unwritten, s.AnswersTooLarge, s.BadAnswers = r.written.failed.Load(), r.answersTooLarge.Load(), r.badAnswers.Load()
	return s
}

// closeTimeout bounds the writing of the ends of series at the end.
const closeTimeout = 5 * time.Second

// Close ends all live series in the other system, as long as it answers soon, and cancels queries
// and an Append that is under way. Closing twice is harmless.
func (r *Remote) Close() (err error) {
	r.closing.Do(func() {
		r.stop()
		r.gate.close()
		r.writing <- struct{}{}
		defer func() { <-r.writing }()
		r.closed = true
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = r.tracker.endAll(&remoteAppender{remote: r, ctx: ctx})
		r.client.CloseIdleConnections()
	})
	return err
}
