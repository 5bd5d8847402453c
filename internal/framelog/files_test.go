package framelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
)

// clock is the time of a log in a test.
type clock struct{ now time.Time }

func (c *clock) options() Options {
	return Options{Now: func() time.Time { return c.now }, TidyEvery: -1}
}

func open(t testing.TB, dir string, o Options) *Files {
	t.Helper()
	f, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func mustAppend(t testing.TB, f *Files, batch ...Encoded) {
	t.Helper()
	if err := f.Append(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
}

// stored are the frames of a log that can be read, by "host/epoch/number"; twice is how many are there more than once.
func stored(t *testing.T, f *Files) (all map[string][]byte, twice int) {
	t.Helper()
	v, err := f.view()
	if err != nil {
		t.Fatal(err)
	}
	defer v.done()
	all = map[string][]byte{}
	f.mu.RLock()
	streams := make([]*stream, 0, len(f.streams))
	for _, s := range f.streams {
		streams = append(streams, s)
	}
	f.mu.RUnlock()
	for _, s := range streams {
		for _, run := range s.minutes.runs() {
			for k := range run[1] {
				indexed, err := f.indexed(v, s, run[0]+k)
				if err != nil {
					t.Fatal(err)
				}
				numbers := map[uint64]bool{}
				for _, l := range indexed {
					if numbers[l.number] {
						twice++
					}
					numbers[l.number] = true
				}
				readAll(f.entries(v, s, run[0]+k), func(l located, data []byte, err error) {
					if err != nil {
						f.damage(l.in, l.offset, err)
						return
					}
					all[fmt.Sprintf("%s/%d/%d", s.host, s.epoch, l.number)] = bytes.Clone(data)
				})
			}
		}
	}
	return all, twice
}

func checkStored(t *testing.T, f *Files, want []Encoded) {
	t.Helper()
	all, twice := stored(t, f)
	if len(all) != len(want) || twice != 0 {
		t.Errorf("%d frames, %d of them twice: want %d once", len(all), twice, len(want))
	}
	for i := range want {
		id := fmt.Sprintf("%s/%d/%d", want[i].Host, want[i].Epoch, want[i].Number)
		if !bytes.Equal(all[id], want[i].Data) {
			t.Fatalf("frame %s is %q, want %q", id, all[id], want[i].Data)
		}
	}
}

func TestAppend(t *testing.T) {
	dir := t.TempDir()
	c := &clock{start}
	f := open(t, dir, c.options())
	if _, err := Open(dir, c.options()); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	all := opaque("a", 1, start, time.Second, 150)
	other := opaque("b", 7, start.Add(30*time.Second), time.Second, 150)
	for i := range 15 {
		mustAppend(t, f, append(all[i*10:i*10+10:i*10+10], other[i*10:i*10+10]...)...)
	}
	mustAppend(t, f, all...) // all of them are there
	reversed := opaque("c", 1, start, time.Second, 5)
	mustAppend(t, f, reversed[4], reversed[3], reversed[2], reversed[1], reversed[0], reversed[2])
	want := append(append(all, other...), reversed...)
	checkStored(t, f, want)
	if s := f.Stats(); s.Frames != 305 || s.Duplicates != 151 || s.Hosts != 3 || !s.Newest.Equal(other[149].Time) ||
		!s.Oldest.Equal(start) {
		t.Errorf("stats: %+v", s)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Append(context.Background(), all); !errors.Is(err, ErrClosed) {
		t.Errorf("appended to a closed log: %v", err)
	}

	f = open(t, dir, c.options())
	checkStored(t, f, want)
	mustAppend(t, f, all[20:40]...) // the index on the disk knows them
	late := opaque("a", 1, start, time.Second, 151)
	mustAppend(t, f, late[150])
	checkStored(t, f, append(want, late[150]))
	if s := f.Stats(); s.Frames != 306 || s.Duplicates != 20 || s.Segments != 2 || s.Bytes == 0 {
		t.Errorf("stats: %+v", s)
	}
	hosts, err := f.Hosts(context.Background(), "t")
	if err != nil || len(hosts) != 3 || hosts[0].Name != "a" || !hosts[0].First.Equal(start) ||
		!hosts[0].Last.Equal(late[150].Time) {
		t.Errorf("hosts: %+v, %v", hosts, err)
	}
	if hosts, _ := f.Hosts(context.Background(), "another"); len(hosts) != 0 {
		t.Errorf("hosts of another tenant: %v", hosts)
	}
}

func TestRejected(t *testing.T) {
	c := &clock{start}
	o := c.options()
	o.MaxStreams = 2
	f := open(t, t.TempDir(), o)
	good := opaque("a", 1, start, time.Second, 3)
	bad := func(change func(e *Encoded)) Encoded {
		e := opaque("a", 1, start, time.Second, 1)[0]
		change(&e)
		return e
	}
	batch := []Encoded{
		good[1], good[0],
		bad(func(e *Encoded) { e.Number, e.Key = 9, 8 }),                                       // its key frame is nowhere
		bad(func(e *Encoded) { e.Number, e.Key, e.Time = 9, 1, start.Add(time.Minute) }),       // of another minute
		bad(func(e *Encoded) { e.Number, e.Key = 8, 9 }),                                       // before its key frame
		bad(func(e *Encoded) { e.Number, e.Key, e.Time = 9, 9, start.Add(11*time.Minute) }),    // too far ahead
		bad(func(e *Encoded) { e.Number, e.Key, e.Time = 9, 9, start.Add(-31*24*time.Hour) }),  // too old
		bad(func(e *Encoded) { e.Host = "" }),                                                  //
		bad(func(e *Encoded) { e.Tenant = strings.Repeat("x", 256) }),                          //
		bad(func(e *Encoded) { e.Number, e.Key, e.Data = 9, 9, make([]byte, maxRecord) }),      //
		bad(func(e *Encoded) { e.Host = "b" }),                                                 // good
		bad(func(e *Encoded) { e.Host = "c" }),                                                 // the third
		bad(func(e *Encoded) { e.Number, e.Key, e.Time = 10, 10, start.Add(9*time.Minute) }),   // good
		bad(func(e *Encoded) { e.Number, e.Key, e.Time = 11, 10, start.Add(9*time.Minute+1) }), // good
	}
	err := f.Append(context.Background(), batch)
	if !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "9 of 14") ||
		!strings.Contains(err.Error(), "11m0s ahead") {
		t.Errorf("error: %v", err)
	}
	checkStored(t, f, []Encoded{good[0], good[1], batch[10], batch[12], batch[13]})
	if s := f.Stats(); s.KeyMissing != 2 || s.Rejected != 7 || s.Frames != 5 {
		t.Errorf("stats: %+v", s)
	}
}

// TestDiskThatDoesNotSync: after an fsync that failed nobody knows what is on the disk.
func TestDiskThatDoesNotSync(t *testing.T) {
	dir := t.TempDir()
	c := &clock{start}
	var log bytes.Buffer
	o := c.options()
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	f := open(t, dir, o)
	all := opaque("a", 1, start, time.Second, 3)
	mustAppend(t, f, all[0])
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	was := f.writing
	f.writing = null // it takes writes and cannot be synced
	for i := range 2 {
		if err := f.Append(context.Background(), all[1:2]); err == nil || !strings.Contains(err.Error(), "syncing frames") {
			t.Errorf("append %d: %v", i, err)
		}
		f.writing = was // it works again, and that does not help
	}
	if n := strings.Count(log.String(), "takes no frames any more"); n != 1 {
		t.Errorf("it was said %d times: %s", n, log.String())
	}
	checkStored(t, f, all[:1])
	f.Close()
	f = open(t, dir, o)
	mustAppend(t, f, all...)
	checkStored(t, f, all)
}

// TestRetention by bytes and by age.
func TestRetention(t *testing.T) {
	c := &clock{start}
	o := c.options()
	o.MaxBytes, o.MaxAge, o.SegmentBytes = 200_000, 2*time.Hour, 10_000
	f := open(t, t.TempDir(), o)
	all := opaque("a", 1, start, time.Second, 4000)
	for i := 0; i < len(all); i += 20 {
		c.now = all[i+19].Time
		mustAppend(t, f, all[i:i+20]...)
		if s := f.Stats(); s.Bytes > o.MaxBytes+o.SegmentBytes {
			t.Fatalf("%d bytes", s.Bytes)
		}
	}
	s := f.Stats()
	if s.Removed == 0 || s.Frames+int(s.Removed) != len(all) || s.Bytes < o.MaxBytes*3/4 {
		t.Errorf("stats: %+v", s)
	}
	// Of the oldest minute the key frame was removed with the segment before.
	checkStored(t, f, all[(s.Removed+59)/60*60:])
	files, _ := filepath.Glob(filepath.Join(f.dir, "*"+suffix))
	size := int64(0)
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size != s.Bytes || len(files) != s.Segments {
		t.Errorf("%d bytes in %d files, stats say %+v", size, len(files), s)
	}

	// A clock that jumps ahead makes nothing old.
	c.now = c.now.Add(10 * 24 * time.Hour)
	if err := f.Tidy(context.Background()); err != nil {
		t.Fatal(err)
	}
	if now := f.Stats(); now.Removed != s.Removed {
		t.Errorf("%d frames were removed", now.Removed-s.Removed)
	}
	// Frames of then do.
	mustAppend(t, f, opaque("b", 2, c.now, time.Second, 1)...)
	if err := f.Tidy(context.Background()); err != nil {
		t.Fatal(err)
	}
	if now := f.Stats(); now.Frames != 1 || now.Streams != 1 || now.Hosts != 1 || now.Segments != 1 {
		t.Errorf("stats: %+v", now)
	}
	if got, err := f.Hosts(context.Background(), "t"); err != nil || len(got) != 1 || got[0].Name != "b" {
		t.Errorf("hosts: %v, %v", got, err)
	}
}

var _ Log = (*Files)(nil)
var _ = frame.KeyInterval
