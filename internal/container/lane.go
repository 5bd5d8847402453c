package container

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"syscall"

	"outsight/internal/model"
)

// Lane reads all numbers of the control group files that a recording shows, under rAdvisor's names
// and some more. It keeps the files open, allocates nothing for a reading, and must not be used by
// two goroutines at a time.
type Lane struct {
	proc    processes
	files   []laneFile
	columns []string
	version int
	groups  map[string]*laneGroup
	buffer  textBuffer
	seed    maphash.Seed
	// open descriptors of maxOpen; a file for which there is none is opened at each reading.
	open, maxOpen int
}

// laneFile is a file with the columns that it gives.
type laneFile struct {
	source
	parse laneParser
	// keys maps what names a number in the file to its column.
	keys map[string]int
	// columns in order, of files whose numbers have no names.
	columns []int
	limit   bool
}

type laneGroup struct {
	cgroup model.CgroupID
	files  []laneText
	// readings of the group so far, and the values of the last one in which its limits were read.
	readings uint64
	limits   []float64
}

// laneText is a group's file, and what it said.
type laneText struct {
	fd      int
	sum     uint64
	backoff backoff
}

// laneParser puts a file's numbers into values; those that it does not have stay as they are.
type laneParser func(f *laneFile, text []byte, values []float64) error

// NewLane makes a Lane for the hierarchies of l.
func NewLane(l Layout, o Options) *Lane {
	o = o.withDefaults()
	r := &Lane{proc: newProcesses(o.ProcRoot, l.Subsystem), groups: make(map[string]*laneGroup),
		buffer: make(textBuffer, 16<<10), seed: maphash.MakeSeed(), maxOpen: openLimit(), version: 2}
	if l.v1["memory"] != "" || l.v1["cpuacct"] != "" {
		r.version = 1
	}
	for _, f := range laneFilesOf(r.version) {
		s := source{names: f.names, controller: f.controller}
		switch {
		case f.unified && noPressure(&l, o.ProcRoot) != "":
			continue
		case r.version == 1 && !f.unified:
			s.mount = l.v1[f.controller]
		default:
			// cpu.stat is there without the controller, too.
			s.mount, s.v2 = l.unified, true
		}
		if s.mount == "" {
			continue
		}
		r.files = append(r.files, r.fileOf(s, f))
	}
	return r
}

func (r *Lane) fileOf(s source, f laneSpec) laneFile {
	file := laneFile{source: s, parse: f.parse, keys: make(map[string]int), limit: f.limit}
	begin := len(r.columns)
	add := func(name string) int {
		// A number may have had another name in older kernels.
		if at := slices.Index(r.columns[begin:], name); at >= 0 {
			return begin + at
		}
		r.columns = append(r.columns, name)
		return len(r.columns) - 1
	}
	for _, n := range f.numbers {
		if n.column != perCPUUsage {
			at := add(n.column)
			file.keys[n.key] = at
			file.columns = append(file.columns, at)
			continue
		}
		for cpu := range possibleCPUs(s) {
			file.columns = append(file.columns, add(perCPUUsage+"/"+strconv.Itoa(cpu)))
		}
	}
	return file
}

// possibleCPUs is how many numbers the root's file of CPU times has.
func possibleCPUs(s source) int {
	text, err := readLimited(s.mount+"/"+s.names[0], procLimit)
	if err != nil {
		return 0
	}
	return len(bytes.Fields(text))
}

// Columns are the names of the values, in their order.
func (r *Lane) Columns() []string { return r.columns }

// Version of the control groups that the files are of: 1 or 2.
func (r *Lane) Version() int { return r.version }

// Read reads a container's files into values, which has one for each column: NaN where there is
// none, +Inf where there is no limit. Limits are read again with every limitEvery-th
// reading, and unless all files are wanted, one that has said the same for long is left out for two of three
// readings: then its values are NaN. A group that has vanished is no error.
func (r *Lane) Read(c *model.Container, values []float64, all bool) error {
	for i := range values {
		values[i] = math.NaN()
	}
	if c.ID == model.HostContainerID {
		return nil
	}
	g := r.groups[c.ID]
	if g == nil || g.cgroup != c.Cgroup {
		r.Forget(c.ID)
		g = &laneGroup{cgroup: c.Cgroup, files: make([]laneText, len(r.files)), limits: make([]float64, len(values))}
		for i := range g.files {
			g.files[i].fd = notOpened
		}
		r.groups[c.ID] = g
	}
	fresh := g.readings%limitEvery == 0
	turn := g.readings + uint64(c.Cgroup)
	g.readings++
	var errs []error
	for i := range r.files {
		f, t := &r.files[i], &g.files[i]
		if f.limit && !fresh {
			for _, column := range f.columns {
				values[column] = g.limits[column]
			}
			continue
		}
		if t.fd == failed && !fresh || !all && !f.limit && t.backoff.skips(turn, 0) {
			continue
		}
		text, err := r.text(c, t, f)
		if err == nil {
			t.note(maphash.Bytes(r.seed, text))
			err = f.parse(f, text, values)
		} else {
			t.backoff = 0
		}
		// Pressure may be switched off for one group.
		if err != nil && !gone(err) && !errors.Is(err, errAbsent) && !errors.Is(err, syscall.EOPNOTSUPP) {
			errs = append(errs, fmt.Errorf("reading %s of %q: %w", f.names[0], c.CgroupPath, err))
		}
	}
	if fresh {
		copy(g.limits, values)
	}
	return errors.Join(errs...)
}

