package net

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"outsight/internal/kernel/kerneltest"
)

// fakeBinary is a binary whose sections say what a test wants.
type fakeBinary struct {
	sections []elf.Section64
	// data is at these places in the file.
	data map[int64][]byte
	size int64
	// count is the number of sections in the header, the real one if 0; names is the section of their names.
	count, names uint16
}

func (f fakeBinary) write(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libssl.so.3")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	h := elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB),
		byte(elf.EV_CURRENT)}, Type: uint16(elf.ET_DYN),
		Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Phentsize: 56, Phnum: 1, Shoff: 120, Shentsize: 64,
		Shnum: uint16(len(f.sections)), Shstrndx: f.names}
	if f.count > 0 {
		h.Shnum = f.count
	}
	segment := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X | elf.PF_R), Filesz: uint64(f.size),
		Memsz: uint64(f.size)}
	var b bytes.Buffer
	for _, part := range []any{h, segment, f.sections} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := file.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	for at, data := range f.data {
		if _, err := file.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Truncate(f.size); err != nil {
		t.Fatal(err)
	}
	return path
}

// symbols are entries of a table of symbols.
func symbols(entries ...elf.Sym64) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, entries); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// library is a binary with one table of symbols and their names.
func library(names string, entries ...elf.Sym64) fakeBinary {
	text := []byte("\x00" + names)
	table := symbols(entries...)
	return fakeBinary{
		sections: []elf.Section64{{},
			{Type: uint32(elf.SHT_STRTAB), Off: 8192, Size: uint64(len(text))},
			{Type: uint32(elf.SHT_DYNSYM), Off: 1 << 20, Size: uint64(len(table)), Link: 1, Entsize: elf.Sym64Size}},
		data: map[int64][]byte{8192: text, 1 << 20: table}, size: 4 << 20, names: 1,
	}
}

