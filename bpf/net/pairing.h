/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Pairing of the two ends of a connection on one host. The client's end publishes who it is when
 * the connection is established, which is always before the server's end is, and the server's end
 * answers. The key is the two initial sequence numbers: no translation of addresses on the way
 * (published ports, virtual service addresses, masquerading) changes them. Connections that are
 * older than these programs are paired by their current sequence numbers if they are idle, else by
 * their address pair.
 */
#ifndef OUTSIGHT_PAIRING_H
#define OUTSIGHT_PAIRING_H

#include "include/kernel.h"
#include "net/addresses.h"
#include "net/edge_maps.h"
#include "net/quotas.h"

/* What the ends of an open connection know of each other. */
struct pair {
	u64 client; /* control group */
	u64 server; /* control group, 0 until the server's end is there */
	struct address dialled; /* the server's address as the client sees it */
	struct address reached; /* the server's address as the server sees it */
	/* of a proxy's connection: the address that the proxy was dialled from */
	struct address behind;
	char client_process[PROCESS_NAME];
	char server_process[PROCESS_NAME];
	u16 dialled_port;
	u16 reached_port;
	u32 ends;    /* how many of the two are open */
	u32 proxied; /* client is not who dialled, but on whose behalf a proxy did */
	u32 round;   /* the last round of the sweep at which an end was there */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct pair_key);
	__type(value, struct pair);
} pairs SEC(".maps");

/*
 * Processes that forward connections from the host's ports to containers, and the connections
 * that each has accepted and not yet passed on: their number, times two, plus one where they are
 * of several edges, in the upper half; the edge in the lower half.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, u32); /* process */
	__type(value, u64);
} proxies SEC(".maps");

/* Proxies are those of this network namespace; set by the loader, 0 where it could not. */
const volatile u32 host_netns = 0;

/*
 * A pair whose close was missed would stay for ever. Now and then the reader begins a round: the
 * sweep of the connections marks the pairs of which an end is there, and then a sweep of the pairs
 * removes the others and counts those that are left.
 */
volatile u32 pair_round = 0;
volatile u32 marks_pairs = 0;
volatile u64 pairs_found = 0;

/* --- processes --- */

/* Remembers the process behind an end; the name is padded with zeros. */
static __always_inline void process_of(struct task_struct *task, struct process *process)
{
	struct task_struct *leader = task->group_leader;

	__builtin_memset(process, 0, sizeof(*process));
	bpf_probe_read_kernel_str(process->name, sizeof(process->name), &leader->comm);
	process->id = task->tgid;
}

static __always_inline bool is_forwarder(const struct process *process, u32 netns)
{
	const u64 *word = (const u64 *)process->name;

	return netns == host_netns && word[0] == 0x702d72656b636f64 /* docker-p */ &&
	       word[1] == 0x79786f72 /* roxy */;
}

/* A forwarder's connection was accepted. */
static __noinline int forwarder_accepted(u32 id, u32 edge)
{
	u64 *state = bpf_map_lookup_elem(&proxies, &id);

	for (u32 i = 0; state && i < 8; i++) {
		u64 before = *state, after;
		u64 waiting = before >> 33, mixed = before >> 32 & 1;

		if (!waiting)
			after = 1ULL << 33 | edge;
		else
			after = (waiting + 1) << 33 | (mixed | ((u32)before != edge)) << 32 |
				(u32)before;
		if (__sync_val_compare_and_swap(state, before, after) == before)
			return 0;
	}
	count_drop(DROP_PROXIED);
	return 0;
}

/*
 * A forwarder dials on behalf of a connection that it has accepted: the edge of that one. It is
 * not known, and 0, where connections of several edges wait at once.
 */
static __noinline u32 forwarder_dials(u32 id)
{
	u64 *state = bpf_map_lookup_elem(&proxies, &id);

	for (u32 i = 0; state && i < 8; i++) {
		u64 before = *state;
		u64 waiting = before >> 33, mixed = before >> 32 & 1;

		if (!waiting)
			return 0;
		u64 after = (waiting - 1) << 33 | mixed << 32 | (u32)before;
		if (__sync_val_compare_and_swap(state, before, after) != before)
			continue;
		if (!mixed)
			return before;
		break;
	}
	count_drop(DROP_PROXIED);
	return 0;
}