// note takes note of a reading by the sum of its text.
func (t *laneText) note(sum uint64) {
	t.backoff.note(sum == t.sum)
	t.sum = sum
}

func (r *Lane) text(c *model.Container, t *laneText, f *laneFile) ([]byte, error) {
	name := f.names[0]
	switch {
	case t.fd == absent:
		return nil, errAbsent
	case t.fd >= 0:
		return r.buffer.read(t.fd, name)
	}
	fd, err := f.source.open(r.proc, c)
	if err != nil {
		if t.fd = failed; errors.Is(err, errAbsent) {
			t.fd = absent
		}
		return nil, err
	}
	if r.open < r.maxOpen {
		t.fd = fd
		r.open++
	} else {
		defer syscall.Close(fd)
	}
	return r.buffer.read(fd, name)
}

// Forget closes a container's files.
func (r *Lane) Forget(id string) {
	g := r.groups[id]
	if g == nil {
		return
	}
	for _, t := range g.files {
		if t.fd >= 0 {
			syscall.Close(t.fd) // was opened for reading: nothing can be lost
			r.open--
		}
	}
	delete(r.groups, id)
}

// Close closes all files.
func (r *Lane) Close() {
	for id := range r.groups {
		r.Forget(id)
	}
}

// parseLaneNumber reads a number, or "max" for none.
func parseLaneNumber(text []byte) (float64, error) {
	if string(text) == "max" || string(text) == "-1" {
		return math.Inf(1), nil
	}
	n, err := parseUint(text)
	return float64(n), err
}

// laneNumber reads a file of one number.
func laneNumber(f *laneFile, text []byte, values []float64) error {
	l, err := newLines(text)
	if err != nil {
		return err
	}
	line, _ := l.next()
	values[f.columns[0]], err = parseLaneNumber(line)
	return err
}

// laneWords reads a file whose one line has a number for each column.
func laneWords(f *laneFile, text []byte, values []float64) error {
	l, err := newLines(text)
	if err != nil {
		return err
	}
	rest, _ := l.next()
	for _, column := range f.columns {
		var first []byte
		if first, rest = word(rest); len(first) == 0 {
			return nil
		}
		if values[column], err = parseLaneNumber(first); err != nil {
			return err
		}
	}
	return nil
}

// lanePerCPU reads a number for each CPU, and their sum, which is the last column.
func lanePerCPU(f *laneFile, text []byte, values []float64) error {
	if err := laneWords(f, text, values); err != nil {
		return err
	}
	total, last := 0.0, len(f.columns)-1
	for _, column := range f.columns[:last] {
		total += values[column]
	}
	values[f.columns[last]] = total
	return nil
}

// laneKeys reads a file with a name and a number in each line.
func laneKeys(f *laneFile, text []byte, values []float64) error {
	l, err := newLines(text)
	if err != nil {
		return err
	}
	for line, ok := l.next(); ok; line, ok = l.next() {
		key, rest := word(line)
		column, wanted := f.keys[string(key)]
		if !wanted {
			continue
		}
		n, err := parseUint(rest)
		if err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
		values[column] = float64(n)
	}
	return nil
}

// laneDevices sums a v1 file with "major:minor Operation number" or "major:minor number" in each
// line over the devices; the key of the latter is "".
func laneDevices(f *laneFile, text []byte, values []float64) error {
	if len(text) == 0 {
		return nil
	}
	l, err := newLines(text)
	if err != nil {
		return err
	}
	for line, ok := l.next(); ok; line, ok = l.next() {
		device, rest := word(line)
		if bytes.IndexByte(device, ':') < 0 {
			continue // the sum over all devices
		}
		key, number := word(rest)
		if len(number) == 0 {
			key, number = nil, key
		}
		if err := addTo(f, values, key, number); err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
	}
	return nil
}

// laneIOStat sums the lines of a v2 io.stat, one for each device.
func laneIOStat(f *laneFile, text []byte, values []float64) error {
	if len(text) == 0 {
		return nil // no device was used yet
	}
	l, err := newLines(text)
	if err != nil {
		return err
	}
	for line, ok := l.next(); ok; line, ok = l.next() {
		_, rest := word(line)
		for len(rest) > 0 {
			var pair []byte
			pair, rest = word(rest)
			at := bytes.IndexByte(pair, '=')
			if at < 0 {
				continue
			}
			if err := addTo(f, values, pair[:at], pair[at+1:]); err != nil {
				return fmt.Errorf("line %q: %w", line, err)
			}
		}
	}
	return nil
}

func addTo(f *laneFile, values []float64, key, number []byte) error {
	column, wanted := f.keys[string(key)]
	if !wanted {
		return nil
	}
	n, err := parseUint(number)
	if err != nil {
		return err
	}
	if math.IsNaN(values[column]) {
		values[column] = 0
	}
	values[column] += float64(n)
	return nil
}

var fullPressure = []byte("\nfull ")

// lanePressure reads a pressure file: for how long some, and all, threads waited.
func lanePressure(f *laneFile, text []byte, values []float64) error {
	p, err := parsePressure(text)
	if err != nil {
		return err
	}
	values[f.columns[0]] = float64(p.WaitingNS)
	if bytes.Contains(text, fullPressure) {
		values[f.columns[1]] = float64(p.StalledNS)
	}
	return nil
}

// laneQuota reads a v2 cpu.max: quota and period in microseconds.
func laneQuota(f *laneFile, text []byte, values []float64) error {
	if err := laneWords(f, text, values); err != nil {
		return err
	}
	for _, column := range f.columns {
		values[column] *= 1000
	}
	return nil
}
