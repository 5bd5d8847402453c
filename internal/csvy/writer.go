package csvy

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// Writer writes the recording of one container. It must not be used by two goroutines at a time.
type Writer interface {
	// Row appends one sample; values are in the order of Head.Columns. A missing value is NaN, no
	// limit is +Inf. After an error the recording is over, and Close is all that is left to call.
	Row(at time.Time, values []float64) error
	// Lost counts ticks that could not be stored. They show in the column lost_ticks of the next
	// row, or of a last row that has nothing else.
	Lost(ticks uint64) error
	Close() error
}

// Codec is a format that a package adds.
type Codec struct {
	Format Format
	Create func(dir string, h Head, o Options) (Writer, error)
	// Magic is how a file begins, Read reads a whole one.
	Magic string
	Read  func(path string) (*Recording, error)
}

var codecs []Codec

// Register adds a format. It is for the init function of a package.
func Register(c Codec) { codecs = append(codecs, c) }

func codecOf(is func(Codec) bool) (Codec, bool) {
	if i := slices.IndexFunc(codecs, is); i >= 0 {
		return codecs[i], true
	}
	return Codec{}, false
}

// Create makes a file for the recording of one container in dir, which exists.
func Create(dir string, format Format, h Head, o Options) (Writer, error) {
	if h.Container.Key() == "" {
		return nil, errors.New("creating a recording: the container has no ID")
	}
	switch format {
	case CSVY, RAdvisor:
		return newTextWriter(dir, format, h, o)
	}
	if c, ok := codecOf(func(c Codec) bool { return c.Format == format }); ok {
		return c.Create(dir, h, o)
	}
	return nil, fmt.Errorf("creating a recording: there is no format %q in this program", format)
}

// textWriter writes CSVY.
type textWriter struct {
	dir    string
	format Format
	head   Head
	o      Options

	// columns of the file, without the time, and where their values come from.
	columns []Column
	cells   []cell
	// absent is what a missing value is written as, for each column; part tells the columns that
	// share a cell with the one before.
	absent []string
	part   []bool
	// lane are the values that come from files: rAdvisor writes no row without one.
	lane []int
	// own are the cells that have a value in a row without one from files, which most rows are; rest is what
	// follows the last of them.
	own  []ownCell
	rest string

	file    *File
	buffer  []byte
	pending int // rows in buffer
	// began is the time of the first row of the file, flushed that of the last flush.
	began, flushed, last time.Time
	lost, lostWritten    uint64
	err                  error
}

// ownCell is a cell that needs no value from files.
type ownCell struct {
	cell
	// before is what the cells between the one before and this one are written as, this one's comma with it.
	before, absent string
}

// flushBytes is as much as is kept for a flush, whatever the time.
const flushBytes = 256 << 10

func newTextWriter(dir string, format Format, h Head, o Options) (*textWriter, error) {
	if o.FlushEvery == 0 {
		o.FlushEvery = time.Second
	}
	w := &textWriter{dir: dir, format: format, head: h, o: o}
	w.head.Part = 0
	w.layout()
	return w, w.next(h.Started)
}

// layout decides the columns of the file: rAdvisor's in its order, and in the superset all others
// after them.
func (w *textWriter) layout() {
	for _, c := range RAdvisorColumns(w.head.CgroupVersion) {
		if c.Name == perCPU {
			// The parts of the vector are the columns, and share a cell; see row.
			if parts := w.vector(); len(parts) > 0 {
				w.add(parts...)
				continue
			}
		}
		w.add(c)
	}
	if w.format == CSVY {
		for _, c := range w.head.Columns {
			if !slices.ContainsFunc(w.columns, func(have Column) bool { return have.Name == c.Name }) {
				w.add(c)
			}
		}
		w.columns = append(w.columns, ColumnNamed(LostTicks)) // without a cell: see appendRow
	}
	for i, c := range w.head.Columns {
		if _, part := vectorOf(c.Name); part || c.Source == FromFile {
			w.lane = append(w.lane, i)
		}
	}
	for i, c := range w.cells {
		if w.part[i] {
			continue // its vector is missing, which the first cell tells
		}
		w.rest += ","
		if vector := i+1 < len(w.part) && w.part[i+1]; vector || len(c.terms) == 0 ||
			slices.ContainsFunc(c.terms, w.fromFile) {
			w.rest += w.absent[i]
			continue
		}
		w.own = append(w.own, ownCell{c, w.rest, w.absent[i]})
		w.rest = ""
	}
}

func (w *textWriter) fromFile(t cellTerm) bool { return slices.Contains(w.lane, t.index) }

func (w *textWriter) add(columns ...Column) {
	for _, c := range columns {
		from, _ := cellFor(c.Name, w.head.Columns, toRAdvisor)
		absent := ""
		if w.format == RAdvisor && w.head.CgroupVersion != 1 {
			absent = "0"
			if c.Name == "pids.max" || c.Name == "memory.high" || c.Name == "memory.max" {
				absent = noLimit
			}
		}
		_, part := vectorOf(c.Name)
		if n := len(w.columns); part && n > 0 {
			_, part = vectorOf(w.columns[n-1].Name)
		}
		w.columns, w.cells, w.absent, w.part = append(w.columns, c), append(w.cells, from), append(w.absent, absent),
			append(w.part, part)
	}
}

func (w *textWriter) vector() []Column {
	var parts []Column
	for _, c := range w.head.Columns {
		if _, ok := vectorOf(c.Name); ok {
			parts = append(parts, c)
		}
	}
	return parts
}

