package access

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// CheckSecretFile refuses a file of secrets that another user could have written: one that is writable by its group or
// by others, or whose owner is neither root nor this process's user. An empty path is no file.
func CheckSecretFile(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return checkSecret(f)
}

func checkSecret(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	owner := -1
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = int(stat.Uid)
	}
	return secretFault(f.Name(), info.Mode(), owner, os.Geteuid())
}

// secretFault returns what is wrong with a file of secrets for a process of user.
func secretFault(path string, mode os.FileMode, owner, user int) error {
	// The content of a pipe cannot be changed later.
	if mode.IsRegular() && mode.Perm()&0o022 != 0 {
		return fmt.Errorf("%q can be written by others than its owner (mode %04o), who could let themselves in: "+
			"chmod go-w it", path, mode.Perm())
	}
	if mode.IsRegular() && owner != 0 && owner != user {
		return fmt.Errorf("%q belongs to user %d, who could change it: chown it to root or to user %d, as whom this "+
			"runs", path, owner, user)
	}
	return nil
}

// readSecret reads a small file of secrets.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := checkSecret(f); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	if err == nil && len(text) > maxTokenFile {
		err = fmt.Errorf("%q has more than %d bytes", path, maxTokenFile)
	}
	return text, err
}