// A file that claims much is refused, and looking at it takes little memory.
func TestHostileBinaries(t *testing.T) {
	function := elf.Sym64{Name: 1, Shndx: 1, Value: 4096, Size: 16}
	f := func(name string, b fakeBinary, want string) {
		t.Helper()
		path := b.write(t)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		found, err := lookInto(t, path, openSSLFunctions)
		runtime.ReadMemStats(&after)
		if got := fmt.Sprint(found, err); !strings.Contains(got, want) {
			t.Errorf("%s: got %.300s, want %q", name, got, want)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 12<<20 {
			t.Errorf("%s: looking at it took %d bytes of memory", name, took)
		}
	}
	f("an ordinary one", library("SSL_write\x00", function), "[{ssl_write 4096 false} {ssl_write_end 4096 true}]")
	f("a name that is another's end", library("BIO_SSL_write\x00", elf.Sym64{Name: 5, Shndx: 1, Value: 4096}),
		"[{ssl_write 4096 false}")

	holes := library("SSL_write\x00", function)
	holes.sections[1].Size, holes.size = 900<<20, 900<<20+8192
	f("900 MB of names", holes, "the bytes of its sections' names are 943718400, want 16384 at most")

	holes = library("", function)
	holes.sections[2].Size, holes.size = 900<<20, 904<<20
	f("900 MB of symbols", holes, "are 943718400, want 33554432 at most")

	holes = library("", function)
	holes.sections[2].Size, holes.size = maxTLSTable, 40<<20
	f("as many symbols as are read", holes, "it does not use TLS")

	many := library("SSL_write\x00", function)
	many.count = 60000
	f("60,000 sections", many, "its number of sections is 60000, want 512 at most")

	many = library("SSL_write\x00", function)
	many.sections = append(many.sections, make([]elf.Section64, maxTLSSections-3)...)
	for i := range many.sections {
		many.sections[i].Name = 1 // all share one long name
	}
	many.sections[1].Off, many.sections[1].Size = 64<<10, maxTLSSectionNames
	many.data = map[int64][]byte{64 << 10: bytes.Repeat([]byte("n"), maxTLSSectionNames-1)}
	f("long names of many sections", many, "it does not use TLS")

	f("many symbols of one name", library("SSL_write\x00", make20(function)...),
		"symbols like \"SSL_write\" are 17, want 16 at most")
	f("many names", library(strings.Repeat("SSL_write\x00", 700), function), "are 65, want 64 at most")

	outside := library("SSL_write\x00", elf.Sym64{Name: 1, Shndx: 1, Value: 1 << 63})
	f("a function outside of the file", outside, "in no part of the file")
	outside = library("SSL_write\x00", function)
	outside.sections[2].Link = 77
	f("names in a section that is not there", outside, "which is not there")
	outside = library("SSL_write\x00", function)
	outside.sections[2].Off = 1 << 63
	f("a table outside of the file", outside, "[]")
}

func make20(s elf.Sym64) []elf.Sym64 {
	all := make([]elf.Sym64, 20)
	for i := range all {
		all[i] = s
		all[i].Value += uint64(i)
	}
	return all
}

// A Go program whose functions return everywhere gets no probe.
func TestTooManyReturnsAreRefused(t *testing.T) {
	if _, err := findReturns(bytes.Repeat([]byte{0xc3}, maxFunction)); !errors.Is(err, errTLSTooLarge) {
		t.Errorf("of %d RETs: %v", maxFunction, err)
	}
	peer := filepath.Join(t.TempDir(), "tlspeer")
	execute(t, "go", "build", "-o", peer, "./testdata/tlspeer")
	program, err := os.ReadFile(peer)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == "crypto/tls.(*Conn).Read" {
			at, _ := fileOffset(f, s.Value)
			copy(program[at:], bytes.Repeat([]byte{0xc3}, int(s.Size)))
		}
	}
	if err := os.WriteFile(peer, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if found, err := lookInto(t, peer, goFunctions); !errors.Is(err, errTLSTooLarge) {
		t.Errorf("found %d functions, %v", len(found), err)
	}
}

func FuzzBinary(f *testing.F) {
	path := library("SSL_write\x00", elf.Sym64{Name: 1, Shndx: 1, Value: 4096}).write(f)
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text[:16<<10])
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, functions := range []func(*boundedReader) ([]tlsFunction, error){openSSLFunctions, goFunctions} {
			found, err := functions(&boundedReader{bytes.NewReader(text), 1 << 26, nil})
			if err != nil && len(found) > 0 || len(found) > 4*maxBinaryProbes*maxTLSSymbols {
				t.Errorf("%d found, %v", len(found), err)
			}
		}
	})
}

// endless gives the same line again and again.
type endless struct {
	line string
	at   int
	read int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		k := copy(p[n:], e.line[e.at:])
		n, e.at = n+k, (e.at+k)%len(e.line)
	}
	e.read += int64(n)
	return n, nil
}

func TestMappingsAreBounded(t *testing.T) {
	e := &endless{line: "7f1c00000000-7f1c00001000 r-xp 00000000 08:01 1234 /" + strings.Repeat("d/", 2000) +
		"libssl.so.3\n"}
	found, err := readMappings(bufio.NewReaderSize(e, maxMappingLine))
	if err != nil || !found.cut || e.read > maxTLSMaps+64<<10 {
		t.Errorf("%d bytes were read, cut %v, %v", e.read, found.cut, err)
	}
	if len(found.openSSL) != 1 || len(found.often) != 1 || found.often[0].inode != 1234 {
		t.Errorf("found %d libraries, often %v", len(found.openSSL), found.often)
	}
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "7f1c00000000-7f1c00001000 r-xp 00000000 08:01 %d /lib/libssl.so.%d (deleted)\n", i, i)
	}
	found, err = readMappings(bufio.NewReader(strings.NewReader(b.String())))
	if err != nil || len(found.openSSL) != maxTLSLibraries || !found.crowded || found.cut {
		t.Errorf("%d libraries, crowded %v, cut %v, %v", len(found.openSSL), found.crowded, found.cut, err)
	}
}

