/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Flows of UDP: a socket and one of its peers. Their transactions, and which edge they count for.
 */
#ifndef OUTSIGHT_DATAGRAM_FLOWS_H
#define OUTSIGHT_DATAGRAM_FLOWS_H

#include "include/kernel.h"
#include "include/histogram.h"
#include "include/lru.h"
#include "net/addresses.h"
#include "net/datagrams.h"
#include "net/edge_maps.h"
#include "net/edge_table.h"
#include "net/exchange.h"
#include "net/latency.h"
#include "net/pairing.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct datagram_edge);
} datagram_edges SEC(".maps");

/* Also in datagrams.bpf.c, which puts the peers of unconnected sockets there. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct datagram_socket);
} datagram_sockets SEC(".maps");

/* Flows of sockets with several peers; the least recently used are evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key);
	__type(value, struct datagram_flow);
} datagram_flows SEC(".maps");

/* Those of control groups that have used up their quota. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key);
	__type(value, struct datagram_flow);
} crowded_flows SEC(".maps");

/* Entries that the last sweeps have found; the reader begins them at 0. */
volatile u64 flows_found = 0;
volatile u64 queries_found = 0;

static __always_inline bool is_udp(struct sock *sk)
{
	return is_inet(sk) && sk->sk_protocol == IPPROTO_UDP;
}

static __always_inline bool same_peer(const struct datagram_peer *a, const struct datagram_peer *b)
{
	const u32 *x = (const u32 *)a, *y = (const u32 *)b;

	return x[3] == y[3] && x[4] == y[4] && x[2] == y[2] && x[1] == y[1] && x[0] == y[0];
}

/* --- peers --- */

/* The peer of the call that has just done its work: as the call named it, else the only one. */
static __always_inline bool find_peer(struct sock *sk, struct datagram_socket *s, u64 task,
				      struct datagram_peer *peer)
{
	struct datagram_call *call = &s->calls[call_index(task)];

	const struct datagram_peer *known = NULL;

	if (call->task == task) {
		call->task = 0;
		known = &call->peer;
	} else if (sk->__sk_common.skc_dport) {
		remote_address(sk, &peer->address);
		peer->port = remote_port(sk);
		peer->unused = 0;
		/*
		 * Else the compiler reads sockets and maps by one instruction, which the verifier
		 * refuses.
		 */
		asm volatile("" ::: "memory");
		return true;
	} else if ((s->flags & (DATAGRAM_PEER | DATAGRAM_PEERS)) == DATAGRAM_PEER) {
		known = &s->peer;
	}
	if (known) {
		*peer = *known;
		return true;
	}
	__builtin_memset(peer, 0, sizeof(*peer));
	return false;
}

/* --- flows --- */

static __noinline struct datagram_flow *other_flow(struct datagram_socket *s,
						   const struct datagram_peer *peer)
{
	if (!s || !peer)
		return NULL;
	struct flow_key key = {.socket = s->id, .peer = *peer};
	struct datagram_flow *known = bpf_map_lookup_elem(&datagram_flows, &key);

	if (!known)
		known = bpf_map_lookup_elem(&crowded_flows, &key);
	if (known)
		return known;
	struct datagram_flow fresh = {};
	struct flow_use *flows = flows_of(s->owner);
	if (!flows || flows->used[CROWDED_FLOWS] >= max_owner_flows) {
		lru_make(&crowded_flows, LRU_FLOWS, &key, &fresh);
		return bpf_map_lookup_elem(&crowded_flows, &key);
	}
	fresh.owner = s->owner;
	if (lru_make(&datagram_flows, LRU_FLOWS, &key, &fresh))
		__sync_fetch_and_add(&flows->used[CROWDED_FLOWS], 1);
	return bpf_map_lookup_elem(&datagram_flows, &key);
}

