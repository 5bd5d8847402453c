package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"outsight/internal/model"
)

// killed is a copy of the data directory as a kill would leave it.
func killed(t *testing.T, dir string) string {
	t.Helper()
	for range 100 {
		to := filepath.Join(t.TempDir(), "data")
		err := os.CopyFS(to, os.DirFS(dir))
		if err == nil {
			return to
		}
		// The TSDB renames and removes files of blocks that it writes meanwhile.
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	t.Fatalf("each copy of %q met a file that was removed meanwhile", dir)
	return ""
}

// Series of the batches here, and batches in a segment.
const (
	repairSeries  = 500
	repairBatches = 20
	repairRounds  = 4
)

// segmented is a data directory with a segment of the log for each round.
func segmented(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for round := range repairRounds {
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range repairBatches {
			n := round*repairBatches + i
			batch := []model.Series{histogramAt(float64(n), childHistogram(n), "h")}
			for id := range repairSeries {
				batch = append(batch, counterAt(float64(n), float64(n), "c", "id", strconv.Itoa(id)))
			}
			if err := s.Append(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		dir = killed(t, dir)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func countSamples(t *testing.T, s *Store) int {
	t.Helper()
	end := at(repairRounds * repairBatches)
	results, err := s.Instant(t.Context(), `sum(count_over_time({__name__=~"c|h"}[1h]))`, end)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		return 0
	}
	return int(results[0].Points[0].Value)
}

func flipByte(t *testing.T, r *rand.Rand, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(content) == 0 {
		t.Fatalf("%q is empty", path)
	}
	at := r.IntN(len(content))
	content[at] ^= byte(1 + r.IntN(255))
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s[%d]", filepath.Base(path), at)
}

// Wherever a byte of the log is damaged, newer segments are read, a copy is kept, and it is said what was lost.
func TestDamagedLog(t *testing.T) {
	origin := segmented(t)
	segments, err := filepath.Glob(filepath.Join(origin, "wal", "0*"))
	if err != nil || len(segments) < repairRounds {
		t.Fatalf("segments %q, %v", segments, err)
	}
	s, err := Open(killed(t, origin), Options{})
	if err != nil {
		t.Fatal(err)
	}
	total := countSamples(t, s)
	if s.repaired != (repaired{}) {
		t.Fatalf("an intact store was repaired: %+v", s.repaired)
	}
	s.Close()
	for n := range 24 {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(n), 3))
			dir := killed(t, origin)
			segment := n % repairRounds
			where := flipByte(t, r, filepath.Join(dir, "wal", filepath.Base(segments[segment])))
			var log strings.Builder
			s, err := Open(dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			stored := countSamples(t, s)
			lost, reported := total-stored, int(s.Stats().Damaged)
			// A record has one batch; the first has the names of all series, without which nothing can be read.
			if math.Abs(float64(lost-reported)) > 0.5*float64(lost)+2*repairSeries {
				t.Errorf("%s: %d of %d samples are lost, and %d are reported", where, lost, total, reported)
			}
			if lost > 3*repairSeries && !strings.Contains(log.String(), "names of their series") {
				t.Errorf("%s: %d of %d samples are lost by one byte", where, lost, total)
			}
			kept, _ := os.ReadDir(filepath.Join(dir, "damaged"))
			if lost > 0 && len(kept) == 0 {
				t.Errorf("%s: no copy is kept", where)
			}
			if lost > 0 && !strings.Contains(log.String(), "lost_to") && !strings.Contains(log.String(), "the end of the log") {
				t.Errorf("%s: it is not said when: %s", where, &log)
			}
			// It goes on, and the next start finds nothing.
			if err := s.Append(t.Context(), []model.Series{counterAt(100, 1, "c", "id", "0")}); err != nil {
				t.Error(err)
			}
			s.Close()
			again, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if again.repaired != (repaired{}) {
				t.Errorf("%s: repaired again: %+v", where, again.repaired)
			}
		})
	}
}

// A segment that is missing, and one of which all is random, cost what was in them.
func TestMissingSegment(t *testing.T) {
	origin := segmented(t)
	segments, err := filepath.Glob(filepath.Join(origin, "wal", "0*"))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"random": func(path string) error {
			b := make([]byte, 100_000)
			r := rand.New(rand.NewPCG(1, 1))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return os.WriteFile(path, b, 0o600)
		},
		"zeros": func(path string) error { return os.WriteFile(path, make([]byte, 100_000), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := killed(t, origin)
			if err := damage(filepath.Join(dir, "wal", filepath.Base(segments[1]))); err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			want := (repairRounds - 1) * repairBatches * (repairSeries + 1)
			if got := countSamples(t, s); got < want {
				t.Errorf("%d samples, want the %d of the other segments", got, want)
			}
		})
	}
}

// A block that cannot be opened is set aside, and the others are read.
func TestDamagedBlock(t *testing.T) {
	origin := t.TempDir()
	s, err := Open(origin, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 * 60 {
		if err := s.Append(t.Context(), []model.Series{counterAt(float64(60*i), float64(i), "c")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	blocks, err := filepath.Glob(filepath.Join(origin, "0*"))
	if err != nil || len(blocks) < 2 {
		t.Fatalf("blocks %q, %v", blocks, err)
	}
	for _, file := range []string{"meta.json", "index", "chunks/000001"} {
		t.Run(file, func(t *testing.T) {
			dir := killed(t, origin)
			if err := os.Truncate(filepath.Join(dir, filepath.Base(blocks[0]), file), 7); err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			s, err := Open(dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if n := len(s.db.Blocks()); n != len(blocks)-1 {
				t.Errorf("%d blocks of %d are open", n, len(blocks))
			}
			kept, _ := os.ReadDir(filepath.Join(dir, "damaged"))
			if len(kept) != 1 || s.Stats().DamagedFiles != 1 || !strings.Contains(log.String(), filepath.Base(blocks[0])) {
				t.Errorf("%d kept, %+v: %s", len(kept), s.repaired, &log)
			}
		})
	}
}

// Chunks on the disk are a copy of what the log has.
func TestDamagedHeadChunks(t *testing.T) {
	origin := t.TempDir()
	s, err := Open(origin, Options{})
	if err != nil {
		t.Fatal(err)
	}
	const batches = 700
	for i := range batches {
		if err := s.Append(t.Context(), []model.Series{counterAt(float64(i), float64(i), "c", "id", "0"),
			counterAt(float64(i), float64(i), "c", "id", "1")}); err != nil {
			t.Fatal(err)
		}
	}
	s.db.ForceHeadMMap()
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	for n := range 6 {
		dir := killed(t, origin)
		files, err := filepath.Glob(filepath.Join(dir, "chunks_head", "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("files %q, %v", files, err)
		}
		content, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		content[(2*n+1)*min(len(content), 1200)/12] ^= 0x5a
		if err := os.WriteFile(files[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
		damaged, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want(t, damaged, "sum(count_over_time(c[1h]))", batches, fmt.Sprintf("%d:%d", batches, 2*batches))
		damaged.Close()
	}
	s.Close()
}

func FuzzSegment(f *testing.F) {
	f.Add(encodeSegment([]logRecord{{0, []byte("one"), false}, {snappyFlag, make([]byte, 40_000), false}}))
	f.Add([]byte{1, 0, 1, 0, 0, 0, 0, 7})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := scanSegment(b)
		s.count()
		// What was read is read again.
		again := scanSegment(encodeSegment(s.records))
		if again.holes != 0 || len(again.records) != len(s.records) {
			t.Fatalf("%d records and %d holes, of %d records", len(again.records), again.holes, len(s.records))
		}
	})
}
