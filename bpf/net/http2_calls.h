/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * What calls that send and receive do to the streams of a connection, and how following it begins
 * and ends.
 */
#ifndef OUTSIGHT_HTTP2_CALLS_H
#define OUTSIGHT_HTTP2_CALLS_H

#include "include/kernel.h"
#include "net/edge_maps.h"
#include "net/http2/http2.h"
#include "net/http2_streams.h"
#include "net/proxies_path.h"
#include "net/user_buffer.h"

/* The streams of a connection that is not followed any more are left to the sweep. */
static __always_inline void leave_streams(struct http2_connection *h, u64 how)
{
	u64 id = h->id;

	if (!h->open)
		return;
	/*
	 * Of 32 bits: before 6.4 the upper ones of what the call leaves are zeros, also of errors.
	 */
	int error = bpf_map_update_elem(&http2_ended, &id, &how, BPF_NOEXIST);
	if (!error)
		__sync_fetch_and_add(&http2_left, 1);
	else if (error != -EEXIST)
		count_drop(DROP_STREAM);
}

/* What a step has found; false if nothing is to be understood any more. */
__noinline int http2_found(struct http2_connection *h, u32 index, u32 which, u32 event)
{
	if (!h)
		return false;
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);
	if (!edge)
		return false;
	struct http2_direction *direction =
		which ? &h->direction[DIRECTION_REPLIES] : &h->direction[DIRECTION_REQUESTS];
	struct http2_stream *ended = NULL;
	switch (event) {
	case HTTP2_RESET:
		ended = reset_stream(h, direction, which);
		break;
	case HTTP2_PUSH:
		__sync_fetch_and_add(&edge->pushes, 1);
		break;
	case HTTP2_BLOCK:
	case HTTP2_END:
		if (which)
			ended = go_on_with_reply(h, edge, event);
		else if (event == HTTP2_BLOCK)
			ended = begin_stream(h, edge, index);
	}
	if (ended)
		close_stream(h, direction, ended);
	return true;
}

/* Walks the frames of a call, to HTTP2_FINDINGS_AT_ONCE more findings. Not static: verified by itself. */
__noinline int http2_walk(struct http2_connection *h, u32 index, u32 which)
{
	if (!h)
		return HTTP2_DONE;
	struct http2_direction *direction =
		which ? &h->direction[DIRECTION_REPLIES] : &h->direction[DIRECTION_REQUESTS];
	for (u32 i = 0; i < HTTP2_FINDINGS_AT_ONCE; i++) {
		int event = http2_run(direction);

		if (event == HTTP2_DONE)
			return HTTP2_DONE;
		http2_found(h, index, which, event);
	}
	return HTTP2_GOES_ON;
}

/*
 * Walks all frames of a call. The verifier walks each turn of a loop: of two loops, one in the
 * other, where each is in a function of its own, that is the sum of their turns.
 */
static __always_inline void http2_walk_all(struct http2_connection *h, u32 index, u32 which)
{
	for (u32 i = 0; i < HTTP2_FINDINGS / HTTP2_FINDINGS_AT_ONCE; i++) {
		if (http2_walk(h, index, which) == HTTP2_DONE)
			return;
	}
	h->direction[which ? DIRECTION_REPLIES : DIRECTION_REQUESTS].state = HTTP2_LOST;
}

static __always_inline bool set_source(struct http2_source *to, u32 size, u32 readable)
{
	u64 at, count;

	to->left = size;
	to->parts = 0;
	to->room = size;
	to->at = 0;
	to->blind = 1;
	to->ahead = 0;
	if (!readable)
		return false;
	switch (current_bytes(&at, &count)) {
	case CALL_BUFFER:
		to->at = at;
		to->blind = 0;
		return true;
	case CALL_OTHER:
		return false;
	}
	to->room = 0;
	to->vector = at;
	to->parts = count;
	to->blind = 0;
	return true;
}

/* What http2_chain says of a call's bytes, if they are in one part. */
static __noinline u32 chain_of(u32 size)
{
	struct http2_source from;
	u64 part[2];

	if (!set_source(&from, size, size))
		return CHAIN_BROKEN;
	if (from.room)
		return http2_chain(from.at, size);
	if (bpf_probe_read_user(part, sizeof(part), (void *)from.vector) || part[1] < size)
		return CHAIN_BROKEN;
	return http2_chain(part[0], size);
}

/* Whether a call's bytes begin with the settings that a server sends first. */
static __noinline int sends_settings(u32 size)
{
	u8 f[32];

	if (read_buffer(f, sizeof(f), size) < HTTP2_FRAME_HEADER)
		return false;
	if (f[3] != FRAME_SETTINGS || f[4] || !is_plausible(f))
		return false;
	/* Without a setting, they may as well be a length and zeros of another protocol. */
	return f[1] || f[2] || chain_of(size);
}

