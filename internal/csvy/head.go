package csvy

import (
	"slices"
	"time"
)

// Kinds of columns: a counter only grows, a gauge is a level.
const (
	Counter = "counter"
	Gauge   = "gauge"
)

// Sources of columns: the kernel lane, sampled by a timer in the kernel, or the control group's
// files.
const (
	FromKernel = "kernel"
	FromFile   = "file"
)

// Column of a recording.
type Column struct {
	// Name is the key; Unit is "ns", "By", "1" and the like.
	Name, Unit string
	// Type is Counter or Gauge, Source is FromKernel or FromFile.
	Type, Source string
}

// Head is what a file says about itself.
type Head struct {
	// Version of the program that wrote it. Provider is what the target was found by: "docker",
	// "kubernetes" and the like.
	Version, Provider string
	Container         Container
	Host              Host
	// CgroupVersion is 1 or 2; Cgroup is the path of the control group, Driver who made it:
	// "systemd" or "cgroupfs".
	CgroupVersion  int
	Cgroup, Driver string
	// Interval of the kernel lane, FileInterval of the file lane; 0 if not known.
	Interval, FileInterval time.Duration
	// Started is the wall clock's time at which the monotonic clock showed MonotonicNS: together
	// they turn due_ns into a time that no step of the wall clock moves.
	Started     time.Time
	MonotonicNS uint64
	// Polled is when the container was found.
	Polled time.Time
	// Part counts the files of one recording of one container, from 1.
	Part int
	// Columns in the order of the values of a row, without the time.
	Columns []Column
}

// Index of the column with the name, -1 if there is none.
func (h *Head) Index(name string) int {
	return slices.IndexFunc(h.Columns, func(c Column) bool { return c.Name == name })
}

// Name of the container for people: its name, or as much of its ID as it takes.
func (h *Head) Name() string {
	c := &h.Container
	switch {
	case c.Name != "" && c.PodName != "" && c.Name != c.PodName:
		return c.PodName + "/" + c.Name
	case c.Name != "":
		return c.Name
	case c.PodName != "":
		return c.PodName
	}
	return c.Key()[:min(12, len(c.Key()))]
}

// Container that a file is about. What is not known is empty.
type Container struct {
	ID, Name, Image, Command, Status, Runtime string
	Labels                                    map[string]string
	Created, Started                          time.Time
	// PodUID and what follows is set for containers of a Kubernetes pod.
	PodUID, PodName, PodNamespace string
	QOSClass, Phase, HostIP       string
}

// Key tells the containers of a host apart: the ID, or the pod's where the target was a pod.
func (c *Container) Key() string {
	if c.ID != "" {
		return c.ID
	}
	return c.PodUID
}
