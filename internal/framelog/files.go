package framelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"outsight/internal/damaged"
)

// Options say what a log of files keeps. Zero values are the defaults.
type Options struct {
	// MaxBytes bounds all segments, those in the bucket included, in bytes: the oldest are removed. By default 10 GiB.
	MaxBytes int64
	// MaxAge is how long frames are kept, by default 30 days.
	MaxAge time.Duration
	// Fine is for how long all frames are kept, by default an hour. After that and until Middle, by default a day, one
	// is kept for each MiddleEvery, by default 10 s, and then key frames alone.
	Fine, Middle, MiddleEvery time.Duration
	// MaxAhead is how far the time of a frame may be ahead, by default 10 minutes.
	MaxAhead time.Duration
	// MaxStreams bounds the epochs of hosts, by default 100,000.
	MaxStreams int
	// SegmentBytes and SegmentAge are when a segment is closed, by default at 64 MiB, or MaxBytes/16 if that is less, and
	// after ten minutes.
	SegmentBytes int64
	SegmentAge   time.Duration
	// TidyEvery is how often the log thins and removes what is old, by default each minute; less than 0 for when Tidy is
	// called.
	TidyEvery time.Duration
	// Bucket has the segments of key frames where it is not nil. CacheBytes bounds what is kept on the disk of what was
	// read from it, by default 1 GiB.
	Bucket     Bucket
	CacheBytes int64
	// Now is the time, by default time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.MaxBytes = cmp.Or(o.MaxBytes, 10<<30)
	o.MaxAge = cmp.Or(o.MaxAge, 30*24*time.Hour)
	o.Fine, o.Middle = cmp.Or(o.Fine, time.Hour), cmp.Or(o.Middle, 24*time.Hour)
	o.Middle = max(o.Middle, o.Fine)
	o.MiddleEvery = cmp.Or(o.MiddleEvery, 10*time.Second)
	o.MaxAhead = cmp.Or(o.MaxAhead, 10*time.Minute)
	o.MaxStreams = cmp.Or(o.MaxStreams, 100_000)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, min(64<<20, o.MaxBytes/16))
	o.SegmentAge = cmp.Or(o.SegmentAge, 10*time.Minute)
	o.TidyEvery = cmp.Or(o.TidyEvery, time.Minute)
	o.CacheBytes = cmp.Or(o.CacheBytes, 1<<30)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

var (
	// ErrInUse means that another process has the directory open.
	ErrInUse = errors.New("in use by another process")
	// ErrRejected means that frames can never be stored.
	ErrRejected = errors.New("frames rejected")
	// ErrClosed means that the log is closed.
	ErrClosed = errors.New("the log of frames is closed")
)

const (
	suffix    = ".frames"
	temporary = ".tmp"
	// damagedShare is the part of MaxBytes that copies of what is damaged may take besides, leastDamaged the least of it.
	damagedShare = 16
	leastDamaged = 64 << 20
)

// Files is a Log in files of this process.
type Files struct {
	dir    string
	o      Options
	lock   *os.File
	copies damaged.Dir
	blocks *blockCache

	// appending is held by the one who writes to the open segment, or closes it. It guards writing, its file, current, and
	// opened, since when it is; nil if there is none.
	appending sync.Mutex
	writing   *os.File
	current   *segment
	opened    time.Time
	// tidying is held by the one who thins and removes.
	tidying sync.Mutex
	// mu guards the rest. It is taken after the other two, and not held while a disk is waited for.
	mu      sync.RWMutex
	streams map[streamName]*stream
	// segments are by number. The slice is not changed but replaced.
	segments []*segment
	next     uint64
	// failed is why nothing is appended any more.
	failed error
	closed bool
	// bytes is the size of all segments, newest the greatest time of a frame.
	bytes  int64
	newest int64
	counts Stats
	// doomed are segments that are to be removed from the bucket.
	doomed []uint64

	// cache has what was read from the bucket. uploaded is the greatest number of a segment that is or was in it;
	// bucketKnown says that its segments are known. The two are changed while tidying is held.
	cache       *diskCache
	uploaded    uint64
	bucketKnown bool

	ctx context.Context

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Open opens the log in dir, and makes the directory if it is missing. A frame that was written in part is cut off. The
// error wraps ErrInUse while another process has it open.
func Open(dir string, o Options) (*Files, error) {
	f := &Files{dir: dir, o: o.withDefaults(), streams: map[streamName]*stream{}, next: 1,
		blocks: newBlockCache(indexCacheBytes)}
	f.copies = damaged.Dir{Path: filepath.Join(dir, "damaged"), MaxBytes: max(leastDamaged, f.o.MaxBytes/damagedShare)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the log of frames: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the log of frames %q cannot be written: %w", dir, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, fmt.Errorf("the log of frames %q: %w", dir, err)
	}
	f.lock = lock
	ctx, stop := context.WithCancel(context.Background())
	f.ctx, f.stop = ctx, stop
	if err := f.recover(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the log of frames %q: %w", dir, err), f.Close())
	}
	if f.o.TidyEvery > 0 {
		f.running.Add(1)
		go f.keepTidy(ctx)
	}
	return f, nil
}

// keepTidy thins and removes what is old until the log is closed.
func (f *Files) keepTidy(ctx context.Context) {
	defer f.running.Done()
	every := time.NewTicker(f.o.TidyEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			if err := f.Tidy(ctx); err != nil && ctx.Err() == nil {
				f.o.Logger.Error("thinning the log of frames failed", "err", err)
			}
		}
	}
}

