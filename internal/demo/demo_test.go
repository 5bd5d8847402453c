package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets this test binary be what it starts in the containers, and the launcher that
// TestLeftovers kills.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "demo-service" {
		if err := RunService(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "launch-and-wait" {
		launchAndWait(os.Args[2])
	}
	os.Exit(m.Run())
}

func launchAndWait(mode string) {
	_, err := Start(context.Background(), Options{Instance: testInstance, NoDocker: mode == "cgroup"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("runs")
	signal.Ignore(syscall.SIGTERM)
	select {}
}

const testInstance = "demotest"

var modes = []string{"docker", "cgroup"}

func startShop(t *testing.T, o Options) *Shop {
	t.Helper()
	o.Instance = testInstance
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// patience bounds every wait. It is generous: only what is broken takes as long.
const patience = 3 * time.Minute

// waitFor polls a condition of other processes, which tell nobody when it comes true.
func waitFor(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not so after %v", what, patience)
		}
	}
}

// left lists everything on this host that belongs to the test's shop.
func left(t *testing.T, mode string) []string {
	t.Helper()
	var found []string
	run := func(prefix string, command ...string) {
		out, err := exec.Command(command[0], command[1:]...).Output()
		if err != nil {
			t.Fatalf("%v: %v", command, err)
		}
		for _, line := range strings.Fields(string(out)) {
			found = append(found, prefix+line)
		}
	}
	if mode == "docker" {
		run("container ", "docker", "ps", "-aq", "--filter", "name=^"+testInstance+"-")
		run("network ", "docker", "network", "ls", "-q", "--filter", "name=outsight-demo-"+testInstance)
		run("image ", "docker", "images", "-aq", "outsight-demo-"+testInstance+"/*")
	}
	for _, pattern := range []string{
		"/sys/fs/cgroup/*/outsight-demo-" + testInstance + "*", "/sys/fs/cgroup/outsight-demo-" + testInstance + "*",
		filepath.Join(os.TempDir(), "outsight-demo-"+testInstance+"*"),
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, files...)
	}
	return append(found, processes(t)...)
}

// processes lists the shop's processes by the name of their host, which each has to itself.
func processes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		if filepath.Dir(f) == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		b, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(b), "demo-service") &&
			strings.Contains(string(b), filepath.Base(os.Args[0])) {
			found = append(found, "process "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

func TestShop(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			s := startShop(t, Options{NoDocker: mode == "cgroup", Rate: 200})
			if s.Mode() != mode || len(s.Notices()) > 0 || len(s.Parts()) != 8 {
				t.Fatalf("mode %q, %d parts, notices %q", s.Mode(), len(s.Parts()), s.Notices())
			}
			waitFor(t, "400 replies and a stall", func() bool { return s.Report().Completed >= 400 })
			checkTruth(t, s, pausedTruth(t, s, false))
			if err := s.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := s.Report().Completed
			if err := s.SetRate(t.Context(), 300); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "300 replies more", func() bool { return s.Report().Completed >= before+300 })
			truth := pausedTruth(t, s, true)
			checkTruth(t, s, truth)
			checkClosed(t, truth)
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r := s.Report(); r.Sent != truth.Load.Sent || r.Completed != truth.Load.Completed || r.InFlight != 0 {
				t.Errorf("final report %+v, want the counts of %+v", r, truth.Load)
			}
			if l := left(t, mode); len(l) > 0 {
				t.Errorf("left behind: %q", l)
			}
		})
	}
}

func pausedTruth(t *testing.T, s *Shop, closeConnections bool) Truth {
	t.Helper()
	if err := s.Pause(t.Context(), closeConnections); err != nil {
		t.Fatal(err)
	}
	truth, err := s.Truth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return truth
}

