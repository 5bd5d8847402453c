package csvy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Limits of a text: a longer line, or a longer head, is none of a recording's.
const (
	maxLine = 1 << 20
	maxHead = 4 << 20
	maxCPUs = 1024
	// maxColumns is that of rAdvisor's and ours with a column for each of so many CPUs, and room.
	maxColumns = 8192
	// maxValues bounds what is kept of one file: 2 GiB, which is 45 minutes of samples every millisecond.
	maxValues = 1 << 28
)

// Parse reads a text of rAdvisor's or of the superset.
func Parse(in io.Reader) (*Recording, error) {
	p := parser{in: bufio.NewReaderSize(in, 64<<10), r: &Recording{}, index: map[string]int{}, maxValues: maxValues}
	return p.parse()
}

func (p *parser) parse() (*Recording, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	if err := p.rows(); err != nil {
		return nil, err
	}
	p.r.Finish()
	return p.r, nil
}

// parser reads one text.
type parser struct {
	in *bufio.Reader
	r  *Recording
	// line is the number of the last line read, offset where it ends.
	line   int
	offset int64

	delimiter byte
	// cells of a row, the time excluded; index of the recording's columns by name.
	cells []textCell
	index map[string]int
	// lastEnd is where the last whole row ends.
	lastEnd   int64
	maxValues int
}

type textCell struct {
	name string
	// columns are indexes of the recording's columns: one, or one for each number of a vector; -1
	// is none.
	columns []int
}

var errLong = errors.New("the line is longer than a recording's")

