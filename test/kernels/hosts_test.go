package kernels

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/test/kernels/report"
)

// What one request of a guest carries, as package guest has it.
const (
	requestBytes = 100
	replyBytes   = 4000
)

// TestTwoHosts has two kernels, each with an agent and containers on a bridge: what each agent saw becomes one edge
// with both halves, through a published port and masquerading, and through a router that translates both ends.
// The kernels are the newest ones, which stamp packets at uplinks, too; OUTSIGHT_KERNEL=6.1 has those that do not.
func TestTwoHosts(t *testing.T) {
	t.Parallel()
	of := all[len(all)-1]
	if i := slices.IndexFunc(all[:], func(s series) bool { return s.name == os.Getenv("OUTSIGHT_KERNEL") }); i >= 0 && !all[i].withoutEdges {
		of = all[i]
	}
	kernel, err := of.kernel(imageDir)
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	files := networkPrograms(t, scratch)
	for _, module := range kernel.network {
		files["network/"+filepath.Base(module)] = module
	}
	archive, err := writeInitramfs(filepath.Join(scratch, "initramfs"), files)
	if err != nil {
		t.Fatal(err)
	}
	wire := "addr.type=unix,addr.path=" + filepath.Join(scratch, "wire")
	serving := make(chan struct{})
	consoles := [2]watchedConsole{{wait: report.Serving, found: sync.OnceFunc(func() { close(serving) })}, {}}
	var reports [2]report.Report
	var failures [2]error
	boot := func(i int, side, netdev string) {
		reports[i], failures[i] = run(kernel.image, archive, filepath.Join(scratch, side+".json"),
			[]string{report.Side + "=" + side}, &consoles[i], "-netdev", "stream,id=wire,"+netdev+","+wire,
			"-device", "e1000,netdev=wire,romfile=,mac=52:54:00:00:00:0"+fmt.Sprint(i+1))
	}
	var guests sync.WaitGroup
	ended := make(chan struct{})
	guests.Go(func() {
		defer close(ended)
		boot(0, report.ServerSide, "server=on")
	})
	select {
	case <-serving:
		guests.Go(func() { boot(1, report.ClientSide, "server=off") })
	case <-ended:
	}
	guests.Wait()
	for i := range reports {
		err := failures[i]
		for _, c := range reports[i].Checks {
			if c.Failure != "" {
				err = cmp.Or(err, fmt.Errorf("%s: %s", c.Name, c.Failure))
			}
		}
		if err != nil || len(reports[i].Frames) != 3 {
			t.Errorf("the %s: %d frames, want 3; %v", [...]string{"server", "client"}[i], len(reports[i].Frames), err)
			showConsole(t, of.name, consoles[i].text.Bytes())
		}
	}
	if t.Failed() {
		return
	}
	early := windowOf(t, reports[:], 1)
	expectDelays(t, early)
	if !of.withoutTCX {
		expectParts(t, early)
	}
	w := windowOf(t, reports[:], 2)
	expectEdges(t, "exact", w)
	// Older kernels tell no connections. Addresses alone say who db's client is, and nothing of who is behind the router.
	for i := range w.Hosts {
		w.Hosts[i].Spans[0].After.Tables[frame.Connections] = frame.Table{}
	}
	g := graph.FromFrames(w, graph.Options{})
	for _, e := range g.Edges {
		if e.Client == containerID("a") && e.Server == containerID("c") && (e.Confidence != "address" || !e.Paired) {
			t.Errorf("without connections, the edge of web is %+v", e)
		}
		if e.Client == containerID("b") && e.Server == containerID("d") {
			t.Errorf("without connections, the edge of job is known: %+v", e)
		}
	}
}

func containerID(digit string) string { return strings.Repeat(digit, 64) }

// windowOf is what two agents saw from the first of their frames to another one.
func windowOf(t *testing.T, reports []report.Report, last int) *frame.Window {
	t.Helper()
	w := &frame.Window{}
	for i, host := range []string{"server", "client"} {
		var frames [2]*frame.Frame
		for j, at := range []int{0, last} {
			f, err := frame.Decode(reports[i].Frames[at], nil)
			if err != nil {
				t.Fatal(err)
			}
			f.Host = host // both guests have no name
			frames[j] = f
		}
		w.Hosts = append(w.Hosts, frame.HostSpans{Host: host, Spans: []frame.Span{{Before: frames[0], After: frames[1]}}})
		if w.From.IsZero() || frames[0].Time.Before(w.From) {
			w.From = frames[0].Time
		}
		if frames[1].Time.After(w.To) {
			w.To = frames[1].Time
		}
	}
	slices.SortFunc(w.Hosts, func(a, b frame.HostSpans) int { return cmp.Compare(a.Host, b.Host) })
	return w
}

