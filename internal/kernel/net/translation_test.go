package net

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// The tests here make network namespaces with real rules of address translation between them:
//
//	client 10.213.1.2 ── router ── 10.213.2.2 first server
//	                        └───── 10.213.3.2 second server
//
// Every end is a process in a control group of its own.

const endVariable = "OUTSIGHT_TEST_END"

// An end of a connection is this test binary in another namespace and control group.
func init() {
	if what := os.Getenv(endVariable); what != "" {
		if err := end(strings.Fields(what)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// end joins control groups (its arguments) and then
//
//	serve ADDRESS...                  serves until its standard input ends
//	handover ADDRESS PROCS...         listens, moves to other control groups, and serves
//	ask ADDRESS CONNECTIONS REQUESTS  makes connections, one after another
//	hold ADDRESS CONNECTIONS REQUESTS makes connections and requests on each, and the same
//	                                  requests again when its standard input ends
func end(what []string) error {
	join := func(groups []string) error {
		for _, procs := range groups {
			if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
				return err
			}
		}
		return nil
	}
	if err := join(os.Args[1:]); err != nil {
		return err
	}
	number := func(i int) int { n, _ := strconv.Atoi(what[i]); return n }
	switch what[0] {
	case "serve", "handover":
		addresses := what[1:]
		if what[0] == "handover" {
			addresses = what[1:2]
		}
		for _, address := range addresses {
			listener, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			if what[0] == "handover" {
				if err := join(what[2:]); err != nil {
					return err
				}
			}
			go serveEnds(listener)
		}
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		return nil
	case "hold":
		var all []net.Conn
		for range number(2) {
			conn, err := net.DialTimeout("tcp", what[1], 5*time.Second)
			if err != nil {
				return err
			}
			all = append(all, conn)
			if err := ask(conn, number(3)); err != nil {
				return err
			}
		}
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		for _, conn := range all {
			if err := ask(conn, number(3)); err != nil {
				return err
			}
			conn.Close()
		}
		return nil
	}
	for range number(2) {
		conn, err := net.DialTimeout("tcp", what[1], 5*time.Second)
		if err != nil {
			return err
		}
		if err := ask(conn, number(3)); err != nil {
			return err
		}
		conn.Close()
	}
	return nil
}

func serveEnds(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			request, reply := make([]byte, requestBytes), make([]byte, replyBytes)
			for {
				if _, err := io.ReadFull(conn, request); err != nil {
					return
				}
				conn.Write(reply)
			}
		}()
	}
}

// network is a set of namespaces, each with one process in it at a time.
type network struct {
	t      *testing.T
	prefix string
}

func command(t *testing.T, words ...string) {
	t.Helper()
	if output, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, output)
	}
}