/* The connection is a stream of bytes from here on. */
static __always_inline void stop_following(struct http2_connection *h, u64 now)
{
	if (__sync_val_compare_and_swap(&h->lost, 0, 1))
		return;
	count_drop(DROP_HTTP2);
	leave_streams(h, now | ENDED_LOST);
}

/*
 * Whether what was received of the first request, and this call, begin as a client's preface does.
 */
static __noinline int sends_preface(const struct head *head, u32 got, u32 readable)
{
	/* Longer than needed: of a shorter one clang computes addresses by |=, which is refused. */
	u64 fresh[4] = {}, begun = 0;

	if (!head || !readable || got > 7)
		return head && readable;
	u32 n = got + read_buffer((u8 *)fresh, sizeof(fresh), readable);
	if (got)
		begun = *(const u64 *)head->bytes & ((1ULL << 8 * got) - 1);
	u64 mask = n > 7 ? ~0ULL : (1ULL << 8 * n) - 1;
	return !(((begun | fresh[0] << 8 * got) ^ W('P', 'R', 'I', ' ', '*', ' ', 'H', 'T')) &
		 mask);
}

/* The first call of a direction since the connection is known to be HTTP/2; false if it is not. */
static __always_inline bool begin_direction(struct connection *c, struct http2_connection *h,
				       struct http2_direction *direction, u32 readable, bool reply)
{
	direction->connection = h->id;
	if (reply) {
		direction->state = c->head.greeted ? HTTP2_JOINING : HTTP2_FOLLOWED;
		return true;
	}
	/* Of the preface, too little may have been received before to be known. */
	u32 got = c->phase == PHASE_REQUEST && c->head.state == HEAD_PARTIAL ? c->head.length : 0;
	if (!sends_preface(&c->head, got, readable)) {
		/* A client of another protocol, whose server has greeted it with settings. */
		h->lost = 1;
		leave_streams(h, direction->now_ns | ENDED_LOST);
		c->head.protocol = PROTOCOL_UNKNOWN;
		c->head.greeted = 1;
		clear_flags(c, CONNECTION_HTTP2);
		return false;
	}
	direction->got = least(got, HTTP2_PREFACE);
	direction->state = HTTP2_GREETS;
	c->head.state = HEAD_NONE;
	c->phase = PHASE_IDLE;
	return true;
}

/* A call on a connection that is HTTP/2; false if it is not. */
static __noinline int http2_transferred(struct sock *sk, struct connection *c, u32 bytes,
					u32 readable, bool reply)
{
	if (!sk || !c)
		return true;
	struct http2_connection *h = bpf_sk_storage_get(&http2_connections, sk, 0, 0);
	if (!h || h->lost)
		return true;
	u64 now = bpf_ktime_get_ns();
	struct http2_direction *direction =
		reply ? &h->direction[DIRECTION_REPLIES] : &h->direction[DIRECTION_REQUESTS];
	set_source(&direction->source, bytes, readable);
	direction->now_ns = now;
	if (direction->state == HTTP2_NEW && !begin_direction(c, h, direction, readable, reply))
		return false;
	if (direction->state == HTTP2_JOINING) {
		if (!readable || !chain_of(bytes)) {
			if (++h->tries > HTTP2_JOIN_CALLS)
				stop_following(h, now);
			return true;
		}
		direction->state = HTTP2_FOLLOWED;
	}
	if (reply && c->role == ROLE_CLIENT) {
		struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

		/*
		 * Of the segment that was acknowledged last, on the same clock:
		 * tcp_rate_skb_delivered.
		 */
		direction->sent_ns = tcp ? tcp->first_tx_mstamp * 1000 : 0;
	}
	http2_walk_all(h, c->edge, reply);
	if (direction->state == HTTP2_LOST)
		stop_following(h, now);
	if (h->ended) {
		u32 index = c->edge;
		struct edge *edge = bpf_map_lookup_elem(&edges, &index);

		h->ended = 0;
		if (edge)
			sample_path(edge, sk, c, now);
	}
	/* The end came within the call: nothing follows that could end its streams. */
	if (c->state == TCP_CLOSE)
		leave_streams(h, now);
	return true;
}

/* Makes the connection one of HTTP/2. Both directions may do so at once. */
static __noinline struct http2_connection *follow_http2(struct sock *sk, struct connection *c)
{
	if (!sk || !c)
		return NULL;
	struct http2_connection *h = SOCKET_STORAGE(&http2_connections, sk);
	if (!h) {
		count_drop(DROP_HTTP2);
		c->head.protocol = PROTOCOL_OPAQUE;
		return NULL;
	}
	h->owner = c->owner;
	__sync_val_compare_and_swap(&h->id, 0, __sync_fetch_and_add(&http2_last_id, 1) + 1);
	c->head.protocol = PROTOCOL_HTTP2;
	set_flags(c, CONNECTION_HTTP2);
	return h;
}