// Close closes the files. Reads that go on end first.
func (f *Files) Close() error {
	f.stop()
	f.running.Wait()
	f.tidying.Lock()
	defer f.tidying.Unlock()
	f.appending.Lock()
	defer f.appending.Unlock()
	if f.closed {
		return nil
	}
	err := f.closeSegment()
	f.mu.Lock()
	f.closed = true
	segments := f.segments
	f.segments, f.bytes = nil, 0
	f.mu.Unlock()
	for _, g := range segments {
		g.release()
	}
	return errors.Join(err, f.lock.Close())
}

// Hosts implements Log.
func (f *Files) Hosts(_ context.Context, tenant string) ([]Host, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return nil, ErrClosed
	}
	found := map[string]*Host{}
	for _, s := range f.streams {
		if s.tenant != tenant {
			continue
		}
		first, last := time.Unix(0, s.first), time.Unix(0, s.last)
		h := found[s.host]
		if h == nil {
			found[s.host] = &Host{s.host, first, last}
			continue
		}
		if first.Before(h.First) {
			h.First = first
		}
		if last.After(h.Last) {
			h.Last = last
		}
	}
	all := make([]Host, 0, len(found))
	for _, h := range found {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b Host) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Stats implements Log.
func (f *Files) Stats() Stats {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.counts
	s.Bytes, s.MaxBytes, s.Segments, s.Streams = f.bytes, f.o.MaxBytes, len(f.segments), len(f.streams)
	for _, g := range f.segments {
		s.Frames += g.frames
		if g.remote {
			s.RemoteBytes += g.size
		}
	}
	hosts := map[[2]string]struct{}{}
	for _, st := range f.streams {
		hosts[[2]string{st.tenant, st.host}] = struct{}{}
		if first := time.Unix(0, st.first); s.Oldest.IsZero() || first.Before(s.Oldest) {
			s.Oldest = first
		}
	}
	if f.newest > 0 {
		s.Newest = time.Unix(0, f.newest)
	}
	s.Hosts = len(hosts)
	return s
}

// view are the segments that a reader uses.
type view struct {
	segments []*segment
	// mu guards minutes: the segments that may have frames of a minute, as far as they were looked for.
	mu      sync.Mutex
	minutes map[int64][]*segment
}

// view has the segments of now. They stay readable until done.
func (f *Files) view() (*view, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return nil, ErrClosed
	}
	for _, g := range f.segments {
		g.users.Add(1)
	}
	return &view{segments: f.segments, minutes: map[int64][]*segment{}}, nil
}

func (v *view) done() {
	for _, g := range v.segments {
		g.release()
	}
}

// of are the segments that may have frames of a minute.
func (f *Files) of(v *view, minute int64) []*segment {
	v.mu.Lock()
	defer v.mu.Unlock()
	some, known := v.minutes[minute]
	if known {
		return some
	}
	f.mu.RLock()
	for _, g := range v.segments {
		if _, ok := g.reference(minute); ok || g.open != nil {
			some = append(some, g)
		}
	}
	f.mu.RUnlock()
	v.minutes[minute] = some
	return some
}

// parallel calls do for each number below n, on all cores, and returns the first error.
func parallel(ctx context.Context, n int, do func(i int) error) error {
	workers := min(runtime.GOMAXPROCS(0), n)
	errs := make([]error, workers)
	var wait sync.WaitGroup
	var mu sync.Mutex
	next := 0
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1
	}
	for w := range workers {
		wait.Go(func() {
			for i := take(); i < n; i = take() {
				if errs[w] = ctx.Err(); errs[w] == nil {
					errs[w] = do(i)
				}
				if errs[w] != nil {
					return
				}
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
