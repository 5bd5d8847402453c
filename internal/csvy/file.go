package csvy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// File is a file of a recording that is being written. It holds whole records at all times: what
// could not be written to its end is cut off again. It is for the formats.
type File struct {
	path    string
	file    *os.File
	size    int64
	sync    SyncPolicy
	bound   *Bound
	records int
}

// CreateFile makes a file that was not there: DIR/<name>-<id>_<unix seconds>EXT, or without the name as rAdvisor
// does, with "-2" and so on where that exists.
func CreateFile(dir string, h *Head, at time.Time, extension string, o Options) (*File, error) {
	base := fileName(h)
	if extension == radvisorExtension {
		base = fileID(h.Container.Key())
	}
	base = fmt.Sprintf("%s_%d", base, at.Unix())
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name += "-" + strconv.Itoa(n)
		}
		path := filepath.Join(dir, name+extension)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		switch {
		case err == nil && o.Own != nil:
			if err := o.Own(f); err != nil {
				return nil, errors.Join(fmt.Errorf("creating a recording: %w", err), f.Close())
			}
			fallthrough
		case err == nil:
			return &File{path: path, file: f, sync: o.Sync, bound: o.Bound}, nil
		case !errors.Is(err, os.ErrExist) || n == 1000:
			return nil, fmt.Errorf("creating a recording: %w", err)
		}
	}
}

// radvisorExtension is that of rAdvisor's own files, which its tools find by their names.
const radvisorExtension = ".log"

// shortID is as much of a container's ID as Docker shows.
const shortID = 12

// fileName begins the name of a container's file: its name, and the beginning of its ID, because names are used again.
// What has no such ID (the host, a service) is called by its ID alone, which says what it is.
func fileName(h *Head) string {
	id := fileID(h.Container.Key())
	isHex := len(id) > shortID && strings.Trim(id, "0123456789abcdef-") == ""
	if h.Container.Name == "" && h.Container.PodName == "" || !isHex {
		return id
	}
	// No file is hidden, or taken for an option.
	name := strings.TrimLeft(fileID(h.Name()), ".-")
	if name == "" {
		return id
	}
	return name[:min(len(name), 100)] + "-" + id[:shortID]
}

// fileID makes a file name of an ID, which may be a path.
func fileID(id string) string {
	id = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-@", r) {
			return r
		}
		return '-'
	}, strings.Trim(id, "/"))
	if id == "" {
		id = "unknown"
	}
	return id[:min(len(id), 200)]
}

// Size is how many bytes have been written.
func (f *File) Size() int64 { return f.size }

// Path of the file.
func (f *File) Path() string { return f.path }

// Write appends whole records. Where there is no room for all of them, whole reports how much of
// what could be written holds whole records, and the rest is cut off.
func (f *File) Write(p []byte, records int, whole func(written []byte) (length, records int)) error {
	if len(p) == 0 {
		return nil
	}
	if err := f.bound.grow(int64(len(p))); err != nil {
		return f.explain(err)
	}
	n, err := f.file.Write(p)
	if err == nil {
		f.size += int64(n)
		f.records += records
		if f.sync == SyncOnFlush {
			if err := f.file.Sync(); err != nil {
				return f.explain(err)
			}
		}
		return nil
	}
	length, kept := whole(p[:n])
	f.size += int64(length)
	f.records += kept
	f.bound.shrink(int64(len(p) - length))
	if cut := f.file.Truncate(f.size); cut != nil {
		err = errors.Join(err, cut)
	}
	// The next write, if somebody makes room, begins where the file now ends.
	if _, seek := f.file.Seek(f.size, 0); seek != nil {
		err = errors.Join(err, seek)
	}
	return f.explain(err)
}

func (f *File) explain(err error) error {
	what := "writing"
	if errors.Is(err, syscall.ENOSPC) {
		what = "the disk is full: writing"
	}
	return fmt.Errorf("%s %s: %w; the file is whole up to its row %d", what, f.path, err, f.records)
}

// Close ends the file. A file that was rotated away may be removed to make room.
func (f *File) Close(rotated bool) error {
	var err error
	if f.sync != SyncNever {
		err = f.file.Sync()
	}
	if err = errors.Join(err, f.file.Close()); err != nil {
		return fmt.Errorf("closing %s: %w", f.path, err)
	}
	if rotated {
		f.bound.rotated(f.path, f.size)
	}
	return nil
}
