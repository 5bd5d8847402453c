//go:build long

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/store"
)

// The samples are on multiples of 15 s, and queries are evaluated 7 s after: releases of
// Prometheus differ in whether a sample at the very start of a range is in it, which is the only way
// in which these queries would tell release 2.42 from release 3. Left out is what differs between
// the two on purpose: percentiles of a native histogram (interpolated exponentially since
// release 3), last_over_time of one (zeros before), atan2 with a scalar (kept the name before),
// names of labels that are no identifiers (errors before), holt_winters (renamed), and functions
// that 2.42 has not got: histogram_avg, and the experiments sort_by_label, mad_over_time, limitk
// and info.
var (
	promqlEnd     = time.Unix(1_700_001_800, 0)
	promqlInstant = time.Unix(1_700_001_507, 0)
)

// promqlData is half an hour of samples, one batch each 15 s.
func promqlData() (batches [][]model.Series) {
	for i := range 121 {
		at, n := promqlEnd.Add(time.Duration(i-120)*15*time.Second), float64(i)
		var b []model.Series
		add := func(name string, kind model.SeriesKind, v float64, pairs ...string) {
			s := model.Series{Name: name, Kind: kind, Time: at, Value: v, Labels: []model.Label{{Name: "host", Value: "h"}}}
			for j := 0; j < len(pairs); j += 2 {
				s.Labels = append(s.Labels, model.Label{Name: pairs[j], Value: pairs[j+1]})
			}
			slices.SortFunc(s.Labels, func(a, b model.Label) int { return strings.Compare(a.Name, b.Name) })
			b = append(b, s)
		}
		for j, job := range []string{"web", "web", "db", "cache"} {
			for k, code := range []string{"200", "500"} {
				add("requests_total", model.Counter, n*float64(3+j*7+k)+float64(j), "job", job, "code", code,
					"instance", fmt.Sprintf("i%d:80", j))
			}
			add("native_seconds", model.HistogramSeries, 0, "job", job, "instance", fmt.Sprintf("i%d:80", j))
			u := uint64(i + 1)
			b[len(b)-1].Histogram = &model.Histogram{Count: u * uint64(6+j), SumNS: u * 7e9, ZeroCount: u,
				Offset: int32(j*16 - 32), Buckets: []uint64{2 * u, 0, u * uint64(3+j)}}
		}
		add("limit", model.Gauge, 100, "job", "web")
		add("limit", model.Gauge, 7, "job", "db")
		add("owner_info", model.Gauge, 1, "job", "web", "owner", "ann")
		add("owner_info", model.Gauge, 1, "job", "db", "owner", "bob")
		add("level", model.Gauge, 20+15*math.Sin(n/5), "id", "a")
		add("level", model.Gauge, math.Mod(n*13, 50), "id", "b", "odd", `quote"back\slash`)
		add("level", model.Gauge, 3.25, "id", "c", "odd", "ünïcode ✓")
		add("resets_total", model.Counter, math.Mod(n*5, 200), "id", "a")
		add("resets_total", model.Counter, 1e15+n, "id", "large")
		if i%20 < 13 {
			add("gaps", model.Gauge, float64(i/4), "id", "a")
		}
		if i < 100 {
			add("gaps", model.Gauge, n, "id", "ends")
		}
		add("odd_values", model.Gauge, math.NaN(), "id", "nan")
		add("odd_values", model.Gauge, math.Inf(1), "id", "inf")
		add("odd_values", model.Gauge, -1e-300, "id", "tiny")
		for j, le := range []string{"0.1", "0.5", "1", "2.5", "+Inf"} {
			add("latency_seconds_bucket", model.Counter, n*float64([]int{10, 25, 60, 90, 100}[j]), "job", "web", "le", le)
			add("latency_seconds_bucket", model.Counter, n*float64([]int{0, 0, 1, 1, 7}[j]), "job", "db", "le", le)
		}
		add("latency_seconds_sum", model.Counter, n*77.7, "job", "web")
		add("latency_seconds_count", model.Counter, n*100, "job", "web")
		batches = append(batches, b)
	}
	return batches
}

