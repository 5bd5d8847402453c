package appmetrics

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// Options of New. The zero value works.
type Options struct {
	// ProcRoot is where procfs is mounted (default /proc).
	ProcRoot string
	// GroupOf finds the control group of a process, for those that Run finds.
	GroupOf func(pid int) (model.CgroupID, error)
	// Announced says that the kernel tells of new files; without it they are looked for every 10 s.
	Announced bool
	// Bounds: files of a process, of a control group and of the host (default 64, 1024, 8192); metrics of a process, that is
	// of a file, of a container and of the host (default 4096, 2000, 20000).
	ProcessFiles, GroupFiles, Files           int
	FileMetrics, ContainerMetrics, MaxMetrics int
	// GroupPages and Pages bound the pages of files that are read (default 2048 and 8192).
	GroupPages, Pages int
	// Share keeps what others need to read files by themselves: see Shared.
	Share  bool
	Logger *slog.Logger
}

// Scans of /proc: an agent that is told of new files looks for lost ones.
const (
	scanEvery    = 10 * time.Second
	scanRarely   = 5 * time.Minute
	maxScanFiles = 4096
)

// Collector reads the files of all processes.
type Collector struct {
	o Options

	mu sync.Mutex // guards all below
	// files by what they are; those of a process and of a group are counted.
	files     map[fileID]*file
	processes map[int]int
	groups    map[model.CgroupID]int
	// pages are those of all files, groupPages of those of a group.
	pages      int
	groupPages map[model.CgroupID]int
	sums       map[string]*sums
	metrics    int
	// ending are gauges of processes that had ended at the last reading, which still has them.
	ending []*sum
	drops  drops
	shared shared
}

// drops are what was not read, and why.
type drops struct {
	missed, unsealed, pages, layout, versions, files, fileMetrics, containerMetrics, hostMetrics, bad, refused uint64
	unshared                                                                                                   uint64
}

// New makes a Collector that knows of no file.
func New(o Options) *Collector {
	o.ProcRoot = cmp.Or(o.ProcRoot, "/proc")
	o.ProcessFiles, o.GroupFiles, o.Files = cmp.Or(o.ProcessFiles, 64), cmp.Or(o.GroupFiles, 1024), cmp.Or(o.Files, 8192)
	o.FileMetrics = cmp.Or(o.FileMetrics, 4096)
	o.ContainerMetrics, o.MaxMetrics = cmp.Or(o.ContainerMetrics, 2000), cmp.Or(o.MaxMetrics, 20000)
	o.GroupPages, o.Pages = cmp.Or(o.GroupPages, 2048), cmp.Or(o.Pages, 8192)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Collector{o: o, files: map[fileID]*file{}, processes: map[int]int{}, groups: map[model.CgroupID]int{},
		groupPages: map[model.CgroupID]int{},
		sums:       map[string]*sums{}}
}

// Offer maps the file that a process has announced, at once: the process may live for some milliseconds only. Other
// events are passed over.
func (c *Collector) Offer(e model.CgroupEvent) (taken bool) {
	text, ok := strings.CutPrefix(e.Path, model.MetricsFilePrefix)
	if e.Kind != model.MetricsFile || !ok {
		return false
	}
	fd, err := strconv.ParseUint(text, 10, 31)
	return err == nil && c.open(e.PID, int(fd), e.ID)
}

// open tells whether the file is a new one, and read from now on.
func (c *Collector) open(pid, fd int, group model.CgroupID) (taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := func() bool {
		return len(c.files)+len(c.shared.leaving) >= c.o.Files || c.processes[pid] >= c.o.ProcessFiles || c.groups[group] >= c.o.GroupFiles
	}
	if full() {
		c.retireEnded()
	}
	if full() {
		c.drops.files++
		return false
	}
	f, err := openFile(c.o.ProcRoot, pid, fd, c.o.Share, func(pages int) bool { return c.mayTouch(group, pages) })
	if err != nil {
		c.refuse(err)
		return false
	}
	if c.files[f.id] != nil {
		c.release(f, group)
		return false
	}
	f.group = group
	c.files[f.id] = f
	c.processes[pid]++
	c.groups[group]++
	return true
}