/*
 * Whether the server has sent its settings, before the call that sent the client's preface has
 * returned.
 */
static __always_inline bool greets_http2(struct sock *sk, struct connection *c, u32 readable)
{
	const u32 how = CONNECTION_WHOLE | CONNECTION_STREAM | CONNECTION_REJOINED | CONNECTION_TLS;
	struct head *head = &c->head;

	if (c->first_ns && head->state != HEAD_PARTIAL)
		return false; /* nearly always */
	if ((c->flags & how) != CONNECTION_WHOLE || !architecture || names_shed)
		return false;
	if (head->greeted || head->failures)
		return false;
	if (head->protocol && head->protocol != PROTOCOL_HTTP2)
		return false;
	return readable >= HTTP2_FRAME_HEADER && sends_settings(readable) && follow_http2(sk, c);
}

/* The call begins with a client's preface, or goes on with it. */
static __always_inline void begin_http2(struct sock *sk, struct connection *c, u32 size)
{
	struct http2_connection *h = follow_http2(sk, c);

	if (!h)
		return;
	/* Requests are not counted until their replies can be. */
	if (c->head.greeted && h->direction[DIRECTION_REPLIES].state == HTTP2_NEW)
		begin_direction(c, h, &h->direction[DIRECTION_REPLIES], 0, true);
	http2_transferred(sk, c, size, size, false);
}

/*
 * Looks whether a connection that is older than the programs is HTTP/2: at a call that sends or
 * receives whole frames, one of which begins a request. It is followed from the next call on.
 */
static __noinline int join_http2(struct sock *sk, struct connection *c, struct edge *edge, u32 size)
{
	if (!sk || !c || !edge || !size || chain_of(size) != CHAIN_REQUEST)
		return false;
	/* What was taken for a request had no reply, and will have none. */
	leave_proxy(&c->at_proxy);
	if (c->phase == PHASE_REQUEST && c->head.state != HEAD_PARTIAL)
		__sync_fetch_and_add(&edge->lost, 1);
	else if (c->phase == PHASE_REPLY)
		finish(sk, c);
	c->head.state = HEAD_NONE;
	c->phase = PHASE_IDLE;
	struct http2_connection *h = follow_http2(sk, c);
	if (!h)
		return false;
	h->joined = 1;
	h->direction[DIRECTION_REQUESTS].connection = h->id;
	h->direction[DIRECTION_REQUESTS].state = HTTP2_FOLLOWED;
	h->direction[DIRECTION_REPLIES].connection = h->id;
	h->direction[DIRECTION_REPLIES].state = HTTP2_JOINING;
	return true;
}

static __always_inline void http2_closed(struct sock *sk)
{
	struct http2_connection *h = bpf_sk_storage_get(&http2_connections, sk, 0, 0);

	if (h)
		leave_streams(h, bpf_ktime_get_ns());
}

/* Ends the streams of connections that have ended. */
static __always_inline void sweep_stream(const struct http2_stream_key *found,
					 const struct http2_stream *s)
{
	u64 id = found->connection;
	u64 *ended = bpf_map_lookup_elem(&http2_ended, &id);
	if (!ended)
		return;
	struct http2_stream_key key = *found;
	struct http2_stream copy = *s;
	leave_proxy(&copy.at_proxy);
	if (bpf_map_delete_elem(&http2_streams, &key))
		return;
	give_back(&owner_streams, copy.owner);
	if (!(copy.flags & STREAM_BEGUN) || copy.flags & STREAM_ENDED)
		return;
	struct edge *edge = edge_at(copy.edge, copy.edge_generation);
	if (!(*ended & ENDED_LOST))
		abort_stream(&copy, *ended);
	else if (edge)
		__sync_fetch_and_add(copy.reply_ns ? &edge->lost_replies : &edge->lost, 1);
}

SEC("iter/bpf_map_elem")
int sweep_http2_streams(struct bpf_iter__bpf_map_elem *ctx)
{
	/* Read once: a second reading is another pointer to the verifier, which may be NULL. */
	void *key = ctx->key, *value = ctx->value;

	if (key && value)
		sweep_stream(key, value);
	return 0;
}

static long sweep_each_stream(struct bpf_map *map, void *key, void *value, void *ctx)
{
	sweep_stream(key, value);
	return 0;
}

SEC("syscall")
int sweep_all_http2_streams(void *ctx)
{
	bpf_for_each_map_elem(&http2_streams, sweep_each_stream, NULL, 0);
	return 0;
}

#endif
