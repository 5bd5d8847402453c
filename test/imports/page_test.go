package imports

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var tableRow = regexp.MustCompile("^\\| `([^`]+)` \\| [^|]+ \\| ([^|]+) \\|$")

// TestThePageHasTheTable compares the table of ARCHITECTURE.md with what the packages may import.
func TestThePageHasTheTable(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		row := tableRow.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if row == nil {
			continue
		}
		name, imports := row[1], []string{}
		may, known := allowed[name]
		if !known {
			continue // of another table
		}
		found[name] = true
		if row[2] == "all" && name == "cmd/outsight" {
			continue
		}
		for text := range strings.SplitSeq(row[2], ", ") {
			if _, internal := allowed["internal/"+text]; internal {
				text = "internal/" + text
			}
			if text != "–" {
				imports = append(imports, text)
			}
		}
		slices.Sort(imports)
		if want := slices.Sorted(maps.Keys(may)); !slices.Equal(imports, want) {
			t.Errorf("ARCHITECTURE.md: %s may import %v, and the table in the test says %v", name, imports, want)
		}
	}
	for name := range allowed {
		if !found[name] {
			t.Errorf("ARCHITECTURE.md has no row for %s", name)
		}
	}
}
