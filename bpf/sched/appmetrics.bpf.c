//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Processes that announce a file with metrics of their own: a thread names itself "outsight:" and
 * the number of the file's descriptor, and takes its name back. A thread is named at each execve,
 * and else rarely.
 */
#include "include/kernel.h"
#include "include/cgroup_id.h"
#include "sched/appmetrics.h"
#include "sched/cgroups.h"

char LICENSE[] SEC("license") = "GPL";

/* The ring of cgroups.bpf.c. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} cgroup_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, APPMETRICS_DROPS);
	__type(key, u32);
	__type(value, u64);
} appmetrics_drops SEC(".maps");

/* Announcements of a control group in the present second. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct appmetrics_second);
} appmetrics_seconds SEC(".maps");

/* Keeps the enumeration in the object for the reader. */
const volatile enum appmetrics_drop appmetrics_drop_type;

static __always_inline void count_drop(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&appmetrics_drops, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

/*
 * Whether a group may announce one more: a program that does nothing else must not fill the ring. It may be one more for
 * each CPU, since Linux 5.10 has no addition that tells what there was.
 */
static __always_inline bool may_announce(u64 group, u64 now_ns)
{
	struct appmetrics_second fresh = {now_ns, 1};
	struct appmetrics_second *known = bpf_map_lookup_elem(&appmetrics_seconds, &group);

	if (known && now_ns - known->since_ns < NS_PER_SECOND) {
		if (known->announced >= MAX_ANNOUNCED)
			return false;
		__sync_fetch_and_add(&known->announced, 1);
		return true;
	}
	bpf_map_update_elem(&appmetrics_seconds, &group, &fresh, BPF_ANY);
	return true;
}

/* The task is the one that is named, which another one of its process may do. */
SEC("tp_btf/task_rename")
int BPF_PROG(task_rename, struct task_struct *task, const char *name)
{
	const char prefix[] = "outsight:";
	char text[COMM_BYTES] = {};
	u64 group, now_ns;
	struct cgroup_event *event;

	if (bpf_probe_read_kernel_str(text, sizeof(text), name) <= (long)sizeof(prefix))
		return 0;
	if (__builtin_memcmp(text, prefix, sizeof(prefix) - 1))
		return 0;
	group = task_cgroup_id(task);
	now_ns = bpf_ktime_get_ns();
	if (!may_announce(group, now_ns)) {
		count_drop(DROP_METRICS_FILE);
		return 0;
	}
	event = bpf_ringbuf_reserve(&cgroup_events, sizeof(*event), 0);
	if (!event) {
		count_drop(DROP_METRICS_FILE);
		return 0;
	}
	event->id = group;
	event->time_ns = now_ns;
	event->kind = METRICS_FILE;
	event->pid = task->tgid;
	__builtin_memset(event->path, 0, sizeof(event->path));
	__builtin_memcpy(event->path, text, sizeof(text));
	bpf_ringbuf_submit(event, 0);
	return 0;
}
