package store

import (
	"cmp"
	"context"
	"slices"

	jsoniter "github.com/json-iterator/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/jsonutil"
)

// Answer is what a query gave.
type Answer struct {
	// JSON is the member "data" of an answer of Prometheus's API.
	JSON []byte
	// Warnings and Infos for the user.
	Warnings, Infos []string
}

// maxNotes bounds the warnings and the remarks of an answer.
const maxNotes = 10

func (a *Answer) annotate(query string, notes annotations.Annotations) {
	a.Warnings, a.Infos = notes.AsStrings(query, maxNotes, maxNotes)
	slices.Sort(a.Warnings)
	slices.Sort(a.Infos)
}

// Evaluate answers a query in the form of Prometheus's API, in the very bytes that a
// Prometheus server would give.
func (s *Store) Evaluate(ctx context.Context, e Evaluation) (a Answer, err error) {
	err = s.evaluate(ctx, e, func(r *promql.Result, p *allowance) error {
		notes := r.Warnings
		value, cut := limited(r.Value, e.Limit)
		if cut {
			notes.Add(errTruncated)
		}
		w := newWriter(p)
		defer w.release()
		w.value(value)
		if err := cmp.Or(w.err, w.stream.Error); err != nil {
			return err
		}
		a.JSON = w.bytes()
		a.annotate(e.Query, notes)
		return nil
	})
	return a, err
}

func limited(v parser.Value, limit int) (_ parser.Value, cut bool) {
	switch v := v.(type) {
	case promql.Vector:
		if limit > 0 && len(v) > limit {
			return v[:limit], true
		}
	case promql.Matrix:
		if limit > 0 && len(v) > limit {
			return v[:limit], true
		}
	}
	return v, false
}

// writer writes JSON; the numbers are written by Prometheus's own functions.
type writer struct {
	stream *jsoniter.Stream
	// empty is true until the array that is being written has an item.
	empty bool
	// allowance is charged for the text: charged bytes of capacity so far. err is set when it is used up.
	allowance *allowance
	charged   int
	err       error
}

func newWriter(p *allowance) *writer {
	return &writer{stream: jsoniter.ConfigCompatibleWithStandardLibrary.BorrowStream(nil), allowance: p}
}

func (w *writer) release() { jsoniter.ConfigCompatibleWithStandardLibrary.ReturnStream(w.stream) }

// largeAnswer is from when on a text is given away instead of copied.
const largeAnswer = 64 << 10

func (w *writer) bytes() []byte {
	text := w.stream.Buffer()
	if len(text) < largeAnswer {
		return slices.Clone(text)
	}
	w.stream.SetBuffer(nil)
	return text
}

func (w *writer) array() {
	w.stream.WriteArrayStart()
	w.empty = true
}

// item begins an element of an array; false if the allowance is used up.
func (w *writer) item() bool {
	if room := cap(w.stream.Buffer()); room > w.charged {
		if w.err = w.allowance.reserve(int64(room - w.charged)); w.err != nil {
			return false
		}
		w.charged = room
	}
	if !w.empty {
		w.stream.WriteMore()
	}
	w.empty = false
	return true
}

func (w *writer) endArray() {
	w.stream.WriteArrayEnd()
	w.empty = false
}

func (w *writer) string(s string) { w.stream.WriteString(s) }

func (w *writer) value(v parser.Value) {
	s := w.stream
	s.WriteObjectStart()
	s.WriteObjectField("resultType")
	s.WriteString(string(v.Type()))
	s.WriteMore()
	s.WriteObjectField("result")
	switch v := v.(type) {
	case promql.Scalar:
		w.float(v.T, v.V)
	case promql.String:
		s.WriteArrayStart()
		jsonutil.MarshalTimestamp(v.T, s)
		s.WriteMore()
		s.WriteString(v.V)
		s.WriteArrayEnd()
	case promql.Vector:
		w.array()
		for i := range v {
			if !w.item() {
				return
			}
			w.sample(&v[i])
		}
		w.endArray()
	case promql.Matrix:
		w.array()
		for i := range v {
			if !w.item() {
				return
			}
			w.series(&v[i])
		}
		w.endArray()
	}
	s.WriteObjectEnd()
}

func (w *writer) labels(l labels.Labels) {
	s := w.stream
	s.WriteObjectStart()
	first := true
	l.Range(func(l labels.Label) {
		if !first {
			s.WriteMore()
		}
		first = false
		s.WriteObjectField(l.Name)
		s.WriteString(l.Value)
	})
	s.WriteObjectEnd()
}

func (w *writer) sample(sample *promql.Sample) {
	s := w.stream
	s.WriteObjectStart()
	s.WriteObjectField("metric")
	w.labels(sample.Metric)
	s.WriteMore()
	if sample.H == nil {
		s.WriteObjectField("value")
		w.float(sample.T, sample.F)
	} else {
		s.WriteObjectField("histogram")
		w.histogram(promql.HPoint{T: sample.T, H: sample.H})
	}
	s.WriteObjectEnd()
}

func (w *writer) series(series *promql.Series) {
	s := w.stream
	s.WriteObjectStart()
	s.WriteObjectField("metric")
	w.labels(series.Metric)
	if len(series.Floats) > 0 {
		s.WriteMore()
		s.WriteObjectField("values")
		w.array()
		for _, p := range series.Floats {
			if !w.item() {
				return
			}
			w.float(p.T, p.F)
		}
		w.endArray()
	}
	if len(series.Histograms) > 0 {
		s.WriteMore()
		s.WriteObjectField("histograms")
		w.array()
		for _, p := range series.Histograms {
			if !w.item() {
				return
			}
			w.histogram(p)
		}
		w.endArray()
	}
	s.WriteObjectEnd()
}

func (w *writer) float(at int64, v float64) {
	w.stream.WriteArrayStart()
	jsonutil.MarshalTimestamp(at, w.stream)
	w.stream.WriteMore()
	jsonutil.MarshalFloat(v, w.stream)
	w.stream.WriteArrayEnd()
}

func (w *writer) histogram(p promql.HPoint) {
	w.stream.WriteArrayStart()
	jsonutil.MarshalTimestamp(p.T, w.stream)
	w.stream.WriteMore()
	jsonutil.MarshalHistogram(p.H, w.stream)
	w.stream.WriteArrayEnd()
}