// next reads a line without its end. whole is false for a last line without an end.
func (p *parser) next() (line []byte, whole bool, err error) {
	p.line++
	for {
		part, err := p.in.ReadSlice('\n')
		p.offset += int64(len(part))
		if len(line)+len(part) > maxLine {
			for err == bufio.ErrBufferFull {
				part, err = p.in.ReadSlice('\n')
				p.offset += int64(len(part))
			}
			if err != nil && err != io.EOF {
				return nil, false, fmt.Errorf("line %d: %w", p.line, err)
			}
			return nil, true, errLong
		}
		switch {
		case err == nil && line == nil:
			return trimEnd(part), true, nil
		case err == nil:
			return trimEnd(append(line, part...)), true, nil
		case err == bufio.ErrBufferFull:
			line = append(line, part...)
		case err == io.EOF && len(line)+len(part) == 0:
			return nil, false, io.EOF
		case err == io.EOF:
			return append(line, part...), false, nil
		default:
			return nil, false, fmt.Errorf("line %d: %w", p.line, err)
		}
	}
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// begin reads the head and the row of names.
func (p *parser) begin() error {
	first, _, err := p.next()
	switch {
	case err == io.EOF:
		return errors.New("the file is empty")
	case err != nil:
		return err
	case string(first) != fence:
		return fmt.Errorf("not a recording: it begins with %.40q, want %q", first, fence)
	}
	head, _, err := p.head()
	if err != nil {
		return err
	}
	names, whole, err := p.next()
	for err == nil && whole && len(names) == 0 {
		names, whole, err = p.next()
	}
	if err != nil && err != io.EOF {
		return err
	}
	if err == io.EOF || !whole {
		return fmt.Errorf("line %d: the file ends before its first row", p.line)
	}
	p.r.Head, p.r.Format, p.delimiter = head.Head, head.format, head.delimiter
	if err := p.names(head, names, true); err != nil {
		return err
	}
	p.lastEnd = p.offset
	return nil
}

// head reads up to the second fence. text is what it has read.
func (p *parser) head() (h *parsedHead, text []byte, err error) {
	begin := p.line
	for {
		line, whole, err := p.next()
		switch {
		case err == io.EOF || err == nil && !whole:
			return nil, text, fmt.Errorf("line %d: the file ends within its head", p.line)
		case err != nil:
			return nil, text, err
		case string(line) == fence:
			h, err := parseHead(text)
			if err != nil {
				return nil, text, fmt.Errorf("line %d: %w", begin, err)
			}
			return h, text, nil
		}
		text = append(append(text, line...), '\n')
		if len(text) > maxHead {
			return nil, text, fmt.Errorf("line %d: the head is longer than a recording's", p.line)
		}
	}
}

// names reads the row of names. Only those of the first one are new columns; see rows.
func (p *parser) names(head *parsedHead, line []byte, first bool) error {
	list := strings.Split(string(line), string(p.delimiter))
	if list[0] != "read" {
		return fmt.Errorf("line %d: the row of names begins with %.40q, want \"read\"", p.line, list[0])
	}
	p.cells = p.cells[:0]
	seen, cells := map[string]bool{}, 0
	for _, name := range list[1:] {
		columns := []Column{head.column(name)}
		if n := head.declared[name].Count; name == perCPU && n > 0 && n <= maxCPUs {
			columns = columns[:0]
			for i := range n {
				columns = append(columns, ColumnNamed(perCPU+"/"+strconv.Itoa(i)))
			}
		}
		if cells += len(columns); cells > maxColumns {
			return fmt.Errorf("line %d: it names more than %d columns", p.line, maxColumns)
		}
		c := textCell{name: name}
		for _, column := range columns {
			at, known := p.index[column.Name]
			switch {
			case seen[column.Name]:
				p.r.Complain(p.line, fmt.Sprintf("the column %.60q is there twice", column.Name))
				at = -1
			case !known && first:
				at = len(p.r.Head.Columns)
				p.index[column.Name] = at
				p.r.Head.Columns, p.r.Values = append(p.r.Head.Columns, column), append(p.r.Values, nil)
			case !known:
				p.r.Complain(p.line, fmt.Sprintf("the column %.60q is new here; it is left out", column.Name))
				at = -1
			}
			seen[column.Name] = true
			c.columns = append(c.columns, at)
		}
		p.cells = append(p.cells, c)
	}
	return nil
}

// rows reads to the end. A head in the midst is of a second recording that was appended: its
// columns are taken by their names.
func (p *parser) rows() error {
	for {
		line, whole, err := p.next()
		switch {
		case err == io.EOF:
			p.r.End.Bytes = p.lastEnd
			return nil
		case errors.Is(err, errLong):
			p.r.Complain(p.line, errLong.Error())
			continue
		case err != nil:
			return err
		case !whole:
			p.r.End.Bytes, p.r.End.Cut = p.lastEnd, true
			p.r.Complain(p.line, "the file ends within this row, which is left out")
			return nil
		case string(line) == fence:
			if err := p.secondHead(); err != nil {
				return err
			}
			continue
		case len(line) == 0:
			continue
		}
		if (len(p.r.At)+1)*len(p.r.Values) > p.maxValues {
			p.r.End.Bytes, p.r.End.Cut = p.lastEnd, true
			p.r.Complain(p.line, "the file holds more than is read of one; the rest is left out (record --rotate makes more "+
				"files)")
			return nil
		}
		p.row(line)
		p.lastEnd = p.offset
	}
}

// secondHead reads a head in the midst of a file. What follows a fence that begins none is taken
// for rows.
func (p *parser) secondHead() error {
	begin := p.line
	head, text, err := p.head()
	if err != nil {
		p.r.Complain(begin, fmt.Sprintf("a second head begins here that cannot be read: %v", err))
		end := p.line
		p.line = begin
		for line := range bytes.Lines(text) {
			p.line++
			p.row(trimEnd(line))
		}
		p.line = end
		return nil
	}
	names, whole, err := p.next()
	for err == nil && whole && len(names) == 0 {
		names, whole, err = p.next()
	}
	if err != nil || !whole {
		p.r.End.Cut = true
		p.r.Complain(begin, "the file ends within a second head")
		return nil
	}
	p.r.Complain(begin, fmt.Sprintf("a second recording begins here (version %.20q); its rows are read as well",
		head.Version))
	p.delimiter = head.delimiter
	if err := p.names(head, names, false); err != nil {
		p.r.Complain(p.line, err.Error())
	}
	return nil
}

// row reads one row into the columns. One without a time, or with too few or too many cells, is
// left out; a cell that is no number is missing.
func (p *parser) row(line []byte) {
	if n := bytes.Count(line, []byte{p.delimiter}); n != len(p.cells) {
		const kind = "the row does not have as many cells as there are columns"
		p.r.complain(p.line, kind, fmt.Sprintf("%s (%d, want %d); it is left out", kind, n+1, len(p.cells)+1))
		return
	}
	text, rest, _ := bytes.Cut(line, []byte{p.delimiter})
	at, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		const kind = "the row has no time"
		p.r.complain(p.line, kind, fmt.Sprintf("%s but %.40q; it is left out", kind, text))
		return
	}
	p.r.At, p.r.lines = append(p.r.At, at), append(p.r.lines, p.line)
	for i := range p.r.Values {
		p.r.Values[i] = append(p.r.Values[i], math.NaN())
	}
	last := len(p.r.At) - 1
	for i := range p.cells {
		text, rest, _ = bytes.Cut(rest, []byte{p.delimiter})
		p.cell(&p.cells[i], text, last)
	}
}

func (p *parser) cell(c *textCell, text []byte, row int) {
	for _, column := range c.columns {
		var number []byte
		number, text, _ = bytes.Cut(text, []byte{' '})
		if column < 0 || len(number) == 0 {
			continue
		}
		v, ok := parseNumber(number)
		if !ok || len(c.columns) == 1 && len(text) > 0 {
			kind := fmt.Sprintf("the column %.60q holds ", c.name)
			p.r.complain(p.line, kind, fmt.Sprintf("%s%.40q, which is no number", kind, number))
			continue
		}
		p.r.Values[column][row] = v
	}
}

// parseNumber reads what AppendNumber writes.
func parseNumber(text []byte) (float64, bool) {
	if len(text) <= 15 {
		n := int64(0)
		for _, c := range text {
			if c < '0' || c > '9' {
				n = -1
				break
			}
			n = n*10 + int64(c-'0')
		}
		if n >= 0 {
			return float64(n), len(text) > 0
		}
	}
	if string(text) == noLimit {
		return math.Inf(1), true
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false
	}
	return v, true
}
