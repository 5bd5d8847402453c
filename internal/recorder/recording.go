package recorder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/csvy"
	"outsight/internal/model"
	"outsight/internal/monotonic"
)

// Writer writes the rows of one container.
type Writer interface {
	// Row appends one sample; values are in the order of the head's columns.
	Row(at time.Time, values []float64) error
	// Lost counts ticks that could not be recorded.
	Lost(ticks uint64) error
	Close() error
}

// Files reads what the control group files say. It is for one goroutine.
type Files interface {
	Columns() []string
	// Version of the control groups: 1 or 2.
	Version() int
	// Read reads a container's numbers, one for each column. Unless all are wanted, those that have
	// been the same for long may be left out, which is NaN.
	Read(c *model.Container, values []float64, all bool) error
	Forget(id string)
}

// Options of a Recording.
type Options struct {
	// Wanted says which containers are recorded; nil is all, the host included.
	Wanted func(*model.Container) bool
	// Create begins a container's file.
	Create func(csvy.Head) (Writer, error)
	// FileInterval is the time between two readings of the files (default 1 s, and not less than
	// the ticks' interval).
	FileInterval time.Duration
	// HoldFiles repeats the last reading of the files in the rows up to the next one. Otherwise
	// these have no values from files.
	HoldFiles bool
	// Host and Version go into the heads.
	Host    csvy.Host
	Version string
}

// Progress of a recording.
type Progress struct {
	Containers, Ticks, Rows, Lost uint64
	// Lateness of the ticks in nanoseconds: the sum and the worst. CostNS is the sum of what the
	// ticks took in the kernel.
	LatenessNS, WorstLatenessNS, CostNS uint64
}

// Recording writes the ticks of all containers.
type Recording struct {
	ticks   Ticks
	files   Files
	o       Options
	sums    *sums
	columns []csvy.Column
	// kernel is how many of the columns are of the kernel lane.
	kernel int
	// next is the number of the tick that is to come.
	next      uint64
	progress  Progress
	published atomic.Pointer[Progress]
	// filesErr is the first error of reading files; it ends nothing.
	filesErr error
}

// row is what is kept for the rows of a container.
type row struct {
	writer Writer
	values []float64
	// lane are readings of the files that no tick had yet, of which used are in use.
	lane []reading
	used int
	// filled is true while values has a reading of the files.
	filled bool
}

// reading is one of the files, at a time of the monotonic clock.
type reading struct {
	ns     uint64
	values []float64
}

var kernelColumns = []string{csvy.Tick, csvy.DueNS, csvy.LatenessNS, csvy.TickCostNS, csvy.CPUNS, csvy.Running,
	csvy.RunQueueNS,
	"run_queue_waits", "voluntary_switches", "involuntary_switches", csvy.SentBytes, csvy.ReceivedBytes,
	csvy.RequestsAsking, csvy.RequestsServing, csvy.MemoryBytes, csvy.ThrottledNS, "throttled_periods", "minor_faults",
	csvy.MajorFaults,
	csvy.DiskReadBytes, csvy.DiskWriteBytes, "disk_reads", "disk_writes", csvy.DiskTimeNS}

// tickColumns are those of a tick, which come first.
const tickColumns = 4

// tickValues are those of a tick, whatever the container.
func tickValues(values []float64, tick *model.Tick) {
	for i, v := range [tickColumns]uint64{tick.Number, tick.DueNS, tick.BeganNS - tick.DueNS, tick.CostNS} {
		values[i] = float64(v)
	}
}

