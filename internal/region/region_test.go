package region

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"outsight/internal/model"
)

// processes is the record of the map of that name.
type processes struct{ Forks, Execs, Exits, ThreadStarts uint64 }

// lane is that of cgroup_lanes, and cellsRecord that of histograms.
type lane struct{ UsageNs, Voluntary, Involuntary, WaitNs, Waits, MinorFaults, MajorFaults, PollingNs uint64 }

type cellsRecord struct{ Cells [model.HistogramCells]uint64 }

const testSlots = 8

// sources are some of the kernel's maps, in the order of their ids.
var sources = []Source{
	{"cgroup_slots", reflect.TypeFor[uint64](), testSlots, 1},
	{"cgroup_lanes", reflect.TypeFor[lane](), 2 * testSlots, 2},
	{"processes", reflect.TypeFor[processes](), testSlots, 1},
	{"run_queue", reflect.TypeFor[cellsRecord](), 2 * testSlots, 2},
}

// host is a host's regions and who writes their names.
func host(t testing.TB) (local, *Writer) {
	t.Helper()
	regions, metrics, err := Describe(sources)
	if err != nil {
		t.Fatal(err)
	}
	l := local{ControlID: memory(ControlBytes), DictionaryID: memory(DictionaryBytes(16))}
	for _, r := range regions {
		l[r.ID] = memory(int(r.Bytes()))
	}
	w, err := NewWriter(l[ControlID], l[DictionaryID], Control{EpochNS: 5, WallNS: 1e9, MonotonicNS: 1e8, CPUs: 2,
		BootID: "boot", Host: "web1", Regions: regions, Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	return l, w
}

func names(n int) Names {
	all := Names{Groups: map[model.CgroupID]string{}, TrustedFigures: 3}
	for i := range n {
		id := fmt.Sprintf("id%d", i)
		all.Containers = append(all.Containers, Container{ID: id, Name: fmt.Sprintf("name%d of %d", i, n), Image: "image",
			Runtime: model.Docker, PodName: "pod", PodNamespace: "space", Workload: "work",
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
			Started:   time.Unix(7, 0), Figures: uint32(i)})
		all.Groups[model.CgroupID(100+i)] = id
	}
	return all
}

func put(memory []byte, offset int, n uint64) { binary.LittleEndian.PutUint64(memory[offset:], n) }

func TestWhatIsWrittenIsRead(t *testing.T) {
	l, w := host(t)
	n := names(3)
	if leftOut, err := w.Update(n, 1e8, 1e9); leftOut != 0 || err != nil {
		t.Fatal(leftOut, err)
	}
	c, err := ReadControl(context.Background(), l)
	if err != nil {
		t.Fatal(err)
	}
	if c.Host != "web1" || c.BootID != "boot" || c.EpochNS != 5 || c.CPUs != 2 || c.TrustedFigures != 3 ||
		len(c.Regions) != 2+len(sources) {
		t.Errorf("%+v", c)
	}
	d, err := ReadDictionary(context.Background(), l)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(d.Containers, n.Containers) || len(d.Groups) != 3 || d.Groups[101] != 1 {
		t.Errorf("got %+v, want %+v", d, n)
	}
	if d.Generation != c.DictionaryGeneration {
		t.Errorf("the dictionary has generation %d, the control region says %d", d.Generation, c.DictionaryGeneration)
	}
}

// TestWritesOnChangeOnly: what has not changed is not written, so that readers need not read it.
func TestWritesOnChangeOnly(t *testing.T) {
	l, w := host(t)
	generations := func() [2]uint64 {
		c, err := ReadControl(context.Background(), l)
		if err != nil {
			t.Fatal(err)
		}
		return [2]uint64{c.Generation, c.DictionaryGeneration}
	}
	update := func(n Names, monotonic, wall uint64, want [2]uint64) {
		t.Helper()
		before := generations()
		if _, err := w.Update(n, monotonic, wall); err != nil {
			t.Fatal(err)
		}
		after := generations()
		if got := [2]uint64{after[0] - before[0], after[1] - before[1]}; got != want {
			t.Errorf("the generations grew by %v, want %v", got, want)
		}
	}
	update(names(2), 1e8, 1e9, [2]uint64{1, 1})
	update(names(2), 2e8, 1.1e9, [2]uint64{0, 0})
	update(names(3), 3e8, 1.2e9, [2]uint64{0, 1})
	update(names(3), 4e8, 9e9, [2]uint64{1, 0}) // the wall clock was set
}

// TestReadersSeeOneState: while the dictionary changes all the time, and its length with it, a reader sees none that is
// mixed of two.
func TestReadersSeeOneState(t *testing.T) {
	l, w := host(t)
	var stop atomic.Bool
	ended := make(chan error, 1)
	go func() {
		for i := 0; !stop.Load(); i++ {
			if _, err := w.Update(names(1+i%12), 1e8, 1e9+uint64(i%2)*1e9); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	read := 0
	for range 4000 {
		if c, err := ReadControl(context.Background(), l); err == nil {
			if len(c.Regions) != 2+len(sources) {
				t.Fatalf("%d regions", len(c.Regions))
			}
		} else if !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
		d, err := ReadDictionary(context.Background(), l)
		if errors.Is(err, ErrBusy) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		read++
		if len(d.Groups) != len(d.Containers) {
			t.Fatalf("%d control groups of %d containers", len(d.Groups), len(d.Containers))
		}
		for i, c := range d.Containers {
			if want := fmt.Sprintf("name%d of %d", i, len(d.Containers)); c.Name != want {
				t.Fatalf("container %q, want %q", c.Name, want)
			}
		}
	}
	stop.Store(true)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if read == 0 {
		t.Error("nothing could be read")
	}
}

func TestDictionaryIsBounded(t *testing.T) {
	l, w := host(t)
	n := names(1000)
	leftOut, err := w.Update(n, 1e8, 1e9)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ReadDictionary(context.Background(), l)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Containers) == 0 || leftOut != d.LeftOut || len(d.Containers)+len(d.Groups)+leftOut != 2000 {
		t.Errorf("%d containers, %d control groups, %d left out (%d)", len(d.Containers), len(d.Groups), d.LeftOut, leftOut)
	}
}

// TestCollects: figures of slots, of all lanes, with their histograms, and what is read again.
func TestCollects(t *testing.T) {
	l, w := host(t)
	if _, err := w.Update(names(2), 1e8, 1e9); err != nil {
		t.Fatal(err)
	}
	put(l[2], 8*3, 101) // slot 3 is of the second container
	put(l[2], 8*5, 999) // of none that is known
	for lane, usage := range []uint64{4e9, 3e9} {
		at := (2*3 + lane) * 64
		put(l[3], at, usage)
		put(l[3], at+24, 2000)                    // wait_ns
		put(l[5], (2*3+lane)*6720+8*(1+lane), 10) // cells
	}
	put(l[4], 3*32+8, 6) // execs
	c := NewCollector(l)
	s, err := c.Collect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Containers) != 2 || len(s.Containers[0].Figures) != 0 || s.Containers[1].Name != "name1 of 2" {
		t.Fatalf("%+v", s.Containers)
	}
	f := s.Containers[1].Figures
	if v := f.Of("container_cpu_usage_seconds_total").Value(); v != 7 {
		t.Errorf("%v s of CPU time, want 7", v)
	}
	if v := f.Of("container_process_execs_total").Value(); v != 6 {
		t.Errorf("%v executions, want 6", v)
	}
	if h := f.Of("container_run_queue_latency_seconds").Histogram; h == nil || h.Count != 20 || h.SumNS != 4000 {
		t.Errorf("waits %+v, want 20 of 4000 ns", h)
	}
	first := s.Bytes
	if s, err = c.Collect(context.Background()); err != nil {
		t.Fatal(err)
	}
	// No names, and no histogram whose sum is the same.
	if s.Bytes >= first-2*6720 || s.Containers[1].Figures.Of("container_run_queue_latency_seconds").Histogram.Count != 20 {
		t.Errorf("%d bytes were read, %d before", s.Bytes, first)
	}
	// Until the next thorough reading: all counters, of the slots that are known, and no histogram, whoever's it is by now.
	c.Thorough = 100 * 365 * 24 * time.Hour
	second := s.Bytes
	put(l[3], 2*3*64, 5e9)
	put(l[3], 2*3*64+24, 3000)
	if s, err = c.Collect(context.Background()); err != nil {
		t.Fatal(err)
	}
	f = s.Containers[1].Figures
	if waits := f.Of("container_run_queue_latency_seconds"); s.Bytes >= second || waits.Count != 5000 || waits.Histogram != nil ||
		f.Of("container_cpu_usage_seconds_total").Value() != 8 {
		t.Errorf("%d bytes were read, %d before: %+v", s.Bytes, second, f)
	}
	// A slot that is another group's now counts for nobody.
	put(l[2], 8*3, 999)
	if s, err = c.Collect(context.Background()); err != nil || len(s.Containers[1].Figures) != 0 {
		t.Errorf("%+v, %v", s.Containers[1].Figures, err)
	}
	c.Thorough = 0
	put(l[2], 8*3, 101)
	if s, err = c.Collect(context.Background()); err != nil {
		t.Fatal(err)
	}
	if h := s.Containers[1].Figures.Of("container_run_queue_latency_seconds").Histogram; h == nil || h.SumNS != 5000 {
		t.Errorf("waits %+v, want 5000 ns", h)
	}
}

// TestOfTheFuture: a higher version is refused with what to do; more fields, regions and types are skipped.
func TestOfTheFuture(t *testing.T) {
	l, _ := host(t)
	binary.LittleEndian.PutUint32(l[ControlID][8:], Version+1)
	if _, err := ReadControl(context.Background(), l); !errors.Is(err, ErrVersion) {
		t.Errorf("got %v, want %v", err, ErrVersion)
	}
	binary.LittleEndian.PutUint32(l[ControlID][8:], Version)
	c, err := ReadControl(context.Background(), l)
	if err != nil {
		t.Fatal(err)
	}
	r := &c.Regions[4]
	r.Fields[1].Type, r.Fields[2].Role, r.Index = 77, 77, 2
	c.Regions = append(c.Regions, Region{Name: "new", ID: 99, Index: 77, RecordBytes: 8, Records: 1, Lanes: 1})
	body, err := c.encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeControl(longer(body))
	if err != nil {
		t.Fatal(err)
	}
	if len(back.Regions) != len(c.Regions) || back.Regions[4].Fields[3].Name != c.Regions[4].Fields[3].Name {
		t.Errorf("got %+v, want %+v", back, c)
	}
	publish(l[ControlID], body)
	if _, err := NewCollector(l).Collect(context.Background()); err != nil {
		t.Errorf("what is not known is not skipped: %v", err)
	}
}

// longer is a control region whose entries of fields have 8 more bytes.
func longer(body []byte) []byte {
	le := binary.LittleEndian
	count, offset, size := le.Uint32(body[76:]), le.Uint32(body[80:]), le.Uint32(body[84:])
	b := bytes.Clone(body[:offset])
	for i := range count {
		b = append(append(b, body[offset+i*size:offset+(i+1)*size]...), "unknown!"...)
	}
	metrics := uint32(len(b))
	b = append(b, body[offset+count*size:]...)
	le.PutUint32(b[84:], size+8)
	le.PutUint32(b[92:], metrics)
	le.PutUint32(b[usedOffset:], uint32(len(b)))
	return b
}

func TestLyingLengths(t *testing.T) {
	l, w := host(t)
	if _, err := w.Update(names(2), 1e8, 1e9); err != nil {
		t.Fatal(err)
	}
	control, dictionary := bytes.Clone(l[ControlID]), bytes.Clone(l[DictionaryID])
	// Offsets of lengths, counts and sizes in the headers, in the first region and in the first field.
	for _, at := range []int{12, 56, 60, 64, 68, 72, 76, 80, 84, 88, 92, 96, 256 + 40, 256 + 44, 256 + 52, 256 + 56} {
		copy(l[ControlID], control)
		binary.LittleEndian.PutUint32(l[ControlID][at:], 0xfffffff8)
		if _, err := NewCollector(l).Collect(context.Background()); err == nil && at != 256+44 {
			t.Errorf("offset %d of the control region: no error", at)
		}
	}
	copy(l[ControlID], control)
	for _, at := range []int{12, 24, 28, 32, 36, 40, 44, 48, 52, 64, 68} {
		copy(l[DictionaryID], dictionary)
		binary.LittleEndian.PutUint32(l[DictionaryID][at:], 0xfffffff8)
		if _, err := ReadDictionary(context.Background(), l); err == nil {
			t.Errorf("offset %d of the dictionary: no error", at)
		}
	}
}

func TestBounds(t *testing.T) {
	m := memory(64)
	f := func(offset uint64, length int, want bool) {
		t.Helper()
		if _, err := Part(m, offset, length); errors.Is(err, ErrBounds) == want {
			t.Errorf("%d bytes at %d: %v", length, offset, err)
		}
	}
	f(0, 64, true)
	f(56, 8, true)
	f(64, 0, true)
	f(56, 16, false)
	f(4, 8, false)
	f(8, 4, false)
	f(1<<63, 8, false)
	f(^uint64(7), 16, false)
}

func TestKeys(t *testing.T) {
	f := func(text string, want int) {
		t.Helper()
		if keys, err := ParseKeys([]byte(text)); len(keys) != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d keys, %v", text, len(keys), err)
		}
	}
	const secret = "000102030405060708090a0b0c0d0e0f"
	f("1 "+secret, 1)
	f("# of last year\n1 "+secret+"\n\n2  "+secret+"ff\n", 2)
	f("", 0)
	f(secret, 0)
	f("1 "+secret[2:], 0)
	f("1 "+secret+"\n1 "+secret, 0)
	f("1 xx"+secret, 0)
	f("4294967296 "+secret, 0)
}

// FuzzCollect: whatever the regions say, a reading ends with figures or an error.
func FuzzCollect(f *testing.F) {
	l, w := host(f)
	if _, err := w.Update(names(2), 1e8, 1e9); err != nil {
		f.Fatal(err)
	}
	control, err := ReadControl(context.Background(), l)
	if err != nil {
		f.Fatal(err)
	}
	body, err := control.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(0), uint32(0), uint16(0), uint32(0))
	f.Add(uint16(64), uint32(1<<31), uint16(36), uint32(1<<20))
	f.Fuzz(func(t *testing.T, at uint16, n uint32, dictionaryAt uint16, m uint32) {
		broken := local{}
		for id, memory := range l {
			broken[id] = memory
		}
		broken[ControlID], broken[DictionaryID] = memory(ControlBytes), memory(len(l[DictionaryID]))
		copy(broken[ControlID], l[ControlID])
		copy(broken[DictionaryID], l[DictionaryID])
		binary.LittleEndian.PutUint32(broken[ControlID][int(at)%(len(body)-4):], n)
		binary.LittleEndian.PutUint32(broken[DictionaryID][int(dictionaryAt)%512:], m)
		_, _ = NewCollector(broken).Collect(context.Background())
	})
}
