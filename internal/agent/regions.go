package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"outsight/internal/access"
	"outsight/internal/frame"
	"outsight/internal/kernel"
	responder "outsight/internal/kernel/region"
	"outsight/internal/model"
	"outsight/internal/monotonic"
	"outsight/internal/region"
	"outsight/internal/region/rdma"
	"outsight/internal/region/shm"
	"outsight/internal/region/tcp"
)

// RegionOptions say how the kernel's counters are read from outside, as docs/region.md describes it. The zero value is
// not at all.
type RegionOptions struct {
	// Socket is the path of a unix socket that hands out descriptors of the maps; empty for none.
	Socket string
	// Listen is where regions are read over TCP: a host or the name of an interface, a colon, and a port; empty for
	// nowhere. KeyFile has the keys of readers (region.ParseKeys), without which nobody may read.
	Listen, KeyFile string
	// Allow are the networks from which readers may come (CIDR, with commas between them); empty is all.
	Allow string
	// Hook is where the kernel itself answers packets of readers, on the UDP port beside Listen's, which has to name an
	// interface then: auto, native, generic or tcx; off for nowhere. Empty is auto where Listen names an interface.
	Hook string
	// RDMA is the RDMA device that answers readers who come by Listen; empty is none.
	RDMA string
	// Only is for an agent whose counters are read from outside alone: it wakes up for what the kernel cannot write by
	// itself (see Options.Rarely), keeps no samples and measures no costs.
	Only bool
}

// RegionOnlyHelp explains the flag that sets Only, --region-only.
const RegionOnlyHelp = "run for readers of regions alone: when a container begins or ends, and once a minute; " +
	"where the kernel cannot read memory, throttling and threads of containers by itself also once a second; " +
	"without samples of the last minutes, observation of packets, and measured costs"

// Flags set the fields but Only.
func (o *RegionOptions) Flags() []access.Flag {
	return []access.Flag{
		{Name: "region-socket", Value: &o.Socket, Help: "path of a unix socket where processes of this host get the kernel's " +
			"counters to read by themselves (\"outsight collect\"); empty for none"},
		{Name: "region-listen", Value: &o.Listen, Help: "TCP address where readers with a key get the kernel's counters, as " +
			"HOST:PORT or INTERFACE:PORT; empty for none"},
		{Name: "region-key-file", Value: &o.KeyFile, Help: "file with the keys of readers at --region-listen, each a line of a " +
			"number and 16 bytes or more in hexadecimal digits"},
		{Name: "region-hook", Value: &o.Hook, Help: "where the kernel answers readers' packets by itself, if --region-listen " +
			"names an interface: auto, native, generic, tcx or off (default auto)"},
		{Name: "region-rdma", Value: &o.RDMA, Help: "RDMA device, as in \"rdma link\", that answers readers at " +
			"--region-listen by itself; it needs the program outsight-rdma (empty for none)"},
		{Name: "region-allow", Value: &o.Allow, Help: "networks from which they may read, as in 10.0.0.0/8, with commas " +
			"between them; empty for all"},
	}
}

func (o *RegionOptions) on() bool { return o.Socket != "" || o.Listen != "" }

// hookOff is the Hook of whoever wants no packets to be answered.
const hookOff = "off"

// device is the interface that Listen names; empty where it names a host.
func (o *RegionOptions) device() string {
	name, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return ""
	}
	if _, err := net.InterfaceByName(name); err != nil {
		return ""
	}
	return name
}

// check says what is wrong with the options, before anything is opened.
func (o *RegionOptions) check() (keys []region.Key, allow []netip.Prefix, err error) {
	switch {
	case o.Only && !o.on():
		return nil, nil, errors.New("--region-only needs --region-socket or --region-listen")
	case o.Listen == "" && (o.KeyFile != "" || o.Allow != "" || o.Hook != "" || o.RDMA != ""):
		return nil, nil, errors.New("--region-key-file, --region-allow, --region-hook and --region-rdma need --region-listen")
	case o.Listen == "":
		return nil, nil, nil
	case o.KeyFile == "":
		return nil, nil, errors.New("--region-listen needs --region-key-file")
	}
	if keys, err = ReadRegionKeys(o.KeyFile); err != nil {
		return nil, nil, fmt.Errorf("reading --region-key-file: %w", err)
	}
	if o.Hook != "" && o.Hook != hookOff {
		if _, err := responder.ParseHook(o.Hook); err != nil {
			return nil, nil, fmt.Errorf("--region-hook: %w", err)
		}
		if o.device() == "" {
			return nil, nil, errors.New("--region-hook needs the name of an interface in --region-listen")
		}
	}
	for one := range strings.SplitSeq(o.Allow, ",") {
		if one == "" {
			continue
		}
		p, err := netip.ParsePrefix(one)
		if err != nil {
			return nil, nil, fmt.Errorf("--region-allow: %w", err)
		}
		allow = append(allow, p)
	}
	return keys, allow, nil
}

