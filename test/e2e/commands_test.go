package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// output runs the binary by itself and returns what it wrote and its exit code.
func output(t *testing.T, arguments ...string) (string, int) {
	t.Helper()
	text, err := exec.Command(outsightBinary, arguments...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return string(text), exit.ExitCode()
	}
	return string(text), 0
}

// readmeCommands are the lines of the README, and of the pages that it sends a reader to first, that a reader types;
// those that go on in one.
func readmeCommands(t *testing.T) []string {
	t.Helper()
	var text []byte
	for _, page := range []string{"README.md", "docs/install.md", "docs/cli.md"} {
		of, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, of...)
	}
	var commands []string
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		line, isCode := strings.CutPrefix(line, "    ")
		line = strings.TrimPrefix(strings.TrimSpace(line), "sudo ")
		if isCode && (strings.HasPrefix(line, "bin/outsight ") || strings.HasPrefix(line, "curl ")) {
			commands = append(commands, line)
		}
	}
	return commands
}

// TestReadmeCommands types every command that the README shows, against a running server.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	c := shell(t, "readme", "while :; do :; done")
	o := shared(t)
	o.knows(c)
	const page = "localhost:8470"
	if text, code := output(t, "up", "--help"); code != 0 ||
		!strings.Contains(text, strings.TrimPrefix(page, "localhost")) {
		t.Errorf("the README's address %s is not the default of up:\n%s", page, text)
	}
	shown, recordings, files, edge := map[string]int{}, t.TempDir(), t.TempDir(), ""
	for _, command := range readmeCommands(t) {
		words := strings.Fields(command)
		name := words[min(1, len(words)-1)]
		switch {
		case words[0] == "curl":
			name = "curl"
			if !strings.Contains(command, page) {
				t.Errorf("%s asks elsewhere than at %s", command, page)
			}
			command = strings.NewReplacer(page, o.address, "edge=ID", "edge="+edge).Replace(command)
		case name == "up":
			// One runs already; this one takes its place elsewhere.
			command = "exec " + command + " --listen " + freePort(t) + " --data " + t.TempDir() + " --socket " + socket(t)
		case name == "server":
			command = strings.NewReplacer("/tmp/outsight-server", t.TempDir(), "127.0.0.1:4318", freePort(t)).Replace(command)
			command = "exec " + command + " --otlp '' --listen " + freePort(t)
		case name == "record":
			command = strings.Replace(command, "recordings", recordings, 1) + " --socket " + o.argument("--socket")
		case name == "report":
			command, _, _ = strings.Cut(strings.Replace(command, "recordings/", recordings, 1), ">")
		case name == "whatif":
			command += " --server http://" + o.address
		case name == "probe": // the demo's containers, which are not here
			command = strings.NewReplacer("shop-gateway", c.name, "shop-redis", "host").Replace(command) + " --duration 500ms"
		case name == "top":
			command += " --once"
			fallthrough
		default:
			command += " --socket " + o.argument("--socket")
		}
		shown[name]++
		want := map[string]string{"curl": c.name, "top": c.name, "map": "", "doctor": "The main job can be done",
			"up": "page", "server": "OTLP", "whatif": "learn", "probe": "one-way delays are exact",
			"record": "Recorded in", "report": "<html"}[name]
		switch {
		case strings.Contains(command, "--anomalies"):
			want = "" // this host may have had none
		case strings.Contains(command, "outsight/events"):
			want = "" // one host measures no other, and no container moves to it
		case strings.Contains(command, "outsight/graph"):
			want = ">"
		case strings.Contains(command, "outsight/chart"):
			want = `"times":[`
		case strings.Contains(command, "outsight/lines"):
			want = c.id
		case strings.Contains(command, "outsight/matrix") && strings.Contains(command, ">"):
			want = "" // it goes to a file
		case strings.Contains(command, "outsight/matrix"):
			want = "bytes"
		}
		run := exec.Command("sh", "-ec", strings.Replace(command, "bin/outsight", outsightBinary, 1))
		var text lockedBuffer
		run.Stdout, run.Stderr, run.Dir = &text, &text, files
		err := run.Start()
		if err == nil && (name == "up" || name == "server") {
			untilSaid(t, run, &text, want)
		}
		if err == nil {
			err = run.Wait()
		}
		if err != nil || !strings.Contains(text.String(), want) {
			t.Errorf("%s: %v, want %q in\n%s", command, err, want, &text)
		}
		if strings.Contains(command, "outsight/graph") {
			edge = strings.Trim(strings.TrimSpace(text.String()), `"`)
		}
	}
	for _, name := range []string{"up", "server", "top", "map", "curl", "doctor", "record", "report", "whatif", "probe"} {
		if shown[name] == 0 {
			t.Errorf("the README shows no %s: %v", name, shown)
		}
	}
}

