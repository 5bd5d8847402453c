package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"outsight/internal/graph"
	"outsight/internal/model"
)

type topOptions struct {
	watchFlags
	once         bool
	output, sort string
	filter       string
	length       time.Duration
}

func newTop() *cobra.Command {
	var o topOptions
	c := &cobra.Command{
		Use:   "top",
		Short: "The containers of this host and what each costs, live",
		Long: `Show what each container uses: CPU, waiting for a CPU, memory, network, disk, and the requests
that it serves. Asks the agent that runs on this host, or loads the kernel programs for the time
being, which needs root.`,
		Example: `  sudo outsight top
  sudo outsight top --sort memory --filter shop
  sudo outsight top --once --output json | jq '.containers[].name'`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			interactive := !o.once && o.output == "text" && isTerminal(c.OutOrStdout())
			log, err := logger(c)
			if err != nil {
				return err
			}
			if interactive {
				log = discard() // it would be written across the table
			}
			s, err := openSource(c.Context(), o.watchFlags, log)
			if err != nil {
				return err
			}
			defer s.close()
			if interactive {
				return showTop(c.Context(), s, o)
			}
			return printTop(c.Context(), s, o, c.OutOrStdout())
		},
	}
	o.watchFlags.add(c)
	c.Flags().BoolVar(&o.once, "once", false, "print one table and end")
	c.Flags().StringVarP(&o.output, "output", "o", "text", "text, or json: one document a second, or with --once one")
	c.Flags().StringVar(&o.sort, "sort", "cpu", "sort by "+sortNames())
	c.Flags().StringVar(&o.filter, "filter", "", "only containers whose name or image has this in it")
	c.Flags().DurationVar(&o.length, "for", time.Second, "time that the numbers are about")
	return c
}

func (o topOptions) check() error {
	if o.length < time.Second {
		return usagef("--for is %v, want at least 1s", o.length)
	}
	if columnNamed(o.sort) < 0 {
		return usagef("--sort is %q, want %s", o.sort, sortNames())
	}
	return oneOf("output", o.output, "text", "json")
}

// printTop prints tables or documents, one after the other.
func printTop(ctx context.Context, s *source, o topOptions, out io.Writer) error {
	w := window{length: o.length}
	screen := screen{out: out}
	for {
		to, err := s.next(ctx)
		if errors.Is(err, context.Canceled) && !o.once {
			return nil
		}
		if err != nil {
			return err
		}
		from, full := w.add(to)
		if from == to || o.once && !full {
			continue
		}
		look := newLook(from, to)
		if o.output == "json" {
			err = json.NewEncoder(out).Encode(look.document(o))
		} else {
			t := table{look: look, sort: columnNamed(o.sort), filter: o.filter, width: columnsOf(out)}
			err = screen.draw([]byte(t.plain()))
		}
		if err != nil || o.once {
			return err
		}
	}
}

// look is what happened between two snapshots.
type look struct {
	from, to *model.Snapshot
	graph    *graph.Graph
	// seconds between the two.
	seconds float64
	// cores are CPU seconds per second: used by containers and host, by groups that found no
	// room in the table, idle.
	cores, otherCores, idleCores float64
	memory, requests             float64
	// agentCores is what the agent itself uses, kernel programs included where that is known.
	agentCores float64
	// dropped are the tables that had no room for something in the time.
	dropped []model.Drop
}

