/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Transactions of HTTP/2: each stream is one, with its own times. The state of a connection lies in
 * its socket, as for other protocols, but only if it is HTTP/2; its streams lie in a hash.
 *
 * Sending and receiving run at the same time, and a reply may even be received before the call that
 * sent its request has returned (see reorder.h; nothing needs to be kept for it here). Hence both
 * directions may find out that the connection is HTTP/2, and both may make a stream: the one that
 * comes second finishes it. Each direction changes its own half only.
 */
#ifndef OUTSIGHT_HTTP2_STREAMS_H
#define OUTSIGHT_HTTP2_STREAMS_H

#include "include/kernel.h"
#include "include/histogram.h"
#include "net/edge_maps.h"
#include "net/endpoint_table.h"
#include "net/http2/http2.h"
#include "net/latency.h"
#include "net/user_buffer.h"

/* Streams of a connection that are open at a time; further ones are not counted. */
#define HTTP2_CONNECTION_STREAMS 4096

/* A connection joined in the middle must have been understood in both directions after so many calls. */
#define HTTP2_JOIN_CALLS 64

struct http2_connection {
	u64 id;
	u64 owner; /* control group */
	u32 open;	 /* streams in the hash */
	u32 last_stream; /* that the client began */
	u32 tries;	 /* to join */
	u32 lost;	 /* 1: not followed any more */
	u32 joined;	 /* 1: streams may be open that began before anything was seen */
	u32 ended;	 /* streams in the current call */
	struct http2_half half[2]; /* of requests, of replies */
};

#define HALF_REQUESTS 0
#define HALF_REPLIES 1

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct http2_connection);
} http2_connections SEC(".maps");

struct http2_stream_key {
	u64 connection;
	u64 stream;
};

#define STREAM_BEGUN 1
#define STREAM_ENDED 2
#define STREAM_RESET 4
#define STREAM_REPLIED 8

struct http2_stream {
	u64 first_ns;
	u64 reply_ns; /* 0 until the reply has begun */
	u64 last_ns;
	u64 owner; /* control group */
	u32 flags; /* STREAM_* */
	u32 edge;
	u8 protocol;
	u8 status;
	u8 grpc_status; /* and one */
	u8 unsure;	/* the reply ended with fields that are not known: one may have been a status */
	u8 pad[4];
	u8 name[ENDPOINT_KEY_NAME];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct http2_stream_key);
	__type(value, struct http2_stream);
} http2_streams SEC(".maps");

/*
 * Connections that ended, or were lost, with streams: their streams are looked for by a sweep.
 * The value is when.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u64);
} http2_ended SEC(".maps");

/* Set in http2_ended if the connection lives on and could not be followed. */
#define ENDED_LOST (1ULL << 63)

u64 http2_last_id = 0;

/* --- the end of streams --- */

static __noinline u64 stream_target(struct http2_stream *s)
{
	struct endpoint_key key = {};

	if (!s || !machine)
		return 0;
	key.edge = s->edge;
	key.protocol = s->grpc_status ? PROTOCOL_GRPC : s->protocol;
	key.status = s->grpc_status ? STATUS_GRPC + s->grpc_status - 1 : s->status;
	/* A call that was answered, and of which the status is not known, is not known to be well. */
	if (!s->grpc_status && (s->unsure || key.protocol == PROTOCOL_GRPC) && key.status == 2)
		key.status = STATUS_UNKNOWN;
	__builtin_memcpy(key.name, s->name, sizeof(key.name));
	u32 *known = bpf_map_lookup_elem(&endpoint_of_key, &key);
	return known ? target_of(*known) : new_endpoint(&key);
}

/* Counts a stream whose request and reply are both complete. */
__noinline int finish_stream(struct http2_stream *s, u64 last_ns)
{
	if (!s)
		return 0;
	u32 place = s->edge;
	struct edge *edge = bpf_map_lookup_elem(&edges, &place);
	if (edge)
		count_time(edge, place, s->first_ns, s->reply_ns, last_ns, stream_target(s));
	return 0;
}

