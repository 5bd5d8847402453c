package otlp

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"

	ours "outsight/internal/model"

	"outsight/internal/frame"
)

func parseText(t testing.TB, body []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, body)
	}
	return families
}

func parseProtobuf(t testing.TB, body []byte) map[string]*dto.MetricFamily {
	t.Helper()
	families := map[string]*dto.MetricFamily{}
	decoder := expfmt.NewDecoder(bytes.NewReader(body), expfmt.NewFormat(expfmt.TypeProtoDelim))
	for {
		var f dto.MetricFamily
		err := decoder.Decode(&f)
		if errors.Is(err, io.EOF) {
			return families
		}
		if err != nil {
			t.Fatal(err)
		}
		families[f.GetName()] = &f
	}
}

// seriesOf turns what a scraper understood back into values by series.
func seriesOf(families map[string]*dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			s := ours.Series{Name: name}
			for _, l := range m.Label {
				s.Labels = append(s.Labels, ours.Label{Name: l.GetName(), Value: l.GetValue()})
			}
			switch {
			case m.Counter != nil:
				out[render(s)] = m.Counter.GetValue()
			case m.Gauge != nil:
				out[render(s)] = m.Gauge.GetValue()
			case m.Histogram != nil:
				out[render(s)] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return out
}

func compare(t *testing.T, got, want map[string]float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("got %d series, want %d", len(got), len(want))
	}
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Errorf("%s: got %v (there: %t), want %v", k, g, ok, v)
		}
	}
}