// mayTouch takes pages, if there are so many; a negative number gives them back. mu is held.
func (c *Collector) mayTouch(group model.CgroupID, pages int) bool {
	if pages > 0 && (c.pages+pages > c.o.Pages || c.groupPages[group]+pages > c.o.GroupPages) {
		return false
	}
	c.pages += pages
	if c.groupPages[group] += pages; c.groupPages[group] == 0 {
		delete(c.groupPages, group)
	}
	return true
}

// left closes the file of a process that has ended. mu is held.
func (c *Collector) left(f *file) {
	if c.groups[f.group]--; c.groups[f.group] == 0 {
		delete(c.groups, f.group)
	}
	c.release(f, f.group)
}

// release closes a file and gives its pages back. mu is held.
func (c *Collector) release(f *file, group model.CgroupID) {
	c.mayTouch(group, -f.pages())
	f.close()
}

// refuse counts a file that is not read.
func (c *Collector) refuse(err error) {
	switch {
	case errors.Is(err, errPages):
		c.drops.pages++
	case errors.Is(err, errUnsealed):
		c.drops.unsealed++
	case errors.Is(err, errVersion):
		c.drops.versions++
	case errors.Is(err, errLayout), errors.Is(err, errOther):
		c.drops.layout++
	default:
		c.drops.missed++ // it has ended
	}
	c.o.Logger.Debug("a process's own metrics are not read", "error", err)
}

// Read adds what was counted since the last call to the sums of containers. owner is the ID of the container of a control
// group.
func (c *Collector) Read(owner func(model.CgroupID) string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sums {
		for _, v := range s.of {
			v.level = 0
		}
	}
	for _, v := range c.ending {
		v.users--
		v.endedLevel = 0
		c.shared.changed = true
	}
	c.ending = c.ending[:0]
	for _, f := range c.files {
		if f.owner == "" {
			f.owner = owner(f.group)
		}
	}
	c.retireEnded()
	for _, f := range c.files {
		c.count(f)
	}
}

// retireEnded counts for the last time what processes that have ended had counted. mu is held.
func (c *Collector) retireEnded() {
	var ids []fileID
	var polled []unix.PollFd
	for id, f := range c.files {
		if f.owner == "" {
			continue // it waits for the next reading
		}
		ids, polled = append(ids, id), append(polled, unix.PollFd{Fd: int32(f.process), Events: unix.POLLIN})
	}
	if len(ids) == 0 {
		return
	}
	if _, err := unix.Poll(polled, 0); err != nil {
		return // at the next reading
	}
	for i, id := range ids {
		f := c.files[id]
		if polled[i].Revents == 0 && !f.closed() {
			continue
		}
		// Nobody writes any more.
		c.count(f)
		for j := range f.metrics {
			m := &f.metrics[j]
			if m.at == nil {
				continue
			}
			m.at.ended += m.last
			if level, ok := m.level(f.load(m.value)); ok && m.Kind == model.Gauge {
				m.at.endedLevel += level
			}
			c.ending = append(c.ending, m.at)
		}
		delete(c.files, id)
		if c.processes[f.pid]--; c.processes[f.pid] == 0 {
			delete(c.processes, f.pid)
		}
		c.leave(f)
	}
}

// count adds what a file counted since the last time. mu is held.
func (c *Collector) count(f *file) {
	c.describe(f)
	for i := range f.metrics {
		m := &f.metrics[i]
		if m.at == nil {
			continue
		}
		bits := f.load(m.value)
		if m.Kind == model.Gauge {
			if level, ok := m.level(bits); ok {
				m.at.level += level
			}
			continue
		}
		now := m.number(bits)
		if now < m.last { // it began anew
			m.at.ended += m.last
			m.last, c.shared.changed = 0, true
		}
		m.at.count += now - m.last
		m.last = now
	}
}

// describe takes the metrics of a file that are new. mu is held.
func (c *Collector) describe(f *file) {
	if refused := f.refused(); refused > f.refusedSeen {
		c.drops.refused += refused - f.refusedSeen
		f.refusedSeen = refused
	}
	fresh, bad, far := f.fresh(c.o.FileMetrics - int(min(f.read, uint32(c.o.FileMetrics))))
	c.drops.bad += uint64(bad)
	c.drops.pages += uint64(far)
	if more := f.more(); more > 0 {
		f.read += more
		c.drops.fileMetrics += uint64(more)
	}
	for _, d := range fresh {
		f.spread, c.shared.changed = true, true
		f.metrics = append(f.metrics, metric{descriptor: d, at: c.place(f.owner, &d)})
	}
}