static __always_inline struct datagram_flow *flow_of(struct sock *sk, struct datagram_socket *s,
						      const struct datagram_peer *peer, bool known)
{
	if (!(s->flags & DATAGRAM_PEER) && known) {
		s->peer = *peer;
		s->flags |= DATAGRAM_PEER;
	}
	if (same_peer(&s->peer, peer))
		return &s->flow;
	if (!sk->__sk_common.skc_dport) {
		s->flags |= DATAGRAM_PEERS;
		return other_flow(s, peer);
	}
	/* Connected to another one. */
	s->peer = *peer;
	__builtin_memset(&s->flow, 0, sizeof(s->flow));
	return &s->flow;
}

/*
 * Who sends first is the client. Where that was before the programs, ports show it: a client has
 * one that the kernel gave it.
 */
static __always_inline u32 role_towards(struct sock *sk, struct datagram_socket *s,
					const struct datagram_peer *peer, bool known, bool sent)
{
	if (!known && s->flow.role)
		return s->flow.role;
	if (known && (s->flags & DATAGRAM_OLDER)) {
		bool local = sk->__sk_common.skc_num >= FIRST_CLIENT_PORT;
		bool remote = peer->port >= FIRST_CLIENT_PORT;

		if (local != remote)
			return local ? ROLE_CLIENT : ROLE_SERVER;
	}
	return sent ? ROLE_CLIENT : ROLE_SERVER;
}

static __noinline u32 find_datagram_edge(struct sock *sk, struct datagram_socket *s,
					 struct datagram_peer *peer, u32 role)
{
	struct edge_key key = {};

	if (!sk || !s || !peer)
		return EDGE_OVERFLOW;
	key.owner = s->owner;
	key.netns = netns_of(sk);
	key.role = role;
	key.transport = TRANSPORT_UDP;
	__builtin_memcpy(key.process, s->process.name, PROCESS_NAME);
	if (role == ROLE_CLIENT) {
		key.service = peer->address;
		key.port = peer->port;
		asm volatile("" ::: "memory"); /* see find_peer */
	} else {
		local_address(sk, &key.service);
		key.client = peer->address;
		key.port = sk->__sk_common.skc_num;
	}
	u32 *known = bpf_map_lookup_elem(&edge_of_key, &key);
	u32 index = known ? *known : new_edge(&key);
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);
	if (edge && index)
		edge->process = s->process.id;
	return index;
}

/* --- transactions --- */

static __always_inline void count_exchange(struct edge *edge, u32 index, u64 ns)
{
	struct histogram *latency = bpf_map_lookup_elem(&edge_latency, &index);

	__sync_fetch_and_add(&edge->replies, 1);
	if (!latency)
		return;
	histogram_add(latency, ns);
	__sync_fetch_and_add(&edge->latency_sum_ns, ns ? ns : 1);
}

static __always_inline void request_datagram(struct datagram_flow *f, struct edge *edge,
					     struct datagram_edge *d, u64 now)
{
	if (f->phase == FLOW_STREAM) {
		__sync_fetch_and_add(&d->one_way, 1);
	} else if (f->phase == FLOW_IDLE) {
		f->first_ns = now;
		f->requests = 1;
		f->phase = FLOW_REQUEST;
		__sync_fetch_and_add(&edge->requests, 1);
	} else if (++f->requests > STREAM_AFTER_DATAGRAMS &&
		   __sync_val_compare_and_swap(&f->phase, FLOW_REQUEST, FLOW_STREAM) ==
			   FLOW_REQUEST) {
		__sync_fetch_and_add(&d->one_way, f->requests);
		__sync_fetch_and_add(&d->streams, 1);
	}
}

/* The first datagram of the reply ends the transaction: which is the last is not known. */
static __always_inline void reply_datagram(struct datagram_flow *f, struct edge *edge, u32 index,
					   u64 now)
{
	u64 first_ns = f->first_ns;

	if (f->phase == FLOW_IDLE)
		return;
	if (__sync_val_compare_and_swap(&f->phase, FLOW_REQUEST, FLOW_IDLE) != FLOW_REQUEST)
		f->phase = FLOW_IDLE;
	else if (first_ns < watched_since_ns)
		__sync_fetch_and_add(&edge->lost, 1); /* this may be the reply to another request */
	else
		count_exchange(edge, index, elapsed(first_ns, now));
}

#endif
