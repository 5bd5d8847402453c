package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// starts of containers that send at once, each watched by Outsight and by two captures.
	starts = 10
	// datagrams of one start, one each millisecond.
	startDatagrams = 2000
	sinkPort       = 9000
)

// measureNetprobe takes what is seen of a container that sends from its first instant: by Outsight, by a capture in the
// container's network namespace and by one of its interface on the host, both begun when Docker says that the container
// has started, as a system that sets up a monitor for each container does; and how soon the first delay is told.
func measureNetprobe(ctx context.Context, o options) ([]row, error) {
	defer removeContainers()
	if err := startContainers(ctx, 0); err != nil { // the image alone
		return nil, err
	}
	a, err := startAgent(ctx, o, "outsight agent --packets")
	if err != nil {
		return nil, err
	}
	defer a.stop()
	sink, err := startWorker(ctx, "sink", sinkWork)
	if err != nil {
		return nil, err
	}
	address, err := output(ctx, "docker", "inspect", "-f", "{{.NetworkSettings.IPAddress}}", sink)
	if err != nil {
		return nil, err
	}
	captures, err := watchStarts(ctx)
	if err != nil {
		return nil, err
	}
	defer captures.stop()
	var ours, inside, outside, delays []float64
	for i := range starts {
		name := workerName(fmt.Sprintf("source-%d", i))
		_, err := startWorker(ctx, fmt.Sprintf("source-%d", i), sourceWork, strings.TrimSpace(string(address)))
		if err != nil {
			return nil, err
		}
		told, err := a.firstDelay(ctx, name)
		if err != nil {
			return nil, err
		}
		sent, first, err := report(ctx, name)
		if err != nil {
			return nil, err
		}
		seen, err := a.settledPackets(ctx, name)
		if err != nil {
			return nil, err
		}
		in, out, err := captures.captured(ctx, name)
		if err != nil {
			return nil, err
		}
		progress("start %d: %.0f sent, %.0f counted; %.0f in the container's capture, %.0f in its interface's; "+
			"first delay after %.2f s", i+1, sent, seen, in, out, told.Sub(first).Seconds())
		ours, inside, outside, delays = append(ours, sent-seen), append(inside, sent-in), append(outside, sent-out),
			append(delays, told.Sub(first).Seconds())
	}
	missed := func(of string, values []float64, budget float64) row {
		zero := 0
		for _, v := range values {
			if v == 0 {
				zero++
			}
		}
		return row{what: "packets not seen: " + of, value: median(values), unit: "packets", budget: budget,
			low: quartile(values, 0), high: quartile(values, 4),
			detail: fmt.Sprintf("median of %d starts of a container that sends %d at 1,000/s from its first instant; "+
				"%.0f to %.0f; none missed in %d of them",
				len(values), startDatagrams, quartile(values, 0), quartile(values, 4), zero)}
	}
	rows := []row{missed("Outsight", ours, 0), missed("tcpdump in the container", inside, 0),
		missed("tcpdump on its interface", outside, 0),
		{what: "from a container's first packet to its first delay on /metrics", value: median(delays), unit: "s",
			budget: 1.5, low: quartile(delays, 0), high: quartile(delays, 4),
			detail: fmt.Sprintf("median of %d starts, at most %.2f s", len(delays), quartile(delays, 4))}}
	return rows, o.document("netprobe.md", "netprobe", rowsTable(rows))
}

const (
	sinkWork, sourceWork = "sink", "source"
	// sinkVariable is where a source sends to.
	sinkVariable = "OUTSIGHT_BENCH_SINK"
)

func workerName(name string) string { return fmt.Sprintf("outsight-bench-%d-%s", os.Getpid(), name) }

// startWorker starts a container that does one of this program's works, and returns its name. The container sees the
// host's files, because this program needs the host's libraries.
func startWorker(ctx context.Context, name, work string, to ...string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	name = workerName(name)
	arguments := []string{"run", "-d", "--label", benchLabel, "--name", name, "-v", "/:/host:ro",
		"-e", workVariable + "=" + work}
	if len(to) > 0 {
		arguments = append(arguments, "-e", sinkVariable+"="+to[0])
	}
	_, err = output(ctx, "docker", append(arguments, benchImage, "/busybox", "chroot", "/host", exe)...)
	return name, err
}

// source sends numbered datagrams, one each millisecond, says how many and when the first was, and waits: the container
// stays, as do the captures of it.
func source() error {
	conn, err := net.Dial("udp", net.JoinHostPort(os.Getenv(sinkVariable), strconv.Itoa(sinkPort)))
	if err != nil {
		return err
	}
	begun := time.Now()
	payload := make([]byte, 64)
	for i := range startDatagrams {
		binary.BigEndian.PutUint64(payload, uint64(i))
		if _, err := conn.Write(payload); err != nil {
			return err
		}
		time.Sleep(time.Until(begun.Add(time.Duration(i+1) * time.Millisecond)))
	}
	fmt.Println(startDatagrams, begun.UnixNano())
	time.Sleep(time.Hour)
	return nil
}

func sink() error {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: sinkPort})
	if err != nil {
		return err
	}
	buffer := make([]byte, 2048)
	for {
		if _, _, err := conn.ReadFrom(buffer); err != nil {
			return err
		}
	}
}

