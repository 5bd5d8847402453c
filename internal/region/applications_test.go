package region

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/appmetrics"
	"outsight/internal/model"
)

// Types of values, as docs/format/appmetrics.md has them.
const (
	u64 appmetrics.ValueType = 1 + iota
	i64
	f64
)

// listID is the region that lists applications, and fileID the first file's.
const listID, fileID = 6, FirstFileID + 7

func counterOf(container, name string, ended uint64) ApplicationSum {
	return ApplicationSum{container, model.ApplicationMetric{ApplicationKey: model.ApplicationKey{Name: name, Kind: model.Counter},
		Unit: "{job}", Help: "Jobs", Count: ended}}
}

func gaugeOf(container, name string, ended float64) ApplicationSum {
	return ApplicationSum{container, model.ApplicationMetric{ApplicationKey: model.ApplicationKey{Name: name, Kind: model.Gauge,
		Labels: `path="/a \"b\""`}, Level: ended}}
}

// list is of two containers, of which the first has two processes and the second one.
func list() *Applications {
	fine := counterOf("id0", "app_seconds_total", 5e8)
	fine.Fine = true
	return &Applications{Metrics: []ApplicationSum{fine, counterOf("id0", "app_jobs_total", 100), gaugeOf("id0", "app_load", 0.5),
		counterOf("id1", "app_jobs_total", 7)},
		Files: []ApplicationFile{
			{ID: fileID, Bytes: 4096, Process: 10, Group: 100, Values: []ApplicationValue{{0, f64, 0}, {8, u64, 1}, {2048, f64, 2}}},
			{ID: fileID + 1, Bytes: 8192, Process: 11, Group: 100, Key: 3, Address: 1 << 40, Values: []ApplicationValue{{4096, u64, 1}, {8, i64, 2}}},
			{ID: fileID + 2, Bytes: 4096, Process: 12, Group: 101, Values: []ApplicationValue{{64, u64, 3}}}}}
}

// hostOfApplications lists applications of a host, with values 1, 2, 3 and so on.
func hostOfApplications(t testing.TB, size int) (local, *Writer, *ApplicationsWriter) {
	t.Helper()
	control := Control{EpochNS: 5, CPUs: 2, Regions: []Region{{Name: "applications", ID: listID, Index: IndexApplications,
		RecordBytes: 8, Records: uint32(size / 8), Lanes: 1, Generation: 1}}}
	l := local{ControlID: memory(ControlBytes), DictionaryID: memory(DictionaryBytes(16)), listID: memory(size),
		fileID: memory(4096), fileID + 1: memory(8192), fileID + 2: memory(4096)}
	w, err := NewWriter(l[ControlID], l[DictionaryID], control)
	if err == nil {
		_, err = w.Update(names(2), 1e8, 1e9)
	}
	if err != nil {
		t.Fatal(err)
	}
	put(l[fileID], 0, math.Float64bits(1.25))
	put(l[fileID], 8, 20)
	put(l[fileID], 2048, math.Float64bits(-2))
	put(l[fileID+1], 4096, 3)
	put(l[fileID+1], 8, ^uint64(0)) // -1
	put(l[fileID+2], 64, 4)
	a := NewApplicationsWriter(l[listID])
	a.Update(list())
	return l, w, a
}

// applicationsIn are the metrics of a sample as texts.
func applicationsIn(s *Sample) map[string]string {
	all := map[string]string{}
	for _, m := range s.Applications {
		value := fmt.Sprint(m.Count)
		if m.Kind == model.Gauge {
			value = fmt.Sprint(m.Level)
		}
		all[fmt.Sprint(s.Dictionary.Containers[m.Container].ID, " ", m.Name, "{", m.Labels, "}")] = value
	}
	return all
}

func expectApplications(t *testing.T, c *Collector, want map[string]string) *Sample {
	t.Helper()
	s, err := c.Collect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got := applicationsIn(s); s.ApplicationsError != nil || !s.HasApplications || !reflect.DeepEqual(got, want) {
		t.Errorf("%v (%v), want %v", got, s.ApplicationsError, want)
	}
	return s
}

