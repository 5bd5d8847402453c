package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"time"

	"outsight/internal/model"
	"outsight/internal/otlp"
)

// Errors of Decode: nothing of the request can be taken.
var (
	ErrMalformed     = errors.New("not an OTLP metrics request")
	ErrTooManyPoints = errors.New("too many data points in one request")
)

// Limits bound what a request may hold. The zero Limits has the defaults.
type Limits struct {
	// Points in one request (100,000). A classic histogram counts one for each of its buckets.
	Points int
	// Labels of one series (64).
	Labels int
	// Ahead is how far a time may lie ahead of the server's clock (10 min), Behind how far back (24 h).
	Ahead, Behind time.Duration
	// Remembered sets of labels (500,000, of about 1 KB each), of which all metrics of a container or an edge have one or two, and
	// those of each classic histogram; twice as many for a moment. Where more than that come, each is read anew.
	Remembered int
}

func (l Limits) withDefaults() Limits {
	l.Points = cmp.Or(l.Points, 100_000)
	l.Labels = cmp.Or(l.Labels, 64)
	l.Remembered = cmp.Or(l.Remembered, 500_000)
	l.Ahead = cmp.Or(l.Ahead, 10*time.Minute)
	l.Behind = cmp.Or(l.Behind, 24*time.Hour)
	return l
}

// Bounds of what is not worth an option.
const (
	maxNameBytes = 512
	maxBuckets   = 4096
	// maxRemembered bounds the bytes of a point's attributes, of a resource's and of a metric's name, which
	// are kept as they came.
	maxRemembered = 64 << 10
	// cachedOrigins bounds the resources and the metrics that a Decoder remembers.
	cachedOrigins = 20_000
)

// Decoder turns requests into series. It remembers sets of labels: what an agent sends every second is found by one
// comparison of bytes. It is for one goroutine.
type Decoder struct {
	limits Limits
	// origins are resources by tenant and bytes, metrics are names by how a request names them.
	origins map[string]*origin
	metrics map[metricKey]*metric
	// sets of labels by hash: those used since the last turn, and those used before it.
	recent, older map[uint64]*labelSet
	// divided counts what the recent ones remember of points that are several series.
	divided int
	seed    maphash.Seed
	numbers uint64
	// bytes and series of the last request.
	bytes, series int
}

// NewDecoder makes a Decoder.
func NewDecoder(l Limits) *Decoder {
	return &Decoder{
		limits: l.withDefaults(), seed: maphash.MakeSeed(),
		origins: map[string]*origin{}, metrics: map[metricKey]*metric{},
		recent: map[uint64]*labelSet{},
	}
}

// reading is one Decode under way.
type reading struct {
	*Decoder
	batch          *Batch
	origin         *origin
	metric         *metric
	oldest, newest int64 // in ms
	// last is the time of the newest point of a resource.
	last int64
	// cumulative and monotonic as the metric says.
	cumulative, monotonic bool
}

// Decode reads an ExportMetricsServiceRequest. Tenant, if there is one, becomes a label of each series. Received is
// when the request came; the same arguments give the same batch. Errors are ErrMalformed and ErrTooManyPoints.
func (d *Decoder) Decode(body []byte, tenant string, received time.Time) (*Batch, error) {
	d.turn()
	r := &reading{
		Decoder: d, batch: newBatch(len(body)/d.pointBytes() + 16),
		oldest: received.Add(-d.limits.Behind).UnixMilli(), newest: received.Add(d.limits.Ahead).UnixMilli(),
	}
	if err := r.request(body, tenant); err != nil {
		r.batch.release()
		return nil, err
	}
	d.bytes, d.series = len(body), len(r.batch.Series)
	return r.batch, nil
}

// pointBytes is about how many bytes of a request make a series: as many as in the one before.
func (d *Decoder) pointBytes() int { return max(32, d.bytes*15/16/(d.series+1)) }

// turn lets go of what was not used for long. What is used again moves to the recent ones.
func (d *Decoder) turn() {
	if len(d.recent)+d.divided >= d.limits.Remembered {
		d.older, d.recent, d.divided = d.recent, map[uint64]*labelSet{}, 0
	}
	if len(d.origins) >= cachedOrigins || len(d.metrics) >= cachedOrigins {
		d.origins, d.metrics = map[string]*origin{}, map[metricKey]*metric{}
		d.recent, d.older, d.divided = map[uint64]*labelSet{}, nil, 0
	}
}

func (r *reading) request(body []byte, tenant string) error {
	f := fields{rest: body}
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
	var about []byte
	f := fields{rest: b}
	for f.next() {
		if f.message(1) {
			about = f.bytes
		}
	}
	if err := check(&f); err != nil {
		return err
	}
	r.last = math.MinInt64
	for f = (fields{rest: b}); f.next(); {
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
	ours := false
	f := fields{rest: b}
	for f.next() {
		if f.message(1) {
			scope := fields{rest: f.bytes}
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
	for f = (fields{rest: b}); f.next(); {
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
	var name, unit, data []byte
	kind := uint8(0)
	f := fields{rest: b}
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
	for f = (fields{rest: data}); f.next(); {
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
	for f = (fields{rest: data}); f.next(); {
		if !f.message(1) {
			continue
		}
		r.batch.Points++
		if r.batch.Points > uint64(r.limits.Points) || len(r.batch.Series) > r.limits.Points {
			return fmt.Errorf("%w: more than %d", ErrTooManyPoints, r.limits.Points)
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
