//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Who ran while whom waited: at each switch, the time that the next thread waited on this CPU is
 * laid over what the CPU ran meanwhile. The program must run after sched_switch of cgroups.bpf.c,
 * whose account of the CPU it reads, and changes nothing of it: it can be left out by itself.
 *
 * The time is the run queue's clock, by which the kernel itself counts waits (sched_info).
 */
#include "include/kernel.h"
#include "include/cgroup_id.h"
#include "sched/cgroup_maps.h"
#include "sched/cgroups.h"
#include "sched/contention.h"
#include "sched/run_queue_clock.h"

char LICENSE[] SEC("license") = "GPL";

/* Set by the loader. */
const volatile u32 cpus = 1;
const volatile bool switch_has_state = true;
/* Entries of a CPU's table of pairs, less those of one set: a power of two less CONTENTION_WAYS. */
const volatile u32 pair_mask = 0;
/* cfs_rq tells for how long its own group was throttled (6.7). */
const volatile bool knows_quota = false;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct contention_cpu);
} contention_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct contention_lane);
} contention_lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct contention_pair);
} contention_pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CONTENTION_DROPS);
	__type(key, u32);
	__type(value, u64);
} contention_drops SEC(".maps");

/* Keeps the enumeration in the object for the reader. */
const volatile enum contention_drop contention_drop_type;

static __always_inline void count_drop(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&contention_drops, &which);

	if (n)
		(*n)++;
}

#define SLICE(running, number) (&(running)->slices[(number) & (CONTENTION_SLICES - 1)])
#define QUOTA(lane, number) (&(lane)->quotas[(number) & (CONTENTION_QUOTAS - 1)])

static __always_inline struct contention_lane *lane_of(u32 slot, u32 cpu)
{
	u32 lane = slot * cpus + cpu;

	return bpf_map_lookup_elem(&contention_lanes, &lane);
}

/* The entry of a pair in its CPU's table, a new one if it has none; NULL where there is no room. */
static __always_inline struct contention_pair *pair_of(u32 cpu, u64 victim, u64 culprit)
{
	u64 hash = (victim * 0x9e3779b97f4a7c15 ^ culprit) * 0xff51afd7ed558ccd;
	u32 first = cpu * (pair_mask + CONTENTION_WAYS) + ((u32)(hash >> 40) & pair_mask);
	struct contention_pair *room = NULL;

	for (u32 i = 0; i < CONTENTION_WAYS; i++) {
		u32 index = first + i;
		struct contention_pair *pair = bpf_map_lookup_elem(&contention_pairs, &index);

		if (!pair)
			return NULL;
		if (pair->victim == victim && pair->culprit == culprit)
			return pair;
		if (!room && !pair->victim)
			room = pair;
	}
	if (!room)
		return NULL;
	/* A reader takes the pair once it has a victim. */
	room->culprit = culprit;
	room->wait_ns = 0;
	room->preemptions = 0;
	barrier();
	room->victim = victim;
	return room;
}

static __always_inline void charge(u32 cpu, u32 slot, u64 victim, u64 culprit, u64 ns)
{
	if (culprit != victim && victim != CONTENTION_UNKNOWN && culprit != CONTENTION_UNKNOWN &&
	    culprit != CONTENTION_IDLE) {
		struct contention_pair *pair = pair_of(cpu, victim, culprit);

		if (pair) {
			pair->wait_ns += ns;
			return;
		}
		count_drop(DROP_CONTENTION_PAIR);
	}
	struct contention_lane *lane = lane_of(slot, cpu);

	if (!lane)
		return;
	if (culprit == CONTENTION_IDLE)
		lane->idle_ns += ns;
	else if (culprit == victim && victim != CONTENTION_UNKNOWN)
		lane->own_ns += ns;
	else
		lane->other_ns += ns;
}

