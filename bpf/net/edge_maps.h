/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The tables of edges, connections and listeners. */
#ifndef OUTSIGHT_EDGE_MAPS_H
#define OUTSIGHT_EDGE_MAPS_H

#include "include/kernel.h"
#include "include/histogram.h"
#include "net/edges.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct edge);
} edges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} edge_latency SEC(".maps");

/* Histograms that edges take when they first need them; index 0 is never used. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} histogram_pool SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_histograms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct edge_key);
	__type(value, u32);
} edge_of_key SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_edges SEC(".maps");

/*
 * Kept back for when free_edges is used up: for the first edge of a control group, for servers
 * whose clients get one edge all together, and for what a control group has beyond its quota.
 */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} reserved_edges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct listener_key);
	__type(value, struct listener);
} listeners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EDGE_DROPS);
	__type(key, u32);
	__type(value, u64);
} edge_drops SEC(".maps");

/* Changed by the reader before each sweep: by it a sweep of all files knows what it has met. */
volatile u32 sweep_number = 0;

/* The socket of a task's file; a socket of several tasks, or files, is met as often. */
static __always_inline struct sock *sock_of_file(struct bpf_iter__task_file *ctx)
{
	struct file *file = ctx->file;

	if (!ctx->task || !file)
		return NULL;
	struct socket *socket = bpf_sock_from_file(file);
	return socket ? socket->sk : NULL;
}

static __always_inline void count_drop(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&edge_drops, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

/*
 * The edge, unless its index was given to another one: an edge may go when all of its connections
 * are closed.
 */
static __always_inline struct edge *edge_at(u32 index, u32 generation)
{
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);

	return edge && edge->generation == generation ? edge : NULL;
}

/*
 * A request has begun. late: its reply may be there already, and another request may have been sent
 * since, so that how many are counted as in flight is more than were.
 */
static __always_inline void count_request(struct edge *edge, bool late)
{
	u64 begun = __sync_fetch_and_add(&edge->requests, 1) + 1;
	/* What ends from here on counts as ended: it is never more than there were. */
	u64 ended = edge->replies + edge->aborts + edge->lost;

	if (late || begun <= ended)
		return;
	u32 n = begun - ended, most = edge->most_in_flight;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (n <= most)
			return;
		u32 was = __sync_val_compare_and_swap(&edge->most_in_flight, most, n);
		if (was == most)
			return;
		most = was;
	}
}

static __always_inline void use_edge(struct connection *c, u32 index)
{
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);

	c->edge_generation = edge ? edge->generation : 0;
	c->edge = index;
}

/* One thread may send while another receives, and a packet may end the connection meanwhile. */
static __always_inline void set_flags(struct connection *c, u32 which)
{
	__sync_fetch_and_or(&c->flags, which);
}

static __always_inline void clear_flags(struct connection *c, u32 which)
{
	if (c->flags & which)
		__sync_fetch_and_and(&c->flags, ~which);
}

#endif
