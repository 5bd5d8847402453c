package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"outsight/internal/model"
)

// repeat nests a query n times in a format.
func repeat(format, inner string, n int) string {
	for range n {
		inner = fmt.Sprintf(format, inner)
	}
	return inner
}

// A small text must not build much. None of these may begin: each takes gigabytes, or ends the process, once it runs.
func TestQueriesThatBuildMuch(t *testing.T) {
	s := open(t, t.TempDir(), Options{QueryBounds: QueryBounds{Memory: 64 << 20}})
	terms := make([]string, 600)
	for i := range terms {
		terms[i] = fmt.Sprintf(`label_replace(vector(1),"a","%dx","","")`, i)
	}
	f := func(query string, want error) {
		t.Helper()
		if _, err := s.Evaluate(t.Context(), Evaluation{Query: query, From: at(10), To: at(10)}); !errors.Is(err, want) {
			t.Errorf("%.100s: %v, want %v", query, err, want)
		}
	}
	or := strings.Join(terms, " or ")
	f(repeat(`label_join(%s,"a","","a","a")`, or, 20), ErrBadQuery)
	f(repeat(`label_join(%s,"a","","a","a")`, or, 16), ErrExecution) // 600 labels of less than 1 MiB
	f(repeat(`label_replace(%s,"a","$1$1","a","(.*)")`, or, 20), ErrBadQuery)
	f(repeat(`label_join(%s,"a","","a","a","a")`, `absent(x{a="`+strings.Repeat("x", 1000)+`"})`, 10), ErrBadQuery)
	f(repeat(`label_join(%s,"a","","a","a")`, `label_replace(minute(),"a","x","","")`, 22), ErrBadQuery)
	f(repeat(`label_join(%s,"a","","a","a")`, `count_values("a", vector(1))`, 14), ErrBadQuery)
	f(repeat(`label_join(%s,"a","","a","a")`, `sum by (a) (label_replace(vector(1),"a","x","",""))`, 22), ErrBadQuery)
	f(`max_over_time(vector(1)[30d:1ms])`, ErrBadQuery)
	f(`count_over_time(vector(1)[100y:1ms])`, ErrBadQuery)
	f(`max_over_time(max_over_time(vector(1)[1d:1s])[290y:1s])`, ErrBadQuery)
	f(`x{a=~"`+strings.Repeat("a{1000}", 4000)+`"}`, ErrBadQuery)
	f(repeat(`label_replace(%s,"a","","b","(a{500}){2}")`, "vector(1)", 100), ErrBadQuery)
	f(strings.Repeat("(", 16000)+"1"+strings.Repeat(")", 16000), ErrBadQuery)
	f(strings.Repeat("-(", 10000)+"1"+strings.Repeat(")", 10000), ErrBadQuery)
	f("1"+strings.Repeat("+1", 16000), ErrBadQuery)
	f(strings.Repeat(" ", MaxQueryBytes)+"1", ErrBadQuery)
	for _, what := range []What{FindSeries, FindLabelNames, FindLabelValues} {
		l := Lookup{What: what, Label: "a", Matchers: []string{`x{a=~"` + strings.Repeat("a{1000}", 1000) + `"}`}}
		if _, err := s.Find(t.Context(), l); !errors.Is(err, ErrBadQuery) {
			t.Errorf("series %d: %v", what, err)
		}
	}
	if _, err := s.Format(strings.Repeat("(", 16000) + "1" + strings.Repeat(")", 16000)); !errors.Is(err, ErrBadQuery) {
		t.Errorf("laying it out: %v", err)
	}
	if used := s.Stats().QueryMemory; used != 0 {
		t.Errorf("%d bytes are still held", used)
	}
	f(`label_replace(vector(1), "a", "$1-$1", "", "(.*)")`, nil)
}

