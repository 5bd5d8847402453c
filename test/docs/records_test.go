package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

const formatPages = "../../docs/format"

// flagMmapable is BPF_F_MMAPABLE: user space reads the map's memory without a system call.
const flagMmapable = 1 << 10

// objects are the maps that user space maps, and all records, of the compiled kernel programs.
type objects struct {
	mapped  map[string]btf.Type
	records map[string]*btf.Struct
}

// readObjects reads the types (BTF) of all compiled kernel programs, wherever in the repository they are.
func readObjects(t *testing.T) objects {
	t.Helper()
	o := objects{map[string]btf.Type{}, map[string]*btf.Struct{}}
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && slices.Contains([]string{".git", "node_modules", "results"}, e.Name()):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_bpfel.o"):
			return nil
		}
		spec, err := ebpf.LoadCollectionSpec(path)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		for name, m := range spec.Maps {
			if m.Flags&flagMmapable != 0 {
				o.mapped[name] = m.Value
				o.add(m.Value)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.mapped) < 15 {
		t.Fatalf("%d mapped maps: are the objects of the kernel programs where they were?", len(o.mapped))
	}
	return o
}

// add adds a record and those inside it.
func (o objects) add(typ btf.Type) {
	switch typ := typ.(type) {
	case *btf.Typedef:
		o.add(typ.Type)
	case *btf.Array:
		o.add(typ.Type)
	case *btf.Struct:
		o.records[typ.Name] = typ
		for _, m := range typ.Members {
			o.add(m.Type)
		}
	}
}

// cType is a type as C writes it, and its size.
func cType(t *testing.T, typ btf.Type) (string, int) {
	t.Helper()
	size, err := btf.Sizeof(typ)
	if err != nil {
		t.Fatal(err)
	}
	switch typ := typ.(type) {
	case *btf.Array:
		of, _ := cType(t, typ.Type)
		return fmt.Sprintf("%s[%d]", of, typ.Nelems), size
	case *btf.Struct:
		return "struct " + typ.Name, size
	}
	return typ.TypeName(), size
}

var (
	recordHead = regexp.MustCompile("^### `struct ([a-z0-9_]+)`(?:, [0-9]+ bytes)?$")
	recordRow  = regexp.MustCompile("^\\| *([0-9]*) *\\|.*\\| `([a-z0-9_]+)` \\| (.*) \\|$")
	mapRow     = regexp.MustCompile("^\\| `([a-z0-9_]+)` \\| `([a-z0-9_ ]+)` \\|")
)

const recordColumns = "| offset | size | type | field | what it is |\n|---|---|---|---|---|\n"

// table is the table of a record. What its fields are is taken from the page, by name, or by offset where a
// field has another name now.
func table(t *testing.T, record *btf.Struct, page []string) string {
	t.Helper()
	named, at := map[string]string{}, map[string]string{}
	for _, line := range page {
		if row := recordRow.FindStringSubmatch(line); row != nil {
			named[row[2]], at[row[1]] = row[3], row[3]
		}
	}
	var b strings.Builder
	b.WriteString(recordColumns)
	for _, m := range record.Members {
		offset, what := fmt.Sprint(m.Offset.Bytes()), named[m.Name]
		if what == "" {
			what = at[offset]
		}
		if strings.TrimSpace(what) == "" {
			t.Errorf("struct %s, field %s: nobody says what it is", record.Name, m.Name)
		}
		text, size := cType(t, m.Type)
		fmt.Fprintf(&b, "| %s | %d | `%s` | `%s` | %s |\n", offset, size, text, m.Name, what)
	}
	return b.String()
}

// TestKernelRecords compares the tables of docs/format with the types of the compiled kernel programs: each map that
// user space maps is listed with its record, and each record has its offsets, sizes and types.
func TestKernelRecords(t *testing.T) {
	o := readObjects(t)
	pages, err := filepath.Glob(formatPages + "/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	described, listed := map[string]bool{}, map[string]bool{}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var page strings.Builder
		lines := strings.SplitAfter(string(text), "\n")
		for i := 0; i < len(lines); i++ {
			line := strings.TrimSuffix(lines[i], "\n")
			if row := mapRow.FindStringSubmatch(line); row != nil {
				if value := o.mapped[row[1]]; value == nil {
					t.Errorf("%s: there is no mapped map %s", path, row[1])
				} else if of, _ := cType(t, value); of != row[2] {
					t.Errorf("%s: map %s holds %s, not %s", path, row[1], of, row[2])
				}
				listed[row[1]] = true
			}
			head := recordHead.FindStringSubmatch(line)
			if head == nil {
				page.WriteString(lines[i])
				continue
			}
			record := o.records[head[1]]
			if record == nil {
				t.Errorf("%s: no map that user space maps has a struct %s", path, head[1])
				page.WriteString(lines[i])
				continue
			}
			described[record.Name] = true
			fmt.Fprintf(&page, "### `struct %s`, %d bytes\n", record.Name, record.Size)
			// What is between the heading and the table stays.
			for i++; i < len(lines) && !strings.HasPrefix(lines[i], "|"); i++ {
				page.WriteString(lines[i])
			}
			begin := i
			for i < len(lines) && strings.HasPrefix(lines[i], "|") {
				i++
			}
			old := strings.Split(strings.Join(lines[begin:i], ""), "\n")
			page.WriteString(table(t, record, old))
			i--
		}
		if *update && page.String() != string(text) {
			err = errors.Join(err, os.WriteFile(path, []byte(page.String()), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
		if !*update && page.String() != string(text) {
			t.Errorf("%s is not what the kernel programs have; go test ./test/docs -update writes it", path)
		}
	}
	for name := range o.mapped {
		if !listed[name] {
			t.Errorf("no page lists the map %s", name)
		}
	}
	for name := range o.records {
		if !described[name] {
			t.Errorf("no page has struct %s", name)
		}
	}
}
