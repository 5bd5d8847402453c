package demo

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// closure is a program with every file that the dynamic linker needs to start it.
type closure struct {
	// files are absolute paths, as the linker looks for them, the program first.
	files []string
	// dirs hold the libraries; an image without a linker cache has them in LD_LIBRARY_PATH.
	dirs []string
}

// maxClosureFiles bounds a closure; a large desktop program has some two hundred.
const maxClosureFiles = 512

// resolveClosure finds the interpreter and the shared libraries of an ELF program below root.
// A static program is its own closure. A library that is nowhere is an error.
func resolveClosure(root, program string) (closure, error) {
	r := resolver{root: root, seen: map[string]bool{}, byName: map[string]bool{}}
	conf, err := r.linkerDirs("/etc/ld.so.conf", 0)
	if err != nil {
		return closure{}, fmt.Errorf("resolving %q: %w", program, err)
	}
	r.dirs = append(conf, "/lib64", "/usr/lib64", "/lib", "/usr/lib")
	if err := r.add(program, nil); err != nil {
		return closure{}, fmt.Errorf("resolving %q: %w", program, err)
	}
	var c closure
	c.files = r.files
	for _, f := range r.libraries {
		if d := filepath.Dir(f); !slices.Contains(c.dirs, d) {
			c.dirs = append(c.dirs, d)
		}
	}
	return c, nil
}

type resolver struct {
	root      string
	dirs      []string
	files     []string
	libraries []string
	seen      map[string]bool // by path
	byName    map[string]bool // by DT_NEEDED: the linker loads a name once
	class     elf.Class
	arch      elf.Machine
}

// add takes a file and all that it needs. inherited are the DT_RPATHs of those who need it.
func (r *resolver) add(path string, inherited []string) error {
	if r.seen[path] {
		return nil
	}
	if len(r.files) >= maxClosureFiles {
		return fmt.Errorf("more than %d files", maxClosureFiles)
	}
	f, err := elf.Open(filepath.Join(r.root, path))
	if err != nil {
		return err
	}
	defer f.Close()
	if len(r.files) == 0 {
		r.class, r.arch = f.Class, f.Machine
	}
	r.seen[path] = true
	r.files = append(r.files, path)
	if err := r.addInterpreter(f); err != nil {
		return err
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading what %q needs: %w", path, err)
	}
	rpath, runpath := runPath(f, path, elf.DT_RPATH), runPath(f, path, elf.DT_RUNPATH)
	if len(runpath) > 0 {
		rpath = nil // the linker takes no notice of RPATH then
	}
	inherited = append(slices.Clone(rpath), inherited...)
	for _, name := range needed {
		if err := r.addLibrary(name, path, slices.Concat(inherited, runpath, r.dirs), inherited); err != nil {
			return err
		}
	}
	return nil
}

func (r *resolver) addInterpreter(f *elf.File) error {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
		if err != nil {
			return fmt.Errorf("reading the interpreter's name: %w", err)
		}
		name := strings.TrimRight(string(b), "\x00")
		r.byName[filepath.Base(name)] = true
		return r.add(name, nil)
	}
	return nil
}

func (r *resolver) addLibrary(name, neededBy string, dirs, inherited []string) error {
	if r.byName[name] {
		return nil
	}
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, d := range dirs {
			candidates = append(candidates, filepath.Join(d, name))
		}
	}
	for _, path := range candidates {
		if !r.fits(path) {
			continue
		}
		r.byName[name] = true
		r.libraries = append(r.libraries, path)
		return r.add(path, inherited)
	}
	return fmt.Errorf("library %q, which %q needs, is in none of %s", name, neededBy, strings.Join(dirs, ":"))
}

// fits distinguishes a library of the program's architecture from one of another, as the linker does.
func (r *resolver) fits(path string) bool {
	f, err := elf.Open(filepath.Join(r.root, path))
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Class == r.class && f.Machine == r.arch
}

func runPath(f *elf.File, path string, tag elf.DynTag) []string {
	values, err := f.DynString(tag)
	if err != nil {
		return nil // a static file has no dynamic section
	}
	var dirs []string
	for _, v := range values {
		for _, d := range strings.Split(v, ":") {
			d = strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path)).Replace(d)
			if d != "" {
				dirs = append(dirs, filepath.Clean(d))
			}
		}
	}
	return dirs
}

const maxIncludes = 8

// linkerDirs reads the directories of a linker configuration; one that is absent has none.
func (r *resolver) linkerDirs(path string, depth int) ([]string, error) {
	if depth > maxIncludes {
		return nil, fmt.Errorf("reading %q: more than %d includes deep", path, maxIncludes)
	}
	f, err := os.Open(filepath.Join(r.root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var dirs []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "hwcap":
		case fields[0] == "include":
			for _, pattern := range fields[1:] {
				more, err := r.include(path, pattern, depth)
				if err != nil {
					return nil, err
				}
				dirs = append(dirs, more...)
			}
		default:
			dirs = append(dirs, fields...)
		}
	}
	return dirs, lines.Err()
}

func (r *resolver) include(from, pattern string, depth int) ([]string, error) {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(from), pattern)
	}
	matches, err := filepath.Glob(filepath.Join(r.root, pattern))
	if err != nil {
		return nil, fmt.Errorf("reading %q: include %q: %w", from, pattern, err)
	}
	var dirs []string
	for _, m := range matches {
		relative, err := filepath.Rel(r.root, m)
		if err != nil {
			return nil, err
		}
		more, err := r.linkerDirs("/"+relative, depth+1)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, more...)
	}
	return dirs, nil
}
