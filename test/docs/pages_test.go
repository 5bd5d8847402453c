package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

const root = "../.."

// page is a Markdown file of the repository.
type page struct {
	path string // from the root of the repository
	// prose is what is no code: links count there alone. code is what is in blocks and between backticks.
	prose, code string
	lines       []string
	// quoted says of each line whether it is in a block of code.
	quoted []bool
}

var codeSpan = regexp.MustCompile("`[^`]+`")

// readPages reads all Markdown files of the repository.
func readPages(t *testing.T) (pages []page) {
	t.Helper()
	list, err := exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatalf("listing the pages: %v", err)
	}
	for path := range strings.Lines(string(list)) {
		p := page{path: strings.TrimSpace(path)}
		text, err := os.ReadFile(filepath.Join(root, p.path))
		if os.IsNotExist(err) {
			continue // removed, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		p.lines = strings.Split(string(text), "\n")
		fenced, block := false, false
		for i, line := range p.lines {
			fence := strings.HasPrefix(line, "```")
			// Four spaces begin a block of code after an empty line, as long as no list goes on.
			block = strings.HasPrefix(line, "    ") && (block || i > 0 && p.lines[i-1] == "")
			quoted := fenced || fence || block
			fenced = fenced != fence
			p.quoted = append(p.quoted, quoted)
			if quoted {
				p.code += line + "\n"
				continue
			}
			p.prose += line + "\n"
		}
		// A span may go on in the next line, and no further than its paragraph.
		for paragraph := range strings.SplitSeq(p.prose, "\n\n") {
			for _, span := range codeSpan.FindAllString(paragraph, -1) {
				p.code += strings.ReplaceAll(strings.Trim(span, "`"), "\n", " ") + "\n"
			}
		}
		p.prose = codeSpan.ReplaceAllString(p.prose, "``")
		pages = append(pages, p)
	}
	if len(pages) < 100 {
		t.Fatalf("%d pages", len(pages))
	}
	return pages
}

