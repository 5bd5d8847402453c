/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Which part of a thread's cycles it had its core for itself, and which it shared with sibling
 * hardware threads. A CPU can read no counter of another one, so the overlap is known as time: each
 * core keeps for how long one, two, three ... of its threads were busy, and what a CPU counted in a
 * slice is divided in the proportion of these times. Cycles are neither lost nor counted twice: the
 * parts of a slice always add up to it.
 *
 * The caller gives the lock, if cores can be switched on several CPUs at once.
 */
#ifndef OUTSIGHT_SMT_H
#define OUTSIGHT_SMT_H

#include "include/kernel.h"

/* Hardware threads of a core that are counted apart; further busy ones count as this many. */
#define SMT_THREADS 4

struct smt_core {
	u64 at_ns; /* up to when the times are counted */
	u64 busy_ns[SMT_THREADS]; /* [n]: for how long n + 1 threads were busy */
	u64 busy; /* threads that are busy now */
};

/* A CPU's slice: from when it was given to a group, or became idle. */
struct smt_slice {
	u64 busy_ns[SMT_THREADS]; /* the core's when it began */
	u32 busy; /* it is a group's */
	u32 core;
};

/* Puts the core's clock forward. Clocks of siblings may differ by a little: it never goes back. */
static __always_inline void smt_advance(struct smt_core *core, u64 now_ns)
{
	if (now_ns <= core->at_ns)
		return;
	/* Unrolled, because the index must be known for older verifiers. */
	u64 passed_ns = now_ns - core->at_ns;
	if (core->busy == 1)
		core->busy_ns[0] += passed_ns;
	else if (core->busy == 2)
		core->busy_ns[1] += passed_ns;
	else if (core->busy == 3)
		core->busy_ns[2] += passed_ns;
	else if (core->busy >= SMT_THREADS)
		core->busy_ns[3] += passed_ns;
	core->at_ns = now_ns;
}

/*
 * Ends a slice and begins the next. with_ns is for how long, within the slice that ended, 1, 2, 3
 * and 4 threads were busy; all 0 if the CPU was idle.
 */
static __always_inline void smt_switch(struct smt_core *core, struct smt_slice *slice, u64 now_ns,
				       bool busy, u64 *with_ns)
{
	smt_advance(core, now_ns);
	for (int i = 0; i < SMT_THREADS; i++) {
		with_ns[i] = slice->busy ? core->busy_ns[i] - slice->busy_ns[i] : 0;
		slice->busy_ns[i] = core->busy_ns[i];
	}
	if (busy && !slice->busy)
		core->busy++;
	else if (!busy && slice->busy && core->busy)
		core->busy--;
	slice->busy = busy;
}

/* floor(n * part / whole) for part <= whole, as exact as 64 bits allow. */
static __always_inline u64 smt_share(u64 n, u64 part, u64 whole)
{
	if (part >= whole)
		return n;
	/* Over four seconds the times lose digits; 32 bits of a proportion are left. */
	if (whole >> 32) {
		u64 shift = 32 - __builtin_clzll(whole);

		part >>= shift;
		whole >>= shift;
	}
	return n / whole * part + n % whole * part / whole;
}

/*
 * Divides what was counted in a slice: parts[i] is of the time in which i + 1 threads were busy.
 * The sums of the first parts are rounded, not the parts, so that all together are n.
 */
static __always_inline void smt_divide(u64 n, const u64 *with_ns, u64 *parts)
{
	u64 whole = with_ns[0] + with_ns[1] + with_ns[2] + with_ns[3];
	u64 ns = 0, given = 0;

	for (int i = 0; i < SMT_THREADS; i++) {
		ns += with_ns[i];
		/* A slice of no time had the core for itself, as far as is known. */
		u64 upto = smt_share(n, ns, whole);
		parts[i] = upto - given;
		given = upto;
	}
}

#endif
