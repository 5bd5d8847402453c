/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * How long requests take through proxies, which receive a request on one connection and send it on
 * over another: from the first byte received to the first byte sent on.
 *
 * A request is found again by its process and its name, the oldest of that name first. Where none
 * of that name waits, it is the one that the process has, if that is the only one and the protocol
 * is the same or cannot be read: proxies may write requests anew, or end their encryption.
 */
#ifndef OUTSIGHT_PROXIES_PATH_H
#define OUTSIGHT_PROXIES_PATH_H

#include "include/kernel.h"
#include "include/histogram.h"
#include "include/mix.h"
#include "net/edges.h"
#include "net/proxies.h"

struct proxy_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct proxy);
};

/* Keeps the whole type in the object: of inner maps clang keeps only the name. */
const struct proxy *proxy_record __attribute__((unused));

/* By edge.proxy. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct proxy_map);
} timed_proxies SEC(".maps");

static __always_inline struct proxy *proxy_at(u32 index)
{
	u32 only = 0;
	void *map = bpf_map_lookup_elem(&timed_proxies, &index);

	return map ? bpf_map_lookup_elem(map, &only) : NULL;
}

static __always_inline struct proxy_queue *queue_at(struct proxy *p, u32 index)
{
	return &p->queues[index & (PROXY_QUEUES - 1)];
}

static __always_inline struct proxy_process *process_at(struct proxy *p, u32 id)
{
	return &p->processes[mixed(id) & (PROXY_PROCESSES - 1)];
}

static __always_inline u64 *place_in(struct proxy_queue *q, u32 number)
{
	return &q->received_ns[number & (PROXY_QUEUED - 1)];
}

/* Of a name that is padded with zeros: the same in fields of any length. */
static __always_inline u64 hash_of_name(const u8 *name, const u32 size)
{
	const u64 *words = (const u64 *)name;
	u64 hash = 0;

#pragma unroll
	for (u32 w = 0; w < size / 8; w++) {
		if (words[w])
			hash = mixed(hash ^ words[w]);
	}
	return hash;
}

static __always_inline u64 queue_key(u32 process, u64 name)
{
	return mixed(name ^ mixed(process)) | 1;
}

static __always_inline void one_less(u32 *count)
{
	if (*count)
		__sync_fetch_and_add(count, -1);
}

/* Whether the queue is that of the key, or becomes it. */
static __always_inline bool claim_queue(struct proxy_queue *q, u64 key, u64 now)
{
	u64 before = q->key;

	if (before == key)
		return true;
	if (q->unanswered && elapsed(q->newest_ns, now) < PROXY_FORGET_NS)
		return false;
	if (__sync_val_compare_and_swap(&q->key, before, key) != before)
		return false;
	q->unanswered = 0;
	q->returned = 0;
	q->first = q->next;
	return true;
}

/* Index of the queue of a key, which has two places to be in; -1: there is none. */
static __always_inline int find_queue(struct proxy *p, u64 key)
{
	u32 one = key >> (64 - PROXY_QUEUES_BITS), other = key >> (32 - PROXY_QUEUES_BITS);

	if (queue_at(p, one)->key == key)
		return one;
	return queue_at(p, other)->key == key ? other & (PROXY_QUEUES - 1) : -1;
}

static __always_inline int find_or_claim_queue(struct proxy *p, u64 key, u64 now)
{
	u32 one = key >> (64 - PROXY_QUEUES_BITS), other = key >> (32 - PROXY_QUEUES_BITS);
	int known = find_queue(p, key);

	if (known >= 0)
		return known;
	if (claim_queue(queue_at(p, one), key, now))
		return one;
	return claim_queue(queue_at(p, other), key, now) ? other & (PROXY_QUEUES - 1) : -1;
}

static __always_inline bool claim_process(struct proxy_process *w, u32 id, u64 now)
{
	u32 before = w->id;

	if (before == id)
		return true;
	if (w->unanswered && elapsed(w->ns, now) < PROXY_FORGET_NS)
		return false;
	if (__sync_val_compare_and_swap(&w->id, before, id) != before)
		return false;
	w->unanswered = 0;
	return true;
}

/* A request was received, by the calling process. A name of 0 is that of all without one. */
__noinline int proxy_received(u32 index, struct proxy_request *r, u64 name, u32 protocol,
				     u64 ns)
{
	struct proxy *p = proxy_at(index);

	if (!p || !r)
		return 0;
	u32 process = bpf_get_current_pid_tgid() >> 32;
	u64 key = queue_key(process, name);
	struct proxy_process *w = process_at(p, process);
	int queue = find_or_claim_queue(p, key, ns);
	__sync_fetch_and_add(&p->requests, 1);
	r->key = 0;
	r->ns = ns;
	r->process = process;
	r->proxy = index;
	if (queue >= 0) {
		struct proxy_queue *q = queue_at(p, queue);

		r->queue = queue;
		__sync_fetch_and_add(&q->unanswered, 1);
		r->key = key;
		r->number = __sync_fetch_and_add(&q->next, 1);
		*place_in(q, r->number) = ns;
		q->newest_ns = ns;
	}
	if (!claim_process(w, process, ns))
		return 0;
	__sync_fetch_and_add(&w->unanswered, 1);
	w->key = r->key;
	w->ns = ns;
	w->queue = r->queue;
	w->number = r->number;
	w->protocol = protocol;
	return 0;
}

