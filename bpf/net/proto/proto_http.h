/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* HTTP/1: method and path. */
#ifndef OUTSIGHT_PROTO_HTTP_H
#define OUTSIGHT_PROTO_HTTP_H

#include "include/kernel.h"
#include "net/proto/proto_text.h"

/* Ends a path's segment: names stay, ids become "{}". */
static __always_inline void end_segment(struct head *h, volatile struct cursor *c)
{
	u8 length = c->length, digits = c->digits, segment = c->segment;

	if (!length)
		return;
	if (digits != length && length < 32 && !(length >= 16 && c->hex == length)) {
		if (digits < 2)
			return;
		/* a version: v10 */
		if (length == 3 && digits == 2 && h->scratch[segment & 63] == 'v')
			return;
	}
	put(h, segment, '{');
	put(h, segment + 1, '}');
	c->out = segment + 2;
}

/* Eight characters at once: which of them are what, as the top bits of bytes. */
#define ALL(b) (0x0101010101010101ULL * (b))
#define TOP ALL(0x80)

/* Exact up to the first one that is; what is above it may be wrong. */
static __always_inline u64 first_equal(u64 word, u8 b)
{
	u64 x = word ^ ALL(b);

	return (x - ALL(1)) & ~x & TOP;
}

/* Exact for characters below 0x80. */
static __always_inline u64 each_from(u64 word, u8 low)
{
	return (word + ALL(0x80 - low)) & TOP;
}

static __always_inline u8 count_tops(u64 tops)
{
	return ((tops >> 7) * ALL(1)) >> 56;
}

/* What ends a segment, or makes the target invalid. */
static __always_inline u64 first_stop(u64 word)
{
	u64 low = (word - ALL(0x21)) & ~word; /* control characters and the blank */

	return ((low | word) & TOP) | first_equal(word, '/') | first_equal(word, '?') |
	       first_equal(word, '#') | first_equal(word, 0x7f);
}

/*
 * Takes up to eight bytes of a target, of one segment; 0 where the name ends. The verifier looks
 * at a function that is not static once, and not at each call.
 */
__noinline int take_path(struct head *h)
{
	if (!h)
		return 0;
	volatile struct cursor *c = &h->cursor;
	u32 in = c->in, out, n = h->length;

	if (in >= n || in >= HEAD_BYTES)
		return 0;
	if (h->bytes[in] == '/') {
		end_segment(h, c);
		out = c->out;
		if (out > NAME_LIMIT)
			return 0;
		put(h, out, '/');
		c->out = out + 1;
		c->segment = out + 1;
		c->length = 0;
		c->digits = 0;
		c->hex = 0;
		in++;
		c->in = in;
		if (in >= n || in >= HEAD_BYTES)
			return 0;
	}
	barrier_var(in);
	in &= HEAD_BYTES - 1;
	u64 word = *(u64 *)(h->bytes + in);
	u64 stop = first_stop(word);
	u64 mask = ((stop & -stop) >> 7) - 1; /* the bytes before it; all where there is none */
	u32 count = count_tops(mask & TOP), rest = n - in;
	if (count > rest) {
		count = rest;
		mask = (1ULL << (8 * (rest & 7))) - 1;
	}
	word &= mask;
	u64 digits = each_from(word, '0') & ~each_from(word, '9' + 1);
	u64 lower = word | (ALL(0x20) & mask);
	u64 hex = digits | (each_from(lower, 'a') & ~each_from(lower, 'f' + 1)) |
		  (~((word ^ ALL('-')) + ALL(0x7f)) & TOP);
	c->length += count;
	c->digits += count_tops(digits);
	c->hex += count_tops(hex);
	out = c->out & 63;
	if (out <= 56) {
		*(u64 *)(h->scratch + out) = word;
		out += count;
	}
	c->out = out < 64 ? out : 63; /* too long in either case */
	c->in = in + count;
	return count || h->bytes[in] == '/' ? 1 : 0;
}

