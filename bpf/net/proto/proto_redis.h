/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Redis: the command. */
#ifndef OUTSIGHT_PROTO_REDIS_H
#define OUTSIGHT_PROTO_REDIS_H

#include "include/kernel.h"
#include "net/proto/proto_text.h"

static __always_inline bool is_stream_command(const struct head *h, u32 length)
{
	u64 word = *(u64 *)h->scratch;

	switch (length) {
	case 4: return (u32)word == (u32)W('S', 'Y', 'N', 'C', 0, 0, 0, 0);
	case 5: return word << 24 == W('P', 'S', 'Y', 'N', 'C', 0, 0, 0) << 24;
	case 7: return word << 8 == W('M', 'O', 'N', 'I', 'T', 'O', 'R', 0) << 8;
	case 9: return word == W('S', 'U', 'B', 'S', 'C', 'R', 'I', 'B');
	case 10: /* PSUBSCRIBE, SSUBSCRIBE */
		return word == W('P', 'S', 'U', 'B', 'S', 'C', 'R', 'I') ||
		       word == W('S', 'S', 'U', 'B', 'S', 'C', 'R', 'I');
	}
	return false;
}

/* A number of up to four digits and its line end, which the cursor moves past; 0: there is none. */
static __always_inline u32 redis_number(struct head *h)
{
	volatile struct cursor *c = &h->cursor;
	u32 number = 0, i = c->in, k;

	for (k = 0; k < 4; k++) {
		u8 b = byte_at(h, i + k);

		if (b == '\r')
			break;
		if (!is_digit(b))
			return 0;
		number = number * 10 + b - '0';
	}
	i += k;
	if (byte_at(h, i) != '\r' || byte_at(h, i + 1) != '\n')
		return 0;
	c->in = i + 2;
	return number;
}

__noinline int parse_redis(struct head *h)
{
	if (!h)
		return HEAD_OTHER;
	volatile struct cursor *c = &h->cursor;
	u32 n = h->length;

	if (h->bytes[0] != '*')
		return HEAD_OTHER;
	if (n < 11) /* the shortest: *1\r\n$3\r\nGET */
		return HEAD_PARTIAL;
	c->in = 1;
	if (!redis_number(h) || byte_at(h, c->in) != '$')
		return HEAD_OTHER;
	c->in = c->in + 1;
	u32 length = redis_number(h), i = c->in;
	if (!length || length > 24)
		return HEAD_OTHER;
	if (i + length > n)
		return n < HEAD_ENOUGH ? HEAD_PARTIAL : HEAD_OTHER;
	if (!is_letter(byte_at(h, i)))
		return HEAD_OTHER;
	for (u32 o = 0; o < 24; o++) {
		if (o >= length)
			break;
		u8 b = byte_at(h, i + o);
		if (is_letter(b))
			b &= ~0x20;
		else if (!is_digit(b) && b != '.' && b != '_' && b != '-')
			return HEAD_OTHER;
		put(h, o, b);
	}
	h->used = i + length;
	c->out = length;
	h->streams = is_stream_command(h, length);
	return HEAD_NAMED;
}

#endif
