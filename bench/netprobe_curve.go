package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"outsight/internal/container"
)

const (
	// each container of the curve asks the next one so often, and is answered.
	curvePeriod = 250 * time.Millisecond
	// curveSettle is until the agent knows all containers and edges, curveObserve for how long its CPU time is taken.
	curveSettle, curveObserve = 8 * time.Second, 12 * time.Second
)

// talkSource is the program in each container.
//
//go:embed talk/talk.c
var talkSource []byte

// curveContainers are how many containers are watched at the points of the curve.
var curveContainers = []int{1, 10, 100, 1000}

// measureProbeCurve takes the agent's CPU time and memory while containers talk in a ring, from one container to 1,000, with
// packets observed and without.
func measureProbeCurve(ctx context.Context, o options) ([]row, error) {
	layout, err := container.Detect(container.Options{})
	if err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp("", "outsight-talk-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	talk := filepath.Join(directory, "talk")
	compile := exec.CommandContext(ctx, "cc", "-O2", "-Wall", "-Werror", "-o", talk, "-x", "c", "-")
	compile.Stdin = bytes.NewReader(talkSource)
	if text, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling the program of the containers: %w: %s", err, text)
	}
	var rows []row
	lines := [][]string{{"containers", "CPU, packets observed", "CPU without", "memory, packets observed", "memory without"}}
	for _, n := range curveContainers {
		line, measured, err := curvePoint(ctx, o, layout, talk, n)
		if err != nil {
			return rows, fmt.Errorf("with %d containers: %w", n, err)
		}
		lines, rows = append(lines, line), append(rows, measured...)
	}
	return rows, o.document("netprobe.md", "netprobe-curve", markdown(lines))
}

// curvePoint is the line of one number of containers.
func curvePoint(ctx context.Context, o options, layout container.Layout, talk string, n int) (line []string, rows []row, err error) {
	groups, err := makeTalkers(layout, talk, n)
	defer groups.remove()
	if err != nil {
		return nil, nil, err
	}
	line = []string{strconv.Itoa(n), "", "", "", ""}
	for i, packets := range []string{"true", "false"} {
		share, resident, err := curveCost(ctx, o, n, packets)
		if err != nil {
			return nil, nil, err
		}
		progress("%d containers, --packets=%s: %.2f %% of a core, %.1f MiB", n, packets, share, resident)
		line[1+i], line[3+i] = fmt.Sprintf("%.2f %% of a core", share), fmt.Sprintf("%.1f MiB", resident)
		what := fmt.Sprintf("agent, %d containers that talk, --packets=%s: ", n, packets)
		rows = append(rows, row{what: what + "CPU", value: share, unit: "% of a core",
			detail: fmt.Sprintf("schedstat of its threads over %v", curveObserve)},
			row{what: what + "resident memory", value: resident, unit: "MiB", detail: "VmRSS"})
	}
	return line, rows, nil
}

// curveCost is what an agent costs beside n containers, of which it must see all.
func curveCost(ctx context.Context, o options, n int, packets string) (share, mebibytes float64, err error) {
	a, err := startAgent(ctx, o, "outsight-agent --packets="+packets)
	if err != nil {
		return 0, 0, err
	}
	defer a.stop()
	if err := sleep(ctx, curveSettle); err != nil {
		return 0, 0, err
	}
	seen, err := a.talkers()
	if err != nil {
		return 0, 0, err
	}
	if seen < n {
		return 0, 0, fmt.Errorf("the agent knows %d containers that send, of %d", seen, n)
	}
	pid, begun := a.command.Process.Pid, time.Now()
	before, err := cpuTime(pid)
	if err != nil {
		return 0, 0, err
	}
	if err := sleep(ctx, curveObserve); err != nil {
		return 0, 0, err
	}
	after, err := cpuTime(pid)
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(begun)
	resident, err := residentBytes(pid)
	return 100 * (after - before).Seconds() / took.Seconds(), float64(resident) / (1 << 20), err
}

// talkers is of how many containers of the curve the agent has packets that they sent as clients.
func (a *agent) talkers() (int, error) {
	response, err := http.Get("http://" + a.address + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	known := map[string]bool{}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if _, id, ok := strings.Cut(line, `client_id="`+talkerPrefix); ok && strings.HasPrefix(line, "outsight_edge_") {
			known[id[:8]] = true
		}
	}
	return len(known), lines.Err()
}

// talkerPrefix begins the IDs of the containers; a number of eight digits follows.
const talkerPrefix = "be9c0be9c0"

// talkers are control groups, as of Docker's containers, each with a process that asks the next one's.
type talkers struct {
	// groups are the directories of each container, one in each hierarchy that says whose packets are.
	groups    [][]string
	processes []*exec.Cmd
}

func makeTalkers(l container.Layout, talk string, n int) (*talkers, error) {
	t := &talkers{}
	parents := []string{l.MountPoint}
	if unified := filepath.Join(filepath.Dir(l.MountPoint), "unified"); l.Subsystem != "" {
		if _, err := os.Stat(unified); err == nil {
			parents = append(parents, unified)
		}
	}
	var begin []io.Closer
	for i := range n {
		id := fmt.Sprintf("%s%08d%046d", talkerPrefix, i, 0)
		var of []string
		for _, parent := range parents {
			of = append(of, filepath.Join(parent, "docker", id))
		}
		t.groups = append(t.groups, of)
		for _, directory := range of {
			if err := os.MkdirAll(directory, 0o755); err != nil {
				return t, err
			}
		}
		c := exec.Command(talk, strconv.Itoa(i), strconv.Itoa(n), strconv.Itoa(sinkPort),
			strconv.FormatInt(curvePeriod.Milliseconds(), 10))
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		c.Stderr = os.Stderr
		in, err := c.StdinPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return t, err
		}
		t.processes, begin = append(t.processes, c), append(begin, in)
		for _, directory := range of {
			err := os.WriteFile(filepath.Join(directory, "cgroup.procs"), fmt.Appendf(nil, "%d", c.Process.Pid), 0)
			if err != nil {
				return t, err
			}
		}
	}
	for _, in := range begin { // sockets are made by processes that are in their containers
		if err := in.Close(); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (t *talkers) remove() {
	for _, c := range t.processes {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	for _, of := range t.groups {
		for _, directory := range of {
			for range 1000 { // the kernel takes a moment to find it empty
				if err := os.Remove(directory); err == nil || errors.Is(err, os.ErrNotExist) {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
}
