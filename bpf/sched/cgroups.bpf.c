//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * CPU time, context switches, run-queue latency and process lifecycle per control group, and the
 * lifecycle of the groups themselves.
 */
#include "include/kernel.h"
#include "include/architecture.h"
#include "include/cgroup_id.h"
#include "include/histogram.h"
#include "sched/cgroup_maps.h"
#include "sched/cgroups.h"
#include "sched/run_queue_clock.h"

char LICENSE[] SEC("license") = "GPL";

/* What read_clocks says. */
struct clocks clocks_read;

/* Keeps the record's type in the object for its reader. */
const struct cgroup_event *cgroup_event_record __attribute__((unused));

/* Set by the loader before the programs are loaded. */
const volatile u32 cpus = 1;
const volatile u32 cgroup_hierarchy = 0;
/*
 * Take the time from the run queue's clock, which the scheduler has just read, and not from the
 * clock source: that costs more than the rest of what is done at a switch.
 */
const volatile bool use_run_queue_clock = false;
/*
 * Run-queue histograms of a group: a power of two, at most the number of CPUs. More of them keep
 * CPUs from waiting for each other's cache lines, which is most of what a shared one costs.
 */
const volatile u32 run_queue_lanes = 1;
/* sched_switch has the previous task's state as its fourth argument since 5.18. */
const volatile bool switch_has_state = true;
/*
 * Tasks have storage of their own (5.11). Without it the loader makes task_states a hash by thread
 * id, whose entries end at the thread's last switch.
 */
const volatile bool tasks_have_storage = true;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} run_queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} task_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct process_counts);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} cgroup_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CGROUP_DROPS);
	__type(key, u32);
	__type(value, u64);
} cgroup_drops SEC(".maps");

/* Keeps the enumerations in the object for the reader. */
const volatile enum cgroup_drop cgroup_drop_type;
const volatile enum cgroup_slot cgroup_slot_type;
const volatile enum cpu_architecture cpu_architecture_type;

