package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"outsight/internal/model"
	"outsight/internal/otlp"
)

// Errors of Decode: nothing of the request can be accepted.
var (
	ErrMalformed     = errors.New("not an OTLP metrics request")
	ErrTooManyPoints = errors.New("too many data points in one request")
	// ErrTooMuchMemory means that the decoded request would need more memory than Limits.Built.
	ErrTooMuchMemory = errors.New("request becomes too large")
	// errClock is of a request with points of a time that may be now or not.
	errClock = fmt.Errorf("%w: the clock of this server has jumped and is not believed yet", errBusy)
)

// Limits bound a request. A zero field means its default.
type Limits struct {
	// Points in one request (100,000). A classic histogram counts one for each of its buckets.
	Points int
	// Labels of one series (64), and bytes of their names and values (16 KiB).
	Labels, LabelBytes int
	// Built bounds the bytes that one request becomes in memory (64 MiB): series, counts, and labels that were not
	// known yet.
	Built int
	// Ahead is how far a time may lie ahead of the server's clock (10 min), Behind how far back (24 h).
	Ahead, Behind time.Duration
	// Remembered bounds the cached sets of labels (500,000, of about 1 KB each), twice that for a short time. All
	// metrics of a container or an edge share one or two sets; each classic histogram has its own. Sets beyond the
	// bound are decoded again in each request.
	Remembered int
	// RememberedBytes bounds the cache in bytes (1 KiB for each of Remembered). The decoders of a server share it.
	RememberedBytes int64
}

func (l Limits) withDefaults() Limits {
	l.Points = cmp.Or(l.Points, 100_000)
	l.Labels = cmp.Or(l.Labels, 64)
	l.LabelBytes = cmp.Or(l.LabelBytes, 16<<10)
	l.Built = cmp.Or(l.Built, 64<<20)
	l.Remembered = cmp.Or(l.Remembered, 500_000)
	l.RememberedBytes = cmp.Or(l.RememberedBytes, int64(l.Remembered)<<10)
	l.Ahead = cmp.Or(l.Ahead, 10*time.Minute)
	l.Behind = cmp.Or(l.Behind, 24*time.Hour)
	return l
}

// elements are how many resources, scopes and metrics a request may have.
func (l *Limits) elements() int { return 3 * l.Points }

// Bounds of what is not worth an option.
const (
	maxNameBytes = 512
	// maxAttributes bounds the attributes of a resource, most of which are labels of target_info.
	maxAttributes = 1024
	// maxNested bounds the bytes of an attribute that is a list; it is a label of at most otlp.MaxLabelBytes.
	maxNested = 8 << 10
	// seriesBytes is the memory of a series of a batch, setBytes that of a set of labels, both without what they point
	// to.
	seriesBytes, labelBytes, setBytes = 144, 32, 160
	maxBuckets                        = 4096
	// maxRemembered bounds the bytes of a point's attributes, of a resource's and of a metric's name, which are cached
	// undecoded.
	maxRemembered = 64 << 10
	// cachedOrigins bounds the resources and the metrics that a Decoder remembers.
	cachedOrigins = 20_000
)

// Decoder decodes requests into series. It caches sets of labels by their encoded bytes, since an agent sends the same
// ones each second. It must not be used concurrently.
type Decoder struct {
	limits Limits
	// origins are resources by tenant and bytes, metrics are names by how a request names them.
	origins map[string]*origin
	metrics map[metricKey]*metric
	// sets of labels by hash: those used since the last rotation, and those used before it.
	recent, older map[uint64]*labelSet
	// divided counts the cached parts of points that become several series.
	divided int
	// held is the size of the cache in bytes: of the recent sets and their origins, and of the older ones.
	held, olderHeld, originsHeld int64
	// shared is the sum of all decoders of a server; share is this decoder's part of the bound.
	shared  *atomic.Int64
	share   int64
	seed    maphash.Seed
	numbers uint64
	// bytes and series of the last request.
	bytes, series int
}

// NewDecoder makes a Decoder.
func NewDecoder(l Limits) *Decoder {
	return newDecoders(l, 1)[0]
}

