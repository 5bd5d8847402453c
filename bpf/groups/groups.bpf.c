//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * What control group files say of many groups, by one system call. The addresses of the
 * controllers' states are found once. A state is read only while it belongs to the same cgroup and
 * is on line: memory of one that is gone may be another's.
 */
#include "include/kernel.h"
#include "groups/groups.h"
#include "groups/groups_maps.h"
#include "groups/pressure.h"
#include "groups/stat.h"
#include "include/timer.h"

char LICENSE[] SEC("license") = "GPL";

extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *task) __ksym;

#define MAX_LEVELS 8 /* from a task's cgroup up to the container's */

/* Limits that are none: as LONG_MAX of PAGE_COUNTER_MAX, RUNTIME_INF, and above PID_MAX_LIMIT. */
#define MOST_MEMORY 0x7fffffffffffffffULL
#define NO_QUOTA (~0ULL)
#define MOST_THREADS (4ULL << 20)

static __always_inline bool is_of(u64 state, u64 id)
{
	struct cgroup_subsys_state *css = (void *)state;
	u64 group = 0, node = 0, found = 0;
	u32 flags = 0;

	return state &&
	       !bpf_probe_read_kernel(&flags, sizeof(flags),
				      FIELD_AT(css, struct cgroup_subsys_state, flags)) &&
	       flags & CSS_ONLINE &&
	       !bpf_probe_read_kernel(&group, sizeof(group),
				      FIELD_AT(css, struct cgroup_subsys_state, cgroup)) &&
	       !bpf_probe_read_kernel(&node, sizeof(node), FIELD_AT(group, struct cgroup, kn)) &&
	       !bpf_probe_read_kernel(&found, sizeof(found),
				      FIELD_AT(node, struct kernfs_node, id)) &&
	       found == id;
}

/* The task's state of a controller. */
static __always_inline u64 state_of(u64 set, s32 index)
{
	u64 state = 0;

	if (index >= 0)
		bpf_probe_read_kernel(&state, sizeof(state),
				      FIELD_AT(set, struct css_set, subsys) + index * sizeof(u64));
	return state;
}

/* The task's cgroup in the v2 hierarchy, as the state that it has without a controller. */
static __always_inline u64 unified_state_of(u64 set)
{
	u64 group = 0;

	bpf_probe_read_kernel(&group, sizeof(group), FIELD_AT(set, struct css_set, dfl_cgrp));
	return group ? (u64)FIELD_AT(group, struct cgroup, self) : 0;
}

/* That state, or the one above it that is of the cgroup. */
static __always_inline u64 find_state(u64 state, u64 id)
{
	if (!id)
		return 0;
	for (int level = 0; level < MAX_LEVELS && state; level++) {
		if (is_of(state, id))
			return state;
		u64 parent = 0;
		bpf_probe_read_kernel(&parent, sizeof(parent),
				      FIELD_AT(state, struct cgroup_subsys_state___tree, parent));
		state = parent;
	}
	return 0;
}

/* A state of the v2 hierarchy. */
static __always_inline bool is_unified(u64 state)
{
	u64 group = 0, root = 0;
	u32 number = 1;

	return !bpf_probe_read_kernel(&group, sizeof(group), FIELD_AT(state, struct cgroup_subsys_state, cgroup)) &&
	       !bpf_probe_read_kernel(&root, sizeof(root), FIELD_AT(group, struct cgroup, root)) &&
	       !bpf_probe_read_kernel(&number, sizeof(number), FIELD_AT(root, struct cgroup_root, hierarchy_id)) &&
	       !number;
}

