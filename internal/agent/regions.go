package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"outsight/internal/access"
	"outsight/internal/frame"
	"outsight/internal/kernel"
	"outsight/internal/model"
	"outsight/internal/region"
	"outsight/internal/region/shm"
)

// RegionOptions say how the kernel's counters are read from outside, as docs/region.md describes it. The zero value is
// not at all.
type RegionOptions struct {
	// Socket is the path of a unix socket that hands out descriptors of the maps; empty for none.
	Socket string
}

// Flags set the fields.
func (o *RegionOptions) Flags() []access.Flag {
	return []access.Flag{
		{Name: "region-socket", Value: &o.Socket, Help: "path of a unix socket where processes of this host get the kernel's " +
			"counters to read by themselves (\"outsight collect\"); empty for none"},
	}
}

func (o *RegionOptions) on() bool { return o.Socket != "" }

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
	all     []kernel.Region
	memory  []*kernel.RegionMemory
	leftOut atomic.Uint64
}

// openRegions makes the control region and the dictionary, and opens what serves them.
func openRegions(o *HostOptions, h *Host) (*regions, error) {
	r := &regions{host: h, logger: o.Logger}
	if err := r.open(o); err != nil {
		return nil, fmt.Errorf("offering the counters as regions: %w", errors.Join(err, r.close()))
	}
	return r, nil
}

func (r *regions) open(o *HostOptions) error {
	data := r.host.probes.Regions()
	for _, own := range []struct {
		name string
		size int
	}{{"region_control", region.ControlBytes}, {"region_names", region.DictionaryBytes(o.Kernel.MaxCgroups)}} {
		pages, err := kernel.NewPages(own.name, own.size)
		if err != nil {
			return err
		}
		r.all = append(r.all, pages)
		memory, err := pages.Memory(true)
		if err != nil {
			return err
		}
		r.memory = append(r.memory, memory)
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
	m := r.host.Machine
	wall, monotonic, err := clocks()
	if err != nil {
		return err
	}
	if r.writer, err = region.NewWriter(r.memory[region.ControlID].Bytes, r.memory[region.DictionaryID].Bytes,
		region.Control{EpochNS: uint64(o.Epoch.UnixNano()), WallNS: wall, MonotonicNS: monotonic, CPUs: uint32(m.Cores),
			BootID: m.BootID, Host: m.Name, Regions: described, Metrics: metrics}); err != nil {
		return err
	}
	return r.serveSocket(o.Regions.Socket)
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
	s, err := shm.NewServer(l.(*net.UnixListener), ids, files, r.logger)
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
	wall, monotonic, err := clocks()
	if err != nil {
		return err
	}
	leftOut, err := r.writer.Update(n, monotonic, wall)
	r.leftOut.Store(uint64(leftOut))
	return err
}

// clocks are the wall clock and the monotonic one, in ns.
func clocks() (wall, monotonic uint64, err error) {
	var w, m unix.Timespec
	if err := errors.Join(unix.ClockGettime(unix.CLOCK_REALTIME, &w), unix.ClockGettime(unix.CLOCK_MONOTONIC, &m)); err != nil {
		return 0, 0, fmt.Errorf("reading the clocks: %w", err)
	}
	return uint64(w.Nano()), uint64(m.Nano()), nil
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
	all := []model.Drop{{Name: "region/names", Count: r.leftOut.Load()}}
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
		errs = append(errs, m.Close())
	}
	for i, one := range r.all {
		if i < region.FirstDataID { // the others are the probes'
			errs = append(errs, one.Map.Close())
		}
	}
	return errors.Join(errs...)
}