// ReadRegionKeys reads a file of keys that nobody but its owner and root can have written.
func ReadRegionKeys(path string) ([]region.Key, error) {
	if err := access.CheckSecretFile(path); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	keys, err := region.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	return keys, nil
}

// regionServer is a transport.
type regionServer interface {
	Run(context.Context) error
	Reporter
	Close() error
}

// regions writes the control region and the dictionary, and serves all regions.
type regions struct {
	host    *Host
	logger  *slog.Logger
	writer  *region.Writer
	servers []regionServer
	// all are by their ids; own are those that are this one's to close.
	all, own []kernel.Region
	memory   map[uint32]*kernel.RegionMemory
	leftOut  atomic.Uint64
	// applications lists applications' own metrics.
	applications *regionApplications
}

// openRegions makes the control region and the dictionary, and opens what serves them.
func openRegions(o *HostOptions, h *Host, keys []region.Key, allow []netip.Prefix) (*regions, error) {
	r := &regions{host: h, logger: o.Logger, memory: map[uint32]*kernel.RegionMemory{}}
	if err := r.open(o, keys, allow); err != nil {
		return nil, fmt.Errorf("offering the counters as regions: %w", errors.Join(err, r.close()))
	}
	return r, nil
}

func (r *regions) open(o *HostOptions, keys []region.Key, allow []netip.Prefix) error {
	data := r.host.probes.Regions()
	if err := errors.Join(r.addPages("region_control", region.ControlBytes),
		r.addPages("region_names", region.DictionaryBytes(o.Kernel.MaxCgroups))); err != nil {
		return err
	}
	sources := make([]region.Source, len(data))
	for i, d := range data {
		sources[i] = region.Source{Name: d.Name, Record: d.Record, Records: d.Map.MaxEntries(), Lanes: uint32(d.Lanes)}
	}
	described, metrics, err := region.Describe(sources)
	if err != nil {
		return err
	}
	r.all = append(r.all, data...)
	if described, err = r.addApplications(described); err != nil {
		return err
	}
	m := r.host.Machine
	ns := monotonic.Now()
	if r.writer, err = region.NewWriter(r.memory[region.ControlID].Bytes, r.memory[region.DictionaryID].Bytes,
		region.Control{EpochNS: uint64(o.Epoch.UnixNano()), WallNS: ns + uint64(monotonic.WallAhead()), MonotonicNS: ns,
			CPUs: uint32(m.Cores), BootID: m.BootID, Host: m.Name, Regions: described, Metrics: metrics}); err != nil {
		return err
	}
	if err := r.serveSocket(o.Regions.Socket); err != nil {
		return err
	}
	connector, err := r.serveRDMA(o.Regions.RDMA)
	if err != nil {
		return err
	}
	if err := r.serveTCP(o.Regions.Listen, keys, allow, connector); err != nil {
		return err
	}
	return r.servePackets(&o.Regions, keys, allow)
}

// addPages makes a region that this process writes, with the next id.
func (r *regions) addPages(name string, size int) error {
	pages, err := kernel.NewPages(name, size)
	if err != nil {
		return err
	}
	id := uint32(len(r.all))
	r.all, r.own = append(r.all, pages), append(r.own, pages)
	r.memory[id], err = pages.Memory(true)
	return err
}

// serveTCP answers reads at an address. All regions are mapped for it.
func (r *regions) serveTCP(address string, keys []region.Key, allow []netip.Prefix, other tcp.Connector) error {
	if address == "" {
		return nil
	}
	memory := make(map[uint32][]byte, len(r.all))
	for at, one := range r.all {
		id := uint32(at)
		if r.memory[id] == nil {
			m, err := one.Memory(false)
			if err != nil {
				return err
			}
			r.memory[id] = m
		}
		memory[id] = r.memory[id].Bytes
	}
	at, err := addressOf(address)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return fmt.Errorf("%w for regions: %w", ErrListen, err)
	}
	r.servers = append(r.servers, tcp.NewServer(l, memory, keys, tcp.Options{Allow: allow, Logger: r.logger,
		Connector: other, Files: r.applications.use}))
	return nil
}

