//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * What is read and written by system calls (read, write and their kin, sendfile), per control
 * group. The kernel counts it for each thread itself (/proc/<pid>/io has it), so no call needs a
 * hook: an iterator adds what threads have gained since its last scan, and the end of a thread what
 * is left.
 */
#include "include/kernel.h"
#include "block/files.h"
#include "include/cgroup_id.h"
#include "include/threads.h"
#include "sched/cgroup_maps.h"
#include "sched/cgroups.h"

char LICENSE[] SEC("license") = "GPL";

/*
 * Set by the loader: when the counting began, on the monotonic clock. Older threads count from then
 * on.
 */
const volatile u64 began_ns = 0;

/* Indexed as cgroup_slots is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct file_counts);
} files_of_slot SEC(".maps");

/* What a thread had read and written at the last scan. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct file_counts);
} counted_of_thread SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FILES_DROPS);
	__type(key, u32);
	__type(value, u64);
} files_drops SEC(".maps");

/* Keeps the enumeration in the object for the reader. */
const volatile enum files_drop files_drop_type;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_io_accounting {
	u64 rchar;
	u64 wchar;
	u64 syscr;
	u64 syscw;
};

struct task_struct___io {
	unsigned int flags;
	u64 start_time;
	struct task_io_accounting ioac;
};

#pragma clang attribute pop

#define PF_EXITING 4
#define PF_KTHREAD 0x200000

/* A scan that the thread's end overtakes must not count the same twice, hence the exchange. */
static __always_inline u64 exchange(u64 *counted, u64 now)
{
	return __sync_lock_test_and_set(counted, now);
}

static __always_inline void count_gained(u64 *sum, u64 *counted, u64 now)
{
	u64 gained = now - exchange(counted, now);

	if (gained)
		__sync_fetch_and_add(sum, gained);
}

static __always_inline void count_thread(struct task_struct *task, struct file_counts *counted)
{
	struct task_struct___io *io = (void *)task;
	struct file_counts now = {io->ioac.rchar, io->ioac.wchar, io->ioac.syscr, io->ioac.syscw};
	struct file_counts none = {};

	if (!counted)
		counted = &none;
	else if (now.reads == counted->reads && now.writes == counted->writes &&
		 now.read_bytes == counted->read_bytes && now.write_bytes == counted->write_bytes)
		return;
	u64 id = task_cgroup_id(task);
	u32 *found = bpf_map_lookup_elem(&slot_of_cgroup, &id);
	u32 slot = found ? *found : CGROUP_SLOT_OTHER;
	struct file_counts *sum = bpf_map_lookup_elem(&files_of_slot, &slot);
	if (!sum)
		return;
	count_gained(&sum->read_bytes, &counted->read_bytes, now.read_bytes);
	count_gained(&sum->write_bytes, &counted->write_bytes, now.write_bytes);
	count_gained(&sum->reads, &counted->reads, now.reads);
	count_gained(&sum->writes, &counted->writes, now.writes);
}

static __always_inline bool is_older(struct task_struct *task)
{
	return ((struct task_struct___io *)task)->start_time < began_ns;
}

static __always_inline void scan_thread(struct task_struct *task)
{
	struct task_struct___io *io = (void *)task;

	if (io->flags & (PF_EXITING | PF_KTHREAD))
		return;
	struct file_counts *counted = bpf_task_storage_get(&counted_of_thread, task, 0, 0);
	if (!counted) {
		/* One that has done nothing yet needs no memory. */
		if (!is_older(task) && !io->ioac.syscr && !io->ioac.syscw && !io->ioac.rchar &&
		    !io->ioac.wchar)
			return;
		counted = bpf_task_storage_get(&counted_of_thread, task, 0,
					       BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!counted) {
			u32 which = DROP_FILES_THREAD;
			u64 *n = bpf_map_lookup_elem(&files_drops, &which);

			if (n)
				__sync_fetch_and_add(n, 1);
			return;
		}
		if (is_older(task)) {
			counted->read_bytes = io->ioac.rchar;
			counted->write_bytes = io->ioac.wchar;
			counted->reads = io->ioac.syscr;
			counted->writes = io->ioac.syscw;
			return;
		}
	}
	count_thread(task, counted);
}

SEC("syscall")
int scan_all_files(void *ctx)
{
	struct bpf_iter_task threads;
	struct task_struct *task;

	bpf_rcu_read_lock();
	bpf_iter_task_new(&threads, NULL, BPF_TASK_ITER_ALL_THREADS);
	while ((task = bpf_iter_task_next(&threads)))
		scan_thread(task);
	bpf_iter_task_destroy(&threads);
	bpf_rcu_read_unlock();
	return 0;
}

SEC("iter/task")
int scan_files(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task)
		return 0;
	scan_thread(task);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int files_at_exit(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct file_counts *counted = bpf_task_storage_get(&counted_of_thread, task, 0, 0);

	/* Without storage it is a thread that no scan has seen: all that it did is new. */
	if (counted || !is_older(task))
		count_thread(task, counted);
	return 0;
}
