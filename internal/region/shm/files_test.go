package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/region"
)

// sealedFile is a file of pages whose first words are their numbers, opened to be read.
func sealedFile(t *testing.T, pages, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("outsight-metrics", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	data := make([]byte, pages*os.Getpagesize())
	for i := range pages {
		data[i*os.Getpagesize()] = byte(i)
	}
	if _, err := unix.Pwrite(fd, data, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const allSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// files are those that a host of this test has.
type files struct {
	mu      sync.Mutex
	make    map[uint32]func() *os.File
	offset  uint64
	bytes   uint64
	stopped chan struct{}
}

func (f *files) part(id uint32) (*os.File, uint64, uint64, bool) {
	if f.stopped != nil {
		<-f.stopped
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.make[id] == nil {
		return nil, 0, 0, false
	}
	return f.make[id](), f.offset, f.bytes, true
}

func listed(ids ...uint32) (all []region.ApplicationFile) {
	for _, id := range ids {
		all = append(all, region.ApplicationFile{ID: id})
	}
	return all
}

// TestFiles: files that are listed are read where they are, those that are not listed any more are forgotten, and one that
// has ended is gone.
func TestFiles(t *testing.T) {
	const one, two, none = region.FirstFileID, region.FirstFileID + 1, region.FirstFileID + 2
	page := uint64(os.Getpagesize())
	f := &files{offset: page, bytes: 2 * page, make: map[uint32]func() *os.File{}}
	for _, id := range []uint32{one, two} {
		f.make[id] = func() *os.File { return sealedFile(t, 4, allSeals) }
	}
	path, _, _ := offerWith(t, f.part)
	c, err := Open(t.Context(), path, Options{WithoutMapping: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.MapFiles(t.Context(), listed(one, none, two)); err != nil {
		t.Fatal(err)
	}
	into := make([]byte, 8)
	for _, id := range []uint32{one, two} {
		if err := c.Read(t.Context(), id, page, into); err != nil || into[0] != 2 {
			t.Errorf("file %d: %x, %v", id, into, err)
		}
		if err := c.Read(t.Context(), id, 2*page, into); !errors.Is(err, region.ErrBounds) {
			t.Errorf("file %d past its end: %v", id, err)
		}
	}
	if err := c.Read(t.Context(), none, 0, into); !errors.Is(err, region.ErrGone) {
		t.Errorf("a file that has ended: %v", err)
	}
	if err := c.MapFiles(t.Context(), listed(two)); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(t.Context(), one, 0, into); !errors.Is(err, region.ErrGone) {
		t.Errorf("a file that is not listed any more: %v", err)
	}
	if err := c.Read(t.Context(), 5, 0, into); err != nil {
		t.Errorf("a region that is always there: %v", err)
	}
}

// TestManyFiles: more than one message has room for.
func TestManyFiles(t *testing.T) {
	f := &files{bytes: uint64(os.Getpagesize()), make: map[uint32]func() *os.File{}}
	var all []region.ApplicationFile
	for i := range uint32(2*maxRegions + 10) {
		f.make[region.FirstFileID+i] = func() *os.File { return sealedFile(t, 1, allSeals) }
		all = append(all, listed(region.FirstFileID+i)...)
	}
	path, _, _ := offerWith(t, f.part)
	c, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 20 { // the host may need longer than one call waits
		if err = c.MapFiles(t.Context(), all); err == nil {
			break
		}
	}
	if err != nil || len(c.files) != len(all) {
		t.Errorf("%d of %d files: %v", len(c.files), len(all), err)
	}
}

// TestFilesOfAStoppedAgent: who asks in vain reads on, and takes the answer when it comes.
func TestFilesOfAStoppedAgent(t *testing.T) {
	f := &files{bytes: uint64(os.Getpagesize()), stopped: make(chan struct{}),
		make: map[uint32]func() *os.File{region.FirstFileID: func() *os.File { return sealedFile(t, 1, allSeals) }}}
	path, _, _ := offerWith(t, f.part)
	c, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	into := make([]byte, 8)
	for range 2 {
		if err := c.MapFiles(t.Context(), listed(region.FirstFileID)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a stopped agent: %v", err)
		}
		if err := c.Read(t.Context(), 5, 0, into); err != nil {
			t.Errorf("what is always there: %v", err)
		}
	}
	close(f.stopped)
	for end := time.Now().Add(time.Minute); err != nil || c.asked != nil || len(c.files) == 0; {
		if err = c.MapFiles(t.Context(), listed(region.FirstFileID)); time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if err := c.Read(t.Context(), region.FirstFileID, 0, into); err != nil {
		t.Error(err)
	}
}

// TestFilesThatMayNotBe: a file that can be truncated, and a part that is not in it, are not mapped.
func TestFilesThatMayNotBe(t *testing.T) {
	page := uint64(os.Getpagesize())
	refused := func(what string, seals int, offset, bytes uint64) {
		t.Helper()
		f := sealedFile(t, 2, seals)
		defer f.Close()
		if m, err := mapFile(f, offset, bytes); err == nil {
			t.Errorf("%s is mapped: %v", what, m.close())
		}
	}
	refused("what can be truncated", unix.F_SEAL_GROW, 0, page)
	refused("more than the file", allSeals, page, 2*page)
	refused("what overflows", allSeals, ^uint64(0)-page+1, 2*page)
	refused("what does not begin with a page", allSeals, 8, page)
	refused("nothing", allSeals, 0, 0)
}

// TestForeignRequests: what is no request ends the connection, and a host that answers what was not asked is refused.
func TestForeignRequests(t *testing.T) {
	path, _, _ := offerWith(t, (&files{}).part)
	for _, text := range []string{"nonsense and more", filesMagic + "\x02\x00\x00\x00\x01\x00\x00\x00", filesMagic + "\x01\x00\x00\x00\xff\xff\xff\xff"} {
		c, err := Open(t.Context(), path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); region.Alive(c.conn) == nil; {
			if time.Now().After(end) {
				t.Fatalf("%q: the connection is still there", text)
			}
		}
		c.Close()
	}
	// A host of this test, which hands another file out than it was asked for.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		f := sealedFile(t, 1, allSeals)
		defer f.Close()
		if send(conn, magic, 0, nil, nil) != nil {
			return
		}
		var b [headerBytes + 4]byte
		_, _ = conn.Read(b[:])
		_ = send(conn, filesMagic, 1, binary.LittleEndian.AppendUint64(make([]byte, 16), 4096), []int{int(f.Fd())})
		_, _ = conn.Read(b[:])
	}()
	c, err := Open(t.Context(), l.Addr().String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.MapFiles(t.Context(), listed(region.FirstFileID)); !errors.Is(err, region.ErrDamaged) || len(c.files) != 0 {
		t.Errorf("a file that was not asked for: %v", err)
	}
}