// Our endpoint answers every query of the list as a Prometheus server does that has been written
// the same samples.
func TestPromQLIsThatOfPrometheus(t *testing.T) {
	theirs := startReceiver(t)
	remote := openPeer(t, store.RemoteOptions{URL: theirs})
	kept, err := store.Open(t.TempDir(), store.Options{Retention: 20 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	for i, batch := range promqlData() {
		if err := kept.Append(context.Background(), batch); err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
		if err := remote.Append(context.Background(), batch); err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
	}
	ours := httptest.NewServer(Prometheus(kept))
	defer ours.Close()
	list, err := os.ReadFile("testdata/promql.txt")
	if err != nil {
		t.Fatal(err)
	}
	queries, answered, failed := 0, 0, 0
	for query := range strings.Lines(string(list)) {
		query = strings.TrimSuffix(query, "\n")
		if query == "" || query[0] == '#' {
			continue
		}
		queries++
		for path, form := range map[string]url.Values{
			"query": {"query": {query}, "time": {fmt.Sprint(promqlInstant.Unix())}},
			"query_range": {"query": {query}, "start": {fmt.Sprint(promqlInstant.Unix() - 1200)},
				"end": {fmt.Sprint(promqlInstant.Unix() + 240)}, "step": {"60"}},
		} {
			want, got := askPrometheus(t, theirs, path, form), askPrometheus(t, ours.URL, path, form)
			if got.Status != want.Status || got.ErrorType != want.ErrorType {
				t.Errorf("%s %s: %s %s %q, want %s %s %q", path, query, got.Status, got.ErrorType, got.Error,
					want.Status, want.ErrorType, want.Error)
				continue
			}
			if want.Status != "success" {
				failed++
				continue
			}
			ordered := path == "query" && strings.HasPrefix(query, "sort")
			if err := sameData(got.Data, want.Data, ordered); err != nil {
				t.Errorf("%s %s: %v", path, query, err)
			} else if len(want.Data) > len(`{"resultType":"vector","result":[]}`) {
				answered++
			}
		}
	}
	// A list of queries without answers would prove nothing.
	if queries < 230 || answered < 380 || failed < 40 {
		t.Errorf("%d queries, %d answers, %d errors", queries, answered, failed)
	}
	t.Logf("%d queries, %d answers that are not empty, %d errors", queries, answered, failed)
}

type promqlAnswer struct {
	Status, ErrorType, Error string
	Data                     json.RawMessage
}

func askPrometheus(t *testing.T, server, path string, form url.Values) (a promqlAnswer) {
	t.Helper()
	response, err := http.PostForm(server+"/api/v1/"+path, form)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	if err != nil {
		t.Fatalf("%s %v: %v in %s", server, form, err, body)
	}
	return a
}

// sameData compares answers: numbers to twelve digits, since sums may be made in another order,
// and series in any order unless they are ordered.
func sameData(got, want json.RawMessage, ordered bool) error {
	type data struct {
		ResultType string
		Result     any
	}
	var g, w data
	if err := json.Unmarshal(got, &g); err != nil {
		return err
	}
	if err := json.Unmarshal(want, &w); err != nil {
		return err
	}
	if g.ResultType != w.ResultType {
		return fmt.Errorf("a %s, want a %s", g.ResultType, w.ResultType)
	}
	if !ordered && g.ResultType != "scalar" && g.ResultType != "string" {
		for _, d := range []*data{&g, &w} {
			slices.SortFunc(d.Result.([]any), func(a, b any) int {
				x, _ := json.Marshal(a.(map[string]any)["metric"])
				y, _ := json.Marshal(b.(map[string]any)["metric"])
				return strings.Compare(string(x), string(y))
			})
		}
	}
	return sameValue("", g.Result, w.Result)
}

func sameValue(path string, got, want any) error {
	switch w := want.(type) {
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return fmt.Errorf("%s has %d, want %d:\n got %v\nwant %v", path, len(g), len(w), got, want)
		}
		for i := range w {
			if err := sameValue(fmt.Sprintf("%s/%d", path, i), g[i], w[i]); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		g, _ := got.(map[string]any)
		if len(g) != len(w) {
			return fmt.Errorf("%s is %v, want %v", path, got, want)
		}
		for k := range w {
			if err := sameValue(path+"/"+k, g[k], w[k]); err != nil {
				return err
			}
		}
		return nil
	case string:
		g, _ := got.(string)
		x, errX := strconv.ParseFloat(g, 64)
		y, errY := strconv.ParseFloat(w, 64)
		if errX == nil && errY == nil && (math.Abs(x-y) <= 1e-12*max(math.Abs(x), math.Abs(y)) || math.Abs(x-y) < 1e-14) {
			return nil
		}
	}
	if got != want {
		return fmt.Errorf("%s is %v, want %v", path, got, want)
	}
	return nil
}
