package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/test/natscluster"
)

// running starts another outsight command, which answers at an address; it is ended with the test.
func running(t *testing.T, address string, arguments ...string) *outsight {
	t.Helper()
	o := &outsight{t: t, address: address, log: &lockedBuffer{}, ended: make(chan error, 1),
		command: exec.Command(outsightBinary, arguments...)}
	o.command.Stdout, o.command.Stderr = o.log, o.log
	if err := o.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { o.ended <- o.command.Wait() }()
	t.Cleanup(o.stop)
	return o
}

// talking are a client and a server on a network that can be told to make seven requests at a time, and an agent that
// sends nothing and offers its regions.
type talking struct {
	client, server container
	agent          *outsight
	// service is what the client asks, listen where regions are, keys the file for them.
	service, listen, keys string
}

func newTalking(t *testing.T) *talking {
	t.Helper()
	network := newNetwork(t)
	w := &talking{}
	w.server = start(t, "pull-server", []string{"--network", network}, "busybox", "httpd", "-f", "-p", "80", "-h", "/etc")
	address := docker(t, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", w.server.name)
	w.service = net.JoinHostPort(address, "80")
	w.client = shell(t, "pull-client", `turn=1; while :; do
	while [ ! -e /tmp/go$turn ]; do sleep 0.2; done
	for k in 1 2 3; do dd if=/dev/zero of=/tmp/written$k bs=64k count=4 conv=fsync 2>/dev/null; done
	for k in 1 2 3 4 5 6 7; do busybox wget -q -O /dev/null http://`+address+`/passwd; done
	echo done $turn; turn=$((turn+1))
done`, "--network", network, "--memory", "100m", "--cpus", "0.75", "--pids-limit", "100")
	var offered []string
	offered, w.listen, w.keys = regionsIn(t, network)
	at := freePort(t)
	w.agent = running(t, at, append([]string{"agent", "--listen", at, "--socket", socket(t)}, offered...)...)
	w.agent.hasSnapshot()
	w.agent.knowsByMetrics(w.client)
	return w
}

// knowsByMetrics waits until an agent has the container in /metrics.
func (o *outsight) knowsByMetrics(c container) {
	o.t.Helper()
	eventually(o.t, func() error {
		metrics, err := o.metrics()
		if err == nil && len(metrics.find("container_cpu_usage_seconds_total", map[string]string{"id": c.id})) == 0 {
			err = errors.New("the agent does not know the container")
		}
		return err
	})
}

// work lets the client make seven requests, and waits until it has.
func (w *talking) work(turn string) {
	w.agent.t.Helper()
	w.client.exec("busybox", "touch", "/tmp/go"+turn)
	w.client.says("done " + turn)
}

// pulling starts a server that reads the agent's regions.
func (w *talking) pulling(t *testing.T, arguments ...string) *outsight {
	t.Helper()
	return w.reading(t, append([]string{"--pull", w.listen}, arguments...)...)
}

// reading starts a server that reads what the arguments say.
func (w *talking) reading(t *testing.T, arguments ...string) *outsight {
	t.Helper()
	at := freePort(t)
	return running(t, at, append([]string{"server", "--listen", at, "--data", t.TempDir(), "--otlp", "", "--otlp-http",
		freePort(t), "--promql", "full", "--promql-every", "1s", "--pull-key-file", w.keys}, arguments...)...)
}

// hasRead waits until a server has the first frame of the host: a map shows what was counted since.
func (w *talking) hasRead(o *outsight) {
	o.t.Helper()
	eventually(o.t, func() error {
		metrics, err := o.metrics()
		if err == nil && metrics.find("outsight_pull_frames_total", nil).sum() == 0 {
			err = errors.New("the server has made no frame yet")
		}
		return err
	})
}

// has is an error until the server's map has the edge with so many requests, paired.
func (w *talking) has(o *outsight, requests float64) error { return w.hasOf(o, "", requests) }

// mapOf is a tenant's map; that of all where it is empty.
func (o *outsight) mapOf(tenant string) (m drawnMap, err error) {
	request, err := http.NewRequest(http.MethodGet, "http://"+o.address+"/api/outsight/graph?from=now-10m", nil)
	if err != nil {
		return m, err
	}
	if tenant != "" {
		request.Header.Set("X-Outsight-Tenant", tenant)
	}
	response, err := client.Do(request)
	if err != nil {
		return m, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&m); err != nil {
		return m, fmt.Errorf("the map: %s: %w", response.Status, err)
	}
	return m, nil
}

// hasOf is has of a tenant's map.
func (w *talking) hasOf(o *outsight, tenant string, requests float64) error {
	m, err := o.mapOf(tenant)
	if err != nil {
		return err
	}
	edge, there := m.own([]edge{{client: w.client.name, server: w.server.name}})[w.client.name+" -> "+w.server.name]
	switch {
	case !there:
		return fmt.Errorf("the map of %d edges has none between the two", len(m.Edges))
	case edge.ClientSide == nil || edge.ServerSide == nil || !edge.Paired:
		metrics, err := w.agent.metrics()
		var own []string
		for _, s := range metrics.find("outsight_edge_transaction_duration_seconds_count", map[string]string{"service": w.service}) {
			own = append(own, fmt.Sprintf("%s %s>%s %v", s.labels["side"], s.labels["client"], s.labels["server"], s.value))
		}
		return fmt.Errorf("the edge has not both ends: %+v; agent: %v %v", edge, own, err)
	case edge.ClientSide.Transactions != requests || edge.ServerSide.Transactions != requests:
		return fmt.Errorf("%v requests at the client's end and %v at the server's, want %v", edge.ClientSide.Transactions,
			edge.ServerSide.Transactions, requests)
	}
	return nil
}

// same compares what the server stores of the client's container and of both ends of the edge with the agent's /metrics.
func (w *talking) same(o *outsight) error {
	metrics, err := w.agent.metrics()
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, of := range []map[string]string{{"id": w.client.id}, {"id": w.server.id},
		{"side": "client", "service": w.service, "client_id": w.client.id},
		{"side": "server", "service": w.service, "server_id": w.server.id}} {
		same, matchers := 0, []string{}
		for label, value := range of {
			matchers = append(matchers, fmt.Sprintf("%s=%q", label, value))
		}
		selector := strings.Join(matchers, ",")
		found := o.query(`{__name__!~".*(duration|latency|delay)_seconds",` + selector + "}") // those are histograms
		for _, histogram := range []string{"outsight_edge_transaction_duration_seconds",
			"outsight_edge_first_byte_duration_seconds", "container_run_queue_latency_seconds", "container_disk_io_latency_seconds",
			"container_fsync_duration_seconds", "outsight_endpoint_request_duration_seconds"} {
			for _, part := range []string{"count", "sum"} {
				for _, s := range o.query("histogram_" + part + "(" + histogram + "{" + selector + "})") {
					s.labels["__name__"] = histogram + "_" + part
					found = append(found, s)
				}
			}
		}
		for _, s := range found {
			name := s.labels["__name__"]
			want := map[string]string{}
			for label, value := range of {
				want[label] = value
			}
			for _, label := range []string{"type", "direction", "device", "protocol", "endpoint", "status"} {
				if value, there := s.labels[label]; there {
					want[label] = value
				}
			}
			if slices.ContainsFunc(model.ComputedMetrics, func(m model.Metric) bool { return m.Name == name }) {
				continue // no agent has what the server computes
			}
			switch agents := metrics.find(name, want); {
			case strings.HasPrefix(name, "container_memory_usage"): // it is of another moment
			case len(agents) == 0 && s.value == 0:
			case len(agents) == 0:
				return fmt.Errorf("%s{%s} is %v, and not in the agent's /metrics", name, selector, s.value)
			case agents.sum() != s.value:
				return fmt.Errorf("%s%v is %v, in the agent's /metrics %v", name, want, s.value, agents.sum())
			default:
				same++
				seen[name] = true
			}
		}
		if same < 8 {
			return fmt.Errorf("{%s}: %d series are as in the agent's /metrics, want 8 at least", selector, same)
		}
	}
	for _, name := range []string{"container_disk_operations_total", "container_disk_io_bytes_total",
		"container_disk_io_latency_seconds_sum", "container_fsync_duration_seconds_count", "outsight_endpoint_requests_total",
		"container_pressure_cpu_waiting_seconds_total", "container_pressure_io_stalled_seconds_total",
		"container_spec_memory_limit_bytes", "container_cpu_quota_cores", "container_threads_limit",
		"outsight_endpoint_request_duration_seconds_count", "outsight_edge_requests_in_flight"} {
		if !seen[name] {
			return fmt.Errorf("the server has no %s", name)
		}
	}
	return nil
}

// TestPull: a server that reads a host's regions shows what the host's agent counts, though the agent sends nothing; it
// says when the host is late, and has all that was counted meanwhile.
func TestPull(t *testing.T) {
	t.Parallel()
	w := newTalking(t)
	o := w.pulling(t, "--pull-interval", "500ms")
	w.hasRead(o)
	w.work("1")
	docker(t, "pause", w.client.name)
	eventually(t, func() error { return errors.Join(w.has(o, 7), w.same(o)) })
	docker(t, "unpause", w.client.name)

	agent := w.agent.command.Process
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer agent.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
	eventually(t, func() error {
		metrics, err := o.metrics()
		if err == nil && metrics.find("outsight_pull_late", map[string]string{"address": w.listen, "reason": "deadline"}).sum() != 1 {
			err = fmt.Errorf("the server does not say that the host is late: %v", metrics.find("outsight_pull_late", nil))
		}
		return err
	})
	if status := o.status(); !strings.Contains(status, "pull/"+w.listen) || !strings.Contains(status, "deadline: ") {
		t.Errorf("the status does not say that the host is late: %s", status)
	}
	w.work("2")
	if err := agent.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return w.has(o, 14) })
	if late, err := o.metrics(); err != nil || len(late.find("outsight_pull_late", nil)) != 0 {
		t.Errorf("the host is late again or still: %v (%v)", late.find("outsight_pull_late", nil), err)
	}
	// Begun anew, it counts on: nothing twice.
	if err := o.interrupt(); err != nil {
		t.Fatal(err)
	}
	again := running(t, o.address, o.command.Args[1:]...)
	w.hasRead(again)
	eventually(t, func() error { return w.has(again, 14) })
	w.work("3")
	eventually(t, func() error { return w.has(again, 21) })
}

