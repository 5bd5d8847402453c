package store

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"outsight/internal/model"
)

// classicSeries are the series of one classic histogram in an answer.
type classicSeries struct {
	labels     map[string]string
	sum, count []model.Point
	buckets    []classicBucket
}

type classicBucket struct {
	// index of the bucket of model.Scale with this upper bound.
	index  int32
	points []model.Point
}

// fold makes histograms of the series of classic ones. Where the same histogram is there as a
// native one, that is taken; what is no part of a histogram stays.
func fold(results []model.QueryResult) []model.QueryResult {
	groups, native := map[string]*classicSeries{}, map[string]bool{}
	var folded []model.QueryResult
	var order []string
	for _, r := range results {
		base, le, ok := bucketOf(r.Labels)
		if !ok {
			if len(r.Points) > 0 && r.Points[0].Histogram != nil {
				native[keyOf(r.Labels, r.Labels[nameLabel])] = true
			}
			continue
		}
		key := keyOf(r.Labels, base)
		g := groups[key]
		if g == nil {
			g = &classicSeries{labels: maps.Clone(r.Labels)}
			delete(g.labels, leLabel)
			g.labels[nameLabel] = base
			groups[key] = g
			order = append(order, key)
		}
		if math.IsInf(le, 1) {
			g.count = r.Points
		} else {
			g.buckets = append(g.buckets, classicBucket{int32(math.Round(math.Log2(le) * (1 << model.Scale))), r.Points})
		}
	}
	for _, r := range results {
		if _, _, ok := bucketOf(r.Labels); ok {
			continue
		}
		name := r.Labels[nameLabel]
		if base, ok := strings.CutSuffix(name, "_sum"); ok && groups[keyOf(r.Labels, base)] != nil {
			groups[keyOf(r.Labels, base)].sum = r.Points
			continue
		}
		if base, ok := strings.CutSuffix(name, "_count"); ok && groups[keyOf(r.Labels, base)] != nil {
			continue
		}
		folded = append(folded, r)
	}
	for _, key := range order {
		if g := groups[key]; !native[key] {
			folded = append(folded, g.result())
		}
	}
	return folded
}

func bucketOf(l map[string]string) (base string, le float64, ok bool) {
	base, ok = strings.CutSuffix(l[nameLabel], "_bucket")
	if !ok {
		return "", 0, false
	}
	le, err := strconv.ParseFloat(l[leLabel], 64)
	return base, le, err == nil && le > 0
}

// keyOf identifies a series by its labels without "le", under the name of its histogram.
func keyOf(l map[string]string, name string) string {
	var key strings.Builder
	key.WriteString(name)
	for _, label := range slices.Sorted(maps.Keys(l)) {
		if label != nameLabel && label != leLabel {
			key.WriteString("\x00" + label + "\x00" + l[label])
		}
	}
	return key.String()
}

func (g *classicSeries) result() model.QueryResult {
	slices.SortFunc(g.buckets, func(a, b classicBucket) int { return cmp.Compare(a.index, b.index) })
	r := model.QueryResult{Labels: g.labels}
	for _, p := range g.count {
		r.Points = append(r.Points, model.Point{Time: p.Time, Histogram: g.at(p)})
	}
	return r
}

// at is the histogram at the time of a count.
func (g *classicSeries) at(count model.Point) *model.FloatHistogram {
	h := &model.FloatHistogram{Count: count.Value, Sum: valueAt(g.sum, count.Time)}
	found := map[int32]float64{}
	first, last, seen := int32(math.MaxInt32), int32(math.MinInt32), 0.0
	put := func(i int32, n float64) {
		if n > 0 {
			found[i] = n
			first, last = min(first, i), max(last, i)
		}
	}
	for k, b := range g.buckets {
		n := valueAt(b.points, count.Time)
		if k == 0 {
			// The first bound is the end of the zero bucket.
			h.ZeroCount = n
		} else {
			put((g.buckets[k-1].index+b.index+1)>>1, n-seen)
		}
		seen = max(seen, n)
	}
	put(model.MaxBucket+1, count.Value-seen)
	if first > last || last-first > maxBuckets {
		return h
	}
	h.Offset, h.Buckets = first, make([]float64, last-first+1)
	for i, n := range found {
		h.Buckets[i-first] = n
	}
	return h
}

func valueAt(points []model.Point, at time.Time) float64 {
	i, ok := slices.BinarySearchFunc(points, at, func(p model.Point, at time.Time) int { return p.Time.Compare(at) })
	if !ok {
		return 0
	}
	return points[i].Value
}
