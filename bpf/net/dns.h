/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * DNS over UDP: transactions by the id in each message, so that queries that are sent at once are
 * told apart, and endpoints by type, name and response code (proto_dns.h).
 */
#ifndef OUTSIGHT_DNS_H
#define OUTSIGHT_DNS_H

#include "include/kernel.h"
#include "include/histogram.h"
#include "include/lru.h"
#include "net/datagram_flows.h"
#include "net/endpoint_table.h"
#include "net/proto/proto_dns.h"
#include "net/user_buffer.h"

#define DNS_PORT 53

/* Queries without a reply so far; the least recently used are evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key);
	__type(value, struct dns_query);
} dns_queries SEC(".maps");

/* Those of control groups that have used up their quota. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key);
	__type(value, struct dns_query);
} crowded_queries SEC(".maps");

struct dns_scratch {
	struct dns_question question;
	struct dns_query query;
	struct endpoint_key key;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct dns_scratch);
} dns_scratch SEC(".maps");

/* --- the message --- */

/*
 * Reads the head of the message that has just been sent or received. Which of a call's several
 * messages it is, is not known: they are in order, and one that was not sent ends the call.
 */
static __always_inline u32 read_message(struct datagram_socket *s, u8 *to, u32 size, bool sent)
{
	struct datagram_batch *batch = sent ? &s->sending : &s->receiving;
	struct user_iovec part;
	u64 at, count, message[2];

	if (current_call(&at, &count) != CALL_BATCH)
		return read_buffer(to, DNS_HEAD, size);
	u64 task = bpf_get_current_task();
	u32 i = batch->task == task && batch->at == at && batch->next < count ? batch->next : 0;
	batch->task = task;
	batch->at = at;
	batch->next = i + 1;
	/* struct mmsghdr: 64 bytes; of its struct msghdr, the vector and its length. */
	if (bpf_probe_read_user(message, sizeof(message), (void *)(at + i * 64 + 16)) ||
	    !message[1])
		return 0;
	if (bpf_probe_read_user(&part, sizeof(part), (void *)message[0]))
		return 0;
	if (size > part.size)
		size = part.size;
	size = at_most(size, DNS_HEAD);
	return bpf_probe_read_user(to, size, (void *)part.base) ? 0 : size;
}

/* --- transactions --- */

static __always_inline void count_answer(struct dns_scratch *x, struct edge *edge, u32 index,
					 u64 ns)
{
	u32 code = x->question.packet[3] & 15;

	count_exchange(edge, index, ns);
	x->key.edge = index;
	x->key.protocol = PROTOCOL_DNS;
	x->key.status = code ? STATUS_RCODE + code : STATUS_OK;
	x->key.pad = 0;
	__builtin_memcpy(x->key.name, x->query.name, ENDPOINT_NAME);
	u32 *known = bpf_map_lookup_elem(&endpoint_of_key, &x->key);
	count_endpoint(known ? target_of(*known) : new_endpoint(&x->key), ns, histogram_cell(ns));
}

/* Takes a query away that has its reply, or will have none; false if somebody else did. */
static __always_inline bool take_query(const struct flow_key *key, u64 owner)
{
	if (!owner)
		return lru_take(&crowded_queries, LRU_QUERIES, key);
	if (!lru_take(&dns_queries, LRU_QUERIES, key))
		return false;
	give_flow(owner, CROWDED_QUERIES);
	return true;
}

static __always_inline void put_query(const struct flow_key *key, struct dns_query *query,
				      u64 owner)
{
	struct flow_use *flows = flows_of(owner);

	if (!flows || flows->used[CROWDED_QUERIES] >= max_owner_flows) {
		query->owner = 0;
		lru_put(&crowded_queries, LRU_QUERIES, key, query);
		return;
	}
	query->owner = owner;
	if (lru_make(&dns_queries, LRU_QUERIES, key, query))
		__sync_fetch_and_add(&flows->used[CROWDED_QUERIES], 1);
	else
		bpf_map_update_elem(&dns_queries, key, query, BPF_ANY);
}

/* Whether the datagram was a query, or the reply to one, and has been counted. */
__noinline int dns_datagram(struct datagram_socket *s, struct datagram_flow *f,
				   struct datagram_peer *peer, u32 size, bool sent)
{
	u32 zero = 0;
	struct dns_scratch *x = bpf_map_lookup_elem(&dns_scratch, &zero);

	if (!s || !f || !peer || !x)
		return false;
	u8 *packet = x->question.packet;
	u32 n = read_message(s, packet, size, sent);
	bool query = sent == (f->role == ROLE_CLIENT);
	/* A standard query or its reply, with one question. */
	if (n < DNS_HEADER || (packet[2] & 0x78) || query != !(packet[2] & 0x80) || packet[4] ||
	    packet[5] != 1)
		return false;
	struct flow_key key = {.socket = s->id, .peer = *peer, .query = packet[0] << 8 | packet[1]};
	u32 index = f->edge;
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);
	if (!edge)
		return false;
	u64 now = bpf_ktime_get_ns();
	if (query) {
		x->query.first_ns = now;
		x->query.edge = index;
		x->query.generation = f->generation;
		dns_name(&x->question, n);
		__builtin_memcpy(x->query.name, x->question.name, ENDPOINT_NAME);
		put_query(&key, &x->query, s->owner);
		__sync_fetch_and_add(&edge->requests, 1);
		return true;
	}
	struct dns_query *asked = bpf_map_lookup_elem(&dns_queries, &key);
	if (!asked)
		asked = bpf_map_lookup_elem(&crowded_queries, &key);
	if (!asked)
		return false;
	x->query = *asked;
	if (take_query(&key, x->query.owner))
		count_answer(x, edge, index, elapsed(x->query.first_ns, now));
	return true;
}

/* Counts the queries that wait, and gives up those that have waited for long. */
static __always_inline void sweep_query(const struct flow_key *found, const struct dns_query *q)
{
	if (elapsed(q->first_ns, bpf_ktime_get_ns()) > UNANSWERED_AFTER_NS) {
		struct flow_key key = *found;

		take_query(&key, q->owner);
		return;
	}
	queries_found++;
	if (q->owner)
		found_flow(q->owner, CROWDED_QUERIES);
	u32 index = q->edge;
	struct datagram_edge *d = bpf_map_lookup_elem(&datagram_edges, &index);
	if (d && q->generation == (u32)d->generation)
		__sync_fetch_and_add(&d->pending, 1);
}

SEC("iter/bpf_map_elem")
int sweep_dns_queries(struct bpf_iter__bpf_map_elem *ctx)
{
	/* Read once: a second reading is another pointer to the verifier, which may be NULL. */
	void *key = ctx->key, *value = ctx->value;

	if (key && value)
		sweep_query(key, value);
	return 0;
}

static long sweep_each_query(struct bpf_map *map, void *key, void *value, void *ctx)
{
	sweep_query(key, value);
	return 0;
}

SEC("syscall")
int sweep_all_dns_queries(void *ctx)
{
	bpf_for_each_map_elem(&dns_queries, sweep_each_query, NULL, 0);
	bpf_for_each_map_elem(&crowded_queries, sweep_each_query, NULL, 0);
	return 0;
}

#endif
