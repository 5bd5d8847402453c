//go:build long

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/access"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// startPeer runs a program of Debian's that serves HTTP at an address of its own.
func startPeer(t *testing.T, name, ready string, arguments func(address, dir string) []string) (url string) {
	t.Helper()
	binary, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is not installed (Debian: %s)", name, name)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, dir := l.Addr().String(), t.TempDir()
	l.Close()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary, arguments(address, dir)...)
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
	eventually(t, name+" is ready", func() error {
		running()
		response, err := http.Get("http://" + address + ready)
		if err == nil {
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s", response.Status)
			}
		}
		return err
	})
	return "http://" + address
}

func TestNoTenantReadsAnothersSeriesElsewhere(t *testing.T) {
	t.Run("prometheus", func(t *testing.T) {
		readsItsOwnAlone(t, openPeer(t, store.RemoteOptions{URL: startReceiver(t)}))
	})
	t.Run("victoria-metrics", func(t *testing.T) {
		readsItsOwnAlone(t, openPeer(t, store.RemoteOptions{URL: startVictoria(t), Histograms: store.Classic,
			BucketsPerOctave: 1}))
	})
}

func startReceiver(t *testing.T) string {
	return startPeer(t, "prometheus", "/-/ready", func(address, dir string) []string {
		config := filepath.Join(dir, "prometheus.yml")
		if err := os.WriteFile(config, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return []string{"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(dir, "data"),
			"--web.listen-address=" + address,
			"--web.enable-remote-write-receiver",
			"--enable-feature=native-histograms,promql-at-modifier,promql-negative-offset", "--log.level=warn"}
	})
}

func startVictoria(t *testing.T) string {
	return startPeer(t, "victoria-metrics", "/health", func(address, dir string) []string {
		return []string{"-httpListenAddr=" + address, "-storageDataPath=" + filepath.Join(dir, "data"),
			"-loggerLevel=ERROR", "-memory.allowedBytes=200MB"}
	})
}

// The map from another system is the one from the embedded store: with native histograms to the
// digit; with classic ones all counts are, and percentiles keep within the error that is told.
func TestTheMapIsTheSameFromARemoteStore(t *testing.T) {
	for name, open := range map[string]func() store.RemoteOptions{
		"prometheus, native": func() store.RemoteOptions { return store.RemoteOptions{URL: startReceiver(t)} },
		"victoria-metrics, classic": func() store.RemoteOptions {
			return store.RemoteOptions{URL: startVictoria(t), Histograms: store.Classic}
		},
		"prometheus, both": func() store.RemoteOptions {
			return store.RemoteOptions{URL: startReceiver(t), Histograms: store.Both, BucketsPerOctave: 1,
				Protocol: store.Write1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			remote, err := store.OpenRemote(open())
			if err != nil {
				t.Fatal(err)
			}
			defer remote.Close()
			embedded, err := store.Open(t.TempDir(), store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer embedded.Close()
			const seconds = 24
			window := fmt.Sprintf("from=now-%ds", seconds*4/5)
			start := time.Now().Add(-10 * time.Minute).Truncate(time.Second)
			sh := newShop(start)
			for i := range seconds + 1 {
				batch := otlp.Convert(sh.at(start.Add(time.Duration(i) * time.Second)))
				for _, s := range []interface {
					Append(context.Context, []model.Series) error
				}{embedded, remote} {
					if err := s.Append(context.Background(), batch); err != nil {
						t.Fatal(err)
					}
				}
			}
			now := start.Add(seconds * time.Second)
			options := Options{Now: func() time.Time { return now }, RelativeError: remote.RelativeError()}
			want, got := New(embedded, options), New(remote, options)
			eventually(t, "the last batch can be read", func() error {
				a, err := embedded.Instant(context.Background(), "count({host!=''})", now)
				if err != nil {
					return err
				}
				b, err := remote.Instant(context.Background(),
					"count(last_over_time({host!='',__name__!~'.+_(sum|count|bucket)'}[10s]))", now)
				if err == nil && (len(b) == 0 || remote.RelativeError() == 0) {
					err = fmt.Errorf("%v, want %v", b, a)
				}
				return err
			})
			paths := []string{"graph?" + window, "graph?from=now-5m", "containers?" + window, "heatmap?" + window,
				"changes?from=now-4s",
				"path?" + window, "graph?from=now-7s&to=now-2s&by=process", "status"}
			if remote.RelativeError() > 0.02 {
				// The critical path goes by percentiles, and changes by how sure they are.
				paths = slices.DeleteFunc(paths, func(path string) bool {
					return strings.HasPrefix(path, "path") ||
						strings.HasPrefix(path, "changes")
				})
			}
			for _, path := range paths {
				var w, g any
				get200(t, want, "/api/outsight/"+path, &w)
				eventually(t, path+" is the same", func() error {
					recorder := httptest.NewRecorder()
					got.ServeHTTP(recorder, httptest.NewRequest("GET", "/api/outsight/"+path, nil))
					if recorder.Code != http.StatusOK {
						return fmt.Errorf("%d %s", recorder.Code, recorder.Body)
					}
					if err := json.Unmarshal(recorder.Body.Bytes(), &g); err != nil {
						return err
					}
					return alike("", g, w, remote.RelativeError())
				})
			}
			if n := remote.Stats(); n.Refused != 0 || n.Unwritten != 0 || n.BadAnswers != 0 || n.AnswersTooLarge != 0 {
				t.Errorf("%+v", n)
			}
		})
	}
}

// alike compares JSON: quantiles may differ by the error of both, other numbers in the last digits.
func alike(path string, got, want any, bound float64) error {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for k, v := range w {
			if err := alike(path+"/"+k, g[k], v, bound); err != nil {
				return err
			}
		}
		for k := range g {
			if _, ok := w[k]; !ok {
				return fmt.Errorf("%s/%s is too much", path, k)
			}
		}
		return nil
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return fmt.Errorf("%s: %d, want %d", path, len(g), len(w))
		}
		for i := range w {
			if err := alike(fmt.Sprintf("%s/%d", path, i), g[i], w[i], bound); err != nil {
				return err
			}
		}
		return nil
	case float64:
		g, ok := got.(float64)
		allowed := 1e-9
		if bound > 0.02 && strings.HasSuffix(path, "/network_seconds") {
			return nil // the difference of two medians, each with its error
		}
		if bound > 0.02 && quantileField(path) {
			allowed = (1+bound)*(1+bound) - 1
		}
		if !ok || math.Abs(g-w) > allowed*max(math.Abs(g), math.Abs(w)) {
			return fmt.Errorf("%s: %v, want %v", path, got, want)
		}
		return nil
	}
	if got != want {
		return fmt.Errorf("%s: %v, want %v", path, got, want)
	}
	return nil
}

