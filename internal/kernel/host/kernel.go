package host

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// Kernel is what loading depends on.
type Kernel struct {
	Types *btf.Cache
	CPUs  int
	// Subsys is the controller's index in css_set.subsys, -1 for the default hierarchy.
	Subsys int32
	// Memory and CPU are the indices of these controllers, -1 where the kernel has none.
	Memory, CPU int32
	// PIDs is that of the number of tasks.
	PIDs int32
	// IO is that of block I/O, also on v1, where people call it blkio.
	IO int32
	// Hierarchy is the id of the hierarchy in /proc/self/cgroup, 0 for the default one.
	Hierarchy uint32
	// SwitchHasState: sched_switch has the previous task's state as an argument (5.18).
	SwitchHasState bool
	// RequestIsSecond: block_rq_issue has the queue before the request (until 5.11).
	RequestIsSecond bool
	// RunQueueClock: a task leads to its run queue's clock (CONFIG_FAIR_GROUP_SCHED), and a
	// program can be run to compare it with the monotonic clock (5.14).
	RunQueueClock bool
	// SavedRegisters: a program finds the registers with which any task entered its system call (bpf_task_pt_regs, 5.15).
	SavedRegisters bool
	JiffyNS        uint64
}

// KernelOptions of ReadKernel.
type KernelOptions struct {
	// Controller names the cgroup v1 controller whose hierarchy identifies containers; empty is cgroup v2.
	Controller string
	// ProcFS is where procfs is mounted, BTF the kernel's description of its own types.
	ProcFS, BTF string
	// Types are the kernel's, if they are decoded already.
	Types *btf.Cache
}

// ReadKernel asks the running kernel.
func ReadKernel(o KernelOptions) (*Kernel, error) {
	if _, err := os.Stat(o.BTF); err != nil {
		return nil, fmt.Errorf("reading the kernel's types: %w (the kernel needs CONFIG_DEBUG_INFO_BTF=y)", err)
	}
	types := o.Types
	if types == nil {
		types = btf.NewCache()
	}
	spec, err := types.Kernel()
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's types: %w", err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("counting the possible CPUs: %w", err)
	}
	k := &Kernel{Types: types, CPUs: cpus, Subsys: -1, JiffyNS: jiffyNS(o.ProcFS),
		SwitchHasState: switchHasState(spec), RequestIsSecond: requestIsSecond(spec),
		SavedRegisters: hasHelper(spec, "task_pt_regs"),
		RunQueueClock:  HasMember(spec, "sched_entity", "cfs_rq") && features.HaveProgramType(ebpf.Syscall) == nil}
	for controller, index := range map[string]*int32{"memory": &k.Memory, "cpu": &k.CPU, "io": &k.IO,
		"pids": &k.PIDs} {
		if *index, err = subsysIndex(spec, controller); err != nil {
			*index = -1
		}
	}
	if o.Controller == "" {
		return k, nil
	}
	if k.Subsys, err = subsysIndex(spec, o.Controller); err != nil {
		return nil, err
	}
	k.Hierarchy, err = hierarchyID(o.ProcFS, o.Controller)
	return k, err
}

// switchHasState looks the arguments of sched_switch up: context, preempt, prev, next and, since
// kernel commit fa2c3254d7cf, prev_state.
func switchHasState(spec *btf.Spec) bool { return TracepointArguments(spec, "sched_switch") >= 5 }

// TracepointArguments is how many arguments a tracepoint has, the context included; 0 if there is none.
func TracepointArguments(spec *btf.Spec, name string) int {
	var proto *btf.Typedef
	if err := spec.TypeByName("btf_trace_"+name, &proto); err != nil {
		return 0
	}
	pointer, ok := proto.Type.(*btf.Pointer)
	if !ok {
		return 0
	}
	function, ok := pointer.Target.(*btf.FuncProto)
	if !ok {
		return 0
	}
	return len(function.Params)
}

// HasMember tells whether a structure of the kernel has it.
func HasMember(spec *btf.Spec, structure, member string) bool {
	var s *btf.Struct
	if err := spec.TypeByName(structure, &s); err != nil {
		return false
	}
	return slices.ContainsFunc(s.Members, func(m btf.Member) bool { return m.Name == member })
}

// hasHelper tells whether kernel programs have a helper, by its name in enum bpf_func_id.
func hasHelper(spec *btf.Spec, name string) bool {
	var helpers *btf.Enum
	if err := spec.TypeByName("bpf_func_id", &helpers); err != nil {
		return false
	}
	return slices.ContainsFunc(helpers.Values, func(v btf.EnumValue) bool { return v.Name == "BPF_FUNC_"+name })
}

func subsysIndex(spec *btf.Spec, controller string) (int32, error) {
	var ids *btf.Enum
	if err := spec.TypeByName("cgroup_subsys_id", &ids); err != nil {
		return 0, fmt.Errorf("looking up the kernel's cgroup controllers: %w", err)
	}
	for _, v := range ids.Values {
		if v.Name == controller+"_cgrp_id" {
			return int32(v.Value), nil
		}
	}
	return 0, fmt.Errorf("the kernel has no cgroup controller %q", controller)
}

// requestIsSecond looks the arguments of block_rq_issue up: context, the request, and before it the queue until
// 54d4e6ab91eb.
func requestIsSecond(spec *btf.Spec) bool {
	return TracepointArguments(spec, "block_rq_issue") == 3
}

// hierarchyID reads the id of a v1 controller's hierarchy from /proc/self/cgroup.
func hierarchyID(procfs, controller string) (uint32, error) {
	path := filepath.Join(procfs, "self", "cgroup")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("looking up the %s hierarchy: %w", controller, err)
	}
	id, err := findHierarchy(string(text), controller)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", path, err)
	}
	return id, nil
}

// findHierarchy finds the id in lines like "7:cpu,cpuacct:/docker/4f1d".
func findHierarchy(text, controller string) (uint32, error) {
	for line := range strings.Lines(text) {
		id, rest, _ := strings.Cut(line, ":")
		controllers, _, _ := strings.Cut(rest, ":")
		for c := range strings.SplitSeq(controllers, ",") {
			if c != controller {
				continue
			}
			n, err := strconv.ParseUint(id, 10, 32)
			if err != nil {
				return 0, fmt.Errorf("hierarchy of %s: %w", controller, err)
			}
			return uint32(n), nil
		}
	}
	return 0, fmt.Errorf("no hierarchy of controller %q", controller)
}

// jiffyNS is the length of a jiffy by the kernel's configuration; 4 ms (250 Hz, as most
// distributions have it) where that cannot be read.
func jiffyNS(procfs string) uint64 {
	const usual = 4_000_000
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return usual
	}
	for _, path := range []string{filepath.Join(procfs, "config.gz"), "/boot/config-" +
		unix.ByteSliceToString(name.Release[:])} {
		if hz, err := configuredHZ(path); err == nil && hz > 0 {
			return 1_000_000_000 / hz
		}
	}
	return usual
}

func configuredHZ(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var config io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if config, err = gzip.NewReader(f); err != nil {
			return 0, err
		}
	}
	for lines := bufio.NewScanner(config); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "CONFIG_HZ="); found {
			return strconv.ParseUint(value, 10, 32)
		}
	}
	return 0, fmt.Errorf("%s does not say CONFIG_HZ", path)
}

// DefaultTo is n, or d where n is nothing.
func DefaultTo(n, d int) int {
	if n <= 0 {
		return d
	}
	return n
}
