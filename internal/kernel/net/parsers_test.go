package net

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// asked is the endpoints of a service at one end with their counts, as "name status".
func asked(t *testing.T, p *Net, port uint16, role model.Role) map[string]uint64 {
	t.Helper()
	all, err := p.ReadEdges()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, e := range all {
		if e.Key.Service.Port() != port || e.Key.Role != role {
			continue
		}
		for _, end := range e.Endpoints {
			counts[strings.TrimSpace(end.Name+" "+end.Status)] += end.Transactions()
		}
	}
	return counts
}

// expect waits until both ends have counted exactly this, more than this, or nothing for a while.
func expect(t *testing.T, p *Net, port uint16, want map[string]uint64) {
	t.Helper()
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		expectAt(t, p, port, role, want)
	}
}

func expectAt(t *testing.T, p *Net, port uint16, role model.Role, want map[string]uint64) {
	t.Helper()
	got := kerneltest.ReadUntil(func() map[string]uint64 { return asked(t, p, port, role) },
		func(got map[string]uint64) bool {
			for what, n := range got {
				if n > want[what] {
					return true
				}
			}
			return maps.Equal(got, want)
		})
	if !maps.Equal(got, want) {
		t.Errorf("the %v counted\n%v, want\n%v", role, listed(got), listed(want))
	}
}

func listed(counts map[string]uint64) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("  %d × %s", counts[k], k))
	}
	return strings.Join(lines, "\n")
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l := kerneltest.Listen(t, "127.0.0.1")
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// daemon runs a server until the test ends, and waits until it listens.
func daemon(t *testing.T, port uint16, name string, arguments ...string) {
	t.Helper()
	cmd := exec.Command(name, arguments...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s said:\n%s", name, text)
		}
	})
	kerneltest.Eventually(t, name+" listens", func() bool {
		conn, err := net.Dial("tcp", address(port))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func address(port uint16) string { return "127.0.0.1:" + strconv.Itoa(int(port)) }

func execute(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	out, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, arguments, err, out)
	}
	return string(out)
}

// ordinary makes a directory that the ordinary user may use, and is a command's prefix that makes
// it this user's.
func ordinary(t *testing.T, user string) (dir string, as []string) {
	t.Helper()
	dir = t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, "chown", "-R", user, dir)
	group := strings.TrimSpace(execute(t, "id", "-gn", user))
	return dir, []string{"setpriv", "--reuid", user, "--regid", group, "--clear-groups"}
}

func TestRequestsOfNginx(t *testing.T) {
	port, dir := freePort(t), t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	os.WriteFile(config, fmt.Appendf(nil, `
daemon off; worker_processes 1; pid %[1]s/pid; error_log stderr; user root;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server {
		listen 127.0.0.1:%[2]d; root %[1]s; sendfile on;
		location /users { return 200 "somebody"; }
		location /fail { return 503; }
		location /old { return 301 /new; }
	}
}`, dir, port), 0o644)
	os.WriteFile(filepath.Join(dir, "big"), make([]byte, 1<<20), 0o644)
	daemon(t, port, "/usr/sbin/nginx", "-c", config, "-p", dir)
	p := openShared(t)
	base := "http://" + address(port)
	for i := range 7 {
		execute(t, "curl", "-s", "-o", "/dev/null",
			fmt.Sprintf("%s/users/%d/orders/f47ac10b-58cc-4372-a567-0e02b2c3d479?page=%d", base, 1000+i, i))
	}
	for range 5 { // on one connection each
		execute(t, "curl", "-s", "-o", "/dev/null", base+"/users", "-o", "/dev/null", base+"/users", "-o", "/dev/null",
			base+"/big")
	}
	execute(t, "curl", "-s", "-o", "/dev/null", "-X", "DELETE", base+"/fail")
	execute(t, "curl", "-s", "-o", "/dev/null", base+"/old/v2")
	execute(t, "curl", "-s", "-o", "/dev/null", base+"/missing")
	execute(t, "curl", "-s", "-o", "/dev/null", "-I", base+"/big")
	expect(t, p, port, map[string]uint64{
		"GET /users/{}/orders/{} 2xx": 7,
		"GET /users 2xx":              10,
		"GET /big 2xx":                5,
		"DELETE /fail 5xx":            1,
		"GET /old/v2 3xx":             1,
		"GET /missing 4xx":            1,
		"HEAD /big 2xx":               1,
	})
}

