package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// flood is what one container does to be in the way of the others: listeners and connections to each of them,
// processes with names of their own, requests with names of their own, datagrams to many ports.
const (
	floodListeners, floodNames, floodRoutes = 4000, 300, 2000
	floodScript                             = `
import os, socket, threading
listeners, names, routes = %d, %d, %d
kept = []
def serve(s):
    while s.recv(4096):
        s.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
def exchange(client, server, text):
    client.sendall(text)
    server.sendall(server.recv(100))
    client.recv(100)
for i in range(listeners):
    l = socket.create_server(("127.%%d.%%d.1" %% (1 + i // 250, i %% 250), 8000))
    c = socket.create_connection(l.getsockname())
    s, _ = l.accept()
    exchange(c, s, b"0123456789")
    kept += [l, c, s]
print("listens", flush=True)
l = socket.create_server(("0.0.0.0", 9000))
for i in range(names):
    if os.fork() == 0:
        open("/proc/self/comm", "w").write("\x1b[3%%dm%%d" %% (i %% 8, i))
        s = socket.create_connection(("127.0.0.1", 9000))
        s.sendall(b"0123456789")
        s.recv(100)
        os._exit(0)
    s, _ = l.accept()
    s.recv(100)
    s.sendall(b"0123456789")
    s.close()
    os.wait()
print("named", flush=True)
c = socket.create_connection(("127.0.0.1", 9000))
s, _ = l.accept()
threading.Thread(target=serve, args=(s,), daemon=True).start()
for i in range(routes):
    c.sendall(b"GET /route-%%s HTTP/1.1\r\nHost: flood\r\n\r\n" %% ("".join(chr(97 + int(d)) for d in str(i)).encode()))
    c.recv(100)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(20000, 20000 + listeners):
    try:
        u.sendto(b"0123456789", ("127.0.0.1", port))
    except OSError:
        pass
print("finished", flush=True)
import time
time.sleep(3600)
`
	// Each of the others makes connections one after the other, and asks on each of them.
	quietPairs, quietConnections, quietRequests = 10, 12, 25
	quietServer                                 = `
import socket, threading
def serve(s):
    while True:
        text = s.recv(100)
        if not text:
            return s.close()
        s.sendall(text * 3)
l = socket.create_server(("", 7000))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
`
	quietClient = `
import socket, sys, time
for _ in range(%d):
    s = socket.create_connection((sys.argv[1], 7000))
    for _ in range(%d):
        s.sendall(b"0123456789")
        left = 30
        while left:
            left -= len(s.recv(left))
        time.sleep(%g)
    s.close()
print("finished", flush=True)
time.sleep(3600)
`
	// In seconds: who talks beside the flood talks for some fifteen.
	quietPause = 0.05
)

