package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"outsight/internal/frame"
	"outsight/test/kernels/report"
)

// The hosts of a test of two, with a bridge for containers each, whose addresses both hosts have:
//
//	client's guest                                                    server's guest
//	web 172.17.0.2 ┐                                                ┌ 172.17.0.2 db
//	               ├ host 10.1.0.5 ── router 192.0.2.1 ── 192.0.2.2 ┤
//	job 172.17.0.3 ┘                                                └ 172.17.0.3 cache
//
// The server publishes a port for each of its containers. web dials the published port of db, and is masqueraded by its
// host. job dials an address that the router alone knows, and the router, which is watched by nobody, translates both
// ends of the connection.
const (
	serverHost  = "192.0.2.2"
	hiddenHost  = "203.0.113.5"
	agentSocket = "/run/outsight.sock"
)

// startLimit is for whatever an agent is waited for: two emulated machines verify and attach all programs on CPUs that
// they share, and whoever asks meanwhile waits, too.
const startLimit = 6 * time.Minute

// container is a group that looks like a container, in a network namespace of its own.
type container struct {
	group
	namespace string
}

// beHost is one of two hosts. It answers with three frames of its agent.
func beHost(side string) ([][]byte, error) {
	if _, err := loadModules("/network"); err != nil {
		return nil, err
	}
	if side == report.ServerSide {
		return beServer()
	}
	return beClient()
}

// commands runs commands, one a line.
func commands(text string) error {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if output, err := exec.Command("/"+words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.TrimSpace(line), err, output)
		}
	}
	return nil
}

// bridge makes a bridge as Docker does, and masquerades what leaves it.
func bridge() error {
	return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0), commands(`
		ip link add docker0 type bridge
		ip address add 172.17.0.1/16 dev docker0
		ip link set docker0 up
		iptables -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE`))
}

func newContainer(digit, namespace, address string) (container, error) {
	g, err := newGroup(digit)
	if err != nil {
		return container{}, err
	}
	return container{g, namespace}, commands(strings.NewReplacer("NAME", namespace, "ADDRESS", address).Replace(`
		ip netns add NAME
		ip link add v-NAME type veth peer name eth0 netns NAME
		ip link set v-NAME master docker0 up
		ip -n NAME address add ADDRESS/16 dev eth0
		ip -n NAME link set lo up
		ip -n NAME link set eth0 up
		ip -n NAME route add default via 172.17.0.1`))
}

// inside are the arguments that run this program in the container's namespace.
func (c container) inside(arguments ...string) []string {
	return append([]string{"netns", "exec", c.namespace, "/init"}, arguments...)
}

func beServer() ([][]byte, error) {
	if err := commands(`
		ip link set eth0 up
		ip address add 192.0.2.2/24 dev eth0
		ip route add 10.1.0.0/24 via 192.0.2.1`); err != nil {
		return nil, err
	}
	if err := bridge(); err != nil {
		return nil, err
	}
	var stops []func() error
	for _, c := range []struct{ digit, name, address, port string }{{"c", "db", "172.17.0.2", "5432"},
		{"d", "cache", "172.17.0.3", "6379"}} {
		made, err := newContainer(c.digit, c.name, c.address)
		if err != nil {
			return nil, err
		}
		if err := commands(fmt.Sprintf("iptables -t nat -A PREROUTING -i eth0 -p tcp --dport %s -j DNAT --to %s:%s", c.port,
			c.address, c.port)); err != nil {
			return nil, err
		}
		stop, err := made.startAs("/ip", made.inside("serve", c.address+":"+c.port)...)
		if err != nil {
			return nil, err
		}
		stops = append(stops, stop)
	}
	frames, err := watched(func() error {
		fmt.Println(report.Serving)
		return nil
	}, func(f *frame.Frame) error { return expectRows(f, frame.Translations, 2) })
	for _, stop := range stops {
		err = errors.Join(err, stop())
	}
	return frames, err
}