func TestRequestsOfRedis(t *testing.T) {
	port := freePort(t)
	daemon(t, port, "redis-server", "--port", strconv.Itoa(int(port)), "--bind", "127.0.0.1", "--save", "", "--dir",
		t.TempDir())
	p := openShared(t)
	number := strconv.Itoa(int(port))
	execute(t, "redis-benchmark", "-p", number, "-n", "2000", "-c", "20", "-r", "1000", "-q", "set", "key:__rand_int__",
		"value")
	execute(t, "redis-benchmark", "-p", number, "-n", "1000", "-c", "10", "-r", "1000", "-q", "GET", "key:__rand_int__")
	for range 3 {
		execute(t, "redis-cli", "-p", number, "incr", "number")
		execute(t, "redis-cli", "-p", number, "json.get", "x") // no such command
	}
	want := map[string]uint64{"SET ok": 2000, "GET ok": 1000, "INCR ok": 3, "JSON.GET error": 3}
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		got := kerneltest.ReadUntil(func() map[string]uint64 {
			got := asked(t, p, port, role)
			// redis-benchmark asks for what it likes to know.
			maps.DeleteFunc(got, func(what string, _ uint64) bool { return want[what] == 0 })
			return got
		}, func(got map[string]uint64) bool { return maps.Equal(got, want) })
		if !maps.Equal(got, want) {
			t.Errorf("the %v counted\n%s, want\n%s", role, listed(got), listed(want))
		}
	}
}

// A subscriber's connection has no transactions from then on.
func TestSubscriptionIsAStream(t *testing.T) {
	port := freePort(t)
	daemon(t, port, "redis-server", "--port", strconv.Itoa(int(port)), "--bind", "127.0.0.1", "--save", "", "--dir",
		t.TempDir())
	p := openShared(t)
	conn := kerneltest.Dial(t, address(port))
	fmt.Fprint(conn, "*2\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n")
	conn.Read(make([]byte, 100))
	for range 3 {
		execute(t, "redis-cli", "-p", strconv.Itoa(int(port)), "publish", "news", "item")
		conn.Read(make([]byte, 100))
	}
	conn.Close()
	got := kerneltest.ReadUntil(func() map[string]uint64 { return asked(t, p, port, model.RoleClient) },
		func(got map[string]uint64) bool {
			return got["PUBLISH ok"] >= 3
		})
	if got["SUBSCRIBE ok"] != 1 || got["PUBLISH ok"] != 3 {
		t.Errorf("counted\n%s", listed(got))
	}
}

func TestRequestsOfMemcached(t *testing.T) {
	port := freePort(t)
	daemon(t, port, "memcached", "-l", "127.0.0.1", "-p", strconv.Itoa(int(port)), "-u", "nobody")
	p := openShared(t)
	conn := kerneltest.Dial(t, address(port))
	for _, line := range []string{
		"set key 0 0 5\r\nvalue\r\n", "get key\r\n", "get key\r\n", "get nothing\r\n", "incr key 1\r\n", "nonsense\r\n",
		"version\r\n",
	} {
		fmt.Fprint(conn, line)
		conn.Read(make([]byte, 1000))
	}
	fmt.Fprint(conn, "quit\r\n")
	io.Copy(io.Discard, conn)
	conn.Close()
	expect(t, p, port, map[string]uint64{
		"set ok": 1, "get ok": 3, "incr error": 1, "invalid error": 1, "version ok": 1,
	})
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		if c := edge(t, p, conn.RemoteAddr(), role).Counters; c.Aborts != 0 || c.Requests != 7 {
			t.Errorf("%v: seven requests and a farewell are %d requests, %d without reply", role, c.Requests, c.Aborts)
		}
	}
}

