package rdma

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"outsight/internal/region"
	"outsight/internal/region/tcp"
)

// These tests need two RDMA devices that reach each other: test/kernels has them in its guests (soft-RoCE), and tells
// their names and the host's address. There are no such devices elsewhere.
const (
	hostDevice   = "OUTSIGHT_RDMA_HOST"
	readerDevice = "OUTSIGHT_RDMA_READER"
	hostAddress  = "OUTSIGHT_RDMA_ADDRESS"
	// Helpers that do what outsight-rdma does not: they are the same program, built with other constants.
	writerHelper     = "/outsight-rdma-writes"
	permissiveHelper = "/outsight-rdma-permits"
	exposingHelper   = "/outsight-rdma-exposes"
	// worker is the C program of internal/appmetrics/testdata.
	worker = "/worker"
)

var testKey = region.Key{ID: 1, Secret: []byte("sixteen bytes or more")}

// testHost is a host whose regions are files of this test.
type testHost struct {
	server  *Server
	address string
	memory  map[uint32][]byte
}

// newHost serves regions of the sizes by their ids.
func newHost(t *testing.T, helper string, sizes map[uint32]int) *testHost {
	t.Helper()
	return newHostWith(t, Options{Helper: helper}, sizes)
}

func newHostWith(t *testing.T, o Options, sizes map[uint32]int) *testHost {
	t.Helper()
	needDevices(t)
	memory := map[uint32][]byte{}
	var sources []Source
	for id, size := range sizes {
		fd, err := unix.MemfdCreate("region", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(fd), "region")
		if err := file.Truncate(int64(size)); err != nil {
			t.Fatal(err)
		}
		m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(m) })
		memory[id] = m
		sources = append(sources, Source{ID: id, File: file, Bytes: uint64(size)})
	}
	h := serveSources(t, o, sources)
	h.memory = memory
	return h
}

func needDevices(t *testing.T) {
	t.Helper()
	if os.Getenv(hostDevice) == "" {
		t.Skipf("%s is not set: there are no RDMA devices here", hostDevice)
	}
}

