package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"outsight/internal/store"
)

// memoryOfSeries finds statements such as "series, of about 2 KB each" and "6 KiB a series".
var memoryOfSeries = regexp.MustCompile(
	`(?i)series[^.|]{0,40}\d ?(kB|KiB)[^.|]{0,15} each|\d ?(kB|KiB)[^.|]{0,15} (a|per|each|for each) series|` +
		`max-series[^.]{0,20}\d ?(kB|KiB)|\d ?(kB|KiB)[^.]{0,20}max-series`)

// labelBound is a bound of another thing: the labels.
var labelBound = regexp.MustCompile("2 KiB for each of `?-{0,2}(max-series|MaxSeries)")

// What a series takes in memory is stated in docs/server.md alone: elsewhere it was three other figures.
func TestMemoryOfASeriesIsStatedOnce(t *testing.T) {
	for text, want := range map[string]bool{
		"series in memory, of about 6 KB each": true, "`--max-series`, about 2 KB each": true,
		"9.9 KB resident for each series": true, "(100,000, of 1.5 to 2.5 KB each)": false,
		"512 MiB and 6 KB for each of `--max-series`": true, "2 KiB for each of --max-series": false,
	} {
		if got := memoryOfSeries.MatchString(labelBound.ReplaceAllString(text, "")); got != want {
			t.Errorf("%q: found is %v, want %v", text, got, want)
		}
	}
	page, err := os.ReadFile("../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("allow %d,%03d bytes for each", store.SeriesBytes/1000, store.SeriesBytes%1000)
	if !strings.Contains(string(page), want) {
		t.Errorf("docs/server.md does not say %q, which is store.SeriesBytes", want)
	}
	for _, root := range []string{"../../cmd", "../../internal", "../../docs", "../../deploy", "../../README.md",
		"../../ARCHITECTURE.md"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !slices.Contains([]string{".go", ".md", ".yaml"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			for i, line := range strings.Split(string(text), "\n") {
				if found := memoryOfSeries.FindString(labelBound.ReplaceAllString(line, "")); found != "" {
					t.Errorf("%s:%d says %q: refer to docs/server.md, or to store.SeriesBytes", path, i+1, found)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
