package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// TestContainerThatForwards has a container that routes between two networks. It is found while it forwards: its packets
// are counted as the kernel counts them, the time that it adds is measured, and the edge through it joins its two ends.
func TestContainerThatForwards(t *testing.T) {
	t.Parallel()
	o := shared(t)
	inside, outside := newNetwork(t), newNetwork(t)
	subnet := func(network string) string {
		return docker(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", network)
	}
	address := func(c container, network string) string {
		return docker(t, "inspect", "-f", fmt.Sprintf("{{(index .NetworkSettings.Networks %q).IPAddress}}", network), c.name)
	}
	router := shell(t, "router", "sleep 3600", "--network", inside, "--sysctl", "net.ipv4.ip_forward=1")
	docker(t, "network", "connect", outside, router.name)
	server := shell(t, "redis", fmt.Sprintf("ip route add %s via %s && exec redis-server --save '' --protected-mode no --dir /tmp",
		subnet(inside), address(router, outside)), "--network", outside, "--cap-add", "NET_ADMIN")
	eventually(t, func() error {
		if !strings.Contains(server.logs(), "eady to accept connections") {
			return fmt.Errorf("Redis is not ready: %s", server.logs())
		}
		return nil
	})
	o.knows(router)
	const pings = 2000
	asking := shell(t, "client", fmt.Sprintf("ip route add %s via %s && redis-cli -h %s -r %d -i 0.01 ping >/tmp/pongs && "+
		"grep -c PONG /tmp/pongs && echo done; sleep 3600", subnet(outside), address(router, inside), address(server, outside),
		pings), "--network", inside, "--cap-add", "NET_ADMIN")
	asking.says("done")
	asking.says(strconv.Itoa(pings))
	of := map[string]string{"name": router.name}
	var timed float64
	eventually(t, func() error {
		metrics, err := o.metrics()
		if err != nil {
			return err
		}
		want := forwarded(t, router.exec("cat", "/proc/net/snmp"))
		timed = metrics.find("container_forward_duration_seconds_count", of).sum()
		unmatched := metrics.find("container_forward_unmatched_packets_total", of).sum()
		if got := metrics.find("container_forward_packets_total", of).sum(); got != want || timed == 0 {
			return fmt.Errorf("%v packets are forwarded, want %v; %v of them are timed, %v unmatched", got, want, timed, unmatched)
		}
		// A request and its reply each pass in one packet with data. The first ones pass before the router is found.
		if timed > 2*pings || unmatched > timed/100 {
			return fmt.Errorf("%v packets are timed, and %v were not seen to leave", timed, unmatched)
		}
		return nil
	})
	node := o.nodeNumbers(router)
	for _, key := range []string{"forwarded_packets", "forward_p50", "forward_p99"} {
		if node[key] <= 0 {
			t.Errorf("the map says %v for %s", node[key], key)
		}
	}
	if node := o.nodeNumbers(server); node["forward_p50"] != 0 || node["forwarded_packets"] != 0 {
		t.Errorf("the server forwards %v", node)
	}
	checkEdges(t, o, []edge{{client: asking.name, server: server.name, port: 6379, transactions: pings,
		requestBytes: 14 * pings, responseBytes: 7 * pings}})
}

// forwarded is ForwDatagrams of IPv4 in /proc/net/snmp.
func forwarded(t *testing.T, snmp string) float64 {
	t.Helper()
	lines := strings.Split(snmp, "\n")
	for i, name := range strings.Fields(lines[0]) {
		if name == "ForwDatagrams" {
			n, err := strconv.ParseFloat(strings.Fields(lines[1])[i], 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no ForwDatagrams in %q", snmp)
	return 0
}

// nodeNumbers are what the map says that a container used.
func (o *outsight) nodeNumbers(c container) map[string]float64 {
	o.t.Helper()
	response, err := client.Get("http://" + o.address + "/api/outsight/graph?from=now-5m")
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close()
	var m struct {
		Nodes []struct {
			Name  string
			Usage map[string]float64
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&m); err != nil {
		o.t.Fatal(err)
	}
	for _, node := range m.Nodes {
		if node.Name == c.name {
			return node.Usage
		}
	}
	o.t.Fatalf("the map has no %s", c.name)
	return nil
}
