package net

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/time/rate"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

const (
	// maxTLSBinaries bounds the libraries and programs that are probed at a time, maxContainerBinaries those of one
	// container.
	maxTLSBinaries, maxContainerBinaries = 256, 16
	// maxTLSCalls bounds the calls of TLS libraries at a time, maxTLSConnections the connections of
	// which is known what was read last.
	maxTLSCalls, maxTLSConnections = 4096, 8192
	// tlsInterval is the time between two looks for programs that use TLS.
	tlsInterval = 2 * time.Second
	// tlsPatience is how long opening waits for the first look, and closing for the last: one that takes longer reads
	// from a disk or a server that does not answer.
	tlsPatience = 2 * time.Second
	// tlsReading is how many bytes per second are read of a container's files and mappings in the long run,
	// tlsReadingBurst at a time. tlsReadingLeast is what a small file counts.
	tlsReading, tlsReadingBurst, tlsReadingLeast = 2 << 20, 64 << 20, 256 << 10
)

// errStopped ends a look.
var errStopped = errors.New("the probes are being closed")

// tlsLibrary is a kind of binary that is probed.
type tlsLibrary struct {
	feature model.Feature
	// programs by the name of what they are attached to; the second at its end.
	functions map[string][2]string
}

const tlsRemedy = "kernel 4.17 or later with uprobes (CONFIG_UPROBE_EVENTS)"

var (
	openSSL = tlsLibrary{
		model.Feature{Name: "uprobe/openssl",
			Purpose: "endpoints of TLS connections of programs that use OpenSSL (an option: --tls)", Remedy: tlsRemedy},
		map[string][2]string{
			"SSL_write": {"ssl_write", "ssl_write_end"}, "SSL_write_ex": {"ssl_write_ex", "ssl_write_end"},
			"SSL_read": {"ssl_read", "ssl_read_end"}, "SSL_read_ex": {"ssl_read_ex", "ssl_read_end"},
		},
	}
	goTLS = tlsLibrary{
		model.Feature{Name: "uprobe/go-tls",
			Purpose: "endpoints of TLS connections of Go programs with symbols (an option: --tls)", Remedy: tlsRemedy},
		map[string][2]string{
			"crypto/tls.(*Conn).Write": {"go_write", "go_write_end"}, "crypto/tls.(*Conn).Read": {"go_read", "go_read_end"},
		},
	}
)

// tlsBinary is a library or program that was looked at.
type tlsBinary struct {
	// owner is the container on whose share it is probed.
	owner  *tlsShare
	links  []link.Link
	probes int
	// waiting are the functions for which there was no room.
	waiting []tlsFunction
	// unused counts looks at which no process had it.
	unused int
}

// tlsProcess is what was found of a process.
type tlsProcess struct {
	exe   string
	looks int
	// binaries are those that it had when it was looked into last.
	binaries []binaryID
	share    *tlsShare
	// settled: its program is probed, or never will be. program is nothing if it was not opened.
	settled bool
	program binaryID
}

// tlsShare is what one container takes of what there is for all.
type tlsShare struct {
	binaries, probes int
	reading          *rate.Limiter
	// refused: it maps so much that looking at it, or taking probes away from it, would take long.
	refused bool
}

// tlsWatcher probes the TLS libraries of running programs.
type tlsWatcher struct {
	procfs   string
	logger   *slog.Logger
	programs map[string]*ebpf.Program
	uprobes  uprobes
	stop     chan struct{}
	running  sync.WaitGroup

	// Used now, and what was lost. A reading does not wait for a look, which may take long.
	probed, probes                             atomic.Int64
	noBinary, noProbe, noShare, refused, noMap atomic.Uint64
	putOff                                     atomic.Uint64

	calls, connections *lruTable
	callsMap           *ebpf.Map

	lock      sync.Mutex // guards what follows
	binaries  map[binaryID]*tlsBinary
	processes map[int]*tlsProcess
	shares    map[string]*tlsShare
	// lines is a buffer for the mappings of one process after the other.
	lines *bufio.Reader
}