// serveSources serves them until the test ends.
func serveSources(t *testing.T, o Options, sources []Source) *testHost {
	t.Helper()
	h := &testHost{}
	o.Device = os.Getenv(hostDevice)
	var err error
	if h.server, err = NewServer(sources, o); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(os.Getenv(hostAddress), "0"))
	if err != nil {
		t.Fatal(err)
	}
	h.address = l.Addr().String()
	s := tcp.NewServer(l, nil, []region.Key{testKey}, tcp.Options{Connector: h.server})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		if err := h.server.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *testHost) dial(t *testing.T, helper string) *Client {
	t.Helper()
	c, err := Dial(within(t, 20*time.Second), h.address, testKey, Options{Device: os.Getenv(readerDevice), Helper: helper})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func fill(m []byte) {
	for i := range m {
		m[i] = byte(rand.Uint32())
	}
}

func TestReadsAreTheMemory(t *testing.T) {
	h := newHost(t, "", map[uint32]int{0: 4096, 7: 5 << 20})
	c := h.dial(t, "")
	fill(h.memory[0])
	fill(h.memory[7])
	var reads []region.Read
	for _, at := range []struct {
		id             uint32
		offset, length int
	}{{0, 0, 4096}, {0, 8, 8}, {7, 0, 5 << 20}, {7, 4096, 1024}, {7, 5<<20 - 8, 8}, {7, 5 << 20, 0}} {
		for _, ordered := range []bool{false, true} {
			reads = append(reads, region.Read{Region: at.id, Offset: uint64(at.offset), Into: make([]byte, at.length),
				Ordered: ordered})
		}
	}
	if err := c.ReadAll(within(t, time.Minute), reads); err != nil {
		t.Fatal(err)
	}
	for _, r := range reads {
		if !bytes.Equal(r.Into, h.memory[r.Region][r.Offset:r.Offset+uint64(len(r.Into))]) {
			t.Errorf("%d bytes of region %d at %d are not those of the memory", len(r.Into), r.Region, r.Offset)
		}
	}
	for _, wrong := range []struct {
		id     uint32
		offset uint64
		length int
		want   error
	}{{1, 0, 8, region.ErrGone}, {0, 4096, 8, region.ErrBounds}, {0, 4, 8, region.ErrBounds}, {0, 0, 4, region.ErrBounds}} {
		if err := c.Read(within(t, time.Minute), wrong.id, wrong.offset, make([]byte, wrong.length)); !errors.Is(err, wrong.want) {
			t.Errorf("reading %+v: %v", wrong, err)
		}
	}
	if err := c.Read(within(t, time.Minute), 0, 0, make([]byte, 8)); err != nil {
		t.Errorf("after reads that were refused here: %v", err)
	}
}

// TestWritesAreRefused has a reader that writes: as it is, where the connection alone refuses, for the memory may be
// written, and where the memory alone refuses, for the connection allows writes.
func TestWritesAreRefused(t *testing.T) {
	for name, host := range map[string]struct {
		helper   string
		statuses []uint32
	}{
		"both":       {"", []uint32{statusRemoteInvalidRequest, statusRemoteAccess}},
		"connection": {exposingHelper, []uint32{statusRemoteInvalidRequest, statusRemoteAccess}},
		"memory":     {permissiveHelper, []uint32{statusRemoteAccess}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, host.helper, map[uint32]int{0: 4096})
			fill(h.memory[0])
			before := bytes.Clone(h.memory[0])
			err := h.dial(t, writerHelper).Read(within(t, 20*time.Second), 0, 0, make([]byte, 4096))
			var c *completionError
			if !errors.As(err, &c) || !slices.Contains(host.statuses, c.status) || !errors.Is(err, region.ErrRefused) {
				t.Errorf("a write ended with %v, want one of the statuses %d", err, host.statuses)
			}
			if !bytes.Equal(before, h.memory[0]) {
				t.Error("a write that was refused has changed the memory")
			}
			t.Logf("a write: %v", err)
			if err := h.dial(t, "").Read(within(t, 20*time.Second), 0, 0, make([]byte, 4096)); err != nil {
				t.Errorf("another reader, after a write: %v", err)
			}
		})
	}
}