// TestPullKilledBeforeItsFramesAreStored: a server whose disk is full takes frames of a host and is killed before any is
// stored: they wait in its queue. The next one has them stored before it counts, and does so from its own first reading.
func TestPullKilledBeforeItsFramesAreStored(t *testing.T) {
	t.Parallel()
	w := newTalking(t)
	data := t.TempDir()
	frames := filepath.Join(data, "frames")
	if err := os.Mkdir(frames, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", frames, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(frames, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(frames, "filler")
	full, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err = full.Write(make([]byte, 4096)); err != nil {
			break
		}
	}
	if full.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	o := w.pulling(t, "--data", data)
	w.hasRead(o)
	w.work("1")
	w.makesFrames(o, 2)
	o.kill()
	isFull := func(o *outsight) error {
		if !strings.Contains(o.log.String(), "no space left on device") {
			return fmt.Errorf("the server does not say that the disk is full: %s", o.log)
		}
		return nil
	}
	if err := isFull(o); err != nil {
		t.Error(err)
	}
	again := running(t, o.address, o.command.Args[1:]...)
	eventually(t, func() error { return isFull(again) }) // it has tried to store them
	if metrics, err := again.metrics(); err != nil || metrics.find("outsight_pull_frames_total", nil).sum() != 0 {
		t.Errorf("the server counts, and what it has taken before is not stored: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for turn, requests := range []float64{7, 14} {
		w.makesFrames(again, 3) // else it may be right for a moment
		eventually(t, func() error { return w.has(again, requests) })
		if turn == 0 {
			w.work("2")
		}
	}
}

// makesFrames waits until a server has made so many more frames.
func (w *talking) makesFrames(o *outsight, more float64) {
	o.t.Helper()
	taken := func() float64 {
		metrics, err := o.metrics()
		if err != nil {
			o.t.Fatal(err)
		}
		return metrics.find("outsight_pull_frames_total", nil).sum()
	}
	before := taken()
	eventually(o.t, func() error {
		if n := taken(); n < before+more {
			return fmt.Errorf("%v frames, want %v", n, before+more)
		}
		return nil
	})
}

// status is what the page's list of hosts is made of.
func (o *outsight) status() string {
	o.t.Helper()
	response, err := client.Get("http://" + o.address + "/api/outsight/status")
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close()
	var text json.RawMessage
	if err := json.NewDecoder(response.Body).Decode(&text); err != nil {
		o.t.Fatal(err)
	}
	return string(text)
}

// TestPullWithoutAgent: while the agent is stopped, the host's kernel goes on to answer a server that comes by its
// interface.
func TestPullWithoutAgent(t *testing.T) {
	t.Parallel()
	w := newTalking(t)
	pid := docker(t, "inspect", "-f", "{{.State.Pid}}", w.server.name)
	within := []string{"nsenter", "--net=/proc/" + pid + "/ns/net"}
	command := exec.Command(within[0], append(within[1:], outsightBinary, "server", "--listen", "127.0.0.1:8470", "--data",
		t.TempDir(), "--otlp", "", "--otlp-http", "127.0.0.1:4318", "--pull", w.listen, "--pull-key-file", w.keys,
		"--pull-transport", "kernel")...)
	log := &lockedBuffer{}
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(command.Process.Signal(syscall.SIGINT), command.Wait()); err != nil || t.Failed() {
			t.Errorf("the server: %v\n%s", err, log)
		}
	})
	get := func(path string) (string, error) {
		text, err := exec.Command(within[0], append(within[1:], "curl", "-sS", "--max-time", "20",
			"http://127.0.0.1:8470"+path)...).Output()
		return string(text), err
	}
	edge := func(requests float64) error {
		text, err := get("/api/outsight/graph?from=now-10m")
		var m drawnMap
		if err := errors.Join(err, json.Unmarshal([]byte(text), &m)); err != nil {
			return err
		}
		e := m.own([]edge{{client: w.client.name, server: w.server.name}})[w.client.name+" -> "+w.server.name]
		if e.ClientSide == nil || e.ServerSide == nil || e.ClientSide.Transactions != requests ||
			e.ServerSide.Transactions != requests {
			return fmt.Errorf("the edge is %+v, want %v requests", e, requests)
		}
		return nil
	}
	eventually(t, func() error {
		text, err := get("/metrics")
		if err == nil && !strings.Contains(text, "\noutsight_pull_frames_total ") ||
			strings.Contains(text, "\noutsight_pull_frames_total 0\n") {
			err = errors.New("the server has made no frame yet")
		}
		return err
	})
	w.work("1")
	eventually(t, func() error { return edge(7) })
	agent := w.agent.command.Process
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer agent.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
	w.work("2")
	eventually(t, func() error { return edge(14) })
	if err := agent.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// reads waits until exactly one of the servers reads the one host, and says which.
