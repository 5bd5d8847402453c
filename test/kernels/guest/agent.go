package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	agentAddress  = "127.0.0.1:8471"
	serverAddress = "127.0.0.1:7000"
	connections   = 20
	requests      = 25
	memoryLimit   = 64 << 20
	// throttled is a long period: an emulated CPU stands still at any moment, also between the kernel's reading of its
	// clock and that of a program, mostly where a timer is set, as at the end of a quota. The share of that must be small.
	throttled     = "200000 1000000"
	emulatedShare = 0.15
)

// agentCounts runs the built agent beside two groups that talk, one that is throttled and one
// that runs out of memory, and holds what /metrics says against what is true.
func agentCounts() (_ string, err error) {
	agent, ended, err := startAgent("/outsight-agent")
	if err != nil {
		return "", err
	}
	defer func() {
		end := syscall.SIGTERM
		if _, unanswered := errors.AsType[*url.Error](err); unanswered {
			end = syscall.SIGQUIT // it says what its goroutines wait for
		}
		agent.Signal(end)
		<-ended
	}()
	if err := eventually(ended, func() error { _, err := metrics(); return err }); err != nil {
		return "", err
	}
	if withoutEdges() {
		return "no edges", resourceCounts(ended)
	}
	// The first that fails ends it: each is waited for, and the guest has to end before its limit to say why.
	if err := edgeCounts(ended); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d transactions, %d bytes", connections*requests, connections*requests*(requestBytes+replyBytes)),
		resourceCounts(ended)
}

// startAgent starts an agent that serves /metrics at agentAddress.
func startAgent(program string, arguments ...string) (*os.Process, <-chan struct{}, error) {
	agent := exec.Command(program, append(arguments, "--listen", agentAddress, "--socket", "/run/outsight.sock", "--log",
		"error")...)
	agent.Stdout, agent.Stderr = os.Stdout, os.Stderr
	if err := agent.Start(); err != nil {
		return nil, nil, err
	}
	ended := make(chan struct{})
	go func() {
		agent.Wait()
		close(ended)
	}()
	return agent.Process, ended, nil
}

func edgeCounts(ended <-chan struct{}) error {
	server, err := newGroup("a")
	if err != nil {
		return err
	}
	client, err := newGroup("b")
	if err != nil {
		return err
	}
	stop, err := server.start("serve", serverAddress)
	if err != nil {
		return err
	}
	if err := client.run("ask", serverAddress, strconv.Itoa(connections), strconv.Itoa(requests)); err != nil {
		return err
	}
	var wanted []series
	for _, side := range []string{"client", "server"} {
		labels := []string{label("side", side), label("client_id", client.id), label("server_id", server.id),
			label("service", serverAddress)}
		for name, want := range map[string]float64{
			"outsight_edge_transactions_total":         connections * requests,
			"outsight_edge_request_bytes_total":        connections * requests * requestBytes,
			"outsight_edge_response_bytes_total":       connections * requests * replyBytes,
			"outsight_edge_connections_opened_total":   connections,
			"outsight_edge_connections_closed_total":   connections,
			"outsight_edge_aborted_transactions_total": 0,
			"outsight_edge_paired":                     1,
		} {
			wanted = append(wanted, series{name, labels, func() (float64, error) { return want, nil }, 0})
		}
	}
	return errors.Join(eventually(ended, func() error { return all(wanted) }), stop())
}

