package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/framelog"
	"outsight/internal/framelog/parquet"
)

type exportOptions struct {
	data, parquet, tenant, from, to string
	bucket                          frameFlags
}

func newExport() *cobra.Command {
	var o exportOptions
	c := &cobra.Command{
		Use:   "export --data DIR --parquet OUT",
		Short: "Write the history of a data directory as Parquet files, for SQL",
		Long: `Read the log of frames in a data directory and write it as Parquet files, a row for each container,
edge, endpoint and labelled series of each minute: OUT/edges/HOST/2026-11-24T13.parquet and so on.
DuckDB reads them with one pattern, OUT/edges/**/*.parquet. Files that are there are replaced.

While a server has the directory open, it writes such files itself, with its flag --parquet.`,
		Example: `  outsight export --data /var/lib/outsight --parquet history
  outsight export --data /var/lib/outsight --parquet history --from 24h
  duckdb -c "SELECT client_name, server_name, max(request_bytes) FROM 'history/edges/**/*.parquet' GROUP BY ALL"`,
		RunE: func(c *cobra.Command, _ []string) error { return runExport(c, o) },
	}
	flags := c.Flags()
	flags.StringVar(&o.data, "data", "", "data directory of a server that does not run")
	flags.StringVar(&o.parquet, "parquet", "", "directory to write to")
	flags.StringVar(&o.from, "from", "", "begin: a time as in 2026-11-24T13:00:00Z, or how long ago, as in 24h (default: all)")
	flags.StringVar(&o.to, "to", "", "end, in the same forms (default: now)")
	flags.StringVar(&o.tenant, "tenant", "", "the tenant whose hosts are written")
	flags.StringVar(&o.bucket.bucket, "frame-bucket", "", "the bucket of older frames, as the server has it")
	flags.StringVar(&o.bucket.region, "frame-bucket-region", "", "its region (default: it is asked)")
	return c
}

// timeFlag is a time, or how long before now; the zero time for an empty one.
func timeFlag(flag, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(value); err == nil {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return at, usagef("--%s is %q, want a time as in 2026-11-24T13:00:00Z, or how long ago, as in 24h", flag, value)
	}
	return at, nil
}

func runExport(c *cobra.Command, o exportOptions) (err error) {
	if o.data == "" || o.parquet == "" {
		return usagef("export wants --data and --parquet")
	}
	now := time.Now()
	from, err := timeFlag("from", o.from, now)
	if err != nil {
		return err
	}
	to, err := timeFlag("to", o.to, now)
	if err != nil {
		return err
	}
	if !to.IsZero() && !from.Before(to) {
		return usagef("--from %s is not before --to %s", o.from, o.to)
	}
	log, err := o.open(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	progress, errOut := isTerminal(c.ErrOrStderr()), c.ErrOrStderr()
	frames, err := parquet.Export(c.Context(), log, o.tenant, o.parquet, from, to, func(hour, hours int) {
		if progress {
			fmt.Fprintf(errOut, "\r%d of %d hours", hour, hours)
		}
	})
	if progress {
		fmt.Fprint(errOut, "\r\033[K")
	}
	if err != nil {
		return err
	}
	if frames == 0 {
		return fmt.Errorf("there are no frames of this time in %q", o.data)
	}
	fmt.Fprintf(c.OutOrStdout(), "%s written to %s\n", plural(frames, "frame"), o.parquet)
	return nil
}

// open opens the log of the data directory, of which nothing is removed.
func (o *exportOptions) open(c *cobra.Command) (*framelog.Files, error) {
	log, err := logger(c)
	if err != nil {
		return nil, err
	}
	options := framelog.Options{TidyEvery: -1, Logger: log}
	if o.bucket.bucket != "" {
		if options.Bucket, err = o.bucket.openBucket(); err != nil {
			return nil, err
		}
	}
	dir := filepath.Join(o.data, framesDirectory)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%q has no frames: name the directory that \"outsight up\" or \"outsight server\" "+
			"wrote with --data", o.data)
	}
	opened, err := framelog.Open(dir, options)
	if errors.Is(err, framelog.ErrInUse) {
		return nil, fmt.Errorf("%w: stop that server first, or start it with --parquet %s: it then writes these files itself",
			err, o.parquet)
	}
	if err != nil {
		return nil, dataError{o.data, err}
	}
	return opened, nil
}
