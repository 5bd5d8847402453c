package parquet

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pq "github.com/parquet-go/parquet-go"

	"outsight/internal/csvy"
)

var start = time.Unix(1790000000, 0)

func exampleHead() csvy.Head {
	h := csvy.Head{
		Version: "0.4", Provider: "docker", CgroupVersion: 2, Interval: 50 * time.Millisecond, Started: start, MonotonicNS: 5,
		Part:      1,
		Container: csvy.Container{ID: "abc", Name: "shop-cart", Labels: map[string]string{"a": "b: c"}},
		Host:      csvy.Host{Name: "node-1", Cores: 4, OnlineCores: 4},
	}
	for _, name := range []string{csvy.Tick, csvy.CPUNS, csvy.Running, csvy.MemoryLimitBytes, "memory.stat/anon"} {
		h.Columns = append(h.Columns, csvy.ColumnNamed(name))
	}
	return h
}

func row(i int) []float64 {
	switch {
	case i%10 == 0:
		return []float64{float64(i), float64(i) * 1e6, 1.5, math.Inf(1), 4096}
	case i%7 == 0:
		return []float64{float64(i), float64(i) * 1e6, math.NaN(), 1 << 30, math.NaN()}
	}
	return []float64{float64(i), float64(i) * 1e6, 2, math.NaN(), math.NaN()}
}

func at(i int) time.Time { return start.Add(time.Duration(i) * 50 * time.Millisecond) }

// record writes n rows; with end false the writer is left as if it had been killed.
func record(t *testing.T, n int, end bool, o csvy.Options) (path string) {
	t.Helper()
	dir := t.TempDir()
	w, err := csvy.Create(dir, csvy.Parquet, exampleHead(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := w.Row(at(i), row(i)); err != nil {
			t.Fatal(err)
		}
	}
	if end {
		if err := w.Lost(4); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("got files %v: %v", paths, err)
	}
	return paths[len(paths)-1]
}

func open(t *testing.T, path string) *csvy.Recording {
	t.Helper()
	r, err := csvy.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantRows holds the rows of a recording against the first n that were written.
func wantRows(t *testing.T, r *csvy.Recording, n int) {
	t.Helper()
	if len(r.At) != n {
		t.Fatalf("got %d rows, want %d", len(r.At), n)
	}
	for i := range n {
		if r.At[i] != at(i).UnixNano() {
			t.Fatalf("row %d is of %d, want %d", i, r.At[i], at(i).UnixNano())
		}
		for c, name := range []string{csvy.Tick, csvy.CPUNS, csvy.Running, csvy.MemoryLimitBytes, "memory.stat/anon"} {
			got, want := r.Column(name)[i], row(i)[c]
			if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Fatalf("row %d: column %s is %v, want %v", i, name, got, want)
			}
		}
	}
}

func TestIsReadBack(t *testing.T) {
	r := open(t, record(t, 1000, true, csvy.Options{}))
	if r.Lost() != 4 {
		t.Errorf("%d ticks are lost, want 4", r.Lost())
	}
	// The last row only tells of the lost ticks.
	if last := len(r.At) - 1; !math.IsNaN(r.Column(csvy.CPUNS)[last]) || r.End.Cut || len(r.Problems) > 0 ||
		r.End.Rows != 1001 {
		t.Errorf("got end %+v, problems %v", r.End, r.Problems)
	}
	r.At = r.At[:1000]
	wantRows(t, r, 1000)
	got, want := r.Head, exampleHead()
	for _, c := range want.Columns {
		if i := got.Index(c.Name); i < 0 || got.Columns[i] != c {
			t.Errorf("got columns %+v, want %+v among them", got.Columns, c)
		}
	}
	if !got.Started.Equal(want.Started) {
		t.Errorf("got start %v, want %v", got.Started, want.Started)
	}
	got.Columns, want.Columns = nil, nil
	got.Started = want.Started
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got head %+v, want %+v", got, want)
	}
}