/* Global functions are verified once, whoever calls them. */
__attribute__((noinline)) int charge_slice(u32 cpu, u32 slot, u64 victim, u64 culprit, u64 ns)
{
	charge(cpu, slot, victim, culprit, ns);
	return 0;
}

/* Charges a wait from one time to another to those that ran. */
__attribute__((noinline)) int charge_between(u32 cpu, u32 slot, u64 victim, u64 from, u64 to)
{
	struct contention_cpu *running = bpf_map_lookup_elem(&contention_cpus, &cpu);

	if (!running)
		return 0;
	u32 newest = running->newest;
	/* The slice before the oldest only tells when that began. */
	for (u32 i = 0; i < CONTENTION_SLICES - 1; i++) {
		struct contention_slice *slice = SLICE(running, newest - i);
		u64 begin = SLICE(running, newest - i - 1)->end_ns;
		u64 end = slice->end_ns < to ? slice->end_ns : to;

		if (!begin)
			break;
		if (end > begin && end > from) {
			u64 since = begin > from ? begin : from;

			charge_slice(cpu, slot, victim, slice->group, end - since);
			to = since;
		}
		if (begin <= from || to <= from)
			return 0;
	}
	if (to > from) {
		charge_slice(cpu, slot, victim, CONTENTION_UNKNOWN, to - from);
	}
	return 0;
}

/*
 * The times that a group was throttled by its quota: where they began is seen when its last thread
 * is switched out, how long they were from what the run queue has summed up by the next switch in.
 */
static __always_inline void follow_quota(struct contention_lane *lane, struct cfs_rq *queue,
					 u64 now)
{
	u64 throttled_ns = queue->throttled_clock_self_time;

	if (lane->run_queue != (u64)queue) {
		/* A group of one hierarchy may have threads in several of another. */
		lane->run_queue = (u64)queue;
		lane->throttled_since_ns = 0;
	} else if (throttled_ns != lane->throttled_ns) {
		u64 last_ns = throttled_ns - lane->throttled_ns;
		u64 from = lane->throttled_since_ns ? lane->throttled_since_ns : now - last_ns;
		struct contention_quota *quota = QUOTA(lane, lane->quotas_made);

		quota->from_ns = from;
		quota->to_ns = from + last_ns < now ? from + last_ns : now;
		lane->quotas_made++;
		lane->throttled_since_ns = 0;
	}
	lane->throttled_ns = throttled_ns;
	if (queue->throttled_clock_self)
		lane->throttled_since_ns = queue->throttled_clock_self;
}