// TestOnlyRegionsAreReadable asks the device for memory that it was not told of.
func TestOnlyRegionsAreReadable(t *testing.T) {
	h := newHost(t, "", map[uint32]int{0: 4096, 1: 4096})
	for name, change := range map[string]func(p *piece, other entry){
		"behind the end":     func(p *piece, _ entry) { p.address += 4096 - 8; p.length = 16 },
		"before the start":   func(p *piece, _ entry) { p.address -= 8 },
		"page behind":        func(p *piece, _ entry) { p.address += 4096 },
		"low bit of the key": func(p *piece, _ entry) { p.key ^= 1 },
		"high bit of it":     func(p *piece, _ entry) { p.key ^= 1 << 31 },
		"another's key":      func(p *piece, other entry) { p.key = other.key },
		"address 0":          func(p *piece, _ entry) { p.address = 0 },
	} {
		c := h.dial(t, "")
		e := c.regions[0]
		p, err := e.piece(0, 8)
		if err != nil {
			t.Fatal(err)
		}
		change(&p, c.regions[1])
		_, err = c.fetchPieces(within(t, 20*time.Second), []piece{p}, 8)
		var failed *completionError
		if !errors.As(err, &failed) || failed.status != statusRemoteAccess {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReaderDies: what its connection took is given back, and others read on.
func TestReaderDies(t *testing.T) {
	h := newHost(t, "", map[uint32]int{0: 1 << 20})
	c, other := h.dial(t, ""), h.dial(t, "")
	used := func() uint64 { return h.server.Drops()[0].Used }
	if used() != 2 {
		t.Fatalf("%d readers, want 2", used())
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if err := c.Read(context.Background(), 0, 0, make([]byte, 1<<20)); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := c.helper.cmd.Process.Kill(); err != nil { // the kernel ends its queue pair in the middle of a read
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ErrHelper) {
		t.Errorf("a reader whose helper was killed: %v", err)
	}
	c.Close()
	for end := time.Now().Add(20 * time.Second); used() != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d readers 20 s after one of two died", used())
		}
	}
	if err := other.Read(within(t, 20*time.Second), 0, 0, make([]byte, 1<<20)); err != nil {
		t.Errorf("the other reader: %v", err)
	}
}

// TestHostsHelperDies: the reader says that the host is gone, and the next one has a new helper.
func TestHostsHelperDies(t *testing.T) {
	h := newHost(t, "", map[uint32]int{0: 4096})
	c := h.dial(t, "")
	if err := c.Read(within(t, 20*time.Second), 0, 0, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := h.server.helper.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-h.server.helper.ended
	err := c.Read(within(t, 20*time.Second), 0, 0, make([]byte, 8))
	if !errors.Is(err, region.ErrGone) {
		t.Errorf("reading from a host whose helper was killed: %v", err)
	}
	t.Logf("it is told as: %v", err)
	if err := h.dial(t, "").Read(within(t, 20*time.Second), 0, 0, make([]byte, 8)); err != nil {
		t.Errorf("with another helper: %v", err)
	}
	if n := h.server.Drops()[1].Count; n != 1 {
		t.Errorf("the helper was started anew %d times, want once", n)
	}
}

// TestStranger has no key, and gets no connection.
func TestStranger(t *testing.T) {
	h := newHost(t, "", map[uint32]int{0: 4096})
	key := region.Key{ID: 1, Secret: []byte("another sixteen bytes")}
	c, err := Dial(within(t, 20*time.Second), h.address, key, Options{Device: os.Getenv(readerDevice)})
	if !errors.Is(err, region.ErrRefused) {
		t.Errorf("connecting with a wrong key: %v, %v", c, err)
	}
	if used := h.server.Drops()[0].Used; used != 0 {
		t.Errorf("a stranger has %d connections", used)
	}
}

var dropped = regexp.MustCompile(`dropped (\d+)`)

// TestPacketsAreLost loses 1 % of the packets in both directions: all is read all the same.
func TestPacketsAreLost(t *testing.T) {
	h := newHost(t, "", map[uint32]int{0: 64 << 10})
	c := h.dial(t, "")
	fill(h.memory[0])
	tc := func(arguments ...string) string {
		out, err := exec.Command("tc", arguments...).CombinedOutput()
		if err != nil {
			t.Fatalf("tc %q: %v: %s", arguments, err, out)
		}
		return string(out)
	}
	interfaces := []string{"v0", "v1"}
	for _, i := range interfaces {
		tc("qdisc", "add", "dev", i, "root", "netem", "loss", "1%")
		defer tc("qdisc", "del", "dev", i, "root")
	}
	lost := func() (n int) {
		for _, i := range interfaces {
			if found := dropped.FindStringSubmatch(tc("-s", "qdisc", "show", "dev", i)); found != nil {
				one, _ := strconv.Atoi(found[1])
				n += one
			}
		}
		return n
	}
	into := make([]byte, 64<<10)
	reads := 0
	for lost() < 5 && reads < 1000 {
		if err := c.Read(within(t, 30*time.Second), 0, 0, into); err != nil {
			t.Fatalf("read %d: %v", reads, err)
		}
		reads++
		if !bytes.Equal(into, h.memory[0]) {
			t.Fatal("what was read is not the memory")
		}
		clear(into)
	}
	if lost() < 5 {
		t.Errorf("%d packets were lost in %d reads of 64 KiB, want 5 or more", lost(), reads)
	}
	t.Logf("%d reads of 64 KiB (three times each) with %d packets lost; %s", reads, lost(), retries(t))
}

// retries are the reader's device's counters of what was sent again.
func retries(t *testing.T) string {
	var all []string
	for _, name := range []string{"completer_retry_err", "duplicate_request", "rcvd_seq_err", "retry_exceeded_err"} {
		for _, device := range []string{os.Getenv(readerDevice), os.Getenv(hostDevice)} {
			text, err := os.ReadFile(filepath.Join("/sys/class/infiniband", device, "ports/1/hw_counters", name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%s %s: %s", device, name, strings.TrimSpace(string(text))))
		}
	}
	return strings.Join(all, ", ")
}

// write writes the words of region 0 again and again until the test ends.
func (h *testHost) write(t *testing.T, once func(words []uint64, n uint64)) []uint64 {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&h.memory[0][0])), len(h.memory[0])/8)
	var stop atomic.Bool
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := uint64(1); !stop.Load(); n++ {
			once(words, n)
		}
	})
	t.Cleanup(func() {
		stop.Store(true)
		writing.Wait()
	})
	return words
}