// What a name in a container leads to stays in it, and only regular files are opened.
func TestLinksDoNotLeaveTheContainer(t *testing.T) {
	root := t.TempDir()
	own := filepath.Join(root, "etc")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(own, "shadow"), []byte("the container's"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(root, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, err := range []error{syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600),
		syscall.Mknod(filepath.Join(root, "kmsg"), syscall.S_IFCHR|0o600, 1<<8|11)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	up := strings.Repeat("../", 20)
	for target, want := range map[string]string{
		"/etc/shadow":             "the container's",
		up + "etc/shadow":         "the container's",
		"/etc/hostname":           "no such file",
		up + "dev/kmsg":           "no such file",
		"/proc/self/root/etc":     "no such file",
		"/fifo":                   errNotRegular.Error(),
		"/kmsg":                   errNotRegular.Error(),
		"/socket":                 errNotRegular.Error(),
		"/etc":                    errNotRegular.Error(),
		"/libssl.so.3":            "too many levels",
		up + "etc/../../../fifo":  errNotRegular.Error(),
		"etc/shadow":              "the container's",
		"/" + up + "kmsg":         errNotRegular.Error(),
		"/etc/shadow/nothing":     "not a directory",
		strings.Repeat("x/", 100): "no such file",
	} {
		link := filepath.Join(root, "libssl.so.3")
		os.Remove(link)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		got := ""
		if file, err := openInRoot(root, "/libssl.so.3"); err != nil {
			got = err.Error()
		} else {
			text, _ := io.ReadAll(file)
			got = string(text)
			file.Close()
		}
		if !strings.Contains(got, want) {
			t.Errorf("a link to %q: got %q, want %q", target, got, want)
		}
	}
	// Links of /proc leave it.
	execute(t, "mount", "--bind", "/proc", own)
	defer execute(t, "umount", own)
	os.Remove(filepath.Join(root, "libssl.so.3"))
	if err := os.Symlink(fmt.Sprintf("/etc/%d/root/etc/hostname", os.Getpid()),
		filepath.Join(root, "libssl.so.3")); err != nil {
		t.Fatal(err)
	}
	if file, err := openInRoot(root, "/libssl.so.3"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("through a link of /proc: %v, %v", file, err)
	}
}

// Without the capabilities that the links of mapped files need, the name is followed in the process's root, and what is
// there has to be what is mapped.
func TestMappedFilesAreOpened(t *testing.T) {
	path := library("SSL_write\x00", elf.Sym64{Name: 1, Shndx: 1, Value: 4096, Size: 16}).write(t)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	memory, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(memory)
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	found, err := readMappings(bufio.NewReaderSize(maps, maxMappingLine))
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(found.openSSL, func(m mapping) bool { return m.path == path })
	if at < 0 {
		t.Fatalf("%s is not among %+v", path, found.openSSL)
	}
	open := func() (binaryID, error) {
		file, err := openMapped("/proc/self", found.openSSL[at])
		if err != nil {
			return binaryID{}, err
		}
		defer file.Close()
		return file.id, nil
	}
	mapped, err := open()
	if err != nil || mapped.inode != found.openSSL[at].inode {
		t.Errorf("got %+v, %v", mapped, err)
	}

	// The thread ends with this goroutine, and its lack of capabilities with it.
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&header, &caps[0]); err != nil {
			t.Error(err)
			return
		}
		caps[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
		caps[1].Effective &^= 1 << (unix.CAP_CHECKPOINT_RESTORE - 32)
		if err := unix.Capset(&header, &caps[0]); err != nil {
			t.Error(err)
			return
		}
		if _, err := unix.Open(fmt.Sprintf("/proc/self/map_files/%x-%x", found.openSSL[at].begin,
			found.openSSL[at].end), unix.O_PATH, 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("the link may be followed still: %v", err)
		}
		if id, err := open(); err != nil || id != mapped {
			t.Errorf("by its name: got %+v, %v, want %+v", id, err, mapped)
		}
		if err := os.Rename(path, path+".old"); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Error(err)
		}
		if _, err := open(); err == nil || !strings.Contains(err.Error(), "is at its path, want") {
			t.Errorf("another file by its name: %v", err)
		}
	}()
	<-done
	if id, err := open(); err != nil || id.inode != mapped.inode {
		t.Errorf("after it was renamed: %+v, %v", id, err)
	}
}

