//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Timers that sample, at each tick, every control group that cgroups.bpf.c counts. They read the
 * counters of the other programs and change none, so any number of recorders run side by side.
 * They end with the last descriptor of their map: nothing stays of a process that is killed.
 *
 * A timer's function is called in a softirq, after what its CPU does in one already, and not before
 * the hypervisor runs that CPU. So there are timers on two CPUs, and the first takes the tick.
 */
#include "include/kernel.h"
#include "block/disk.h"
#include "include/cgroup_id.h"
#include "include/histogram.h"
#include "include/threads.h"
#include "include/timer.h"
#include "net/edges.h"
#include "sched/cgroup_maps.h"
#include "sched/cgroups.h"
#include "sched/run_queue_clock.h"
#include "tick/controllers.h"
#include "tick/recorder.h"
#include "tick/recorder_maps.h"

char LICENSE[] SEC("license") = "GPL";

/* Reads the run queue's clock and the monotonic one for a reader, which has just yielded. */
SEC("syscall")
int recorder_clocks(void *ctx)
{
	clocks_read.run_queue_ns = run_queue_clock(bpf_get_current_task_btf());
	clocks_read.monotonic_ns = bpf_ktime_get_ns();
	return 0;
}

/*
 * Finds the states of a task's group. A group can't be removed while a task is in it, so whoever
 * removes it does so after the last check below, and remove_states follows.
 */
static __always_inline void find_states_of(struct task_struct *task)
{
	u64 id = task_cgroup_id(task);
	u32 *slot = bpf_map_lookup_elem(&slot_of_cgroup, &id);
	if (!slot)
		return;
	u32 index = *slot;
	struct group_states *states = bpf_map_lookup_elem(&states_of_slot, &index);
	u64 now = bpf_ktime_get_ns();
	if (!states || (states->group == id && now - states->scanned_ns < SCAN_INTERVAL_NS))
		return;
	states->scanned_ns = now;
	struct css_set *set = task->cgroups;
	struct cgroup_subsys_state *memory = state_at(set->subsys, memory_index);
	struct cgroup_subsys_state *cpu = state_at(set->subsys, cpu_index);
	struct cgroup_subsys_state *owner = state_at(set->subsys, cgroup_subsys_index);
	u64 group = 0, ns = 0; /* an address that is read is a number, as functions want it */
	u32 periods = 0;
	bpf_probe_read_kernel(&group, sizeof(group),
			      owner ? (void *)&owner->cgroup : (void *)&set->dfl_cgrp);
	states->group = 0;
	states->memory = is_of_group(memory, group) ? (u64)memory : 0;
	states->cpu = is_of_group(cpu, group) ? (u64)cpu : 0;
	if (states->cpu && !read_throttled(states->cpu, &ns, &periods))
		states->cpu = 0;
	states->has_quota = states->cpu && has_quota(states->cpu);
	states->throttled_ns = ns;
	states->throttled_periods = periods;
	__sync_fetch_and_add(&states->group, id);
	if (is_leaving(task) || *(struct css_set *volatile *)&task->cgroups != set)
		states->group = 0;
}

SEC("syscall")
int find_all_states(void *ctx)
{
	struct bpf_iter_task threads;
	struct task_struct *task;

	bpf_rcu_read_lock();
	bpf_iter_task_new(&threads, NULL, BPF_TASK_ITER_ALL_THREADS);
	while ((task = bpf_iter_task_next(&threads)))
		find_states_of(task);
	bpf_iter_task_destroy(&threads);
	bpf_rcu_read_unlock();
	return 0;
}

SEC("iter/task")
int find_states(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		find_states_of(task);
	return 0;
}

static long remove_state(u32 slot, struct group_states *gone)
{
	struct group_states *states = bpf_map_lookup_elem(&states_of_slot, &slot);

	if (!states)
		return 1;
	if (gone->memory && states->memory == gone->memory)
		states->memory = 0;
	if (gone->cpu && states->cpu == gone->cpu)
		states->cpu = 0;
	return 0;
}

/*
 * The states stay for as long as a tick may be reading them: they are freed after a grace period.
 */
SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(remove_states, struct cgroup *group, const char *path)
{
	struct cgroup___states *with = (void *)group;
	struct group_states gone = {
		.memory = (u64)state_at(with->subsys, memory_index),
		.cpu = (u64)state_at(with->subsys, cpu_index),
	};

	bpf_loop(slots, remove_state, &gone, 0);
	return 0;
}

