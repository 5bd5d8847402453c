/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of counters.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_COUNTERS_H
#define OUTSIGHT_COUNTERS_H

#include "include/kernel.h"
#include "sched/smt.h"

/* Events of a CPU's group. The first is the one that is divided by how many siblings were busy. */
#define COUNTERS 4

/*
 * What one control group's threads counted on one CPU; lane of slot s on CPU c is at s * CPUs + c.
 * Only that CPU adds to it. In time that is enabled but not running, others had the hardware.
 */
struct counter_lane {
	u64 values[COUNTERS];
	u64 enabled_ns;
	u64 running_ns;
	u64 with[SMT_THREADS]; /* of values[0]: while i + 1 threads of the core were busy */
	u64 slices;
	u64 unused[5];
};

/*
 * What a CPU's counters were when the slice began that runs on it now. sequence is odd while the
 * record and the lanes change.
 */
struct counter_cpu {
	u64 sequence;
	u64 values[COUNTERS];
	u64 enabled_ns;
	u64 running_ns;
	u32 slot;
	u32 state; /* enum counter_state */
	struct smt_slice smt;
	u64 unused[3];
};

/* A process in a control group. */
struct counter_process_key {
	u64 group;
	u32 tgid;
	u32 unused;
};

#define COUNTER_PROCESS_NAME 16

/* What the threads of one process counted on one CPU. */
struct counter_process {
	u64 values[COUNTERS];
	u64 enabled_ns;
	u64 running_ns;
	u64 slices;
	u64 began_ns; /* of its last slice, when it had this name */
	u8 name[COUNTER_PROCESS_NAME];
};

/* Whose slice runs on a CPU. */
struct counter_process_slice {
	struct counter_process_key key;
	u64 began_ns; /* 0: of which process is not known */
	u8 name[COUNTER_PROCESS_NAME];
};

enum counter_state {
	COUNTER_UNKNOWN = 0, /* before the first switch */
	COUNTER_READS = 1,
	COUNTER_FAILS = 2, /* the counters could not be read when the slice began */
};

enum counter_drop {
	DROP_COUNTER_READ = 0,  /* the counters could not be read: a slice is missing */
	DROP_COUNTER_RESET = 1, /* they began anew: a slice is missing */
	DROP_COUNTER_CORE = 2,  /* a core's lock could not be had: a slice seems not to be shared */
	DROP_COUNTER_PROCESS = 3, /* no room for a process: a slice is its group's alone */
	COUNTER_DROPS = 4,
};

#endif
