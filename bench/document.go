package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// document replaces a generated part of a page, so that no number in it is typed by hand. It lies
// between two comments that name it.
func (o options) document(page, part, generated string) error {
	return o.documentOf(page, part, machine(), generated)
}

// documentOf is document of what was measured where and when measured says.
func (o options) documentOf(page, part, measured, generated string) error {
	if o.docs == "" {
		return nil
	}
	begin := fmt.Sprintf("<!-- begin %s: written by bench, do not edit -->\n", part)
	end := fmt.Sprintf("<!-- end %s -->\n", part)
	path := filepath.Join(o.docs, page)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return fmt.Errorf("page %q has no part %q", path, part)
	}
	return os.WriteFile(path, []byte(before+begin+measured+"\n\n"+strings.TrimSpace(generated)+"\n"+end+after), 0o644)
}

// machine says where and when the numbers are from, and what else the machine did.
func machine() string {
	var name unix.Utsname
	unix.Uname(&name)
	load, _ := os.ReadFile("/proc/loadavg")
	average, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("Measured on %s: Linux %s, %s, %d CPUs; load average at the end %s.", time.Now().UTC().Format(time.DateOnly),
		unix.ByteSliceToString(name.Release[:]), processor(), runtime.NumCPU(), average)
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, after, _ := strings.Cut(string(text), "model name")
	line, _, _ := strings.Cut(after, "\n")
	if name := strings.TrimSpace(strings.TrimLeft(line, "\t :")); name != "" {
		return name
	}
	return runtime.GOARCH
}

// markdown makes a table of lines of cells; the first line is the head.
func markdown(lines [][]string) string {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
	for i, cells := range lines {
		fmt.Fprintln(w, "| "+strings.Join(cells, "\t| ")+"\t|")
		if i == 0 {
			fmt.Fprintln(w, strings.Repeat("|---\t", len(cells))+"|")
		}
	}
	w.Flush()
	return text.String()
}

// rowsTable is the table of rows as a page shows it.
func rowsTable(rows []row) string {
	lines := [][]string{{"what", "measured", "budget", "", "from"}}
	for _, r := range rows {
		lines = append(lines, []string{r.what, strconv.FormatFloat(r.value, 'g', 3, 64) + " " + r.unit, r.budgetText(),
			r.verdict(), r.detail})
	}
	return markdown(lines)
}