/* Charges a wait of a group that has been throttled. */
static __always_inline void charge_throttled(struct contention_lane *lane, u32 cpu, u32 slot,
					     u64 victim, u64 from, u64 to)
{
	u64 made = lane->quotas_made;

	for (u32 i = 1; i <= CONTENTION_QUOTAS; i++) {
		struct contention_quota *quota = QUOTA(lane, made - i);
		u64 since = quota->from_ns > from ? quota->from_ns : from;
		u64 until = quota->to_ns < to ? quota->to_ns : to;

		if (until <= since)
			continue;
		charge_between(cpu, slot, victim, until, to);
		lane->quota_ns += until - since;
		to = since;
	}
	if (to > from)
		charge_between(cpu, slot, victim, from, to);
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

/* The thread that is switched out could have run on. */
static __always_inline void count_preemption(struct contention_cpu *running, u32 cpu,
					     u64 next_group, struct task_struct *prev)
{
	struct contention_lane *lane = lane_of(running->slot, cpu);

	if (!lane)
		return;
	if (knows_quota) {
		struct cfs_rq *queue = prev->se.cfs_rq;

		if (queue->throttle_count) {
			lane->quota_stops++;
			return;
		}
	}
	if (next_group == CONTENTION_IDLE)
		return; /* it is being moved to another CPU */
	u64 victim = running->group;
	if (victim == next_group && victim != CONTENTION_UNKNOWN) {
		lane->own_preemptions++;
		return;
	}
	if (victim != CONTENTION_UNKNOWN && next_group != CONTENTION_UNKNOWN) {
		struct contention_pair *pair = pair_of(cpu, victim, next_group);

		if (pair) {
			pair->preemptions++;
			return;
		}
		count_drop(DROP_CONTENTION_PAIR);
	}
	lane->other_preemptions++;
}

/* A thread whose switch in was not seen: what it waited is known, and not behind whom. */
static __always_inline void wait_unseen(struct task_struct *prev, u32 cpu, u64 waited_ns)
{
	u64 id = task_cgroup_id(prev);
	u32 *slot = bpf_map_lookup_elem(&slot_of_cgroup, &id);
	struct contention_lane *lane = slot && prev->pid ? lane_of(*slot, cpu) : NULL;

	if (lane)
		lane->other_ns += waited_ns;
}

SEC("tp_btf/sched_switch")
int contention_switch(u64 *ctx)
{
	bool preempt = ctx[0];
	struct task_struct *prev = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	u32 cpu = bpf_get_smp_processor_id();
	struct contention_cpu *running = bpf_map_lookup_elem(&contention_cpus, &cpu);
	struct cpu_state *state = bpf_map_lookup_elem(&cpu_states, &cpu);

	if (!running || !state)
		return 0;
	u64 now = run_queue_clock(next);
	u32 slot = state->slot; /* of next: that program has run */
	u64 group = CONTENTION_IDLE;

	if (next->pid)
		group = slot == CGROUP_SLOT_OTHER ? CONTENTION_UNKNOWN : state->group;

	bool missed = running->known && running->pid != (u32)prev->pid;

	if (missed) {
		/* No program ran at the last switch: of what ran since only the end is known. */
		running->group = CONTENTION_UNKNOWN;
		wait_unseen(prev, cpu, state->waited_ns);
	}
	if (running->known) {
		struct contention_slice *newest = SLICE(running, running->newest);

		if (newest->group == running->group) {
			newest->end_ns = now;
		} else {
			running->newest++;
			newest = SLICE(running, running->newest);
			newest->group = running->group;
			newest->end_ns = now;
		}
		if (prev->pid && !missed) {
			u32 prev_state = switch_has_state ? (u32)ctx[3] : run_state(prev);

			/* What it waited elsewhere: known to the other program by now. */
			if (state->waited_ns > running->here_ns) {
				struct contention_lane *lane = lane_of(running->slot, cpu);

				if (lane)
					lane->moved_ns += state->waited_ns - running->here_ns;
			}
			if (preempt || prev_state == 0)
				count_preemption(running, cpu, group, prev);
			if (knows_quota && prev->se.cfs_rq->throttled_clock_self) {
				struct contention_lane *lane = lane_of(running->slot, cpu);

				if (lane)
					follow_quota(lane, prev->se.cfs_rq, now);
			}
		}
	} else {
		/* When the first slice began is not known: only its end counts. */
		running->slices[0].group = CONTENTION_UNKNOWN;
		running->slices[0].end_ns = now;
		running->known = 1;
	}
	running->group = group;
	running->slot = slot;
	running->pid = next->pid;
	running->here_ns = 0;

	u64 queued = next->sched_info.last_queued;

	if (!next->pid || !queued || queued >= now)
		return 0;
	running->here_ns = now - queued;
	if (knows_quota && next->se.cfs_rq->throttled_clock_self_time) {
		struct contention_lane *lane = lane_of(slot, cpu);

		if (lane) {
			follow_quota(lane, next->se.cfs_rq, now);
			charge_throttled(lane, cpu, slot, group, queued, now);
		}
		return 0;
	}
	/* Mostly whom it waited for is who ran last. */
	u32 newest = running->newest;
	u64 begin = SLICE(running, newest - 1)->end_ns;

	if (begin && begin <= queued)
		charge(cpu, slot, group, SLICE(running, newest)->group, now - queued);
	else
		charge_between(cpu, slot, group, queued, now);
	return 0;
}
