package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestRemoteStore: what is seen goes to a Prometheus server instead of the directory, and the page
// shows it from there, also by another process, to who has the token.
func TestRemoteStore(t *testing.T) {
	c := shell(t, "remote-store", "while :; do :; done")
	address, dir := freePort(t), t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	prometheus := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+address,
		"--web.enable-remote-write-receiver", "--enable-feature=native-histograms", "--log.level=error")
	if err := prometheus.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		prometheus.Process.Kill()
		prometheus.Wait()
	})
	data := t.TempDir()
	o := upAt(t, freePort(t), data, "--store", "http://"+address)

	tokens := filepath.Join(dir, "tokens")
	const token = "0123456789abcdef"
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := freePort(t)
	server := exec.Command(outsightBinary, "server", "--listen", other, "--store", "http://"+address, "--token-file", tokens)
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
		eventually(t, time.Minute, func() error {
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
