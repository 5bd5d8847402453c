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

	"outsight/bpf"
	"outsight/internal/agent"
	"outsight/internal/container"
	"outsight/internal/kubernetes"
	"outsight/internal/recorder"
	"outsight/internal/report"
)

const example = `
Example:
  sudo outsight-agent --listen 0.0.0.0:8471
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run carries out one command line. The answer is the exit code: 0 done, 1 failed, 2 wrong usage.
func run(args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("outsight-agent", flag.ContinueOnError)
	flags.SetOutput(errOut)
	listen := flags.String("listen", agent.DefaultListen, "`address` of /metrics; empty for none")
	socket := flags.String("socket", agent.DefaultSocket, "`path` of the socket for the command line")
	dockerSocket := flags.String("docker-socket", container.DockerSocket(os.Getenv("DOCKER_HOST")), "`path` of the socket where Docker tells the names of containers")
	all := flags.Bool("all", false, "watch systemd services like containers")
	maxGroups := flags.Int("max-groups", agent.DefaultMaxGroups, "control groups that are counted each by itself; the rest is counted together")
	maxEdges := flags.Int("max-edges", agent.DefaultMaxEdges, "edges that are counted")
	flight := flags.Duration("flight", agent.DefaultFlight, "how long samples of every 50 ms are kept in memory for \"outsight record --last\"; 0 for none")
	timesOnly := flags.Bool("times-only", false, "time requests and do not read them: no endpoints, half the cost of a request")
	tls := flags.Bool("tls", false, "read encrypted requests at the TLS libraries of programs (OpenSSL, Go), to name endpoints")
	mode := flags.String("kubernetes", kubernetes.Auto, "where names of pods are from: auto (the pod's service account, if there is one), in-cluster, off, or the `path` of a kubeconfig")
	node := flags.String("node-name", os.Getenv("NODE_NAME"), "what Kubernetes calls this host, if it is not the host's `name`")
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
		fmt.Fprintf(errOut, "outsight-agent: --max-groups is %d and --max-edges %d, want %d to %d\nSee: outsight-agent --help\n",
			*maxGroups, *maxEdges, agent.LeastMax, agent.MostMax)
		return 2
	case *flight < 0:
		fmt.Fprintf(errOut, "outsight-agent: --flight is %v, want 0 or more\nSee: outsight-agent --help\n", *flight)
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(errOut, "outsight-agent: there is no argument %q\nSee: outsight-agent --help\n", flags.Arg(0))
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: level}))
	cluster, err := thisNode(*mode, *node, log)
	if err != nil {
		fmt.Fprintf(errOut, "outsight-agent: %v\n", err)
		return 1
	}
	err = agent.Serve(ctx, agent.ServeOptions{
		Host: agent.HostOptions{
			Kubernetes: cluster,
			Flight:     *flight, Anomalies: recorder.AnomalyOptions{Detect: report.Anomalies}, All: *all, DockerSocket: *dockerSocket, Options: agent.Options{Logger: log},
			Kernel: bpf.Options{MaxCgroups: *maxGroups, MaxEdges: *maxEdges, TLS: *tls, WithoutEndpoints: *timesOnly},
		},
		Listen: *listen, Socket: *socket, Output: out,
	})
	if err != nil {
		fmt.Fprintf(errOut, "outsight-agent: %v%s\n", err, advice(err))
		return 1
	}
	return 0
}

// thisNode knows the pods of this host; nil where there is no cluster.
func thisNode(mode, node string, log *slog.Logger) (agent.Kubernetes, error) {
	c, err := kubernetes.OpenNode(mode, node, log)
	if c == nil {
		return nil, err // not a nil pointer in an interface
	}
	return c, nil
}

// advice says what to do about an error, where that is known.
func advice(err error) string {
	switch {
	case errors.Is(err, agent.ErrPrivilege):
		return `: run it as root, as in "sudo outsight-agent"`
	case errors.Is(err, agent.ErrSocketTaken):
		return ": stop that one first, or choose another place with --socket"
	case errors.Is(err, agent.ErrListen):
		return ": choose another address with --listen"
	}
	return ""
}