/* Counts a stream that will have no more of a reply. What there was of one is one, as elsewhere. */
static __always_inline void abort_stream(struct http2_stream *s, u64 now)
{
	u32 place = s->edge;
	struct edge *edge = bpf_map_lookup_elem(&edges, &place);

	if (s->reply_ns)
		finish_stream(s, now);
	else if (edge)
		__sync_fetch_and_add(&edge->aborts, 1);
}

/* Takes a stream out of the hash that nobody else takes out. */
static __always_inline void close_stream(struct http2_connection *h, struct http2_half *half, struct http2_stream *s)
{
	struct http2_stream_key key = {.connection = h->id, .stream = half->stream};

	if (s->flags & STREAM_RESET)
		abort_stream(s, half->now_ns);
	else
		finish_stream(s, s->last_ns);
	if (!bpf_map_delete_elem(&http2_streams, &key))
		give_back(&owner_streams, h->owner);
	__sync_fetch_and_add(&h->open, -1);
	h->ended++;
}

/* Whether the stream is to be closed: by whoever comes second, of what begins and what ends it. */
static __always_inline bool end_stream(struct http2_stream *s, u32 how, u64 now)
{
	if (s->flags & STREAM_ENDED)
		return false; /* a reset behind a whole reply */
	s->last_ns = now;
	u32 before = __sync_fetch_and_or(&s->flags, how);
	return (before & STREAM_BEGUN) && !(before & STREAM_ENDED);
}

/* --- the beginning --- */

static const struct http2_stream no_stream;

/* The stream, which is made if it is not there. It is filled in its place: there is little stack. */
static __always_inline struct http2_stream *put_stream(struct http2_connection *h, struct http2_stream_key *key)
{
	struct http2_stream *s = bpf_map_lookup_elem(&http2_streams, key);

	if (s || h->open >= HTTP2_CONNECTION_STREAMS)
		return s;
	if (!take_of(&owner_streams, h->owner, max_owner_streams, QUOTA_STREAMS))
		return NULL;
	if (bpf_map_update_elem(&http2_streams, key, &no_stream, BPF_NOEXIST)) {
		/* The table is full, or the other direction was first. */
		give_back(&owner_streams, h->owner);
		return bpf_map_lookup_elem(&http2_streams, key);
	}
	__sync_fetch_and_add(&h->open, 1);
	s = bpf_map_lookup_elem(&http2_streams, key);
	if (s)
		s->owner = h->owner;
	return s;
}

static __always_inline void count_reply(struct edge *edge, struct http2_stream *s)
{
	__sync_fetch_and_add(&edge->replies, 1);
	add_sample(edge, EDGE_TTFB, &edge->ttfb_sum_ns, elapsed(s->first_ns, s->reply_ns));
}

static __always_inline void describe_request(struct http2_stream *s, const struct http2_half *from, u32 edge)
{
	if (!s->first_ns || s->first_ns > from->first_ns)
		s->first_ns = from->first_ns;
	s->edge = edge;
	s->protocol = from->grpc ? PROTOCOL_GRPC : PROTOCOL_HTTP2;
	__builtin_memcpy(s->name, from->name, sizeof(s->name));
}

