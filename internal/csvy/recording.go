package csvy

import (
	"fmt"
	"io"
	"math"
	"os"
	"time"
)

// Recording is what a file holds, as far as it can be read. Columns of rAdvisor's are there under
// its names, and under ours where we have the same number.
type Recording struct {
	Path   string
	Format Format
	Head   Head
	// At is the wall clock's time of each row in ns since 1970. Values has a list for each of
	// Head.Columns, as long; NaN is a missing value, +Inf no limit.
	At     []int64
	Values [][]float64
	// Problems report what could not be read, the first of each kind with its line.
	Problems []Problem
	End      End

	// lines of the rows, of a text.
	lines []int
}

// Problem is something in a file that could not be read as it should.
type Problem struct {
	// Line in a text file, row in others, from 1; the first one where there are more of the kind; 0
	// for the file as a whole.
	Line int    `json:"line"`
	Text string `json:"text"`
	// Count of lines with the same kind of problem.
	Count int `json:"count"`
}

func (p Problem) String() string {
	s := p.Text
	if p.Line > 0 {
		s = fmt.Sprintf("line %d: %s", p.Line, p.Text)
	}
	if p.Count > 1 {
		s += fmt.Sprintf(" (and %d more)", p.Count-1)
	}
	return s
}

// End is where the readable part of a file ends.
type End struct {
	// Rows that were read, and the time of the last one.
	Rows int       `json:"rows"`
	At   time.Time `json:"at,omitzero"`
	// Bytes up to the end of the last whole row.
	Bytes int64 `json:"bytes"`
	// Cut is true where something follows that is not whole, or an end is missing: the writer was
	// killed, or the file was cut off.
	Cut bool `json:"cut"`
}

// Open reads a file of any format. There is an error only where nothing can be read: what is wrong
// in a part of the file is in Problems.
func Open(path string) (*Recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a recording: %w", err)
	}
	defer f.Close()
	begin := make([]byte, 8)
	n, err := io.ReadFull(f, begin)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return nil, fmt.Errorf("reading a recording: %w", err)
	}
	if c, ok := codecOf(func(c Codec) bool {
		return n >= len(c.Magic) && string(begin[:len(c.Magic)]) == c.Magic
	}); ok {
		return c.Read(path)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading a recording: %w", err)
	}
	r, err := Parse(f)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	r.Path = path
	return r, nil
}

// Column is the values of the column with the name, nil if there is none.
func (r *Recording) Column(name string) []float64 {
	if i := r.Head.Index(name); i >= 0 {
		return r.Values[i]
	}
	return nil
}

// Row is the values of row i, in the order of Head.Columns.
func (r *Recording) Row(i int) []float64 {
	row := make([]float64, len(r.Values))
	for c := range r.Values {
		row[c] = r.Values[c][i]
	}
	return row
}

// Lost is how many ticks could not be stored, as far as the file tells.
func (r *Recording) Lost() uint64 {
	lost := r.Column(LostTicks)
	for i := len(lost) - 1; i >= 0; i-- {
		if !math.IsNaN(lost[i]) {
			return uint64(max(lost[i], 0))
		}
	}
	return 0
}

// Complain notes a problem. Problems with the same text are one.
func (r *Recording) Complain(line int, text string) { r.complain(line, text, text) }

func (r *Recording) complain(line int, kind, text string) {
	for i := range r.Problems {
		if sameKind(r.Problems[i].Text, kind) {
			r.Problems[i].Count++
			return
		}
	}
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, Problem{line, text, 1})
	}
}

// maxProblems bounds the kinds of problems that are kept.
const maxProblems = 100

func sameKind(text, kind string) bool { return len(text) >= len(kind) && text[:len(kind)] == kind }

// Finish appends the columns of ours that rAdvisor's give, fills in with them what the kernel's have
// no value for, and looks for steps of the clock. It is for the formats.
func (r *Recording) Finish() {
	for _, s := range fromRAdvisor {
		ours := r.Head.Index(s.name)
		if ours >= 0 && r.Head.Columns[ours].Source != FromKernel {
			continue
		}
		from, ok := cellFor("", r.Head.Columns, []sum{{"", s.terms}}) // theirs, even where ours is there
		if !ok {
			continue
		}
		values := make([]float64, len(r.At))
		for i := range values {
			total := 0.0
			for _, t := range from.terms {
				total += t.factor * r.Values[t.index][i]
			}
			values[i] = total
		}
		if ours >= 0 {
			for i, v := range r.Values[ours] {
				if math.IsNaN(v) {
					r.Values[ours][i] = values[i]
				}
			}
			continue
		}
		column := ColumnNamed(s.name)
		column.Source = FromFile
		r.Head.Columns, r.Values = append(r.Head.Columns, column), append(r.Values, values)
	}
	r.findSteps()
	r.End.Rows = len(r.At)
	if n := len(r.At); n > 0 {
		r.End.At = time.Unix(0, r.At[n-1])
	}
}

// clockStep is the least step of the wall clock that is reported.
const clockStep = 50 * time.Millisecond

// findSteps reports where the wall clock went back, or away from the monotonic clock.
func (r *Recording) findSteps() {
	due, late := r.Column(DueNS), r.Column(LatenessNS)
	for i := 1; i < len(r.At); i++ {
		step := time.Duration(r.At[i] - r.At[i-1])
		expected := time.Duration(0)
		if due != nil && late != nil {
			began := func(i int) float64 { return due[i] + late[i] }
			d := began(i) - began(i-1)
			if math.IsNaN(d) {
				continue
			}
			if expected = time.Duration(d); (step - expected).Abs() < clockStep {
				continue
			}
		} else if step >= 0 {
			continue
		}
		const kind = "the clock was set: it "
		direction := "jumped ahead by "
		if step < expected {
			direction = "went back by "
		}
		by := (step - expected).Abs().Round(time.Millisecond)
		r.complain(r.lineOf(i), kind, kind+direction+by.String()+" before this row")
	}
}

// lineOf is the number of a row's line in a text, else the row's own.
func (r *Recording) lineOf(row int) int {
	if r.lines == nil {
		return row + 1
	}
	return r.lines[row]
}
