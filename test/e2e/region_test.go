package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// collectedHost is what "outsight collect --output json" says of a host.
type collectedHost struct {
	Host       string      `json:"host"`
	Transport  string      `json:"transport"`
	Late       bool        `json:"late"`
	Why        string      `json:"why"`
	Epoch      string      `json:"epoch"`
	Containers []collected `json:"containers"`
	Edges      []collected `json:"edges"`
	Disks      []collected `json:"disks"`
	Endpoints  []collected `json:"endpoints"`
	// ApplicationsWhy is why applications' own metrics are not there.
	ApplicationsWhy string `json:"applications_why"`
}

type collected struct {
	Name     string             `json:"name"`
	Owner    string             `json:"owner"`
	Peer     string             `json:"peer"`
	Side     string             `json:"side"`
	Service  string             `json:"service"`
	Device   string             `json:"device"`
	Protocol string             `json:"protocol"`
	Endpoint string             `json:"endpoint"`
	Status   string             `json:"status"`
	Metrics  map[string]float64 `json:"metrics"`
	// Applications are metrics that its processes have defined themselves.
	Applications map[string]float64 `json:"applications"`
	Histograms   map[string]struct {
		Count      float64 `json:"count"`
		SumSeconds float64 `json:"sum_seconds"`
	} `json:"histograms"`
}

