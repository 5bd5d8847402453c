package rdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/region"
	"outsight/internal/region/tcp"
)

const (
	// bufferBytes is how much is read at once. It is locked memory, of which users may have 8 MiB on most systems.
	bufferBytes = 4 << 20
	// defaultWait is how long a read may take whose context has no deadline.
	defaultWait = 10 * time.Second
	// tries bounds how often words are read that change all the time.
	tries = 16
)

// Client reads regions of a host by RDMA READ. It is a region.Reader. After an error that is none of a single read
// (region.ErrGone of a region, region.ErrBounds) it is of no more use.
type Client struct {
	helper *helper
	// tcp made the connection, and tells that the host has ended it.
	tcp     *tcp.Client
	queue   uint32
	regions map[uint32]entry
	// files are those of regions that come and go.
	files  map[uint32]entry
	buffer []byte
}

// Dial connects to a host whose agent listens at address (HOST:PORT) and serves RDMA.
func Dial(ctx context.Context, address string, key region.Key, o Options) (*Client, error) {
	c := &Client{}
	if err := c.dial(ctx, address, key, o); err != nil {
		return nil, fmt.Errorf("connecting to the regions of %s by RDMA: %w", address, errors.Join(err, c.Close()))
	}
	return c, nil
}

func (c *Client) dial(ctx context.Context, address string, key region.Key, o Options) (err error) {
	if c.helper, err = startHelper(o.Helper, "read", o.Device); err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("outsight-rdma", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "buffer")
	defer file.Close()
	if err := file.Truncate(bufferBytes); err != nil {
		return err
	}
	if c.buffer, err = unix.Mmap(fd, 0, bufferBytes, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return err
	}
	if _, err := c.helper.register(file, 0, bufferBytes); err != nil {
		return err
	}
	own, err := c.helper.openQueue()
	if err != nil {
		return err
	}
	c.queue = own.queue()
	if c.tcp, err = tcp.Dial(ctx, address, key); err != nil {
		return err
	}
	told, err := c.tcp.Connect(ctx, own[:])
	if err != nil {
		return err
	}
	peer, regions, err := parseAnswer(told)
	if err != nil {
		return err
	}
	c.regions = regions
	return c.helper.connect(c.queue, peer)
}

// Read implements region.Reader.
func (c *Client) Read(ctx context.Context, id uint32, offset uint64, into []byte) error {
	return c.ReadAll(ctx, []region.Read{{Region: id, Offset: offset, Into: into}})
}

// MapFiles implements region.FileMapper: where the host's memory has them, their list says. The card refuses what it does not
// know any more, which ends the connection.
func (c *Client) MapFiles(_ context.Context, files []region.ApplicationFile) error {
	c.files = make(map[uint32]entry, len(files))
	for i := range files {
		if f := &files[i]; f.Address != 0 {
			c.files[f.ID] = entry{f.ID, f.Key, f.Address, uint64(f.Bytes)}
		}
	}
	return nil
}

// ReadAll implements region.Reader.
//
// No standard says in what units, and in which order, a card reads the host's memory for one RDMA READ. So everything is
// read three times, each after the one before is there. A word is certain where the first copy of it is not greater than
// the second, and the third not less. Records with a head and a tail (Read.Ordered) are certain where the first and the
// third copy are equal: what lies between was read while nothing of it changed. What is not certain is read again.
func (c *Client) ReadAll(ctx context.Context, reads []region.Read) error {
	if err := c.alive(); err != nil {
		return err
	}
	for stage := range region.Stages(reads) {
		for len(stage) > 0 {
			var part []region.Read
			part, stage = region.Split(stage, maxPieces, bufferBytes)
			if err := c.readPart(ctx, part, tries); err != nil {
				if gone := c.alive(); gone != nil {
					return errors.Join(gone, err)
				}
				return asRegions(err)
			}
		}
	}
	return nil
}

// alive is an error where the host has ended the connection.
func (c *Client) alive() error {
	if err := c.tcp.Alive(); err != nil {
		return fmt.Errorf("%w: the host's agent, or its %s, has ended", err, Program)
	}
	return nil
}

// readPart reads what one message has room for. What is not certain by then is read again, so often at most.
func (c *Client) readPart(ctx context.Context, part []region.Read, attempts int) error {
	if attempts == 0 {
		return fmt.Errorf("region %d at %d: %w", part[0].Region, part[0].Offset, region.ErrBusy)
	}
	var copies [3][]byte
	for i := range copies {
		b, err := c.fetch(ctx, part)
		if err != nil {
			return err
		}
		copies[i] = bytes.Clone(b)
	}
	for rest := range slices.Chunk(settle(part, copies), maxPieces) {
		if err := c.readPart(ctx, rest, attempts-1); err != nil {
			return err
		}
	}
	return nil
}

// fetch reads all parts once, one after the other into the buffer.
func (c *Client) fetch(ctx context.Context, part []region.Read) ([]byte, error) {
	pieces := make([]piece, len(part))
	sum := 0
	for i, r := range part {
		e, known := c.regions[r.Region]
		if !known {
			e, known = c.files[r.Region]
		}
		if !known {
			return nil, fmt.Errorf("region %d: %w", r.Region, region.ErrGone)
		}
		p, err := e.piece(r.Offset, len(r.Into))
		if err != nil {
			return nil, fmt.Errorf("region %d: %w", r.Region, err)
		}
		pieces[i] = p
		sum += len(r.Into)
	}
	return c.fetchPieces(ctx, pieces, sum)
}

func (c *Client) fetchPieces(ctx context.Context, pieces []piece, sum int) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	wait := defaultWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = time.Until(deadline)
	}
	ms := uint32(max(1, wait.Milliseconds()))
	if _, err := c.helper.ask(appendRead(nil, c.queue, ms, pieces), nil, wait+helperWait); err != nil {
		return nil, err
	}
	return c.buffer[:sum], nil
}

// settle puts what is certain into its place, and returns the rest: of ordered reads all, of others single words.
func settle(part []region.Read, copies [3][]byte) (rest []region.Read) {
	a, b, c := copies[0], copies[1], copies[2]
	word := binary.LittleEndian.Uint64
	for _, r := range part {
		n := len(r.Into)
		if r.Ordered {
			if bytes.Equal(a[:n], c[:n]) {
				copy(r.Into, b)
			} else {
				rest = append(rest, r)
			}
		} else {
			for i := 0; i < n; i += 8 {
				x, y, z := word(a[i:]), word(b[i:]), word(c[i:])
				if x <= y && y <= z || r.Level && x >= y && y >= z {
					copy(r.Into[i:i+8], b[i:])
				} else {
					rest = append(rest, region.Read{Region: r.Region, Offset: r.Offset + uint64(i), Into: r.Into[i : i+8],
						Level: r.Level})
				}
			}
		}
		a, b, c = a[n:], b[n:], c[n:]
	}
	return rest
}

// Close ends the connection.
func (c *Client) Close() error {
	var errs []error
	if c.tcp != nil {
		errs = append(errs, c.tcp.Close())
	}
	if c.helper != nil {
		errs = append(errs, c.helper.close())
	}
	if c.buffer != nil {
		errs = append(errs, unix.Munmap(c.buffer))
	}
	return errors.Join(errs...)
}