func newNetwork(t *testing.T) *network {
	n := &network{t, fmt.Sprintf("osnat%d", os.Getpid())}
	for _, name := range []string{"client", "router", "first", "second"} {
		command(t, "ip", "netns", "add", n.name(name))
		t.Cleanup(func() { exec.Command("ip", "netns", "del", n.name(name)).Run() })
		n.in(name, "ip", "link", "set", "lo", "up")
		// Neighbours are answered from the beginning.
		n.in(name, "sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
	}
	n.in("router", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	for i, name := range []string{"client", "first", "second"} {
		subnet, far := i+1, fmt.Sprintf("to%d", i+1)
		n.in("router", "ip", "link", "add", far, "type", "veth", "peer", "name", "eth0", "netns", n.name(name))
		n.in("router", "ip", "address", "add", fmt.Sprintf("10.213.%d.1/24", subnet), "dev", far)
		n.in("router", "ip", "address", "add", fmt.Sprintf("fd13:%d::1/64", subnet), "dev", far, "nodad")
		n.in("router", "ip", "link", "set", far, "up")
		n.in(name, "ip", "address", "add", fmt.Sprintf("10.213.%d.2/24", subnet), "dev", "eth0")
		n.in(name, "ip", "address", "add", fmt.Sprintf("fd13:%d::2/64", subnet), "dev", "eth0", "nodad")
		n.in(name, "ip", "link", "set", "eth0", "up")
		n.in(name, "ip", "route", "add", "default", "via", fmt.Sprintf("10.213.%d.1", subnet))
		n.in(name, "ip", "-6", "route", "add", "default", "via", fmt.Sprintf("fd13:%d::1", subnet))
	}
	for i, name := range []string{"client", "first", "second"} {
		n.awaitQueue("router", fmt.Sprintf("to%d", i+1))
		n.awaitQueue(name, "eth0")
	}
	return n
}

// awaitQueue waits until a link that is up may send. A busy kernel lets it do so up to a second after its peer is up, and
// drops what is sent before, such as the kernel's own reports of multicast listeners.
func (n *network) awaitQueue(namespace, link string) {
	n.t.Helper()
	var shown []byte
	for end := time.Now().Add(kerneltest.Patience()); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		shown, _ = exec.Command("ip", "-netns", n.name(namespace), "link", "show", link).CombinedOutput()
		if strings.Contains(string(shown), " state UP ") && !strings.Contains(string(shown), " qdisc noop ") {
			return
		}
	}
	n.t.Fatalf("%s in %s cannot send: %s", link, namespace, shown)
}

func (n *network) name(namespace string) string { return n.prefix + namespace }

// in runs a command in a namespace.
func (n *network) in(namespace string, words ...string) {
	n.t.Helper()
	command(n.t, append([]string{"nsenter", "--net=/run/netns/" + n.name(namespace)}, words...)...)
}

// rule adds an iptables rule of the table nat.
func (n *network) rule(namespace, rule string) {
	n.t.Helper()
	program := "iptables"
	if strings.Contains(rule, "fd13:") {
		program = "ip6tables"
	}
	n.in(namespace, append([]string{program, "-w", "-t", "nat"}, strings.Fields(rule)...)...)
}

// procs are the files to write to in order to join a group.
func procs(g *kerneltest.Group) []string {
	var files []string
	for _, dir := range g.Dirs {
		files = append(files, dir+"/cgroup.procs")
	}
	return files
}

// end starts a process in a namespace, "" for the host's, and a control group.
func (n *network) end(namespace string, g *kerneltest.Group, what string) *exec.Cmd {
	n.t.Helper()
	words := append([]string{os.Args[0]}, procs(g)...)
	if namespace != "" {
		words = append([]string{"nsenter", "--net=/run/netns/" + n.name(namespace)}, words...)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), endVariable+"="+what)
	return cmd
}

// start starts an end that is ready when start returns; stop ends its standard input and waits.
func (n *network) start(namespace string, g *kerneltest.Group, what string) (stop func()) {
	n.t.Helper()
	cmd := n.end(namespace, g, what)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			n.t.Errorf("%s in %s: %v", what, namespace, err)
		}
	})
	n.t.Cleanup(stop)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		n.t.Fatalf("%s in %s did not start", what, namespace)
	}
	return stop
}

func (n *network) ask(namespace string, g *kerneltest.Group, address string, connections, requests int) {
	n.t.Helper()
	cmd := n.end(namespace, g, fmt.Sprintf("ask %s %d %d", address, connections, requests))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		n.t.Fatalf("the client in %s: %v\n%s", namespace, err, output.Bytes())
	}
}

// pairedEdge is what an edge must be.
type pairedEdge struct {
	owner, peer *kerneltest.Group
	role        model.Role
	// service as this end sees it, far as the other end does.
	service, far string
	// client as the server sees it.
	client      string
	connections uint64
}

