package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

// Store is an open data directory. Its methods may be called at the same time.
type Store struct {
	options Options
	lock    *os.File
	db      *tsdb.DB
	engine  *promql.Engine
	parser  parser.Parser
	// running has a place for each query that runs; waiting counts those that want one.
	running chan struct{}
	waiting atomic.Int64
	// closing is closed when Close begins; queries counts those that must end before the
	// files are closed.
	closing     chan struct{}
	queries     sync.WaitGroup
	queryCounts queryCounts

	// mu guards what Append keeps between batches.
	mu      sync.Mutex
	closed  bool
	sources map[string]*source
	cache   cache
	// batches begun, failed ones too.
	batches uint64
	counts  counts
}

// Open opens the store in dir, making the directory where it is missing. What a crash left
// half-written at the end of the log is cut off, which is told in a warning; older damage is an
// error. Only one Store can have a directory open: the second gets ErrInUse.
func Open(dir string, options Options) (*Store, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making data directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	logger := slog.New(demoted{options.Logger.Handler()}).With("part", "tsdb")
	db, err := tsdb.Open(dir, logger, nil, options.tsdbOptions(), nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening data directory %q: %w; "+
			"if the files are damaged, move the directory away or restore it", dir, err), lock.Close())
	}
	s := &Store{
		options: options, lock: lock, db: db,
		parser:  parser.NewParser(parser.Options{EnableExtendedRangeSelectors: true}),
		running: make(chan struct{}, options.MaxQueries),
		closing: make(chan struct{}),
		sources: map[string]*source{},
		cache:   newCache(),
	}
	s.engine = promql.NewEngine(promql.EngineOpts{
		Logger: logger, MaxSamples: options.MaxSamples, Timeout: options.QueryTimeout,
		LookbackDelta: options.Lookback, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return defaultSubqueryStep.Milliseconds() },
		Parser:                   s.parser,
	})
	return s, nil
}

// defaultSubqueryStep is the resolution of a subquery that names none.
const defaultSubqueryStep = 5 * time.Second

// Close ends all live series, writes what is in memory and releases the directory. Queries that
// run are cancelled. Closing twice is harmless.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	close(s.closing)
	s.queries.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.endAll(), s.engine.Close(), s.db.Close(), s.lock.Close())
}

// demoted makes what the TSDB calls information a debug message: it reports each block and each
// log segment, which is not what somebody at a terminal waits for.
type demoted struct{ slog.Handler }

func (d demoted) Enabled(ctx context.Context, level slog.Level) bool {
	return d.Handler.Enabled(ctx, demote(level))
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = demote(r.Level)
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }

func demote(level slog.Level) slog.Level {
	if level < slog.LevelWarn {
		return level - (slog.LevelInfo - slog.LevelDebug)
	}
	return level
}
