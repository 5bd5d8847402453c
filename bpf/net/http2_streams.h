/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Transactions of HTTP/2: each stream is one, with its own times. The state of a connection lies in
 * its socket, as for other protocols, but only if it is HTTP/2; its streams lie in a hash.
 *
 * Sending and receiving run at the same time, and a reply may even be received before the call that
 * sent its request has returned (see reorder.h; nothing needs to be kept for it here). Hence both
 * directions may find out that the connection is HTTP/2, and both may make a stream: the one that
 * comes second finishes it. Each changes its own state only.
 */
#ifndef OUTSIGHT_HTTP2_STREAMS_H
#define OUTSIGHT_HTTP2_STREAMS_H

#include "include/kernel.h"
#include "include/histogram.h"
#include "net/edge_maps.h"
#include "net/endpoint_table.h"
#include "net/http2/http2.h"
#include "net/latency.h"
#include "net/proxies_path.h"
#include "net/user_buffer.h"

/* Streams of a connection that are open at a time; further ones are not counted. */
#define HTTP2_CONNECTION_STREAMS 4096

/*
 * A connection joined in the middle must have been understood in both directions after so many
 * calls.
 */
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
	struct http2_direction direction[2]; /* of requests, of replies */
};

#define DIRECTION_REQUESTS 0
#define DIRECTION_REPLIES 1

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
	/* the reply ended with fields that are not known: one may have been a status */
	u8 unsure;
	u32 edge_generation;
	struct proxy_request at_proxy;
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

/* How many connections there were so far in http2_ended, for the reader: that walks over all of its room. */
u64 http2_left = 0;

/* --- the end of streams --- */

static __noinline u64 stream_target(struct http2_stream *s)
{
	struct endpoint_key key = {};

	if (!s || !architecture)
		return 0;
	key.edge = s->edge;
	key.protocol = s->grpc_status ? PROTOCOL_GRPC : s->protocol;
	key.status = s->grpc_status ? STATUS_GRPC + s->grpc_status - 1 : s->status;
	/*
	 * A call that was answered, and of which the status is not known, is not known to be well.
	 */
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
	u32 index = s->edge;
	struct edge *edge = edge_at(index, s->edge_generation);
	if (edge)
		count_time(edge, index, s->first_ns, s->reply_ns, last_ns, stream_target(s));
	return 0;
}

/* Counts a stream that will have no more of a reply. What there was of one is one, as elsewhere. */
static __always_inline void abort_stream(struct http2_stream *s, u64 now)
{
	struct edge *edge = edge_at(s->edge, s->edge_generation);

	if (s->reply_ns)
		finish_stream(s, now);
	else if (edge)
		__sync_fetch_and_add(&edge->aborts, 1);
}

/* Takes a stream out of the hash that nobody else takes out. */
static __always_inline void close_stream(struct http2_connection *h,
					 struct http2_direction *direction, struct http2_stream *s)
{
	struct http2_stream_key key = {.connection = h->id, .stream = direction->stream};

	if (s->flags & STREAM_RESET)
		abort_stream(s, direction->now_ns);
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

/*
 * The stream, which is made if it is not there. It is filled where it lies: there is little stack.
 */
static __always_inline struct http2_stream *put_stream(struct http2_connection *h,
						       struct http2_stream_key *key)
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
	add_sample(&edge->histograms[EDGE_TTFB], &edge->ttfb_sum_ns, elapsed(s->first_ns, s->reply_ns));
}

static __always_inline void describe_request(struct http2_stream *s,
					     const struct http2_direction *from, u32 edge,
					     u32 generation)
{
	if (!s->first_ns || s->first_ns > from->first_ns)
		s->first_ns = from->first_ns;
	s->edge = edge;
	s->edge_generation = generation;
	s->protocol = from->grpc ? PROTOCOL_GRPC : PROTOCOL_HTTP2;
	__builtin_memcpy(s->name, from->name, sizeof(s->name));
}

/*
 * These hand back the stream if it is to be closed: what that calls is as deep as older verifiers
 * allow.
 */
