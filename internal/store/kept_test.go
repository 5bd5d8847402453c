package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/storage"

	"outsight/internal/model"
)

// keptResults are what is kept of the moments, and whether all is.
func keptResults(t *testing.T, s *Store, m Moments) ([]model.NamedResult, bool) {
	t.Helper()
	return resultsOf(t, m, s.tracker.keeper.last)
}

func resultsOf(t *testing.T, m Moments, last func(*Moments, func(int) readBudget) (*Values, bool,
	error)) ([]model.NamedResult, bool) {
	t.Helper()
	values, ok, err := last(&m, func(int) readBudget { return readBudget{ctx: t.Context(), left: math.MaxInt} })
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return nil, false
	}
	return slices.Concat(values.Blocks...), true
}

// newestKept is the kept moment before so many seconds, which must be less than a step of a minute before.
func newestKept(t *testing.T, s *Store, seconds float64) time.Time {
	t.Helper()
	moment, ok := s.Kept(at(seconds), time.Minute)
	if !ok {
		t.Fatalf("nothing is kept of %v", at(seconds))
	}
	return moment
}

func TestKeptIsLastOverTime(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	rnd := rand.New(rand.NewPCG(5, 6))
	const seconds = 5400
	spent := durations(7, seconds)
	h, wide := &model.Histogram{}, &model.Histogram{}
	names := []string{"bytes", "latency", "requests", "level", "wide", "none"}
	compared, found := 0, 0
	hosts := map[string]float64{"a": 0, "b": 0.3, "c": -40}
	for i := range seconds {
		observe(h, spent[i])
		if i%50 == 0 {
			observe(wide, spent[i]*time.Duration(1+rnd.IntN(1e6)))
		}
		for host, behind := range hosts { // of which one is behind, as after an outage
			second := float64(i) + behind
			if host == "b" && i/300%5 == 3 {
				continue // it is silent for a while
			}
			name := func(id string, more ...string) []string { return append([]string{"host", host, "id", id}, more...) }
			batch := []model.Series{counterAt(second, float64(i*i), "requests", name("always")...),
				histogramAt(second, h, "latency", name("always")...),
				counterAt(second, 0, "bytes", name("always")...),
				histogramAt(second, wide, "wide", name("always", "tenant", "shop")...)}
			if rnd.IntN(20) > 0 { // else it ends, for a while
				batch = append(batch, counterAt(second, float64(i), "requests", name("often")...),
					counterAt(second, float64(i), "bytes", name("often")...))
			}
			if i/100%3 != 1 {
				batch = append(batch, histogramAt(second, h, "latency", name("by turns", "type", "x")...),
					counterAt(second, rnd.Float64(), "level", name("by turns", "type", "y")...))
			}
			if i%400 < 5 {
				begun := counterAt(second, 7, "bytes", name(fmt.Sprint("new", i/400%3), "tenant", "shop")...)
				begun.Start = at(second - 0.7)
				whole := histogramAt(second, h, "latency", name(fmt.Sprint("new", i/400%3))...)
				whole.Start = at(second - 0.4)
				batch = append(batch, begun, whole, counterAt(second, 1, "unasked", name("new")...))
			}
			appendAll(t, s, batch...)
		}
		if i < 140 || rnd.IntN(60) > 0 {
			continue
		}
		m := Moments{Names: names, Recent: KeptRecent}
		for _, past := range []int{0, 30, 60, 300, 900}[:1+rnd.IntN(5)] {
			if past < i-120 {
				m.Times = append(m.Times, newestKept(t, s, float64(i-past)-rnd.Float64()))
			}
		}
		slices.SortFunc(m.Times, time.Time.Compare)
		m.Times = slices.CompactFunc(m.Times, time.Time.Equal)
		got, ok := keptResults(t, s, m)
		if !ok {
			t.Fatalf("at %d: %v are not kept", i, m.Times)
		}
		expected := bySeries(asked(t, m, s.Instant))
		if !reflect.DeepEqual(bySeries(got), expected) {
			differ(t, bySeries(got), expected)
			t.Fatalf("at %d: %v", i, m.Times)
		}
		m.Tenant = "shop"
		got, _ = keptResults(t, s, m)
		shop := bySeries(asked(t, m, ForTenant(s, "shop").Instant))
		if !reflect.DeepEqual(bySeries(got), shop) {
			t.Fatalf("at %d, of a tenant: got %v, want %v", i, bySeries(got), shop)
		}
		compared, found = compared+1, found+len(expected)
	}
	if compared < 50 || found < 50*10 {
		t.Errorf("only %d moments with %d series were compared", compared, found)
	}
}

