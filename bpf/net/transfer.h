/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* What is done when a call that sends or receives returns. */
#ifndef OUTSIGHT_TRANSFER_H
#define OUTSIGHT_TRANSFER_H

#include "include/kernel.h"
#include "net/addresses.h"
#include "net/connections.h"
#include "net/datagrams_path.h"
#include "net/exchange.h"
#include "net/http2_calls.h"
#include "net/packet_counts.h"
#include "net/proxies_path.h"
#include "net/reorder.h"

/*
 * What is received after the connection's end, and after its edge was given up: without a
 * transaction.
 */
static __noinline struct edge *find_edge_again(struct sock *sk, struct connection *c)
{
	if (!sk || !c)
		return NULL;
	leave_proxy(&c->at_proxy);
	c->phase = PHASE_IDLE;
	c->head.target = 0;
	use_edge(c, edge_of(sk, c));
	return edge_at(c->edge, c->edge_generation);
}

static __always_inline int transferred(struct sock *sk, int bytes, u32 readable, bool sent)
{
	if (!watching)
		return 0;
	if (!is_tcp(sk)) {
		if (is_udp(sk))
			return datagram(sk, bytes, sent);
		if (bytes > 0 && is_mptcp(sk))
			count_drop(DROP_MULTIPATH);
		return 0;
	}
	if (bytes <= 0)
		return 0;
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (!c) {
		c = adopt(sk);
		if (!c)
			return 0;
		c->watched = watching;
	}
	if (!(c->flags & CONNECTION_OWNED))
		own(sk, c, bpf_get_current_task_btf(), true);

	struct edge *edge = edge_at(c->edge, c->edge_generation);
	if (!edge)
		edge = find_edge_again(sk, c);
	if (!edge)
		return 0;
	__sync_fetch_and_add(sent ? &edge->sent_bytes : &edge->received_bytes, (u64)bytes);
	if (c->watched != watching)
		rejoin(sk, c, edge);
	if (!sent) {
		/* several threads may receive at once */
		__sync_fetch_and_add(&c->received_bytes, bytes);
		if (c->role == ROLE_SERVER)
			count_unread(c);
	}
	bool reply = sent != (c->role == ROLE_CLIENT);
	if ((c->flags & CONNECTION_HTTP2 || (reply && greets_http2(sk, c, readable))) &&
	    http2_transferred(sk, c, bytes, readable, reply))
		return 0;
	u32 order = EARLY_NONE;
	if (c->flags & CONNECTION_STREAM)
		;
	else if (sent)
		order = order_of_early(sk, c, edge, bytes);
	else if ((c->early.state || is_sending(sk, c)) && keep_early(sk, c, readable))
		return 0;
	/*
	 * 1 is the call; 0 and 2 are what was received early, which goes the other way, before it
	 * or after it.
	 */
#pragma clang loop unroll(disable)
	for (u32 turn = order == EARLY_BEFORE ? 0 : 1; turn < 3; turn++) {
		bool early = turn != 1;
		u32 part = early ? c->early.size : readable;

		if ((sent != early) == (c->role == ROLE_CLIENT))
			on_request(sk, c, edge, part, early);
		else
			on_reply(sk, c, edge, part, early);
		if (early)
			end_early(c);
		else if (!sent || !is_late_send(sk, c, order == EARLY_AFTER))
			break;
	}
	/*
	 * The end came within the call, or before a reply was read: nothing follows that could end
	 * the transaction.
	 */
	if (c->state == TCP_CLOSE && !finish(sk, c) && c->phase == PHASE_REQUEST)
		abort_request(c, edge);
	return 0;
}

#endif