// TestFloodByOneContainer: whatever one container makes very many of, the numbers of twenty others stay exact, what
// it did itself is in sums, and one that comes afterwards is seen.
func TestFloodByOneContainer(t *testing.T) {
	o := up(t)
	net := newNetwork(t)
	python := func(name string, script string, options ...string) container {
		return start(t, name, append(options, "--network", net), "/usr/bin/python3", "-I", "-S", "-u", "-c", script)
	}
	pair := func(n int, pause float64) (server, client container) {
		alias := fmt.Sprintf("quiet-%d", n)
		server = python(fmt.Sprintf("quiet-server-%d", n), quietServer, "--network-alias", alias)
		server.says("ready")
		client = start(t, fmt.Sprintf("quiet-client-%d", n), []string{"--network", net}, "/usr/bin/python3", "-I", "-S",
			"-u", "-c",
			fmt.Sprintf(quietClient, quietConnections, quietRequests, pause), alias)
		return server, client
	}
	exact := func(server, client container) {
		t.Helper()
		const requests = quietConnections * quietRequests
		e := edge{client: client.name, server: server.name, port: 7000, transactions: requests, requestBytes: 10 * requests,
			responseBytes: 30 * requests, connections: quietConnections}
		for _, side := range []string{"client", "server"} {
			e.checkSeries(t, o, side)
		}
		if n := o.query(fmt.Sprintf("container_start_time_seconds{id=~%q}", client.id+"|"+server.id)); len(n) != 2 {
			t.Errorf("%d of %s and %s are known", len(n), client.name, server.name)
		}
	}
	var servers, clients []container
	for n := range quietPairs {
		if n == quietPairs/2 {
			break // the others come while the flood is there
		}
		server, client := pair(n, quietPause)
		servers, clients = append(servers, server), append(clients, client)
	}
	flood := python("flood", fmt.Sprintf(floodScript, floodListeners, floodNames, floodRoutes), "--ulimit",
		"nofile=20000:20000")
	flood.says("listens")
	manyGroups(t, flood)
	for n := quietPairs / 2; n < quietPairs; n++ {
		server, client := pair(n, quietPause)
		servers, clients = append(servers, server), append(clients, client)
	}
	flood.says("finished")
	for _, client := range clients {
		client.says("finished")
	}
	o.settled(fmt.Sprintf("sum(outsight_edge_request_bytes_total{client=~%q})", unique("")+".*"))
	for n := range servers {
		exact(servers[n], clients[n])
	}

	// What the flood did over TCP, both ends of it, is in the sum of its edges.
	for side, id := range map[string]string{"client": "client_id", "server": "server_id"} {
		selector := fmt.Sprintf(`{side=%q,%s=%q,transport="tcp"}`, side, id, flood.id)
		if got, want := o.query("sum(outsight_edge_connections_opened_total"+selector+")").sum(),
			float64(floodListeners+floodNames+1); got != want {
			t.Errorf("the flood's %ss opened %v connections in sum, want %v", side, got, want)
		}
		if got, want := o.query("sum(outsight_edge_transactions_total"+selector+")").sum(),
			float64(floodListeners+floodNames+floodRoutes); got != want {
			t.Errorf("the flood's %ss counted %v transactions in sum, want %v", side, got, want)
		}
	}
	if n := len(o.query(fmt.Sprintf(`outsight_edge_connections_opened_total{client_id=%q} or outsight_edge_connections_opened_total{server_id=%q}`, flood.id, flood.id))); n > 600 {
		t.Errorf("the flood has %d edges", n)
	}
	for _, of := range []string{"container-edges", "container-listeners", "container-new-edges"} {
		if n := o.query(fmt.Sprintf("outsight_drops_total{name=%q}", of+"/"+flood.name)).sum(); n == 0 {
			t.Errorf("no drop %s names the flood", of)
		}
	}
	for _, table := range []string{"edges", "listeners", "store/series"} {
		if n := o.query(fmt.Sprintf("outsight_drops_total{name=%q}", table)).sum(); n != 0 {
			t.Errorf("%v found no room in %s", n, table)
		}
	}
	series, room := o.number(`outsight_entries{name="store/series"}`), o.number(`outsight_capacity{name="store/series"}`)
	t.Logf("%v series of %v", series, room)
	if series > room/2 {
		t.Errorf("%v series, want less than half of %v", series, room)
	}
	flood.remove()
	server, client := pair(quietPairs, quietPause/50)
	client.says("finished")
	o.knows(server)
	o.knows(client)
	o.settled(fmt.Sprintf("sum(outsight_edge_request_bytes_total{client=%q})", client.name))
	exact(server, client)
	bounded(t, o)
}

// manyGroups makes groups below a container's, as one that may do that makes them.
func manyGroups(t *testing.T, c container) {
	t.Helper()
	root := filepath.Join("/sys/fs/cgroup/memory/docker", c.id)
	if _, err := os.Stat(root); err != nil {
		if root = filepath.Join("/sys/fs/cgroup/docker", c.id); !exists(root) {
			root = filepath.Join("/sys/fs/cgroup/system.slice", "docker-"+c.id+".scope")
		}
	}
	for i := range 500 {
		name := filepath.Join(root, fmt.Sprintf("flood-%d", i))
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(name) })
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// TestDockerResolver: what a container asks Docker's resolver, which is a socket of dockerd in the container's
// network namespace, is between the container and itself, by way of dockerd.
func TestDockerResolver(t *testing.T) {
	t.Parallel()
	const asked = 20
	o := shared(t)
	net := newNetwork(t)
	shell(t, "named", "sleep 3600", "--network", net, "--network-alias", "somebody")
	asking := shell(t, "asking", fmt.Sprintf("for i in $(seq %d); do busybox nslookup -type=a somebody >/dev/null; done; echo finished; sleep 3600", asked), "--network", net)
	asking.says("finished")
	selector := fmt.Sprintf(`{transport="udp",service="127.0.0.11:53",client_id=%q,server_id=%q,via="dockerd"}`,
		asking.id, asking.id)
	o.settled("sum(outsight_edge_transactions_total" + selector + ")")
	for _, side := range []string{"client", "server"} {
		if got := o.query("sum(outsight_edge_transactions_total{side=" + strconv.Quote(side) + "," + selector[1:] +
			")").sum(); got != asked {
			t.Errorf("the %s counted %v requests, want %d", side, got, asked)
		}
	}
	if wrong := o.query(fmt.Sprintf(
		`outsight_edge_transactions_total{service=~"127.0.0.11:.*",client_id=%q,server_id="host"}`, asking.id)); len(wrong) != 0 {
		t.Errorf("the resolver is shown as the host's: %v", wrong)
	}
}
