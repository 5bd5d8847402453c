package store

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// openToOthers are the files below dir that others than the owner may use.
func openToOthers(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			paths = append(paths, path+" "+info.Mode().String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// Nobody but the owner can read a data directory, also one that an older version has made.
func TestDataDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, dir, Options{})
	fill(t, s, 3)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the directory has mode %v, %v", info.Mode(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		mode := fs.FileMode(0o644)
		if e.IsDir() {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	if err := makePrivate(dir, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	if paths := openToOthers(t, dir); len(paths) != 0 {
		t.Errorf("others can read %q", paths)
	}
	if strings.Count(log.String(), "for its owner alone") != 1 {
		t.Errorf("log %q, want one line", log.String())
	}
	// It is said once.
	log.Reset()
	if err := makePrivate(dir, slog.New(slog.NewTextHandler(&log, nil))); err != nil || log.Len() > 0 {
		t.Errorf("again: %v, %q", err, log.String())
	}
	// What is not ours stays, and so does a directory that is used for it, too.
	other := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{other, dir} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := makePrivate(dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if paths := openToOthers(t, dir); len(paths) != 2 {
		t.Errorf("others can read %q, want the directory and the foreign file", paths)
	}
}
