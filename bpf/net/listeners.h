/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Sockets that listen: what is accepted is their owner's. */
#ifndef OUTSIGHT_LISTENERS_H
#define OUTSIGHT_LISTENERS_H

#include "include/kernel.h"
#include "include/cgroup_id.h"
#include "net/addresses.h"
#include "net/edge_maps.h"
#include "net/pairing.h"
#include "net/quotas.h"

/* The kernel takes a port that it chose itself away from a socket before it reports the close. */
static __always_inline u16 local_port(struct sock *sk, const struct connection *c)
{
	return c && c->local_port ? c->local_port : sk->__sk_common.skc_num;
}

static __always_inline void listener_key_of(struct sock *sk, const struct connection *c,
					    struct listener_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	local_address(sk, &key->address);
	key->netns = netns_of(sk);
	key->port = local_port(sk, c);
}

/* The listener that accepts connections to a socket's local address, if there is one. */
static __always_inline struct listener *listener_of(struct sock *sk)
{
	struct listener_key key;
	struct listener *found;

	listener_key_of(sk, NULL, &key);
	found = bpf_map_lookup_elem(&listeners, &key);
	if (found)
		return found;
	/* 0.0.0.0 before [::], which may be another process's and be for IPv6 alone. */
	if (is_ipv4(&key.address)) {
		map_ipv4(&key.address, 0);
		found = bpf_map_lookup_elem(&listeners, &key);
		if (found)
			return found;
	}
	__builtin_memset(&key.address, 0, sizeof(key.address));
	return bpf_map_lookup_elem(&listeners, &key);
}

static __always_inline void add_listener(struct sock *sk, struct task_struct *task)
{
	struct connection *c = SOCKET_STORAGE(&connections, sk);
	struct listener_key key;

	if (!c) {
		count_drop(DROP_LISTENER);
		return;
	}
	if (c->flags & CONNECTION_LISTENER)
		return;
	c->local_port = sk->__sk_common.skc_num;
	c->drops = sk->sk_drops.counter;
	listener_key_of(sk, c, &key);
	struct listener *known = bpf_map_lookup_elem(&listeners, &key);
	if (known) {
		__sync_fetch_and_add(&known->sockets, 1);
	} else {
		struct listener first = {.owner = task_cgroup_id(task), .sockets = 1};

		if (owner_has(first.owner, QUOTA_LISTENERS) >= max_owner_listeners) {
			owner_is_over(first.owner, QUOTA_LISTENERS);
			return;
		}
		process_of(task, &first.process);
		if (is_forwarder(&first.process, key.netns)) {
			u64 none = 0;

			first.forwarder = 1;
			bpf_map_update_elem(&proxies, &first.process.id, &none, BPF_NOEXIST);
		}
		if (bpf_map_update_elem(&listeners, &key, &first, BPF_NOEXIST)) {
			count_drop(DROP_LISTENER);
			return;
		}
		owner_gains(first.owner, QUOTA_LISTENERS);
	}
	set_flags(c, CONNECTION_LISTENER);
}

/* Brings what the kernel counts at the socket to its address. Sweeps and the end may be at once. */
static __always_inline void count_listener_drops(struct sock *sk, struct connection *c,
						 struct listener *listener)
{
	u32 now = sk->sk_drops.counter;
	u32 gained = now - __sync_lock_test_and_set(&c->drops, now);

	if ((s32)gained > 0)
		__sync_fetch_and_add(&listener->drops, (u64)gained);
}

static __always_inline void see_accept_queue(struct sock *sk, struct listener *listener)
{
	u32 queued = sk->sk_ack_backlog, limit = sk->sk_max_ack_backlog + 1; /* sk_acceptq_is_full */

	if (is_mptcp(sk))
		return; /* its queue is that of a socket of its own */
	if (listener->swept != sweep_number) {
		listener->swept = sweep_number;
		listener->queued = 0;
		listener->queue_limit = 0;
	}
	if (listener->queue_limit &&
	    (u64)queued * listener->queue_limit <= (u64)listener->queued * limit)
		return;
	listener->queued = queued;
	listener->queue_limit = limit;
}

static __always_inline void remove_listener(struct sock *sk)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	struct listener_key key;

	if (!c || !(c->flags & CONNECTION_LISTENER))
		return;
	listener_key_of(sk, c, &key);
	clear_flags(c, CONNECTION_LISTENER);
	struct listener *known = bpf_map_lookup_elem(&listeners, &key);
	if (known)
		count_listener_drops(sk, c, known);
	if (known && __sync_fetch_and_add(&known->sockets, -1) <= 1) {
		if (known->forwarder)
			bpf_map_delete_elem(&proxies, &known->process.id);
		owner_loses(known->owner, QUOTA_LISTENERS);
		bpf_map_delete_elem(&listeners, &key);
	}
}

#endif