// checkTruth checks that all parts tell the same story, to the byte.
func checkTruth(t *testing.T, s *Shop, truth Truth) {
	t.Helper()
	load := truth.Load
	if load.Sent == 0 || load.Completed != load.Sent || load.Errors != 0 || load.Shed != 0 || load.InFlight != 0 {
		t.Errorf("load: sent %d, completed %d, errors %d (%s), shed %d, in flight %d",
			load.Sent, load.Completed, load.Errors, load.LastError, load.Shed, load.InFlight)
	}
	byEdge := map[Edge]EdgeTruth{}
	var names []Edge
	for _, e := range truth.Edges {
		byEdge[e.Edge] = e
		names = append(names, e.Edge)
	}
	want := s.Edges()
	if len(names) != len(want) || slices.ContainsFunc(want, func(e Edge) bool { return !slices.Contains(names, e) }) {
		t.Fatalf("edges %v, want %v", names, want)
	}
	for _, e := range truth.Edges {
		if e.ClientSide == nil && e.ServerSide == nil {
			t.Errorf("%v: neither end knows of it", e.Edge)
		}
		if c, v := e.ClientSide, e.ServerSide; c != nil && v != nil &&
			(c.Requests == 0 || c.Requests != v.Requests || c.SentBytes != v.ReceivedBytes || c.ReceivedBytes != v.SentBytes ||
				c.Opened != v.Opened) {
			t.Errorf("%v: client %+v, server %+v", e.Edge, *c, *v)
		}
	}
	side := func(client, server string, port uint16) EdgeTruth {
		return byEdge[Edge{testInstance + "-" + client, testInstance + "-" + server, port}]
	}
	checkouts := load.Paths["checkout"].Sent
	f := func(what string, got, want uint64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	f("payments", truth.Payment.Payments, checkouts)
	f("requests of gateway to payment", side("gateway", "payment", shopPort).ServerSide.Requests, checkouts)
	f("requests of gateway to cart", side("gateway", "cart", shopPort).ServerSide.Requests,
		2*checkouts+load.Paths["cart"].Sent+load.Paths["add"].Sent)
	f("requests of gateway to catalogue", side("gateway", "catalogue", shopPort).ServerSide.Requests,
		load.Paths["page"].Sent+load.Paths["product"].Sent)
	if slices.Contains(s.without, "nginx") {
		f("requests of load to gateway", side("load", "gateway", shopPort).ServerSide.Requests, load.Sent)
	} else {
		f("requests of load to nginx", side("load", "nginx", nginxPort).ClientSide.Requests, load.Sent)
		f("requests of nginx to gateway", side("nginx", "gateway", shopPort).ServerSide.Requests, load.Sent)
	}
	if !slices.Contains(s.without, "redis") {
		f("commands of payment", side("payment", "redis", redisPort).ClientSide.Requests, checkouts)
	}
	if cpu := truth.Payment.CPU; cpu < time.Duration(checkouts)*paymentCPU {
		t.Errorf("CPU time of %d payments: %v", checkouts, cpu)
	}
}

func checkClosed(t *testing.T, truth Truth) {
	t.Helper()
	for _, e := range truth.Edges {
		if c := e.ClientSide; c != nil && c.Opened != c.Closed {
			t.Errorf("%v: %d connections opened, %d closed", e.Edge, c.Opened, c.Closed)
		}
	}
}

func TestShopWithoutDebian(t *testing.T) {
	// What a launcher that had no Docker has left, Docker's removes as well.
	old := filepath.Join(os.TempDir(), "outsight-demo-"+testInstance+".old")
	if err := os.Mkdir(old, 0o755); err != nil {
		t.Fatal(err)
	}
	s := startShop(t, Options{Without: []string{"nginx", "redis"}, Rate: 200})
	waitFor(t, "200 replies", func() bool { return s.Report().Completed >= 200 })
	if len(s.Parts()) != 5 {
		t.Errorf("parts %v", s)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%q: %v", old, err)
	}
	checkTruth(t, s, pausedTruth(t, s, false))
}

func TestStartTwice(t *testing.T) {
	s := startShop(t, Options{NoDocker: true, Without: []string{"nginx", "redis"}})
	if _, err := Start(t.Context(), Options{NoDocker: true, Instance: testInstance}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second start: %v", err)
	}
	before := s.Report().Completed
	waitFor(t, "the first shop goes on", func() bool { return s.Report().Completed > before+50 })
}

func TestFailedStart(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			// A program that is there, and ends at once.
			_, err := Start(t.Context(), Options{Instance: testInstance, Binary: "/bin/true", NoDocker: mode == "cgroup"})
			if err == nil || !strings.Contains(err.Error(), "ended before it served") {
				t.Errorf("start: %v", err)
			}
			if l := left(t, mode); len(l) > 0 {
				t.Errorf("left behind: %q", l)
			}
		})
	}
	o := Options{Instance: testInstance, NoDocker: true, ProcFS: t.TempDir()}
	if _, err := Start(t.Context(), o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("start without /proc: %v", err)
	}
}

// TestCancelledStart gives up at different moments of a start; nothing is left at any of them.
func TestCancelledStart(t *testing.T) {
	f := func(mode string, after time.Duration) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), after)
		defer cancel()
		s, err := Start(ctx, Options{Instance: testInstance, NoDocker: mode == "cgroup"})
		if err == nil { // it was faster
			err = s.Stop(t.Context())
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		if err != nil {
			t.Errorf("%s, given up after %v: %v", mode, after, err)
		}
		if l := left(t, mode); len(l) > 0 {
			t.Errorf("%s, given up after %v: left behind: %q", mode, after, l)
		}
	}
	f("docker", 30*time.Millisecond)
	f("docker", 700*time.Millisecond)
	f("docker", 1500*time.Millisecond)
	f("cgroup", 0)
	f("cgroup", 20*time.Millisecond)
	f("cgroup", 60*time.Millisecond)
}

// TestLeftovers kills a launcher and starts another one.
func TestLeftovers(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			launcher := exec.Command(os.Args[0], "launch-and-wait", mode)
			out, err := launcher.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := launcher.Start(); err != nil {
				t.Fatal(err)
			}
			said := make([]byte, 4096)
			n, err := out.Read(said)
			if err != nil || string(said[:n]) != "runs\n" {
				t.Errorf("launcher: %q %v", said[:n], err)
			}
			if err := launcher.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			launcher.Wait()
			if mode == "cgroup" {
				waitFor(t, "the processes end with the launcher", func() bool { return len(processes(t)) == 0 })
			}
			if len(left(t, mode)) == 0 {
				t.Error("a killed launcher left nothing: this test shows nothing")
			}
			s := startShop(t, Options{NoDocker: mode == "cgroup"})
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if l := left(t, mode); len(l) > 0 {
				t.Errorf("left behind: %q", l)
			}
		})
	}
}
