package imports

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers of the kernel programs' sources, the lowest first: a file includes files of its own layer and of those
// before it.
var layers = []string{"include", "sched", "net/proto", "net/http2", "net", "block", "tick", "forward", "groups", "region", "test"}

var includeLine = regexp.MustCompile(`^\s*#\s*include\s+"([^"]+)"`)

// source is a file of C below bpf: what it includes, and the first line of an include that is behind code.
type source struct {
	includes []string
	late     string
}

func readSources(t *testing.T) map[string]source {
	t.Helper()
	sources := map[string]source{}
	root := os.DirFS("../../bpf")
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if extension := path.Ext(name); err != nil || entry.IsDir() || extension != ".h" && extension != ".c" {
			return err
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		sources[filepath.ToSlash(name)] = parseSource(string(text))
		return nil
	})
	if err != nil || len(sources) == 0 {
		t.Fatalf("found %d sources in bpf: %v", len(sources), err)
	}
	return sources
}

func parseSource(text string) (s source) {
	comment, code := false, false
	for line := range strings.Lines(text) {
		if found := includeLine.FindStringSubmatch(line); found != nil && !comment {
			s.includes = append(s.includes, found[1])
			if code && s.late == "" {
				s.late = strings.TrimSpace(line)
			}
			continue
		}
		rest := strings.TrimSpace(line)
		for rest != "" {
			if comment {
				_, after, ended := strings.Cut(rest, "*/")
				comment, rest = !ended, strings.TrimSpace(after)
			} else if strings.HasPrefix(rest, "/*") {
				comment, rest = true, rest[2:]
			} else {
				code = code || !strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, "#")
				rest = ""
			}
		}
	}
	return s
}

func TestIncludesStandAtTheTop(t *testing.T) {
	for name, s := range readSources(t) {
		if s.late != "" {
			t.Errorf("%s: %s stands behind code", name, s.late)
		}
	}
}

func TestIncludesPointDownwards(t *testing.T) {
	sources := readSources(t)
	for name, s := range sources {
		layer := slices.Index(layers, path.Dir(name))
		if layer < 0 {
			t.Errorf("%s is in no layer: give its folder a place in the list", name)
		}
		for _, included := range s.includes {
			if _, ok := sources[included]; !ok {
				t.Errorf("%s includes %q, which is no path below bpf", name, included)
			} else if slices.Index(layers, path.Dir(included)) > layer {
				t.Errorf("%s includes %s of a higher layer", name, included)
			}
		}
	}
}

func TestIncludesHaveNoCircle(t *testing.T) {
	sources := readSources(t)
	done := map[string]bool{}
	var visit func(name string, way []string)
	visit = func(name string, way []string) {
		if at := slices.Index(way, name); at >= 0 {
			t.Errorf("a circle of includes: %s", strings.Join(append(way[at:], name), " -> "))
			return
		}
		if done[name] {
			return
		}
		for _, included := range sources[name].includes {
			visit(included, append(slices.Clone(way), name))
		}
		done[name] = true
	}
	for name := range sources {
		visit(name, nil)
	}
}
