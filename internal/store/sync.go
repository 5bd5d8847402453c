package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// syncedSegments is how many segments of a log are written to the disk: the one that is appended to, and the
// one before it, which may just have been filled.
const syncedSegments = 2

// Sync returns when all that Append has taken is on the disk, and not only in the system's cache: it is there
// after a loss of power, too. Without Sync that takes the system some ten seconds.
func (s *Store) Sync() error {
	for _, log := range []string{"wal", "wbl"} {
		dir := filepath.Join(s.db.Dir(), log)
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("looking for segments to sync: %w", err)
		}
		var segments []string
		for _, e := range entries {
			if e.Type().IsRegular() {
				segments = append(segments, filepath.Join(dir, e.Name()))
			}
		}
		slices.Sort(segments)
		segments = segments[max(0, len(segments)-syncedSegments):]
		for _, path := range append(segments, dir) {
			if err := syncFile(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // truncated away meanwhile: what it held is in a block
	}
	if err != nil {
		return fmt.Errorf("syncing: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("syncing %q: %w", path, err)
	}
	return nil
}