// A file of one container that has the inode, the size and the time of another's is not taken for it: the time of its
// last change is later.
func TestForgedFileIsAnother(t *testing.T) {
	var ids []binaryID
	for range 2 {
		root := t.TempDir()
		execute(t, "mount", "-t", "tmpfs", "tmpfs", root)
		t.Cleanup(func() { execute(t, "umount", root) })
		path := filepath.Join(root, "libssl.so.3")
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		kerneltest.Eventually(t, "the clock of files goes on", func() bool {
			if err := os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := info.Sys().(*syscall.Stat_t).Ctim
			return len(ids) == 0 || unix.Timespec(changed) != ids[0].changed
		})
		file, err := openInRoot(root, "/libssl.so.3")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, file.id)
		file.Close()
	}
	if ids[0].inode != ids[1].inode || ids[0].size != ids[1].size || ids[0].modified != ids[1].modified {
		t.Fatalf("the second is not forged: %+v", ids)
	}
	if ids[0] == ids[1] {
		t.Errorf("two files are one: %+v", ids)
	}
}

type fakeLink struct {
	link.Link
	closed func()
}

func (f fakeLink) Close() error { f.closed(); return nil }

// unprobed is a watcher that attaches nothing, and the number of its links.
func unprobed(t *testing.T) (w *tlsWatcher, links *atomic.Int64) {
	links = new(atomic.Int64)
	w = &tlsWatcher{procfs: "/proc", logger: slog.New(slog.DiscardHandler), stop: make(chan struct{}),
		programs: make(map[string]*ebpf.Program),
		binaries: make(map[binaryID]*tlsBinary), processes: make(map[int]*tlsProcess),
		shares: make(map[string]*tlsShare), lines: bufio.NewReaderSize(nil, maxMappingLine)}
	for _, l := range []tlsLibrary{openSSL, goTLS} {
		for _, pair := range l.functions {
			w.programs[pair[0]], w.programs[pair[1]] = new(ebpf.Program), new(ebpf.Program)
		}
	}
	w.uprobes = multiUprobes
	w.uprobes.attachAt = func(*link.Executable, *ebpf.Program, []uint64, bool) ([]link.Link, error) {
		links.Add(1)
		return []link.Link{fakeLink{closed: func() { links.Add(-1) }}}, nil
	}
	return w, links
}

func count(w *tlsWatcher, name string) uint64 {
	for _, d := range []struct {
		name  string
		count uint64
	}{{"tls_container_share", w.noShare.Load()}, {"tls_mappings", w.noMap.Load()}, {"tls_reading", w.putOff.Load()},
		{"tls_binaries", w.noBinary.Load()}} {
		if d.name == name {
			return d.count
		}
	}
	return 0
}

func (w *tlsWatcher) considerFile(t *testing.T, p *tlsProcess, path string) bool {
	t.Helper()
	file, err := openInRoot("/", path)
	if err != nil {
		t.Fatal(err)
	}
	return w.consider(p, file, path, openSSLFunctions)
}

func newShare() *tlsShare { return &tlsShare{reading: rate.NewLimiter(0, tlsReadingBurst)} }

// One container's libraries take no room from another's, and what had none gets it when there is some.
func TestContainersShareProbes(t *testing.T) {
	w, links := unprobed(t)
	ordinary := library("SSL_write\x00", elf.Sym64{Name: 1, Shndx: 1, Value: 4096, Size: 16})
	hostile, other := &tlsProcess{share: newShare()}, &tlsProcess{share: newShare()}
	const beyond = 4
	for range maxContainerBinaries + beyond {
		w.considerFile(t, hostile, ordinary.write(t))
	}
	if n := count(w, "tls_container_share"); hostile.share.binaries != maxContainerBinaries || n != beyond {
		t.Errorf("%d binaries of one container are probed and %d not, want %d and %d", hostile.share.binaries, n,
			maxContainerBinaries, beyond)
	}
	path := ordinary.write(t)
	if w.considerFile(t, hostile, path) {
		t.Error("a binary without room is settled")
	}
	if !w.considerFile(t, other, path) || other.share.binaries != 1 {
		t.Error("the other container's library is not probed")
	}
	if links.Load() != 2*(maxContainerBinaries+1) {
		t.Errorf("there are %d links", links.Load())
	}
	// Nobody has any of them.
	w.giveUp(nil, nil)
	w.giveUp(nil, nil)
	if links.Load() != 0 || hostile.share.binaries != 0 || other.share.probes != 0 || w.probed.Load() != 0 ||
		w.probes.Load() != 0 {
		t.Errorf("%d links stay, %+v, %+v", links.Load(), hostile.share, other.share)
	}
	if !w.considerFile(t, hostile, path) {
		t.Error("there is room again, and the library is not probed")
	}
}

