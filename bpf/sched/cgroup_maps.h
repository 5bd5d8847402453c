/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Maps of cgroups.bpf.c that the recorder reads: both objects must declare them alike. */
#ifndef OUTSIGHT_CGROUP_MAPS_H
#define OUTSIGHT_CGROUP_MAPS_H

#include "include/kernel.h"
#include "sched/cgroups.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cgroup_lane);
} cgroup_lanes SEC(".maps");

/* Id of the group that owns a slot, 0 while it is free. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} cgroup_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u32);
} slot_of_cgroup SEC(".maps");

#endif
