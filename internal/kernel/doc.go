// Package kernel loads the kernel programs, whose sources are in bpf, and reads what they count. It is the only
// importer of cilium/ebpf; no other package sees its types.
//
// Each program is optional by itself: one that the kernel refuses costs one feature, which
// Features names. The programs are held by file descriptors alone, so they end with the process,
// however it ends, and leave nothing behind.
package kernel
