package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"outsight/test/kernels/report"
)

// mountDisks loads the modules that the host gave, in the order of their names, and mounts the file systems on the
// disks that it gave, each below report.FileSystemsDir under its kind.
func mountDisks() (note string, err error) {
	modules, err := loadModules("/modules")
	if err != nil {
		return "", err
	}
	disks, err := filepath.Glob("/disks/*")
	if err != nil {
		return "", err
	}
	for _, disk := range disks {
		if err := mountDisk(disk, filepath.Base(disk)); err != nil {
			return "", fmt.Errorf("mounting %s: %w", disk, err)
		}
	}
	return fmt.Sprintf("%d modules, %d disks", modules, len(disks)), nil
}

// loadModules loads the modules of a directory in the order of their names.
func loadModules(dir string) (count int, err error) {
	modules, err := filepath.Glob(dir + "/*.ko")
	if err != nil {
		return 0, err
	}
	for _, module := range modules {
		if err := load(module); err != nil {
			return 0, fmt.Errorf("loading %s: %w", module, err)
		}
	}
	return len(modules), nil
}

func load(module string) error {
	file, err := os.Open(module)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}

func mountDisk(disk, kind string) error {
	image, err := expand(disk, "/tmp/disk-"+kind)
	if err != nil {
		return err
	}
	defer image.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return fmt.Errorf("looking for a free loop device: %w", err)
	}
	path := fmt.Sprintf("/dev/loop%d", number)
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	if err := unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{Fd: uint32(image.Fd())}); err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	point := filepath.Join(report.FileSystemsDir, kind)
	if err := os.MkdirAll(point, 0o755); err != nil {
		return err
	}
	return unix.Mount(path, point, kind, 0, "")
}

// expand makes a file with holes of a compressed one.
func expand(from, to string) (*os.File, error) {
	compressed, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer compressed.Close()
	content, err := gzip.NewReader(compressed)
	if err != nil {
		return nil, err
	}
	file, err := os.Create(to)
	if err != nil {
		return nil, err
	}
	block, size := make([]byte, 64<<10), int64(0)
	empty := make([]byte, len(block))
	for {
		n, err := io.ReadFull(content, block)
		if n > 0 && !bytes.Equal(block[:n], empty[:n]) {
			if _, err := file.WriteAt(block[:n], size); err != nil {
				return file, err
			}
		}
		size += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return file, file.Truncate(size)
		}
		if err != nil {
			return file, err
		}
	}
}
