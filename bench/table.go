package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
)

// row is one measured number. Budget is what the design allows, 0 where it sets none.
type row struct {
	what   string
	value  float64
	unit   string
	budget float64
	// detail says what the value comes from.
	detail string
}

func (r row) verdict() string {
	switch {
	case r.budget == 0:
		return ""
	case r.value <= r.budget:
		return "kept"
	}
	return "OVER"
}

func (r row) budgetText() string {
	if r.budget == 0 {
		return ""
	}
	return "<= " + strconv.FormatFloat(r.budget, 'g', -1, 64)
}

func printTable(w io.Writer, rows []row) {
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "what\tmeasured\tunit\tbudget\t\tfrom")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%.3g\t%s\t%s\t%s\t%s\n", r.what, r.value, r.unit, r.budgetText(), r.verdict(), r.detail)
	}
	table.Flush()
}

func writeCSV(path string, rows []row) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := csv.NewWriter(file)
	w.Write([]string{"what", "value", "unit", "budget", "verdict", "from"})
	for _, r := range rows {
		w.Write([]string{r.what, strconv.FormatFloat(r.value, 'g', -1, 64), r.unit, r.budgetText(), r.verdict(), r.detail})
	}
	w.Flush()
	if err := w.Error(); err != nil {
		file.Close()
		return fmt.Errorf("writing %q: %w", path, err)
	}
	return file.Close()
}

// median of at least one value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