// expectPaired waits until the edges of the groups are those of want, with exact counts.
func expectPaired(t *testing.T, p *Net, requests int, groups []*kerneltest.Group, want ...pairedEdge) {
	t.Helper()
	names := map[model.CgroupID]*kerneltest.Group{}
	for _, g := range groups {
		names[g.ID(t)] = g
	}
	line := func(owner, peer *kerneltest.Group, role model.Role, service, far, client string, process string,
		c *model.EdgeCounters) string {
		name := func(g *kerneltest.Group) string {
			if g == nil {
				return "?"
			}
			return g.Dirs[0][strings.LastIndexByte(g.Dirs[0], '-')+1:]
		}
		return fmt.Sprintf("%s of %s, peer %s, at %s far %s from %s by %s: %d opened, %d closed, %d sent, %d received, %d transactions",
			role, name(owner), name(peer), service, far, client, process, c.Opens, c.Closes, c.SentBytes,
			c.ReceivedBytes, c.Transactions())
	}
	lines := map[string]bool{}
	for _, w := range want {
		n := w.connections * uint64(requests)
		c := model.EdgeCounters{Opens: w.connections, Closes: w.connections, SentBytes: n * requestBytes,
			ReceivedBytes: n * replyBytes,
			Latency:       &model.Histogram{Count: n}}
		if w.role == model.RoleServer {
			c.SentBytes, c.ReceivedBytes = c.ReceivedBytes, c.SentBytes
		}
		lines[line(w.owner, w.peer, w.role, w.service, w.far, w.client, ownName(t), &c)] = true
	}
	var got string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("got edges\n%swant\n%s", got, strings.Join(slices.Sorted(maps.Keys(lines)), "\n"))
		}
	})
	kerneltest.Eventually(t, "the edges are as they should be", func() bool {
		all, err := p.ReadEdges()
		if err != nil {
			t.Fatal(err)
		}
		got = ""
		ok, found := true, 0
		for _, e := range all {
			owner := names[e.Key.Owner]
			if owner == nil || e.Key.Forwarder {
				continue
			}
			text := func(a netip.AddrPort) string {
				if !a.IsValid() {
					return ""
				}
				return a.String()
			}
			client := ""
			if e.Key.Client.IsValid() {
				client = e.Key.Client.String()
			}
			peerProcess := e.Key.PeerProcess
			if e.Key.Peer != 0 && peerProcess != e.Key.Process {
				peerProcess = "(peer " + peerProcess + ")"
			}
			l := line(owner, names[e.Key.Peer], e.Key.Role, text(e.Key.Service), text(e.Key.Far), client, e.Key.Process,
				&e.Counters)
			got += l + " " + peerProcess + "\n"
			found++
			ok = ok && lines[l]
		}
		return ok && found == len(want)
	})
}

