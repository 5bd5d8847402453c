/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The counters behind memory.stat. What each CPU has counted since the last flush is added to what
 * is flushed, so the sum is exact without a flush, in a group that has none below it.
 */
#ifndef OUTSIGHT_GROUPS_STAT_H
#define OUTSIGHT_GROUPS_STAT_H

#include "include/kernel.h"
#include "groups/groups.h"
#include "groups/groups_maps.h"

#define FIELD_AT(base, type, field) ((void *)(base) + bpf_core_field_offset(type, field))

/* Reads an array of the kernel's, whatever its length there, to words of scratch. */
#define READ_ARRAY(to, room, base, type, field) \
	(bpf_core_field_size(type, field) <= (room) * sizeof(s64) && \
	 !bpf_probe_read_kernel(to, bpf_core_field_size(type, field), FIELD_AT(base, type, field)))

static __always_inline void clear_words(s64 *words)
{
	for (int i = 0; i < STAT_WORDS; i++)
		words[i] = 0;
}

static __always_inline void add_words(s64 *to, const s64 *part)
{
	for (int i = 0; i < STAT_WORDS; i++)
		to[i] += part[i];
}

static __always_inline void subtract_words(s64 *from, const s64 *part)
{
	for (int i = 0; i < STAT_WORDS; i++)
		from[i] -= part[i];
}

static __always_inline bool read_flushed_words(s64 *words, u64 stats)
{
	return READ_ARRAY(words, STAT_STATES, stats, struct memcg_vmstats, state) &&
	       READ_ARRAY(words + STAT_STATES, STAT_EVENTS, stats, struct memcg_vmstats, events);
}

static __always_inline u64 stats_of(u64 memory)
{
	u64 stats = 0;

	if (!bpf_core_field_exists(struct memcg_vmstats, state_pending) ||
	    !bpf_core_field_exists(struct mem_cgroup, vmstats_percpu))
		return 0;
	bpf_probe_read_kernel(&stats, sizeof(stats), FIELD_AT(memory, struct mem_cgroup, vmstats));
	return stats;
}

static __always_inline bool has_children(u64 state)
{
	u64 first = 0, list = (u64)FIELD_AT(state, struct cgroup_subsys_state___tree, children);

	return bpf_probe_read_kernel(&first, sizeof(first), (void *)list) || first != list;
}

struct cpu_walk {
	u64 percpu;
	u32 failed;
};

static long add_cpu(u32 cpu, struct cpu_walk *w)
{
	u32 zero = 0;
	struct stat_scratch *s = bpf_map_lookup_elem(&scratch, &zero);

	if (!s || cpu >= MAX_STAT_CPUS) {
		w->failed = 1;
		return 1;
	}
	u64 at = w->percpu + cpu_offsets[cpu];
	if (!READ_ARRAY(s->part, STAT_STATES, at, struct memcg_vmstats_percpu, state) ||
	    !READ_ARRAY(s->part + STAT_STATES, STAT_EVENTS, at, struct memcg_vmstats_percpu, events)) {
		w->failed = 1;
		return 1;
	}
	add_words(s->sum, s->part);
	if (!READ_ARRAY(s->part, STAT_STATES, at, struct memcg_vmstats_percpu, state_prev) ||
	    !READ_ARRAY(s->part + STAT_STATES, STAT_EVENTS, at, struct memcg_vmstats_percpu, events_prev)) {
		w->failed = 1;
		return 1;
	}
	subtract_words(s->sum, s->part);
	return 0;
}

/* A flush meanwhile would count something twice or not at all: then there is no sum. */
static __always_inline bool read_exact_words(u64 memory, struct stat_scratch *s)
{
	u64 stats = stats_of(memory);
	struct cpu_walk w = {};

	if (!stats || cpus > MAX_STAT_CPUS || has_children(memory))
		return false;
	if (bpf_probe_read_kernel(&w.percpu, sizeof(w.percpu),
				  FIELD_AT(memory, struct mem_cgroup, vmstats_percpu)))
		return false;
	clear_words(s->flushed);
	clear_words(s->part);
	if (!read_flushed_words(s->flushed, stats) ||
	    !READ_ARRAY(s->part, STAT_STATES, stats, struct memcg_vmstats, state_pending) ||
	    !READ_ARRAY(s->part + STAT_STATES, STAT_EVENTS, stats, struct memcg_vmstats, events_pending))
		return false;
	for (int i = 0; i < STAT_WORDS; i++)
		s->sum[i] = s->flushed[i] + s->part[i];
	clear_words(s->part);
	bpf_loop(cpus, add_cpu, &w, 0);
	if (w.failed || !read_flushed_words(s->part, stats))
		return false;
	s64 changed = 0;
	for (int i = 0; i < STAT_WORDS; i++)
		changed |= s->flushed[i] ^ s->part[i];
	return !changed;
}

#endif
