package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"outsight/internal/model"
)

// receiver keeps what Prometheus's own receiver of remote write gives it.
type receiver struct {
	t     *testing.T
	into  *Store
	types map[remote.WriteMessageType]int
	// fail is the status to answer instead.
	fail int
}

func (r *receiver) Store(request *http.Request, kind remote.WriteMessageType) (*remote.WriteResponse, error) {
	r.types[kind]++
	answer := remote.NewWriteResponse()
	if kind == remote.WriteV1MessageType {
		return answer, nil // that there is one is all that is asked here
	}
	if r.fail != 0 {
		answer.SetStatusCode(r.fail)
		return answer, errors.New("made to fail")
	}
	body, err := io.ReadAll(request.Body)
	var message writev2.Request
	if err == nil {
		err = message.UnmarshalVT(body)
	}
	if err != nil {
		r.t.Errorf("reading the message: %v", err)
		return answer, err
	}
	app := r.into.db.AppenderV2(context.Background())
	stats := remote.WriteResponseStats{}
	for _, series := range message.Timeseries {
		b := labels.NewScratchBuilder(8)
		previous := ""
		for i := 0; i < len(series.LabelsRefs); i += 2 {
			name := message.Symbols[series.LabelsRefs[i]]
			if name <= previous {
				r.t.Errorf("label %q comes after %q", name, previous)
			}
			previous = name
			b.Add(name, message.Symbols[series.LabelsRefs[i+1]])
		}
		for _, s := range series.Samples {
			_, err = app.Append(0, b.Labels(), 0, s.Timestamp, s.Value, nil, nil, storage.AOptions{})
			stats.Samples++
		}
		for _, h := range series.Histograms {
			n := &histogram.Histogram{Schema: h.Schema, ZeroThreshold: h.ZeroThreshold, ZeroCount: h.GetZeroCountInt(),
				Count: h.GetCountInt(), Sum: h.Sum, PositiveBuckets: h.PositiveDeltas}
			for _, span := range h.PositiveSpans {
				n.PositiveSpans = append(n.PositiveSpans, histogram.Span{Offset: span.Offset, Length: span.Length})
			}
			_, err = app.Append(0, b.Labels(), 0, h.Timestamp, 0, n, nil, storage.AOptions{})
			stats.Histograms++
		}
		if err != nil {
			r.t.Errorf("appending %v: %v", b.Labels(), err)
		}
	}
	answer.Add(stats)
	return answer, app.Commit()
}