// place is where a metric of a container is summed, nil where there is no room. mu is held.
func (c *Collector) place(owner string, d *descriptor) *sum {
	s := c.sums[owner]
	if s == nil {
		s = &sums{of: map[model.ApplicationKey]*sum{}}
		c.sums[owner] = s
	}
	v := s.of[d.ApplicationKey]
	switch {
	case v != nil:
	case len(s.of) >= c.o.ContainerMetrics:
		c.drops.containerMetrics++
		return nil
	case c.metrics >= c.o.MaxMetrics:
		c.drops.hostMetrics++
		return nil
	default:
		v = &sum{unit: d.unit, help: d.help}
		s.of[d.ApplicationKey] = v
		c.metrics++
	}
	v.users++
	return v
}

// Of are the metrics of a container at the last reading, in order of their name and labels.
func (c *Collector) Of(container string) []model.ApplicationMetric {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sums[container].all()
}

// Keep forgets what containers that are gone have counted.
func (c *Collector) Keep(containers []*model.Container) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sums) == 0 {
		return
	}
	keep := make(map[string]bool, len(containers))
	for _, one := range containers {
		keep[one.ID] = true
	}
	for _, f := range c.files {
		keep[f.owner] = true
	}
	for id, s := range c.sums {
		if !keep[id] {
			c.metrics -= len(s.of)
			delete(c.sums, id)
			c.shared.changed = true
		}
	}
}

// Run looks for the files of processes that are older than the agent, and of those that were not announced, until ctx
// ends. Then it closes all files.
func (c *Collector) Run(ctx context.Context) {
	every := scanEvery
	if c.o.Announced {
		every = scanRarely
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		c.Scan(ctx)
		select {
		case <-ctx.Done():
			c.close()
			return
		case <-tick.C:
		}
	}
}

func (c *Collector) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, f := range c.files {
		c.release(f, f.group)
		delete(c.files, id)
	}
	for _, f := range c.shared.leaving {
		c.release(f, f.group)
	}
	c.shared = shared{}
}

// Scan looks for files among the descriptors of all processes.
func (c *Collector) Scan(ctx context.Context) {
	proc, err := os.Open(c.o.ProcRoot)
	if err != nil {
		return
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && ctx.Err() == nil {
			c.scanProcess(pid)
		}
	}
}

func (c *Collector) scanProcess(pid int) {
	directory := filepath.Join(c.o.ProcRoot, strconv.Itoa(pid), "fd")
	opened, err := os.Open(directory)
	if err != nil {
		return // it has ended
	}
	defer opened.Close()
	names, _ := opened.Readdirnames(maxScanFiles)
	for _, name := range names {
		link, err := os.Readlink(filepath.Join(directory, name))
		if err != nil || !strings.HasPrefix(link, fileLink) {
			continue
		}
		fd, err := strconv.Atoi(name)
		if err != nil || c.o.GroupOf == nil {
			continue
		}
		if group, err := c.o.GroupOf(pid); err == nil {
			c.open(pid, fd, group)
		}
	}
}

// Features are none: that new files are known at once is one of the kernel's.
func (c *Collector) Features() []model.Feature { return nil }

// Drops are the bounds, and what was not read.
func (c *Collector) Drops() []model.Drop {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := &c.drops
	return []model.Drop{
		{Name: "applications/files", Count: d.files, Used: uint64(len(c.files)), Capacity: uint64(c.o.Files)},
		{Name: "applications/metrics", Count: d.hostMetrics, Used: uint64(c.metrics), Capacity: uint64(c.o.MaxMetrics)},
		{Name: "applications/container-metrics", Count: d.containerMetrics},
		{Name: "applications/process-metrics", Count: d.fileMetrics + d.refused},
		{Name: "applications/pages", Count: d.pages, Used: uint64(c.pages), Capacity: uint64(c.o.Pages)},
		{Name: "applications/ended-unread", Count: d.missed},
		{Name: "applications/unsealed", Count: d.unsealed},
		{Name: "applications/unknown-versions", Count: d.versions},
		{Name: "applications/malformed", Count: d.layout + d.bad},
		{Name: "applications/unshared", Count: d.unshared},
	}
}
