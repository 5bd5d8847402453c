package kubernetes

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// historyFile is an append-only file of records. Each is a line: the CRC-32C of the record in 8 hexadecimal digits, a
// space, the record in JSON, and a line feed.
type historyFile struct {
	path string
	file *os.File
	size int64
	// compact is the size when the file was last made anew.
	compact int64
}

// historyHeader is the first line; its number is the version of the format.
const historyHeader = "outsight names 1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openHistoryFile reads all records that are whole. What is behind the first one that is not is cut off: lost is how
// many bytes that were.
func openHistoryFile(path string, each func(record)) (f *historyFile, lost int64, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("opening the history of names: %w", err)
	}
	f = &historyFile{path: path, file: file}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	if info.Size() == 0 {
		return f, 0, f.begin()
	}
	whole, err := readRecords(file, each)
	if err != nil {
		return nil, 0, fmt.Errorf("reading %s: %w", path, err)
	}
	if whole < info.Size() {
		lost = info.Size() - whole
		if err := errors.Join(file.Truncate(whole), file.Sync()); err != nil {
			return nil, 0, fmt.Errorf("cutting off the torn end of %s: %w", path, err)
		}
	}
	if whole == 0 { // not even the first line was whole
		return f, lost, f.begin()
	}
	f.size, f.compact = whole, whole
	return f, lost, nil
}

func (f *historyFile) begin() error {
	if _, err := f.file.WriteAt([]byte(historyHeader), 0); err != nil {
		return fmt.Errorf("beginning %s: %w", f.path, err)
	}
	f.size = int64(len(historyHeader))
	return f.file.Sync()
}

// readRecords reads records and answers how many bytes of the input are whole. It fails where it is no history at all.
func readRecords(r io.Reader, each func(record)) (whole int64, err error) {
	in := bufio.NewReaderSize(r, 1<<16)
	header, err := in.ReadString('\n')
	switch {
	case err != nil && bytes.HasPrefix([]byte(historyHeader), []byte(header)):
		return 0, nil // torn when it was made
	case header != historyHeader:
		return 0, fmt.Errorf("its first line is %q, want %q", header[:min(len(header), 64)], historyHeader)
	}
	whole = int64(len(header))
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return whole, err
		}
		if err == io.EOF {
			return whole, nil
		}
		one, ok := parseRecord(line)
		if !ok {
			return whole, nil
		}
		each(one)
		whole += int64(len(line))
	}
}

func parseRecord(line []byte) (r record, ok bool) {
	if len(line) < 10 || line[8] != ' ' {
		return r, false
	}
	var sum [4]byte
	if _, err := hex.Decode(sum[:], line[:8]); err != nil {
		return r, false
	}
	text := line[9 : len(line)-1]
	if crc32.Checksum(text, castagnoli) != uint32(sum[0])<<24|uint32(sum[1])<<16|uint32(sum[2])<<8|uint32(sum[3]) {
		return r, false
	}
	return r, json.Unmarshal(text, &r) == nil
}

func appendRecord(b []byte, r *record) ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return b, fmt.Errorf("BUG: %w", err)
	}
	b = fmt.Appendf(b, "%08x ", crc32.Checksum(text, castagnoli))
	return append(append(b, text...), '\n'), nil
}

// append writes records, and returns when they are on the disk.
func (f *historyFile) append(all []record) (err error) {
	var b []byte
	for i := range all {
		if b, err = appendRecord(b, &all[i]); err != nil {
			return err
		}
	}
	if _, err := f.file.WriteAt(b, f.size); err != nil {
		// What comes behind a torn record would not be read.
		return fmt.Errorf("writing the history of names: %w", errors.Join(err, f.file.Truncate(f.size)))
	}
	f.size += int64(len(b))
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("writing the history of names: %w", err)
	}
	return nil
}

// rewrite makes the file anew with these records. It is the old one or the new one, whatever happens meanwhile.
func (f *historyFile) rewrite(all []record) (err error) {
	temporary := f.path + ".new"
	file, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("making the history of names anew: %w", err)
	}
	defer func() {
		if err != nil && f.file != file {
			file.Close()
			os.Remove(temporary)
		}
	}()
	out := bufio.NewWriterSize(file, 1<<16)
	size := int64(0)
	b := []byte(historyHeader)
	for i := 0; ; i++ {
		if _, err := out.Write(b); err != nil {
			return fmt.Errorf("making the history of names anew: %w", err)
		}
		if size += int64(len(b)); i == len(all) {
			break
		}
		if b, err = appendRecord(b[:0], &all[i]); err != nil {
			return err
		}
	}
	if err := errors.Join(out.Flush(), file.Sync()); err != nil {
		return fmt.Errorf("making the history of names anew: %w", err)
	}
	if err := os.Rename(temporary, f.path); err != nil {
		return fmt.Errorf("making the history of names anew: %w", err)
	}
	f.file.Close()
	f.file, f.size, f.compact = file, size, size
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("making the history of names anew: %w", err)
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (f *historyFile) close() error { return f.file.Close() }
