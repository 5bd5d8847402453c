package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"outsight/internal/model"
)

// mergedResults are what is read of moments of which files have some, and whether all is known.
func mergedResults(t *testing.T, s *Store, m Moments) ([]model.NamedResult, bool) {
	t.Helper()
	return resultsOf(t, m, s.tracker.keeper.merged)
}

// filedMoments are those with files.
func filedMoments(s *Store) (all []time.Time) {
	files := s.tracker.keeper.files
	files.mu.Lock()
	defer files.mu.Unlock()
	for _, f := range files.known {
		all = append(all, time.UnixMilli(f.at))
	}
	return all
}

// momentNames are the files of a store, with a store's directory.
func momentNames(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "moments", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Whatever comes, late or in parts or after a restart, what is read of files is what PromQL says.
func TestMomentsAreLastOverTime(t *testing.T) {
	dir := t.TempDir()
	options := Options{KeepFrom: 1}
	s := open(t, dir, options)
	rnd := rand.New(rand.NewPCG(7, 8))
	const seconds = 2 * 3600
	spent := durations(7, seconds)
	h, wide := &model.Histogram{}, &model.Histogram{}
	names := []string{"bytes", "latency", "requests", "level", "wide", "none", "parts"}
	hosts := map[string]float64{"a": 0, "b": 0.3, "c": -70, "d": 45} // two clocks are off
	compared, found, mixed, rewritten := 0, 0, 0, 0
	var seen []time.Time
	gone := map[int64]bool{}
	catchUp := 0.0
	for i := 0; i < seconds; i += 2 {
		s.tracker.now = func() time.Time { return at(float64(i)) }
		observe(h, spent[i])
		if i%50 == 0 {
			observe(wide, spent[i]*time.Duration(1+rnd.IntN(1e6)))
		}
		batchAt := func(host string, second float64) (batch []model.Series) {
			name := func(id string, more ...string) []string { return append([]string{"host", host, "id", id}, more...) }
			batch = []model.Series{counterAt(second, float64(i*i), "requests", name("always")...),
				histogramAt(second, h, "latency", name("always")...),
				counterAt(second, 0, "bytes", name("always")...),
				histogramAt(second, wide, "wide", name("always", "tenant", "shop")...),
				counterAt(second, -rnd.Float64(), "level", name("always", "type", "y")...)}
			if rnd.IntN(20) > 0 {
				batch = append(batch, counterAt(second, float64(i), "requests", name("often")...))
			}
			if i/100%3 != 1 {
				batch = append(batch, histogramAt(second, h, "latency", name("by turns", "type", "x")...),
					counterAt(second, rnd.Float64(), "level", name("by turns", "type", "y")...))
			}
			if i%400 < 6 {
				begun := counterAt(second, 7, "bytes", name(fmt.Sprint("new", i/400%3), "tenant", "shop")...)
				begun.Start = at(second - 0.7)
				whole := histogramAt(second, h, "latency", name(fmt.Sprint("new", i/400%3))...)
				whole.Start = at(second - 0.4)
				batch = append(batch, begun, whole, counterAt(second, 1, "unasked", name("new")...))
			}
			rnd.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
			return batch
		}
		store := func(batch []model.Series) {
			if err := s.Append(t.Context(), batch); err != nil && !errors.Is(err, ErrRejected) {
				t.Fatal(err)
			}
		}
		for _, host := range slices.Sorted(maps.Keys(hosts)) {
			second := float64(i) + hosts[host]
			switch silent := i/300%8 == 3; {
			case host == "b" && silent:
				catchUp = cmpOr(catchUp, second)
				continue // it is cut off for a while, and sends later what it had then
			case host == "b" && catchUp != 0:
				for ; catchUp < second; catchUp += 2 {
					store(batchAt(host, catchUp))
				}
				catchUp = 0
			}
			store(batchAt(host, second))
		}
		if rnd.IntN(150) == 0 { // late
			store(batchAt("a", float64(i)-500*rnd.Float64())[:1+rnd.IntN(3)])
		}
		if rnd.IntN(100) == 0 {
			part := counterAt(float64(i)-300*rnd.Float64(), 5, []string{"parts", "requests", "unasked"}[rnd.IntN(3)],
				"id", "of somebody")
			if err := s.AppendPart(t.Context(), []model.Series{part}); err != nil && !errors.Is(err, ErrRejected) {
				t.Fatal(err)
			}
		}
		if i%2200 == 2198 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir, options)
		}
		filed := filedMoments(s)
		for _, t := range seen {
			if !slices.ContainsFunc(filed, t.Equal) {
				gone[t.UnixMilli()] = true
			}
		}
		if i%6 == 0 {
			s.writeDueMoments(false)
		}
		filed = filedMoments(s)
		for _, t := range filed {
			if gone[t.UnixMilli()] {
				rewritten++
				gone[t.UnixMilli()] = false
			}
		}
		seen = filed
		if rnd.IntN(10) > 0 || len(filed) == 0 {
			continue
		}
		m := Moments{Names: names, Recent: KeptRecent}
		for range 1 + rnd.IntN(3) {
			// Mostly of the last ones, which may still change.
			m.Times = append(m.Times, filed[len(filed)-1-rnd.IntN(min(len(filed), []int{3, 100}[rnd.IntN(2)]))])
		}
		if recent, ok := s.Kept(at(float64(i)), 10*time.Second); ok && rnd.IntN(2) == 0 {
			m.Times = append(m.Times, recent)
			mixed++
		}
		slices.SortFunc(m.Times, time.Time.Compare)
		m.Times = slices.CompactFunc(m.Times, time.Time.Equal)
		if rnd.IntN(4) == 0 {
			m.Tenant = "shop"
		}
		got, ok := mergedResults(t, s, m)
		if !ok {
			continue
		}
		instant := s.Instant
		if m.Tenant != "" {
			instant = ForTenant(s, m.Tenant).Instant
		}
		expected := bySeries(asked(t, m, instant))
		if !reflect.DeepEqual(bySeries(got), expected) {
			differ(t, bySeries(got), expected)
			t.Fatalf("at %d (%v): %v", i, at(float64(i)), m.Times)
		}
		compared, found = compared+1, found+len(expected)
	}
	t.Logf("%d times compared, of which %d with memory, %d series; %d files, %d written again", compared, mixed, found,
		len(momentNames(t, dir)), rewritten)
	if n := len(momentNames(t, dir)); compared < 150 || mixed < 50 || found < 10*compared || n < 50 || n > 121 ||
		rewritten < 3 {
		t.Error("that is not what was to be")
	}
}