// resourceCounts compares with the files of the kernel, after the groups have come to rest.
func resourceCounts(ended <-chan struct{}) error {
	slow, err := newGroup("c")
	if err != nil {
		return err
	}
	small, err := newGroup("d")
	if err != nil {
		return err
	}
	err = errors.Join(slow.set("cpu.max", throttled), small.set("memory.max", strconv.Itoa(memoryLimit)))
	if err != nil {
		return err
	}
	if err := small.run("eat", strconv.Itoa(2*memoryLimit)); err == nil {
		return errors.New("a program ate twice what it was given")
	}
	if err := spin(slow, ended); err != nil {
		return err
	}
	if n, err := slow.number("cpu.stat", "nr_throttled"); err != nil || n == 0 {
		return fmt.Errorf("the kernel throttled %v times: %w", n, err)
	}
	of := func(g group) []string { return []string{label("id", g.id)} }
	is := func(n float64) func() (float64, error) { return func() (float64, error) { return n, nil } }
	seconds := func(key string) func() (float64, error) {
		return func() (float64, error) {
			microseconds, err := slow.number("cpu.stat", key)
			return microseconds / 1e6, err
		}
	}
	return eventually(ended, func() error {
		return all([]series{
			{"container_cpu_usage_seconds_total", of(slow), seconds("usage_usec"), emulatedShare},
			{"container_cpu_cfs_throttled_periods_total", of(slow),
				func() (float64, error) { return slow.number("cpu.stat", "nr_throttled") }, 0},
			{"container_cpu_cfs_throttled_seconds_total", of(slow), seconds("throttled_usec"), 1e-6},
			{"container_spec_memory_limit_bytes", of(small), is(memoryLimit), 0},
			{"container_oom_kills_total", of(small), is(1), 0},
		})
	})
}

// spin runs a busy program in a group until the group has been throttled five times.
func spin(g group, ended <-chan struct{}) error {
	command, dir, err := g.command("spin")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := command.Start(); err != nil {
		return err
	}
	err = eventually(ended, func() error {
		n, err := g.number("cpu.stat", "nr_throttled")
		if err == nil && n < 5 {
			err = fmt.Errorf("throttled %v times", n)
		}
		return err
	})
	command.Process.Kill()
	command.Wait()
	return err
}

func label(name, value string) string { return fmt.Sprintf("%s=%q", name, value) }

// series is one of /metrics and its true value, which it may miss by a share of it.
type series struct {
	name   string
	labels []string
	want   func() (float64, error)
	share  float64
}

// all fails unless each series is there once and has its value.
func all(wanted []series) error {
	text, err := metrics()
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range wanted {
		found, err := s.find(text)
		if err != nil {
			return err
		}
		want, err := s.want()
		if err != nil {
			return err
		}
		if len(found) != 1 || math.Abs(found[0]-want) > want*s.share {
			errs = append(errs, fmt.Errorf("%s%.20q is %v, want %v", s.name, s.labels, found, want))
		}
	}
	return errors.Join(errs...)
}

func (s series) find(text string) (values []float64, err error) {
	for line := range strings.Lines(text) {
		rest, named := strings.CutPrefix(line, s.name+"{")
		end := strings.LastIndex(rest, "} ")
		if !named || end < 0 || !hasAll(rest[:end], s.labels) {
			continue
		}
		value, err := strconv.ParseFloat(strings.Fields(rest[end+2:])[0], 64)
		if err != nil {
			return nil, fmt.Errorf("reading %q: %w", line, err)
		}
		values = append(values, value)
	}
	return values, nil
}

func hasAll(text string, labels []string) bool {
	for _, l := range labels {
		if !strings.Contains(","+text, ","+l) {
			return false
		}
	}
	return true
}

var client = http.Client{Timeout: time.Minute}

func metrics() (string, error) {
	response, err := client.Get("http://" + agentAddress + "/metrics")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("/metrics: %s", response.Status)
	}
	return string(text), err
}

// eventually tries until there is no error, until the agent has ended (nil: there is none), or for at most startLimit, and
// hands back the last error.
func eventually(ended <-chan struct{}, try func() error) error {
	return within(startLimit, ended, try)
}

// within is eventually with another limit.
func within(limit time.Duration, ended <-chan struct{}, try func() error) error {
	for end := time.After(limit); ; {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the agent has ended: %w", err)
		case <-end:
			return fmt.Errorf("not within %v: %w", limit, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