// kernelValues are those of a tick and a container in the order of kernelColumns.
func kernelValues(values []float64, tick *model.Tick, s *model.TickSample) {
	tickValues(values, tick)
	for i, v := range [...]uint64{s.CPUNS, uint64(s.Running),
		s.RunQueueNS, s.Waits, s.Voluntary, s.Involuntary, s.SentBytes, s.ReceivedBytes, uint64(s.Asking), uint64(s.Serving),
		s.MemoryBytes, s.ThrottledNS, s.ThrottledPeriods, s.MinorFaults, s.MajorFaults,
		s.DiskReadBytes, s.DiskWriteBytes, s.DiskReads, s.DiskWrites, s.DiskNS} {
		values[tickColumns+i] = float64(v)
	}
	if !s.HasMemory {
		values[14] = math.NaN()
	}
	if !s.HasThrottled {
		values[15], values[16] = math.NaN(), math.NaN()
	}
	if !s.HasDisk {
		for i := 19; i < 24; i++ {
			values[i] = math.NaN()
		}
	}
}

// New makes a recording of what ticks sample from now on.
func New(ticks Ticks, containers Containers, files Files, o Options) *Recording {
	if o.FileInterval <= 0 {
		o.FileInterval = time.Second
	}
	o.FileInterval = max(o.FileInterval, ticks.Interval())
	r := &Recording{ticks: ticks, files: files, o: o, kernel: len(kernelColumns)}
	for _, name := range kernelColumns {
		r.columns = append(r.columns, csvy.ColumnNamed(name))
	}
	for _, name := range files.Columns() {
		c := csvy.ColumnNamed(name)
		c.Source = csvy.FromFile
		r.columns = append(r.columns, c)
	}
	r.sums = newSums(containers, o.Wanted, ticks.Ignore, now())
	r.published.Store(&Progress{})
	return r
}

// now is this moment by both clocks.
func now() clock {
	ns := monotonic.Now()
	return clock{wall: monotonic.Wall(ns), monotonic: ns}
}

// threadTime is the CPU time of the calling thread in ns.
func threadTime() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic("BUG: no clock of a thread's CPU time: " + err.Error())
	}
	return uint64(t.Nano())
}

// Progress may be called by anybody.
func (r *Recording) Progress() Progress { return *r.published.Load() }

// Run records until ctx ends or a file cannot be written any more, and closes all files.
func (r *Recording) Run(ctx context.Context) error {
	err := r.run(ctx)
	if err == nil {
		err = r.drain() // what was made up to the end
	}
	return errors.Join(err, r.close())
}

func (r *Recording) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	begun := time.Now()
	nextFiles, nextDrain := begun, begun
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		now := time.Now()
		if !now.Before(nextFiles) {
			r.readFiles()
			nextFiles = following(begun, now, r.o.FileInterval)
		}
		if !now.Before(nextDrain) {
			if err := r.drain(); err != nil {
				return err
			}
			nextDrain = following(begun, now, DrainEvery(r.ticks.Interval()))
		}
		next := nextFiles
		if nextDrain.Before(next) {
			next = nextDrain
		}
		timer.Reset(time.Until(next))
	}
}

// following is the first whole interval since begun that is after now.
func following(begun, now time.Time, interval time.Duration) time.Time {
	return begun.Add((now.Sub(begun)/interval + 1) * interval)
}

// maxReadings bounds the readings that wait for a tick.
const maxReadings = 1024

// readFiles reads the files of all containers.
func (r *Recording) readFiles() {
	for _, t := range r.sums.list {
		if t.container.ID == model.HostContainerID || !t.ended.IsZero() {
			continue
		}
		w := t.rows(len(r.columns))
		if w.used == maxReadings {
			continue
		}
		if w.used == len(w.lane) {
			w.lane = append(w.lane, reading{values: make([]float64, len(r.columns)-r.kernel)})
		}
		at := &w.lane[w.used]
		at.ns = monotonic.Now()
		if err := r.files.Read(t.container, at.values, r.o.HoldFiles); err != nil && r.filesErr == nil {
			r.filesErr = err
		}
		w.used++
	}
}

// FilesError is the first reason why something could not be read from a file. It may be called
// when Run has returned.
func (r *Recording) FilesError() error { return r.filesErr }

func (t *target) rows(columns int) *row {
	if t.row == nil {
		t.row = &row{values: make([]float64, columns)}
		for i := range t.row.values {
			t.row.values[i] = math.NaN()
		}
	}
	return t.row
}

