package kernels

import (
	"bytes"
	"encoding/binary"
	"os/exec"
	"slices"
	"testing"
)

func TestVersionsAreComparedByNumber(t *testing.T) {
	names := []string{"linux-image-6.12.100+deb12-amd64", "linux-image-6.12.9+deb12-amd64",
		"linux-image-6.12.99+deb12-amd64"}
	slices.SortFunc(names, func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) })
	if names[2] != "linux-image-6.12.100+deb12-amd64" || names[0] != "linux-image-6.12.9+deb12-amd64" {
		t.Errorf("sorted: %q", names)
	}
}

// bzImage wraps a payload as the boot protocol has it: one sector of set-up code.
func bzImage(payload []byte) []byte {
	image := make([]byte, 1024, 1024+len(payload))
	image[0x1f1] = 1
	binary.LittleEndian.PutUint32(image[0x24c:], uint32(len(payload)))
	return append(image, payload...)
}

func TestUncompressed(t *testing.T) {
	kernel := []byte("\x7fELF and the rest")
	for _, program := range [][]string{{"xz", "-c"}, {"zstd", "-c"}} {
		command := exec.Command(program[0], program[1:]...)
		command.Stdin = bytes.NewReader(kernel)
		payload, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		if program[0] == "zstd" {
			payload = binary.LittleEndian.AppendUint32(payload, uint32(len(kernel)))
		}
		if got, err := uncompressed(bzImage(payload)); err != nil || !bytes.Equal(got, kernel) {
			t.Errorf("%s: %q, %v", program[0], got, err)
		}
	}
	outside := bzImage(nil)
	binary.LittleEndian.PutUint32(outside[0x248:], 0xffffffff)
	for _, broken := range [][]byte{nil, []byte("MZ"), bzImage(nil), bzImage([]byte("\x28\xb5\x2f\xfd")),
		bzImage([]byte("gzip?")), outside} {
		if got, err := uncompressed(broken); err == nil {
			t.Errorf("%.20q is a kernel: %q", broken, got)
		}
	}
}

func TestModuleNames(t *testing.T) {
	for path, want := range map[string]string{
		"./lib/modules/6.1.0-9-amd64/kernel/fs/xfs/xfs.ko":             "xfs",
		"./usr/lib/modules/6.12.9/kernel/lib/zstd/zstd-compress.ko.xz": "zstd_compress",
		"./lib/modules/6.1.0-9-amd64/kernel/drivers/block/loop.ko":     "loop",
		"./lib/modules/6.1.0-9-amd64/kernel/drivers/gpu/dummy.ko":      "",
		"./lib/modules/6.1.0-9-amd64/kernel/fs/xfs":                    "",
		"./lib/modules/6.1.0-9-amd64/modules.order":                    "",
	} {
		if name, ok := moduleName(path); ok != (want != "") || ok && name != want {
			t.Errorf("%s is %q, %v, want %q", path, name, ok, want)
		}
	}
}
