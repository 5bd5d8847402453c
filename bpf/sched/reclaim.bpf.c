//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Short of memory: the time for which threads had to free memory themselves before they got some,
 * and whom the kernel killed because there was none. All of it is rare.
 */
#include "include/kernel.h"
#include "include/cgroup_id.h"
#include "sched/cgroup_maps.h"
#include "sched/cgroups.h"
#include "sched/reclaim.h"

char LICENSE[] SEC("license") = "GPL";

/* The ring of cgroups.bpf.c. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} cgroup_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct reclaim_group);
} reclaim_groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct reclaim_key);
	__type(value, u64);
} reclaiming SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RECLAIM_DROPS);
	__type(key, u32);
	__type(value, u64);
} reclaim_drops SEC(".maps");

/* Keeps the enumeration in the object for the reader. */
const volatile enum reclaim_drop reclaim_drop_type;

static __always_inline void count_drop(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&reclaim_drops, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

/* Who frees memory here is the thread that waits for it: "current" is right for once. */
static __always_inline int reclaim_begins(u32 cause)
{
	struct reclaim_key key = {(u32)bpf_get_current_pid_tgid(), cause};
	u64 now = bpf_ktime_get_ns();

	if (bpf_map_update_elem(&reclaiming, &key, &now, BPF_ANY))
		count_drop(DROP_RECLAIM);
	return 0;
}

static __always_inline int reclaim_ends(u32 cause)
{
	struct reclaim_key key = {(u32)bpf_get_current_pid_tgid(), cause};
	u64 *since = bpf_map_lookup_elem(&reclaiming, &key);

	if (!since)
		return 0;
	u64 stalled_ns = bpf_ktime_get_ns() - *since;
	bpf_map_delete_elem(&reclaiming, &key);

	u64 id = task_cgroup_id(bpf_get_current_task_btf());
	u32 *known = bpf_map_lookup_elem(&slot_of_cgroup, &id);
	u32 slot = known ? *known : CGROUP_SLOT_OTHER;
	struct reclaim_group *group = bpf_map_lookup_elem(&reclaim_groups, &slot);
	if (group) {
		__sync_fetch_and_add(&group->stall_ns[cause], stalled_ns);
		__sync_fetch_and_add(&group->stalls[cause], 1);
	}
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int limit_reclaim_begins(u64 *ctx)
{
	return reclaim_begins(RECLAIM_LIMIT);
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int limit_reclaim_ends(u64 *ctx)
{
	return reclaim_ends(RECLAIM_LIMIT);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int host_reclaim_begins(u64 *ctx)
{
	return reclaim_begins(RECLAIM_HOST);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int host_reclaim_ends(u64 *ctx)
{
	return reclaim_ends(RECLAIM_HOST);
}

/* Has the task as its argument since 6.10; before, only a number. */
SEC("tp_btf/mark_victim")
int BPF_PROG(mark_victim, struct task_struct *task)
{
	struct cgroup_event *event = bpf_ringbuf_reserve(&cgroup_events, sizeof(*event), 0);

	if (!event) {
		count_drop(DROP_VICTIM);
		return 0;
	}
	event->id = task_cgroup_id(task);
	event->time_ns = bpf_ktime_get_ns();
	event->kind = OOM_KILL;
	event->pid = task->tgid;
	if (bpf_probe_read_kernel_str(event->path, sizeof(task->comm), task->comm) < 0)
		event->path[0] = 0;
	bpf_ringbuf_submit(event, 0);
	return 0;
}
