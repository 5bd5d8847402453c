/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The packets of edges, and how the kernel's counters of connections get there. */
#ifndef OUTSIGHT_PACKET_COUNTS_H
#define OUTSIGHT_PACKET_COUNTS_H

#include "include/kernel.h"
#include "net/edge_maps.h"
#include "net/edges.h"
#include "net/packets.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct edge_packets);
} packets_of_edge SEC(".maps");

/* 1 if they are counted; set by the loader. */
const volatile u32 counts_packets = 0;

/*
 * Adds to an edge by how much one of the kernel's counters has grown. The sweep and the end of the
 * connection may come here at once: who changes what the edge has is the one who adds.
 */
#define ADD_GROWTH(to, has, counter)                                              \
	do {                                                                      \
		for (u32 turn = 0; turn < 3; turn++) {                            \
			typeof(has) before = (has), now = (counter);              \
			typeof(has) growth = now - before;                        \
			if (!growth || growth > (typeof(has))~0ULL >> 1)          \
				break;                                            \
			if (__sync_val_compare_and_swap(&(has), before, now) != before) \
				continue;                                         \
			__sync_fetch_and_add(&(to), (u64)growth);                 \
			break;                                                    \
		}                                                                 \
	} while (0)

/*
 * The kernel counts the segments of each connection. What it has counted since the last time is
 * added to the edge: by the sweep, and when the connection changes its edge or ends.
 */
static __noinline int count_segments(struct sock *sk, struct connection *c)
{
	if (!counts_packets || !sk || !c || !(c->flags & CONNECTION_OPEN) ||
	    !edge_at(c->edge, c->edge_generation))
		return 0;
	u32 index = c->edge;
	struct edge_packets *p = bpf_map_lookup_elem(&packets_of_edge, &index);
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!p || !tcp)
		return 0;
	struct packet_counts *to = &p->counts;
	struct counted_segments *has = &c->counted;
	ADD_GROWTH(to->sent_packets, has->sent_packets, tcp->data_segs_out);
	ADD_GROWTH(to->sent_bytes, has->sent_bytes, tcp->bytes_sent);
	ADD_GROWTH(to->received_packets, has->received_packets, tcp->data_segs_in);
	/* The other end's FIN counts as a byte. */
	ADD_GROWTH(to->received_bytes, has->received_bytes,
		   tcp->bytes_received - (sk->__sk_common.skc_flags >> SOCK_DONE & 1));
	ADD_GROWTH(to->retransmitted_packets, has->retransmitted_packets, tcp->total_retrans);
	ADD_GROWTH(to->out_of_order_packets, has->out_of_order_packets, tcp->rcv_ooopack);
	return 0;
}

/* Of what a connection has had until now, nothing is counted. */
static __noinline int skip_segments(struct sock *sk, struct connection *c)
{
	struct tcp_sock *tcp = sk && c ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (!tcp)
		return 0;
	struct counted_segments *has = &c->counted;
	has->sent_packets = tcp->data_segs_out;
	has->sent_bytes = tcp->bytes_sent;
	has->received_packets = tcp->data_segs_in;
	has->received_bytes = tcp->bytes_received;
	has->retransmitted_packets = tcp->total_retrans;
	has->out_of_order_packets = tcp->rcv_ooopack;
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

#endif