// Whoever makes many files has used up what is read of him, and only he.
func TestReadingIsBounded(t *testing.T) {
	w, _ := unprobed(t)
	hostile, other := &tlsProcess{share: newShare()}, &tlsProcess{share: newShare()}
	dir := t.TempDir()
	looked := 0
	for i := range 2 * tlsReadingBurst / tlsReadingLeast {
		path := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		if w.considerFile(t, hostile, path) {
			looked++
		}
	}
	if want := tlsReadingBurst / tlsReadingLeast; looked != want || count(w, "tls_reading") != uint64(want) {
		t.Errorf("%d files were looked at and %d put off, want %d of each", looked, count(w, "tls_reading"), want)
	}
	if !w.considerFile(t, other, filepath.Join(dir, "0")) {
		t.Error("another container's file is not looked at")
	}
}

// A process that maps a file very often makes taking probes away slow.
func TestMappingOftenIsRefused(t *testing.T) {
	w, links := unprobed(t)
	path := library("SSL_write\x00", elf.Sym64{Name: 1, Shndx: 1, Value: 4096, Size: 16}).write(t)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mapIt := func() {
		m, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Munmap(m) })
	}
	mapIt()
	other := &tlsProcess{share: newShare()}
	w.considerFile(t, other, library("SSL_read\x00", elf.Sym64{Name: 1, Shndx: 1, Value: 4096, Size: 16}).write(t))
	others := links.Load()
	process := w.lookAt(os.Getpid())
	if process == nil || process.share.refused || links.Load() <= others {
		t.Fatalf("a process that maps it once: %+v, %d links", process, links.Load())
	}
	for range maxTLSMappings {
		mapIt()
	}
	if process = w.lookAt(os.Getpid()); !process.share.refused || links.Load() != others || count(w, "tls_mappings") != 1 {
		t.Errorf("a process that maps it %d times: %+v, %d links, %d are another container's", maxTLSMappings+1,
			process.share, links.Load(), others)
	}
}

// fakeProc is a directory of processes.
type fakeProc struct {
	testing.TB
	dir string
}

// mapped is a file that is executed at some places under a name.
type mapped struct {
	file, name string
	places     int
}

// process makes a process of a container, or changes its mappings.
func (f fakeProc) process(pid int, container, exe string, files ...mapped) {
	f.Helper()
	dir := filepath.Join(f.dir, strconv.Itoa(pid))
	if err := os.RemoveAll(dir); err != nil {
		f.Fatal(err)
	}
	var lines strings.Builder
	links := map[string]string{"exe": exe}
	at := uint64(0x7f0000000000)
	for _, m := range files {
		var stat unix.Stat_t
		if err := unix.Stat(m.file, &stat); err != nil {
			f.Fatal(err)
		}
		for range m.places {
			places := fmt.Sprintf("%x-%x", at, at+4096)
			fmt.Fprintf(&lines, "%s r-xp 00000000 00:01 %d %s\n", places, stat.Ino, m.name)
			links["map_files/"+places] = m.file
			at += 8192
		}
	}
	if err := os.MkdirAll(dir+"/map_files", 0o755); err != nil {
		f.Fatal(err)
	}
	for name, text := range map[string]string{"maps": lines.String(), "cgroup": "0::/" + strings.Repeat(container, 64) +
		"\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			f.Fatal(err)
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			f.Fatal(err)
		}
	}
}

