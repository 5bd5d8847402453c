//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Hardware counters per control group. Each CPU has one group of events, which is read when the CPU
 * goes to another control group, not at every switch. The program is attached after sched_switch of
 * cgroups.bpf.c, so cpu_states is already of the task that begins. Where processes are counted,
 * too, it is read when the CPU goes to another process.
 */
#include "include/kernel.h"
#include "sched/cgroup_maps.h"
#include "sched/cgroups.h"
#include "sched/counters.h"

char LICENSE[] SEC("license") = "GPL";

enum { BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4, BPF_MAP_TYPE_PERCPU_HASH = 5 };
#define BPF_F_CURRENT_CPU 0xffffffffULL

struct bpf_perf_event_value {
	u64 counter;
	u64 enabled;
	u64 running;
};

/* Set by the loader. */
const volatile u32 cpus = 1;
/* Some core has more than one hardware thread. */
const volatile bool shared_cores = false;
/* Processes are counted each by itself. */
const volatile bool by_process = false;
/* A bit for each event that the hardware has. */
const volatile u32 known_counters = (1 << COUNTERS) - 1;

/* Descriptors of the events, by CPU. */
struct counter_events {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} counter_event_0 SEC(".maps"), counter_event_1 SEC(".maps"), counter_event_2 SEC(".maps"),
	counter_event_3 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counter_lane);
} counter_lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counter_cpu);
} counter_cpus SEC(".maps");

/* By CPU: its core, an index of cores. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} core_of_cpu SEC(".maps");

/*
 * A lock of its own, since programs at raw tracepoints may have no bpf_spin_lock. It is held for
 * some ten nanoseconds, with interrupts off, and only siblings want it.
 */
struct locked_core {
	struct smt_core core;
	u32 locked;
};

#define LOCK_TRIES 512

static __always_inline bool lock_core(struct locked_core *core)
{
	for (u32 i = 0; i < LOCK_TRIES; i++)
		if (!__sync_lock_test_and_set(&core->locked, 1))
			return true;
	return false;
}

static __always_inline void unlock_core(struct locked_core *core)
{
	__sync_lock_test_and_set(&core->locked, 0);
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct locked_core);
} cores SEC(".maps");

/* Made beforehand: nothing may be allocated at a switch. The reader takes away who is gone. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1);
	__type(key, struct counter_process_key);
	__type(value, struct counter_process);
} counter_processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counter_process_slice);
} counter_process_slices SEC(".maps");

static const struct counter_process no_counts;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTER_DROPS);
	__type(key, u32);
	__type(value, u64);
} counter_drops SEC(".maps");

/* Keeps the enumeration in the object for the reader. */
const volatile enum counter_drop counter_drop_type;