// newDecoders makes n decoders that share the bound of the cache.
func newDecoders(l Limits, n int) (all []*Decoder) {
	l = l.withDefaults()
	shared := new(atomic.Int64)
	for range n {
		all = append(all, &Decoder{
			limits: l, seed: maphash.MakeSeed(),
			origins: map[string]*origin{}, metrics: map[metricKey]*metric{},
			recent: map[uint64]*labelSet{}, shared: shared, share: l.RememberedBytes / int64(2*n),
		})
	}
	return all
}

// reading is one Decode under way.
type reading struct {
	*Decoder
	batch  *Batch
	origin *origin
	metric *metric
	// oldest and newest time of a point, in ms; whether one after that, until doubtful, is ahead is not known at the
	// moment.
	oldest, newest, doubtful int64
	// last is the time of the newest point of a resource.
	last int64
	// cumulative and monotonic are those of the metric.
	cumulative, monotonic bool
	// elements that were read: resources, scopes and metrics.
	elements int
	// most is how many bytes the batch may become.
	most int
	// origins of the resource that is read, by whether its scope is ours.
	ofResource [2]*origin
}

// Decode reads an ExportMetricsServiceRequest. Tenant, if not empty, becomes a label of each series. received is the
// time of the request; the same arguments give the same batch. Errors are ErrMalformed, ErrTooManyPoints and
// ErrTooMuchMemory.
func (d *Decoder) Decode(body []byte, tenant string, received time.Time) (*Batch, error) {
	return d.decode(body, tenant, received, received, d.limits.Built)
}

// decode is Decode for a request that may become so many bytes. One that was taken is not refused for that: it becomes
// more where less of it is known.
func (d *Decoder) decode(body []byte, tenant string, received, doubtful time.Time, most int) (*Batch, error) {
	d.rotate()
	r := &reading{
		Decoder: d, batch: newBatch(min(len(body)/d.pointBytes(), d.limits.Points) + 16), most: most,
		oldest: received.Add(-d.limits.Behind).UnixMilli(), newest: received.Add(d.limits.Ahead).UnixMilli(),
		doubtful: doubtful.Add(d.limits.Ahead).UnixMilli(),
	}
	if err := r.request(body, tenant); err != nil {
		r.batch.release()
		return nil, err
	}
	if d.rotate(); r.over() {
		defer r.batch.release()
		return nil, r.memoryError()
	}
	d.bytes, d.series = len(body), len(r.batch.Series)
	return r.batch, nil
}

// pointBytes is about how many bytes of a request make a series: as many as in the one before.
func (d *Decoder) pointBytes() int { return max(32, d.bytes*15/16/(d.series+1)) }

// rotate evicts the sets that were not used since the last rotation; the recent ones become the older ones.
func (d *Decoder) rotate() {
	if len(d.origins) >= cachedOrigins || len(d.metrics) >= cachedOrigins || d.originsHeld > d.share {
		d.origins, d.metrics = map[string]*origin{}, map[metricKey]*metric{}
		d.recent, d.older, d.divided = map[uint64]*labelSet{}, nil, 0
		d.shared.Add(-d.held - d.olderHeld - d.originsHeld)
		d.held, d.olderHeld, d.originsHeld = 0, 0, 0
	}
	// A decoder within its share leaves the cache of others alone.
	crowded := d.shared.Load() > d.limits.RememberedBytes && d.held+d.olderHeld > d.share
	if crowded || len(d.recent)+d.divided >= d.limits.Remembered {
		d.shared.Add(-d.olderHeld)
		d.older, d.recent, d.divided = d.recent, map[uint64]*labelSet{}, 0
		d.olderHeld, d.held = d.held, 0
	}
}

// hold counts bytes of sets that are remembered and that the batch is the first to have.
func (r *reading) hold(n int) {
	r.held += int64(n)
	r.shared.Add(int64(n))
	r.batch.built += n
}

// holdOrigin is hold for origins.
func (r *reading) holdOrigin(n int) {
	r.originsHeld += int64(n)
	r.shared.Add(int64(n))
	r.batch.built += n
}

// over reports whether the batch exceeds its bound.
func (r *reading) over() bool { return r.batch.bytes() > r.most }

func (r *reading) memoryError() error {
	return fmt.Errorf("%w: more than %d bytes in memory; send smaller batches", ErrTooMuchMemory, r.most)
}

