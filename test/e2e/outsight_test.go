package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"outsight/bench/traffic"
)

// outsight is a running `outsight up`.
type outsight struct {
	t       *testing.T
	address string
	command *exec.Cmd
	log     *lockedBuffer
	ended   chan error
}

type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func freePort(t *testing.T) string {
	t.Helper()
	address, err := traffic.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address.String()
}

var sharedOutsight struct {
	once sync.Once
	o    *outsight
	err  error
}

// shared is one `outsight up` for all tests that only ask it. The first of them starts it; it ends with the package.
func shared(t *testing.T) *outsight {
	t.Helper()
	s := &sharedOutsight
	s.once.Do(func() {
		var directory string
		if directory, s.err = os.MkdirTemp(filepath.Dir(outsightBinary), "shared-"); s.err == nil {
			s.o, s.err = launch(freePort(t), directory+"/data", "--socket", directory+"/agent.sock")
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	o := *s.o
	o.t = t
	t.Cleanup(o.logIfFailed)
	t.Cleanup(o.dropsIfFailed)
	o.hasSnapshot()
	return &o
}

// stopShared ends the shared one, if there is one.
func stopShared() error {
	if sharedOutsight.o == nil {
		return nil
	}
	return sharedOutsight.o.interrupt()
}

// up starts `outsight up` on a free port with an empty data directory and waits for its first
// snapshot. It is ended with the test, which fails if it does not end cleanly.
func up(t *testing.T, arguments ...string) *outsight {
	t.Helper()
	return upAt(t, freePort(t), t.TempDir(), arguments...)
}

// upAt does so at an address and with a data directory of the test's choice.
func upAt(t *testing.T, address, data string, arguments ...string) *outsight {
	t.Helper()
	o, err := launch(address, data, append([]string{"--socket", socket(t)}, arguments...)...)
	if err != nil {
		t.Fatal(err)
	}
	o.t = t
	t.Cleanup(o.stop)
	o.hasSnapshot()
	return o
}

func launch(address, data string, arguments ...string) (*outsight, error) {
	o := &outsight{address: address, log: &lockedBuffer{}, ended: make(chan error, 1)}
	// Series are made of each frame, so that what was counted is in PromQL a second later.
	o.command = exec.Command(outsightBinary, append([]string{"up", "--listen", address, "--data", data,
		"--promql-every", "1s"}, arguments...)...)
	o.command.Stdout, o.command.Stderr = o.log, o.log
	if err := o.command.Start(); err != nil {
		return nil, err
	}
	go func() { o.ended <- o.command.Wait() }()
	return o, nil
}

// hasSnapshot waits for its first snapshot.
func (o *outsight) hasSnapshot() {
	o.t.Helper()
	eventually(o.t, func() error {
		select {
		case err := <-o.ended:
			o.ended <- err
			o.t.Fatalf("outsight up ended: %v\n%s", err, o.log)
		default:
		}
		metrics, err := o.metrics()
		if err == nil && len(metrics.find("outsight_build_info", nil)) == 0 {
			err = fmt.Errorf("no snapshot yet")
		}
		return err
	})
}

// socket is a path for the agent's socket that no other agent on this host has.
func socket(t *testing.T) string { return filepath.Join(t.TempDir(), "agent.sock") }

func (o *outsight) stop() {
	select {
	case err := <-o.ended: // by the test, or by itself
		o.ended <- err
		o.logIfFailed()
		return
	default:
	}
	o.dropsIfFailed()
	if err := o.interrupt(); err != nil {
		o.t.Error(err)
	}
	o.logIfFailed()
}

func (o *outsight) logIfFailed() {
	if o.t.Failed() {
		o.t.Logf("outsight's output:\n%s", o.log)
	}
}

// dropsIfFailed tells what it has dropped, while it runs.
func (o *outsight) dropsIfFailed() {
	if !o.t.Failed() {
		return
	}
	metrics, err := o.metrics()
	if err != nil {
		o.t.Log(err)
	}
	for _, s := range metrics {
		if s.labels["__name__"] == "outsight_drops_total" && s.value > 0 {
			o.t.Logf("%v of %s were dropped", s.value, s.labels["name"])
		}
	}
}

// interrupt ends it as Ctrl-C does.
func (o *outsight) interrupt() error {
	o.command.Process.Signal(syscall.SIGINT)
	select {
	case err := <-o.ended:
		o.ended <- err
		if err != nil {
			return fmt.Errorf("outsight up ended with %w\n%s", err, o.log)
		}
		return nil
	case <-time.After(patience):
		o.command.Process.Kill()
		return fmt.Errorf("outsight up has not ended %v after an interrupt\n%s", patience, o.log)
	}
}

// kill ends it at once and waits for it.
func (o *outsight) kill() {
	o.command.Process.Kill()
	err := <-o.ended
	o.ended <- err
}

// run runs another outsight command against this one and returns its standard output.
func (o *outsight) run(arguments ...string) string {
	o.t.Helper()
	command := exec.Command(outsightBinary, append(arguments, "--socket", o.argument("--socket"))...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		o.t.Fatalf("outsight %s: %v\n%s", strings.Join(arguments, " "), err, stderr.Bytes())
	}
	return string(output)
}

// client uses no connection again that the server, which waits for 20 s, may be about to close.
var client = http.Client{Timeout: time.Minute, Transport: &http.Transport{IdleConnTimeout: 5 * time.Second}}

// sample is one series of an answer.
type sample struct {
	labels map[string]string
	value  float64
}

type samples []sample

// metrics reads /metrics in the text format; histogram series appear as _count and _sum.
func (o *outsight) metrics() (samples, error) {
	response, err := client.Get("http://" + o.address + "/metrics")
	if err != nil {
		select {
		case ended := <-o.ended:
			o.ended <- ended
			return nil, fmt.Errorf("outsight has ended: %w", errors.Join(ended, err))
		default:
			return nil, err
		}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics: %s", response.Status)
	}
	var found samples
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := lines.Text(); line != "" && line[0] != '#' {
			s, err := parseSample(line)
			if err != nil {
				return nil, err
			}
			found = append(found, s)
		}
	}
	return found, lines.Err()
}

func parseSample(line string) (sample, error) {
	s := sample{labels: map[string]string{}}
	name, rest, labelled := strings.Cut(line, "{")
	if !labelled {
		name, rest, _ = strings.Cut(line, " ")
	}
	s.labels["__name__"] = name
	for labelled {
		var key string
		rest = strings.TrimPrefix(rest, ",")
		if after, ok := strings.CutPrefix(rest, "}"); ok {
			rest = after
			break
		}
		key, rest, labelled = strings.Cut(rest, "=")
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return s, fmt.Errorf("line %q: %w", line, err)
		}
		value, _ := strconv.Unquote(quoted)
		s.labels[key], rest = value, rest[len(quoted):]
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return s, fmt.Errorf("line %q has no value", line)
	}
	var err error
	s.value, err = strconv.ParseFloat(fields[0], 64)
	return s, err
}

// find returns the samples of a name that have all the labels.
func (s samples) find(name string, labels map[string]string) samples {
	var found samples
next:
	for _, one := range s {
		if one.labels["__name__"] != name {
			continue
		}
		for key, value := range labels {
			if one.labels[key] != value {
				continue next
			}
		}
		found = append(found, one)
	}
	return found
}

func (s samples) sum() float64 {
	var sum float64
	for _, one := range s {
		sum += one.value
	}
	return sum
}

// query runs an instant PromQL query.
func (o *outsight) query(expression string) samples {
	o.t.Helper()
	response, err := client.PostForm("http://"+o.address+"/api/v1/query", url.Values{"query": {expression}})
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		o.t.Fatalf("query %s: %v, %s: %s", expression, err, answer.Error, body)
	}
	var found samples
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			o.t.Fatalf("query %s: value %v: %v", expression, r.Value, err)
		}
		found = append(found, sample{labels: r.Metric, value: value})
	}
	return found
}

