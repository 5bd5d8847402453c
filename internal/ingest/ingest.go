// Package ingest accepts metrics from agents and from other senders of OpenTelemetry's protocol, OTLP, and brings them
// into a store. An accepted request is in a queue on the disk before the sender is answered; a consumer of the queue
// appends it to the store. Nothing accepted is lost when a process is killed: what the store had not written yet is
// delivered again, and appending a batch twice has no effect.
//
// # Batches and parts
//
// A request with the header BatchHeader whose scopes are all otlp.Scope is a batch of an agent: all series that its
// host has at one time, so that a series missing from the next batch has ended. Any other request is a part, and ends
// no series.
//
// # Bounds
//
// A request is bounded in bytes before and after decompression, in data points, and in labels; all requests in flight
// in bytes of memory; the queue in bytes. At a limit, the sender is asked to retry later (429, RESOURCE_EXHAUSTED) and
// nothing is dropped. Stats counts the refusals of each limit.
package ingest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"outsight/internal/access"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/queue"
	"outsight/internal/quota"
	"outsight/internal/store"
)

// Store is where the consumer appends.
type Store interface {
	// Append stores all series that hosts have at one time, AppendPart some series of any source. Both have the errors
	// of store.Store.
	Append(context.Context, []model.Series) error
	AppendPart(context.Context, []model.Series) error
	// Sync makes durable what was appended.
	Sync() error
}

// Authenticator finds the tenant of a sender by the header "Authorization".
type Authenticator interface {
	Check(authorization string) (tenant string, ok bool)
}

// Options of New. The zero value works.
type Options struct {
	Limits Limits
	// MaxBody and MaxDecompressed bound one request in bytes (8 MiB, 32 MiB).
	MaxBody, MaxDecompressed int64
	// InFlight bounds the bytes of all requests in flight (256 MiB). The size of the largest request, at most half of
	// it, is a reserve for tenants whose share is used up, one at a time. Half of the remainder is guaranteed to
	// tenants, in equal parts.
	InFlight int64
	// Quotas are limits of tenants besides; nil for none.
	Quotas quota.Table
	// RetryAfter is the time after which a refused sender should retry (1 s).
	RetryAfter time.Duration
	// Auth checks tokens; nil allows everybody.
	Auth Authenticator
	// Tenants adds the label TenantLabel to all series: the tenant of Auth, else access.NamedTenant, else
	// DefaultTenant; with TenantRequired, a request without a tenant is refused instead.
	Tenants, TenantRequired bool
	// TenantNames are the tenants whose refusals are counted separately.
	TenantNames []string
	// Name adds labels to the series of agents before they are queued, as kubernetes.Cluster.Name does; nil adds none.
	// It must not change its arguments.
	Name func([]model.Series) []model.Series
	// Named is closed when Name is ready: batches of agents wait for it. Nil means at once.
	Named <-chan struct{}
	// Frames is where frames go; nil where none are taken.
	Frames *Frames
	// Dir is where the consumer notes which message it suspects of ending the process; empty for nowhere.
	Dir string
	// Room returns why the queue must not grow, such as a full disk, or nil. A nil Room always allows it.
	Room func() error
	// FutureIsWrong, if not nil, is called when Room returns store.ErrClock and the senders agree with this server's
	// clock: then the stored samples of the future are wrong.
	FutureIsWrong func()
	// Repaired is what was damaged when the queue was opened.
	Repaired Repaired
	Now      func() time.Time
	// Uptime is a clock that does not jump and goes on while the host is suspended.
	Uptime func() time.Duration
	Logger *slog.Logger
}

// tenantsOf returns the tenants among which limits are divided. If a header names tenants, there can be more of them.
func (o *Options) tenantsOf() quota.Tenants {
	if !o.Tenants {
		return quota.Tenants{}
	}
	return quota.Tenants{Names: o.TenantNames, Open: len(o.TenantNames) == 0}
}

// DefaultTenant is the tenant of requests that name none.
const DefaultTenant = "default"