func TestRequestsOfPostgreSQL(t *testing.T) {
	dir, as := ordinary(t, "nobody")
	port, bin := freePort(t), "/usr/lib/postgresql/15/bin/"
	execute(t, as[0], append(as[1:], bin+"initdb", "-D", dir+"/data", "-A", "trust", "-U", "test", "-E", "UTF8",
		"--no-sync")...)
	daemon(t, port, as[0], append(as[1:], bin+"postgres", "-D", dir+"/data", "-h", "127.0.0.1", "-p",
		strconv.Itoa(int(port)), "-k", dir, "-F")...)
	psql := func(arguments ...string) string {
		return execute(t, "psql", append([]string{"-h", "127.0.0.1", "-p", strconv.Itoa(int(port)), "-U", "test", "-d",
			"postgres", "-q"}, arguments...)...)
	}
	kerneltest.Eventually(t, "the database is up", func() bool {
		return exec.Command("psql", "-h", "127.0.0.1", "-p", strconv.Itoa(int(port)), "-U", "test", "-d", "postgres",
			"-c", "select 1").Run() == nil
	})
	p := open(t, Options{})
	psql("-c", "create table item (id int, name text)", "-c", "begin", "-c", "insert into item values (1, 'a')", "-c",
		"commit")
	for range 5 {
		psql("-c", "select * from item where id = 1", "-c", "/* why */ SELECT count(*) from item")
	}
	exec.Command("psql", "-h", "127.0.0.1", "-p", strconv.Itoa(int(port)), "-U", "test", "-d", "postgres", "-c",
		"select wrong").Run()
	expect(t, p, port, map[string]uint64{
		"tls request ok": 7, "startup ok": 7, "query CREATE ok": 1, "query BEGIN ok": 1, "query INSERT ok": 1,
		"query COMMIT ok": 1,
		"query SELECT ok": 10, "query SELECT error": 1,
	})
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		all, _ := p.ReadEdges()
		for _, e := range all {
			if e.Key.Service.Port() == port && e.Key.Role == role && e.Counters.Aborts != 0 {
				t.Errorf("%v: %d requests without a reply", role, e.Counters.Aborts)
			}
		}
	}
}

func TestRequestsOfMySQL(t *testing.T) {
	dir, as := ordinary(t, "nobody")
	port := freePort(t)
	execute(t, as[0], append(as[1:], "mariadb-install-db", "--no-defaults", "--datadir="+dir+"/data",
		"--auth-root-authentication-method=normal", "--skip-test-db")...)
	daemon(t, port, as[0], append(as[1:], "mariadbd", "--no-defaults", "--datadir="+dir+"/data",
		"--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(int(port)), "--socket="+dir+"/socket", "--pid-file="+dir+"/pid", "--skip-name-resolve")...)
	p := openShared(t)
	client := []string{"--no-defaults", "-h", "127.0.0.1", "-P", strconv.Itoa(int(port)), "-u", "root", "--skip-ssl", "-e"}
	execute(t, "mariadb", append(client,
		"create database shop; create table shop.item (id int); insert into shop.item values (1)")...)
	for range 5 {
		execute(t, "mariadb", append(client, "/* why */ select * from shop.item; select 1")...)
	}
	execute(t, "mariadb", append(client, "prepare s from 'select 2'; execute s")...)
	exec.Command("mariadb", append(client, "select * from shop.nothing")...).Run()
	expect(t, p, port, map[string]uint64{
		"login ok": 8, "query CREATE ok": 2, "query INSERT ok": 1, "query PREPARE ok": 1, "query EXECUTE ok": 1,
		"query SELECT ok": 10, "query SELECT error": 1,
	})
}

// say plays a conversation on a connection of its own: what the client says in turn, each in one
// or more writes, and the server's answers.
func say(t *testing.T, turns ...turn) uint16 {
	t.Helper()
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		buffer := make([]byte, 4<<20)
		for _, turn := range turns {
			if n := len(strings.Join(turn.say, "")); n > 0 {
				if _, err := io.ReadFull(conn, buffer[:n]); err != nil {
					return
				}
			}
			for _, reply := range turn.hear {
				conn.Write([]byte(reply))
				time.Sleep(20 * time.Millisecond) // so that they are not read together
			}
		}
	})
	conn := kerneltest.Dial(t, service.String())
	for _, turn := range turns {
		for i, part := range turn.say {
			if i > 0 {
				time.Sleep(20 * time.Millisecond)
			}
			io.WriteString(conn, part)
		}
		if _, err := io.ReadFull(conn, make([]byte, len(strings.Join(turn.hear, "")))); err != nil {
			t.Fatal(err)
		}
	}
	conn.Close()
	return service.(*net.TCPAddr).AddrPort().Port()
}