func differ(t *testing.T, got, expected map[string][]model.Point) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if !reflect.DeepEqual(got[key], expected[key]) {
			t.Errorf("%s: got %v, want %v", key, got[key], expected[key])
		}
	}
	for key := range got {
		if _, ok := expected[key]; !ok {
			t.Errorf("%s: got %v, want none", key, got[key])
		}
	}
}

func TestKeptMoments(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	if _, ok := s.Kept(at(0), time.Hour); ok {
		t.Error("an empty store keeps something")
	}
	for i := range 2 * 3600 {
		appendAll(t, s, counterAt(float64(i), float64(i), "requests"))
	}
	// The newest sample is at an odd second.
	for _, c := range []struct {
		past, most float64
		kept       bool
	}{
		{0, 60, true}, {0, 1, true}, {0, 0.5, false}, {29, 1, true}, {61, 9.9, true}, {61, 0.5, false}, {299, 10, true},
		{361, 60, true}, {1000, 60, true}, {1000, 0.5, false},
		{1200, 60, false}, {1200, 300, false}, {7000, 3600, false},
	} {
		asked := at(2*3600 - 1 - c.past)
		got, ok := s.Kept(asked, time.Duration(c.most*float64(time.Second)))
		if ok != c.kept || ok && asked.Sub(got).Seconds() > c.most || !ok && !got.Equal(asked) {
			t.Errorf("%v s past, at most %v before: %v before, %v", c.past, c.most, asked.Sub(got).Seconds(), ok)
		}
		if !ok {
			continue
		}
		m := Moments{Names: []string{"requests"}, Times: []time.Time{got}, Recent: KeptRecent}
		if results, ok := keptResults(t, s, m); !ok || len(results) != 1 ||
			results[0].Points[0].Value != got.Sub(at(0)).Seconds() {
			t.Errorf("%v s past: %v, %v", c.past, results, ok)
		}
	}
	if n := s.Stats().Moments; n < 60 || n > 100 {
		t.Errorf("%d moments are kept", n)
	}
	for _, m := range []Moments{
		// a moment of no level
		{Names: []string{"requests"}, Times: []time.Time{at(7001)}, Recent: KeptRecent},
		// other samples count
		{Names: []string{"requests"}, Times: []time.Time{newestKept(t, s, 7190)}, Recent: 2 * KeptRecent},
	} {
		if _, ok := keptResults(t, s, m); ok {
			t.Errorf("%+v are kept", m)
		}
		if got, err := lastResults(t, s, m); err != nil || len(got) != 1 {
			t.Errorf("%+v: %v, %v", m, got, err)
		}
	}
}

// Few series are not worth it.
func TestKeptFrom(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 3})
	for i := range 40 {
		batch := []model.Series{counterAt(float64(i), 1, "a"), counterAt(float64(i), 1, "b")}
		if i >= 20 {
			batch = append(batch, counterAt(float64(i), 1, "c"))
		}
		appendAll(t, s, batch...)
		if _, ok := s.Kept(at(float64(i)), 2*time.Second); ok != (i >= 30) {
			t.Errorf("at %d: kept: %v", i, ok)
		}
	}
}

