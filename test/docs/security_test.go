package docs

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Each test that docs/security.md names exists.
func TestSecurityNamesTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command("git", "-C", "../..", "grep", "-hoE", `^func (Test|Fuzz)[A-Za-z0-9_]+`, "--",
		"*_test.go").Output()
	if err != nil {
		t.Fatalf("listing tests: %v", err)
	}
	exists := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		exists[strings.TrimPrefix(strings.TrimSpace(line), "func ")] = true
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 50 {
		t.Errorf("the page names %d tests: has its form changed?", len(named))
	}
	for _, n := range named {
		if !exists[n[1]] {
			t.Errorf("docs/security.md names %s, which is no test", n[1])
		}
	}
}
