package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"outsight/internal/model"
)

// Instant is what the other system answers, read as Store.Instant gives it.
func (r *Remote) Instant(ctx context.Context, query string, at time.Time) ([]model.QueryResult, error) {
	return r.results(ctx, Evaluation{Query: query, From: at, To: at})
}

// Range is what the other system answers, read as Store.Range gives it.
func (r *Remote) Range(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]model.QueryResult,
	error) {
	return r.results(ctx, Evaluation{Query: query, From: from, To: to, Step: step})
}

func (r *Remote) results(ctx context.Context, e Evaluation) ([]model.QueryResult, error) {
	answer, err := r.Evaluate(ctx, e)
	if err != nil {
		return nil, err
	}
	return parseResults(answer.JSON)
}

// keyOf identifies a series by its labels, under a name.
func keyOf(l map[string]string, name string) string {
	var key strings.Builder
	key.WriteString(name)
	for _, label := range slices.Sorted(maps.Keys(l)) {
		if label != nameLabel {
			key.WriteString("\x00" + label + "\x00" + l[label])
		}
	}
	return key.String()
}

type answerSeries struct {
	Metric     map[string]string `json:"metric"`
	Value      *answerPoint      `json:"value"`
	Histogram  *answerPoint      `json:"histogram"`
	Values     []answerPoint     `json:"values"`
	Histograms []answerPoint     `json:"histograms"`
}

// answerPoint is [seconds, "number" or histogram].
type answerPoint struct{ model.Point }

type answerHistogram struct {
	Count   string               `json:"count"`
	Sum     string               `json:"sum"`
	Buckets [][4]json.RawMessage `json:"buckets"`
}

func (p *answerPoint) UnmarshalJSON(text []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil || len(parts) != 2 {
		return fmt.Errorf("point %s: want a time and a value", clip(string(text)))
	}
	var seconds float64
	if err := json.Unmarshal(parts[0], &seconds); err != nil {
		return fmt.Errorf("time of a point: %w", err)
	}
	if math.Abs(seconds) > math.MaxInt64/1e6 {
		return fmt.Errorf("time of a point %g is out of range", seconds)
	}
	p.Time = time.UnixMilli(int64(math.Round(seconds * 1e3)))
	var err error
	if len(parts[1]) > 0 && parts[1][0] == '{' {
		var h answerHistogram
		if err := json.Unmarshal(parts[1], &h); err != nil {
			return fmt.Errorf("histogram: %w", err)
		}
		p.Histogram, err = h.model()
		return err
	}
	p.Value, err = number(parts[1])
	return err
}

func number(text json.RawMessage) (float64, error) {
	var v string
	if err := json.Unmarshal(text, &v); err != nil {
		return 0, fmt.Errorf("value: %w", err)
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return 0, fmt.Errorf("value %q: %w", clip(v), err)
	}
	return f, nil
}

var errBuckets = errors.New("the buckets of a histogram are not those of model.Scale")

// model is the histogram, if its buckets are those of model.Scale.
func (a *answerHistogram) model() (*model.FloatHistogram, error) {
	h := &model.FloatHistogram{}
	var err error
	if h.Count, err = strconv.ParseFloat(a.Count, 64); err != nil {
		return nil, fmt.Errorf("count of a histogram %q: %w", clip(a.Count), err)
	}
	if h.Sum, err = strconv.ParseFloat(a.Sum, 64); err != nil {
		return nil, fmt.Errorf("sum of a histogram %q: %w", clip(a.Sum), err)
	}
	first, last := int32(math.MaxInt32), int32(math.MinInt32)
	found := make(map[int32]float64, len(a.Buckets))
	for _, b := range a.Buckets {
		var part [3]float64
		for i := range part {
			if part[i], err = number(b[i+1]); err != nil {
				return nil, err
			}
		}
		low, high, n := part[0], part[1], part[2]
		if low <= 0 {
			if high > 0 {
				h.ZeroCount = n
			}
			continue // no duration is negative
		}
		i := math.Log2(high) * (1 << model.Scale)
		// The lowest bucket is shown from the end of the zero bucket on, which lies in it.
		whole := math.Abs(math.Log2(low)*(1<<model.Scale)-i+1) < 1e-6 || math.Abs(low/model.ZeroThreshold.Seconds()-1) < 1e-9
		if math.Abs(i-math.Round(i)) > 1e-6 || !whole || math.Abs(i) > maxBuckets {
			return nil, fmt.Errorf("%w: one is from %g to %g", errBuckets, low, high)
		}
		index := int32(math.Round(i))
		found[index] = n
		first, last = min(first, index), max(last, index)
	}
	if first > last || last-first > maxBuckets {
		return h, nil
	}
	h.Offset, h.Buckets = first, make([]float64, last-first+1)
	for i, n := range found {
		h.Buckets[i-first] = n
	}
	return h, nil
}

// parseResults reads the data of an answer to a query.
func parseResults(text []byte) ([]model.QueryResult, error) {
	var d answerData
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	switch d.Type {
	case "scalar":
		var p answerPoint
		if err := json.Unmarshal(d.Result, &p); err != nil {
			return nil, err
		}
		return []model.QueryResult{{Labels: map[string]string{}, Points: []model.Point{p.Point}}}, nil
	case "vector", "matrix":
	default:
		return nil, fmt.Errorf("a query that gives a %s has no series", clip(d.Type))
	}
	var all []answerSeries
	if err := json.Unmarshal(d.Result, &all); err != nil {
		return nil, err
	}
	results := make([]model.QueryResult, 0, len(all))
	for _, s := range all {
		r := model.QueryResult{Labels: s.Metric}
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		for _, p := range []*answerPoint{s.Value, s.Histogram} {
			if p != nil {
				r.Points = append(r.Points, p.Point)
			}
		}
		r.Points = append(r.Points, inOrder(s.Values, s.Histograms)...)
		results = append(results, r)
	}
	return results, nil
}

// inOrder merges numbers and histograms by their times.
func inOrder(numbers, histograms []answerPoint) []model.Point {
	merged := make([]model.Point, 0, len(numbers)+len(histograms))
	for _, h := range histograms {
		for len(numbers) > 0 && numbers[0].Time.Before(h.Time) {
			merged = append(merged, numbers[0].Point)
			numbers = numbers[1:]
		}
		merged = append(merged, h.Point)
	}
	for _, p := range numbers {
		merged = append(merged, p.Point)
	}
	return merged
}
