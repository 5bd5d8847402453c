/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The tables of groups.bpf.c, what its loader sets, and the kernel's types that it alone uses. */
#ifndef OUTSIGHT_GROUPS_MAPS_H
#define OUTSIGHT_GROUPS_MAPS_H

#include "include/kernel.h"
#include "groups/groups.h"
#include "include/timer.h"

#define MAX_PRESSURE_CPUS 128 /* as below */
#define MAX_STAT_CPUS 16 /* with more, to add up the CPUs' counters costs more than to read the file */

/* Set by the loader. Indices in css_set.subsys; -1 where the kernel has no such controller. */
const volatile s32 memory_index = -1;
const volatile s32 cpu_index = -1;
const volatile s32 pids_index = -1;
const volatile u32 cpus = 1;
const volatile u32 page_bytes = 4096;
const volatile u64 jiffy_ns = 4000000;

/* Keep the enumerations in the object for the reader. */
const volatile enum group_figure group_figure_type;
const volatile enum group_controller group_controller_type;
const volatile enum group_pressure group_pressure_type;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct watched_group);
} watched_groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct group_figures);
} figures_of_group SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct group_details);
} details_of_group SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct flushed_stat);
} flushed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct figures_control);
} figures_controls SEC(".maps");

struct figures_timer {
	struct bpf_timer timer;
	u64 due_ns;
	u32 next; /* the first slot of the next slice */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct figures_timer);
} figures_timers SEC(".maps");

/* For whoever has set figures_control.taking. */
struct stat_scratch {
	s64 flushed[STAT_WORDS];
	s64 sum[STAT_WORDS];
	s64 part[STAT_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stat_scratch);
} scratch SEC(".maps");

/* Shows how far apart the CPUs' copies of a variable are. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} anchor SEC(".maps");

u64 anchor_address;
u64 cpu_offsets[MAX_PRESSURE_CPUS];

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

struct cgroup_subsys_state___tree {
	struct cgroup_subsys_state *parent;
	struct list_head children;
};

typedef struct {
	s64 counter;
} atomic_long_t;

typedef struct {
	s64 counter;
} atomic64_t;

struct page_counter {
	atomic_long_t usage;
	unsigned long max;
};

struct memcg_vmstats {
	long state[1];
	unsigned long events[1];
	long state_pending[1];
	unsigned long events_pending[1];
};

struct memcg_vmstats_percpu {
	long state[1];
	unsigned long events[1];
	long state_prev[1];
	unsigned long events_prev[1];
};

enum memcg_memory_event {
	MEMCG_OOM_KILL = 4,
};

struct mem_cgroup {
	struct page_counter memory;
	struct memcg_vmstats *vmstats;
	struct memcg_vmstats_percpu *vmstats_percpu;
	atomic_long_t memory_events[9];
};

struct cfs_bandwidth {
	s64 period;
	u64 quota;
	int nr_periods;
	int nr_throttled;
	u64 throttled_time;
};

struct task_group {
	struct cfs_bandwidth cfs_bandwidth;
};

struct pids_cgroup {
	atomic64_t counter;
	atomic64_t limit;
};

enum psi_states {
	PSI_NONIDLE = 6,
};

struct psi_group_cpu {
	u32 state_mask;
	u32 times[1];
	u64 state_start;
	u32 times_prev[1];
};

struct psi_group {
	bool enabled;
	struct psi_group_cpu *pcpu;
	u64 total[1];
};

struct cgroup___pressure {
	struct psi_group *psi;
};

struct bpf_array {
	void *pptrs[0];
};

#pragma clang attribute pop

#endif