// What is not known whole is not read from what is kept.
func TestKeptDoubts(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{KeepFrom: 1})
	second := 0.0
	more := func(s *Store, n int) {
		t.Helper()
		for range n {
			appendAll(t, s, counterAt(second, second, "requests", "id", "x"))
			second++
		}
	}
	check := func(what string, s *Store) {
		t.Helper()
		begin := second - 1
		if _, ok := s.Kept(at(begin), 2*time.Second); ok {
			t.Errorf("%s: the moment is kept", what)
		}
		for again := false; !again && second < begin+30; more(s, 1) {
			m := Moments{Names: []string{"requests"}, Times: []time.Time{at(second - 1).Truncate(2 * time.Second)},
				Recent: KeptRecent}
			_, again = s.Kept(m.Times[0], 2*time.Second)
			if got, ok := keptResults(t, s, m); ok != again || ok &&
				!reflect.DeepEqual(bySeries(got), bySeries(asked(t, m, s.Instant))) {
				t.Errorf("%s: %v, %v, want %v", what, got, ok, asked(t, m, s.Instant))
			}
		}
		if passed := second - begin; passed < 8 || passed > 16 {
			t.Errorf("%s: moments are kept after %v s", what, passed)
		}
	}
	more(s, 60)
	if err := s.AppendPart(t.Context(), []model.Series{counterAt(second-1, 1, "requests", "id", "y")}); err != nil {
		t.Fatal(err)
	}
	check("a part", s)
	if err := s.AppendPart(t.Context(), []model.Series{counterAt(second-1, 1, "other", "id", "y")}); err != nil {
		t.Fatal(err)
	}
	moment, ok := s.Kept(at(second-1), 2*time.Second)
	if !ok {
		t.Error("a part of another name is in the way")
	}
	both := Moments{Names: []string{"other", "requests"}, Times: []time.Time{moment}, Recent: KeptRecent}
	if _, ok := keptResults(t, s, both); ok {
		t.Error("what came in parts is taken for kept")
	}
	if got, err := lastResults(t, s, both); err != nil ||
		!reflect.DeepEqual(bySeries(got), bySeries(asked(t, both, s.Instant))) {
		t.Errorf("%v, %v", got, err)
	}
	appendAll(t, s, counterAt(second-1.5, 3, "requests", "id", "late"))
	check("out of order", s)
	appendAll(t, s, counterAt(second, 1, "requests", "id", "z"), counterAt(second-5, 1, "requests", "id", "x2"))
	second++
	check("two times in a batch", s)
	appendAll(t, s, histogramAt(second, &model.Histogram{}, "requests", "id", "x"))
	second++
	check("another kind", s)
	appendAll(t, s, counterAt(second, 1, "odd", "id", "x"), model.Series{Name: "far", Labels: labelled("id", "x"),
		Kind: model.HistogramSeries, Time: at(second),
		Foreign: &model.ForeignHistogram{Scale: 2, Count: 1, Sum: 1, Positive: []uint64{1}}})
	second++
	check("a histogram of other buckets", s)
	for _, v := range []float64{1, 2} { // the second is a conflict, or is not told
		err := s.Append(t.Context(), []model.Series{counterAt(second, v, "requests", "id", "x"),
			counterAt(second, v+5, "requests", "id", "x")})
		if err != nil && !errors.Is(err, ErrRejected) {
			t.Fatal(err)
		}
	}
	second++
	check("one twice in a batch", s)
	for i := range 6 { // a number, a histogram, a number within ten seconds
		batch := []model.Series{counterAt(second, second, "requests", "id", "x")}
		switch i / 2 {
		case 0, 2:
			batch = append(batch, counterAt(second, second, "flips"))
		case 1:
			batch = append(batch, histogramAt(second, &model.Histogram{}, "flips"))
		}
		appendAll(t, s, batch...)
		second++
		if i%2 == 1 {
			appendAll(t, s, counterAt(second, second, "requests", "id", "x"))
			second++
		}
	}
	check("a kind that flips", s)
	if err := s.AppendPart(t.Context(), []model.Series{counterAt(second, 1, "first in parts", "id", "p")}); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		appendAll(t, s, counterAt(second, second, "requests", "id", "x"), counterAt(second, 1, "first in parts", "id", "p"))
		second++
	}
	both = Moments{Names: []string{"first in parts"}, Times: []time.Time{at(second - 1).Truncate(2 * time.Second)},
		Recent: KeptRecent}
	if got, err := lastResults(t, s, both); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Append(cancelled, []model.Series{counterAt(second, 1, "requests", "id", "x")}); !errors.Is(err,
		context.Canceled) {
		t.Fatal(err)
	}
	if _, ok := s.Kept(at(second-1), 2*time.Second); !ok {
		t.Error("a batch that was not tried is in the way")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{KeepFrom: 1})
	more(s, 1)
	check("a restart", s)
}