// What functions make of stored labels is charged before it is made.
func TestLabelsOfManySeries(t *testing.T) {
	s := open(t, t.TempDir(), Options{QueryBounds: QueryBounds{Memory: 64 << 20}})
	batch := make([]model.Series, 2000)
	for i := range batch {
		batch[i] = counterAt(0, float64(i), "x", "u0", fmt.Sprintf("%050d", i), "host", fmt.Sprint("host", i%10))
	}
	appendAll(t, s, batch...)
	f := func(query string, step time.Duration, want error) {
		t.Helper()
		e := Evaluation{Query: query, From: at(0), To: at(0), Step: step}
		if step > 0 {
			e.To = at(3000)
		}
		if _, err := s.Evaluate(t.Context(), e); !errors.Is(err, want) {
			t.Errorf("%.150s every %v: %v, want %v", query, step, err, want)
		}
	}
	twenty := strings.Repeat("$1", 400)
	f(`label_replace(x, "z", "`+twenty+`", "u0", "(.*)")`, 0, ErrExecution)
	f(`label_join(x, "z", "", "u0"`+strings.Repeat(`, "u0"`, 400)+`)`, 0, ErrExecution)
	f(`sum by (z) (label_replace(x, "z", "`+twenty+`", "u0", "(.*)"))`, 0, ErrExecution)
	f(`label_replace(sum by (u0) (x), "z", "`+twenty+`", "u0", "(.*)")`, 0, ErrExecution)
	f(`label_replace(sum without (host) (x), "z", "`+twenty+`", "u0", "(.*)")`, 0, ErrExecution)
	one := `label_replace(sum by (host) (x), "y", "` + strings.Repeat("y", 20_000) + `", "", "")`
	f(`x * on (host) group_left (y) `+one, 0, ErrExecution)
	f(one+` * on (host) group_right (y) x`, 0, ErrExecution)
	// Room for 3001 steps of each series: 96 MB.
	f(`abs(x)`, time.Second, ErrExecution)
	f(`sum by (u0) (x)`, time.Second, ErrExecution)
	f(`sum by (u0) (label_replace(x, "u0", "$1", "u0", "(.*)"))`, time.Second, ErrExecution)
	// The same of few series is none.
	f(`abs(sum by (host) (x))`, time.Second, nil)
	f(`abs(sum without (u0) (x))`, time.Second, nil)
	f(`sum by (h) (label_replace(x, "h", "$1", "host", "host(.*)"))`, time.Second, nil)
	f(`sum without (u0) (label_join(x, "h", "-", "host", "host"))`, time.Second, nil)
	f(`label_replace(sum by (host) (x), "z", "`+twenty+`", "host", "(.*)")`, time.Second, nil)
	f(`x * on (host) group_left (y) label_replace(sum by (host) (x), "y", "$1", "host", "(.*)")`, 0, nil)
	f(`max_over_time(x[1m])`, time.Second, nil)
	if stats := s.Stats(); stats.QueriesWithoutMemory != 10 || stats.QueryMemory != 0 {
		t.Errorf("%d queries without memory, want 10; %d bytes are still held", stats.QueriesWithoutMemory, stats.QueryMemory)
	}
}

// Queries read selectors in the order in which they are charged, and give what the engine gives without a budget.
func TestChargedQueriesGiveTheSame(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for step := range 60 {
		batch := batchOf(50)
		for i := range batch {
			for j := range batch[i].Labels {
				if l := &batch[i].Labels[j]; l.Name == "host" {
					l.Value = fmt.Sprint("host", i%3)
				}
			}
		}
		advance(batch, step)
		appendAll(t, s, batch...)
	}
	for _, query := range ordinaryQueries(t) {
		for _, e := range []Evaluation{{Query: query, From: at(59), To: at(59)},
			{Query: query, From: at(10), To: at(59), Step: time.Second}} {
			got, err := s.Evaluate(t.Context(), e)
			want, wantErr := evaluateAlone(s, e)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%s: %v, want %v", query, err, wantErr)
			}
			if strings.Contains(query, "count_values") && err == nil {
				got.JSON, want = sortedBytes(got.JSON), string(sortedBytes([]byte(want))) // the engine gives them in any order
			}
			if err == nil && string(got.JSON) != want {
				t.Errorf("%s:\n%.300s\nwant\n%.300s", query, got.JSON, want)
			}
		}
	}
}

// What a query is charged covers the labels of its answer.
func TestChargesCoverLabels(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	batch := batchOf(50)
	advance(batch, 1)
	appendAll(t, s, batch...)
	const cpu = "container_cpu_usage_seconds_total"
	queries := append(ordinaryQueries(t), `label_replace(`+cpu+`, "long", "$1-$1-`+strings.Repeat("x",
		3000)+`", "id", "(.*)")`,
		`label_join(label_join(`+cpu+`, "id", "`+strings.Repeat("-",
			500)+`", "id", "image", "id"), "id", "", "id", "id", "name")`,
		cpu+` * on (host) group_left (y) label_replace(sum by (host) (`+cpu+`), "y", "`+strings.Repeat("y",
			5000)+`", "", "")`,
		`label_replace(sum by (id, name) (`+cpu+`), "name", "$1$1$1$1$1$1", "id", "(.*)")`,
		`absent(x{a="`+strings.Repeat("b", 9000)+`"})`)
	for _, query := range queries {
		expr, err := parse(s.parser, query)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		account := newBudget(&QueryBounds{Memory: 1 << 40}, full).open("", nil)
		m := &meter{allowance: allowance{account: account}}
		if m.cost, err = costOf(expr, 0, 0); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		if err := m.begin(); err != nil {
			t.Fatal(err)
		}
		q, err := s.engine.NewInstantQuery(t.Context(), metered{s.db, m}, nil, query, at(1))
		if err != nil {
			t.Fatal(err)
		}
		result := q.Exec(t.Context())
		charged, built := account.held-m.allowance.spare, int64(0)
		if v, ok := result.Value.(promql.Vector); ok {
			for _, sample := range v {
				built += int64(sample.Metric.ByteSize())
			}
		}
		if charged < built {
			t.Errorf("%.200s: labels of %d bytes, of which %d are charged", query, built, charged)
		}
		if m.next != len(m.cost.flows) {
			t.Errorf("%.200s: %d selectors were read, want %d", query, m.next, len(m.cost.flows))
		}
		q.Close()
	}
}

