package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/agent"
	"outsight/internal/csvy"
	_ "outsight/internal/csvy/parquet" // the format
	"outsight/internal/kernel"
	"outsight/internal/model"
	"outsight/internal/recorder"
)

type recordOptions struct {
	watchFlags
	interval, files, length, last time.Duration
	directory, containers, format string
	rotateEvery                   time.Duration
	anomalies, each               bool
	anomaly                       uint64
	rotateSize, maxDisk           byteSize
	sync                          string
}

func newRecord() *cobra.Command {
	o := recordOptions{}
	c := &cobra.Command{
		Use:   "record",
		Short: "Samples of every container, 1 ms to 10 s apart, in files",
		Long: `Record what each container does, sampled by a timer in the kernel: CPU, waiting for a CPU, bytes,
requests in flight; and beside it what the control group files say. Each container gets a file. Loads
kernel programs of its own, also beside a running agent, which needs root.

With --last it asks the agent for what it has kept in memory instead. The agent also looks for short
saturations (10 ms to 1 s) that made something wait, and keeps the 10 s before and after each of them
longer: --anomalies lists them, --anomaly writes one.`,
		Example: `  sudo outsight record -d /tmp/run --for 60s
  sudo outsight record -i 1ms --containers 'shop-*' --format parquet -d /tmp/run
  sudo outsight record --last 5m -d /tmp/run
  sudo outsight record --anomalies
  sudo outsight record --anomaly 3 -d /tmp/run && outsight report /tmp/run`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(c); err != nil {
				return err
			}
			log, err := logger(c)
			if err != nil {
				return err
			}
			if o.anomalies {
				return listAnomalies(c.Context(), o.ask(c.ErrOrStderr()), o.each, c.OutOrStdout())
			}
			if err := makeRecordings(o.directory); err != nil {
				return err
			}
			ctx := c.Context()
			if o.kept() != "" {
				o.socket = o.ask(c.ErrOrStderr())
				return recordKept(ctx, o, c.OutOrStdout())
			}
			host, err := o.host(log)
			if err != nil {
				return err
			}
			return record(ctx, o, host, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.watchFlags.add(c)
	f := c.Flags()
	f.DurationVarP(&o.interval, "interval", "i", 50*time.Millisecond, "time between two samples, 1ms to 10s")
	f.StringVarP(&o.directory, "directory", "d", "recordings", "directory of the files; it is made if it is not there")
	f.StringVar(&o.containers, "containers", "*",
		"record containers whose name, pod/name or image is like this pattern, or whose ID begins with it; several "+
			"separated by commas")
	f.StringVar(&o.format, "format", "csvy", "csvy, radvisor (as rAdvisor 1.4 writes it) or parquet")
	f.DurationVar(&o.length, "for", 0, "how long to record; 0 is until Ctrl-C")
	f.DurationVar(&o.files, "files", 0, "time between two readings of the control group files (default 1s; with "+
		"radvisor that of the samples)")
	f.DurationVar(&o.last, "last", 0, "write what the running agent has kept of this last while")
	f.BoolVar(&o.anomalies, "anomalies", false, "list the anomalies around which the running agent has kept what was, "+
		"those of one container and resource in one line")
	f.BoolVar(&o.each, "each", false, "with --anomalies: a line for each of them")
	f.Uint64Var(&o.anomaly, "anomaly", 0, "write what the running agent has kept around the anomaly with this number")
	f.DurationVar(&o.rotateEvery, "rotate", 0, "begin a new file after this time; 0 is never")
	f.Var(&o.rotateSize, "rotate-size", "begin a new file after so many bytes, as in 64MiB; 0 is never")
	f.Var(&o.maxDisk, "max-disk", "the most that all files may take, as in 1GiB: rotated files make room, else the "+
		"recording ends; 0 is no bound")
	f.StringVar(&o.sync, "sync", "close", "when files are forced to the disk: close, flush (once a second) or never")
	return c
}

func (o *recordOptions) check(c *cobra.Command) error {
	if o.interval < kernel.MinRecorderInterval || o.interval > kernel.MaxRecorderInterval {
		return usagef("--interval is %v, want %v to %v", o.interval, kernel.MinRecorderInterval, kernel.MaxRecorderInterval)
	}
	for flag, d := range map[string]time.Duration{"for": o.length, "files": o.files, "last": o.last,
		"rotate": o.rotateEvery} {
		if d < 0 {
			return usagef("--%s is %v, want more than nothing", flag, d)
		}
	}
	if o.each && !o.anomalies {
		return usagef("--each is for --anomalies")
	}
	if kept := o.kept(); kept != "" {
		for _, other := range []string{"interval", "for", "files", "last", "anomaly", "anomalies"} {
			if other != kept && c.Flags().Changed(other) {
				return usagef("--%s is not for --%s: the agent has recorded already", other, kept)
			}
		}
	}
	for pattern := range strings.SplitSeq(o.containers, ",") {
		if _, err := path.Match(pattern, ""); err != nil {
			return usagef("--containers has the pattern %q, which is malformed", pattern)
		}
	}
	if err := oneOf("sync", o.sync, "close", "flush", "never"); err != nil {
		return err
	}
	return oneOf("format", o.format, string(csvy.CSVY), string(csvy.RAdvisor), string(csvy.Parquet))
}

// kept is the flag that asks for what an agent has kept; empty if there is none.
func (o *recordOptions) kept() string {
	switch {
	case o.last > 0:
		return "last"
	case o.anomalies:
		return "anomalies"
	case o.anomaly > 0:
		return "anomaly"
	}
	return ""
}

// wanted reports whether a container is to be recorded. rAdvisor's format has no host.
func (o *recordOptions) wanted(c *model.Container) bool {
	if o.format == string(csvy.RAdvisor) && c.ID == model.HostContainerID {
		return false
	}
	for pattern := range strings.SplitSeq(o.containers, ",") {
		for _, name := range []string{c.Name, c.PodName + "/" + c.Name, c.Image} {
			if like, _ := path.Match(pattern, name); like {
				return true
			}
		}
		if pattern == "*" || len(pattern) >= 4 && strings.HasPrefix(c.ID, pattern) {
			return true
		}
	}
	return false
}

// ask is the socket of the agent that keeps samples; it is printed.
func (o *recordOptions) ask(errOut io.Writer) string {
	socket := o.socketOf()
	if answers(socket) {
		say(errOut, "Querying what runs at %s.\n", socket)
	}
	return socket
}

// creator makes the files.
func (o *recordOptions) creator() func(csvy.Head) (recorder.Writer, error) {
	options := csvy.Options{Own: giveToCaller, RotateBytes: int64(o.rotateSize), RotateEvery: o.rotateEvery,
		Sync: map[string]csvy.SyncPolicy{"close": csvy.SyncOnClose, "flush": csvy.SyncOnFlush,
			"never": csvy.SyncNever}[o.sync]}
	if o.maxDisk > 0 {
		options.Bound = csvy.NewBound(int64(o.maxDisk))
	}
	return func(h csvy.Head) (recorder.Writer, error) {
		return csvy.Create(o.directory, csvy.Format(o.format), h, options)
	}
}

func (o *recordOptions) recorder() recorder.Options {
	held := o.format == string(csvy.RAdvisor)
	if o.files == 0 && held {
		o.files = o.interval
	}
	return recorder.Options{Wanted: o.wanted, Create: o.creator(), FileInterval: o.files, HoldFiles: held,
		Host: csvy.ThisHost(), Version: version()}
}

// namesTime is how long a recording waits for the names of the containers.
const namesTime = 2 * time.Second

// record records until the time is up, ctx ends or a file cannot be written.
func record(ctx context.Context, o recordOptions, options agent.HostOptions, out, errOut io.Writer) (err error) {
	say(errOut, "Loading the kernel programs, which takes some seconds …")
	host, err := agent.Open(options)
	say(errOut, "\r\x1b[K")
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- host.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended, host.Close())
	}()
	for begun := time.Now(); host.Frame() == nil && ctx.Err() == nil && time.Since(begun) < namesTime; {
		time.Sleep(10 * time.Millisecond)
	}
	if !slices.ContainsFunc(host.Containers(), o.wanted) {
		fmt.Fprintf(errOut, "outsight: no container is like --containers %q yet; it is waited for\n", o.containers)
	}
	ticks, err := host.Record(kernel.RecorderOptions{Interval: o.interval})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ticks.Close()) }()
	lane := host.NewLane()
	defer lane.Close()
	if o.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.length)
		defer cancel()
	}
	r := recorder.New(ticks, host, lane, o.recorder())
	end := func() {}
	if isTerminal(errOut) {
		end = showProgress(r, errOut)
	}
	err = r.Run(ctx)
	end()
	if err != nil {
		return err
	}
	if err := r.FilesError(); err != nil {
		fmt.Fprintf(errOut, "outsight: some control group files could not be read: %v\n", err)
	}
	return summarize(out, r.Progress(), o)
}

