package model

import (
	"net/netip"
	"strings"
	"time"
)

// CgroupID is the kernfs id of a control group in the one hierarchy that the kernel programs
// use on this host (the default hierarchy, or the memory controller's on a v1 or hybrid host).
// It equals the inode number of the group's directory and is not used again until a reboot.
type CgroupID uint64

// Runtime names what started a container.
type Runtime string

// The runtimes that Outsight distinguishes.
const (
	Docker     Runtime = "docker"
	Containerd Runtime = "containerd"
	CRIO       Runtime = "cri-o"
	Podman     Runtime = "podman"
	// Systemd marks a systemd service that is watched like a container.
	Systemd Runtime = "systemd"
	// HostRuntime marks HostContainer.
	HostRuntime Runtime = "host"
)

// HostContainerID is the ID of the container that stands for everything on a host that runs
// in no container, so that the parts add up to the whole.
const HostContainerID = "host"

// Container is one watched container, systemd service, or what else runs on the host. It is
// immutable: a change (a rename, an address) makes a new Container with the same ID.
type Container struct {
	// ID is the runtime's full id (64 hex digits), a systemd unit's cgroup path, or
	// HostContainerID. It is the key on which every number of a container is joined.
	ID string
	// Name is what people call it: the Docker name, the Kubernetes container name, the unit.
	// Until the runtime has named it, it is the first 12 characters of ID.
	Name string
	// Image as the runtime names it; empty until known.
	Image   string
	Runtime Runtime
	// Labels as the runtime gives them; nil until known.
	Labels map[string]string
	// PodName, PodNamespace and PodUID are set for containers of a Kubernetes pod.
	PodName, PodNamespace, PodUID string
	// Workload is what people deployed that the pod belongs to, WorkloadKind what that is
	// ("Deployment"); empty where that is not known.
	Workload, WorkloadKind string
	// Placement is what is known of where it may run, as PlacementText writes it; empty for nothing.
	Placement string
	// CgroupPath is relative to the hierarchy's root and starts with a slash.
	CgroupPath string
	Cgroup     CgroupID
	// PID is the first process in the host's pid namespace, 0 until known.
	PID int
	// NetNS is the inode of the network namespace, 0 until known.
	NetNS uint32
	// Addresses of all interfaces in the network namespace, loopback excluded.
	Addresses []netip.Addr
	// Listeners are the TCP addresses on which it accepts connections.
	Listeners []netip.AddrPort
	Started   time.Time
	// Ended is zero while the container runs.
	Ended time.Time
}

// Named is false while Name is a part of ID, because no name is known yet.
func (c *Container) Named() bool { return c.Name != "" && !strings.HasPrefix(c.ID, c.Name) }

// PodIdentity is what Kubernetes calls a container. Fields that are not known are empty.
type PodIdentity struct {
	Namespace, Pod, Container, Workload, WorkloadKind string
	// Placement is what the pod says of where it may run, as PlacementText writes it.
	Placement string
}

// Host is what an agent watches.
type Host struct {
	Name        string
	Kernel      string
	Cores       int
	MemoryBytes uint64
	BootTime    time.Time
	// BootID is the kernel's random name of this boot, which stays where the clock is set; empty where it is not known.
	BootID       string
	CgroupLayout string // "v1", "v2" or "hybrid"
}

// NamedEnd is what Kubernetes calls an end of an edge that is known by its address. Fields that are not known are empty.
type NamedEnd struct {
	PodIdentity
	Node string
	// ServiceNamespace and Service are what the client asks for, of a server's end.
	ServiceNamespace, Service string
}
