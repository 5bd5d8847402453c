package region

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"outsight/internal/appmetrics"
	"outsight/internal/model"
)

// ApplicationsBytes is the size of the region that lists applications' own metrics.
const ApplicationsBytes = 1 << 20

// Applications is what that region says.
type Applications struct {
	Generation uint64
	Files      []ApplicationFile
	Metrics    []ApplicationSum
	// LeftOut is how many metrics the host had no room for.
	LeftOut int
}

// ApplicationFile is a part of a process's file with metrics: a region, which any reader may read but packets.
type ApplicationFile struct {
	ID, Bytes uint32
	Process   int
	Group     model.CgroupID
	// Key and Address are for readers by RDMA; Address is 0 where those cannot read it.
	Key     uint32
	Address uint64
	Values  []ApplicationValue
}

// ApplicationValue is a value of a process: 8 bytes at Offset of the file's region.
type ApplicationValue struct {
	Offset uint32
	Type   appmetrics.ValueType
	// Metric is an index of Applications.Metrics.
	Metric int
}

// ApplicationSum is a metric of a container: Count and Level of its processes that have ended, and of the values of
// those that live.
type ApplicationSum struct {
	// Container is its ID.
	Container string
	model.ApplicationMetric
}

// The kinds of an application's metric.
const (
	applicationCounter = 1
	applicationGauge   = 2
)

var (
	applicationsHeaderBytes = binary.Size(applicationsHeader{})
	fileEntryBytes          = binary.Size(fileEntry{})
	valueEntryBytes         = binary.Size(valueEntry{})
	applicationEntryBytes   = binary.Size(applicationEntry{})
)

// ApplicationsWriter keeps the list of applications' own metrics. It is for one goroutine.
type ApplicationsWriter struct {
	memory, written []byte
	generation      uint64
}

// NewApplicationsWriter writes an empty list into a region, whose size is a multiple of 8 and which is all zeros.
func NewApplicationsWriter(memory []byte) *ApplicationsWriter {
	w := &ApplicationsWriter{memory: memory}
	w.Update(&Applications{})
	return w
}

// Fit is what of a list finds room. Of a container all metrics do, or none: a sum without some of its values would be none.
// Those that need least come first.
func (w *ApplicationsWriter) Fit(a *Applications) *Applications { return a.fitting(len(w.memory)) }

// Update writes a list that fits, if it is another than before.
func (w *ApplicationsWriter) Update(fitting *Applications) {
	list := *fitting
	list.Generation = 0
	body := list.encode(len(w.memory))
	if !bytes.Equal(body, w.written) {
		w.written = body
		w.generation++
		list.Generation = w.generation
		publish(w.memory, list.encode(len(w.memory)))
	}
}

// need is what the metrics of a container take.
type need struct {
	container              string
	metrics, values, bytes int
}

// fitting is what of a list fits into size bytes.
func (a *Applications) fitting(size int) *Applications {
	of := map[string]*need{}
	for i := range a.Metrics {
		m := &a.Metrics[i]
		n := of[m.Container]
		if n == nil {
			n = &need{container: m.Container, bytes: len(m.Container)}
			of[m.Container] = n
		}
		n.metrics++
		n.bytes += applicationEntryBytes + len(m.Name) + len(m.Labels) + len(m.Unit) + len(m.Help)
	}
	for i := range a.Files {
		f := &a.Files[i]
		for k := range f.Values {
			n := of[a.Metrics[f.Values[k].Metric].Container]
			n.values++
			n.bytes += valueEntryBytes
			if k == 0 { // all values of a file are of one container
				n.bytes += fileEntryBytes
			}
		}
	}
	all := make([]*need, 0, len(of))
	for _, n := range of {
		all = append(all, n)
	}
	slices.SortFunc(all, func(x, y *need) int {
		return cmp.Or(cmp.Compare(x.bytes, y.bytes), strings.Compare(x.container, y.container))
	})
	room, values, metrics := size-applicationsHeaderBytes-16, maxEntries, maxEntries
	without, left := map[string]bool{}, 0
	for _, n := range all {
		if n.bytes > room || n.values > values || n.metrics > metrics {
			without[n.container] = true
			left += n.metrics
			continue
		}
		room, values, metrics = room-n.bytes, values-n.values, metrics-n.metrics
	}
	if left == 0 {
		whole := *a
		return &whole
	}
	part, places := &Applications{LeftOut: left}, make([]int, len(a.Metrics))
	for i, m := range a.Metrics {
		if places[i] = -1; !without[m.Container] {
			places[i] = len(part.Metrics)
			part.Metrics = append(part.Metrics, m)
		}
	}
	for _, f := range a.Files {
		if len(f.Values) == 0 || places[f.Values[0].Metric] < 0 {
			continue
		}
		f.Values = slices.Clone(f.Values)
		for k := range f.Values {
			f.Values[k].Metric = places[f.Values[k].Metric]
		}
		part.Files = append(part.Files, f)
	}
	return part
}

