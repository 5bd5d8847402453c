package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
	gate    *gate
	// repaired is what was damaged when it was opened.
	repaired repaired

	// mu guards what Append keeps between batches.
	mu      sync.Mutex
	closed  bool
	tracker tracker

	// stopReserving ends the goroutine that maintains the reserve, and waits for it.
	stopReserving func()
}

// Open opens the store in dir, and creates the directory if it is missing. A record that a crash left incomplete at the
// end of the log is truncated. Damaged files are copied to the directory damaged in dir; their readable parts are read,
// and losses are logged. If another Store has the directory open, the error is ErrInUse.
func Open(dir string, options Options) (*Store, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := makePrivate(dir, options.Logger); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	if err := releaseReserve(dir, options); err != nil {
		return nil, errors.Join(fmt.Errorf("opening data directory %q: %w", dir, err), lock.Close())
	}
	logger := slog.New(demoted{options.Logger.Handler()}).With("part", "tsdb")
	counted := newSeriesUsage(options.MaxSeries, options.LabelBytes, options.Tenants, options.Quotas)
	db, found, err := openTSDB(dir, logger, options, counted)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening data directory %q: %w; "+
			"if the files are damaged, move the directory away or restore it", dir, err), lock.Close())
	}
	maintainReserve(dir, options)
	removeMoments(dir, options.Logger)
	s := &Store{
		options: options, lock: lock, db: db, repaired: found,
		parser:  newParser(),
		gate:    newGate(options.MaxQueries, options.QueryTimeout, options.QueryBounds, options.Quotas),
		tracker: newTracker(counted),
	}
	s.tracker.now = options.Now
	s.engine = promql.NewEngine(promql.EngineOpts{
		Logger: logger, MaxSamples: options.MaxSamples, Timeout: options.QueryTimeout,
		LookbackDelta: options.Lookback, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return defaultSubqueryStep.Milliseconds() },
		Parser:                   s.parser,
	})
	stop, stopped := make(chan struct{}), make(chan struct{})
	s.stopReserving = sync.OnceFunc(func() {
		close(stop)
		<-stopped
	})
	go func() {
		defer close(stopped)
		s.keepReserve(stop)
	}()
	return s, nil
}

// openTSDB opens the TSDB in dir, after the repair of damaged files and the removal of samples of the future.
func openTSDB(dir string, logger *slog.Logger, options Options, counted *seriesUsage) (*tsdb.DB, repaired, error) {
	r := newRepairer(dir, options)
	if err := r.repair(dir); err != nil {
		return nil, r.found, err
	}
	confirmed := filepath.Join(dir, futureName)
	for again := false; ; again = true {
		var db atomic.Pointer[tsdb.DB]
		o := options.tsdbOptions()
		o.BlocksToDelete = retain(options, db.Load)
		opened, err := openBounded(dir, logger, options, o, counted)
		if err != nil {
			return nil, r.found, err
		}
		db.Store(opened)
		limit := options.Now().Add(aheadOfClock)
		if again || newestOf(opened) <= limit.UnixMilli() {
			// What it says is of what was stored until now.
			if err := os.Remove(confirmed); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, r.found, errors.Join(err, opened.Close())
			}
			return opened, r.found, nil
		}
		newest := time.UnixMilli(newestOf(opened))
		if err := opened.Close(); err != nil {
			return nil, r.found, err
		}
		counted.forget()
		_, unconfirmed := os.Stat(confirmed)
		switch jumped, err := r.hasJumped(dir, limit); {
		case err != nil:
			return nil, r.found, err
		case !jumped && unconfirmed != nil:
			options.Logger.Error("this host's clock is behind the samples that are stored: nothing more is until it is right", "newest", newest)
		default:
			options.Logger.Error("there are samples of the future: this host's clock was ahead", "newest", newest)
			if err := r.setFutureAside(dir, limit); err != nil {
				return nil, r.found, err
			}
		}
	}
}

// removeMoments removes the snapshot files that earlier versions kept in the directory moments: the blocks have their
// values too.
func removeMoments(dir string, logger *slog.Logger) {
	moments := filepath.Join(dir, "moments")
	entries, err := os.ReadDir(moments)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".new"); strings.HasSuffix(name, ".moment") {
			err = errors.Join(err, os.Remove(filepath.Join(moments, e.Name())))
		}
	}
	if err = errors.Join(err, os.Remove(moments)); err != nil {
		logger.Warn("snapshot files of an earlier version cannot be removed; nothing reads them", "err", err)
		return
	}
	logger.Info("snapshot files of an earlier version are removed; blocks have their values too", "directory", moments,
		"files", len(entries))
}

func newParser() parser.Parser {
	return parser.NewParser(parser.Options{EnableExtendedRangeSelectors: true})
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
	s.gate.close()
	s.stopReserving()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.tracker.endAll(s.db.AppenderV2(context.Background())), s.engine.Close(), s.db.Close(),
		s.lock.Close())
}

// demoted logs the TSDB's information as debug messages: it reports each block and each log segment, which users of a
// terminal do not expect.
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
