/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of forward.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_FORWARD_H
#define OUTSIGHT_FORWARD_H

#include "include/histogram.h"
#include "include/kernel.h"

/* A packet that came in, and has not been seen to leave so far. */
struct forward_stamp {
	u64 packet; /* what identifies it; 0: none */
	u64 check;  /* more of what identifies it */
	u64 ns;	    /* when it came in; 0: two that cannot be told apart did */
	u32 ifindex; /* where it came in */
	u32 unused;
};

#define FORWARD_STAMPS_BITS 12
#define FORWARD_STAMPS (1 << FORWARD_STAMPS_BITS)

/*
 * A network namespace that forwards. It has a map of its own, of this one entry: no other namespace
 * can take its room, and where none forwards there is none.
 */
struct forwarder {
	u64 stamped;   /* packets that came in and were noted */
	u64 matched;   /* of those, that were seen to leave: these are in the histogram */
	u64 unmatched; /* of those, that another one took the place of before */
	u64 sum_ns;    /* of those that were matched */
	u32 level;     /* set by the reader: of 2^level packets one is noted */
	u32 unused[7]; /* to a cache line */
	struct histogram took;
	struct forward_stamp stamps[FORWARD_STAMPS];
};

/* A packet that came again within this time is another one, or the same: nobody can tell. */
#define FORWARD_COPY_NS 1000000000ULL

#endif
