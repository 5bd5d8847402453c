package frame

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// told is a frame as testdata/read_frame.py tells it.
type told struct {
	Host                string
	Epoch, Boot, Number uint64
	Key, Time           uint64
	ClockError          uint64 `json:"clock_error"`
	Strings             []string
	Tables              map[string]struct {
		IDs     []uint32
		Columns map[string]json.RawMessage
	}
	Metrics map[string]struct {
		Unit   string
		Per    float64
		Labels []string
	}
}

// TestPythonReadsFrames: a reader that was written after docs/format/frame.md alone reads the same numbers.
func TestPythonReadsFrames(t *testing.T) {
	python, err := exec.Command("../../scripts/python").Output()
	if err != nil {
		t.Fatalf("scripts/python: %v", err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var sets [][]*Frame
	for range 3 {
		key := randomFrame(r, nil)
		sets = append(sets, []*Frame{key, randomFrame(r, key), randomFrame(r, key)})
	}
	key, busy := sampleFrames(10, 30, 0.5)
	for _, frames := range append(sets, []*Frame{key, busy}) {
		var files []string
		for i, f := range frames {
			path := filepath.Join(t.TempDir(), fmt.Sprint(i))
			if err := os.WriteFile(path, Encode(nil, f, frames[0]), 0o600); err != nil {
				t.Fatal(err)
			}
			files = append(files, path)
		}
		cmd := exec.Command(strings.TrimSpace(string(python)), append([]string{"testdata/read_frame.py"}, files...)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(bytes.NewReader(out))
		for _, f := range frames {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			var got told
			if err := json.Unmarshal(line, &got); err != nil {
				t.Fatal(err)
			}
			compareTold(t, f, &got)
		}
	}
}

func compareTold(t *testing.T, f *Frame, got *told) {
	t.Helper()
	equal := func(what string, got, want any) {
		t.Helper()
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			t.Fatalf("%s: Python reads %.200s, want %.200s", what, g, w)
		}
	}
	equal("header", []any{got.Host, got.Epoch, got.Boot, got.Number, got.Key, got.Time, got.ClockError}, []any{f.Host, f.Epoch,
		f.Boot, f.Number, f.Key, f.Time.UnixNano(), int64(f.ClockError)})
	equal("texts", got.Strings, f.Strings)
	for name, m := range LabelledMetrics {
		g := got.Metrics[name]
		equal(name, []any{g.Unit, g.Per, g.Labels}, []any{m.Unit, m.Per(), m.Labels})
	}
	for table := range f.Tables {
		info, is := &Schema[table], &f.Tables[table]
		columns := got.Tables[info.Name].Columns
		equal(info.Name, got.Tables[info.Name].IDs, is.IDs)
		if len(is.IDs) == 0 {
			continue
		}
		for i, a := range info.Attributes {
			var values []uint64
			if err := json.Unmarshal(columns[a.Name], &values); err != nil {
				t.Fatal(err)
			}
			equal(a.Name, values, is.Attributes[i])
		}
		for i, c := range info.Columns {
			var values []*uint64
			if err := json.Unmarshal(columns[c.Name], &values); err != nil {
				t.Fatal(err)
			}
			for row := range is.IDs {
				want, ok := is.Columns[i].At(row)
				if there := row < len(values) && values[row] != nil; there != ok || ok && *values[row] != want {
					t.Fatalf("%s, row %d: Python reads %v, want %d (%t)", c.Name, row, values, want, ok)
				}
			}
		}
		for i, h := range info.Histograms {
			var all []struct {
				Zero, Overflow, Sum uint64
				Buckets             map[int32]uint64
			}
			if err := json.Unmarshal(columns[h.Name], &all); err != nil {
				t.Fatal(err)
			}
			of := &is.Histograms[i]
			equal(h.Name, len(all), len(of.End))
			for row := range all {
				index, counts := of.Buckets(row)
				buckets := map[int32]uint64{}
				for k, b := range index {
					buckets[b] = counts[k]
				}
				equal(h.Name, []any{all[row].Zero, all[row].Overflow, all[row].Sum, all[row].Buckets},
					[]any{of.Zero[row], of.Overflow[row], of.SumNS[row], buckets})
			}
		}
	}
}
