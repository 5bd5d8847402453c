package parquet

import (
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"time"

	pq "github.com/parquet-go/parquet-go"

	"outsight/internal/frame"
)

// rowsOfGroup bounds the rows that are in memory of each table.
const rowsOfGroup = 8192

// Path is the file of a table, a host and an hour.
func Path(dir string, t frame.TableID, host string, hour time.Time) string {
	return filepath.Join(dir, frame.Schema[t].Name, hostDirectory(host), hour.UTC().Format("2006-01-02T15")+".parquet")
}

// hostDirectory is a host's name as that of a directory.
func hostDirectory(host string) string {
	switch name := url.PathEscape(host); name {
	case "", ".", "..":
		return "%" + name // which PathEscape makes of no other name
	default:
		return name
	}
}

// Write writes the frames of a host and an hour, each row of each with what its counters are, into a file for each of
// Tables; a table without rows has none. A file that is there is replaced when all of them are on the disk, that of the
// hosts last. At most rowsOfGroup rows of a table are in memory. It answers how many frames there were; without any, no
// file is written.
func Write(dir, host string, hour time.Time, frames iter.Seq2[*frame.Frame, error]) (n int, err error) {
	files := make([]*tableFile, len(Tables))
	defer func() {
		for _, f := range files {
			if f != nil {
				f.discard()
			}
		}
		if err != nil {
			err = fmt.Errorf("writing Parquet files: %w", err)
		}
	}()
	for f, err := range frames {
		if err != nil {
			return 0, err
		}
		n++
		for i, t := range Tables {
			if len(f.Tables[t].IDs) == 0 {
				continue
			}
			if files[i] == nil {
				if files[i], err = createTable(Path(dir, t, host, hour), t); err != nil {
					return 0, err
				}
			}
			if err := files[i].add(f); err != nil {
				return 0, err
			}
		}
	}
	for _, f := range files {
		if f != nil {
			if err := f.finish(); err != nil {
				return 0, err
			}
		}
	}
	for i, f := range files {
		if f != nil {
			if err := f.rename(); err != nil {
				return 0, err
			}
			files[i] = nil
		}
	}
	return n, nil
}

// tableFile is a file that is being written.
type tableFile struct {
	path    string
	table   frame.TableID
	file    *os.File
	writer  *pq.GenericWriter[any]
	columns []Column
	// order has, for each column as the file has them, its index in columns.
	order []int
	rows  []pq.Row
}

func createTable(path string, t frame.TableID) (*tableFile, error) {
	f := &tableFile{path: path, table: t, columns: Columns(t)}
	group, index := pq.Group{}, map[string]int{}
	for i := range f.columns {
		group[f.columns[i].Name] = f.columns[i].node
		index[f.columns[i].Name] = i
	}
	for _, field := range group.Fields() {
		f.order = append(f.order, index[field.Name()])
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	var err error
	if f.file, err = os.Create(path + ".tmp"); err != nil {
		return nil, err
	}
	f.writer = pq.NewGenericWriter[any](f.file, pq.NewSchema(frame.Schema[t].Name, group), pq.MaxRowsPerRowGroup(rowsOfGroup))
	return f, nil
}

// rowsAtOnce are handed to the writer at a time.
const rowsAtOnce = 256

// add writes the rows of a frame.
func (f *tableFile) add(of *frame.Frame) error {
	for row := range of.Tables[f.table].IDs {
		if len(f.rows) == rowsAtOnce {
			if err := f.flush(); err != nil {
				return err
			}
		}
		if len(f.rows) < cap(f.rows) {
			f.rows = f.rows[:len(f.rows)+1]
		} else {
			f.rows = append(f.rows, nil)
		}
		last := &f.rows[len(f.rows)-1]
		*last = f.appendRow((*last)[:0], of, row)
	}
	return nil
}

func (f *tableFile) flush() error {
	_, err := f.writer.WriteRows(f.rows)
	f.rows = f.rows[:0]
	return err
}

// appendRow appends the values of a row, by the leaves of the schema.
func (f *tableFile) appendRow(to pq.Row, of *frame.Frame, row int) pq.Row {
	leaf := 0
	for _, i := range f.order {
		c := &f.columns[i]
		if c.value == nil {
			to = appendHistogram(to, of, f.table, c.histogram, row, leaf)
			leaf += 5
			continue
		}
		v, level := c.value(of, row), 0
		if c.Optional && !v.IsNull() {
			level = 1
		}
		to = append(to, v.Level(0, level, leaf))
		leaf++
	}
	return to
}

// appendHistogram appends the leaves of a histogram: buckets.bucket, buckets.count, overflow, sum_ns and zero.
func appendHistogram(to pq.Row, f *frame.Frame, t frame.TableID, i, row, leaf int) pq.Row {
	null := func(level int, leaves ...int) {
		for _, at := range leaves {
			to = append(to, pq.NullValue().Level(0, level, leaf+at))
		}
	}
	if i >= len(f.Tables[t].Histograms) {
		null(0, 0, 1, 2, 3, 4)
		return to
	}
	h := &f.Tables[t].Histograms[i]
	index, count := h.Buckets(row)
	if len(h.End) == 0 || len(index) == 0 && h.Zero[row] == 0 && h.Overflow[row] == 0 {
		null(0, 0, 1, 2, 3, 4)
		return to
	}
	if len(index) == 0 {
		null(1, 0, 1)
	}
	again := func(k int) int { return min(k, 1) }
	for k, bucket := range index {
		to = append(to, pq.Int32Value(bucket).Level(again(k), 2, leaf))
	}
	for k, n := range count {
		to = append(to, whole(n).Level(again(k), 2, leaf+1))
	}
	for k, n := range []uint64{h.Overflow[row], h.SumNS[row], h.Zero[row]} {
		to = append(to, whole(n).Level(0, 1, leaf+2+k))
	}
	return to
}

// finish writes the rest, to the disk.
func (f *tableFile) finish() error {
	return errors.Join(f.flush(), f.writer.Close(), f.file.Sync())
}

// rename gives the file its name.
func (f *tableFile) rename() error {
	if err := errors.Join(f.file.Close(), os.Rename(f.path+".tmp", f.path)); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// discard removes a file that was not finished.
func (f *tableFile) discard() {
	f.file.Close()
	os.Remove(f.path + ".tmp")
}
