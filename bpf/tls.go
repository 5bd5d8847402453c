package bpf

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"outsight/internal/model"
)

const (
	// maxTLSBinaries bounds the libraries and programs that are probed at a time.
	maxTLSBinaries = 64
	// maxTLSCalls bounds the calls of TLS libraries at a time, maxTLSConnections the connections of
	// which is known what was read last.
	maxTLSCalls, maxTLSConnections = 4096, 8192
	// tlsInterval is the time between two looks for programs that use TLS.
	tlsInterval = 2 * time.Second
)

// tlsLibrary is a kind of binary that is probed.
type tlsLibrary struct {
	feature model.Feature
	// programs by the name of what they are attached to; the second at its end.
	functions map[string][2]string
}

const tlsRemedy = "kernel 4.17 or later with uprobes (CONFIG_UPROBE_EVENTS)"

var (
	openSSL = tlsLibrary{
		model.Feature{Name: "uprobe/openssl", Purpose: "endpoints of TLS connections of programs that use OpenSSL (an option: --tls)", Remedy: tlsRemedy},
		map[string][2]string{
			"SSL_write": {"ssl_write", "ssl_write_end"}, "SSL_write_ex": {"ssl_write_ex", "ssl_write_end"},
			"SSL_read": {"ssl_read", "ssl_read_end"}, "SSL_read_ex": {"ssl_read_ex", "ssl_read_end"},
		},
	}
	goTLS = tlsLibrary{
		model.Feature{Name: "uprobe/go-tls", Purpose: "endpoints of TLS connections of Go programs with symbols (an option: --tls)", Remedy: tlsRemedy},
		map[string][2]string{
			"crypto/tls.(*Conn).Write": {"go_write", "go_write_end"}, "crypto/tls.(*Conn).Read": {"go_read", "go_read_end"},
		},
	}
)

// binaryID tells binaries apart. The device is no part of it: one layer of a container image has
// another one in each container, and would be probed once for each.
type binaryID struct {
	inode    uint64
	size     int64
	modified int64
}

// tlsBinary is a library or program that was looked at.
type tlsBinary struct {
	links []link.Link
	// unused counts looks at which no process had it.
	unused int
}

// tlsProcess is what was found of a process.
type tlsProcess struct {
	exe      string
	looks    int
	binaries []binaryID
}

// tlsWatcher probes the TLS libraries of running programs.
type tlsWatcher struct {
	procfs   string
	logger   *slog.Logger
	programs map[string]*ebpf.Program
	stop     chan struct{}
	running  sync.WaitGroup

	// probed binaries now; those for which there was no room, and that could not be probed. A reading
	// does not wait for a look, which may take long.
	probed           atomic.Int64
	dropped, refused atomic.Uint64

	calls, connections *lruTable
	callsMap           *ebpf.Map

	lock      sync.Mutex // guards what follows
	binaries  map[binaryID]*tlsBinary
	processes map[int]*tlsProcess
}

// prepareTLS sizes the maps that the programs at TLS libraries share with those at sockets.
func (p *Probes) prepareTLS(spec *ebpf.CollectionSpec) error {
	on := p.options.TLS && !p.options.WithoutEndpoints
	if on {
		spec.Maps["tls_calls"].MaxEntries, spec.Maps["tls_connections"].MaxEntries = maxTLSCalls, maxTLSConnections
	}
	return spec.Variables["reads_tls"].Set(on)
}

