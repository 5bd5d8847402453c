/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* A connection's requests and replies, one after another. */
#ifndef OUTSIGHT_EXCHANGE_H
#define OUTSIGHT_EXCHANGE_H

#include "include/kernel.h"
#include "net/edge_maps.h"
#include "net/http2_calls.h"
#include "net/latency.h"
#include "net/proxies_path.h"
#include "net/requests.h"
#include "net/tls_text.h"

static __noinline int request_at_proxy(struct connection *c, struct edge *edge)
{
	if (!c || !edge)
		return 0;
	u64 name = c->head.state >= HEAD_NAMED ? hash_of_name(c->head.name, ENDPOINT_NAME) : 0;

	at_proxy(edge, &c->at_proxy, name, c->head.protocol, c->first_ns);
	return 0;
}

/* A request is counted in the call that sends or receives it. */
static __always_inline void begin_request(struct connection *c, struct edge *edge)
{
	count_request(edge, c->early.state == EARLY_TAKEN);
	if (edge->proxy && !names_shed)
		request_at_proxy(c, edge);
}

/* The connection is closed before the reply. */
static __always_inline void abort_request(struct connection *c, struct edge *edge)
{
	c->phase = PHASE_IDLE;
	if (c->head.state == HEAD_PARTIAL)
		count_request(edge, true);
	leave_proxy(&c->at_proxy);
	__sync_fetch_and_add(&edge->aborts, 1);
}

/*
 * 0 until the hooks of both directions are attached, which the loader does one after the other:
 * what is seen of one direction alone is no sequence of transactions. Then another number for each
 * time that they were.
 */
volatile u32 watching = 0;

/* Since when, on the monotonic clock. */
volatile u64 watched_since_ns = 0;

/*
 * Whether a part of a request may be where following HTTP/2 can begin. A long request of an unknown
 * protocol, such as a stream, has no end at which it would be found to be none.
 */
static __always_inline bool may_join_http2(struct connection *c)
{
	if (!(c->flags & (CONNECTION_OLD | CONNECTION_REJOINED)) || !architecture ||
	    c->head.protocol)
		return false;
	return c->phase != PHASE_REQUEST || ++c->head.looks <= JOIN_LOOKS ||
	       c->head.looks % JOIN_THEN_EVERY == 0;
}

/*
 * Here and in on_reply the clock is read only where a time is kept: it is a third of the cost of
 * a part of a long request.
 *
 * readable is how many of the bytes the calling task has in its buffer. A request that cannot be
 * named yet is counted when more of it, or its reply, shows that it has one.
 */
static __always_inline void on_request(struct sock *sk, struct connection *c, struct edge *edge,
				       u32 readable, bool early)
{
	if (c->flags & CONNECTION_STREAM)
		return;
	if (!early && may_join_http2(c) && join_http2(sk, c, edge, readable))
		return;
	if (c->phase == PHASE_REQUEST) {
		if (reads_tls && (c->flags & CONNECTION_TLS) && c->head.state == HEAD_NONE) {
			/* What was sent before was of the handshake. */
			if (c->role == ROLE_CLIENT && c->head.protocol != PROTOCOL_OPAQUE &&
			    read_request(c, readable, early) == HEAD_NAMED)
				c->first_ns = bpf_ktime_get_ns();
			else
				c->head.state = HEAD_NONE;
			return;
		}
		if (c->head.state != HEAD_PARTIAL) {
			if (c->head.protocol == PROTOCOL_DNS)
				another_query(&c->head, readable);
			return;
		}
		u32 before = c->head.length;
		int state = read_more_request(c, readable, early);
		if (state == HEAD_HTTP2 && early) {
			c->head.protocol = PROTOCOL_OPAQUE;
		} else if (state == HEAD_HTTP2) {
			c->head.length = before;
			c->head.state = HEAD_PARTIAL; /* of the preface: begin_direction */
			begin_http2(sk, c, readable);
			return;
		}
		if (state == HEAD_SILENT)
			c->phase = PHASE_IDLE;
		else if (state != HEAD_PARTIAL)
			begin_request(c, edge);
		return;
	}
	if (c->phase == PHASE_REPLY) {
		/* The body of a request whose server has said to go on. */
		if (reads_tls && (c->flags & CONNECTION_TLS) && c->head.state == HEAD_NAMED &&
		    tls_status(c) == REPLY_INTERIM)
			return;
		finish(sk, c);
	}
	clear_flags(c, CONNECTION_SWEPT);
	c->pushes = 0;
	u64 now = early ? c->early.first_ns : bpf_ktime_get_ns();
	if (names_shed) {
		c->head.state = HEAD_NONE;
		c->head.target = 0;
	} else if (architecture && c->head.protocol != PROTOCOL_OPAQUE) {
		int state = read_request(c, readable, early);

		if (state == HEAD_HTTP2) {
			/* Of an encrypted connection, only the beginnings of requests are seen. */
			if (early || (c->flags & CONNECTION_TLS)) {
				c->head.protocol = PROTOCOL_OPAQUE;
				state = HEAD_NONE;
			} else {
				begin_http2(sk, c, readable);
			}
		}
		if (state == HEAD_SILENT || state == HEAD_HTTP2)
			return;
	}
	c->first_ns = now;
	c->phase = PHASE_REQUEST;
	if (c->head.state != HEAD_PARTIAL)
		begin_request(c, edge);
}

