package appmetrics

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// one is a metric of a file that a test makes.
type one struct {
	kind, of byte
	bits     uint64
	text     string // parts, each ended by |
}

// fileOf is a correct file of these metrics.
func fileOf(metrics ...one) []byte {
	data := make([]byte, 8192)
	copy(data, magic)
	put16, put32 := binary.LittleEndian.PutUint16, binary.LittleEndian.PutUint32
	put16(data[offsetVersion:], version)
	put16(data[offsetHeaderBytes:], headerBytes)
	put32(data[offsetBytes:], uint32(len(data)))
	put32(data[offsetDescriptors:], headerBytes)
	put32(data[offsetCapacity:], 64)
	put32(data[offsetCount:], uint32(len(metrics)))
	texts := 4096
	for i, m := range metrics {
		value := 2048 + i*8
		binary.LittleEndian.PutUint64(data[value:], m.bits)
		text := strings.ReplaceAll(m.text, "|", "\x00")
		d := data[headerBytes+i*descriptorBytes:]
		put32(d[0:], uint32(value))
		put32(d[4:], uint32(texts))
		put16(d[8:], uint16(len(text)))
		d[10], d[11] = m.kind, m.of
		texts += copy(data[texts:], text)
	}
	return data
}

// offered is a Collector that was told of a file of this process with these bytes.
func offered(t *testing.T, data []byte, seals int) *Collector {
	t.Helper()
	fd, err := unix.MemfdCreate(fileName, unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.Pwrite(fd, data, 0); err != nil {
		t.Fatal(err)
	}
	if seals != 0 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
	}
	c := New(Options{FileMetrics: 8, ContainerMetrics: 6})
	t.Cleanup(c.close)
	c.open(os.Getpid(), fd, 7)
	return c
}

func anyPages(int) bool { return true }

const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// What can be truncated would end the agent when it is: it is not mapped.
func TestSeals(t *testing.T) {
	good := fileOf(one{kindCounter, byte(typeU64), 3, "a|||"})
	for _, seals := range []int{0, unix.F_SEAL_GROW, unix.F_SEAL_SHRINK, unix.F_SEAL_SHRINK | unix.F_SEAL_GROW} {
		c := offered(t, good, seals)
		if got := texts(c); len(got) != 0 || drop(t, c, "applications/unsealed") != 1 {
			t.Errorf("seals %#x: %v", seals, got)
		}
	}
	if got := texts(offered(t, good, sealed)); got["app_a_total{}"] != "3" {
		t.Errorf("sealed: %v", got)
	}
}

// Each lie about lengths is refused and counted.
func TestLyingHeaders(t *testing.T) {
	refused := func(what, bound string, change func(data []byte)) {
		t.Helper()
		data := fileOf(one{kindCounter, byte(typeU64), 3, "a|||"})
		change(data)
		c := offered(t, data, sealed)
		if got := texts(c); len(got) != 0 || drop(t, c, bound) != 1 {
			t.Errorf("%s: %v, %+v", what, got, c.Drops())
		}
	}
	number := func(at int, n uint32) func([]byte) {
		return func(data []byte) { binary.LittleEndian.PutUint32(data[at:], n) }
	}
	const malformed = "applications/malformed"
	refused("another magic", malformed, func(data []byte) { data[0] = 'X' })
	refused("a version of the future", "applications/unknown-versions", func(data []byte) { data[offsetVersion] = 2 })
	refused("a short header", malformed, func(data []byte) { data[offsetHeaderBytes] = 63 })
	refused("another length", malformed, number(offsetBytes, 4096))
	refused("descriptors in the header", malformed, number(offsetDescriptors, 8))
	refused("descriptors that are not aligned", malformed, number(offsetDescriptors, 65))
	refused("descriptors past the end", malformed, number(offsetDescriptors, 8192))
	refused("more descriptors than bytes", malformed, number(offsetCapacity, 600))
	refused("so many descriptors that 32 bits overflow", malformed, number(offsetCapacity, 1<<28))
	refused("a value in the header", malformed, number(headerBytes, 8))
	refused("a value that is not aligned", malformed, number(headerBytes, 2049))
	refused("a value past the end", malformed, number(headerBytes, 8192))
	refused("a value that overflows", malformed, number(headerBytes, math.MaxUint32-7))
	refused("a text past the end", malformed, number(headerBytes+4, 8190))
	refused("a text that overflows", malformed, number(headerBytes+4, math.MaxUint32))
	refused("no text", malformed, func(data []byte) { data[headerBytes+8] = 0 })
	refused("an unknown kind", malformed, func(data []byte) { data[headerBytes+10] = 3 })
	refused("an unknown type", malformed, func(data []byte) { data[headerBytes+11] = 4 })
}