// A container that is refused takes the probes of a program along, and another one that runs it gets them back.
func TestMappingOftenLeavesOthersTheirProbes(t *testing.T) {
	peer := filepath.Join(t.TempDir(), "tlspeer")
	execute(t, "go", "build", "-o", peer, "./testdata/tlspeer")
	once, often := mapped{peer, peer, 1}, mapped{peer, peer, maxTLSMappings + 1}
	const hostile = 2
	for _, other := range []int{1, 3} { // looked at before, and after
		w, links := unprobed(t)
		procs := fakeProc{t, t.TempDir()}
		w.procfs = procs.dir
		owner := func() *tlsShare {
			for _, b := range w.binaries {
				return b.owner
			}
			return nil
		}
		procs.process(hostile, "a", peer, once)
		w.lookAtProcesses()
		first := links.Load()
		procs.process(other, "b", peer, once)
		w.lookAtProcesses()
		if owner() != w.processes[hostile].share || !w.processes[other].settled || first == 0 || links.Load() != first {
			t.Fatalf("%d links at first, %d when both run it", first, links.Load())
		}
		procs.process(hostile, "a", peer, often)
		for range 32 {
			w.lookAtProcesses()
		}
		if !w.processes[hostile].share.refused || w.processes[other].share.refused || count(w, "tls_mappings") != 1 {
			t.Errorf("the wrong container is refused: %+v, %+v", w.processes[hostile].share, w.processes[other].share)
		}
		if links.Load() != first || owner() != w.processes[other].share {
			t.Errorf("%d links after the first container was refused, want %d of the other", links.Load(), first)
		}
		// The refused one does not keep them.
		if err := os.RemoveAll(filepath.Join(procs.dir, strconv.Itoa(other))); err != nil {
			t.Fatal(err)
		}
		w.lookAtProcesses()
		w.lookAtProcesses()
		if links.Load() != 0 || len(w.binaries) != 0 {
			t.Errorf("%d links and %d binaries stay after the other container ended", links.Load(), len(w.binaries))
		}
	}
}

