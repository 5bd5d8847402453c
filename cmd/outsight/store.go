package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/access"
	"outsight/internal/model"
	"outsight/internal/store"
)

// anyStore is the embedded store or a remote one.
type anyStore interface {
	store.Readable
	Append(context.Context, []model.Series) error
	AppendPart(context.Context, []model.Series) error
	Sync() error
	Stats() store.Stats
	TenantQueries() []store.TenantQueries
	Close() error
}

// storeFlags say where series are kept other than in a directory.
type storeFlags struct {
	url, writeURL, readURL        string
	protocol, histograms          string
	buckets                       int
	tokenFile, user, passwordFile string
	ca, cert, key                 string
	headers                       []string
	retry                         time.Duration
}

func (f *storeFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.url, "store", "", "keep series in the Prometheus-compatible system at this URL instead, as in "+
		"http://metrics:9090")
	flags.StringVar(&f.writeURL, "store-write-url", "", "where it takes remote write, if not at URL/api/v1/write")
	flags.StringVar(&f.readURL, "store-read-url", "", "where its query API is, before /api/v1/, if not at URL")
	flags.StringVar(&f.protocol, "store-protocol", string(store.Auto), "remote write 1 or 2; auto asks")
	flags.StringVar(&f.histograms, "store-histograms", string(store.Native),
		"native, classic (for systems that drop native ones without a word) or both")
	flags.IntVar(&f.buckets, "store-buckets", 0,
		"bounds of classic histograms from a duration to twice that: 1, 2, 4 ... 32 (default 2)")
	flags.StringVar(&f.tokenFile, "store-token-file", "", "file of the bearer token to send to it")
	flags.StringVar(&f.user, "store-user", "", "user to send to it")
	flags.StringVar(&f.passwordFile, "store-password-file", "", "file of the user's password")
	flags.StringVar(&f.ca, "store-ca", "", "certificates in PEM, one of which must have signed its own")
	flags.StringVar(&f.cert, "store-cert", "", "certificate to show to it, in PEM")
	flags.StringVar(&f.key, "store-key", "", "its key, in PEM")
	flags.StringArrayVar(&f.headers, "store-header", nil,
		"header to send to it, as in \"X-Scope-OrgID: shop\"; may be given again")
	flags.DurationVar(&f.retry, "store-retry", 0, "how long a batch is tried while it is away (default 1m)")
}

func (f *storeFlags) isSet() bool { return f.url != "" || f.writeURL != "" || f.readURL != "" }

// open opens the remote store, with the bounds of embedded on live series, or its own where embedded has none.
func (f *storeFlags) open(embedded store.Options) (*store.Remote, error) {
	if f.url == "" && (f.writeURL == "" || f.readURL == "") {
		return nil, usagef("--store-write-url and --store-read-url go together, or with --store")
	}
	o := store.RemoteOptions{
		URL: f.url, WriteURL: f.writeURL, ReadURL: f.readURL, Protocol: store.WriteProtocol(f.protocol),
		Histograms: store.HistogramForm(f.histograms), BucketsPerOctave: f.buckets, User: f.user, RetryFor: f.retry,
		MaxSeries: embedded.MaxSeries, QueryBounds: embedded.QueryBounds, Logger: embedded.Logger,
		LabelBytes: embedded.LabelBytes, Tenants: embedded.Tenants, Quotas: embedded.Quotas,
		Header: http.Header{},
	}
	var err error
	if o.Token, err = secretIn("store-token-file", f.tokenFile); err != nil {
		return nil, err
	}
	if o.Password, err = secretIn("store-password-file", f.passwordFile); err != nil {
		return nil, err
	}
	if (f.user == "") != (f.passwordFile == "") {
		return nil, usagef("--store-user and --store-password-file go together")
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usagef("--store-header is %q, want NAME: VALUE", h)
		}
		o.Header.Add(textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value))
	}
	if o.TLS, err = f.readTLS(); err != nil {
		return nil, err
	}
	r, err := store.OpenRemote(o)
	if err != nil {
		return nil, usageError{err}
	}
	return r, nil
}

