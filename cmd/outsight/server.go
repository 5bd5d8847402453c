package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/agent"
	"outsight/internal/api"
)

func newServer() *cobra.Command {
	var address, data string
	var retention time.Duration
	var secure secureFlags
	c := &cobra.Command{
		Use:   "server",
		Short: "Serve the page and the query API over what was kept, without watching",
		Long: `Serve the page and the Prometheus-compatible query API over a data directory that
"outsight up" has written, for instance one that was copied from another host. Watches nothing and
needs no root.`,
		Example: `  outsight server --data ./copied-from-web-1`,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := logger(c)
			if err != nil {
				return err
			}
			if retention <= 0 {
				return usagef("--retention is %v, want more than nothing", retention)
			}
			// A misspelt name must not become an empty directory.
			if _, err := os.Stat(data); err != nil {
				return dataError{data, fmt.Errorf("looking for the data directory: %w", err)}
			}
			limitMemory(upMemory)
			access, err := secure.open(log, address)
			if err != nil {
				return err
			}
			page, err := access.listen(address)
			if err != nil {
				return err
			}
			defer page.Close()
			store, err := openStore(data, retention, log)
			if err != nil {
				return err
			}
			defer store.Close()
			handler := api.New(store, api.Options{
				Prometheus: api.Prometheus(store), Auth: access.auth,
				Sources: []string{"data directory " + data}, Version: version(), Logger: log,
			})
			out, url := c.OutOrStdout(), pageURL(page, access)
			fmt.Fprintf(out, "Serving what was kept in %s\n  page     %s\n", data, url)
			stats := store.Stats()
			if stats.Newest.IsZero() {
				fmt.Fprintln(out, "  data     none yet")
			} else {
				fmt.Fprintf(out, "  data     %s to %s\n", stats.Oldest.Format(time.DateTime), stats.Newest.Format(time.DateTime))
			}
			fmt.Fprintln(out, "Ctrl-C ends it.")
			return agent.ServeHTTP(c.Context(), page, handler, log)
		},
	}
	secure.add(c)
	c.Flags().StringVar(&address, "listen", api.DefaultAddress, "address of the page and the API")
	c.Flags().StringVar(&data, "data", defaultData, "directory that keeps what was seen")
	// What was copied here to be looked at must not be deleted because it is old.
	c.Flags().DurationVar(&retention, "retention", 10*365*24*time.Hour, "remove what is older")
	return c
}