// next begins a file.
func (w *textWriter) next(at time.Time) error {
	extension := radvisorExtension
	if w.format == CSVY {
		extension = ".csvy"
	}
	f, err := CreateFile(w.dir, &w.head, at, extension, w.o)
	if err != nil {
		w.err = err
		return err
	}
	w.file = f
	w.head.Part++
	w.began = time.Time{}
	head := AppendHead(nil, &w.head, w.format, w.columns)
	head = append(head, "read"...)
	for i, c := range w.columns {
		name, inVector := vectorOf(c.Name)
		if !inVector {
			name = c.Name
		}
		if i >= len(w.part) || !w.part[i] {
			head = append(append(head, ','), name...)
		}
	}
	head = append(head, '\n')
	if err := f.Write(head, 0, func([]byte) (int, int) { return 0, 0 }); err != nil {
		w.err = errors.Join(err, f.Close(false))
		w.file = nil
	}
	return w.err
}

func (w *textWriter) Row(at time.Time, values []float64) error {
	if w.err != nil {
		return w.err
	}
	if len(values) != len(w.head.Columns) {
		return fmt.Errorf("writing a row: got %d values, want %d", len(values), len(w.head.Columns))
	}
	read := slices.ContainsFunc(w.lane, func(i int) bool { return !math.IsNaN(values[i]) })
	if w.format == RAdvisor && len(w.lane) > 0 && !read {
		return nil
	}
	if err := w.rotate(at); err != nil {
		return err
	}
	if w.began.IsZero() {
		w.began, w.flushed = at, at
	}
	w.last = at
	if read {
		w.buffer = w.appendRow(w.buffer, at, values)
	} else {
		w.buffer = w.appendOwn(w.buffer, at, values)
	}
	w.pending++
	if len(w.buffer) >= flushBytes || w.o.FlushEvery < 0 || at.Sub(w.flushed) >= w.o.FlushEvery || at.Before(w.flushed) {
		return w.flush(at)
	}
	return nil
}

func (w *textWriter) appendRow(b []byte, at time.Time, values []float64) []byte {
	b = strconv.AppendInt(b, at.UnixNano(), 10)
	for i, c := range w.cells {
		if w.part[i] {
			if values == nil || w.incomplete(i, values) {
				continue
			}
			b = append(b, ' ')
		} else {
			b = append(b, ',')
		}
		v := math.NaN()
		if values != nil && !w.incomplete(i, values) {
			v = c.value(values)
		}
		if math.IsNaN(v) && values != nil {
			b = append(b, w.absent[i]...)
			continue
		}
		b = AppendNumber(b, v)
	}
	return w.endRow(b)
}

// appendOwn writes what appendRow does for a row without a value from files.
func (w *textWriter) appendOwn(b []byte, at time.Time, values []float64) []byte {
	b = strconv.AppendInt(b, at.UnixNano(), 10)
	for i := range w.own {
		c := &w.own[i]
		b = append(b, c.before...)
		if v := c.value(values); math.IsNaN(v) {
			b = append(b, c.absent...)
		} else {
			b = AppendNumber(b, v)
		}
	}
	return w.endRow(append(b, w.rest...))
}

func (w *textWriter) endRow(b []byte) []byte {
	if w.format == CSVY {
		b = strconv.AppendUint(append(b, ','), w.lost, 10)
		w.lostWritten = w.lost
	}
	return append(b, '\n')
}

// incomplete tells the parts of a vector of which one is missing: the whole is missing then.
func (w *textWriter) incomplete(column int, values []float64) bool {
	if !w.part[column] && (column+1 == len(w.part) || !w.part[column+1]) {
		return false // no vector
	}
	first := column
	for w.part[first] {
		first--
	}
	for last := first; last == first || last < len(w.part) && w.part[last]; last++ {
		if math.IsNaN(w.cells[last].value(values)) {
			return true
		}
	}
	return false
}

// noLimit is how the kernel's files write that there is none.
const noLimit = "max"

// AppendNumber writes a value: nothing for NaN, "max" for +Inf, and digits without an exponent.
func AppendNumber(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return b
	case math.IsInf(v, 1):
		return append(b, noLimit...)
	case v == math.Trunc(v) && math.Abs(v) < 1<<63:
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}

func (w *textWriter) flush(at time.Time) error {
	w.flushed = at
	err := w.file.Write(w.buffer, w.pending, func(written []byte) (int, int) {
		whole := written[:bytes.LastIndexByte(written, '\n')+1]
		return len(whole), bytes.Count(whole, []byte{'\n'})
	})
	w.buffer, w.pending = w.buffer[:0], 0
	if err != nil {
		w.err = err
	}
	return err
}

// rotate begins the next file where it is time.
func (w *textWriter) rotate(at time.Time) error {
	if w.began.IsZero() {
		return nil
	}
	full := w.o.RotateBytes > 0 && w.file.Size()+int64(len(w.buffer)) >= w.o.RotateBytes
	old := w.o.RotateEvery > 0 && at.Sub(w.began) >= w.o.RotateEvery
	if !full && !old {
		return nil
	}
	if err := w.flush(at); err != nil {
		return err
	}
	err := w.file.Close(true)
	w.file = nil
	if err != nil {
		w.err = err
		return err
	}
	return w.next(at)
}

func (w *textWriter) Lost(ticks uint64) error {
	w.lost += ticks
	return w.err
}

func (w *textWriter) Close() error {
	if w.file == nil {
		return nil
	}
	var err error
	if w.err == nil {
		if w.format == CSVY && w.lost != w.lostWritten {
			at := w.last
			if at.IsZero() {
				at = w.head.Started
			}
			w.buffer = w.appendRow(w.buffer, at, nil)
			w.pending++
		}
		err = w.flush(w.last)
	}
	err = errors.Join(err, w.file.Close(false))
	w.file, w.err = nil, errors.New("the recording is closed")
	return err
}
