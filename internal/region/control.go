package region

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Control is what the control region says.
type Control struct {
	// Generation changes with everything but DictionaryGeneration, which is that of the dictionary.
	Generation, DictionaryGeneration uint64
	// EpochNS is when the kernel programs began to count (wall clock, ns since 1970): all counters are since then.
	EpochNS uint64
	// MonotonicNS and WallNS are the same moment on both clocks.
	MonotonicNS, WallNS uint64
	CPUs                uint32
	// TrustedFigures are the bits of RoleKnown whose figures were found to equal the kernel's files.
	TrustedFigures uint32
	BootID, Host   string
	Regions        []Region
	Metrics        []Metric
}

// Region is one region.
type Region struct {
	Name  string
	ID    uint32
	Index Index
	Fill  Fill
	// RecordBytes is the distance of two records, Lanes how many in a row belong to one index.
	RecordBytes, Records, Lanes uint32
	// Generation changes when the region is another one; Key is that of a transport which has keys for memory.
	Generation, Key uint64
	Fields          []Field
}

// Bytes is the size of the region.
func (r *Region) Bytes() uint64 { return uint64(r.RecordBytes) * uint64(r.Records) }

// Field is a part of a record. Those of unknown Type or Role are to be skipped.
type Field struct {
	Name   string
	Offset uint32
	Type   Type
	Role   Role
	// Count is how many values there are, one after the other.
	Count uint16
	// Refers is the region that RoleSum and RoleReference are about. Where Via is None, the histogram of RoleSum has the
	// record's own index there; else its index is the u32 at Via in the same record, 0 for none.
	Refers, Via uint32
	// Mask is the bit of RoleKnown that must be set, 0 for none.
	Mask uint32
	// Metric is an index into Control.Metrics, -1 for none; ServerMetric the same where the record is of a server's end.
	Metric, ServerMetric int
}

// Metric is a metric of the registry (internal/model), with the label that distinguishes this series of it.
type Metric struct {
	Name, Unit            string
	LabelName, LabelValue string
	// Per is how many of the counts are one unit: 1e9 of ns in seconds.
	Per uint64
	// series is what Series says, of a metric that was read.
	series string
}

// Series is the metric with its label, as Prometheus writes it.
func (m *Metric) Series() string {
	if m.series != "" {
		return m.series
	}
	if m.LabelName == "" {
		return m.Name
	}
	return fmt.Sprintf("%s{%s=%q}", m.Name, m.LabelName, m.LabelValue)
}

// Errors of readers.
var (
	ErrNotRegion = errors.New("not a region of Outsight")
	ErrVersion   = errors.New("a newer layout than this program knows")
	ErrDamaged   = errors.New("the layout contradicts itself")
	// ErrBusy: the region changed at each attempt to read it.
	ErrBusy = errors.New("it changes all the time")
)

// Bounds of what a reader believes.
const (
	maxRegionBytes = 64 << 20
	maxEntries     = 1 << 16
	maxRecordBytes = 1 << 20
	maxLanes       = 1 << 16
	// maxReading is how much is read at once of one region.
	maxReading = 1 << 30
)

