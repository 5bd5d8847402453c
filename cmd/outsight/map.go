package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
)

type mapOptions struct {
	windowFlags
	watch bool
	// share is the least share of all bytes of an edge to show.
	share float64
}

func newMap() *cobra.Command {
	o := mapOptions{windowFlags: windowFlags{remote: remoteFlags{outputs: slices.Sorted(maps.Keys(remoteMapPaths))}}}
	c := &cobra.Command{
		Use:   "map",
		Short: "Who talks to whom, how much and how slowly",
		Long: `Show which container calls which, with requests per second, latencies and bytes. Asks the
agent that runs on this host, or loads the kernel programs for the time being, which needs root.`,
		Example: `  sudo outsight map
  sudo outsight map --for 30s --output svg > map.svg
  sudo outsight map --group-by process --min-share 0.01
  sudo outsight map --by workload
  sudo outsight map --watch
  outsight map --server http://127.0.0.1:8470 --from now-1h --by process --output cypher | cypher-shell`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", o.output, "text", "dot", "json", "mermaid", "graphml", "cypher", "svg"); err != nil {
				return err
			}
			if o.share < 0 || o.share > 1 {
				return usagef("--min-share is %v, want 0 to 1", o.share)
			}
			if err := o.check(); err != nil {
				return err
			}
			if o.remote.server != "" {
				query := url.Values{"by": {string(o.by)}, "share": {strconv.FormatFloat(o.share, 'g', -1, 64)}}
				return o.remote.print(c.Context(), remoteMapPaths[o.output], query, c.OutOrStdout())
			}
			log, err := logger(c)
			if err != nil {
				return err
			}
			s, err := openSource(c.Context(), o.watchFlags, log, c.ErrOrStderr())
			if err != nil {
				return err
			}
			defer s.close()
			if o.watch {
				return watchMap(c.Context(), s, o, c.OutOrStdout())
			}
			return printMap(c.Context(), s, o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.add(c, "map", "what a node is")
	c.Flags().StringVarP(&o.output, "output", "o", "text", "text, dot, json, mermaid, graphml, cypher or svg")
	c.Flags().Float64Var(&o.share, "min-share", 0, "hide edges with less than this share, 0 to 1, of all bytes")
	c.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on, and show the time that --for names up to now each second")
	return c
}

// remoteMapPaths are where a server has its map, by what is written.
var remoteMapPaths = map[string]string{"cypher": "cypher", "json": "graph", "svg": "picture"}

func printMap(ctx context.Context, s *source, o mapOptions, out, errOut io.Writer) error {
	w, err := watchFor(ctx, s, o.length, errOut)
	if err != nil {
		return err
	}
	return writeMap(out, o.graph(w), o.output, newest(w))
}

// watchFor gathers a window, and says so on a terminal.
func watchFor(ctx context.Context, s *source, length time.Duration, errOut io.Writer) (*frame.Window, error) {
	say(errOut, "Watching for %v …", length)
	defer say(errOut, "\r\x1b[K")
	return gather(ctx, s, length)
}

func (o *mapOptions) graph(w *frame.Window) *graph.Graph {
	g := graph.FromFrames(w, graph.Options{By: o.by})
	g.HideBelow(o.share)
	return g
}

// watchMap shows the map again each second. On a terminal it is drawn over the one before.
func watchMap(ctx context.Context, s *source, o mapOptions, out io.Writer) error {
	w := window{length: o.length}
	screen := screen{out: out}
	for {
		to, err := s.next(ctx)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		from, _ := w.add(to)
		if from == to {
			continue
		}
		var b bytes.Buffer
		if err := writeMap(&b, o.graph(between(from, to)), o.output, to); err != nil {
			return err
		}
		if err := screen.draw(b.Bytes()); err != nil {
			return err
		}
	}
}

func writeMap(out io.Writer, g *graph.Graph, output string, f *frame.Frame) error {
	var err error
	switch output {
	case "dot":
		_, err = io.WriteString(out, graph.DOT(g))
	case "svg":
		_, err = io.WriteString(out, graph.SVG(g))
	case "mermaid":
		_, err = io.WriteString(out, graph.Mermaid(g))
	case "cypher":
		err = graph.WriteCypher(out, g)
	case "graphml":
		var text string
		if text, err = graph.GraphML(g); err == nil {
			_, err = io.WriteString(out, text)
		}
	case "json":
		var b []byte
		if b, err = graph.JSON(g); err == nil {
			_, err = out.Write(b)
		}
	default:
		_, err = fmt.Fprintf(out, "%s\n\n%s", mapTitle(g, f), graph.Text(g, columnsOf(out)))
	}
	return err
}

func mapTitle(g *graph.Graph, f *frame.Frame) string {
	return fmt.Sprintf("%s · %s · the %.0f s to %s · quantiles to within %.1f %%", graph.Clean(f.Host),
		plural(running(f), "container"), g.CoveredSeconds, f.Time.Local().Format(time.TimeOnly), 100*g.ErrorBound)
}

// running is the number of containers that run, without the host.
func running(f *frame.Frame) int {
	n, t := 0, &f.Tables[frame.Containers]
	for row := range t.IDs {
		if t.Attribute(frame.State, row) == frame.Live &&
			f.Text(frame.Containers, frame.ContainerRuntime, row) != string(model.HostRuntime) {
			n++
		}
	}
	return n
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// columnsOf is the width of a terminal, 0 for what is none.
func columnsOf(w io.Writer) int {
	if !isTerminal(w) {
		return 0
	}
	width, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return width
}
