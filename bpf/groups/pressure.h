/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * What a group's pressure files say. The kernel adds up what each CPU has counted when somebody
 * reads a file, and every 2 s: the totals in memory are as old. So what the CPUs have counted
 * since is added here as collect_percpu_times() of kernel/sched/psi.c does it, and nothing is
 * written.
 */
#ifndef OUTSIGHT_PRESSURE_H
#define OUTSIGHT_PRESSURE_H

#include "include/kernel.h"
#include "groups/groups.h"
#include "groups/groups_maps.h"
#include "groups/stat.h"

#define MAX_PSI_STATES 8
#define PSI_AT(cpu, field) FIELD_AT(cpu, struct psi_group_cpu, field)

struct pressure_walk {
	u64 percpu;
	u64 now_ns;
	u64 weighted[PRESSURES];
	u64 weights;
	u32 failed;
};

/* Reads the counters of all states of one CPU, whose number differs between kernels. */
#define READ_STATES(to, at, field) \
	(bpf_core_field_size(struct psi_group_cpu, times) <= sizeof(to) && \
	 !bpf_probe_read_kernel(to, bpf_core_field_size(struct psi_group_cpu, times), PSI_AT(at, field)))

static long add_pressure(u32 cpu, struct pressure_walk *w)
{
	u32 times[MAX_PSI_STATES] = {}, told[MAX_PSI_STATES] = {}, mask = 0;
	u64 start = 0, again = 0;
	u32 nonidle = bpf_core_enum_value(enum psi_states, PSI_NONIDLE);

	w->failed = 1;
	if (cpu >= MAX_PRESSURE_CPUS || nonidle >= MAX_PSI_STATES)
		return 1;
	u64 at = w->percpu + cpu_offsets[cpu];
	/* A CPU that changes its state sets when it began first. */
	if (bpf_probe_read_kernel(&start, sizeof(start), PSI_AT(at, state_start)) ||
	    bpf_probe_read_kernel(&mask, sizeof(mask), PSI_AT(at, state_mask)) ||
	    !READ_STATES(times, at, times) || !READ_STATES(told, at, times_prev) ||
	    bpf_probe_read_kernel(&again, sizeof(again), PSI_AT(at, state_start)) || again != start)
		return 1;
	u32 lasts = w->now_ns > start ? w->now_ns - start : 0;
	/* What was told last may be of a later moment than now_ns. */
	s32 busy = times[nonidle] - told[nonidle] + (mask & 1U << nonidle ? lasts : 0);
	u64 weight = busy > 0 ? (u32)busy / jiffy_ns : 0;
	for (int i = 0; i < PRESSURES; i++) {
		s32 held_up = times[i] - told[i] + (mask & 1U << i ? lasts : 0);
		if (held_up > 0)
			w->weighted[i] += held_up * weight;
	}
	w->weights += weight;
	w->failed = 0;
	return 0;
}

/* The clock of the scheduler as it was when this CPU looked at it last, a jiffy ago at most. */
static __always_inline u64 scheduler_clock(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u64 queue = 0, runqueue = 0, clock = 0;

	bpf_probe_read_kernel(&queue, sizeof(queue), FIELD_AT(task, struct task_struct, se.cfs_rq));
	bpf_probe_read_kernel(&runqueue, sizeof(runqueue), FIELD_AT(queue, struct cfs_rq, rq));
	bpf_probe_read_kernel(&clock, sizeof(clock), FIELD_AT(runqueue, struct rq, clock));
	return clock;
}

/* Brings totals up to date. It fails where a CPU changes its state, or the kernel adds up, meanwhile. */
static __always_inline bool add_since(u64 *totals, u64 psi)
{
	u64 again[MAX_PSI_STATES] = {};
	struct pressure_walk w = {};

	if (!bpf_core_field_exists(struct sched_entity, cfs_rq) || cpus > MAX_PRESSURE_CPUS ||
	    bpf_probe_read_kernel(&w.percpu, sizeof(w.percpu), FIELD_AT(psi, struct psi_group, pcpu)))
		return false;
	w.now_ns = scheduler_clock();
	bpf_loop(cpus, add_pressure, &w, 0);
	if (w.failed || bpf_probe_read_kernel(again, PRESSURES * sizeof(u64), FIELD_AT(psi, struct psi_group, total)))
		return false;
	for (int i = 0; i < PRESSURES; i++)
		if (again[i] != totals[i])
			return false;
	for (int i = 0; i < PRESSURES; i++)
		totals[i] += w.weighted[i] / (w.weights ? w.weights : 1);
	return true;
}

/* In whole microseconds, as the files have it. A later sum of the kernel may be less: the record keeps the greater one. */
static __always_inline void read_pressure(struct group_figures *f, u64 state, bool now)
{
	u64 group = state - bpf_core_field_offset(struct cgroup, self), psi = 0;
	u64 totals[MAX_PSI_STATES] = {};
	bool enabled = false;

	if (!bpf_core_field_exists(struct cgroup___pressure, psi) ||
	    bpf_probe_read_kernel(&psi, sizeof(psi), FIELD_AT(group, struct cgroup___pressure, psi)) || !psi ||
	    bpf_probe_read_kernel(&enabled, sizeof(enabled), FIELD_AT(psi, struct psi_group, enabled)) || !enabled ||
	    bpf_probe_read_kernel(totals, PRESSURES * sizeof(u64), FIELD_AT(psi, struct psi_group, total)))
		return;
	now = now && add_since(totals, psi);
	for (int i = 0; i < PRESSURES; i++) {
		u64 told = totals[i] - totals[i] % 1000;

		if (told > f->pressure_ns[i])
			f->pressure_ns[i] = told;
	}
	f->known |= now ? FIGURE_PRESSURE | FIGURE_PRESSURE_NOW : FIGURE_PRESSURE;
}

#endif
