package framelog

import (
	"bytes"
	"context"
	"os"
	"reflect"
	"testing"
	"time"
)

// FuzzSegment opens a log with any bytes as a segment, closed or not: it opens, or says which version it is, and takes
// frames.
func FuzzSegment(f *testing.F) {
	dir := f.TempDir()
	log := open(f, dir, (&clock{start}).options())
	mustAppend(f, log, opaque("a", 1, start, time.Second, 70)...)
	content, err := os.ReadFile(pathOf(dir, 1))
	if err != nil {
		f.Fatal(err)
	}
	log.Close()
	closed, err := os.ReadFile(pathOf(dir, 1))
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{content, closed, content[:1000], closed[:len(closed)-1], closed[500:], {}} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(pathOf(dir, 1), b, 0o600); err != nil {
			t.Fatal(err)
		}
		log, err := Open(dir, (&clock{start}).options())
		if err != nil {
			if bytes.HasPrefix(b, []byte(fileMagic)) {
				return // another version
			}
			t.Fatal(err)
		}
		defer log.Close()
		for range log.Windows(context.Background(), Query{Tenant: "t", Times: []time.Time{start, start.Add(time.Hour)}}) {
		}
		if err := log.Tidy(context.Background()); err != nil {
			t.Fatal(err)
		}
		log.Append(context.Background(), opaque("another", 1, start, time.Second, 3))
	})
}

// FuzzDirectory reads any bytes as the records of an index.
func FuzzDirectory(f *testing.F) {
	o := newOpenIndex()
	s := &stream{streamName: streamName{"t", "h", 1}}
	o.add(s, entry{time: start.UnixNano(), number: 1, length: 100})
	d, entries, _ := o.directory()
	b := seal(16, d, entries)
	r, err := parseRecord(b[d.minutes[0].length:])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(r.body)
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseDirectory(b)
		if err != nil {
			return
		}
		r, err := parseRecord(d.append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseDirectory(r.body); err != nil || !reflect.DeepEqual(again, d) {
			t.Fatalf("%+v is read again as %+v: %v", d, again, err)
		}
	})
}
