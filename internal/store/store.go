package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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

	// stopMoments ends who writes files of moments, and waits for it.
	stopMoments func()
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
	moments, err := openMoments(filepath.Join(dir, "moments"), options.momentBytes(), options.Logger)
	if err != nil {
		return nil, errors.Join(err, db.Close(), lock.Close())
	}
	s := &Store{
		options: options, lock: lock, db: db, repaired: found,
		parser:  newParser(),
		gate:    newGate(options.MaxQueries, options.QueryTimeout, options.QueryBounds, options.Quotas),
		tracker: newTracker(counted),
	}
	s.tracker.now = options.Now
	s.tracker.keeper = newKeeper(options.KeepFrom, moments)
	s.tracker.keeper.zeroFrom = db.Head().AppendableMinValidTime
	moments.prune(s.oldest())
	s.engine = promql.NewEngine(promql.EngineOpts{
		Logger: logger, MaxSamples: options.MaxSamples, Timeout: options.QueryTimeout,
		LookbackDelta: options.Lookback, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return defaultSubqueryStep.Milliseconds() },
		Parser:                   s.parser,
	})
	stop, stopped := make(chan struct{}), make(chan struct{})
	s.stopMoments = sync.OnceFunc(func() {
		close(stop)
		<-stopped
	})
	go func() {
		defer close(stopped)
		s.writeMoments(stop)
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

// momentPause is how often it is looked for moments that have no file yet.
const momentPause = 5 * time.Second

// writeMoments writes the files of moments until it is to stop.
func (s *Store) writeMoments(stop <-chan struct{}) {
	ticker := time.NewTicker(momentPause)
	defer ticker.Stop()
	for reserves := true; ; {
		select {
		case <-stop:
			return
		case <-ticker.C:
			reserves = reserves && maintainReserve(s.db.Dir(), s.options)
			s.writeDueMoments(false)
		}
	}
}

// writeDueMoments writes the files of moments that are due, and removes those for which there is no room or that are of
// samples which are gone; final is that nothing comes any more. It is for one caller at a time.
func (s *Store) writeDueMoments(final bool) {
	k := s.tracker.keeper
	begin := func() (moment int64, sources []*keptSource, ok bool) {
		crowded := k.files.prune(s.oldest())
		s.mu.Lock()
		defer s.mu.Unlock()
		k.files.skip = max(k.files.skip, crowded)
		if s.closed && !final || s.checkSpace() != nil {
			return 0, nil, false
		}
		if moment, sources, ok = k.due(s.tracker.now(), final); ok {
			k.files.begin(moment)
		}
		return moment, sources, ok
	}
	for {
		moment, sources, ok := begin()
		if !ok {
			return
		}
		written, err := k.files.write(moment, k.partsSince(moment), sources, s.Sync)
		if err != nil { // it would fail again
			s.mu.Lock()
			k.files.skip = max(k.files.skip, moment)
			s.mu.Unlock()
		}
		if !written {
			return
		}
	}
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
	s.stopMoments()
	s.writeDueMoments(true)
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
