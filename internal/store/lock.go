package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrInUse means that another server has the data directory open.
var ErrInUse = errors.New("in use")

// lockDir locks a data directory. The lock ends with the process, however that ends; the file stays. A Prometheus
// server honours the same file.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %q cannot be written: %w", dir, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder, _ := io.ReadAll(io.LimitReader(f, 64))
		f.Close()
		return nil, fmt.Errorf("data directory %q is %w by another server (%s)", dir, ErrInUse, orUnknown(string(holder)))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking data directory %q: %w", dir, err)
	}
	// For operators alone. On a full disk it may fail.
	_ = errors.Join(f.Truncate(0), writePID(f))
	return f, nil
}

func writePID(f *os.File) error {
	_, err := fmt.Fprintf(f, "pid %d\n", os.Getpid())
	return err
}

func orUnknown(holder string) string {
	if holder = strings.TrimSpace(holder); holder != "" {
		return holder
	}
	return "unknown"
}