// TestWordsGrow reads words that only grow while they are written: each that is taken lies between what it was before
// the read and what it was after it.
func TestWordsGrow(t *testing.T) {
	h := newHost(t, "", map[uint32]int{0: 4096})
	c := h.dial(t, "")
	words := h.write(t, func(words []uint64, n uint64) {
		for i := range words {
			atomic.StoreUint64(&words[i], n<<32|n) // torn where the halves differ
		}
		runtime.Gosched()
	})
	before, into := make([]uint64, len(words)), make([]byte, 4096)
	torn, read := 0, 0
	for range 100 {
		for i := range words {
			before[i] = atomic.LoadUint64(&words[i])
		}
		if err := c.Read(within(t, 20*time.Second), 0, 0, into); err != nil {
			t.Fatal(err)
		}
		for i := range words {
			w := binary.LittleEndian.Uint64(into[8*i:])
			if after := atomic.LoadUint64(&words[i]); w < before[i] || w > after {
				t.Fatalf("word %d was read as %#x between %#x and %#x", i, w, before[i], after)
			}
			if w>>32 != w&0xffffffff {
				torn++
			}
			read++
		}
	}
	t.Logf("%d of %d words that were taken are torn, within what they were before and after", torn, read)
}

// TestRecordsAreOfOneMoment reads a record with a generation at its head and its tail while it is written.
func TestRecordsAreOfOneMoment(t *testing.T) {
	h := newHost(t, "", map[uint32]int{0: 4096})
	c := h.dial(t, "")
	words := h.write(t, func(words []uint64, n uint64) {
		last := len(words) - 1
		atomic.StoreUint64(&words[last], n)
		for i := range words[1:last] {
			atomic.StoreUint64(&words[1+i], n*n)
			if i%64 == 0 {
				runtime.Gosched()
			}
		}
		atomic.StoreUint64(&words[0], n)
		time.Sleep(5 * time.Millisecond)
	})
	into := make([]byte, 4096)
	taken, again := 0, 0
	for tries := 0; taken < 50; tries++ {
		if tries == 5000 {
			t.Fatalf("%d of %d readings were of one moment", taken, tries)
		}
		err := c.ReadAll(within(t, 20*time.Second), []region.Read{{Into: into, Ordered: true}})
		if err != nil && !errors.Is(err, region.ErrBusy) {
			t.Fatal(err)
		}
		n := binary.LittleEndian.Uint64(into)
		if err != nil || n != binary.LittleEndian.Uint64(into[4096-8:]) {
			again++
			continue
		}
		taken++
		for i := 1; i < len(words)-1; i++ {
			if w := binary.LittleEndian.Uint64(into[8*i:]); w != n*n {
				t.Fatalf("word %d of generation %d is %d, want %d", i, n, w, n*n)
			}
		}
	}
	t.Logf("%d readings were of one moment, %d were not taken", taken, again)
}

