package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/csvy"
	_ "outsight/internal/csvy/parquet" // recordings may be Parquet
	"outsight/internal/graph"
	findings "outsight/internal/report"
)

type reportOptions struct {
	output string
	top    int
}

func newReport() *cobra.Command {
	var o reportOptions
	c := &cobra.Command{
		Use:   "report FILE...|DIR",
		Short: "What recordings show: short saturations, and what waited because of them",
		Long: `Read recordings of "outsight record", or of rAdvisor, and show how regular their samples are,
when each container was busy, and the short saturations (10 ms to 1 s): which resource was at its
limit, what waited meanwhile, and who took the CPU. Of a directory, all recordings in it are read.`,
		Example: `  outsight report recordings/
  outsight report --output html recordings/ > report.html
  outsight report --output json shop_1790000000.csvy | jq '.saturations[].text'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("report wants recordings, or a directory of them")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("output", o.output, "text", "json", "html"); err != nil {
				return err
			}
			return runReport(args, o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringVarP(&o.output, "output", "o", "text", "text, json or html")
	c.Flags().IntVar(&o.top, "top", 20, "show the saturations that made others wait the most, so many of them; 0 is all")
	return c
}

func runReport(args []string, o reportOptions, out, errOut io.Writer) error {
	paths, err := recordingsIn(args)
	if err != nil {
		return err
	}
	var recordings []*csvy.Recording
	var unreadable []findings.FileProblem
	for _, path := range paths {
		r, err := csvy.Open(path)
		if err != nil {
			fmt.Fprintf(errOut, "outsight: %s\n", graph.Clean(err.Error()))
			unreadable = append(unreadable, findings.FileProblem{Path: path,
				Problem: csvy.Problem{Text: graph.Clean(err.Error()), Count: 1}})
			continue
		}
		cleanHead(&r.Head)
		recordings = append(recordings, r)
	}
	if len(recordings) == 0 {
		return errSaid
	}
	r := findings.Analyse(recordings, findings.Options{})
	r.Problems = append(r.Problems, unreadable...)
	if err := writeReport(out, r, o); err != nil {
		return err
	}
	if len(unreadable) > 0 {
		return errSaid
	}
	return nil
}

func writeReport(out io.Writer, r *findings.Report, o reportOptions) error {
	switch o.output {
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	case "html":
		return r.HTML(out, o.top, time.Local)
	}
	_, err := io.WriteString(out, r.Text(o.top, time.Local))
	return err
}

// recordingsIn are the files that are named, and of directories those with the name of a recording.
func recordingsIn(args []string) ([]string, error) {
	var paths []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, fmt.Errorf("looking for recordings: %w", err)
		}
		if !info.IsDir() {
			paths = append(paths, arg)
			continue
		}
		entries, err := os.ReadDir(arg)
		if err != nil {
			return nil, fmt.Errorf("looking for recordings: %w", err)
		}
		before := len(paths)
		for _, entry := range entries {
			if !entry.IsDir() && slices.Contains([]string{".csvy", ".log", ".parquet"}, filepath.Ext(entry.Name())) {
				paths = append(paths, filepath.Join(arg, entry.Name()))
			}
		}
		if len(paths) == before {
			return nil, fmt.Errorf("looking for recordings: %s has no file that ends with .csvy, .log or .parquet", arg)
		}
	}
	return paths, nil
}

// cleanHead makes all names of a recording safe to print.
func cleanHead(h *csvy.Head) {
	c := &h.Container
	for _, name := range []*string{&c.ID, &c.Name, &c.Image, &c.PodUID, &c.PodName, &c.PodNamespace, &h.Host.Name,
		&h.Host.Kernel} {
		*name = graph.Clean(*name)
	}
}