// Texts that are none are refused, and no application has a metric of Outsight's.
func TestTexts(t *testing.T) {
	f := func(kind byte, text, want string) {
		t.Helper()
		c := offered(t, fileOf(one{kind, byte(typeU64), 3, text}), sealed)
		got := ""
		for name := range texts(c) {
			got = name
		}
		if got != want || (want == "") != (drop(t, c, "applications/malformed") == 1) {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	f(kindCounter, "jobs|||", "app_jobs_total{}")
	f(kindCounter, "jobs_total|||", "app_jobs_total{}")
	f(kindGauge, "jobs|||", "app_jobs{}")
	f(kindGauge, "jobs_total|||", "")
	f(kindCounter, "container_cpu_usage_seconds_total|||", "app_container_cpu_usage_seconds_total{}")
	f(kindCounter, "|||", "")
	f(kindCounter, "1a|||", "")
	f(kindCounter, "a b|||", "")
	f(kindCounter, "a\n|||", "")
	f(kindCounter, strings.Repeat("a", 129)+"|||", "")
	f(kindCounter, "a||", "")
	f(kindCounter, "a|||b", "")
	f(kindCounter, "a|||b|", "")
	f(kindCounter, "a|||b|c|", `app_a_total{b="c"}`)
	f(kindCounter, "a|||b|c|b|d|", "")
	f(kindCounter, "a|||__name__|c|", "")
	f(kindCounter, "a|||b|\xff|", "")
	f(kindCounter, "a|||b|"+strings.Repeat("x", 600)+"|", "")
	f(kindCounter, "a|||"+strings.Repeat("b|c|", 9), "")
}

// Numbers that are none, and counters that go down.
func TestNumbers(t *testing.T) {
	float := math.Float64bits
	c := offered(t, fileOf(
		one{kindCounter, byte(typeI64), 1<<64 - 5, "negative|||"},
		one{kindCounter, byte(typeF64), float(math.NaN()), "nan|||"},
		one{kindCounter, byte(typeF64), float(1e300), "huge|||"},
		one{kindCounter, byte(typeF64), float(2.5), "seconds|||"},
		one{kindGauge, byte(typeF64), float(math.Inf(1)), "infinite|||"},
		one{kindGauge, byte(typeI64), 1<<64 - 5, "below|||"}), sealed)
	expect(t, c, map[string]string{"app_negative_total{}": "0", "app_nan_total{}": "0", "app_huge_total{}": "0",
		"app_seconds_total{}": "2.5", "app_infinite{}": "0", "app_below{}": "-5"})
	m := &metric{descriptor: descriptor{valueType: typeU64}}
	if m.number(1<<63) != 1<<63 {
		t.Error("a great number is another one")
	}
}

// A counter that falls began anew: the sum goes on.
func TestCounterThatFalls(t *testing.T) {
	data := aligned(fileOf(one{kindCounter, byte(typeU64), 100, "a|||"}))
	l, err := newLayout(data, anyPages)
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{})
	f := &file{layout: l, owner: "box"}
	for _, step := range []struct{ now, want uint64 }{{100, 100}, {150, 150}, {20, 170}, {21, 171}} {
		binary.LittleEndian.PutUint64(data[2048:], step.now)
		c.count(f)
		if got := c.Of("box")[0].Count; got != step.want {
			t.Errorf("%d is counted as %d, want %d", step.now, got, step.want)
		}
	}
}

// Bounds of a process and a container hold, and each is counted.
func TestBounds(t *testing.T) {
	var all []one
	for i := range 20 {
		all = append(all, one{kindCounter, byte(typeU64), 1, string(rune('a'+i)) + "|||"})
	}
	c := offered(t, fileOf(all...), sealed)
	if got := texts(c); len(got) != 6 {
		t.Errorf("%d metrics", len(got))
	}
	if process, box := drop(t, c, "applications/process-metrics"), drop(t, c, "applications/container-metrics"); process != 12 ||
		box != 2 {
		t.Errorf("%d and %d were refused", process, box)
	}
}

// A file whose values lie in pages that the process has not written makes the agent's memory grow by them: they are
// bounded, and the memory is given back with the file.
func TestHoles(t *testing.T) {
	const most, values = 10, 50
	fd, err := unix.MemfdCreate(fileName, unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var all []one
	for i := range values {
		all = append(all, one{kindCounter, byte(typeU64), 0, string(rune('A'+i/26)) + string(rune('a'+i%26)) + "|||"})
	}
	data := fileOf(all...)
	const size = 4 << 20
	binary.LittleEndian.PutUint32(data[offsetBytes:], size)
	for i := range values {
		binary.LittleEndian.PutUint32(data[headerBytes+i*descriptorBytes:], uint32((i+8)*16384))
	}
	if _, err := unix.Pwrite(fd, data, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed); err != nil {
		t.Fatal(err)
	}
	bytes := func() int64 {
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Blocks * 512
	}
	before := bytes()
	c := New(Options{GroupPages: most})
	c.open(os.Getpid(), fd, 7)
	got := len(texts(c))
	// One page is the header's and the descriptors', one the texts'.
	if refused := drop(t, c, "applications/pages"); got != most-2 || refused != values-uint64(got) {
		t.Errorf("%d metrics, %d refused", got, refused)
	}
	if grew := bytes() - before; grew > int64(most*os.Getpagesize()) {
		t.Errorf("the file has grown by %d bytes", grew)
	}
	c.close()
	if c.pages != 0 || len(c.groupPages) != 0 {
		t.Errorf("%d pages, %v are left", c.pages, c.groupPages)
	}
}

// Descriptors of other files, and processes that have ended, do nothing.
func TestOtherFiles(t *testing.T) {
	c := New(Options{})
	t.Cleanup(c.close)
	file, err := os.Create(filepath.Join(t.TempDir(), "memfd:"+fileName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c.open(os.Getpid(), int(file.Fd()), 7)
	if drop(t, c, "applications/malformed") != 1 {
		t.Error("an ordinary file is not refused")
	}
	// No process has this number.
	c.Offer(model.CgroupEvent{Kind: model.MetricsFile, PID: 1 << 22, Path: model.MetricsFilePrefix + "3"})
	if drop(t, c, "applications/ended-unread") != 1 {
		t.Error("a process that is not there is not counted")
	}
	for _, path := range []string{"outsight:", "outsight:-1", "outsight:x", "outsight:99999999999", "other:3"} {
		c.Offer(model.CgroupEvent{Kind: model.MetricsFile, PID: os.Getpid(), Path: path})
	}
	if len(c.files) != 0 || drop(t, c, "applications/ended-unread") != 1 {
		t.Errorf("%+v", c.Drops())
	}
}

// FuzzLayout looks for bytes that do harm.
func FuzzLayout(f *testing.F) {
	f.Add(fileOf(one{kindCounter, byte(typeU64), 3, "a|{b}|help|c|d|"}, one{kindGauge, byte(typeF64), 1, "e|||"}))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := newLayout(aligned(data), anyPages)
		if err != nil {
			return
		}
		all, bad, far := l.fresh(100)
		if len(all)+bad > 100 || far != 0 {
			t.Errorf("%d, %d and %d of 100", len(all), bad, far)
		}
		for i := range all {
			d := &all[i]
			if !isName(d.Name, true) || !strings.HasPrefix(d.Name, model.ApplicationPrefix) {
				t.Errorf("a metric is called %q", d.Name)
			}
			if _, ok := model.ParseLabelText(d.Labels); !ok {
				t.Errorf("labels %q", d.Labels)
			}
			bits := l.load(d.value)
			d.number(bits)
			if level, ok := d.level(bits); ok && (math.IsNaN(level) || math.IsInf(level, 0)) {
				t.Errorf("level %v", level)
			}
		}
	})
}
