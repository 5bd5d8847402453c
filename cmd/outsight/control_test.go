package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"outsight/internal/control"
	"outsight/internal/export"
	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/probe"
	"outsight/internal/queue"
	"outsight/internal/stamp"
	"outsight/test/natscluster"
)

// inNamespace runs the rest of a test in another process with a network of its own, loopback with these addresses, beside
// other tests.
func inNamespace(t *testing.T, addresses ...string) (inside bool) {
	t.Helper()
	const mark = "OUTSIGHT_TEST_IN_NAMESPACE"
	if os.Getenv(mark) == t.Name() {
		commands := []string{"ip link set lo up"}
		for _, a := range addresses {
			commands = append(commands, "ip addr add "+a+"/32 dev lo")
		}
		for _, c := range commands {
			words := strings.Fields(c)
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v %s", c, err, out)
			}
		}
		return true
	}
	t.Parallel()
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), mark+"="+t.Name())
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// simulatedHost is an agent that measures and sends for real, and sees what a test says.
type simulatedHost struct {
	name, address string
	monitor       *probe.Monitor
	builder       *frame.Builder
	// peer is who talks to it, or to whom it talks as a client; bytes are how much.
	peer   string
	client bool
	bytes  *atomic.Uint64
	newest atomic.Pointer[frame.Frame]
	// own is who talks instead of the host, by an address of its own, and other the address of the other end; process is one
	// in its network namespace.
	own     *model.Container
	other   netip.Addr
	process func(id string) (*os.File, error)
}

const databasePort = "5432"

// runBoth runs the agents of two hosts until stop, and waits until both have made frames.
func runBoth(t *testing.T, a, b *simulatedHost, server, token string) (stop func()) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	agents, stop := context.WithCancel(t.Context())
	a.run(agents, t, server, token, log)
	b.run(agents, t, server, token, log)
	eventually(t, "frames", func() bool { return a.newest.Load() != nil && b.newest.Load() != nil })
	return stop
}

// run watches, measures and sends until ctx ends.
func (h *simulatedHost) run(ctx context.Context, t *testing.T, server, token string, log *slog.Logger) {
	epoch := time.Now()
	h.builder = frame.NewBuilder(epoch)
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		err := export.While(ctx, export.Options{Server: server, Spool: t.TempDir(), Logger: log, MaxBackoff: time.Second},
			export.Files{Token: path}, func(e *export.Exporter) (err error) {
				h.monitor, err = probe.OpenMonitor(probe.MonitorOptions{Listen: h.address + ":862", Server: e, Logger: log})
				if err != nil {
					return err
				}
				var beside sync.WaitGroup
				defer beside.Wait()
				beside.Go(func() {
					if err := h.monitor.Run(ctx, h.newest.Load, h.process); err != nil {
						t.Error(err)
					}
				})
				tick := time.NewTicker(250 * time.Millisecond)
				defer tick.Stop()
				for {
					if e.WantsKey() {
						h.builder.ForceKey()
					}
					f := h.builder.Build(h.snapshot())
					h.newest.Store(f)
					if err := e.Consume(ctx, f); err != nil {
						return err
					}
					select {
					case <-ctx.Done():
						return nil
					case <-tick.C:
					}
				}
			})
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
}

func (h *simulatedHost) snapshot() *model.Snapshot {
	own, other := netip.MustParseAddr(h.address), netip.MustParseAddr(h.peer)
	host := &model.Container{ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime,
		Addresses: []netip.Addr{own}}
	s := &model.Snapshot{Time: time.Now(), Host: model.Host{Name: h.name, Cores: 1}, Probes: h.monitor.Sample(),
		Containers: []model.ContainerSample{{Container: host}}}
	e := model.Edge{Instance: 1, Counters: model.EdgeCounters{SentBytes: h.bytes.Load(), ReceivedBytes: h.bytes.Load()}}
	if h.client {
		e.Side, e.Client, e.Server = model.RoleClient, model.Peer{Container: host}, model.Peer{Address: other}
		e.Service = netip.MustParseAddrPort(h.peer + ":" + databasePort)
	} else {
		e.Side, e.Client, e.Server = model.RoleServer, model.Peer{Address: other}, model.Peer{Container: host}
		e.Service = netip.MustParseAddrPort(h.address + ":" + databasePort)
	}
	// The measurements themselves are traffic that both hosts see.
	port := fmt.Sprint(h.monitor.Port())
	udp := e
	udp.Instance, udp.Transport = 2, model.UDP
	udp.Service = netip.MustParseAddrPort(strings.TrimSuffix(e.Service.String(), databasePort) + port)
	udp.Counters = model.EdgeCounters{SentBytes: uint64(time.Now().UnixNano())}
	s.Edges = []model.Edge{e, udp}
	if h.own != nil {
		s.Containers = append(s.Containers, model.ContainerSample{Container: h.own})
		h.addContainer(s, port)
	}
	return s
}

