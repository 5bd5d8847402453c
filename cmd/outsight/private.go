package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// privateFiles makes all files that this process and its libraries create from now on files of its owner alone.
func privateFiles() { syscall.Umask(0o077) }

// makeRecordings makes a directory for recordings, where there is none, for its owner alone.
func makeRecordings(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of the recording: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("making the directory of the recording: %w", err)
	}
	return errors.Join(giveToCaller(d), d.Close())
}

// giveToCaller makes a file that root has made the file of who has called sudo, if that is how it was: they are to read
// their recordings.
func giveToCaller(f *os.File) error {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, groupErr := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err != nil || groupErr != nil || uid <= 0 || gid < 0 || os.Geteuid() != 0 {
		return nil
	}
	if err := f.Chown(uid, gid); err != nil {
		return fmt.Errorf("giving it to who has called sudo: %w", err)
	}
	return nil
}