func (o Options) withDefaults() Options {
	o.Limits = o.Limits.withDefaults()
	o.MaxBody = cmp.Or(o.MaxBody, 8<<20)
	o.MaxDecompressed = cmp.Or(o.MaxDecompressed, 32<<20)
	o.InFlight = cmp.Or(o.InFlight, 256<<20)
	o.RetryAfter = cmp.Or(o.RetryAfter, time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Uptime == nil {
		o.Uptime = uptime
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Ingest writes requests to a queue, and from there to a store.
type Ingest struct {
	options Options
	queue   *queue.Queue
	store   Store
	encoder *zstd.Encoder
	decoder *zstd.Decoder
	// sized returns at most the capacity of the buffer it is given.
	sized    *zstd.Decoder
	decoders []*sharedDecoder
	bodies   buffers
	seed     maphash.Seed
	decoded  decodedBatches
	names    names
	// inFlight bounds the bytes of requests in flight, rates the samples of each tenant.
	inFlight *inFlight
	rates    *quota.Rates
	// publishing has slots for requests that are being published to the queue.
	publishing *slots
	admission  admission
	clock      *clock
	clockVote  clockVote
	counts     counts
	// all counts the refusals of everybody, tenants those of each of Options.TenantNames. New makes the map; it does
	// not change.
	all     ledger
	tenants map[string]*ledger
	// suspects are messages during which earlier processes ended, frameSuspects those of frames.
	suspects, frameSuspects suspects
	oldAgents               oldAgents
	// keys are of the frames that are checked; frameSlots bounds how many are decoded at a time.
	keys       *keyFrames
	frameSlots *slots
}

// sharedDecoder is a Decoder for requests of some of the senders.
type sharedDecoder struct {
	// slots has one: that of the user of the decoder.
	slots *slots
	*Decoder
}

// publishers is how many requests are written to the queue at a time.
const publishers = 32

// New makes an Ingest. Nothing is appended to the store before Run.
func New(q *queue.Queue, s Store, o Options) (*Ingest, error) {
	i := &Ingest{options: o.withDefaults(), queue: q, store: s, seed: maphash.MakeSeed(), publishing: newSlots(publishers)}
	o = i.options
	i.inFlight = newInFlight(&i.options)
	i.rates = quota.NewRates(o.Now, func(tenant string) int64 { return o.Quotas.Of(tenant).SamplesPerSecond })
	i.admission.init(s)
	i.clock = newClock(o.Now, o.Uptime, o.Limits.Ahead, o.Logger)
	var err error
	if i.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(1<<20)); err != nil {
		return nil, fmt.Errorf("making a compressor: %w", err)
	}
	i.decoder, err = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(uint64(i.options.MaxDecompressed)),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("making a decompressor: %w", err)
	}
	if i.sized, err = zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxWindow(maxWindow)); err != nil {
		return nil, fmt.Errorf("making a decompressor: %w", err)
	}
	for _, d := range newDecoders(i.options.Limits, min(runtime.GOMAXPROCS(0), 4)) {
		i.decoders = append(i.decoders, &sharedDecoder{newSlots(1), d})
	}
	i.decoded.batches = map[string]*Batch{}
	i.tenants = make(map[string]*ledger, len(i.options.TenantNames))
	for _, name := range i.options.TenantNames {
		i.tenants[name] = &ledger{}
	}
	i.names.most = i.options.Limits.Remembered
	i.suspects = newSuspects(o.Dir, "suspect", o.Logger)
	i.frameSuspects = newSuspects(o.Dir, "suspect-frames", o.Logger)
	i.frameSlots = newSlots(runtime.GOMAXPROCS(0))
	if o.Frames != nil {
		i.keys = newKeyFrames(cmp.Or(o.Frames.KeyBytes, defaultKeyBytes))
	}
	return i, nil
}

// maxWindow bounds the window of a zstd frame, in bytes.
const maxWindow = 8 << 20

// Names of the headers of a message in the queue.
const (
	headerTenant   = "Outsight-Tenant"
	headerReceived = "Outsight-Received"
	headerWhole    = "Outsight-Whole"
	headerID       = "Outsight-Id"
	headerNames    = "Outsight-Names"
)

// request is a received request.
type request struct {
	// body is an ExportMetricsServiceRequest, compressed the same as zstd where the sender sent that.
	body, compressed []byte
	sender
	// batch is the value of otlp.BatchHeader: the sender's name and a number, or empty.
	batch string
}

// errBusy means that the sender should retry later.
var errBusy = errors.New("too much is under way")