type turn struct{ say, hear []string }

const okay = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

func TestRequestsInParts(t *testing.T) {
	p := openShared(t)
	kafka, err := os.ReadFile("../parsertest/testdata/kafka-versions.request")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		turns []turn
		want  map[string]uint64
	}{
		{"a head in three writes", []turn{{[]string{"G", "ET /us", "ers/12?a HTTP/1.1\r\n\r\n"}, []string{okay}},
			{[]string{"GET /a HTTP/1.1\r\n\r\n"}, []string{okay}}},
			map[string]uint64{"GET /users/{} 2xx": 1, "GET /a 2xx": 1}},
		{"a word in between", []turn{{[]string{"POST /a HTTP/1.1\r\nExpect: 100-continue\r\n\r\n"},
			[]string{"HTTP/1.1 100 Continue\r\n\r\n"}}, {[]string{"body"}, []string{"HTTP/1.1 201 Created\r\n\r\n"}}},
			map[string]uint64{"POST /a 2xx": 1}},
		{"early hints", []turn{{[]string{"GET /a HTTP/1.1\r\n\r\n"}, []string{"HTTP/1.1 103 Early Hints\r\n\r\n", okay}}},
			map[string]uint64{"GET /a 2xx": 1}},
		{"a reply in parts", []turn{{[]string{"GET /a HTTP/1.1\r\n\r\n"}, []string{"HTTP/1", ".1 404 Not Found\r\n\r\n"}}},
			map[string]uint64{"GET /a 4xx": 1}},
		{"length first", []turn{{[]string{string(kafka[:4]), string(kafka[4:])},
			[]string{"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00"}}},
			map[string]uint64{"18": 1}},
		{"garbage after a request", []turn{{[]string{"GET /a HTTP/1.1\r\n\r\n"}, []string{okay}},
			{[]string{"\x00\x01\x02garbage"}, []string{"HTTP/1.1 400 Bad Request\r\n\r\n"}}},
			map[string]uint64{"GET /a 2xx": 1, "invalid 4xx": 1}},
		{"cut off", []turn{{[]string{"GET /a"}, []string{"what?"}}, {[]string{"hello"}, []string{"what?"}}},
			map[string]uint64{}},
		{"encrypted", []turn{{[]string{"\x16\x03\x01\x00\x05\x01aaaa"}, []string{"\x16\x03\x03"}},
			{[]string{"GET / HTTP/1.1\r\n\r\n"}, []string{okay}}}, map[string]uint64{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := say(t, c.turns...)
			expect(t, p, port, c.want)
			for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
				at := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
				counts(t, p, at, role, "each request is one transaction", func(c model.EdgeCounters) bool {
					return c.Requests > 0 && c.Requests == c.Transactions() && c.Replies == c.Requests
				})
			}
		})
	}
}

