package docs

import (
	"encoding/binary"
	"strconv"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// TestFramePage reads the header of a real frame by the table of docs/format/frame.md.
func TestFramePage(t *testing.T) {
	at := time.Unix(1_800_000_000, 123_456_789)
	b := frame.NewBuilder(at.Add(-time.Hour))
	s := &model.Snapshot{Time: at, ClockError: time.Millisecond, Host: model.Host{Name: "node-1", BootTime: at.Add(-time.Hour)}}
	key := b.Build(s)
	next := *s
	next.Time = at.Add(time.Second)
	for _, f := range []*frame.Frame{key, b.Build(&next)} {
		data := frame.Encode(nil, f, key)
		got, end := map[string]uint64{}, 0
		for _, row := range rows(t, "frame.md", "offset", "size", "type", "field") {
			offset, err := strconv.Atoi(row[0])
			if err != nil || offset != end {
				t.Fatalf("offset %s behind %d", row[0], end)
			}
			size := int(got["host length"])
			if row[1] != "h" {
				if size, err = strconv.Atoi(row[1]); err != nil {
					t.Fatal(err)
				}
			}
			raw := data[offset : offset+size]
			end = offset + size
			switch row[2] {
			case "bytes":
				if want := map[string]string{"magic": "OSFR", "host": "node-1"}[row[3]]; string(raw) != want {
					t.Errorf("%s %q, want %q", row[3], raw, want)
				}
			default:
				got[row[3]] = binary.LittleEndian.Uint64(append(append([]byte(nil), raw...), make([]byte, 8)...))
			}
		}
		for field, want := range map[string]uint64{"version": frame.Version, "flags": 0, "epoch": f.Epoch, "boot": f.Boot,
			"number": f.Number, "key": 1, "time": uint64(f.Time.UnixNano()), "clock error": uint64(f.ClockError),
			"large length": uint64(len(data)-end) - got["schema length"] - got["main length"]} {
			if n, ok := got[field]; !ok || n != want {
				t.Errorf("%s is %d, want %d", field, n, want)
			}
		}
		if f.IsKey() != (got["schema size"] > 0) || got["main size"] == 0 {
			t.Errorf("blocks of %d and %d bytes", got["schema size"], got["main size"])
		}
	}
}
