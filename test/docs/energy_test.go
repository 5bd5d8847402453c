package docs

import (
	"os"
	"regexp"
	"testing"

	"outsight/internal/otlp"
)

// TestEnergyPage holds the queries of docs/energy.md against the table of metrics: each name is there.
func TestEnergyPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/energy.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range otlp.Metrics() {
		known[m.Name] = true
	}
	names := regexp.MustCompile(`\b(container|outsight)_[a-z_]+\b`).FindAllString(string(text), -1)
	if len(names) < 10 {
		t.Errorf("%d names of metrics, want those of the queries", len(names))
	}
	for _, name := range names {
		if !known[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
}
