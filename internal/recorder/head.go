package recorder

import (
	"strings"
	"time"

	"outsight/internal/csvy"
	"outsight/internal/model"
)

// HeadOf is what is known of a container, of control groups of that version. The wall clock showed
// started when the monotonic one showed monotonicNS.
func HeadOf(c *model.Container, version int, started time.Time, monotonicNS uint64) csvy.Head {
	provider := string(c.Runtime)
	if c.PodUID != "" {
		provider = "kubernetes"
	}
	return csvy.Head{
		Provider: provider, CgroupVersion: version, Cgroup: c.CgroupPath, Driver: driver(c.CgroupPath),
		Started: started, MonotonicNS: monotonicNS, Polled: c.Started,
		Container: csvy.Container{
			ID: c.ID, Name: c.Name, Image: c.Image, Labels: c.Labels, Runtime: string(c.Runtime),
			Created: c.Started, Started: c.Started, PodUID: c.PodUID, PodName: c.PodName, PodNamespace: c.PodNamespace,
			QOSClass: qosClass(c),
		},
	}
}

// driver reports who made a control group, by its path.
func driver(path string) string {
	if strings.Contains(path, ".slice") || strings.HasSuffix(path, ".scope") || strings.HasSuffix(path, ".service") {
		return "systemd"
	}
	return "cgroupfs"
}

// qosClass of a pod is in the path, too: a guaranteed pod lies directly below the others' parents.
func qosClass(c *model.Container) string {
	switch {
	case c.PodUID == "":
		return ""
	case strings.Contains(c.CgroupPath, "besteffort"):
		return "BestEffort"
	case strings.Contains(c.CgroupPath, "burstable"):
		return "Burstable"
	}
	return "Guaranteed"
}
