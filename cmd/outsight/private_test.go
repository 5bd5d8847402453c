package main

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"outsight/internal/csvy"
)

// A recording is for its owner alone: who has called sudo, else who runs this.
func TestRecordingsArePrivate(t *testing.T) {
	f := func(sudo string, want uint32) {
		t.Helper()
		t.Setenv("SUDO_UID", sudo)
		t.Setenv("SUDO_GID", sudo)
		dir := filepath.Join(t.TempDir(), "recordings")
		if err := makeRecordings(dir); err != nil {
			t.Fatal(err)
		}
		if err := makeRecordings(dir); err != nil {
			t.Errorf("where it is there already: %v", err)
		}
		o := recordOptions{directory: dir, format: string(csvy.CSVY), sync: "never"}
		w, err := o.creator()(csvy.Head{Container: csvy.Container{ID: "c"}})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, path := range append(files, dir) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if stat := info.Sys().(*syscall.Stat_t); info.Mode().Perm()&0o077 != 0 || stat.Uid != want {
				t.Errorf("%s: mode %v of user %d, want one for user %d alone", path, info.Mode(), stat.Uid, want)
			}
		}
		if len(files) == 0 {
			t.Error("there is no file")
		}
	}
	me := uint32(os.Geteuid())
	f("", me)
	f("not a number", me)
	f("0", me)
	if me == 0 {
		f("1234", 1234)
	} else {
		f(strconv.Itoa(int(me)+1), me)
	}
}