// anchors are the names of a page's headings, as GitHub makes them.
func (p *page) anchors() (all []string) {
	for i, line := range p.lines {
		heading := strings.TrimLeft(line, "#")
		if p.quoted[i] || heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ' || r == '-':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(heading))
		all = append(all, name)
	}
	return all
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinksResolve follows each link of a page to another file or to a heading.
func TestLinksResolve(t *testing.T) {
	pages := readPages(t)
	find := func(path string) *page {
		at := slices.IndexFunc(pages, func(p page) bool { return p.path == path })
		if at < 0 {
			return nil
		}
		return &pages[at]
	}
	links := 0
	for i := range pages {
		p := &pages[i]
		for _, found := range link.FindAllStringSubmatch(p.prose, -1) {
			file, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(found[1], "://") {
				continue
			}
			links++
			to := p.path
			if file != "" {
				to = filepath.Join(filepath.Dir(p.path), file)
				if _, err := os.Stat(filepath.Join(root, to)); err != nil {
					t.Errorf("%s: the link %s leads nowhere", p.path, found[1])
					continue
				}
			}
			if target := find(to); anchor != "" && (target == nil || !slices.Contains(target.anchors(), anchor)) {
				t.Errorf("%s: there is no heading for the link %s", p.path, found[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("%d links: has their form changed?", links)
	}
}

// TestPagesNameWhatExists looks for the make targets and the tests that pages name.
func TestPagesNameWhatExists(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := exec.Command("git", "-C", root, "grep", "--untracked", "-hoE",
		`^func (Test|Fuzz|Benchmark)[A-Za-z0-9_]+`, "--", "*_test.go").Output()
	if err != nil {
		t.Fatalf("listing tests: %v", err)
	}
	targets := regexp.MustCompile(`(?m)^make ([a-z][a-z0-9-]+)|[^a-z ] ?make ([a-z][a-z0-9-]+)|^ +make ([a-z][a-z0-9-]+)`)
	named := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]+`)
	count := 0
	for _, p := range readPages(t) {
		for _, found := range targets.FindAllStringSubmatch(p.code, -1) {
			count++
			if name := found[1] + found[2] + found[3]; !regexp.MustCompile(`(?m)^` + name + `:`).Match(makefile) {
				t.Errorf("%s: there is no make %s", p.path, name)
			}
		}
		for _, name := range named.FindAllString(p.code, -1) {
			count++
			if !regexp.MustCompile(`(?m)^func ` + name + `$`).Match(tests) {
				t.Errorf("%s: there is no test %s", p.path, name)
			}
		}
	}
	if count < 100 {
		t.Errorf("%d targets and tests: has their form changed?", count)
	}
}

// TestPagesNameWhatRuns looks for what the commands of pages select: tests and benchmarks, and parts of the bench.
func TestPagesNameWhatRuns(t *testing.T) {
	bench, err := os.ReadFile(filepath.Join(root, "bench/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := exec.Command("git", "-C", root, "grep", "--untracked", "-hoE",
		`^func (Test|Fuzz|Benchmark)[A-Za-z0-9_]+`, "--", "*_test.go").Output()
	if err != nil {
		t.Fatalf("listing tests: %v", err)
	}
	chosen := regexp.MustCompile(`go test .*?-(?:run|bench)[ =]([A-Za-z0-9_]+)`)
	also := regexp.MustCompile(`-bench[ =]([A-Za-z0-9_]+)`)
	parts := regexp.MustCompile(`go run ./bench -only ([a-z,]+)`)
	count := 0
	for _, p := range readPages(t) {
		for _, found := range append(chosen.FindAllStringSubmatch(p.code, -1), also.FindAllStringSubmatch(p.code, -1)...) {
			if strings.EqualFold(found[1], "xxx") {
				continue // no test, only benchmarks
			}
			count++
			if !regexp.MustCompile(`(?m)^func \w*` + found[1]).Match(tests) {
				t.Errorf("%s: no test or benchmark is called %s", p.path, found[1])
			}
		}
		for _, found := range parts.FindAllStringSubmatch(p.code, -1) {
			for part := range strings.SplitSeq(found[1], ",") {
				count++
				if !strings.Contains(string(bench), `{"`+part+`",`) {
					t.Errorf("%s: bench has no part %s", p.path, part)
				}
			}
		}
	}
	if count < 6 {
		t.Errorf("%d commands: has their form changed?", count)
	}
}

// foreignFlags are flags of other programs, and those of ours that have another name in the help.
var foreignFlags = map[string]string{
	"--by":                               "another name of --group-by",
	"--web.enable-remote-write-receiver": "Prometheus",
	"--query.replica-label":              "Thanos",
	"--data-urlencode":                   "curl",
	"--help":                             "every program's",
}

// TestFlagsExist looks for the flags that pages name in the programs' help.
func TestFlagsExist(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "./cmd/...")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %v\n%s", err, out)
	}
	help := func(program string, arguments ...string) string {
		// Some programs end with an error after their help.
		out, _ := exec.Command(filepath.Join(bin, program), append(arguments, "--help")...).CombinedOutput()
		return string(out)
	}
	all := help("outsight-agent") + help("outsight")
	for _, command := range regexp.MustCompile(`(?m)^  ([a-z]+) {2,}[A-Z]`).FindAllStringSubmatch(all, -1) {
		all += help("outsight", command[1])
	}
	known := map[string]bool{}
	for _, flag := range regexp.MustCompile(`(?m)^ +(?:-[a-z], )?-(-?[a-z-]+)`).FindAllStringSubmatch(all, -1) {
		known["--"+strings.TrimPrefix(flag[1], "-")] = true
	}
	if len(known) < 50 {
		t.Fatalf("%d flags in the help: has its form changed?", len(known))
	}
	for _, p := range readPages(t) {
		for _, found := range regexp.MustCompile(`(?:^|[^A-Za-z0-9-])(--[a-z][a-z.-]+)`).FindAllStringSubmatch(p.code, -1) {
			if flag := strings.TrimRight(found[1], ".-"); !known[flag] && foreignFlags[flag] == "" {
				t.Errorf("%s: no program has %s", p.path, flag)
			}
		}
	}
}

// TestLinesWrap: prose is wrapped by column 120. Tables, code and what bench writes are as they are.
func TestLinesWrap(t *testing.T) {
	for _, p := range readPages(t) {
		generated := p.path == "docs/metrics.md"
		for i, line := range p.lines {
			if strings.HasPrefix(line, "<!-- ") {
				generated = strings.HasPrefix(line, "<!-- begin")
			}
			if !generated && !p.quoted[i] && !strings.HasPrefix(line, "|") && utf8.RuneCountInString(line) > 120 {
				t.Errorf("%s:%d has %d columns", p.path, i+1, utf8.RuneCountInString(line))
			}
		}
	}
}