// addContainer has the container talk instead of the host, which measures the way between the containers.
func (h *simulatedHost) addContainer(s *model.Snapshot, port string) {
	e, udp := &s.Edges[0], s.Edges[1]
	udp.Instance = 3
	at := h.own.Addresses[0]
	if h.client {
		at = h.other
		e.Client.Container, e.Server.Address = h.own, at
	} else {
		e.Server.Container, e.Client.Address = h.own, h.other
	}
	e.Service, udp.Service = netip.MustParseAddrPort(at.String()+":"+databasePort), netip.MustParseAddrPort(at.String()+":"+port)
	s.Edges = append(s.Edges, udp)
}

// metrics are those of the host's newest frame, as its agent's /metrics has them.
func (h *simulatedHost) metrics(t *testing.T) string {
	w := &bytes.Buffer{}
	for _, s := range otlp.FromFrame(h.newest.Load(), otlp.SeriesOptions{}) {
		if strings.HasPrefix(s.Name, "outsight_probe_") || strings.HasPrefix(s.Name, "outsight_container_probe_") {
			value := s.Value
			if s.Histogram != nil {
				value = float64(s.Histogram.Count)
			}
			fmt.Fprintf(w, "%s%v %v\n", s.Name, s.Labels, value)
		}
	}
	return w.String()
}

func (h *simulatedHost) sessions() []model.ProbeSession { return h.monitor.Sample().Sessions }

// eventually waits for what is to come by itself, and tells how long it took.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	begun := time.Now()
	for !f() {
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("%s: not within %v", what, time.Since(begun))
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%s after %v", what, time.Since(begun).Round(10*time.Millisecond))
}

// serveProbes runs a server, at the usual ports, until stop.
func serveProbes(t *testing.T, tokens string, more ...string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		root := newRoot()
		root.SetArgs(append([]string{"server", "--data", filepath.Join(t.TempDir(), "data"), "--otlp", "", "--token-file", tokens,
			"--probe-interval", "2s", "--kubernetes", "off"}, more...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() { cancel(); serving.Wait() }
}

// keepTalking lets hosts go on to talk until quiet is called.
func keepTalking(t *testing.T, talked *atomic.Uint64) (quiet func()) {
	talking, stop := context.WithCancel(t.Context())
	var chatter sync.WaitGroup
	chatter.Go(func() {
		for talking.Err() == nil {
			talked.Add(1000)
			time.Sleep(100 * time.Millisecond)
		}
	})
	return func() {
		stop()
		chatter.Wait()
	}
}

// probesOf is what outsight probe shows of a server.
func probesOf(t *testing.T, server, tokens string, more ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := run(append([]string{"probe", "--server", server, "--token-file", tokens}, more...), &out, &errOut); code != 0 {
		t.Fatalf("probe ends with %d: %s", code, errOut.String())
	}
	return out.String()
}

// getJSON reads the answer of a server.
func getJSON(t *testing.T, url, token string, into any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, response.Status, err)
	}
}