func TestListIsReadAsWritten(t *testing.T) {
	l, _, w := hostOfApplications(t, ApplicationsBytes)
	got, err := ReadApplications(context.Background(), l, listID)
	if err != nil {
		t.Fatal(err)
	}
	want := list()
	want.Generation = got.Generation
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if w.Update(list()); binary.LittleEndian.Uint64(l[listID][generationOffset:]) != got.Generation {
		t.Error("what has not changed is written anew")
	}
}

// TestApplications: the sums of all processes of each container, read by where their values are; what a process had
// counted that ends is in the sum all the time.
func TestApplications(t *testing.T) {
	l, names2, w := hostOfApplications(t, ApplicationsBytes)
	c := NewCollector(l)
	const jobs, jobs1, load, seconds = "id0 app_jobs_total{}", "id1 app_jobs_total{}", `id0 app_load{path="/a \"b\""}`, "id0 app_seconds_total{}"
	want := map[string]string{seconds: "1750000000", jobs: "123", load: "-2.5", jobs1: "11"}
	s := expectApplications(t, c, want)
	first := s.Bytes
	if m := s.Applications[1]; m.Unit != "{job}" || m.Help != "Jobs" || s.ApplicationsRefused != 0 || s.ApplicationsLeftOut != 0 {
		t.Errorf("%+v, %d refused, %d left out", m, s.ApplicationsRefused, s.ApplicationsLeftOut)
	}
	put(l[fileID+2], 64, 5)
	want[jobs1] = "12"
	// The list is not read again, and of files what lies between values is for the most part not read.
	if s = expectApplications(t, c, want); s.Bytes > first-ControlBytes/64 || s.Bytes > 600 {
		t.Errorf("%d bytes were read, %d before", s.Bytes, first)
	}
	// The second process ends: its file is gone when the list is another.
	after := list()
	after.Files = slices.Delete(after.Files, 1, 2)
	after.Metrics[1].Count += 3
	w.Update(after)
	delete(l, fileID+1)
	want[load] = "-1.5"
	expectApplications(t, c, want)
	// Its container's name is another one: the places of containers have changed.
	other := names(2)
	slices.Reverse(other.Containers)
	if _, err := names2.Update(other, 1e8, 1e9); err != nil {
		t.Fatal(err)
	}
	expectApplications(t, c, want)
	// A container that has no name yet.
	if _, err := names2.Update(names(1), 1e8, 1e9); err != nil {
		t.Fatal(err)
	}
	delete(want, jobs1)
	expectApplications(t, c, want)
	// Not thorough.
	c.Thorough = 100 * 365 * 24 * time.Hour
	if s, err := c.Collect(context.Background()); err != nil || s.HasApplications || s.ApplicationsError != nil {
		t.Errorf("a reading that is not thorough has applications' metrics: %+v, %v", s, err)
	}
}

// TestListChangesDuringAReading: a process that ends while values are read counts once, by the list and its file of one
// moment.
func TestListChangesDuringAReading(t *testing.T) {
	l, _, w := hostOfApplications(t, ApplicationsBytes)
	r := &changing{local: l, after: fileID}
	c := NewCollector(r)
	r.change = func() {
		after := list()
		after.Files = slices.Delete(after.Files, 1, 2)
		after.Metrics[1].Count += 3
		w.Update(after)
	}
	s := expectApplications(t, c, map[string]string{"id0 app_seconds_total{}": "1750000000", "id0 app_jobs_total{}": "123",
		`id0 app_load{path="/a \"b\""}`: "-1.5", "id1 app_jobs_total{}": "11"})
	if r.change != nil || s.Reads == 0 {
		t.Error("nothing changed")
	}
}

// careful has to be told of files before it reads them, and must not read those that are gone.
type careful struct {
	local
	t *testing.T
}

func (r careful) MapFiles(context.Context, []ApplicationFile) error { return nil }

func (r careful) ReadAll(ctx context.Context, reads []Read) error {
	for i := range reads {
		if _, there := r.local[reads[i].Region]; !there {
			r.t.Errorf("region %d is read, which is gone", reads[i].Region)
		}
	}
	return r.local.ReadAll(ctx, reads)
}

func (r careful) Read(ctx context.Context, id uint32, offset uint64, into []byte) error {
	return r.ReadAll(ctx, []Read{{Region: id, Offset: offset, Into: into}})
}