/* Puts a group into a slot, or nothing. Its value tells which controllers were found, a bit each. */
SEC("syscall")
int watch_group(struct watch_request *request)
{
	u32 slot = request->slot;
	struct watched_group *w = bpf_map_lookup_elem(&watched_groups, &slot);
	struct group_figures *f = bpf_map_lookup_elem(&figures_of_group, &slot);
	u64 set = 0;
	/* Each at a constant offset, as the verifier demands of a context. */
	const u64 ids[CONTROLLERS] = {request->ids[0], request->ids[1], request->ids[2], request->ids[3]};
	int found = 0;

	if (!w || !f)
		return -1;
	for (int i = 0; i < CONTROLLERS; i++)
		w->ids[i] = w->states[i] = 0;
	for (int i = 0; i < PRESSURES; i++)
		f->pressure_ns[i] = 0;
	if (!request->pid)
		return 0;
	struct task_struct *task = bpf_task_from_pid(request->pid);
	if (!task)
		return 0;
	bpf_probe_read_kernel(&set, sizeof(set), FIELD_AT(task, struct task_struct, cgroups));
	const u64 states[CONTROLLERS] = {state_of(set, memory_index), state_of(set, cpu_index),
					 state_of(set, pids_index), unified_state_of(set)};
	for (int i = 0; i < CONTROLLERS; i++) {
		w->ids[i] = ids[i];
		w->states[i] = find_state(states[i], ids[i]);
		if (w->states[i])
			found |= 1 << i;
	}
	bpf_task_release(task);
	return found;
}

/*
 * The group's own limit, as memory.max of v2 says, or the least of it and of those above it, as
 * memory.stat of v1. What is more than MAX_LEVELS below the root has none.
 */
static __always_inline void read_memory_limit(struct group_figures *f, u64 state)
{
	bool unified = is_unified(state);
	u64 least = ~0ULL;

	for (int level = 0; level < MAX_LEVELS; level++) {
		u64 pages = 0, parent = 0;

		if (bpf_probe_read_kernel(&pages, sizeof(pages), FIELD_AT(state, struct mem_cgroup, memory.max)) ||
		    bpf_probe_read_kernel(&parent, sizeof(parent),
					  FIELD_AT(state, struct cgroup_subsys_state___tree, parent)))
			return;
		if (pages < least)
			least = pages;
		state = unified ? 0 : parent;
		if (!state)
			break;
	}
	if (state)
		return;
	f->memory_limit_bytes = least < MOST_MEMORY / page_bytes ? least * page_bytes : 0;
	f->known |= FIGURE_MEMORY_LIMIT;
}

static __always_inline void read_memory(struct group_figures *f, struct group_details *d, u64 state,
					bool details)
{
	u64 pages, kills;
	u64 at = (u64)FIELD_AT(state, struct mem_cgroup, memory.usage.counter);

	if (!bpf_probe_read_kernel(&pages, sizeof(pages), (void *)at)) {
		f->memory_bytes = pages * page_bytes;
		f->known |= FIGURE_MEMORY;
	}
	if (bpf_core_enum_value_exists(enum memcg_memory_event, MEMCG_OOM_KILL) &&
	    !bpf_probe_read_kernel(&kills, sizeof(kills), FIELD_AT(state, struct mem_cgroup, memory_events) +
		bpf_core_enum_value(enum memcg_memory_event, MEMCG_OOM_KILL) * sizeof(kills))) {
		f->kills = kills;
		f->known |= FIGURE_KILLS;
	}
	read_memory_limit(f, state);
	if (!details)
		return;
	u32 zero = 0;
	struct stat_scratch *s = bpf_map_lookup_elem(&scratch, &zero);
	if (!s || !read_exact_words(state, s))
		return;
	for (int i = 0; i < STAT_WORDS; i++)
		d->words[i] = s->sum[i];
	f->known |= FIGURE_STAT;
}

static __always_inline void read_throttle(struct group_figures *f, u64 state)
{
	u32 periods, throttled;
	u64 ns;

	if (!bpf_core_field_exists(struct task_group, cfs_bandwidth.throttled_time) ||
	    bpf_probe_read_kernel(&periods, sizeof(periods),
			FIELD_AT(state, struct task_group, cfs_bandwidth.nr_periods)) ||
	    bpf_probe_read_kernel(&throttled, sizeof(throttled),
			FIELD_AT(state, struct task_group, cfs_bandwidth.nr_throttled)) ||
	    bpf_probe_read_kernel(&ns, sizeof(ns),
			FIELD_AT(state, struct task_group, cfs_bandwidth.throttled_time)))
		return;
	f->periods = periods;
	f->throttled_periods = throttled;
	f->throttled_ns = is_unified(state) ? ns - ns % 1000 : ns;
	f->known |= FIGURE_THROTTLE;
}

