package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"outsight/internal/api"
	"outsight/internal/derive"
	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/framelog/clickhouse"
	"outsight/internal/framelog/parquet"
	"outsight/internal/framelog/s3"
	"outsight/internal/graph"
	"outsight/internal/ingest"
	"outsight/internal/kubernetes"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// frameFlags say how frames are kept, and which series for PromQL are made of them.
type frameFlags struct {
	bytes        int64
	fine, middle time.Duration
	promQL       string
	every        time.Duration
	// bucket is the URL of an S3-compatible bucket for older frames; empty for none.
	bucket, region string
	// where is the URL of a ClickHouse that keeps frames; empty for the data directory.
	where string
	// parquet is the directory of Parquet files of the hours that are over; empty for none.
	parquet string
}

// What is made of frames for PromQL.
const (
	promQLFull       = "full"
	promQLContainers = "containers"
	promQLOff        = "off"
)

// Defaults of --frame-bytes.
const (
	upFrameBytes     = 2 << 30
	serverFrameBytes = 10 << 30
)

// defaultFrames are the flags of up when none is given.
var defaultFrames = frameFlags{bytes: upFrameBytes, fine: time.Hour, middle: 24 * time.Hour, promQL: promQLFull,
	every: 15 * time.Second}

func (f *frameFlags) add(c *cobra.Command, bytes int64, promQL string) {
	flags := c.Flags()
	flags.Int64Var(&f.bytes, "frame-bytes", bytes, "bytes of frames, which maps are made of; the oldest go when there are more")
	flags.DurationVar(&f.fine, "fine", defaultFrames.fine, "how long every frame is kept")
	flags.DurationVar(&f.middle, "middle", defaultFrames.middle,
		"how long one frame for every 10 s is kept; after that it is one a minute. Counts stay exact")
	flags.StringVar(&f.where, "frames", "", "ClickHouse that keeps frames, in place of the data directory, as in "+
		"clickhouse://user:password@host:8123/outsight, or clickhouses:// for TLS; its password may be in CLICKHOUSE_PASSWORD")
	flags.StringVar(&f.bucket, "frame-bucket", "", "S3-compatible bucket for frames that are older than --middle, as in "+
		"https://s3.example.com/bucket/prefix; its keys are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	flags.StringVar(&f.region, "frame-bucket-region", "", "its region (default: it is asked)")
	flags.StringVar(&f.parquet, "parquet", "", "directory to which the frames of each hour that is over are written as "+
		"Parquet files, one a minute, for DuckDB and others; nothing in it is removed")
	flags.StringVar(&f.promQL, "promql", promQL, "which series for PromQL are made of frames: full, containers (and hosts, "+
		"but no edges) or off; an edge has about 30 series, each with up to 6 KB of memory")
	flags.DurationVar(&f.every, "promql-every", defaultFrames.every, "time between two samples of these series")
}

func (f *frameFlags) check() error {
	switch {
	case f.bytes < leastFrameBytes:
		return usagef("--frame-bytes is %d, want at least %d", f.bytes, leastFrameBytes)
	case f.fine <= 0 || f.middle < f.fine:
		return usagef("--fine is %v and --middle %v, want more than nothing, and --middle not less", f.fine, f.middle)
	case f.every < time.Second:
		return usagef("--promql-every is %v, want at least 1s", f.every)
	}
	if f.parquet != "" && f.where != "" {
		return usagef("--parquet is of frames in the data directory; those of --frames are in SQL already")
	}
	return oneOf("promql", f.promQL, promQLFull, promQLContainers, promQLOff)
}

const (
	leastFrameBytes = 16 << 20
	framesDirectory = "frames"
)

// open opens the log of frames in a data directory.
func (f *frameFlags) open(data string, retention time.Duration, log *slog.Logger) (framelog.Log, error) {
	if f.where != "" {
		return f.openClickHouse(retention, log)
	}
	o := framelog.Options{MaxBytes: f.bytes, MaxAge: retention, Fine: f.fine, Middle: f.middle, Logger: log}
	if f.bucket != "" {
		bucket, err := f.openBucket()
		if err != nil {
			return nil, err
		}
		o.Bucket = bucket
	}
	opened, err := framelog.Open(filepath.Join(data, framesDirectory), o)
	if err != nil {
		return nil, dataError{data, err}
	}
	return opened, nil
}

// clickHousePassword is the environment variable with the password, which a command line would show to all.
const clickHousePassword = "CLICKHOUSE_PASSWORD"

func (f *frameFlags) openClickHouse(retention time.Duration, log *slog.Logger) (framelog.Log, error) {
	if f.bucket != "" {
		return nil, usagef("--frame-bucket is for frames in the data directory, not for --frames")
	}
	opened, err := clickhouse.Open(f.where, clickhouse.Options{Fine: f.fine, Middle: f.middle, Keep: retention,
		Password: os.Getenv(clickHousePassword), Log: log})
	if err != nil {
		return nil, fmt.Errorf("opening --frames: %w", err)
	}
	return opened, nil
}

func (f *frameFlags) openBucket() (framelog.Bucket, error) {
	u, err := url.Parse(f.bucket)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, usagef("--frame-bucket is no URL as in https://s3.example.com/bucket/prefix, without user and password")
	}
	name, prefix, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if prefix != "" {
		prefix += "/"
	}
	bucket, err := s3.New(s3.Options{Endpoint: u.Host, Plain: u.Scheme == "http", Bucket: name, Prefix: prefix,
		Region: f.region})
	if err != nil {
		return nil, usagef("--frame-bucket: %v", err)
	}
	return bucket, nil
}