// collect reads a host once; words come before the command, for one that takes privileges away.
func collect(t *testing.T, words []string, arguments ...string) (collectedHost, error) {
	t.Helper()
	all := append(append(slices.Clone(words), outsightBinary, "collect", "--once", "--output", "json", "--from"), arguments...)
	command := exec.Command(all[0], all[1:]...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	text, err := command.Output()
	var hosts []collectedHost
	if decoded := json.Unmarshal(text, &hosts); decoded != nil || len(hosts) != 1 {
		t.Fatalf("%v: %v\n%s%s", all, decoded, text, stderr.Bytes())
	}
	return hosts[0], err
}

// container is one by its name, and edge the one end of one; nil if there is none.
func (h *collectedHost) container(name string) *collected {
	i := slices.IndexFunc(h.Containers, func(c collected) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &h.Containers[i]
}

func (h *collectedHost) edge(owner, side, service string) *collected {
	i := slices.IndexFunc(h.Edges, func(c collected) bool {
		return c.Owner == owner && c.Side == side && c.Service == service
	})
	if i < 0 {
		return nil
	}
	return &h.Edges[i]
}

// sameDisks compares what a container did on each device, and the files that it had synchronised, with /metrics.
func (h *collectedHost) sameDisks(t *testing.T, metrics samples, of container) (err error) {
	t.Helper()
	devices, syncs := 0, 0
	for i := range h.Disks {
		d := &h.Disks[i]
		if d.Owner != of.name {
			continue
		}
		labels, least := map[string]string{"id": of.id}, 1
		if d.Device != "" {
			labels["device"], least = d.Device, 5
			devices++
		} else {
			syncs++
		}
		err = errors.Join(err, d.differ(t, metrics, labels, least))
	}
	if devices == 0 || syncs != 1 {
		return fmt.Errorf("%d devices and %d entries of synchronised files are %s's, want one at least of each: %+v", devices, syncs,
			of.name, h.Disks)
	}
	return err
}

// sameEndpoint compares an endpoint of an edge's end with /metrics.
func (h *collectedHost) sameEndpoint(t *testing.T, metrics samples, owner container, side, service string, requests float64) error {
	t.Helper()
	for i := range h.Endpoints {
		e := &h.Endpoints[i]
		if e.Owner != owner.name || e.Side != side || e.Service != service || e.Endpoint != "GET /passwd" {
			continue
		}
		if n := e.Metrics["outsight_endpoint_requests_total"]; n != requests || e.Protocol != "http" || e.Status != "2xx" {
			return fmt.Errorf("%+v, want %v requests", e, requests)
		}
		return e.differ(t, metrics, map[string]string{"side": side, "service": service, side + "_id": owner.id, "endpoint": e.Endpoint,
			"status": e.Status}, 3)
	}
	return fmt.Errorf("the %s's end has no endpoint: %+v", side, h.Endpoints)
}

// samplesOf are the figures as /metrics has them, of the same series.
func (c *collected) samplesOf(t *testing.T, metrics samples, labels map[string]string) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	look := func(series, suffix string) {
		name, rest, labelled := strings.Cut(series, "{")
		with := map[string]string{}
		for key, value := range labels {
			with[key] = value
		}
		if labelled {
			s, err := parseSample("x{" + rest + " 0")
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range s.labels {
				if key != "__name__" {
					with[key] = value
				}
			}
		}
		if of := metrics.find(name+suffix, with); len(of) > 0 {
			found[series+suffix] = of.sum()
		}
	}
	for series := range c.Metrics {
		look(series, "")
	}
	for series := range c.Histograms {
		look(series, "_count")
		look(series, "_sum")
	}
	return found
}

// figures are those that were collected, as /metrics writes them.
func (c *collected) figures() map[string]float64 {
	all := map[string]float64{}
	for series, v := range c.Metrics {
		all[series] = v
	}
	for series, h := range c.Histograms {
		all[series+"_count"], all[series+"_sum"] = h.Count, h.SumSeconds
	}
	return all
}

// differ tells which figures are others than those of /metrics, and that least of them are the same.
func (c *collected) differ(t *testing.T, metrics samples, labels map[string]string, least int) error {
	want, same := c.samplesOf(t, metrics, labels), 0
	var differences []string
	for series, got := range c.figures() {
		of, there := want[series]
		switch {
		case !there && got == 0: // /metrics leaves some out until they have counted
		case of == got:
			same++
		default:
			differences = append(differences, fmt.Sprintf("%s is %v, in /metrics %v (%v)", series, got, of, there))
		}
	}
	if len(differences) > 0 || same < least {
		return fmt.Errorf("%d figures are the same, want at least %d: %s", same, least, strings.Join(differences, "\n"))
	}
	return nil
}

const regionSecret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// TestRegions: what collect reads from outside is what the agent itself says, of a container and of both ends of an edge,
// by each transport, and as a program reads it that was written from the document; and counters grow while the agent is
// stopped.
func TestRegions(t *testing.T) {
	t.Parallel()
	network := newNetwork(t)
	server := start(t, "region-server", []string{"--network", network}, "busybox", "httpd", "-f", "-p", "80", "-h", "/etc")
	address := docker(t, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", server.name)
	reader := shell(t, "region-client", `turn=1; while :; do
	while [ ! -e /tmp/go$turn ]; do sleep 0.2; done
	i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done
	for k in 1 2 3; do dd if=/dev/zero of=/tmp/written$k bs=64k count=4 conv=fsync 2>/dev/null; done
	for k in 1 2 3 4 5 6 7; do busybox wget -q -O /dev/null http://`+address+`/passwd; done
	echo done $turn; turn=$((turn+1))
done`, "--network", network)
	work := func(turn string) {
		t.Helper()
		reader.exec("busybox", "touch", "/tmp/go"+turn)
		reader.says("done " + turn)
	}
	// What has ended asks nobody and runs no more: the container is paused while it is compared.
	quiet := func(do func()) {
		t.Helper()
		docker(t, "pause", reader.name)
		defer docker(t, "unpause", reader.name)
		do()
	}
	path := filepath.Join(t.TempDir(), "region.sock")
	offered, listen, keys := regionsIn(t, network)
	_, _, subnet := bridgeOf(t, network)
	o := up(t, append(offered, "--region-socket", path, "--region-allow", subnet)...)
	o.knows(reader)
	work("1")
	service := net.JoinHostPort(address, "80")
	// What this host sends to an address of its own does not pass the interface, and Docker masquerades it: another
	// network namespace asks.
	within := []string{"nsenter", "--net=/proc/" + docker(t, "inspect", "-f", "{{.State.Pid}}", server.name) + "/ns/net"}
	ways := map[string]func() (collectedHost, error){
		"socket": func() (collectedHost, error) { return collect(t, nil, path) },
		"socket without privileges": func() (collectedHost, error) {
			return collect(t, []string{"setpriv", "--bounding-set=-all", "--inh-caps=-all"}, path)
		},
		"TCP": func() (collectedHost, error) {
			return collect(t, within, listen, "--key-file", keys, "--transport", "tcp")
		},
		"packets": func() (collectedHost, error) {
			return collect(t, within, listen, "--key-file", keys)
		},
	}
	quiet(func() {
		for way, read := range ways {
			same := t.Run(way, func(t *testing.T) {
				eventually(t, func() error {
					h, err := read()
					if err != nil {
						return fmt.Errorf("%w: %s", err, h.Why)
					}
					if kernel := h.Transport == "kernel"; kernel != (way == "packets") {
						return fmt.Errorf("it was read by %s", h.Transport)
					}
					metrics, err := o.metrics()
					if err != nil {
						return err
					}
					c := h.container(reader.name)
					if c == nil {
						return errors.New("the container is not there")
					}
					err = c.differ(t, metrics, map[string]string{"id": reader.id}, 12)
					for side, owner := range map[string]container{"client": reader, "server": server} {
						e := h.edge(owner.name, side, service)
						if e == nil {
							return fmt.Errorf("the %s's end is not there", side)
						}
						if n := e.Histograms["outsight_edge_transaction_duration_seconds"].Count; n != 7 {
							err = errors.Join(err, fmt.Errorf("%v requests, want 7", n))
						}
						err = errors.Join(err, e.differ(t, metrics, map[string]string{"side": side, "service": service,
							side + "_id": owner.id}, 12), h.sameEndpoint(t, metrics, owner, side, service, 7))
					}
					return errors.Join(err, h.sameDisks(t, metrics, reader))
				})
			})
			if !same {
				t.FailNow() // the others say the same of the same counters, and each would wait as long
			}
		}
		t.Run("the document's reader", func(t *testing.T) {
			host, port, err := net.SplitHostPort(listen)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, func() error { return pythonReadsTheSame(t, reader.name, service, ways["TCP"], within, host, port) })
		})
	})
	// A reader that has the descriptors goes on while the agent is stopped.
	until := stream(t, path)
	const cpu, latency = "container_cpu_usage_seconds_total", "outsight_edge_transaction_duration_seconds"
	before := until("before", func(h collectedHost) bool { return h.edge(reader.name, "client", service) != nil })
	if err := o.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer o.command.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
	work("2")
	after := until("of all requests", func(h collectedHost) bool {
		if h.Late {
			t.Fatalf("late while the agent is stopped: %s", h.Why)
		}
		e := h.edge(reader.name, "client", service)
		return e != nil && e.Histograms[latency].Count == 14
	})
	if from, to := before.container(reader.name).Metrics[cpu], after.container(reader.name).Metrics[cpu]; to <= from {
		t.Errorf("%v s of CPU time, %v before", to, from)
	}
	// The kernel answers a reader that comes now.
	h, err := ways["packets"]()
	if err != nil {
		t.Fatalf("while the agent is stopped, packets are not answered: %v: %s", err, h.Why)
	}
	if e := h.edge(reader.name, "client", service); e == nil || e.Histograms[latency].Count != 14 || h.Transport != "kernel" {
		t.Errorf("read by %s while the agent is stopped, want 14 requests: %+v", h.Transport, e)
	}
	if h, err := ways["TCP"](); err == nil || !h.Late || !strings.HasPrefix(h.Why, "deadline") {
		t.Errorf("over TCP a stopped agent is %+v (%v), want late for the deadline", h, err)
	}
}

// regionsIn are the flags of an agent that offers its regions to a network, where they are then, and the file with their key.
func regionsIn(t *testing.T, network string) (flags []string, listen, keys string) {
	t.Helper()
	keys = filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("9 "+regionSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bridge, gateway, _ := bridgeOf(t, network)
	_, port, err := net.SplitHostPort(freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--region-listen", net.JoinHostPort(bridge, port), "--region-key-file", keys}, net.JoinHostPort(gateway, port), keys
}

// bridgeOf is the interface of a network, with its address and the network's own.
func bridgeOf(t *testing.T, network string) (name, gateway, subnet string) {
	t.Helper()
	id := docker(t, "network", "inspect", "-f", "{{.Id}}", network)
	of := strings.Fields(docker(t, "network", "inspect", "-f", "{{range .IPAM.Config}}{{.Gateway}} {{.Subnet}}{{end}}", network))
	if len(of) != 2 {
		t.Fatalf("the network has %q, want a gateway and a subnet", of)
	}
	return "br-" + id[:12], of[0], of[1]
}

// pythonReadsTheSame compares: testdata/region.py is the reader of docs/format/region.md.
func pythonReadsTheSame(t *testing.T, name, service string, read func() (collectedHost, error), within []string,
	host, port string) error {
	t.Helper()
	h, err := read()
	if err != nil {
		return err
	}
	text, err := exec.Command(within[0], append(within[1:], "python3", "testdata/region.py", host, port, "9",
		regionSecret)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	var python struct {
		Containers map[string]map[string]float64
		Edges      []struct {
			Owner, Side, Service string
			Figures              map[string]float64
		}
		Disks []struct {
			Owner, Device string
			Figures       map[string]float64
		}
		Endpoints []struct {
			Owner, Side, Service, Endpoint string
			Figures                        map[string]float64
		}
	}
	if err := json.Unmarshal(text, &python); err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	same := func(what string, c *collected, got map[string]float64, least int) error {
		if c == nil || len(c.Metrics)+len(c.Histograms) < least {
			return fmt.Errorf("%s: collect has %+v", what, c)
		}
		for series, want := range c.Metrics {
			if got[series] != want {
				return fmt.Errorf("%s: %s is %v, collect says %v", what, series, got[series], want)
			}
		}
		for series, want := range c.Histograms {
			if got[series+" count"] != want.Count {
				return fmt.Errorf("%s: %s has %v, collect says %v", what, series, got[series+" count"], want.Count)
			}
		}
		return nil
	}
	if err := same(name, h.container(name), python.Containers[name], 8); err != nil {
		return err
	}
	found := map[string]int{}
	for _, e := range python.Edges {
		if e.Owner == name && e.Service == service {
			found["edges"]++
			err = errors.Join(err, same("the edge of "+name, h.edge(name, "client", service), e.Figures, 9))
		}
	}
	for _, e := range python.Disks {
		i := slices.IndexFunc(h.Disks, func(c collected) bool { return c.Owner == name && c.Device == e.Device })
		if e.Owner == name && i >= 0 {
			found["disks"]++
			err = errors.Join(err, same("the disk "+e.Device, &h.Disks[i], e.Figures, 2))
		}
	}
	for _, e := range python.Endpoints {
		i := slices.IndexFunc(h.Endpoints, func(c collected) bool {
			return c.Owner == name && c.Side == "client" && c.Service == service && c.Endpoint == e.Endpoint
		})
		if e.Owner == name && e.Side == "client" && e.Service == service && i >= 0 {
			found["endpoints"]++
			err = errors.Join(err, same("the endpoint "+e.Endpoint, &h.Endpoints[i], e.Figures, 2))
		}
	}
	if found["edges"] != 1 || found["disks"] < 2 || found["endpoints"] != 1 {
		return errors.Join(err, fmt.Errorf("not all is there (%v): %s", found, text))
	}
	return err
}

// stream reads a host again and again until the test ends. What it answers goes on until a reading is as it should be.
func stream(t *testing.T, path string) func(what string, is func(collectedHost) bool) collectedHost {
	t.Helper()
	command := exec.Command(outsightBinary, "collect", "--from", path, "--interval", "100ms", "--output", "json")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(patience, func() { command.Process.Kill() })
	t.Cleanup(func() {
		limit.Stop()
		output.Close() // it may be writing
		command.Process.Signal(syscall.SIGINT)
		// Its exit code is that of the broken pipe, or of the interrupt.
		_ = command.Wait()
	})
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 64<<20)
	return func(what string, is func(h collectedHost) bool) collectedHost {
		t.Helper()
		var last collectedHost
		for lines.Scan() {
			var hosts []collectedHost
			if err := json.Unmarshal(lines.Bytes(), &hosts); err != nil || len(hosts) != 1 {
				t.Fatalf("%v: %s", err, lines.Bytes())
			}
			if last = hosts[0]; is(last) {
				return last
			}
		}
		t.Fatalf("no reading %s: %+v, %v", what, last, lines.Err())
		return last
	}
}

// TestRegionsOfARestartedAgent: a reader that goes on says that the agent is gone, and then reads the next one's.
func TestRegionsOfARestartedAgent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "region.sock")
	first := up(t, "--region-socket", path)
	until := stream(t, path)
	before := until("before", func(h collectedHost) bool { return !h.Late })
	first.stop()
	until("without an agent", func(h collectedHost) bool { return h.Late && strings.HasPrefix(h.Why, "gone") })
	up(t, "--region-socket", path)
	after := until("of the next one", func(h collectedHost) bool { return !h.Late })
	if after.Epoch == before.Epoch {
		t.Errorf("both have the epoch %s", after.Epoch)
	}
}
