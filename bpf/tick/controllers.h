/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* What the memory and CPU controllers know of a group. */
#ifndef OUTSIGHT_CONTROLLERS_H
#define OUTSIGHT_CONTROLLERS_H

#include "include/kernel.h"
#include "tick/recorder_maps.h"

#define PF_EXITING 4

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct___flags {
	unsigned int flags;
};

struct cgroup___states {
	struct cgroup_subsys_state *subsys[16];
};

struct kernfs_node___name {
	const char *name;
};

typedef struct {
	s64 counter;
} atomic_long_t;

struct page_counter {
	atomic_long_t usage;
};

struct mem_cgroup {
	struct page_counter memory;
};

struct cfs_bandwidth {
	u64 quota;
	int nr_throttled;
	u64 throttled_time;
};

struct task_group {
	struct cfs_bandwidth cfs_bandwidth;
};

#pragma clang attribute pop

/* Both structures begin with the controller's state (css), whose address is theirs. */
static __always_inline struct cgroup_subsys_state *
state_at(struct cgroup_subsys_state **subsys, s32 i)
{
	switch (i) {
	case 0: return subsys[0];
	case 1: return subsys[1];
	case 2: return subsys[2];
	case 3: return subsys[3];
	case 4: return subsys[4];
	case 5: return subsys[5];
	case 6: return subsys[6];
	case 7: return subsys[7];
	}
	return NULL;
}

#define GROUP_NAME_BYTES 72 /* a container's ID of 64 digits, and no more than the stack bears */

/* Name of a group. */
static __always_inline void read_name(u64 *name, u64 group)
{
	u64 node = 0, text = 0;

	bpf_probe_read_kernel(&node, sizeof(node),
			      (void *)group + bpf_core_field_offset(struct cgroup, kn));
	bpf_probe_read_kernel(&text, sizeof(text),
			      (void *)node + bpf_core_field_offset(struct kernfs_node___name, name));
	bpf_probe_read_kernel_str(name, GROUP_NAME_BYTES, (void *)text);
}

/*
 * Of another hierarchy, the group with the same name is the container's. A function of its own is
 * verified once, and not for each way to its call.
 */
__noinline int same_name(u64 a, u64 b)
{
	u64 name_a[GROUP_NAME_BYTES / 8] = {}, name_b[GROUP_NAME_BYTES / 8] = {};

	read_name(name_a, a);
	read_name(name_b, b);
	for (int i = 0; i < GROUP_NAME_BYTES / 8; i++)
		if (name_a[i] != name_b[i])
			return 0;
	return 1;
}

/* Whether a controller's state is of that group. */
static __always_inline bool is_of_group(struct cgroup_subsys_state *state, u64 group)
{
	u64 own = 0;

	if (!state || bpf_probe_read_kernel(&own, sizeof(own), &state->cgroup))
		return false;
	return own == group || same_name(own, group);
}

#define NO_QUOTA (~0ULL)

/* Is false where the kernel does not count it. */
static __always_inline bool read_throttled(u64 cpu, u64 *ns, u32 *periods)
{
	return bpf_core_field_exists(struct task_group, cfs_bandwidth.throttled_time) &&
	       !bpf_probe_read_kernel(ns, sizeof(*ns), (void *)cpu +
			bpf_core_field_offset(struct task_group, cfs_bandwidth.throttled_time)) &&
	       !bpf_probe_read_kernel(periods, sizeof(*periods), (void *)cpu +
			bpf_core_field_offset(struct task_group, cfs_bandwidth.nr_throttled));
}

static __always_inline bool has_quota(u64 cpu)
{
	u64 quota = NO_QUOTA;

	bpf_probe_read_kernel(&quota, sizeof(quota), (void *)cpu +
			      bpf_core_field_offset(struct task_group, cfs_bandwidth.quota));
	return quota != NO_QUOTA;
}

static __always_inline bool is_leaving(struct task_struct *task)
{
	return *(volatile u32 *)&((struct task_struct___flags *)task)->flags & PF_EXITING;
}

#define SCAN_INTERVAL_NS 500000000ULL /* the iterator runs once a second */

#endif