// namesFile has what Kubernetes called addresses, and when.
const namesFile = "names"

// openNames opens the history of what the cluster calls addresses, which the cluster goes on to write; nil where there
// neither is a cluster nor was one.
func openNames(data string, retention time.Duration, cluster *kubernetes.Cluster, log *slog.Logger) (*kubernetes.History,
	error) {
	path := filepath.Join(data, namesFile)
	if _, err := os.Stat(path); err != nil && cluster == nil {
		return nil, nil
	}
	names, err := kubernetes.OpenHistory(path, kubernetes.HistoryOptions{Keep: retention, Logger: log})
	if err != nil {
		return nil, dataError{data, err}
	}
	if cluster != nil {
		cluster.Remember(names)
	}
	return names, nil
}

// namesOf is the history for graphs; a nil pointer would be no nil interface.
func namesOf(names *kubernetes.History) graph.Names {
	if names == nil {
		return nil
	}
	return names
}

// deriver makes series of frames; nil where none are wanted.
func (f *frameFlags) deriver(kept anyStore, cluster *kubernetes.Cluster, log *slog.Logger) *derive.Deriver {
	if f.promQL == promQLOff {
		return nil
	}
	o := derive.Options{Every: f.every, Logger: log, Begin: func(tenant string) derive.Series {
		return derive.SeriesOf(tenant, f.promQL == promQLFull)
	}}
	if cluster != nil {
		o.Name = cluster.Name
	}
	return derive.New(kept, o)
}

// followers compute what runs out, and what both ends of edges tell together, and store it; none where there are no such
// series. options are those of the API, whose slots they share.
func (f *frameFlags) followers(kept anyStore, series *derive.Deriver, options api.Options, log *slog.Logger) (all followers) {
	if series == nil {
		return nil
	}
	follow := func(name string, every time.Duration, compute derive.Compute) {
		all = append(all, derive.NewFollower(compute, kept, derive.FollowOptions{Name: name, Every: every,
			Tenants: series.Tenants, Logger: log}))
	}
	follow("what runs out", 0, api.RunOutSeries(options))
	if f.promQL == promQLFull {
		follow("both ends of edges", f.every, api.EndsSeries(options, f.every))
	}
	return all
}

// followers are what is computed of many frames.
type followers []*derive.Follower

// run computes until ctx ends.
func (all followers) run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, f := range all {
		running.Go(func() { f.Run(ctx) })
	}
	running.Wait()
	return nil
}

// newest are the series as they were computed last.
func (all followers) newest() (series []model.Series) {
	for _, f := range all {
		series = append(series, f.Newest()...)
	}
	return series
}

