package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	pq "github.com/parquet-go/parquet-go"

	"outsight/internal/csvy"
)

// maxFile bounds a file, which is read as a whole.
const maxFile = 2 << 30

func read(path string) (*csvy.Recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a recording: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading a recording: %w", err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("reading %s: it has %d bytes, want %d at most (record --rotate-size makes smaller files)",
			path, info.Size(), maxFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("reading a recording: %w", err)
	}
	r, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	r.Path = path
	return r, nil
}

// Parse reads a recording piece by piece, as far as there are whole ones.
func Parse(text []byte) (*csvy.Recording, error) {
	r := &csvy.Recording{Format: csvy.Parquet}
	begin, pieces := 0, 0
	for {
		end, piece := nextPiece(text, begin)
		if piece == nil {
			break
		}
		if pieces == 0 {
			if err := readHead(r, piece); err != nil {
				return nil, err
			}
		}
		pieces++
		if err := readRows(r, piece); err != nil {
			r.Complain(len(r.At)+1, fmt.Sprintf("the row group cannot be read: %v", err))
		}
		begin = end
	}
	if pieces == 0 {
		return nil, errors.New("not a recording, or cut before its first row group was whole")
	}
	r.End.Bytes = int64(begin)
	if !isFooter(text[begin:]) {
		r.End.Cut = true
		r.Complain(len(r.At)+1, "the file ends here, without a footer: what came after the last whole row group is lost")
	}
	r.Finish()
	return r, nil
}

// nextPiece is the piece that begins at begin, nil if none does.
func nextPiece(text []byte, begin int) (end int, piece *pq.File) {
	if !bytes.HasPrefix(text[begin:], []byte(magic)) {
		return 0, nil
	}
	// The magic may be within the data as well: an end is one if what is before it is a footer.
	for at := begin + len(magic); ; {
		next := bytes.Index(text[at:], []byte(magic))
		if next < 0 {
			return 0, nil
		}
		end = at + next + len(magic)
		length := end - len(magic) - 4
		if length >= begin+len(magic) {
			size := int64(binary.LittleEndian.Uint32(text[length:]))
			if size > 0 && size <= int64(length-begin-len(magic)) {
				if piece, err := openPiece(bytes.NewReader(text), int64(begin), int64(end)); err == nil {
					return end, piece
				}
			}
		}
		at = end
	}
}

// openPiece reads the footer of a piece.
func openPiece(file io.ReaderAt, begin, end int64) (piece *pq.File, err error) {
	defer damaged(&err)
	return pq.OpenFile(io.NewSectionReader(file, begin, end-begin), end-begin, pq.SkipPageIndex(true),
		pq.SkipBloomFilters(true))
}

// damaged makes an error of a panic: that is what the library does with much that is damaged.
func damaged(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("it is damaged: %v", p)
	}
}

// isFooter tells the footer of the whole, by its length alone.
func isFooter(text []byte) bool {
	n := len(text) - len(magic) - 4
	return n > 0 && bytes.HasSuffix(text, []byte(magic)) && binary.LittleEndian.Uint32(text[n:]) == uint32(n)
}

func readHead(r *csvy.Recording, piece *pq.File) error {
	text, ok := piece.Lookup(headKey)
	if !ok {
		return errors.New("a Parquet file, but not a recording: it has no " + headKey)
	}
	h, err := csvy.ParseFencedHead([]byte(text))
	if err != nil {
		return err
	}
	r.Head = *h
	r.Values = make([][]float64, len(h.Columns))
	return nil
}

func readRows(r *csvy.Recording, piece *pq.File) (err error) {
	leaves, err := positions(piece.Schema(), r.Head.Columns)
	if err != nil {
		return err
	}
	before := len(r.At)
	defer func() {
		if err == nil {
			return
		}
		// What was read of a row group that is damaged is not trusted.
		r.At = r.At[:before]
		for i := range r.Values {
			r.Values[i] = r.Values[i][:min(before, len(r.Values[i]))]
		}
	}()
	defer damaged(&err)
	for _, group := range piece.RowGroups() {
		if err := readGroup(r, group, leaves); err != nil {
			return err
		}
	}
	return nil
}

func readGroup(r *csvy.Recording, group pq.RowGroup, leaves []int) error {
	if n := group.NumRows(); n < 0 || n > maxRows {
		return fmt.Errorf("it says that it has %d rows, and there are at most %d", n, maxRows)
	}
	rows := group.Rows()
	defer rows.Close()
	buffer := make([]pq.Row, 64)
	for {
		n, err := rows.ReadRows(buffer)
		for _, row := range buffer[:n] {
			r.At = append(r.At, math.MinInt64)
			for i := range r.Values {
				r.Values[i] = append(r.Values[i], math.NaN())
			}
			last := len(r.At) - 1
			for _, v := range row {
				switch leaf := v.Column(); {
				case leaf < 0 || leaf >= len(leaves):
				case leaves[leaf] >= 0:
					r.Values[leaves[leaf]][last] = numberOf(v)
				case v.Kind() == pq.Int64:
					r.At[last] = v.Int64()
				}
			}
			if r.At[last] == math.MinInt64 {
				return errors.New("a row has no time")
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