// A request is compared with the last one by the bytes that named it, whatever their number is, and
// also where a call sends them in two parts.
func TestRequestsLikeTheLastOne(t *testing.T) {
	p := open(t, Options{MaxEdgeEndpoints: 100})
	service := pong(t, okay)
	conn := kerneltest.Dial(t, service.String())
	want := map[string]uint64{}
	send := func(name string, parts ...string) {
		t.Helper()
		var buffers net.Buffers
		for _, part := range parts {
			buffers = append(buffers, []byte(part))
		}
		if _, err := buffers.WriteTo(conn); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, len(okay))); err != nil {
			t.Fatal(err)
		}
		want[name+" 2xx"]++
	}
	for n := 1; n < 32; n++ {
		path := "/" + strings.Repeat("z", n)
		other := path[:n] + "y"
		const rest = " HTTP/1.1\r\n\r\n"
		send("GET "+path, "GET "+path+rest)
		send("GET "+path, "GET "+path+rest)
		send("GET "+other, "GET "+other+rest)
		send("GET "+path, "GET "+path, rest)
		send("GET "+path, "GET ", path+rest)
		send("GET "+other, "GET ", other+rest)
	}
	conn.Close()
	expect(t, p, service.(*net.TCPAddr).AddrPort().Port(), want)
}

// After a switch of protocols nothing is a request any more, however slow it is.
func TestWebSocketIsAStream(t *testing.T) {
	p := openShared(t)
	port := say(t,
		turn{[]string{"GET /page HTTP/1.1\r\n\r\n"}, []string{okay}},
		turn{[]string{"GET /live HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"},
			[]string{"HTTP/1.1 101 Switching Protocols\r\n\r\n"}},
		turn{[]string{"\x81\x85ping!"}, []string{"\x81\x05pong!"}}, turn{nil, []string{"\x81\x04news"}},
		turn{[]string{"\x81\x85ping!"}, []string{"\x81\x05pong!"}})
	expect(t, p, port, map[string]uint64{"GET /page 2xx": 1, "GET /live 101": 1})
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		c := edge(t, p, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)), role).Counters
		if c.Upgrades != 1 || c.Transactions() != 2 || c.Requests != 2 {
			t.Errorf("%v: %d upgrades, %d requests, %d transactions", role, c.Upgrades, c.Requests, c.Transactions())
		}
	}
}