func cmpOr(a, b float64) float64 {
	if a != 0 {
		return a
	}
	return b
}

// fillMoments stores so many minutes, of which nearly all then have files.
func fillMoments(t *testing.T, s *Store, minutes int) {
	t.Helper()
	h := &model.Histogram{}
	for i := range 30 * minutes {
		observe(h, time.Duration(1+i)*time.Millisecond)
		appendAll(t, s, counterAt(float64(2*i), float64(i), "requests", "id", "x"),
			histogramAt(float64(2*i), h, "latency", "id", "y"), counterAt(float64(2*i), 0, "zero"))
		s.writeDueMoments(false)
	}
	if n := len(filedMoments(s)); n < minutes-2 {
		t.Fatalf("%d moments have files after %d minutes", n, minutes)
	}
}

func TestMomentsAreNear(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	fillMoments(t, s, 180)
	for _, c := range []struct {
		second, most float64
		kept         bool
	}{{30, 60, false}, {61, 60, true}, {100, 60, true}, {125, 10, false}, {6000, 60, true}, {7100, 60, true}} {
		got, ok := s.Kept(at(c.second), time.Duration(c.most*float64(time.Second)))
		if past := at(c.second).Sub(got).Seconds(); ok != c.kept || ok && (past < 0 || past > c.most || got.Unix()%60 != 0) {
			t.Errorf("%v s, at most %v before: %v before, %v", c.second, c.most, past, ok)
		}
	}
	m := Moments{Names: []string{"requests", "latency", "zero"}, Times: []time.Time{at(600), at(1200), at(10790)},
		Recent: KeptRecent}
	for i := range m.Times {
		m.Times[i], _ = s.Kept(m.Times[i], time.Minute)
	}
	read := s.Stats().Queries
	for _, sparse := range [][]string{nil, {"zero", "requests"}} {
		m.Sparse = sparse
		got, ok := mergedResults(t, s, m)
		expected := bySeries(asked(t, m, s.Instant))
		if len(sparse) > 0 {
			delete(expected, "zero,,host=h")
		}
		if !ok || len(expected) != 3-len(sparse)/2 || !reflect.DeepEqual(bySeries(got), expected) {
			t.Errorf("%v: got %v, want %v", ok, bySeries(got), expected)
		}
	}
	if read == s.Stats().Queries {
		t.Error("BUG: the test asks nothing")
	}
	m.Recent *= 2
	if _, ok := mergedResults(t, s, m); ok {
		t.Error("values of another age are read out of files")
	}
}

