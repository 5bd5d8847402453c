package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel"
	"outsight/internal/region"
)

// offer serves a region of two pages at a socket until the test ends, and answers its memory.
func offer(t testing.TB) (path string, memory []byte, stop func()) { return offerWith(t, nil) }

func offerWith(t testing.TB, parts Parts) (path string, memory []byte, stop func()) {
	t.Helper()
	pages, err := kernel.NewPages("region_test", 8192)
	if err != nil {
		t.Fatal(err)
	}
	m, err := pages.Memory(true)
	if err != nil {
		t.Fatal(err)
	}
	file, err := pages.ReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(l, []uint32{5}, []*os.File{file}, parts, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		stop()
		if err := errors.Join(m.Close(), pages.Map.Close()); err != nil {
			t.Error(err)
		}
	})
	return path, m.Bytes, stop
}

// TestReads: a reader sees what is written, mapped and by system calls, and that the writer has ended.
func TestReads(t *testing.T) {
	for name, o := range map[string]Options{"mapped": {}, "looked up": {WithoutMapping: true}} {
		t.Run(name, func(t *testing.T) {
			path, memory, stop := offer(t)
			ctx := context.Background()
			c, err := Open(ctx, path, o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, isMapped := c.regions[5].(*mapped); isMapped == o.WithoutMapping {
				t.Fatalf("it is a %T", c.regions[5])
			}
			for n := range uint64(3) {
				for i := 0; i < len(memory); i += 8 {
					binary.LittleEndian.PutUint64(memory[i:], n<<32|uint64(i))
				}
				got := make([]byte, 4096) // of both pages
				if err := c.Read(ctx, 5, 2048, got); err != nil {
					t.Fatal(err)
				}
				for i := 0; i < len(got); i += 8 {
					if w, want := binary.LittleEndian.Uint64(got[i:]), n<<32|uint64(2048+i); w != want {
						t.Fatalf("%x at %d, want %x", w, i, want)
					}
				}
			}
			if err := c.Read(ctx, 6, 0, make([]byte, 8)); !errors.Is(err, region.ErrGone) {
				t.Errorf("another region: %v", err)
			}
			for _, r := range []region.Read{{Region: 5, Offset: 8192, Into: make([]byte, 8)}, {Region: 5, Offset: 4, Into: make([]byte, 8)},
				{Region: 5, Offset: 8184, Into: make([]byte, 16)}, {Region: 5, Offset: ^uint64(7), Into: make([]byte, 16)}} {
				if err := c.Read(ctx, 5, r.Offset, r.Into); !errors.Is(err, region.ErrBounds) {
					t.Errorf("%d bytes at %d: %v", len(r.Into), r.Offset, err)
				}
			}
			stop()
			if err := c.Read(ctx, 5, 0, make([]byte, 8)); !errors.Is(err, region.ErrGone) {
				t.Errorf("the server has ended: %v", err)
			}
		})
	}
}

// TestWritesAreRefused: by the descriptor that is handed out, and in the memory of a reader.
func TestWritesAreRefused(t *testing.T) {
	path, _, _ := offer(t)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rights := make([]byte, 1024)
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1024), rights)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filesOf(rights[:n])
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	defer files[0].Close()
	l := &looked{file: files[0], info: mapInfo{valueBytes: 4096}}
	value := make([]byte, 4096)
	attr := &struct {
		fd, pad           uint32
		key, value, flags uint64
	}{fd: uint32(files[0].Fd()), key: uint64(uintptr(unsafe.Pointer(&l.index))), value: uint64(uintptr(unsafe.Pointer(&value[0])))}
	if err := bpf(unix.BPF_MAP_LOOKUP_ELEM, unsafe.Pointer(attr), unsafe.Sizeof(*attr)); err != nil {
		t.Fatalf("looking up: %v", err)
	}
	if err := bpf(unix.BPF_MAP_UPDATE_ELEM, unsafe.Pointer(attr), unsafe.Sizeof(*attr)); !errors.Is(err, unix.EPERM) {
		t.Errorf("writing: %v, want %v", err, unix.EPERM)
	}
	if _, err := unix.Mmap(int(files[0].Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the descriptor can be mapped for writing")
	}
	c, err := Open(context.Background(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := unix.Mprotect(c.regions[5].(*mapped).memory, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, unix.EACCES) {
		t.Errorf("making a reader's memory writable: %v, want %v", err, unix.EACCES)
	}
}

// TestOrdered: of three copies of a counter, a torn word is none that it could have had.
func TestOrdered(t *testing.T) {
	words := func(all ...uint64) []byte {
		var b []byte
		for _, w := range all {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	f := func(a, b, c uint64, want bool) {
		t.Helper()
		if got := ordered(words(1, a), words(1, b), words(1, c)); got != want {
			t.Errorf("%x, %x, %x: %v", a, b, c, got)
		}
	}
	f(5, 5, 5, true)
	f(0xff, 0x100, 0x101, true)
	f(0xff, 0x1ff, 0x101, false) // 0x100 with the low byte of before
	f(0xff, 0x000, 0x101, false)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(magic + "\x01\x00\x00\x00\x01\x00\x00\x00\x07\x00\x00\x00"))
	f.Add([]byte(magic + "\x01\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, size := range []int{4, fileReplyBytes} {
			count, err := parse(b, magic, size)
			if err == nil && len(b) != headerBytes+size*int(count) {
				t.Errorf("%d regions in %d bytes", count, len(b))
			}
		}
	})
}

// TestShortGreeting: a socket is another program's.
func TestShortGreeting(t *testing.T) {
	for _, greeting := range []string{"h", "hi\n", "OSSHARED", "OSSHARED\x01\x00\x00"} {
		path := filepath.Join(t.TempDir(), "socket")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if conn, err := l.Accept(); err == nil {
				_, _ = conn.Write([]byte(greeting))
				_ = conn.Close()
			}
		}()
		if _, err := Open(t.Context(), path, Options{}); !errors.Is(err, region.ErrNotRegion) {
			t.Errorf("%q: %v", greeting, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
