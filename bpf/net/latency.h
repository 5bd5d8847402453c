/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Histograms of edges, and the end of a transaction. */
#ifndef OUTSIGHT_LATENCY_H
#define OUTSIGHT_LATENCY_H

#include "include/kernel.h"
#include "include/histogram.h"
#include "net/edge_maps.h"
#include "net/endpoint_table.h"
#include "net/requests.h"
#include "net/tls_text.h"
#include "net/transactions.h"

/* A histogram of the pool for the place that has none. */
static __noinline int take_histogram(u32 *place)
{
	u32 index;

	if (!place)
		return 0;
	if (bpf_map_pop_elem(&free_histograms, &index)) {
		count_drop(DROP_HISTOGRAM);
		return 0;
	}
	u32 before = __sync_val_compare_and_swap(place, 0, index);
	if (!before)
		return index;
	bpf_map_push_elem(&free_histograms, &index, BPF_ANY);
	return before;
}

/* Adds to the histogram at a place of an edge; by the sum the reader sees that it changed. */
static __always_inline void add_sample(u32 *place, u64 *sum, u64 ns)
{
	u32 index = *place;

	if (!index)
		index = take_histogram(place);
	if (!index)
		return;
	struct histogram *h = bpf_map_lookup_elem(&histogram_pool, &index);
	if (!h)
		return;
	histogram_add(h, ns);
	__sync_fetch_and_add(sum, ns ? ns : 1);
}

/*
 * What the kernel measured of the path: smoothed round-trip time and its mean deviation. They
 * change slowly, and a sample costs as much as the latency itself: a connection gives at most a
 * hundred a second.
 */
static __always_inline void sample_path(struct edge *edge, struct sock *sk, struct connection *c,
					u64 now)
{
	if (now - c->sampled_ns < SAMPLE_EVERY_NS)
		return;
	c->sampled_ns = now;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (!tcp || !tcp->srtt_us)
		return;
	add_sample(&edge->histograms[EDGE_RTT], &edge->rtt_sum_ns, (u64)tcp->srtt_us * 1000 / 8);
	__sync_fetch_and_add(&edge->jitter_sum_ns, (u64)tcp->mdev_us * 1000 / 4);
}

static __always_inline void count_time(struct edge *edge, u32 index, u64 first_ns, u64 reply_ns,
				       u64 last_ns, u64 target)
{
	struct histogram *latency = bpf_map_lookup_elem(&edge_latency, &index);

	if (!latency)
		return;
	if (elapsed(first_ns, reply_ns) > LONG_POLL_AFTER_NS) {
		__sync_fetch_and_add(&edge->long_polls, 1);
		count_endpoint(target, 0, CELL_ASIDE);
		return;
	}
	if (elapsed(reply_ns, last_ns) > BULK_TRANSFER_AFTER_NS) {
		__sync_fetch_and_add(&edge->bulk_transfers, 1);
		count_endpoint(target, 0, CELL_ASIDE);
		return;
	}
	u64 ns = elapsed(first_ns, last_ns);
	if (log_transactions)
		log_transaction(index, edge->key.role, first_ns, reply_ns, last_ns);
	u32 cell = histogram_cell(ns);
	histogram_add_cell(latency, cell);
	count_endpoint(target, ns, cell);
	/* By the sum the reader sees that the histogram changed, so it grows even by a zero. */
	__sync_fetch_and_add(&edge->latency_sum_ns, ns ? ns : 1);
}

static __always_inline void count_transaction(struct sock *sk, struct connection *c, u64 first_ns,
					      u64 reply_ns, u64 last_ns, u64 target)
{
	u32 index = c->edge;
	struct edge *edge = edge_at(index, c->edge_generation);

	if (!edge)
		return;
	sample_path(edge, sk, c, last_ns);
	count_time(edge, index, first_ns, reply_ns, last_ns, target);
}

/* Counts the connection's finished transaction, once, whoever comes first. */
static __always_inline bool finish(struct sock *sk, struct connection *c)
{
	u64 first_ns = c->first_ns, reply_ns = c->reply_ns, last_ns = c->last_ns;
	u64 target = c->head.target;

	if (__sync_val_compare_and_swap(&c->phase, PHASE_REPLY, PHASE_IDLE) != PHASE_REPLY)
		return false;
	if (!target && c->head.state == HEAD_NAMED) {
		u32 status =
			reads_tls && (c->flags & CONNECTION_TLS) ? tls_status(c) : STATUS_UNKNOWN;

		if (status == STATUS_SWITCHED)
			set_flags(c, CONNECTION_STREAM);
		resolve_endpoint(c, status < REPLY_PARTIAL ? status : STATUS_UNKNOWN);
		target = c->head.target;
	}
	count_transaction(sk, c, first_ns, reply_ns, last_ns, target);
	return true;
}

/* Requests are only timed, not read, while this is 1. */
volatile u32 names_shed = 0;

#endif
