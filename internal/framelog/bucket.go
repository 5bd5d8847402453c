package framelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"outsight/internal/damaged"
)

// Bucket is where segments of key frames may lie: objects that are written once, read in parts and removed. An
// implementation for S3 is in internal/framelog/s3.
type Bucket interface {
	// Put writes an object. It is there as a whole, or not at all.
	Put(ctx context.Context, name string, content io.Reader, size int64) error
	// ReadAt reads len(p) bytes of an object from an offset. Fewer are an error.
	ReadAt(ctx context.Context, name string, p []byte, offset int64) error
	List(ctx context.Context) ([]Object, error)
	// Remove removes an object. It is no error that there is none.
	Remove(ctx context.Context, name string) error
}

// Object is something in a bucket, with its size in bytes.
type Object struct {
	Name string
	Size int64
}

const (
	// bucketTimeout bounds one request, bucketAtOnce how many are made at a time when the log is opened.
	bucketTimeout = time.Minute
	bucketAtOnce  = 8
	// uploadedFile has the greatest number of a segment in the bucket, so that no other one gets it.
	uploadedFile = "uploaded"
)

func objectName(number uint64) string { return fmt.Sprintf("%012d", number) + suffix }

// remote is the content of a segment in the bucket.
type remote struct {
	f      *Files
	ctx    context.Context
	number uint64
	size   int64
}

func (r *remote) Close() error { return nil }

// ReadAt implements io.ReaderAt. Parts that are read are kept on the disk.
func (r *remote) ReadAt(p []byte, offset int64) (n int, err error) {
	short := offset+int64(len(p)) > r.size
	if short {
		p = p[:max(r.size-offset, 0)]
	}
	for n < len(p) {
		part := (offset + int64(n)) / partBytes
		last := (offset + int64(len(p)) - 1) / partBytes
		content, err := r.f.cache.get(partID{r.number, part})
		if err != nil {
			content, err = r.fetch(part, last)
		}
		if err != nil {
			return n, err
		}
		n += copy(p[n:], content[offset+int64(n)-part*partBytes:])
	}
	if short {
		return n, io.EOF
	}
	return n, nil
}

// fetch reads parts up to last that are not on the disk yet, the first of which is part.
func (r *remote) fetch(part, last int64) ([]byte, error) {
	end := part + 1
	for end <= last && end-part < partsAtOnce && !r.f.cache.has(partID{r.number, end}) {
		end++
	}
	b := make([]byte, min(end*partBytes, r.size)-part*partBytes)
	ctx, cancel := context.WithTimeout(r.ctx, bucketTimeout)
	defer cancel()
	if err := r.f.o.Bucket.ReadAt(ctx, objectName(r.number), b, part*partBytes); err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", ErrUnavailable, objectName(r.number), err)
	}
	for i := part; i < end; i++ {
		r.f.cache.put(partID{r.number, i}, b[(i-part)*partBytes:min((i-part+1)*partBytes, int64(len(b)))])
	}
	return b, nil
}

// openBucket finds what is in the bucket. Where it does not answer, the log works without that, and tries again later;
// only an empty log needs it, because it does not know which numbers are used.
func (f *Files) openBucket(ctx context.Context) error {
	if text, err := os.ReadFile(filepath.Join(f.dir, uploadedFile)); err == nil {
		if f.uploaded, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return fmt.Errorf("reading %q: %w", uploadedFile, err)
		}
		f.next = max(f.next, f.uploaded+1)
	}
	if f.o.Bucket == nil {
		if f.uploaded > 0 {
			f.o.Logger.Warn("frames of this log are in a bucket, and none is given: they are not there for queries")
		}
		return nil
	}
	cache, err := newDiskCache(filepath.Join(f.dir, "cache"), f.o.CacheBytes)
	if err != nil {
		return err
	}
	f.cache = cache
	if err := f.loadBucket(ctx); err != nil {
		if len(f.segments) == 0 && f.uploaded == 0 {
			return err
		}
		f.o.Logger.Error("the bucket of frames does not answer: older frames are not there for now", "err", err)
	}
	return nil
}

