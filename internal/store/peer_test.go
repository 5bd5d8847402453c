package store

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"outsight/internal/model"
)

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
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
		log.Close()
	})
	url = "http://" + address
	waitFor(t, name+" is ready", func() error {
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

func waitFor(t testing.TB, what string, done func() error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting until %s: %v", what, err)
		}
	}
}

func startPrometheus(t testing.TB, flags ...string) string {
	return startPeer(t, "prometheus", func(address, dir string) []string {
		config := filepath.Join(dir, "prometheus.yml")
		if err := os.WriteFile(config, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return append([]string{"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + address,
			"--web.enable-remote-write-receiver", "--enable-feature=native-histograms", "--log.level=warn"}, flags...)
	}, "/-/ready")
}

func startVictoria(t testing.TB) string {
	return startPeer(t, "victoria-metrics", func(address, dir string) []string {
		return []string{"-httpListenAddr=" + address, "-storageDataPath=" + filepath.Join(dir, "data"), "-loggerLevel=ERROR", "-memory.allowedBytes=100MB"}
	}, "/health")
}

func openRemote(t testing.TB, o RemoteOptions) *Remote {
	t.Helper()
	r, err := OpenRemote(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// reader is a Store or a Remote.
type reader interface {
	Append(context.Context, []model.Series) error
	Instant(context.Context, string, time.Time) ([]model.QueryResult, error)
	Range(context.Context, string, time.Time, time.Time, time.Duration) ([]model.QueryResult, error)
	Find(context.Context, Lookup) (Answer, error)
}

// sameResults compares answers, whatever their order; values to twelve digits, because a system may
// store decimal numbers.
func sameResults(got, want []model.QueryResult) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d series, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
	byLabels := map[string]model.QueryResult{}
	for _, r := range got {
		byLabels[keyOf(r.Labels, r.Labels[nameLabel])] = r
	}
	near := func(a, b float64) bool {
		return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-12*max(math.Abs(a), math.Abs(b))
	}
	for _, w := range want {
		g, ok := byLabels[keyOf(w.Labels, w.Labels[nameLabel])]
		if !ok || len(g.Points) != len(w.Points) {
			return fmt.Errorf("%v has %d points, want %d", w.Labels, len(g.Points), len(w.Points))
		}
		for i, p := range w.Points {
			q := g.Points[i]
			if !q.Time.Equal(p.Time) || !near(q.Value, p.Value) || (q.Histogram == nil) != (p.Histogram == nil) {
				return fmt.Errorf("%v: %v, want %v", w.Labels, q, p)
			}
			if h := p.Histogram; h != nil && (!near(q.Histogram.Count, h.Count) || !near(q.Histogram.Sum, h.Sum) ||
				q.Histogram.ZeroCount != h.ZeroCount || q.Histogram.Offset != h.Offset || !slices.Equal(q.Histogram.Buckets, h.Buckets)) {
				return fmt.Errorf("%v at %v: histogram %+v, want %+v", w.Labels, p.Time, q.Histogram, h)
			}
		}
	}
	return nil
}
