package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The TSDB writes chunks to the disk while it opens, and now and then later, and panics if that fails. So a file in the
// data directory reserves space for them, and is removed when the disk is full.

// reserveName is the file's, in the data directory.
const reserveName = "reserve"

// reserveBytes is its size: of MinFree, below which nothing is appended, half.
func (o Options) reserveBytes() int64 { return o.MinFree / 2 }

// reserveThreshold is the free space below which the reserve is removed, in bytes.
func (o Options) reserveThreshold() int64 { return o.MinFree / 4 }

func freeBytes(dir string) (int64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("reading free space of %q: %w", dir, err)
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// releaseReserve removes the reserve if the disk is full. It fails with ErrNoSpace if that is not enough to open the
// store.
func releaseReserve(dir string, o Options) error {
	free, err := freeBytes(dir)
	if err != nil {
		return err
	}
	if free >= o.reserveThreshold() {
		return nil
	}
	switch err := os.Remove(filepath.Join(dir, reserveName)); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("removing the reserve of the data directory: %w", err)
	default:
		o.Logger.Warn("the disk is full: the store opens with the space reserved for that, answers queries, and takes no samples until there is more",
			"data", dir, "free_bytes", free, "wanted_bytes", o.MinFree)
		if free, err = freeBytes(dir); err != nil {
			return err
		}
	}
	if free < o.reserveThreshold() {
		return fmt.Errorf("%w: data directory %q has %d bytes left, and %d are needed to open it; "+
			"remove other files of that disk, or the directory damaged in it", ErrNoSpace, dir, free, o.reserveThreshold())
	}
	return nil
}

// maintainReserve creates the reserve if there is space, and removes it if the disk is full. It returns false if the
// filesystem cannot reserve space.
func maintainReserve(dir string, o Options) (possible bool) {
	size, path := o.reserveBytes(), filepath.Join(dir, reserveName)
	free, err := freeBytes(dir)
	if err != nil || size <= 0 {
		return size > 0
	}
	info, err := os.Stat(path)
	switch made := err == nil && info.Size() == size; {
	case made && free < o.reserveThreshold():
		if err := os.Remove(path); err == nil {
			o.Logger.Warn("the disk is full: the store takes no samples until there is space", "data", dir, "free_bytes",
				free, "wanted_bytes", o.MinFree)
		}
	case !made && free > o.MinFree+2*size:
		if err := reserve(path, size); err != nil {
			o.Logger.Warn("no space can be reserved for a full disk", "data", dir, "err", err)
			os.Remove(path)
			return !errors.Is(err, errors.ErrUnsupported)
		}
	}
	return true
}

// reservePause is how often the reserve is looked at.
const reservePause = 5 * time.Second

// keepReserve maintains the reserve until it is to stop.
func (s *Store) keepReserve(stop <-chan struct{}) {
	ticker := time.NewTicker(reservePause)
	defer ticker.Stop()
	for possible := true; possible; {
		select {
		case <-stop:
			return
		case <-ticker.C:
			possible = maintainReserve(s.db.Dir(), s.options)
		}
	}
}

// reserve creates a file with allocated space. A filesystem that would have to write it has none.
func reserve(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = syscall.Fallocate(int(f.Fd()), 0, 0, size)
	return errors.Join(err, f.Close())
}

// CanStore returns why no samples can be stored now, or nil: ErrNoSpace while the disk is full, ErrClock while the
// clock is behind.
func (s *Store) CanStore() error {
	if err := s.checkSpace(); err != nil {
		return err
	}
	return s.checkClock()
}