// openTLS loads the programs at TLS libraries and begins to look for these.
func (p *Probes) openTLS(k *kernel, maps *ebpf.Collection) error {
	libraries := []tlsLibrary{openSSL, goTLS}
	if !p.options.TLS || p.options.WithoutEndpoints {
		for _, l := range libraries {
			f := l.feature
			f.State, f.Reason, f.Remedy = model.FeatureOff, "it was not asked for", "start the agent with --tls"
			p.features = append(p.features, f)
		}
		return nil
	}
	defer func(before string) { p.loading = before }(p.loading)
	p.loading = "tls"
	spec, err := loadTls()
	if err != nil {
		return fmt.Errorf("BUG: reading the embedded object: %w", err)
	}
	if err := spec.Variables["machine"].Set(machines[runtime.GOARCH]); err != nil {
		return fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	shared := &ebpf.Collection{Maps: make(map[string]*ebpf.Map)}
	for _, name := range []string{"tls_calls", "tls_connections", "lru_entries"} {
		shared.Maps[name] = maps.Maps[name]
		spec.Maps[name].MaxEntries = maps.Maps[name].MaxEntries()
	}
	w := &tlsWatcher{procfs: p.options.ProcFS, logger: p.options.Logger, programs: make(map[string]*ebpf.Program), stop: make(chan struct{}),
		binaries: make(map[binaryID]*tlsBinary), processes: make(map[int]*tlsProcess),
		calls: newLRUTable(maps, "tls_calls", lruTLSCalls), connections: newLRUTable(maps, "tls_connections", lruTLSConnections), callsMap: maps.Maps["tls_calls"]}
	var errs []error
	for _, l := range libraries {
		err := p.loadTLS(k, spec, shared, l, w)
		f := l.feature
		p.addFeature(hook{name: f.Name, purpose: f.Purpose, remedy: f.Remedy}, err)
		errs = append(errs, err)
	}
	if len(w.programs) > 0 {
		w.look()
		w.running.Go(w.run)
		p.onClose(w)
		p.tls = w
	}
	return errors.Join(errs...)
}

// loadTLS loads a library's programs, and tries whether they can be attached.
func (p *Probes) loadTLS(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, l tlsLibrary, w *tlsWatcher) error {
	if l.feature.Name == goTLS.feature.Name && runtime.GOARCH != "amd64" {
		return fmt.Errorf("on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	loaded := make(map[string]*ebpf.Program)
	for _, pair := range l.functions {
		for _, name := range pair {
			if loaded[name] != nil {
				continue
			}
			program, err := p.load(k, spec, maps, hook{program: name, name: "uprobe/" + name})
			if err != nil {
				return err
			}
			loaded[name] = program
		}
	}
	for _, program := range loaded {
		if err := tryUprobe(program); err != nil {
			return err
		}
		break
	}
	for name, program := range loaded {
		w.programs[name] = program
	}
	return nil
}

// tryUprobe attaches to where this process began, which nobody comes to again.
func tryUprobe(program *ebpf.Program) error {
	const self = "/proc/self/exe"
	f, err := elf.Open(self)
	if err != nil {
		return err
	}
	defer f.Close()
	offset, ok := fileOffset(f, f.Entry)
	if !ok {
		return errors.New("BUG: this program begins outside of itself")
	}
	executable, err := link.OpenExecutable(self)
	if err != nil {
		return err
	}
	l, err := executable.Uprobe("", program, &link.UprobeOptions{Address: offset})
	if err != nil {
		return err
	}
	return l.Close()
}

func fileOffset(f *elf.File, address uint64) (uint64, bool) {
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 && address >= s.Vaddr && address < s.Vaddr+s.Filesz {
			return address - s.Vaddr + s.Off, true
		}
	}
	return 0, false
}

func (w *tlsWatcher) run() {
	ticker := time.NewTicker(tlsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
			w.look()
		}
	}
}

// Close takes all probes away.
func (w *tlsWatcher) Close() error {
	close(w.stop)
	w.running.Wait()
	w.lock.Lock()
	defer w.lock.Unlock()
	var errs []error
	for _, b := range w.binaries {
		errs = append(errs, b.close())
	}
	clear(w.binaries)
	return errors.Join(errs...)
}

func (b *tlsBinary) close() error {
	var errs []error
	for _, l := range b.links {
		errs = append(errs, l.Close())
	}
	b.links = nil
	return errors.Join(errs...)
}

// look looks at processes that are new, or may have loaded more since, and gives up binaries that no
// process has any more.
func (w *tlsWatcher) look() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.lookAtTables()
	entries, err := os.ReadDir(w.procfs)
	if err != nil {
		w.logger.Warn("looking for programs that use TLS failed", "error", err)
		return
	}
	alive, used := make(map[int]bool), make(map[binaryID]bool)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		process := w.lookAt(pid)
		if process == nil {
			continue
		}
		alive[pid] = true
		for _, id := range process.binaries {
			used[id] = true
		}
	}
	for pid := range w.processes {
		if !alive[pid] {
			delete(w.processes, pid)
		}
	}
	for id, b := range w.binaries {
		if b.unused++; used[id] {
			b.unused = 0
		}
		if b.unused < 2 {
			continue
		}
		if len(b.links) > 0 {
			w.probed.Add(-1)
		}
		if err := b.close(); err != nil {
			w.logger.Warn("taking a probe away failed", "error", err)
		}
		delete(w.binaries, id)
	}
}

// lookAtTables counts what gave way. Calls come and go, so they are counted; connections stay until they give way.
func (w *tlsWatcher) lookAtTables() {
	w.connections.lookAtFull()
	made, found := w.calls.made(), uint64(0)
	keys, values := make([]tlsTlsCallKey, 512), make([]tlsTlsCall, 512)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := w.callsMap.BatchLookup(&cursor, keys, values, nil)
		found += uint64(n)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			w.calls.look(made, found)
			return
		}
		if err != nil {
			w.logger.Warn("counting the calls of TLS libraries failed", "error", err)
			return
		}
	}
}

