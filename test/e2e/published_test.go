package e2e

import (
	"fmt"
	"maps"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestPublishedPort publishes a Redis server with docker run -p and dials it on every way that
// Docker makes: translated in the kernel from the host, and through the userland proxy from the host's
// loopback, another network and the server's own. Each client's edge leads to the server itself, is
// paired, and its counts are exact at both ends.
func TestPublishedPort(t *testing.T) {
	t.Parallel()
	o := shared(t)
	own := newNetwork(t)
	other := unique("other")
	docker(t, "network", "create", "--label", ownLabel, other)
	t.Cleanup(func() { exec.Command("docker", "network", "rm", other).Run() })
	_, port, err := net.SplitHostPort(freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	server := start(t, "redis", []string{"--network", own, "-p", port + ":6379"},
		"redis-server", "--save", "", "--protected-mode", "no", "--dir", "/tmp")
	gateway := func(network string) string {
		return docker(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Gateway}}", network)
	}
	eventually(t, func() error {
		if !strings.Contains(server.logs(), "eady to accept connections") {
			return fmt.Errorf("Redis is not ready: %s", server.logs())
		}
		return nil
	})

	// A PING is 14 bytes, its reply 7.
	ways := []struct {
		name, client, host string
		pings              int
	}{
		{"the host's loopback, by the proxy", "host", "127.0.0.1", 10},
		{"an address of the host", "host", gateway(own), 20},
		{"another network, by the proxy", "neighbour", gateway(other), 30},
		{"the server's own network, by the proxy", "sibling", gateway(own), 40},
	}
	for i, way := range ways {
		arguments := []string{"-h", way.host, "-p", port, "-r", fmt.Sprint(way.pings), "ping"}
		if way.client == "host" {
			if output, err := exec.Command("redis-cli", arguments...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", way.name, err, output)
			}
			continue
		}
		network := other
		if way.client == "sibling" {
			network = own
		}
		c := shell(t, way.client, "redis-cli "+strings.Join(arguments, " ")+" && echo done; sleep 3600", "--network", network)
		c.says("done")
		ways[i].client = c.name
	}
	want := map[string]float64{}
	for _, way := range ways {
		for _, side := range []string{"client", "server"} {
			key := fmt.Sprintf("%s: %s -> %s at %s", side, way.client, server.name, net.JoinHostPort(way.host, port))
			for metric, n := range map[string]int{
				"outsight_edge_transaction_duration_seconds_count": way.pings,
				"outsight_edge_request_bytes_total":                14 * way.pings,
				"outsight_edge_response_bytes_total":               7 * way.pings,
				"outsight_edge_connections_opened_total":           1,
				"outsight_edge_connections_closed_total":           1,
				"outsight_edge_paired":                             1,
				"outsight_edge_confidence":                         3,
			} {
				want[metric+" "+key] = float64(n)
			}
		}
	}
	var got map[string]float64
	eventually(t, func() error {
		metrics, err := o.metrics()
		if err != nil {
			return err
		}
		got = map[string]float64{}
		for _, s := range metrics {
			l := s.labels
			if _, p, _ := net.SplitHostPort(l["service"]); l["server"] != server.name && p != port {
				continue
			}
			metric := l["__name__"]
			if _, asked := want[fmt.Sprintf("%s client: %s -> %s at %s", metric, ways[0].client, server.name,
				net.JoinHostPort(ways[0].host, port))]; !asked {
				continue
			}
			if l["client_process"] != "redis-cli" || l["server_process"] != "redis-server" {
				return fmt.Errorf("the processes are %q and %q: %v", l["client_process"], l["server_process"], l)
			}
			got[fmt.Sprintf("%s %s: %s -> %s at %s", metric, l["side"], l["client"], l["server"], l["service"])] += s.value
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("got\n%s\nwant\n%s", lines(got), lines(want))
		}
		return nil
	})
}

func lines(values map[string]float64) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&text, "%s %v\n", key, values[key])
	}
	return text.String()
}