// within is a reader that reads by another one.
type within struct{ Reader }

func (r within) Unwrap() Reader { return r.Reader }

// TestFilesThatAreGoneAreNotRead: a process that has ended between two readings is not looked for where it was.
func TestFilesThatAreGoneAreNotRead(t *testing.T) {
	for name, by := range map[string]func(Reader) Reader{"itself": func(r Reader) Reader { return r },
		"within another": func(r Reader) Reader { return within{r} }} {
		t.Run(name, func(t *testing.T) {
			l, _, w := hostOfApplications(t, ApplicationsBytes)
			c := NewCollector(by(careful{l, t}))
			want := map[string]string{"id0 app_seconds_total{}": "1750000000", "id0 app_jobs_total{}": "123",
				`id0 app_load{path="/a \"b\""}`: "-2.5", "id1 app_jobs_total{}": "11"}
			expectApplications(t, c, want)
			after := list()
			after.Files = slices.Delete(after.Files, 1, 2)
			after.Metrics[1].Count += 3
			w.Update(after)
			delete(l, fileID+1)
			want[`id0 app_load{path="/a \"b\""}`] = "-1.5"
			expectApplications(t, c, want)
		})
	}
	if l, _, _ := hostOfApplications(t, ApplicationsBytes); fileMapperOf(within{l}) != nil {
		t.Error("who wraps a reader that has to know of no files would be told of them")
	}
}

// TestSumsThatAreNoNumbers: what cannot be told as a number is left out, whether the host says it or it is the sum.
func TestSumsThatAreNoNumbers(t *testing.T) {
	l, _, w := hostOfApplications(t, ApplicationsBytes)
	c := NewCollector(l)
	const load = `id0 app_load{path="/a \"b\""}`
	want := map[string]string{"id0 app_seconds_total{}": "1750000000", "id0 app_jobs_total{}": "123", load: "-2.5",
		"id1 app_jobs_total{}": "11"}
	ended := list()
	for _, no := range []float64{math.NaN(), math.Inf(1)} {
		ended.Metrics[2].Level = no
		w.Update(ended)
		if s := expectApplications(t, c, map[string]string{"id0 app_seconds_total{}": "1750000000", "id0 app_jobs_total{}": "123",
			load: fmt.Sprint(-2.5 - list().Metrics[2].Level), "id1 app_jobs_total{}": "11"}); s.ApplicationsRefused != 0 {
			t.Errorf("%d are refused", s.ApplicationsRefused)
		}
	}
	ended.Metrics[2].Level = -math.MaxFloat64
	w.Update(ended)
	put(l[fileID], 2048, math.Float64bits(-math.MaxFloat64))
	delete(want, load)
	expectApplications(t, c, want)
}

// refusing reads no files.
type refusing struct {
	local
	err error
}

func (r refusing) Read(ctx context.Context, id uint32, offset uint64, into []byte) error {
	return r.ReadAll(ctx, []Read{{Region: id, Offset: offset, Into: into}})
}

func (r refusing) ReadAll(ctx context.Context, reads []Read) error {
	for i := range reads {
		if reads[i].Region >= FirstFileID {
			return r.err
		}
	}
	return r.local.ReadAll(ctx, reads)
}