// expectEdges holds that there is one edge from each client to its server, with both halves and exact counts.
func expectEdges(t *testing.T, confidence string, w *frame.Window) {
	t.Helper()
	g := graph.FromFrames(w, graph.Options{})
	got := map[string]string{}
	for _, e := range g.Edges {
		of := func(s *graph.Side) string {
			if s == nil {
				return "nothing"
			}
			return fmt.Sprintf("%v connections, %v requests, %v and %v bytes", s.Of(graph.ConnectionsOpened),
				s.Of(graph.Transactions), s.Of(graph.RequestBytes), s.Of(graph.ResponseBytes))
		}
		got[e.Client+" > "+e.Server] = fmt.Sprintf("%s, paired %v, client: %s; server: %s", e.Confidence, e.Paired,
			of(e.ClientSide), of(e.ServerSide))
	}
	n := report.Connections * report.Requests
	half := fmt.Sprintf("%d connections, %d requests, %d and %d bytes", report.Connections, n, n*requestBytes,
		n*replyBytes)
	want := map[string]string{}
	for client, server := range map[string]string{"a": "c", "b": "d"} {
		want[containerID(client)+" > "+containerID(server)] = fmt.Sprintf("%s, paired true, client: %s; server: %s",
			confidence, half, half)
	}
	if !maps.Equal(got, want) {
		t.Errorf("got edges\n%s\nwant\n%s", lines(got), lines(want))
	}
}

// expectDelays holds that both hosts sampled the same packets of each edge, in both directions, through both translations
// of addresses.
func expectDelays(t *testing.T, w *frame.Window) {
	t.Helper()
	for _, e := range graph.FromFrames(w, graph.Options{}).Edges {
		for _, key := range []string{"matched_there", "matched_back"} {
			if n, ok := e.EndsNumber(key); !ok {
				t.Errorf("%s of %s > %s is %v, want some of %d requests", key, e.Client[:1], e.Server[:1], n,
					report.Connections*report.Requests)
			}
		}
		there, _ := e.EndsNumber("above_minimum_there_p99")
		back, _ := e.EndsNumber("above_minimum_back_p99")
		if there <= 0 || there > 10 || back <= 0 || back > 10 {
			t.Errorf("the delays of %s > %s are %v s above the least there, %v s back", e.Client[:1], e.Server[:1], there, back)
		}
		told, _ := json.Marshal(e.Network)
		divided, _ := json.Marshal(e.Split)
		t.Logf("the network of %s > %s: %s; where the time goes: %s", e.Client[:1], e.Server[:1], told, divided)
	}
}

func lines(all map[string]string) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s: %s\n", key, all[key])
	}
	return text.String()
}

// watchedConsole keeps what a guest prints, and calls found once that has a text.
type watchedConsole struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wait  string
	found func()
}

func (c *watchedConsole) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.text.Write(b)
	if c.found != nil && bytes.Contains(c.text.Bytes(), []byte(c.wait)) {
		c.found()
	}
	return n, err
}

// networkPrograms are the guest's programs, and this host's ip and iptables with their libraries.
func networkPrograms(t *testing.T, scratch string) map[string]string {
	t.Helper()
	start := time.Now()
	built := programs(t, scratch, "init", "outsight-agent")
	files := map[string]string{"init": built["init"], "outsight-agent": built["outsight-agent"]}
	files["ip"], files["iptables"] = hostProgram(t, "ip"), hostProgram(t, "iptables-legacy")
	plugins, err := filepath.Glob("/usr/lib/*/xtables/libxt_*.so")
	if err != nil || len(plugins) == 0 {
		t.Fatalf("no plug-ins of iptables: %v", err)
	}
	for _, plugin := range plugins {
		for _, wanted := range []string{"libxt_DNAT", "libxt_NAT", "libxt_MASQUERADE", "libxt_tcp"} {
			if strings.TrimSuffix(filepath.Base(plugin), ".so") == wanted {
				resolved, err := filepath.EvalSymlinks(plugin)
				if err != nil {
					t.Fatal(err)
				}
				files[strings.TrimPrefix(plugin, "/")] = resolved
			}
		}
	}
	for _, program := range slices.Collect(maps.Values(files)) {
		maps.Copy(files, libraries(t, program))
	}
	t.Logf("the guests' programs took %v", time.Since(start))
	return files
}

// hostProgram is where this host has a program that a guest needs.
func hostProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		t.Fatalf("%v: install it with scripts/install test", err)
	}
	return path
}

// libraries are those that a program is linked with, by where they belong.
func libraries(t *testing.T, program string) map[string]string {
	t.Helper()
	output, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil {
		if bytes.Contains(output, []byte("not a dynamic executable")) {
			return nil
		}
		t.Fatalf("ldd %s: %v: %s", program, err, output)
	}
	files := map[string]string{}
	for _, word := range strings.Fields(string(output)) {
		if strings.HasPrefix(word, "/") {
			resolved, err := filepath.EvalSymlinks(word)
			if err != nil {
				t.Fatal(err)
			}
			files[strings.TrimPrefix(word, "/")] = resolved
		}
	}
	return files
}
