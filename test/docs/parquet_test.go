package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outsight/internal/frame"
	"outsight/internal/framelog/parquet"
)

const beginColumns = "<!-- begin columns: go test ./test/docs -update -->\n"

// TestParquetPage compares the columns that docs/format/parquet.md lists with those of the files, and those with the
// schema of frames.
func TestParquetPage(t *testing.T) {
	path := filepath.Join(formatPages, "parquet.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(text), beginColumns)
	if !ok {
		t.Fatalf("%s has no columns", path)
	}
	page := strings.Builder{}
	page.WriteString(head + beginColumns)
	for _, table := range parquet.Tables {
		info, names := &frame.Schema[table], map[string]bool{}
		fmt.Fprintf(&page, "\n### %s\n\n| column | type | null | is |\n|---|---|---|---|\n", info.Name)
		kinds := kindsOf(info)
		for _, c := range parquet.Columns(table) {
			if names[c.Name] {
				t.Errorf("%s has the column %s twice", info.Name, c.Name)
			}
			names[c.Name] = true
			null := "no"
			if c.Optional {
				null = "where there is none"
			}
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", c.Name, c.Type, null, kinds[c.Name])
			delete(kinds, c.Name)
		}
		for name := range kinds {
			t.Errorf("%s has no column %s", info.Name, name)
		}
	}
	page.WriteString("\n<!-- end -->\n")
	compare(t, path, page.String())
}

// kindsOf says what the attributes, columns and histograms of a table are.
func kindsOf(info *frame.TableInfo) map[string]string {
	kinds := map[string]string{}
	for _, a := range info.Attributes {
		kinds[a.Name] = map[frame.AttributeKind]string{frame.Number: "attribute", frame.Text: "attribute",
			frame.Instant: "time"}[a.Kind]
		if a.Kind == frame.Reference {
			kinds[a.Name] = "row of " + frame.Schema[a.Of].Name + ", 0 for none"
		}
	}
	for _, c := range info.Columns {
		kind := map[frame.ColumnKind]string{frame.Counter: "counter", frame.Level: "level", frame.LevelFloat: "level",
			frame.Integral: "integral", frame.Highest: "highest since the row before"}[c.Kind]
		unit := c.Unit
		switch {
		case unit == "s" && c.Per > 1:
			unit = "ns"
		case c.Kind == frame.Integral && unit == "By":
			unit = "By s"
		case c.Kind == frame.Integral:
			unit += " ms"
		}
		kinds[c.Name] = strings.TrimSuffix(kind+", "+unit, ", ")
	}
	for _, h := range info.Histograms {
		kinds[h.Name] = "histogram of durations"
	}
	return kinds
}
