package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRemoteStore: what is seen goes to a Prometheus server instead of the directory, and the page
// shows it from there, also by another process, to who has the token.
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
	names := func(address, token string) (map[string]float64, error) {
		request, err := http.NewRequest(http.MethodGet, "http://"+address+"/api/outsight/containers?from=now-10s", nil)
		if err != nil {
			return nil, err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return nil, errors.New(response.Status)
		}
		var answer struct {
			Containers []struct {
				Name  string
				Usage map[string]struct{ Value float64 }
			}
		}
		err = json.NewDecoder(response.Body).Decode(&answer)
		found := map[string]float64{}
		for _, c := range answer.Containers {
			found[c.Name] = c.Usage["cpu_cores"].Value
		}
		return found, err
	}
	for _, from := range []struct{ address, token string }{{o.address, ""}, {other, token}} {
		eventually(t, func() error {
			found, err := names(from.address, from.token)
			if err == nil && found[c.name] < 0.05 {
				err = fmt.Errorf("the container that spins uses %v cores in %v", found[c.name], found)
			}
			return err
		})
	}
	if _, err := names(other, ""); err == nil || err.Error() != "401 Unauthorized" {
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
