package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	promconfig "github.com/prometheus/common/config"
	prommodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"outsight/internal/model"
)

// readSeconds of samples are several chunks.
const readSeconds = 300

// readStore has two tenants, a and b, each with a counter and a histogram.
func readStore(t testing.TB, o Options) *Store {
	t.Helper()
	s := open(t, t.TempDir(), o)
	for i := range readSeconds {
		n := uint64(i)
		h := &model.Histogram{Count: 6 * n, SumNS: 9e9 * n, ZeroCount: n, Offset: -40, Buckets: []uint64{2 * n, 0, 3 * n}}
		var batch []model.Series
		for _, tenant := range []string{"a", "b"} {
			batch = append(batch, counterAt(float64(i), float64(3*i), "c_total", "tenant", tenant),
				histogramAt(float64(i), h, "h_seconds", "tenant", tenant))
		}
		appendAll(t, s, batch...)
	}
	return s
}

// samplesOf are all samples of a set of series, as text.
func samplesOf(t testing.TB, set storage.SeriesSet) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	var it chunkenc.Iterator
	for set.Next() {
		series := set.At()
		name := series.Labels().String()
		it = series.Iterator(it)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind == chunkenc.ValFloat {
				at, v := it.At()
				all[name] = append(all[name], fmt.Sprintf("%d %v", at, v))
			} else {
				at, h := it.AtFloatHistogram(nil)
				// What it says of the sample before, which need not be in the answer.
				h.CounterResetHint = histogram.UnknownCounterReset
				all[name] = append(all[name], fmt.Sprintf("%d %s", at, h.TestExpression()))
			}
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func same(t testing.TB, what string, got, want map[string][]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %d series, want %d", what, len(got), len(want))
	}
	for name, samples := range want {
		if !slices.Equal(got[name], samples) {
			t.Errorf("%s: %s has %d samples %.300q, want %d %.300q", what, name, len(got[name]), got[name],
				len(samples), samples)
		}
	}
}

