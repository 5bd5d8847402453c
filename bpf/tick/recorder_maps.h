/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The recorder's tables and those of other programs that it reads, and what the loader sets. */
#ifndef OUTSIGHT_RECORDER_MAPS_H
#define OUTSIGHT_RECORDER_MAPS_H

#include "include/kernel.h"
#include "block/disk.h"
#include "include/cgroup_id.h"
#include "include/histogram.h"
#include "include/timer.h"
#include "net/edges.h"
#include "sched/cgroup_maps.h"
#include "sched/cgroups.h"
#include "sched/run_queue_clock.h"
#include "tick/recorder.h"

struct recorder_timer {
	struct bpf_timer timer;
	u64 due_ns;
};

/* Set by the loader. */
const volatile u32 cpus = 1;
const volatile u32 slots = 1;
const volatile u64 interval_ns = 1000000000;
const volatile u32 tick_mask = 0;   /* room for ticks, less one: a power of two */
const volatile u32 sample_mask = 0; /* the same of samples */
/* cpu_state.since_ns is of the run queue's clock, not of the monotonic one. */
const volatile bool use_run_queue_clock = false;

/* Indices in css_set.subsys; -1 where the kernel has no such controller. */
const volatile bool counts_disk = false;
const volatile s32 memory_index = -1;
const volatile s32 cpu_index = -1;
const volatile u32 page_bytes = 4096;

/* Keeps the enumeration in the object for the reader. */
const volatile enum sample_known sample_known_type;

/* What read_clocks says. */
struct clocks clocks_read;

/* --- maps of the other programs --- */

/* Of disk.bpf.c, which declares it alike. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct disk_slot);
} disk_of_slot SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct edge);
} edges SEC(".maps");

/* --- the recorder's own --- */

/* As many as there are timers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct recorder_timer);
} timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct recorder_control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct recorder_tick);
} ticks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct recorder_sample);
} samples SEC(".maps");

/* By slot: the id of a group that is not to be recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} unwanted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct recorded_edge);
} recorded_edges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct edge_seen);
} edges_seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slot_sums);
} sums_of_slot SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_snapshot);
} cpu_snapshots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct group_states);
} states_of_slot SEC(".maps");

#endif
