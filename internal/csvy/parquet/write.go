package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"outsight/internal/csvy"
)

// maxRows is the most that a piece has, whatever the time.
const maxRows = 1 << 14

type writer struct {
	dir    string
	head   csvy.Head
	o      csvy.Options
	schema *pq.Schema
	leaves []int
	// lostAt is the index of the column of lost ticks.
	lostAt int

	file *csvy.File
	// pieces are the offsets at which they begin.
	pieces []int64
	output *pq.GenericWriter[any]
	buffer bytes.Buffer

	rows                 []pq.Row
	began, flushed, last time.Time
	lost, lostWritten    uint64
	err                  error
}

func create(dir string, h csvy.Head, o csvy.Options) (csvy.Writer, error) {
	if o.FlushEvery == 0 {
		o.FlushEvery = 10 * time.Second
	}
	w := &writer{dir: dir, head: h, o: o, lostAt: len(h.Columns)}
	w.head.Part = 0
	w.head.Columns = append(append([]csvy.Column(nil), h.Columns...), csvy.ColumnNamed(csvy.LostTicks))
	w.schema = schemaOf(w.head.Columns)
	var err error
	if w.leaves, err = positions(w.schema, w.head.Columns); err != nil {
		return nil, fmt.Errorf("creating a recording: %w", err)
	}
	return w, w.next(h.Started)
}

// next begins a file. The head is in its first piece, which may be without rows.
func (w *writer) next(at time.Time) error {
	f, err := csvy.CreateFile(w.dir, &w.head, at, ".parquet", w.o)
	if err != nil {
		return w.fail(err)
	}
	w.file, w.pieces, w.began = f, w.pieces[:0], time.Time{}
	w.head.Part++
	head := csvy.AppendHead(nil, &w.head, csvy.Parquet, w.head.Columns)
	w.output = pq.NewGenericWriter[any](&w.buffer, w.schema, pq.KeyValueMetadata(headKey, string(head)))
	if err := w.piece(); err != nil {
		return w.fail(errors.Join(err, w.file.Close(false)))
	}
	w.output = pq.NewGenericWriter[any](&w.buffer, w.schema)
	return nil
}

func (w *writer) fail(err error) error {
	w.err = err
	return err
}

func (w *writer) Row(at time.Time, values []float64) error {
	if w.err != nil {
		return w.err
	}
	if len(values) != w.lostAt {
		return fmt.Errorf("writing a row: got %d values, want %d", len(values), w.lostAt)
	}
	if err := w.rotate(at); err != nil {
		return err
	}
	if w.began.IsZero() {
		w.began, w.flushed = at, at
	}
	w.last = at
	w.add(at, values)
	if len(w.rows) >= maxRows || w.o.FlushEvery < 0 || at.Sub(w.flushed) >= w.o.FlushEvery || at.Before(w.flushed) {
		return w.flush(at)
	}
	return nil
}

// add keeps a row for the next piece; values is nil for one that has lost ticks alone.
func (w *writer) add(at time.Time, values []float64) {
	row := make(pq.Row, len(w.leaves))
	for leaf, column := range w.leaves {
		v, level := pq.NullValue(), 1
		switch {
		case column < 0:
			v, level = pq.Int64Value(at.UnixNano()), 0
		case column == w.lostAt:
			v = pq.Int64Value(int64(w.lost))
		case values != nil:
			v = valueOf(values[column], isInteger(w.head.Columns[column]))
		}
		if v.IsNull() {
			level = 0
		}
		row[leaf] = v.Level(0, level, leaf)
	}
	w.rows = append(w.rows, row)
	w.lostWritten = w.lost
}

func (w *writer) flush(at time.Time) error {
	w.flushed = at
	if len(w.rows) == 0 {
		return nil
	}
	return w.piece()
}

