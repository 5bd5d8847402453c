/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The tables of packets, and how counts get to the edge when it is known. */
#ifndef OUTSIGHT_PACKET_COUNTS_H
#define OUTSIGHT_PACKET_COUNTS_H

#include "include/kernel.h"
#include "net/edges.h"
#include "net/packets.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct edge_packets);
} packets_of_edge SEC(".maps");

/*
 * A packet may be on its way before the call that sends it has returned, or before anybody receives
 * it: its edge is known only then. Until then it is counted aside. Who counts aside looks again
 * afterwards whether the edge is known, and who makes the edge known delivers what was counted
 * aside after that: one of them finds it.
 */
static __noinline int deliver_packets(struct packet_counts *from, u32 index)
{
	struct edge_packets *p = bpf_map_lookup_elem(&packets_of_edge, &index);

	if (!from || !p)
		return 0;
	u64 *aside = (u64 *)from, *to = (u64 *)&p->counts;
#pragma unroll
	for (u32 i = 0; i < PACKET_COUNTS; i++) {
		u64 n = aside[i] ? __sync_lock_test_and_set(&aside[i], 0) : 0;

		if (n)
			__sync_fetch_and_add(&to[i], n);
	}
	return 0;
}

/* A server has read what it received. Of a request that is read in parts, the first one counts. */
static __always_inline void count_unread(struct connection *c)
{
	u64 since = c->unread_since_ns;
	u32 index = c->edge;

	if (!since)
		return;
	c->unread_since_ns = 0;
	if (c->phase == PHASE_REQUEST)
		return;
	struct edge_packets *p = bpf_map_lookup_elem(&packets_of_edge, &index);
	if (!p)
		return;
	__sync_fetch_and_add(&p->unread_sum_ns, elapsed(since, bpf_ktime_get_ns()));
	__sync_fetch_and_add(&p->unread_requests, 1);
}

/* To be called when the edge of a connection has become known. */
static __always_inline void deliver_waiting(struct connection *c)
{
	if (c->packets.waiting.sent_packets | c->packets.waiting.received_packets)
		deliver_packets(&c->packets.waiting, c->edge);
}

#endif
