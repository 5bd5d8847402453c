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
	after := shell(t, "after-storm", "sleep 3600")
	eventually(t, func() error {
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
	eventually(t, func() error {
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
		storm.says("finished")
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
	if edges := o.query("count by (client) (outsight_edge_connections_opened_total" + selector +
		")"); len(edges) != clients {
		t.Errorf("the storm of %d clients became %d edges", clients, len(edges))
	}
	bounded(t, o)
}

// flood is many small services in one container, and a client of all of them in another.
const (
	floodPorts, floodRequests = 120, 3
	floodServer               = `
import selectors, socket
s = selectors.DefaultSelector()
for port in range(10000, 10000 + %d):
    s.register(socket.create_server(("", port)), selectors.EVENT_READ, True)
print("ready")
while True:
    for key, _ in s.select():
        if key.data:
            s.register(key.fileobj.accept()[0], selectors.EVENT_READ, False)
            continue
        text = key.fileobj.recv(100)
        if text:
            key.fileobj.sendall(text)
        else:
            s.unregister(key.fileobj)
            key.fileobj.close()
`
	floodClient = `
import socket, time
kept = []
for port in range(10000, 10000 + %d):
    s = socket.create_connection(("flood", port))
    for _ in range(%d):
        s.sendall(b"0123456789")
        assert s.recv(100) == b"0123456789"
    kept.append(s)
print("finished")
time.sleep(3600)
`
)

// TestEdgeTableOverflow: what finds no room in a small table is counted together, the overflow
// shows wherever somebody may look, and the edge that was there before is as exact as ever.
func TestEdgeTableOverflow(t *testing.T) {
	const most, asked = 48, 200
	o := up(t, "--max-edges", fmt.Sprint(most))
	net := newNetwork(t)
	redis := start(t, "kept-redis", []string{"--network", net, "--network-alias", "redis"},
		"redis-server", "--save", "", "--protected-mode", "no", "--dir", "/tmp")
	python := func(name, script string, options ...string) container {
		return start(t, name, append(options, "--network", net), "/usr/bin/python3", "-I", "-S", "-u", "-c", script)
	}
	// One connection before, during and after the flood.
	kept := start(t, "kept-client", []string{"--network", net}, "sh", "-c", fmt.Sprintf(
		"until redis-cli -h redis ping; do sleep 0.1; done >/dev/null 2>&1; redis-cli -h redis -r %d -i 0.05 ping >/dev/null; echo finished; sleep 3600", asked))
	eventually(t, func() error {
		if o.query(fmt.Sprintf("outsight_edge_request_bytes_total{side=%q,client_id=%q}", "server", kept.id)).sum() == 0 {
			return fmt.Errorf("the edge to be kept is not there yet")
		}
		return nil
	})
	server := python("flood-server", fmt.Sprintf(floodServer, floodPorts), "--network-alias", "flood")
	server.says("ready")
	client := python("flood-client", fmt.Sprintf(floodClient, floodPorts, floodRequests))
	client.says("finished")
	kept.says("finished")

	o.settled(fmt.Sprintf("sum(outsight_edge_request_bytes_total{client=~%q})", unique("")+".*"))
	// Both ends of each connection are either edges or in the sum of what found no room. Others of
	// this host may be in that sum, too.
	var placed float64
	for side, id := range map[string]string{"client": "client_id", "server": "server_id"} {
		of := map[string]container{"client": client, "server": server}[side]
		selector := fmt.Sprintf(`{side=%q,%s=%q,service=~".*:1\\d{4}"}`, side, id, of.id)
		opened := o.query("sum(outsight_edge_connections_opened_total" + selector + ")").sum()
		if opened > floodPorts {
			t.Errorf("%v connections opened at the %s, which knows of %d", opened, side, floodPorts)
		}
		const bytes = floodRequests * 10
		if got := o.query("sum(outsight_edge_request_bytes_total" + selector + ")").sum(); got != opened*bytes {
			t.Errorf("%v bytes of requests at the %s on %v connections, want %d on each", got, side, opened, bytes)
		}
		placed += opened
	}
	together := o.query(`sum(outsight_edge_connections_opened_total{side="unknown"})`).sum() +
		o.query(fmt.Sprintf(`sum(outsight_edge_connections_opened_total{service="others",client_id=%q} or outsight_edge_connections_opened_total{service="others",server_id=%q})`, client.id, server.id)).sum()
	t.Logf("of %d ends of connections %v have an edge of their own, %v are counted together", 2*floodPorts, placed,
		together)
	if placed >= most || placed+together < 2*floodPorts {
		t.Errorf("of %d ends of connections %v have an edge of their own and %v are counted together; want fewer than %d and the rest",
			2*floodPorts, placed, together, most)
	}
	if n := o.number(`outsight_drops_total{name="edges"}`); n < 2*floodPorts-most {
		t.Errorf("%v edges found no room, want at least %d", n, 2*floodPorts-most)
	}
	if capacity := o.number(`outsight_capacity{name="edges"}`); capacity > most {
		t.Errorf("the table has room for %v edges, want at most %d", capacity, most)
	}
	row := regexp.MustCompile(`(?m)^edges +\d+ +\d+ +[1-9]\d*$`)
	if text := o.run("doctor"); !row.MatchString(text) {
		t.Errorf("outsight doctor does not show the overflow:\n%s", text)
	}
	bounded(t, o)

	// redis-cli asked once by itself to see whether redis was there.
	ping, pong := uint64(len("*1\r\n$4\r\nping\r\n")), uint64(len("+PONG\r\n"))
	exact := edge{client: kept.name, server: redis.name, port: 6379, transactions: asked + 1,
		requestBytes: (asked + 1) * ping, responseBytes: (asked + 1) * pong, connections: 2}
	for _, side := range []string{"client", "server"} {
		exact.checkSeries(t, o, side)
	}
}