// TestMeasuredPair: two hosts that talk are measured, what was measured is in frames, on the server and in its answers,
// and ends with the talk. A host with a wrong token is measured by nobody, and strangers are not answered.
func TestMeasuredPair(t *testing.T) {
	if !inNamespace(t, "198.51.100.1", "198.51.100.2", "198.51.100.3") {
		return
	}
	const token, page, senders = "0123456789abcdef", "http://127.0.0.1:8470", "http://127.0.0.1:4318"
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer serveProbes(t, tokens)()
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	talked := &atomic.Uint64{}
	a := &simulatedHost{name: "a", address: "198.51.100.1", peer: "198.51.100.2", client: true, bytes: talked}
	b := &simulatedHost{name: "b", address: "198.51.100.2", peer: "198.51.100.1", bytes: talked}
	c := &simulatedHost{name: "c", address: "198.51.100.3", peer: "198.51.100.1", bytes: talked}
	agents, stop := context.WithCancel(t.Context())
	a.run(agents, t, senders, token, log)
	b.run(agents, t, senders, token, log)
	c.run(agents, t, senders, "another-0123456789", log)
	defer stop()
	for _, h := range []*simulatedHost{a, b, c} {
		eventually(t, "frames of "+h.name, func() bool { return h.newest.Load() != nil })
	}
	time.Sleep(3 * time.Second)
	if n := len(a.sessions()); n != 0 {
		t.Errorf("%d sessions without any talk", n)
	}

	quiet := keepTalking(t, talked)
	eventually(t, "a session", func() bool { return len(a.sessions()) == 1 })
	eventually(t, "ten round trips", func() bool {
		s := a.sessions()
		return len(s) == 1 && s[0].RoundTrip != nil && s[0].RoundTrip.Count >= 10
	})
	if s := a.sessions()[0]; s.Peer != "b" || s.Interval != 100*time.Millisecond || !s.Answered || s.Lost > 0 {
		t.Errorf("the session is %+v", s)
	}
	if n := len(b.sessions()) + len(c.sessions()); n != 0 {
		t.Errorf("%d sessions of the others", n)
	}
	labels := "[{dscp 0} {host a} {peer b}]"
	for _, want := range []string{"outsight_probe_sent_packets_total" + labels,
		"outsight_probe_round_trip_duration_seconds" + labels, "outsight_probe_answered" + labels + " 1"} {
		eventually(t, want, func() bool { return strings.Contains(a.metrics(t), want) })
	}
	eventually(t, "the reflector's answers", func() bool {
		return strings.Contains(b.metrics(t), "outsight_probe_reflector_packets_total[{host b} {result answered}] ")
	})

	// What users see.
	list := func(args ...string) string { return probesOf(t, page, tokens, args...) }
	eventually(t, "a line of outsight probe", func() bool { return strings.Contains(list(), "a     b   each 100ms") })
	t.Logf("%s", list())
	var answer struct{ Probes []fleet.Probe }
	if err := json.Unmarshal([]byte(list("198.51.100.2", "--output", "json")), &answer); err != nil {
		t.Fatal(err)
	}
	if all := answer.Probes; len(all) != 1 || !all[0].Running || all[0].RoundTrip == nil || all[0].Lost > 0 {
		t.Errorf("of b's address the server answers %+v", answer)
	}
	if text := list("198.51.100.3"); !strings.Contains(text, "No network") {
		t.Errorf("of another address the server answers %s", text)
	}

	// A stranger by its address, and one with another key at an address that is known.
	for _, stranger := range []struct{ from, counted string }{{"198.51.100.3", "stranger"}, {"198.51.100.1", "forged"}} {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(stranger.from)})
		if err != nil {
			t.Fatal(err)
		}
		session := b.monitor.Session("a")
		sender, err := stamp.NewSender(conn, netip.AddrPortFrom(netip.MustParseAddr(b.address), b.monitor.Port()),
			stamp.SenderOptions{Count: 3, Interval: 10 * time.Millisecond, Timeout: 200 * time.Millisecond, Session: session,
				Key: stamp.Key("not the key of this session")})
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.Run(t.Context(), func(s stamp.Sample) {
			if !s.Lost {
				t.Errorf("a %s was answered", stranger.counted)
			}
		}); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("outsight_probe_reflector_packets_total[{host b} {result %s}] 3\n", stranger.counted)
		eventually(t, want, func() bool { return strings.Contains(b.metrics(t), want) })
	}

	quiet()
	eventually(t, "the end of the session", func() bool { return len(a.sessions()) == 0 })
	eventually(t, "the end of its levels", func() bool { return !strings.Contains(a.metrics(t), "outsight_probe_answered") })
	answered := b.monitor.Sample().Reflector.Answered
	time.Sleep(time.Second)
	if now := b.monitor.Sample().Reflector.Answered; now != answered {
		t.Errorf("%d packets were answered after the end", now-answered)
	}
	eventually(t, "its end at the server", func() bool { return strings.Contains(list(), "a     b   ended") })

	// What happened is told of frames, with what was measured of the two hosts, and of no other.
	get := func(path string, into any) {
		t.Helper()
		getJSON(t, page+path, token, into)
	}
	var told struct{ Events []fleet.Event }
	eventually(t, "begin and end as events", func() bool {
		get("/api/outsight/events?from=now-2m&points=120", &told)
		return len(told.Events) == 2
	})
	for i, want := range []fleet.EventKind{fleet.PairEnded, fleet.PairMeasured} {
		if e := told.Events[i]; e.Kind != want || e.From != "a" || e.To != "b" || e.WithinSeconds <= 0 {
			t.Errorf("event %d is %+v, want %s", i, e, want)
		}
	}
	for hosts, want := range map[string]int{"host=a&host=b": 1, "host=b&host=a": 1, "host=b": 0, "host=c": 0, "host=a&host=c": 0} {
		var of struct{ Probes []fleet.Probe }
		if get("/api/outsight/probes?from=now-2m&"+hosts, &of); len(of.Probes) != want {
			t.Errorf("with %s there are %d measurements, want %d", hosts, len(of.Probes), want)
		}
	}
	var matrix struct {
		Rows, Columns []struct{ Name string }
		Cells         []struct {
			Row, Column int
			Numbers     map[string]float64
		}
	}
	get("/api/outsight/matrix?by=host&from=now-2m&numbers=probe_round_trip_p50,probe_loss_ratio,loss_ratio", &matrix)
	if len(matrix.Cells) != 1 {
		t.Fatalf("the matrix of hosts is %+v", matrix)
	}
	cell := matrix.Cells[0]
	_, counted := cell.Numbers["loss_ratio"]
	lost, measured := cell.Numbers["probe_loss_ratio"]
	if matrix.Rows[cell.Row].Name != "a" || matrix.Columns[cell.Column].Name != "b" || !measured || lost != 0 || counted ||
		cell.Numbers["probe_round_trip_p50"] <= 0 {
		t.Errorf("the matrix of hosts is %+v", matrix)
	}
	stop()
}