func sortedBytes(text []byte) []byte { return slices.Sorted(slices.Values(text)) }

// evaluateAlone asks the engine without anything between it and the data.
func evaluateAlone(s *Store, e Evaluation) (string, error) {
	var query promql.Query
	var err error
	if e.Step == 0 {
		query, err = s.engine.NewInstantQuery(context.Background(), s.db, nil, e.Query, e.From)
	} else {
		query, err = s.engine.NewRangeQuery(context.Background(), s.db, nil, e.Query, e.From, e.To, e.Step)
	}
	if err != nil {
		return "", err
	}
	defer query.Close()
	r := query.Exec(context.Background())
	if r.Err != nil {
		return "", r.Err
	}
	w := newWriter(&allowance{})
	defer w.release()
	w.value(r.Value)
	return string(w.bytes()), nil
}

var exprInJSON = regexp.MustCompile(`"expr": "((?:[^"\\]|\\.)*)"`)

// ordinaryQueries are those of the dashboards, and some of each kind of expression.
func ordinaryQueries(t testing.TB) (all []string) {
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no dashboards", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range exprInJSON.FindAllStringSubmatch(string(text), -1) {
			query := strings.NewReplacer(`\"`, `"`, `\\`, `\`, "$__rate_interval", "15s", "$__interval", "5s",
				"$__range", "1m").Replace(match[1])
			query = regexp.MustCompile(`\$\{?[a-z_]+(:[a-z]+)?\}?`).ReplaceAllString(query, ".*")
			all = append(all, query)
		}
	}
	const cpu, queue = "container_cpu_usage_seconds_total", "container_run_queue_latency_seconds"
	return append(all, cpu, "sum("+cpu+")", "sum by (host) (rate("+cpu+"[10s]))", "topk(3, "+cpu+")",
		"bottomk by (host) (1, "+cpu+")",
		`label_replace(`+cpu+`, "short", "$1", "id", "0*(.*)")`,
		`sum by (short) (label_replace(`+cpu+`, "short", "$1", "id", "0*(.)"))`,
		`label_join(`+cpu+`, "both", "/", "host", "id")`, `count_values("n", `+cpu+`)`,
		`count_values by (host) ("n", `+cpu+`)`,
		cpu+` * on (host) group_left (zone) label_replace(sum by (host) (`+cpu+`), "zone", "z$1", "host", "host(.)")`,
		cpu+" / ignoring (id) group_left sum without (id) ("+cpu+")", cpu+" and on (host) "+cpu+" > 3",
		cpu+" or vector(1)", "-"+cpu, "1 + 2 * 3",
		"time()", "vector(time())", "scalar(sum("+cpu+"))", "absent(nothing{a=\"b\"})",
		"absent_over_time(nothing[10s])", "minute()",
		"max_over_time(rate("+cpu+"[10s])[30s:5s])", "max_over_time("+cpu+"[30s:])", cpu+" offset 10s", cpu+" @ end()",
		"sum("+cpu+" @ start())",
		"histogram_quantile(0.99, sum(rate("+queue+"[10s])))", "increase("+queue+"[10s] anchored)",
		"rate("+cpu+"[10s] smoothed)",
		"sort_desc("+cpu+")", "quantile(0.5, "+cpu+")", "round("+cpu+", 0.1)", "timestamp("+cpu+")", "clamp("+cpu+", 0, 1)")
}

func BenchmarkCost(b *testing.B) {
	p := newParser()
	for b.Loop() {
		expr, err := parse(p, `histogram_quantile(0.99, sum by (host) (rate(container_run_queue_latency_seconds{host=~"a|b"}[1m])))`)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := costOf(expr, time.Hour, time.Minute); err != nil {
			b.Fatal(err)
		}
	}
}

// Whatever the text, its cost is found or refused, and the engine asks for as many selectors as were found.
func FuzzCost(f *testing.F) {
	for _, query := range ordinaryQueries(f) {
		f.Add(query)
	}
	p := newParser()
	f.Fuzz(func(t *testing.T, query string) {
		expr, err := parse(p, query)
		if err != nil {
			return
		}
		c, err := costOf(expr, time.Hour, time.Minute)
		if err != nil {
			return
		}
		selectors := len(parser.ExtractSelectors(expr))
		if len(c.flows) != selectors || c.fixed < 0 || c.times < 0 {
			t.Errorf("%d selectors, want %d; %+v", len(c.flows), selectors, c)
		}
	})
}
