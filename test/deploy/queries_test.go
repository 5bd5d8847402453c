package deploy

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"outsight/internal/store"
)

// Every query is understood by our own endpoint and gives numbers on a store that has them.
func TestQueriesGiveData(t *testing.T) {
	kept, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	const seconds = 600
	for second := 0; second <= seconds; second += 5 {
		if err := kept.Append(context.Background(), Everything(start, second)); err != nil {
			t.Fatal(err)
		}
	}
	grafana := strings.NewReplacer("$__rate_interval", "1m", "$host", ".*", "$name", ".*", "$client", ".*", "$server",
		".*")
	asked := 0
	for _, e := range expressions(t) {
		query := grafana.Replace(e.query)
		if strings.Contains(query, "$") {
			t.Errorf("%s: an unknown variable in %s", e.where, e.query)
			continue
		}
		results, err := kept.Instant(context.Background(), query, start.Add(seconds*time.Second))
		if err != nil {
			t.Errorf("%s: %s: %v", e.where, query, err)
			continue
		}
		asked++
		if len(results) == 0 && !MayBeQuiet(e.where) {
			t.Errorf("%s: %s gives nothing", e.where, query)
		}
		for _, r := range results {
			if v := r.Points[0].Value; math.IsNaN(v) || r.Points[0].Histogram != nil {
				t.Errorf("%s: %s gives %v", e.where, query, r.Points[0])
			}
		}
	}
	if asked < 50 {
		t.Errorf("only %d queries", asked)
	}
}