// TestRegionOfACProgram reads what a C program counts by sdk/c/outsight.h, while it does, while it is stopped, and when it
// is dead.
func TestRegionOfACProgram(t *testing.T) {
	needDevices(t)
	program := exec.Command(worker, "spin")
	in, err1 := program.StdinPipe()
	out, err2 := program.StdoutPipe()
	if err := cmp.Or(err1, err2, program.Start()); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer program.Process.Kill()
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	file := fileOfMetrics(t, program.Process.Pid)
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	value := placeOf(t, m, "jobs_done")
	here := func() uint64 { return atomic.LoadUint64((*uint64)(unsafe.Pointer(&m[value]))) }
	c := serveSources(t, Options{}, []Source{{ID: 9, File: file, Bytes: uint64(len(m))}}).dial(t, "")
	first := here()
	for range 20 {
		into, before := make([]byte, 8), here()
		if err := c.Read(within(t, 20*time.Second), 9, value, into); err != nil {
			t.Fatal(err)
		}
		if n, after := binary.LittleEndian.Uint64(into), here(); n < before || n > after {
			t.Fatalf("the program's counter is %d, by RDMA %d, then %d", before, n, after)
		}
	}
	if here() == first {
		t.Error("the program counted nothing")
	}
	for _, s := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
		if err := program.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if s == unix.SIGKILL {
			_ = program.Wait()
		}
		for n := here() - 1; n != here(); time.Sleep(20 * time.Millisecond) { // until it has stopped
			n = here()
		}
		whole := make([]byte, len(m))
		if err := c.Read(within(t, time.Minute), 9, 0, whole); err != nil || !bytes.Equal(whole, m) {
			t.Errorf("after %v: what is read is not the program's memory: %v", s, err)
		}
	}
	t.Logf("a counter of a C program, at %d when it died", here())
}

