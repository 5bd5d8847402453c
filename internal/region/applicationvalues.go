package region

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"outsight/internal/appmetrics"
	"outsight/internal/model"
)

// ApplicationFigure is a metric that the processes of a container have defined themselves, the sum over all of them.
type ApplicationFigure struct {
	// Container is the index of its container in Dictionary.Containers.
	Container int
	model.ApplicationMetric
}

// Bounds of what is taken from one host, which are those of its agent. What is past them counts in
// Sample.ApplicationsRefused.
const (
	maxContainerApplications = 2000
	maxApplications          = 20000
	// maxFileBytes is how much is read of all files at once.
	maxFileBytes = 64 << 20
)

// applications reads applications' own metrics.
type applications struct {
	// id of the region that lists them.
	id uint32
	// known is the list, nil where it has to be read; of[i][k] are the bytes of value k of its file i.
	known *Applications
	of    [][][]byte
	// reads are those of all values, and after them of the list's generation.
	reads      []Read
	generation [8]byte
	// places are where the metrics of the list are in sums, -1 for those that are refused.
	places  []int
	sums    []ApplicationFigure
	refused int
}

// applicationsOf is nil where a host does not list them.
func applicationsOf(c *Control) *applications {
	for i := range c.Regions {
		if c.Regions[i].Index == IndexApplications {
			return &applications{id: c.Regions[i].ID}
		}
	}
	return nil
}

// readApplications adds applications' own metrics to the sample. Where they cannot be read, the sample says why: the others
// are there all the same, in time, for which these have half of what is left of it.
func (c *Collector) readApplications(ctx context.Context) {
	a := c.applications
	if a == nil {
		return
	}
	if deadline, ok := ctx.Deadline(); ok {
		within, cancel := context.WithDeadline(ctx, time.Now().Add(time.Until(deadline)/2))
		defer cancel()
		ctx = within
	}
	var err error
	for range attempts {
		if err = a.read(ctx, c); err == nil {
			c.sample.HasApplications, c.sample.Applications, c.sample.ApplicationsRefused = true, a.figures(), a.refused
			c.sample.ApplicationsLeftOut = a.known.LeftOut
			return
		}
		a.known = nil
		// A file may have ended, with which the list changes.
		if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrGone) && !errors.Is(err, ErrBounds) || ctx.Err() != nil {
			break
		}
	}
	c.sample.ApplicationsError = fmt.Errorf("reading applications' own metrics: %w", err)
}

// read reads the values, and the list where it has changed. The list is that of the moment when they were read: it says
// what processes had counted that had ended then.
func (a *applications) read(ctx context.Context, c *Collector) (err error) {
	if a.known == nil {
		if a.known, err = ReadApplications(ctx, counting{c}, a.id); err != nil {
			return err
		}
		if err := a.lay(c.dictionary); err != nil {
			return err
		}
		if m := fileMapperOf(c.reader); m != nil {
			if err := m.MapFiles(ctx, a.known.Files); err != nil {
				return err
			}
		}
	} else if fileMapperOf(c.reader) != nil && len(a.known.Files) > 0 {
		// To read a file that has ended since would end a connection by RDMA.
		if err := a.readValues(ctx, c, a.reads[len(a.reads)-1:]); err != nil {
			return err
		}
	}
	return a.readValues(ctx, c, a.reads)
}

// readValues makes the reads, of which the last is that of the list's generation.
func (a *applications) readValues(ctx context.Context, c *Collector, reads []Read) error {
	if err := c.readAll(ctx, reads); err != nil {
		return err
	}
	if now := binary.LittleEndian.Uint64(a.generation[:]); now != a.known.Generation {
		return fmt.Errorf("the list of files: %w", ErrBusy)
	}
	return nil
}

// lay lays out what is read of the list's files, and where it goes.
func (a *applications) lay(d *Dictionary) error {
	a.place(d)
	a.reads, a.of = nil, make([][][]byte, len(a.known.Files))
	sum := 0
	for i := range a.known.Files {
		f := &a.known.Files[i]
		var bytes int
		a.of[i], bytes = a.layFile(f)
		if sum += bytes; sum > maxFileBytes {
			return fmt.Errorf("%w: more than %d bytes of files", ErrDamaged, maxFileBytes)
		}
	}
	a.reads = append(a.reads, Read{Region: a.id, Offset: generationOffset, Into: a.generation[:], After: true})
	return nil
}

// layFile adds the reads of a file: values near each other are one.
func (a *applications) layFile(f *ApplicationFile) (of [][]byte, bytes int) {
	of = make([][]byte, len(f.Values))
	order := make([]int, len(f.Values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(f.Values[x].Offset, f.Values[y].Offset) })
	for begin := 0; begin < len(order); {
		first, end := f.Values[order[begin]].Offset, begin+1
		for end < len(order) && f.Values[order[end]].Offset-f.Values[order[end-1]].Offset <= bridge {
			end++
		}
		b := make([]byte, f.Values[order[end-1]].Offset+8-first)
		bytes += len(b)
		a.reads = append(a.reads, Read{Region: f.ID, Offset: uint64(first), Into: b, Level: true})
		for ; begin < end; begin++ {
			at := f.Values[order[begin]].Offset - first
			of[order[begin]] = b[at : at+8]
		}
	}
	return of, bytes
}

// place gives the metrics of the list their places among sums, and refuses those that are none.
func (a *applications) place(d *Dictionary) {
	containers := make(map[string]int, len(d.Containers))
	for i := range d.Containers {
		containers[d.Containers[i].ID] = i
	}
	type name struct {
		container    string
		name, labels string
	}
	a.places, a.sums, a.refused = make([]int, len(a.known.Metrics)), nil, 0
	known, ofContainer, partly := map[name]bool{}, map[string]int{}, map[int]bool{}
	for i := range a.known.Files {
		for _, v := range a.known.Files[i].Values {
			if !v.Type.Known() {
				partly[v.Metric] = true // its sum would be without this value
			}
		}
	}
	for i := range a.known.Metrics {
		m := &a.known.Metrics[i]
		one := name{m.Container, m.Name, m.Labels}
		a.places[i] = -1
		if known[one] || partly[i] || !appmetrics.IsKey(&m.ApplicationKey) || ofContainer[m.Container] >= maxContainerApplications ||
			len(a.sums) >= maxApplications {
			a.refused++
			continue
		}
		known[one] = true
		ofContainer[m.Container]++
		if at, named := containers[m.Container]; named { // else it is by the next reading
			a.places[i] = len(a.sums)
			a.sums = append(a.sums, ApplicationFigure{at, m.ApplicationMetric})
		}
	}
}

// figures are the sums of what was read.
func (a *applications) figures() []ApplicationFigure {
	all := slices.Clone(a.sums)
	for i := range a.known.Files {
		for k, v := range a.known.Files[i].Values {
			at := a.places[v.Metric]
			if at < 0 {
				continue
			}
			to, raw := &all[at], binary.LittleEndian.Uint64(a.of[i][k])
			if to.Kind == model.Counter {
				to.Count += v.Type.Number(raw)
			} else if level, ok := v.Type.Level(raw); ok {
				to.Level += level
			}
		}
	}
	// A sum of finite numbers may be none.
	return slices.DeleteFunc(all, func(f ApplicationFigure) bool { return f.Unbounded() })
}