// element counts a resource, a scope or a metric.
func (r *reading) element() error {
	if r.elements++; r.elements > r.limits.elements() {
		return fmt.Errorf("%w: more than %d resources, scopes and metrics", ErrTooManyPoints, r.limits.elements())
	}
	return nil
}

func (r *reading) request(body []byte, tenant string) error {
	f := fields{remaining: body}
	for f.next() {
		if f.message(1) {
			if err := r.resource(f.bytes, tenant); err != nil {
				return err
			}
		}
	}
	return check(&f)
}

func check(f *fields) error {
	if f.bad {
		return fmt.Errorf("%w: %w", ErrMalformed, errMalformed)
	}
	return nil
}

func (r *reading) resource(b []byte, tenant string) error {
	if err := r.element(); err != nil {
		return err
	}
	r.ofResource = [2]*origin{}
	var about []byte
	f := fields{remaining: b}
	for f.next() {
		if f.message(1) {
			about = f.bytes
		}
	}
	if err := check(&f); err != nil {
		return err
	}
	r.last = math.MinInt64
	for f = (fields{remaining: b}); f.next(); {
		if f.message(2) {
			if err := r.scope(f.bytes, about, tenant); err != nil {
				return err
			}
		}
	}
	if r.origin != nil && r.last != math.MinInt64 {
		r.targetInfo()
	}
	return nil
}

func (r *reading) scope(b, about []byte, tenant string) error {
	if err := r.element(); err != nil {
		return err
	}
	ours := false
	f := fields{remaining: b}
	for f.next() {
		if f.message(1) {
			scope := fields{remaining: f.bytes}
			for scope.next() {
				if scope.message(1) {
					ours = string(scope.bytes) == otlp.Scope
				}
			}
			if err := check(&scope); err != nil {
				return err
			}
		}
	}
	if err := check(&f); err != nil {
		return err
	}
	r.batch.ours = r.batch.ours && ours
	origin, err := r.originOf(about, tenant, ours)
	if err != nil {
		return err
	}
	r.origin = origin
	for f = (fields{remaining: b}); f.next(); {
		if f.message(2) {
			if err := r.readMetric(f.bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// Kinds of data, by their field in a Metric.
const (
	gaugeData, sumData, histogramData, exponentialData, summaryData = 5, 7, 9, 10, 11
)

func (r *reading) readMetric(b []byte) error {
	if err := r.element(); err != nil {
		return err
	}
	var name, unit, data []byte
	kind := uint8(0)
	f := fields{remaining: b}
	for f.next() {
		switch {
		case f.message(1):
			name = f.bytes
		case f.message(3):
			unit = f.bytes
		case f.typ == 2 && (f.num == gaugeData || f.num == sumData || f.num >= histogramData && f.num <= summaryData):
			kind, data = uint8(f.num), f.bytes
		}
	}
	if err := check(&f); err != nil || kind == 0 {
		return err
	}
	r.cumulative, r.monotonic = kind == gaugeData || kind == summaryData, false
	for f = (fields{remaining: data}); f.next(); {
		switch {
		case f.varint(2) && kind != gaugeData && kind != summaryData:
			r.cumulative = f.number == 2
		case f.varint(3) && kind == sumData:
			r.monotonic = f.number != 0
		}
	}
	if err := check(&f); err != nil {
		return err
	}
	r.metric = r.metricOf(name, unit, kind, r.monotonic)
	for f = (fields{remaining: data}); f.next(); {
		if !f.message(1) {
			continue
		}
		r.batch.Points++
		if r.batch.Points > uint64(r.limits.Points) || len(r.batch.Series) > r.limits.Points {
			return fmt.Errorf("%w: more than %d", ErrTooManyPoints, r.limits.Points)
		}
		if r.over() {
			return r.memoryError()
		}
		switch {
		case !r.cumulative:
			r.reject(Delta)
		case r.metric.name == "":
			r.reject(BadName)
		default:
			if err := r.point(kind, f.bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reading) reject(why Reason) { r.batch.Rejected[why]++ }

func (r *reading) add(s model.Series) { r.batch.Series = append(r.batch.Series, s) }