// accept queues a request, and reserves the memory of what it is decoded to. When it returns without an error, the
// request is durable.
func (i *Ingest) accept(ctx context.Context, r request, hold *reservation) (taken outcome, err error) {
	charged := 0
	defer func() {
		if err != nil && charged > 0 {
			i.rates.Refund(r.tenant, charged)
		}
	}()
	// Messages that the store cannot take would fill the disk.
	var noRoom error
	if i.options.Room != nil {
		if err := i.options.Room(); err != nil {
			noRoom = fmt.Errorf("%w: %w", queue.ErrFull, err)
		}
	}
	ofTheFuture := errors.Is(noRoom, store.ErrClock) && i.options.FutureIsWrong != nil
	if noRoom != nil && !ofTheFuture {
		return taken, noRoom
	}
	received, doubtful := i.clock.now()
	truncated := received.Truncate(time.Millisecond)
	batch, err := i.decode(ctx, r, truncated, doubtful, i.options.Limits.Built)
	if err != nil {
		return taken, err
	}
	if ofTheFuture {
		i.compareClocks(&r, batch, received, doubtful)
		batch.release()
		return taken, noRoom
	}
	received = truncated
	if err := hold.grow(int64(batch.bytes())); err != nil {
		batch.release()
		return taken, err
	}
	i.counts.points.Add(batch.Points)
	charged = int(batch.Points)
	i.rates.Charge(r.tenant, charged)
	for reason, n := range batch.Rejected {
		i.reject(r.sender, Reason(reason), n, explanations[reason])
	}
	taken.Rejections = batch.Rejected
	if taken.Rejections[TooOld]+taken.Rejections[Future] > 0 {
		taken.message = "it is " + received.UTC().Format(time.RFC3339) + " by this server's clock"
	}
	samples := uint64(len(batch.Series))
	if samples == 0 {
		batch.release()
		return taken, nil
	}
	m := queue.Message{ID: r.id(), Data: r.compressed, Header: map[string]string{
		headerReceived: strconv.FormatInt(received.UnixMilli(), 10),
	}}
	m.Header[headerID] = m.ID
	if r.tenant != "" {
		m.Header[headerTenant] = r.tenant
	}
	var named []model.Series
	if whole := r.batch != "" && batch.ours; whole {
		m.Header[headerWhole] = "1"
		i.noteOldAgent(batch)
		if named, err = i.name(ctx, batch.Series); err != nil {
			batch.release()
			return taken, err
		}
	}
	series := batch.Series
	if named != nil {
		series = named
	}
	claim, without := i.admission.claim(r.tenant, series, batch.labels)
	if without.temporary {
		batch.release()
		return taken, fmt.Errorf("%w: whether %d new series have room is known when what waits is stored",
			queue.ErrFull, without.series)
	}
	if without.series > 0 {
		taken.Rejections[NoRoom] += without.series
		said := without.message(r.tenant)
		i.reject(r.sender, NoRoom, without.series, said)
		taken.message = strings.TrimPrefix(taken.message+"; "+said, "; ")
		if without.series == samples {
			batch.release()
			return taken, nil
		}
	}
	if err := i.publishing.acquire(ctx, r.tenant); err != nil {
		claim.cancel()
		batch.release()
		return taken, err
	}
	defer i.publishing.release()
	if m.Data == nil {
		m.Data = i.encoder.EncodeAll(r.body, make([]byte, 0, len(r.body)/4+64))
	}
	if named != nil {
		var length int
		if m.Data, length = appendNames(m.Data, batch.Series, named, i.encoder); length > 0 {
			m.Header[headerNames] = strconv.Itoa(length)
		}
		batch.Series = named
	}
	kept := claim.register(m.ID)
	// Before it is published: the consumer may have it at once, and it is the consumer's then.
	i.decoded.put(m.ID, batch)
	published, err := i.queue.Publish(ctx, m)
	if err != nil {
		i.decoded.take(m.ID).release()
		if kept {
			i.admission.done(m.ID)
		}
		return taken, err
	}
	if published.Duplicate {
		// The consumer gets the first one alone.
		i.decoded.take(m.ID).release()
		if kept {
			i.admission.done(m.ID)
		}
		i.counts.duplicates.Add(1)
		return taken, nil
	}
	i.admission.published(m.ID, published.Sequence)
	i.counts.samples.Add(samples - without.series)
	return taken, nil
}

// id identifies a request; a repeated one has the same.
func (r *request) id() string {
	if r.batch != "" {
		return r.tenant + "/" + r.batch
	}
	sum := sha256.Sum256(r.body)
	return r.tenant + "/" + hex.EncodeToString(sum[:16])
}

