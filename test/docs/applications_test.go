package docs

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	outsight "outsight/sdk/go"
)

// TestApplicationsPage decodes the file of this process's own metrics by the tables of docs/format/appmetrics.md.
func TestApplicationsPage(t *testing.T) {
	outsight.NewCounter("test_jobs", "{job}", "Jobs", outsight.Label{Name: "method", Value: "GET"}).Add(7)
	outsight.NewGauge("test_load", "1", "Load").Set(-0.5)
	outsight.NewCounter("no name", "", "")
	data := ownMetrics(t)
	header, descriptor := map[string]uint64{}, map[string][2]uint64{}
	at := uint64(0)
	for _, row := range rows(t, "appmetrics.md", "offset", "size", "type", "field") {
		var offset, size uint64
		if _, err := fmt.Sscan(row[0]+" "+row[1], &offset, &size); err != nil {
			t.Fatalf("%v: %v", row, err)
		}
		if offset == 0 {
			at = 0 // the next table
		}
		if offset != at {
			t.Errorf("%v is at %d", row, at)
		}
		at += size
		switch name := row[3]; {
		case row[2] == "bytes":
			if got, _, _ := strings.Cut(row[4], "`"); got != string(data[offset:offset+size]) {
				t.Errorf("%s is %q", name, got)
			}
		case name == "":
		case len(header) < 9 && name != "value" && len(descriptor) == 0:
			header[name] = number(data[offset : offset+size])
		default:
			descriptor[name] = [2]uint64{offset, size}
		}
	}
	if header["version"] != 1 || header["header length"] != 64 || header["bytes"] != uint64(len(data)) || header["count"] != 2 ||
		header["closed"] != 0 || header["refused"] != 1 || header["descriptors"]%8 != 0 || at != 16 {
		t.Fatalf("the header is %v, a descriptor has %d bytes", header, at)
	}
	for i, want := range []struct {
		kind, of, bits uint64
		text           string
	}{
		{1, 1, 7, "test_jobs\x00{job}\x00Jobs\x00method\x00GET\x00"},
		{2, 3, math.Float64bits(-0.5), "test_load\x001\x00Load\x00"},
	} {
		d := data[header["descriptors"]+uint64(i)*at:]
		field := func(name string) uint64 { return number(d[descriptor[name][0]:][:descriptor[name][1]]) }
		value, text := field("value"), field("text")
		if got := string(data[text : text+field("text length")]); got != want.text || field("kind") != want.kind ||
			field("type") != want.of || binary.LittleEndian.Uint64(data[value:]) != want.bits {
			t.Errorf("metric %d is %q, kind %d, type %d", i, got, field("kind"), field("type"))
		}
	}
}

func number(bytes []byte) (n uint64) {
	for i := len(bytes) - 1; i >= 0; i-- {
		n = n<<8 | uint64(bytes[i])
	}
	return n
}

// ownMetrics are the bytes of this process's file.
func ownMetrics(t *testing.T) []byte {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if link, _ := os.Readlink(name); strings.HasPrefix(link, "/memfd:outsight-metrics") {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
	t.Fatal("this process has no file with metrics")
	return nil
}