// writeParquet writes the hours of a log that are over as Parquet files until ctx ends, those of each tenant to a
// directory of its own.
func (f *frameFlags) writeParquet(ctx context.Context, frames framelog.Log, tenants []string, log *slog.Logger) error {
	if f.parquet == "" {
		return nil
	}
	if len(tenants) == 0 {
		return parquet.Follow(ctx, frames, f.parquet, parquet.FollowOptions{Logger: log})
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, tenant := range tenants {
		group.Go(func() error {
			return parquet.Follow(ctx, frames, filepath.Join(f.parquet, url.PathEscape(tenant)),
				parquet.FollowOptions{Tenant: tenant, Logger: log})
		})
	}
	return group.Wait()
}

// frameSink keeps the frames of the agent in this process in a log, and makes series of them.
type frameSink struct {
	log    framelog.Log
	series *derive.Deriver
	// key is the key frame that was stored last; nil where one is missing, and wantsKey then.
	key      *frame.Frame
	wantsKey atomic.Bool
	drops    atomic.Pointer[[]model.Drop]
}

func newFrameSink(log framelog.Log, series *derive.Deriver) *frameSink {
	s := &frameSink{log: log, series: series}
	s.update()
	return s
}

// Consume implements agent.Sink.
func (s *frameSink) Consume(ctx context.Context, f *frame.Frame) error {
	defer s.update()
	key := s.key
	if f.IsKey() {
		s.key, key = nil, f
	} else if !f.IsOf(key) {
		s.wantsKey.Store(true)
		return fmt.Errorf("frame %d: %w", f.Number, frame.ErrNoKey)
	}
	if err := s.log.Append(ctx, []framelog.Encoded{{Header: f.Header, Data: frame.Encode(nil, f, key)}}); err != nil {
		if f.IsKey() {
			s.wantsKey.Store(true)
		}
		return err
	}
	s.key = key
	s.series.Put("", f)
	return nil
}

// WantsKey implements agent.KeyWanter.
func (s *frameSink) WantsKey() bool { return s.wantsKey.Swap(false) }

// Features implements agent.Reporter.
func (s *frameSink) Features() []model.Feature { return nil }

// Drops implements agent.Reporter. They are those after the last frame: a log that works may let ask for them wait.
func (s *frameSink) Drops() []model.Drop { return *s.drops.Load() }

func (s *frameSink) update() {
	drops := append(frameDrops(s.log.Stats()), s.series.Drops()...)
	s.drops.Store(&drops)
}

// frameDrops are the bounds of a log of frames, and what it lost.
func frameDrops(s framelog.Stats) []model.Drop {
	return []model.Drop{
		// What is above MaxBytes is the oldest, which goes.
		{Name: "frames/bytes", Used: uint64(s.Bytes), Capacity: uint64(s.MaxBytes)},
		{Name: "frames/damaged", Count: s.Damaged},
		{Name: "frames/without-key", Count: s.KeyMissing},
		{Name: "frames/refused", Count: s.Rejected},
	}
}

// framesIn is whether a data directory has a log of frames.
func framesIn(data string) bool {
	_, err := os.Stat(filepath.Join(data, framesDirectory))
	return err == nil
}

func closeFrames(frames framelog.Log, log *slog.Logger) {
	if err := frames.Close(); err != nil {
		log.Error("ending the log of frames was not clean", "error", err)
	}
}

// ingest is where frames go that are received.
func (f *frameFlags) ingest(frames framelog.Log, series *derive.Deriver) *ingest.Frames {
	to := &ingest.Frames{Log: frames}
	if series != nil {
		to.Series, to.Only = series, derive.Projection(f.promQL == promQLFull)
	}
	return to
}

// withFrameMetrics adds the metrics of a log of frames, of the series that are made of it, and those that are computed.
func withFrameMetrics(metrics http.Handler, frames framelog.Log, series *derive.Deriver,
	computed followers) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		metrics.ServeHTTP(w, r)
		family := func(name, kind, help string, value any) {
			fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %v\n", name, help, name, kind, name, value)
		}
		s, d := frames.Stats(), series.Stats()
		family("outsight_frames_bytes", "gauge", "Bytes of the log of frames", s.Bytes)
		family("outsight_frames_stored", "gauge", "Frames in the log", s.Frames)
		family("outsight_frames_hosts", "gauge", "Hosts in the log", s.Hosts)
		family("outsight_frames_damaged_total", "counter", "Frames that could not be read", s.Damaged)
		family("outsight_frames_without_key_total", "counter", "Frames that were refused since their key frame is not there",
			s.KeyMissing)
		family("outsight_frames_refused_total", "counter", "Frames that were refused for another reason", s.Rejected)
		family("outsight_derived_frames_total", "counter", "Frames that became series for PromQL", d.Derived)
		family("outsight_derived_series_total", "counter", "Samples that were made of them", d.Series)
		family("outsight_underived_frames_total", "counter",
			"Frames that did not become series since too many waited, or the store did not take them", d.Dropped)
		_ = otlp.WriteComputed(w, computed.newest()) // who asked has gone
	})
}