func newLook(from, to *model.Snapshot) look {
	l := look{from: from, to: to, graph: graph.FromSnapshots(from, to), seconds: to.Time.Sub(from.Time).Seconds()}
	for _, n := range l.graph.Nodes {
		if n.Usage != nil {
			l.cores += number(n.Usage.CPUCores)
			l.memory += number(n.Usage.WorkingSetBytes)
		}
		// Each transaction once: where it was served, or called from here if served elsewhere.
		if n.Served != nil && n.Kind != graph.KindOutside {
			l.requests += number(n.Served.TransactionsPerSecond)
		}
	}
	for _, e := range l.graph.Edges {
		if n := l.graph.Node(e.Server); n != nil && n.Kind == graph.KindOutside {
			l.requests += number(e.Best().TransactionsPerSecond)
		}
	}
	perSecond := func(before, now uint64) float64 { return gained(before, now) / l.seconds / 1e9 }
	l.otherCores = perSecond(from.Self.OtherNS, to.Self.OtherNS)
	l.idleCores = perSecond(from.Self.IdleNS, to.Self.IdleNS)
	l.agentCores = perSecond(from.Self.CPUNS, to.Self.CPUNS)
	before := make(map[string]uint64)
	for _, p := range from.Self.Programs {
		before[p.Name] = p.RunTimeNS
	}
	for _, p := range to.Self.Programs {
		l.agentCores += perSecond(before[p.Name], p.RunTimeNS)
	}
	l.dropped = newDrops(from.Self.Drops, to.Self.Drops)
	return l
}

// newDrops are the drops since before.
func newDrops(before, now []model.Drop) []model.Drop {
	counts := make(map[string]uint64)
	for _, d := range before {
		counts[d.Name] = d.Count
	}
	var dropped []model.Drop
	for _, d := range now {
		if d.Count > counts[d.Name] {
			d.Count -= counts[d.Name]
			dropped = append(dropped, d)
		}
	}
	return dropped
}

func gained(before, now uint64) float64 {
	if now < before {
		return float64(now)
	}
	return float64(now - before)
}

// accounted is the share of all CPU time that is accounted for: used, or idle.
func (l look) accounted() float64 {
	return (l.cores + l.otherCores + l.idleCores) / float64(max(l.to.Host.Cores, 1))
}

// document is what --output json prints.
type document struct {
	Time          time.Time     `json:"time"`
	WindowSeconds float64       `json:"window_seconds"`
	Host          reportHost    `json:"host"`
	CPUCores      float64       `json:"cpu_cores"`
	IdleCores     float64       `json:"idle_cores"`
	Accounted     float64       `json:"cpu_accounted_share"`
	Dropped       []documentBin `json:"dropped"`
	Agent         documentSelf  `json:"agent"`
	Containers    []*graph.Node `json:"containers"`
}

type documentBin struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

type documentSelf struct {
	CPUCores    float64 `json:"cpu_cores"`
	MemoryBytes uint64  `json:"memory_bytes"`
	ReadSeconds float64 `json:"read_seconds"`
}

func (l look) document(o topOptions) document {
	h, self := l.to.Host, l.to.Self
	d := document{
		Time: l.to.Time, WindowSeconds: l.seconds,
		Host:     reportHost{Name: h.Name, Kernel: h.Kernel, Cores: h.Cores, MemoryBytes: h.MemoryBytes, CgroupLayout: h.CgroupLayout},
		CPUCores: l.cores + l.otherCores, IdleCores: l.idleCores, Accounted: l.accounted(),
		Dropped:    []documentBin{},
		Agent:      documentSelf{CPUCores: l.agentCores, MemoryBytes: self.RSSBytes, ReadSeconds: float64(self.ReadNS) / 1e9},
		Containers: []*graph.Node{},
	}
	for _, drop := range l.dropped {
		d.Dropped = append(d.Dropped, documentBin{drop.Name, drop.Count})
	}
	t := table{look: l, sort: columnNamed(o.sort), filter: o.filter}
	d.Containers = append(d.Containers, t.rows()...)
	return d
}

// showTop runs the table on the terminal until somebody quits it.
func showTop(ctx context.Context, s *source, o topOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := tea.NewProgram(newTopView(o, s.from), tea.WithContext(ctx), tea.WithoutSignalHandler())
	failed := make(chan error, 1)
	go func() {
		w := window{length: o.length}
		for {
			to, err := s.next(ctx)
			if err != nil {
				failed <- err
				program.Quit()
				return
			}
			from, _ := w.add(to)
			program.Send(newLook(from, to))
		}
	}()
	_, err := program.Run()
	cancel()
	sourceErr := <-failed
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, tea.ErrProgramKilled) {
		return fmt.Errorf("drawing on the terminal: %w", err)
	}
	if !errors.Is(sourceErr, context.Canceled) {
		return sourceErr
	}
	return nil
}
