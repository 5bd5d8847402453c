package region

import (
	"context"
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"

	"outsight/internal/model"
)

// diskRecord is the record of the map disks, and begunRecord that of disks_begun.
type diskRecord struct {
	Used          uint64
	Key           struct{ Group, Device uint64 }
	Owner         uint64
	Slot, Lookups uint32
	Name          [32]int8
	Histograms    [2]uint32
	Begun         uint64
	Unused        [3]uint64
	Counters      [4]struct {
		Operations, Bytes, TimeNs, QueueNs, Errors, Untimed uint64
		Unused                                              [2]uint64
	}
}

type begunRecord struct {
	Count   uint64
	Entries [testBegun]uint64
}

const testDisks, testBegun = 200, 32

// diskHost is a host with a table of disks, and what its kernel would do there.
type diskHost struct {
	local
	disks, latency, begun uint32
	count                 uint64
}

func newDiskHost(t *testing.T) *diskHost {
	t.Helper()
	regions, metrics, err := Describe([]Source{{"disks", reflect.TypeFor[diskRecord](), testDisks, 1},
		{"disk_latency", reflect.TypeFor[cellsRecord](), 2 * testDisks, 1}, {"disks_begun", reflect.TypeFor[begunRecord](), 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	h := &diskHost{local: local{ControlID: memory(ControlBytes), DictionaryID: memory(DictionaryBytes(16))}, disks: 2, latency: 3,
		begun: 4}
	for _, r := range regions {
		h.local[r.ID] = memory(int(r.Bytes()))
	}
	w, err := NewWriter(h.local[ControlID], h.local[DictionaryID], Control{EpochNS: 5, Regions: regions, Metrics: metrics})
	if err == nil {
		_, err = w.Update(names(2), 1e8, 1e9)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// set writes a record but for its number.
func (h *diskHost) set(index int, group, device uint64) []byte {
	b := h.local[h.disks][index*int(reflect.TypeFor[diskRecord]().Size()):]
	put(b, 0, 1)
	put(b, 8, group)
	put(b, 16, device)
	put(b, 24, group)
	copy(b[40:], "sda\x00")
	binary.LittleEndian.PutUint32(b[72:], uint32(2*index))
	binary.LittleEndian.PutUint32(b[76:], uint32(2*index+1))
	return b
}

// begin makes a record begin, as entry_begins of bpf/include/begun.h does.
func (h *diskHost) begin(index int, group, device uint64) []byte {
	b := h.set(index, group, device)
	h.count++
	put(b, 80, h.count)
	put(h.local[h.begun], 0, h.count)
	put(h.local[h.begun], 8+8*int(h.count%testBegun), h.count<<32|uint64(index))
	return b
}

func (h *diskHost) end(index int) {
	clear(h.local[h.disks][index*int(reflect.TypeFor[diskRecord]().Size()):][:reflect.TypeFor[diskRecord]().Size()])
}

// groupsOf are the numbers and control groups of what a reading found.
func groupsOf(t *testing.T, c *Collector) (all string, bytes int64) {
	t.Helper()
	s, err := c.Collect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range s.Disks {
		all += fmt.Sprintf("%d:%d ", d.Number, d.Group)
	}
	return all, s.Bytes
}

// TestNewRecords: a record that has begun is found at the next reading, and no reading but one that has lost count reads
// the whole table for it.
func TestNewRecords(t *testing.T) {
	h := newDiskHost(t)
	whole := int64(len(h.local[h.disks]))
	c := NewCollector(h)
	f := func(want string, scans bool) {
		t.Helper()
		if got, bytes := groupsOf(t, c); got != want || bytes > whole != scans {
			t.Errorf("found %q with %d bytes, want %q, and a table of %d bytes read: %v", got, bytes, want, whole, scans)
		}
	}
	// A control region of 64 KiB is read at first, which is no scan.
	if got, _ := groupsOf(t, c); got != "" {
		t.Errorf("found %q of nothing", got)
	}
	h.begin(7, 100, 1)
	f("1:100 ", false)
	f("1:100 ", false)
	h.begin(3, 101, 1)
	h.begin(150, 102, 1)
	f("2:101 1:100 3:102 ", false)
	h.end(7)
	f("2:101 3:102 ", false)
	h.begin(7, 105, 1) // its place is another one's now
	f("2:101 4:105 3:102 ", false)
	h.end(3)
	h.end(7)
	h.end(150)
	for i := range testBegun + 1 {
		h.begin(i, uint64(1000+i), 1)
		h.end(i)
	}
	h.begin(60, 200, 1)
	f(fmt.Sprintf("%d:200 ", h.count), true) // more than are remembered
	// One that is not written yet, and one behind it.
	h.count += 2
	put(h.local[h.begun], 0, h.count)
	put(h.set(62, 202, 1), 80, h.count)
	put(h.local[h.begun], 8+8*int(h.count%testBegun), h.count<<32|62)
	f(fmt.Sprintf("%d:200 ", h.count-2), false)
	put(h.set(61, 201, 1), 80, h.count-1)
	put(h.local[h.begun], 8+8*int((h.count-1)%testBegun), (h.count-1)<<32|61)
	f(fmt.Sprintf("%d:200 %d:201 %d:202 ", h.count-2, h.count-1, h.count), false)
	// A reader that comes now looks at all.
	if got, bytes := groupsOf(t, NewCollector(h)); got != fmt.Sprintf("%d:200 %d:201 %d:202 ", h.count-2, h.count-1, h.count) ||
		bytes < whole {
		t.Errorf("found %q with %d bytes", got, bytes)
	}
	// An index beyond the table is damage.
	h.count++
	put(h.local[h.begun], 0, h.count)
	put(h.local[h.begun], 8+8*int(h.count%testBegun), h.count<<32|testDisks)
	if _, err := c.Collect(context.Background()); err == nil {
		t.Error("a record beyond the table is believed")
	}
}

// TestDisks: the numbers of a device by their series, and those of synchronised files, which are others.
func TestDisks(t *testing.T) {
	h := newDiskHost(t)
	disk, files := h.begin(7, 100, 8<<32|1), h.begin(8, 101, syncDevice)
	for kind := range 4 {
		for field := range 6 {
			put(disk, 112+64*kind+8*field, uint64(100*kind+field+1))
		}
	}
	put(files, 112, 5)
	put(files, 112+16, 7000)
	put(h.local[h.latency], 14*6720+8, 1)    // of reads of the disk
	put(h.local[h.latency], 15*6720+8*2, 2)  // of writes
	put(h.local[h.latency], 16*6720+8*10, 5) // of fsync
	s, err := NewCollector(h).Collect(context.Background())
	if err != nil || len(s.Disks) != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	if d := s.Disks[0]; d.Device != (model.BlockDevice{Major: 8, Minor: 1, Name: "sda"}) || d.Group != 100 || d.Syncs {
		t.Errorf("%+v", d)
	}
	for series, want := range map[string]uint64{
		`container_disk_operations_total{direction="read"}`:            1,
		`container_disk_io_bytes_total{direction="write"}`:             102,
		`container_disk_operation_seconds_total{direction="flush"}`:    303,
		`container_disk_queue_seconds_total{direction="discard"}`:      204,
		`container_disk_errors_total{direction="flush"}`:               305,
		`container_disk_untimed_operations_total{direction="discard"}`: 206,
		`container_disk_io_latency_seconds{direction="write"}`:         103,
	} {
		if f := s.Disks[0].Figures.Of(series); f == nil || f.Count != want {
			t.Errorf("%s is %+v, want %d", series, f, want)
		}
	}
	for direction, count := range map[string]uint64{"read": 1, "write": 2} {
		f := s.Disks[0].Figures.Of(fmt.Sprintf("container_disk_io_latency_seconds{direction=%q}", direction))
		if f == nil || f.Histogram == nil || f.Histogram.Count != count {
			t.Errorf("latency of %ss %+v, want %d", direction, f, count)
		}
	}
	d := s.Disks[1]
	f := d.Figures.Of(`container_fsync_duration_seconds{type="fsync"}`)
	if !d.Syncs || len(d.Figures) != 2 || f == nil || f.Histogram == nil || f.Histogram.Count != 5 || f.Count != 7000 {
		t.Errorf("synchronised files: %+v, %+v", d, f)
	}
}
