package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// bounded checks that the agent has kept within its memory and still does its work.
func bounded(t *testing.T, o *outsight) {
	t.Helper()
	const most = 400 << 20 // of the whole product, store included
	if rss := o.number("max_over_time(outsight_agent_resident_memory_bytes[2m])"); rss > most {
		t.Errorf("%.0f MiB resident, want at most %d", rss/(1<<20), most>>20)
	}
	if found := o.query("outsight_drops_total"); len(found) == 0 {
		t.Error("no series tells of what found no room")
	}
	after := shell(t, "after-storm", "sleep 3600")
	eventually(t, 20*time.Second, func() error {
		if len(o.query(fmt.Sprintf("container_cpu_usage_seconds_total{name=%q}", after.name))) != 1 {
			return fmt.Errorf("a container started after the storm is not known")
		}
		return nil
	})
}

// TestProcessStorm: thousands of processes per second that live for an instant are all counted.
func TestProcessStorm(t *testing.T) {
	o := up(t)
	const forks = 25000
	storm := start(t, "forks", nil, "sh", "-c", fmt.Sprintf(
		"stress-ng --fork 4 --fork-ops %d --metrics-brief --temp-path /tmp 2>&1; sleep 3600", forks))
	var made, seconds float64
	result := regexp.MustCompile(`fork +(\d+) +([\d.]+)`)
	eventually(t, time.Minute, func() error {
		found := result.FindStringSubmatch(storm.logs())
		if found == nil {
			return fmt.Errorf("the storm goes on: %s", storm.logs())
		}
		made, _ = strconv.ParseFloat(found[1], 64)
		seconds, _ = strconv.ParseFloat(found[2], 64)
		return nil
	})
	t.Logf("%.0f processes in %.1f s", made, seconds)
	selector := fmt.Sprintf("{id=%q}", storm.id)
	o.settled("container_process_exits_total" + selector)
	counted := o.number("container_process_forks_total" + selector)
	exits := o.number("container_process_exits_total" + selector)
	// The shell, the program and its workers come on top of the processes that it made.
	if counted < made || counted > made+20 {
		t.Errorf("%v forks counted, want %v and a few", counted, made)
	}
	if exits < made || exits > counted {
		t.Errorf("%v exits counted of %v processes made", exits, made)
	}
	bounded(t, o)
}

// TestConnectionStorm: a connection for each request, thousands of them per second.
func TestConnectionStorm(t *testing.T) {
	const clients, requestsEach = 2, 25000
	o := up(t)
	net := newNetwork(t)
	server := start(t, "storm-redis", []string{"--network", net, "--network-alias", "redis"},
		"redis-server", "--save", "", "--protected-mode", "no", "--dir", "/tmp", "--unixsocket", "/tmp/redis.sock")
	var storms []container
	for i := range clients {
		// Ports for all connections: each waits for a minute after its end.
		storms = append(storms, start(t, fmt.Sprintf("storm-%d", i),
			[]string{"--network", net, "--sysctl", "net.ipv4.ip_local_port_range=1024 65535"}, "sh", "-c",
			fmt.Sprintf("sleep 1; redis-benchmark -h redis -k 0 -c 25 -n %d -q ping; echo finished; sleep 3600", requestsEach)))
	}
	begun := time.Now()
	for _, storm := range storms {
		eventually(t, 2*time.Minute, func() error {
			if !containsLine(storm.logs(), "finished") {
				return fmt.Errorf("the storm goes on: %s", storm.logs())
			}
			return nil
		})
	}
	t.Logf("%d connections in less than %v", clients*requestsEach, time.Since(begun).Round(time.Second))

	info := server.exec("redis-cli", "-s", "/tmp/redis.sock", "info", "stats")
	received := regexp.MustCompile(`total_connections_received:(\d+)`).FindStringSubmatch(info)
	if received == nil {
		t.Fatalf("redis does not tell its connections: %s", info)
	}
	truth, _ := strconv.ParseFloat(received[1], 64)
	truth-- // this question came over the unix socket

	selector := fmt.Sprintf("{side=%q,server_id=%q}", "server", server.id)
	o.settled("outsight_edge_connections_closed_total" + selector)
	opened := o.query("outsight_edge_connections_opened_total" + selector).sum()
	closed := o.query("outsight_edge_connections_closed_total" + selector).sum()
	if truth < clients*requestsEach || opened != truth || closed != truth {
		t.Errorf("%v connections opened and %v closed at the server, redis itself counted %v", opened, closed, truth)
	}
	if edges := o.query("count by (client) (outsight_edge_connections_opened_total" + selector + ")"); len(edges) != clients {
		t.Errorf("the storm of %d clients became %d edges", clients, len(edges))
	}
	bounded(t, o)
}
