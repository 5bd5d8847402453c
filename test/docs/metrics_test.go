// Package docs keeps the pages under docs/ that tell what the code knows in step with it.
package docs

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"outsight/internal/model"
	"outsight/internal/otlp"
)

var update = flag.Bool("update", false, "write the pages instead of comparing them")

const metricsPage = "../../docs/metrics.md"

const metricsHead = `# Metrics

Every number under its stored name, which is also its name on /metrics and in PromQL, with the
OpenTelemetry name beside it. Counters only grow. Histograms are native histograms of schema 5,
whose percentiles are at most 1.1 % off, and 2.2 % where PromQL interpolates in a bucket. This page
is made from the registry of metrics in internal/model:
` + "`go test ./test/docs -update`" + ` writes it.

Labels: every series has host. Series of containers have id, name, image and runtime; series of
edges have side (the end that counted: client or server; unknown for the sum of the connections
that found no room in the edge table), client, client_id, server, server_id, service (address and
port; others where a container has more edges than its quota) and transport, and client_process and
server_process where they are known, and via where a process on the host passes the connections on, or
holds the socket for the container (dockerd, whose resolver containers ask).

In Kubernetes, series of containers have namespace, pod, container, workload and workload_kind besides;
series of edges have the same for each end (client_namespace, server_pod and so on), service_namespace
and service_name where the address that is dialled is a service's, and client_node or server_node for
an end on another host ([Kubernetes](kubernetes.md)).

Disks: container_fs_* are what the control group's files tell, summed over devices. container_disk_* are counted
by kernel programs at requests, with device ("sda", "dm-0"; others for what is past 16 of a container) and direction (read,
write, discard, flush). A device that lies on another is counted at both. With cgroup v1 what the page cache
writes later is the host's, with v2 the container's. container_vfs_* are system calls, whatever they read: files, also
from the page cache, pipes, sockets. container_fsync_duration_seconds has type (fsync, fdatasync), of files on ext4.

`

// TestMetricsPage compares docs/metrics.md with the table of metrics.
func TestMetricsPage(t *testing.T) { compare(t, metricsPage, metricsText(t)) }

// kinds are what the page calls the kinds of series.
var kinds = map[model.SeriesKind]string{model.Counter: "counter", model.Gauge: "gauge",
	model.HistogramSeries: "histogram"}

// metricsText is docs/metrics.md.
func metricsText(t *testing.T) string {
	var page strings.Builder
	page.WriteString(metricsHead + "| stored name | kind | unit | OpenTelemetry name | what it is |\n|---|---|---|---|---|\n")
	for _, m := range otlp.Metrics() {
		kind := kinds[m.Kind]
		if kind == "" {
			t.Errorf("metric %s has kind %d, which the page cannot name", m.Name, m.Kind)
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s | `%s` | %s |\n", m.Name, kind, m.Unit, m.OTel, m.Help)
	}
	return page.String()
}

// compare holds a generated file against what it should be, or writes it.
func compare(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(stored) != want {
		t.Errorf("%s is not what the registry says; go test ./test/docs -update writes it", file)
	}
}
