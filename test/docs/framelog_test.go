package docs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
)

// layout reads bytes by the tables of a page.
type layout struct {
	t    *testing.T
	page string
}

// structure is what was read by a table.
type structure struct {
	numbers map[string]uint64
	bytes   map[string][]byte
	size    int
}

// read reads what the table says whose first column has this head.
func (l layout) read(head string, b []byte) structure {
	l.t.Helper()
	s := structure{map[string]uint64{}, map[string][]byte{}, 0}
	value := func(text string) (sum int) {
		for term := range strings.SplitSeq(text, "+") {
			switch term = strings.Trim(term, " *"); term {
			case "m":
				sum += int(s.numbers["tenant length"])
			case "h":
				sum += int(s.numbers["host length"])
			default:
				n, err := strconv.Atoi(term)
				if err != nil {
					l.t.Fatal(err)
				}
				sum += n
			}
		}
		return sum
	}
	for _, f := range rows(l.t, l.page, head, "size", "type", "field") {
		at, size := value(f[0]), value(f[1])
		s.size = at + size
		raw := b[at:s.size]
		switch f[2] {
		case "bytes":
			s.bytes[f[3]] = raw
		case "u8":
			s.numbers[f[3]] = uint64(raw[0])
		case "u32":
			s.numbers[f[3]] = uint64(binary.LittleEndian.Uint32(raw))
		case "u64", "i64":
			s.numbers[f[3]] = binary.LittleEndian.Uint64(raw)
		default:
			l.t.Fatalf("type %s", f[2])
		}
	}
	return s
}

// record reads a record, and answers its body and its size.
func (l layout) record(b []byte, kind uint64) (body []byte, size int) {
	l.t.Helper()
	r := l.read("record at", b)
	begin := r.size - 1 // the kind is the first byte of the body
	size = begin + int(r.numbers["length"])
	body = b[begin:size]
	if string(r.bytes["magic"]) != "\xf7ofr" || r.numbers["kind"] != kind || crc(body) != r.numbers["checksum"] {
		l.t.Fatalf("record %+v, want one of kind %d", r, kind)
	}
	return body, size
}

func crc(b []byte) uint64 { return uint64(crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))) }

// TestFrameLogPage decodes a closed segment by the tables of docs/format/framelog.md.
func TestFrameLogPage(t *testing.T) {
	dir := t.TempDir()
	log, err := framelog.Open(dir, framelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Add(-time.Hour).Truncate(time.Minute)
	var frames []framelog.Encoded
	for i := range 150 {
		for _, host := range []string{"a", "another-host"} {
			frames = append(frames, framelog.Encoded{Tenant: "tenant", Header: frame.Header{Host: host, Epoch: 7,
				Number: uint64(i + 1), Key: uint64(i - i%60 + 1), Time: begin.Add(time.Duration(i) * time.Second)},
				Data: fmt.Appendf(nil, "frame %d of %s", i, host)})
		}
	}
	if err := log.Append(context.Background(), frames); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, "000000000001.frames"))
	if err != nil {
		t.Fatal(err)
	}
	l := layout{t, "framelog.md"}
	if head := l.read("header at", file); string(head.bytes["magic"]) != "OSFRAMES" || head.numbers["version"] != 1 {
		t.Fatalf("header: %+v", head)
	}
	foot := l.read("footer at", file[len(file)-32:])
	if string(foot.bytes["magic"]) != "OSFRMEND" || foot.numbers["version"] != 1 || foot.size != 32 ||
		foot.numbers["checksum"] != crc(file[len(file)-16:]) ||
		foot.numbers["offset"]+foot.numbers["length"] != uint64(len(file)-32) {
		t.Fatalf("footer: %+v", foot)
	}
	checkDirectory(l, file, int(foot.numbers["offset"]), frames)
}

func checkDirectory(l layout, file []byte, at int, frames []framelog.Encoded) {
	t := l.t
	body, _ := l.record(file[at:], 3)
	d := l.read("directory at", body)
	if d.numbers["level"] != 0 || d.numbers["replaced"] != 0 || d.numbers["streams"] != 2 || d.numbers["minutes"] != 3 {
		t.Fatalf("directory: %+v", d)
	}
	body = body[d.size:]
	var hosts []string
	for range 2 {
		s := l.read("stream at", body)
		if string(s.bytes["tenant"]) != "tenant" || s.numbers["epoch"] != 7 || s.numbers["last number"] != 150 ||
			int64(s.numbers["first"]) != frames[0].Time.UnixNano() || int64(s.numbers["last"]) != frames[299].Time.UnixNano() ||
			s.numbers["runs"] != 1 {
			t.Fatalf("stream: %+v", s)
		}
		hosts = append(hosts, string(s.bytes["host"]))
		if body = body[s.size:]; binary.LittleEndian.Uint64(body) != uint64(frames[0].Time.Unix()/60) ||
			binary.LittleEndian.Uint32(body[8:]) != 3 {
			t.Fatalf("run: %x", body[:12])
		}
		body = body[12:]
	}
	found := 0
	for range 3 {
		m := l.read("minute at", body)
		body = body[m.size:]
		found += checkMinute(l, file, m, hosts, frames)
	}
	if found != len(frames) || len(body) > 0 {
		t.Errorf("%d frames, want %d; %d bytes are left", found, len(frames), len(body))
	}
}

// checkMinute reads the index of a minute and all of its frames.
func checkMinute(l layout, file []byte, m structure, hosts []string, frames []framelog.Encoded) int {
	t := l.t
	body, size := l.record(file[m.numbers["offset"]:], 2)
	index := l.read("index at", body)
	if uint64(size) != m.numbers["length"] || index.numbers["minute"] != m.numbers["minute"] ||
		index.numbers["entries"] != m.numbers["entries"] {
		t.Fatalf("index %+v of %+v", index, m)
	}
	body = body[index.size:]
	for range index.numbers["entries"] {
		e := l.read("entry at", body)
		body = body[e.size:]
		one, size := l.record(file[e.numbers["offset"]:], 1)
		f := l.read("frame at", one)
		number := e.numbers["number"]
		want := frames[2*(number-1)+uint64(e.numbers["stream"])]
		if string(f.bytes["tenant"]) != want.Tenant || string(f.bytes["host"]) != want.Host ||
			hosts[e.numbers["stream"]] != want.Host || f.numbers["epoch"] != want.Epoch || f.numbers["number"] != number ||
			f.numbers["key"] != want.Key || e.numbers["behind"] != want.Number-want.Key ||
			int64(f.numbers["time"]) != want.Time.UnixNano() || e.numbers["time"] != f.numbers["time"] ||
			uint64(size) != e.numbers["length"] || !bytes.Equal(one[f.size:], want.Data) {
			t.Fatalf("frame %+v, entry %+v, want %+v", f, e, want)
		}
	}
	if len(body) > 0 {
		t.Errorf("%d bytes are left of an index", len(body))
	}
	return int(index.numbers["entries"])
}
