package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRemoteStore: series go to a Prometheus server instead of the directory and are queried there, also by another
// process, by who has the token.
func TestRemoteStore(t *testing.T) {
	t.Parallel()
	c := shell(t, "remote-store", "while :; do :; done")
	address, dir := freePort(t), t.TempDir()
	startPrometheus(t, address, dir)
	data := t.TempDir()
	o := upAt(t, freePort(t), data, "--store", "http://"+address)

	tokens := filepath.Join(dir, "tokens")
	const token = "0123456789abcdef"
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := freePort(t)
	server := exec.Command(outsightBinary, "server", "--listen", other, "--store", "http://"+address, "--token-file",
		tokens,
		"--data", t.TempDir(), "--otlp", "", "--otlp-http", "")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(os.Interrupt)
		if err := server.Wait(); err != nil {
			t.Errorf("outsight server ended with %v", err)
		}
	})
	cores := func(address, token string) (value string, err error) {
		expression := fmt.Sprintf("rate(container_cpu_usage_seconds_total{name=%q}[10s]) > 0.05", c.name)
		request, err := http.NewRequest(http.MethodGet, "http://"+address+"/api/v1/query?query="+
			url.QueryEscape(expression), nil)
		if err != nil {
			return "", err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return "", errors.New(response.Status)
		}
		text, err := io.ReadAll(response.Body)
		return string(text), err
	}
	for _, from := range []struct{ address, token string }{{o.address, ""}, {other, token}} {
		eventually(t, func() error {
			found, err := cores(from.address, from.token)
			if err == nil && !strings.Contains(found, c.name) {
				err = fmt.Errorf("the container that spins uses no 0.05 cores: %s", found)
			}
			return err
		})
	}
	if _, err := cores(other, ""); err == nil || err.Error() != "401 Unauthorized" {
		t.Errorf("without a token: %v", err)
	}
	if _, err := os.Stat(filepath.Join(data, "wal")); !os.IsNotExist(err) {
		t.Errorf("there is a store in the directory all the same: %v", err)
	}
}

// startPrometheus starts a Prometheus server that takes remote write and ends with the test.
func startPrometheus(t *testing.T, address, dir string) {
	t.Helper()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	prometheus := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+address,
		"--web.enable-remote-write-receiver", "--enable-feature=native-histograms", "--log.level=error")
	if err := prometheus.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		prometheus.Process.Kill()
		prometheus.Wait()
	})
}

// TestQueueBeforeARemoteStore: what a server has taken waits while the store elsewhere is away, and is in it
// when it comes; nothing is set aside.
func TestQueueBeforeARemoteStore(t *testing.T) {
	t.Parallel()
	page, otlp := freePort(t), freePort(t)
	away, err := net.Listen("tcp", "127.0.0.1:0") // where the store will be
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	address := away.Addr().String()
	server := exec.Command(outsightBinary, "server", "--listen", page, "--otlp", "", "--otlp-http", otlp, "--data",
		t.TempDir(),
		"--store", "http://"+address, "--store-retry", "1s")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(os.Interrupt)
		if err := server.Wait(); err != nil {
			t.Errorf("outsight server ended with %v", err)
		}
	})
	const batches = 3
	now := time.Now().Truncate(time.Second)
	for i := range batches {
		body := fmt.Sprintf(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"waiting","gauge":{"dataPoints":[{"timeUnixNano":"%d","asDouble":%d}]}}]}]}]}`,
			now.Add(time.Duration(i)*time.Second).UnixNano(), i)
		eventually(t, func() error {
			response, err := client.Post("http://"+otlp+"/v1/metrics", "application/json", strings.NewReader(body))
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return errors.New(response.Status)
			}
			return nil
		})
	}
	metric := func(name string) (value string) {
		response, err := client.Get("http://" + page + "/metrics")
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, name+" "); ok {
				return strings.TrimSpace(rest)
			}
		}
		return "none in\n" + string(text)
	}
	away.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	asked, err := away.Accept()
	if err != nil {
		t.Fatalf("nobody asks the store: %v", err)
	}
	asked.Close()
	away.Close()
	startPrometheus(t, address, t.TempDir())
	eventually(t, func() error {
		response, err := client.Get(fmt.Sprintf("http://%s/api/v1/query?query=count_over_time(waiting[1m])&time=%d",
			page, now.Add(batches*time.Second).Unix()))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil && !strings.Contains(string(text), fmt.Sprintf(`"%d"]`, batches)) {
			err = fmt.Errorf("%s", text)
		}
		return err
	})
	if n := metric("outsight_ingest_poison_messages_total"); n != "0" {
		t.Errorf("%s messages were set aside", n)
	}
}