// TestMeasuredClasses: with --probe-dscp two hosts are measured in each class of service, and packets have it on the wire.
func TestMeasuredClasses(t *testing.T) {
	if !inNamespace(t, "198.51.100.1", "198.51.100.2") {
		return
	}
	// Packets of this class are lost, and no others.
	rule := strings.Fields("-A INPUT -p udp --dport 862 -m dscp --dscp 10 -j DROP")
	if out, err := exec.Command("iptables", rule...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const token, page, senders = "0123456789abcdef", "http://127.0.0.1:8470", "http://127.0.0.1:4318"
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer serveProbes(t, tokens, "--probe-dscp", "0,10,46")()
	talked := &atomic.Uint64{}
	a := &simulatedHost{name: "a", address: "198.51.100.1", peer: "198.51.100.2", client: true, bytes: talked}
	b := &simulatedHost{name: "b", address: "198.51.100.2", peer: "198.51.100.1", bytes: talked}
	stop := runBoth(t, a, b, senders, token)
	defer stop()
	quiet := keepTalking(t, talked)
	defer quiet()
	eventually(t, "ten round trips in two classes, and losses in one", func() bool {
		s := a.sessions()
		return len(s) == 3 && s[0].Received >= 10 && s[1].Lost > 0 && s[2].Received >= 10
	})
	for i, want := range []uint8{0, 10, 46} {
		if s := a.sessions()[i]; s.DSCP != want || s.Peer != "b" || s.Answered != (want != 10) || want != 10 && s.Lost > 0 {
			t.Errorf("class %d has the session %+v", want, s)
		}
	}
	for _, want := range []string{"{dscp 0} {host a} {peer b}] 1", "{dscp 10} {host a} {peer b}] 0", "{dscp 46} {host a} {peer b}] 1"} {
		eventually(t, want, func() bool { return strings.Contains(a.metrics(t), "outsight_probe_answered["+want) })
	}
	eventually(t, "a line of outsight probe for each class", func() bool {
		text := probesOf(t, page, tokens)
		return strings.Contains(text, "b (DSCP 46)  each 100ms") && strings.Contains(text, "b (DSCP 10)  not answered")
	})
	t.Logf("%s", probesOf(t, page, tokens))
	quiet()
	eventually(t, "the end of the sessions", func() bool { return len(a.sessions()) == 0 })
	for _, wrong := range []string{"64", "0,0", "0,1,2,3,4,5,6,7,8", "-1", "x", ""} {
		var out bytes.Buffer
		if code := run([]string{"server", "--data", t.TempDir(), "--probe-dscp", wrong}, &out, &out); code != 2 {
			t.Errorf("--probe-dscp %q ends with %d: %s", wrong, code, out.String())
		}
	}
	stop()
}

// namespace is a process in a network namespace of its own.
type namespace struct {
	t   *testing.T
	pid int
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	c := exec.Command("sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return &namespace{t, c.Process.Pid}
}

// run runs a command in it.
func (n *namespace) run(format string, args ...any) {
	n.t.Helper()
	words := append([]string{"-t", strconv.Itoa(n.pid), "-n"}, strings.Fields(fmt.Sprintf(format, args...))...)
	if out, err := exec.Command("nsenter", words...).CombinedOutput(); err != nil {
		n.t.Fatalf("%s: %v: %s", format, err, out)
	}
}

// open opens the process, whatever the container's ID.
func (n *namespace) open(string) (*os.File, error) {
	fd, err := unix.PidfdOpen(n.pid, unix.PIDFD_NONBLOCK)
	return os.NewFile(uintptr(fd), "pidfd"), err
}

// hostsWithContainers are two hosts of which containers talk, in network namespaces that are joined apart from the hosts.
func hostsWithContainers(t *testing.T, talked *atomic.Uint64) (a, b *simulatedHost) {
	web, db := newNamespace(t), newNamespace(t)
	web.run("ip link add eth0 type veth peer name eth0 netns %d", db.pid)
	for n, own := range map[*namespace]string{web: "10.1.1.2/16", db: "10.1.2.2/16"} {
		n.run("ip addr add %s dev eth0", own)
		n.run("ip link set eth0 up")
	}
	container := func(name, address string) *model.Container {
		return &model.Container{ID: "id-" + name, Name: name, Runtime: model.Docker, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	}
	a = &simulatedHost{name: "a", address: "198.51.100.1", peer: "198.51.100.2", client: true, bytes: talked,
		own: container("web", "10.1.1.2"), other: netip.MustParseAddr("10.1.2.2"), process: web.open}
	b = &simulatedHost{name: "b", address: "198.51.100.2", peer: "198.51.100.1", bytes: talked,
		own: container("db", "10.1.2.2"), other: netip.MustParseAddr("10.1.1.2"), process: db.open}
	return a, b
}

// TestMeasuredContainers: two containers that talk by addresses of their own are measured from inside their network
// namespaces, while nothing that measures passes between their hosts; that is in metrics, on the server and in its answers,
// and ends with the talk, although the measurements themselves are seen as traffic.
func TestMeasuredContainers(t *testing.T) {
	if !inNamespace(t, "198.51.100.1", "198.51.100.2") {
		return
	}
	if out, err := exec.Command("iptables", "-A", "INPUT", "-p", "udp", "-d", "198.51.100.0/24", "-j", "DROP").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const token, page, senders = "0123456789abcdef", "http://127.0.0.1:8470", "http://127.0.0.1:4318"
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer serveProbes(t, tokens)()
	talked := &atomic.Uint64{}
	a, b := hostsWithContainers(t, talked)
	stop := runBoth(t, a, b, senders, token)
	defer stop()
	quiet := keepTalking(t, talked)
	eventually(t, "two sessions", func() bool { return len(a.sessions()) == 2 })
	eventually(t, "ten round trips of containers", func() bool {
		s := a.sessions()
		return len(s) == 2 && s[1].RoundTrip != nil && s[1].RoundTrip.Count >= 10 && s[0].Lost > 0
	})
	if s := a.sessions(); s[0].Client != "" || s[0].Answered || s[0].RoundTrip != nil || s[1].Client != "web" ||
		s[1].Server != "db" || s[1].Peer != "b" || !s[1].Answered || s[1].Lost > 0 {
		t.Errorf("the sessions are %+v", s)
	}
	if n := len(b.sessions()); n != 0 {
		t.Errorf("%d sessions of the server's host", n)
	}
	labels := "[{client web} {host a} {peer b} {server db}]"
	for _, want := range []string{"outsight_container_probe_round_trip_duration_seconds" + labels,
		"outsight_container_probe_answered" + labels + " 1"} {
		eventually(t, want, func() bool { return strings.Contains(a.metrics(t), want) })
	}
	list := func(args ...string) string { return probesOf(t, page, tokens, args...) }
	eventually(t, "a line of outsight probe", func() bool { return strings.Contains(list(), "web on a  db on b  each 100ms") })
	t.Logf("%s", list())
	var answer struct{ Probes []fleet.Probe }
	if err := json.Unmarshal([]byte(list("10.1.2.2", "--output", "json")), &answer); err != nil {
		t.Fatal(err)
	}
	if all := answer.Probes; len(all) != 2 || all[0].Client != "" || all[0].Answered || all[1].Client != "web" ||
		all[1].Server != "db" || !all[1].Running || !all[1].Answered || all[1].RoundTrip == nil || all[1].Lost > 0 {
		t.Errorf("of the address of db the server answers %+v", answer)
	}
	quiet()
	eventually(t, "the end of the sessions", func() bool { return len(a.sessions()) == 0 })
	eventually(t, "the end of its levels", func() bool { return !strings.Contains(a.metrics(t), "probe_answered") })
	eventually(t, "its end at the server", func() bool { return strings.Contains(list(), "web on a  db on b  ended") })

	// What was measured is in the containers' cell of the matrix, and begin and end are events.
	var table bytes.Buffer
	if code := run([]string{"matrix", "--server", page, "--token-file", tokens, "--output", "csv", "--number",
		"probe_round_trip_p50,probe_loss_ratio", "--from", "now-2m"}, &table, &table); code != 0 {
		t.Fatalf("matrix ends with %d: %s", code, table.String())
	}
	t.Logf("%s", table.String())
	cells, err := csv.NewReader(&table).ReadAll()
	if err != nil || len(cells) != 3 {
		t.Fatalf("the matrix is %q, %v", cells, err)
	}
	cell := map[string]string{}
	for i, name := range cells[0] {
		if cell[name] = cells[2][i]; cells[1][i] != "" && strings.HasPrefix(name, "probe_") {
			t.Errorf("of what the hosts do outside of containers the matrix has %s: %s", name, cells[1][i])
		}
	}
	if cell["client"] != "web" || cell["server"] != "db" {
		t.Errorf("the matrix is %q", cells)
	}
	if trip, err := strconv.ParseFloat(cell["probe_round_trip_p50"], 64); err != nil || trip <= 0 || cell["probe_loss_ratio"] != "0" {
		t.Errorf("the cell of the containers is %v", cell)
	}
	var told struct{ Events []fleet.Event }
	eventually(t, "begin and end as events", func() bool {
		getJSON(t, page+"/api/outsight/events?from=now-2m&points=120", token, &told)
		return len(told.Events) == 4
	})
	for kind, want := range map[fleet.EventKind]int{fleet.PairMeasured: 1, fleet.PairEnded: 1} {
		count := 0
		for _, e := range told.Events {
			if e.Kind == kind && e.Client == "web" && e.Server == "db" && e.From == "a" && e.To == "b" {
				count++
			}
		}
		if count != want {
			t.Errorf("%d events %s of the containers, want %d: %+v", count, kind, want, told.Events)
		}
	}
	stop()
}

// desired is what a server has a host do. The host's own question, which waits, is answered then and asked again.
func (h *simulatedHost) desired(t *testing.T, server, token string) (state control.State, ok bool) {
	t.Helper()
	text, err := json.Marshal(control.Question{Host: h.name, Epoch: h.newest.Load().Epoch,
		Addresses: []netip.Addr{netip.MustParseAddr(h.address)}, Port: h.monitor.Port(), Containers: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+control.Path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", control.ContentType)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return state, false
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return state, false
	}
	if state, err = control.ParseState(text); err != nil {
		t.Fatal(err)
	}
	return state, true
}

// TestProbesOfAnotherServer: agents are known to a cluster of NATS servers, so another server that takes over, with no data
// of the first, has them go on with the same sessions and keys, and finds by a container's address who is measured, by which
// agent and at which reflector.
func TestProbesOfAnotherServer(t *testing.T) {
	if !inNamespace(t, "198.51.100.1", "198.51.100.2") {
		return
	}
	const token, page, senders = "0123456789abcdef", "http://127.0.0.1:8470", "http://127.0.0.1:4318"
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nats, err := natscluster.Start(3, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer nats.Stop()
	flags := []string{"--nats", nats.URLs(), "--nats-stream", "PROBES", "--nats-replicas", "3"}
	stopFirst := sync.OnceFunc(serveProbes(t, tokens, flags...))
	defer stopFirst()
	talked := &atomic.Uint64{}
	a, b := hostsWithContainers(t, talked)
	stop := runBoth(t, a, b, senders, token)
	defer stop()
	quiet := keepTalking(t, talked)
	defer quiet()
	answered := func() bool {
		s := a.sessions()
		return len(s) == 2 && s[0].Answered && s[1].Answered
	}
	eventually(t, "answers of the hosts and of the containers", answered)
	var first control.State
	eventually(t, "the state of the first server", func() (ok bool) {
		first, ok = a.desired(t, senders, token)
		return ok && len(first.Sessions) == 1 && len(first.ContainerSessions) == 1
	})

	// What any server finds in the cluster's store.
	conn, err := natsclient.Connect(nats.URLs())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	registry, err := queue.OpenRegistry(t.Context(), conn, "PROBES"+agentsBucket, 0)
	if err != nil {
		t.Fatal(err)
	}
	kept := func() map[string]control.Question {
		var all map[string][]byte
		eventually(t, "an answer of the store", func() bool { // on a busy machine it has no time for one at first
			var err error
			if all, err = registry.All(t.Context()); err != nil {
				t.Log(err)
			}
			return err == nil
		})
		agents := map[string]control.Question{}
		for key, text := range all {
			var one struct{ Agent control.Question }
			if err := json.Unmarshal(text, &one); err == nil && strings.HasPrefix(key, "agent.") {
				agents[one.Agent.Host] = one.Agent
			}
		}
		return agents
	}
	eventually(t, "both agents in the store", func() bool { return len(kept()) == 2 })
	for _, h := range []*simulatedHost{a, b} {
		q := kept()[h.name]
		if q.Port != h.monitor.Port() || !q.Containers || !slices.Contains(q.Addresses, netip.MustParseAddr(h.address)) ||
			q.Epoch != h.newest.Load().Epoch {
			t.Errorf("of %s the store has %+v", h.name, q)
		}
	}

	stopFirst()
	sent := a.sessions()[1].Sent
	defer serveProbes(t, tokens, flags...)()
	var second control.State
	eventually(t, "the state of the second server", func() (ok bool) {
		second, ok = a.desired(t, senders, token)
		return ok && len(second.ContainerSessions) == 1 && len(second.Sessions) == 1
	})
	if !reflect.DeepEqual(second, first) {
		t.Errorf("the second server has %+v, the first had %+v", second, first)
	}
	var answer struct{ Probes []fleet.Probe }
	eventually(t, "an answer by the address of a container", func() bool {
		var out, errOut bytes.Buffer
		args := []string{"probe", "--server", page, "--token-file", tokens, "--output", "json", "10.1.2.2"}
		if code := run(args, &out, &errOut); code != 0 {
			t.Logf("probe ends with %d: %s", code, errOut.String())
			return false
		}
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		return len(answer.Probes) == 2 && answer.Probes[0].RoundTrip != nil && answer.Probes[1].RoundTrip != nil
	})
	hosts, containers := answer.Probes[0], answer.Probes[1]
	if hosts.From != "a" || hosts.To != "b" || hosts.Reflector != "198.51.100.2:862" || containers.Client != "web" ||
		containers.Server != "db" || containers.To != "b" || containers.Reflector != "10.1.2.2:862" || !containers.Answered {
		t.Errorf("by the address of db the second server finds %+v", answer.Probes)
	}
	// For as long as the second server has no frames of the time in which they talk, and for a while after it.
	eventually(t, "30 packets more", func() bool { s := a.sessions(); return len(s) != 2 || s[1].Sent > sent+30 })
	if now := a.sessions(); !answered() || now[1].Sent < sent {
		t.Errorf("the sessions are %+v, and %d packets had been sent with the first server", now, sent)
	}
	for _, s := range a.sessions() {
		if s.Lost+s.Duplicates+s.ReorderedThere+s.ReorderedBack > 0 {
			t.Errorf("of a way that loses nothing and keeps the order the session says %+v", s)
		}
	}
	quiet()
	eventually(t, "the end of the sessions", func() bool { return len(a.sessions()) == 0 })
	stop()
}

// TestConfiguredPeers: two agents without a server measure one another by their flags, and one with another key is not
// answered.
func TestConfiguredPeers(t *testing.T) {
	if !inNamespace(t, "198.51.100.1", "198.51.100.2", "198.51.100.3") {
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	open := func(address, peers, key string) *probe.Monitor {
		t.Helper()
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := probe.OpenMonitor(probe.MonitorOptions{Listen: address + ":862", Peers: peers, KeyFile: path})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := m.Run(ctx, func() *frame.Frame { return nil }, nil); err != nil {
				t.Error(err)
			}
		})
		return m
	}
	const key = "0123456789abcdef"
	a := open("198.51.100.1", "198.51.100.2:862", key)
	b := open("198.51.100.2", "198.51.100.1:862,198.51.100.3:862", key)
	c := open("198.51.100.3", "198.51.100.2:862", "another-key-of-this-host")
	answered := func(m *probe.Monitor, peer string) bool {
		for _, s := range m.Sample().Sessions {
			if s.Peer == peer {
				return s.RoundTrip != nil && s.RoundTrip.Count >= 2
			}
		}
		return false
	}
	eventually(t, "a measures b", func() bool { return answered(a, "198.51.100.2") })
	eventually(t, "b measures a", func() bool { return answered(b, "198.51.100.1") })
	eventually(t, "c is forged to b", func() bool { return b.Sample().Reflector.Forged >= 3 })
	eventually(t, "c has lost b", func() bool { s := c.Sample().Sessions; return len(s) == 1 && s[0].Lost >= 3 })
	if s := c.Sample().Sessions[0]; s.Received > 0 || s.Answered || s.RoundTrip != nil {
		t.Errorf("c has of b %+v", s)
	}
	// The port is taken: what only a server asks for goes to another one.
	other, err := probe.OpenSessions(probe.SessionOptions{Listen: "198.51.100.1:862"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if port := other.Port(); port == 862 || port == 0 {
		t.Errorf("the second reflector of an address has the port %d", port)
	}
	for _, o := range []probe.MonitorOptions{{Listen: ":0", Peers: "192.0.2.1:862"}, {Listen: ":0", Peers: "192.0.2.1",
		KeyFile: "/dev/null"}, {Peers: "192.0.2.1:862", KeyFile: "/dev/null"}} {
		if m, err := probe.OpenMonitor(o); err == nil || m != nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
