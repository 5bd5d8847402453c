/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Which entries of a table have begun. A reader of the table that knows how many it has seen learns
 * of the new ones here, and need not look at all entries.
 */
#ifndef OUTSIGHT_BEGUN_H
#define OUTSIGHT_BEGUN_H

#include "include/kernel.h"

#define BEGUN_ENTRIES 512 /* a power of two */

/* The only entry of a map beside the table. */
struct begun {
	u64 count; /* of entries that have begun, ever */
	/*
	 * The last of them, number n at n % BEGUN_ENTRIES: n in the upper 32 bits, the index in
	 * the lower. count is there first: an entry with a lower number is not written yet.
	 */
	u64 entries[BEGUN_ENTRIES];
};

/* Tells that an entry, of which all else is written, has begun; number, where it is, gets which. */
static __always_inline void entry_begins(void *map, u32 index, u64 *number)
{
	u32 zero = 0;
	struct begun *b = bpf_map_lookup_elem(map, &zero);

	if (!b)
		return;
	u64 n = __sync_fetch_and_add(&b->count, 1) + 1;
	if (number)
		*number = n;
	/* An exchange, since no store may come after it. */
	__sync_lock_test_and_set(&b->entries[n & (BEGUN_ENTRIES - 1)], n << 32 | index);
}

#endif
