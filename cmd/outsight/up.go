package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"outsight/internal/access"
	"outsight/internal/agent"
	"outsight/internal/api"
	"outsight/internal/derive"
	"outsight/internal/framelog"
	"outsight/internal/kubernetes"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

const (
	defaultData      = "/var/lib/outsight"
	defaultRetention = 24 * time.Hour
	// upMemory is near what agent and store need with their tables full.
	upMemory = 512 << 20
	// upSeries bounds the series of up. Of them, at most newEdgeShare per cent are for edges that begin within an hour,
	// which is how long the store keeps series that ended: what is left is for containers and for what stays.
	upSeries       = 100_000
	leastUpSeries  = 10_000
	newEdgeShare   = 50
	seriesOfAnEdge = 35
)

type upOptions struct {
	watchFlags
	secureFlags
	storeFlags
	queryFlags
	frameFlags
	listen, data string
	retention    time.Duration
	bounds       store.QueryBounds
	maxSeries    int
	logger       *slog.Logger
}

func newUp() *cobra.Command {
	var o upOptions
	c := &cobra.Command{
		Use:   "up",
		Short: "Watch this host and serve its page, all in one process",
		Long: `Watch this host, keep what is seen in a directory, and serve a page, a Prometheus-compatible
query API and /metrics. Needs root.`,
		Example: `  sudo outsight up
  sudo outsight up --listen 127.0.0.1:9000 --data /srv/outsight --retention 72h`,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.logger, err = logger(c); err != nil {
				return err
			}
			privateFiles()
			limitMemory(upMemory)
			if o.bounds, err = o.queryFlags.bounds(min(machineMemory("/proc/meminfo", "/sys/fs/cgroup"),
				queryMemoryShare*mostUpQueryMemory)); err != nil {
				return err
			}
			u, err := openUp(o)
			if err != nil {
				return err
			}
			defer u.close(o.logger)
			u.describe(c.OutOrStdout())
			fmt.Fprintln(c.OutOrStdout(), "Ctrl-C ends it.")
			return u.run(c.Context())
		},
	}
	o.watchFlags.add(c)
	o.watchFlags.addFlight(c)
	o.secureFlags.add(c)
	o.storeFlags.add(c)
	o.queryFlags.add(c)
	o.frameFlags.add(c, upFrameBytes, promQLFull)
	c.Flags().StringVar(&o.listen, "listen", api.DefaultAddress, "address of the page and the API")
	c.Flags().StringVar(&o.data, "data", defaultData, "directory that keeps what was seen")
	c.Flags().DurationVar(&o.retention, "retention", defaultRetention, "how long it is kept")
	c.Flags().IntVar(&o.maxSeries, "max-series", upSeries,
		fmt.Sprintf("series in memory, of which a container may take a part; allow %d bytes of memory for each",
			store.SeriesBytes))
	return c
}

// up is agent, store and page in one process.
type up struct {
	options      upOptions
	access       access.Access
	page, socket net.Listener
	store        anyStore
	frames       framelog.Log
	names        *kubernetes.History
	cluster      *kubernetes.Cluster // nil where there is none
	// series are made of frames for PromQL, and computed of many of them; nil for none. report tells of the store's bounds.
	series   *derive.Deriver
	computed followers
	report   *storeReport
	// slots are for what is computed of frames.
	slots     *store.Scheduler
	host      *agent.Host
	answers   agent.Answers
	listeners access.Listeners
}

// openUp builds the parts: what is quick to fail and easy to understand first.
func openUp(o upOptions) (u *up, err error) {
	u = &up{options: o, slots: api.NewSlots()}
	defer func() {
		if err != nil {
			u.close(o.logger)
		}
	}()
	if o.retention <= 0 {
		return u, usagef("--retention is %v, want more than nothing", o.retention)
	}
	if err := o.frameFlags.check(); err != nil {
		return u, err
	}
	if o.maxSeries < leastUpSeries {
		return u, usagef("--max-series is %d, want at least %d", o.maxSeries, leastUpSeries)
	}
	if u.access, err = o.secureFlags.open(o.logger, o.listen); err != nil {
		return u, err
	}
	host, err := o.host(o.logger)
	if err != nil {
		return u, err
	}
	if err := checkPrivileges(); err != nil {
		return u, err
	}
	page, err := listen(o.listen)
	if err != nil {
		return u, err
	}
	u.page = u.access.Secure(u.answers.Count(u.listeners.Limit(page, "page", access.PageLimits)))
	socket, err := agent.Listen(o.socket)
	if err != nil {
		return u, err
	}
	u.socket = u.listeners.Limit(socket, "socket", access.SocketLimits)
	kept := store.Options{Retention: o.retention, MaxSeries: o.maxSeries, QueryBounds: o.bounds, Logger: o.logger}
	if u.store, err = o.storeFlags.openOr(o.data, kept); err != nil {
		return u, err
	}
	cluster, _, err := o.kubernetes.cluster(o.logger)
	if err != nil {
		return u, err
	}
	if cluster != nil {
		// Agent and server in one: it knows the whole cluster, and its own containers by it.
		host.Kubernetes, u.cluster = cluster, cluster
	}
	if u.frames, err = o.frameFlags.open(o.data, o.retention, o.logger); err != nil {
		return u, err
	}
	if u.names, err = openNames(o.data, o.retention, cluster, o.logger); err != nil {
		return u, err
	}
	u.series, u.report = o.frameFlags.deriver(u.store, cluster, o.logger), newStoreReport(u.store)
	u.computed = o.frameFlags.followers(u.store, u.series, u.ofFrames(), o.logger)
	sink := newFrameSink(u.frames, u.series)
	host.Sinks, host.Reporters = map[string]agent.Sink{"frames": sink}, []agent.Reporter{sink, u.report, &u.listeners}
	host.Answers = &u.answers
	if remote, ok := u.store.(*store.Remote); ok {
		host.Senders = []agent.Sender{remoteSender{remote}}
	}
	host.Anomalies = anomaliesIn(o.data)
	if err := openProbes(&host, o.probes); err != nil {
		return u, err
	}
	host.Network.MaxNewEdges = o.maxSeries * newEdgeShare / 100 / seriesOfAnEdge
	host.Network.MaxContainerEdges = containerEdges(o.maxEdges, host.Network.MaxNewEdges)
	u.host, err = agent.Open(host)
	return u, err
}

