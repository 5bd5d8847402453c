package report

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"outsight/internal/csvy"
	_ "outsight/internal/csvy/parquet"
)

// TestFormats finds the same in files of each format. rAdvisor's has no run queues and no requests.
func TestFormats(t *testing.T) {
	w := shop(5)
	hog(&w, 3003, 3243)
	for i := range w.actors {
		w.actors[i].more = map[string]func(float64) float64{csvy.MemoryBytes: always(1 << 20)}
	}
	for _, format := range []csvy.Format{csvy.CSVY, csvy.RAdvisor, csvy.Parquet} {
		for version := 1; version <= 2; version++ {
			dir := t.TempDir()
			for _, rec := range w.record() {
				rec.Head.CgroupVersion = version
				out, err := csvy.Create(dir, format, rec.Head, csvy.Options{RotateEvery: 4 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				for i, at := range rec.At {
					if err := out.Row(time.Unix(0, at), rec.Row(i)); err != nil {
						t.Fatal(err)
					}
				}
				if err := out.Close(); err != nil {
					t.Fatal(err)
				}
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var recordings []*csvy.Recording
			for _, entry := range entries {
				rec, err := csvy.Open(filepath.Join(dir, entry.Name()))
				if err != nil {
					t.Fatal(err)
				}
				recordings = append(recordings, rec)
			}
			r := Analyse(recordings, Options{})
			if len(r.Saturations) != 1 || len(r.Problems) != 0 {
				t.Errorf("%s, cgroup v%d: got %d saturations, problems %v\n%s", format, version, len(r.Saturations), r.Problems,
					text(r))
				continue
			}
			s := r.Saturations[0]
			if s.Kind != HostCPU || s.Container != "hog" || math.Abs(sinceEpoch(s.From)-3003) > 3 ||
				math.Abs(s.Duration-240) > 3 {
				t.Errorf("%s, cgroup v%d: got\n%s", format, version, text(r))
			}
			if format != csvy.RAdvisor {
				wantEffect(t, s, WaitedForCPU, "cart")
			}
			if c := r.Containers[0]; c.Files != 3 || c.Rows != 2001 || math.Abs(c.Intervals.Mean-5) > 1e-6 {
				t.Errorf("%s, cgroup v%d: got %+v", format, version, c)
			}
		}
	}
}

// TestShop reads what was recorded of the demo shop, at 5 ms on a busy machine, while its catalogue
// stood still. The catalogue itself says from when to when.
func TestShop(t *testing.T) {
	from := time.Date(2026, 11, 21, 19, 52, 18, 233438770, time.UTC)
	to := time.Date(2026, 11, 21, 19, 52, 18, 314263516, time.UTC)
	paths, err := filepath.Glob("testdata/shop/*.csvy")
	if err != nil || len(paths) != 4 {
		t.Fatalf("got recordings %v: %v", paths, err)
	}
	var recordings []*csvy.Recording
	for _, path := range paths {
		rec, err := csvy.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		recordings = append(recordings, rec)
	}
	r := Analyse(recordings, Options{})
	stalls := 0
	for _, s := range r.Saturations {
		if s.Kind != Stall {
			continue
		}
		stalls++
		if s.Container != "shop-catalogue" || s.From.Sub(from).Abs() > 10*time.Millisecond ||
			s.To.Sub(to).Abs() > 10*time.Millisecond {
			t.Errorf("%s stood still from %v to %v, want shop-catalogue from %v to %v", s.Container, s.From, s.To, from, to)
		}
		wantEffect(t, s, WaitedForReplies, "shop-gateway")
		wantEffect(t, s, WaitedForReplies, "shop-nginx")
	}
	if stalls != 1 {
		t.Errorf("got %d stalls, want 1 in\n%s", stalls, r.Text(0, time.UTC))
	}
}
