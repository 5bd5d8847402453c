package recorder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"outsight/internal/csvy"
	"outsight/internal/model"
)

// ErrNothingKept says that a Flight has nothing of the time that was asked for.
var ErrNothingKept = errors.New("the agent has kept no ticks of that time")

var errCutBlock = errors.New("a block of the flight recorder ends within a tick")

// Write makes files of what was kept since then. Of the options, those about files are not used:
// only the kernel's numbers are kept.
func (d *FlightData) Write(since time.Time, o Options) (Progress, error) {
	if d.From.After(since) {
		since = d.From
	}
	r := &replay{data: d, since: since, o: o, clock: clock{d.Wall, d.MonotonicNS}, writers: make(map[start]*replayed),
		known: make(map[start]*model.Container)}
	for _, name := range kernelColumns {
		r.columns = append(r.columns, csvy.ColumnNamed(name))
	}
	for i := range d.Blocks {
		for _, t := range d.Blocks[i].Targets {
			r.known[keyOf(t.Container)] = t.Container
		}
	}
	var err error
	for i := range d.Blocks {
		if !d.Until.IsZero() && r.clock.at(d.Blocks[i].FirstDueNS).After(d.Until) {
			break
		}
		if err = r.block(&d.Blocks[i]); err != nil {
			break
		}
	}
	for _, w := range r.writers {
		err = errors.Join(err, w.Close())
	}
	if err == nil && r.progress.Ticks == 0 {
		err = ErrNothingKept
	}
	r.progress.Containers = uint64(len(r.writers))
	return r.progress, err
}

type replay struct {
	data    *FlightData
	since   time.Time
	o       Options
	clock   clock
	columns []csvy.Column
	writers map[start]*replayed
	// known are the containers as they were last: the first blocks of one may not have its name.
	known    map[start]*model.Container
	progress Progress
	// next is the number of the tick that is to come, once there was one.
	next uint64
}

// replayed is the file of one start of one container.
type replayed struct {
	Writer
	values []float64
}

// replayedTarget is a target of the block that is read.
type replayedTarget struct {
	// writer is nil until its first row; unwanted has none.
	writer   *replayed
	unwanted bool
	// stale: the sums are others than in the writer's values. Most containers do nothing between two ticks.
	stale bool
}

func (r *replay) block(b *Block) error {
	sums, targets := make([][flightFields]uint64, len(b.Targets)), make([]replayedTarget, len(b.Targets))
	for i := range targets {
		targets[i].stale = true
	}
	for rest := b.Data; len(rest) > 0; {
		tick, changes, after, err := readTick(rest)
		if err != nil {
			return err
		}
		if rest, err = applyChanges(after, changes, sums, targets); err != nil {
			return err
		}
		tick.DueNS = b.FirstDueNS + tick.Number*uint64(r.data.Interval)
		tick.BeganNS += tick.DueNS
		tick.Number += b.FirstNumber
		at := r.clock.at(tick.BeganNS)
		if at.Before(r.since) || !r.data.Until.IsZero() && at.After(r.data.Until) {
			continue
		}
		if err := r.rows(b, &tick, at, sums, targets); err != nil {
			return err
		}
	}
	return nil
}

// readTick reads a tick's own numbers: BeganNS as the time since it was due, and Number as that
// since the block's first.
func readTick(d []byte) (tick model.Tick, changes uint64, rest []byte, err error) {
	for _, to := range []*uint64{&tick.Number, &tick.BeganNS, &tick.CostNS, &changes} {
		n := 0
		if *to, n = binary.Uvarint(d); n <= 0 {
			return tick, 0, nil, errCutBlock
		}
		d = d[n:]
	}
	return tick, changes, d, nil
}

func applyChanges(d []byte, changes uint64, sums [][flightFields]uint64, targets []replayedTarget) ([]byte, error) {
	for range changes {
		index, n := binary.Uvarint(d)
		if n <= 0 || index >= uint64(len(sums)) {
			return nil, errCutBlock
		}
		d = d[n:]
		targets[index].stale = true
		mask, n := binary.Uvarint(d)
		if n <= 0 {
			return nil, errCutBlock
		}
		d = d[n:]
		for i := range flightFields {
			if mask&(1<<i) == 0 {
				continue
			}
			by, n := binary.Varint(d)
			if n <= 0 {
				return nil, errCutBlock
			}
			d = d[n:]
			sums[index][i] += uint64(by)
		}
	}
	return d, nil
}

func (r *replay) rows(b *Block, tick *model.Tick, at time.Time, sums [][flightFields]uint64,
	targets []replayedTarget) error {
	if missing := tick.Number - r.next; r.progress.Ticks > 0 && missing > 0 {
		r.progress.Lost += missing
		for _, w := range r.writers {
			_ = w.Lost(missing) // the next row says what is wrong
		}
	}
	r.next = tick.Number + 1
	r.progress.Ticks++
	lateness := tick.BeganNS - tick.DueNS
	r.progress.LatenessNS += lateness
	r.progress.WorstLatenessNS = max(r.progress.WorstLatenessNS, lateness)
	r.progress.CostNS += tick.CostNS
	for i := range b.Targets {
		t, of := &b.Targets[i], &targets[i]
		if tick.Number < t.From || tick.Number > t.To || of.unwanted {
			continue
		}
		if of.writer == nil {
			c := r.known[keyOf(t.Container)]
			if of.unwanted = r.o.Wanted != nil && !r.o.Wanted(c); of.unwanted {
				continue
			}
			var err error
			if of.writer, err = r.writer(c, at); err != nil {
				return err
			}
		}
		w := of.writer
		if of.stale {
			s := sampleOf(&sums[i])
			kernelValues(w.values, tick, &s)
			of.stale = false
		} else {
			tickValues(w.values, tick)
		}
		r.progress.Rows++
		if err := w.Row(at, w.values); err != nil {
			return fmt.Errorf("writing %s: %w", r.known[keyOf(t.Container)].Name, err)
		}
	}
	return nil
}

// start tells starts of containers apart: one that was started again has another control group.
type start struct {
	id     string
	cgroup model.CgroupID
}

func keyOf(c *model.Container) start { return start{c.ID, c.Cgroup} }

func (r *replay) writer(c *model.Container, at time.Time) (*replayed, error) {
	key := keyOf(c)
	if w := r.writers[key]; w != nil {
		return w, nil
	}
	h := HeadOf(c, r.data.CgroupVersion, r.clock.wall, r.clock.monotonic)
	h.Version, h.Host, h.Interval, h.Columns = r.o.Version, r.o.Host, r.data.Interval, r.columns
	// The file's name says when it begins.
	h.MonotonicNS += uint64(at.Sub(h.Started))
	h.Started = at
	file, err := r.o.Create(h)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", c.Name, err)
	}
	w := &replayed{file, make([]float64, len(r.columns))}
	r.writers[key] = w
	return w, nil
}
