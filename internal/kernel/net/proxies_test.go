package net

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
	"outsight/internal/monotonic"
)

// Of the workloads that are proxies: where they send requests to, and what they wait before.
const upstreamVariable, pauseVariable, renameVariable, speaksVariable = "OUTSIGHT_TEST_UPSTREAM",
	"OUTSIGHT_TEST_PAUSE", "OUTSIGHT_TEST_RENAME", "OUTSIGHT_TEST_SPEAKS"

// protocolsOf is HTTP/1 or, without encryption, "2" or "either".
func protocolsOf(speaks string) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(speaks != "2")
	p.SetUnencryptedHTTP2(speaks == "2" || speaks == "either")
	return p
}

// stampingProxy passes on what it receives, over one connection for each of its clients, and prints at the end of its
// input how long it has had each request by its own stamps, in nanoseconds: until before it sent it, and until it had.
func stampingProxy() int {
	pause, _ := time.ParseDuration(os.Getenv(pauseVariable))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	var took [][2]uint64
	serve := func(from net.Conn) error {
		defer from.Close()
		to, err := net.Dial("tcp", os.Getenv(upstreamVariable))
		if err != nil {
			return err
		}
		defer to.Close()
		buffer := make([]byte, 4096)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return err
			}
			received := monotonic.Now()
			if pause > 0 {
				time.Sleep(pause)
			}
			before := monotonic.Now()
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
			after := monotonic.Now()
			mu.Lock()
			took = append(took, [2]uint64{before - received, after - received})
			mu.Unlock()
			if n, err = to.Read(buffer); err != nil {
				return err
			}
			if _, err := from.Write(buffer[:n]); err != nil {
				return err
			}
		}
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	fmt.Println(listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	mu.Lock()
	defer mu.Unlock()
	for _, ns := range took {
		fmt.Println(ns[0], ns[1])
	}
	return 0
}

// reverseProxy is that of Go's library. It answers /own itself.
func reverseProxy() int {
	pause, _ := time.ParseDuration(os.Getenv(pauseVariable))
	prefix := os.Getenv(renameVariable)
	upstream := &url.URL{Scheme: "http", Host: os.Getenv(upstreamVariable)}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(upstream)
		r.Out.URL.Path = prefix + r.Out.URL.Path
	}, Transport: &http.Transport{MaxIdleConnsPerHost: 100, Protocols: protocolsOf(os.Getenv(speaksVariable))}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server := &http.Server{Protocols: protocolsOf("either")}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(pause)
		if r.URL.Path == "/own" {
			fmt.Fprint(w, "mine")
			return
		}
		proxy.ServeHTTP(w, r)
	})
	go server.Serve(listener)
	fmt.Println(listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// databaseClient answers requests by what a Redis server says to PING.
func databaseClient() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	connections := make(chan net.Conn, 16)
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var c net.Conn
		select {
		case c = <-connections:
		default:
			dialled, err := net.Dial("tcp", os.Getenv(upstreamVariable))
			if err != nil {
				return
			}
			c = dialled
		}
		fmt.Fprint(c, "*1\r\n$4\r\nPING\r\n")
		reply := make([]byte, 100)
		n, _ := c.Read(reply)
		connections <- c
		w.Write(reply[:n])
	}))
	fmt.Println(listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startProxy starts a workload that is a proxy, in a control group of its own. The end of it is told what it printed.
func startProxy(t *testing.T, work string, environment ...string) (address string, owner model.CgroupID,
	end func() [][2]uint64) {
	t.Helper()
	g := kerneltest.NewGroup(t, "outsight-proxy")
	cmd := g.Workload(work, environment...)
	in, out := kerneltest.StartTalking(t, cmd)
	end = sync.OnceValue(func() (printed [][2]uint64) {
		in.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var ns [2]uint64
			if _, err := fmt.Sscan(lines.Text(), &ns[0], &ns[1]); err != nil {
				t.Error(err)
			}
			printed = append(printed, ns)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		return printed
	})
	t.Cleanup(func() { end() })
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), g.ID(t), end
}

