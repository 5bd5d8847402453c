/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Bytes, packets and transactions of UDP: the part of edges.bpf.c that its data hooks call for
 * sockets that are not TCP. Edges are in the same table; their packets are in datagram_edges.
 */
#ifndef OUTSIGHT_DATAGRAMS_PATH_H
#define OUTSIGHT_DATAGRAMS_PATH_H

#include "include/kernel.h"
#include "include/cgroup_id.h"
#include "net/datagram_flows.h"
#include "net/datagram_segments.h"
#include "net/datagrams.h"
#include "net/dns.h"
#include "net/edge_maps.h"
#include "net/packet_counts.h"
#include "net/pairing.h"

static __noinline int datagram(struct sock *sk, int bytes, bool sent)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct datagram_socket *s;
	struct datagram_peer peer;

	if (!sk)
		return 0;
	if (bytes < 0 && !sent) {
		s = bpf_sk_storage_get(&datagram_sockets, sk, 0, 0);
		if (s)
			s->receiving.next = 0;
		return 0;
	}
	/* After shutdown a receiving call returns at once, with nothing. */
	if (!bytes && !sent && sk->sk_shutdown & RCV_SHUTDOWN)
		return 0;
	s = SOCKET_STORAGE(&datagram_sockets, sk);
	if (!s) {
		count_drop(DROP_CONNECTION);
		return 0;
	}
	bool known = find_peer(sk, s, bpf_get_current_task(), &peer);
	if (bytes < 0) {
		s->sending.next = 0;
		return 0;
	}
	if (!s->id) {
		s->id = bpf_get_socket_cookie(sk);
		s->owner = task_cgroup_id(task);
		process_of(task, &s->process);
	}
	if (!known)
		count_drop(DROP_DATAGRAM_PEER);
	struct datagram_flow *f = flow_of(sk, s, &peer, known);
	if (!f) {
		count_drop(DROP_DATAGRAM_FLOW);
		return 0;
	}

	u32 index = f->edge;
	struct datagram_edge *d = bpf_map_lookup_elem(&datagram_edges, &index);
	if (!d)
		return 0;
	if (!f->role || f->generation != (u32)d->generation) {
		if (!f->role)
			f->role = role_towards(sk, s, &peer, known, sent);
		index = find_datagram_edge(sk, s, &peer, f->role);
		d = bpf_map_lookup_elem(&datagram_edges, &index);
		if (!d)
			return 0;
		f->edge = index;
		f->generation = d->generation;
		f->known = 1;
	}
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);
	if (!edge)
		return 0;
	__sync_fetch_and_add(sent ? &edge->sent_bytes : &edge->received_bytes, (u64)bytes);
	__sync_fetch_and_add(sent ? &d->sent_packets : &d->received_packets, 1);
	u32 datagrams = counts_packets ? datagrams_of_call(sk, bytes, sent) : 1;
	if (datagrams > 1)
		__sync_fetch_and_add(sent ? &d->sent_extra : &d->received_extra, datagrams - 1);
	if (!known)
		return 0;
	u16 service = f->role == ROLE_CLIENT ? peer.port : sk->__sk_common.skc_num;
	if (architecture && service == DNS_PORT && dns_datagram(s, f, &peer, bytes, sent))
		return 0;
	u64 now = bpf_ktime_get_ns();
	if (sent == (f->role == ROLE_CLIENT))
		request_datagram(f, edge, d, now);
	else
		reply_datagram(f, edge, index, now);
	return 0;
}

/* --- iterators --- */

/* Sockets that are older than these programs: of those, who sent first was not seen. */
SEC("iter/task_file")
int open_datagram_sockets(struct bpf_iter__task_file *ctx)
{
	struct sock *sk = sock_of_file(ctx);

	if (!sk || !is_udp(sk))
		return 0;
	struct datagram_socket *s = SOCKET_STORAGE(&datagram_sockets, sk);
	if (s)
		s->flags |= DATAGRAM_OLDER;
	return 0;
}

/* Counts the requests that wait for a reply, and gives up those that have waited for long. */
static __always_inline void sweep_flow(struct datagram_flow *f)
{
	u32 index = f->edge;

	if (f->phase != FLOW_REQUEST)
		return;
	struct datagram_edge *d = bpf_map_lookup_elem(&datagram_edges, &index);
	if (!d || f->generation != (u32)d->generation)
		return;
	if (elapsed(f->first_ns, bpf_ktime_get_ns()) > UNANSWERED_AFTER_NS)
		__sync_val_compare_and_swap(&f->phase, FLOW_REQUEST, FLOW_IDLE);
	else
		__sync_fetch_and_add(&d->pending, 1);
}

SEC("iter/bpf_sk_storage_map")
int sweep_datagram_sockets(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct datagram_socket *s = ctx->value;

	if (s)
		sweep_flow(&s->flow);
	return 0;
}

/* Where the kernel refuses iterators over maps: the sockets of all files. */
SEC("iter/task_file")
int sweep_datagram_files(struct bpf_iter__task_file *ctx)
{
	struct sock *sk = sock_of_file(ctx);

	if (!sk || !is_udp(sk))
		return 0;
	struct datagram_socket *s = bpf_sk_storage_get(&datagram_sockets, sk, 0, 0);
	if (!s || s->swept == sweep_number)
		return 0;
	s->swept = sweep_number;
	sweep_flow(&s->flow);
	return 0;
}

static __always_inline void sweep_table_flow(struct datagram_flow *f)
{
	flows_found++;
	if (f->owner)
		found_flow(f->owner, CROWDED_FLOWS);
	sweep_flow(f);
}

SEC("iter/bpf_map_elem")
int sweep_datagram_flows(struct bpf_iter__bpf_map_elem *ctx)
{
	void *value = ctx->value; /* read once: a second reading may be NULL to the verifier */

	if (value)
		sweep_table_flow(value);
	return 0;
}

static long sweep_each_flow(struct bpf_map *map, void *key, void *value, void *ctx)
{
	sweep_table_flow(value);
	return 0;
}

SEC("syscall")
int sweep_all_datagram_flows(void *ctx)
{
	bpf_for_each_map_elem(&datagram_flows, sweep_each_flow, NULL, 0);
	bpf_for_each_map_elem(&crowded_flows, sweep_each_flow, NULL, 0);
	return 0;
}

#endif
