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
	"outsight/internal/model"
)

// report is what doctor found.
type report struct {
	// Works is true where the main job can be done: containers, their cost, who talks to whom.
	Works    bool            `json:"works"`
	Host     reportHost      `json:"host"`
	Features []reportFeature `json:"features"`
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
	c := &cobra.Command{
		Use:   "doctor",
		Short: "What works on this host, and what it would take for the rest",
		Long: `Try each kernel hook, counter, runtime and control group file once and tell whether it works
here; where it does not, why, and what it would take. Exit code 1 if the main job cannot be done.`,
		Example: `  sudo outsight doctor
  sudo outsight doctor --output json | jq '.features[] | select(.state != "works")'`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			r := examine(c.Context())
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
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

// tryTime is how long the runtimes are given to answer.
const tryTime = time.Second

// examine tries everything.
func examine(ctx context.Context) report {
	layout, layoutErr := container.Detect(container.Options{})
	machine, machineErr := agent.ReadHost("", layout.Name)
	r := report{Host: reportHost{
		Name: machine.Name, Kernel: machine.Kernel, Cores: machine.Cores,
		MemoryBytes: machine.MemoryBytes, CgroupLayout: layout.Name,
	}}
	r.attempt("/proc", "what the host is", machineErr, "mount procfs at /proc")
	r.attempt("cgroups", "which containers run", layoutErr, "mount the control groups at /sys/fs/cgroup")
	host, err := agent.Open(agent.HostOptions{})
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
		trying, cancel := context.WithTimeout(ctx, tryTime)
		err := host.Run(trying)
		cancel()
		r.attempt("snapshots", "reading all counters at once", err, "see --log debug")
		r.add(host.Features()...)
		r.add(fileFeatures(host)...)
		host.Close()
	}
	r.Works = r.allRequiredWork()
	return r
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

// fileFeatures reads the control group files of the containers that run and tells which kinds of
// numbers there are.
func fileFeatures(h *agent.Host) []model.Feature {
	containers := h.Containers()
	usages := make([]container.Usage, len(containers))
	h.Files.Read(containers, usages)
	kinds := []struct {
		name, purpose, remedy string
		there                 func(*container.Usage) bool
	}{
		{"files/memory", "memory and page faults per container", "enable the memory controller (cgroup_enable=memory)",
			func(u *container.Usage) bool { return u.Memory != nil }},
		{"files/cpu", "throttling by the container's CPU quota", "enable the cpu controller",
			func(u *container.Usage) bool { return u.Throttle != nil }},
		{"files/io", "disk reads and writes per container", "enable the io (blkio) controller; on cgroup v1 kernels since 6.10 count only devices with a throttling rule",
			func(u *container.Usage) bool { return u.Disk != nil }},
		{"files/pids", "threads per container", "enable the pids controller",
			func(u *container.Usage) bool { return u.Threads != nil }},
		{"files/net", "interface counters per container", "run with CAP_SYS_PTRACE",
			func(u *container.Usage) bool { return u.Network != nil }},
	}
	var features []model.Feature
	for _, k := range kinds {
		f := model.Feature{Name: k.name, Purpose: k.purpose, State: model.FeatureAbsent, Reason: "no container runs to try it on", Remedy: "start one and look again"}
		for i, c := range containers {
			if c.Runtime == model.HostRuntime {
				continue
			}
			if k.there(&usages[i]) {
				f.State, f.Reason, f.Remedy = model.FeatureWorks, "", ""
				break
			}
			f.Reason, f.Remedy = fmt.Sprintf("not to be had for container %s", c.Name), k.remedy
			if usages[i].Err != nil {
				f.Reason = usages[i].Err.Error()
			}
		}
		features = append(features, f)
	}
	return features
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
	fmt.Fprintf(out, "%s · kernel %s · %d cores · cgroup %s\n\n", r.Host.Name, r.Host.Kernel, r.Host.Cores, cmp.Or(r.Host.CgroupLayout, "none"))
	indent := strings.Repeat(" ", width+11)
	absent := 0
	for _, f := range r.Features {
		need := ""
		if f.State != model.FeatureWorks {
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
	verdict := "The main job can be done"
	if !r.Works {
		verdict = "The main job cannot be done"
	}
	_, err := fmt.Fprintf(out, "\n%s: %d of %d work.\n", verdict, len(r.Features)-absent, len(r.Features))
	return err
}
