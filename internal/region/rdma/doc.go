// Package rdma reads regions of other hosts by RDMA READ: the host's network card answers, out of the kernel's maps, and
// no process of the host runs for it. What calls libibverbs is a program of its own, outsight-rdma (rdma/), which a
// Server starts on the host and a Client beside the reader. docs/format/region-rdma.md has the bytes between all of them.
package rdma
