/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of contention.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_CONTENTION_H
#define OUTSIGHT_CONTENTION_H

#include "include/kernel.h"

/* What a slice can be of besides a control group, by its id. */
#define CONTENTION_UNKNOWN 0ULL /* no group of its own, or not known any more */
#define CONTENTION_IDLE (~0ULL)

#define CONTENTION_SLICES 512 /* a power of two */

/*
 * A time that one group ran on a CPU, however many of its threads; it began where the one before
 * ended.
 */
struct contention_slice {
	u64 group;
	u64 end_ns;
};

/* What one CPU ran last. Only that CPU uses it. */
struct contention_cpu {
	u64 group;   /* of the running thread */
	u64 here_ns; /* what the running thread waited on this CPU */
	u32 slot;
	u32 pid;
	u32 newest; /* number of the newest slice */
	u32 known;  /* 1 after the first switch */
	u64 unused[4];
	struct contention_slice slices[CONTENTION_SLICES];
};

#define CONTENTION_QUOTAS 4 /* a power of two */

struct contention_quota {
	u64 from_ns;
	u64 to_ns;
};

/*
 * What the threads of one group waited for on one CPU, but for other groups; lane of slot s on
 * CPU c is at s * CPUs + c. Only that CPU writes it.
 */
struct contention_lane {
	u64 own_ns;   /* other threads of the group ran */
	u64 idle_ns;  /* nothing ran: the time to wake the CPU up */
	u64 other_ns; /* who ran is not known any more, or found no room */
	u64 quota_ns; /* its own CPU quota was used up */
	u64 moved_ns; /* on another CPU, from which it was moved before it ran */
	u64 own_preemptions;
	u64 other_preemptions;
	u64 quota_stops; /* taken off the CPU because its quota was used up */
	/* The last times that this group was throttled here, by the run queue in run_queue. */
	u64 run_queue;
	u64 throttled_ns;
	u64 throttled_since_ns;
	u64 quotas_made;
	struct contention_quota quotas[CONTENTION_QUOTAS];
};

/*
 * What one group did to another on one CPU. A pair is in one of CONTENTION_WAYS entries of its
 * CPU's table, which its ids give. Ids are never used again, so a pair never becomes another one's.
 */
struct contention_pair {
	u64 victim; /* 0 where the entry is free */
	u64 culprit;
	u64 wait_ns;
	u64 preemptions;
};

#define CONTENTION_WAYS 8

enum contention_drop {
	DROP_CONTENTION_PAIR = 0,  /* no room for a pair: counted under other */
	CONTENTION_DROPS = 1,
};

#endif
