/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of reclaim.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_RECLAIM_H
#define OUTSIGHT_RECLAIM_H

#include "include/kernel.h"

/* Why a thread had to free memory before it went on. */
enum reclaim_cause {
	RECLAIM_LIMIT = 0, /* a control group's own limit */
	RECLAIM_HOST = 1,  /* the host is short of memory */
	RECLAIM_CAUSES = 2,
};

/* Counters of one control group, by the slot that it has in cgroups.bpf.c. */
struct reclaim_group {
	u64 stall_ns[RECLAIM_CAUSES];
	u64 stalls[RECLAIM_CAUSES];
};

/* A thread that is freeing memory. */
struct reclaim_key {
	u32 pid;
	u32 cause;
};

enum reclaim_drop {
	DROP_RECLAIM = 0, /* no room for a thread that frees memory: its stall is not counted */
	DROP_VICTIM = 1,  /* no room for the event of a thread that was killed */
	RECLAIM_DROPS = 2,
};

#endif
