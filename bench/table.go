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
	// low and high are the quartiles of the runs that value is the median of; both 0 for a single
	// measurement.
	low, high float64
	// detail says what the value comes from.
	detail string
}

// noise is the gain, in percent, from which on a run with the agent that beats the one without it
// tells that something else on the machine decides.
const noise = 5

// verdict compares with the budget, where the runs agree enough to say.
func (r row) verdict() string {
	low, high := r.low, r.high
	if low == 0 && high == 0 {
		low, high = r.value, r.value
	}
	switch {
	case r.budget == 0:
		return ""
	case high <= r.budget && (r.unit != "%" || low > -noise):
		return "kept"
	case low > r.budget:
		return "OVER"
	}
	return "undecided: too noisy"
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

// quartile of at least one value: 1, 2 (the median) or 3.
func quartile(values []float64, which int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	place := float64(which) / 4 * float64(len(sorted)-1)
	below := int(place)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (place-float64(below))*(sorted[above]-sorted[below])
}

func median(values []float64) float64 { return quartile(values, 2) }
