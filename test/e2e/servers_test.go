package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealServers lets wrk drive nginx, a Python application, Redis and PostgreSQL and holds the
// map and every count against the books that the programs keep themselves.
func TestRealServers(t *testing.T) {
	t.Parallel()
	o := shared(t)
	checkEdges(t, o, runRealServers(t))
}

// runRealServers returns the true edges once all requests have been answered; the containers run
// on until the end of the test.
func runRealServers(t *testing.T) []edge {
	const threads, requestsEach = 4, 300
	net := newNetwork(t)
	configuration, err := filepath.Abs("testdata/servers")
	if err != nil {
		t.Fatal(err)
	}
	in := func(alias string, more ...string) []string {
		return append([]string{"--network", net, "--network-alias", alias, "-v", configuration + ":/etc/servers:ro"}, more...)
	}

	database := start(t, "postgres", in("postgres", "--user", "70:70", "--shm-size", "128m"), "busybox", "sh", "-c", `
		bin=/usr/lib/postgresql/15/bin
		$bin/initdb -D /data/pg -U postgres -A trust --no-sync --locale=C -E UTF8 >/dev/null &&
		echo 'host all all all trust' >>/data/pg/pg_hba.conf &&
		exec $bin/postgres -D /data/pg -c listen_addresses='*' -c unix_socket_directories=/tmp -c fsync=off -c jit=off`)
	redis := start(t, "redis", in("redis"), "redis-server", "--save", "", "--protected-mode", "no", "--dir", "/tmp")
	eventually(t, func() error {
		if !strings.Contains(database.logs(), "ready to accept connections") ||
			!strings.Contains(redis.logs(), "eady to accept connections") {
			return fmt.Errorf("the databases are not ready: %s %s", database.logs(), redis.logs())
		}
		return nil
	})
	app := start(t, "app", in("app"), "/usr/bin/python3", "-I", "-S", "-u", "/etc/servers/app.py")
	proxy := start(t, "nginx", in("nginx"), "nginx", "-c", "/etc/servers/nginx.conf")
	load := shell(t, "wrk", fmt.Sprintf(
		`sleep 1; wrk -t %d -c %d -d 15s --timeout 15s -s /etc/servers/load.lua http://nginx:8080/item -- %d; sleep 3600`,
		threads, threads, requestsEach), in("wrk")...)

	var requests, bytes, errors uint64
	eventually(t, func() error {
		text := load.logs()
		_, after, _ := strings.Cut(text, "books ")
		if _, err := fmt.Sscanf(after, "%d %d %d", &requests, &bytes, &errors); err != nil {
			return fmt.Errorf("no summary of wrk: %s", text)
		}
		return nil
	})
	if requests != threads*requestsEach || errors != 0 {
		t.Fatalf("wrk made %d requests with %d errors, want %d and none:\n%s", requests, errors, threads*requestsEach,
			load.logs())
	}

	fromWrk, toApp := proxyBooks(t, proxy)
	if fromWrk.transactions != requests || fromWrk.responseBytes != bytes {
		t.Fatalf("nginx's books %+v do not agree with wrk's: %d requests, %d bytes", fromWrk, requests, bytes)
	}
	books := appBooks(t, app)
	if books["http"].Transactions != requests || books["http"].Received != toApp.requestBytes {
		t.Fatalf("the application's books %+v do not agree with nginx's %+v", books, toApp)
	}

	fromWrk.client, fromWrk.server, fromWrk.port = load.name, proxy.name, 8080
	toApp.client, toApp.server, toApp.port = proxy.name, app.name, 8000
	return []edge{
		fromWrk, toApp,
		books["redis"].edge(app, redis, 6379),
		books["postgres"].edge(app, database, 5432),
	}
}

// proxyBooks adds up nginx's access log.
func proxyBooks(t *testing.T, proxy container) (client, upstream edge) {
	t.Helper()
	for line := range strings.Lines(proxy.exec("cat", "/tmp/books")) {
		var request, response, status, sent, received uint64
		if _, err := fmt.Sscanf(line, "%d %d %d %d %d", &request, &response, &status, &sent, &received); err != nil ||
			status != 200 {
			t.Fatalf("nginx's books: %q: %v", line, err)
		}
		client.transactions++
		client.requestBytes += request
		client.responseBytes += response
		upstream.transactions++
		upstream.requestBytes += sent
		upstream.responseBytes += received
	}
	return client, upstream
}

// peerBooks is what the application noted for one kind of peer.
type peerBooks struct{ Transactions, Sent, Received, Connections uint64 }

func (b peerBooks) edge(client, server container, port int) edge {
	return edge{client: client.name, server: server.name, port: port, transactions: b.Transactions,
		requestBytes: b.Sent, responseBytes: b.Received, connections: b.Connections}
}

func appBooks(t *testing.T, app container) map[string]peerBooks {
	t.Helper()
	docker(t, "kill", "-s", "USR1", app.name)
	books := map[string]peerBooks{}
	eventually(t, func() error { return json.Unmarshal([]byte(app.logs()), &books) })
	return books
}
