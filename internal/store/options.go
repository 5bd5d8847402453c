package store

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/compression"

	"outsight/internal/model"
	"outsight/internal/quota"
)

// Options of a Store. A zero field means its default.
type Options struct {
	// Retention is how long samples are kept (24 h).
	Retention time.Duration
	// MaxBytes bounds the data directory (2 GiB); the oldest samples go first. What was not yet made into a block,
	// about the last hour, counts but is never removed.
	MaxBytes int64
	// MinFree is the free space in bytes below which nothing more is stored (128 MiB): a log that meets a full disk
	// within a record loses what follows at the next start, and the watched host needs the space itself.
	MinFree int64
	// OutOfOrder is how much older than the newest a sample may be (10 min).
	OutOfOrder time.Duration
	// MaxSeries bounds the series in memory: the live ones and those that ended within about the last hour (100,000).
	// Each may need SeriesBytes.
	MaxSeries int
	// LabelBytes bounds the bytes of the labels of the series in memory, where each label counts its name, its value
	// and 64 more for the index (2 KiB for each of MaxSeries). Memory is near two and a half times that.
	LabelBytes int64
	// Tenants are those among whom MaxSeries and LabelBytes are divided, by the label TenantLabel; nil without tenants.
	// Quotas are further limits of each.
	Tenants *quota.Tenants
	Quotas  quota.Table
	// Lookback is how old the newest sample of a series may be to count as its value, where
	// nothing marked its end (5 min, as in Prometheus).
	Lookback time.Duration
	// QueryTimeout bounds the time of one query, waiting included (30 s).
	QueryTimeout time.Duration
	// MaxSamples bounds the samples that one query holds in memory (5,000,000, of 16 bytes).
	MaxSamples int
	// MaxQueries bounds the queries that run at a time (4); as many more may of tenants that have none running. Sixteen
	// times as many may wait.
	MaxQueries int
	// QueryBounds are what queries take together.
	QueryBounds
	// Now is the clock (the host's).
	Now func() time.Time
	// Logger gets warnings, and debug messages about blocks (none).
	Logger *slog.Logger
}

// SeriesBytes is what a process has to allow for each series in memory, in bytes: for the store, for what receives the
// series, and for garbage. docs/server.md has what was measured, and what it depends on.
const SeriesBytes = 6 << 10

// Bounds that are not worth an option.
const (
	// MaxPoints is the greatest number of steps from the start to the end of a range query.
	MaxPoints = 11000
	// MaxQueryBytes is the greatest length of a query or matcher: the parser and the
	// evaluation recurse into it.
	MaxQueryBytes = 32 << 10

	maxWaitingFactor = 16
	// labelBytesPerSeries is the default of LabelBytes for each of MaxSeries.
	labelBytesPerSeries = 2 << 10
)

func (o Options) withDefaults() (Options, error) {
	if o.Retention < 0 || o.MaxBytes < 0 || o.MinFree < 0 || o.OutOfOrder < 0 || o.MaxSeries < 0 || o.LabelBytes < 0 ||
		o.Lookback < 0 || o.QueryTimeout < 0 || o.MaxSamples < 0 || o.MaxQueries < 0 {
		return o, fmt.Errorf("store options %+v: a bound is negative", o)
	}
	setDefault(&o.Retention, 24*time.Hour)
	setDefault(&o.MaxBytes, 2<<30)
	setDefault(&o.MinFree, 128<<20)
	setDefault(&o.OutOfOrder, 10*time.Minute)
	setDefault(&o.MaxSeries, 100_000)
	setDefault(&o.LabelBytes, int64(o.MaxSeries)*labelBytesPerSeries)
	setDefault(&o.Lookback, 5*time.Minute)
	setDefault(&o.QueryTimeout, 30*time.Second)
	setDefault(&o.MaxSamples, 5_000_000)
	setDefault(&o.MaxQueries, 4)
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := o.QueryBounds.setDefaults(); err != nil {
		return o, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// blockDuration is the time in one block as it leaves memory. At one sample a second the
// Prometheus default of two hours would keep four times as much in memory and in the log that
// a restart has to read.
const blockDuration = 30 * time.Minute

// tsdbOptions chooses buffers for thousands of series, not millions: the defaults of a Prometheus
// server would cost the watched host several times the memory.
func (o Options) tsdbOptions() *tsdb.Options {
	t := tsdb.DefaultOptions()
	t.RetentionDuration = o.Retention.Milliseconds()
	t.MaxBytes = o.MaxBytes
	t.OutOfOrderTimeWindow = o.OutOfOrder.Milliseconds()
	block := min(blockDuration, max(o.Retention/2, time.Minute))
	t.MinBlockDuration = block.Milliseconds()
	// Old samples go a block at a time: blocks of a tenth keep the overhang small.
	t.MaxBlockDuration = max(block, o.Retention/10).Milliseconds()
	t.WALCompression = compression.Snappy
	t.WALSegmentSize = 16 << 20
	t.StripeSize = 1 << 10
	t.HeadChunksWriteBufferSize = chunks.MinWriteBufferSize
	t.EnableSTAsZeroSample = true
	// store.lock does it, before anything in the directory is touched.
	t.NoLockfile = true
	return t
}

// nameLabel is where a series keeps its name.
const nameLabel = model.NameLabel
