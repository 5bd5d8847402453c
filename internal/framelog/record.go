package framelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"outsight/internal/frame"
)

// The layout of files is described in docs/format/framelog.md.
const (
	fileMagic     = "OSFRAMES"
	footerMagic   = "OSFRMEND"
	formatVersion = 1

	fileHeaderBytes   = 16
	recordHeaderBytes = 12
	frameHeaderBytes  = 36
	footerBytes       = 32

	// maxRecord bounds a record, in bytes, and maxName the name of a tenant or a host.
	maxRecord = 64 << 20
	maxName   = 255
)

// recordMagic begins every record, so that the next one is found behind one that is damaged.
var recordMagic = [4]byte{0xf7, 'o', 'f', 'r'}

// The kinds of records.
const (
	kindFrame     = 1
	kindIndex     = 2
	kindDirectory = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errTorn     = errors.New("the record is not whole")
	errChecksum = errors.New("wrong checksum")
)

// record is a record of a file.
type record struct {
	kind byte
	// body is what follows the header of the record; its first byte is the kind.
	body []byte
	// size is that of all of it in the file.
	size int64
}

// appendRecord appends a record. write appends its body, which begins with the kind.
func appendRecord(b []byte, write func(b []byte) []byte) []byte {
	at := len(b)
	b = append(b, recordMagic[:]...)
	b = append(b, make([]byte, 8)...)
	b = write(b)
	body := b[at+recordHeaderBytes:]
	binary.LittleEndian.PutUint32(b[at+4:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[at+8:], crc32.Checksum(body, castagnoli))
	return b
}

// parseRecord reads the record at the begin of b. An error is errTorn where b ends before the record or does not begin
// with one, and errChecksum where it is damaged; size is then what its header says, or 0.
func parseRecord(b []byte) (r record, err error) {
	if len(b) < recordHeaderBytes || !bytes.Equal(b[:4], recordMagic[:]) {
		return r, errTorn
	}
	length := binary.LittleEndian.Uint32(b[4:])
	if length == 0 || length > maxRecord || int64(length) > int64(len(b)-recordHeaderBytes) {
		return r, errTorn
	}
	r.size = recordHeaderBytes + int64(length)
	r.body = b[recordHeaderBytes:r.size]
	if crc32.Checksum(r.body, castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return r, errChecksum
	}
	r.kind = r.body[0]
	return r, nil
}

// frameRecord is the record of a frame, without the frame's other data.
type frameRecord struct {
	tenant, host       string
	epoch, number, key uint64
	time               int64 // nanoseconds since 1970
	data               []byte
}

func recordOf(e *Encoded) frameRecord {
	return frameRecord{tenant: e.Tenant, host: e.Host, epoch: e.Epoch, number: e.Number, key: e.Key,
		time: e.Time.UnixNano(), data: e.Data}
}

// size is how many bytes the record has in a file.
func (r *frameRecord) size() int64 {
	return recordHeaderBytes + frameHeaderBytes + int64(len(r.tenant)+len(r.host)+len(r.data))
}

func (r *frameRecord) append(b []byte) []byte {
	return appendRecord(b, func(b []byte) []byte {
		b = append(b, kindFrame, byte(len(r.tenant)), byte(len(r.host)), 0)
		for _, n := range [...]uint64{r.epoch, r.number, r.key, uint64(r.time)} {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		b = append(append(b, r.tenant...), r.host...)
		return append(b, r.data...)
	})
}

// parseFrame reads the body of a record of a frame. The data is a part of the body.
func parseFrame(body []byte) (r frameRecord, err error) {
	if len(body) < frameHeaderBytes || body[0] != kindFrame {
		return r, fmt.Errorf("%w: no record of a frame", frame.ErrMalformed)
	}
	tenant, host := int(body[1]), int(body[2])
	if len(body) < frameHeaderBytes+tenant+host {
		return r, fmt.Errorf("%w: a record that ends in a name", frame.ErrMalformed)
	}
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(body[4+8*i:]) }
	r = frameRecord{epoch: number(0), number: number(1), key: number(2), time: int64(number(3))}
	names := body[frameHeaderBytes:]
	r.tenant, r.host, r.data = string(names[:tenant]), string(names[tenant:tenant+host]), names[tenant+host:]
	return r, r.check()
}

// check reports what makes a frame one that can never be stored.
func (r *frameRecord) check() error {
	switch {
	case r.host == "" || len(r.host) > maxName || len(r.tenant) > maxName:
		return fmt.Errorf("names of %d and %d bytes: want 1 to %d of the host, at most that of the tenant",
			len(r.host), len(r.tenant), maxName)
	case r.key == 0 || r.number < r.key || r.number-r.key > math.MaxUint32:
		return fmt.Errorf("a frame with number %d and key frame %d", r.number, r.key)
	case r.time <= 0:
		return fmt.Errorf("a frame of the time %d", r.time)
	case r.size() > maxRecord:
		return fmt.Errorf("a frame of %d bytes: want at most %d", len(r.data), maxRecord)
	}
	return nil
}

// minuteOf is the minute of a time in nanoseconds. A frame is of the same minute as its key frame.
func minuteOf(ns int64) int64 { return ns / int64(frame.KeyInterval) }

func startOf(minute int64) time.Time { return time.Unix(0, minute*int64(frame.KeyInterval)).UTC() }

func fileHeader() []byte {
	b := append(make([]byte, 0, fileHeaderBytes), fileMagic...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	return binary.LittleEndian.AppendUint32(b, 0)
}

// checkFileHeader tells a file of another version from one that is damaged.
func checkFileHeader(b []byte) error {
	if len(b) < fileHeaderBytes || string(b[:len(fileMagic)]) != fileMagic {
		return fmt.Errorf("%w: it does not begin with %s", errDamaged, fileMagic)
	}
	if v := binary.LittleEndian.Uint32(b[len(fileMagic):]); v != formatVersion {
		return fmt.Errorf("version %d of frame files: this program reads version %d", v, formatVersion)
	}
	return nil
}
