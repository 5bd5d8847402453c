package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/agent"
	"outsight/internal/container"
	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/model"
)

// report is what doctor found.
type report struct {
	// Works is true where the main job can be done: containers, their cost, who talks to whom.
	Works    bool            `json:"works"`
	Host     reportHost      `json:"host"`
	Features []reportFeature `json:"features"`
	// BoundsOf says whose tables Bounds are: those of the agent that runs, or else of the attempt.
	BoundsOf string        `json:"bounds_of,omitempty"`
	Bounds   []reportBound `json:"bounds"`
}

// reportBound is a table that can be full.
type reportBound struct {
	Name string `json:"name"`
	// Used and Capacity in entries; 0 where they do not apply. Dropped is what found no room.
	Used     uint64 `json:"used"`
	Capacity uint64 `json:"capacity"`
	Dropped  uint64 `json:"dropped"`
}

type reportHost struct {
	Name         string `json:"name"`
	Kernel       string `json:"kernel"`
	Cores        int    `json:"cores"`
	MemoryBytes  uint64 `json:"memory_bytes"`
	CgroupLayout string `json:"cgroup_layout"`
}

type reportFeature struct {
	Name     string             `json:"name"`
	Purpose  string             `json:"purpose"`
	State    model.FeatureState `json:"state"`
	Required bool               `json:"required"`
	Reason   string             `json:"reason,omitempty"`
	Remedy   string             `json:"remedy,omitempty"`
}

func newDoctor() *cobra.Command {
	var output string
	var watch watchFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "What works on this host, and what the others would take",
		Long: `Try each kernel hook, counter, runtime and control group controller once and say whether it
works here; where it does not, why, and what it would take. Then show how full each bounded table is,
of the agent that runs on this host if there is one. Exit code 1 if the main job cannot be done.`,
		Example: `  sudo outsight doctor
  sudo outsight doctor --output json | jq '.bounds[] | select(.dropped > 0)'
  sudo outsight doctor --output json | jq '.features[] | select(.state != "works")'`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			cluster, absent, err := watch.kubernetes.cluster(discard())
			if err != nil {
				return err
			}
			options, err := watch.host(discard())
			if err != nil {
				return err
			}
			options.Kubernetes = nil // the whole cluster is asked below
			r := examine(c.Context(), options)
			if cluster != nil {
				r.add(cluster.Check(c.Context())...)
			} else {
				r.add(absent)
			}
			if err := c.Context().Err(); err != nil {
				return err
			}
			r.addBounds(c.Context(), watch.socketOf())
			if err := r.write(c.OutOrStdout(), output); err != nil {
				return err
			}
			if r.Works {
				return nil
			}
			for _, f := range r.Features {
				if f.Required && f.State != model.FeatureWorks {
					fmt.Fprintf(c.ErrOrStderr(), "outsight: the main job cannot be done: %s: %s\n", f.Name, f.Reason)
					break
				}
			}
			return errSaid
		},
	}
	watch.add(c)
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

const (
	// tryTime is how long the runtimes are given to answer.
	tryTime = time.Second
	// snapshotTime is how long the first snapshot may take. Only what is broken takes as long.
	snapshotTime = 15 * time.Second
)

// examine tries everything.
func examine(ctx context.Context, options agent.HostOptions) report {
	layout, layoutErr := container.Detect(container.Options{})
	system, hostErr := agent.ReadHost("", layout.Name)
	r := report{Host: reportHost{
		Name: system.Name, Kernel: system.Kernel, Cores: system.Cores,
		MemoryBytes: system.MemoryBytes, CgroupLayout: layout.Name,
	}, Bounds: []reportBound{}}
	r.attempt("/proc", "what the host is", hostErr, "mount procfs at /proc")
	r.attempt("cgroups", "which containers run", layoutErr, "mount the control groups at /sys/fs/cgroup")
	host, err := agent.Open(options)
	switch {
	case errors.Is(err, agent.ErrPrivilege):
		// The privilege is a feature itself, and says more.
		if privileges, perr := agent.ReadPrivileges(""); perr == nil {
			r.add(privileges.Features()...)
		} else {
			r.attempt("privileges", "loading kernel programs", err, "run it as root")
		}
		if len(r.Features) > 0 && r.allRequiredWork() {
			r.attempt("kernel programs", "counting in the kernel", err, "run it as root in the host's user namespace")
		}
	case err != nil:
		r.attempt("kernel programs", "counting in the kernel", err, "a kernel of 5.8 or later with CONFIG_DEBUG_INFO_BTF=y")
	default:
		f, err := tryHost(ctx, host)
		r.attempt("snapshots", "reading all counters at once", err, "what is said of the kernel hooks below")
		r.add(host.Features()...)
		if f != nil {
			r.setBounds("this attempt", f)
		}
		host.Close()
	}
	r.Works = r.allRequiredWork()
	return r
}

