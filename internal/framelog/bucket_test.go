package framelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// dirBucket is a bucket in a directory, which can be out of reach.
type dirBucket struct {
	dir  string
	down bool
}

var errDown = errors.New("no route to the bucket")

func (b *dirBucket) Put(_ context.Context, name string, content io.Reader, size int64) error {
	if b.down {
		return errDown
	}
	all, err := io.ReadAll(content)
	if err == nil && int64(len(all)) != size {
		err = fmt.Errorf("%d bytes, want %d", len(all), size)
	}
	return errors.Join(err, os.WriteFile(filepath.Join(b.dir, name), all, 0o600))
}

func (b *dirBucket) ReadAt(_ context.Context, name string, p []byte, offset int64) error {
	if b.down {
		return errDown
	}
	f, err := os.Open(filepath.Join(b.dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(p, offset)
	return err
}

func (b *dirBucket) List(context.Context) (all []Object, err error) {
	if b.down {
		return nil, errDown
	}
	entries, err := os.ReadDir(b.dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		all = append(all, Object{e.Name(), info.Size()})
	}
	return all, err
}

func (b *dirBucket) Remove(_ context.Context, name string) error {
	if b.down {
		return errDown
	}
	return os.Remove(filepath.Join(b.dir, name))
}

// answers are the frames of some windows, as a text.
func answers(log *Files) (all []string, err error) {
	random := rand.New(rand.NewPCG(41, 42))
	for range 100 {
		from := start.Add(time.Duration(random.Int64N(int64(40 * time.Minute))))
		times := []time.Time{from, from.Add(10 * time.Minute)}
		for w, err := range log.Windows(context.Background(), Query{Tenant: "t", Times: times}) {
			if err != nil {
				return nil, err
			}
			text := from.String()
			for _, h := range w.Hosts {
				for _, s := range h.Spans {
					text += fmt.Sprintf(" %s/%d/%d+%d", h.Host, s.After.Epoch, s.After.Number, total(s.After)-total(s.Before))
				}
			}
			all = append(all, text)
		}
	}
	return all, nil
}

// CheckLogInBucket moves old frames to a bucket, asks for them, loses the disk, and removes them with age.
func CheckLogInBucket(t *testing.T, bucket Bucket) {
	fleet := longFleet()
	c := &clock{start}
	o := c.options()
	o.SegmentBytes, o.SegmentAge = 300_000, 2*time.Minute
	o.Fine, o.Middle, o.MaxAge = 5*time.Minute, 10*time.Minute, 2*time.Hour
	tidy := func(log *Files) {
		t.Helper()
		if err := log.Tidy(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(log *Files) []string {
		t.Helper()
		all, err := answers(log)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	same := func(what string, got, want []string) {
		t.Helper()
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%s:\n%s\nwant\n%s", what, got[i], want[i])
			}
		}
	}
	local := fleet.log(t, o, c)
	tidy(local)
	want := ask(local)

	o.Bucket, o.CacheBytes = bucket, 3<<20
	log := fleet.log(t, o, c)
	tidy(log)
	objects, err := bucket.List(context.Background())
	if err != nil || len(objects) < 5 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
	size := int64(0)
	for _, object := range objects {
		size += object.Size
	}
	s := log.Stats()
	if s.RemoteBytes != size || s.Bytes != local.Stats().Bytes || s.Frames != local.Stats().Frames {
		t.Errorf("stats %+v, want those of %+v, %d bytes in the bucket", s, local.Stats(), size)
	}
	files, _ := filepath.Glob(filepath.Join(log.dir, "*"+suffix))
	if len(files) != s.Segments-len(objects) {
		t.Errorf("%d files and %d objects of %d segments", len(files), len(objects), s.Segments)
	}
	same("in the bucket", ask(log), want)
	same("in the cache", ask(log), want)
	if log.cache.bytes > o.CacheBytes || log.cache.bytes == 0 {
		t.Errorf("%d bytes in the cache", log.cache.bytes)
	}
	dir := log.dir
	log.Close()
	log = open(t, dir, o)
	same("opened again", ask(log), want)
	log.Close()

	// Without the disk, what is in the bucket is there, and new frames get other numbers.
	log = open(t, t.TempDir(), o)
	if s := log.Stats(); s.Segments != len(objects) || s.RemoteBytes != size {
		t.Errorf("stats of the bucket alone: %+v", s)
	}
	first := want[:0:0]
	for i, answer := range ask(log) {
		if answer == want[i] {
			first = append(first, answer)
		}
	}
	if len(first) < len(want)/2 {
		t.Errorf("%d of %d answers from the bucket alone", len(first), len(want))
	}
	mustAppend(t, log, opaque("b", 2, c.now, time.Second, 1)...)
	tidy(log)
	if got, _ := bucket.List(context.Background()); len(got) != len(objects) {
		t.Errorf("%d objects, want %d", len(got), len(objects))
	}

	// Retention removes what is in the bucket.
	c.now = c.now.Add(3 * time.Hour)
	mustAppend(t, log, opaque("b", 3, c.now, time.Second, 1)...)
	tidy(log)
	if got, err := bucket.List(context.Background()); err != nil || len(got) != 0 {
		t.Errorf("%d objects are left, %v", len(got), err)
	}
	// The last two frames are in one segment.
	if s := log.Stats(); s.Frames != 2 || s.Segments != 1 || s.RemoteBytes != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestLogInBucket(t *testing.T) { CheckLogInBucket(t, &dirBucket{dir: t.TempDir()}) }

// TestBucketThatDoesNotAnswer: new frames are taken, what is on the disk is there, and the rest comes back with the
// bucket.
func TestBucketThatDoesNotAnswer(t *testing.T) {
	fleet := longFleet()
	c := &clock{start}
	o := c.options()
	bucket := &dirBucket{dir: t.TempDir(), down: true}
	if _, err := Open(t.TempDir(), withBucket(o, bucket)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("an empty log was opened: %v", err)
	}
	bucket.down = false
	o = withBucket(o, bucket)
	o.SegmentBytes, o.SegmentAge = 300_000, 2*time.Minute
	o.Fine, o.Middle, o.MaxAge = 5*time.Minute, 10*time.Minute, 2*time.Hour
	log := fleet.log(t, o, c)
	dir := log.dir
	log.Close() // so that no segment is open that would be thinned later
	log = open(t, dir, o)
	if err := log.Tidy(context.Background()); err != nil {
		t.Fatal(err)
	}
	want, err := answers(log)
	if err != nil {
		t.Fatal(err)
	}
	log.Close()

	bucket.down = true
	log = open(t, dir, o)
	if s := log.Stats(); s.RemoteBytes != 0 || s.Frames == 0 {
		t.Errorf("stats without the bucket: %+v", s)
	}
	mustAppend(t, log, opaque("b", 2, c.now.Add(-2*time.Second), time.Second, 1)...)
	if err := log.Tidy(context.Background()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("tidied without the bucket: %v", err)
	}
	bucket.down = false
	if err := log.Tidy(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, err := answers(log); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("answers are others: %v", err)
	}
	// A bucket that goes away is no damage: the answer fails, and does not lack anything.
	os.RemoveAll(log.cache.dir)
	bucket.down = true
	log.blocks = newBlockCache(indexCacheBytes)
	if _, err := answers(log); !errors.Is(err, ErrUnavailable) {
		t.Errorf("an answer without the bucket: %v", err)
	}
	bucket.down = false
	os.Mkdir(log.cache.dir, 0o700)
	if got, err := answers(log); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("answers are others: %v", err)
	}
	if s := log.Stats(); s.Damaged != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func withBucket(o Options, b Bucket) Options {
	o.Bucket = b
	return o
}
