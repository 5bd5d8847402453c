package kernels

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
)

const (
	directoryMode = 0o040755
	programMode   = 0o100755
	deviceMode    = 0o020600
)

// initramfs is an archive for the kernel's first file system: cpio of the form "newc", which is
// all that the kernel unpacks by itself.
type initramfs struct {
	buffer bytes.Buffer
	inode  int
}

// newInitramfs holds the given files (place in the guest → file here), their directories and
// the console that the first process writes to.
func newInitramfs(files map[string]string) ([]byte, error) {
	var a initramfs
	a.add("dev", directoryMode, 0, 0, nil)
	a.add("dev/console", deviceMode, 5, 1, nil)
	made := map[string]bool{".": true, "dev": true}
	for _, place := range slices.Sorted(maps.Keys(files)) {
		a.addDirectories(path.Dir(place), made)
		content, err := os.ReadFile(files[place])
		if err != nil {
			return nil, fmt.Errorf("packing the guest's %s: %w", place, err)
		}
		a.add(place, programMode, 0, 0, content)
	}
	a.add("TRAILER!!!", 0, 0, 0, nil)
	return a.buffer.Bytes(), nil
}

// writeInitramfs writes one to a file.
func writeInitramfs(file string, files map[string]string) (string, error) {
	content, err := newInitramfs(files)
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, content, 0o644)
}

func (a *initramfs) add(name string, mode, major, minor uint32, content []byte) {
	a.inode++
	a.buffer.WriteString("070701")
	for _, field := range []int{a.inode, int(mode), 0, 0, 1, 0, len(content), 0, 0,
		int(major), int(minor), len(name) + 1, 0} {
		fmt.Fprintf(&a.buffer, "%08x", field)
	}
	a.buffer.WriteString(name + "\x00")
	a.pad()
	a.buffer.Write(content)
	a.pad()
}

// addDirectories adds a directory after those that it is in, each once.
func (a *initramfs) addDirectories(dir string, made map[string]bool) {
	if made[dir] {
		return
	}
	a.addDirectories(path.Dir(dir), made)
	a.add(dir, directoryMode, 0, 0, nil)
	made[dir] = true
}

// pad aligns what comes next to four bytes, as the format wants it.
func (a *initramfs) pad() {
	for a.buffer.Len()%4 != 0 {
		a.buffer.WriteByte(0)
	}
}