// encode is the list as bytes, without its tail, for a region of size bytes, into which it fits.
func (a *Applications) encode(size int) []byte {
	h := applicationsHeader{Magic: applicationsMagic, Version: Version, HeaderBytes: uint32(applicationsHeaderBytes),
		Generation: a.Generation, RegionBytes: uint32(size), LeftOut: uint32(a.LeftOut)}
	at := h.HeaderBytes
	place := func(count, bytes int) array {
		p := array{uint32(count), at, uint32(bytes)}
		at += uint32(count * bytes)
		return p
	}
	var files []fileEntry
	var values []valueEntry
	for i := range a.Files {
		f := &a.Files[i]
		files = append(files, fileEntry{ID: f.ID, Bytes: f.Bytes, FirstValue: uint32(len(values)), Values: uint32(len(f.Values)),
			Cgroup: uint64(f.Group), Process: uint32(f.Process), Key: f.Key, Address: f.Address})
		for _, v := range f.Values {
			values = append(values, valueEntry{Offset: v.Offset, Metric: uint32(v.Metric), Type: uint8(v.Type)})
		}
	}
	h.Files, h.Metrics = place(len(files), fileEntryBytes), place(len(a.Metrics), applicationEntryBytes)
	h.Values = place(len(values), valueEntryBytes)
	var texts []byte
	container := text{}
	put := func(s string) text {
		t := text{at + uint32(len(texts)), uint32(len(s))}
		texts = append(texts, s...)
		return t
	}
	metrics := make([]applicationEntry, 0, len(a.Metrics))
	for i := range a.Metrics {
		m := &a.Metrics[i]
		if i == 0 || m.Container != a.Metrics[i-1].Container {
			container = put(m.Container)
		}
		e := applicationEntry{Container: container, Name: put(m.Name), Labels: put(m.Labels), Unit: put(m.Unit),
			Help: put(m.Help), Kind: applicationCounter, Ended: m.Count}
		if m.Kind == model.Gauge {
			e.Kind, e.Ended = applicationGauge, math.Float64bits(m.Level)
		}
		if m.Fine {
			e.Fine = 1
		}
		metrics = append(metrics, e)
	}
	h.UsedBytes = at + uint32(len(texts))
	h.UsedBytes += -h.UsedBytes & 7
	return encodeAll(h, files, metrics, values, texts)
}

// decodeApplications reads the list from its first bytes, as many as its header says are used.
func decodeApplications(b []byte) (*Applications, error) {
	h, err := decodeApplicationsHeader(b)
	if err != nil {
		return nil, err
	}
	if uint64(h.UsedBytes) > uint64(len(b)) {
		return nil, fmt.Errorf("%w: %d bytes are used, and there are %d", ErrDamaged, h.UsedBytes, len(b))
	}
	b = b[:h.UsedBytes]
	files, err1 := decodeArray[fileEntry](b, h.Files)
	values, err2 := decodeArray[valueEntry](b, h.Values)
	metrics, err3 := decodeArray[applicationEntry](b, h.Metrics)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	a := &Applications{Generation: h.Generation, LeftOut: int(h.LeftOut)}
	// A host that lies could tell a short text or list thousands of times.
	texts, left := len(b), len(values)
	for i := range metrics {
		m, err := decodeApplication(b, &metrics[i])
		if err != nil {
			return nil, err
		}
		if i > 0 && m.Container == a.Metrics[i-1].Container {
			m.Container = a.Metrics[i-1].Container // one text in memory
		} else {
			texts -= len(m.Container)
		}
		if texts -= len(m.Name) + len(m.Labels) + len(m.Unit) + len(m.Help); texts < 0 {
			return nil, fmt.Errorf("%w: more text than bytes", ErrDamaged)
		}
		a.Metrics = append(a.Metrics, m)
	}
	known := make(map[uint32]bool, len(files))
	for i := range files {
		e := &files[i]
		left -= int(e.Values)
		if e.ID < FirstFileID || known[e.ID] || left < 0 || uint64(e.FirstValue)+uint64(e.Values) > uint64(len(values)) {
			return nil, fmt.Errorf("%w: file %d has values %d to %d of %d", ErrDamaged, e.ID, e.FirstValue,
				uint64(e.FirstValue)+uint64(e.Values), len(values))
		}
		known[e.ID] = true
		f := ApplicationFile{ID: e.ID, Bytes: e.Bytes, Process: int(e.Process), Group: model.CgroupID(e.Cgroup), Key: e.Key,
			Address: e.Address}
		for _, v := range values[e.FirstValue : e.FirstValue+e.Values] {
			if v.Offset%8 != 0 || uint64(v.Offset)+8 > uint64(e.Bytes) || v.Metric >= uint32(len(metrics)) {
				return nil, fmt.Errorf("%w: file %d has a value at %d of %d, of metric %d of %d", ErrDamaged, e.ID, v.Offset,
					e.Bytes, v.Metric, len(metrics))
			}
			f.Values = append(f.Values, ApplicationValue{Offset: v.Offset, Type: appmetrics.ValueType(v.Type), Metric: int(v.Metric)})
		}
		a.Files = append(a.Files, f)
	}
	return a, nil
}

