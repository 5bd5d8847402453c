package clickhouse

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
)

func TestAddresses(t *testing.T) {
	for address, want := range map[string][4]string{
		"clickhouse://me:p%40ss@db:9/frames": {"http://db:9/", "me", "p@ss", "frames"},
		"clickhouses://db":                   {"https://db:8443/", "", "", "outsight"},
		"clickhouse://[::1]/x":               {"http://[::1]:8123/", "", "", "x"},
	} {
		c, database, err := newClient(address)
		if err != nil || [4]string{c.address, c.user, c.password, database} != want {
			t.Errorf("%s: %+v %s %v", address, c, database, err)
		}
	}
	for _, address := range []string{"http://db/", "clickhouse://u:secret@/", "clickhouse://db/a`b", "clickhouse://u:secret@h:x/"} {
		if _, _, err := newClient(address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestPartitions(t *testing.T) {
	class, begin, ok := parsePartition("(2,'2026-11-24 18:00:00')")
	if class != 2 || !begin.Equal(time.Date(2026, 11, 24, 18, 0, 0, 0, time.UTC)) || !ok {
		t.Error(class, begin, ok)
	}
	for _, name := range []string{"", "all", "(x,'2026-11-24 18:00:00')", "(1,18)"} {
		if _, _, ok := parsePartition(name); ok {
			t.Errorf("%q is a partition", name)
		}
	}
}

// TestNames: no two columns of a table have the same name, and none that a query gives.
func TestNames(t *testing.T) {
	for table := range frame.NumTables {
		seen := map[string]bool{"moment": true, "target": true}
		for _, c := range columnsOf(table) {
			if seen[c.name] || strings.HasPrefix(c.name, "signed") {
				t.Errorf("table %d has the column %s twice", table, c.name)
			}
			seen[c.name] = true
		}
	}
}

// FuzzReader reads bytes as an answer: nothing but an error may come of them.
func FuzzReader(f *testing.F) {
	f.Add([]byte{1, 'h', 1, 0, 0, 0, 0, 0, 0, 0, 2})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		for table := range frame.NumTables {
			d := newDifference(table, nil)
			r := newReader(bytes.NewReader(data))
			row := rowReader{reader: r, d: d, attributes: make([]uint64, len(d.info.Attributes))}
			of := newSpanFrames(&span{before: r.header("h", 1), after: r.header("h", 1)})
			for r.more() {
				row.read(of)
			}
			of.span()
		}
	})
}