// showProgress writes a line each second until the answer is called.
func showProgress(r *recorder.Recording, out io.Writer) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	begun := time.Now()
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				fmt.Fprint(out, "\r\x1b[K")
				return
			case <-tick.C:
				fmt.Fprintf(out, "\r%v  %s\x1b[K", time.Since(begun).Round(time.Second), progressText(r.Progress()))
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

func progressText(p recorder.Progress) string {
	text := fmt.Sprintf("%d containers, %d ticks, %d rows, %d ticks lost", p.Containers, p.Ticks, p.Rows, p.Lost)
	if p.Ticks > 0 {
		text += fmt.Sprintf("; ticks %.3f ms late (worst %.3f ms), %.1f µs each", float64(p.LatenessNS)/float64(p.Ticks)/1e6,
			float64(p.WorstLatenessNS)/1e6, float64(p.CostNS)/float64(p.Ticks)/1e3)
	}
	return text
}

// errNothingRecorded says that a recording has no row.
var errNothingRecorded = errors.New("nothing was recorded")

// summarize says what was recorded. Nothing is an error: who waits for a recording should not go on without.
func summarize(out io.Writer, p recorder.Progress, o recordOptions) error {
	if p.Rows == 0 && o.containers != "*" {
		return fmt.Errorf("%w: no container was like --containers %q; \"outsight top --once\" lists their names",
			errNothingRecorded, o.containers)
	}
	if p.Rows == 0 {
		return fmt.Errorf("%w: no sample was taken in the time; give it longer", errNothingRecorded)
	}
	_, err := fmt.Fprintf(out, "Recorded in %s: %s\n", o.directory, progressText(p))
	return err
}