/* --- keys --- */

/* The sequence numbers of the next byte either way; at establishment, one past the initial ones. */
static __always_inline void sequences_of(struct sock *sk, struct connection *c)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (!tcp)
		return;
	u32 sent = tcp->snd_una, received = tcp->rcv_nxt;
	c->client_sequence = c->role == ROLE_CLIENT ? sent : received;
	c->server_sequence = c->role == ROLE_CLIENT ? received : sent;
	c->reported_sequence = tcp->write_seq;
}

/* No address is zero, so that these keys and those of address pairs are never equal. */
static __always_inline void sequence_key_of(const struct connection *c, struct pair_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	*(u32 *)&key->client.bytes[0] = c->client_sequence;
	*(u32 *)&key->client.bytes[4] = c->server_sequence;
}

static __always_inline void address_key_of(struct sock *sk, const struct connection *c,
					   struct pair_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	if (c->role == ROLE_CLIENT) {
		local_address(sk, &key->client);
		remote_address(sk, &key->service);
		key->client_port = c->local_port ? c->local_port : sk->__sk_common.skc_num;
		key->service_port = remote_port(sk);
	} else {
		remote_address(sk, &key->client);
		local_address(sk, &key->service);
		key->client_port = remote_port(sk);
		key->service_port = sk->__sk_common.skc_num;
	}
	if (is_loopback(&key->client))
		key->netns = netns_of(sk);
}

/* --- pairs --- */

static __noinline int put_pair(struct pair_key *key, struct pair *m)
{
	if (!key || !m)
		return 0;
	if (bpf_map_lookup_elem(&pairs, key)) {
		bpf_map_update_elem(&pairs, key, m, BPF_ANY);
	} else if (take_pair(m->client)) {
		if (bpf_map_update_elem(&pairs, key, m, BPF_ANY)) {
			give_pair(m->client);
			count_drop(DROP_PAIR);
		}
	}
	return 0;
}

static __noinline int remove_pair(struct pair_key *key)
{
	struct pair *m = key ? bpf_map_lookup_elem(&pairs, key) : NULL;

	if (!m)
		return 0;
	u64 client = m->client;
	if (!bpf_map_delete_elem(&pairs, key))
		give_pair(client);
	return 0;
}

/* Publishes for the server's end who dialled, and what. */
static __noinline int publish_client(struct sock *sk, struct connection *c)
{
	struct pair_key key;
	struct pair m = {.client = c->owner, .ends = 1, .round = pair_round};

	if (!sk || !c)
		return 0;
	c->local_port = sk->__sk_common.skc_num;
	remote_address(sk, &m.dialled);
	m.dialled_port = remote_port(sk);
	__builtin_memcpy(m.client_process, c->process.name, PROCESS_NAME);
	u32 behind = c->behind;
	struct edge *edge = behind ? bpf_map_lookup_elem(&edges, &behind) : NULL;
	if (edge) {
		m.proxied = 1;
		m.client = edge->key.peer;
		m.behind = edge->key.client;
		m.dialled = edge->key.far_port ? edge->key.far : edge->key.service;
		m.dialled_port = edge->key.far_port ? edge->key.far_port : edge->key.port;
		__builtin_memcpy(m.client_process, edge->key.peer_process, PROCESS_NAME);
	}
	sequence_key_of(c, &key);
	put_pair(&key, &m);
	if (!(c->flags & CONNECTION_OLD))
		return 0;
	address_key_of(sk, c, &key);
	put_pair(&key, &m);
	return 0;
}

/* The pair of a connection; a client of an older one needs one that its server has found. */
static __always_inline struct pair *pair_of(struct sock *sk, const struct connection *c)
{
	struct pair_key key;
	struct pair *m;

	sequence_key_of(c, &key);
	m = bpf_map_lookup_elem(&pairs, &key);
	if (!(c->flags & CONNECTION_OLD) || (m && (c->role == ROLE_SERVER || m->server)))
		return m;
	address_key_of(sk, c, &key);
	return bpf_map_lookup_elem(&pairs, &key);
}

