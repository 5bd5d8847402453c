package csvy

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// SyncPolicy says when a file is forced to the disk. What was written survives the end of the
// process, even by SIGKILL, in any case; the policy is about the end of the machine.
type SyncPolicy int

// The policies; the zero value is SyncOnClose.
const (
	SyncOnClose SyncPolicy = iota
	SyncNever
	SyncOnFlush
)

// Options of a writer. The zero value works.
type Options struct {
	// FlushEvery is how much of a recording may be lost when the process is killed, in the time of
	// the samples: 1 s if 0. Parquet writes row groups: 10 s if 0. Less than 0 is every row.
	FlushEvery time.Duration
	// RotateBytes and RotateEvery end a file and begin the next; 0 is never.
	RotateBytes int64
	RotateEvery time.Duration
	Sync        SyncPolicy
	// Bound is the disk that this writer may fill together with others; nil is all there is.
	Bound *Bound
	// Own is called with each file that is made, which is for its owner alone; nil leaves it to whoever runs this.
	Own func(*os.File) error
}

// ErrBound is the error of a recording that has filled the disk space that it was allowed.
var ErrBound = errors.New("the recording has filled the disk space that it may use")

// Bound limits the disk space of all writers that share it. When it is reached the oldest file
// that was rotated away is removed; when there is none, writing fails with ErrBound.
type Bound struct {
	max int64

	mu    sync.Mutex // guards all below
	total int64
	done  []doneFile
	// removed counts files.
	removed int
}

type doneFile struct {
	path string
	size int64
}

// NewBound allows max bytes.
func NewBound(max int64) *Bound { return &Bound{max: max} }

// Removed is how many files were removed to make room.
func (b *Bound) Removed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.removed
}

// grow makes room for n more bytes.
func (b *Bound) grow(n int64) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.total+n > b.max && len(b.done) > 0 {
		oldest := b.done[0]
		if err := os.Remove(oldest.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("making room: %w", err)
		}
		b.done = b.done[1:]
		b.total -= oldest.size
		b.removed++
	}
	if b.total+n > b.max {
		return fmt.Errorf("%w (%d bytes)", ErrBound, b.max)
	}
	b.total += n
	return nil
}

// shrink gives back what was not written after all.
func (b *Bound) shrink(n int64) {
	if b != nil {
		b.mu.Lock()
		b.total -= n
		b.mu.Unlock()
	}
}

// rotated hands over a file that may be removed from now on.
func (b *Bound) rotated(path string, size int64) {
	if b != nil {
		b.mu.Lock()
		b.done = append(b.done, doneFile{path, size})
		b.mu.Unlock()
	}
}