func TestPairingThroughTranslation(t *testing.T) {
	const requests = 3
	for _, c := range []struct {
		name string
		// rules as "namespace: rule".
		rules   []string
		servers map[string]string
		dial    string
		from    string
		want    func(client, first, second *kerneltest.Group) []pairedEdge
	}{
		{
			name:    "no translation",
			servers: map[string]string{"first": "10.213.2.2:8080"},
			dial:    "10.213.2.2:8080", from: "client",
			want: func(client, first, _ *kerneltest.Group) []pairedEdge {
				return []pairedEdge{
					{client, first, model.RoleClient, "10.213.2.2:8080", "", "", 20},
					{first, client, model.RoleServer, "10.213.2.2:8080", "", "10.213.1.2", 20},
				}
			},
		}, {
			name: "a virtual address with two servers behind it, translated on the way",
			rules: []string{
				"router: -A PREROUTING -d 10.96.0.1 -p tcp --dport 80 -m statistic --mode nth --every 2 --packet 0 -j DNAT --to 10.213.2.2:8080",
				"router: -A PREROUTING -d 10.96.0.1 -p tcp --dport 80 -j DNAT --to 10.213.3.2:9090",
			},
			servers: map[string]string{"first": "0.0.0.0:8080", "second": "[::]:9090"},
			dial:    "10.96.0.1:80", from: "client",
			want: func(client, first, second *kerneltest.Group) []pairedEdge {
				return []pairedEdge{
					{client, first, model.RoleClient, "10.96.0.1:80", "10.213.2.2:8080", "", 10},
					{client, second, model.RoleClient, "10.96.0.1:80", "10.213.3.2:9090", "", 10},
					{first, client, model.RoleServer, "10.213.2.2:8080", "10.96.0.1:80", "10.213.1.2", 10},
					{second, client, model.RoleServer, "10.213.3.2:9090", "10.96.0.1:80", "10.213.1.2", 10},
				}
			},
		}, {
			name: "a virtual address that the client's own namespace translates, and masquerading",
			rules: []string{"client: -A OUTPUT -d 10.96.0.1 -p tcp --dport 80 -j DNAT --to 10.213.2.2:8080",
				"router: -A POSTROUTING -o to2 -j MASQUERADE"},
			servers: map[string]string{"first": "10.213.2.2:8080"},
			dial:    "10.96.0.1:80", from: "client",
			want: func(client, first, _ *kerneltest.Group) []pairedEdge {
				return []pairedEdge{
					{client, first, model.RoleClient, "10.96.0.1:80", "10.213.2.2:8080", "", 20},
					{first, client, model.RoleServer, "10.213.2.2:8080", "10.96.0.1:80", "10.213.2.1", 20},
				}
			},
		}, {
			name: "hairpin: the server dials the virtual address of itself",
			rules: []string{
				"router: -A PREROUTING -d 10.96.0.1 -p tcp --dport 80 -j DNAT --to 10.213.2.2:8080",
				"router: -A POSTROUTING -s 10.213.2.2 -d 10.213.2.2 -j MASQUERADE",
			},
			servers: map[string]string{"first": "10.213.2.2:8080"},
			dial:    "10.96.0.1:80", from: "first",
			want: func(client, first, _ *kerneltest.Group) []pairedEdge {
				return []pairedEdge{
					{client, first, model.RoleClient, "10.96.0.1:80", "10.213.2.2:8080", "", 20},
					{first, client, model.RoleServer, "10.213.2.2:8080", "10.96.0.1:80", "10.213.2.1", 20},
				}
			},
		}, {
			name:    "redirected to a proxy in the client's own namespace",
			rules:   []string{"client: -A OUTPUT -p tcp -d 10.213.3.2 --dport 80 -j REDIRECT --to-ports 15001"},
			servers: map[string]string{"client": "127.0.0.1:15001"},
			dial:    "10.213.3.2:80", from: "client",
			want: func(client, first, _ *kerneltest.Group) []pairedEdge {
				return []pairedEdge{
					{client, first, model.RoleClient, "10.213.3.2:80", "127.0.0.1:15001", "", 20},
					{first, client, model.RoleServer, "127.0.0.1:15001", "10.213.3.2:80", "10.213.1.2", 20},
				}
			},
		}, {
			name: "IPv6 with masquerading",
			rules: []string{"router: -A PREROUTING -d fd13:96::1 -p tcp --dport 80 -j DNAT --to [fd13:2::2]:8080",
				"router: -A POSTROUTING -d fd13:2::/64 -j MASQUERADE"},
			servers: map[string]string{"first": "[::]:8080"},
			dial:    "[fd13:96::1]:80", from: "client",
			want: func(client, first, _ *kerneltest.Group) []pairedEdge {
				return []pairedEdge{
					{client, first, model.RoleClient, "[fd13:96::1]:80", "[fd13:2::2]:8080", "", 20},
					{first, client, model.RoleServer, "[fd13:2::2]:8080", "[fd13:96::1]:80", "fd13:2::1", 20},
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t)
			client, first, second := kerneltest.NewGroup(t, "client"), kerneltest.NewGroup(t, "first"),
				kerneltest.NewGroup(t, "second")
			for _, r := range c.rules {
				namespace, rule, _ := strings.Cut(r, ": ")
				n.rule(namespace, rule)
			}
			p := openShared(t)
			for namespace, addresses := range c.servers {
				group := first
				if namespace == "second" {
					group = second
				}
				n.start(namespace, group, "serve "+addresses)
			}
			n.ask(c.from, client, c.dial, 20, requests)
			expectPaired(t, p, requests, []*kerneltest.Group{client, first, second}, c.want(client, first, second)...)
			expectSameConnections(t, p, client, first, second)
			for _, d := range p.Drops() {
				if d.Name == "connection_pairs" && d.Count != 0 {
					t.Errorf("%d connections were not paired", d.Count)
				}
			}
		})
	}
}

// Connections that are older than the programs are paired when they are idle while they are found,
// through a translation too.
func TestPairingOfOldConnections(t *testing.T) {
	const connections, requests = 5, 2
	n := newNetwork(t)
	client, first := kerneltest.NewGroup(t, "client"), kerneltest.NewGroup(t, "first")
	n.rule("router", "-A PREROUTING -d 10.96.0.1 -p tcp --dport 80 -j DNAT --to 10.213.2.2:8080")
	n.rule("router", "-A POSTROUTING -o to2 -j MASQUERADE")
	n.start("first", first, "serve 10.213.2.2:8080")
	stop := n.start("client", client, fmt.Sprintf("hold 10.96.0.1:80 %d %d", connections, requests))
	p := open(t, Options{})
	stop()
	expectPaired(t, p, requests, []*kerneltest.Group{client, first},
		pairedEdge{client, first, model.RoleClient, "10.96.0.1:80", "10.213.2.2:8080", "", connections},
		pairedEdge{first, client, model.RoleServer, "10.213.2.2:8080", "10.96.0.1:80", "10.213.2.1", connections})
}

