package csvy

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	h := exampleHead(2, CPUNS)
	w, err := Create(dir, CSVY, h, Options{RotateEvery: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := w.Row(start.Add(time.Duration(i)*50*time.Millisecond), []float64{float64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var all []float64
	for i, path := range recordings(t, dir) {
		r := open(t, path)
		all = append(all, r.Column(CPUNS)...)
		if r.Head.Part != i+1 || len(r.At) != 20 {
			t.Errorf("file %d is part %d with %d rows, want 20", i+1, r.Head.Part, len(r.At))
		}
	}
	if len(all) != 100 || !slices.IsSorted(all) {
		t.Errorf("got %d rows of 100, in order: %v", len(all), all)
	}
}

func TestBound(t *testing.T) {
	dir := t.TempDir()
	h := exampleHead(2, CPUNS)
	run := func(o Options) error {
		w, err := Create(dir, CSVY, h, o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5000 {
			if err = w.Row(start.Add(time.Duration(i)*50*time.Millisecond), []float64{float64(i)}); err != nil {
				break
			}
		}
		return errors.Join(err, w.Close())
	}
	total := func() (sum int64) {
		for _, path := range recordings(t, dir) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			sum += info.Size()
		}
		return sum
	}
	const limit = 60_000
	b := NewBound(limit)
	if err := run(Options{RotateBytes: 15_000, Bound: b}); err != nil {
		t.Error(err)
	}
	if size := total(); size > limit || size < limit/2 || b.Removed() == 0 {
		t.Errorf("%d bytes are there and %d files were removed, want at most %d bytes", size, b.Removed(), limit)
	}
	paths := recordings(t, dir)
	if last := open(t, paths[len(paths)-1]).Column(CPUNS); last[len(last)-1] != 4999 {
		t.Errorf("the last row is %v, want 4999", last[len(last)-1])
	}
	// Without rotation there is nothing to remove.
	dir = t.TempDir()
	if err := run(Options{Bound: NewBound(limit)}); !errors.Is(err, ErrBound) {
		t.Errorf("got error %v, want %v", err, ErrBound)
	}
	if r := open(t, recordings(t, dir)[0]); r.End.Cut || len(r.At) < 100 || total() > limit {
		t.Errorf("got end %+v of %d bytes", r.End, total())
	}
}

// TestFullDisk fills a file system.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("outsight", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	for _, format := range []Format{CSVY, RAdvisor} {
		w, err := Create(dir, format, exampleHead(2, CPUNS), Options{FlushEvery: 333 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < 5000 && err == nil; i++ {
			err = w.Row(start.Add(time.Duration(i)*50*time.Millisecond), []float64{float64(i)})
		}
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "the disk is full") ||
			!strings.Contains(err.Error(), dir) {
			t.Errorf("got error %v", err)
		}
		if again := w.Row(start, []float64{0}); again == nil {
			t.Error("a row was taken after the disk was full")
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		path := recordings(t, dir)[0]
		r := open(t, path)
		if n := len(r.At); r.End.Cut || n < 100 || len(r.Problems) > 0 || !strings.Contains(err.Error(), "row "+itoa(n)) {
			t.Errorf("got %d rows, end %+v, problems %v after %v", n, r.End, r.Problems, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnwritableDirectory(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "none"), CSVY, exampleHead(2), Options{}); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("got error %v", err)
	}
	if _, err := Create(t.TempDir(), "xml", exampleHead(2), Options{}); err == nil ||
		!strings.Contains(err.Error(), `no format "xml"`) {
		t.Errorf("got error %v", err)
	}
}

// TestNamesInTheHeadAreSafe puts what could end the head early into it.
func TestNamesInTheHeadAreSafe(t *testing.T) {
	f := func(name string) {
		t.Helper()
		h := exampleHead(2, CPUNS)
		h.Container.Name, h.Container.Labels = name, map[string]string{name: name}
		r := open(t, write(t, t.TempDir(), CSVY, h, Options{}, []float64{1}))
		if r.Head.Container.Name != name || r.Head.Container.Labels[name] != name {
			t.Errorf("got %q and labels %q, want %q", r.Head.Container.Name, r.Head.Container.Labels, name)
		}
	}
	for _, name := range []string{"a", "---", "a\n---\nread,x\n1,2", "~", "null", "No", "-", "a: b", "#x", "'", `"\`, "é😀",
		"\u0085\u2028", "\x7f\x1b[1m", " a ", "1e3", "0x1", "&a", "*a", "{}", "!x", "a #b", "1_000", "0o17", "017", "1.5",
		"12e400", "2026-01-02", ".inf", "nan", "Infinity", "1.2.3", "5c1f"} {
		f(name)
	}
}

// BenchmarkRow writes rows as a recorder does: most have no values from files.
func BenchmarkRow(b *testing.B) {
	h := exampleHead(2)
	h.Columns = Columns()
	w, err := Create(b.TempDir(), CSVY, h, Options{RotateBytes: 64 << 20, Bound: NewBound(256 << 20)})
	if err != nil {
		b.Fatal(err)
	}
	values := make([]float64, len(h.Columns))
	for i := range values {
		values[i] = 1e12 + float64(i)
		if h.Columns[i].Source == FromFile {
			values[i] = nan
		}
	}
	b.ReportAllocs()
	at := start
	for b.Loop() {
		at = at.Add(50 * time.Millisecond)
		if err := w.Row(at, values); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}

// A file's name says whose it is, holds nothing that is special to a shell or a file system, and is not another's.
func TestFileNames(t *testing.T) {
	f := func(c Container, want string) {
		t.Helper()
		if got := fileName(&Head{Container: c}); got != want {
			t.Errorf("%+v: got %q, want %q", c, got, want)
		}
	}
	short := containerID[:12]
	f(Container{ID: containerID, Name: "shop-redis"}, "shop-redis-"+short)
	f(Container{ID: containerID, Name: "app", PodName: "web-7"}, "web-7-app-"+short)
	f(Container{PodUID: "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", PodName: "web-7"}, "web-7-0a1b2c3d-4e5")
	f(Container{ID: containerID, Name: "../../etc/passwd"}, "etc-passwd-"+short)
	f(Container{ID: containerID, Name: "-rf; $(reboot)\n\x1b[2J"}, "rf----reboot----2J-"+short)
	f(Container{ID: containerID, Name: "..."}, containerID)
	f(Container{ID: containerID, Name: strings.Repeat("n", 300)}, strings.Repeat("n", 100)+"-"+short)
	f(Container{ID: containerID}, containerID)
	f(Container{ID: "host", Name: "node-1"}, "host")
	f(Container{ID: "system.slice/redis.service", Name: "redis.service"}, "system.slice-redis.service")

	dir, names := t.TempDir(), map[string]bool{}
	for range 3 { // of the same container in the same second
		file, err := CreateFile(dir, &Head{Container: Container{ID: containerID, Name: "shop"}}, time.Unix(1790000000, 0),
			".csvy", Options{})
		if err != nil {
			t.Fatal(err)
		}
		names[filepath.Base(file.Path())] = true
	}
	if base := "shop-" + short + "_1790000000"; len(names) != 3 || !names[base+".csvy"] || !names[base+"-3.csvy"] {
		t.Errorf("the files are %v", names)
	}
}