// upstreamServer answers each request.
func upstreamServer(t *testing.T, pause time.Duration) string {
	t.Helper()
	listener := kerneltest.Listen(t, "127.0.0.1")
	server := &http.Server{Protocols: protocolsOf("either"), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(pause)
		fmt.Fprint(w, "pong")
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

// get asks n times over each of some connections at once.
func get(t *testing.T, connections, n int, url func(i int) string) {
	t.Helper()
	getBy(t, "", connections, n, url)
}

func getBy(t *testing.T, speaks string, connections, n int, url func(i int) string) {
	t.Helper()
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{Protocols: protocolsOf(speaks),
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			defer client.CloseIdleConnections()
			for i := range n {
				reply, err := client.Get(url(i))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, reply.Body)
				reply.Body.Close()
			}
		})
	}
	all.Wait()
}

// proxyOf is what was counted of a program so far.
func proxyOf(t *testing.T, p *Net, is func(*model.KernelProxy) bool) (sum model.ProxyCounters) {
	t.Helper()
	if _, err := p.ReadEdges(); err != nil {
		t.Fatal(err)
	}
	for _, k := range p.ReadProxies() {
		if is(&k) {
			sum = sum.Plus(&k.ProxyCounters)
		}
	}
	return sum
}

// expectProxied waits until so many requests of a program have been counted, and been matched by their names, since an
// earlier reading. It is what was counted since.
func expectProxied(t *testing.T, p *Net, is func(*model.KernelProxy) bool, before model.ProxyCounters,
	requests, matched uint64) model.ProxyCounters {
	t.Helper()
	got := kerneltest.ReadUntil(func() model.ProxyCounters { return since(proxyOf(t, p, is), before) },
		func(c model.ProxyCounters) bool { return c.Requests == requests && c.Matched == matched })
	if got.Requests != requests || got.Matched != matched || got.Alone != 0 || got.Took.Count != matched {
		t.Fatalf("%d requests, %d matched, %d alone; want %d, and %d matched by name", got.Requests, got.Matched,
			got.Alone, requests, matched)
	}
	return got
}

func ownedBy(owner model.CgroupID) func(*model.KernelProxy) bool {
	return func(k *model.KernelProxy) bool { return k.Owner == owner }
}

// found asks until the program is known to send requests on, so that those that follow are timed.
func found(t *testing.T, p *Net, is func(*model.KernelProxy) bool, url string) model.ProxyCounters {
	t.Helper()
	kerneltest.Eventually(t, "the proxy is found", func() bool {
		get(t, 1, 1, func(int) string { return url })
		if _, err := p.ReadEdges(); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(p.ReadProxies(), func(k model.KernelProxy) bool { return is(&k) })
	})
	return proxyOf(t, p, is)
}

// since is what was counted after a reading.
func since(now, before model.ProxyCounters) model.ProxyCounters {
	return model.ProxyCounters{Requests: now.Requests - before.Requests, Matched: now.Matched - before.Matched,
		Alone: now.Alone - before.Alone, Took: now.Took.Since(before.Took)}
}

func median(of [][2]uint64, which int) float64 {
	slices.SortFunc(of, func(a, b [2]uint64) int { return cmp.Compare(a[which], b[which]) })
	return float64(of[len(of)/2][which])
}

