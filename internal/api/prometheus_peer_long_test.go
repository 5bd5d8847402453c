//go:build long

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// startPrometheus runs a Prometheus server that scrapes target into a directory of its own.
func startPrometheus(t *testing.T, target string) (address string) {
	t.Helper()
	url := startPeer(t, "prometheus", "/-/ready", func(address, dir string) []string {
		file := filepath.Join(dir, "prometheus.yml")
		config := fmt.Sprintf(`
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
- job_name: outsight
  honor_labels: true
  static_configs: [{targets: ["%s"]}]
  metric_relabel_configs: [{action: labeldrop, regex: "instance|job"}]
`, target)
		if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		return []string{"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"),
			"--web.listen-address=" + address, "--enable-feature=native-histograms", "--log.level=error"}
	})
	return strings.TrimPrefix(url, "http://")
}

// promValues is what an instant query gives, by series: numbers and histograms as they are written.
func promValues(body []byte) (map[string]any, error) {
	var answer struct {
		Data struct {
			Result []struct {
				Metric           map[string]string
				Value, Histogram []any
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%w in %s", err, body)
	}
	out := map[string]any{}
	for _, r := range answer.Data.Result {
		key, _ := json.Marshal(r.Metric)
		out[string(key)] = slices.Concat(r.Value, r.Histogram)[1]
	}
	return out, nil
}

// A Prometheus server that scrapes /metrics, and this store that is given the same snapshot,
// answer the same queries with the same series and numbers, native histograms included.
func TestPrometheusAnswersLikePrometheus(t *testing.T) {
	now := time.Now()
	h := &model.Histogram{ZeroCount: 3, OverflowCount: 2, SumNS: 1_234_567_891, Offset: -301,
		Buckets: []uint64{5, 0, 7, 0, 0, 0, 11}}
	h.Count = 3 + 2 + 5 + 7 + 11
	c := &model.Container{ID: "4f1d", Name: "odd \"name\"\\\n", Image: "shop/web:1", Runtime: model.Docker,
		Started: now.Add(-time.Hour)}
	snapshot := &model.Snapshot{
		Time: now, Host: model.Host{Name: "node", Cores: 3, MemoryBytes: 1 << 33},
		Containers: []model.ContainerSample{{Container: c, CPU: &model.CPUCounters{UsageNS: 1_234_567_890, Voluntary: 3,
			RunQueue: h}}},
		Edges: []model.Edge{{Side: model.RoleClient, Client: model.Peer{Container: c},
			Counters: model.EdgeCounters{SentBytes: 1 << 40, Latency: &model.Histogram{}}}},
	}
	agent := httptest.NewServer(otlp.Handler(func() *frame.Frame { return frame.Of(snapshot) }))
	defer agent.Close()
	theirs := startPrometheus(t, agent.Listener.Addr().String())

	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.Append(context.Background(), otlp.FromFrame(frame.Of(snapshot), otlp.SeriesOptions{})); err != nil {
		t.Fatal(err)
	}
	ours := Prometheus(st)

	ask := func(query string, at time.Time) (map[string]any, error) {
		form := url.Values{"query": {query}, "time": {fmt.Sprintf("%.3f", float64(at.UnixMilli())/1e3)}}
		response, err := http.Get("http://" + theirs + "/api/v1/query?" + form.Encode())
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return nil, err
		}
		return promValues(body)
	}
	// It has to start and to scrape once.
	deadline := time.Now().Add(60 * time.Second)
	for {
		got, err := ask(otlp.BuildInfo, time.Now())
		if err == nil && len(got) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("Prometheus has no samples: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	scraped := time.Now()
	// No histogram_quantile: its interpolation changed from linear to exponential in release 3.
	for _, query := range []string{
		`{__name__=~"container_.+|outsight_.+"}`,
		`histogram_count(container_run_queue_latency_seconds)`,
		`histogram_sum(container_run_queue_latency_seconds) / 3`,
		`sum by (name) (container_context_switches_total)`,
	} {
		want, err := ask(query, scraped)
		if err != nil {
			t.Fatal(err)
		}
		_, body := promGet(t, ours, "query", url.Values{"query": {query}, "time": {fmt.Sprint(now.Unix() + 1)}})
		got, err := promValues([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", query, got, want)
		}
	}
}
