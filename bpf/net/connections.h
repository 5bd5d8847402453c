/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* How connections are opened and closed, and who owns them. */
#ifndef OUTSIGHT_CONNECTIONS_H
#define OUTSIGHT_CONNECTIONS_H

#include "include/kernel.h"
#include "include/cgroup_id.h"
#include "net/edge_maps.h"
#include "net/edge_table.h"
#include "net/exchange.h"
#include "net/http2_calls.h"
#include "net/listeners.h"
#include "net/packet_counts.h"
#include "net/pairing.h"
#include "net/proxies_path.h"
#include "net/reorder.h"
#include "net/samples.h"

static __always_inline void open_on(struct connection *c, u32 index)
{
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);

	if (edge) {
		__sync_fetch_and_add(&edge->opens, 1);
		sample_connection(c, edge);
	}
	use_edge(c, index);
	set_flags(c, CONNECTION_OPEN);
}

/*
 * A connection that a client opened is counted from its first use on, or the next sweep, or its
 * end: by then the server's end has published who it is.
 */
static __always_inline void settle(struct sock *sk, struct connection *c)
{
	u32 index = edge_of(sk, c);

	/* It may be used, swept and closed at once: all find the same edge, and one counts. */
	use_edge(c, index);
	set_flags(c, CONNECTION_OWNED | CONNECTION_OPEN);
	if (__sync_val_compare_and_swap(&c->unsettled, 1, 0) == 1)
		open_on(c, index);
}

static __always_inline void close_on(struct connection *c)
{
	struct edge *edge = edge_at(c->edge, c->edge_generation);

	if (edge)
		__sync_fetch_and_add(&edge->closes, 1);
	clear_flags(c, CONNECTION_OPEN);
}

/* The role of a socket whose opening was not seen. */
static __always_inline u32 role_of(struct sock *sk)
{
	return listener_of(sk) ? ROLE_SERVER : ROLE_CLIENT;
}

/* Whether the other of the two programs has been here already; see inet_sock_set_state_too. */
static __always_inline bool handled(struct connection *c, u16 state)
{
	if (c->state == state)
		return true;
	c->state = state;
	return false;
}

/*
 * The task that uses a socket owns it: an accepted socket is the accepting task's, not the
 * listener's creator's. The first use decides.
 */
static __noinline int own(struct sock *sk, struct connection *c, struct task_struct *task,
			  bool used)
{
	if (!sk || !c || !task)
		return 0;
	u8 state = sk->__sk_common.skc_state;
	if (c->role == ROLE_CLIENT && (c->flags & CONNECTION_WHOLE || c->unsettled)) {
		/* TCP Fast Open: the first data goes with the request for the connection. */
		if (state == TCP_SYN_SENT) {
			use_edge(c, edge_of(sk, c));
			return 0;
		}
		/* It is established, and that was missed. */
		if (c->state == TCP_SYN_SENT && !handled(c, TCP_ESTABLISHED)) {
			c->unsettled = 1;
			note_reported(sk, c);
		}
		if (used)
			settle(sk, c);
		return 0;
	}
	if (!c->role) {
		c->role = role_of(sk);
		/*
		 * TCP Fast Open: data is received before the connection is established; see
		 * accepted.
		 */
		set_flags(c, state == TCP_SYN_RECV ? CONNECTION_WHOLE : CONNECTION_OLD);
		if (state == TCP_SYN_RECV)
			c->opened_ns = bpf_ktime_get_ns();
		else
			skip_segments(sk, c);
		sequences_of(sk, c);
	}
	u64 owner = task_cgroup_id(task);
	set_flags(c, CONNECTION_OWNED);
	if ((c->flags & CONNECTION_OPEN) && c->owner == owner)
		return 0;
	if (c->flags & CONNECTION_OPEN) {
		count_segments(sk, c);
		close_on(c);
	}
	c->owner = owner;
	process_of(task, &c->process);
	if (c->role == ROLE_CLIENT) {
		clear_flags(c, CONNECTION_OWNED);
		publish_client(sk, c);
		c->unsettled = 1;
		if (used)
			settle(sk, c);
		return 0;
	}
	/* Who listens is not who accepts: the next connections begin with the right owner. */
	struct listener *listener = listener_of(sk);
	if (listener)
		listener->owner = owner;
	open_on(c, edge_of(sk, c));
	return 0;
}

/* Nothing was seen of a connection for a while: how its transaction went on is not known. */
static __noinline int rejoin(struct sock *sk, struct connection *c, struct edge *edge)
{
	if (!sk || !c || !edge)
		return 0;
	if (c->flags & CONNECTION_HTTP2) {
		struct http2_connection *h = bpf_sk_storage_get(&http2_connections, sk, 0, 0);

		if (h && !h->lost)
			leave_streams(h, bpf_ktime_get_ns() | ENDED_LOST);
		bpf_sk_storage_delete(&http2_connections, sk);
		clear_flags(c, CONNECTION_HTTP2);
	} else if (c->phase == PHASE_REQUEST && c->head.state != HEAD_PARTIAL) {
		__sync_fetch_and_add(&edge->lost, 1);
	} else if (c->phase == PHASE_REPLY) {
		finish(sk, c);
	}
	leave_proxy(&c->at_proxy);
	c->phase = PHASE_IDLE;
	c->first_ns = 0;
	c->pushes = 0;
	__builtin_memset(&c->head, 0, sizeof(c->head));
	c->early.state = EARLY_NONE;
	note_reported(sk, c);
	set_flags(c, CONNECTION_REJOINED);
	c->watched = watching;
	return 0;
}

static __always_inline struct connection *adopt(struct sock *sk)
{
	struct connection *c = SOCKET_STORAGE(&connections, sk);

	if (!c)
		count_drop(DROP_CONNECTION);
	return c;
}

#endif
