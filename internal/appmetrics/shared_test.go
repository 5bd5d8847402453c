package appmetrics

import (
	"encoding/binary"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"outsight/internal/model"
)

// summed are the metrics of the container as somebody else reads them: what is shared, and the values where they are.
func summed(t *testing.T, c *Collector, s Share) map[string]string {
	t.Helper()
	all := map[string]model.ApplicationMetric{}
	sums := make([]model.ApplicationMetric, len(s.Metrics))
	for i, m := range s.Metrics {
		if sums[i] = m.ApplicationMetric; m.Container != "box" {
			t.Errorf("%s is of %q", m.Name, m.Container)
		}
	}
	for _, f := range s.Files {
		if !c.Use(f.Number, func(memory []byte) {
			for _, v := range f.Values {
				raw := *(*uint64)(unsafe.Pointer(&memory[v.Offset]))
				if m := &sums[v.Metric]; m.Kind == model.Counter {
					m.Count += v.Type.Number(raw)
				} else if level, ok := v.Type.Level(raw); ok {
					m.Level += level
				}
			}
		}) {
			t.Errorf("part %d cannot be used", f.Number)
		}
	}
	for _, m := range sums {
		all[m.Name+"{"+m.Labels+"}"] = m
	}
	text := map[string]string{}
	for name, m := range all {
		text[name] = fmt.Sprint(m.Count)
		if m.Kind == model.Gauge {
			text[name] = fmt.Sprint(m.Level)
		} else if m.Fine {
			text[name] = fmt.Sprint(float64(m.Count) / model.ApplicationFine)
		}
	}
	return text
}

// TestShare: who reads what is shared has the sums that the Collector has: of processes that live, of those that have
// ended since, and when metrics are added.
func TestShare(t *testing.T) {
	first, second := runWorker(t, []string{"ready"}, "count"), runWorker(t, []string{"ready"}, "many", "1500")
	c := scanned(t, Options{Share: true}, first.Process.Pid, second.Process.Pid)
	want := texts(c)
	s, changed := c.Shared()
	if got := summed(t, c, s); !changed || len(s.Files) != 2 || !reflect.DeepEqual(got, want) {
		t.Fatalf("%d files are shared, with %v, want %v", len(s.Files), got, want)
	}
	if _, again := c.Shared(); again {
		t.Error("nothing has changed, and it is said to have")
	}
	// A descriptor of the part, by which nobody can write.
	at := 0
	if s.Files[at].PID != first.Process.Pid {
		at = 1
	}
	f, offset, bytes, ok := c.Duplicate(s.Files[at].Number)
	if !ok || offset%uint64(os.Getpagesize()) != 0 || bytes != uint64(s.Files[at].Bytes) {
		t.Fatalf("%d bytes at %d of a descriptor: %v", bytes, offset, ok)
	}
	defer f.Close()
	if _, err := f.Write([]byte{1}); err == nil {
		t.Error("the descriptor can be written through")
	}
	if size, err := SealedSize(int(f.Fd())); err != nil || uint64(size) < offset+bytes {
		t.Errorf("a file of %d bytes, of which %d at %d are shared: %v", size, bytes, offset, err)
	}
	// Of one that has ended the file stays until others have been told; its counts stay for ever, its gauges for once.
	first.end(t)
	want = texts(c)
	if got := summed(t, c, s); !reflect.DeepEqual(got, want) {
		t.Errorf("by the list of before there is %v, want %v", got, want)
	}
	ended, changed := c.Shared()
	if got := summed(t, c, ended); !changed || len(ended.Files) != 1 || !reflect.DeepEqual(got, want) || got["app_load{}"] != "-0.5" {
		t.Errorf("after its end: %d files, %v, want %v", len(ended.Files), got, want)
	}
	// Until then it counts against the bound of its group, as it does against that of the host.
	sum := func() (files int) {
		for _, n := range c.groups {
			files += n
		}
		return files
	}
	if sum() != 2 {
		t.Errorf("before others have been told the groups have %d files, want 2", sum())
	}
	c.Forget(ended.Files)
	if sum() != 1 {
		t.Errorf("the groups have %d files, want 1", sum())
	}
	if c.Use(s.Files[at].Number, func([]byte) {}) || len(c.shared.leaving) != 0 || len(c.files) != 1 {
		t.Errorf("it is still there: %d leave, %d files", len(c.shared.leaving), len(c.files))
	}
	if _, _, _, ok := c.Duplicate(s.Files[at].Number); ok {
		t.Error("a file that is gone has a descriptor")
	}
	want = texts(c)
	later, changed := c.Shared()
	if got := summed(t, c, later); !changed || !reflect.DeepEqual(got, want) || got["app_load{}"] != "" ||
		got["app_jobs_done_total{}"] != "1000" {
		t.Errorf("then: %v, want %v", got, want)
	}
	second.end(t)
	texts(c)
	last, _ := c.Shared()
	c.Forget(last.Files)
	if len(last.Files) != 0 || c.pages != 0 || len(c.groupPages) != 0 {
		t.Errorf("%d files, %d pages and %v are left", len(last.Files), c.pages, c.groupPages)
	}
}

