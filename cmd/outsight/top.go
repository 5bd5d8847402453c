package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"
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
		Long: `Show what each container uses: CPU, waiting for a CPU and whom it waited behind, memory, network, disk, and
the requests that it serves. Asks the agent that runs on this host, or loads the kernel programs for the time
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
			s, err := openSource(c.Context(), o.watchFlags, log, c.ErrOrStderr())
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

// showTop runs the table on the terminal until the user quits it.
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

// screen draws one text over the other on a terminal, and one after the other elsewhere.
type screen struct {
	out   io.Writer
	drawn bool
}

func (s *screen) draw(text []byte) error {
	if !isTerminal(s.out) {
		if s.drawn {
			text = append([]byte("\n"), text...)
		}
		s.drawn = true
		_, err := s.out.Write(text)
		return err
	}
	_, height, err := term.GetSize(int(s.out.(*os.File).Fd()))
	if err != nil {
		return fmt.Errorf("reading the terminal's size: %w", err)
	}
	// Home, each line with what was behind it cleared, then what was below: no flicker.
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	lines = lines[:min(len(lines), height-1)]
	var b bytes.Buffer
	if !s.drawn {
		b.WriteString("\x1b[2J")
	}
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.Write(line)
		b.WriteString("\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	s.drawn = true
	_, err = s.out.Write(b.Bytes())
	return err
}