// failingAppender takes samples, and cannot write them.
type failingAppender struct{ storage.AppenderV2 }

func (failingAppender) Commit() error { return errors.New("no room on the disk") }

// A batch that was not stored is not kept either.
func TestKeptUndo(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	k := s.tracker.keeper
	for i := range 30 {
		appendAll(t, s, counterAt(float64(i), 1, "requests", "id", "x"))
	}
	failing := &failingAppender{AppenderV2: s.db.AppenderV2(t.Context())}
	err := s.tracker.append(failing, []model.Series{counterAt(31, 2, "requests", "id", "x"),
		counterAt(31, 2, "requests", "id", "y")}, false)
	if err == nil {
		t.Fatal("nothing failed")
	}
	if err := failing.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, ok := k.near(at(32), 4*time.Second, noSample); ok {
		t.Error("what a failed batch may have changed is kept")
	}
	for i := range 30 {
		appendAll(t, s, counterAt(float64(40+i), 3, "requests", "id", "x"))
	}
	m := Moments{Names: []string{"requests"}, Times: []time.Time{newestKept(t, s, 69)}, Recent: KeptRecent}
	if got, ok := keptResults(t, s, m); !ok || len(got) != 1 || got[0].Points[0].Value != 3 {
		t.Errorf("%v, %v", got, ok)
	}
}

func TestKeptSparse(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	none, some := &model.Histogram{}, &model.Histogram{}
	observe(some, time.Millisecond)
	for i := range 60 {
		second, v := float64(i), float64(i/40)
		appendAll(t, s, counterAt(second, 0, "a"), counterAt(second, 0, "b"), counterAt(second, v, "b", "id", "moves"),
			histogramAt(second, none, "h"),
			histogramAt(second, some, "h", "id", "some"), histogramAt(second, none, "i"))
	}
	m := Moments{Names: []string{"a", "b", "h", "i"}, Sparse: []string{"b", "h", "none"},
		Times: []time.Time{newestKept(t, s, 30), newestKept(t, s, 59)}, Recent: KeptRecent}
	got, ok := keptResults(t, s, m)
	expected := bySeries(asked(t, m, s.Instant))
	delete(expected, "b,,host=h")
	delete(expected, "h,,host=h")
	if !ok || len(expected) != 4 || !reflect.DeepEqual(bySeries(got), expected) {
		t.Errorf("%v: got %v, want %v", ok, bySeries(got), expected)
	}
}

// Series that come and go, and hosts, leave nothing behind.
func TestKeptIsBounded(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1, OutOfOrder: time.Second})
	var second float64
	s.tracker.now = func() time.Time { return at(second) }
	for i := range 2000 {
		second = float64(10 * i)
		batch := []model.Series{counterAt(second, 1, "requests", "id", "always")}
		for k := range 4 {
			id := fmt.Sprint(4*(i/3) + k)
			batch = append(batch, counterAt(second, 1, "requests", "id", id), histogramAt(second, &model.Histogram{},
				"latency", "id", id))
		}
		if i < 10 {
			batch = append(batch, counterAt(second, 1, "requests", "host", "gone"))
		}
		appendAll(t, s, batch...)
	}
	sources := s.tracker.keeper.of("")
	if len(sources) != 1 {
		t.Fatalf("%d sources are kept", len(sources))
	}
	// 18 minutes are 108 batches with 4 new ones in every third.
	most := 4 * (108/3 + 8)
	k := sources[0]
	if len(k.things) > most || len(k.byLabels) != len(k.things) || len(k.numbers.now) > most ||
		len(k.histograms.now) > most || len(k.ended) > 2*most {
		t.Errorf("%d things, %d numbers, %d histograms, %d ended: want at most %d", len(k.things), len(k.numbers.now),
			len(k.histograms.now), len(k.ended), most)
	}
	for _, seconds := range []float64{19990, 19700, 19000} {
		m := Moments{Names: []string{"requests", "latency"}, Times: []time.Time{newestKept(t, s, seconds)},
			Recent: KeptRecent}
		got, ok := keptResults(t, s, m)
		if expected := bySeries(asked(t, m, s.Instant)); !ok || len(expected) != 9 ||
			!reflect.DeepEqual(bySeries(got), expected) {
			t.Errorf("at %v: %v: got %v, want %v", seconds, ok, bySeries(got), expected)
		}
	}
}