// loadBucket adds the segments of the bucket that are not known.
func (f *Files) loadBucket(ctx context.Context) error {
	listing, cancel := context.WithTimeout(ctx, bucketTimeout)
	defer cancel()
	objects, err := f.o.Bucket.List(listing)
	if err != nil {
		return fmt.Errorf("%w: listing: %w", ErrUnavailable, err)
	}
	known := map[uint64]bool{}
	f.mu.RLock()
	for _, g := range f.segments {
		known[g.number] = true
	}
	f.mu.RUnlock()
	var wait sync.WaitGroup
	errs := make([]error, len(objects))
	slots := make(chan struct{}, bucketAtOnce)
	for i, o := range objects {
		text, ours := strings.CutSuffix(o.Name, suffix)
		number, err := strconv.ParseUint(text, 10, 64)
		if !ours || err != nil || known[number] {
			continue
		}
		f.mu.Lock()
		f.next = max(f.next, number+1)
		f.mu.Unlock()
		f.uploaded = max(f.uploaded, number)
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			errs[i] = f.loadRemote(number, o.Size)
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f.bucketKnown = true
	return nil
}

func (f *Files) loadRemote(number uint64, size int64) error {
	from := &remote{f: f, ctx: f.ctx, number: number, size: size}
	d, err := readDirectory(from, size)
	switch {
	case errors.Is(err, errDamaged):
		f.mu.Lock()
		f.counts.Damaged++
		f.mu.Unlock()
		f.o.Logger.Error("a segment in the bucket cannot be read", "object", objectName(number), "err", err)
		return nil
	case err != nil:
		return err
	}
	f.adopt(number, d, from, size).remote = true
	return nil
}

// tidyBucket moves segments of key frames to the bucket, and removes from it what the log has removed. tidying is held.
func (f *Files) tidyBucket(ctx context.Context) error {
	if f.o.Bucket == nil {
		return nil
	}
	if !f.bucketKnown {
		if err := f.loadBucket(ctx); err != nil {
			return err
		}
		if err := f.removeReplaced(); err != nil {
			return err
		}
	}
	for {
		f.mu.RLock()
		doomed := slices.Clone(f.doomed)
		var local *segment
		for _, g := range f.segments {
			if g.open == nil && g.level == levelKeys && !g.remote {
				local = g
			}
		}
		f.mu.RUnlock()
		for _, number := range doomed {
			if err := f.o.Bucket.Remove(ctx, objectName(number)); err != nil {
				return fmt.Errorf("removing old frames from the bucket: %w", err)
			}
			f.mu.Lock()
			f.doomed = slices.DeleteFunc(f.doomed, func(n uint64) bool { return n == number })
			f.mu.Unlock()
		}
		if local == nil {
			return nil
		}
		if err := f.upload(ctx, local); err != nil {
			return fmt.Errorf("moving frames to the bucket: %w", err)
		}
	}
}

// upload moves a segment to the bucket. It is there before its file is removed; if the program ends in between, it is
// done again.
func (f *Files) upload(ctx context.Context, g *segment) error {
	if g.number > f.uploaded {
		if err := damaged.Replace(filepath.Join(f.dir, uploadedFile), fmt.Append(nil, g.number)); err != nil {
			return err
		}
		f.uploaded = g.number
	}
	content := io.NewSectionReader(g.from, 0, g.size)
	if err := f.o.Bucket.Put(ctx, objectName(g.number), content, g.size); err != nil {
		return err
	}
	there := &segment{number: g.number, level: g.level, size: g.size, frames: g.frames, streams: g.streams,
		minutes: g.minutes, replaced: g.replaced, remote: true,
		from: &remote{f: f, ctx: f.ctx, number: g.number, size: g.size}}
	there.users.Add(1)
	f.mu.Lock()
	at := slices.Index(f.segments, g)
	if at >= 0 {
		f.segments = slices.Clone(f.segments)
		f.segments[at] = there
	} else { // retention removed it meanwhile
		f.doomed = append(f.doomed, g.number)
	}
	f.mu.Unlock()
	if at < 0 {
		return nil
	}
	defer g.release()
	return os.Remove(pathOf(f.dir, g.number))
}
