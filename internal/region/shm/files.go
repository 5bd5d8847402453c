package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/appmetrics"
	"outsight/internal/region"
)

// answerWait is how long the host has to answer. Where it takes longer, the answer is taken at a later reading.
const answerWait = 100 * time.Millisecond

// MapFiles implements region.FileMapper: it asks the host for those that are new, and maps them. Those that have ended
// meanwhile are region.ErrGone when they are read.
func (c *Client) MapFiles(ctx context.Context, files []region.ApplicationFile) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	if err := c.takeFiles(ctx); err != nil {
		return err
	}
	listed := make(map[uint32]bool, len(files))
	var fresh []uint32
	for i := range files {
		listed[files[i].ID] = true
		if c.files[files[i].ID] == nil {
			fresh = append(fresh, files[i].ID)
		}
	}
	var errs []error
	maps.DeleteFunc(c.files, func(id uint32, m memory) bool {
		if !listed[id] {
			errs = append(errs, m.close())
		}
		return !listed[id]
	})
	for some := range slices.Chunk(fresh, maxRegions) {
		var body []byte
		for _, id := range some {
			body = binary.LittleEndian.AppendUint32(body, id)
		}
		if err := send(c.conn, filesMagic, uint32(len(some)), body, nil); err != nil {
			return err
		}
		c.asked = some
		if err := c.takeFiles(ctx); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// takeFiles takes the answer of what was asked for, and maps the files that come.
func (c *Client) takeFiles(ctx context.Context) error {
	if c.asked == nil {
		return nil
	}
	body, count, files, err := c.receive(ctx, filesMagic, fileReplyBytes)
	for _, f := range files {
		defer f.Close()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("asking for %d files: %w", len(c.asked), context.DeadlineExceeded)
	}
	asked := c.asked
	if c.asked = nil; err != nil {
		return err
	}
	for i := range count {
		e := body[fileReplyBytes*i:]
		id := binary.LittleEndian.Uint32(e)
		if !slices.Contains(asked, id) || c.files[id] != nil {
			return fmt.Errorf("%w: file %d was not asked for", region.ErrDamaged, id)
		}
		m, err := mapFile(files[i], binary.LittleEndian.Uint64(e[8:]), binary.LittleEndian.Uint64(e[16:]))
		if err != nil {
			return fmt.Errorf("file %d: %w", id, err)
		}
		c.files[id] = m
	}
	return nil
}

// mapFile maps a part of a file with metrics, if its size cannot change.
func mapFile(f *os.File, offset, bytes uint64) (*mapped, error) {
	size, err := appmetrics.SealedSize(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	if bytes == 0 || bytes > uint64(size) || offset > uint64(size)-bytes || offset%uint64(os.Getpagesize()) != 0 {
		return nil, fmt.Errorf("%w: %d bytes at %d of %d", region.ErrDamaged, bytes, offset, size)
	}
	m, err := unix.Mmap(int(f.Fd()), int64(offset), int(bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &mapped{m, int(bytes)}, nil
}
