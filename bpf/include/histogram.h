/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The latency histogram: cell 0 counts durations up to 1024 ns, cells 1 to 833 the buckets from
 * model.MinBucket to model.MaxBucket, cell 834 durations from 2^36 ns on.
 */
#ifndef OUTSIGHT_HISTOGRAM_H
#define OUTSIGHT_HISTOGRAM_H

#include "include/kernel.h"
#include "include/histogram_tables.h"

#define HISTOGRAM_FIRST_OCTAVE 10
#define HISTOGRAM_END_OCTAVE 36
#define HISTOGRAM_OVERFLOW (32 * (HISTOGRAM_END_OCTAVE - HISTOGRAM_FIRST_OCTAVE) + 2)
#define HISTOGRAM_CELLS 840

struct histogram {
	u64 cells[HISTOGRAM_CELLS];
};

/*
 * One table lookup guesses the number of boundaries below the value from its top six mantissa
 * bits; no sixty-fourth of an octave holds two boundaries, so one compare makes it exact.
 */
static __always_inline u32 histogram_cell(u64 ns)
{
	if (ns <= (1ULL << HISTOGRAM_FIRST_OCTAVE))
		return 0;
	if (ns >= (1ULL << HISTOGRAM_END_OCTAVE))
		return HISTOGRAM_OVERFLOW;
	u32 octave = 63 - __builtin_clzll(ns);
	u64 mantissa = ns << (63 - octave);
	u32 below = histogram_guess[(mantissa >> 57) & 63];
	below += histogram_bounds[below & 31] < mantissa;
	return 1 + 32 * (octave - HISTOGRAM_FIRST_OCTAVE) + below;
}

static __always_inline void histogram_add_cell(struct histogram *h, u32 cell)
{
	__sync_fetch_and_add(&h->cells[at_most(cell, HISTOGRAM_CELLS - 1)], 1);
}

static __always_inline void histogram_add(struct histogram *h, u64 ns)
{
	histogram_add_cell(h, histogram_cell(ns));
}

/* For a histogram that only one CPU adds to, where it cannot be interrupted by another adding. */
static __always_inline void histogram_add_alone(struct histogram *h, u64 ns)
{
	h->cells[at_most(histogram_cell(ns), HISTOGRAM_CELLS - 1)]++;
}

#endif