/* The method and the blank behind it. */
static __always_inline int parse_method(struct head *h)
{
	u32 i;

	for (i = 0; i < 11; i++) {
		if (i >= h->length)
			return HEAD_PARTIAL;
		u8 b = byte_at(h, i);
		if (!is_upper(b))
			break;
		put(h, i, b);
	}
	if (i < 3 || i > 10 || byte_at(h, i) != ' ')
		return HEAD_OTHER;
	put(h, i, ' ');
	h->cursor.in = i + 1;
	h->cursor.out = i + 1;
	return HEAD_NAMED;
}

__noinline int parse_http(struct head *h)
{
	if (!h)
		return HEAD_OTHER;
	volatile struct cursor *c = &h->cursor;
	u32 n = h->length;
	int state = parse_method(h);
	bool ended = false;

	if (state != HEAD_NAMED)
		return state;
	u32 i = c->in;
	if (i + 8 > n)
		return HEAD_PARTIAL;
	if (*(u64 *)h->scratch == W('C', 'O', 'N', 'N', 'E', 'C', 'T', ' ')) {
		h->streams = 1;
		h->used = i;
		c->out = 7;
		return HEAD_NAMED;
	}
	c->segment = c->out;
	c->length = 0;
	c->digits = 0;
	c->hex = 0;
	c->slashes = 0;
	u8 first = byte_at(h, i);
	if (first == '*') {
		if (byte_at(h, i + 1) != ' ')
			return HEAD_OTHER;
		put(h, i, '*');
		h->used = i + 2;
		c->out = i + 1;
		return HEAD_NAMED;
	}
	if (first == 'h') { /* http://host/path: to a proxy */
		if (byte_at(h, i + 1) != 't' || byte_at(h, i + 2) != 't' ||
		    byte_at(h, i + 3) != 'p')
			return HEAD_OTHER;
		c->slashes = 3;
	} else if (first != '/') {
		return HEAD_OTHER;
	}

	if (c->slashes) {
		/* "http://" or "https://", and the host up to the path. */
		for (u32 k = 0; k < HEAD_BYTES; k++) {
			u32 at = c->in;

			if (at >= n)
				break;
			u8 b = byte_at(h, at);
			if (!is_printable(b) || b == '?' || b == '#')
				break;
			if (b == '/' && !(c->slashes = c->slashes - 1))
				break;
			c->in = at + 1;
		}
	}
	if (!c->slashes)
		for (u32 k = 0; k < HEAD_BYTES; k++)
			if (!take_path(h))
				break;
	i = c->in;
	if (i < n) {
		u8 b = byte_at(h, i);

		ended = b == ' ' || b == '?' || b == '#';
		if (!is_printable(b) && !ended)
			return HEAD_OTHER;
	}
	i = c->in;
	if (ended) {
		end_segment(h, c);
		if (byte_at(h, i) == ' ') {
			if (i + 5 >= n && n < HEAD_ENOUGH)
				return HEAD_PARTIAL;
			if (i + 5 < n && (byte_at(h, i + 1) != 'H' || byte_at(h, i + 2) != 'T' ||
					  byte_at(h, i + 3) != 'T' || byte_at(h, i + 4) != 'P' ||
					  byte_at(h, i + 5) != '/'))
				return HEAD_OTHER;
			i += 5;
		}
	} else if (i >= n && n < HEAD_ENOUGH) {
		return HEAD_PARTIAL;
	}
	if (c->slashes) { /* no path: "/" */
		put(h, c->out, '/');
		c->out = c->out + 1;
	}
	if (!ended || c->out > ENDPOINT_NAME) {
		u32 at = c->segment;

		put(h, at, '.');
		put(h, at + 1, '.');
		put(h, at + 2, '.');
		c->out = at + 3;
	}
	/* Without an end of the path, a longer head with the same beginning may say more. */
	h->used = i < n ? i + 1 : 0;
	return HEAD_NAMED;
}

#endif