// What was read lasts until it is released, whoever reads and appends meanwhile.
func TestKeptIsReadWhileItGrows(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	h := &model.Histogram{}
	add := func(i int) {
		observe(h, time.Duration(i+1)*time.Microsecond)
		for _, host := range []string{"a", "b", "c"} {
			var batch []model.Series
			for id := range 20 + i%7 {
				batch = append(batch, counterAt(float64(i), float64(i), "requests", "host", host, "id", fmt.Sprint(id)),
					histogramAt(float64(i), h, "latency", "host", host, "id", fmt.Sprint(id)))
			}
			appendAll(t, s, batch...)
		}
	}
	for i := range 120 {
		add(i)
	}
	m := Moments{Names: []string{"requests", "latency"}, Times: []time.Time{newestKept(t, s, 60),
		newestKept(t, s, 110)}, Recent: KeptRecent}
	expected := bySeries(asked(t, m, s.Instant))
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
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
				if got := bySeries(slices.Concat(values.Blocks...)); !reflect.DeepEqual(got, expected) {
					t.Errorf("got %v, want %v", got, expected)
					return
				}
				values.Release()
			}
		})
	}
	for i := range 50 {
		add(120 + i)
	}
	close(done)
	readers.Wait()
}

// A label that is empty and one that is not there are the same series, which goes on when it is told the other way.
func TestKeptOfAnEmptyLabel(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	const seconds = 5 * 3600
	for i := 0; i < seconds; i += 10 {
		same := counterAt(float64(i), float64(i), "requests", "id", "x")
		if i < 600 {
			same = counterAt(float64(i), float64(i), "requests", "id", "x", "zone", "")
		}
		appendAll(t, s, same, counterAt(float64(i), 1, "requests", "id", fmt.Sprint(i/30)))
	}
	m := Moments{Names: []string{"requests"}, Times: []time.Time{newestKept(t, s, seconds-10)}, Recent: KeptRecent}
	got, ok := keptResults(t, s, m)
	if expected := bySeries(asked(t, m, s.Instant)); !ok || len(expected) != 2 ||
		!reflect.DeepEqual(bySeries(got), expected) {
		t.Errorf("%v: got %v, want %v", ok, bySeries(got), expected)
	}
}

// Hosts that come again together after a long silence are both there.
func TestKeptHostsAfterASilence(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1})
	var second float64
	s.tracker.now = func() time.Time { return at(second) }
	add := func(seconds float64) {
		for range 60 {
			second = seconds
			appendAll(t, s, counterAt(second, second, "requests", "host", "a"), counterAt(second, second, "requests",
				"host", "b"))
			seconds++
		}
	}
	add(0)
	add(4 * 3600)
	m := Moments{Names: []string{"requests"}, Times: []time.Time{newestKept(t, s, second)}, Recent: KeptRecent}
	got, ok := keptResults(t, s, m)
	if expected := bySeries(asked(t, m, s.Instant)); !ok || len(expected) != 2 ||
		!reflect.DeepEqual(bySeries(got), expected) {
		t.Errorf("%v: got %v, want %v", ok, bySeries(got), expected)
	}
}

// A zero before the first sample that is kept of a source, which was there before, is not taken for nothing.
func TestKeptZeroBeforeTheFirst(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 2})
	appendAll(t, s, counterAt(0, 1, "requests", "host", "b"))
	appendAll(t, s, counterAt(1, 1, "requests", "host", "a"), counterAt(1, 1, "bytes", "host", "a"))
	for i := range 60 {
		appendAll(t, s, counterAt(float64(2+i), 1, "requests", "host", "a"), counterAt(float64(2+i), 1, "bytes", "host", "a"))
	}
	begun := counterAt(60, 7, "bytes", "host", "b")
	begun.Start = at(25)
	appendAll(t, s, counterAt(60, 1, "requests", "host", "b"), begun)
	m := Moments{Names: []string{"requests", "bytes"}, Times: []time.Time{at(30)}, Recent: KeptRecent}
	got, err := lastResults(t, s, m)
	if expected := bySeries(asked(t, m, s.Instant)); err != nil || len(expected) != 3 ||
		!reflect.DeepEqual(bySeries(got), expected) {
		t.Errorf("%v: got %v, want %v", err, bySeries(got), expected)
	}
}

