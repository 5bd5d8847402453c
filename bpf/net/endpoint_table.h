/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * What requests ask for: endpoints, each with a histogram, and what is done where there is no room.
 */
#ifndef OUTSIGHT_ENDPOINT_TABLE_H
#define OUTSIGHT_ENDPOINT_TABLE_H

#include "include/kernel.h"
#include "include/begun.h"
#include "include/histogram.h"
#include "net/edge_maps.h"
#include "net/edges.h"
#include "net/proto/endpoints.h"
#include "net/quotas.h"
#include "net/table_index.h"

/* Endpoints of one edge; further ones are its "other". */
const volatile u32 max_edge_endpoints = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct endpoint);
} endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} endpoint_latency SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct edge_endpoints);
} edge_endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct begun);
} endpoints_begun SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct endpoint_key);
	__type(value, u32);
} endpoint_of_key SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_endpoints SEC(".maps");

/* Kept back for the endpoints called "other". */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} reserved_endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ENDPOINT_DROPS);
	__type(key, u32);
	__type(value, u64);
} endpoint_drops SEC(".maps");

static __always_inline void count_endpoint_drop(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&endpoint_drops, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline u64 target_of(u32 index)
{
	struct endpoint *e = bpf_map_lookup_elem(&endpoints, &index);

	return e ? index | (u64)e->generation << 32 : 0;
}

static __always_inline u64 insert_endpoint(struct endpoint_key *key, u32 index, bool reserved)
{
	struct endpoint *e = bpf_map_lookup_elem(&endpoints, &index);

	if (!e)
		return 0;
	e->key = *key;
	e->used = 1;
	if (!bpf_map_update_elem(&endpoint_of_key, key, &index, BPF_NOEXIST)) {
		u32 edge = key->edge;
		struct edge_endpoints *of_edge = bpf_map_lookup_elem(&edge_endpoints, &edge);

		if (of_edge && !reserved)
			__sync_fetch_and_add(&of_edge->count, 1);
		if (of_edge)
			owner_gains(of_edge->owner, QUOTA_ENDPOINTS);
		struct edge *of = bpf_map_lookup_elem(&edges, &edge);
		e->edge_generation = of ? of->generation : 0;
		entry_begins(&endpoints_begun, index, &e->begun);
		return index | (u64)e->generation << 32;
	}
	/* Another CPU was first. */
	e->used = 0;
	free_index(&free_endpoints, &reserved_endpoints, &index, reserved);
	u32 *theirs = bpf_map_lookup_elem(&endpoint_of_key, key);
	return target_of(theirs ? *theirs : ENDPOINT_OVERFLOW);
}

static __noinline u64 new_endpoint(struct endpoint_key *key)
{
	u32 index;

	if (!key)
		return 0;
	u32 edge = key->edge;
	struct edge_endpoints *of_edge = bpf_map_lookup_elem(&edge_endpoints, &edge);
	if (!of_edge)
		return 0;
	u32 has = owner_has(of_edge->owner, QUOTA_ENDPOINTS);
	bool over = has >= max_owner_endpoints;
	if (over)
		owner_is_over(of_edge->owner, QUOTA_ENDPOINTS);
	else if (of_edge->count < max_edge_endpoints && !bpf_map_pop_elem(&free_endpoints, &index))
		return insert_endpoint(key, index, false);

	count_endpoint_drop(DROP_ENDPOINT);
	__builtin_memset(key->name, 0, sizeof(key->name));
	__builtin_memcpy(key->name, "other", 5);
	u32 *known = bpf_map_lookup_elem(&endpoint_of_key, key);
	if (known)
		return target_of(*known);
	if (has < max_owner_endpoints + max_owner_endpoints / 8 &&
	    !bpf_map_pop_elem(&reserved_endpoints, &index))
		return insert_endpoint(key, index, true);
	count_endpoint_drop(DROP_ENDPOINT_ALL);
	return target_of(ENDPOINT_OVERFLOW);
}

static __noinline int find_endpoint(struct connection *c, u32 status)
{
	struct endpoint_key key = {};

	if (!c)
		return 0;
	struct head *h = &c->head;
	key.edge = c->edge;
	key.protocol = h->protocol;
	key.status = status;
	__builtin_memcpy(key.name, h->name, sizeof(h->name));
	u32 *known = bpf_map_lookup_elem(&endpoint_of_key, &key);
	h->target = known ? target_of(*known) : new_endpoint(&key);
	h->cached = h->target;
	h->cached_status = status;
	h->cached_edge = c->edge;
	return 0;
}

/* Decides which endpoint the connection's transaction belongs to. */
static __always_inline void resolve_endpoint(struct connection *c, u32 status)
{
	struct head *h = &c->head;

	if (h->cached && h->cached_status == status && h->cached_edge == c->edge) {
		u32 index = h->cached;
		struct endpoint *e = bpf_map_lookup_elem(&endpoints, &index);

		if (e && e->generation == h->cached >> 32) {
			h->target = h->cached;
			return;
		}
	}
	find_endpoint(c, status);
}

/* No cell of a histogram: of transactions whose time says nothing of the service. */
#define CELL_ASIDE HISTOGRAM_CELLS

/* Counts a transaction that took so long, in that cell of the histogram. */
static __always_inline void count_endpoint(u64 target, u64 ns, u32 cell)
{
	u32 index = target;

	if (!target)
		return;
	struct endpoint *e = bpf_map_lookup_elem(&endpoints, &index);
	if (e && e->generation != target >> 32) {
		/* The index was given up while the transaction took its time. */
		index = ENDPOINT_OVERFLOW;
		e = bpf_map_lookup_elem(&endpoints, &index);
		count_endpoint_drop(DROP_ENDPOINT_ALL);
	}
	struct histogram *latency = bpf_map_lookup_elem(&endpoint_latency, &index);
	if (!e || !latency)
		return;
	if (cell == CELL_ASIDE) {
		__sync_fetch_and_add(&e->aside, 1);
		return;
	}
	histogram_add_cell(latency, cell);
	__sync_fetch_and_add(&e->latency_sum_ns, ns ? ns : 1);
}

#endif
