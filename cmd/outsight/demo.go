package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"outsight/internal/agent"
	"outsight/internal/api"
	"outsight/internal/container"
	"outsight/internal/demo"
	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/kernel"
)

const (
	// demoStopTime bounds the removal of the shop.
	demoStopTime = time.Minute
	// demoWindow is the time that the demo's map is about.
	demoWindow = 3 * time.Second
)

type demoOptions struct {
	secureFlags
	listen   string
	length   time.Duration
	rate     float64
	noDocker bool
}

func newDemo() *cobra.Command {
	var o demoOptions
	c := &cobra.Command{
		Use:   "demo",
		Short: "Start a small shop in containers, and watch it",
		Long: `Start a small shop of real software in containers (Docker's where it runs), load it, and watch
it as "outsight up" would: its map in the terminal, and a page. Two of its services have a fault to
be found. Needs root. Ctrl-C ends it and removes all of it.`,
		Example: `  sudo outsight demo
  sudo outsight demo --for 30s`,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.length < 0 || o.rate < 0 {
				return usagef("--for and --rate must not be negative")
			}
			log, err := logger(c)
			if err != nil {
				return err
			}
			ctx := c.Context()
			if o.length > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, o.length)
				defer cancel()
			}
			return runDemo(ctx, o, c.OutOrStdout(), log)
		},
	}
	o.secureFlags.add(c)
	c.Flags().StringVar(&o.listen, "listen", api.DefaultAddress, "address of the page")
	c.Flags().DurationVar(&o.length, "for", 0, "end after this time (default: at Ctrl-C)")
	c.Flags().Float64Var(&o.rate, "rate", 0, "requests per second (default 120)")
	c.Flags().BoolVar(&o.noDocker, "no-docker", false, "make control groups and namespaces even where Docker runs")
	return c
}

// newDemoService is what the demo's containers run.
func newDemoService() *cobra.Command {
	return &cobra.Command{
		Use: "demo-service", Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return demo.RunService(c.Context(), args) },
	}
}

func runDemo(ctx context.Context, o demoOptions, out io.Writer, log *slog.Logger) (err error) {
	if err := checkPrivileges(); err != nil {
		return err
	}
	if missing := demo.Missing(); len(missing) > 0 {
		fmt.Fprintf(out, "The shop does without %s. For the whole shop: apt-get install --no-install-recommends %s\n\n",
			strings.Join(missing, " and "), strings.Join(missing, " "))
	}
	dir, err := os.MkdirTemp("", "outsight-demo-")
	if err != nil {
		return fmt.Errorf("making a directory for what is seen: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Warnings of the parts would be written across the map.
	quiet := log
	if isTerminal(out) {
		quiet = discard()
	}
	u, err := openUp(upOptions{
		maxSeries: upSeries, frameFlags: defaultFrames,
		listen: o.listen, data: dir, retention: defaultRetention, logger: quiet, secureFlags: o.secureFlags,
		watchFlags: watchFlags{socket: demoSocket(dir), packets: true, flight: agent.DefaultFlight,
			counters: string(kernel.CountersAuto), dockerSocket: container.DockerSocket(os.Getenv("DOCKER_HOST"))},
	})
	if err != nil {
		return err
	}
	defer u.close(log)
	fmt.Fprintf(out, "page  %s\n\nStarting the shop …\n", pageURL(u.page, u.access))
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return u.run(working) })
	group.Go(func() error { return runShop(working, o, u, out, quiet) })
	err = group.Wait()
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil // it was ended while something still started
	}
	return err
}

// runShop starts the shop, shows the map until ctx ends, and removes the shop.
func runShop(ctx context.Context, o demoOptions, u *up, out io.Writer, log *slog.Logger) (err error) {
	shop := make(chan started, 1)
	go func() {
		s, err := demo.Start(ctx, demo.Options{Logger: log, Rate: o.rate, NoDocker: o.noDocker})
		shop <- started{s, err}
	}()
	defer func() {
		s := <-shop
		if s.shop == nil {
			return
		}
		if isTerminal(out) {
			fmt.Fprintln(out, "\nRemoving the shop …")
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), demoStopTime)
		defer cancel()
		err = errors.Join(err, s.shop.Stop(end))
	}()
	d := demoScreen{up: u, screen: screen{out: out},
		source: source{latest: func(context.Context) (*frame.Frame, error) {
			return u.host.Frame(), nil
		}}}
	for {
		select {
		case s := <-shop:
			shop <- s // for the end
			if s.err != nil {
				return s.err
			}
			d.shop = s.shop
		default:
		}
		to, err := d.source.next(ctx)
		if err != nil {
			return nil // ctx has ended
		}
		if err := d.show(to, out); err != nil {
			return err
		}
	}
}

type started struct {
	shop *demo.Shop
	err  error
}

// demoScreen shows the map of the shop alone: the host may run much else.
type demoScreen struct {
	up     *up
	shop   *demo.Shop
	screen screen
	source source
	window window
	shown  int
}

func (d *demoScreen) show(to *frame.Frame, out io.Writer) error {
	d.window.length = demoWindow
	from, _ := d.window.add(to)
	if from == to {
		return nil
	}
	// Elsewhere than on a terminal a map every ten seconds is enough.
	d.shown++
	if !isTerminal(out) && d.shown%10 != 3 {
		return nil
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "outsight demo · page %s · Ctrl-C ends it\n", pageURL(d.up.page, d.up.access))
	if d.shop == nil {
		fmt.Fprint(&b, "The shop is starting …\n")
	} else {
		r := d.shop.Report()
		fmt.Fprintf(&b, "The load generator itself counts %d requests sent, %d completed.\n", r.Sent, r.Completed)
		for _, n := range d.shop.Notices() {
			fmt.Fprintf(&b, "%s\n", n)
		}
	}
	fmt.Fprintln(&b)
	if err := writeMap(&b, graph.FromFrames(between(from, to), graph.Options{}), "text", to); err != nil {
		return err
	}
	return d.screen.draw(b.Bytes())
}