// TestFilesThatComeAndGo reads a part of a file that is registered by a descriptor that can only be read, while the reader is
// connected: it is where the host says, also by another helper, and nobody can read it any more when it is forgotten.
func TestFilesThatComeAndGo(t *testing.T) {
	restarted := 0
	options := Options{Restarted: func() { restarted++ }}
	h := newHostWith(t, options, map[uint32]int{0: 4096})
	fd, err := unix.MemfdCreate("outsight-metrics", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	page, pages := os.Getpagesize(), 3
	whole := make([]byte, pages*page)
	fill(whole)
	if _, err := unix.Pwrite(fd, whole, 0); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	const id = region.FirstFileID
	list := func() []region.ApplicationFile {
		t.Helper()
		place, known := h.server.Place(id)
		if !known || place.Address == 0 {
			t.Fatalf("the file is at %+v (%v)", place, known)
		}
		return []region.ApplicationFile{{ID: id, Bytes: uint32(page), Key: place.Key, Address: place.Address}}
	}
	read := func(c *Client, files []region.ApplicationFile) error {
		t.Helper()
		into := make([]byte, page)
		err := errors.Join(c.MapFiles(t.Context(), files), c.Read(within(t, time.Minute), id, 0, into))
		if err == nil && !bytes.Equal(into, whole[page:2*page]) {
			t.Error("what is read is not the second page of the file")
		}
		return err
	}
	c := h.dial(t, "")
	h.server.Add(Source{ID: id, File: file, Offset: uint64(page), Bytes: uint64(page)})
	if err := read(c, list()); err != nil {
		t.Fatal(err)
	}
	if err := h.server.helper.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-h.server.helper.ended
	c = h.dial(t, "")
	if restarted != 1 {
		t.Errorf("the helper was started anew, and that was told %d times", restarted)
	}
	if err := read(c, list()); err != nil {
		t.Fatal(err)
	}
	files := list()
	h.server.Keep(map[uint32]bool{id: true})
	if err := read(c, files); err != nil {
		t.Errorf("what is kept: %v", err)
	}
	h.server.Keep(nil)
	if err := read(c, files); err != nil {
		t.Errorf("by who has not seen yet that it is gone: %v", err)
	}
	h.server.added[id].dropped = time.Now().Add(-dropAfter)
	h.server.Keep(nil)
	if _, known := h.server.Place(id); known {
		t.Error("what is removed has a place")
	}
	if err := read(c, files); !errors.Is(err, region.ErrRefused) {
		t.Errorf("what is removed: %v", err)
	}
	if err := h.dial(t, "").Read(within(t, time.Minute), 0, 0, make([]byte, 8)); err != nil {
		t.Errorf("the others: %v", err)
	}
}

// fileOfMetrics is the memory file of a process.
func fileOfMetrics(t *testing.T, pid int) *os.File {
	t.Helper()
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range all {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, "/memfd:outsight-metrics") {
			file, err := os.OpenFile(link, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			return file
		}
	}
	t.Fatalf("process %d has no file of metrics among %q", pid, all)
	return nil
}

// placeOf is where the value of a metric is (docs/format/appmetrics.md).
func placeOf(t *testing.T, m []byte, name string) uint64 {
	t.Helper()
	at, count := binary.LittleEndian.Uint32(m[16:]), binary.LittleEndian.Uint32(m[24:])
	for range count {
		if text := m[binary.LittleEndian.Uint32(m[at+4:]):]; bytes.HasPrefix(text, []byte(name+"\x00")) {
			return uint64(binary.LittleEndian.Uint32(m[at:]))
		}
		at += 16
	}
	t.Fatalf("there is no metric %s among %d", name, count)
	return 0
}

// TestNobodyRunsOnTheHost counts how often the host's helper was scheduled while it was read, and shows how long one READ
// takes.
func TestNobodyRunsOnTheHost(t *testing.T) {
	h := newHost(t, "", map[uint32]int{0: 4096})
	c := h.dial(t, "")
	e := c.regions[0]
	p, err := e.piece(0, 1024)
	if err != nil {
		t.Fatal(err)
	}
	before := asleep(t, h.server.helper.cmd.Process.Pid)
	took := make([]time.Duration, 300)
	for i := range took {
		began := time.Now()
		if _, err := c.fetchPieces(within(t, 20*time.Second), []piece{p}, 1024); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	if after := scheduled(t, h.server.helper.cmd.Process.Pid); !slices.Equal(before, after) {
		t.Errorf("the host's helper was scheduled while it was read: %q, then %q", before, after)
	}
	slices.Sort(took)
	t.Logf("emulated: one READ of 1 KiB takes at least %v, the median is %v, the 99th percentile %v; the host's helper: %q",
		took[0], took[len(took)/2], took[len(took)*99/100], before)
}

// asleep are the same after the process has gone to sleep: it may have answered and not have got so far.
func asleep(t *testing.T, pid int) []string {
	t.Helper()
	before := scheduled(t, pid)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		now := scheduled(t, pid)
		if slices.Equal(before, now) {
			return now
		}
		before = now
	}
	t.Fatalf("process %d does not go to sleep: %q", pid, before)
	return nil
}

// scheduled are the context switches of a process, of which there is one thread, and its CPU time in ticks.
func scheduled(t *testing.T, pid int) (all []string) {
	t.Helper()
	status, err1 := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	stat, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	run, err3 := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.Contains(line, "ctxt_switches") || strings.HasPrefix(line, "Threads") {
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
	}
	fields := strings.Fields(string(stat))
	return append(all, "utime "+fields[13], "stime "+fields[14], "ns, ns waited, times run: "+
		cmp.Or(strings.TrimSpace(string(run)), "?"))
}