// encode is the control region as bytes, without its tail.
func (c *Control) encode() ([]byte, error) {
	var fields []fieldEntry
	var regions []regionEntry
	for _, r := range c.Regions {
		regions = append(regions, regionEntry{Name: fixed[[32]byte](r.Name), ID: r.ID, Index: uint16(r.Index),
			Fill: uint16(r.Fill), RecordBytes: r.RecordBytes, Records: r.Records, Lanes: r.Lanes,
			FirstField: uint32(len(fields)), Fields: uint32(len(r.Fields)), Generation: r.Generation, Key: r.Key})
		for _, f := range r.Fields {
			fields = append(fields, fieldEntry{Name: fixed[[32]byte](f.Name), Offset: f.Offset, Type: uint8(f.Type),
				Role: uint8(f.Role), Count: f.Count, Refers: f.Refers, Via: f.Via, Mask: f.Mask,
				Metric: index16(f.Metric), ServerMetric: index16(f.ServerMetric)})
		}
	}
	var metrics []metricEntry
	for _, m := range c.Metrics {
		metrics = append(metrics, metricEntry{Name: fixed[[80]byte](m.Name), Unit: fixed[[24]byte](m.Unit),
			LabelName: fixed[[24]byte](m.LabelName), LabelValue: fixed[[24]byte](m.LabelValue), Per: m.Per})
	}
	h := header{Magic: controlMagic, Version: Version, Generation: c.Generation,
		DictionaryGeneration: c.DictionaryGeneration, EpochNS: c.EpochNS, MonotonicNS: c.MonotonicNS, WallNS: c.WallNS,
		RegionBytes: ControlBytes, CPUs: c.CPUs, TrustedFigures: c.TrustedFigures,
		BootID: fixed[[48]byte](c.BootID), Host: fixed[[96]byte](c.Host)}
	h.HeaderBytes = uint32(binary.Size(h))
	at := h.HeaderBytes
	place := func(count, size int) array {
		a := array{uint32(count), at, uint32(size)}
		at += uint32(count * size)
		return a
	}
	h.Regions = place(len(regions), binary.Size(regionEntry{}))
	h.Fields = place(len(fields), binary.Size(fieldEntry{}))
	h.Metrics = place(len(metrics), binary.Size(metricEntry{}))
	h.UsedBytes = at
	if at+8 > ControlBytes {
		return nil, fmt.Errorf("BUG: the control region takes %d bytes, want at most %d", at+8, ControlBytes)
	}
	return encodeAll(h, regions, fields, metrics), nil
}

// DecodeControl reads the control region from its first bytes, as many as its header says are used.
func DecodeControl(b []byte) (*Control, error) {
	h, err := decodeHeader(b)
	if err != nil {
		return nil, err
	}
	if uint64(h.UsedBytes) > uint64(len(b)) {
		return nil, fmt.Errorf("reading the control region: %w: %d bytes are used, and there are %d", ErrDamaged,
			h.UsedBytes, len(b))
	}
	b = b[:h.UsedBytes]
	metrics, err1 := decodeArray[metricEntry](b, h.Metrics)
	fields, err2 := decodeArray[fieldEntry](b, h.Fields)
	regions, err3 := decodeArray[regionEntry](b, h.Regions)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("reading the control region: %w", err)
	}
	c := &Control{Generation: h.Generation, DictionaryGeneration: h.DictionaryGeneration, EpochNS: h.EpochNS,
		MonotonicNS: h.MonotonicNS, WallNS: h.WallNS, CPUs: h.CPUs, TrustedFigures: h.TrustedFigures,
		BootID: textOf(h.BootID[:]), Host: textOf(h.Host[:])}
	for _, m := range metrics {
		one := Metric{Name: textOf(m.Name[:]), Unit: textOf(m.Unit[:]), LabelName: textOf(m.LabelName[:]),
			LabelValue: textOf(m.LabelValue[:]), Per: max(m.Per, 1)}
		one.series = one.Series()
		c.Metrics = append(c.Metrics, one)
	}
	for _, e := range regions {
		r := Region{Name: textOf(e.Name[:]), ID: e.ID, Index: Index(e.Index), Fill: Fill(e.Fill),
			RecordBytes: e.RecordBytes, Records: e.Records, Lanes: max(e.Lanes, 1), Generation: e.Generation, Key: e.Key}
		if e.RecordBytes%8 != 0 || e.RecordBytes == 0 || e.RecordBytes > maxRecordBytes || r.Lanes > maxLanes ||
			uint64(e.FirstField)+uint64(e.Fields) > uint64(len(fields)) {
			return nil, fmt.Errorf("reading the control region: %w: region %q has records of %d bytes, %d lanes, and fields "+
				"%d to %d of %d", ErrDamaged, r.Name, e.RecordBytes, r.Lanes, e.FirstField, uint64(e.FirstField)+uint64(e.Fields), len(fields))
		}
		for _, f := range fields[e.FirstField : e.FirstField+e.Fields] {
			field := Field{Name: textOf(f.Name[:]), Offset: f.Offset, Type: Type(f.Type), Role: Role(f.Role),
				Count: f.Count, Refers: f.Refers, Via: f.Via, Mask: f.Mask,
				Metric: indexOf(f.Metric, len(metrics)), ServerMetric: indexOf(f.ServerMetric, len(metrics))}
			if end := uint64(f.Offset) + uint64(field.Type.size())*uint64(f.Count); end > uint64(e.RecordBytes) || f.Count == 0 {
				return nil, fmt.Errorf("reading the control region: %w: field %q of region %q ends at %d of %d", ErrDamaged,
					field.Name, r.Name, end, e.RecordBytes)
			}
			r.Fields = append(r.Fields, field)
		}
		c.Regions = append(c.Regions, r)
	}
	return c, nil
}

