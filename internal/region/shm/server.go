package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// The message that a reader gets: magic, version, how many regions, and the id of each. The descriptors of the maps go
// with it in the same order (SCM_RIGHTS).
const (
	magic       = "OSSHARED"
	version     = 1
	headerBytes = 16
	// maxRegions is below the kernel's bound for descriptors in one message (SCM_MAX_FD, 253).
	maxRegions = 250
	// maxReaders bounds the connections at a time. One stays open as long as its reader reads.
	maxReaders = 64
)

// Server hands out descriptors.
type Server struct {
	listener *net.UnixListener
	files    []*os.File
	ids      []uint32
	logger   *slog.Logger
	readers  atomic.Int64
	refused  atomic.Uint64
}

// NewServer hands the files, which are descriptors of maps that can only be read, with the ids of their regions to
// whoever connects. It takes them over, and the listener.
func NewServer(l *net.UnixListener, ids []uint32, files []*os.File, logger *slog.Logger) (*Server, error) {
	if len(ids) != len(files) || len(ids) > maxRegions {
		return nil, fmt.Errorf("BUG: %d regions with %d files, want as many, and at most %d", len(ids), len(files), maxRegions)
	}
	return &Server{listener: l, ids: ids, files: files, logger: logger}, nil
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
			var b [1]byte
			_, _ = c.Read(b[:])
		})
	}
}

func (s *Server) hand(c *net.UnixConn) error {
	b := binary.LittleEndian.AppendUint32([]byte(magic), version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.ids)))
	fds := make([]int, len(s.files))
	for i, f := range s.files {
		b = binary.LittleEndian.AppendUint32(b, s.ids[i])
		fds[i] = int(f.Fd())
	}
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
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