// prepareTLS sizes the maps that the programs at TLS libraries share with those at sockets.
func (p *Net) prepareTLS(spec *edgesSpecs) error {
	on := p.options.TLS && !p.options.WithoutEndpoints
	if on {
		spec.TlsCalls.MaxEntries, spec.TlsConnections.MaxEntries = maxTLSCalls, maxTLSConnections
	}
	return spec.ReadsTls.Set(on)
}

// openTLS loads the programs at TLS libraries and begins to look for these.
func (p *Net) openTLS(k *host.Kernel, objects *edgeObjects) error {
	libraries := []tlsLibrary{openSSL, goTLS}
	if !p.options.TLS || p.options.WithoutEndpoints {
		for _, l := range libraries {
			p.TellUnasked(l.feature, "--tls")
		}
		return nil
	}
	defer func(before string) { p.Loading = before }(p.Loading)
	p.Loading = "tls"
	spec, shared, err := prepareTLSPrograms(objects)
	if err != nil {
		return fmt.Errorf("BUG: preparing the embedded object: %w", err)
	}
	ways := singleUprobes
	if err := features.HaveBPFLinkUprobeMulti(); err == nil && !p.options.SingleUprobes {
		ways = multiUprobes
	}
	for _, program := range spec.Programs {
		program.AttachType = ways.attachType
	}
	w := &tlsWatcher{uprobes: ways, procfs: p.options.ProcFS, logger: p.Logger, stop: make(chan struct{}),
		programs: make(map[string]*ebpf.Program), shares: make(map[string]*tlsShare),
		binaries: make(map[binaryID]*tlsBinary), processes: make(map[int]*tlsProcess),
		lines: bufio.NewReaderSize(nil, maxMappingLine),
		calls: newLRUTable(objects, edgesLruTableLRU_TLS_CALLS, objects.TlsCalls), callsMap: objects.TlsCalls,
		connections: newLRUTable(objects, edgesLruTableLRU_TLS_CONNECTIONS, objects.TlsConnections)}
	var errs []error
	for _, l := range libraries {
		err := p.loadTLS(k, spec, shared, l, w)
		f := l.feature
		p.AddFeature(host.Hook{Name: f.Name, Purpose: f.Purpose, Remedy: f.Remedy}, err)
		errs = append(errs, err)
	}
	if len(w.programs) > 0 {
		looked := make(chan struct{})
		w.running.Go(func() { w.run(looked) })
		select {
		case <-looked:
		case <-time.After(tlsPatience):
			w.logger.Info("looking for programs that use TLS takes long and goes on meanwhile")
		}
		p.OnClose(w)
		p.tls = w
	}
	return errors.Join(errs...)
}

// prepareTLSPrograms is tls.bpf.c, with the maps that it shares with edges.bpf.c.
func prepareTLSPrograms(objects *edgeObjects) (*ebpf.CollectionSpec, *ebpf.Collection, error) {
	whole, err := loadTls()
	if err != nil {
		return nil, nil, err
	}
	var spec tlsSpecs
	if err := whole.Assign(&spec); err != nil {
		return nil, nil, err
	}
	shared := &ebpf.Collection{Maps: make(map[string]*ebpf.Map)}
	for _, s := range []struct {
		spec *ebpf.MapSpec
		m    *ebpf.Map
	}{{spec.TlsCalls, objects.TlsCalls}, {spec.TlsConnections, objects.TlsConnections},
		{spec.LruEntries, objects.LruEntries}} {
		shared.Maps[s.spec.Name] = s.m
		s.spec.MaxEntries = s.m.MaxEntries()
	}
	return whole, shared, spec.Architecture.Set(architectures[runtime.GOARCH])
}