func reads(t *testing.T, servers []*outsight) (which int) {
	t.Helper()
	eventually(t, func() error {
		readers, members := 0, 0.0
		for i, o := range servers {
			metrics, err := o.metrics()
			if err != nil {
				return err
			}
			members += metrics.find("outsight_pull_members", nil).sum()
			if metrics.find("outsight_pull_hosts", map[string]string{"state": "read"}).sum() == 1 {
				readers, which = readers+1, i
			}
		}
		if readers != 1 || members != float64(len(servers)*len(servers)) {
			return fmt.Errorf("%d of %d servers read the host, and they know of %v", readers, len(servers), members)
		}
		return nil
	})
	return which
}

// pullingTogether are servers that read the host in turns, on a NATS cluster of three nodes.
func (w *talking) pullingTogether(t *testing.T, n int) (nats *natscluster.Cluster, servers []*outsight) {
	t.Helper()
	nats, err := natscluster.Start(3, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Stop)
	for i := range n {
		servers = append(servers, w.pulling(t, "--nats", nats.URLs(), "--nats-stream", fmt.Sprint("STREAM", i), "--nats-replicas", "3",
			"--queue-bytes", fmt.Sprint(16<<20)))
	}
	return nats, servers
}

// TestPullStandbys: of three servers one reads the host and all have its frames. Where it is killed another one goes on,
// and in none anything is missing or there twice; so again with the next one.
func TestPullStandbys(t *testing.T) {
	t.Parallel()
	w := newTalking(t)
	_, servers := w.pullingTogether(t, 3)
	all := func(requests float64) {
		t.Helper()
		eventually(t, func() (err error) {
			for i, o := range servers {
				if e := w.has(o, requests); e != nil {
					err = errors.Join(err, fmt.Errorf("server %d of %d: %w", i, len(servers), e))
				}
			}
			return err
		})
	}
	reads(t, servers)
	for _, o := range servers {
		w.hasRead(o)
	}
	w.work("1")
	all(7)
	for turn, requests := range []float64{14, 21} {
		reader := reads(t, servers)
		servers[reader].kill()
		begin := time.Now()
		servers = append(servers[:reader:reader], servers[reader+1:]...)
		w.work(fmt.Sprint(turn + 2))
		all(requests)
		t.Logf("after %v all %d servers have all requests", time.Since(begin).Round(time.Millisecond), len(servers))
		reads(t, servers)
	}
}