// Remote write 2.0 carries all that 1.0 does, as Prometheus's own receiver reads it; one that takes
// 1.0 alone gets that.
func TestRemoteWrite2(t *testing.T) {
	got, want := open(t, t.TempDir(), Options{}), open(t, t.TempDir(), Options{})
	r := &receiver{t: t, into: got, types: map[remote.WriteMessageType]int{}}
	server := httptest.NewServer(remote.NewWriteHandler(r, remote.MessageTypes{remote.WriteV1MessageType,
		remote.WriteV2MessageType}))
	defer server.Close()
	remoteStore := openRemote(t, RemoteOptions{URL: server.URL})
	begin := time.Now().Add(-5 * time.Minute).Truncate(time.Second)
	for _, batch := range workload(begin) {
		appendAll(t, want, batch...)
		if err := remoteStore.Append(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if r.types[remote.WriteV2MessageType] != 61 || r.types[remote.WriteV1MessageType] != 0 {
		t.Errorf("messages %v", r.types)
	}
	for _, query := range []string{`{__name__=~".+"}[2m]`, `{__name__=~".+"}`, `sum(rate(h_seconds[20s]))`} {
		for _, seconds := range []float64{25.5, 40.5, 60.5} {
			at := begin.Add(time.Duration(seconds * float64(time.Second)))
			a, err := want.Instant(context.Background(), query, at)
			if err != nil || len(a) == 0 {
				t.Fatal(len(a), err)
			}
			b, err := got.Instant(context.Background(), query, at)
			if err == nil {
				err = sameResults(b, a)
			}
			if err != nil {
				t.Errorf("%s at %v: %v", query, seconds, err)
			}
		}
	}

	// A receiver of 1.0 that says so.
	old := &receiver{t: t, into: got, types: map[remote.WriteMessageType]int{}}
	oldServer := httptest.NewServer(remote.NewWriteHandler(old, remote.MessageTypes{remote.WriteV1MessageType}))
	defer oldServer.Close()
	for range 2 {
		before := old.types[remote.WriteV1MessageType]
		remoteStore := openRemote(t, RemoteOptions{URL: oldServer.URL})
		for i := range 2 {
			if err := remoteStore.Append(context.Background(), workload(begin)[i]); err != nil {
				t.Fatal(err)
			}
		}
		if n := old.types[remote.WriteV1MessageType] - before; n != 2 || old.types[remote.WriteV2MessageType] != 0 ||
			remoteStore.Stats().WriteRequests != 3 {
			t.Errorf("%d messages of 1.0, %v", n, remoteStore.Stats().WriteRequests)
		}
	}
}

// scripted answers one request after another; the last answer is repeated.
func scripted(t *testing.T, answers ...func(http.ResponseWriter)) (url string, requests *atomic.Int64) {
	requests = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		i := int(requests.Add(1)) - 1
		answers[min(i, len(answers)-1)](w)
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

func status(code int, pairs ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i+1 < len(pairs); i += 2 {
			w.Header().Set(pairs[i], pairs[i+1])
		}
		w.WriteHeader(code)
		io.WriteString(w, "said so\x07\n")
	}
}

// What passes is tried again; what would not change is not; each is counted.
func TestRemoteWriteFails(t *testing.T) {
	one := []model.Series{counterAt(1, 1, "c_total")}
	f := func(what error, requests int64, check func(Stats) bool, answers ...func(http.ResponseWriter)) {
		t.Helper()
		url, count := scripted(t, answers...)
		r := openRemote(t, RemoteOptions{URL: url, Protocol: Write1, RetryFor: 2 * time.Second})
		err := r.Append(context.Background(), one)
		if !errors.Is(err, what) || (what == nil) != (err == nil) {
			t.Errorf("got %v, want %v", err, what)
		}
		if err != nil && (!strings.Contains(err.Error(), url) || strings.Contains(err.Error(), "\a")) {
			t.Errorf("%q does not tell where, or repeats control characters", err)
		}
		if n := count.Load(); requests > 0 && n != requests {
			t.Errorf("%d requests, want %d", n, requests)
		}
		if s := r.Stats(); !check(s) {
			t.Errorf("%+v", s)
		}
	}
	f(nil, 1, func(s Stats) bool { return s.Samples == 1 && s.WriteRetries == 0 }, status(204))
	f(nil, 3, func(s Stats) bool { return s.Samples == 1 && s.WriteRetries == 2 && s.Unwritten == 0 }, status(503),
		status(500), status(200))
	f(nil, 2, func(s Stats) bool { return s.WriteRetries == 1 }, status(429, "Retry-After", "1"), status(204))
	for _, code := range []int{400, 409, 413, 415, 422} {
		f(ErrRejected, 1, func(s Stats) bool {
			return s.Refused == 1 && s.Samples == 0 && s.WriteRetries == 0 &&
				s.Unwritten == 0
		}, status(code))
	}
	for _, code := range []int{301, 307, 401, 403, 404, 405} {
		f(ErrAccess, 1, func(s Stats) bool { return s.Unwritten == 1 && s.Refused == 0 },
			status(code, "Location", "http://127.0.0.1:1/"))
	}
	// It is given up when the time to wait is longer than there is.
	f(ErrUnavailable, 1, func(s Stats) bool { return s.Unwritten == 1 && s.WriteRetries == 1 },
		status(429, "Retry-After", "30"))
	f(ErrUnavailable, 0, func(s Stats) bool { return s.Unwritten == 1 && s.WriteRetries >= 3 }, status(502))
}

// A batch that was not written changes nothing: the next one begins and ends the series that it
// would have.
func TestRemoteIsBackAgain(t *testing.T) {
	into := open(t, t.TempDir(), Options{})
	r := &receiver{t: t, into: into, types: map[remote.WriteMessageType]int{}}
	server := httptest.NewServer(remote.NewWriteHandler(r, remote.MessageTypes{remote.WriteV2MessageType}))
	defer server.Close()
	s := openRemote(t, RemoteOptions{URL: server.URL, RetryFor: 300 * time.Millisecond})
	send := func(want error, batch ...model.Series) {
		t.Helper()
		if err := s.Append(context.Background(), batch); !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	begun := func(seconds, v float64, id string) model.Series {
		c := counterAt(seconds, v, "c_total", "id", id)
		c.Start = at(1.5)
		return c
	}
	send(nil, counterAt(1, 1, "c_total", "id", "a"), counterAt(1, 5, "c_total", "id", "b"))
	r.fail = http.StatusServiceUnavailable
	send(ErrUnavailable, counterAt(2, 2, "c_total", "id", "a"), begun(2, 7, "c"))
	r.fail = 0
	send(nil, counterAt(3, 3, "c_total", "id", "a"), begun(3, 9, "c"))
	want(t, into, `c_total[1m]`, 4, "__name__=c_total id=a 1:1 3:3", "__name__=c_total id=b 1:5",
		"__name__=c_total id=c 1.5:0 3:9")
	want(t, into, `c_total`, 4, "__name__=c_total id=a 4:3", "__name__=c_total id=c 4:9")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, into, `c_total`, 4)
	if got := s.Stats(); got.Unwritten != 2 || got.Samples != 4 || got.Ended != 1 {
		t.Errorf("%+v", got)
	}
	if err := s.Append(context.Background(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := s.Instant(context.Background(), "1", at(1)); !errors.Is(err, ErrCanceled) {
		t.Errorf("after the end: %v", err)
	}
}

// An Append that waits ends with its context and with the store.
func TestRemoteAppendCanBeEnded(t *testing.T) {
	url, _ := scripted(t, status(503))
	s := openRemote(t, RemoteOptions{URL: url, RetryFor: time.Hour})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- s.Append(ctx, []model.Series{counterAt(1, 1, "c_total")}) }()
	waitFor(t, "it tries again", func() error {
		if s.Stats().WriteRetries < 2 {
			return errors.New("it does not")
		}
		return nil
	})
	// Another one that waits for its turn.
	short, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop()
	if err := s.Append(short, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	go func() { ended <- s.Append(context.Background(), []model.Series{counterAt(1, 1, "c_total")}) }()
	waitFor(t, "it tries again", func() error {
		if s.Stats().WriteRetries < 4 {
			return errors.New("it does not")
		}
		return nil
	})
	if err := s.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	if err := <-ended; !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// Whatever the other system answers, the error is of a known kind, bounded and counted.
func TestRemoteAnswersBadly(t *testing.T) {
	f := func(what error, counted func(Stats) uint64, answer func(http.ResponseWriter)) {
		t.Helper()
		url, _ := scripted(t, answer)
		r := openRemote(t, RemoteOptions{URL: url, MaxAnswerBytes: 1000, QueryTimeout: 5 * time.Second})
		data := func() error {
			_, err := r.Evaluate(context.Background(), Evaluation{Query: "c_total", From: at(1), To: at(1)})
			return err
		}
		found := func() error {
			_, err := r.Find(context.Background(), Lookup{What: FindLabelNames})
			return err
		}
		for name, ask := range map[string]func() error{"data": data, "names": found} {
			before := uint64(0)
			if counted != nil {
				before = counted(r.Stats())
			}
			err := ask()
			if !errors.Is(err, what) {
				t.Errorf("%s: got %v, want %v", name, err, what)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
			}
			if counted != nil && counted(r.Stats()) != before+1 {
				t.Errorf("%s: %v is not counted", name, err)
			}
		}
	}
	says := func(code int, text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code); io.WriteString(w, text) }
	}
	bad := func(s Stats) uint64 { return s.BadAnswers }
	large := func(s Stats) uint64 { return s.AnswersTooLarge }
	for _, text := range []string{"", "<html>hello", `{}`, `[]`, `{"status":"success"}`,
		`{"status":"success","data":{"resultType":"vector","result":{}}}`,
		`{"status":"success","data":7}`, `{"status":"success","data":{"resultType":"stew","result":[]}}`,
		`{"status":"success","data":{"resultType":"vector","result":null}}`,
		`{"status":"success","data":[`, strings.Repeat("[", 900), `{"status":"odd","data":[]}`} {
		f(ErrStorage, bad, says(200, text))
	}
	f(ErrExecution, large, says(200, `{"status":"success","data":"`+strings.Repeat("x", 2000)+`"}`))
	f(ErrBadQuery, nil, says(400, `{"status":"error","errorType":"bad_data","error":"what?"}`))
	f(ErrExecution, nil, says(422, `{"status":"error","errorType":"execution","error":"no"}`))
	f(ErrTimeout, func(s Stats) uint64 { return s.QueriesTooSlow },
		says(503, `{"status":"error","errorType":"timeout","error":"slow"}`))
	f(ErrBusy, nil, says(503, "later"))
	f(ErrBusy, nil, says(429, "later"))
	f(ErrAccess, nil, says(401, "who?"))
	f(ErrAccess, nil, says(404, strings.Repeat("page", 10000)))
	f(ErrStorage, nil, says(500, "\xff\xfe"))
	f(ErrStorage, nil, says(200, `{"status":"error","error":"`+strings.Repeat("x", 500)+`"}`))
}

// A system that does not answer costs a query its time and no more, and queries that wait for it
// are bounded.
func TestRemoteHangs(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"status":`)
		w.(http.Flusher).Flush()
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(hang)
	r := openRemote(t, RemoteOptions{URL: server.URL, QueryTimeout: 100 * time.Millisecond, MaxQueries: 1})
	results := make(chan error)
	const asked = 1 + maxWaitingFactor + 5
	for range asked {
		go func() {
			_, err := r.Instant(context.Background(), "c_total", at(1))
			results <- err
		}()
	}
	timeouts, busy := 0, 0
	for range asked {
		switch err := <-results; {
		case errors.Is(err, ErrTimeout):
			timeouts++
		case errors.Is(err, ErrBusy):
			busy++
		default:
			t.Errorf("got %v", err)
		}
	}
	if s := r.Stats(); timeouts+busy != asked || timeouts == 0 || s.QueriesTooSlow != uint64(timeouts) ||
		s.QueriesTurnedAway != uint64(busy) {
		t.Errorf("%d too slow, %d turned away: %+v", timeouts, busy, s)
	}
	// Who asked has gone.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Instant(ctx, "c_total", at(1)); !errors.Is(err, ErrCanceled) {
		t.Errorf("got %v", err)
	}
}

func TestRemoteOptionsAreChecked(t *testing.T) {
	f := func(o RemoteOptions, want string) {
		t.Helper()
		if _, err := OpenRemote(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
	f(RemoteOptions{}, "want http or https")
	f(RemoteOptions{URL: "metrics:9090"}, "want http or https")
	f(RemoteOptions{URL: "http://"}, "want http or https")
	f(RemoteOptions{URL: "http://user:secret@metrics"}, "want http or https")
	f(RemoteOptions{URL: "http://metrics?x=y"}, "want http or https")
	f(RemoteOptions{WriteURL: "http://metrics/write"}, "want http or https")
	f(RemoteOptions{URL: "http://m", Protocol: "3"}, "protocol")
	f(RemoteOptions{URL: "http://m", Histograms: "none"}, "histograms")
	f(RemoteOptions{URL: "http://m", BucketsPerOctave: 3}, "buckets per octave")
	f(RemoteOptions{URL: "http://m", Token: "a", User: "b"}, "only one")
	f(RemoteOptions{URL: "http://m", RetryFor: -1}, "negative")
	if _, err := OpenRemote(RemoteOptions{URL: "http://user:secret@metrics"}); strings.Contains(err.Error(), "secret") {
		t.Errorf("the error tells a password: %v", err)
	}
	o, err := RemoteOptions{URL: "https://m/prefix/", WriteURL: "https://m/push"}.withDefaults()
	if err != nil || o.ReadURL != "https://m/prefix" || o.WriteURL != "https://m/push" {
		t.Errorf("%+v, %v", o, err)
	}
	if o, _ := (RemoteOptions{URL: "https://m/prefix"}).withDefaults(); o.WriteURL != "https://m/prefix/api/v1/write" {
		t.Errorf("%+v", o)
	}
}

// Each request shows who asks, whatever it is for.
func TestRemoteShowsWhoAsks(t *testing.T) {
	f := func(o RemoteOptions, header, want string) {
		t.Helper()
		var wrong atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(header) != want {
				wrong.Add(1)
			}
			w.WriteHeader(http.StatusNoContent)
		}))
		defer server.Close()
		o.URL = server.URL
		s := openRemote(t, o)
		s.Append(context.Background(), []model.Series{counterAt(1, 1, "c_total")})
		s.Instant(context.Background(), "c_total", at(1))
		s.Find(context.Background(), Lookup{What: FindLabelValues, Label: "id"})
		s.Metadata(context.Background(), "", 0)
		if n := wrong.Load(); n != 0 {
			t.Errorf("%d requests without %q", n, want)
		}
	}
	f(RemoteOptions{Token: "secret"}, "Authorization", "Bearer secret")
	f(RemoteOptions{User: "a", Password: "b"}, "Authorization", "Basic YTpi")
	f(RemoteOptions{Header: http.Header{"X-Scope-Orgid": {"shop"}}}, "X-Scope-OrgID", "shop")
}

// workload is a minute of series that begin, end and come back, from a time on.
func workload(begin time.Time) (batches [][]model.Series) {
	for i := range 61 {
		now, n := begin.Add(time.Duration(i)*time.Second), uint64(i)
		h := &model.Histogram{Count: 21 * n, SumNS: 123_456_789 * n, ZeroCount: n, OverflowCount: n, Offset: -301,
			Buckets: []uint64{5 * n, 0, 7 * n, 0, 0, 7 * n}}
		s := []model.Series{
			{Name: "c_total", Labels: labelled("id", "a"), Kind: model.Counter, Time: now, Value: 0.1 * float64(n)},
			{Name: "c_total", Labels: labelled("id", "odd \"name\"\\\n✓"), Kind: model.Counter, Time: now,
				Value: 3e9 * float64(n)},
			{Name: "g", Labels: labelled("id", "a"), Kind: model.Gauge, Time: now, Value: math.Sin(float64(n))},
			{Name: "h_seconds", Labels: labelled("id", "a"), Kind: model.HistogramSeries, Time: now, Histogram: h},
			{Name: "h_seconds", Labels: labelled("id", "lowest and highest"), Kind: model.HistogramSeries, Time: now,
				Histogram: &model.Histogram{Count: 9 * n, SumNS: 2048 * n, Offset: model.MinBucket,
					Buckets: append(append([]uint64{4 * n}, make([]uint64, model.MaxBucket-model.MinBucket-1)...), 5*n)}},
		}
		if i < 30 || i >= 45 {
			s = append(s, model.Series{Name: "g", Labels: labelled("id", "comes and goes"), Kind: model.Gauge,
				Time: now, Value: float64(n)})
		}
		if i < 30 {
			s = append(s, model.Series{Name: "h_seconds", Labels: labelled("id", "ends"), Kind: model.HistogramSeries,
				Time: now, Histogram: h})
		}
		if i >= 20 {
			s = append(s,
				model.Series{Name: "c_total", Labels: labelled("id", "new"), Kind: model.Counter, Time: now,
					Start: begin.Add(19400 * time.Millisecond), Value: 100 + float64(n)},
				model.Series{Name: "h_seconds", Labels: labelled("id", "new"), Kind: model.HistogramSeries, Time: now,
					Start: begin.Add(19400 * time.Millisecond), Histogram: h})
		}
		batches = append(batches, s)
	}
	return batches
}
