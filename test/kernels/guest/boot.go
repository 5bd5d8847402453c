package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel"
	"outsight/internal/model"
	"outsight/test/kernels/report"
)

// reportDevice is the second serial port, which carries nothing else.
const reportDevice = "/dev/ttyS1"

// boot is what the first process does: it sets the machine up, carries the checks out, sends the
// report and powers off.
func boot() {
	r := report.Report{}
	if err := setUp(); err != nil {
		r.Checks = append(r.Checks, check("set-up", func() (string, error) { return "", err }))
	} else if side := os.Getenv(report.Side); side != "" {
		r.Release = release()
		r.Checks = append(r.Checks, check("host", func() (note string, err error) {
			r.Frames, err = beHost(side)
			return "", err
		}))
	} else if os.Getenv(report.Clock) != "" {
		r.Release = release()
		r.Checks = append(r.Checks, check("clock of a card", clockTests), check("clock of an agent", clockOfAgent),
			check("clock of a probe", clockOfProbe))
	} else if os.Getenv(report.RDMA) != "" {
		r.Release = release()
		r.Checks = append(r.Checks, check("RDMA devices", rdmaDevices), check("RDMA", rdmaTests),
			check("an agent's maps by RDMA", agentByRDMA))
	} else {
		r.Release = release()
		fmt.Println("guest: up,", r.Release)
		if !withoutEdges() {
			r.Checks = append(r.Checks, check("file systems", mountDisks))
		}
		r.Features = features(&r)
		r.Checks = append(r.Checks, check("kernel tests", kernelTests), check("agent", agentCounts))
	}
	if err := send(r); err != nil {
		fmt.Println("guest: sending the report:", err)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("guest: powering off:", err)
	}
	select {} // the first process must not end
}

func check(name string, try func() (string, error)) report.Check {
	start := time.Now()
	c := report.Check{Name: name}
	note, err := try()
	c.Note = note
	if err != nil {
		c.Failure = err.Error()
		fmt.Println("guest:", name, "failed:", err)
	}
	fmt.Println("guest:", name, "took", time.Since(start))
	return c
}

func setUp() error {
	for _, m := range []struct{ kind, point string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
		{"cgroup2", "/sys/fs/cgroup"}, {"bpf", "/sys/fs/bpf"}, {"tracefs", "/sys/kernel/tracing"},
	} {
		if err := os.MkdirAll(m.point, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.point, m.kind, 0, ""); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mounting %s: %w", m.point, err)
		}
	}
	if err := os.Setenv("PATH", "/"); err != nil {
		return err
	}
	const every = "+cpu +memory +io +pids"
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte(every), 0); err != nil {
		return fmt.Errorf("turning the controllers on: %w", err)
	}
	return bringUp("lo")
}

func bringUp(name string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bringing %s up: %w", name, err)
	}
	return nil
}

func release() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(name.Release[:])
}

// features asks a process that opens the probes once, only for that, what works on this kernel.
// The first process cannot: it began without /proc.
func features(r *report.Report) (all []model.Feature) {
	r.Checks = append(r.Checks, check("load", func() (string, error) {
		command := exec.Command("/init", "features")
		command.Stderr = os.Stdout
		encoded, err := command.Output()
		if err != nil {
			return "", err
		}
		return "", json.Unmarshal(encoded, &all)
	}))
	for _, f := range all {
		fmt.Printf("guest: %-7s %s %s\n", f.State, f.Name, f.Reason)
	}
	return all
}