// TestPullHandsOn: a server that the host refuses hands it on to one that may read it, and both have its frames.
func TestPullHandsOn(t *testing.T) {
	t.Parallel()
	w := newTalking(t)
	nats, err := natscluster.Start(3, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Stop)
	wrong := filepath.Join(t.TempDir(), "wrong")
	if err := os.WriteFile(wrong, []byte("9 "+strings.Repeat("ab", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one := func(stream string, arguments ...string) *outsight {
		return w.pulling(t, append([]string{"--nats", nats.URLs(), "--nats-stream", stream, "--queue-bytes", fmt.Sprint(16 << 20)},
			arguments...)...)
	}
	refused := one("REFUSED", "--pull-key-file", wrong)
	eventually(t, func() error {
		metrics, err := refused.metrics()
		if err == nil && metrics.find("outsight_pull_late", map[string]string{"reason": "refused"}).sum() != 1 {
			err = errors.New("the server does not say that the host refuses it")
		}
		return err
	})
	handedOn := func() (float64, error) {
		metrics, err := refused.metrics()
		return metrics.find("outsight_pull_handed_on_hosts", nil).sum(), err
	}
	// Whose the host is first is by chance: of the names that servers have anew each time.
	var able *outsight
	for turn := 0; ; turn++ {
		able = one(fmt.Sprint("ABLE", turn))
		if reads(t, []*outsight{refused, able}) != 1 {
			t.Fatal("the server that the host refuses reads it")
		}
		if n, err := handedOn(); err != nil {
			t.Fatal(err)
		} else if n == 1 {
			break
		}
		if turn == 20 {
			t.Fatal("the host has never been of the server that it refuses")
		}
		able.stop()
	}
	w.hasRead(able)
	w.work("1")
	eventually(t, func() error { return errors.Join(w.has(able, 7), w.has(refused, 7)) })
	if n, err := handedOn(); err != nil || n != 1 {
		t.Errorf("%v hosts are handed on (%v), want 1", n, err)
	}
}

// TestPullTenants: hosts of a file are of the tenants that it names, each with its own interval, and no other tenant has
// them. One agent is two hosts here, by two spellings of its address.
func TestPullTenants(t *testing.T) {
	t.Parallel()
	w := newTalking(t)
	file := filepath.Join(t.TempDir(), "hosts")
	host, port, err := net.SplitHostPort(w.listen)
	if err != nil {
		t.Fatal(err)
	}
	other := net.JoinHostPort("::ffff:"+host, port)
	if err := os.WriteFile(file, []byte("# of two tenants\n"+w.listen+" tenant=shop interval=100ms\n"+other+" tenant=bank\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	o := w.reading(t, "--pull-file", file, "--tenant-header")
	both := func() error { return errors.Join(w.hasOf(o, "shop", 7), w.hasOf(o, "bank", 7)) }
	for _, tenant := range []string{"shop", "bank"} {
		eventually(t, func() error {
			m, err := o.mapOf(tenant)
			if err == nil && !slices.ContainsFunc(m.Nodes, func(n struct{ ID, Name string }) bool { return n.Name == w.client.name }) {
				err = fmt.Errorf("the map of %s has no such container", tenant)
			}
			return err
		})
	}
	w.work("1")
	eventually(t, both)
	if err := w.hasOf(o, "else", 7); err == nil || !strings.Contains(err.Error(), "the map of 0 edges") {
		t.Errorf("another tenant has it: %v", err)
	}
	metrics, err := o.metrics()
	if err != nil {
		t.Fatal(err)
	}
	readings, frames := metrics.find("outsight_pull_readings_total", nil).sum(), metrics.find("outsight_pull_frames_total", nil).sum()
	if readings <= frames {
		t.Errorf("%v readings and %v frames: one host is read more often than its frames are made", readings, frames)
	}
	// What the file must not say.
	for _, c := range []struct{ line, flag, want string }{
		{w.listen + " tenant=shop", "", "this server has no tenants"},
		{w.listen, "--tenant-header=required", "tenant=NAME is needed"},
	} {
		if err := os.WriteFile(file, []byte(c.line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		arguments := []string{"server", "--listen", freePort(t), "--data", t.TempDir(), "--otlp", "", "--otlp-http", freePort(t),
			"--pull-file", file, "--pull-key-file", w.keys}
		if c.flag != "" {
			arguments = append(arguments, c.flag)
		}
		if text, err := exec.Command(outsightBinary, arguments...).CombinedOutput(); err == nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%q with %q: %v, %s", c.line, c.flag, err, text)
		}
	}
}

// TestPullWithoutANode: a node of the cluster that servers share dies while they read, to which the first of them is
// connected: nothing is missing, in no server, and one of them goes on to read.
func TestPullWithoutANode(t *testing.T) {
	t.Parallel()
	w := newTalking(t)
	nats, servers := w.pullingTogether(t, 2)
	reads(t, servers)
	for _, o := range servers {
		w.hasRead(o)
	}
	w.work("1")
	all := func(requests float64) {
		t.Helper()
		eventually(t, func() error { return errors.Join(w.has(servers[0], requests), w.has(servers[1], requests)) })
	}
	all(7)
	nats.StopNode(0)
	w.work("2")
	all(14)
	reads(t, servers)
}
