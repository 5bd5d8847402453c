//go:build long || thanos

package store

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

// Another system that was given the same batches answers as the embedded store does: Prometheus
// with native histograms, and VictoriaMetrics with classic ones of all of their buckets.
func TestRemoteAnswersLikeTheEmbeddedStore(t *testing.T) {
	for name, start := range map[string]func() (remote *Remote, rates bool){
		"prometheus": func() (*Remote, bool) {
			return openRemote(t, RemoteOptions{URL: startPrometheus(t)}), true
		},
		"prometheus both": func() (*Remote, bool) {
			return openRemote(t, RemoteOptions{URL: startPrometheus(t), Histograms: Both, Protocol: Write1}), true
		},
		"victoria-metrics": func() (*Remote, bool) {
			return openRemote(t, RemoteOptions{URL: startVictoria(t), Histograms: Classic, BucketsPerOctave: 32}), false
		},
	} {
		t.Run(name, func(t *testing.T) {
			remote, rates := start()
			testLikeTheEmbeddedStore(t, remote, rates)
		})
	}
}

// testLikeTheEmbeddedStore gives both the same batches and asks both the same. Rates are those of Prometheus, or not
// compared; added are labels that the other system lists and no answer has.
func testLikeTheEmbeddedStore(t *testing.T, remote *Remote, rates bool, added ...string) {
	begin := time.Now().Add(-5 * time.Minute).Truncate(time.Second)
	embedded := open(t, t.TempDir(), Options{})
	for _, store := range []reader{embedded, remote} {
		for i, batch := range workload(begin) {
			if err := store.Append(context.Background(), batch); err != nil {
				t.Fatalf("batch %d: %v", i, err)
			}
		}
	}
	// The same again has no effect.
	if err := remote.Append(context.Background(), workload(begin)[60]); err != nil {
		t.Error(err)
	}
	// Some systems show what they have taken after a while.
	waitFor(t, "the last batch can be read", func() error {
		want, _ := embedded.Instant(context.Background(), "g", begin.Add(60*time.Second))
		got, err := remote.Instant(context.Background(), "g", begin.Add(60*time.Second))
		if err != nil {
			return err
		}
		return sameResults(got, want)
	})
	queries := []string{
		`{__name__=~"c_total|g|h_seconds|none"}`,
		`c_total`, `c_total[10s]`, `g{id="comes and goes"}`, `sum(c_total) + sum(g)`, `42`,
		`sum by (id) (g)`, `count({host="h",__name__="g"})`, `c_total{id="new"}[40s]`, `sum(sum_over_time(g[20s:1s]))`,
		`histogram_count(h_seconds)`, `histogram_sum(h_seconds{id="a"})`, `histogram_avg(h_seconds{id="a"})`,
		`histogram_avg(sum(h_seconds))`,
		`histogram_count(sum by (host) (h_seconds))`,
	}
	// VictoriaMetrics has rates of its own, and shows the markers of ends among raw samples.
	if rates {
		queries = append(queries, `rate(c_total[10s])`, `increase(c_total{id="new"}[2m])`,
			`histogram_count(sum(rate(h_seconds{id="a"}[10s])))`,
			`avg_over_time(g[20s:])`, `histogram_avg(rate(h_seconds{id="a"}[10s]))`, `g{id="comes and goes"}[40s]`)
	}
	ranges := []string{`c_total`, `last_over_time(g[3s])`}
	if remote.options.Histograms != Classic {
		queries = append(queries, `last_over_time({__name__=~"c_total|g|h_seconds"}[10s])`)
		ranges = append(ranges, `{__name__=~"h_seconds"}`)
	}
	compared := 0
	for _, query := range queries {
		// Not on a sample: releases of Prometheus differ in which end of a range counts.
		for _, seconds := range []float64{11.5, 15.5, 19.7, 25.5, 30.5, 44.5, 59.5} {
			at := begin.Add(time.Duration(seconds * float64(time.Second)))
			want, err := embedded.Instant(context.Background(), query, at)
			if err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			got, err := remote.Instant(context.Background(), query, at)
			if err == nil {
				err = sameResults(got, want)
			}
			if err != nil {
				t.Errorf("%s at %v: %v", query, seconds, err)
			}
			compared += len(want)
		}
	}
	if compared < 200 {
		t.Errorf("only %d series compared", compared)
	}
	for _, query := range ranges {
		want, err := embedded.Range(context.Background(), query, begin.Add(1500*time.Millisecond),
			begin.Add(58*time.Second), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		got, err := remote.Range(context.Background(), query, begin.Add(1500*time.Millisecond),
			begin.Add(58*time.Second), 5*time.Second)
		if err == nil {
			err = sameResults(got, want)
		}
		if err != nil {
			t.Errorf("range of %s: %v", query, err)
		}
	}
	for _, l := range []Lookup{
		{What: FindLabelNames, Matchers: []string{`c_total`}}, {What: FindLabelValues, Label: "id",
			Matchers: []string{`g`, `c_total`}},
		{What: FindSeries, Matchers: []string{`g{id=~"com.*"}`}}, {What: FindLabelValues, Label: "none"},
		{What: FindLabelValues, Label: "id", Matchers: []string{`{__name__="c_total"}`}, From: begin,
			To: begin.Add(time.Hour)},
	} {
		want, err := embedded.Find(context.Background(), l)
		if err != nil {
			t.Fatal(err)
		}
		got, err := remote.Find(context.Background(), l)
		list := string(got.JSON)
		for _, label := range added {
			list = strings.ReplaceAll(list, `,"`+label+`"`, "")
		}
		if err != nil || list != string(want.JSON) {
			t.Errorf("%+v: %s, %v, want %s", l, got.JSON, err, want.JSON)
		}
	}
	stats := remote.Stats()
	if want := embedded.Stats(); stats.Refused != 0 || stats.Unwritten != 0 || stats.Live != 8 || stats.Ended != 2 ||
		want.Ended != 2 || stats.WriteRetries != 0 {
		t.Errorf("got %+v, the embedded store %+v", stats, want)
	}
	if stats.Samples != 61*5+46+30+41*2+8 || stats.WriteRequests < 62 || stats.WriteRequests > 63 {
		t.Errorf("%d samples in %d requests", stats.Samples, stats.WriteRequests)
	}
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startPeer runs a program that serves at an address of its own and waits until it is ready.
func startPeer(t testing.TB, name string, arguments func(address, dir string) []string, ready string) (url string) {
	t.Helper()
	binary, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is not installed (Debian: %s)", name, name)
	}
	address, dir := freeAddress(t), t.TempDir()
	command := exec.Command(binary, arguments(address, dir)...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		command.Wait()
	}()
	t.Cleanup(func() {
		command.Process.Kill()
		<-ended
		log.Close()
	})
	running := func() {
		t.Helper()
		select {
		case <-ended:
			said, err := os.ReadFile(log.Name())
			t.Fatalf("%s ended by itself (%v): %s (%v)", name, command.ProcessState, said, err)
		default:
		}
	}
	url = "http://" + address
	waitFor(t, name+" is ready", func() error {
		running()
		response, err := http.Get(url + ready)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", response.Status)
		}
		return nil
	})
	return url
}

func startPrometheus(t testing.TB, flags ...string) string {
	return startPeer(t, "prometheus", func(address, dir string) []string {
		config := filepath.Join(dir, "prometheus.yml")
		if err := os.WriteFile(config, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return append([]string{"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(dir, "data"),
			"--web.listen-address=" + address,
			"--web.enable-remote-write-receiver", "--enable-feature=native-histograms", "--log.level=warn"}, flags...)
	}, "/-/ready")
}

func startVictoria(t testing.TB) string {
	return startPeer(t, "victoria-metrics", func(address, dir string) []string {
		return []string{"-httpListenAddr=" + address, "-storageDataPath=" + filepath.Join(dir, "data"),
			"-loggerLevel=ERROR", "-memory.allowedBytes=100MB"}
	}, "/health")
}

// reader is a Store or a Remote.
type reader interface {
	Append(context.Context, []model.Series) error
	Instant(context.Context, string, time.Time) ([]model.QueryResult, error)
	Range(context.Context, string, time.Time, time.Time, time.Duration) ([]model.QueryResult, error)
	Find(context.Context, Lookup) (Answer, error)
}