func TestTimeOfAProxy(t *testing.T) {
	p := openShared(t)
	upstream := upstreamServer(t, 0)
	for _, pause := range []string{"0s", "300us", "3ms"} {
		for _, connections := range []int{1, 8} {
			t.Run(fmt.Sprint(pause, " ", connections), func(t *testing.T) {
				address, owner, end := startProxy(t, "stampingproxy", upstreamVariable+"="+upstream,
					pauseVariable+"="+pause)
				before := found(t, p, ownedBy(owner), "http://"+address+"/")
				const requests = 200
				get(t, connections, requests, func(i int) string { return fmt.Sprintf("http://%s/%c", address, 'a'+i%3) })
				want := uint64(requests * connections)
				got := expectProxied(t, p, ownedBy(owner), before, want, want)
				stamps := end()
				stamps = stamps[len(stamps)-int(want):]
				// It is sent between the two.
				p50, before50, after50 := got.Took.Quantile(0.5)*1e9, median(stamps, 0), median(stamps, 1)
				t.Logf("p50 %.1f µs; by the proxy's own stamps %.1f µs until before it sends, %.1f µs until after",
					p50/1e3, before50/1e3, after50/1e3)
				if p50 < 0.95*before50-3000 || p50 > 1.05*after50+3000 {
					t.Errorf("p50 %.0f ns, want %.0f to %.0f within 5 %% and 3 µs", p50, before50, after50)
				}
			})
		}
	}
}

// Go's own reverse proxy, in which one thread receives a request and another may send it on.
func TestReverseProxyOfGo(t *testing.T) {
	p := openShared(t)
	address, owner, _ := startProxy(t, "reverseproxy", upstreamVariable+"="+upstreamServer(t, time.Millisecond),
		pauseVariable+"=3ms")
	before := found(t, p, ownedBy(owner), "http://"+address+"/")
	get(t, 8, 50, func(i int) string { return fmt.Sprintf("http://%s/%c", address, 'a'+i%3) })
	got := expectProxied(t, p, ownedBy(owner), before, 400, 400)
	if p50 := got.Took.Quantile(0.5); p50 < 0.003 {
		t.Errorf("p50 %v s, less than it waits", p50)
	}
	before = proxyOf(t, p, ownedBy(owner))
	get(t, 4, 30, func(i int) string { return "http://" + address + []string{"/own", "/a"}[i%2] })
	expectProxied(t, p, ownedBy(owner), before, 120, 60)
}

// Streams of HTTP/2 are requests: here all of them are sent on over one connection.
func TestReverseProxyOfHTTP2(t *testing.T) {
	p := openShared(t)
	for _, speaks := range [][2]string{{"2", "2"}, {"1", "2"}, {"2", "1"}} {
		t.Run(fmt.Sprint("HTTP/", speaks[0], " to HTTP/", speaks[1]), func(t *testing.T) {
			address, owner, _ := startProxy(t, "reverseproxy", upstreamVariable+"="+upstreamServer(t, time.Millisecond),
				pauseVariable+"=3ms", speaksVariable+"="+speaks[1])
			url := func(i int) string { return fmt.Sprintf("http://%s/%c", address, 'a'+i%3) }
			found(t, p, ownedBy(owner), url(0))
			getBy(t, speaks[0], 1, 1, url)
			before := proxyOf(t, p, ownedBy(owner)) // the edges of these connections are known
			getBy(t, speaks[0], 8, 50, url)
			got := expectProxied(t, p, ownedBy(owner), before, 400, 400)
			if p50 := got.Took.Quantile(0.5); p50 < 0.003 {
				t.Errorf("p50 %v s, less than it waits", p50)
			}
		})
	}
}

// A gateway that writes requests anew: they are found as long as they are alone in it.
func TestProxyThatRenames(t *testing.T) {
	p := openShared(t)
	address, owner, _ := startProxy(t, "reverseproxy", upstreamVariable+"="+upstreamServer(t, 0),
		renameVariable+"=/inner", pauseVariable+"=300us")
	before := found(t, p, ownedBy(owner), "http://"+address+"/")
	get(t, 1, 100, func(int) string { return "http://" + address + "/shop" })
	got := since(proxyOf(t, p, ownedBy(owner)), before)
	if got.Requests != 100 || got.Matched != 100 || got.Alone != 100 {
		t.Errorf("%+v", got)
	}
	// At once, none is taken for another one: what cannot be told apart is not timed.
	before = proxyOf(t, p, ownedBy(owner))
	get(t, 8, 50, func(int) string { return "http://" + address + "/shop" })
	got = since(proxyOf(t, p, ownedBy(owner)), before)
	if got.Requests != 400 || got.Matched != got.Alone || got.Matched > 400 {
		t.Errorf("at once: %+v", got)
	}
	if got.Matched > 0 && got.Took.Quantile(0.01) < 0.0003 {
		t.Errorf("at once: p1 %v s, less than it waits", got.Took.Quantile(0.01))
	}
}

