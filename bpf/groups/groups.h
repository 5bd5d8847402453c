/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of groups.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_GROUPS_H
#define OUTSIGHT_GROUPS_H

#include "include/kernel.h"

/* Room for the counters behind memory.stat, whose number differs between kernels. */
#define STAT_STATES 64
#define STAT_EVENTS 32
#define STAT_WORDS (STAT_STATES + STAT_EVENTS)

/* Controllers, each of which may be in a hierarchy of its own. */
enum group_controller {
	CONTROLLER_MEMORY,
	CONTROLLER_CPU,
	CONTROLLER_PIDS,
	CONTROLLER_UNIFIED, /* the cgroup itself in the v2 hierarchy, which pressure is kept of */
	CONTROLLERS,
};

/* Which figures are there. */
enum group_figure {
	FIGURE_MEMORY = 1,
	FIGURE_KILLS = 2,
	FIGURE_STAT = 4, /* of group_details */
	FIGURE_THROTTLE = 8,
	FIGURE_THREADS = 16,
	FIGURE_PRESSURE = 32,
	FIGURE_MEMORY_LIMIT = 64,
	FIGURE_QUOTA = 128,
	FIGURE_THREADS_LIMIT = 256,
	FIGURE_PRESSURE_NOW = 512, /* the pressure is up to date */
};

/* Places in group_figures.pressure_ns, as enum psi_states of the kernel has them. */
enum group_pressure {
	PRESSURE_IO_SOME,
	PRESSURE_IO_FULL,
	PRESSURE_MEMORY_SOME,
	PRESSURE_MEMORY_FULL,
	PRESSURE_CPU_SOME,
	PRESSURE_CPU_FULL,
	PRESSURES,
};

/*
 * What a group's files say; a limit of 0 is none. The writer writes tail, figures, head; a reader
 * that finds head and tail equal, having read upwards, has figures of one moment. It has no more
 * than is read of many groups at once from outside: what only the agent reads is in group_details,
 * written between the two as well.
 */
struct group_figures {
	u64 head;
	u32 known; /* of enum group_figure */
	u32 unused_two;
	u64 memory_bytes;
	u64 kills;
	u64 threads;
	u64 periods;
	u64 throttled_periods;
	u64 throttled_ns;
	u64 pressure_ns[PRESSURES]; /* up to 2 s old without FIGURE_PRESSURE_NOW */
	u64 memory_limit_bytes;
	u64 quota_microcores;
	u64 threads_limit;
	u64 tail;
};

/* What only the agent reads of a group. */
struct group_details {
	/* The counters behind memory.stat: its states, in pages or what they count, then its events. */
	s64 words[STAT_WORDS];
};

/* The counters behind memory.stat as far as they are flushed, of one group. */
struct flushed_stat {
	u64 known;
	s64 words[STAT_WORDS];
};

/* The controllers' states of the group in a slot: their cgroups' ids and addresses, 0 where there is none. */
struct watched_group {
	u64 ids[CONTROLLERS];
	u64 states[CONTROLLERS];
};

/* Arguments of watch_group. */
struct watch_request {
	u32 slot;
	s32 pid; /* of a task in the group, or in one below it; 0 frees the slot */
	u64 ids[CONTROLLERS];
};

#define READING_BUSY 1 /* what read_groups answers while another one reads */

/* What the agent tells the timer that reads figures, and the other way round. */
struct figures_control {
	u64 interval_ns; /* between two readings; 0 ends them */
	u64 groups;	 /* so many slots are read, from the first on */
	u64 taking;	 /* 1 while figures are read, by a program or the timer */
	u64 read_ns;	 /* when a program read all groups last, on the monotonic clock */
	u64 readings;	 /* of all groups that the timer has made */
	u64 cost_ns;	 /* that they took */
};

/* Arguments of read_groups and read_flushed. */
struct read_request {
	u32 first;
	u32 count;
	u32 details; /* 0: figures alone */
};

#endif
