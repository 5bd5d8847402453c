package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outsight/internal/agent"
	"outsight/internal/budget"
	"outsight/internal/container"
	"outsight/internal/energy"
	"outsight/internal/hostclock"
	"outsight/internal/kernel"
	"outsight/internal/kubernetes"
	"outsight/internal/model"
	"outsight/internal/probe"
)

// watchFlags are what every command that watches this host has.
type watchFlags struct {
	// flags say which of them are set; nil is none.
	flags                *pflag.FlagSet
	all                  bool
	socket, dockerSocket string
	// maxGroups and maxEdges bound the kernel's tables; 0 for the defaults.
	maxGroups, maxEdges int
	tls, timesOnly      bool
	packets             bool
	counters, htRatio   string
	kubernetes          kubernetesFlags
	// flight is how long an agent keeps samples; 0 is not at all.
	flight time.Duration
	// budget is what an agent may cost; 0 is no limit.
	budget budget.Limit
	// clock is what the host's clock is compared with.
	clock hostclock.Device
	// probes is the network to other hosts that an agent measures.
	probes probe.MonitorOptions
	// regions say how an agent's counters are read from outside.
	regions agent.RegionOptions
}

// addFlight adds the flag of commands whose agent goes on.
func (f *watchFlags) addFlight(c *cobra.Command) {
	c.Flags().DurationVar(&f.flight, "flight", agent.DefaultFlight,
		`how long samples of every 50 ms are kept in memory for "outsight record --last"; 0 for none`)
	c.Flags().Var(&f.budget, "budget", "share of the CPU time of the host, all CPUs together, that everything may take, "+
		"as in 1%: what must be is shed to keep it, and logged")
	c.Flags().Var(&f.clock, "clock-device", hostclock.Help)
	for _, flag := range f.regions.Flags() {
		c.Flags().StringVar(flag.Value, flag.Name, *flag.Value, flag.Help)
	}
	f.probes.Listen = probe.DefaultListen
	for _, flag := range f.probes.Flags() {
		c.Flags().StringVar(flag.Value, flag.Name, *flag.Value, flag.Help)
	}
}

func (f *watchFlags) add(c *cobra.Command) {
	f.flags = c.Flags()
	f.kubernetes.addNode(c)
	c.Flags().BoolVar(&f.all, "all", false, "watch systemd services like containers")
	c.Flags().StringVar(&f.socket, "socket", agent.DefaultSocket,
		"where an agent answers the command line; commands that ask find also what else runs here, as a demo")
	c.Flags().StringVar(&f.dockerSocket, "docker-socket", container.DockerSocket(os.Getenv("DOCKER_HOST")),
		"where Docker answers")
	c.Flags().IntVar(&f.maxGroups, "max-groups", agent.DefaultMaxGroups,
		"control groups that are counted each by itself; others are counted together")
	c.Flags().IntVar(&f.maxEdges, "max-edges", agent.DefaultMaxEdges, "edges that are counted")
	c.Flags().BoolVar(&f.timesOnly, "times-only", false,
		"time requests and do not read them: no endpoints, half the cost of a request")
	c.Flags().StringVar(&f.counters, "counters", string(kernel.CountersAuto),
		"cycles, instructions and cache misses per container: auto (where the machine has hardware counters), processes "+
			"(for each process, too), off, or software (the kernel's events, for tests)")
	c.Flags().StringVar(&f.htRatio, "ht-ratio", fmt.Sprint(energy.DefaultHTRatio),
		"power of a core with two busy hardware threads over that with one, or MODEL=ratio,... by parts of CPU model names")
	c.Flags().BoolVar(&f.packets, "packets", true, "count packets on their way, and observe a sample of them: what is lost, "+
		"reordered and copied, and the delay in each direction")
	c.Flags().BoolVar(&f.tls, "tls", false, "read encrypted requests at the TLS libraries of programs (OpenSSL, Go), to "+
		"name endpoints")
}

// host is how to open an agent as the flags say.
func (f *watchFlags) host(logger *slog.Logger) (agent.HostOptions, error) {
	for flag, n := range map[string]int{"max-groups": f.maxGroups, "max-edges": f.maxEdges} {
		if n != 0 && (n < agent.LeastMax || n > agent.MostMax) {
			return agent.HostOptions{}, usagef("--%s is %d, want %d to %d", flag, n, agent.LeastMax, agent.MostMax)
		}
	}
	if f.flight < 0 {
		return agent.HostOptions{}, usagef("--flight is %v, want 0 or more", f.flight)
	}
	counters, err := kernel.ParseCounterMode(f.counters)
	if err != nil {
		return agent.HostOptions{}, usagef("--counters: %w", err)
	}
	ratios, err := energy.ParseRatios(cmp.Or(f.htRatio, fmt.Sprint(energy.DefaultHTRatio)))
	if err != nil {
		return agent.HostOptions{}, usagef("--ht-ratio: %w", err)
	}
	o := agent.HostOptions{
		HTRatios: ratios, Regions: f.regions,
		Flight: f.flight, All: f.all, DockerSocket: f.dockerSocket,
		Options: agent.Options{Logger: logger, Budget: float64(f.budget)},
		Kernel: kernel.Options{MaxCgroups: f.maxGroups, MaxEdges: f.maxEdges, TLS: f.tls, Packets: kernel.PacketsIf(f.packets),
			WithoutEndpoints: f.timesOnly, Counters: counters},
	}
	if o.Clock, err = hostclock.Open(f.clock); err != nil {
		return o, err
	}
	// A nil pointer in the interface would be something.
	if cluster, err := f.kubernetes.thisNode(logger); err != nil {
		return o, err
	} else if cluster != nil {
		o.Kubernetes = cluster
	}
	return o, nil
}

// checkPrivileges fails early, before anything was opened for nothing.
func checkPrivileges() error {
	p, err := agent.ReadPrivileges("")
	if err != nil {
		return err
	}
	return p.Check()
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// kubernetesFlags are what every command that knows a cluster has.
type kubernetesFlags struct {
	mode, node string
}

func (f *kubernetesFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.mode, "kubernetes", kubernetes.Auto,
		"where names of pods and services are from: auto (the pod's service account, if there is one), in-cluster, off, or "+
			"the path of a kubeconfig")
}

func (f *kubernetesFlags) addNode(c *cobra.Command) {
	f.add(c)
	c.Flags().StringVar(&f.node, "node-name", os.Getenv("NODE_NAME"),
		"what Kubernetes calls this host, if it is not the host's name")
}

// cluster is the whole cluster; nil where there is none, and the feature says why.
func (f *kubernetesFlags) cluster(log *slog.Logger) (*kubernetes.Cluster, model.Feature, error) {
	return kubernetes.Open(f.mode, kubernetes.Options{Logger: log})
}

// thisNode is what an agent needs: the pods of this host. It is nil where there is no cluster.
func (f *kubernetesFlags) thisNode(log *slog.Logger) (*kubernetes.Cluster, error) {
	return kubernetes.OpenNode(cmp.Or(f.mode, kubernetes.Off), f.node, log)
}
