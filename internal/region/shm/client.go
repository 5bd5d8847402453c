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
	// files are those of regions that come and go, asked those that the host was asked for and has not answered yet.
	files map[uint32]memory
	asked []uint32
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
	c := &Client{conn: conn.(*net.UnixConn), regions: map[uint32]memory{}, files: map[uint32]memory{}}
	if err := c.take(ctx, o); err != nil {
		c.Close()
		return nil, fmt.Errorf("opening the regions at %q: %w", path, err)
	}
	return c, nil
}

func (c *Client) take(ctx context.Context, o Options) error {
	body, count, files, err := c.receive(ctx, magic, 4)
	for _, f := range files {
		defer f.Close()
	}
	if err != nil {
		return err
	}
	for i := range count {
		id := binary.LittleEndian.Uint32(body[4*i:])
		if _, twice := c.regions[id]; twice {
			return fmt.Errorf("%w: region %d is there twice", region.ErrDamaged, id)
		}
		if c.regions[id], err = openMap(files[i], o); err != nil {
			return fmt.Errorf("region %d: %w", id, err)
		}
	}
	return nil
}

// receive takes a message of count entries of a size, with a descriptor for each.
func (c *Client) receive(ctx context.Context, magic string, size int) (body []byte, count uint32, files []*os.File, err error) {
	deadline, _ := ctx.Deadline()
	if err := c.conn.SetReadDeadline(deadline); err != nil {
		return nil, 0, nil, err
	}
	b := make([]byte, headerBytes+size*maxRegions)
	rights := make([]byte, unix.CmsgSpace(4*maxRegions))
	n, m, _, _, err := c.conn.ReadMsgUnix(b, rights)
	if err != nil {
		return nil, 0, nil, err
	}
	if files, err = filesOf(rights[:m]); err != nil {
		return nil, 0, files, err
	}
	if count, err = parse(b[:n], magic, size); err == nil && int(count) != len(files) {
		err = fmt.Errorf("%w: %d regions with %d descriptors", region.ErrDamaged, count, len(files))
	}
	if err != nil {
		return nil, 0, files, err
	}
	return b[headerBytes:n], count, files, nil
}

// parse reads a message of entries of a size, without its descriptors.
func parse(b []byte, magic string, size int) (count uint32, err error) {
	if count, err = parseHead(b, magic); err != nil {
		return 0, err
	}
	if uint64(len(b)) != headerBytes+uint64(size)*uint64(count) {
		return 0, fmt.Errorf("%w: %d regions in %d bytes", region.ErrDamaged, count, len(b))
	}
	return count, nil
}

func parseHead(b []byte, magic string) (count uint32, err error) {
	if len(b) < headerBytes || string(b[:len(magic)]) != magic {
		return 0, fmt.Errorf("%w: the message begins with %q", region.ErrNotRegion, b[:min(len(b), len(magic))])
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return 0, fmt.Errorf("%w: version %d, want %d", region.ErrVersion, v, version)
	}
	return binary.LittleEndian.Uint32(b[12:]), nil
}

func filesOf(rights []byte) (files []*os.File, err error) {
	if len(rights) == 0 {
		return nil, nil
	}
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
			m = c.files[r.Region]
		}
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
	for _, all := range []map[uint32]memory{c.regions, c.files} {
		for _, m := range all {
			if m != nil {
				errs = append(errs, m.close())
			}
		}
	}
	return errors.Join(errs...)
}
