package store

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"outsight/internal/model"
)

// A histogram that is written as a classic one and read again has its counts and sum, and
// quantiles within the error that is told.
func TestClassicHistogramsKeepTheirError(t *testing.T) {
	for perOctave := 1; perOctave <= 32; perOctave *= 2 {
		h := &model.Histogram{ZeroCount: 3, OverflowCount: 2}
		want := &model.FloatHistogram{ZeroCount: 3}
		for i := int32(model.MinBucket); i <= model.MaxBucket; i++ {
			n := uint64((i*7919)%11 + 11)
			h.Buckets = append(h.Buckets, n)
			h.Count += n
			want.Buckets = append(want.Buckets, float64(n))
		}
		h.Offset, h.Count, h.SumNS = model.MinBucket, h.Count+5, 77e9
		want.Offset, want.Count = model.MinBucket, float64(h.Count)
		r, err := OpenRemote(RemoteOptions{URL: "http://m", Histograms: Classic, BucketsPerOctave: perOctave})
		if err != nil {
			t.Fatal(err)
		}
		a := &remoteAppender{remote: r}
		a.addClassic(labels.FromStrings("__name__", "h", "id", "x", "zone", "z"), false, 0, 5000, native(h))
		if len(a.series) != len(r.bounds)+3 || perOctave == 2 && len(a.series) != 56 {
			t.Errorf("%d series with %d bounds", len(a.series), len(r.bounds))
		}
		var results []model.QueryResult
		for _, s := range a.series {
			l := map[string]string{}
			s.eachLabel(func(name, value string) { l[name] = value })
			results = append(results, model.QueryResult{Labels: l,
				Points: []model.Point{{Time: time.UnixMilli(5000), Value: s.samples[0].v}}})
		}
		folded := fold(append(results, model.QueryResult{Labels: map[string]string{"__name__": "other_count"},
			Points: []model.Point{{Value: 1}}}))
		if len(folded) != 2 || folded[0].Labels["__name__"] != "other_count" || folded[1].Labels["__name__"] != "h" ||
			folded[1].Labels["le"] != "" {
			t.Fatalf("folded %v", folded)
		}
		got := folded[1].Points[0].Histogram
		if got.Count != want.Count || got.Sum != 77 {
			t.Errorf("%d per octave: count %v, sum %v", perOctave, got.Count, got.Sum)
		}
		bound := r.RelativeError()
		for q := 0.05; q < 0.999; q += 0.01 {
			g, w := got.Quantile(q), want.Quantile(q)
			if math.Abs(g-w) > ((1+bound)*(1+model.RelativeError)-1)*w {
				t.Errorf("%d per octave, q %.2f: %g, want %g within %g", perOctave, q, g, w, bound)
			}
		}
		if got.ZeroCount != 3 || perOctave == 32 && bound != model.RelativeError {
			t.Errorf("zero bucket %v, error %v", got.ZeroCount, bound)
		}
	}
}

// A native histogram is taken before the classic one of the same series.
func TestFoldTakesTheNativeOne(t *testing.T) {
	at := time.UnixMilli(1000)
	point := func(v float64) []model.Point { return []model.Point{{Time: at, Value: v}} }
	results := fold([]model.QueryResult{
		{Labels: map[string]string{"__name__": "h"},
			Points: []model.Point{{Time: at, Histogram: &model.FloatHistogram{Count: 5}}}},
		{Labels: map[string]string{"__name__": "h_bucket", "le": "+Inf"}, Points: point(4)},
		{Labels: map[string]string{"__name__": "h_bucket", "le": "1"}, Points: point(4)},
		{Labels: map[string]string{"__name__": "h_count"}, Points: point(4)},
		{Labels: map[string]string{"__name__": "h_sum"}, Points: point(4)},
		{Labels: map[string]string{"__name__": "h_bucket", "le": "no number"}, Points: point(4)},
	})
	if len(results) != 2 || results[0].Points[0].Histogram.Count != 5 || results[1].Labels["le"] != "no number" {
		t.Errorf("got %v", results)
	}
}

// FuzzParseResults: whatever another system answers is series or an error, in bounded memory.
func FuzzParseResults(f *testing.F) {
	for _, text := range []string{
		`{"resultType":"vector","result":[{"metric":{"__name__":"a"},"value":[1.5,"2"]}]}`,
		`{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1,"2"],[2,"NaN"]],"histograms":[[1,{"count":"6","sum":"9","buckets":[[3,"-0.000001","0.000001","1"],[0,"0.9785720620876999","1","2"]]}]]}]}`,
		`{"resultType":"scalar","result":[1,"+Inf"]}`, `{"resultType":"string","result":[1,"x"]}`,
		`{"resultType":"vector","result":[{}]}`, `null`, `[]`,
		`{"resultType":"vector","result":[{"metric":{"__name__":"h_bucket","le":"1"},"value":[1,"5"]},{"metric":{"__name__":"h_bucket","le":"+Inf"},"value":[1,"3"]},{"metric":{"__name__":"h_bucket","le":"5e-324"},"value":[1,"-1"]}]}`,
		`{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"1","sum":"1","buckets":[[0,"1e300","1.1e300","1"]]}]}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		results, err := parseResults(text)
		if err != nil {
			return
		}
		for _, r := range fold(results) {
			if r.Labels == nil {
				t.Error("a series without labels")
			}
			for _, p := range r.Points {
				if p.Histogram != nil && len(p.Histogram.Buckets) > 2*maxBuckets+2 {
					t.Errorf("%d buckets", len(p.Histogram.Buckets))
				}
				p.Histogram.Quantile(0.9)
			}
		}
	})
}