static __always_inline void count_drop(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&cgroup_drops, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

static __noinline u32 new_slot(u64 id)
{
	u32 slot;

	if (bpf_map_pop_elem(&free_slots, &slot)) {
		count_drop(DROP_CGROUP_SLOT);
		return CGROUP_SLOT_OTHER;
	}
	/* The owner is known before the first count, and a reader skips slots without one. */
	bpf_map_update_elem(&cgroup_slots, &slot, &id, BPF_ANY);
	if (!bpf_map_update_elem(&slot_of_cgroup, &id, &slot, BPF_NOEXIST))
		return slot;

	/* Another CPU was first, or the table has no room. */
	u64 nobody = 0;
	bpf_map_update_elem(&cgroup_slots, &slot, &nobody, BPF_ANY);
	bpf_map_push_elem(&free_slots, &slot, BPF_ANY);
	u32 *theirs = bpf_map_lookup_elem(&slot_of_cgroup, &id);
	if (theirs)
		return *theirs;
	count_drop(DROP_CGROUP_SLOT);
	return CGROUP_SLOT_OTHER;
}

/*
 * The last thread of a group runs on for some microseconds after the group may be removed, or for
 * longer on a host whose CPUs are all busy. A removed group gets no slot: it would stay taken.
 */
static __always_inline u32 slot_of(struct cgroup *group)
{
	u64 id = group->kn->id;
	u32 *slot = bpf_map_lookup_elem(&slot_of_cgroup, &id);

	if (slot)
		return *slot;
	return group->self.flags & CSS_ONLINE ? new_slot(id) : CGROUP_SLOT_OTHER;
}

static __always_inline u32 cached_slot_of(struct cpu_state *cpu, struct cgroup *group)
{
	u64 id = group->kn->id;
	u32 entry = id % CGROUP_CACHE_ENTRIES;

	if (cpu->cached_id[entry] == id)
		return cpu->cached_slot[entry];
	u32 slot = slot_of(group);
	if (slot != CGROUP_SLOT_OTHER) {
		cpu->cached_id[entry] = id;
		cpu->cached_slot[entry] = slot;
	}
	return slot;
}

static __always_inline struct cgroup_lane *lane_of(u32 slot, u32 cpu)
{
	u32 lane = slot * cpus + cpu;

	return bpf_map_lookup_elem(&cgroup_lanes, &lane);
}

static __always_inline struct task_state *state_of(struct task_struct *task)
{
	if (tasks_have_storage)
		return bpf_task_storage_get(&task_states, task, 0, 0);
	u32 id = task->pid;
	return bpf_map_lookup_elem(&task_states, &id);
}

static __always_inline void count_faults(struct cgroup_lane *lane, struct task_state *task,
					 struct task_struct *prev)
{
	u64 minor = prev->min_flt, major = prev->maj_flt;

	lane->minor_faults += minor - task->minor_faults;
	lane->major_faults += major - task->major_faults;
	task->minor_faults = minor;
	task->major_faults = major;
}

/*
 * The kernel measures each task's run-queue wait itself (sched_info) and adds it right after the
 * task is switched in, and earlier for a part that it waited on a CPU that it was moved away from.
 * So what run_delay gained between two switches out is one wait, and no hook at wake-ups is needed.
 */
static __always_inline void count_wait(u32 slot, u32 cpu, struct cgroup_lane *lane,
				       struct task_state *task, struct task_struct *prev,
				       struct cpu_state *state)
{
	u64 run_delay_ns = prev->sched_info.run_delay;
	u64 waited_ns = run_delay_ns - task->run_delay_ns;
	bool waited = prev->sched_info.pcount != task->arrivals;
	task->run_delay_ns = run_delay_ns;
	task->arrivals = prev->sched_info.pcount;
	if (!waited)
		return;
	u32 index = slot * run_queue_lanes + cpu % run_queue_lanes;
	struct histogram *h = bpf_map_lookup_elem(&run_queue, &index);
	if (h && run_queue_lanes == cpus)
		histogram_add_alone(h, waited_ns);
	else if (h)
		histogram_add(h, waited_ns);
	/* After the cell: the reader takes a change of these for a change of the histogram. */
	lane->wait_ns += waited_ns;
	lane->waits++;
	state->waited_ns = waited_ns;
}

/* Reads the run queue's clock and the monotonic one for a reader, which has just yielded. */
SEC("syscall")
int read_clocks(void *ctx)
{
	clocks_read.run_queue_ns = run_queue_clock(bpf_get_current_task_btf());
	clocks_read.monotonic_ns = bpf_ktime_get_ns();
	return 0;
}

/* The field's name until 5.14. */
struct task_struct___named_state {
	volatile long state;
} __attribute__((preserve_access_index));

static __always_inline u32 run_state(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return ((struct task_struct___named_state *)task)->state;
}

/*
 * Whether a thread that goes to sleep does so for a time that it chose (nanosleep, clock_nanosleep): it looks at something
 * now and then, and nobody wakes it up. architecture is ARCHITECTURE_OTHER before 5.15, without bpf_task_pt_regs.
 */
static __always_inline bool sleeps_for_a_time(struct task_struct *task)
{
	if (architecture == ARCHITECTURE_AMD64) {
		struct pt_regs___x86_64 *regs = (void *)bpf_task_pt_regs(task);

		return regs->cs == X86_64_USER_CS && (regs->orig_ax == 35 || regs->orig_ax == 230);
	}
	if (architecture == ARCHITECTURE_ARM64) {
		struct pt_regs___arm64 *regs = (void *)bpf_task_pt_regs(task);

		return regs->syscallno == 101 || regs->syscallno == 115;
	}
	return false;
}

/*
 * Programs may not run at a switch: some kernels keep them from certain tasks. Then another task
 * than the last that was switched in here is switched out now. The scheduler knows since when it
 * ran; what was before that is counted for the last one.
 */
static __noinline void catch_up(struct cpu_state *state, u32 cpu, struct task_struct *prev, u64 now)
{
	u64 since_ns = state->since_ns;

	state->missed_switches++;
	if (!use_run_queue_clock)
		since_ns = now;
	else if (prev->pid)
		since_ns = prev->sched_info.last_arrival;
	else
		since_ns = prev->se.exec_start + run_queue_steal(prev);
	if (since_ns > state->since_ns && since_ns <= now) {
		struct cgroup_lane *lane = lane_of(state->slot, cpu);

		if (lane)
			lane->usage_ns += since_ns - state->since_ns;
		state->since_ns = since_ns;
	}
	state->slot = prev->pid ? slot_of(task_cgroup(prev)) : CGROUP_SLOT_IDLE;
}

SEC("tp_btf/sched_switch")
int sched_switch(u64 *ctx)
{
	bool preempt = ctx[0];
	struct task_struct *prev = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = bpf_map_lookup_elem(&cpu_states, &cpu);

	if (!state)
		return 0;

	u64 now = use_run_queue_clock ? run_queue_clock(next) : bpf_ktime_get_ns();
	u32 prev_state = switch_has_state ? (u32)ctx[3] : run_state(prev);
	bool runnable = preempt || prev_state == 0;
	u32 next_slot = CGROUP_SLOT_IDLE;
	u64 next_group = 0;

	if (next->pid) {
		struct cgroup *group = task_cgroup(next);

		next_group = group->kn->id;
		next_slot = cached_slot_of(state, group);
	}

	state->sequence++;
	barrier();
	state->waited_ns = 0;
	if (state->since_ns && state->pid != prev->pid)
		catch_up(state, cpu, prev, now);
	if (state->since_ns) {
		struct cgroup_lane *lane = lane_of(state->slot, cpu);

		if (lane) {
			lane->usage_ns += now - state->since_ns;
			if (prev->pid) {
				if (runnable)
					lane->involuntary++;
				else
					lane->voluntary++;
				if (!runnable && sleeps_for_a_time(prev))
					lane->polling_ns += now - state->since_ns;
				struct task_state *task = state_of(prev);

				if (task) {
					count_faults(lane, task, prev);
					count_wait(state->slot, cpu, lane, task, prev, state);
				} else {
					count_drop(DROP_TASK_STATE);
				}
			}
		}
	}
	if (!tasks_have_storage && prev_state & TASK_DEAD) {
		u32 id = prev->pid;

		bpf_map_delete_elem(&task_states, &id);
	}
	state->slot = next_slot;
	state->group = next_group;
	state->pid = next->pid;
	state->task = (u64)next;
	state->minor_faults = next->min_flt;
	state->major_faults = next->maj_flt;
	state->since_ns = now;
	barrier();
	state->sequence++;
	return 0;
}

static __always_inline struct process_counts *processes_of(struct task_struct *task)
{
	u32 slot = slot_of(task_cgroup(task));

	return bpf_map_lookup_elem(&processes, &slot);
}

/*
 * The number of the last scan of all threads. Where tasks have no storage, states that it did not
 * see are of threads whose end was not seen either: the reader removes them.
 */
volatile u32 states_round = 0;

/* Made here and not at a switch, where memory must not be allocated on older kernels. */
static __always_inline void make_task_state(struct task_struct *task)
{
	if (!tasks_have_storage) {
		struct task_state now = {task->sched_info.run_delay, task->sched_info.pcount,
					 task->min_flt, task->maj_flt, states_round};
		u32 id = task->pid;

		if (bpf_map_update_elem(&task_states, &id, &now, BPF_ANY))
			count_drop(DROP_TASK_STATE);
		return;
	}
	struct task_state *state =
		bpf_task_storage_get(&task_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!state)
		return;
	state->run_delay_ns = task->sched_info.run_delay;
	state->arrivals = task->sched_info.pcount;
	state->minor_faults = task->min_flt;
	state->major_faults = task->maj_flt;
}

/* 1 while threads that have a state get a new one. */
volatile u32 renew_states = 0;

/*
 * Threads that have no state: they are older than these programs, were made without the hook
 * (workers of io_uring), or their state could not be made at that moment.
 */
SEC("iter/task")
int running_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task)
		return 0;
	struct task_state *state = state_of(task);

	if (renew_states || !state)
		make_task_state(task);
	else if (!tasks_have_storage)
		state->seen = states_round;
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	make_task_state(child);
	struct process_counts *counts = processes_of(child);
	if (counts)
		__sync_fetch_and_add(child->pid == child->tgid ? &counts->forks :
						 &counts->thread_starts, 1);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task)
{
	struct process_counts *counts = processes_of(task);

	if (counts)
		__sync_fetch_and_add(&counts->execs, 1);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	if (task->pid != task->tgid)
		return 0;
	struct process_counts *counts = processes_of(task);
	if (counts)
		__sync_fetch_and_add(&counts->exits, 1);
	return 0;
}

