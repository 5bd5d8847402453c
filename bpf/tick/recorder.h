/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of recorder.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_RECORDER_H
#define OUTSIGHT_RECORDER_H

#include "include/kernel.h"

/*
 * Ticks and samples lie in two rings, which are arrays. Positions only grow; the index of a
 * position is its remainder. The kernel writes the made ones, the reader the taken ones.
 */
struct recorder_control {
	u64 ticks_made;
	u64 samples_made;
	u64 ticks_full; /* ticks that found no room */
	u64 ticks_late; /* ticks left out because all timers, or the tick before, were too late */
	u64 number;	/* of the next tick */
	u64 due_ns;	/* when the next tick is due */
	u64 cost_ns;	/* of all timers so far */
	u64 taking;	/* 1 while a timer takes a tick */
	/* of the reader */
	u64 ticks_taken;
	u64 samples_taken;
	s64 clock_ahead_ns; /* of the clock of cpu_state.since_ns, from the monotonic one */
	u32 clock_known;
	u32 edges; /* entries of recorded_edges */
	u32 stopped;
	u32 unused_too;
	u64 unused_three[3];
};

struct recorder_tick {
	u64 number;
	u64 due_ns;
	u64 began_ns;
	u64 cost_ns;
	u64 idle_ns;  /* CPU time of the idle tasks */
	u64 other_ns; /* of groups that have no slot */
	u64 first_sample; /* its position */
	u32 samples;
	u32 running; /* CPUs that are not idle */
};

struct recorder_sample {
	u64 group;
	u64 cpu_ns;
	u64 wait_ns;
	u64 waits;
	u64 voluntary;
	u64 involuntary;
	u64 sent_bytes;
	u64 received_bytes;
	u32 client_in_flight;
	u32 server_in_flight;
	u32 running;
	u32 known; /* which of the following */
	u64 memory_bytes;
	u64 throttled_ns;
	u64 throttled_periods;
	u64 minor_faults;
	u64 major_faults;
	u64 disk_read_bytes;
	u64 disk_write_bytes;
	u64 disk_reads;
	u64 disk_writes;
	u64 disk_time_ns;
};

enum sample_known {
	SAMPLE_MEMORY = 1,
	SAMPLE_THROTTLED = 2,
	SAMPLE_DISK = 4,
};

/*
 * The controllers' states of a slot's group, by address: 0 where there is none. They are right
 * while group is the slot's owner.
 */
struct group_states {
	u64 group;
	u64 memory; /* struct mem_cgroup */
	u64 cpu;    /* struct task_group */
	u64 scanned_ns;
	/* Without a quota it has never used one up since: what a tick need not read. */
	u64 throttled_ns;
	u32 throttled_periods;
	u32 has_quota;
};

/* What runs on a CPU, and what its group's lane there counts, of one moment. */
struct cpu_snapshot {
	u64 usage_ns; /* of the lane, that of the running task included */
	u64 minor_faults;
	u64 major_faults;
	u32 slot;
	u32 valid;
};

/* What was summed for a slot's group. */
struct slot_sums {
	u64 group;
	u64 tick; /* that client_in_flight and server_in_flight are of */
	u64 cpu_ns; /* at the last tick: a tick never goes back */
	u64 minor_faults;
	u64 major_faults;
	u64 sent_bytes;
	u64 received_bytes;
	u32 client_in_flight;
	u32 server_in_flight;
};

/* An edge whose owner has a slot; the reader makes the list. */
struct recorded_edge {
	u64 owner;
	u32 index;
	u32 slot;
};

/* The counters of an edge at the last tick. */
struct edge_seen {
	u64 owner;
	u64 sent_bytes;
	u64 received_bytes;
};

#endif