// serveRDMA registers all regions with a device; nil without one.
func (r *regions) serveRDMA(device string) (tcp.Connector, error) {
	if device == "" {
		return nil, nil
	}
	var sources []rdma.Source
	for id, one := range r.all {
		f, err := one.Descriptor()
		if err != nil {
			for _, s := range sources {
				err = errors.Join(err, s.File.Close())
			}
			return nil, err
		}
		sources = append(sources, rdma.Source{ID: uint32(id), File: f,
			Bytes: uint64(one.Map.ValueSize()) * uint64(one.Map.MaxEntries())})
	}
	s, err := rdma.NewServer(sources, rdma.Options{Device: device, Restarted: r.applications.restarted, Logger: r.logger})
	if err != nil {
		return nil, fmt.Errorf("--region-rdma: %w", err)
	}
	r.servers = append(r.servers, s)
	r.applications.device = s
	return s, nil
}

// addressOf is HOST:PORT, where the host may be the name of an interface: then its first address that is not of the link
// alone.
func addressOf(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("--region-listen: %w", err)
	}
	i, err := net.InterfaceByName(host)
	if err != nil {
		return address, nil // it is a host
	}
	addresses, err := i.Addrs()
	if err != nil {
		return "", fmt.Errorf("--region-listen: the addresses of %s: %w", host, err)
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			return net.JoinHostPort(p.Addr().String(), port), nil
		}
	}
	return "", fmt.Errorf("--region-listen: the interface %s has no address", host)
}

// serveSocket hands out descriptors at a path.
func (r *regions) serveSocket(path string) error {
	if path == "" {
		return nil
	}
	var files []*os.File
	var ids []uint32
	fail := func(err error) error {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		return err
	}
	for id, one := range r.all {
		f, err := one.ReadOnly()
		if err != nil {
			return fail(err)
		}
		files, ids = append(files, f), append(ids, uint32(id))
	}
	l, err := Listen(path)
	if err != nil {
		return fail(err)
	}
	s, err := shm.NewServer(l.(*net.UnixListener), ids, files, r.applications.file, r.logger)
	if err != nil {
		return fail(errors.Join(err, l.Close()))
	}
	r.servers = append(r.servers, s)
	return nil
}

func (r *regions) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, s := range r.servers {
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				r.logger.Error("the regions are read from outside no more", "error", err)
			}
		})
	}
}

// Consume implements Sink: after each reading it brings the names up to date.
func (r *regions) Consume(context.Context, *frame.Frame) error {
	n := region.Names{Groups: make(map[model.CgroupID]string), TrustedFigures: r.host.files.TrustedFigures()}
	for _, c := range r.host.Containers() {
		one := region.Container{ID: c.ID, Name: c.Name, Image: c.Image, Runtime: c.Runtime, PodName: c.PodName,
			PodNamespace: c.PodNamespace, Workload: c.Workload, Addresses: c.Addresses, Started: c.Started, Figures: region.None}
		if slot, watched := r.host.files.FigureSlot(c.ID); watched {
			one.Figures = slot
		}
		n.Containers = append(n.Containers, one)
	}
	for _, id := range r.host.probes.CountedGroups() {
		if c := r.host.Lookup(id); c != nil {
			n.Groups[id] = c.ID
		}
	}
	ns := monotonic.Now()
	leftOut, err := r.writer.Update(n, ns, ns+uint64(monotonic.WallAhead()))
	r.leftOut.Store(uint64(leftOut))
	r.applications.update()
	return err
}

// Features implements Reporter.
func (r *regions) Features() (all []model.Feature) {
	for _, s := range r.servers {
		all = append(all, s.Features()...)
	}
	return all
}

// Drops implements Reporter.
func (r *regions) Drops() []model.Drop {
	all := []model.Drop{{Name: "region/names", Count: r.leftOut.Load()},
		{Name: "region/applications", Count: r.applications.leftOut.Load()}}
	for _, s := range r.servers {
		all = append(all, s.Drops()...)
	}
	return all
}

func (r *regions) close() error {
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.Close())
	}
	for _, m := range r.memory {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	for _, one := range r.own {
		errs = append(errs, one.Map.Close())
	}
	return errors.Join(errs...)
}