static __always_inline int report(struct cgroup *group, const char *path, u32 kind, u32 pid)
{
	struct cgroup_event *event;

	if (group->root->hierarchy_id != cgroup_hierarchy)
		return 0;
	event = bpf_ringbuf_reserve(&cgroup_events, sizeof(*event), 0);
	if (!event) {
		count_drop(DROP_CGROUP_EVENT);
		return 0;
	}
	event->id = group->kn->id;
	event->time_ns = bpf_ktime_get_ns();
	event->kind = kind;
	event->pid = pid;
	if (bpf_probe_read_kernel_str(event->path, sizeof(event->path), path) < 0)
		event->path[0] = 0;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(cgroup_mkdir, struct cgroup *group, const char *path)
{
	return report(group, path, CGROUP_MADE, 0);
}

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(cgroup_rmdir, struct cgroup *group, const char *path)
{
	return report(group, path, CGROUP_REMOVED, 0);
}

/*
 * A task that moves itself goes on running: what it ran until now is its old group's. (Hooks run
 * with preemption off, so the CPU does not switch meanwhile.) A thread that runs elsewhere while
 * it is moved counts for its old group up to its next switch.
 */
static __always_inline void split_slice(struct task_struct *moved, bool whole_process,
					struct cgroup *group)
{
	u64 current = bpf_get_current_pid_tgid();
	u32 pid = current, tgid = current >> 32;
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = bpf_map_lookup_elem(&cpu_states, &cpu);

	if (tgid != moved->tgid || (pid != moved->pid && !whole_process))
		return;
	if (!state || !state->since_ns || state->pid != pid)
		return;
	u64 now = use_run_queue_clock ? run_queue_clock(bpf_get_current_task_btf()) :
					bpf_ktime_get_ns();
	struct cgroup_lane *lane = lane_of(state->slot, cpu);
	u32 slot = slot_of(group);
	state->sequence++;
	barrier();
	if (lane && now > state->since_ns) {
		/* Faults of another thread of a process that is moved whole are the new group's. */
		struct task_state *task = pid == moved->pid ? state_of(moved) : NULL;

		lane->usage_ns += now - state->since_ns;
		state->since_ns = now;
		if (task) {
			count_faults(lane, task, moved);
			state->minor_faults = moved->min_flt;
			state->major_faults = moved->maj_flt;
		}
	}
	state->slot = slot;
	state->group = group->kn->id;
	barrier();
	state->sequence++;
}

SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(cgroup_attach_task, struct cgroup *group, const char *path, struct task_struct *task,
	     bool threadgroup)
{
	if (group->root->hierarchy_id == cgroup_hierarchy)
		split_slice(task, threadgroup, group);
	return report(group, path, TASK_ATTACHED, task->pid);
}
