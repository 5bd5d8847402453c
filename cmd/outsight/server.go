package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"outsight/internal/access"
	"outsight/internal/agent"
	"outsight/internal/api"
	"outsight/internal/kubernetes"
	"outsight/internal/model"
	"outsight/internal/store"
)

type serverOptions struct {
	secureFlags
	receiveFlags
	storeFlags
	queryFlags
	frameFlags
	controlFlags
	pull         pullFlags
	kubernetes   kubernetesFlags
	listen, data string
	retention    time.Duration
	maxBytes     int64
	maxSeries    int
	labelBytes   int64
	// begin is whether a missing data directory is made.
	begin  bool
	bounds store.QueryBounds
	logger *slog.Logger
}

func newServer() *cobra.Command {
	var o serverOptions
	c := &cobra.Command{
		Use:   "server",
		Short: "Take what agents on other hosts see, keep it, and serve the page over all of it",
		Long: `Take metrics from agents on other hosts ("outsight agent --server"), and from any other sender
of OpenTelemetry's protocol, keep them, here or in another system (--store), and serve the page and the
Prometheus-compatible query API over all of it. What was taken is on the disk, whatever ends the server.
Watches nothing itself and needs no root.

With a directory that "outsight up" has written, for instance one that was copied from another host, it
serves what is in there.`,
		Example: `  outsight server --data ./copied-from-web-1
  sudo outsight server
  sudo outsight server --otlp-http 0.0.0.0:4318 --token-file /etc/outsight/tokens \
    --tls-cert server.pem --tls-key server.key
  outsight server --pull web1:8473,web2:8473 --pull-key-file /etc/outsight/region.keys
  outsight server --store http://metrics:9090 --listen 0.0.0.0:8470 --token-file tokens`,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.logger, err = logger(c); err != nil {
				return err
			}
			if err := o.receiveFlags.check(); err != nil {
				return err
			}
			switch {
			case o.retention <= 0:
				return usagef("--retention is %v, want more than nothing", o.retention)
			case o.maxBytes <= 0 || o.maxSeries <= 0:
				return usagef("--max-bytes is %d and --max-series %d, want more than nothing", o.maxBytes, o.maxSeries)
			case o.labelBytes < 0:
				return usagef("--max-label-bytes is %d, want more than nothing, or 0 for what fits into memory", o.labelBytes)
			case o.labelBytes == 0:
				o.labelBytes = defaultLabelBytes(o.maxSeries, machineMemory("/proc/meminfo", "/sys/fs/cgroup"))
			}
			if err := o.frameFlags.check(); err != nil {
				return err
			}
			if err := o.controlFlags.check(); err != nil {
				return err
			}
			if err := o.pull.check(&o); err != nil {
				return err
			}
			if o.parquet != "" && o.named() {
				return usagef("--parquet writes a directory for each tenant of --tenants; those of --tenant-header are not known")
			}
			o.begin = o.any() && (asked(c) || !c.Flags().Changed("data"))
			privateFiles()
			collectOften()
			if o.bounds, err = o.queryFlags.bounds(limitMemory(serverMemory + o.inFlight +
				int64(o.maxSeries)*store.SeriesBytes)); err != nil {
				return err
			}
			for {
				if err := runServer(c.Context(), o, c.OutOrStdout()); !errors.Is(err, errReopen) {
					return err
				}
			}
		},
	}
	o.secureFlags.add(c)
	o.secureFlags.addTenants(c)
	o.receiveFlags.add(c)
	o.storeFlags.add(c)
	o.frameFlags.add(c, serverFrameBytes, promQLContainers)
	o.queryFlags.add(c)
	o.queryFlags.addTenants(c)
	o.kubernetes.add(c)
	o.controlFlags.add(c)
	o.pull.add(c)
	c.Flags().StringVar(&o.listen, "listen", api.DefaultAddress, "address of the page and the API")
	c.Flags().StringVar(&o.data, "data", defaultData, "directory that keeps what was seen, and what waits to be stored")
	// What was copied here to be looked at must not be deleted because it is old.
	c.Flags().DurationVar(&o.retention, "retention", 10*365*24*time.Hour, "remove what is older")
	c.Flags().Int64Var(&o.maxBytes, "max-bytes", 2<<30, "bytes of stored series; the oldest go when there are more")
	c.Flags().IntVar(&o.maxSeries, "max-series", 500_000,
		fmt.Sprintf("series in memory; allow %d bytes of memory for each", store.SeriesBytes))
	c.Flags().Int64Var(&o.labelBytes, "max-label-bytes", 0,
		"bytes of their labels in memory, each label with 64 more for the index (default: 2 KiB for each of --max-series, "+
			"and at most a fifth of the machine's memory)")
	return c
}

