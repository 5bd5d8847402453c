/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of cgroups.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_CGROUPS_H
#define OUTSIGHT_CGROUPS_H

#include "include/kernel.h"

/* Slots that are not a control group's. */
enum cgroup_slot {
	CGROUP_SLOT_OTHER = 0, /* groups for which there was no free slot */
	CGROUP_SLOT_IDLE = 1,  /* the idle task */
	CGROUP_SLOT_FIRST = 2,
};

/*
 * Counters of one control group on one CPU; lane of slot s on CPU c is at s * CPUs + c. Only that
 * CPU adds to them, so they need no atomic operation.
 */
struct cgroup_lane {
	u64 usage_ns;
	u64 voluntary;
	u64 involuntary;
	u64 wait_ns;
	u64 waits;
	u64 minor_faults;
	u64 major_faults;
	u64 polling_ns; /* of usage_ns: slices after which the thread slept for a time, not for somebody */
};

/*
 * Processes and threads of one control group. Their beginnings are rare: any CPU adds, atomically.
 */
struct process_counts {
	u64 forks;
	u64 execs;
	u64 exits;
	u64 thread_starts; /* without the first threads of processes */
};

#define CGROUP_CACHE_ENTRIES 16

/*
 * What runs on a CPU now. sequence is odd while the record and the lanes change, so that a reader
 * can tell that it saw both of one moment.
 */
struct cpu_state {
	u64 sequence;
	u64 since_ns; /* when the running task was switched in; 0 before the first switch */
	u32 slot;
	u32 pid;
	u64 task; /* the running task's address, and its faults when it was switched in */
	u64 minor_faults;
	u64 major_faults;
	/* what the last thread switched out had waited before it ran: its part of wait_ns */
	u64 waited_ns;
	u64 group; /* of the running thread, whatever its slot; 0 if it is the idle one */
	u64 missed_switches; /* at which no program ran, noticed at the next one */
	/*
	 * a direct-mapped cache of slot_of; the reader invalidates the entry of a slot that it
	 * takes back
	 */
	u64 cached_id[CGROUP_CACHE_ENTRIES];
	u32 cached_slot[CGROUP_CACHE_ENTRIES];
};

struct clocks {
	u64 run_queue_ns;
	u64 monotonic_ns;
};

/* What a thread's sched_info and faults were when it was last switched out. */
struct task_state {
	u64 run_delay_ns;
	u64 arrivals;
	u64 minor_faults;
	u64 major_faults;
	u64 seen; /* states_round when it was last known to exist; where tasks have no storage */
};

enum cgroup_event_kind {
	CGROUP_MADE = 1,
	CGROUP_REMOVED = 2,
	TASK_ATTACHED = 3,
	OOM_KILL = 4, /* path is the name of the process; sent by reclaim.bpf.c */
	METRICS_FILE = 5, /* path is "outsight:" and a descriptor; sent by appmetrics.bpf.c */
};

#define CGROUP_PATH_BYTES 256

struct cgroup_event {
	u64 id;
	u64 time_ns;
	u32 kind;
	u32 pid;
	char path[CGROUP_PATH_BYTES];
};

enum cgroup_drop {
	DROP_CGROUP_SLOT = 0, /* no free slot: counted under CGROUP_SLOT_OTHER */
	DROP_CGROUP_EVENT = 1,
	DROP_TASK_STATE = 2, /* no memory for a thread's state: no waits and faults of it */
	CGROUP_DROPS = 3,
};

#endif
