package store

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// scopedQueries are queries in which a selector is easily forgotten, and ones that are no queries.
var scopedQueries = []string{
	`up`, `{__name__=~".+"}`, `{tenant="b"}`, `{tenant=~".+",tenant!="a"}`, `rate(c_total[5m])`,
	`max_over_time(c_total[5m:1s])`, `c_total @ 1 offset 5m`,
	`a and on(x) b or c unless d`, `a / on(x) group_left(y) b`, `topk(scalar(k), c)`, `quantile(scalar(q), c)`,
	`count_values("tenant", c)`,
	`label_replace(a, "tenant", "$1", "x", "(.*)")`, `absent(b)`, `-a`, `(a)`, `time()`, `1`, `"text"`,
	`vector(scalar(a))`,
	`histogram_quantile(scalar(a), sum by (le) (rate(b_bucket[1m])))`, `histogram_avg(rate(h[1m]))`,
	`histogram_count(h)`, `histogram_quantile(0.9, sum(rate(h[1m])))`,
	`sum without (tenant) (a)`, `{"odd name"="x", "tenant"="b"}`, `{"quoted.metric"}`, `a[5m] smoothed`,
	`clamp(a, scalar(b), scalar(c))`, `predict_linear(a[1h:5m] @ end(), 60)`,
	`sort_by_label(a, "tenant")`, `info(a)`, `a{`, `}`, `sum(`, "", `a # b`, `a{x="\u00e9"}`, `{__name__="a\nb"}`,
	`a == bool b`, `atan2(1, 2)`, `a atan2 b`,
	`label_join(a, "x", ",", "tenant")`, `limitk(2, a)`, `a[5m] anchored`, `{__name__=~"a|b",x!~"y"}`,
	`sum(a) by (tenant)`, `rate(a[1m])[5m:]`, `a > b < c`,
}

// FuzzTranslate: whatever is asked of a remote store for a tenant, every selector of what is sent
// has the tenant's matcher, and it is still a query of the same type.
func FuzzTranslate(f *testing.F) {
	for _, q := range scopedQueries {
		for form := range uint8(3) {
			f.Add(q, "a", form)
		}
	}
	f.Add(`up`, `a" or b="`, uint8(0))
	f.Add(`up{x="\"}"}`, "\n", uint8(1))
	f.Fuzz(func(t *testing.T, query, tenant string, form uint8) {
		if len(query) > 2000 || tenant == "" || strings.ToValidUTF8(tenant, "") != tenant {
			return
		}
		r, err := OpenRemote(RemoteOptions{URL: "http://m", Histograms: []HistogramForm{Native, Classic, Both}[form%3]})
		if err != nil {
			t.Fatal(err)
		}
		before, parseErr := r.parser.ParseExpr(query)
		sent, err := r.translate(query, tenant)
		if parseErr != nil {
			if err == nil {
				t.Fatalf("%q cannot be parsed and became %q", query, sent)
			}
			return
		}
		if err != nil {
			if strings.Contains(err.Error(), "BUG") {
				t.Fatalf("%q: %v", query, err)
			}
			return
		}
		after, err := r.parser.ParseExpr(sent)
		if err != nil {
			t.Fatalf("%q became %q: %v", query, sent, err)
		}
		if before.Type() != after.Type() {
			t.Errorf("%q is a %s, %q a %s", query, before.Type(), sent, after.Type())
		}
		parser.Inspect(after, func(node parser.Node, _ []parser.Node) error {
			selector, ok := node.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			own := 0
			for _, m := range selector.LabelMatchers {
				if m.Type == labels.MatchEqual && m.Name == TenantLabel && m.Value == tenant {
					own++
				}
			}
			if own == 0 {
				t.Errorf("%q became %q, where %s has no matcher", query, sent, selector)
			}
			return nil
		})
	})
}

// What queries become for a system that has other histograms.
func TestTranslate(t *testing.T) {
	f := func(form HistogramForm, query, want string) {
		t.Helper()
		r, err := OpenRemote(RemoteOptions{URL: "http://m", Histograms: form})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.translate(query, ""); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", query, got, err, want)
		}
	}
	f(Native, `last_over_time({__name__=~"a|b"}[10s])`, `last_over_time({__name__=~"a|b"}[10s])`)
	f(Classic, `{__name__=~"a|b"}`, `{__name__=~"a|b"}`)
	f(Classic, `histogram_quantile(0.5, sum(rate(h[1m])))`,
		`histogram_quantile(0.5, sum by (le) (rate(h_bucket[1m])))`)
	f(Classic, `histogram_quantile(0.5, sum by (x) (rate(h{a="b"}[1m])))`,
		`histogram_quantile(0.5, sum by (x, le) (rate(h_bucket{a="b"}[1m])))`)
	f(Classic, `histogram_quantile(0.5, sum by (le) (rate(h_bucket[1m])))`,
		`histogram_quantile(0.5, sum by (le) (rate(h_bucket[1m])))`)
	f(Classic, `histogram_quantile(0.5, sum without (x) (rate(h[1m])))`,
		`histogram_quantile(0.5, sum without (x) (rate(h_bucket[1m])))`)
	f(Classic, `sum(histogram_count(rate(h[1m])))`, `sum((rate(h_count[1m]) + 0))`)
	f(Classic, `histogram_sum(rate(h[1m])) / 2`, `(rate(h_sum[1m]) + 0) / 2`)
	f(Classic, `histogram_avg(sum(rate(h[1m])))`, `((sum(rate(h_sum[1m]))) / (sum(rate(h_count[1m]))))`)
	f(Native, `histogram_avg(sum(rate(h[1m])))`,
		`(histogram_sum(sum(rate(h[1m]))) / histogram_count(sum(rate(h[1m]))))`)
	f(Both, `histogram_quantile(0.5, sum(rate(h[1m])))`,
		`(histogram_quantile(0.5, sum(rate(h[1m]))) or histogram_quantile(0.5, sum by (le) (rate(h_bucket[1m]))))`)
	f(Native, `max_over_time(a[5m:])`, `max_over_time(a[5m:5s])`)
	r, err := OpenRemote(RemoteOptions{URL: "http://m", Histograms: Classic})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.translate(`histogram_fraction(0, 1, h)`, ""); err == nil ||
		!strings.Contains(err.Error(), "needs native histograms") {
		t.Errorf("got %v", err)
	}
}