// TestShareOfCountersThatFall: the sums go on, as soon as the Collector has seen it.
func TestShareOfCountersThatFall(t *testing.T) {
	data := aligned(fileOf(one{kindCounter, byte(typeU64), 100, "a|||"}))
	l, err := newLayout(data, anyPages)
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{Share: true})
	f := &file{layout: l, owner: "box"}
	c.files[fileID{}] = f
	for _, now := range []uint64{100, 20, 30, 5} {
		binary.LittleEndian.PutUint64(data[2048:], now)
		c.count(f)
		c.shared.changed = c.shared.changed || now == 30 // where only the value is another there is no other list
		s, changed := c.Shared()
		if !changed {
			t.Fatalf("at %d the list is the one of before", now)
		}
		want := fmt.Sprint(c.Of("box")[0].Count)
		if got := summed(t, c, s)["app_a_total{}"]; got != want {
			t.Errorf("at %d others have %s, want %s", now, got, want)
		}
	}
}

// TestShareGrows: where new values lie in other pages there is another part, and the one before can be read until others
// know of it.
func TestShareGrows(t *testing.T) {
	data := aligned(append(fileOf(one{kindCounter, byte(typeU64), 1, "a|||"}, one{kindCounter, byte(typeU64), 2, "b|||"}), make([]byte, 8192)...))
	binary.LittleEndian.PutUint32(data[offsetBytes:], uint32(len(data)))
	binary.LittleEndian.PutUint32(data[headerBytes+descriptorBytes:], 12288)
	binary.LittleEndian.PutUint64(data[12288:], 2)
	binary.LittleEndian.PutUint32(data[offsetCount:], 1)
	left := 3
	l, err := newLayout(data, func(pages int) bool { left -= pages; return left >= 0 })
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{Share: true})
	f := &file{layout: l, owner: "box"}
	c.files[fileID{}] = f
	c.count(f)
	before, _ := c.Shared()
	binary.LittleEndian.PutUint32(data[offsetCount:], 2)
	c.count(f)
	// There is no room for the page between.
	if without, _ := c.Shared(); len(without.Files) != 0 || drop(t, c, "applications/unshared") != 1 || left >= 0 {
		t.Errorf("%d files are shared", len(without.Files))
	}
	left, f.spread, c.shared.changed = 3, true, true
	after, _ := c.Shared()
	if len(after.Files) != 1 || after.Files[0].Bytes != 16384 || before.Files[0].Bytes != 4096 ||
		after.Files[0].Number == before.Files[0].Number {
		t.Fatalf("%+v, and before %+v", after.Files, before.Files)
	}
	for _, s := range []Share{before, after} {
		if got := summed(t, c, s)["app_a_total{}"]; got != "1" {
			t.Errorf("app_a_total is %s", got)
		}
	}
	if got := summed(t, c, after)["app_b_total{}"]; got != "2" {
		t.Errorf("app_b_total is %s", got)
	}
	c.Forget(after.Files)
	if c.Use(before.Files[0].Number, func([]byte) {}) || !c.Use(after.Files[0].Number, func([]byte) {}) {
		t.Error("the part of before is there, or that of now is not")
	}
	c.files = map[fileID]*file{} // none that can be closed
}

// TestIsKey: names and labels of others are held to what the agent holds files to.
func TestIsKey(t *testing.T) {
	f := func(name, labels string, kind model.SeriesKind, want bool) {
		t.Helper()
		if IsKey(&model.ApplicationKey{Name: name, Labels: labels, Kind: kind}) != want {
			t.Errorf("%s{%s} of kind %v: want %v", name, labels, kind, want)
		}
	}
	long := "app_" + strings.Repeat("a", maxNameBytes) + "_total"
	f("app_a_total", "", model.Counter, true)
	f("app__total_total", "", model.Counter, true)
	f(long, `b="c",d="\"\n"`, model.Counter, true)
	f("x"+long, "", model.Counter, false)
	f("app_x"+long[4:], "", model.Counter, false)
	f("app_a", "", model.Counter, false)
	f("app_a_total", "", model.Gauge, false)
	f("app_a", "", model.Gauge, true)
	f("app_", "", model.Gauge, false)
	f("container_memory_usage_bytes", "", model.Gauge, false)
	f("app_a b", "", model.Gauge, false)
	f("app_a", `b="c",b="d"`, model.Gauge, false)
	f("app_a", `__name__="c"`, model.Gauge, false)
	f("app_a", `b=c`, model.Gauge, false)
	f("app_a", `b:c="d"`, model.Gauge, false)
}
