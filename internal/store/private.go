package store

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/oklog/ulid/v2"
)

// ownNames are what a data directory has, besides blocks. Nothing else in it is touched.
var ownNames = []string{"wal", "wbl", "chunks_head", "moments", "frames", "queue", "damaged", "anomalies", "lock", reserveName}

// makePrivate makes a data directory for its owner alone, and takes from all others what they could read in one that is
// there.
func makePrivate(dir string, logger *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making data directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading data directory: %w", err)
	}
	closed, foreign := 0, false
	for _, e := range entries {
		if _, err := ulid.ParseStrict(e.Name()); err != nil && !slices.Contains(ownNames, e.Name()) {
			foreign = true
			continue
		}
		err := filepath.WalkDir(filepath.Join(dir, e.Name()), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.Type() != 0 && !e.IsDir() {
				return err
			}
			n, err := closeToOthers(path, e)
			closed += n
			return err
		})
		if err != nil {
			return fmt.Errorf("closing the data directory to others: %w", err)
		}
	}
	// A directory that is also used for other things keeps its permissions.
	if info, err := os.Lstat(dir); err == nil && !foreign && info.IsDir() && ownedByUs(info) {
		n, err := closeToOthers(dir, fs.FileInfoToDirEntry(info))
		if err != nil {
			return fmt.Errorf("closing the data directory to others: %w", err)
		}
		closed += n
	}
	if closed > 0 {
		logger.Warn("others could read the data directory: it is now for its owner alone", "data", dir, "files", closed)
	}
	return nil
}

func ownedByUs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid() && info.Mode()&os.ModeSticky == 0
}

// closeToOthers takes the rights of group and others from a file or a directory; changed is 1 where there were any.
func closeToOthers(path string, e fs.DirEntry) (changed int, err error) {
	info, err := e.Info()
	if err != nil {
		return 0, err
	}
	const others = 0o077
	if info.Mode().Perm()&others == 0 {
		return 0, nil
	}
	return 1, os.Chmod(path, info.Mode().Perm()&^others)
}