/* The server sends without having been asked: it greets, goes on after a silence, or pushes. */
static __always_inline void on_push(struct connection *c, struct edge *edge)
{
	if (c->flags & CONNECTION_SWEPT) {
		clear_flags(c, CONNECTION_SWEPT);
		__sync_fetch_and_add(&edge->continued, 1);
		return;
	}
	if ((c->flags & (CONNECTION_OLD | CONNECTION_REJOINED)) && !c->first_ns)
		return; /* its request was not seen */
	if (c->state == TCP_CLOSE)
		return; /* the rest of a reply that is read after the end */
	__sync_fetch_and_add(&edge->pushes, 1);
	if (c->head.watch & HEAD_WATCH_NOTICE)
		return;
	if (++c->pushes >= STREAM_AFTER_PUSHES)
		set_flags(c, CONNECTION_STREAM);
}

static __noinline int reply_began(struct connection *c, struct edge *edge, u64 now)
{
	if (!c || !edge)
		return 0;
	c->last_ns = now;
	c->reply_ns = now;
	c->phase = PHASE_REPLY;
	leave_proxy(&c->at_proxy);
	__sync_fetch_and_add(&edge->replies, 1);
	add_sample(&edge->histograms[EDGE_TTFB], &edge->ttfb_sum_ns, elapsed(c->first_ns, now));
	return 0;
}

static __always_inline void on_reply(struct sock *sk, struct connection *c, struct edge *edge,
				     u32 readable, bool early)
{
	int reply = REPLY_BEGINS;

	if (c->phase == PHASE_IDLE) {
		if (!early && architecture && !c->head.protocol && !c->head.failures &&
		    (c->flags & CONNECTION_WHOLE) &&
		    !(c->flags & (CONNECTION_STREAM | CONNECTION_REJOINED))) {
			read_greeting(c, readable);
			c->head.greeted = 1;
		}
		on_push(c, edge);
		return;
	}
	u64 now = early ? c->early.first_ns : bpf_ktime_get_ns();
	if (c->phase == PHASE_REPLY) {
		if (c->head.watch && is_notice(c, readable, early))
			__sync_fetch_and_add(&edge->pushes, 1);
		else
			c->last_ns = now;
		return;
	}
	if (c->head.state || (reads_tls && (c->flags & CONNECTION_TLS))) {
		bool late = c->head.state == HEAD_PARTIAL;

		reply = begin_reply(c, readable, early);
		if (late)
			count_request(edge, true);
	}
	/* Of what is kept, only the first part is. */
	if (reply == REPLY_WAITS && !(early && c->early.last_ns != c->early.first_ns))
		return;
	reply_began(c, edge, now);
	if (reply == REPLY_SWITCHES) {
		set_flags(c, CONNECTION_STREAM);
		__sync_fetch_and_add(&edge->upgrades, 1);
		finish(sk, c);
	}
}

#endif