// TestIsAnOrdinaryFile reads the whole by its last footer, as other programs do.
func TestIsAnOrdinaryFile(t *testing.T) {
	path := record(t, 1000, true, csvy.Options{})
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := pq.OpenFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.RowGroups()) != 5 || f.NumRows() != 1001 {
		t.Errorf("got %d row groups with %d rows, want 5 and 1001", len(f.RowGroups()), f.NumRows())
	}
	leaf, ok := f.Schema().Lookup(csvy.CPUNS)
	if !ok {
		t.Fatal("there is no column for the CPU time")
	}
	i := 0
	for _, g := range f.RowGroups() {
		rows := g.Rows()
		buffer := make([]pq.Row, 10)
		for {
			n, err := rows.ReadRows(buffer)
			for _, r := range buffer[:n] {
				for _, v := range r {
					if v.Column() == leaf.ColumnIndex && i < 1000 && v.Int64() != int64(i)*1e6 {
						t.Fatalf("row %d: got CPU time %v", i, v)
					}
				}
				i++
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		rows.Close()
	}
	if i != 1001 {
		t.Errorf("got %d rows, want 1001", i)
	}
}

// TestCutFiles cuts a recording at many bytes: all row groups that are whole are read.
func TestCutFiles(t *testing.T) {
	b, err := os.ReadFile(record(t, 30, true, csvy.Options{FlushEvery: 500 * time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for n := len(b); n >= 0; n -= 17 {
		r, err := Parse(b[:n])
		if err != nil {
			if whole > 0 && n > 4000 {
				t.Fatalf("%d bytes: %v", n, err)
			}
			continue
		}
		whole++
		if n == len(b) {
			continue
		}
		if !r.End.Cut || len(r.Problems) != 1 || r.End.Bytes > int64(n) {
			t.Fatalf("%d of %d bytes: got end %+v, problems %v", n, len(b), r.End, r.Problems)
		}
		if rows := len(r.At); rows < 31 {
			wantRows(t, r, rows)
		}
	}
	// The writer that is killed has written all but the rows of the last half second.
	r := open(t, record(t, 30, false, csvy.Options{FlushEvery: 500 * time.Millisecond}))
	wantRows(t, r, 21)
	if !r.End.Cut || !r.End.At.Equal(at(20)) {
		t.Errorf("got end %+v", r.End)
	}
	r = open(t, record(t, 0, false, csvy.Options{}))
	wantRows(t, r, 0)
}

func TestRotation(t *testing.T) {
	path := record(t, 100, true, csvy.Options{RotateEvery: time.Second})
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.parquet"))
	if err != nil || len(paths) != 5 {
		t.Fatalf("got files %v: %v", paths, err)
	}
	var all []float64
	for i, p := range paths {
		r := open(t, p)
		if r.Head.Part != i+1 || r.End.Cut {
			t.Errorf("%s is part %d, cut %v", p, r.Head.Part, r.End.Cut)
		}
		all = append(all, r.Column(csvy.Tick)...)
	}
	if len(all) != 101 || !slices.IsSorted(all[:100]) {
		t.Errorf("got ticks %v", all)
	}
}

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
	w, err := csvy.Create(dir, csvy.Parquet, exampleHead(), csvy.Options{FlushEvery: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 10000 && err == nil; i++ {
		err = w.Row(at(i), row(i))
	}
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("got error %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	paths, _ := filepath.Glob(filepath.Join(dir, "*"))
	r := open(t, paths[0])
	if len(r.At) < 100 || !strings.Contains(err.Error(), "row "+string(csvy.AppendNumber(nil, float64(len(r.At))))) {
		t.Errorf("got %d rows after %v", len(r.At), err)
	}
	wantRows(t, r, len(r.At))
}

// killedDir makes the test's program a recorder that goes on until it is killed.
const killedDir = "OUTSIGHT_TEST_RECORD"

func TestMain(m *testing.M) {
	dir := os.Getenv(killedDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	var writers []csvy.Writer
	for _, format := range []csvy.Format{csvy.CSVY, csvy.RAdvisor, csvy.Parquet} {
		w, err := csvy.Create(dir, format, exampleHead(), csvy.Options{FlushEvery: time.Second})
		if err != nil {
			panic(err)
		}
		writers = append(writers, w)
	}
	for i := 0; ; i++ {
		for _, w := range writers {
			if err := w.Row(at(i), row(i)); err != nil {
				panic(err)
			}
		}
	}
}

// TestKilledRecorder ends a recorder with SIGKILL. All whole rows are read, from the first on.
func TestKilledRecorder(t *testing.T) {
	for range 3 {
		dir := t.TempDir()
		recorder := exec.Command(os.Args[0])
		recorder.Env = append(os.Environ(), killedDir+"="+dir)
		if err := recorder.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			paths, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
			if err != nil || time.Now().After(end) {
				t.Fatalf("nothing was recorded: %v", err)
			}
			if len(paths) == 1 {
				if info, err := os.Stat(paths[0]); err == nil && info.Size() > 100_000 {
					break
				}
			}
		}
		if err := recorder.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := recorder.Wait(); err == nil {
			t.Fatal("the recorder ended by itself")
		}
		for _, extension := range []string{".csvy", ".parquet"} {
			paths, _ := filepath.Glob(filepath.Join(dir, "*"+extension))
			r := open(t, paths[0])
			if len(r.At) < 500 || r.End.Rows != len(r.At) || !r.End.At.Equal(at(len(r.At)-1)) {
				t.Errorf("%s: got end %+v", extension, r.End)
			}
			wantRows(t, r, len(r.At))
		}
		paths, _ := filepath.Glob(filepath.Join(dir, "*.log"))
		if r := open(t, paths[0]); r.Format != csvy.RAdvisor || len(r.At) < 100 || len(r.Problems) > 1 {
			t.Errorf("%s: got %d rows, problems %v", paths[0], len(r.At), r.Problems)
		}
	}
}

func TestForeignFiles(t *testing.T) {
	var b bytes.Buffer
	if err := pq.Write(&b, []struct{ A int }{{1}}); err != nil {
		t.Fatal(err)
	}
	f := func(text, want string) {
		t.Helper()
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	f(b.String(), "but not a recording")
	f("PAR1", "not a recording, or cut")
	f("PAR1\x00\x00\x00\x00PAR1", "not a recording, or cut")
	f("", "not a recording, or cut")
}

// FuzzParse changes what is around and within a recording's pieces.
func FuzzParse(f *testing.F) {
	b, err := os.ReadFile("testdata/three-pieces.parquet")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-100])
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		for i := range r.Values {
			if len(r.Values[i]) != len(r.At) {
				t.Errorf("column %d has %d values of %d", i, len(r.Values[i]), len(r.At))
			}
		}
	})
}

var update = flag.Bool("update", false, "write the golden file")

// TestGoldenFile reads a file that an earlier version wrote.
func TestGoldenFile(t *testing.T) {
	const golden = "testdata/three-pieces.parquet"
	if *update {
		b, err := os.ReadFile(record(t, 30, true, csvy.Options{FlushEvery: 500 * time.Millisecond}))
		if err == nil {
			err = errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, b, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, golden)
	r.At = r.At[:30]
	wantRows(t, r, 30)
}

// TestDamagedFiles changes a few bytes: what is read is told, and nothing panics.
func TestDamagedFiles(t *testing.T) {
	b, err := os.ReadFile("testdata/three-pieces.parquet")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	read := 0
	for range 500 {
		damaged := bytes.Clone(b)
		for range 1 + random.IntN(5) {
			damaged[random.IntN(len(b))] = byte(random.Uint32())
		}
		if r, err := Parse(damaged); err == nil && len(r.At) > 0 {
			read++
		}
	}
	if read < 100 {
		t.Errorf("of 500 files with up to 5 damaged bytes %d were read in part, want 100 or more", read)
	}
}

// A file with holes claims any size, and is not read into memory.
func TestHugeFileIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "huge.parquet")
	if err := os.WriteFile(path, []byte(magic), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 900<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := csvy.Open(path); err == nil || !strings.Contains(err.Error(), "want 2147483648 at most") {
		t.Errorf("got %v", err)
	}
}