static __noinline struct http2_stream *begin_stream(struct http2_connection *h, struct edge *edge,
						    u32 index)
{
	if (!h || !edge)
		return NULL;
	struct http2_direction *direction = &h->direction[DIRECTION_REQUESTS];
	struct http2_stream_key key = {.connection = h->id, .stream = direction->stream};
	/* Trailers come on a stream that is there; others on one that is newer than all. */
	if (!(direction->stream & 1) || direction->stream <= h->last_stream)
		return NULL;
	if (h->direction[DIRECTION_REPLIES].state == HTTP2_JOINING) {
		h->last_stream = direction->stream;
		return NULL;
	}
	http2_name(direction);
	if (direction->gone)
		count_drop(DROP_HTTP2_PATH);
	struct http2_stream *s = put_stream(h, &key);
	/*
	 * A barrier: the stream is there before its number is; stream_of_reply reads them the other
	 * way.
	 */
	__sync_lock_test_and_set(&h->last_stream, direction->stream);
	if (!s) {
		count_drop(DROP_STREAM);
		return NULL;
	}
	describe_request(s, direction, index, edge->generation);
	count_request(edge, s->flags & STREAM_REPLIED);
	if (edge->proxy && !(s->flags & STREAM_REPLIED))
		at_proxy(edge, &s->at_proxy, hash_of_name(s->name, ENDPOINT_KEY_NAME), s->protocol,
			 s->first_ns);
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
	leave_proxy(&s->at_proxy);
	if (__sync_fetch_and_or(&s->flags, STREAM_REPLIED) & STREAM_BEGUN)
		count_reply(edge, s);
}

/*
 * The stream that a reply, or a reset by the server, is of. Its request may be seen later: in a
 * client's call that has not returned, or in a server's that has only peeked at it so far.
 */
static __always_inline struct http2_stream *stream_of_reply(struct http2_connection *h,
							    const struct http2_direction *direction,
							    struct http2_stream_key *key)
{
	struct http2_stream *s = bpf_map_lookup_elem(&http2_streams, key);

	if (s || !(direction->stream & 1))
		return s;
	/* Where nothing was seen of the beginning, the first reply tells what began before it. */
	u32 last =
		__sync_val_compare_and_swap(&h->last_stream, 0, h->joined ? direction->stream : 0);
	if (!last && h->joined)
		return NULL;
	/* It has ended, or was not counted; or it was begun just now, on another CPU. */
	if (direction->stream <= last)
		return bpf_map_lookup_elem(&http2_streams, key);
	s = put_stream(h, key);
	if (!s)
		count_drop(DROP_STREAM);
	else if (!s->first_ns)
		s->first_ns = direction->sent_ns;
	return s;
}

static __noinline struct http2_stream *go_on_with_reply(struct http2_connection *h,
							struct edge *edge, u32 event)
{
	if (!h || !edge)
		return NULL;
	struct http2_direction *direction = &h->direction[DIRECTION_REPLIES];
	struct http2_stream_key key = {.connection = h->id, .stream = direction->stream};
	bool block = event == HTTP2_BLOCK;
	u64 now = direction->now_ns;
	if (block && direction->status == 1 && !direction->ends)
		return NULL; /* a word in between */
	struct http2_stream *s = stream_of_reply(h, direction, &key);
	if (!s)
		return NULL;
	begin_reply_of(edge, s, now);
	if (block) {
		if (direction->status)
			s->status = direction->status;
		if (direction->grpc_status)
			s->grpc_status = direction->grpc_status;
		s->unsure = direction->ends && direction->unseen;
	}
	return (!block || direction->ends) && end_stream(s, STREAM_ENDED, now) ? s : NULL;
}

static __noinline struct http2_stream *reset_stream(struct http2_connection *h,
						    struct http2_direction *direction, u32 which)
{
	if (!h || !direction)
		return NULL;
	struct http2_stream_key key = {.connection = h->id, .stream = direction->stream};
	struct http2_stream *s = which == DIRECTION_REPLIES ? stream_of_reply(h, direction, &key) :
							 bpf_map_lookup_elem(&http2_streams, &key);
	if (!s)
		return NULL;
	leave_proxy(&s->at_proxy);
	return end_stream(s, STREAM_ENDED | STREAM_RESET, direction->now_ns) ? s : NULL;
}

#endif