// report waits for what a source says: how many datagrams it sent, and when the first one.
func report(ctx context.Context, name string) (sent float64, first time.Time, err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		text, err := output(ctx, "docker", "logs", name)
		if err != nil {
			return 0, time.Time{}, err
		}
		var ns int64
		if _, err := fmt.Sscan(string(text), &sent, &ns); err == nil {
			return sent, time.Unix(0, ns), nil
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return 0, time.Time{}, err
		}
	}
	return 0, time.Time{}, fmt.Errorf("%s does not say what it has sent", name)
}

// metric sums the series of a metric that a container counted as the client, or its servers.
func (a *agent) metric(name, client, side string) (float64, error) {
	response, err := http.Get("http://" + a.address + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	sum, whose, counted := 0.0, fmt.Sprintf(`client=%q`, client), fmt.Sprintf(`side=%q`, side)
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, name+"{") || !strings.Contains(line, whose) || !strings.Contains(line, counted) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("the line %q of /metrics: %w", line, err)
		}
		sum += value
	}
	return sum, lines.Err()
}

// firstDelay is when /metrics tells a delay of a source's datagrams for the first time.
func (a *agent) firstDelay(ctx context.Context, source string) (time.Time, error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		n, err := a.metric("outsight_edge_network_delay_seconds_count", source, "server")
		if err != nil {
			return time.Time{}, err
		}
		if n > 0 {
			return time.Now(), nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return time.Time{}, err
		}
	}
	return time.Time{}, fmt.Errorf("no delay of %s in a minute", source)
}

// settledPackets is what the client's end has counted once it has not changed for two seconds.
func (a *agent) settledPackets(ctx context.Context, source string) (float64, error) {
	var last float64
	for same := 0; same < 10; {
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return 0, err
		}
		n, err := a.metric("outsight_edge_network_request_packets_total", source, "client")
		if err != nil {
			return 0, err
		}
		if same++; n != last {
			last, same = n, 0
		}
	}
	return last, nil
}

// captures are tcpdump's, of each container that is expected, begun at Docker's event of its start.
type captures struct {
	events *exec.Cmd
	begun  chan started
	of     map[string]started
}

type started struct {
	name            string
	inside, outside *process
	err             error
}

func watchStarts(ctx context.Context) (*captures, error) {
	c := &captures{begun: make(chan started, starts), of: map[string]started{}}
	c.events = exec.CommandContext(ctx, "docker", "events", "--filter", "event=start", "--format",
		"{{.Actor.Attributes.name}}")
	c.events.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.events.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.events.Start(); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if name := lines.Text(); strings.HasPrefix(name, workerName("source")) {
				c.begun <- capture(ctx, name)
			}
		}
	}()
	return c, nil
}

// capture begins both captures of a container.
func capture(ctx context.Context, name string) started {
	s := started{name: name}
	text, err := output(ctx, "docker", "inspect", "-f", "{{.State.Pid}}", name)
	if err != nil {
		s.err = err
		return s
	}
	pid := strings.TrimSpace(string(text))
	filter := []string{"-n", "--immediate-mode", "-w", os.DevNull, "udp", "dst", "port", strconv.Itoa(sinkPort)}
	inside := append([]string{"-t", pid, "-n", "tcpdump", "-i", "eth0"}, filter...)
	if s.inside, s.err = startProcess("nsenter", inside...); s.err != nil {
		return s
	}
	link, err := output(ctx, "nsenter", "-t", pid, "-n", "ip", "-o", "link", "show", "eth0")
	if err != nil {
		s.err = err
		return s
	}
	peer, err := interfaceOf(link)
	if err != nil {
		s.err = err
		return s
	}
	s.outside, s.err = startProcess("tcpdump", append([]string{"-i", peer}, filter...)...)
	return s
}

var otherEnd = regexp.MustCompile(`@if(\d+)`)

// interfaceOf is the end on the host of a link that ip has told of.
func interfaceOf(link []byte) (string, error) {
	found := otherEnd.FindSubmatch(link)
	if found == nil {
		return "", fmt.Errorf("no other end in %q", link)
	}
	index, _ := strconv.Atoi(string(found[1]))
	peer, err := net.InterfaceByIndex(index)
	if err != nil {
		return "", err
	}
	return peer.Name, nil
}

var capturedLine = regexp.MustCompile(`(\d+) packets captured`)

// captured ends a container's captures and tells how many packets each has.
func (c *captures) captured(ctx context.Context, name string) (inside, outside float64, err error) {
	for c.of[name].name == "" {
		select {
		case s := <-c.begun:
			c.of[s.name] = s
		case <-time.After(30 * time.Second):
			return 0, 0, fmt.Errorf("no start of %s was told by Docker", name)
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
	s := c.of[name]
	if s.err != nil {
		return 0, 0, s.err
	}
	var counts [2]float64
	for i, p := range []*process{s.inside, s.outside} {
		p.stop()
		found := capturedLine.FindSubmatch(p.output.Bytes())
		if found == nil {
			return 0, 0, fmt.Errorf("tcpdump says %s", bytes.TrimSpace(p.output.Bytes()))
		}
		counts[i], _ = strconv.ParseFloat(string(found[1]), 64)
	}
	return counts[0], counts[1], nil
}

func (c *captures) stop() {
	c.events.Process.Kill()
	c.events.Wait()
}