func (r *Recording) drain() error {
	ended := r.sums.refresh()
	var failed error
	err := r.ticks.Drain(func(tick *model.Tick) {
		if failed == nil {
			failed = r.write(tick)
		}
	})
	err = errors.Join(failed, err)
	for _, t := range ended {
		err = errors.Join(err, r.end(t))
	}
	r.sums.drop(ended)
	r.progress.Containers = uint64(len(r.sums.list))
	progress := r.progress
	r.published.Store(&progress)
	return err
}

// end closes a container's file.
func (r *Recording) end(t *target) error {
	r.files.Forget(t.container.ID)
	if t.row == nil || t.row.writer == nil {
		return nil
	}
	err := t.row.writer.Close()
	t.row.writer = nil
	return err
}

// write writes a tick's rows.
func (r *Recording) write(tick *model.Tick) error {
	if missing := tick.Number - r.next; missing > 0 {
		r.lose(missing)
	}
	r.next = tick.Number + 1
	r.sums.add(tick)
	lateness := tick.BeganNS - tick.DueNS
	r.progress.Ticks++
	r.progress.LatenessNS += lateness
	r.progress.WorstLatenessNS = max(r.progress.WorstLatenessNS, lateness)
	r.progress.CostNS += tick.CostNS
	at := r.sums.clock.at(tick.BeganNS)
	for _, t := range r.sums.list {
		if !t.has(at) {
			continue
		}
		if err := r.writeRow(t, tick, at); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recording) lose(ticks uint64) {
	r.progress.Lost += ticks
	for _, t := range r.sums.list {
		if t.row != nil && t.row.writer != nil {
			_ = t.row.writer.Lost(ticks) // the next row says what is wrong
		}
	}
}

func (r *Recording) writeRow(t *target, tick *model.Tick, at time.Time) error {
	w := t.rows(len(r.columns))
	if w.writer == nil {
		var err error
		if w.writer, err = r.o.Create(r.head(t.container)); err != nil {
			return fmt.Errorf("recording %s: %w", t.container.Name, err)
		}
	}
	kernelValues(w.values, tick, &t.sum)
	w.fill(tick.BeganNS, w.values[r.kernel:], r.o.HoldFiles)
	r.progress.Rows++
	if err := w.writer.Row(at, w.values); err != nil {
		return fmt.Errorf("recording %s: %w", t.container.Name, err)
	}
	return nil
}

// fill puts the newest reading that is not newer than the tick into a row, if no row had it.
func (w *row) fill(ns uint64, values []float64, hold bool) {
	old := 0
	for old < w.used && w.lane[old].ns <= ns {
		old++
	}
	if old == 0 {
		if w.filled && !hold {
			for i := range values {
				values[i] = math.NaN()
			}
			w.filled = false
		}
		return
	}
	copy(values, w.lane[old-1].values)
	w.filled = true
	// The readings that are done with go behind the others, to be used again.
	for i := old; i < w.used; i++ {
		w.lane[i-old], w.lane[i] = w.lane[i], w.lane[i-old]
	}
	w.used -= old
}

// close closes all files.
func (r *Recording) close() error {
	losses := r.ticks.Losses()
	if lost := losses.Full + losses.Late; lost > r.progress.Lost {
		r.lose(lost - r.progress.Lost)
	}
	var errs []error
	for _, t := range r.sums.list {
		errs = append(errs, r.end(t))
	}
	progress := r.progress
	r.published.Store(&progress)
	return errors.Join(errs...)
}

// head is what a container's file says about itself.
func (r *Recording) head(c *model.Container) csvy.Head {
	h := HeadOf(c, r.files.Version(), r.sums.clock.wall, r.sums.clock.monotonic)
	h.Version, h.Host = r.o.Version, r.o.Host
	h.Interval, h.FileInterval, h.Columns = r.ticks.Interval(), r.o.FileInterval, r.columns
	return h
}
