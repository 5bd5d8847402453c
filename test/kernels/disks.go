package kernels

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// diskSizes are the sizes of disks with a file system each, in bytes: hardly more than the least that it takes.
var diskSizes = map[string]int64{"ext4": 64 << 20, "btrfs": 128 << 20, "xfs": 320 << 20}

// disks makes a compressed image of a disk with each file system, and tells where it belongs in the guest.
func disks(dir string) (map[string]string, error) {
	places := map[string]string{}
	for kind, size := range diskSizes {
		file := filepath.Join(dir, kind)
		err := os.WriteFile(file, nil, 0o600)
		if err == nil {
			err = os.Truncate(file, size)
		}
		if err != nil {
			return nil, err
		}
		if out, err := exec.Command("mkfs."+kind, "-q", file).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("mkfs.%s: %w: %s", kind, err, out)
		}
		places["disks/"+kind] = file + ".gz"
		if err := compress(file); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// compress makes file.gz of a file, which it removes.
func compress(file string) error {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer os.Remove(file)
	defer from.Close()
	to, err := os.Create(file + ".gz")
	if err != nil {
		return err
	}
	defer to.Close()
	compressed, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := io.Copy(compressed, from); err != nil {
		return err
	}
	return compressed.Close()
}