/* What the steps of one tick share. */
struct walk {
	u64 number;
	u64 now; /* on the clock of cpu_state.since_ns; 0 if not known */
	u64 first;
	u32 room;
	u32 used;
	u32 full;
	u32 running;
};

static __always_inline struct cgroup_lane *lane_of(u32 slot, u32 cpu)
{
	u32 lane = slot * cpus + cpu;

	return bpf_map_lookup_elem(&cgroup_lanes, &lane);
}

#define SNAPSHOT_TRIES 8

/*
 * Faults of the task that runs on another CPU, if it is the one whose sequence is the same after.
 */
static __always_inline u64 faults_since(struct cpu_state *state, u64 before, u32 offset)
{
	unsigned long now = 0;

	if (bpf_probe_read_kernel(&now, sizeof(now), (void *)state->task + offset) || now < before)
		return 0;
	return now - before;
}

/*
 * A switch changes the lane and the state; the sequence tells whether both are of one moment. What
 * runs on this CPU was interrupted by the timer, so it does not switch here.
 */
static long snapshot_cpu(u32 cpu, struct walk *w)
{
	struct cpu_state *state = bpf_map_lookup_elem(&cpu_states, &cpu);
	struct cpu_snapshot *snapshot = bpf_map_lookup_elem(&cpu_snapshots, &cpu);

	if (!state || !snapshot)
		return 1;
	snapshot->valid = 0;
	for (u32 try = 0; try < SNAPSHOT_TRIES; try++) {
		u64 before = *(volatile u64 *)&state->sequence;
		u32 slot = *(volatile u32 *)&state->slot;
		u64 since = *(volatile u64 *)&state->since_ns;
		struct cgroup_lane *lane = lane_of(slot, cpu);

		if (!lane || !since)
			return 0;
		u64 usage = *(volatile u64 *)&lane->usage_ns;
		u64 minor = *(volatile u64 *)&lane->minor_faults;
		u64 major = *(volatile u64 *)&lane->major_faults;
		minor += faults_since(state, state->minor_faults,
				      bpf_core_field_offset(struct task_struct, min_flt));
		major += faults_since(state, state->major_faults,
				      bpf_core_field_offset(struct task_struct, maj_flt));
		if (before & 1 || *(volatile u64 *)&state->sequence != before)
			continue;
		snapshot->usage_ns = usage + (w->now > since ? w->now - since : 0);
		snapshot->minor_faults = minor;
		snapshot->major_faults = major;
		snapshot->slot = slot;
		snapshot->valid = 1;
		if (slot != CGROUP_SLOT_IDLE)
			w->running++;
		return 0;
	}
	return 0;
}

static __always_inline struct slot_sums *sums_of(u32 slot, u64 group, u64 tick)
{
	struct slot_sums *sums = bpf_map_lookup_elem(&sums_of_slot, &slot);

	if (!sums)
		return NULL;
	if (sums->group != group) {
		sums->group = group;
		sums->cpu_ns = 0;
		sums->minor_faults = 0;
		sums->major_faults = 0;
		sums->sent_bytes = 0;
		sums->received_bytes = 0;
	}
	if (sums->tick != tick) {
		sums->tick = tick;
		sums->client_in_flight = 0;
		sums->server_in_flight = 0;
	}
	return sums;
}

static long add_edge(u32 i, struct walk *w)
{
	struct recorded_edge *r = bpf_map_lookup_elem(&recorded_edges, &i);

	if (!r)
		return 1;
	u32 index = r->index, slot = r->slot;
	u64 owner = r->owner;
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);
	struct edge_seen *seen = bpf_map_lookup_elem(&edges_seen, &index);
	u64 *slot_owner = bpf_map_lookup_elem(&cgroup_slots, &slot);
	if (!edge || !seen || !slot_owner)
		return 1;
	if (!edge->used || edge->key.owner != owner || *slot_owner != owner)
		return 0;
	struct slot_sums *sums = sums_of(slot, owner, w->number);
	if (!sums)
		return 1;
	u64 sent = edge->sent_bytes, received = edge->received_bytes;
	/* An entry that was given to another edge counts from zero again. */
	if (seen->owner != owner || sent < seen->sent_bytes || received < seen->received_bytes) {
		seen->owner = owner;
		seen->sent_bytes = 0;
		seen->received_bytes = 0;
	}
	sums->sent_bytes += sent - seen->sent_bytes;
	sums->received_bytes += received - seen->received_bytes;
	seen->sent_bytes = sent;
	seen->received_bytes = received;
	/*
	 * Those that ended first: one that ends meanwhile must not make the difference too small.
	 */
	u64 ended = edge->replies + edge->aborts + edge->lost;
	barrier();
	u64 begun = edge->requests;
	if (edge->key.transport != TRANSPORT_TCP || begun <= ended)
		return 0;
	if (edge->key.role == ROLE_CLIENT)
		sums->client_in_flight += begun - ended;
	else
		sums->server_in_flight += begun - ended;
	return 0;
}

