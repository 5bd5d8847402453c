// Command outsight-agent is the agent alone: what runs as root on every host of a fleet. It
// answers /metrics, and the command line on the same host.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"outsight/internal/access"
	"outsight/internal/agent"
	"outsight/internal/budget"
	"outsight/internal/container"
	"outsight/internal/energy"
	"outsight/internal/export"
	"outsight/internal/hostclock"
	"outsight/internal/kernel"
	"outsight/internal/kubernetes"
	"outsight/internal/probe"
	"outsight/internal/recorder"
	"outsight/internal/report"
)

const example = `
Example:
  sudo outsight-agent --listen 0.0.0.0:8471 --listen-token-file /etc/outsight/scrape
  sudo outsight-agent --server https://outsight.example:4318 --token-file /etc/outsight/token
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run carries out one command line. The answer is the exit code: 0 done, 1 failed, 2 wrong usage.
func run(args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("outsight-agent", flag.ContinueOnError)
	flags.SetOutput(errOut)
	listen := flags.String("listen", agent.DefaultListen, "`address` of /metrics; empty for none")
	socket := flags.String("socket", agent.DefaultSocket, "`path` of the socket for the command line")
	dockerSocket := flags.String("docker-socket", container.DockerSocket(os.Getenv("DOCKER_HOST")),
		"`path` of the socket where Docker answers")
	all := flags.Bool("all", false, "watch systemd services like containers")
	maxGroups := flags.Int("max-groups", agent.DefaultMaxGroups,
		"control groups that are counted each by itself; others are counted together")
	maxEdges := flags.Int("max-edges", agent.DefaultMaxEdges, "edges that are counted")
	flight := flags.Duration("flight", agent.DefaultFlight,
		"how long samples of every 50 ms are kept in memory for \"outsight record --last\"; 0 for none")
	var limit budget.Limit
	flags.Var(&limit, "budget", "`share` of the CPU time of the host, all CPUs together, that everything may take, as "+
		"in 1%: what must be is shed to keep it, and logged")
	var device hostclock.Device
	flags.Var(&device, "clock-device", hostclock.Help)
	timesOnly := flags.Bool("times-only", false,
		"time requests and do not read them: no endpoints, half the cost of a request")
	tls := flags.Bool("tls", false, "read encrypted requests at the TLS libraries of programs (OpenSSL, Go), to name "+
		"endpoints")
	packets := flags.Bool("packets", true, "count packets on their way, and observe a sample of them: what is lost, "+
		"reordered and copied, and the delay in each direction")
	counters := flags.String("counters", string(kernel.CountersAuto),
		"cycles, instructions and cache misses per container: `auto` (where the machine has hardware counters), processes (for each process, too), off, or software (the kernel's events, for tests)")
	htRatio := flags.String("ht-ratio", fmt.Sprint(energy.DefaultHTRatio),
		"power of a core with two busy hardware threads over that with one, or MODEL=`ratio`,... by parts of CPU model names")
	mode := flags.String("kubernetes", kubernetes.Auto,
		"where names of pods are from: auto (the pod's service account, if there is one), in-cluster, off, or the `path` "+
			"of a kubeconfig")
	node := flags.String("node-name", os.Getenv("NODE_NAME"),
		"what Kubernetes calls this host, if it is not the host's `name`")
	// Without the prefix they are what the agent shows to a server.
	listeners := access.Files{Prefix: "listen-"}
	for _, f := range listeners.Flags() {
		flags.StringVar(f.Value, f.Name, "", f.Help)
	}
	var to export.Options
	var files export.Files
	flags.StringVar(&to.Server, "server", "", "`URL` of an \"outsight server\" to send everything to, as in "+
		"http://HOST:4318")
	flags.DurationVar(&to.SendEvery, "send-every", 0, "time between two frames that are sent, for large fleets: one that "+
		"begins a minute is sent in any case; 0 sends one each second")
	backend := flags.String("otlp", "", "`URL` of another backend that takes OTLP over HTTP, as in "+
		"https://HOST:4318/v1/metrics, to send series to each second")
	flags.StringVar(&to.Spool, "spool", "/var/lib/outsight/spool",
		"`directory` that keeps what the server has not taken yet")
	flags.Int64Var(&to.MaxBytes, "spool-bytes", export.DefaultMaxBytes,
		"bytes that it may keep; the oldest go when there are more")
	flags.StringVar(&to.Tenant, "tenant", "", "tenant to send for")
	flags.StringVar(&files.Token, "token-file", "", "`file` with the token to send")
	flags.StringVar(&files.CA, "tls-ca", "", "certificates in PEM that may have signed the server's; empty for the "+
		"system's")
	flags.StringVar(&files.Cert, "tls-cert", "", "certificate in PEM to show to the server")
	flags.StringVar(&files.Key, "tls-key", "", "its key in PEM")
	probes := probe.MonitorOptions{Listen: probe.DefaultListen}
	for _, f := range probes.Flags() {
		flags.StringVar(f.Value, f.Name, *f.Value, f.Help)
	}
	var regions agent.RegionOptions
	for _, f := range regions.Flags() {
		flags.StringVar(f.Value, f.Name, *f.Value, f.Help)
	}
	flags.BoolVar(&regions.Only, "region-only", false, agent.RegionOnlyHelp)
	var level slog.Level
	flags.TextVar(&level, "log", slog.LevelInfo, "what to log: `debug`, info, warn or error")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "Watch the containers of this host. Needs root.\n\nUsage: outsight-agent [flags]")
		flags.PrintDefaults()
		fmt.Fprint(flags.Output(), example)
	}
	for _, a := range args {
		if a == "--help" || a == "-help" || a == "-h" {
			flags.SetOutput(out)
		}
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case min(*maxGroups, *maxEdges) < agent.LeastMax || max(*maxGroups, *maxEdges) > agent.MostMax:
		fmt.Fprintf(errOut, "outsight-agent: --max-groups is %d and --max-edges %d, want %d to %d\nSee: outsight-agent "+
			"--help\n",
			*maxGroups, *maxEdges, agent.LeastMax, agent.MostMax)
		return 2
	case *flight < 0:
		fmt.Fprintf(errOut, "outsight-agent: --flight is %v, want 0 or more\nSee: outsight-agent --help\n", *flight)
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(errOut, "outsight-agent: there is no argument %q\nSee: outsight-agent --help\n", flags.Arg(0))
		return 2
	}
	counting, err := kernel.ParseCounterMode(*counters)
	if err != nil {
		fmt.Fprintf(errOut, "outsight-agent: --counters: %v\nSee: outsight-agent --help\n", err)
		return 2
	}
	ratios, err := energy.ParseRatios(*htRatio)
	if err != nil {
		fmt.Fprintf(errOut, "outsight-agent: --ht-ratio: %v\nSee: outsight-agent --help\n", err)
		return 2
	}
	log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: level}))
	door, err := openDoor(&listeners, *listen, log)
	var usage access.UsageError
	if errors.As(err, &usage) {
		fmt.Fprintf(errOut, "outsight-agent: %v\nSee: outsight-agent --help\n", err)
		return 2
	}
	if err != nil {
		fmt.Fprintf(errOut, "outsight-agent: %v\n", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	cluster, err := thisNode(*mode, *node, log)
	if err != nil {
		fmt.Fprintf(errOut, "outsight-agent: %v\n", err)
		return 1
	}
	clock, err := hostclock.Open(device)
	if err != nil {
		fmt.Fprintf(errOut, "outsight-agent: %v\n", err)
		return 1
	}
	to.Logger = log
	err = serve(ctx, agent.ServeOptions{
		Host: agent.HostOptions{
			Kubernetes: cluster,
			Flight:     *flight, Anomalies: recorder.AnomalyOptions{Detect: report.Anomalies}, All: *all,
			DockerSocket: *dockerSocket, Options: agent.Options{Logger: log, Budget: float64(limit)},
			Kernel: kernel.Options{MaxCgroups: *maxGroups, MaxEdges: *maxEdges, TLS: *tls, Packets: kernel.PacketsIf(*packets),
				WithoutEndpoints: *timesOnly, Counters: counting},
			HTRatios: ratios, Regions: regions, Clock: clock,
		},
		Listen: *listen, Access: door, Socket: *socket, Output: out,
	}, export.Targets(to, files, *backend), probes)
	if err != nil {
		fmt.Fprintf(errOut, "outsight-agent: %v%s\n", err, advice(err))
		return 1
	}
	return 0
}

// openDoor is who may read /metrics, if there is an address for it.
func openDoor(files *access.Files, address string, log *slog.Logger) (access.Access, error) {
	if address == "" {
		return files.Open(log)
	}
	return files.Open(log, address)
}

// thisNode knows the pods of this host; nil where there is no cluster.
func thisNode(mode, node string, log *slog.Logger) (agent.Kubernetes, error) {
	c, err := kubernetes.OpenNode(mode, node, log)
	if c == nil {
		return nil, err // not a nil pointer in an interface
	}
	return c, nil
}

// serve runs the agent, and what sends to servers.
func serve(ctx context.Context, o agent.ServeOptions, targets []export.Target, probes probe.MonitorOptions) error {
	for _, t := range targets {
		if err := access.CheckSecretFile(t.Files.Token); err != nil {
			return fmt.Errorf("reading --token-file: %w", err)
		}
	}
	return export.WhileAll(ctx, targets, func(exporters []*export.Exporter) error {
		for _, e := range exporters {
			if o.Host.AddExporter(e); !e.OTLP() {
				probes.Server = e
			}
		}
		probes.Logger, probes.Clock = o.Host.Logger, o.Host.Clock
		if err := probes.Use(func(m *probe.Monitor) { o.Host.Probes = m }); err != nil {
			return err
		}
		return agent.Serve(ctx, o)
	})
}

// advice says what to do about an error, where that is known.
func advice(err error) string {
	switch {
	case errors.Is(err, agent.ErrPrivilege):
		return `: run it as root, as in "sudo outsight-agent"`
	case errors.Is(err, agent.ErrSocketTaken):
		return ": stop that one first, or choose another path with --socket"
	case errors.Is(err, export.ErrInUse):
		return ": stop that agent first, or choose another directory with --spool"
	case errors.Is(err, export.ErrServer):
		return ": correct --server"
	case errors.Is(err, agent.ErrListen):
		return ": choose another address with --listen"
	}
	return ""
}