// computedSeries has two series of each metric that a server computes, in order of their names.
func computedSeries() (all []ours.Series) {
	for _, m := range ours.ComputedMetrics {
		for i, name := range []string{"cart", "web"} {
			all = append(all, ours.Series{Name: m.Name, Kind: m.Kind, Value: float64(i) + 0.5,
				Labels: ours.SortedLabels(ours.NewLabel(LabelHost, "a"), ours.NewLabel(LabelName, name))})
		}
	}
	slices.SortStableFunc(all, func(a, b ours.Series) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func TestTextRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := WriteMetrics(&b, frame.Of(testSnapshot()), false, computedSeries()...); err != nil {
		t.Fatal(err)
	}
	families := parseText(t, b.Bytes())
	compare(t, seriesOf(families), values(t, append(FromFrame(frame.Of(testSnapshot()), SeriesOptions{}), computedSeries()...)))
	var alone bytes.Buffer
	if err := WriteComputed(&alone, computedSeries()); err != nil || !bytes.HasSuffix(b.Bytes(), alone.Bytes()) || alone.Len() == 0 {
		t.Errorf("alone they are %s, %v", &alone, err)
	}
	for _, m := range Metrics() {
		f := families[m.Name]
		want := map[ours.SeriesKind]dto.MetricType{ours.Counter: dto.MetricType_COUNTER,
			ours.Gauge: dto.MetricType_GAUGE, ours.HistogramSeries: dto.MetricType_HISTOGRAM}[m.Kind]
		if f.GetHelp() != m.Help || f.GetType() != want {
			t.Errorf("%s: got help %q type %v, want %q %v", m.Name, f.GetHelp(), f.GetType(), m.Help, want)
		}
	}
	checkClassic(t, families[EdgeTransactionDuration].Metric[0].Histogram)
}

// What was never measured is no family: one without series would be said to be 0, or untyped.
func TestTextWithoutMeasurements(t *testing.T) {
	s := testSnapshot()
	for i := range s.Edges {
		s.Edges[i].Counters = ours.EdgeCounters{SentBytes: 1}
	}
	var b bytes.Buffer
	if err := WriteMetrics(&b, frame.Of(s), false); err != nil {
		t.Fatal(err)
	}
	families := parseText(t, b.Bytes())
	compare(t, seriesOf(families), values(t, FromFrame(frame.Of(s), SeriesOptions{})))
	for _, name := range []string{EdgeRoundTripMin, EdgeTransactionDuration, EdgeFirstByte, EdgeRoundTrip,
		EdgeConnectionDuration} {
		if strings.Contains(b.String(), name) {
			t.Errorf("%s is there", name)
		}
	}
	if families[EdgeTransactions].GetType() != dto.MetricType_COUNTER {
		t.Errorf("%s: got type %v", EdgeTransactions, families[EdgeTransactions].GetType())
	}
}

// checkClassic compares classic buckets of testHistogram with the bounds worked out by hand: it
// has 2 in the zero bucket, 1 past the end, and at each power of two from 2^-18 to 2^5 one
// duration up to it and one just above.
func checkClassic(t *testing.T, h *dto.Histogram) {
	t.Helper()
	finite := 0
	for _, b := range h.Bucket {
		if math.IsInf(b.GetUpperBound(), 1) {
			if b.GetCumulativeCount() != h.GetSampleCount() {
				t.Errorf("le=+Inf: got %d, want %d", b.GetCumulativeCount(), h.GetSampleCount())
			}
			continue
		}
		e := -19 + finite
		finite++
		want := uint64(2)
		if e >= -18 {
			want += uint64(2*(e+18) + 1)
		}
		want = min(want, 2+2*24)
		if b.GetUpperBound() != math.Pow(2, float64(e)) || b.GetCumulativeCount() != want {
			t.Errorf("got le=%v %d, want 2^%d %d", b.GetUpperBound(), b.GetCumulativeCount(), e, want)
		}
	}
	if finite != 26 || h.GetSampleSum() != 100 || h.GetSampleCount() != 2+2*24+1 {
		t.Errorf("got %d buckets, sum %v, count %d", finite, h.GetSampleSum(), h.GetSampleCount())
	}
}

func TestProtobufRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := writeProtobuf(&b, frame.Of(testSnapshot()), computedSeries()...); err != nil {
		t.Fatal(err)
	}
	families := parseProtobuf(t, b.Bytes())
	compare(t, seriesOf(families), values(t, append(FromFrame(frame.Of(testSnapshot()), SeriesOptions{}), computedSeries()...)))
	h := families[EdgeTransactionDuration].Metric[0].Histogram
	checkClassic(t, h)

	want := testHistogram()
	if h.GetSchema() != 5 || h.GetZeroThreshold() != 1.024e-6 || h.GetZeroCount() != want.ZeroCount {
		t.Errorf("got schema %d, zero bucket %d up to %v", h.GetSchema(), h.GetZeroCount(), h.GetZeroThreshold())
	}
	got := map[int32]uint64{}
	index, n, d := int32(0), int64(0), 0
	for _, s := range h.PositiveSpan {
		index += s.GetOffset()
		for range s.GetLength() {
			n += h.PositiveDelta[d]
			d++
			got[index] = uint64(n)
			index++
		}
	}
	if d != len(h.PositiveDelta) {
		t.Errorf("%d deltas for %d buckets", len(h.PositiveDelta), d)
	}
	for i, n := range want.Buckets {
		if i := want.Offset + int32(i); got[i] != n {
			t.Errorf("bucket %d: got %d, want %d", i, got[i], n)
		}
	}
	if got[ours.OverflowBucket] != want.OverflowCount {
		t.Errorf("overflow: got %d, want %d", got[ours.OverflowBucket], want.OverflowCount)
	}
	created := families[ContainerCPUUsage].Metric[0].Counter.GetCreatedTimestamp().AsTime()
	if !created.Equal(testTime.Add(-time.Minute).Truncate(time.Millisecond)) {
		t.Errorf("created: got %v", created)
	}
	empty := appendHistogram(nil, &ours.Series{Histogram: &ours.Histogram{}})
	var native dto.Histogram
	if err := proto.Unmarshal(empty, &native); err != nil || len(native.PositiveSpan) != 1 {
		t.Errorf("a native histogram without durations cannot be told from a classic one: %v, %v", &native, err)
	}
}

func TestOpenMetrics(t *testing.T) {
	var b bytes.Buffer
	if err := WriteMetrics(&b, frame.Of(testSnapshot()), true); err != nil {
		t.Fatal(err)
	}
	body := b.String()
	for _, line := range []string{
		"# TYPE container_cpu_usage_seconds counter\n",
		`outsight_host_cpu_idle_seconds_total{host="node-1"} 5` + "\n",
		`side="client",transport="tcp",le="1.0"} 39` + "\n",
		`side="client",transport="tcp",le="+Inf"} 51` + "\n",
	} {
		if !strings.Contains(body, line) {
			t.Errorf("%q is missing in:\n%s", line, body)
		}
	}
	if !strings.HasSuffix(body, "\n# EOF\n") || strings.Count(body, "# EOF") != 1 {
		t.Error("no end mark")
	}
}

