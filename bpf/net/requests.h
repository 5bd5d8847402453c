/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Reads the beginnings of requests and replies out of the memory of the task that sends or
 * receives them, and counts transactions by endpoint.
 */
#ifndef OUTSIGHT_REQUESTS_H
#define OUTSIGHT_REQUESTS_H

#include "include/kernel.h"
#include "net/edges.h"
#include "net/endpoint_table.h"
#include "net/proto/parse.h"
#include "net/tls_text.h"
#include "net/user_buffer.h"

/* Whether a request with the same first bytes as the last one has the same name. */
static __always_inline bool is_same_head(const struct head *h, const u64 *fresh, u32 n)
{
	u32 used = h->used;
	const u64 *old = (const u64 *)h->bytes;

	if (!used || n < used || h->state < HEAD_NAMED)
		return false;
	u32 whole = used / 8;
#pragma unroll
	for (u32 w = 0; w < HEAD_BYTES / 8; w++) {
		if (w < whole && fresh[w] != old[w])
			return false;
	}
	if (!(used & 7))
		return true;
	barrier_var(whole);
	whole &= HEAD_BYTES / 8 - 1;
	return !((fresh[whole] ^ old[whole]) & ((1ULL << (8 * (used & 7))) - 1));
}

static __noinline int read_request(struct connection *c, u32 size, bool early)
{
	u64 fresh[HEAD_BYTES / 8] = {};

	if (!c)
		return HEAD_NONE;
	struct head *h = &c->head;
	u32 n = read_transfer(c, (u8 *)fresh, HEAD_BYTES, size, early);
	if (reads_tls && is_tls_transfer(c, (u8 *)fresh, n, size))
		n = read_tls_request(c, fresh, n, &size);
	h->target = 0;
	h->reply_length = 0;
	h->size = size;
	if (n && is_same_head(h, fresh, n))
		return h->state;
	if (n)
		__builtin_memcpy(h->bytes, fresh, sizeof(fresh));
	h->length = n;
	h->state = HEAD_NONE;
	h->state = parse_head(h);
	return h->state;
}

static __noinline int read_more_request(struct connection *c, u32 size, bool early)
{
	if (!c)
		return HEAD_NONE;
	struct head *h = &c->head;
	u32 at = h->length;

	if (reads_tls && (c->flags & CONNECTION_TLS)) {
		h->state = HEAD_NONE;
		return h->state;
	}
	h->size += size;
	if (at < HEAD_BYTES / 2) {
		u32 n = read_transfer(c, h->bytes + at_most(at, HEAD_BYTES / 2), HEAD_BYTES / 2,
				      size, early);

		h->length = at + n;
	}
	h->state = parse_head(h);
	return h->state;
}

/* More of DNS is sent before the reply: the rest of a long query, or another one. */
static __noinline int another_query(struct head *h, u32 size)
{
	if (!h)
		return 0;
	h->size += size;
	if (is_dns_pipeline(h))
		name_pipeline(h);
	return 0;
}

/* Reads a part of a reply behind what is there of it. */
static __always_inline int read_reply(struct connection *c, u32 size, bool early)
{
	if (reads_tls && (c->flags & CONNECTION_TLS))
		return read_tls_reply(c, size);
	struct head *h = &c->head;
	u32 at = h->reply_length;

	if (at > REPLY_BYTES / 4)
		at = 0;
	u32 n = read_transfer(c, h->reply + at_most(at, REPLY_BYTES / 4), REPLY_BYTES * 3 / 4, size,
			      early);
	if (!n)
		return STATUS_UNKNOWN;
	h->reply_length = at + n;
	return parse_reply(h);
}

/* A request of which too few bytes were received to name it. */
static __always_inline void give_up(struct head *h)
{
	h->state = HEAD_NONE;
	h->used = 0;
	if (h->protocol) {
		put_text(h, "invalid");
		set_name(h);
		h->state = HEAD_NAMED;
	} else if (++h->failures >= HEAD_FAILURES) {
		h->protocol = PROTOCOL_OPAQUE;
	}
}

enum reply {
	REPLY_BEGINS = 0,
	REPLY_WAITS = 1,   /* only a word in between */
	REPLY_SWITCHES = 2, /* the last reply: what follows are no transactions */
};

static __noinline int begin_reply(struct connection *c, u32 size, bool early)
{
	if (!c)
		return REPLY_BEGINS;
	struct head *h = &c->head;

	h->watch &= ~HEAD_WATCH_STATUS;
	if (h->state == HEAD_PARTIAL)
		give_up(h);
	if (reads_tls && (c->flags & CONNECTION_TLS) && !begin_tls_reply(c, size))
		return REPLY_BEGINS;
	if (h->state != HEAD_NAMED)
		return REPLY_BEGINS;
	int status = read_reply(c, size, early);
	if (status == REPLY_INTERIM) {
		h->reply_length = 0;
		return REPLY_WAITS;
	}
	if (status == REPLY_PARTIAL) {
		h->watch |= HEAD_WATCH_STATUS;
		return REPLY_BEGINS;
	}
	if (status == 1) {
		h->reply_length = 0;
		h->watch |= HEAD_WATCH_STATUS;
	}
	resolve_endpoint(c, status);
	if (status == STATUS_SWITCHED || (h->streams && (status == STATUS_OK || status == 2)))
		return REPLY_SWITCHES;
	return REPLY_BEGINS;
}

/* Looks at a further part of a reply where that is needed; true if it is no part of it. */
static __noinline int is_notice(struct connection *c, u32 size, bool early)
{
	if (!c)
		return false;
	struct head *h = &c->head;

	if (h->watch & HEAD_WATCH_STATUS) {
		int status = read_reply(c, size, early);

		if (status == REPLY_PARTIAL || status == REPLY_INTERIM || status == 1)
			return false;
		h->watch &= ~HEAD_WATCH_STATUS;
		resolve_endpoint(c, status);
		return false;
	}
	/* PostgreSQL notifies of what was listened for between replies, not within one. */
	h->reply_length = 0;
	read_reply(c, size, early);
	return h->reply_length && h->reply[0] == 'A';
}

static __noinline int read_greeting(struct connection *c, u32 size)
{
	if (!c)
		return 0;
	struct head *h = &c->head;

	h->size += size;
	read_reply(c, size, false);
	if (is_mysql_greeting(h, h->size)) {
		h->protocol = PROTOCOL_MYSQL;
		h->reply_length = 0;
	}
	return 0;
}

#endif
