package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
	"outsight/internal/region"
)

// The message that a reader gets: magic, version, how many regions, and the id of each. The descriptors of the maps go
// with it in the same order (SCM_RIGHTS).
const (
	magic       = "OSSHARED"
	version     = 1
	headerBytes = 16
	// maxRegions is below the kernel's bound for descriptors in one message (SCM_MAX_FD, 253).
	maxRegions = 250
	// filesMagic begins a request for files with applications' own metrics, and its reply: version, how many, and the id of
	// each; in the reply also its place in the descriptor that comes with it, and its length.
	filesMagic     = "OSSFILES"
	fileReplyBytes = 24
	// maxReaders bounds the connections at a time. One stays open as long as its reader reads.
	maxReaders = 64
)

// Server hands out descriptors.
type Server struct {
	listener *net.UnixListener
	files    []*os.File
	ids      []uint32
	logger   *slog.Logger
	parts    Parts
	readers  atomic.Int64
	refused  atomic.Uint64
}

// Parts finds files that come and go: a descriptor by which the region with an id can only be read, whose place in it is
// bytes from offset on. It is the caller's.
type Parts func(id uint32) (file *os.File, offset, bytes uint64, ok bool)

// NewServer hands the files, which are descriptors of maps that can only be read, with the ids of their regions to
// whoever connects, and then those of parts that are asked for; parts may be nil. It takes the files over, and the
// listener.
func NewServer(l *net.UnixListener, ids []uint32, files []*os.File, parts Parts, logger *slog.Logger) (*Server, error) {
	if len(ids) != len(files) || len(ids) > maxRegions {
		return nil, fmt.Errorf("BUG: %d regions with %d files, want as many, and at most %d", len(ids), len(files), maxRegions)
	}
	return &Server{listener: l, ids: ids, files: files, parts: parts, logger: logger}, nil
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	defer context.AfterFunc(ctx, func() { s.listener.Close() })()
	for {
		c, err := s.listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting a reader of regions: %w", err)
		}
		if s.readers.Add(1) > maxReaders {
			s.readers.Add(-1)
			s.refused.Add(1)
			c.Close()
			continue
		}
		running.Go(func() {
			defer s.readers.Add(-1)
			defer c.Close()
			// Not Close: where it were called twice, this one would return before the other one is done.
			defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
			if err := s.hand(c); err != nil {
				s.logger.Debug("a reader of regions did not take them", "error", err)
				return
			}
			// The end of the connection tells the reader that the regions are gone, and this end that the reader is.
			for s.answer(c) == nil {
			}
		})
	}
}

func (s *Server) hand(c *net.UnixConn) error {
	var b []byte
	fds := make([]int, len(s.files))
	for i, f := range s.files {
		b = binary.LittleEndian.AppendUint32(b, s.ids[i])
		fds[i] = int(f.Fd())
	}
	return send(c, magic, uint32(len(s.ids)), b, fds)
}

// answer hands the parts out that a reader asks for. Those that are gone are missing.
func (s *Server) answer(c *net.UnixConn) error {
	var head [headerBytes]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	count, err := parseHead(head[:], filesMagic)
	if err != nil || count > maxRegions || s.parts == nil {
		return fmt.Errorf("%w: a request for %d files", errors.Join(region.ErrDamaged, err), count)
	}
	asked := make([]byte, 4*count)
	if _, err := io.ReadFull(c, asked); err != nil {
		return err
	}
	var b []byte
	var fds []int
	for ; len(asked) > 0; asked = asked[4:] {
		id := binary.LittleEndian.Uint32(asked)
		if f, offset, bytes, ok := s.parts(id); ok {
			defer f.Close()
			b = binary.LittleEndian.AppendUint32(b, id)
			b = binary.LittleEndian.AppendUint32(b, 0)
			b = binary.LittleEndian.AppendUint64(b, offset)
			b = binary.LittleEndian.AppendUint64(b, bytes)
			fds = append(fds, int(f.Fd()))
		}
	}
	return send(c, filesMagic, uint32(len(fds)), b, fds)
}

// send sends one message.
func send(c *net.UnixConn, magic string, count uint32, body []byte, fds []int) error {
	b := binary.LittleEndian.AppendUint32([]byte(magic), version)
	b = append(binary.LittleEndian.AppendUint32(b, count), body...)
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := c.WriteMsgUnix(b, rights, nil)
	return err
}

// Features are none of its own.
func (s *Server) Features() []model.Feature { return nil }

// Drops tells how many readers were refused for the bound.
func (s *Server) Drops() []model.Drop {
	return []model.Drop{{Name: "region/readers", Count: s.refused.Load(), Capacity: maxReaders,
		Used: uint64(s.readers.Load())}}
}

// Close ends it. Readers keep what they have.
func (s *Server) Close() error {
	errs := []error{s.listener.Close()}
	if errors.Is(errs[0], net.ErrClosed) {
		errs = nil
	}
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