/* These hand back the stream if it is to be closed: what that calls is as deep as older verifiers allow. */
static __noinline struct http2_stream *begin_stream(struct http2_connection *h, struct edge *edge, u32 place)
{
	if (!h || !edge)
		return NULL;
	struct http2_half *half = &h->half[HALF_REQUESTS];
	struct http2_stream_key key = {.connection = h->id, .stream = half->stream};
	/* Trailers come on a stream that is there; others on one that is newer than all. */
	if (!(half->stream & 1) || half->stream <= h->last_stream)
		return NULL;
	if (h->half[HALF_REPLIES].state == HTTP2_JOINING) {
		h->last_stream = half->stream;
		return NULL;
	}
	http2_name(half);
	if (half->gone)
		count_drop(DROP_HTTP2_PATH);
	struct http2_stream *s = put_stream(h, &key);
	/* A barrier: the stream is there before its number is; stream_of_reply reads them the other way. */
	__sync_lock_test_and_set(&h->last_stream, half->stream);
	if (!s) {
		count_drop(DROP_STREAM);
		return NULL;
	}
	describe_request(s, half, place);
	__sync_fetch_and_add(&edge->requests, 1);
	/* Its reply may have come first. */
	u32 before = __sync_fetch_and_or(&s->flags, STREAM_BEGUN);
	if (before & STREAM_REPLIED)
		count_reply(edge, s);
	return before & STREAM_ENDED ? s : NULL;
}

static __always_inline void begin_reply_of(struct edge *edge, struct http2_stream *s, u64 now)
{
	if (s->reply_ns)
		return;
	s->reply_ns = now;
	if (__sync_fetch_and_or(&s->flags, STREAM_REPLIED) & STREAM_BEGUN)
		count_reply(edge, s);
}

/*
 * The stream that a reply, or a reset by the server, is of. Its request may be seen later: in a
 * client's call that has not returned, or in a server's that has only peeked at it so far.
 */
static __always_inline struct http2_stream *
stream_of_reply(struct http2_connection *h, const struct http2_half *half, struct http2_stream_key *key)
{
	struct http2_stream *s = bpf_map_lookup_elem(&http2_streams, key);

	if (s || !(half->stream & 1))
		return s;
	/* Where nothing was seen of the beginning, the first reply tells what began before it. */
	u32 last = __sync_val_compare_and_swap(&h->last_stream, 0, h->joined ? half->stream : 0);
	if (!last && h->joined)
		return NULL;
	/* It has ended, or was not counted; or it was begun just now, on another CPU. */
	if (half->stream <= last)
		return bpf_map_lookup_elem(&http2_streams, key);
	s = put_stream(h, key);
	if (!s)
		count_drop(DROP_STREAM);
	else if (!s->first_ns)
		s->first_ns = half->sent_ns;
	return s;
}

static __noinline struct http2_stream *go_on_with_reply(struct http2_connection *h, struct edge *edge, u32 event)
{
	if (!h || !edge)
		return NULL;
	struct http2_half *half = &h->half[HALF_REPLIES];
	struct http2_stream_key key = {.connection = h->id, .stream = half->stream};
	bool block = event == HTTP2_BLOCK;
	u64 now = half->now_ns;
	if (block && half->status == 1 && !half->ends)
		return NULL; /* a word in between */
	struct http2_stream *s = stream_of_reply(h, half, &key);
	if (!s)
		return NULL;
	begin_reply_of(edge, s, now);
	if (block) {
		if (half->status)
			s->status = half->status;
		if (half->grpc_status)
			s->grpc_status = half->grpc_status;
		s->unsure = half->ends && half->unseen;
	}
	return (!block || half->ends) && end_stream(s, STREAM_ENDED, now) ? s : NULL;
}

static __noinline struct http2_stream *reset_stream(struct http2_connection *h, struct http2_half *half,
						    u32 which)
{
	if (!h || !half)
		return NULL;
	struct http2_stream_key key = {.connection = h->id, .stream = half->stream};
	struct http2_stream *s = which == HALF_REPLIES ? stream_of_reply(h, half, &key) :
							 bpf_map_lookup_elem(&http2_streams, &key);
	return s && end_stream(s, STREAM_ENDED | STREAM_RESET, half->now_ns) ? s : NULL;
}

/* --- calls --- */

