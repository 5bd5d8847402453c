/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * What the tables of edges and of endpoints have in common: their indexes, and the queues of those
 * that are free.
 */
#ifndef OUTSIGHT_TABLE_INDEX_H
#define OUTSIGHT_TABLE_INDEX_H

#include "include/kernel.h"

enum table_index {
	/* The entries that collect what found no room. */
	EDGE_OVERFLOW = 0,
	ENDPOINT_OVERFLOW = 0,
	/* One of so many indexes is kept back, in a queue of its own. */
	RESERVED_EVERY = 8,
};

static __always_inline bool is_reserved(u32 index)
{
	return index % RESERVED_EVERY == 0;
}

/* Puts an index into its queue. */
static __always_inline void free_index(void *unreserved, void *reserved, const u32 *index,
				       bool is_kept_back)
{
	if (is_kept_back)
		bpf_map_push_elem(reserved, index, BPF_ANY);
	else
		bpf_map_push_elem(unreserved, index, BPF_ANY);
}

#endif
