package e2e

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
)

// TestPacketsDroppedAtFullSocketBuffer has a container that does not read what it receives. As many packets are dropped
// as the kernel says at its socket, for that reason, at its device.
func TestPacketsDroppedAtFullSocketBuffer(t *testing.T) {
	t.Parallel()
	o := shared(t)
	network := newNetwork(t)
	receiver := shell(t, "deaf", `exec perl -MSocket -e '$| = 1; socket(S, PF_INET, SOCK_DGRAM, 0) or die $!;
		setsockopt(S, SOL_SOCKET, SO_RCVBUF, 4096); bind(S, sockaddr_in(7001, INADDR_ANY)) or die $!;
		print "bound\n"; sleep 3600'`, "--network", network)
	receiver.says("bound")
	o.knows(receiver)
	address := docker(t, "inspect", "-f",
		fmt.Sprintf("{{(index .NetworkSettings.Networks %q).IPAddress}}", network), receiver.name)
	conn, err := net.Dial("udp", net.JoinHostPort(address, "7001"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const datagrams = 500
	for range datagrams {
		if _, err := conn.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	labels := map[string]string{"name": receiver.name, "reason": "SOCKET_RCVBUFF", "device": "eth0"}
	var want float64
	eventually(t, func() error {
		metrics, err := o.metrics()
		if err != nil {
			return err
		}
		want = socketDrops(t, receiver.exec("cat", "/proc/net/udp"), 7001)
		got := metrics.find("container_network_drops_total", labels).sum()
		if got != want || want == 0 {
			return fmt.Errorf("%v packets were dropped, want %v", got, want)
		}
		of := map[string]string{"name": receiver.name}
		kinds := metrics.find("container_network_drops_total", of)
		if all := metrics.find("container_network_dropped_packets_total", of).sum(); all != kinds.sum() {
			return fmt.Errorf("%v packets were dropped in all, want the sum of %v", all, kinds)
		}
		t.Logf("dropped: %v", kinds)
		return nil
	})
	if want >= datagrams {
		t.Errorf("%v of %d packets were dropped: not one has found room", want, datagrams)
	}
	query := fmt.Sprintf("sum(container_network_drops_total{name=%q,reason=\"SOCKET_RCVBUFF\"})", receiver.name)
	o.settled(query)
	if got := o.number(query); got != want {
		t.Errorf("PromQL says %v, want %v", got, want)
	}
	metrics, err := o.metrics()
	if err != nil {
		t.Fatal(err)
	}
	ofHost := map[string]string{"reason": "SOCKET_RCVBUFF", "device": "eth0"}
	if got := metrics.find("outsight_host_network_drops_total", ofHost).sum(); got < want {
		t.Errorf("of the host %v packets were dropped, want %v or more", got, want)
	}
	if got := o.nodeNumbers(receiver)["kernel_drops"]; got <= 0 {
		t.Errorf("the map says %v packets dropped per second", got)
	}
}

// socketDrops is the column of drops of a UDP socket's line in /proc/net/udp.
func socketDrops(t *testing.T, file string, port int) float64 {
	t.Helper()
	for line := range strings.Lines(file) {
		if fields := strings.Fields(line); len(fields) > 2 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no socket with port %d in %q", port, file)
	return 0
}
