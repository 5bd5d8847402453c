package graph

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// WriteCSV writes a line for each cell: the names and IDs of its client and its server, how many edges it is of, and
// its numbers by their keys. A number that is not there is empty; a duration past the end of its histogram is +Inf.
// Sums are not in it: what is additive adds up to them. Names are cleaned, and none begins a formula of a spreadsheet.
func (x *Matrix) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	line := []string{"client", "server", "client_id", "server_id", "edge_count"}
	for _, n := range x.Total.numbers {
		line = append(line, n.Key)
	}
	if err := out.Write(line); err != nil {
		return err
	}
	for _, c := range x.Cells {
		client, server := x.Rows[c.Row], x.Columns[c.Column]
		line = append(line[:0], cell(client.Name), cell(server.Name), cell(client.ID), cell(server.ID),
			strconv.Itoa(c.EdgeCount))
		for i := range x.Total.numbers {
			text := ""
			if i < len(c.Numbers.values) && !math.IsNaN(c.Numbers.values[i]) {
				text = string(appendFloat(nil, c.Numbers.values[i]))
			}
			line = append(line, text)
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// cell is a text as it may stand in a spreadsheet: what would begin a formula has an apostrophe before it.
func cell(name string) string {
	name = Clean(name)
	if name != "" && strings.ContainsRune("=+-@", rune(name[0])) {
		return "'" + name
	}
	return name
}

// Widths in characters of the table of a matrix.
const (
	matrixNameMost  = 28
	matrixCellWidth = 14
	// matrixWidth is for what is no terminal.
	matrixWidth = 120
)

// MatrixColumns is how many servers a table of so many characters has room for, besides the sums; 0 characters stand
// for those of a table that is no terminal's.
func MatrixColumns(width int) int {
	if width <= 0 {
		width = matrixWidth
	}
	return max(1, (width-matrixNameMost)/matrixCellWidth-2)
}

// Text is the matrix of one of its numbers as a table for a terminal: a line for each client, a column for each server,
// and the sums at the end of both. Names are cleaned.
func (x *Matrix) Text(key string) string {
	if len(x.Cells) == 0 {
		return "No traffic was seen.\n"
	}
	name := utf8.RuneCountInString(matrixAll)
	for _, r := range x.Rows {
		name = max(name, min(matrixNameMost, utf8.RuneCountInString(Clean(r.Name))))
	}
	var b strings.Builder
	line := func(first string, cells func(column int) string, last string) {
		text := fmt.Sprintf("%-*s", name, cutMiddle(first, name))
		for i := range x.Columns {
			text += fmt.Sprintf(" %*s", matrixCellWidth-1, cutMiddle(cells(i), matrixCellWidth-1))
		}
		fmt.Fprintf(&b, "%s %*s\n", text, matrixCellWidth-1, last)
	}
	texts := map[[2]int]string{}
	for _, c := range x.Cells {
		texts[[2]int{c.Row, c.Column}] = c.Numbers.text(key)
	}
	line("", func(i int) string { return Clean(x.Columns[i].Name) }, matrixAll)
	for k, r := range x.Rows {
		line(Clean(r.Name), func(i int) string { return texts[[2]int{k, i}] }, r.Sum.text(key))
	}
	line(matrixAll, func(i int) string { return x.Columns[i].Sum.text(key) }, x.Total.text(key))
	return b.String()
}

// matrixAll heads the sums.
const matrixAll = "all"

// text is a number for people.
func (v MatrixValues) text(key string) string {
	value, ok := v.Number(key)
	if !ok {
		return "–"
	}
	for _, n := range v.numbers {
		if n.Key != key {
			continue
		}
		switch n.Unit {
		case "s":
			s := Seconds(value)
			return Duration(&s)
		case "B":
			return Bytes(&value)
		case "B/s":
			return BytesPerSecond(&value)
		case "/s":
			return PerSecond(&value)
		case "ratio":
			return digits(100*value) + " %"
		}
	}
	return scaled(value)
}

// cutMiddle shortens s to width characters: names of one application differ at their ends.
func cutMiddle(s string, width int) string {
	letters := []rune(s)
	if len(letters) <= width {
		return s
	}
	tail := (width - 1) / 2
	return string(letters[:width-1-tail]) + "…" + string(letters[len(letters)-tail:])
}