// readClient is Prometheus's own client of what f serves, and the kinds of answers that it asks for.
func readClient(t testing.TB, kind prompb.ReadRequest_ResponseType,
	f func(http.ResponseWriter, *http.Request) error) remote.ReadClient {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := remote.NewReadClient(t.Name(), &remote.ClientConfig{
		URL: &promconfig.URL{URL: u}, Timeout: prommodel.Duration(time.Minute), ChunkedReadLimit: 64 << 20,
		HTTPClientConfig: promconfig.DefaultHTTPClientConfig, AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func matcherOf(t testing.TB, kind labels.MatchType, name, value string) *labels.Matcher {
	t.Helper()
	m, err := labels.NewMatcher(kind, name, value)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var readKinds = []prompb.ReadRequest_ResponseType{prompb.ReadRequest_SAMPLES, prompb.ReadRequest_STREAMED_XOR_CHUNKS}

// Prometheus's own client reads the very samples that are stored, floats and native histograms, in both kinds of
// answers.
func TestRemoteRead(t *testing.T) {
	s := readStore(t, Options{})
	all := func(w http.ResponseWriter, r *http.Request) error { return s.RemoteRead(w, r, "") }
	for _, kind := range readKinds {
		client := readClient(t, kind, all)
		f := func(from, to float64, samples int, matchers ...*labels.Matcher) {
			t.Helper()
			what := fmt.Sprintf("%v of %v from %g to %g", kind, matchers, from, to)
			query, err := remote.ToQuery(at(from).UnixMilli(), at(to).UnixMilli(), matchers, nil)
			if err != nil {
				t.Fatal(err)
			}
			set, err := client.Read(t.Context(), query, true)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			got := samplesOf(t, set)
			querier, err := s.db.Querier(at(from).UnixMilli(), at(to).UnixMilli())
			if err != nil {
				t.Fatal(err)
			}
			defer querier.Close()
			same(t, what, got, samplesOf(t, querier.Select(t.Context(), true, nil, matchers...)))
			n := 0
			for _, each := range got {
				n += len(each)
			}
			if n != samples {
				t.Errorf("%s: %d samples, want %d", what, n, samples)
			}
		}
		f(0, readSeconds, 4*readSeconds, matcherOf(t, labels.MatchRegexp, "__name__", ".+"))
		f(0, readSeconds, readSeconds, matcherOf(t, labels.MatchEqual, "__name__", "c_total"),
			matcherOf(t, labels.MatchEqual, "tenant", "a"))
		f(50, 59, 20, matcherOf(t, labels.MatchEqual, "__name__", "h_seconds"))
		f(0, readSeconds, 0, matcherOf(t, labels.MatchEqual, "__name__", "absent"))
		f(-9000, -8000, 0, matcherOf(t, labels.MatchEqual, "__name__", "c_total"))
	}
	if stats := s.Stats(); stats.Queries != 10 {
		t.Errorf("%d queries are counted, want 10", stats.Queries)
	}
}

// Whatever a tenant's request says, only the tenant's series are in the answer.
func TestRemoteReadOfATenant(t *testing.T) {
	s := readStore(t, Options{})
	own := ForTenant(s, "a")
	for _, kind := range readKinds {
		client := readClient(t, kind, func(w http.ResponseWriter, r *http.Request) error { return own.RemoteRead(w, r, "b") })
		for _, one := range []struct {
			series   int
			matchers []*labels.Matcher
		}{
			{2, []*labels.Matcher{matcherOf(t, labels.MatchRegexp, "__name__", ".+")}},
			{2, []*labels.Matcher{matcherOf(t, labels.MatchRegexp, "tenant", "a|b")}},
			{2, nil},
			{0, []*labels.Matcher{matcherOf(t, labels.MatchEqual, "tenant", "b")}},
			{0, []*labels.Matcher{matcherOf(t, labels.MatchNotEqual, "tenant", "a")}},
			{0, []*labels.Matcher{matcherOf(t, labels.MatchEqual, "tenant", "")}},
			{1, []*labels.Matcher{matcherOf(t, labels.MatchEqual, "__name__", "c_total"),
				matcherOf(t, labels.MatchNotEqual, "tenant", "b")}},
		} {
			query, err := remote.ToQuery(at(0).UnixMilli(), at(readSeconds).UnixMilli(), one.matchers, nil)
			if err != nil {
				t.Fatal(err)
			}
			set, err := client.ReadMultiple(t.Context(), []*prompb.Query{query, query}, true)
			if err != nil {
				t.Fatalf("%v %v: %v", kind, one.matchers, err)
			}
			got := samplesOf(t, set)
			if len(got) != one.series {
				t.Errorf("%v %v: %d series, want %d", kind, one.matchers, len(got), one.series)
			}
			for name := range got {
				if !strings.Contains(name, `tenant="a"`) {
					t.Errorf("%v %v: read %s", kind, one.matchers, name)
				}
			}
		}
	}
}

// readBody is a request of one kind for as many queries.
func readBody(t testing.TB, kind prompb.ReadRequest_ResponseType, queries ...*prompb.Query) []byte {
	t.Helper()
	raw, err := (&prompb.ReadRequest{Queries: queries,
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return snappy.Encode(nil, raw)
}

func readQuery(t testing.TB, matchers ...*labels.Matcher) *prompb.Query {
	t.Helper()
	q, err := remote.ToQuery(at(0).UnixMilli(), at(readSeconds).UnixMilli(), matchers, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestBoundsOfRemoteRead(t *testing.T) {
	// A counter's sample is one; a histogram's is more, and so are labels.
	s := readStore(t, Options{MaxSamples: 2*readSeconds + 40, MaxQueries: 1})
	counters := readQuery(t, matcherOf(t, labels.MatchEqual, "__name__", "c_total"))
	histograms := readQuery(t, matcherOf(t, labels.MatchEqual, "__name__", "h_seconds"),
		matcherOf(t, labels.MatchEqual, "tenant", "a"))
	read := func(ctx context.Context, body []byte) (int, error) {
		w := httptest.NewRecorder()
		err := s.RemoteRead(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body)), "")
		if err != nil && (w.Body.Len() > 0 || w.Header().Get("Content-Encoding") != "") {
			t.Errorf("with the error %v there are %d bytes and %v", err, w.Body.Len(), w.Header())
		}
		return w.Body.Len(), err
	}
	f := func(want error, body []byte) {
		t.Helper()
		n, err := read(t.Context(), body)
		if !errors.Is(err, want) || want == nil && n == 0 {
			t.Errorf("got %d bytes, %v, want %v", n, err, want)
		}
	}
	samples, stream := readKinds[0], readKinds[1]
	f(nil, readBody(t, samples, counters))
	f(ErrExecution, readBody(t, samples, counters, counters))
	f(ErrExecution, readBody(t, samples, histograms))
	f(nil, readBody(t, stream, counters, counters, histograms)) // which holds a frame at a time
	if stats := s.Stats(); stats.QueriesTooLarge != 2 {
		t.Errorf("%d were too large, want 2", stats.QueriesTooLarge)
	}
	for name, body := range map[string][]byte{
		"empty": nil, "no snappy": []byte("hello"), "no protobuf": snappy.Encode(nil, []byte("hello")),
		"a bomb": snappy.Encode(nil, make([]byte, maxReadBytes+1)), "too long": make([]byte, maxReadBytes+1),
		"no such kind": readBody(t, 7, counters), "many queries": readBody(t, samples,
			slices.Repeat([]*prompb.Query{counters}, maxReadQueries+1)...),
		"backwards": readBody(t, samples, &prompb.Query{StartTimestampMs: 2, EndTimestampMs: 1}),
		"no expression": readBody(t, stream,
			&prompb.Query{Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: "a", Value: "("}}}),
	} {
		if _, err := read(t.Context(), body); !errors.Is(err, ErrBadQuery) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := read(gone, readBody(t, samples, counters)); !errors.Is(err, ErrCanceled) {
		t.Errorf("a client that has gone: %v", err)
	}
	// The only place is taken, and as many wait as may.
	leave, err := s.gate.scheduler.Enter(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	s.gate.scheduler.options.Waiting = 0
	f(ErrBusy, readBody(t, stream, counters))
	leave()
	f(nil, readBody(t, stream, counters))
	s.options.QueryTimeout, s.gate.timeout = time.Nanosecond, time.Nanosecond
	f(ErrTimeout, readBody(t, samples, counters))
	if stats := s.Stats(); stats.QueriesTurnedAway != 1 || stats.QueriesTooSlow != 1 {
		t.Errorf("got %+v", stats)
	}
}

// goneWriter loses its reader at the first byte.
type goneWriter struct {
	*httptest.ResponseRecorder
	leave func()
}

func (w goneWriter) Write(b []byte) (int, error) {
	w.leave()
	return w.ResponseRecorder.Write(b)
}

// A stream that cannot be finished does not end as if it were whole.
func TestRemoteReadIsBrokenOff(t *testing.T) {
	s := readStore(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("it ended with %v, want %v", p, http.ErrAbortHandler)
		}
		// Its place is free again.
		if err := s.RemoteRead(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/",
			bytes.NewReader(readBody(t, readKinds[1]))), ""); err != nil {
			t.Error(err)
		}
		if n := s.gate.scheduler.running; n != 0 {
			t.Errorf("%d queries still run", n)
		}
	}()
	body := readBody(t, readKinds[1], readQuery(t, matcherOf(t, labels.MatchRegexp, "__name__", ".+")))
	err := s.RemoteRead(goneWriter{httptest.NewRecorder(), cancel}, httptest.NewRequestWithContext(ctx, http.MethodPost,
		"/", bytes.NewReader(body)), "")
	t.Errorf("it returned with %v", err)
}

// FuzzRemoteRead: whatever the bytes of a request are, they are an answer with the tenant's series alone, or an error.
func FuzzRemoteRead(f *testing.F) {
	s := readStore(f, Options{})
	for _, kind := range readKinds {
		for _, matchers := range [][]*labels.Matcher{nil, {matcherOf(f, labels.MatchRegexp, "tenant", "a|b")},
			{matcherOf(f, labels.MatchEqual, "tenant", "b"), matcherOf(f, labels.MatchEqual, "__name__", "c_total")}} {
			raw, err := snappy.Decode(nil, readBody(f, kind, readQuery(f, matchers...)))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		w := httptest.NewRecorder()
		body := snappy.Encode(nil, raw)
		if ForTenant(s, "a").RemoteRead(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body)), "") != nil {
			return
		}
		check := func(l []prompb.Label) {
			if !slices.ContainsFunc(l, func(l prompb.Label) bool { return l.Name == TenantLabel && l.Value == "a" }) {
				t.Errorf("read %v", l)
			}
		}
		if w.Header().Get("Content-Encoding") == "snappy" {
			answer, err := snappy.Decode(nil, w.Body.Bytes())
			var r prompb.ReadResponse
			if err == nil {
				err = r.Unmarshal(answer)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range r.Results {
				for _, series := range result.Timeseries {
					check(series.Labels)
				}
			}
			return
		}
		for frames := remote.NewChunkedReader(w.Body, 64<<20, nil); ; {
			var r prompb.ChunkedReadResponse
			err := frames.NextProto(&r)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, series := range r.ChunkedSeries {
				check(series.Labels)
			}
		}
	})
}
