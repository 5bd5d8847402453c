package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPromtool lets Prometheus's own tool ask: the query API is the one that other programs speak.
func TestPromtool(t *testing.T) {
	t.Parallel()
	c := shell(t, "asked", "while sleep 1; do :; done")
	o := shared(t)
	o.knows(c)
	ask := func(arguments ...string) string {
		t.Helper()
		text, err := exec.Command("promtool", arguments...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, text)
		}
		return string(text)
	}
	server := "http://" + o.address
	for _, arguments := range [][]string{
		{"query", "instant", server, `container_cpu_usage_seconds_total{name="` + c.name + `"}`},
		{"query", "range", "--step=1s", server, `rate(container_cpu_usage_seconds_total{name="` + c.name + `"}[5s])`},
		{"query", "series", "--match", "container_cpu_usage_seconds_total", server},
		{"query", "labels", server, "name"},
	} {
		if text := ask(arguments...); !strings.Contains(text, c.name) {
			t.Errorf("promtool %s does not name the container %s:\n%s", strings.Join(arguments, " "), c.name, text)
		}
	}
	if text, err := exec.Command("promtool", "query", "instant", server, "sum(").CombinedOutput(); err == nil ||
		!strings.Contains(string(text), "parse error") {
		t.Errorf("a query that cannot be parsed: %v\n%s", err, text)
	}
}