// quantileField is whether a field is a quantile, or made of some.
func quantileField(path string) bool { return quantile.MatchString(path) }

var quantile = regexp.MustCompile(`(^|[/_])p[0-9]+(_max)?(/value)?$`)

// A Prometheus that has us in its configuration of remote read answers queries over our series as we do.
func TestPrometheusReadsFromUs(t *testing.T) {
	st := promStore(t)
	auth, err := access.NewAuthenticator(map[string][]string{"": {tokenA}})
	if err != nil {
		t.Fatal(err)
	}
	us := httptest.NewServer(New(Options{Prometheus: Prometheus(st), Auth: auth}))
	defer us.Close()
	them := startPeer(t, "prometheus", "/-/ready", func(address, dir string) []string {
		config := filepath.Join(dir, "prometheus.yml")
		text := fmt.Sprintf("remote_read:\n- url: %s/api/v1/read\n  read_recent: true\n  authorization: {credentials: %s}\n", us.URL, tokenA)
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return []string{"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(dir, "data"),
			"--web.listen-address=" + address,
			"--enable-feature=native-histograms", "--log.level=warn"}
	})
	// It leaves out native histograms, as all do before release 2.44.
	for _, query := range []string{`c_total{id="a"}`, `sum(rate(c_total[9s500ms]))`, `odd{id="huge"}`, `absent_total`} {
		form := url.Values{"query": {query}, "time": {fmt.Sprint(promStart.Unix() + 10)}}
		code, want := promGet(t, Prometheus(st), "query", form)
		if code != http.StatusOK || query != "absent_total" && !strings.Contains(want, `"value"`) {
			t.Fatalf("%s: we answer %d %s", query, code, want)
		}
		answer, err := http.Get(them + "/api/v1/query?" + form.Encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, query, string(got), want)
	}
}