// number is the value of a query whose answer has one series.
func (o *outsight) number(expression string) float64 {
	o.t.Helper()
	found := o.query(expression)
	if len(found) != 1 {
		o.t.Fatalf("query %s: %d series, want 1", expression, len(found))
	}
	return found[0].value
}

// settled waits until a query has an answer whose sum has not changed for three snapshots: everything that
// was under way has been counted.
func (o *outsight) settled(expression string) {
	o.t.Helper()
	last, same := -1.0, 0
	eventually(o.t, func() error {
		time.Sleep(900 * time.Millisecond)
		answer := o.query(expression)
		if len(answer) == 0 {
			return fmt.Errorf("%s has no answer yet", expression)
		}
		now := answer.sum()
		if same++; now != last {
			last, same = now, 0
		}
		if same < 3 {
			return fmt.Errorf("%s is still changing: %v", expression, now)
		}
		return nil
	})
}

// knows waits until a container has a name and a rate in the store.
func (o *outsight) knows(c container) {
	o.t.Helper()
	eventually(o.t, func() error {
		if n := len(o.query(fmt.Sprintf("rate(container_cpu_usage_seconds_total{id=%q,name=%q}[5s])", c.id,
			c.name))); n != 1 {
			return fmt.Errorf("%d series tell of %s, want 1", n, c.name)
		}
		return nil
	})
}

// point is one value of a series in the store.
type point struct {
	time  time.Time
	value float64
}

// points returns the stored values, in order of time, of the one container or edge that a range
// selector names. It may be several series: a name that became known later makes another one.
func (o *outsight) points(selector string) []point {
	o.t.Helper()
	response, err := client.PostForm("http://"+o.address+"/api/v1/query", url.Values{"query": {selector}})
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Values [][2]any }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Error != "" {
		o.t.Fatalf("query %s: %v, %s", selector, err, answer.Error)
	}
	var points []point
	for _, series := range answer.Data.Result {
		for _, v := range series.Values {
			seconds, _ := v[0].(float64)
			text, _ := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				o.t.Fatalf("query %s: value %v: %v", selector, v, err)
			}
			points = append(points, point{time.UnixMilli(int64(math.Round(seconds * 1000))), value})
		}
	}
	slices.SortFunc(points, func(a, b point) int { return a.time.Compare(b.time) })
	return points
}

// argument is the value that a flag was started with. The last one counts.
func (o *outsight) argument(flag string) string {
	for i, argument := range slices.Backward(o.command.Args) {
		if argument == flag {
			return o.command.Args[i+1]
		}
	}
	o.t.Fatalf("outsight was started without %s", flag)
	return ""
}

func containsLine(text, line string) bool {
	return slices.Contains(strings.Split(text, "\n"), line)
}