/* When the oldest request of a queue was received; 0 if there is none. */
static __always_inline u64 take_oldest(struct proxy_queue *q)
{
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < PROXY_QUEUED; i++) {
		u32 first = q->first, next = q->next, left = next - first;

		if (!left)
			return 0;
		/* More than there is room for; or many that were answered without being sent on. */
		if (left > PROXY_QUEUED && left > q->unanswered) {
			__sync_val_compare_and_swap(&q->first, first, next - PROXY_QUEUED);
			continue;
		}
		if (__sync_val_compare_and_swap(&q->first, first, first + 1) != first)
			continue;
		if (left > PROXY_QUEUED)
			return 0;
		u64 ns = __sync_lock_test_and_set(place_in(q, first), 0);
		if (ns)
			return ns;
	}
	return 0;
}

/*
 * A request has a reply, or will have none. If none came back that was sent on, the proxy has
 * answered it by itself, and it does not wait any more. Of requests of one name that change places
 * in the proxy each is taken for another: as many wait, whoever they are.
 */
static __always_inline void received_is_answered(struct proxy *p, struct proxy_queue *q,
						 struct proxy_request *r)
{
	struct proxy_process *w = process_at(p, r->process);

	if (w->id == r->process)
		one_less(&w->unanswered);
	if (!r->key || q->key != r->key)
		return;
	if (q->returned)
		one_less(&q->returned);
	else if (__sync_val_compare_and_swap(place_in(q, r->number), r->ns, 0) != r->ns)
		take_oldest(q);
	one_less(&q->unanswered);
	/* In this order: what is received meanwhile is unanswered before it has a number. */
	u32 next = __sync_fetch_and_add(&q->next, 0);
	if (!q->unanswered) {
		q->returned = 0;
		q->first = next;
	}
}

__noinline int proxy_answered(struct proxy_request *r)
{
	if (!r)
		return 0;
	u32 index = __sync_lock_test_and_set(&r->proxy, 0);
	struct proxy *p = index ? proxy_at(index) : NULL;
	if (!p)
		return 0;
	struct proxy_queue *q = queue_at(p, r->queue);
	if (r->ns)
		received_is_answered(p, q, r);
	else if (q->key == r->key && q->returned < q->unanswered)
		__sync_fetch_and_add(&q->returned, 1);
	return 0;
}

static __always_inline void leave_proxy(struct proxy_request *r)
{
	if (r->proxy)
		proxy_answered(r);
}

static __always_inline bool is_http(u32 protocol)
{
	return protocol == PROTOCOL_HTTP || protocol == PROTOCOL_HTTP2 || protocol == PROTOCOL_GRPC;
}

static __always_inline bool may_be_sent_on_as(u32 received, u32 sent)
{
	if (received == PROTOCOL_UNKNOWN || received == PROTOCOL_OPAQUE)
		return sent == PROTOCOL_UNKNOWN || sent == PROTOCOL_OPAQUE || is_http(sent);
	return received == sent || (is_http(received) && is_http(sent));
}

/* When the only request of a process was received; 0 if it has none, several, or sent it on. */
static __always_inline u64 take_only(struct proxy *p, u32 process, u32 protocol,
				     struct proxy_request *r)
{
	struct proxy_process *w = process_at(p, process);
	u64 ns = w->ns;

	r->key = w->key;
	r->queue = w->queue;
	if (w->id != process || w->unanswered != 1 || !r->key ||
	    !may_be_sent_on_as(w->protocol, protocol))
		return 0;
	u64 *place = place_in(queue_at(p, r->queue), w->number);
	return __sync_val_compare_and_swap(place, ns, 0) == ns ? ns : 0;
}

/* A request was sent, by the calling process. */
__noinline int proxy_sent(u32 index, struct proxy_request *r, u64 name, u32 protocol,
				 u64 sent_ns)
{
	struct proxy *p = proxy_at(index);

	if (!p || !r)
		return 0;
	u32 process = bpf_get_current_pid_tgid() >> 32;
	u64 key = queue_key(process, name), received_ns = 0;
	int queue = name ? find_queue(p, key) : -1;
	if (queue >= 0) {
		r->key = key;
		r->queue = queue;
		received_ns = take_oldest(queue_at(p, queue));
	}
	if (!received_ns) {
		received_ns = take_only(p, process, protocol, r);
		if (!received_ns)
			return 0;
		__sync_fetch_and_add(&p->alone, 1);
	}
	r->ns = 0;
	r->proxy = index;
	u64 took = elapsed(received_ns, sent_ns);
	__sync_fetch_and_add(&p->sum_ns, took);
	histogram_add(&p->took, took);
	__sync_fetch_and_add(&p->matched, 1);
	return 0;
}

/* A request of a connection has begun, at the end that counts for the edge. */
static __always_inline void at_proxy(struct edge *edge, struct proxy_request *r, u64 name,
				     u32 protocol, u64 first_ns)
{
	leave_proxy(r);
	if (edge->key.role == ROLE_CLIENT)
		proxy_sent(edge->proxy, r, name, protocol, first_ns);
	else
		proxy_received(edge->proxy, r, name, protocol, first_ns);
}

#endif