// A connection that nobody uses is open, and its ends know each other.
func TestPairingOfSilentConnections(t *testing.T) {
	p := openShared(t)
	server := echoServer(t, "127.0.0.1", 0)
	conn := kerneltest.Dial(t, server.Addr().String())
	kerneltest.Eventually(t, "the silent connection is open at both ends", func() bool {
		client, server := edge(t, p, server.Addr(), model.RoleClient), edge(t, p, server.Addr(), model.RoleServer)
		return client != nil && server != nil && client.Counters.Opens == 1 && server.Counters.Opens == 1 &&
			client.Key.Peer == kerneltest.OwnCgroup(t) && server.Key.Peer == kerneltest.OwnCgroup(t)
	})
	conn.Close()
	counts(t, p, server.Addr(), model.RoleClient, "it is closed", func(c model.EdgeCounters) bool {
		return c.Closes == 1
	})
}

// The first connection shows that another group accepts than listens; it is counted as opened and
// closed by the listening one. The next ones know.
func TestAcceptedByAnotherGroupThanListens(t *testing.T) {
	const requests = 2
	n := newNetwork(t)
	client, listens, accepts := kerneltest.NewGroup(t, "client"), kerneltest.NewGroup(t, "listens"),
		kerneltest.NewGroup(t, "accepts")
	p := openShared(t)
	n.start("first", listens, "handover 10.213.2.2:8080 "+strings.Join(procs(accepts), " "))
	n.ask("client", client, "10.213.2.2:8080", 1, requests)
	n.ask("client", client, "10.213.2.2:8080", 9, requests)
	var served, known model.EdgeCounters
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("who accepts: %s; the client: %s", described(served), described(known))
		}
	})
	kerneltest.Eventually(t, "all is counted", func() bool {
		all, err := p.ReadEdges()
		if err != nil {
			t.Fatal(err)
		}
		served, known = model.EdgeCounters{}, model.EdgeCounters{}
		for _, e := range all {
			if e.Key.Owner == accepts.ID(t) && e.Key.Peer == client.ID(t) {
				served.Add(&e.Counters)
			}
			if e.Key.Owner == client.ID(t) && e.Key.Peer == accepts.ID(t) {
				known.Add(&e.Counters)
			}
		}
		return served.Closes == 10 && known.Closes >= 9
	})
	if served.Opens != 10 || served.Transactions() != 10*requests {
		t.Errorf("who accepts has %d opened and %d transactions, want 10 and %d", served.Opens, served.Transactions(),
			10*requests)
	}
	// When the client's end of the first is first counted, nobody may have accepted it yet.
	if known.Opens < 9 || known.Opens > 10 || known.Closes != known.Opens || known.Transactions() != known.Opens*requests {
		t.Errorf("the client knows of %d opened, %d closed and %d transactions, want 9 or 10, all closed, with %d each",
			known.Opens, known.Closes, known.Transactions(), requests)
	}
}

// forward runs Docker's userland proxy, in the host's namespace.
func (n *network) forward(g *kerneltest.Group, from, to netip.AddrPort) {
	n.t.Helper()
	ready, signal, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	defer ready.Close()
	proxy := exec.Command("sh", append([]string{"-c", fmt.Sprintf(
		`for procs; do echo $$ >$procs; done; exec docker-proxy -proto tcp -host-ip %s -host-port %d -container-ip %s -container-port %d`,
		from.Addr(), from.Port(), to.Addr(), to.Port()), "sh"}, procs(g)...)...)
	proxy.ExtraFiles = []*os.File{signal}
	if err := proxy.Start(); err != nil {
		n.t.Fatal(err)
	}
	signal.Close()
	n.t.Cleanup(func() {
		proxy.Process.Kill()
		proxy.Wait()
	})
	if line, _ := bufio.NewReader(ready).ReadString('\n'); line != "0\n" {
		n.t.Fatalf("docker-proxy says %q", line)
	}
}

