// Package container knows who runs on this host: every container of Docker, containerd, CRI-O
// and Podman, every systemd service when asked, and what else runs on the host, which is a container
// too so that the parts add up to the whole.
//
// Detect finds the control group hierarchies, Identify reports what a group's path means, and a
// Registry keeps the containers. The Registry lives on lifecycle events of the kernel
// (HandleEvent): a container is known, under the first 12 digits of its id, as soon as its
// group is made. Names, images and labels follow without anybody waiting for them: from the
// Docker socket, or from the files that containerd, CRI-O and Podman leave on disk. Lost events
// are made good by a walk of the hierarchy every 30 seconds.
//
// Files reads what the control group files of the containers say: memory, disk, threads,
// throttling, and the interface counters of their network namespaces.
//
// # Docker without its client library
//
// Four endpoints of the Engine API are used (/info, /containers/json, /containers/{id}/json and
// /events), over plain HTTP on the unix socket. The paths carry no version, so every engine
// answers in its own newest one; the few fields read here have been the same since API 1.24.
// The official client would add several megabytes and a dozen modules to a binary that runs as
// root on every host.
//
// # Network namespaces without entering them
//
// Addresses come from /proc/<pid>/net/fib_trie and if_inet6, interface counters from
// /proc/<pid>/net/dev. A netlink socket in another namespace would need a thread that enters it,
// and a thread that cannot return must be thrown away. A held directory descriptor of
// /proc/<pid> keeps a reused pid from being mistaken for the process it replaced, and does not
// keep the namespace alive when the container ends.
//
// # What the numbers do not hold
//
// On cgroup v1 the kernel does not attribute buffered writes to a group: disk writes there are
// direct and synchronous ones. Kernels since 6.10 count a v1 group's block I/O only on devices
// on which some group has (or had) a throttling rule: where the hierarchy's root shows no
// device, disk numbers are absent, not zero. A volume of a device mapper and the disk
// below it both count.
//
// The memory, disk and thread numbers of a container that itself runs containers include
// theirs, as the kernel's files do; scheduler counters do not. Containers that share a network
// namespace (a Kubernetes pod) all show the counters of that namespace.
//
// # Cost
//
// All files are read at every reading, through descriptors that stay open and without
// allocation; BenchmarkRead measures the CPU time for fifty containers. memory.stat and the
// interface counters are most of it, and still too cheap to be read less often, which would make
// steps of their rates. Only the limit of a v2 group, a file of its own, is read at every eighth.
//
// The package expects to see the host's control groups and processes: run it in the host's
// cgroup and pid namespaces.
package container