func (f *storeFlags) readTLS() (*tls.Config, error) {
	if f.ca == "" && f.cert == "" && f.key == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if f.ca != "" {
		if c.RootCAs, err = access.ReadCertificates("store-ca", f.ca); err != nil {
			return nil, err
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, usagef("--store-cert and --store-key go together")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("reading --store-cert %q and --store-key %q: %w", f.cert, f.key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// secretIn reads the file of a flag, without the line's end.
func secretIn(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if err := access.CheckSecretFile(path); err != nil {
		return "", fmt.Errorf("reading --%s: %w", flag, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading --%s: %w", flag, err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" || strings.ContainsAny(secret, "\r\n") {
		return "", usagef("--%s %q: want one line", flag, path)
	}
	return secret, nil
}

// location says where series are kept.
func (f *storeFlags) location() string { return cmp.Or(f.url, f.readURL) }

// openOr opens the remote store, or the one in a directory where none is named.
func (f *storeFlags) openOr(data string, o store.Options) (anyStore, error) {
	// A nil pointer of either kind would be no nil interface.
	if f.isSet() {
		r, err := f.open(o)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	s, err := store.Open(data, o)
	if err != nil {
		return nil, dataError{data, err}
	}
	return s, nil
}

// storeReport reports the bounds of a store.
type storeReport struct {
	store anyStore
	// drops as they were at the last update: a store that works may let ask for them wait, and a reading of the counters
	// must not.
	drops atomic.Pointer[[]model.Drop]
}

func newStoreReport(s anyStore) *storeReport {
	r := &storeReport{store: s}
	r.update()
	return r
}

// Features implements agent.Reporter.
func (r *storeReport) Features() []model.Feature { return storeFeatures(r.store) }

// storeFeatures are what a store cannot do now.
func storeFeatures(kept anyStore) []model.Feature {
	err := roomOf(kept)()
	if err == nil {
		return nil
	}
	f := model.Feature{Name: "store/samples", Purpose: "keeping what comes", State: model.FeatureAbsent,
		Reason: err.Error(), Required: true}
	if errors.Is(err, store.ErrClock) {
		f.Remedy = "set this host's clock; if it is right, what is stored is of a clock that was not: see the reason"
	}
	return []model.Feature{f}
}

// Drops implements agent.Reporter.
func (r *storeReport) Drops() []model.Drop { return *r.drops.Load() }

func (r *storeReport) update() {
	_, remote := r.store.(*store.Remote)
	drops := storeDrops(r.store.Stats(), remote)
	r.drops.Store(&drops)
}

// remoteSender reports what went to a remote store.
type remoteSender struct{ store *store.Remote }

// Sent implements agent.Sender.
func (s remoteSender) Sent() []model.SentBytes {
	return []model.SentBytes{{To: "store", Bytes: s.store.Stats().SentBytes}}
}

// reportEvery is how often the bounds of a store are looked at.
const reportEvery = 5 * time.Second

// run updates the report until ctx ends.
func (r *storeReport) run(ctx context.Context) {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.update()
		}
	}
}

// storeDrops are the bounds of a store.
func storeDrops(s store.Stats, remote bool) []model.Drop {
	drops := []model.Drop{
		{Name: "store/series", Count: s.NoRoom, Used: uint64(s.Series), Capacity: uint64(s.MaxSeries)},
		{Name: "store/label-bytes", Count: s.NoLabelRoom, Used: uint64(max(0, s.LabelBytes)),
			Capacity: uint64(s.MaxLabelBytes)},
		{Name: "store/unread-series", Count: s.Unread},
		{Name: "store/refused-samples", Count: s.TooOld + s.Conflicts + s.Malformed + s.Refused},
		{Name: "store/waiting-queries", Count: s.QueriesTurnedAway},
		{Name: "store/query-samples", Count: s.QueriesTooLarge},
		{Name: "store/query-time", Count: s.QueriesTooSlow},
		{Name: "store/query-memory", Count: s.QueriesWithoutMemory + s.QueriesStopped, Used: uint64(s.QueryMemory),
			Capacity: uint64(s.MaxQueryMemory)},
	}
	if remote {
		return append(drops,
			// Of batches that the other system did not take in time, or to whom it gave no access.
			model.Drop{Name: "store/unwritten-series", Count: s.Unwritten},
			model.Drop{Name: "store/remote-answers", Count: s.AnswersTooLarge + s.BadAnswers})
	}
	return append(drops,
		// What is above MaxBytes is the oldest, which goes; samples are lost where the disk is full.
		model.Drop{Name: "store/bytes", Used: uint64(s.Bytes), Capacity: uint64(s.MaxBytes)},
		model.Drop{Name: "store/disk-space", Count: s.NoSpace},
		model.Drop{Name: "store/clock", Count: s.Clock},
		// Of files that were damaged when the store was opened.
		model.Drop{Name: "store/damaged-files", Count: s.DamagedFiles},
		model.Drop{Name: "store/damaged-samples", Count: s.Damaged})
}