struct lane_sum {
	u32 slot;
	u32 running;
	u64 cpu_ns;
	u64 wait_ns;
	u64 waits;
	u64 voluntary;
	u64 involuntary;
	u64 minor_faults;
	u64 major_faults;
};

static long add_lane(u32 cpu, struct lane_sum *sum)
{
	struct cgroup_lane *lane = lane_of(sum->slot, cpu);
	struct cpu_snapshot *snapshot = bpf_map_lookup_elem(&cpu_snapshots, &cpu);

	if (!lane || !snapshot)
		return 1;
	if (snapshot->valid && snapshot->slot == sum->slot) {
		sum->cpu_ns += snapshot->usage_ns;
		sum->minor_faults += snapshot->minor_faults;
		sum->major_faults += snapshot->major_faults;
		sum->running++;
	} else {
		sum->cpu_ns += lane->usage_ns;
		sum->minor_faults += lane->minor_faults;
		sum->major_faults += lane->major_faults;
	}
	sum->wait_ns += lane->wait_ns;
	sum->waits += lane->waits;
	sum->voluntary += lane->voluntary;
	sum->involuntary += lane->involuntary;
	return 0;
}

static __always_inline void read_states(struct recorder_sample *s, u32 slot, u64 id)
{
	struct group_states *states = bpf_map_lookup_elem(&states_of_slot, &slot);
	u64 pages, ns;
	u32 periods;

	if (!states || states->group != id)
		return;
	u64 memory = states->memory, cpu = states->cpu;
	if (memory && !bpf_probe_read_kernel(&pages, sizeof(pages),
		(void *)memory + bpf_core_field_offset(struct mem_cgroup, memory.usage.counter))) {
		s->memory_bytes = pages * page_bytes;
		s->known |= SAMPLE_MEMORY;
	}
	if (!cpu)
		return;
	ns = states->throttled_ns;
	periods = states->throttled_periods;
	if (states->has_quota && !read_throttled(cpu, &ns, &periods))
		return;
	s->throttled_ns = ns;
	s->throttled_periods = periods;
	s->known |= SAMPLE_THROTTLED;
}

static __always_inline void read_disk(struct recorder_sample *s, u32 slot)
{
	struct disk_slot *disk = counts_disk ? bpf_map_lookup_elem(&disk_of_slot, &slot) : NULL;

	if (!disk)
		return;
	s->disk_read_bytes = disk->read_bytes;
	s->disk_write_bytes = disk->write_bytes;
	s->disk_reads = disk->reads;
	s->disk_writes = disk->writes;
	s->disk_time_ns = disk->read_ns + disk->write_ns;
	s->known |= SAMPLE_DISK;
}

static long add_sample(u32 slot, struct walk *w)
{
	u64 *group = bpf_map_lookup_elem(&cgroup_slots, &slot);

	if (!group)
		return 1;
	u64 id = *group;
	if (!id) /* most of the slots */
		return 0;
	struct lane_sum sum = {.slot = slot};
	u64 *not_wanted = bpf_map_lookup_elem(&unwanted, &slot);
	if (!not_wanted)
		return 1;
	if (*not_wanted == id)
		return 0;
	if (w->used >= w->room) {
		w->full = 1;
		return 1;
	}
	u32 index = (w->first + w->used) & sample_mask;
	struct recorder_sample *s = bpf_map_lookup_elem(&samples, &index);
	struct slot_sums *sums = sums_of(slot, id, w->number);
	if (!s || !sums)
		return 1;
	bpf_loop(cpus, add_lane, &sum, 0);
	if (sum.cpu_ns > sums->cpu_ns)
		sums->cpu_ns = sum.cpu_ns;
	if (sum.minor_faults > sums->minor_faults)
		sums->minor_faults = sum.minor_faults;
	if (sum.major_faults > sums->major_faults)
		sums->major_faults = sum.major_faults;
	s->group = id;
	s->cpu_ns = sums->cpu_ns;
	s->wait_ns = sum.wait_ns;
	s->waits = sum.waits;
	s->voluntary = sum.voluntary;
	s->involuntary = sum.involuntary;
	s->minor_faults = sums->minor_faults;
	s->major_faults = sums->major_faults;
	s->sent_bytes = sums->sent_bytes;
	s->received_bytes = sums->received_bytes;
	s->client_in_flight = sums->client_in_flight;
	s->server_in_flight = sums->server_in_flight;
	s->running = sum.running;
	s->known = 0;
	read_states(s, slot, id);
	read_disk(s, slot);
	w->used++;
	return 0;
}

