/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* What the first bytes of a reply say. */
#ifndef OUTSIGHT_PROTO_REPLY_H
#define OUTSIGHT_PROTO_REPLY_H

#include "include/kernel.h"
#include "net/proto/proto_dns.h"
#include "net/proto/proto_text.h"

static __always_inline u8 reply_at(const struct head *h, u32 i)
{
	barrier_var(i);
	return h->reply[i & (REPLY_BYTES - 1)];
}

static __always_inline int http_status(const struct head *h, u32 i)
{
	if (i + 12 > h->reply_length)
		return REPLY_PARTIAL;
	if (reply_at(h, i) != 'H' || reply_at(h, i + 1) != 'T' || reply_at(h, i + 4) != '/' ||
	    reply_at(h, i + 8) != ' ')
		return STATUS_UNKNOWN;
	u8 class = reply_at(h, i + 9) - '0';

	if (class < 1 || class > 5)
		return STATUS_UNKNOWN;
	if (class == 1 && reply_at(h, i + 10) == '0') {
		if (reply_at(h, i + 11) == '0')
			return REPLY_INTERIM;
		if (reply_at(h, i + 11) == '1')
			return STATUS_SWITCHED;
	}
	return class;
}

static __always_inline int parse_http_reply(const struct head *h)
{
	int status = http_status(h, 0);

	/* "HTTP/1.1 100 Continue", and the reply behind it. */
	if (status == REPLY_INTERIM && h->reply_length > 25 && reply_at(h, 24) == '\n' &&
	    reply_at(h, 22) == '\n')
		return http_status(h, 25);
	return status;
}

static __always_inline int parse_postgresql_reply(struct head *h)
{
	u32 i = 0;

	if (h->reply[0] == 'W') /* a copy in both directions: replication */
		h->streams = 1;
	for (u32 k = 0; k < 8; k++) {
		if (i >= REPLY_BYTES || i >= h->reply_length)
			break;
		if (reply_at(h, i) == 'E')
			return STATUS_ERROR;
		if (i + 5 > h->reply_length || reply_at(h, i + 1) || reply_at(h, i + 2) ||
		    reply_at(h, i + 3))
			break;
		i += 1 + reply_at(h, i + 4);
	}
	return STATUS_OK;
}

static __always_inline int parse_memcached_reply(const struct head *h)
{
	if (h->reply_length < 8)
		return h->reply_length < 2 ? REPLY_PARTIAL :
		       h->reply[0] == 'E' && h->reply[1] == 'R' ? STATUS_ERROR : STATUS_OK;
	if (h->reply[0] == 'E' && h->reply[1] == 'R')
		return STATUS_ERROR;
	if (h->reply[1] == 'L' && h->reply[0] == 'C' && h->reply[6] == '_')
		return STATUS_ERROR;
	if (h->reply[1] == 'E' && h->reply[0] == 'S' && h->reply[6] == '_')
		return STATUS_ERROR;
	return STATUS_OK;
}

/* The status that the beginning of a reply in h has, or one of the two words above. */
__noinline int parse_reply(struct head *h)
{
	if (!h || !h->reply_length)
		return STATUS_UNKNOWN;
	switch (h->protocol) {
	case PROTOCOL_HTTP:
		return parse_http_reply(h);
	case PROTOCOL_REDIS:
		return h->reply[0] == '-' ? STATUS_ERROR : STATUS_OK;
	case PROTOCOL_POSTGRESQL:
		return parse_postgresql_reply(h);
	case PROTOCOL_MYSQL:
		if (h->reply_length < 5)
			return REPLY_PARTIAL;
		return h->reply[4] == 0xff ? STATUS_ERROR : STATUS_OK;
	case PROTOCOL_MEMCACHED:
		return parse_memcached_reply(h);
	case PROTOCOL_DNS:
		return parse_dns_reply(h);
	}
	return STATUS_UNKNOWN;
}

/* A MySQL server speaks first: length, number 0, version 10, its own version as text. */
static __always_inline bool is_mysql_greeting(const struct head *h, u32 size)
{
	u32 length = h->reply[0] | h->reply[1] << 8 | h->reply[2] << 16;

	return h->reply_length >= 6 && length + 4 == size && !h->reply[3] && h->reply[4] == 10 &&
	       is_digit(h->reply[5]);
}

#endif