/* The last end that closes removes the entry. */
static __always_inline void leave_pair(struct sock *sk, const struct connection *c)
{
	struct pair_key key;

	if (c->role == ROLE_SERVER && !(c->flags & CONNECTION_PAIRED))
		return;
	sequence_key_of(c, &key);
	if (c->flags & CONNECTION_OLD) {
		if (c->role != ROLE_CLIENT)
			return;
		remove_pair(&key);
		address_key_of(sk, c, &key);
		remove_pair(&key);
		return;
	}
	struct pair *m = bpf_map_lookup_elem(&pairs, &key);
	if (m && __sync_fetch_and_add(&m->ends, -1) <= 1)
		remove_pair(&key);
}

static __always_inline void mark_pair(struct pair_key *key)
{
	struct pair *m = bpf_map_lookup_elem(&pairs, key);

	if (m)
		m->round = pair_round;
}

/* An end of the pair is there. */
static __noinline int mark_pairs(struct sock *sk, struct connection *c)
{
	struct pair_key key;

	if (!sk || !c)
		return 0;
	sequence_key_of(c, &key);
	mark_pair(&key);
	if (c->flags & CONNECTION_OLD) {
		address_key_of(sk, c, &key);
		mark_pair(&key);
	}
	return 0;
}

static __always_inline void sweep_pair(const struct pair_key *found, const struct pair *m)
{
	if (m->round != pair_round) {
		struct pair_key key = *found;

		remove_pair(&key);
		return;
	}
	pairs_found++;
}

SEC("iter/bpf_map_elem")
int sweep_pairs(struct bpf_iter__bpf_map_elem *ctx)
{
	/* Read once: a second reading is another pointer to the verifier, which may be NULL. */
	void *key = ctx->key, *value = ctx->value;

	if (key && value)
		sweep_pair(key, value);
	return 0;
}

static long sweep_each_pair(struct bpf_map *map, void *key, void *value, void *ctx)
{
	sweep_pair(key, value);
	return 0;
}

SEC("syscall")
int sweep_all_pairs(void *ctx)
{
	bpf_for_each_map_elem(&pairs, sweep_each_pair, NULL, 0);
	return 0;
}

static __always_inline bool same_address(const struct address *a, const struct address *b)
{
	const u64 *x = (const u64 *)a->bytes, *y = (const u64 *)b->bytes;

	return x[0] == y[0] && x[1] == y[1];
}

static __always_inline void far_of(struct edge_key *key, const struct address *address, u16 port)
{
	if (port == key->port && same_address(address, &key->service))
		return;
	key->far = *address;
	key->far_port = port;
}

/* The server's end learns who dialled, and publishes who answers. */
static __always_inline void pair_with_client(struct sock *sk, struct connection *c,
					     struct edge_key *key)
{
	struct pair *m = pair_of(sk, c);

	if (!m)
		return;
	if (!(c->flags & CONNECTION_PAIRED)) {
		set_flags(c, CONNECTION_PAIRED);
		__sync_fetch_and_add(&m->ends, 1);
	}
	key->peer = m->client;
	__builtin_memcpy(key->peer_process, m->client_process, PROCESS_NAME);
	if (m->proxied) {
		key->client = m->behind;
		key->forwarder = FORWARDED;
	}
	far_of(key, &m->dialled, m->dialled_port);
	m->reached = key->service;
	m->reached_port = key->port;
	__builtin_memcpy(m->server_process, c->process.name, PROCESS_NAME);
	/* Last, and as a barrier: a client that sees it sees all of the above. */
	__sync_lock_test_and_set(&m->server, key->owner);
}

/* The client's end learns who answered. */
static __always_inline void pair_with_server(struct sock *sk, struct connection *c,
					     struct edge_key *key)
{
	struct pair *m = pair_of(sk, c);

	if (!m || !m->server)
		return;
	key->peer = m->server;
	__builtin_memcpy(key->peer_process, m->server_process, PROCESS_NAME);
	far_of(key, &m->reached, m->reached_port);
}

#endif