/* The streams of a connection that is not followed any more are left to the sweep. */
static __always_inline void leave_streams(struct http2_connection *h, u64 how)
{
	u64 id = h->id;

	if (!h->open)
		return;
	/* Of 32 bits: before 6.4 the upper ones of what the call leaves are zeros, also of errors. */
	int error = bpf_map_update_elem(&http2_ended, &id, &how, BPF_NOEXIST);
	if (error && error != -EEXIST)
		count_drop(DROP_STREAM);
}

/* What a step has found; false if nothing is to be understood any more. */
__noinline int http2_found(struct http2_connection *h, u32 place, u32 which, u32 event)
{
	if (!h)
		return false;
	struct edge *edge = bpf_map_lookup_elem(&edges, &place);
	if (!edge)
		return false;
	struct http2_half *half = which ? &h->half[HALF_REPLIES] : &h->half[HALF_REQUESTS];
	struct http2_stream *ended = NULL;
	switch (event) {
	case HTTP2_RESET:
		ended = reset_stream(h, half, which);
		break;
	case HTTP2_PUSH:
		__sync_fetch_and_add(&edge->pushes, 1);
		break;
	case HTTP2_BLOCK:
	case HTTP2_END:
		if (which)
			ended = go_on_with_reply(h, edge, event);
		else if (event == HTTP2_BLOCK)
			ended = begin_stream(h, edge, place);
	}
	if (ended)
		close_stream(h, half, ended);
	return true;
}

/* Walks the frames of a call. Not static: verified by itself. */
__noinline int http2_walk(struct http2_connection *h, u32 place, u32 which)
{
	if (!h)
		return false;
	struct http2_half *half = which ? &h->half[HALF_REPLIES] : &h->half[HALF_REQUESTS];
	for (u32 i = 0; i < HTTP2_FINDINGS; i++) {
		int event = http2_run(half);

		if (event == HTTP2_DONE)
			return true;
		http2_found(h, place, which, event);
	}
	half->state = HTTP2_LOST;
	return false;
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

/* Whether what came of the first request, and this call, begin as a client's preface does. */
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
	return !(((begun | fresh[0] << 8 * got) ^ W('P', 'R', 'I', ' ', '*', ' ', 'H', 'T')) & mask);
}

/* The first call of a direction since the connection is known to be HTTP/2; false if it is not. */
static __always_inline bool begin_half(struct connection *c, struct http2_connection *h,
				       struct http2_half *half, u32 readable, bool reply)
{
	half->connection = h->id;
	if (reply) {
		half->state = c->head.greeted ? HTTP2_JOINING : HTTP2_FOLLOWED;
		return true;
	}
	/* Of the preface, too little may have come before to be known. */
	u32 got = c->phase == PHASE_REQUEST && c->head.state == HEAD_PARTIAL ? c->head.length : 0;
	if (!sends_preface(&c->head, got, readable)) {
		/* A client of another protocol, whose server has greeted it with settings. */
		h->lost = 1;
		leave_streams(h, half->now_ns | ENDED_LOST);
		c->head.protocol = PROTOCOL_UNKNOWN;
		c->head.greeted = 1;
		clear_flags(c, CONNECTION_HTTP2);
		return false;
	}
	half->got = least(got, HTTP2_PREFACE);
	half->state = HTTP2_GREETS;
	c->head.state = HEAD_NONE;
	c->phase = PHASE_IDLE;
	return true;
}

