package appmetrics

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// shared is what others read by themselves.
type shared struct {
	// parts by their number; numbered is the last one.
	parts    map[uint32]*part
	numbered uint32
	// leaving are files whose processes have ended, and that others have been told of.
	leaving []*file
	// changed says that what Shared said last is no more.
	changed bool
}

// part is a part of a file: whole pages, in which all of its values lie.
type part struct {
	of         *file
	number     uint32
	from, upTo uint32
}

func (p *part) memory() []byte { return p.of.data[p.from:p.upTo:p.upTo] }

// Share is what others need to read the sums of all containers by themselves: a metric of a container is what Metrics says
// and the values of Files that are of it.
type Share struct {
	Files   []SharedFile
	Metrics []SharedMetric
}

// SharedFile is a part of the file of a process that others may read: whole pages.
type SharedFile struct {
	// Number of the part. It is of no other one, ever: where the values of a file need other pages, these are another part.
	Number uint32
	// Bytes is the size of the part.
	Bytes  uint32
	PID    int
	Group  model.CgroupID
	Values []SharedValue
}

// SharedValue is a value of a process.
type SharedValue struct {
	// Offset in the part.
	Offset uint32
	Type   ValueType
	// Metric is an index of Share.Metrics.
	Metric int
}

// SharedMetric is a metric of a container. Count and Level are what no value of Files says: of processes that have ended.
type SharedMetric struct {
	Container string
	model.ApplicationMetric
}

// Shared is what there is to share, and whether that is another than at the call before. What it names stays until Forget
// is told that it is named no more.
func (c *Collector) Shared() (s Share, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shared.changed {
		return s, false
	}
	c.shared.changed = false
	at := map[*sum]int{}
	for _, container := range slices.Sorted(maps.Keys(c.sums)) {
		for key, v := range c.sums[container].of {
			if key.Kind == model.Gauge && v.users == 0 {
				continue
			}
			s.Metrics = append(s.Metrics, SharedMetric{container, model.ApplicationMetric{ApplicationKey: key, Unit: v.unit,
				Help: v.help, Count: v.ended, Level: v.endedLevel}})
		}
	}
	slices.SortFunc(s.Metrics, func(a, b SharedMetric) int {
		return cmp.Or(strings.Compare(a.Container, b.Container), compareKeys(&a.ApplicationKey, &b.ApplicationKey))
	})
	for i := range s.Metrics {
		at[c.sums[s.Metrics[i].Container].of[s.Metrics[i].ApplicationKey]] = i
	}
	for _, f := range c.files {
		if len(f.metrics) == 0 || !c.partOf(f) {
			continue
		}
		one := SharedFile{Number: f.part.number, Bytes: f.part.upTo - f.part.from, PID: f.pid, Group: f.group}
		for i := range f.metrics {
			if m := &f.metrics[i]; m.at != nil {
				one.Values = append(one.Values, SharedValue{m.value - f.part.from, m.valueType, at[m.at]})
			}
		}
		s.Files = append(s.Files, one)
	}
	slices.SortFunc(s.Files, func(a, b SharedFile) int { return cmp.Compare(a.Number, b.Number) })
	return s, true
}

// partOf finds the part of a file to be shared; false where it has none. mu is held.
func (c *Collector) partOf(f *file) bool {
	if !f.spread {
		return f.part != nil
	}
	f.spread = false
	from, upTo, page := uint32(len(f.data)), uint32(0), uint32(os.Getpagesize())
	for i := range f.metrics {
		if m := &f.metrics[i]; m.at != nil {
			from, upTo = min(from, m.value/page*page), max(upTo, m.value/page*page+page)
		}
	}
	if upTo = min(upTo, uint32(len(f.data))); from >= upTo {
		return f.part != nil
	}
	if f.part != nil && from == f.part.from && upTo == f.part.upTo {
		return true
	}
	// Who reads a page that was not written makes it: those between count as read.
	if err := f.touch(from, upTo-from); err != nil {
		c.drops.unshared++
		f.part = nil
		return false
	}
	c.shared.numbered++
	f.part = &part{f, c.shared.numbered, from, upTo}
	if c.shared.parts == nil {
		c.shared.parts = map[uint32]*part{}
	}
	c.shared.parts[f.part.number] = f.part
	return true
}

// leave closes the file of a process that has ended, at once where nobody else is told of files. mu is held.
func (c *Collector) leave(f *file) {
	if !c.o.Share {
		c.left(f)
		return
	}
	c.shared.changed = true
	c.shared.leaving = append(c.shared.leaving, f)
}

// Forget closes the files of processes that have ended, and forgets parts, but those that others are still told of.
func (c *Collector) Forget(still []SharedFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	named := make(map[uint32]bool, len(still))
	for i := range still {
		named[still[i].Number] = true
	}
	kept := map[*file]bool{}
	maps.DeleteFunc(c.shared.parts, func(number uint32, p *part) bool {
		if named[number] {
			kept[p.of] = true
		}
		return !named[number]
	})
	c.shared.leaving = slices.DeleteFunc(c.shared.leaving, func(f *file) bool {
		if kept[f] {
			return false
		}
		c.left(f)
		return true
	})
}

// Use lets use read the part with a number, which is not to be kept; false where there is no such part any more.
func (c *Collector) Use(number uint32, use func(memory []byte)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.shared.parts[number]
	if p != nil {
		use(p.memory())
	}
	return p != nil
}

// Duplicate is another descriptor of the file with a part of a number, by which it can only be read, with the place of the
// part in it; false where there is no such part any more.
func (c *Collector) Duplicate(number uint32) (opened *os.File, offset, bytes uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.shared.parts[number]
	if p == nil || p.of.opened == nil {
		return nil, 0, 0, false
	}
	fd, err := unix.FcntlInt(p.of.opened.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, 0, 0, false
	}
	return os.NewFile(uintptr(fd), fileName), uint64(p.from), uint64(p.upTo - p.from), true
}
