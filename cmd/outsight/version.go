package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// versions are what a report of a fault should name.
type versions struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	// Changed: the sources were not those of the commit.
	Changed bool   `json:"changed,omitempty"`
	Go      string `json:"go"`
	Kernel  string `json:"kernel"`
	Arch    string `json:"arch"`
}

func newVersion() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Versions of this program, of what built it, and of the kernel",
		Example: `  outsight version
  outsight version --output json | jq -r .commit`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			v := readVersions()
			if output == "json" {
				return json.NewEncoder(c.OutOrStdout()).Encode(v)
			}
			commit := v.Commit
			if v.Changed {
				commit += " (changed)"
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "outsight %s\ncommit   %s\ngo       %s\nkernel   %s\narch     %s\n",
				v.Version, commit, v.Go, v.Kernel, v.Arch)
			return err
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

func readVersions() versions {
	v := versions{Version: version(), Go: runtime.Version(), Kernel: "unknown", Arch: runtime.GOARCH}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Changed = s.Value == "true"
			}
		}
	}
	v.Commit = cmp.Or(v.Commit, "unknown")
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		v.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return v
}
