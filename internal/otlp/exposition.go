package otlp

import (
	"bufio"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// Text formats have no exponential histograms, so histograms are cumulative counts at every power of two seconds in the
// range of model.Histogram. These are boundaries of its buckets too (every 32nd), so that the counts are exact, at a
// lower resolution. A scraper that asks for protobuf gets the full resolution.
const (
	minClassicExponent = -19 // 2^-19 s, 1.9 µs: the first above model.ZeroThreshold
	maxClassicExponent = 6   // 2^6 s, 64 s: the last below model.OverflowThreshold
)

// WriteMetrics writes all that f holds in Prometheus's text format 0.0.4, or in OpenMetrics
// 1.0 text, without timestamps: the scraper takes its own. After them come series that were computed, of
// model.ComputedMetrics and in order of their names. It returns the first error of w.
func WriteMetrics(w io.Writer, f *frame.Frame, openmetrics bool, computed ...model.Series) error {
	t := &text{w: bufio.NewWriterSize(w, 64<<10), openmetrics: openmetrics}
	eachFamily(f, t.family)
	eachComputed(computed, t.family)
	if openmetrics {
		t.w.WriteString("# EOF\n")
	}
	return t.w.Flush()
}

// WriteComputed writes such series alone, in Prometheus's text format 0.0.4.
func WriteComputed(w io.Writer, computed []model.Series) error {
	t := &text{w: bufio.NewWriter(w)}
	eachComputed(computed, t.family)
	return t.w.Flush()
}

// eachFamily calls each for the series of each metric of a frame, in the order of the table; those of applications follow.
func eachFamily(f *frame.Frame, each func(*Metric, []model.Series)) {
	series := FromFrame(f, SeriesOptions{})
	take := func(m *Metric) {
		n := 0
		for n < len(series) && series[n].Name == m.Name {
			n++
		}
		if n > 0 {
			each(m, series[:n])
		}
		series = series[n:]
	}
	for _, m := range Metrics() {
		take(&m)
	}
	if len(series) == 0 {
		return
	}
	helps := applicationHelps(f)
	for len(series) > 0 {
		take(&Metric{Name: series[0].Name, Kind: series[0].Kind, Help: helps[series[0].Name]})
	}
}

// eachComputed is the same for series of model.ComputedMetrics, which are in order of their names.
func eachComputed(series []model.Series, each func(*Metric, []model.Series)) {
	for _, m := range model.ComputedMetrics {
		first := slices.IndexFunc(series, func(s model.Series) bool { return s.Name == m.Name })
		if first < 0 {
			continue
		}
		n := 0
		for first+n < len(series) && series[first+n].Name == m.Name {
			n++
		}
		each(&m, series[first:first+n])
	}
}

// text writes one of the text formats. Errors stay in w until it is flushed.
type text struct {
	w           *bufio.Writer
	openmetrics bool
}

func (t *text) family(m *Metric, series []model.Series) {
	t.header(m)
	for i := range series {
		if series[i].Kind == model.HistogramSeries {
			t.histogram(&series[i])
		} else {
			t.sample(series[i].Name, series[i].Labels, "", formatFloat(series[i].Value))
		}
	}
}

func (t *text) header(m *Metric) {
	family := m.Name
	if t.openmetrics && m.Kind == model.Counter {
		// The suffix belongs to the sample there, not to the family.
		family = strings.TrimSuffix(family, "_total")
	}
	kind := "gauge"
	switch m.Kind {
	case model.Counter:
		kind = "counter"
	case model.HistogramSeries:
		kind = "histogram"
	}
	t.w.WriteString("# HELP " + family + " " + helpEscaper.Replace(m.Help) + "\n")
	t.w.WriteString("# TYPE " + family + " " + kind + "\n")
}

func (t *text) sample(name string, labels []model.Label, le, value string) {
	t.w.WriteString(name)
	separator := byte('{')
	for _, l := range labels {
		t.w.WriteByte(separator)
		t.w.WriteString(l.Name + `="`)
		valueEscaper.WriteString(t.w, l.Value)
		t.w.WriteByte('"')
		separator = ','
	}
	if le != "" {
		t.w.WriteByte(separator)
		t.w.WriteString(`le="` + le + `"`)
		separator = ','
	}
	if separator == ',' {
		t.w.WriteByte('}')
	}
	t.w.WriteString(" " + value + "\n")
}

func (t *text) histogram(s *model.Series) {
	counts, total := classicBuckets(s.Histogram)
	for i, n := range counts {
		t.sample(s.Name+"_bucket", s.Labels, t.boundary(classicBound(i)), strconv.FormatUint(n, 10))
	}
	all := strconv.FormatUint(total, 10)
	t.sample(s.Name+"_bucket", s.Labels, "+Inf", all)
	t.sample(s.Name+"_sum", s.Labels, "", formatFloat(seconds(s.Histogram.SumNS)))
	t.sample(s.Name+"_count", s.Labels, "", all)
}

// boundary is the value of the label le. OpenMetrics wants whole numbers as "1.0".
func (t *text) boundary(bound float64) string {
	le := formatFloat(bound)
	if t.openmetrics && !strings.ContainsAny(le, ".e") {
		le += ".0"
	}
	return le
}

// classicBound is the upper bound of the i-th classic bucket, in seconds.
func classicBound(i int) float64 { return math.Ldexp(1, minClassicExponent+i) }

// classicBuckets is the number of durations up to each classic boundary, and of all.
func classicBuckets(h *model.Histogram) (cumulative []uint64, total uint64) {
	cumulative = make([]uint64, 0, maxClassicExponent-minClassicExponent+1)
	seen, next := h.ZeroCount, 0
	for e := int32(minClassicExponent); e <= maxClassicExponent; e++ {
		for next < len(h.Buckets) && h.Offset+int32(next) <= e<<model.Scale {
			seen += h.Buckets[next]
			next++
		}
		cumulative = append(cumulative, seen)
	}
	for _, n := range h.Buckets[next:] {
		seen += n
	}
	return cumulative, seen + h.OverflowCount
}

func formatFloat(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

var (
	valueEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	// OpenMetrics asks for quotes to be escaped in help texts, the older format does not allow
	// it: no help text has one (a test proves it).
	helpEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)
