//go:build long

package api

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"outsight/internal/access"
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
