/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Out-of-order events: what is received before the call that sent what it answers has returned.
 *
 * A call is seen when it returns. Where one thread sends and another receives, as in clients of
 * Go's library, a reply may be received on another CPU before the call that sent its request
 * returns, and a server may get another request before the call that sent its reply returns. In the
 * order in which they are seen, the one would be a reply without a request, and the other would
 * make one request of two.
 *
 * The kernel knows better: what was handed to the socket is ahead of what calls have reported. What
 * is received then is kept, with its time and its first bytes, until that call returns. HTTP/2
 * needs none of this: its streams may begin at either side, and so may following it; see
 * http2_streams.h.
 */
#ifndef OUTSIGHT_REORDER_H
#define OUTSIGHT_REORDER_H

#include "include/kernel.h"
#include "net/exchange.h"
#include "net/latency.h"
#include "net/proxies_path.h"
#include "net/user_buffer.h"

static __always_inline void note_reported(struct sock *sk, struct connection *c)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (tcp)
		c->reported_sequence = tcp->write_seq;
}

/* Whether a call is sending, or has sent, that has not returned yet. */
static __always_inline bool is_sending(struct sock *sk, struct connection *c)
{
	u8 state = sk->__sk_common.skc_state;

	/* In others the sequence is ahead by one: this end has ended. */
	if (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT)
		return false;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	return tcp && tcp->write_seq != c->reported_sequence;
}

/* Takes what is kept; only one caller gets it. */
static __always_inline bool take_early(struct connection *c)
{
	return c->early.state == EARLY_KEPT &&
	       __sync_val_compare_and_swap(&c->early.state, EARLY_KEPT, EARLY_TAKEN) == EARLY_KEPT;
}

/* Keeps what the calling task has received; false if it is to be counted at once. */
static __noinline int keep_early(struct sock *sk, struct connection *c, u32 readable)
{
	if (!sk || !c)
		return false;
	struct early *e = &c->early;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return false;
	if (c->role == ROLE_SERVER && c->phase == PHASE_IDLE)
		return false;
	/* If the call turns out to send a preface, the replies are followed from behind this on. */
	if (!c->first_ns)
		c->head.greeted = 1;
	u64 now = bpf_ktime_get_ns();
	u32 before = __sync_val_compare_and_swap(&e->state, EARLY_NONE, EARLY_TAKEN);
	if (before != EARLY_NONE) {
		e->last_ns = now;
		return true;
	}
	e->sequence = tcp->write_seq;
	e->first_ns = now;
	e->last_ns = now;
	/* Of the segment that was acknowledged last, on the same clock: tcp_rate_skb_delivered. */
	e->sent_ns = tcp->first_tx_mstamp * 1000;
	e->size = readable;
	e->length = readable ? read_buffer(e->text, HEAD_BYTES, readable) : 0;
	__sync_val_compare_and_swap(&e->state, EARLY_TAKEN, EARLY_KEPT);
	/* If the call has returned meanwhile, it saw nothing that was kept. */
	if (is_sending(sk, c) || !take_early(c))
		return true;
	e->state = EARLY_NONE;
	return false;
}

/* What a late call sent was sent before what answers it was received. */
static __always_inline void set_back(struct connection *c)
{
	const struct early *e = &c->early;
	u64 at = e->sent_ns < e->first_ns ? e->sent_ns : e->first_ns;

	if (c->role == ROLE_CLIENT) {
		if (c->phase == PHASE_REQUEST && c->first_ns > at)
			c->first_ns = at > c->last_ns ? at : c->last_ns;
		return;
	}
	if (c->phase != PHASE_REPLY || c->last_ns <= at)
		return;
	c->last_ns = at > c->first_ns ? at : c->first_ns;
	if (c->reply_ns > c->last_ns)
		c->reply_ns = c->last_ns;
}

/* Done with what was taken. */
static __always_inline void end_early(struct connection *c)
{
	if (c->phase == PHASE_REPLY && c->last_ns < c->early.last_ns)
		c->last_ns = c->early.last_ns;
	c->early.state = EARLY_NONE;
}

/* A server has sent its reply, and the call was missed. */
static __always_inline void lose_request(struct connection *c, struct edge *edge)
{
	if (c->phase != PHASE_REQUEST)
		return;
	leave_proxy(&c->at_proxy);
	if (c->head.state != HEAD_PARTIAL)
		__sync_fetch_and_add(&edge->lost, 1);
	c->phase = PHASE_IDLE;
}

/*
 * Counts what was taken where the call that sends was missed, by its times alone: a name or a
 * status is not worth the depth of calls that older verifiers allow.
 */
static __always_inline void count_early(struct sock *sk, struct connection *c, struct edge *edge)
{
	u64 at = c->early.first_ns;

	if (c->role == ROLE_CLIENT) {
		if (c->phase == PHASE_IDLE) {
			on_push(c, edge);
		} else if (c->phase == PHASE_REQUEST) {
			if (c->head.state == HEAD_PARTIAL) {
				count_request(edge, true);
				c->head.state = HEAD_NONE;
			}
			reply_began(c, edge, at);
		}
	} else {
		lose_request(c, edge);
		finish(sk, c);
		c->head.state = HEAD_NONE;
		c->head.target = 0;
		c->first_ns = at;
		c->phase = PHASE_REQUEST;
		count_request(edge, true);
	}
	end_early(c);
}

/* When what is kept was received: before the call that sends had begun, or after. */
#define EARLY_BEFORE 1
#define EARLY_AFTER 2

/*
 * A call has returned that has sent so many bytes. What is kept, if anything, is the caller's now.
 * If it was received before the call had begun, the call before it was missed (unless several
 * threads send at once).
 */
static __always_inline u32 order_of_early(struct sock *sk, struct connection *c, struct edge *edge,
					  u32 bytes)
{
	if (!take_early(c))
		return EARLY_NONE;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (tcp && (s32)(tcp->write_seq - bytes - c->early.sequence) < 0)
		return EARLY_AFTER;
	if (c->role == ROLE_SERVER)
		lose_request(c, edge);
	return EARLY_BEFORE;
}

/*
 * A call that sends has returned. True if it is late: what was received after it is the caller's
 * now.
 */
static __always_inline bool is_late_send(struct sock *sk, struct connection *c, bool taken)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	/*
	 * A barrier: first this, then whether something is kept; keep_early keeps first, and then
	 * looks at this.
	 */
	if (tcp)
		__sync_lock_test_and_set(&c->reported_sequence, tcp->write_seq);
	if (!taken && !take_early(c))
		return false;
	if (c->flags & (CONNECTION_HTTP2 | CONNECTION_STREAM)) {
		c->early.state = EARLY_NONE;
		return false;
	}
	set_back(c);
	return true;
}

/* The call has not returned for long, and it does not wait for room for what it sends. */
static __always_inline void give_up_call(struct sock *sk, struct connection *c)
{
	struct edge *edge = edge_at(c->edge, c->edge_generation);
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (!edge || !tcp || tcp->snd_una != tcp->write_seq || !take_early(c))
		return;
	c->reported_sequence = tcp->write_seq;
	count_early(sk, c, edge);
}

#endif