// A file that is damaged is no answer, and is removed; the answer comes out of chunks.
func TestMomentsThatAreDamaged(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	s := open(t, dir, Options{KeepFrom: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	fillMoments(t, s, 40)
	files := filedMoments(s)[2:]
	for name, damage := range map[string]func([]byte) []byte{
		"nothing":    func([]byte) []byte { return nil },
		"a part":     func(b []byte) []byte { return b[:len(b)/2] },
		"the end":    func(b []byte) []byte { return b[len(b)/2:] },
		"a bit":      func(b []byte) []byte { b[len(momentMagic)+9] ^= 4; return b },
		"the index":  func(b []byte) []byte { b[len(b)-len(momentMagic)-10] ^= 4; return b },
		"another":    func(b []byte) []byte { return append([]byte("outsight moment 9\n"), b[len(momentMagic):]...) },
		"its length": func(b []byte) []byte { b[len(b)-len(momentMagic)-8] = 255; return b },
		"not there":  nil,
	} {
		log.Reset()
		moment := files[0]
		files = files[1:]
		path := s.tracker.keeper.files.path(moment.UnixMilli())
		if damage == nil {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		} else {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(b), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		m := Moments{Names: []string{"requests", "latency"}, Times: []time.Time{moment}, Recent: KeptRecent}
		if _, ok := mergedResults(t, s, m); ok {
			t.Errorf("%s: it is read", name)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it is still there: %v", name, err)
		}
		if got, err := lastResults(t, s, m); err != nil || len(got) != 2 ||
			!reflect.DeepEqual(bySeries(got), bySeries(asked(t, m, s.Instant))) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if n := strings.Count(log.String(), "reading the file of a moment failed"); n != 1 {
			t.Errorf("%s: it is told %d times: %s", name, n, log.String())
		}
	}
	for _, more := range []string{"17.moment", "x.moment", "120.moment.new"} {
		if err := os.WriteFile(filepath.Join(dir, "moments", more), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	n := len(filedMoments(s))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{KeepFrom: 1})
	if again := len(filedMoments(s)); again < n || again > n+2 {
		t.Errorf("%d moments have files, %d before", again, n)
	}
	if left := momentNames(t, dir); slices.ContainsFunc(left,
		func(path string) bool { return strings.HasSuffix(path, ".new") }) {
		t.Errorf("what a crash left is there: %v", left)
	}
}

// Files go with the samples that they are of, and with the room for them.
func TestMomentsAreBounded(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	fillMoments(t, s, 40)
	files := s.tracker.keeper.files
	all := filedMoments(s)
	if got := s.Stats(); got.MomentFiles != len(all) || got.MomentBytes < int64(100*len(all)) ||
		got.Bytes < got.MomentBytes {
		t.Errorf("%d files: %+v", len(all), got)
	}
	files.prune(all[3].UnixMilli())
	if left := filedMoments(s); !slices.Equal(left, all[4:]) {
		t.Errorf("%v are left of %v", left, all)
	}
	files.maxBytes = s.Stats().MomentBytes / 2
	files.prune(noSample)
	if left := filedMoments(s); s.Stats().MomentBytes > files.maxBytes || len(left) < 10 ||
		!slices.Equal(left, all[len(all)-len(left):]) {
		t.Errorf("%v are left of %v: %d bytes, at most %d", left, all, s.Stats().MomentBytes, files.maxBytes)
	}
	if n := len(momentNames(t, s.db.Dir())); n != len(filedMoments(s)) {
		t.Errorf("%d files are there of %d", n, len(filedMoments(s)))
	}
	small := open(t, t.TempDir(), Options{MaxSeries: 10, KeepFrom: 11, MaxBytes: 1 << 20})
	if got := small.options.momentBytes(); got != 0 {
		t.Errorf("%d bytes are for moments that are never kept", got)
	}
}

// A directory that can't be written is told of once, and nothing else fails.
func TestMomentsThatCannotBeWritten(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	s := open(t, dir, Options{KeepFrom: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	blocked := filepath.Join(dir, "moments")
	if err := os.WriteFile(blocked, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		appendAll(t, s, counterAt(float64(2*i), float64(i), "requests"))
		s.writeDueMoments(false)
	}
	if n := strings.Count(log.String(), "writing the file of a moment failed"); n != 1 || len(filedMoments(s)) > 0 {
		t.Errorf("it is told %d times: %s", n, log.String())
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		appendAll(t, s, counterAt(float64(300+2*i), float64(i), "requests"))
		s.writeDueMoments(false)
	}
	if n := len(filedMoments(s)); n < 3 {
		t.Errorf("%d moments have files when it can be written", n)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "moments"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	open(t, other, Options{}) // has samples all the same
	s.options.MinFree = math.MaxInt64
	for i := range 3 {
		s.tracker.keeper.newest.Add(int64(i) * momentStep)
		s.writeDueMoments(false)
	}
	if n := len(filedMoments(s)); n > 6 {
		t.Errorf("%d moments have files where there is no room", n)
	}
}

// A store writes files by itself, and when it is closed.
func TestMomentsAreWritten(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{KeepFrom: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		appendAll(t, s, counterAt(float64(2*i), float64(i), "requests"))
	}
	for end := time.Now().Add(time.Minute); s.Stats().MomentFiles < 2; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no file was written")
		}
	}
	for i := range 61 {
		appendAll(t, s, counterAt(float64(200+i), float64(i), "requests"))
	}
	newest := s.tracker.keeper.newest.Load()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{KeepFrom: 1})
	last := time.UnixMilli(newest - newest%momentStep)
	got, ok := s.Kept(last, 0)
	if !ok {
		t.Fatalf("%v has no file", last)
	}
	m := Moments{Names: []string{"requests"}, Times: []time.Time{got}, Recent: KeptRecent}
	if results, ok := mergedResults(t, s, m); !ok || len(results) != 1 || !reflect.DeepEqual(bySeries(results),
		bySeries(asked(t, m, s.Instant))) {
		t.Errorf("%v, %v", results, ok)
	}
}

// A late sample that comes while its moment's file is written spoils it.
func TestMomentsThatAreSpoiled(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	for i := range 100 {
		appendAll(t, s, counterAt(float64(2*i), float64(i), "requests"))
	}
	k := s.tracker.keeper
	moment, sources, ok := k.due(s.tracker.now(), false)
	if !ok {
		t.Fatal("nothing is due")
	}
	k.files.begin(moment)
	late := counterAt(time.UnixMilli(moment).Sub(at(0)).Seconds()-3, 1, "requests", "id", "late")
	appendAll(t, s, late)
	if written, err := k.files.write(moment, nil, sources, s.Sync); written || err != nil || len(filedMoments(s)) > 0 {
		t.Errorf("it was written: %v, %v", written, err)
	}
	if names := momentNames(t, s.db.Dir()); len(names) > 0 {
		t.Errorf("%v are left", names)
	}
}

// What came in parts is in no file.
func TestMomentsOfParts(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	for i := range 100 {
		appendAll(t, s, counterAt(float64(2*i), float64(i), "requests"))
		if err := s.AppendPart(t.Context(), []model.Series{counterAt(float64(2*i), 1, "parts")}); err != nil {
			t.Fatal(err)
		}
	}
	s.writeDueMoments(false)
	m := Moments{Names: []string{"requests"}, Times: filedMoments(s), Recent: KeptRecent}
	if got, ok := mergedResults(t, s, m); !ok || len(got) != 1 || len(got[0].Points) < 2 {
		t.Errorf("%v, %v", got, ok)
	}
	m.Names = append(m.Names, "parts")
	if got, ok := mergedResults(t, s, m); ok {
		t.Errorf("what came in parts is taken for what files have: %v", got)
	}
	if got, err := lastResults(t, s, m); err != nil || len(bySeries(got)) != 2 ||
		!reflect.DeepEqual(bySeries(got), bySeries(asked(t, m, s.Instant))) {
		t.Errorf("%v, %v", got, err)
	}
}

// A host that comes again after a silence tells of a series that began in it: that was zero at a moment that has a
// file.
func TestMomentsOfAZero(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	second := 0.0
	s.tracker.now = func() time.Time { return at(second) }
	for ; second < 400; second += 2 {
		appendAll(t, s, counterAt(second, second, "requests"))
		if second < 100 {
			appendAll(t, s, counterAt(second, second, "requests", "host", "silent"))
		}
		s.writeDueMoments(false)
	}
	m := Moments{Names: []string{"requests", "bytes"}, Times: []time.Time{newestKept(t, s, 230).Truncate(time.Minute)},
		Recent: KeptRecent}
	if got, ok := mergedResults(t, s, m); !ok || len(got) != 1 || !s.tracker.keeper.files.has(m.Times[0].UnixMilli()) {
		t.Fatalf("%v, %v", got, ok)
	}
	begun := counterAt(second, 5, "bytes", "host", "silent")
	begun.Start = m.Times[0].Add(-3 * time.Second)
	appendAll(t, s, counterAt(second, second, "requests", "host", "silent"), begun)
	if s.tracker.keeper.files.has(m.Times[0].UnixMilli()) {
		t.Error("the file without the zero is still there")
	}
	for range 2 {
		if got, err := lastResults(t, s, m); err != nil || len(got) != 2 ||
			!reflect.DeepEqual(bySeries(got), bySeries(asked(t, m, s.Instant))) {
			t.Errorf("%v, %v", got, err)
		}
		s.writeDueMoments(false)
	}
}

// What was read is not told where a late sample has come meanwhile.
func TestMomentsThatChangeMeanwhile(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1, OutOfOrder: time.Hour})
	fillMoments(t, s, 30)
	k, filed := s.tracker.keeper, filedMoments(s)[3]
	m := Moments{Names: []string{"requests"}, Times: []time.Time{filed, newestKept(t, s, 1790)}, Recent: KeptRecent}
	moments := []keptMoment{{at: m.Times[0].UnixMilli()}, {at: m.Times[1].UnixMilli()}}
	for i := range moments {
		if !k.open(&moments[i], &m) || (moments[i].file != nil) != (i == 0) {
			t.Fatalf("%+v", moments[i])
		}
	}
	defer moments[0].file.Close()
	if !k.hold(moments, &m) {
		t.Error("nothing has changed")
	}
	late := counterAt(filed.Sub(at(0)).Seconds()-9, 1, "requests", "id", "late")
	appendAll(t, s, late)
	if k.hold(moments[:1], &m) {
		t.Error("the file is gone")
	}
	m.Times = filedMoments(s)[5:6]
	values, ok, err := k.merged(&m, func(int) readBudget { // when files are open, and nothing is read yet
		appendAll(t, s, counterAt(m.Times[0].Sub(at(0)).Seconds()-9, 1, "requests", "id", "late"))
		return readBudget{ctx: t.Context(), left: math.MaxInt}
	})
	if ok || err != nil {
		t.Errorf("%v: what a late sample has changed is told: %v", err, values)
	}
	k.doubt(moments[1].at)
	if k.hold(moments[1:], &m) {
		t.Error("memory is not known any more")
	}
}

// Where moments that are kept in memory have more files than there is room for, those that go are not written again.
func TestMomentsWithoutRoom(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{KeepFrom: 1})
	for i := range 300 {
		appendAll(t, s, counterAt(float64(2*i), float64(i), "requests"))
	}
	files := s.tracker.keeper.files
	files.maxBytes = 300
	s.writeDueMoments(false) // comes to an end
	n := len(filedMoments(s))
	if n == 0 || n > 4 || s.Stats().MomentBytes > 300 {
		t.Errorf("%d files: %+v", n, s.Stats())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// One that keeps no moments has no room for files, nor for samples of long ago.
	open(t, dir, Options{MaxSeries: 10, KeepFrom: 11})
	if n := len(momentNames(t, dir)); n > 0 {
		t.Errorf("%d files are there", n)
	}
}

// After an hour of disks that fail, a source goes on as itself.
func TestMomentsAfterFailures(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1, OutOfOrder: 24 * time.Hour})
	second, hosts := 0.0, []string{"a", "b"}
	s.tracker.now = func() time.Time { return at(second) }
	add := func() {
		for _, host := range hosts {
			appendAll(t, s, counterAt(second, second, "requests", "host", host))
		}
		second += 2
	}
	check := func(what string) {
		t.Helper()
		for range 120 {
			add()
		}
		s.writeDueMoments(false)
		filed := filedMoments(s)
		m := Moments{Names: []string{"requests"}, Times: []time.Time{filed[len(filed)-1], newestKept(t, s, second)},
			Recent: KeptRecent}
		if got, ok := mergedResults(t, s, m); !ok || len(got) != 2 ||
			!reflect.DeepEqual(bySeries(got), bySeries(asked(t, m, s.Instant))) {
			t.Errorf("%s: %v, %v", what, got, ok)
		}
	}
	check("at first")
	for range 60 {
		second += 60
		for _, host := range hosts {
			failing := &failingAppender{AppenderV2: s.db.AppenderV2(t.Context())}
			if err := s.tracker.append(failing, []model.Series{counterAt(second, 1, "requests", "host", host)},
				false); err == nil {
				t.Fatal("nothing failed")
			}
			if err := failing.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("after failures")
	// Nor does one that has been forgotten go on as what it was.
	second += 3600
	s.tracker.keeper.looked = 0
	for _, src := range s.tracker.sources {
		src.lastAppend = at(second) // its series have not ended
	}
	hosts = []string{"a"}
	add()
	hosts = []string{"a", "b"}
	check("after a silence")
}

// A file has the sources of when it was begun.
func TestMomentsOfAForgottenSource(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1, OutOfOrder: 24 * time.Hour})
	second := 0.0
	s.tracker.now = func() time.Time { return at(second) }
	for ; second < 200; second += 2 {
		appendAll(t, s, counterAt(second, second, "requests", "host", "a"), counterAt(second, second, "requests",
			"host", "b"))
	}
	k := s.tracker.keeper
	second += 2 * 3600
	moment, sources, ok := k.due(s.tracker.now(), true)
	if !ok {
		t.Fatal("nothing is due")
	}
	k.files.begin(moment)
	k.looked = 0
	appendAll(t, s, counterAt(230, 1, "requests", "host", "a"))
	if n := len(k.of("")); n != 1 {
		t.Fatalf("%d sources are known", n)
	}
	if written, err := k.files.write(moment, nil, sources, s.Sync); !written || err != nil {
		t.Fatalf("%v, %v", written, err)
	}
	m := Moments{Names: []string{"requests"}, Times: []time.Time{time.UnixMilli(moment)}, Recent: KeptRecent}
	if got, ok := mergedResults(t, s, m); !ok || len(got) != 2 ||
		!reflect.DeepEqual(bySeries(got), bySeries(asked(t, m, s.Instant))) {
		t.Errorf("%v, %v", got, ok)
	}
}