// recordKept writes what the agent has kept, of the last while or around an anomaly.
func recordKept(ctx context.Context, o recordOptions, out io.Writer) error {
	client := agent.NewClient(o.socket)
	defer client.Close()
	var data *recorder.FlightData
	var err error
	since := time.Time{}
	if o.anomaly > 0 {
		data, err = client.FetchAnomaly(ctx, o.anomaly)
	} else {
		since = time.Now().Add(-o.last)
		data, err = client.FetchFlight(ctx, o.last)
	}
	if err != nil {
		return keptError(o.kept(), err)
	}
	p, err := data.Write(since, o.recorder())
	if err != nil {
		return err
	}
	return summarize(out, p, o)
}

// keptError says what to do where the agent does not answer.
func keptError(flag string, err error) error {
	if errors.Is(err, agent.ErrNoAgent) {
		return fmt.Errorf("%w: --%s is for what an agent has kept; start one with \"outsight up\" or \"outsight agent\"", err,
			flag)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: ask as the user that the agent runs as, mostly root", err)
	}
	return err
}

// byteSize is a flag like 64MiB.
type byteSize int64

var byteUnits = []struct {
	suffix string
	factor float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
	{"TB", 1e12}, {"B", 1}, {"", 1}}

func (b *byteSize) String() string { return strconv.FormatInt(int64(*b), 10) }
func (b *byteSize) Type() string   { return "bytes" }

func (b *byteSize) Set(text string) error {
	for _, u := range byteUnits {
		number, found := strings.CutSuffix(text, u.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(n >= 0) || n*u.factor >= math.MaxInt64 {
			break
		}
		*b = byteSize(n * u.factor)
		return nil
	}
	return fmt.Errorf("want a number of bytes, as in 64MiB")
}