// loadTLS loads a library's programs, and tries whether they can be attached.
func (p *Net) loadTLS(k *host.Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, l tlsLibrary,
	w *tlsWatcher) error {
	if l.feature.Name == goTLS.feature.Name && runtime.GOARCH != "amd64" {
		return fmt.Errorf("on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	loaded := make(map[string]*ebpf.Program)
	for _, pair := range l.functions {
		for _, name := range pair {
			if loaded[name] != nil {
				continue
			}
			program, err := p.Load(k, spec, maps, host.Hook{Program: name, Name: "uprobe/" + name})
			if err != nil {
				return err
			}
			loaded[name] = program
		}
	}
	for _, program := range loaded {
		if err := w.uprobes.try(program); err != nil {
			return err
		}
		break
	}
	for name, program := range loaded {
		w.programs[name] = program
	}
	return nil
}

// run looks for programs until it is told to stop. The channel is closed after the first look.
func (w *tlsWatcher) run(looked chan<- struct{}) {
	w.look()
	close(looked)
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

func (w *tlsWatcher) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// Close takes all probes away.
func (w *tlsWatcher) Close() error {
	close(w.stop)
	ended := make(chan struct{})
	go func() {
		w.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(tlsPatience):
		return errors.New("a program's file cannot be read to its end: its probes go when this process ends")
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.forget(func(binaryID, *tlsBinary) bool { return true })
}

// forget takes the probes of binaries away.
func (w *tlsWatcher) forget(which func(binaryID, *tlsBinary) bool) error {
	var links []link.Link
	for id, b := range w.binaries {
		if !which(id, b) {
			continue
		}
		links = append(links, b.links...)
		w.free(b)
		delete(w.binaries, id)
	}
	return closeLinks(links)
}

// free gives back what a binary has taken.
func (w *tlsWatcher) free(b *tlsBinary) {
	if b.owner == nil {
		return
	}
	w.probed.Add(-1)
	w.probes.Add(-int64(b.probes))
	b.owner.binaries--
	b.owner.probes -= b.probes
	b.owner, b.links, b.probes = nil, nil, 0
}

// tlsFunction is an offset in a file and the program to run there.
type tlsFunction struct {
	program string
	offset  uint64
	// returns: at the function's end, wherever that is.
	returns bool
}

// findFunctions finds what is to be probed in a file.
type findFunctions func(*boundedReader) ([]tlsFunction, error)

// read finds what is to be probed in a file, on a container's share.
func (w *tlsWatcher) read(share *tlsShare, file *binaryFile, find findFunctions) (found []tlsFunction, err error) {
	if file.id.size > maxTLSFile {
		return nil, tooLarge("its bytes are", uint64(file.id.size), maxTLSFile)
	}
	const most = 2*maxTLSTable + 4*maxTLSHeaders
	r := &boundedReader{file, most, w.stop}
	defer func() { share.read(max(most-r.left, tlsReadingLeast)) }()
	// debug/elf is not made for files of strangers.
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("its tables cannot be read: %v", broken)
		}
	}()
	if found, err = find(r); err != nil {
		return nil, err
	}
	if len(found) > maxBinaryProbes {
		return nil, tooLarge("its functions to probe are", uint64(len(found)), maxBinaryProbes)
	}
	for _, f := range found {
		if w.programs[f.program] == nil {
			return nil, errNoTLS // this kind of library is not to be had here
		}
	}
	return found, nil
}

// probe attaches the programs to a binary, on a container's share.
func (w *tlsWatcher) probe(b *tlsBinary, share *tlsShare, file *binaryFile) error {
	waiting := b.waiting
	b.waiting = nil
	links, err := w.uprobes.attach(file.path(), w.programs, waiting)
	if err != nil {
		return err
	}
	b.owner, b.links, b.probes = share, links, len(waiting)
	w.probed.Add(1)
	w.probes.Add(int64(b.probes))
	share.binaries++
	share.probes += b.probes
	return nil
}

func (w *tlsWatcher) drops() []model.Drop {
	return []model.Drop{
		{Name: "tls_binaries", Count: w.noBinary.Load(), Capacity: maxTLSBinaries, Used: uint64(w.probed.Load())},
		{Name: "tls_binaries_refused", Count: w.refused.Load()},
		{Name: "tls_container_share", Count: w.noShare.Load()},
		{Name: "tls_mappings", Count: w.noMap.Load()},
		{Name: "tls_probes", Count: w.noProbe.Load(), Capacity: uint64(w.uprobes.most), Used: uint64(w.probes.Load())},
		{Name: "tls_reading", Count: w.putOff.Load()},
		w.calls.drop("tls_calls", 0),
		w.connections.drop("tls_connections", 0),
	}
}