// A source that grows makes no reader grow without end.
func TestArenaOfGrowingParts(t *testing.T) {
	var a arena[int]
	for n := arenaChunk; n < 4*arenaChunk; n += 50 {
		a.take(n)
		a.take(10)
		a.reset()
	}
	total := 0
	for _, c := range a.chunks {
		total += cap(c)
	}
	if total > 16*arenaChunk {
		t.Errorf("%d were made", total)
	}
}

// A source that is hours behind is not forgotten: when it has caught up, its values are there.
func TestKeptSourceFarBehind(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1, OutOfOrder: 24 * time.Hour})
	const outage = 4 * 3600
	for i := range outage + 60 {
		appendAll(t, s, counterAt(outage+float64(i)/4, 1, "requests"), counterAt(float64(i), float64(i), "requests",
			"host", "late"))
	}
	for i := range outage {
		appendAll(t, s, counterAt(1.25*outage+20+float64(i), 1, "requests"),
			counterAt(outage+60+float64(i)*(1.25*outage-40)/outage, float64(i), "requests", "host", "late"))
	}
	m := Moments{Names: []string{"requests"}, Times: []time.Time{newestKept(t, s, 2.25*outage+15)}, Recent: KeptRecent}
	got, ok := keptResults(t, s, m)
	if expected := bySeries(asked(t, m, s.Instant)); !ok || len(expected) != 2 ||
		!reflect.DeepEqual(bySeries(got), expected) {
		t.Errorf("%v: got %v, want %v", ok, bySeries(got), expected)
	}
}

func TestBoundsOfKept(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepFrom: 1, MaxSamples: 400})
	h := &model.Histogram{Count: 800, Offset: -400, Buckets: slices.Repeat([]uint64{1}, 800)}
	for i := range 40 {
		batch := []model.Series{counterAt(float64(i), 1, "one"), histogramAt(float64(i), h, "wide")}
		for id := range 100 {
			batch = append(batch, counterAt(float64(i), 1, "many", "id", fmt.Sprint(id)))
		}
		appendAll(t, s, batch...)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		name string
		want error
	}{{t.Context(), "one", nil}, {t.Context(), "many", ErrExecution}, {t.Context(), "wide", ErrExecution},
		{cancelled, "one", ErrCanceled}} {
		moment := newestKept(t, s, 39)
		if _, err := s.Last(c.ctx, Moments{Names: []string{c.name}, Times: []time.Time{moment},
			Recent: KeptRecent}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if got := s.Stats(); got.QueriesTooLarge != 2 {
		t.Errorf("%d queries were too large, want 2", got.QueriesTooLarge)
	}
}

// FuzzKeptHistogram holds what is kept of a histogram against how it is read out of a chunk.
func FuzzKeptHistogram(f *testing.F) {
	f.Add(int32(-300), []byte{1, 0, 0, 200, 255, 0, 7}, uint64(3), uint64(1e9))
	f.Add(int32(0), []byte{}, uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, offset int32, counts []byte, zeros, sum uint64) {
		if len(counts) > 800 || offset < -10_000 || offset > 10_000 || zeros > 1e12 {
			t.Skip()
		}
		h := &model.Histogram{ZeroCount: zeros, SumNS: sum, Count: zeros, Offset: offset}
		for _, n := range counts {
			count := uint64(n) * uint64(n) * uint64(n)
			h.Buckets = append(h.Buckets, count)
			h.Count += count
		}
		stored := native(h)
		want, err := fromNative(stored.ToFloat(nil))
		if err != nil {
			t.Fatal(err)
		}
		var r keptReader
		for _, got := range []*model.FloatHistogram{r.native(stored), r.decode(encodeKept(nil, stored))} {
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v: got %+v, want %+v", h, got, want)
			}
		}
	})
}