func beClient() ([][]byte, error) {
	if err := commands(`
		ip netns add router
		ip link set eth0 netns router
		ip link add up0 type veth peer name down0 netns router
		ip address add 10.1.0.5/24 dev up0
		ip link set up0 up
		ip route add default via 10.1.0.1
		ip -n router address add 10.1.0.1/24 dev down0
		ip -n router link set down0 up
		ip -n router address add 192.0.2.1/24 dev eth0
		ip -n router link set eth0 up
		ip -n router link set lo up
		ip netns exec router /iptables -t nat -A PREROUTING -d 203.0.113.5 -p tcp -j DNAT --to 192.0.2.2
		ip netns exec router /iptables -t nat -A POSTROUTING -o eth0 -p tcp --dport 6379 -j MASQUERADE
		ip netns exec router /init forward`); err != nil {
		return nil, err
	}
	if err := bridge(); err != nil {
		return nil, err
	}
	web, err := newContainer("a", "web", "172.17.0.2")
	if err != nil {
		return nil, err
	}
	job, err := newContainer("b", "job", "172.17.0.3")
	if err != nil {
		return nil, err
	}
	ask := func(c container, address string) error {
		return c.runAs("/ip", c.inside("ask", address, strconv.Itoa(report.Connections), strconv.Itoa(report.Requests))...)
	}
	return watched(func() error {
		return errors.Join(ask(web, serverHost+":5432"), ask(job, hiddenHost+":6379"))
	}, func(*frame.Frame) error { return nil })
}

// watched runs an agent, and does something once it has made a frame. It answers with that frame, the first one in which
// both edges have all that is to be counted, and the first such one that is as it should be.
func watched(do func() error, as func(f *frame.Frame) error) (frames [][]byte, err error) {
	agent := exec.Command("/outsight-agent", "--listen", agentAddress, "--socket", agentSocket, "--log", "error")
	agent.Stdout, agent.Stderr = os.Stdout, os.Stderr
	if err := agent.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		agent.Wait()
		close(ended)
	}()
	defer func() {
		agent.Process.Signal(syscall.SIGTERM)
		<-ended
	}()
	var data []byte
	fetch := func() (f *frame.Frame, err error) {
		if data, err = fetchFrame(); err != nil {
			return nil, err
		}
		return frame.Decode(data, nil)
	}
	if err := eventually(ended, func() error {
		_, err := fetch()
		return err
	}); err != nil {
		return nil, err
	}
	frames = append(frames, data)
	if err := do(); err != nil {
		return nil, err
	}
	// The server waits for the client's agent to start.
	err = within(startLimit+2*time.Minute, ended, func() error {
		f, err := fetch()
		if err != nil {
			return err
		}
		if err := expectClosed(f); err != nil {
			return err
		}
		if len(frames) == 1 {
			frames = append(frames, data)
		}
		return as(f)
	})
	return append(frames, data), err
}

// expectClosed holds that all connections of both clients were opened and closed.
func expectClosed(f *frame.Frame) error {
	t := &f.Tables[frame.Edges]
	closed := uint64(0)
	for row := range t.IDs {
		if service := f.Text(frame.Edges, frame.EdgeService, row); strings.HasSuffix(service, ":5432") ||
			strings.HasSuffix(service, ":6379") {
			n, _ := t.Columns[frame.Column(frame.Edges, "connections_closed")].At(row)
			closed += n
		}
	}
	if closed != 2*report.Connections {
		return fmt.Errorf("%d connections are closed", closed)
	}
	return nil
}

func expectRows(f *frame.Frame, t frame.TableID, count int) error {
	if n := len(f.Tables[t].IDs); n < count {
		return fmt.Errorf("%d rows of %s", n, frame.Schema[t].Name)
	}
	return nil
}

var socketClient = http.Client{Transport: &http.Transport{
	DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", agentSocket)
	}}}

func fetchFrame() ([]byte, error) {
	response, err := socketClient.Get("http://agent/frame")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("/frame: %s", response.Status)
	}
	return data, err
}
