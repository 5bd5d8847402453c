package rdma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"

	"outsight/internal/region"
)

func TestAnswers(t *testing.T) {
	entries := map[uint32]entry{0: {0, 11, 0x7f0000000000, 4096}, 5: {5, 12, 0x7f0000010000, 8}}
	own := endpoint{16: 0x34, 17: 0x12}
	if own.queue() != 0x1234 {
		t.Errorf("the queue pair is %#x, want 0x1234", own.queue())
	}
	b := appendAnswer(nil, own, []entry{entries[0], entries[5]})
	peer, regions, err := parseAnswer(b)
	if err != nil || peer != own || !maps.Equal(regions, entries) {
		t.Errorf("got %v, %v, %v", peer, regions, err)
	}
	for _, wrong := range [][]byte{nil, b[:len(b)-1], append(b, b[endpointBytes:endpointBytes+entryBytes]...),
		appendAnswer(nil, own, []entry{{0, 1, 1 << 63, 1 << 63}})} {
		if _, _, err := parseAnswer(wrong); !errors.Is(err, region.ErrDamaged) {
			t.Errorf("an answer of %d bytes: %v", len(wrong), err)
		}
	}
}

// FuzzParseAnswer: whatever a host says, no piece of a region lies outside of what it said.
func FuzzParseAnswer(f *testing.F) {
	f.Add(appendAnswer(nil, endpoint{}, []entry{{0, 11, 0x7f0000000000, 4096}, {5, 12, 0x7f0000010000, 8}}), uint64(8), 16)
	f.Fuzz(func(t *testing.T, b []byte, offset uint64, length int) {
		_, regions, err := parseAnswer(b)
		if err != nil {
			return
		}
		for _, e := range regions {
			p, err := e.piece(offset, length)
			if err == nil && (p.address < e.address || p.address+uint64(length) > e.address+e.length) {
				t.Errorf("%d bytes at %d of %+v are %+v", length, offset, e, p)
			}
		}
	})
}

