package clickhouse

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxText bounds a text that is read: a server that answers nonsense does not take all memory.
const maxText = 64 << 20

// reader reads ClickHouse's format RowBinary. After an error all values are zero.
type reader struct {
	in  *bufio.Reader
	err error
	// word is for numbers, texts has those that were read before.
	word  [8]byte
	buf   []byte
	texts map[string]string
}

func newReader(in io.Reader) *reader {
	return &reader{in: bufio.NewReaderSize(in, 1<<18), texts: map[string]string{}}
}

// more reports whether there is another row.
func (r *reader) more() bool {
	if r.err != nil {
		return false
	}
	_, err := r.in.Peek(1)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = fmt.Errorf("reading ClickHouse's answer: %w", err)
	}
	return err == nil
}

func (r *reader) bytes(n int) []byte {
	if r.err == nil {
		if _, err := io.ReadFull(r.in, r.word[:n]); err != nil {
			r.err = fmt.Errorf("reading ClickHouse's answer: %w", err)
		}
	}
	if r.err != nil {
		clear(r.word[:])
	}
	return r.word[:n]
}

func (r *reader) uint8() uint8   { return r.bytes(1)[0] }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.bytes(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.bytes(8)) }

// nullable is a number of 8 bytes that may be missing.
func (r *reader) nullable() (n uint64, ok bool) {
	if r.uint8() != 0 || r.err != nil {
		return 0, false
	}
	return r.uint64(), true
}

func (r *reader) varint() uint64 {
	if r.err != nil {
		return 0
	}
	n, err := binary.ReadUvarint(r.in)
	if err != nil {
		r.err = fmt.Errorf("reading ClickHouse's answer: %w", err)
		return 0
	}
	return n
}

// length is that of a text or an array whose elements take size bytes.
func (r *reader) length(size int) int {
	n := r.varint()
	if n > uint64(maxText/size) {
		r.err = fmt.Errorf("reading ClickHouse's answer: a value of %d bytes", n)
		return 0
	}
	return int(n)
}

func (r *reader) text() string {
	n := r.length(1)
	if cap(r.buf) < n {
		r.buf = make([]byte, n)
	}
	if r.err == nil {
		if _, err := io.ReadFull(r.in, r.buf[:n]); err != nil {
			r.err = fmt.Errorf("reading ClickHouse's answer: %w", err)
		}
	}
	if r.err != nil {
		return ""
	}
	if text, ok := r.texts[string(r.buf[:n])]; ok {
		return text
	}
	text := string(r.buf[:n])
	r.texts[text] = text
	return text
}

// Numbers as RowBinary has them.

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

func appendUint32(to []byte, n uint32) []byte { return binary.LittleEndian.AppendUint32(to, n) }
func appendUint64(to []byte, n uint64) []byte { return binary.LittleEndian.AppendUint64(to, n) }

func appendNullable(to []byte, n uint64, ok bool) []byte {
	if !ok {
		return append(to, 1)
	}
	return appendUint64(append(to, 0), n)
}