/* A call on a connection that is HTTP/2; false if it is not. */
static __noinline int http2_transferred(struct sock *sk, struct connection *c, u32 bytes, u32 readable, bool reply)
{
	if (!sk || !c)
		return true;
	struct http2_connection *h = bpf_sk_storage_get(&http2_connections, sk, 0, 0);
	if (!h || h->lost)
		return true;
	u64 now = bpf_ktime_get_ns();
	struct http2_half *half = reply ? &h->half[HALF_REPLIES] : &h->half[HALF_REQUESTS];
	set_source(&half->source, bytes, readable);
	half->now_ns = now;
	if (half->state == HTTP2_NEW && !begin_half(c, h, half, readable, reply))
		return false;
	if (half->state == HTTP2_JOINING) {
		if (!readable || !chain_of(bytes)) {
			if (++h->tries > HTTP2_JOIN_CALLS)
				stop_following(h, now);
			return true;
		}
		half->state = HTTP2_FOLLOWED;
	}
	if (reply && c->role == ROLE_CLIENT) {
		struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

		/* Of the segment that was acknowledged last, on the same clock: tcp_rate_skb_delivered. */
		half->sent_ns = tcp ? tcp->first_tx_mstamp * 1000 : 0;
	}
	http2_walk(h, c->edge, reply);
	if (half->state == HTTP2_LOST)
		stop_following(h, now);
	if (h->ended) {
		u32 place = c->edge;
		struct edge *edge = bpf_map_lookup_elem(&edges, &place);

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
	struct http2_connection *h = bpf_sk_storage_get(&http2_connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
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

/* Whether the server has sent its settings, before a call has told of the client's preface. */
static __always_inline bool greets_http2(struct sock *sk, struct connection *c, u32 readable)
{
	const u32 how = CONNECTION_WHOLE | CONNECTION_STREAM | CONNECTION_REJOINED | CONNECTION_TLS;
	struct head *head = &c->head;

	if (c->first_ns && head->state != HEAD_PARTIAL)
		return false; /* nearly always */
	if ((c->flags & how) != CONNECTION_WHOLE || !machine || names_shed)
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
	if (c->head.greeted && h->half[HALF_REPLIES].state == HTTP2_NEW)
		begin_half(c, h, &h->half[HALF_REPLIES], 0, true);
	http2_transferred(sk, c, size, size, false);
}

/*
 * Looks whether a connection that is older than the programs is HTTP/2: at a call that sends or receives
 * whole frames, one of which begins a request. It is followed from the next call on.
 */
static __noinline int join_http2(struct sock *sk, struct connection *c, struct edge *edge, u32 size)
{
	if (!sk || !c || !edge || !size || chain_of(size) != CHAIN_REQUEST)
		return false;
	/* What was taken for a request had no reply, and will have none. */
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
	h->half[HALF_REQUESTS].connection = h->id;
	h->half[HALF_REQUESTS].state = HTTP2_FOLLOWED;
	h->half[HALF_REPLIES].connection = h->id;
	h->half[HALF_REPLIES].state = HTTP2_JOINING;
	return true;
}

static __always_inline void http2_closed(struct sock *sk)
{
	struct http2_connection *h = bpf_sk_storage_get(&http2_connections, sk, 0, 0);

	if (h)
		leave_streams(h, bpf_ktime_get_ns());
}

/* Ends the streams of connections that have ended. */
SEC("iter/bpf_map_elem")
int sweep_http2_streams(struct bpf_iter__bpf_map_elem *ctx)
{
	struct http2_stream *s = ctx->value;
	struct http2_stream_key *found = ctx->key;

	if (!s || !found)
		return 0;
	u64 id = found->connection;
	u64 *ended = bpf_map_lookup_elem(&http2_ended, &id);
	if (!ended)
		return 0;
	struct http2_stream_key key = *found;
	struct http2_stream copy = *s;
	if (bpf_map_delete_elem(&http2_streams, &key))
		return 0;
	give_back(&owner_streams, copy.owner);
	if (!(copy.flags & STREAM_BEGUN) || copy.flags & STREAM_ENDED)
		return 0;
	u32 place = copy.edge;
	struct edge *edge = bpf_map_lookup_elem(&edges, &place);
	if (!(*ended & ENDED_LOST))
		abort_stream(&copy, *ended);
	else if (edge)
		__sync_fetch_and_add(copy.reply_ns ? &edge->lost_replies : &edge->lost, 1);
	return 0;
}

#endif