// piece writes what is kept as a small Parquet file.
func (w *writer) piece() error {
	w.buffer.Reset()
	w.output.Reset(&w.buffer)
	_, err := w.output.WriteRows(w.rows)
	if err = errors.Join(err, w.output.Close()); err != nil {
		return w.fail(fmt.Errorf("writing %s: %w", w.file.Path(), err))
	}
	begin := w.file.Size()
	err = w.file.Write(w.buffer.Bytes(), len(w.rows), nothingWhole)
	w.rows = w.rows[:0]
	if err != nil {
		return w.fail(err)
	}
	w.pieces = append(w.pieces, begin)
	return nil
}

// nothingWhole says that a part of a piece is worth nothing.
func nothingWhole([]byte) (int, int) { return 0, 0 }

func (w *writer) rotate(at time.Time) error {
	if w.began.IsZero() {
		return nil
	}
	full := w.o.RotateBytes > 0 && w.file.Size() >= w.o.RotateBytes
	old := w.o.RotateEvery > 0 && at.Sub(w.began) >= w.o.RotateEvery
	if !full && !old {
		return nil
	}
	if err := w.finish(at, true); err != nil {
		return w.fail(err)
	}
	return w.next(at)
}

// finish writes what is left and the footer, and closes the file.
func (w *writer) finish(at time.Time, rotated bool) error {
	err := w.flush(at)
	if err == nil {
		var footer []byte
		if footer, err = w.footer(); err == nil {
			err = w.file.Write(footer, 0, nothingWhole)
		}
	}
	err = errors.Join(err, w.file.Close(rotated))
	w.file = nil
	return err
}

// footer describes the row groups of all pieces. Their own footers are read from the file again: to
// keep them would take memory for as long as the recording runs.
func (w *writer) footer() ([]byte, error) {
	file, err := os.Open(w.file.Path())
	if err != nil {
		return nil, fmt.Errorf("writing the footer: %w", err)
	}
	defer file.Close()
	var whole *format.FileMetaData
	for i, begin := range w.pieces {
		end := w.file.Size()
		if i+1 < len(w.pieces) {
			end = w.pieces[i+1]
		}
		piece, err := openPiece(file, begin, end)
		if err != nil {
			return nil, fmt.Errorf("writing the footer: %w", err)
		}
		m := piece.Metadata()
		if whole == nil {
			whole = m
			whole.RowGroups, whole.NumRows = nil, 0
			continue
		}
		for _, g := range m.RowGroups {
			move(&g, begin)
			g.Ordinal = int16(len(whole.RowGroups))
			whole.RowGroups = append(whole.RowGroups, g)
			whole.NumRows += g.NumRows
		}
	}
	text, err := thrift.Marshal(new(thrift.CompactProtocol), whole)
	if err != nil {
		return nil, fmt.Errorf("writing the footer: %w", err)
	}
	text = binary.LittleEndian.AppendUint32(text, uint32(len(text)))
	return append(text, magic...), nil
}

// move makes the offsets of a piece those of the file. The page indexes hold offsets themselves, and
// are left out.
func move(g *format.RowGroup, by int64) {
	shift := func(offset *int64) {
		if *offset > 0 {
			*offset += by
		}
	}
	shift(&g.FileOffset)
	for i := range g.Columns {
		c := &g.Columns[i]
		shift(&c.FileOffset)
		shift(&c.MetaData.DataPageOffset)
		shift(&c.MetaData.DictionaryPageOffset)
		c.MetaData.IndexPageOffset, c.MetaData.BloomFilterOffset, c.MetaData.BloomFilterLength = 0, 0, 0
		c.OffsetIndexOffset, c.OffsetIndexLength, c.ColumnIndexOffset, c.ColumnIndexLength = 0, 0, 0, 0
	}
}

func (w *writer) Lost(ticks uint64) error {
	w.lost += ticks
	return w.err
}

func (w *writer) Close() error {
	if w.file == nil {
		return nil
	}
	if w.err != nil { // the file is cut, and says so by having no footer
		err := w.file.Close(false)
		w.file = nil
		return err
	}
	if w.lost != w.lostWritten {
		at := w.last
		if at.IsZero() {
			at = w.head.Started
		}
		w.add(at, nil)
	}
	err := w.finish(w.last, false)
	w.err = errors.New("the recording is closed")
	return err
}
