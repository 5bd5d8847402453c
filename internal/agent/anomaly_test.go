package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"outsight/internal/csvy"
	"outsight/internal/recorder"
	"outsight/internal/report"
)

const answerVariable = "OUTSIGHT_TEST_ANSWER"

// answerAll goes into a control group and sends back what it gets, until its input ends. For each
// line that it reads it answers nobody for 80 ms, and says since when.
func answerAll(group string) {
	enter(group)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	var world sync.Mutex
	waiting := make(chan bool) // a request has come
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 100)
				for {
					if _, err := io.ReadFull(conn, b); err != nil {
						return
					}
					if !world.TryLock() {
						waiting <- true
						world.Lock()
					}
					conn.Write(b)
					world.Unlock()
				}
			}()
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		world.Lock()
		<-waiting
		fmt.Println(time.Now().UnixNano())
		time.Sleep(80 * time.Millisecond)
		world.Unlock()
	}
}

// TestAStallIsKept lets a server stand still for 80 ms and expects what the kernel's timer saw then when the
// flight recorder has forgotten it, by the agent's socket, in files that the report reads.
func TestAStallIsKept(t *testing.T) {
	host, err := Open(HostOptions{Flight: time.Second, FlightInterval: 20 * time.Millisecond,
		Anomalies: recorder.AnomalyOptions{Detect: report.Anomalies, Every: time.Second, Around: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done, path := make(chan error, 2), filepath.Join(t.TempDir(), "agent.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- host.Run(ctx) }()
	go func() { done <- ServeHTTP(ctx, l, SocketHandler(host.Frame, host), slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	}()

	id := randomID()
	group := filepath.Join(host.Layout.MountPoint, "docker", id)
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(group)
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), answerVariable+"="+group)
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Process.Kill()
		server.Wait()
	}()
	address, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() { asked <- ask(ctx, strings.TrimSpace(address)) }()

	client := NewClient(path)
	defer client.Close()
	var found *recorder.KeptAnomaly
	var stopped, went time.Time
	// On a host so busy that requests wait as long as this all the time, one stall is no anomaly: another one is tried.
	for deadline := time.Now().Add(testPatience); found == nil && time.Now().Before(deadline); {
		time.Sleep(3 * time.Second)
		fmt.Fprintln(in)
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		ns, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		stopped = time.Unix(0, ns)
		went = stopped.Add(80 * time.Millisecond)
		for end := time.Now().Add(10 * time.Second); found == nil && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			a, err := client.FetchAnomalies(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range a.List {
				// The host may have had one of its own.
				if k := &a.List[i]; k.ID == id && k.Resource == "stall" && k.From.Before(went) && k.To.After(stopped) {
					found = k
				}
			}
		}
	}
	if found == nil {
		t.Fatalf("the stall was not found after %v", testPatience)
	}
	t.Logf("stalled from %s to %s, found %s: %s", stopped.Format("05.000"), went.Format("05.000"),
		found.From.Format("05.000"), found.Text)
	// On a busy host the request may have waited before.
	if late := found.From.Sub(stopped); late > 30*time.Millisecond || found.WaitedMS < 40 {
		t.Errorf("it begins %v late, %.0f ms waited", late, found.WaitedMS)
	}

	for deadline := time.Now().Add(testPatience); ; time.Sleep(100 * time.Millisecond) {
		left := host.Flight(time.Hour)
		if left.Wall.Add(time.Duration(int64(left.Blocks[0].FirstDueNS - left.MonotonicNS))).After(went) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the flight recorder forgets nothing")
		}
	}
	data, err := client.FetchAnomaly(t.Context(), found.Number)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := data.Write(time.Time{}, recorder.Options{Host: csvy.ThisHost(),
		Create: func(h csvy.Head) (recorder.Writer, error) {
			return csvy.Create(dir, csvy.CSVY, h, csvy.Options{})
		}}); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.csvy"))
	var recordings []*csvy.Recording
	for _, file := range files {
		r, err := csvy.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		recordings = append(recordings, r)
	}
	again := false
	for _, s := range report.Analyse(recordings, report.Options{}).Saturations {
		again = again || s.ID == id && s.Kind == report.Stall && s.From.Before(went) && s.To.After(stopped)
	}
	if !again {
		t.Errorf("a report of %d files does not have the stall", len(files))
	}
	select {
	case err := <-asked:
		t.Errorf("the client ended: %v", err)
	default:
	}
	if _, err := client.FetchAnomaly(t.Context(), 1<<60); err == nil ||
		!strings.Contains(err.Error(), "there is no anomaly") {
		t.Errorf("an anomaly that is not there: %v", err)
	}
}

// ask sends requests one after the other until ctx ends.
func ask(ctx context.Context, address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	b := make([]byte, 100)
	for ctx.Err() == nil {
		if _, err := conn.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}
