// Package credit bounds how many bytes of reads are on the way to one reader from all hosts together, so that their
// replies do not overflow the queues before it: Credit-FC of paper 004 (section 4.3). docs/incast.md simulates it.
package credit

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"outsight/internal/region"
)

// Fragment is the least share of a flow in bytes: a page (paper 004, section 4.3).
const Fragment = 4 << 10

// Window is a total credit T that the flows to n hosts share: each may have T/n on the way, a Fragment at least. So a
// host that does not answer keeps its own share and nobody else's, as long as n fragments are not more than T. Where they
// are, the sum is still never more than T, other than in the paper: flows wait in the order in which they came. It may be
// used by several goroutines.
type Window struct {
	total int

	mu sync.Mutex // guards what follows
	// free is what nobody has; flows are those that were not closed.
	free, flows int
	waiting     []*waiter
}

// waiter waits for bytes; granted is closed when it has them.
type waiter struct {
	bytes   int
	granted chan struct{}
}

// New makes a Window of total bytes. The error says that it is less than a Fragment.
func New(total int) (*Window, error) {
	if total < Fragment {
		return nil, fmt.Errorf("a credit of %d bytes, want %d at least", total, Fragment)
	}
	return &Window{total: total, free: total}, nil
}

// share is what a flow may take at a time, in bytes: a multiple of 8, as reads are.
func (w *Window) share() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.total/max(w.flows, 1)&^7, Fragment)
}

// take takes bytes of credit, no more than the total, and waits until there are so many. The error is that of ctx.
func (w *Window) take(ctx context.Context, bytes int) error {
	w.mu.Lock()
	if len(w.waiting) == 0 && bytes <= w.free {
		w.free -= bytes
		w.mu.Unlock()
		return nil
	}
	one := &waiter{bytes, make(chan struct{})}
	w.waiting = append(w.waiting, one)
	w.mu.Unlock()
	select {
	case <-one.granted:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := slices.Index(w.waiting, one); at >= 0 {
		w.waiting = slices.Delete(w.waiting, at, at+1)
	} else { // granted meanwhile
		w.free += bytes
	}
	w.grant()
	return ctx.Err()
}

// give gives bytes back.
func (w *Window) give(bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free += bytes
	w.grant()
}

// grant gives those who wait what is free, in their order. w.mu must be held.
func (w *Window) grant() {
	for len(w.waiting) > 0 && w.waiting[0].bytes <= w.free {
		w.free -= w.waiting[0].bytes
		close(w.waiting[0].granted)
		w.waiting = w.waiting[1:]
	}
}

// Reader reads from one host as another one does, within a Window. It is for one goroutine at a time.
type Reader struct {
	reader ReadCloser
	window *Window
	closed bool
}

// ReadCloser is a region.Reader that ends.
type ReadCloser interface {
	region.Reader
	io.Closer
}

// Within makes a Reader of r: one flow of the window until it is closed.
func (w *Window) Within(r ReadCloser) *Reader {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flows++
	return &Reader{reader: r, window: w}
}

// Close ends the flow, and closes what it was made of.
func (r *Reader) Close() error {
	if !r.closed {
		r.closed = true
		r.window.mu.Lock()
		r.window.flows--
		r.window.mu.Unlock()
	}
	return r.reader.Close()
}

// Unwrap implements region.Wrapper.
func (r *Reader) Unwrap() region.Reader { return r.reader }

// Read implements region.Reader.
func (r *Reader) Read(ctx context.Context, id uint32, offset uint64, into []byte) error {
	return r.ReadAll(ctx, []region.Read{{Region: id, Offset: offset, Into: into}})
}

// ReadAll implements region.Reader: as much at a time as the flow's share is, which changes with the others. Credit is
// taken when reads are sent, and given back when their bytes are there, or the error is.
func (r *Reader) ReadAll(ctx context.Context, reads []region.Read) error {
	for len(reads) > 0 {
		var part []region.Read
		part, reads = region.Split(reads, len(reads), r.window.share())
		if err := r.readPart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) readPart(ctx context.Context, part []region.Read) error {
	bytes := 0
	for _, one := range part {
		bytes += len(one.Into)
	}
	if err := r.window.take(ctx, bytes); err != nil {
		return fmt.Errorf("waiting for credit of %d bytes: %w", bytes, err)
	}
	defer r.window.give(bytes)
	return r.reader.ReadAll(ctx, part)
}