// nginxProxy listens with an option, in a control group of its own; more is in the description of the upstream server,
// at its end.
func nginxProxy(t *testing.T, option, upstream, more string) (port uint16, owner model.CgroupID) {
	t.Helper()
	g := kerneltest.NewGroup(t, "outsight-nginx")
	port, dir := freePort(t), t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	os.WriteFile(config, fmt.Appendf(nil, `
daemon off; worker_processes 2; pid %[1]s/pid; error_log stderr; user root;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	upstream up { server %[3]s; %[4]s }
	server {
		listen 127.0.0.1:%[2]d %[5]s;
		location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; }
		location /own { return 200 "mine"; }
	}
}`, dir, port, upstream, more, option), 0o644)
	daemon(t, port, "/bin/sh", append([]string{"-c",
		`config=$0; for group; do echo $$ >$group/cgroup.procs; done; exec /usr/sbin/nginx -c $config`, config}, g.Dirs...)...)
	return port, g.ID(t)
}

func TestNginxAsProxy(t *testing.T) {
	p := openShared(t)
	for name, more := range map[string]string{"a connection for each": "", "connections kept": "keepalive 16;"} {
		t.Run(name, func(t *testing.T) {
			port, owner := nginxProxy(t, "", upstreamServer(t, 2*time.Millisecond), more)
			is := ownedBy(owner)
			base := "http://" + address(port)
			before := found(t, p, is, base+"/")
			begin := time.Now()
			get(t, 6, 50, func(i int) string { return fmt.Sprintf("%s/%c/%d", base, 'a'+i%3, i) })
			all := time.Since(begin)
			got := expectProxied(t, p, is, before, 300, 300)
			// Each of six connections waits for the upstream server for 50 * 2 ms.
			if most := 6 * (all - 100*time.Millisecond); time.Duration(got.Took.SumNS) > most {
				t.Errorf("in the proxy for %v in all, of at most %v", time.Duration(got.Took.SumNS), most)
			}
			t.Logf("p50 %.1f µs, p99 %.1f µs", got.Took.Quantile(0.5)*1e6, got.Took.Quantile(0.99)*1e6)
			before = proxyOf(t, p, is)
			get(t, 4, 30, func(i int) string { return base + []string{"/own", "/a"}[i%2] })
			// What it answers itself is not found again, and takes nothing from what it sends on.
			expectProxied(t, p, is, before, 120, 60)
		})
	}
}

// nginx that ends encryption: what it receives cannot be read, so a request is found while it is the only one.
func TestNginxThatEndsTLS(t *testing.T) {
	p := openShared(t)
	dir := t.TempDir()
	execute(t, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
		"-subj", "/CN=localhost", "-keyout", filepath.Join(dir, "key"), "-out", filepath.Join(dir, "certificate"))
	port, owner := nginxProxy(t, "ssl", upstreamServer(t, 0), fmt.Sprintf("keepalive 16; } ssl_certificate %[1]s/certificate; "+
		"ssl_certificate_key %[1]s/key; map $host $unused { default 0;", dir))
	base, is := "https://"+address(port), ownedBy(owner)
	before := found(t, p, is, base+"/")
	const requests = 100
	get(t, 1, requests, func(int) string { return base + "/shop" })
	got := since(proxyOf(t, p, is), before)
	if got.Matched < requests*95/100 || got.Matched != got.Alone {
		t.Errorf("%d requests: %+v", requests, got)
	}
	t.Logf("%d requests with the handshake, %d matched, p50 %.1f µs", got.Requests, got.Matched, got.Took.Quantile(0.5)*1e6)
}

