package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const adrIndex = "../../docs/adr/README.md"

const adrHead = `# Decisions

What was decided, and why, one page each: status, context, decision, consequences. A new one takes the next free number;
one that no longer holds says so under its status, with a link to what replaces it. Made from the pages' titles:
` + "`go test ./test/docs -update`" + ` writes it.

| number | decision | status |
|---|---|---|
`

var adrTitle = regexp.MustCompile(`(?m)\A# ([0-9]{3}): (.+)$`)

// TestDecisions: each decision is one page with the usual sections, and the index lists all of them.
func TestDecisions(t *testing.T) {
	pages, err := filepath.Glob("../../docs/adr/[0-9]*.md")
	if err != nil || len(pages) < 100 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	index := strings.Builder{}
	index.WriteString(adrHead)
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, page := filepath.Base(path), string(text)
		title := adrTitle.FindStringSubmatch(page)
		if title == nil || title[1] != name[:3] {
			t.Errorf("%s does not begin with its number and its title", name)
			continue
		}
		at := 0
		for _, section := range []string{"Status", "Context", "Decision", "Consequences"} {
			i := strings.Index(page[at:], "\n## "+section+"\n\n")
			if i < 0 {
				t.Errorf("%s has no section %q, or not in this order", name, section)
				break
			}
			at += i + 1
		}
		if lines := strings.Count(page, "\n"); lines > 60 {
			t.Errorf("%s has %d lines, at most one page of 60", name, lines)
		}
		_, status, _ := strings.Cut(page, "\n## Status\n\n")
		status, _, _ = strings.Cut(status, ".")
		fmt.Fprintf(&index, "| [%s](%s) | %s | %s |\n", title[1], name, title[2], strings.ToLower(status))
	}
	if *update {
		if err := os.WriteFile(adrIndex, []byte(index.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if stored, err := os.ReadFile(adrIndex); err != nil || string(stored) != index.String() {
		t.Errorf("docs/adr/README.md does not list the decisions as they are; go test ./test/docs -update writes it (%v)", err)
	}
}
