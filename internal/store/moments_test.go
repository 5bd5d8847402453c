package store

import (
	"os"
	"path/filepath"
	"testing"
)

// A data directory of an earlier version has snapshot files, which go; what is not one of them stays.
func TestMomentsOfAnEarlierVersionGo(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		dir := t.TempDir()
		moments := filepath.Join(dir, "moments")
		names := []string{"1700000040.moment", "1700000100.moment.new"}
		if foreign {
			names = append(names, "notes.txt")
		}
		if err := os.Mkdir(moments, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(moments, name), []byte("outsight moment 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		open(t, dir, Options{})
		left, err := os.ReadDir(moments)
		if foreign {
			if err != nil || len(left) != 1 || left[0].Name() != "notes.txt" {
				t.Errorf("left %v, %v", left, err)
			}
		} else if !os.IsNotExist(err) {
			t.Errorf("left %v, %v, want no directory", left, err)
		}
	}
}