static __always_inline void read_quota(struct group_figures *f, u64 state)
{
	u64 quota, period;

	if (!bpf_core_field_exists(struct task_group, cfs_bandwidth.quota) ||
	    bpf_probe_read_kernel(&quota, sizeof(quota), FIELD_AT(state, struct task_group, cfs_bandwidth.quota)) ||
	    bpf_probe_read_kernel(&period, sizeof(period), FIELD_AT(state, struct task_group, cfs_bandwidth.period)))
		return;
	u64 quota_us = quota / 1000, period_us = period / 1000;
	f->quota_microcores = quota == NO_QUOTA || !period_us ? 0 : (quota_us * 1000000 + period_us / 2) / period_us;
	f->known |= FIGURE_QUOTA;
}

static __always_inline void read_threads(struct group_figures *f, u64 state)
{
	u64 threads, limit;

	if (!bpf_probe_read_kernel(&threads, sizeof(threads),
				   FIELD_AT(state, struct pids_cgroup, counter.counter))) {
		f->threads = threads;
		f->known |= FIGURE_THREADS;
	}
	if (!bpf_probe_read_kernel(&limit, sizeof(limit), FIELD_AT(state, struct pids_cgroup, limit.counter))) {
		f->threads_limit = limit > MOST_THREADS ? 0 : limit;
		f->known |= FIGURE_THREADS_LIMIT;
	}
}

/* A state that went away while it was read counts for nothing, hence the second look. */
static long read_group(u32 number, struct read_request *request)
{
	u32 slot = request->first + number;
	struct watched_group *w = bpf_map_lookup_elem(&watched_groups, &slot);
	struct group_figures *f = bpf_map_lookup_elem(&figures_of_group, &slot);
	struct group_details *d = bpf_map_lookup_elem(&details_of_group, &slot);

	if (!w || !f || !d)
		return 1;
	u64 generation = f->head + 1;
	f->tail = generation;
	barrier();
	f->known = 0;
	u64 memory = w->states[CONTROLLER_MEMORY], cpu = w->states[CONTROLLER_CPU];
	u64 pids = w->states[CONTROLLER_PIDS], unified = w->states[CONTROLLER_UNIFIED];
	if (is_of(memory, w->ids[CONTROLLER_MEMORY])) {
		read_memory(f, d, memory, request->details);
		if (!is_of(memory, w->ids[CONTROLLER_MEMORY]))
			f->known = 0;
	}
	if (is_of(cpu, w->ids[CONTROLLER_CPU])) {
		read_throttle(f, cpu);
		read_quota(f, cpu);
		if (!is_of(cpu, w->ids[CONTROLLER_CPU]))
			f->known &= ~(FIGURE_THROTTLE | FIGURE_QUOTA);
	}
	if (is_of(pids, w->ids[CONTROLLER_PIDS])) {
		read_threads(f, pids);
		if (!is_of(pids, w->ids[CONTROLLER_PIDS]))
			f->known &= ~(FIGURE_THREADS | FIGURE_THREADS_LIMIT);
	}
	if (is_of(unified, w->ids[CONTROLLER_UNIFIED])) {
		read_pressure(f, unified, request->details);
		if (!is_of(unified, w->ids[CONTROLLER_UNIFIED])) {
			f->known &= ~(FIGURE_PRESSURE | FIGURE_PRESSURE_NOW);
			/* The slot is another group's by now, whose sum may be less. */
			for (int i = 0; i < PRESSURES; i++)
				f->pressure_ns[i] = 0;
		}
	}
	barrier();
	f->head = generation;
	return 0;
}

/*
 * One at a time reads. Nobody waits here: a timer may have interrupted the program that it would
 * wait for.
 */
static __always_inline bool begin_reading(struct figures_control *c)
{
	return !__sync_lock_test_and_set(&c->taking, 1);
}

static __always_inline void end_reading(struct figures_control *c)
{
	__sync_lock_test_and_set(&c->taking, 0);
}

/* Is READING_BUSY while the timer reads. */
SEC("syscall")
int read_groups(struct read_request *request)
{
	u32 zero = 0;
	struct read_request r = {request->first, request->count, request->details};
	struct figures_control *c = bpf_map_lookup_elem(&figures_controls, &zero);

	if (!c || !begin_reading(c))
		return READING_BUSY;
	bpf_loop(r.count, read_group, &r, 0);
	if (!r.first && r.count >= c->groups)
		c->read_ns = bpf_ktime_get_ns();
	end_reading(c);
	return 0;
}