func TestSettle(t *testing.T) {
	words := func(all ...uint64) (b []byte) {
		for _, w := range all {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	loose, ordered, still := make([]byte, 24), make([]byte, 16), make([]byte, 16)
	part := []region.Read{{Region: 1, Offset: 80, Into: loose}, {Region: 2, Into: ordered, Ordered: true},
		{Region: 3, Into: still, Ordered: true}}
	rest := settle(part, [3][]byte{
		words(1, 5, 7, 1, 1, 4, 4),
		words(2, 4, 7, 1, 2, 4, 4), // the second word is less than before
		words(3, 6, 7, 2, 2, 4, 4),
	})
	if !bytes.Equal(loose, words(2, 0, 7)) || !bytes.Equal(ordered, words(0, 0)) || !bytes.Equal(still, words(4, 4)) {
		t.Errorf("taken: %v, %v, %v", loose, ordered, still)
	}
	if len(rest) != 2 || rest[0].Region != 1 || rest[0].Offset != 88 || len(rest[0].Into) != 8 || rest[1].Region != 2 ||
		!rest[1].Ordered {
		t.Fatalf("the rest is %+v", rest)
	}
	rest[0].Into[0] = 9
	if loose[8] != 9 {
		t.Error("the rest is read into another place")
	}
}

// TestSettleLevels: what may also go down is taken where it did all the time, and not where it went to and fro.
func TestSettleLevels(t *testing.T) {
	words := func(all ...uint64) (b []byte) {
		for _, w := range all {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	level := make([]byte, 24)
	rest := settle([]region.Read{{Region: 1, Offset: 8, Into: level, Level: true}},
		[3][]byte{words(9, 1, 5), words(8, 1, 7), words(7, 2, 6)})
	if !bytes.Equal(level, words(8, 1, 0)) || len(rest) != 1 || rest[0].Offset != 24 || !rest[0].Level {
		t.Errorf("taken: %v, the rest is %+v", level, rest)
	}
}

// TestMapFiles: what a list says of files is what is read, and no other any more.
func TestMapFiles(t *testing.T) {
	c := &Client{regions: map[uint32]entry{}}
	files := []region.ApplicationFile{{ID: region.FirstFileID, Bytes: 4096, Key: 7, Address: 1 << 40},
		{ID: region.FirstFileID + 1, Bytes: 4096}}
	if err := c.MapFiles(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	if want := (entry{region.FirstFileID, 7, 1 << 40, 4096}); len(c.files) != 1 || c.files[region.FirstFileID] != want {
		t.Errorf("%+v, want %+v alone", c.files, want)
	}
	if err := c.MapFiles(t.Context(), nil); err != nil || len(c.files) != 0 {
		t.Errorf("%+v, %v", c.files, err)
	}
}

// TestWithoutHelper says what is missing.
func TestWithoutHelper(t *testing.T) {
	_, err := Dial(t.Context(), "192.0.2.1:8473", region.Key{}, Options{Helper: "/nowhere/" + Program})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the helper: %v", err)
	}
}

// TestRDMAPage holds docs/format/region-rdma.md against the code: where fields are, how long the whole is, and the
// numbers of commands, which the helper's source has as well.
func TestRDMAPage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/format/region-rdma.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	rows := func(table string) (all [][]string) {
		_, rest, found := strings.Cut(page, "\n| "+table+" |")
		if !found {
			t.Fatalf("the page has no table %q", table)
		}
		for i, line := range strings.Split(rest, "\n") {
			if i < 2 { // its head
				continue
			}
			if !strings.HasPrefix(line, "| ") {
				return all
			}
			cells := strings.Split(strings.Trim(line, "| "), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			all = append(all, cells)
		}
		return all
	}
	offsets := map[string]map[string]int{}
	for table, want := range map[string]int{"end": endpointBytes, "region": entryBytes, "reply": replyBytes} {
		at := 0
		offsets[table] = map[string]int{}
		for _, row := range rows(table) {
			offset, err1 := strconv.Atoi(row[0])
			size, err2 := strconv.Atoi(row[1])
			if err1 != nil || err2 != nil || offset != at {
				t.Errorf("%s: a field at %s of %s bytes, want one at %d", table, row[0], row[1], at)
			}
			offsets[table][row[3]] = offset
			at += size
		}
		if at != want {
			t.Errorf("%s: the page has %d bytes, the code %d", table, at, want)
		}
	}
	own := endpoint{}
	own[offsets["end"]["number of the queue pair"]] = 77
	if own.queue() != 77 {
		t.Error("the number of the queue pair is elsewhere")
	}
	b := make([]byte, replyBytes)
	b[offsets["reply"]["an end"]+16], b[offsets["reply"]["address"]], b[offsets["reply"]["key"]] = 7, 8, 9
	copy(b[8:], "rxe0")
	name, a, err := parseReply(b)
	if err != nil || name != "rxe0" || a.own.queue() != 7 || a.address != 8 || a.key != 9 {
		t.Errorf("a reply is read as %q, %+v, %v", name, a, err)
	}
	b[0] = 2
	if _, _, err := parseReply(b); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error 2 is %v", err)
	}
	b[4] = statusRemoteAccess
	var failed *completionError
	if _, _, err := parseReply(b); !errors.As(err, &failed) || failed.status != statusRemoteAccess {
		t.Errorf("a READ that failed is %v", err)
	}
	source, err := os.ReadFile("../../../rdma/outsight-rdma.c")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for i, row := range rows("command") {
		number, name, _ := strings.Cut(row[0], " ")
		if number != strconv.Itoa(i+1) {
			t.Errorf("command %q is number %d", row[0], i+1)
		}
		names = append(names, strings.ToUpper(name))
	}
	if list := "enum command { REGISTER = 1, " + strings.Join(names[1:], ", ") + " };"; !strings.Contains(string(source), list) ||
		command(len(names)) != commandForget {
		t.Errorf("the helper's source has no %q", list)
	}
}