// untilSaid interrupts a command of the shell that would run forever, once it has said something.
func untilSaid(t *testing.T, shell *exec.Cmd, said *lockedBuffer, want string) {
	t.Helper()
	t.Cleanup(func() { shell.Process.Kill() })
	eventually(t, func() error {
		if !strings.Contains(said.String(), want) {
			return fmt.Errorf("%v has not said %q:\n%s", shell, want, said)
		}
		return nil
	})
	if err := shell.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	text, code := output(t, "doctor", "--output", "json")
	var report struct {
		Features []struct{ Name, State, Reason, Remedy string }
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil || code != 0 || len(report.Features) == 0 {
		t.Fatalf("outsight doctor: exit code %d, %v:\n%s", code, err, text)
	}
	for _, f := range report.Features {
		if f.State != "works" && (f.Reason == "" || f.Remedy == "") {
			t.Errorf("%s is %s, and nothing says why or what it would take", f.Name, f.State)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, arguments := range [][]string{{"upp"}, {"up", "--no-such-flag"}, {"map", "--output", "picture"},
		{"top", "extra"}} {
		if text, code := output(t, arguments...); code != 2 || !strings.Contains(text, "--help") {
			t.Errorf("outsight %s: exit code %d, want 2 and where to read on:\n%s", strings.Join(arguments, " "), code, text)
		}
	}
}

// TestTop: a container that spins shows in the first table, with the CPU time that the kernel's file has of the window.
func TestTop(t *testing.T) {
	t.Parallel()
	c := shell(t, "top-spinner", "while :; do :; done")
	files := sampleCPUFiles([]container{c}) // the window may begin before the command
	o := shared(t)
	var top struct {
		Time       time.Time
		Seconds    float64 `json:"window_seconds"`
		Containers []struct {
			ID, Name string
			Usage    struct {
				Cores float64 `json:"cpu_cores"`
			}
		}
	}
	if err := json.Unmarshal([]byte(o.run("top", "--once", "--output", "json")), &top); err != nil {
		t.Fatal(err)
	}
	reading := o.longestReading()
	files.close(t, top.Time.Add(reading))
	for _, row := range top.Containers {
		if row.ID == c.id {
			if row.Name != c.name {
				t.Errorf("the spinner is called %q, want %q", row.Name, c.name)
			}
			used := row.Usage.Cores * top.Seconds
			begun := top.Time.Add(-time.Duration(top.Seconds * 1e9))
			stretch{point{begun, 0}, point{top.Time, used}}.check(t, c, files, reading)
			return
		}
	}
	t.Errorf("the spinner is not in the table: %+v", top)
}

// TestMapForms: the other forms of the map name the same containers.
func TestMapForms(t *testing.T) {
	t.Parallel()
	net := newNetwork(t)
	server := start(t, "form-redis", []string{"--network", net, "--network-alias", "redis"},
		"redis-server", "--save", "", "--protected-mode", "no", "--dir", "/tmp")
	client := start(t, "form-client", []string{"--network", net}, "sh", "-c",
		"while :; do redis-cli -h redis -r 50 -i 0.05 ping; sleep 0.2; done")
	o := shared(t)
	for form, start := range map[string]string{"text": "", "dot": "digraph", "mermaid": "flowchart", "cypher": "CREATE",
		"graphml": "<?xml"} {
		text := o.run("map", "--output", form, "--for", "2s")
		if !strings.HasPrefix(text, start) || !strings.Contains(text, client.name) || !strings.Contains(text, server.name) {
			t.Errorf("the map as %s does not name %s and %s:\n%s", form, client.name, server.name, text)
		}
	}
}

// TestDemoLeavesNothing: the demo shows a map, and removes all of it at an interrupt.
func TestDemoLeavesNothing(t *testing.T) {
	left := func() []string {
		var found []string
		for _, list := range []string{"ps -aq --filter name=^shop-", "network ls -q --filter name=outsight-demo",
			"images -q outsight-demo/*"} {
			found = append(found, strings.Fields(docker(t, strings.Fields(list)...))...)
		}
		files, err := filepath.Glob(filepath.Join(os.TempDir(), "outsight-demo*"))
		if err != nil {
			t.Fatal(err)
		}
		for path := range cgroupDirectories(t) {
			if strings.Contains(path, "outsight-demo") {
				files = append(files, path)
			}
		}
		return append(found, files...)
	}
	before := left()
	var log lockedBuffer
	demo := exec.Command(outsightBinary, "demo", "--listen", freePort(t))
	demo.Stdout, demo.Stderr = &log, &log
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- demo.Wait() }()
	t.Cleanup(func() { demo.Process.Kill() })
	eventually(t, func() error {
		select {
		case err := <-ended:
			t.Fatalf("the demo ended: %v\n%s", err, &log)
		default:
		}
		for _, name := range []string{"shop-gateway", "shop-payment", "shop-redis"} {
			if !strings.Contains(log.String(), name) {
				return errors.New("the map does not show " + name + ":\n" + log.String())
			}
		}
		return nil
	})
	demo.Process.Signal(syscall.SIGINT)
	demo.Process.Signal(syscall.SIGINT) // as timeout(1) does: one for the process, one for its group
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the demo ended with %v\n%s", err, &log)
		}
	case <-time.After(patience):
		t.Fatalf("the demo has not ended %v after an interrupt\n%s", patience, &log)
	}
	for _, thing := range left() {
		if !slices.Contains(before, thing) {
			t.Errorf("the demo left %s", thing)
		}
	}
}
