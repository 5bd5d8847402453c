/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Memcached's text protocol: the verb. */
#ifndef OUTSIGHT_PROTO_MEMCACHED_H
#define OUTSIGHT_PROTO_MEMCACHED_H

#include "include/kernel.h"
#include "net/proto/proto_text.h"

enum verb {
	VERB_OTHER = 0,
	VERB_KEY = 1,	/* a key follows */
	VERB_ALONE = 2, /* none need follow */
};

static __noinline int verb_of(u64 word)
{
	switch (word) {
	case W('g', 'e', 't', 0, 0, 0, 0, 0):
	case W('g', 'e', 't', 's', 0, 0, 0, 0):
	case W('g', 'a', 't', 0, 0, 0, 0, 0):
	case W('g', 'a', 't', 's', 0, 0, 0, 0):
	case W('s', 'e', 't', 0, 0, 0, 0, 0):
	case W('a', 'd', 'd', 0, 0, 0, 0, 0):
	case W('r', 'e', 'p', 'l', 'a', 'c', 'e', 0):
	case W('a', 'p', 'p', 'e', 'n', 'd', 0, 0):
	case W('p', 'r', 'e', 'p', 'e', 'n', 'd', 0):
	case W('c', 'a', 's', 0, 0, 0, 0, 0):
	case W('d', 'e', 'l', 'e', 't', 'e', 0, 0):
	case W('i', 'n', 'c', 'r', 0, 0, 0, 0):
	case W('d', 'e', 'c', 'r', 0, 0, 0, 0):
	case W('t', 'o', 'u', 'c', 'h', 0, 0, 0):
	case W('m', 'g', 0, 0, 0, 0, 0, 0):
	case W('m', 's', 0, 0, 0, 0, 0, 0):
	case W('m', 'd', 0, 0, 0, 0, 0, 0):
	case W('m', 'a', 0, 0, 0, 0, 0, 0):
	case W('m', 'e', 0, 0, 0, 0, 0, 0):
		return VERB_KEY;
	case W('s', 't', 'a', 't', 's', 0, 0, 0):
	case W('v', 'e', 'r', 's', 'i', 'o', 'n', 0):
	case W('q', 'u', 'i', 't', 0, 0, 0, 0):
	case W('f', 'l', 'u', 's', 'h', '_', 'a', 'l'):
	case W('v', 'e', 'r', 'b', 'o', 's', 'i', 't'):
	case W('m', 'n', 0, 0, 0, 0, 0, 0):
		return VERB_ALONE;
	}
	return VERB_OTHER;
}

/* The verb, which the cursor moves past. */
static __always_inline int parse_verb(struct head *h)
{
	u64 word = 0;
	u32 i;

	for (i = 0; i < 10; i++) {
		if (i >= h->length)
			return HEAD_PARTIAL;
		u8 b = byte_at(h, i);
		if (!((b >= 'a' && b <= 'z') || b == '_'))
			break;
		put(h, i, b);
		if (i < 8)
			word |= (u64)b << (8 * i);
	}
	h->cursor.in = i;
	h->cursor.out = i;
	h->cursor.word = word;
	return HEAD_NAMED;
}

/* Whether a line of text ends within the head. */
static __always_inline int parse_line(struct head *h)
{
	for (u32 i = 2; i < HEAD_BYTES; i++) {
		if (i >= h->length)
			break;
		u8 b = byte_at(h, i);
		if (b == '\n')
			return byte_at(h, i - 1) == '\r' ? HEAD_NAMED : HEAD_OTHER;
		if (b < 0x20 && b != '\r')
			return HEAD_OTHER;
	}
	return h->length < HEAD_ENOUGH ? HEAD_PARTIAL : HEAD_OTHER;
}

__noinline int parse_memcached(struct head *h)
{
	if (!h)
		return HEAD_OTHER;
	volatile struct cursor *c = &h->cursor;
	u32 n = h->length;
	int state = parse_verb(h);

	if (state != HEAD_NAMED)
		return state;
	u32 o = c->in;
	u8 next = byte_at(h, o);
	if (next == '\r') {
		if (o + 1 >= n)
			return HEAD_PARTIAL;
		if (byte_at(h, o + 1) != '\n')
			return HEAD_OTHER;
	} else if (next != ' ') {
		return HEAD_OTHER;
	}
	switch (verb_of(c->word)) {
	case VERB_OTHER:
		return HEAD_OTHER;
	case VERB_KEY:
		if (next != ' ' || (o + 1 < n && !is_printable(byte_at(h, o + 1))))
			return HEAD_OTHER;
	}
	if (h->protocol != PROTOCOL_MEMCACHED) {
		state = parse_line(h);
		if (state != HEAD_NAMED)
			return state;
	}
	h->used = next == ' ' && o + 1 < n ? o + 2 : 0;
	return c->word == W('q', 'u', 'i', 't', 0, 0, 0, 0) ? HEAD_SILENT : HEAD_NAMED;
}

#endif
