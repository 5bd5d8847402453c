package container

import (
	"log/slog"
	"strings"
	"time"

	"outsight/internal/model"
)

// Options of this package; the zero value works on an ordinary host.
type Options struct {
	// ProcRoot and CgroupRoot are where the host's /proc and /sys/fs/cgroup are seen.
	ProcRoot, CgroupRoot string
	// DockerSocket is the Engine's unix socket, by default /var/run/docker.sock. It may be
	// absent and come later.
	DockerSocket string
	// TaskRoots are directories in which containerd keeps <namespace>/<id>/config.json of the
	// running containers.
	TaskRoots []string
	// StorageRoots are directories in which CRI-O and Podman keep <id>/userdata/config.json and
	// a containers.json.
	StorageRoots []string
	// All makes systemd services containers; otherwise they are part of the host.
	All bool
	// MaxContainers bounds the containers known at a time (default 4096), MaxGroups the control
	// groups (default 32768). What finds no room counts as the host's and in Drops.
	MaxContainers, MaxGroups int
	// Resync is the time between two walks of the hierarchy, by default 30 s.
	Resync time.Duration
	// Locate is the time between two looks for the network namespace and the addresses of a container that has long been
	// running, by default 15 s.
	Locate time.Duration
	// Pods reports what Kubernetes calls containers; nil where nobody knows.
	Pods Pods
	// Logger takes what a person should know; none by default.
	Logger *slog.Logger
}

// Pods reports what Kubernetes calls the containers of this host.
type Pods interface {
	// Identify is by the runtime's id and, if that is not known, by the pod's uid as the control
	// group's path has it.
	Identify(containerID, podUID string) (model.PodIdentity, bool)
	// Changed has a value after the answers may have changed.
	Changed() <-chan struct{}
}

const defaultDockerSocket = "/var/run/docker.sock"

// DockerSocket is the Engine's unix socket that the variable DOCKER_HOST, whose value is given,
// names, or else the default one: only a daemon on this host runs containers that are seen here.
func DockerSocket(dockerHost string) string {
	if path, ok := strings.CutPrefix(dockerHost, "unix://"); ok && path != "" {
		return path
	}
	return defaultDockerSocket
}

func (o Options) withDefaults() Options {
	set := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	set(&o.ProcRoot, "/proc")
	set(&o.CgroupRoot, defaultCgroupRoot)
	set(&o.DockerSocket, defaultDockerSocket)
	if o.TaskRoots == nil {
		o.TaskRoots = []string{
			"/run/containerd/io.containerd.runtime.v2.task",
			"/run/k3s/containerd/io.containerd.runtime.v2.task",
		}
	}
	if o.StorageRoots == nil {
		o.StorageRoots = []string{"/var/lib/containers/storage/overlay-containers"}
	}
	if o.MaxContainers <= 0 {
		o.MaxContainers = 4096
	}
	if o.MaxGroups <= 0 {
		o.MaxGroups = 32768
	}
	if o.Resync <= 0 {
		o.Resync = 30 * time.Second
	}
	if o.Locate <= 0 {
		o.Locate = 15 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
