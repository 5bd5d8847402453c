package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
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

	"outsight/test/issuer"
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
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(scrapeToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f(1, "", "choose another address with --listen", "--listen", "203.0.113.1:1", "--listen-token-file", tokens)
	// Whoever can reach it is asked who they are.
	f(2, "", "--listen 0.0.0.0:0 can be reached by others than this host, who would not be asked who they are: give "+
		"--listen-token-file", "--listen", "0.0.0.0:0")
	f(2, "", "can be reached by others", "--listen", ":0", "--token-file", tokens) // which is what it sends
	// What cannot be an address is said to be none, and not to be within reach of others.
	f(2, "", `the address is "300.1.1.1:99999", whose port is "99999", want 0 to 65535`, "--listen", "300.1.1.1:99999")
	f(2, "", `the address is "300.1.1.1:8471", whose host "300.1.1.1" is no IP address`, "--listen", "300.1.1.1:8471")
	f(2, "", `the address is "8471", want HOST:PORT, as in 127.0.0.1:8470`, "--listen", "8471")
	f(2, "", "--listen-client-ca needs --listen-tls-cert and --listen-tls-key", "--listen-client-ca", tokens)
	f(1, "", "reading tokens", "--listen-token-file", "missing")
}

const scrapeToken = "0123456789abcdef"

// Over TLS, /metrics is for who has a certificate and a token, and health checks tell nothing.
func TestWhoMayReadMetrics(t *testing.T) {
	ours := issuer.New(t, "ours")
	cert, key := ours.Leaf("agent", x509.ExtKeyUsageServerAuth)
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(scrapeToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, metrics, _ := start(t, "--listen-token-file", tokens, "--listen-tls-cert", cert, "--listen-tls-key", key,
		"--listen-client-ca", ours.CA)
	metrics = strings.Replace(metrics, "http:", "https:", 1)
	client := func(certificates ...tls.Certificate) *http.Client {
		transport := &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{RootCAs: ours.Pool(), Certificates: certificates}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: 30 * time.Second}
	}
	pair, err := tls.LoadX509KeyPair(ours.Leaf("scraper", x509.ExtKeyUsageClientAuth))
	if err != nil {
		t.Fatal(err)
	}
	known, stranger := client(pair), client()
	ask := func(url, token string) (int, string, error) {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := known.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body), err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		code, body, err := ask(strings.Replace(metrics, "/metrics", "/readyz", 1), "")
		if err == nil && code == http.StatusOK && body == "ready\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("/readyz: %d %q, %v", code, body, err)
		}
	}
	for token, want := range map[string]int{"": http.StatusUnauthorized, "fedcba9876543210": http.StatusUnauthorized,
		scrapeToken: http.StatusOK} {
		code, body, err := ask(metrics, token)
		if err != nil || code != want || strings.Contains(body,
			"container_cpu_usage_seconds_total{") != (want == http.StatusOK) {
			t.Errorf("token %q: %d %.200q, %v", token, code, body, err)
		}
	}
	if answer, err := stranger.Get(metrics); err == nil {
		t.Errorf("without a certificate: %s", answer.Status)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("after SIGTERM it ended with %v, want exit code 0", err)
	}
}

// Connections that say nothing do not take the descriptors that the files of containers need, and keep nobody out.
func TestConnectionsAreBounded(t *testing.T) {
	_, metrics, _ := start(t)
	fetch(t, metrics) // there are counters
	address := strings.TrimSuffix(strings.TrimPrefix(metrics, "http://"), "/metrics")
	const many, kept = 200, 32
	var all []net.Conn
	for range many {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(metrics)
	if err != nil {
		t.Fatalf("one more connection: %v", err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("one more connection: %s", answer.Status)
	}
	// Each of them was replaced by a newer one: they end long before they would for their silence.
	for _, conn := range all[:many-kept] {
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Fatalf("a silent connection got %d bytes", n)
		}
	}
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
	want := "outsight-agent: missing privilege: CAP_BPF and CAP_PERFMON (to load kernel programs): " +
		`run it as root, as in "sudo outsight-agent"` + "\n"
	if c.ProcessState.ExitCode() != 1 || string(said) != want {
		t.Errorf("got %v and %q, want exit code 1 and %q", err, said, want)
	}
}

// start starts an agent that answers.
func start(t *testing.T, more ...string) (c *exec.Cmd, metrics, socket string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	metrics, socket = "http://"+l.Addr().String()+"/metrics", filepath.Join(t.TempDir(), "agent.sock")
	c = command(append([]string{"--listen", l.Addr().String(), "--socket", socket}, more...)...)
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
	for _, name := range []string{"container_cpu_usage_seconds_total{", "outsight_agent_resident_memory_bytes{",
		"outsight_feature_available{"} {
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