// containerEdges is how many edges one container may add in an hour: as many as it may have at once, and a quarter of
// what all together may add.
func containerEdges(maxEdges, newEdges int) int {
	return max(min(max(cmp.Or(maxEdges, agent.DefaultMaxEdges)/8, 256), newEdges/4), 1)
}

// handler is everything that is served over HTTP.
func (u *up) handler() http.Handler {
	o := u.ofFrames()
	o.PromQL = api.PromQL(u.options.promQL)
	if u.cluster != nil {
		o.HostLabels = u.cluster.HostLabels
	}
	o.Metrics, o.Flight = otlp.Handler(u.host.Frame, u.computed.newest), u.host.Flight
	o.Anomalies, o.Anomaly, o.AnomalyFiles = u.host.Anomalies, u.host.Anomaly, anomaliesIn(u.options.data).Directory
	o.Ready = func() error {
		if u.host.Frame() == nil {
			return errors.New("no counters have been read yet")
		}
		return roomOf(u.store)()
	}
	o.Sources, o.Version = []string{"agent in this process"}, version()
	return serveFrom(u.store, u.access, headerOff, o)
}

// ofFrames are the options that are about frames.
func (u *up) ofFrames() api.Options {
	return api.Options{Log: u.frames, Names: namesOf(u.names), Busy: u.slots, Logger: u.options.logger}
}

// describe writes where the page is and what is watched.
func (u *up) describe(out io.Writer) {
	u.host.Describe(out)
	url := pageURL(u.page, u.access)
	fmt.Fprintf(out, "  page     %s\n  metrics  %s/metrics\n", url, url)
	if o := u.options; o.storeFlags.isSet() {
		fmt.Fprintf(out, "  store    %s\n", o.storeFlags.location())
	} else {
		fmt.Fprintf(out, "  data     %s (kept for %v)\n", o.data, o.retention)
	}
}

// run works until ctx ends.
func (u *up) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return u.host.Run(ctx) })
	if u.series != nil {
		group.Go(func() error { u.series.Run(ctx); return nil })
	}
	group.Go(func() error { return u.computed.run(ctx) })
	group.Go(func() error { u.report.run(ctx); return nil })
	group.Go(func() error { return u.options.writeParquet(ctx, u.frames, nil, u.options.logger) })
	if !u.options.storeFlags.isSet() {
		group.Go(func() error { keepMappedSmall(ctx, u.dataPath(), u.options.logger); return nil })
	}
	group.Go(func() error {
		return agent.ServeHTTP(ctx, u.page, u.answers.Measure(u.handler()), u.options.logger)
	})
	group.Go(func() error {
		return agent.ServeHTTP(ctx, u.socket, u.answers.Measure(agent.SocketHandler(u.host.Frame, u.host)),
			u.options.logger)
	})
	return group.Wait()
}

// dataPath is the data directory as the kernel calls it.
func (u *up) dataPath() string {
	path, err := filepath.Abs(u.options.data)
	if err != nil {
		return u.options.data
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return path
}

// close ends the parts in reverse order. Those that were never built are left out.
func (u *up) close(logger *slog.Logger) {
	var errs []error
	if u.host != nil {
		errs = append(errs, u.host.Close())
	}
	if u.frames != nil {
		errs = append(errs, u.frames.Close())
	}
	if u.names != nil {
		errs = append(errs, u.names.Close())
	}
	if u.store != nil {
		errs = append(errs, u.store.Close())
	}
	for _, l := range []net.Listener{u.socket, u.page} {
		if l != nil {
			l.Close()
		}
	}
	if err := errors.Join(errs...); err != nil {
		logger.Error("ending was not clean", "error", err)
	}
}
