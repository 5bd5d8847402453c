package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const asCommand = "OUTSIGHT_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestUsage(t *testing.T) {
	f := func(want int, wantOut, wantErr string, args ...string) {
		t.Helper()
		var out, errOut bytes.Buffer
		if code := run(args, &out, &errOut); code != want {
			t.Errorf("%v: exit code %d, want %d", args, code, want)
		}
		if !strings.Contains(out.String(), wantOut) || !strings.Contains(errOut.String(), wantErr) {
			t.Errorf("%v: got %q and %q, want %q and %q", args, &out, &errOut, wantOut, wantErr)
		}
	}
	f(0, "Example:\n  sudo outsight-agent", "", "--help")
	f(2, "", "flag provided but not defined: -frob", "--frob")
	f(2, "", "invalid value", "--log", "loud")
	f(2, "", `there is no argument "extra"`, "extra")
	f(2, "", "--max-edges 7, want 16 to 1048576", "--max-edges", "7")
	f(2, "", "--max-edges 4294967295, want 16 to 1048576", "--max-edges", "4294967295") // and one is 0 to the kernel
	f(1, "", "choose another address with --listen", "--listen", "203.0.113.1:1")
}

func command(args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	return c
}

func TestMissingCapability(t *testing.T) {
	c := command()
	c.Args = append([]string{"setpriv", "--bounding-set=-all", "--inh-caps=-all", c.Path}, c.Args[1:]...)
	path, err := exec.LookPath("setpriv")
	if err != nil {
		t.Fatal(err)
	}
	c.Path = path
	said, err := c.CombinedOutput()
	want := `outsight-agent: missing privilege: CAP_BPF and CAP_PERFMON (to load kernel programs): run it as root, as in "sudo outsight-agent"` + "\n"
	if c.ProcessState.ExitCode() != 1 || string(said) != want {
		t.Errorf("got %v and %q, want exit code 1 and %q", err, said, want)
	}
}

// start starts an agent that answers.
func start(t *testing.T) (c *exec.Cmd, metrics, socket string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	metrics, socket = "http://"+l.Addr().String()+"/metrics", filepath.Join(t.TempDir(), "agent.sock")
	c = command("--listen", l.Addr().String(), "--socket", socket)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	return c, metrics, socket
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	var last error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get(url)
		if last = err; err != nil {
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if last = err; err == nil && answer.StatusCode == http.StatusOK {
			return string(body)
		}
	}
	t.Fatalf("%s does not answer: %v", url, last)
	return ""
}

func TestMetricsAndOrderlyEnd(t *testing.T) {
	c, metrics, socket := start(t)
	body := fetch(t, metrics)
	for _, name := range []string{"container_cpu_usage_seconds_total{", "outsight_agent_resident_memory_bytes{", "outsight_feature_available{"} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("/metrics has no %s", name)
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("after SIGTERM it ended with %v, want exit code 0", err)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there (%v)", err)
	}
}

// A killed agent leaves its socket behind, and the next one replaces it.
func TestAfterAKill(t *testing.T) {
	c, metrics, socket := start(t)
	fetch(t, metrics)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	next := command("--listen", "", "--socket", socket)
	out, err := next.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("Watching "))
	if _, err := io.ReadFull(out, first); err != nil || string(first) != "Watching " {
		t.Errorf("the next agent says %q, error %v", first, err)
	}
	if err := next.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, out)
	if err := next.Wait(); err != nil {
		t.Errorf("after SIGINT it ended with %v, want exit code 0", err)
	}
}