// The store takes no zero where it has the mark of an end, and none of long ago: those that are not stored are not kept
// either.
func TestMomentsOfARefusedZero(t *testing.T) {
	for _, behind := range []float64{0, 871, 931, 1001} {
		gap := math.Min(behind, 1) // from a batch to the moment
		s := open(t, t.TempDir(), Options{KeepFrom: 1, OutOfOrder: 24 * time.Hour})
		moment := 0.0
		for second := behind + gap; moment == 0 || second < moment+behind+8; second += 2 {
			if behind > 0 {
				appendAll(t, s, counterAt(second, second, "requests", "host", "ahead"))
			}
			old := second - behind
			batch, x := []model.Series{counterAt(old, old, "requests")}, counterAt(old, 5+old, "bytes", "id", "x")
			switch {
			case moment == 0 && old > 1200 && at(old+gap).Unix()%60 == 0: // it ends here
				moment = old + gap
			case old == moment+2-gap: // and begins again
				x.Start = at(moment - gap/2)
				batch = append(batch, x)
			case behind == 0 || moment != 0:
				batch = append(batch, x)
			}
			appendAll(t, s, batch...)
		}
		m := Moments{Names: []string{"requests", "bytes"}, Times: []time.Time{at(moment)}, Recent: KeptRecent}
		expected := bySeries(asked(t, m, s.Instant))
		if got, ok := keptResults(t, s, m); ok && !reflect.DeepEqual(bySeries(got), expected) {
			t.Errorf("%v behind: got %v out of memory, want %v", behind, bySeries(got), expected)
		}
		s.writeDueMoments(true)
		if got, ok := mergedResults(t, s, m); ok && !reflect.DeepEqual(bySeries(got), expected) {
			t.Errorf("%v behind: got %v out of a file, want %v", behind, bySeries(got), expected)
		}
		if got, err := lastResults(t, s, m); err != nil || !reflect.DeepEqual(bySeries(got), expected) {
			t.Errorf("%v behind: got %v, want %v", behind, bySeries(got), expected)
		}
	}
}