// Only files that are probed, or would be, count: .NET maps a file in memory for each piece of compiled code.
func TestMappingOtherFilesOftenIsNotRefused(t *testing.T) {
	ssl := library("SSL_write\x00", elf.Sym64{Name: 1, Shndx: 1, Value: 4096, Size: 16}).write(t)
	exe, memory := filepath.Join(t.TempDir(), "dotnet"), filepath.Join(t.TempDir(), "memory")
	for _, path := range []string{exe, memory} {
		if err := os.WriteFile(path, []byte("x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const often = maxTLSMappings + 1
	once := mapped{ssl, "/lib/libssl.so.3", 1}
	f := func(what, neighbour string, refused bool, files ...mapped) {
		t.Helper()
		w, links := unprobed(t)
		procs := fakeProc{t, t.TempDir()}
		w.procfs = procs.dir
		procs.process(1, neighbour, exe, once)
		procs.process(2, "a", exe, files...)
		w.lookAtProcesses()
		share := w.processes[2].share
		if share.refused != refused || count(w, "tls_mappings") > 0 != refused {
			t.Errorf("%s: refused is %v, want %v", what, share.refused, refused)
		}
		if want := !refused || neighbour != "a"; links.Load() > 0 != want {
			t.Errorf("%s: %d links", what, links.Load())
		}
	}
	dotnet := mapped{memory, "/memfd:doublemapper (deleted)", 4 * often}
	f("compiled code", "b", false, once, dotnet)
	f("compiled code beside OpenSSL", "a", false, once, dotnet)
	f("its program", "b", true, once, mapped{exe, exe, often})
	f("its program by another name", "b", true, once, mapped{exe, "/other", often})
	f("a library", "b", true, mapped{ssl, "/lib/libssl.so.3", often})
	f("a library by another name", "b", true, once, mapped{ssl, "/other", often})
	f("what its container has probed", "a", true, mapped{ssl, "/other", often})
	f("what another container has probed", "b", false, mapped{ssl, "/other", often})
}

// A library that changes all the time is another binary each time. Only the last one is kept.
func TestMappedFilesThatChangeAreGivenUp(t *testing.T) {
	w, links := unprobed(t)
	procs := fakeProc{t, t.TempDir()}
	w.procfs = procs.dir
	ssl := library("SSL_write\x00", elf.Sym64{Name: 1, Shndx: 1, Value: 4096, Size: 16}).write(t)
	exe := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(exe, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	procs.process(1, "a", exe, mapped{ssl, "/lib/libssl.so.3", 1})
	id := func() binaryID {
		file, err := openInRoot("/", ssl)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		return file.id
	}
	const looks = 1 << 5
	for range looks {
		before := id()
		kerneltest.Eventually(t, "the clock of files goes on", func() bool {
			if err := os.Chmod(ssl, 0o755); err != nil {
				t.Fatal(err)
			}
			return id() != before
		})
		w.lookAtProcesses()
		if links.Load() == 0 {
			t.Fatal("the library is not probed")
		}
	}
	w.lookAtProcesses()
	w.lookAtProcesses()
	process := w.processes[1]
	if !slices.Equal(process.binaries, []binaryID{process.program, id()}) {
		t.Errorf("the process has %+v, want its program and the library", process.binaries)
	}
	if len(w.binaries) != 2 || links.Load() != 2 || process.share.binaries != 1 {
		t.Errorf("%d binaries and %d links are kept, %d on the container's share", len(w.binaries), links.Load(),
			process.share.binaries)
	}
}

// A file that cannot be read to its end, as on a server that does not answer, does not keep the agent from ending.
func TestStoppingDoesNotWaitForAFile(t *testing.T) {
	w, _ := unprobed(t)
	stuck := make(chan struct{})
	defer close(stuck)
	w.running.Go(func() { <-stuck })
	if err := w.Close(); err == nil {
		t.Error("a look that has not ended was not told of")
	}
	r := &boundedReader{strings.NewReader("x"), 1, w.stop}
	if _, err := r.ReadAt(make([]byte, 1), 0); !errors.Is(err, errStopped) {
		t.Errorf("reading after the stop: %v", err)
	}
}

func TestContainersOfProcesses(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	f := func(text, want string) {
		t.Helper()
		if got := containerOf(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	f("0::/docker/"+id+"\n", id)
	f("7:cpu:/docker/"+id+"/made/inside\n0::/\n", id)
	f("0::/system.slice/docker-"+id+".scope\n", id)
	f("0::/kubepods/"+id+"/"+strings.Repeat("f", 64)+"\n", id) // one within the other
	f("0::/user.slice\n", "0::/user.slice\n")
}

// Each way of attaching names requests, keeps to its bounds and takes all probes away.
func TestWaysToAttach(t *testing.T) {
	cert, key := certificate(t)
	peer := filepath.Join(t.TempDir(), "tlspeer")
	execute(t, "go", "build", "-o", peer, "./testdata/tlspeer")
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single=%v", single), func(t *testing.T) {
			p := open(t, Options{TLS: true, SingleUprobes: single})
			if !single && p.tls.uprobes.attachType != ebpf.AttachTraceUprobeMulti {
				t.Skip("this kernel attaches them one by one")
			}
			// What else runs beside the test may have used up their share.
			p.tls.lock.Lock()
			p.tls.uprobes.most += 100
			p.tls.uprobes.container += 100
			p.tls.lock.Unlock()
			port := freePort(t)
			daemon(t, port, peer, "serve", address(port), cert, key)
			p.tls.look()
			execute(t, peer, "ask", address(port), "1")
			expect(t, p, port, map[string]uint64{"GET /users/{}/orders 2xx": 10, "DELETE /fail 5xx": 1})
			p.tls.lock.Lock()
			defer p.tls.lock.Unlock()
			links, probes := 0, 0
			for _, b := range p.tls.binaries {
				links += len(b.links)
				probes += b.probes
			}
			if probes > p.tls.uprobes.most || probes != int(p.tls.probes.Load()) || single && links != probes ||
				!single && links >= probes {
				t.Errorf("%d links for %d probes, %d are told, want %d at most", links, probes, p.tls.probes.Load(),
					p.tls.uprobes.most)
			}
		})
	}
}
