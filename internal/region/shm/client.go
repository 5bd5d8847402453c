package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"outsight/internal/region"
)

// Client reads regions that a Server has handed out. It is a region.Reader.
type Client struct {
	conn    *net.UnixConn
	regions map[uint32]memory
}

// memory is a region: mapped, or read by system calls.
type memory interface {
	read(offset uint64, into []byte) error
	close() error
}

// Options of Open. The zero value works.
type Options struct {
	// WithoutMapping reads by system calls also where the regions could be mapped.
	WithoutMapping bool
}

// Open takes the regions at a socket. With CAP_SYS_ADMIN they are mapped; else each record takes a system call, which
// the kernel allows to anybody who has the descriptor (Linux 5.19 or later).
func Open(ctx context.Context, path string, o Options) (*Client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the regions at %q: %w", path, err)
	}
	c := &Client{conn: conn.(*net.UnixConn), regions: map[uint32]memory{}}
	if err := c.take(ctx, o); err != nil {
		c.Close()
		return nil, fmt.Errorf("opening the regions at %q: %w", path, err)
	}
	return c, nil
}

func (c *Client) take(ctx context.Context, o Options) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.conn.SetReadDeadline(deadline); err != nil {
			return err
		}
	}
	b := make([]byte, headerBytes+4*maxRegions)
	rights := make([]byte, unix.CmsgSpace(4*maxRegions))
	n, m, _, _, err := c.conn.ReadMsgUnix(b, rights)
	if err != nil {
		return err
	}
	files, err := filesOf(rights[:m])
	for _, f := range files {
		defer f.Close()
	}
	if err != nil {
		return err
	}
	ids, err := parse(b[:n])
	if err != nil {
		return err
	}
	if len(ids) != len(files) {
		return fmt.Errorf("%w: %d regions with %d descriptors", region.ErrDamaged, len(ids), len(files))
	}
	for i, f := range files {
		if _, twice := c.regions[ids[i]]; twice {
			return fmt.Errorf("%w: region %d is there twice", region.ErrDamaged, ids[i])
		}
		if c.regions[ids[i]], err = openMap(f, o); err != nil {
			return fmt.Errorf("region %d: %w", ids[i], err)
		}
	}
	return nil
}

// parse reads the message without its descriptors.
func parse(b []byte) ([]uint32, error) {
	if len(b) < headerBytes || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: the answer begins with %q", region.ErrNotRegion, b[:min(len(b), len(magic))])
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return nil, fmt.Errorf("%w: version %d, want %d", region.ErrVersion, v, version)
	}
	count := binary.LittleEndian.Uint32(b[12:])
	if uint64(len(b)) != headerBytes+4*uint64(count) {
		return nil, fmt.Errorf("%w: %d regions in %d bytes", region.ErrDamaged, count, len(b))
	}
	ids := make([]uint32, count)
	for i := range ids {
		ids[i] = binary.LittleEndian.Uint32(b[headerBytes+4*i:])
	}
	return ids, nil
}

func filesOf(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", region.ErrDamaged, err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, fmt.Errorf("%w: %w", region.ErrDamaged, err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "region"))
		}
	}
	return files, nil
}

// Read implements region.Reader.
func (c *Client) Read(ctx context.Context, id uint32, offset uint64, into []byte) error {
	return c.ReadAll(ctx, []region.Read{{Region: id, Offset: offset, Into: into}})
}

// ReadAll implements region.Reader. Regions outlive the process that counts; that it is gone is ErrGone.
func (c *Client) ReadAll(ctx context.Context, reads []region.Read) error {
	if err := region.Alive(c.conn); err != nil {
		return fmt.Errorf("%w: the agent has ended", err)
	}
	for _, r := range reads {
		if err := ctx.Err(); err != nil {
			return err
		}
		m := c.regions[r.Region]
		if m == nil {
			return fmt.Errorf("region %d: %w", r.Region, region.ErrGone)
		}
		if err := m.read(r.Offset, r.Into); err != nil {
			return fmt.Errorf("region %d: %w", r.Region, err)
		}
	}
	return nil
}

// Close unmaps the regions.
func (c *Client) Close() error {
	errs := []error{c.conn.Close()}
	for _, m := range c.regions {
		if m != nil {
			errs = append(errs, m.close())
		}
	}
	return errors.Join(errs...)
}