func printFeatures() error {
	probes, err := kernel.Open(kernel.Options{TLS: true, Packets: kernel.PacketsInSlices, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(os.Stdout).Encode(probes.Features()), probes.Close())
}

var (
	verdicts = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP)`)
	failures = regexp.MustCompile(`(?m)^--- FAIL: (\S+).*\n(?:[ \t].*\n)*`)
)

// failed returns what the failed tests printed, of the output of tests that ran with -test.v one after the other.
func failed(output []byte) string {
	var text strings.Builder
	for _, found := range failures.FindAllSubmatchIndex(output, -1) {
		name := output[found[2]:found[3]]
		start := bytes.LastIndex(output[:found[0]], fmt.Appendf(nil, "=== RUN   %s\n", name))
		text.Write(output[max(start, 0):found[1]])
	}
	return text.String()
}

// essential are the tests of the kernel modules that ask what may differ between kernels; the others are
// about tables and names. An emulated machine is some twenty times slower.
const (
	essential      = "TestCPUTime|RunQueueWait|PartsAddUp|LifecycleEvents|TestFiguresAre|TestReusedAddress|TestSlotsAre|TestPressureIs|TestLimitsAre"
	essentialEdges = "|TestCountsAreExact/(kept_alive|IPv6)|TestConnectionsOlderThan|DatagramCountsAreExact/connected|OneWayStream|UnreadRequests|GRPCCalls|HTTP2EitherOrder|LargeTransfers|RefusedHTTP2|StepsOfVerification|SyncsAreTimed|SyncsOfOther|EitherTimer|AtFullSocketBuffer|TableOfDrops|TestReadsAre|HostilePackets|OtherPackets|StoppedProcess|AnotherXDP|PacketsInTunnels"
)

// withoutEdges is set where the host expects this kernel to count no edges.
func withoutEdges() bool { return os.Getenv(report.WithoutEdges) != "" }

// kernelTests runs tests of the kernel modules; a skipped one shows in the note.
func kernelTests() (string, error) {
	only := essential
	if !withoutEdges() {
		only += essentialEdges
	}
	if chosen := os.Getenv(report.Run); chosen != "" {
		only = chosen
	}
	var output bytes.Buffer
	var errs []error
	for _, subject := range []string{"sched", "net", "block", "tick", "groups", "region"} {
		command := exec.Command("/"+subject+".test", "-test.v", "-test.run="+only)
		command.Env = append(os.Environ(), "OUTSIGHT_EMULATED=yes", report.FileSystems+"="+report.FileSystemsDir)
		errs = append(errs, runTests(command, &output))
	}
	err := errors.Join(errs...)
	note, counts := verdictsOf(output.Bytes())
	if err == nil && counts["PASS"] == 0 {
		err = fmt.Errorf("no test ran")
	}
	return note, err
}

// runTests runs tests, shows what they print and adds it to output; the error has what the failed ones printed.
func runTests(command *exec.Cmd, output *bytes.Buffer) error {
	before := output.Len()
	command.Dir = "/tmp"
	command.Stdout, command.Stderr = io.MultiWriter(os.Stdout, output), os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command.Path, err, failed(output.Bytes()[before:]))
	}
	return nil
}

// verdictsOf counts the verdicts in what tests printed.
func verdictsOf(output []byte) (note string, counts map[string]int) {
	counts = map[string]int{}
	for _, found := range verdicts.FindAllSubmatch(output, -1) {
		counts[string(found[1])]++
	}
	note = fmt.Sprintf("%d tests", counts["PASS"])
	if n := counts["SKIP"]; n > 0 {
		note += fmt.Sprintf(", %d skipped", n)
	}
	return note, counts
}

// runAllTests runs tests of which none may be skipped, and answers how many there were and what they printed.
func runAllTests(command *exec.Cmd) (note string, output []byte, err error) {
	var printed bytes.Buffer
	if err := runTests(command, &printed); err != nil {
		return "", nil, err
	}
	note, counts := verdictsOf(printed.Bytes())
	if counts["SKIP"] > 0 || counts["PASS"] == 0 {
		return "", nil, fmt.Errorf("%s, want none skipped", note)
	}
	return note, printed.Bytes(), nil
}

func send(r report.Report) error {
	port, err := os.OpenFile(reportDevice, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := port.Write(append(encoded, '\n')); err != nil {
		return err
	}
	// Closing a serial port waits until everything has been sent.
	return port.Close()
}
