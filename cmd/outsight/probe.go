package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/agent"
	"outsight/internal/container"
	"outsight/internal/graph"
	"outsight/internal/hostclock"
	"outsight/internal/probe"
	"outsight/internal/stamp"
)

type probeOptions struct {
	probe.Options
	output, keyFile, dockerSocket string
	// device is what this host's clock is compared with.
	device        hostclock.Device
	capacity      bool
	capacityBytes byteSize
	// socket and remote are who is asked for what is measured all the time.
	socket string
	remote remoteFlags
}

func newProbe() *cobra.Command {
	o := probeOptions{capacityBytes: probe.DefaultCapacity, remote: remoteFlags{outputs: []string{"text", "json"}}}
	c := &cobra.Command{
		Use:   "probe [A B]",
		Short: "Measure the network between two containers, or show what agents measure all the time",
		Long: `Without places, show what is measured all the time between hosts that talk, by the agent of this host or,
with --server, by all agents of a server; there, an address shows what concerns the host that has it, or a container
with it.

Measure from one place to another: one-way delay, jitter, loss, reordering and duplicates each way
by STAMP, and the path by traceroute. A place is a container of this host (its name, pod/name, or the beginning of its
ID), "host", or an IP address. The sockets are made inside the containers' own network namespaces; nothing else appears
there. Both ends on one host have one clock, so that one-way delays are exact.

Towards an address of another host a STAMP or TWAMP-Light reflector is looked for ("outsight reflector" is one); where
none answers, ICMP echo and the time to connect by TCP are measured.

Exit code 0 if something came back from B, 1 if nothing did or a container ended meanwhile, 2 for wrong usage. Needs root.`,
		Example: `  sudo outsight probe
  outsight probe --server http://127.0.0.1:8470
  sudo outsight probe shop-web shop-db
  sudo outsight probe shop-web 192.0.2.7 --duration 3s --tcp-port 5432
  sudo outsight probe shop-web shop-db --dscp 46
  sudo outsight probe shop-web shop-db --capacity --output json | jq .capacity_there.bits_per_second`,
		Args: func(_ *cobra.Command, args []string) error {
			if o.remote.server != "" && len(args) > 1 || o.remote.server == "" && len(args) != 0 && len(args) != 2 {
				return usagef("probe wants two places, or none for what is measured all the time, got %d", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.remote.server != "" || len(args) == 0 {
				return o.list(c.Context(), args, c.OutOrStdout(), c.ErrOrStderr())
			}
			log, err := logger(c)
			if err != nil {
				return err
			}
			return o.run(c.Context(), args[0], args[1], log, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	f.DurationVar(&o.Duration, "duration", 10*time.Second, "how long to send")
	f.DurationVar(&o.Interval, "interval", 10*time.Millisecond, "time between two packets, 1ms at least; 100000 packets at most")
	f.Uint16Var(&o.Port, "port", 0, "UDP port of the reflector: 862 on another host, any between containers of this one")
	f.Uint16Var(&o.TCPPort, "tcp-port", 80, "port to which connections are timed where no reflector answers")
	f.Uint8Var(&o.DSCP, "dscp", 0, "class of service (DSCP, 1 to 63) of the packets of STAMP, each way; says whether the network changes it")
	f.BoolVar(&o.capacity, "capacity", false, "measure the capacity each way by a burst of TCP, when the rest is done")
	f.Var(&o.capacityBytes, "capacity-bytes", "the most that a burst may have, in each direction, as in 2MB")
	f.StringVar(&o.keyFile, "key-file", "", "file with the key of a reflector that wants HMAC")
	f.Var(&o.device, "clock-device", hostclock.Help)
	f.StringVar(&o.socket, "socket", agent.DefaultSocket, "where the agent of this host answers")
	o.remote.add(f, "measurements")
	f.StringVar(&o.dockerSocket, "docker-socket", container.DockerSocket(os.Getenv("DOCKER_HOST")), "where Docker answers")
	return c
}

func (o *probeOptions) check() (err error) {
	if err := oneOf("output", o.output, "text", "json"); err != nil {
		return err
	}
	if err := o.remote.check(o.output); err != nil {
		return err
	}
	if o.capacity {
		if o.Options.Capacity = int64(o.capacityBytes); o.Options.Capacity == 0 {
			return usagef("--capacity-bytes is 0, want more than nothing")
		}
	}
	if o.Duration <= 0 || o.Interval <= 0 {
		return usagef("--duration is %v and --interval is %v, want more than nothing", o.Duration, o.Interval)
	}
	if err := o.Options.Check(); err != nil {
		return usagef("%w", err)
	}
	o.Key, err = readKey(o.keyFile)
	return err
}

// readKey is the key in a file, without the end of its line; nil where no file is named.
func readKey(path string) (stamp.Key, error) {
	if path == "" {
		return nil, nil
	}
	key, err := probe.ReadKey(path)
	if err != nil {
		return nil, fmt.Errorf("reading --key-file: %w", err)
	}
	return key, nil
}

func (o *probeOptions) run(ctx context.Context, a, b string, log *slog.Logger, out, errOut io.Writer) error {
	finder, err := probe.NewFinder(container.Options{DockerSocket: o.dockerSocket, Logger: log})
	if err != nil {
		return err
	}
	defer finder.Close()
	if o.Clock, err = hostclock.Open(o.device); err != nil {
		return err
	}
	defer o.Clock.Close()
	var places []*probe.Place
	for _, name := range []string{a, b} {
		place, err := finder.Find(ctx, name)
		if err != nil {
			return withRoot(err)
		}
		defer place.Close()
		places = append(places, place)
	}
	if isTerminal(errOut) {
		o.Progress = func(p probe.Progress) { fmt.Fprintf(errOut, "\r%s\x1b[K", progressLine(p)) }
	}
	stop := o.Clock.Follow()
	r, err := probe.Measure(ctx, places[0], places[1], o.Options)
	unread := stop()
	say(errOut, "\r\x1b[K")
	if err != nil {
		return withRoot(err)
	}
	if unread != nil {
		r.Missing = append(r.Missing, probe.Missing{What: "clock device", Why: unread.Error()})
	}
	if err := o.keep(ctx, r); err != nil {
		fmt.Fprintf(errOut, "outsight: the agent of this host does not keep the capacity: %v\n", err)
	}
	if err := writeProbe(out, r, o.output); err != nil {
		return err
	}
	if !r.Measured() {
		fmt.Fprintf(errOut, "outsight: nothing came back from %s\n", graph.Clean(r.To.Name))
		return errSaid
	}
	return nil
}

// keep has the agent of this host, if there is one, keep the capacities that were measured.
func (o *probeOptions) keep(ctx context.Context, r *probe.Result) error {
	client := agent.NewClient(o.socket)
	defer client.Close()
	for _, c := range r.Capacities() {
		if err := client.KeepCapacity(ctx, c); errors.Is(err, agent.ErrNoAgent) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// withRoot adds what to do where the kernel did not let this user.
func withRoot(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: run it as root, as in \"sudo outsight probe\"", err)
	}
	return err
}

func progressLine(p probe.Progress) string {
	text := fmt.Sprintf("%4.1f s  %s", p.Elapsed.Seconds(), p.Step)
	if p.Sent > 0 {
		text += fmt.Sprintf(": %d sent, %d lost, round trip %s", p.Sent, p.Lost, shortTime(p.RoundTrip.Seconds()))
	}
	if p.There > 0 {
		text += fmt.Sprintf(" (there %s, back %s)", shortTime(p.There.Seconds()), shortTime(p.Back.Seconds()))
	}
	return text
}

// shortTime is a time with three digits.
func shortTime(seconds float64) string {
	switch a := max(seconds, -seconds); {
	case a < 1e-3:
		return fmt.Sprintf("%.1f µs", seconds*1e6)
	case a < 1:
		return fmt.Sprintf("%.2f ms", seconds*1e3)
	}
	return fmt.Sprintf("%.2f s", seconds)
}

func writeProbe(out io.Writer, r *probe.Result, output string) error {
	if output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	var b bytes.Buffer
	name := func(e probe.End) string {
		if e.Name == e.Address.String() {
			return e.Name
		}
		return fmt.Sprintf("%s (%s)", graph.Clean(e.Name), e.Address)
	}
	fmt.Fprintf(&b, "%s → %s · %.1f s\n", name(r.From), name(r.To), r.Seconds)
	writeSession(&b, r.STAMP)
	writeEcho(&b, r)
	writePaths(&b, r)
	for _, c := range []struct {
		what string
		of   *probe.Capacity
	}{{"there", r.There}, {"back", r.Back}} {
		if c.of != nil {
			fmt.Fprintf(&b, "\ncapacity %-5s  %.0f Mbit/s (second half of %d bytes)", c.what, c.of.BitsPerSecond/1e6, c.of.Bytes)
		}
	}
	if r.There != nil || r.Back != nil {
		fmt.Fprintln(&b)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "\nnot measured: %s: %s\n", m.What, graph.Clean(m.Why))
	}
	_, err := out.Write(b.Bytes())
	return err
}

// delayColumns are the columns of a line of delays.
const delayColumns = "\tmin\tp50\tp90\tp99\tmax\tjitter\tspread\t\n"

func delayCells(d *probe.Delays) string {
	if d == nil {
		return "\t–\t–\t–\t–\t–\t–\t–\t\n"
	}
	cells := ""
	for _, v := range []float64{d.Min, d.P50, d.P90, d.P99, d.Max, d.Jitter, d.Spread} {
		cells += "\t" + shortTime(v)
	}
	return cells + "\t\n"
}

func writeSession(out io.Writer, s *probe.Session) {
	if s == nil {
		return
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\tsent\tlost\tdoubled\treordered"+delayColumns)
	for _, line := range []struct {
		name string
		way  *probe.Way
	}{{"there", &s.There}, {"back", &s.Back}} {
		delay := line.way.Delay
		if delay == nil {
			delay = line.way.Above
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d%s", line.name, line.way.Sent, line.way.Lost, line.way.Duplicates, line.way.Reordered,
			delayCells(delay))
	}
	fmt.Fprintf(w, "round trip\t%d\t%d\t\t%s", s.There.Sent, s.Lost(), delayCells(s.RoundTrip))
	w.Flush()
	writeService(out, s.Service)
	switch {
	case s.RoundTrip == nil:
	case s.Clocks == probe.OneClock:
		fmt.Fprintf(out, "One clock: one-way delays are exact; %.0f %% of the times are the kernel's.\n", 100*s.KernelTimes)
	case s.There.Delay != nil && s.Back.Delay != nil:
		fmt.Fprintf(out, "One-way delays ± %s: both clocks are kept: %s.\n", shortTime(s.ClockError), clocksOf(s))
	default:
		fmt.Fprintf(out, "Two clocks, known to %s: one-way delays are those above the least of their direction. Clocks: %s.\n",
			shortTime(s.ClockError), clocksOf(s))
	}
}

// clockSources are the words for who says how far a clock is off.
var clockSources = map[probe.ClockSource]string{probe.ByDevice: "by the PTP device", probe.ByKernel: "by the kernel",
	probe.ByNTP: "by NTP", probe.ByPTP: "by PTP", probe.ByBITS: "by the operator's network", probe.ByGNSS: "by satellite",
	probe.ByUnknown: "by what the reflector does not say"}

func boundText(b probe.ClockBound) string {
	if b.Source == probe.NotKept {
		return "not kept"
	}
	return fmt.Sprintf("± %s %s", shortTime(b.Error), clockSources[b.Source])
}

// clocksOf says how far the two clocks are off.
func clocksOf(s *probe.Session) string {
	return fmt.Sprintf("here %s, there %s", boundText(*s.ClockHere), boundText(*s.ClockThere))
}

// writeService says what became of the class of service.
func writeService(out io.Writer, s *probe.Service) {
	if s == nil {
		return
	}
	if s.There == nil {
		fmt.Fprintf(out, "DSCP %d: no reflector says with which one packets arrived.\n", s.DSCP)
		return
	}
	arrived := func(all []probe.Class) string {
		if len(all) == 1 && all[0].DSCP == s.DSCP {
			return "unchanged"
		}
		var parts []string
		for _, c := range all {
			parts = append(parts, fmt.Sprintf("%d in %d packets", c.DSCP, c.Packets))
		}
		return strings.Join(parts, ", ")
	}
	fmt.Fprintf(out, "DSCP %d arrived: there %s, back %s.\n", s.DSCP, arrived(s.There), arrived(s.Back))
}

func writeEcho(out io.Writer, r *probe.Result) {
	if r.Echo == nil && r.Connect == nil {
		return
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\tsent\tlost"+delayColumns)
	if e := r.Echo; e != nil {
		fmt.Fprintf(w, "ICMP echo\t%d\t%d%s", e.Sent, e.Lost, delayCells(e.RoundTrip))
	}
	if c := r.Connect; c != nil {
		fmt.Fprintf(w, "TCP connect %d\t%d\t%d%s", c.Port, c.Accepted+c.Refused+c.Failed, c.Failed, delayCells(c.RoundTrip))
	}
	w.Flush()
	if c := r.Connect; c != nil && c.Refused > 0 {
		fmt.Fprintf(out, "Port %d refused %d of them, which takes a round trip, too.\n", c.Port, c.Refused)
	}
}

func writePaths(out io.Writer, r *probe.Result) {
	for _, p := range r.Paths {
		end := ""
		if !p.Reached {
			end = ", which does not reach the other place"
		}
		fmt.Fprintf(out, "\npath by %s%s\n", p.By, end)
		for _, h := range p.Hops {
			var addresses, times []string
			for _, a := range h.Addresses {
				addresses = append(addresses, a.String())
			}
			for _, t := range h.RoundTrips {
				times = append(times, shortTime(t))
			}
			if len(addresses) == 0 {
				addresses = []string{"*"}
			}
			fmt.Fprintf(out, "%3d  %-15s  %s\n", h.TTL, strings.Join(addresses, ", "), strings.Join(times, "  "))
		}
	}
}
