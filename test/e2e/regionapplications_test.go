package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// applicationsOf are the applications' metrics of a container, by what /metrics calls their series without the container's
// own labels.
func applicationsOf(t *testing.T, found samples, own map[string]string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, s := range found {
		if !strings.HasPrefix(s.labels["__name__"], "app_") || s.labels["name"] != own["name"] {
			continue
		}
		key := maps.Clone(s.labels)
		for label := range own {
			delete(key, label)
		}
		text, err := json.Marshal(key) // in the order of the labels
		if err != nil {
			t.Fatal(err)
		}
		all[string(text)] = s.value
	}
	return all
}

// asSamples are series as collect writes them, of a container.
func asSamples(t *testing.T, name string, of map[string]float64) (all samples) {
	t.Helper()
	for series, value := range of {
		s, err := parseSample(series + " 0")
		if err != nil {
			t.Fatal(err)
		}
		s.labels["name"], s.value = name, value
		all = append(all, s)
	}
	return all
}

// TestApplicationsFromOutside: metrics that programs in C, Go and Python define themselves are read from outside as their
// agent says them: by each transport, by a reader that was written from the document, and as series of a server that reads
// the host, whose names and labels are those of an agent that sends.
func TestApplicationsFromOutside(t *testing.T) {
	t.Parallel()
	programs := programsWithMetrics(t)
	mount := []string{"-v", programs + ":/programs:ro", "-i"}
	network := newNetwork(t)
	peer := shell(t, "outside-peer", "echo ready; sleep 3600", "--network", network)
	peer.says("ready")
	within := []string{"nsenter", "--net=/proc/" + docker(t, "inspect", "-f", "{{.State.Pid}}", peer.name) + "/ns/net"}
	path := filepath.Join(t.TempDir(), "region.sock")
	offered, listen, keys := regionsIn(t, network)
	o := up(t, append(offered, "--region-socket", path)...)
	at := freePort(t)
	pulling := running(t, at, "server", "--listen", at, "--data", t.TempDir(), "--otlp", "", "--otlp-http", freePort(t), "--promql",
		"full", "--promql-every", "1s", "--pull", listen, "--pull-key-file", keys)
	until := stream(t, path)

	all := []container{start(t, "outside-c", mount, "/programs/worker", "count"),
		start(t, "outside-go", mount, "/programs/goworker"),
		start(t, "outside-python", mount, "/usr/bin/python3", "/programs/worker.py"),
		shell(t, "outside-brief", "for i in $(seq 20); do /programs/worker brief 20000; done; echo ready; sleep 3600", mount...)}
	spinning := start(t, "outside-spin", mount, "/programs/worker", "spin")
	for _, c := range append(all, spinning) {
		c.says("ready")
	}
	for _, c := range all {
		o.knows(c)
		docker(t, "pause", c.name) // what languages tell of themselves stands still
		defer docker(t, "unpause", c.name)
	}
	ways := map[string]func() (collectedHost, error){
		"socket": func() (collectedHost, error) { return collect(t, nil, path) },
		"TCP": func() (collectedHost, error) {
			return collect(t, within, listen, "--key-file", keys, "--transport", "tcp")
		},
		"packets": func() (collectedHost, error) {
			return collect(t, within, listen, "--key-file", keys, "--transport", "kernel")
		},
	}
	least := []int{7, 8, 10, 1}
	own := func(c container) map[string]string {
		return map[string]string{"name": c.name, "id": c.id, "image": "", "runtime": "", "host": "", "workload": ""}
	}
	expect := func(what string, read func() (samples, error)) {
		t.Helper()
		eventually(t, func() error {
			metrics, err := o.metrics()
			if err != nil {
				return err
			}
			found, err := read()
			if err != nil {
				return err
			}
			for i, c := range all {
				want, got := applicationsOf(t, metrics, own(c)), applicationsOf(t, found, own(c))
				for series, n := range want {
					if _, there := got[series]; n == 0 && !there {
						delete(want, series) // what has counted nothing is no series of PromQL
					}
				}
				if !reflect.DeepEqual(got, want) || len(got) < least[i] {
					return fmt.Errorf("%s: %s has %v, want %v, %d at least", what, c.name, got, want, least[i])
				}
			}
			return nil
		})
	}
	for way, read := range ways {
		expect(way, func() (found samples, err error) {
			h, err := read()
			if err != nil || h.ApplicationsWhy != "" {
				return nil, errors.Join(err, errors.New(h.Why+h.ApplicationsWhy))
			}
			for _, c := range h.Containers {
				found = append(found, asSamples(t, c.Name, c.Applications)...)
			}
			return found, nil
		})
	}
	expect("the document's reader", func() (found samples, err error) {
		host, port, err := net.SplitHostPort(listen)
		if err != nil {
			return nil, err
		}
		text, err := exec.Command(within[0], append(within[1:], "python3", "testdata/region.py", host, port, "9",
			regionSecret)...).CombinedOutput()
		var python struct{ Applications map[string]map[string]float64 }
		if err = errors.Join(err, json.Unmarshal(text, &python)); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, text)
		}
		for name, of := range python.Applications {
			found = append(found, asSamples(t, name, of)...)
		}
		return found, nil
	})
	expect("PromQL of the server that reads", func() (samples, error) { return pulling.query(`{__name__=~"app_.*"}`), nil })
	// With all labels, those of the container among them, as of the server that is sent to.
	series := fmt.Sprintf(`{__name__=~"app_.*",name=%q}`, all[0].name)
	eventually(t, func() error {
		sent, read := map[string]float64{}, map[string]float64{}
		for into, found := range map[*map[string]float64]samples{&sent: o.query(series), &read: pulling.query(series)} {
			for _, s := range found {
				text, err := json.Marshal(s.labels)
				if err != nil {
					return err
				}
				(*into)[string(text)] = s.value
			}
		}
		if len(sent) < least[0] || !reflect.DeepEqual(sent, read) {
			return fmt.Errorf("of an agent that sends there is %v, of one that is read %v", sent, read)
		}
		return nil
	})

	eventually(t, func() error { return pulling.showsLoad(all[0]) })

	// While the agent is stopped its readers on the host read on; by packets the others are there, and why these are not.
	const done = "app_jobs_done_total"
	first := until("of the spinning one", func(h collectedHost) bool {
		c := h.container(spinning.name)
		return c != nil && c.Applications[done] > 0
	})
	before := first.container(spinning.name).Applications[done]
	if err := o.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer o.command.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
	grew := func() float64 {
		t.Helper()
		n := 0
		h := until("while the agent is stopped", func(h collectedHost) bool {
			n++
			if h.Late || h.ApplicationsWhy != "" {
				t.Fatalf("late: %s%s", h.Why, h.ApplicationsWhy)
			}
			return n == 5
		})
		return h.container(spinning.name).Applications[done]
	}
	if once := grew(); once <= before || grew() <= once {
		t.Errorf("%v jobs were done, %v before: nothing grows while the agent is stopped", once, before)
	}
	h, err := ways["packets"]()
	if err != nil || h.Transport != "kernel" || !strings.HasPrefix(h.ApplicationsWhy, "deadline") || h.container(spinning.name) == nil {
		t.Errorf("by packets: %v, %s %s, applications: %s", err, h.Transport, h.Why, h.ApplicationsWhy)
	}
	if err := o.command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// Killed while it counts: what it had counted stays, and is the same for all.
	docker(t, "kill", "-s", "STOP", spinning.name)
	last := 0.0
	until("when it is stopped", func(h collectedHost) bool {
		now := h.container(spinning.name).Applications[done]
		same := now == last
		last = now
		return same
	})
	eventually(t, func() error {
		if got := pulling.query(fmt.Sprintf("%s{name=%q}", done, spinning.name)); len(got) != 1 || got[0].value != last {
			return fmt.Errorf("the server that reads has %v, want %v", got, last)
		}
		return nil
	})
}
