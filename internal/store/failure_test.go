package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"outsight/internal/model"
)

// childEnv makes the test binary play another process: "append" appends batches until it is
// killed, "open" only opens the directory and says what came of it.
const childEnv = "OUTSIGHT_STORE_CHILD"

func TestMain(m *testing.M) {
	switch dir := os.Getenv(childEnv + "_DIR"); os.Getenv(childEnv) {
	case "append":
		appendForever(dir)
	case "open":
		_, err := Open(dir, Options{})
		fmt.Println(err)
	default:
		os.Exit(m.Run())
	}
}

func childHistogram(i int) *model.Histogram {
	n := uint64(i + 1)
	return &model.Histogram{Count: 3 * n, SumNS: n, ZeroCount: n, Offset: -100, Buckets: []uint64{2 * n}}
}

func appendForever(dir string) {
	s, err := Open(dir, Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := 0; ; i++ {
		batch := []model.Series{histogramAt(float64(i), childHistogram(i), "h")}
		for id := range 50 {
			batch = append(batch, counterAt(float64(i), float64(i), "c", "id", fmt.Sprint(id)))
		}
		if err := s.Append(context.Background(), batch); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(i)
	}
}

func child(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+role, childEnv+"_DIR="+dir)
	return cmd
}

// killedWriter is a directory whose writer was killed after it had acknowledged batches 0 to n.
func killedWriter(t *testing.T, batches int) (dir string, n int) {
	t.Helper()
	dir = t.TempDir()
	cmd := child(t, "append", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, err := fmt.Sscan(lines.Text(), &n); err != nil {
			t.Fatal(lines.Text())
		}
		if n == batches {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || n < batches {
		t.Fatalf("the writer ended by itself after %d batches: %v", n, err)
	}
	return dir, n
}

// What was acknowledged is there after SIGKILL, all of it, and the directory opens at once.
func TestKilled(t *testing.T) {
	dir, n := killedWriter(t, 100)
	s := open(t, dir, Options{})
	window := fmt.Sprintf("[%ds]", n+1)
	want(t, s, fmt.Sprintf("sum(count_over_time(c%s))", window), float64(n), fmt.Sprintf("%d:%d", n, 50*(n+1)))
	want(t, s, fmt.Sprintf("sum(sum_over_time(c%s))", window), float64(n), fmt.Sprintf("%d:%g", n, float64(50*n*(n+1)/2)))
	want(t, s, "count_over_time(h"+window+")", float64(n), fmt.Sprintf("%d:%d", n, n+1))
	if got := histogramOf(t, s, "h", float64(n)); !sameBuckets(got, float(childHistogram(n))) {
		t.Errorf("got %+v", got)
	}
}

func newestSegment(t *testing.T, dir string) string {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "wal", "0*"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("no log in %s: %v", dir, err)
	}
	return segments[len(segments)-1]
}

// A damaged log costs what is damaged, the log says so, and the store works.
func TestDamagedLogIsRepaired(t *testing.T) {
	dir, n := killedWriter(t, 100)
	segment := newestSegment(t, dir)
	raw, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(raw) / 2; i < len(raw)/2+64; i++ {
		raw[i] ^= 0x5a
	}
	if err := os.WriteFile(segment, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := open(t, dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if !strings.Contains(log.String(), "a segment of the log was damaged") {
		t.Errorf("no word of the damage: %q", log.String())
	}
	r, err := s.Instant(context.Background(), `count_over_time(c{id="1"}[1h])`, at(float64(n)))
	if err != nil || len(r) != 1 || r[0].Points[0].Value < 1 || r[0].Points[0].Value > float64(n) {
		t.Errorf("got %+v, %v", r, err)
	}
	// The writer may have written one more batch than it has told.
	appendAll(t, s, counterAt(float64(n+2), 5, "c", "id", "1"))
	want(t, s, `c{id="1"}`, float64(n+2), fmt.Sprintf("__name__=c id=1 %d:5", n+2))
}

// A log whose last record was cut off, as by a power failure, opens without it.
func TestTruncatedLog(t *testing.T) {
	dir, n := killedWriter(t, 20)
	segment := newestSegment(t, dir)
	info, err := os.Stat(segment)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(segment, info.Size()-100); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, Options{})
	r, err := s.Instant(context.Background(), `sum(count_over_time(c[1h]))`, at(float64(n)))
	if err != nil || len(r) != 1 {
		t.Fatalf("got %+v, %v", r, err)
	}
	if got := r[0].Points[0].Value; got < float64(50*(n-3)) || got > float64(50*(n+1)) {
		t.Errorf("got %v of %v samples", got, 50*(n+1))
	}
}

// fill appends a batch every minute for the given hours, and makes blocks of what it can.
func fill(t *testing.T, s *Store, hours int) {
	t.Helper()
	for i := range hours * 60 {
		appendAll(t, s, counterAt(float64(60*i), float64(i), "c"))
	}
	if err := s.db.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// damagedBlock is a directory with blocks, of which the oldest has a file of garbage.
func damagedBlock(t *testing.T, file string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir, Options{})
	fill(t, s, 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	blocks, _ := filepath.Glob(filepath.Join(dir, "01*", file))
	if len(blocks) == 0 {
		t.Fatal("no blocks")
	}
	if err := os.WriteFile(blocks[0], []byte("garbage"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A block without a readable description is set aside, which the log says.
func TestDamagedBlockDescription(t *testing.T) {
	dir := damagedBlock(t, "meta.json")
	var log bytes.Buffer
	s := open(t, dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "set aside") {
		t.Errorf("no word of the damage: %q", log.String())
	}
	want(t, s, "c", 3*3600-60, fmt.Sprintf("__name__=c 10740:%d", 3*60-1))
}

func TestSecondOpener(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, Options{})
	_, err := Open(dir, Options{})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("same process: got %v", err)
	}
	out, err := child(t, "open", dir).Output()
	if err != nil || !strings.Contains(string(out), "in use by another server") {
		t.Errorf("other process: got %q, %v", out, err)
	}
}

func TestDirectoryCannotBeWritten(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to run a process as somebody else")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, Options{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file: got %v", err)
	}
	if _, err := Open(filepath.Join(file, "below"), Options{}); err == nil {
		t.Error("below a file: no error")
	}
	// The way to the binary and the directory must be open for the other user.
	shared, err := os.MkdirTemp("/tmp", "outsight-store-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(shared)
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(shared, 0o555), os.WriteFile(filepath.Join(shared, "test"), binary,
		0o555)); err != nil {
		t.Fatal(err)
	}
	cmd := child(t, "open", shared)
	cmd.Path, cmd.Dir = filepath.Join(shared, "test"), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "cannot be written") ||
		!strings.Contains(string(out), "permission denied") {
		t.Errorf("got %q, %v", out, err)
	}
}

// Samples older than the retention go, newer ones stay.
func TestRetention(t *testing.T) {
	count := func(o Options) (oldest time.Duration, blocks int) {
		t.Helper()
		s := open(t, t.TempDir(), o)
		fill(t, s, 12)
		// Blocks past the retention go when the next ones are made.
		appendAll(t, s, counterAt(12*3600+3600, 1, "c"))
		if err := s.db.Compact(context.Background()); err != nil {
			t.Fatal(err)
		}
		stats := s.Stats()
		return at(13 * 3600).Sub(stats.Oldest), stats.Blocks
	}
	if kept, blocks := count(Options{}); kept < 13*time.Hour-time.Second || blocks == 0 {
		t.Errorf("a day: %v kept in %d blocks, want all", kept, blocks)
	}
	if kept, _ := count(Options{Retention: 4 * time.Hour}); kept < 4*time.Hour || kept > 7*time.Hour {
		t.Errorf("4 h: %v kept", kept)
	}
	if kept, _ := count(Options{MaxBytes: 1}); kept > 4*time.Hour {
		t.Errorf("1 byte: %v kept", kept)
	}
	if _, err := Open(t.TempDir(), Options{Retention: -1}); err == nil {
		t.Error("negative retention: no error")
	}
}