// A server that asks a database for each request sends none on.
func TestServerThatAsksADatabaseIsNoProxy(t *testing.T) {
	p := openShared(t)
	redis := freePort(t)
	daemon(t, redis, "/usr/bin/redis-server", "--port", strconv.Itoa(int(redis)), "--save", "", "--dir", t.TempDir())
	address, owner, _ := startProxy(t, "asksdatabase", upstreamVariable+"="+address(redis))
	before := found(t, p, ownedBy(owner), "http://"+address+"/")
	get(t, 1, 100, func(int) string { return "http://" + address + "/" })
	get(t, 4, 100, func(int) string { return "http://" + address + "/" })
	if got := since(proxyOf(t, p, ownedBy(owner)), before); got.Requests != 500 || got.Matched != 0 {
		t.Errorf("%+v", got)
	}
	// After a while this is known, and costs nothing any more.
	kerneltest.Eventually(t, "it is no proxy", func() bool {
		get(t, 1, 100, func(int) string { return "http://" + address + "/" })
		proxyOf(t, p, ownedBy(owner))
		return !slices.ContainsFunc(p.ReadProxies(), func(k model.KernelProxy) bool { return k.Owner == owner })
	})
	for _, edge := range p.edges.inUse() {
		if model.CgroupID(edge.Key.Owner) == owner && edge.Proxy != 0 {
			t.Error("one of its edges still is a proxy's")
		}
	}
}

// BenchmarkProxies tells what the data hooks cost per run where a request is received and sent on: of a program that is
// not known to be a proxy, and of one that is. All ends are in this program, so that half of the runs are those of the
// client and of the upstream server.
func BenchmarkProxies(b *testing.B) {
	request, reply := []byte("GET /shop/cart HTTP/1.1\r\nHost: shop\r\n\r\n"), []byte("HTTP/1.1 204 No Content\r\n\r\n")
	for _, is := range []bool{false, true} {
		b.Run(map[bool]string{false: "not timed", true: "timed"}[is], func(b *testing.B) {
			p := New(Options{MaxProxies: 1})
			if err := p.Open(kerneltest.Kernel(b)); err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			client, proxy := connected(b)
			onward, server := connected(b)
			buffer := make([]byte, 1000)
			pass := func(from, to net.Conn, message []byte) {
				if _, err := from.Write(message); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(to, buffer[:len(message)]); err != nil {
					b.Fatal(err)
				}
			}
			exchange := func() {
				pass(client, proxy, request)
				pass(onward, server, request)
				pass(server, onward, reply)
				pass(proxy, client, reply)
			}
			exchange()
			if _, err := p.ReadEdges(); err != nil {
				b.Fatal(err)
			}
			// This program is a proxy by the first reading; the other's edges are not marked, or the client's are.
			for _, edge := range p.edges.inUse() {
				port := int(edge.Key.Port)
				mine := edge.Key.Role == uint8(model.RoleServer) && port == client.RemoteAddr().(*net.TCPAddr).Port ||
					edge.Key.Role == uint8(model.RoleClient) && port == onward.RemoteAddr().(*net.TCPAddr).Port
				edge.Proxy = 0
				if is && mine {
					edge.Proxy = 1
				}
			}
			for _, c := range kerneltest.CostsOf(b, p, func() {
				for b.Loop() {
					exchange()
				}
			}) {
				if c.Runs > uint64(b.N) {
					b.ReportMetric(float64(c.RunTimeNS)/float64(b.N), c.Name+"-ns/op")
				}
			}
			if got := p.ReadProxies(); is && (len(got) != 1 || got[0].Matched < uint64(b.N)) {
				b.Errorf("%+v of %d", got, b.N)
			}
		})
	}
}

// connected are the ends of a connection.
func connected(b *testing.B) (client, server net.Conn) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}