static __always_inline u64 cpu_time_of(u32 slot)
{
	struct lane_sum sum = {.slot = slot};

	bpf_loop(cpus, add_lane, &sum, 0);
	return sum.cpu_ns;
}

static __noinline int take_sample(struct recorder_control *c)
{
	struct walk w = {};

	if (!c)
		return 0;
	u64 began = bpf_ktime_get_ns();
	u32 index = c->ticks_made & tick_mask;
	struct recorder_tick *tick = bpf_map_lookup_elem(&ticks, &index);
	if (!tick)
		return 0;
	w.number = c->number + 1; /* 0 is no tick in slot_sums */
	w.first = c->samples_made;
	w.room = sample_mask + 1 - (c->samples_made - c->samples_taken);
	if (!use_run_queue_clock)
		w.now = began;
	else if (c->clock_known)
		w.now = began + c->clock_ahead_ns;
	bpf_loop(cpus, snapshot_cpu, &w, 0);
	bpf_loop(c->edges, add_edge, &w, 0);
	if (c->ticks_made - c->ticks_taken > tick_mask)
		w.full = 1;
	else
		bpf_loop(slots, add_sample, &w, 0);
	if (w.full) {
		c->ticks_full++;
		return 0;
	}
	tick->number = c->number;
	tick->due_ns = c->due_ns;
	tick->began_ns = began;
	tick->idle_ns = cpu_time_of(CGROUP_SLOT_IDLE);
	tick->other_ns = cpu_time_of(CGROUP_SLOT_OTHER);
	tick->first_sample = w.first;
	tick->samples = w.used;
	tick->running = w.running;
	tick->cost_ns = bpf_ktime_get_ns() - began;
	/* Atomic, so that a reader that sees the position sees what lies before it. */
	__sync_fetch_and_add(&c->samples_made, w.used);
	__sync_fetch_and_add(&c->ticks_made, 1);
	return 0;
}

/* Takes the tick that is due at a timer, unless another timer has taken it or is at one. */
static __always_inline void take_tick(struct recorder_control *c, u64 due)
{
	if (due < *(volatile u64 *)&c->due_ns || __sync_lock_test_and_set(&c->taking, 1))
		return;
	if (due >= c->due_ns) {
		u64 left_out = (due - c->due_ns) / interval_ns;

		c->ticks_late += left_out;
		c->number += left_out;
		c->due_ns = due;
		take_sample(c);
		c->number++;
		c->due_ns += interval_ns;
	}
	__sync_lock_test_and_set(&c->taking, 0);
}

static int on_timer(void *map, u32 *key, struct recorder_timer *value)
{
	u32 zero = 0;
	struct recorder_control *c = bpf_map_lookup_elem(&control, &zero);

	if (!c || c->stopped)
		return 0;
	u64 began = bpf_ktime_get_ns(), due = value->due_ns;
	take_tick(c, due);
	u64 now = bpf_ktime_get_ns();
	due += interval_ns;
	if (due <= now)
		due += ((now - due) / interval_ns + 1) * interval_ns;
	value->due_ns = due;
	arm(&value->timer, due, now);
	__sync_fetch_and_add(&c->cost_ns, bpf_ktime_get_ns() - began);
	return 0;
}

struct start {
	u32 timer;
};

/* Starts a timer on the CPU that this runs on. Its first tick is due at control.due_ns. */
SEC("syscall")
int start_recorder(struct start *ctx)
{
	u32 zero = 0, number = ctx->timer;
	struct recorder_timer *value = bpf_map_lookup_elem(&timers, &number);
	struct recorder_control *c = bpf_map_lookup_elem(&control, &zero);

	if (!value || !c)
		return 1;
	long error = bpf_timer_init(&value->timer, &timers, CLOCK_MONOTONIC);
	if (error && error != -EBUSY) /* busy: it was started before */
		return 2;
	if (bpf_timer_set_callback(&value->timer, on_timer))
		return 3;
	value->due_ns = c->due_ns;
	arm(&value->timer, value->due_ns, bpf_ktime_get_ns());
	return 0;
}