// lookAt is what is known of a process, nil for one without memory of its own.
func (w *tlsWatcher) lookAt(pid int) *tlsProcess {
	dir := filepath.Join(w.procfs, strconv.Itoa(pid))
	exe, err := os.Readlink(dir + "/exe")
	if err != nil {
		return nil
	}
	process := w.processes[pid]
	if process == nil || process.exe != exe {
		process = &tlsProcess{exe: exe}
		w.processes[pid] = process
	}
	process.looks++
	// Libraries may be loaded late, but seldom are.
	if process.looks&(process.looks-1) != 0 && process.looks%16 != 0 {
		return process
	}
	if process.looks == 1 {
		w.consider(process, dir+"/exe", exe, goFunctions)
	}
	maps, err := os.ReadFile(dir + "/maps")
	if err != nil {
		return process
	}
	for _, library := range mappedOpenSSL(string(maps)) {
		w.consider(process, dir+"/root"+library, library, openSSLFunctions)
	}
	return process
}

// mappedOpenSSL lists the files called libssl.so that a process executes.
func mappedOpenSSL(maps string) []string {
	var found []string
	for line := range strings.Lines(maps) {
		if !strings.Contains(line, "/libssl.so") {
			continue
		}
		// Address, permissions, offset, device, inode and path.
		fields := strings.Fields(line)
		if len(fields) == 6 && len(fields[1]) == 4 && fields[1][2] == 'x' && strings.HasPrefix(filepath.Base(fields[5]), "libssl.so") &&
			!slices.Contains(found, fields[5]) {
			found = append(found, fields[5])
		}
	}
	return found
}

// errNoTLS says that a binary has nothing to be probed.
var errNoTLS = errors.New("it does not use TLS")

// errTLSTooLarge says that a binary is not read because of its size.
var errTLSTooLarge = errors.New("it is too large")

// consider probes a binary of a process if it is not probed yet.
func (w *tlsWatcher) consider(process *tlsProcess, path, name string, functions func(string) ([]tlsFunction, error)) {
	// Opened once, and without waiting: what the name leads to is in other people's hands.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return
	}
	path = fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	id, err := identify(path)
	if err != nil {
		return
	}
	b := w.binaries[id]
	if b == nil {
		if w.probed.Load() >= maxTLSBinaries {
			w.dropped.Add(1)
			return
		}
		b = &tlsBinary{}
		w.binaries[id] = b
		if err := w.probe(b, path, functions); err != nil && !errors.Is(err, errNoTLS) {
			w.refused.Add(1)
			w.logger.Info("encrypted requests of a program cannot be read", "binary", name, "error", errors.Join(err, b.close()))
		}
		if len(b.links) > 0 {
			w.probed.Add(1)
		}
	}
	if !slices.Contains(process.binaries, id) {
		process.binaries = append(process.binaries, id)
	}
}

// tlsFunction is a place in a file and the program to run there.
type tlsFunction struct {
	program string
	offset  uint64
	// returns: at the function's end, wherever that is.
	returns bool
}

func (w *tlsWatcher) probe(b *tlsBinary, path string, functions func(string) ([]tlsFunction, error)) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() > maxTLSFile {
		return fmt.Errorf("%w: it has %d bytes, want %d at most", errTLSTooLarge, info.Size(), maxTLSFile)
	}
	all, err := functions(path)
	if err != nil {
		return err
	}
	executable, err := link.OpenExecutable(path)
	if err != nil {
		return err
	}
	// Ends before beginnings: else what a call leaves might stay.
	slices.SortStableFunc(all, func(a, b tlsFunction) int {
		return cmp.Compare(strings.Count(b.program, "_end"), strings.Count(a.program, "_end"))
	})
	for _, f := range all {
		program := w.programs[f.program]
		if program == nil {
			return errNoTLS // this kind of library is not to be had here
		}
		attach := executable.Uprobe
		if f.returns {
			attach = executable.Uretprobe
		}
		l, err := attach("", program, &link.UprobeOptions{Address: f.offset})
		if err != nil {
			return fmt.Errorf("attaching %s: %w", f.program, err)
		}
		b.links = append(b.links, l)
	}
	return nil
}

func (w *tlsWatcher) drops() []model.Drop {
	return []model.Drop{
		{Name: "tls_binaries", Count: w.dropped.Load(), Capacity: maxTLSBinaries, Used: uint64(w.probed.Load())},
		{Name: "tls_binaries_refused", Count: w.refused.Load()},
		w.calls.drop("tls_calls", 0),
		w.connections.drop("tls_connections", 0),
	}
}