// decode reads a request with the Decoder that has read the same sender's before. It may become so many bytes. Doubtful
// is received, or a later time that it may be just as well.
func (i *Ingest) decode(ctx context.Context, r request, received, doubtful time.Time, most int) (*Batch, error) {
	hash := uint64(0)
	if n := len(r.batch) - batchNumberBytes; n > 0 {
		hash = maphash.String(i.seed, r.batch[:n])
	} else {
		hash = maphash.Bytes(i.seed, r.body[:min(len(r.body), 128)])
	}
	d := i.decoders[hash%uint64(len(i.decoders))]
	if err := d.slots.acquire(ctx, r.tenant); err != nil {
		return nil, err
	}
	defer d.slots.release()
	return d.Decoder.decode(r.body, r.tenant, received, doubtful, most)
}

// namedBatch is the batch of which id is the ID, empty where that is of a request without one.
func namedBatch(id, tenant string) string {
	if batch := strings.TrimPrefix(id, tenant+"/"); batchName.MatchString(batch) {
		return batch
	}
	return ""
}

// batchNumberBytes is the length of the number at the end of a batch's name.
const batchNumberBytes = otlp.BatchNumberDigits

var batchName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}/[0-9]{` + strconv.Itoa(otlp.BatchNumberDigits) + `}$`)

// Errors of authentication.
var (
	errUnauthorized = errors.New("a token with the role send is needed")
	errForbidden    = errors.New("this token is of another tenant")
	errBadHeader    = errors.New("a header makes no sense")
)

// admit finds the tenant and the batch of a request by its headers. With an error, the tenant is the one that was
// refused, or the one that an unauthenticated request names.
func (i *Ingest) admit(values func(header string) []string) (tenant, batch string, err error) {
	header := func(name string) string {
		if all := values(name); len(all) > 0 {
			return all[0]
		}
		return ""
	}
	if i.options.Auth != nil {
		var ok bool
		if tenant, ok = i.options.Auth.Check(header("Authorization")); !ok {
			tenant, _ = access.NamedTenant(values)
			return tenant, "", errUnauthorized
		}
	}
	if !i.options.Tenants {
		tenant = ""
	} else if tenant, err = i.tenant(tenant, values); err != nil {
		return tenant, "", err
	}
	batch = header(otlp.BatchHeader)
	if batch != "" && !batchName.MatchString(batch) {
		return tenant, "", fmt.Errorf("%w: %s %.80q", errBadHeader, otlp.BatchHeader, batch)
	}
	return tenant, batch, nil
}

// tenant is that of the token, or the named one if the token has none.
func (i *Ingest) tenant(ofToken string, values func(header string) []string) (string, error) {
	named, err := access.NamedTenant(values)
	switch {
	case err != nil:
		return ofToken, fmt.Errorf("%w: %w", errBadHeader, err)
	case ofToken != "" && named != "" && named != ofToken:
		return ofToken, errForbidden
	case ofToken == "" && named == "" && i.options.TenantRequired:
		return "", fmt.Errorf("%w: %w", errBadHeader, access.ErrNoTenant)
	}
	return cmp.Or(ofToken, named, DefaultTenant), nil
}

// decodedBatches passes decoded batches of this process to the consumer, so that it need not decode their messages.
type decodedBatches struct {
	// mu guards the rest.
	mu      sync.Mutex
	batches map[string]*Batch
	weight  int
}

// maxDecodedWeight bounds the batches in memory for the consumer, which decodes messages beyond it. The unit is a
// series without a histogram; histograms of others and new labels weigh as many more as their size.
const maxDecodedWeight = 200_000

// weight is roughly the memory of the batch, in series without a histogram.
func (b *Batch) weight() int {
	n := len(b.Series)
	for i := range b.Series {
		if f := b.Series[i].Foreign; f != nil {
			n += (len(f.Positive) + len(f.Negative)) / 16
		}
	}
	return n + b.built/(4*seriesBytes)
}

// put takes ownership of b, also if it is full.
func (h *decodedBatches) put(id string, b *Batch) {
	weight := b.weight()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.weight+weight > maxDecodedWeight || h.batches[id] != nil {
		b.release()
		return
	}
	h.batches[id] = b
	h.weight += weight
}

func (h *decodedBatches) take(id string) *Batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.batches[id]
	if b != nil {
		delete(h.batches, id)
		h.weight -= b.weight()
	}
	return b
}
