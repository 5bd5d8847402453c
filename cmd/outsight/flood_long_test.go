//go:build long

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestStrangersTakeLittle: 4,000 connections that send 1 MB of headers each and have no token, on each address of a
// server, take little of its memory, and keep nobody out who has a token. OUTSIGHT_BIN is another program to try.
func TestStrangersTakeLittle(t *testing.T) {
	const connections, megabyte, most = 4000, 1 << 20, 400 << 20
	dir := t.TempDir()
	bin := os.Getenv("OUTSIGHT_BIN")
	if bin == "" {
		bin = filepath.Join(dir, "outsight")
		if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addresses := map[string]string{}
	arguments := []string{"server", "--data", dir + "/data", "--token-file", tokens, "--kubernetes", "off"}
	for _, flag := range []string{"listen", "otlp", "otlp-http"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses[flag] = l.Addr().String()
		arguments = append(arguments, "--"+flag, l.Addr().String())
		l.Close()
	}
	server := exec.Command(bin, arguments...)
	var said bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(os.Interrupt)
		server.Wait()
		if t.Failed() {
			t.Logf("the server said:\n%s", &said)
		}
	})
	ask := func() (int, error) {
		request, err := http.NewRequest(http.MethodGet, "http://"+addresses["listen"]+"/api/v1/query?query=1", nil)
		if err != nil {
			return 0, err
		}
		request.Header.Set("Authorization", "Bearer 0123456789abcdef")
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		if err != nil {
			return 0, err
		}
		answer.Body.Close()
		return answer.StatusCode, nil
	}
	for {
		if code, _ := ask(); code == http.StatusOK {
			break
		}
		if server.ProcessState != nil {
			t.Fatalf("the server ended\n%s", &said)
		}
		time.Sleep(10 * time.Millisecond)
	}
	begin := peak(t, server.Process.Pid)
	for flag, address := range addresses {
		head := "GET / HTTP/1.1\r\nHost: localhost\r\nX: "
		if flag == "otlp" {
			head = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
		}
		large := []byte(head + strings.Repeat("x", megabyte-len(head)))
		var open []net.Conn
		for n := range connections {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Logf("%s: connection %d: %v", flag, n, err)
				break
			}
			open = append(open, c)
			// What the other end does not take stays here.
			_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			_, _ = c.Write(large)
		}
		// A cut-off is to be seen by those that are cut off alone.
		if code, err := ask(); code != http.StatusOK {
			t.Errorf("with %d connections to --%s, one with a token got %d, %v", len(open), flag, code, err)
		}
		t.Logf("%d connections to --%s: %d MiB at most, %d before", len(open), flag, peak(t, server.Process.Pid)>>20,
			begin>>20)
		for _, c := range open {
			c.Close()
		}
	}
	if got := peak(t, server.Process.Pid) - begin; got > most {
		t.Errorf("strangers took %d MiB, at most %d are right", got>>20, most>>20)
	}
}

// peak is the most memory that a process has had.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Fatal("the kernel does not say the memory of a process")
	return 0
}