#define SLICE_GROUPS 32		/* read in one interrupt: some 80 us */
#define SLICE_PAUSE_NS 1000000ULL

/*
 * Reads a slice of the groups. The next one follows soon, and after the last the first one is due.
 * While a program reads them at the same pace there is nothing to do.
 */
static int on_figures_timer(void *map, u32 *key, struct figures_timer *value)
{
	u32 zero = 0;
	struct figures_control *c = bpf_map_lookup_elem(&figures_controls, &zero);

	if (!c || !c->interval_ns)
		return 0;
	u64 began = bpf_ktime_get_ns(), interval = c->interval_ns;
	u64 due = began + SLICE_PAUSE_NS;
	if (!value->next && began - c->read_ns < interval + interval / 2) {
		due = value->due_ns = began + interval;
	} else if (begin_reading(c)) {
		u64 groups = c->groups;
		struct read_request r = {value->next, SLICE_GROUPS};

		if (r.first + r.count > groups)
			r.count = groups > r.first ? groups - r.first : 0;
		bpf_loop(r.count, read_group, &r, 0);
		end_reading(c);
		value->next += SLICE_GROUPS;
		if (value->next >= groups) {
			value->next = 0;
			c->readings++;
			value->due_ns += interval;
			if (value->due_ns <= began)
				value->due_ns = began + interval;
			due = value->due_ns;
		}
	}
	u64 now = bpf_ktime_get_ns();
	c->cost_ns += now - began;
	arm(&value->timer, due, now);
	return 0;
}

/* Starts the timer. Its first reading is due at once. */
SEC("syscall")
int start_figures(void *ctx)
{
	u32 zero = 0;
	struct figures_timer *value = bpf_map_lookup_elem(&figures_timers, &zero);

	if (!value)
		return 1;
	long error = bpf_timer_init(&value->timer, &figures_timers, CLOCK_MONOTONIC);
	if (error && error != -EBUSY) /* busy: it was started before */
		return 2;
	if (bpf_timer_set_callback(&value->timer, on_figures_timer))
		return 3;
	value->due_ns = bpf_ktime_get_ns();
	value->next = 0;
	arm(&value->timer, value->due_ns, value->due_ns);
	return 0;
}

/* What memory.stat says of the group in slot first unless it has to be flushed. */
SEC("syscall")
int read_flushed(struct read_request *request)
{
	u32 slot = request->first, zero = 0;
	struct watched_group *w = bpf_map_lookup_elem(&watched_groups, &slot);
	struct flushed_stat *f = bpf_map_lookup_elem(&flushed, &zero);

	if (!w || !f)
		return -1;
	f->known = 0;
	u64 memory = w->states[CONTROLLER_MEMORY];
	if (!is_of(memory, w->ids[CONTROLLER_MEMORY]))
		return 0;
	u64 stats = stats_of(memory);
	clear_words(f->words);
	f->known = stats && read_flushed_words(f->words, stats) &&
		   is_of(memory, w->ids[CONTROLLER_MEMORY]);
	return 0;
}

/* Finds out how far the CPUs' copies of a variable are from its address. */
SEC("syscall")
int find_cpus(void *ctx)
{
	u32 zero = 0;
	u64 base = 0;

	*(volatile u64 *)&anchor_address = (u64)&anchor; /* by way of memory, as below */
	u64 at = *(volatile u64 *)&anchor_address;
	if (bpf_probe_read_kernel(&base, sizeof(base), FIELD_AT(at, struct bpf_array, pptrs)))
		return -1;
	for (u32 cpu = 0; cpu < MAX_PRESSURE_CPUS && cpu < cpus; cpu++) {
		u64 *copy = bpf_map_lookup_percpu_elem(&anchor, &zero, cpu);
		if (!copy)
			return -1;
		/* The verifier does not let a pointer be reckoned with. */
		*(volatile u64 *)&cpu_offsets[cpu] = (u64)copy;
		cpu_offsets[cpu] = *(volatile u64 *)&cpu_offsets[cpu] - base;
	}
	return 0;
}