// Nothing stays open where the disk is full.
func TestMomentsOnAFullDisk(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := open()
	for range 50 {
		if _, err := writeMoment("/dev/full", 0, nil, nil); err == nil {
			t.Fatal("it was written")
		}
	}
	if after := open(); after > before+20 {
		t.Errorf("%d files are open, %d before", after, before)
	}
}

// Whoever appends, writes and reads at the same time, no answer is of half a moment.
func TestMomentsAreReadWhileTheyChange(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	fillMoments(t, s, 10)
	first := filedMoments(s)[1]
	m := Moments{Names: []string{"requests", "latency"}, Times: []time.Time{first}, Recent: KeptRecent}
	before := len(asked(t, m, s.Instant))
	done := make(chan struct{})
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			for most := before; ; {
				select {
				case <-done:
					return
				default:
				}
				values, err := s.Last(context.Background(), m)
				if err != nil {
					t.Error(err)
					return
				}
				n := len(slices.Concat(values.Blocks...))
				values.Release()
				if n < most {
					t.Errorf("%d series, after %d", n, most)
					return
				}
				most = n
			}
		})
	}
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				s.writeDueMoments(false)
			}
		}
	})
	// Hosts that nobody knew tell of the moment, and are silent then for as long as a file waits for them.
	const hosts = 20
	for i := range hosts {
		appendAll(t, s, counterAt(first.Sub(at(0)).Seconds()-1, 1, "requests", "host", fmt.Sprint("late", i)))
		s.mu.Lock()
		now := s.tracker.now().Add(sourceSilent * time.Millisecond)
		s.tracker.now = func() time.Time { return now }
		s.mu.Unlock()
		for end := time.Now().Add(time.Minute); !s.tracker.keeper.files.has(first.UnixMilli()); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("after %d hosts there is no file again", i+1)
			}
		}
	}
	close(done)
	others.Wait()
	if got, ok := mergedResults(t, s, m); !ok || len(got) != before+hosts {
		t.Errorf("%d series, want %d: %v", len(got), before+hosts, ok)
	}
	if n := s.Stats().MomentsLate; n != hosts {
		t.Errorf("%d files were removed because of late samples, want %d", n, hosts)
	}
}

