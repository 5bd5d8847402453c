/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Tables that evict the least recently used entry. The kernel does not say when: an entry that was
 * made, was not removed, and is not there, was evicted.
 */
#ifndef OUTSIGHT_LRU_H
#define OUTSIGHT_LRU_H

#include "include/kernel.h"

enum lru_table {
	LRU_FLOWS = 0,
	LRU_QUERIES = 1,
	LRU_TLS_CALLS = 2,
	LRU_TLS_CONNECTIONS = 3,
	LRU_TABLES = 4,
};

/* Of each table: entries that were made, and that programs removed. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * LRU_TABLES);
	__type(key, u32);
	__type(value, u64);
} lru_entries SEC(".maps");

static __always_inline void count_lru(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&lru_entries, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

/* Makes an entry; false if it is there, or there is no memory. */
static __always_inline bool lru_make(void *table, u32 which, const void *key, const void *value)
{
	if (bpf_map_update_elem(table, key, value, BPF_NOEXIST))
		return false;
	count_lru(2 * which);
	return true;
}

/* Makes an entry, or changes the one that is there. */
static __always_inline void lru_put(void *table, u32 which, const void *key, const void *value)
{
	if (!lru_make(table, which, key, value))
		bpf_map_update_elem(table, key, value, BPF_ANY);
}

/* Removes an entry; false if it is not there. */
static __always_inline bool lru_take(void *table, u32 which, const void *key)
{
	if (bpf_map_delete_elem(table, key))
		return false;
	count_lru(2 * which + 1);
	return true;
}

#endif
