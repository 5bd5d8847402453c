package probe

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"outsight/internal/access"
	"outsight/internal/control"
	"outsight/internal/frame"
	"outsight/internal/hostclock"
	"outsight/internal/stamp"
)

// DefaultListen is where an agent's reflector answers: a port that needs no privilege, beside that of other reflectors.
const DefaultListen = ":8620"

// Server is a server that says what is to be measured.
type Server interface {
	control.Asker
	// LocalAddress is the address of this host from which it is reached; the zero Addr where it is not.
	LocalAddress() netip.Addr
}

// MonitorOptions of OpenMonitor. Without a server and without peers nothing is measured.
type MonitorOptions struct {
	// Listen is the UDP address of the reflector; empty for no measurements.
	Listen string
	// Peers are reflectors of other hosts, as HOST:PORT with commas between them, that are measured whatever a server says,
	// and whose hosts are answered. KeyFile has the key of all of them.
	Peers, KeyFile string
	// Server says what else is to be measured; nil for none.
	Server Server
	// Clock is this host's; nil for one without a device.
	Clock  *hostclock.Clock
	Logger *slog.Logger
}

// Monitor measures the network to other hosts all the time, as a server and its own peers say. It implements
// agent.Probes.
type Monitor struct {
	*Sessions
	server Server
	log    *slog.Logger
}

// Flags set the fields.
func (o *MonitorOptions) Flags() []access.Flag {
	return []access.Flag{
		{Name: "probe-listen", Value: &o.Listen, Help: "UDP address where other hosts' agents are answered that measure the " +
			"network to this host, where its port cannot be had at another one; empty measures nothing between hosts"},
		{Name: "probe-peer", Value: &o.Peers, Help: "reflectors of other hosts to measure the network to, as HOST:PORT with " +
			"commas between them, beside those that a server names"},
		{Name: "probe-key-file", Value: &o.KeyFile, Help: "file with the key of --probe-peer, 16 bytes or more, the same on " +
			"all of these hosts"},
	}
}

// OpenMonitor opens the reflector's port. Nothing is sent or answered before Run. It is nil where nothing is to be
// measured, and where a server alone asks for it and the port cannot be had, which is logged.
func OpenMonitor(o MonitorOptions) (*Monitor, error) {
	if o.Peers != "" && (o.Listen == "" || o.KeyFile == "") {
		return nil, errors.New("--probe-peer needs --probe-listen and --probe-key-file")
	}
	if o.Listen == "" || o.Server == nil && o.Peers == "" {
		return nil, nil
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	static, err := o.static()
	if err != nil {
		return nil, err
	}
	s, err := OpenSessions(SessionOptions{Listen: o.Listen, Static: static, Clock: o.Clock, Logger: o.Logger})
	if err != nil && o.Peers == "" {
		o.Logger.Warn("the network to other hosts is not measured", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--probe-listen: %w", err)
	}
	return &Monitor{s, o.Server, o.Logger}, nil
}

// Use opens a monitor, as OpenMonitor does, and hands it to use. It does not call use where nothing is to be measured.
func (o MonitorOptions) Use(use func(*Monitor)) error {
	m, err := OpenMonitor(o)
	if m != nil {
		use(m)
	}
	return err
}

// staticInterval is the time between two packets to a peer that was configured.
const staticInterval = time.Second

// static is the state that the peers ask for.
func (o *MonitorOptions) static() (s control.State, err error) {
	if o.Peers == "" {
		return s, nil
	}
	key, err := ReadKey(o.KeyFile)
	if err != nil {
		return s, fmt.Errorf("reading --probe-key-file: %w", err)
	}
	for peer := range strings.SplitSeq(o.Peers, ",") {
		name, port, err := net.SplitHostPort(strings.TrimSpace(peer))
		number, err2 := strconv.ParseUint(port, 10, 16)
		if err = cmp.Or(err, err2); err != nil || number == 0 {
			return s, fmt.Errorf("--probe-peer has %q, want HOST:PORT", peer)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		cancel()
		if err != nil {
			return s, fmt.Errorf("looking for --probe-peer %q: %w", peer, err)
		}
		for i := range addresses {
			addresses[i] = addresses[i].Unmap()
		}
		s.Sessions = append(s.Sessions, control.Session{Peer: name, Reflector: netip.AddrPortFrom(addresses[0], uint16(number)),
			Key: key, IntervalSeconds: staticInterval.Seconds()})
		s.Peers = append(s.Peers, control.Peer{Name: name, Addresses: addresses, Key: key})
	}
	return s, nil
}

// leastKey is how many bytes a key must have.
const leastKey = 16

// ReadKey is the key in a file, without the end of its line. It refuses files that others could have written.
func ReadKey(path string) (stamp.Key, error) {
	if err := access.CheckSecretFile(path); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key := stamp.Key(bytes.TrimRight(text, "\r\n"))
	if len(key) < leastKey {
		return nil, fmt.Errorf("%s has %d bytes, want %d at least", path, len(key), leastKey)
	}
	return key, nil
}

// Run implements agent.Probes. process is as of Sessions.Run.
func (m *Monitor) Run(ctx context.Context, newest func() *frame.Frame, process func(container string) (*os.File, error)) error {
	var following sync.WaitGroup
	defer following.Wait()
	if m.server != nil {
		following.Go(func() { m.follow(ctx, newest, process != nil) })
	}
	return m.Sessions.Run(ctx, process)
}

// follow asks the server, from the first frame on: that says which host this is.
func (m *Monitor) follow(ctx context.Context, newest func() *frame.Frame, containers bool) {
	first := newest()
	for ; first == nil; first = newest() {
		if !sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
	control.Follow(ctx, control.ClientOptions{Server: m.server, Apply: m.Apply, Logger: m.log,
		Question: func() control.Question {
			return control.Question{Host: first.Host, Epoch: first.Epoch, Addresses: m.Addresses(m.server.LocalAddress()),
				Port: m.Port(), Containers: containers}
		}})
}
