package damaged

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOldestGoFirst(t *testing.T) {
	root := t.TempDir()
	d := Dir{Path: filepath.Join(root, "damaged"), MaxBytes: 250}
	for _, name := range []string{"a", "b", "c"} {
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		kept, err := d.Copy(path)
		if err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(kept); err != nil || len(content) != 100 {
			t.Errorf("%q has %d bytes, %v", kept, len(content), err)
		}
	}
	if names := d.List(); len(names) != 2 || !strings.HasSuffix(names[0], "-b") || !strings.HasSuffix(names[1], "-c") {
		t.Errorf("kept: %q", names)
	}
	// The newest stays, even where it alone is over the bound, and a directory counts with all in it.
	large := filepath.Join(root, "large")
	if err := os.MkdirAll(large, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(large, "chunks"), make([]byte, 400), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Move(large); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(large); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	if names := d.List(); len(names) != 1 || !strings.HasSuffix(names[0], "-large") {
		t.Errorf("kept: %q", names)
	}
	info, err := os.Stat(d.Path)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestReplaceLeavesTheCopy(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "file")
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := (Dir{Path: filepath.Join(root, "damaged"), MaxBytes: 1 << 20}).Copy(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, []byte("good")); err != nil {
		t.Fatal(err)
	}
	was, _ := os.ReadFile(kept)
	is, _ := os.ReadFile(path)
	if string(was) != "damaged" || string(is) != "good" {
		t.Errorf("%q and %q", was, is)
	}
}