// promtool reads it and finds nothing to blame in names and help texts.
func TestPromtoolAcceptsMetrics(t *testing.T) {
	var b bytes.Buffer
	if err := WriteMetrics(&b, frame.Of(testSnapshot()), false); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = &b
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatal("promtool is not installed (Debian: prometheus)")
	}
	if err != nil || len(out) != 0 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestHandlerFormats(t *testing.T) {
	server := httptest.NewServer(Handler(func() *frame.Frame { return frame.Of(testSnapshot()) }))
	defer server.Close()
	f := func(accept, want string) {
		t.Helper()
		request, _ := http.NewRequest(http.MethodGet, server.URL, nil)
		request.Header.Set("Accept", accept)
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		got, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
		if got != want || response.StatusCode != http.StatusOK {
			t.Errorf("%q: got %d %q, want %q", accept, response.StatusCode, got, want)
		}
		switch want {
		case protobufMedia:
			parseProtobuf(t, body)
		case "text/plain":
			parseText(t, body)
		}
	}
	f("", "text/plain")
	f("*/*", "text/plain")
	f("text/html,application/xhtml+xml,*/*;q=0.8", "text/plain")
	f("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", protobufMedia)
	f("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", "application/openmetrics-text")
	f("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", "text/plain")
	f("application/vnd.google.protobuf;proto=something.else;encoding=delimited", "text/plain")
	f("application/openmetrics-text;version=9.0.0", "text/plain")
	f("application/openmetrics-text;q=0, text/plain;q=0.1", "text/plain")
	f(strings.Repeat(";,=", 2000), "text/plain")
}

const protobufMedia = "application/vnd.google.protobuf"

func TestHandlerRefuses(t *testing.T) {
	f := func(h http.Handler, method string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/metrics", nil))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", method, w.Code, want)
		}
	}
	f(Handler(func() *frame.Frame { return nil }), http.MethodGet, http.StatusServiceUnavailable)
	f(Handler(func() *frame.Frame { return frame.Of(testSnapshot()) }), http.MethodPost, http.StatusMethodNotAllowed)
	f(Handler(func() *frame.Frame { return frame.Of(testSnapshot()) }), http.MethodHead, http.StatusOK)
}

// Whatever a container is called, what a scraper reads back is that name and nothing more.
func FuzzLabelValues(f *testing.F) {
	f.Add(hostile, "web:1", "a")
	f.Add("", "", "\x00")
	f.Add("\\", "\\n", "\"")
	f.Fuzz(func(t *testing.T, name, image, id string) {
		s := testSnapshot()
		c := &ours.Container{ID: "id" + id, Name: name, Image: image, Runtime: ours.Docker}
		s.Containers = []ours.ContainerSample{{Container: c, CPU: &ours.CPUCounters{UsageNS: 1}}}
		s.Edges[0].Client.Container = c
		want := values(t, FromFrame(frame.Of(s), SeriesOptions{}))
		var b bytes.Buffer
		if err := WriteMetrics(&b, frame.Of(s), false); err != nil {
			t.Fatal(err)
		}
		compare(t, seriesOf(parseText(t, b.Bytes())), want)
		b.Reset()
		if err := writeProtobuf(&b, frame.Of(s)); err != nil {
			t.Fatal(err)
		}
		compare(t, seriesOf(parseProtobuf(t, b.Bytes())), want)
	})
}

func FuzzAccept(f *testing.F) {
	f.Add("text/plain;version=0.0.4;q=0.5, */*")
	f.Fuzz(func(t *testing.T, accept string) {
		if negotiate(accept).write == nil {
			t.Error("no format")
		}
	})
}

func BenchmarkConvert(b *testing.B) {
	s := testSnapshot()
	for i := range 50 {
		c := *s.Containers[0].Container
		c.ID = string(rune('A'+i)) + "x"
		sample := s.Containers[0]
		sample.Container = &c
		s.Containers = append(s.Containers, sample)
	}
	b.ReportAllocs()
	for b.Loop() {
		FromFrame(frame.Of(s), SeriesOptions{})
	}
}
