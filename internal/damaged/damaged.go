// Package damaged keeps copies of files that cannot be read whole, before anything of them is cut off or deleted.
package damaged

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Dir is a directory of damaged files. It is created with its first file.
type Dir struct {
	Path string
	// MaxBytes bounds the files in it: the oldest are removed first. The newest stays, however large it is.
	MaxBytes int64
}

// timeFormat is the prefix of file names, so that they sort by age.
const timeFormat = "20060102T150405.000000000Z"

// Copy adds a hard link to the file, or a copy where the filesystem has no hard links, and returns its path. Whoever
// changes the file afterwards must write a new one and rename it: see Replace.
func (d Dir) Copy(path string) (kept string, err error) {
	return d.keep(path, func(to string) error {
		if err := os.Link(path, to); err == nil {
			return nil
		}
		return copyFile(path, to)
	})
}

// Move moves a file or a directory into d, and returns its new path.
func (d Dir) Move(path string) (kept string, err error) {
	return d.keep(path, func(to string) error { return os.Rename(path, to) })
}

func (d Dir) keep(path string, take func(to string) error) (string, error) {
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return "", fmt.Errorf("making the directory of damaged files: %w", err)
	}
	to := filepath.Join(d.Path, time.Now().UTC().Format(timeFormat)+"-"+filepath.Base(filepath.Dir(path))+"-"+filepath.Base(path))
	if err := take(to); err != nil {
		return "", fmt.Errorf("keeping the damaged %q: %w", path, err)
	}
	return to, d.prune()
}

// prune removes the oldest files until the others are within MaxBytes.
func (d Dir) prune() error {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return fmt.Errorf("looking for damaged files: %w", err)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(b.Name(), a.Name()) })
	total := int64(0)
	for i, e := range entries {
		path := filepath.Join(d.Path, e.Name())
		total += size(path)
		if i > 0 && total > d.MaxBytes {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

// size is the sum of all files below path, in bytes. A file that is removed meanwhile counts 0.
func size(path string) (total int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return nil
	})
	return total
}

// List returns the names of the files and directories, the oldest first.
func (d Dir) List() (names []string) {
	entries, _ := os.ReadDir(d.Path)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		os.Remove(to)
	}
	return err
}

// Replace writes content to a temporary file, syncs it, and renames it to path: a reader of path finds the old content
// or the new one.
func Replace(path string, content []byte) (err error) {
	temporary := path + ".repaired"
	defer func() {
		if err != nil {
			os.Remove(temporary)
		}
	}()
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("writing the repaired %q: %w", path, err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing the repaired %q: %w", path, err)
	}
	if err = os.Rename(temporary, path); err != nil {
		return fmt.Errorf("replacing the damaged file: %w", err)
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the entries of a directory durable.
func SyncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("syncing: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("syncing %q: %w", path, err)
	}
	return nil
}

// IsLeftover reports whether name is a temporary file of a Replace that was interrupted.
func IsLeftover(name string) bool { return strings.HasSuffix(name, ".repaired") }