// FuzzMoment reads what is no file, or one that somebody has changed.
func FuzzMoment(f *testing.F) {
	s, err := Open(f.TempDir(), Options{KeepFrom: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	h := &model.Histogram{}
	for i := range 100 {
		observe(h, time.Duration(1+i)*time.Millisecond)
		appendAll(f, s, counterAt(float64(2*i), 0.5, "requests"), histogramAt(float64(2*i), h, "latency", "type", "x"),
			counterAt(float64(2*i), float64(i), "requests", "id", "y"))
	}
	k := s.tracker.keeper
	var e momentEncoder
	if !e.encode(k.of("")[0], k.newest.Load()-k.newest.Load()%2000) {
		f.Fatal("it is not kept")
	}
	f.Add(e.assemble(nil), []byte{})
	index := momentIndex{parts: []string{"a"}, blocks: []momentBlock{{tenant: "t", key: "t\x00h", offset: 18, length: 7,
		size: 9, checksum: 3}}}
	f.Add([]byte{}, index.encode(nil))
	f.Fuzz(func(t *testing.T, block, index []byte) {
		if x, err := decodeIndex(index, 1000); err == nil {
			if again, err := decodeIndex(x.encode(nil), 1000); err != nil || !reflect.DeepEqual(again, x) {
				t.Errorf("%+v is %+v, %v", x, again, err)
			}
		}
		r, m := keptReader{}, Moments{Names: []string{"requests", "latency"}, Times: []time.Time{at(0), at(60)}}
		r.begin(k, &m, readBudget{ctx: t.Context(), left: 1 << 20})
		if err := r.merger.begin(2); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if p := recover(); p != nil && p != errBadMoment {
				panic(p)
			}
		}()
		if r.mergeBlock(block, 0, 2) == nil && r.mergeBlock(block, 1, 2) == nil {
			for _, got := range r.merged(nil, 2) {
				if len(got.Points) != 2 {
					t.Errorf("%+v", got)
				}
			}
		}
	})
}
