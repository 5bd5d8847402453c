package agent

import (
	"errors"
	"io"
	"os"
)

// procFile is a file of procfs of which the beginning is read at each snapshot. It stays open: to open and close such a
// file takes as long as to read it. The zero value works.
type procFile struct {
	file   *os.File
	buffer [512]byte
}

// read is the beginning of the file at path, which is always the same. It is good until the next call.
func (f *procFile) read(path string) ([]byte, error) {
	if f.file == nil {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		f.file = file
	}
	n, err := f.file.ReadAt(f.buffer[:], 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return f.buffer[:n], err
}

// procFiles are those of the agent.
type procFiles struct{ memory, stat, meminfo, loadavg procFile }

// close closes them. The next reading opens them again.
func (p *procFiles) close() {
	for _, f := range []*procFile{&p.memory, &p.stat, &p.meminfo, &p.loadavg} {
		if f.file != nil {
			_ = f.file.Close() // nothing was written
			f.file = nil
		}
	}
}