// defaultLabelBytes is what the labels of so many series may take of a machine's memory. Memory is up to two and a half
// times as much.
func defaultLabelBytes(series int, memory int64) int64 {
	return min(int64(series)*labelBytesPerSeries, memory/5)
}

const (
	labelBytesPerSeries = 2 << 10
	// serverMemory is near what a server needs without series and requests, in bytes.
	serverMemory = 384 << 20
	// A query may hold at least leastSamples, and as many as the map of all series needs: one of each, and the buckets of
	// a tenth.
	leastSamples, samplesPerSeries = 5_000_000, 8
	// serverLate is how much later than the newest a sample may come: as long as agents spool while a server is away.
	serverLate = 24 * time.Hour
)

// errReopen ends a server that is to begin again at once: its store must be opened anew.
var errReopen = errors.New("the store is opened again")

// runServer serves until ctx ends. With errReopen it is to be called again.
func runServer(ctx context.Context, o serverOptions, out io.Writer) error {
	// A misspelt name must not become an empty directory.
	if _, err := os.Stat(o.data); err != nil && !(o.storeFlags.isSet() || o.begin && errors.Is(err, fs.ErrNotExist)) {
		return dataError{o.data, fmt.Errorf("looking for the data directory: %w", err)}
	}
	door, err := o.secureFlags.open(o.logger, append(o.addresses(), o.listen)...)
	if err != nil {
		return err
	}
	var listeners access.Listeners
	plain, err := listen(o.listen)
	if err != nil {
		return err
	}
	page := door.Secure(listeners.Limit(plain, "page", access.PageLimits))
	defer page.Close()
	kept, err := o.storeFlags.openOr(o.data, store.Options{
		Retention: o.retention, MaxBytes: o.maxBytes, MaxSeries: o.maxSeries, OutOfOrder: min(serverLate, o.retention),
		Logger:     o.logger,
		MaxSamples: max(leastSamples, samplesPerSeries*o.maxSeries), QueryBounds: o.bounds,
		LabelBytes: o.labelBytes, Tenants: o.tenants(door), Quotas: o.quotas,
	})
	if err != nil {
		return err
	}
	defer kept.Close()
	hadFrames := framesIn(o.data)
	frames, err := o.frameFlags.open(o.data, o.retention, o.logger)
	if err != nil {
		return err
	}
	defer closeFrames(frames, o.logger)
	if !hadFrames && !o.storeFlags.isSet() && !kept.Stats().Oldest.IsZero() {
		o.logger.Warn("this data directory is of an older release: its series can be read by PromQL, and maps begin with " +
			"the first frame that an agent sends")
	}
	location := "data directory " + o.data
	if o.storeFlags.isSet() {
		location = "remote store " + o.storeFlags.location()
	}
	options := api.Options{Log: frames, PromQL: api.PromQL(o.promQL), Sources: []string{location}, Version: version(),
		Logger: o.logger, Busy: api.NewSlots(), Features: func() []model.Feature { return storeFeatures(kept) }}
	group, ctx := errgroup.WithContext(ctx)
	futureIsWrong := make(chan struct{}, 1)
	group.Go(func() error {
		select {
		case <-futureIsWrong:
			return errReopen
		case <-ctx.Done():
			return nil
		}
	})
	var in *receiver
	var cluster *kubernetes.Cluster
	if o.any() {
		var feature model.Feature
		if cluster, feature, err = o.kubernetes.cluster(o.logger); err != nil {
			return err
		}
		if cluster == nil {
			o.logger.Debug("no Kubernetes", "reason", feature.Reason)
		}
	}
	names, err := openNames(o.data, o.retention, cluster, o.logger)
	if err != nil {
		return err
	}
	if names != nil {
		defer names.Close()
	}
	options.Names = namesOf(names)
	if cluster != nil {
		options.HostLabels = cluster.HostLabels
	}
	if o.any() {
		series := o.frameFlags.deriver(kept, cluster, o.logger)
		if in, err = openReceiver(ctx, o.receiveFlags, door, &listeners, o.data, o.maxSeries, o.labelBytes, kept,
			o.frameFlags.ingest(frames, series), cluster, futureIsWrong, o.logger); err != nil {
			return err
		}
		defer in.close()
		if err := in.openControl(ctx, &o.controlFlags, frames); err != nil {
			return err
		}
		if err := in.openPull(ctx, &o.pull, frames); err != nil {
			return err
		}
		if cluster != nil {
			group.Go(func() error { cluster.Run(ctx); return nil })
		}
		if series != nil {
			group.Go(func() error { series.Run(ctx); return nil })
		}
		computed := o.frameFlags.followers(kept, series, options, o.logger)
		group.Go(func() error { return computed.run(ctx) })
		metrics := withFrameMetrics(in.metrics(), frames, series, computed)
		options.Metrics, options.Ready = withTenantQueries(metrics, kept), in.ready
		options.Features = func() []model.Feature {
			features := append(storeFeatures(kept), in.ingest.Features()...)
			if in.pull != nil {
				features = append(features, in.pull.Features()...)
			}
			return features
		}
		options.Refusals, options.Quotas = in.ingest.Refusals, in.ingest.Quotas
		if in.control != nil {
			options.HostsWith = in.control.HostsWith
		}
		options.Bounds = func(ctx context.Context) []model.Drop {
			// What the queue does not report is zero then.
			s, _ := in.ingest.Stats(ctx)
			drops := append(s.Drops(), storeDrops(kept.Stats(), o.storeFlags.isSet())...)
			drops = append(append(drops, frameDrops(frames.Stats())...), series.Drops()...)
			drops = append(drops, listeners.Drops()...)
			if in.control != nil {
				drops = append(drops, in.control.Drops()...)
			}
			if in.pull != nil {
				drops = append(drops, in.pull.Drops()...)
			}
			if cluster != nil {
				drops = append(append(drops, cluster.Drops()...), names.Drops()...)
			}
			return drops
		}
		group.Go(func() error { return in.run(ctx) })
	}
	describeServer(out, o, kept, in, page, door)
	group.Go(func() error { return o.writeParquet(ctx, frames, door.Auth.Tenants(), o.logger) })
	group.Go(func() error { return agent.ServeHTTP(ctx, page, serveFrom(kept, door, o.header, options), o.logger) })
	return group.Wait()
}

func describeServer(out io.Writer, o serverOptions, kept anyStore, in *receiver, page net.Listener, a access.Access) {
	remote := o.storeFlags.isSet()
	location := o.data
	if remote {
		location = "remote store " + o.storeFlags.location()
	}
	fmt.Fprintf(out, "Serving what was kept in %s\n  page     %s\n", location, pageURL(page, a))
	if in != nil {
		for _, line := range in.describe() {
			fmt.Fprintln(out, line)
		}
	}
	switch stats := kept.Stats(); {
	case remote: // what it holds is its own matter
	case stats.Newest.IsZero():
		fmt.Fprintln(out, "  data     none yet")
	default:
		fmt.Fprintf(out, "  data     %s to %s\n", stats.Oldest.Format(time.DateTime), stats.Newest.Format(time.DateTime))
	}
	fmt.Fprintln(out, "Ctrl-C ends it.")
}