// A database tells a listener of what happened between two queries: that is no reply.
func TestNotificationsAreNoReplies(t *testing.T) {
	dir, as := ordinary(t, "nobody")
	port, bin := freePort(t), "/usr/lib/postgresql/15/bin/"
	execute(t, as[0], append(as[1:], bin+"initdb", "-D", dir+"/data", "-A", "trust", "-U", "test", "-E", "UTF8",
		"--no-sync")...)
	daemon(t, port, as[0], append(as[1:], bin+"postgres", "-D", dir+"/data", "-h", "127.0.0.1", "-p",
		strconv.Itoa(int(port)), "-k", dir, "-F")...)
	p := openShared(t)
	arguments := []string{"-h", "127.0.0.1", "-p", strconv.Itoa(int(port)), "-U", "test", "-d", "postgres", "-q"}
	listener := exec.Command("psql", arguments...)
	in, _ := listener.StdinPipe()
	out, _ := listener.StdoutPipe()
	if err := listener.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	ask := func(query, answer string) {
		fmt.Fprintf(in, "%s;\n", query)
		for line := ""; !strings.Contains(line, answer); {
			var err error
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	fmt.Fprintln(in, "listen news;")
	ask("select 'one'", "one")
	for range 4 { // each comes within a second of the reply before
		execute(t, "psql", append(arguments, "-c", "notify news")...)
		time.Sleep(300 * time.Millisecond)
	}
	ask("select 'two'", "two")
	in.Close()
	listener.Wait()
	expect(t, p, port, map[string]uint64{
		"tls request ok": 5, "startup ok": 5, "query NOTIFY ok": 4, "query LISTEN ok": 1, "query SELECT ok": 2,
	})
	for _, e := range endpointsOf(t, p, port, model.RoleServer) {
		if q := e.Latency.Quantile(1); e.Name == "query SELECT" && q > 0.25 {
			t.Errorf("%s took %v s: notifications are part of it", e.Name, q)
		}
	}
}

func endpointsOf(t *testing.T, p *Net, port uint16, role model.Role) (all []model.Endpoint) {
	t.Helper()
	edges, err := p.ReadEdges()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range edges {
		if e.Key.Service.Port() == port && e.Key.Role == role {
			all = append(all, e.Endpoints...)
		}
	}
	return all
}

// Whatever is sent, an edge has few endpoints, their names are short and printable, and every
// transaction is counted.
func TestHostileRequests(t *testing.T) {
	p := open(t, Options{MaxEndpoints: 64, MaxEdgeEndpoints: 20})
	const routes = 3000
	service := pong(t, okay)
	conn := kerneltest.Dial(t, service.String())
	reply := make([]byte, len(okay))
	send := func(request string) {
		t.Helper()
		go io.WriteString(conn, request) // the server may answer before it has all
		if _, err := io.ReadFull(conn, reply); err != nil {
			t.Fatal(err)
		}
	}
	for i := range routes {
		send(fmt.Sprintf("GET /%c%c%c/page HTTP/1.1\r\n\r\n", 'a'+i%26, 'a'+i/26%26, 'a'+i/26/26%26))
	}
	for _, request := range []string{
		"GET /a\x00b HTTP/1.1\r\n\r\n", strings.Repeat("A", 4000) + "\r\n\r\n", "GET /\x1b[31m HTTP/1.1\r\n\r\n",
		"GET " + strings.Repeat("/a", 1000) + "\r\n\r\n",
	} {
		send(request)
	}
	conn.Close()
	port := service.(*net.TCPAddr).AddrPort().Port()
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		all := kerneltest.ReadUntil(func() []model.Endpoint { return endpointsOf(t, p, port, role) },
			func(all []model.Endpoint) bool {
				return transactionsOf(all) >= routes+4
			})
		if n := transactionsOf(all); n != routes+4 {
			t.Errorf("the %v counted %d requests, want %d", role, n, routes+4)
		}
		if len(all) > 22 {
			t.Errorf("%v: %d endpoints", role, len(all))
		}
		for _, e := range all {
			if len(e.Name) > 48 || strings.ContainsFunc(e.Name, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%v: %q", role, e.Name)
			}
			if e.Name == model.OtherEndpoint && e.Transactions() < routes-20 {
				t.Errorf("%v: other has %d", role, e.Transactions())
			}
		}
	}
	for _, d := range p.Drops() {
		if d.Name == "endpoints" && d.Count == 0 {
			t.Error("what found no room does not show")
		}
	}
}

// pong answers whatever it reads, once for each end of a head.
func pong(t *testing.T, reply string) net.Addr {
	return kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		lines := bufio.NewReader(conn)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if line == "\r\n" {
				io.WriteString(conn, reply)
			}
		}
	})
}

// A path of a mebibyte is a head like any other.
func TestEndlessPath(t *testing.T) {
	p := openShared(t)
	service := pong(t, okay)
	conn := kerneltest.Dial(t, service.String())
	go io.WriteString(conn, "GET /api/"+strings.Repeat("x", 1<<20)+" HTTP/1.1\r\n\r\n")
	if _, err := io.ReadFull(conn, make([]byte, len(okay))); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	expect(t, p, service.(*net.TCPAddr).AddrPort().Port(), map[string]uint64{"GET /api/... 2xx": 1})
}

func transactionsOf(all []model.Endpoint) (n uint64) {
	for _, e := range all {
		n += e.Transactions()
	}
	return n
}