// headerBytes is the size of the header that this program knows; later ones are longer.
var headerBytes = binary.Size(header{})

func decodeHeader(b []byte) (h header, err error) {
	if err := decode(b, &h); err != nil {
		return h, fmt.Errorf("reading the control region: %w", err)
	}
	if err := checkHead(h.Magic, controlMagic, h.Version, h.HeaderBytes, headerBytes, h.UsedBytes, h.RegionBytes); err != nil {
		return h, fmt.Errorf("reading the control region: %w", err)
	}
	return h, nil
}

// checkHead holds what both headers have in common against what this program knows: least is the length of its header.
func checkHead(magic, want [8]byte, version, size uint32, least int, used, region uint32) error {
	switch {
	case magic != want:
		return fmt.Errorf("%w: it begins with %q", ErrNotRegion, magic[:])
	case version > Version:
		return fmt.Errorf("%w: version %d, want at most %d: update this program", ErrVersion, version, Version)
	case int(size) < least || used < size || region > maxRegionBytes || region%8 != 0 ||
		uint64(used)+8 > uint64(region):
		return fmt.Errorf("%w: a header of %d bytes, %d used of %d", ErrDamaged, size, used, region)
	}
	return nil
}

// decodeArray reads entries that may be longer than those that this program knows.
func decodeArray[T any](b []byte, a array) ([]T, error) {
	var zero T
	size := binary.Size(zero)
	if a.Count > maxEntries || (a.Count > 0 && int(a.EntryBytes) < size) ||
		uint64(a.Offset)+uint64(a.Count)*uint64(a.EntryBytes) > uint64(len(b)) {
		return nil, fmt.Errorf("%w: %d entries of %d bytes at %d of %d, want entries of at least %d", ErrDamaged, a.Count,
			a.EntryBytes, a.Offset, len(b), size)
	}
	all := make([]T, a.Count)
	for i := range all {
		at := a.Offset + uint32(i)*a.EntryBytes
		if err := decode(b[at:], &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func decode(b []byte, into any) error {
	if _, err := binary.Decode(b, binary.LittleEndian, into); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

func encodeAll(parts ...any) []byte {
	var b bytes.Buffer
	for _, part := range parts {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic("BUG: encoding a region: " + err.Error())
		}
	}
	for b.Len()%8 != 0 {
		b.WriteByte(0)
	}
	return b.Bytes()
}

// fixed is text in a field, cut to leave a zero at its end.
func fixed[T [24]byte | [32]byte | [48]byte | [80]byte | [96]byte](s string) (field T) {
	b := make([]byte, binary.Size(field))
	copy(b[:len(b)-1], s)
	_, _ = binary.Decode(b, binary.LittleEndian, &field) // it has the size
	return field
}

func textOf(b []byte) string {
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return string(bytes.ToValidUTF8(b, []byte("?")))
}

func index16(i int) uint16 {
	if i < 0 {
		return none16
	}
	return uint16(i)
}

func indexOf(i uint16, count int) int {
	if int(i) >= count {
		return -1
	}
	return int(i)
}
