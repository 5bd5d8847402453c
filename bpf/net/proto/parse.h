/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Recognises protocols by the first bytes of requests and gives requests bounded names.
 *
 * The rules ask for structure, not for single bytes: what is not recognised is an ordinary TCP
 * transaction, what is recognised wrongly would be a lie. internal/kernel/parsertest holds these
 * rules against a model of them.
 */
#ifndef OUTSIGHT_PARSE_H
#define OUTSIGHT_PARSE_H

#include "net/proto/endpoints.h"
#include "net/proto/proto_dns.h"
#include "net/proto/proto_http.h"
#include "net/proto/proto_kafka.h"
#include "net/proto/proto_memcached.h"
#include "net/proto/proto_redis.h"
#include "net/proto/proto_reply.h"
#include "net/proto/proto_sql.h"
#include "net/proto/proto_text.h"

static __always_inline bool is_tls(const struct head *h)
{
	u8 type = h->bytes[0];

	if (type < 0x14 || type > 0x17 || h->bytes[1] != 3 || !h->bytes[2] || h->bytes[2] > 4)
		return false;
	/* The same bytes may be the length of a long statement. */
	return h->protocol != PROTOCOL_MYSQL || h->size != (type | 3 << 8 | h->bytes[2] << 16) + 4;
}

static __always_inline int parse_known(struct head *h)
{
	switch (h->protocol) {
	case PROTOCOL_HTTP: return parse_http(h);
	case PROTOCOL_REDIS: return parse_redis(h);
	case PROTOCOL_POSTGRESQL: return parse_postgresql(h);
	case PROTOCOL_MYSQL: return parse_mysql(h);
	case PROTOCOL_KAFKA: return parse_kafka(h);
	case PROTOCOL_MEMCACHED: return parse_memcached(h);
	case PROTOCOL_DNS: return parse_dns(h);
	}
	return HEAD_OTHER;
}

/* Tries the protocols that the first byte allows. */
static __always_inline int recognise(struct head *h)
{
	u8 first = h->bytes[0];
	u8 protocol = PROTOCOL_UNKNOWN;
	int state = HEAD_OTHER;

	if (h->length >= 5 && !h->bytes[3]) {
		protocol = PROTOCOL_MYSQL;
		state = parse_mysql(h);
	}
	if (state != HEAD_OTHER) {
		;
	} else if (is_upper(first)) {
		protocol = PROTOCOL_HTTP;
		state = parse_http(h);
		if (state == HEAD_OTHER && !h->bytes[1]) {
			protocol = PROTOCOL_POSTGRESQL;
			state = parse_postgresql(h);
		}
	} else if (first == '*') {
		protocol = PROTOCOL_REDIS;
		state = parse_redis(h);
	} else if (is_letter(first)) {
		protocol = PROTOCOL_MEMCACHED;
		state = parse_memcached(h);
	} else if (!first) {
		protocol = PROTOCOL_POSTGRESQL;
		state = parse_postgresql(h);
		if (state == HEAD_OTHER) {
			protocol = PROTOCOL_KAFKA;
			state = parse_kafka(h);
		}
		if (state == HEAD_OTHER) {
			protocol = PROTOCOL_DNS;
			state = parse_dns(h);
		}
	}
	if (state == HEAD_OTHER && h->length < 5)
		return HEAD_PARTIAL;
	if (state == HEAD_NAMED || state == HEAD_SILENT)
		h->protocol = protocol;
	return state;
}

/*
 * Names the request whose first bytes are in h. Whatever the bytes are, the name is printable
 * and no longer than ENDPOINT_NAME.
 */
__noinline int parse_head(struct head *h)
{
	if (!h || !h->length || h->length > HEAD_BYTES)
		return HEAD_NONE;
	bool known = h->protocol;
	int state;

	h->used = 0;
	h->streams = 0;
	if (is_tls(h)) {
		h->protocol = PROTOCOL_OPAQUE;
		return HEAD_NONE;
	}
	/* Its requests are not one after another: http2.h. */
	if (*(u64 *)h->bytes == W('P', 'R', 'I', ' ', '*', ' ', 'H', 'T')) {
		h->protocol = PROTOCOL_HTTP2;
		return HEAD_HTTP2;
	}
	state = known ? parse_known(h) : recognise(h);
	if (state == HEAD_PARTIAL)
		return state;
	if (state == HEAD_OTHER && known) {
		h->used = 0;
		h->streams = 0;
		put_text(h, "invalid");
		state = HEAD_NAMED;
	}
	if (state != HEAD_OTHER) {
		set_name(h);
		return state;
	}
	h->used = 0;
	h->streams = 0;
	if (++h->failures >= HEAD_FAILURES)
		h->protocol = PROTOCOL_OPAQUE;
	return HEAD_NONE;
}

#endif
