package kernel

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// groupTranslator finds which control group of the containers' hierarchy has the path that a group of
// another hierarchy has. The kernel opens a group by its id as files are opened by handle.
type groupTranslator struct {
	from, to string
	root     *os.File
}

// newGroupTranslator translates between the hierarchies that are mounted there. Where one of them is not
// known, or both are one, it translates nothing.
func newGroupTranslator(from, to string) *groupTranslator {
	t := &groupTranslator{from: from, to: to}
	if from != "" && to != "" && from != to {
		t.root, _ = os.Open(from)
	}
	return t
}

// kernfsHandle is the kind of a handle that is the id of a file in kernfs (FILEID_KERNFS).
const kernfsHandle = 0xfe

// translate is 0 where the group is gone, has no counterpart, or may not be opened.
func (t *groupTranslator) translate(id uint64) uint64 {
	if t.root == nil {
		return 0
	}
	handle := unix.NewFileHandle(kernfsHandle, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(int(t.root.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return 0
	}
	below, found := strings.CutPrefix(path, t.from)
	var stat unix.Stat_t
	if !found || unix.Stat(t.to+below, &stat) != nil {
		return 0
	}
	return stat.Ino
}

// Close gives the hierarchy's mount free.
func (t *groupTranslator) Close() error {
	if t.root == nil {
		return nil
	}
	return t.root.Close()
}
