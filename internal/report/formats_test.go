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
				t.Errorf("%s, cgroup v%d: got %d saturations, problems %v\n%s", format, version, len(r.Saturations), r.Problems, text(r))
				continue
			}
			s := r.Saturations[0]
			if s.Kind != HostCPU || s.Container != "hog" || math.Abs(sinceEpoch(s.From)-3003) > 3 || math.Abs(s.Duration-240) > 3 {
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
