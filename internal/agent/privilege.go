package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"outsight/internal/model"
)

// ErrPrivilege says that this process may not do the main job.
var ErrPrivilege = errors.New("missing privilege")

// Numbers of Linux capabilities.
const (
	capSysPtrace = 19
	capSysAdmin  = 21
	capPerfmon   = 38
	capBPF       = 39
)

// Privileges are the capabilities that this process has.
type Privileges uint64

// ReadPrivileges reads the effective capabilities from procfs at procRoot (default /proc).
func ReadPrivileges(procRoot string) (Privileges, error) {
	b, err := os.ReadFile(cmp.Or(procRoot, "/proc") + "/self/status")
	if err != nil {
		return 0, fmt.Errorf("reading the own capabilities: %w", err)
	}
	return parsePrivileges(string(b))
}

func parsePrivileges(status string) (Privileges, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return 0, fmt.Errorf("reading the own capabilities: %w", err)
			}
			return Privileges(n), nil
		}
	}
	return 0, errors.New("reading the own capabilities: no CapEff in the process's status")
}

func (p Privileges) has(capability int) bool { return p&(1<<capability) != 0 }

// missing are the capabilities without which no kernel program can be loaded. CAP_SYS_ADMIN
// stands for both, as it does on kernels before 5.8, which have neither.
func (p Privileges) missing() []string {
	if p.has(capSysAdmin) {
		return nil
	}
	var names []string
	if !p.has(capBPF) {
		names = append(names, "CAP_BPF")
	}
	if !p.has(capPerfmon) {
		names = append(names, "CAP_PERFMON")
	}
	return names
}

// Check is ErrPrivilege, with the capabilities that are missing, where kernel programs cannot
// be loaded.
func (p Privileges) Check() error {
	missing := p.missing()
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s (to load kernel programs)", ErrPrivilege, strings.Join(missing, " and "))
}

// enters reports whether the network namespaces of containers can be entered, by a pidfd.
func (p Privileges) enters() bool { return p.has(capSysAdmin) && p.has(capSysPtrace) }

// Features are the privileges as features.
func (p Privileges) Features() []model.Feature {
	load := model.Feature{
		Name: "CAP_BPF+CAP_PERFMON", Purpose: "loading kernel programs", State: model.FeatureWorks, Required: true,
	}
	if missing := p.missing(); missing != nil {
		load.State, load.Reason = model.FeatureAbsent, "this process lacks "+strings.Join(missing, " and ")
		load.Remedy = "run it as root, or give the program these capabilities"
	}
	inspect := model.Feature{
		Name: "CAP_SYS_PTRACE", Purpose: "network addresses and interface counters of containers, applications' own metrics", State: model.FeatureWorks,
	}
	if !p.has(capSysPtrace) {
		inspect.State, inspect.Reason = model.FeatureAbsent, "this process lacks it"
		inspect.Remedy = "run it as root, or give the program this capability"
	}
	enter := model.Feature{Name: EnterFeature, State: model.FeatureWorks,
		Purpose: "the network between containers of two hosts, from inside their network namespaces"}
	if !p.enters() {
		enter.State, enter.Reason = model.FeatureAbsent, "this process lacks CAP_SYS_ADMIN, CAP_SYS_PTRACE or both"
		enter.Remedy = "run it as root, or with namespaces.conf or namespaces.yaml of deploy/"
	}
	return []model.Feature{load, inspect, enter}
}

// Drops are none: it is a Reporter for its features.
func (p Privileges) Drops() []model.Drop { return nil }

// EnterFeature is the name of the feature that needs to enter network namespaces of containers.
const EnterFeature = "setns"
