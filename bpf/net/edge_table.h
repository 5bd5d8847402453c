/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Which edge a connection counts for, and what is done where there is no room for it. */
#ifndef OUTSIGHT_EDGE_TABLE_H
#define OUTSIGHT_EDGE_TABLE_H

#include "include/kernel.h"
#include "include/begun.h"
#include "net/addresses.h"
#include "net/edge_maps.h"
#include "net/endpoint_table.h"
#include "net/pairing.h"
#include "net/quotas.h"
#include "net/table_index.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct begun);
} edges_begun SEC(".maps");

static __always_inline void key_of(struct sock *sk, struct connection *c, struct edge_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->owner = c->owner;
	key->netns = netns_of(sk);
	key->role = c->role;
	__builtin_memcpy(key->process, c->process.name, PROCESS_NAME);
	key->forwarder = c->flags & CONNECTION_FORWARDER ? FORWARDS : 0;
	if (c->role == ROLE_CLIENT) {
		remote_address(sk, &key->service);
		key->port = remote_port(sk);
		pair_with_server(sk, c, key);
		u32 behind = c->behind;
		struct edge *dialled = behind ? bpf_map_lookup_elem(&edges, &behind) : NULL;
		if (dialled) {
			key->far = dialled->key.service;
			key->far_port = dialled->key.port;
		}
		return;
	}
	local_address(sk, &key->service);
	remote_address(sk, &key->client);
	key->port = sk->__sk_common.skc_num;
	pair_with_client(sk, c, key);
}

/* A free index; with reserve, of those that are kept back first. */
static __always_inline bool take_index(u32 *index, bool reserve)
{
	if (reserve && !bpf_map_pop_elem(&reserved_edges, index))
		return true;
	return !bpf_map_pop_elem(&free_edges, index);
}

static __always_inline u32 insert_edge(struct edge_key *key, u32 index)
{
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);
	struct edge_endpoints *endpoints_of = bpf_map_lookup_elem(&edge_endpoints, &index);

	if (!edge)
		return EDGE_OVERFLOW;
	edge->key = *key;
	edge->used = 1;
	if (!bpf_map_update_elem(&edge_of_key, key, &index, BPF_NOEXIST)) {
		if (endpoints_of)
			endpoints_of->owner = key->owner;
		owner_gains(key->owner, QUOTA_EDGES);
		entry_begins(&edges_begun, index, NULL);
		return index;
	}
	/* Another CPU was first. */
	edge->used = 0;
	free_index(&free_edges, &reserved_edges, &index, is_reserved(index));
	u32 *theirs = bpf_map_lookup_elem(&edge_of_key, key);
	return theirs ? *theirs : EDGE_OVERFLOW;
}

/*
 * The edge of what an owner has beyond its quota, or beyond all room. The key becomes that edge's:
 * there is no stack for another one.
 */
static __always_inline u32 others_edge(struct edge_key *key)
{
	u64 owner = key->owner;
	u8 role = key->role, transport = key->transport, forwarder = key->forwarder & FORWARDS;
	u32 index;

	__builtin_memset(key, 0, sizeof(*key));
	key->owner = owner;
	key->role = role;
	key->transport = transport;
	key->forwarder = forwarder;
	key->others = 1;
	u32 *known = bpf_map_lookup_elem(&edge_of_key, key);
	if (known)
		return *known;
	if (owner && take_index(&index, true))
		return insert_edge(key, index);
	return EDGE_OVERFLOW;
}

static __always_inline void leave_client_out(struct edge_key *key)
{
	__builtin_memset(&key->client, 0, sizeof(key->client));
	__builtin_memset(&key->far, 0, sizeof(key->far));
	__builtin_memset(key->peer_process, 0, sizeof(key->peer_process));
	key->far_port = 0;
	key->peer = 0;
}

/*
 * An owner that has half of its quota gets no more edges that differ in the other end's process:
 * the other end may choose any name. With the whole quota, clients of one service count together,
 * for as many services as an eighth of the quota; all else is one edge.
 */
static __noinline u32 new_edge(struct edge_key *key)
{
	u32 index, *known;

	if (!key)
		return EDGE_OVERFLOW;
	u32 has = owner_has(key->owner, QUOTA_EDGES);
	if (has >= max_owner_edges / 2 && key->peer_process[0]) {
		__builtin_memset(key->peer_process, 0, sizeof(key->peer_process));
		known = bpf_map_lookup_elem(&edge_of_key, key);
		if (known)
			return *known;
	}
	bool over = has >= max_owner_edges;
	if (!over && (take_index(&index, false) || (!has && take_index(&index, true))))
		return insert_edge(key, index);
	if (over)
		owner_is_over(key->owner, QUOTA_EDGES);
	if (key->role == ROLE_SERVER) {
		if (!over)
			count_drop(DROP_EDGE_CLIENT);
		leave_client_out(key);
		known = bpf_map_lookup_elem(&edge_of_key, key);
		if (known)
			return *known;
		if (has < max_owner_edges + max_owner_edges / 8 && take_index(&index, true))
			return insert_edge(key, index);
	}
	index = others_edge(key);
	if (!over || index == EDGE_OVERFLOW)
		count_drop(DROP_EDGE);
	return index;
}

static __noinline u32 edge_of(struct sock *sk, struct connection *c)
{
	struct edge_key key;

	if (!sk || !c)
		return EDGE_OVERFLOW;
	key_of(sk, c, &key);
	u32 *known = bpf_map_lookup_elem(&edge_of_key, &key);
	u32 index = known ? *known : new_edge(&key);
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);
	if (edge && index)
		edge->process = c->process.id;
	return index;
}

#endif