// watcher is an agent, of this host or not.
type watcher interface {
	Run(context.Context) error
	Frame() *frame.Frame
	CountersError() error
}

// tryHost makes a frame; the error reports what is not in it, too.
func tryHost(ctx context.Context, host watcher) (*frame.Frame, error) {
	trying, cancel := context.WithTimeout(ctx, snapshotTime)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- host.Run(trying) }()
	begin := time.Now()
	for trying.Err() == nil && (host.Frame() == nil || time.Since(begin) < tryTime) {
		time.Sleep(pollInterval)
	}
	cancel()
	if err := <-ended; err != nil {
		return nil, err
	}
	f := host.Frame()
	if f == nil {
		return nil, fmt.Errorf("no snapshot was taken within %v", snapshotTime)
	}
	return f, host.CountersError()
}

// addBounds asks a running agent, whose tables say more than those of an attempt.
func (r *report) addBounds(ctx context.Context, socket string) {
	client := agent.NewClient(socket)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, snapshotTime)
	defer cancel()
	if f, err := client.Fetch(ctx); err == nil {
		r.setBounds("agent at "+socket, f)
	}
}

// maxBoundName is more than any name has, the name of a container included.
const maxBoundName = 512

func (r *report) setBounds(of string, f *frame.Frame) {
	r.BoundsOf, r.Bounds = of, []reportBound{}
	for _, d := range fleet.StatusOf(between(f, f)).Drops {
		name := model.Printable(d.Name, maxBoundName)
		r.Bounds = append(r.Bounds, reportBound{Name: name, Used: d.Used, Capacity: d.Capacity, Dropped: d.Count})
	}
}

func (r *report) allRequiredWork() bool {
	for _, f := range r.Features {
		if f.Required && f.State != model.FeatureWorks {
			return false
		}
	}
	return true
}

// attempt adds something required that was tried.
func (r *report) attempt(name, purpose string, err error, remedy string) {
	f := model.Feature{Name: name, Purpose: purpose, State: model.FeatureWorks, Required: true}
	if err != nil {
		f.State, f.Reason, f.Remedy = model.FeatureAbsent, err.Error(), remedy
	}
	r.add(f)
}

func (r *report) add(features ...model.Feature) {
	for _, f := range features {
		r.Features = append(r.Features, reportFeature{
			Name: f.Name, Purpose: f.Purpose, State: f.State, Required: f.Required, Reason: f.Reason, Remedy: f.Remedy,
		})
	}
}

func (r *report) write(out io.Writer, output string) error {
	if output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	width := 0
	for _, f := range r.Features {
		width = max(width, len(f.Name))
	}
	fmt.Fprintf(out, "%s · kernel %s · %d cores · cgroup %s\n\n", r.Host.Name, r.Host.Kernel, r.Host.Cores,
		cmp.Or(r.Host.CgroupLayout, "none"))
	indent := strings.Repeat(" ", width+11)
	absent := 0
	for _, f := range r.Features {
		need := ""
		if f.State == model.FeatureAbsent {
			absent++
			if f.Required {
				need = " (required)"
			}
		}
		fmt.Fprintf(out, "%-7s  %-*s  %s%s\n", f.State, width, f.Name, f.Purpose, need)
		if f.Reason != "" {
			fmt.Fprintf(out, "%swhy:    %s\n", indent, strings.ReplaceAll(f.Reason, "\n", "; "))
		}
		if f.Remedy != "" {
			fmt.Fprintf(out, "%sremedy: %s\n", indent, f.Remedy)
		}
	}
	r.writeBounds(out)
	verdict := "The main job can be done"
	if !r.Works {
		verdict = "The main job cannot be done"
	}
	_, err := fmt.Fprintf(out, "\n%s: %d of %d work.\n", verdict, len(r.Features)-absent, len(r.Features))
	return err
}

func (r *report) writeBounds(out io.Writer) {
	if len(r.Bounds) == 0 {
		return
	}
	width := 0
	for _, b := range r.Bounds {
		width = max(width, len(b.Name))
	}
	fmt.Fprintf(out, "\nBounded tables of %s\n%-*s  %12s  %12s  %12s\n", r.BoundsOf, width, "", "used", "capacity",
		"dropped")
	for _, b := range r.Bounds {
		used, capacity := fmt.Sprint(b.Used), fmt.Sprint(b.Capacity)
		if b.Capacity == 0 {
			capacity = "–"
			if b.Used == 0 {
				used = "–"
			}
		}
		fmt.Fprintf(out, "%-*s  %12s  %12s  %12d\n", width, b.Name, used, capacity, b.Dropped)
	}
}