// TestFilesThatCannotBeRead: the others are there, and the sample says why.
func TestFilesThatCannotBeRead(t *testing.T) {
	l, _, _ := hostOfApplications(t, ApplicationsBytes)
	for _, why := range []error{ErrGone, ErrRefused, context.DeadlineExceeded} {
		s, err := NewCollector(refusing{l, why}).Collect(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(s.ApplicationsError, why) || s.HasApplications || len(s.Containers) != 2 {
			t.Errorf("%v: %+v", why, s)
		}
	}
	// A file whose process has vanished, and of which the host says nothing.
	delete(l, fileID)
	if s, err := NewCollector(l).Collect(context.Background()); err != nil || !errors.Is(s.ApplicationsError, ErrGone) {
		t.Errorf("%v, %v", s, err)
	}
}

// TestListsThatLie: a reader takes nothing from a list that contradicts itself, and refuses single metrics that are none.
func TestListsThatLie(t *testing.T) {
	l, _, _ := hostOfApplications(t, ApplicationsBytes)
	whole := bytes.Clone(l[listID])
	file := func(i int) int { return applicationsHeaderBytes + i*fileEntryBytes }
	metric := func(i int) int { return file(3) + i*applicationEntryBytes }
	value := func(i int) int { return metric(4) + i*valueEntryBytes }
	f := func(what string, at int, n uint32, want error, refused int) {
		t.Helper()
		copy(l[listID], whole)
		binary.LittleEndian.PutUint32(l[listID][at:], n)
		s, err := NewCollector(l).Collect(context.Background())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !errors.Is(s.ApplicationsError, want) || s.HasApplications != (want == nil) || s.ApplicationsRefused != refused {
			t.Errorf("%s: %v, %d refused", what, s.ApplicationsError, s.ApplicationsRefused)
		}
	}
	f("another magic", 0, 1, ErrNotRegion, 0)
	f("a version of the future", 8, Version+1, ErrVersion, 0)
	for _, at := range []int{12, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64} {
		f(fmt.Sprintf("a length at %d", at), at, 0xfffffff8, ErrDamaged, 0)
	}
	f("more used than there is", 24, ApplicationsBytes, ErrDamaged, 0)
	f("a file that is the control region", file(0), ControlID, ErrDamaged, 0)
	f("a file that is there twice", file(1), fileID, ErrDamaged, 0)
	f("values past the end", file(0)+8, 5, ErrDamaged, 0)
	f("values of all files at each", file(0)+12, 6, ErrDamaged, 0)
	f("a value past the end of its file", value(0), 4096, ErrDamaged, 0)
	f("a value that is not aligned", value(0), 4, ErrDamaged, 0)
	f("a value of no metric", value(0)+4, 4, ErrDamaged, 0)
	f("a text past the end", metric(0)+12, 0xffffff00, ErrDamaged, 0)
	f("a long text", metric(0)+12, maxTextBytes+1, ErrDamaged, 0)
	f("a value of an unknown type", value(0)+8, 9, nil, 1)
	f("a metric of an unknown kind", metric(0)+48, 9, nil, 1)
	f("a gauge with a counter's name", metric(1)+48, applicationGauge, nil, 1)
	f("no name", metric(1)+12, 0, nil, 1)
	f("labels that are none", metric(2)+20, 3, nil, 1)
	f("a name of Outsight's", metric(1)+8, binary.LittleEndian.Uint32(whole[metric(1)+8:])+4, nil, 1)
	// Two of one name.
	twice := list()
	twice.Metrics = append(twice.Metrics, counterOf("id0", "app_jobs_total", 5))
	publish(l[listID], twice.encode(ApplicationsBytes))
	if s, err := NewCollector(l).Collect(context.Background()); err != nil || s.ApplicationsRefused != 1 || len(s.Applications) != 4 {
		t.Errorf("two of one name: %+v, %v", s, err)
	}
	// Texts that lie upon each other.
	many := list()
	for i := range 200 {
		m := counterOf("id0", fmt.Sprintf("app_m%d_total", i), 1)
		m.Help = strings.Repeat("x", 900)
		many.Metrics = append(many.Metrics, m)
	}
	b := many.encode(ApplicationsBytes)
	for i := range 204 {
		copy(b[metric(i)+8:metric(i)+40], b[metric(203)+8:metric(203)+40])
	}
	binary.LittleEndian.PutUint32(b[24:], uint32(metric(204)+8*valueEntryBytes+4096))
	if _, err := decodeApplications(b); !errors.Is(err, ErrDamaged) {
		t.Errorf("texts that lie upon each other: %v", err)
	}
	// A layout with more at the end of entries.
	if got, err := decodeApplications(longerEntries(list())); err != nil || !reflect.DeepEqual(got.Files, list().Files) {
		t.Errorf("longer entries: %+v, %v", got, err)
	}
}

// longerEntries is a list whose entries of files have 8 more bytes.
func longerEntries(a *Applications) []byte {
	le := binary.LittleEndian
	body := a.encode(ApplicationsBytes)
	b := bytes.Clone(body[:applicationsHeaderBytes])
	for i := range a.Files {
		at := applicationsHeaderBytes + i*fileEntryBytes
		b = append(append(b, body[at:at+fileEntryBytes]...), "unknown!"...)
	}
	more := uint32(8 * len(a.Files))
	b = append(b, body[applicationsHeaderBytes+len(a.Files)*fileEntryBytes:]...)
	le.PutUint32(b[40:], uint32(fileEntryBytes+8))
	le.PutUint32(b[48:], le.Uint32(b[48:])+more)
	le.PutUint32(b[60:], le.Uint32(b[60:])+more)
	le.PutUint32(b[24:], uint32(len(b)))
	for i := range a.Metrics {
		at := int(le.Uint32(b[60:])) + i*applicationEntryBytes
		for text := range 5 {
			le.PutUint32(b[at+8*text:], le.Uint32(b[at+8*text:])+more)
		}
	}
	return b
}

// TestListIsBounded: of a container all metrics are there or none, those that need little come first, and what is left
// out is told.
func TestListIsBounded(t *testing.T) {
	l, _, w := hostOfApplications(t, 8192)
	a := list()
	for i := range 100 {
		a.Metrics = append(a.Metrics, counterOf("greedy", fmt.Sprintf("app_m%d_total", i), 1))
	}
	a.Files = append(a.Files, ApplicationFile{ID: fileID + 3, Bytes: 8, Values: []ApplicationValue{{0, u64, 50}}})
	fitting := w.Fit(a)
	if fitting.LeftOut != 100 {
		t.Errorf("%d are left out, want those of one container", fitting.LeftOut)
	}
	w.Update(fitting)
	s, err := NewCollector(l).Collect(context.Background())
	if err != nil || len(s.Applications) != 4 || s.ApplicationsLeftOut != 100 {
		t.Fatalf("%+v, %v", s, err)
	}
	got, err := ReadApplications(context.Background(), l, listID)
	if err != nil || len(got.Files) != 3 || len(got.Metrics) != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	// What there is room for, to the last byte.
	for size := 1024; size < 3000; size += 8 {
		m := memory(size)
		w := NewApplicationsWriter(m)
		w.Update(w.Fit(a))
		if _, err := ReadApplications(context.Background(), local{listID: m}, listID); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
	}
}

// TestTooManyApplications: a host that lists more than an agent does is read up to the bound.
func TestTooManyApplications(t *testing.T) {
	l, _, w := hostOfApplications(t, ApplicationsBytes)
	a := &Applications{}
	for i := range maxContainerApplications + 10 {
		a.Metrics = append(a.Metrics, counterOf("id0", fmt.Sprintf("app_m%d_total", i), 1))
	}
	w.Update(a)
	s, err := NewCollector(l).Collect(context.Background())
	if err != nil || len(s.Applications) != maxContainerApplications || s.ApplicationsRefused != 10 {
		t.Errorf("%d are taken, %d refused: %v", len(s.Applications), s.ApplicationsRefused, err)
	}
}

// FuzzApplications: whatever the list says, a reading ends with figures or an error, and what is taken is what may be.
func FuzzApplications(f *testing.F) {
	l, _, _ := hostOfApplications(f, 8192)
	f.Add(uint16(0), uint32(0), uint16(0), uint32(0))
	f.Add(uint16(72), uint32(FirstFileID), uint16(80), uint32(1<<20))
	f.Add(uint16(36), uint32(8), uint16(200), uint32(1<<31))
	f.Fuzz(func(t *testing.T, at uint16, n uint32, other uint16, m uint32) {
		broken := local{}
		for id, memory := range l {
			broken[id] = memory
		}
		broken[listID] = memory(8192)
		copy(broken[listID], l[listID])
		binary.LittleEndian.PutUint32(broken[listID][int(at)%1024:], n)
		binary.LittleEndian.PutUint32(broken[listID][int(other)%1024:], m)
		s, err := NewCollector(broken).Collect(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Applications {
			a := &s.Applications[i]
			if !appmetrics.IsKey(&a.ApplicationKey) || a.Container < 0 || a.Container >= len(s.Dictionary.Containers) {
				t.Errorf("%+v", a)
			}
		}
	})
}