static __always_inline void count_drop(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&counter_drops, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

/* The other events of the group, without their time again, for which the clock is read. */
static __always_inline bool read_counter(void *events, u32 i, struct bpf_perf_event_value *now)
{
	if (!(known_counters >> i & 1))
		return true;
	now[i].counter = bpf_perf_event_read(events, BPF_F_CURRENT_CPU);
	/* The helper answers errors in the same number. */
	return now[i].counter < (u64)-4095;
}

/*
 * Reads the group. Its events are counted all at the same time, so the first one tells for how
 * long.
 */
static __always_inline bool read_counters(struct bpf_perf_event_value *now)
{
	return !bpf_perf_event_read_value(&counter_event_0, BPF_F_CURRENT_CPU, &now[0],
					  sizeof(now[0])) &&
	       read_counter(&counter_event_1, 1, now) && read_counter(&counter_event_2, 2, now) &&
	       read_counter(&counter_event_3, 3, now);
}

/*
 * For how long, within the slice that ends, 1 to SMT_THREADS threads were busy. If the lock cannot
 * be had, nothing is known of this slice, and the next one counts what both have shared.
 */
static __always_inline void share_core(u32 cpu, struct counter_cpu *c, u64 now_ns, bool busy,
				       u64 *with_ns)
{
	/* A CPU may get to know its core when it comes on line: it moves there while idle. */
	if (!c->smt.busy) {
		u32 *core = bpf_map_lookup_elem(&core_of_cpu, &cpu);

		if (!core)
			return;
		c->smt.core = *core;
	}
	u32 index = c->smt.core;
	struct locked_core *core = bpf_map_lookup_elem(&cores, &index);
	if (!core)
		return;
	if (!lock_core(core)) {
		count_drop(DROP_COUNTER_CORE);
		return;
	}
	smt_switch(&core->core, &c->smt, now_ns, busy, with_ns);
	unlock_core(core);
}

static __always_inline void add_slice(struct counter_lane *lane, struct counter_cpu *c,
				      struct bpf_perf_event_value *now, const u64 *with_ns)
{
	u64 gained[COUNTERS], parts[SMT_THREADS] = {};

	for (int i = 0; i < COUNTERS; i++)
		gained[i] = now[i].counter - c->values[i];
	if (shared_cores)
		smt_divide(gained[0], with_ns, parts);
	else
		parts[0] = gained[0];
	for (int i = 0; i < COUNTERS; i++)
		lane->values[i] += gained[i];
	for (int i = 0; i < SMT_THREADS; i++)
		lane->with[i] += parts[i];
	lane->enabled_ns += now[0].enabled - c->enabled_ns;
	lane->running_ns += now[0].running - c->running_ns;
	lane->slices++;
}

static __always_inline struct counter_process *process_of(struct counter_process_key *key)
{
	struct counter_process *process = bpf_map_lookup_elem(&counter_processes, key);

	if (process)
		return process;
	/* If it is there already, another CPU was first. */
	bpf_map_update_elem(&counter_processes, key, &no_counts, BPF_NOEXIST);
	return bpf_map_lookup_elem(&counter_processes, key);
}

static __always_inline void add_process_slice(struct counter_process_slice *slice,
					      struct counter_cpu *c,
					      struct bpf_perf_event_value *now)
{
	struct counter_process *process = process_of(&slice->key);

	if (!process) {
		count_drop(DROP_COUNTER_PROCESS);
		return;
	}
	for (int i = 0; i < COUNTERS; i++)
		process->values[i] += now[i].counter - c->values[i];
	process->enabled_ns += now[0].enabled - c->enabled_ns;
	process->running_ns += now[0].running - c->running_ns;
	process->began_ns = slice->began_ns;
	__builtin_memcpy(process->name, slice->name, sizeof(process->name));
	process->slices++;
}

static __always_inline bool goes_on(struct counter_cpu *c, struct bpf_perf_event_value *now)
{
	for (int i = 0; i < COUNTERS; i++)
		if (now[i].counter < c->values[i])
			return false;
	return now[0].enabled >= c->enabled_ns && now[0].running >= c->running_ns;
}

/*
 * Ends the slice that runs on this CPU, of a process unless that is NULL, and begins one of slot,
 * at now_ns of the switches' clock.
 */
static __always_inline void next_slice(u32 cpu, struct counter_cpu *c,
				       struct counter_process_slice *process, u32 slot, u64 now_ns)
{
	struct bpf_perf_event_value now[COUNTERS] = {};
	u64 with_ns[SMT_THREADS] = {};
	bool readable = read_counters(now);

	c->sequence++;
	barrier();
	if (shared_cores)
		share_core(cpu, c, now_ns, slot != CGROUP_SLOT_IDLE, with_ns);
	if (!readable) {
		count_drop(DROP_COUNTER_READ);
	} else if (c->state == COUNTER_READS && !goes_on(c, now)) {
		count_drop(DROP_COUNTER_RESET);
	} else if (c->state == COUNTER_READS && c->slot != CGROUP_SLOT_IDLE) {
		u32 index = c->slot * cpus + cpu;
		struct counter_lane *lane = bpf_map_lookup_elem(&counter_lanes, &index);

		if (lane)
			add_slice(lane, c, now, with_ns);
		/* Groups that have no slot are unattributed, and so are their processes. */
		if (process && process->began_ns && c->slot != CGROUP_SLOT_OTHER)
			add_process_slice(process, c, now);
	}
	for (int i = 0; i < COUNTERS; i++)
		c->values[i] = now[i].counter;
	c->enabled_ns = now[0].enabled;
	c->running_ns = now[0].running;
	c->slot = slot;
	c->state = readable ? COUNTER_READS : COUNTER_FAILS;
	barrier();
	c->sequence++;
}

static __always_inline struct counter_process_slice *slice_here(void)
{
	u32 zero = 0;

	return by_process ? bpf_map_lookup_elem(&counter_process_slices, &zero) : NULL;
}

/* A slice of next's process begins. */
static __always_inline void begin_process(struct counter_process_slice *process,
					  struct task_struct *next, u64 group, u64 now_ns)
{
	process->key.group = group;
	process->key.tgid = next->tgid;
	process->began_ns = now_ns;
	bpf_probe_read_kernel(process->name, sizeof(process->name), &next->group_leader->comm);
}

SEC("tp_btf/sched_switch")
int count_switch(u64 *ctx)
{
	struct task_struct *next = (void *)ctx[2];
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = bpf_map_lookup_elem(&cpu_states, &cpu);
	struct counter_cpu *c = bpf_map_lookup_elem(&counter_cpus, &cpu);

	if (!state || !c)
		return 0;
	struct counter_process_slice *process = slice_here();

	if (c->state && state->slot == c->slot &&
	    (!process || (process->key.tgid == next->tgid && process->key.group == state->group)))
		return 0;
	next_slice(cpu, c, process, state->slot, state->since_ns);
	if (process)
		begin_process(process, next, state->group, state->since_ns);
	return 0;
}

struct bpf_raw_tracepoint_args {
	u64 args[1];
};

/*
 * Counts what runs on this CPU up to now. The reader runs it on each CPU, where it is an interrupt:
 * it cannot come in the middle of a switch. The argument is by how much the switches' clock is
 * ahead of the monotonic one.
 */
SEC("raw_tp")
int count_now(struct bpf_raw_tracepoint_args *ctx)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = bpf_map_lookup_elem(&cpu_states, &cpu);
	struct counter_cpu *c = bpf_map_lookup_elem(&counter_cpus, &cpu);

	if (!state || !c || !state->since_ns)
		return 0;
	struct counter_process_slice *process = slice_here();

	/* Whose slice begins here is known from the next switch on. */
	if (process && !c->state)
		process->began_ns = 0;
	next_slice(cpu, c, process, state->slot, bpf_ktime_get_ns() + ctx->args[0]);
	return 0;
}
