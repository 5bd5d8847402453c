package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// programsWithMetrics builds the programs of internal/appmetrics, in C and Go, and copies Python's.
func programsWithMetrics(t *testing.T) (directory string) {
	t.Helper()
	directory = t.TempDir()
	of := "../../internal/appmetrics/testdata/"
	for _, command := range [][]string{
		{"cc", "-std=gnu11", "-O2", "-pthread", "-I../../sdk/c", "-o", directory + "/worker", of + "worker.c"},
		{"go", "build", "-o", directory + "/goworker", of + "goworker/main.go"},
		{"cp", of + "worker.py", "../../sdk/python/outsight.py", directory},
	} {
		build := exec.Command(command[0], command[1:]...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, output)
		}
	}
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	return directory
}

// TestApplicationsMetrics has programs with metrics of their own in containers that know nothing of Outsight: they are
// in /metrics, in PromQL and in the API of the page, also those of processes that live for 20 ms or are killed.
func TestApplicationsMetrics(t *testing.T) {
	t.Parallel()
	o := shared(t)
	programs := programsWithMetrics(t)
	mount := []string{"-v", programs + ":/programs:ro", "-i"}
	has := func(c container, name string, labels map[string]string, want float64) {
		t.Helper()
		of := map[string]string{"name": c.name}
		for k, v := range labels {
			of[k] = v
		}
		eventually(t, func() error {
			metrics, err := o.metrics()
			if err != nil {
				return err
			}
			found := metrics.find(name, of)
			if len(found) != 1 || found[0].value != want {
				return fmt.Errorf("%s of %s is %v, want %v", name, c.name, found, want)
			}
			return nil
		})
	}

	inC := start(t, "metrics-c", mount, "/programs/worker", "count")
	inC.says("ready")
	has(inC, "app_jobs_done_total", nil, 1000)
	has(inC, "app_requests_total", map[string]string{"method": "GET", "path": `/a "b"`}, 5)
	has(inC, "app_cache_hits_total", nil, 3)
	has(inC, "app_queue_length", nil, -7)
	has(inC, "app_load", nil, -0.5)
	inGo := start(t, "metrics-go", mount, "/programs/goworker")
	inPython := start(t, "metrics-python", mount, "/usr/bin/python3", "/programs/worker.py")
	for _, c := range []container{inGo, inPython} {
		c.says("ready")
		has(c, "app_requests_total", map[string]string{"method": "GET"}, 5)
		has(c, "app_queue_length", nil, -7.5)
		has(c, "app_work_seconds_total", nil, 0.25)
	}
	has(inGo, "app_jobs_done_total", nil, 1000)
	has(inGo, "app_go_threads_at_once", nil, o.number("outsight_host_cores"))
	has(inPython, "app_jobs_done_total", nil, 1005) // its child's too, which has ended
	has(inPython, "app_python_gc_collections_total", map[string]string{"generation": "2"}, 1)

	// Processes of 20 ms, which no look each second would see.
	const brief = 20
	unread := func(metrics samples) float64 {
		return metrics.find("outsight_drops_total", map[string]string{"name": "applications/ended-unread"}).sum()
	}
	before, err := o.metrics()
	if err != nil {
		t.Fatal(err)
	}
	ephemeral := shell(t, "metrics-brief", fmt.Sprintf(
		"for i in $(seq %d); do /programs/worker brief 20000; done; echo done; sleep 3600", brief), mount...)
	ephemeral.says("done")
	read := 0.0
	eventually(t, func() error {
		metrics, err := o.metrics()
		if err != nil {
			return err
		}
		jobs := metrics.find("app_jobs_done_total", map[string]string{"name": ephemeral.name}).sum()
		missed := unread(metrics) - unread(before)
		if read = jobs / 7; read+missed != brief || read == 0 {
			return fmt.Errorf("%v jobs were counted, and %v of %d processes not read", jobs, missed, brief)
		}
		return nil
	})

	// One that is killed while it counts: its last value stays.
	killed := shell(t, "metrics-killed", "mkfifo /tmp/in; sleep 3600 >/tmp/in & /programs/worker spin </tmp/in & spinner=$!; "+
		"sleep 2; kill -9 $spinner; wait $spinner; echo killed; sleep 3600", mount...)
	killed.says("killed")
	last := -1.0
	eventually(t, func() error {
		metrics, err := o.metrics()
		if err != nil {
			return err
		}
		before := last
		if last = metrics.find("app_jobs_done_total", map[string]string{"name": killed.name}).sum(); last != before || last == 0 {
			return fmt.Errorf("%v were counted, %v before", last, before)
		}
		return nil
	})

	eventually(t, func() error {
		found := o.query(fmt.Sprintf("app_jobs_done_total{name=%q}", ephemeral.name))
		if len(found) != 1 || found[0].value != 7*read {
			return fmt.Errorf("PromQL has %v", found)
		}
		return nil
	})
	eventually(t, func() error { return o.showsLoad(inC) })
}

// showsLoad is an error until the page's API has the gauge of a worker in C, with what the program says of it.
func (o *outsight) showsLoad(of container) error {
	response, err := client.Get("http://" + o.address + "/api/outsight/labelled?metrics=container_application&node=" +
		url.QueryEscape(of.id))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Rows []struct {
			Labels map[string]string
			Value  float64
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	for _, row := range answer.Rows {
		if row.Labels["metric"] == "app_load" && row.Value == -0.5 && strings.HasPrefix(row.Labels["help"], "Load") {
			return nil
		}
	}
	return fmt.Errorf("the page's API has %+v", answer.Rows)
}
