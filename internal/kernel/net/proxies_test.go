package net

import (
	"bufio"
	"fmt"
	"io"
	"math"
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

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// Of the workloads that are proxies: where they send requests to, and what they wait before.
const upstreamVariable, pauseVariable, renameVariable = "OUTSIGHT_TEST_UPSTREAM", "OUTSIGHT_TEST_PAUSE",
	"OUTSIGHT_TEST_RENAME"

// stampedConn notes when it received something first since it sent something, and the other way round.
type stampedConn struct {
	net.Conn
	mu             sync.Mutex
	received, sent uint64
}

func (c *stampedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	now := host.MonotonicNS()
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && c.received == 0 {
		c.received = now
	}
	return n, err
}

func (c *stampedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	now := host.MonotonicNS()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == 0 {
		c.sent = now
	}
	return n, err
}

// take is what was noted, and begins anew.
func (c *stampedConn) take() (received, sent uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	received, sent = c.received, c.sent
	c.received, c.sent = 0, 0
	return received, sent
}

// stampingProxy passes on what it receives, over one connection for each of its clients, and prints at the end of its
// input for how many nanoseconds it has had each request, by its own stamps.
func stampingProxy() int {
	pause, _ := time.ParseDuration(os.Getenv(pauseVariable))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	var took []uint64
	serve := func(from net.Conn) error {
		defer from.Close()
		to, err := net.Dial("tcp", os.Getenv(upstreamVariable))
		if err != nil {
			return err
		}
		defer to.Close()
		client, server := &stampedConn{Conn: from}, &stampedConn{Conn: to}
		buffer := make([]byte, 4096)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return err
			}
			if pause > 0 {
				time.Sleep(pause)
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return err
			}
			received, _ := client.take()
			_, sent := server.take()
			mu.Lock()
			took = append(took, sent-received)
			mu.Unlock()
			if n, err = server.Read(buffer); err != nil {
				return err
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return err
			}
			client.take()
			server.take()
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
		fmt.Println(ns)
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
	}, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(pause)
		if r.URL.Path == "/own" {
			fmt.Fprint(w, "mine")
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	fmt.Println(listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startProxy starts a workload that is a proxy, in a control group of its own. The end of it is told what it printed.
func startProxy(t *testing.T, work string, environment ...string) (address string, owner model.CgroupID,
	end func() []uint64) {
	t.Helper()
	g := kerneltest.NewGroup(t, "outsight-proxy")
	cmd := g.Workload(work, environment...)
	in, out := kerneltest.StartTalking(t, cmd)
	end = sync.OnceValue(func() (printed []uint64) {
		in.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			ns, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
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
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
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

func median(of []uint64) float64 {
	slices.Sort(of)
	return float64(of[len(of)/2])
}

// nearStamps fails unless a time is that of the truth, but for 5 % and 3 µs.
func nearStamps(t *testing.T, what string, got, want float64) {
	t.Helper()
	t.Logf("%s: %.1f µs, by the proxy's own stamps %.1f µs", what, got/1e3, want/1e3)
	if math.Abs(got-want) > 0.05*want+3000 {
		t.Errorf("%s: %.0f ns, want %.0f within 5 %% and 3 µs", what, got, want)
	}
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
				nearStamps(t, "p50", got.Took.Quantile(0.5)*1e9, median(stamps))
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

func nginxProxy(t *testing.T, upstream, more string) uint16 {
	t.Helper()
	port, dir := freePort(t), t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	os.WriteFile(config, fmt.Appendf(nil, `
daemon off; worker_processes 2; pid %[1]s/pid; error_log stderr; user root;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	upstream up { server %[3]s; %[4]s }
	server {
		listen 127.0.0.1:%[2]d;
		location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; }
		location /own { return 200 "mine"; }
	}
}`, dir, port, upstream, more), 0o644)
	daemon(t, port, "/usr/sbin/nginx", "-c", config, "-p", dir)
	return port
}

func TestNginxAsProxy(t *testing.T) {
	p := openShared(t)
	is := func(k *model.KernelProxy) bool { return k.Process == "nginx" }
	for name, more := range map[string]string{"a connection for each": "", "connections kept": "keepalive 16;"} {
		t.Run(name, func(t *testing.T) {
			port := nginxProxy(t, upstreamServer(t, 2*time.Millisecond), more)
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