// decodeApplication reads a metric; of an unknown kind it has no name.
func decodeApplication(b []byte, e *applicationEntry) (m ApplicationSum, err error) {
	var texts [5]string
	for i, t := range []text{e.Container, e.Name, e.Labels, e.Unit, e.Help} {
		if uint64(t.Offset)+uint64(t.Length) > uint64(len(b)) {
			return m, fmt.Errorf("%w: %d bytes of text at %d of %d", ErrDamaged, t.Length, t.Offset, len(b))
		}
		if t.Length > maxTextBytes {
			return m, fmt.Errorf("%w: a text of %d bytes", ErrDamaged, t.Length)
		}
		texts[i] = string(b[t.Offset : t.Offset+t.Length])
	}
	m.Container, m.Name, m.Labels = texts[0], texts[1], texts[2]
	m.Unit, m.Help = appmetrics.PrintableTexts(texts[3], texts[4])
	m.Fine = e.Fine != 0
	switch e.Kind {
	case applicationCounter:
		m.Kind, m.Count = model.Counter, e.Ended
	case applicationGauge:
		if m.Kind, m.Level = model.Gauge, math.Float64frombits(e.Ended); m.Unbounded() {
			m.Level = 0
		}
	default:
		m.Name = ""
	}
	return m, nil
}

// maxTextBytes bounds each text of an application's metric.
const maxTextBytes = 1024

func decodeApplicationsHeader(b []byte) (h applicationsHeader, err error) {
	if err := decode(b, &h); err != nil {
		return h, err
	}
	return h, checkHead(h.Magic, applicationsMagic, h.Version, h.HeaderBytes, applicationsHeaderBytes, h.UsedBytes, h.RegionBytes)
}

// ReadApplications reads the list in the region of an id.
func ReadApplications(ctx context.Context, r Reader, id uint32) (*Applications, error) {
	first := make([]byte, applicationsHeaderBytes)
	for range attempts {
		if err := r.Read(ctx, id, 0, first); err != nil {
			return nil, err
		}
		h, err := decodeApplicationsHeader(first)
		if err != nil {
			return nil, err
		}
		body, whole, err := readWhole(ctx, r, id, first, h.UsedBytes, h.RegionBytes)
		if err != nil {
			return nil, err
		}
		if whole {
			return decodeApplications(body)
		}
	}
	return nil, ErrBusy
}

// FileMapper is a Reader that has to know of files before it can read them.
type FileMapper interface {
	// MapFiles has it read these, and no others any more.
	MapFiles(ctx context.Context, files []ApplicationFile) error
}

// Wrapper is a Reader that reads by another one.
type Wrapper interface {
	Unwrap() Reader
}

// fileMapperOf is r, or the reader that it wraps, as a FileMapper; nil where it is none.
func fileMapperOf(r Reader) FileMapper {
	for {
		if m, ok := r.(FileMapper); ok {
			return m
		}
		w, ok := r.(Wrapper)
		if !ok {
			return nil
		}
		r = w.Unwrap()
	}
}
