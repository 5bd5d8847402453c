package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"outsight/internal/model"
)

// smallDisk is a file system of 24 MiB, and a function that fills it and gives one that makes
// room again.
func smallDisk(t *testing.T) (dir string, fill func() (free func())) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir = t.TempDir()
	if err := syscall.Mount("outsight", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatalf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir, func() func() {
		filler, err := os.Create(filepath.Join(dir, "filler"))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = filler.Write(make([]byte, 4096))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		filler.Close()
		return func() {
			if err := os.Remove(filler.Name()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// wideBatch has 2,000 series, other ones every three batches.
func wideBatch(i int) []model.Series {
	b := make([]model.Series, 2000)
	for id := range b {
		b[id] = counterAt(float64(i), float64(i)+0.1*float64(id), "c", "id", fmt.Sprint(id), "batch", fmt.Sprint(i/3))
	}
	return b
}

func wantBatches(t *testing.T, s *Store, n int) {
	t.Helper()
	want(t, s, "sum(count_over_time(c[1h]))", float64(n), fmt.Sprintf("%d:%d", n, 2000*n))
}

// A disk that is nearly full refuses batches whole; when there is room again, the same batch goes
// in, and what was acknowledged before and after is there, after a restart too.
func TestLittleSpace(t *testing.T) {
	dir, fill := smallDisk(t)
	options := Options{MinFree: 4 << 20}
	s := open(t, dir, options)
	for i := range 5 {
		appendAll(t, s, wideBatch(i)...)
	}
	free := fill()
	for range 3 {
		if err := s.Append(context.Background(), wideBatch(5)); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("got %v, want ErrNoSpace", err)
		}
	}
	if got := s.Stats(); got.NoSpace != 3*2000 || got.Samples != 5*2000 {
		t.Errorf("got %+v", got)
	}
	free()
	for i := 5; i < 10; i++ {
		appendAll(t, s, wideBatch(i)...)
	}
	wantBatches(t, s, 10)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, options)
	wantBatches(t, s, 10)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Where the disk fills up in the middle of a batch, the batch fails whole, and goes in when
// there is room.
func TestNoSpace(t *testing.T) {
	dir, fill := smallDisk(t)
	s := open(t, dir, Options{MinFree: 1, MaxSeries: 1_000_000})
	appendAll(t, s, wideBatch(0)...)
	next := 1
	free := fill()
	filler, err := os.Stat(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "filler"), filler.Size()-1<<20); err != nil {
		t.Fatal(err)
	}
	for ; next < 1000; next++ {
		err := s.Append(context.Background(), wideBatch(next))
		if err == nil {
			continue
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v, want no space", err)
		}
		break
	}
	if got := s.Stats(); got.Samples != uint64(2000*next) || got.Batches != uint64(next) {
		t.Errorf("got %+v after %d batches", got, next)
	}
	wantBatches(t, s, next)
	free()
	appendAll(t, s, wideBatch(next)...)
	wantBatches(t, s, next+1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A store opens on a disk that is full, from the room it has kept; it answers, takes nothing, and goes on when there is
// room again.
func TestOpenOnFullDisk(t *testing.T) {
	disk, fill := smallDisk(t)
	dir, options := filepath.Join(disk, "data"), Options{MinFree: 4 << 20}
	s := open(t, dir, options)
	const batches = 150 // more than a chunk has
	batch := func(i int) []model.Series {
		b := make([]model.Series, 500)
		for id := range b {
			b[id] = counterAt(float64(i), float64(i), "c", "id", fmt.Sprint(id))
		}
		return b
	}
	for i := range batches {
		appendAll(t, s, batch(i)...)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	// As a kill leaves it.
	was := killed(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(was)); err != nil {
		t.Fatal(err)
	}
	free := fill()
	s = open(t, dir, options)
	want(t, s, "sum(count_over_time(c[1h]))", batches, fmt.Sprintf("%d:%d", batches, 500*batches))
	if err := s.Append(t.Context(), batch(batches)); !errors.Is(err, ErrNoSpace) || !errors.Is(s.CanStore(), ErrNoSpace) {
		t.Errorf("appending says %v, and of the room %v, want %v", err, s.CanStore(), ErrNoSpace)
	}
	free()
	appendAll(t, s, batch(batches)...)
	if err := s.CanStore(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The reserve is there again after the next start, and where it is not, the error says what is needed.
	s = open(t, dir, options)
	path := filepath.Join(dir, reserveName)
	if info, err := os.Stat(path); err != nil || info.Size() != options.MinFree/2 {
		t.Errorf("the reserve: %v, %v", info, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	fill()
	if _, err := Open(dir, options); !errors.Is(err, ErrNoSpace) {
		t.Errorf("opening without a reserve says %v, want %v", err, ErrNoSpace)
	}
}