func freeAddress(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// A server behind Docker's userland proxy knows who dialled the proxy.
func TestServerBehindProxyKnowsTheClient(t *testing.T) {
	const requests = 3
	n := &network{t: t}
	proxy, first := kerneltest.NewGroup(t, "proxy"), kerneltest.NewGroup(t, "first")
	one, two := kerneltest.NewGroup(t, "one"), kerneltest.NewGroup(t, "two")
	published, address := freeAddress(t), freeAddress(t)
	p := openShared(t)
	n.start("", first, "serve "+address.String())
	n.forward(proxy, published, address)
	n.ask("", one, published.String(), 10, requests)
	n.ask("", two, published.String(), 20, requests)
	expectPaired(t, p, requests, []*kerneltest.Group{first, one, two, proxy},
		pairedEdge{one, proxy, model.RoleClient, published.String(), "", "", 10},
		pairedEdge{two, proxy, model.RoleClient, published.String(), "", "", 20},
		pairedEdge{first, one, model.RoleServer, address.String(), published.String(), "127.0.0.1", 10},
		pairedEdge{first, two, model.RoleServer, address.String(), published.String(), "127.0.0.1", 20})
}

// Where connections of two clients wait in the proxy at once, the server's client may not be
// known, but it is never the wrong one.
func TestProxyWithTwoClientsAtOnce(t *testing.T) {
	const connections, requests = 100, 1
	n := &network{t: t}
	proxy, first := kerneltest.NewGroup(t, "proxy"), kerneltest.NewGroup(t, "first")
	clients := []*kerneltest.Group{kerneltest.NewGroup(t, "one"), kerneltest.NewGroup(t, "two")}
	published, address := freeAddress(t), freeAddress(t)
	p := openShared(t)
	n.start("", first, "serve "+address.String())
	n.forward(proxy, published, address)
	var running sync.WaitGroup
	for _, g := range clients {
		running.Go(func() { n.ask("", g, published.String(), connections, requests) })
	}
	running.Wait()
	kerneltest.Eventually(t, "all connections are counted", func() bool {
		all, err := p.ReadEdges()
		if err != nil {
			t.Fatal(err)
		}
		by := map[model.CgroupID]uint64{}
		var unknown uint64
		for _, d := range p.Drops() {
			if d.Name == "forwarded_clients" {
				unknown = d.Count
			}
		}
		for _, e := range all {
			if e.Key.Owner == first.ID(t) {
				by[e.Key.Peer] += e.Counters.Closes
			}
		}
		for _, g := range clients {
			if by[g.ID(t)] > connections {
				t.Fatalf("%d connections of a client that made %d", by[g.ID(t)], connections)
			}
		}
		of := by[clients[0].ID(t)] + by[clients[1].ID(t)]
		if unknown != by[proxy.ID(t)] {
			t.Logf("%d connections of the proxy, %d clients unknown", by[proxy.ID(t)], unknown)
			return false
		}
		return of+by[proxy.ID(t)] == 2*connections
	})
}

// Sixteen clients at once: the server's end knows its client always, since the client's end is
// established first. The client's end knows its server unless its first request is away before
// the server's end is there.
func TestPairingUnderLoad(t *testing.T) {
	const clients, connections = 16, 200
	p := openShared(t)
	server := echoServer(t, "127.0.0.1", 0)
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for range connections {
				conn, err := net.Dial("tcp", server.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				if err := ask(conn, 1); err != nil {
					t.Error(err)
				}
				conn.Close()
			}
		})
	}
	running.Wait()
	opens := map[model.Role]map[bool]uint64{}
	kerneltest.Eventually(t, "all are closed", func() bool {
		all, err := p.ReadEdges()
		if err != nil {
			t.Fatal(err)
		}
		closes := uint64(0)
		opens[model.RoleClient], opens[model.RoleServer] = map[bool]uint64{}, map[bool]uint64{}
		for _, e := range all {
			if e.Key.Service == server.Addr().(*net.TCPAddr).AddrPort() {
				opens[e.Key.Role][e.Key.Peer == kerneltest.OwnCgroup(t)] += e.Counters.Opens
				closes += e.Counters.Closes
			}
		}
		return closes == 2*clients*connections
	})
	if got := opens[model.RoleServer]; got[true] != clients*connections || got[false] != 0 {
		t.Errorf("the server's end knows %d clients and does not know %d", got[true], got[false])
	}
	got := opens[model.RoleClient]
	if got[true]+got[false] != clients*connections || got[false] > clients*connections/100 {
		t.Errorf("the client's end knows %d servers and does not know %d", got[true], got[false])
	}
	// No pair is left but that of the connection that is open.
	kerneltest.Dial(t, server.Addr().String())
	if left := len(pairsAt(t, p, server.Addr().(*net.TCPAddr).AddrPort().Port())); left != 1 {
		t.Errorf("%d pairs, want that of the one open connection", left)
	}
}

// ownName is the name of this process as the kernel has it.
func ownName(t *testing.T) string {
	t.Helper()
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(name))
}
