/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* What all parsers of requests use: the bytes of a head, and the name that is put together. */
#ifndef OUTSIGHT_PROTO_TEXT_H
#define OUTSIGHT_PROTO_TEXT_H

#include "include/kernel.h"
#include "net/proto/endpoints.h"

/* What a parser says beside the states of a head: it is not this protocol. */
#define HEAD_OTHER 9

/* What a parser of replies says beside the statuses. */
#define REPLY_PARTIAL 0x100 /* too few bytes to tell */
#define REPLY_INTERIM 0x200 /* a word in between: the reply itself comes later */

/* Names end before this, so that "/..." always fits. */
#define NAME_LIMIT 44

/* Heads of at least this length are not added to when more bytes come. */
#define HEAD_ENOUGH 64

#define SQL_WORD 16

/* Up to eight characters as a number, so that words can be compared at once. */
#define W(a, b, c, d, e, f, g, h)                                                        \
	((u64)(a) | (u64)(b) << 8 | (u64)(c) << 16 | (u64)(d) << 24 | (u64)(e) << 32 |   \
	 (u64)(f) << 40 | (u64)(g) << 48 | (u64)(h) << 56)

/*
 * The masks of these three must stay where the compiler knows the index to be small: before 6.3 the
 * verifier does not know it, when it was compared in another register.
 */
static __always_inline u8 byte_at(const struct head *h, u32 i)
{
	barrier_var(i);
	return h->bytes[i & (HEAD_BYTES - 1)];
}

static __always_inline void put(struct head *h, u32 i, u8 b)
{
	barrier_var(i);
	h->scratch[i & 63] = b;
}

static __always_inline u32 be32_at(const struct head *h, u32 i)
{
	return (u32)byte_at(h, i) << 24 | byte_at(h, i + 1) << 16 | byte_at(h, i + 2) << 8 |
	       byte_at(h, i + 3);
}

static __always_inline bool is_upper(u8 b)
{
	return b >= 'A' && b <= 'Z';
}

static __always_inline bool is_letter(u8 b)
{
	return is_upper(b & ~0x20);
}

static __always_inline bool is_digit(u8 b)
{
	return b >= '0' && b <= '9';
}

static __always_inline bool is_printable(u8 b)
{
	return b > 0x20 && b < 0x7f;
}

/* Makes what the parser has put together the name. The cached target is of another name then. */
static __always_inline void set_name(struct head *h)
{
	u64 *to = (u64 *)h->name, *from = (u64 *)h->scratch;
	u32 length = h->cursor.out;
	bool same = true;

#pragma unroll
	for (u32 w = 0; w < ENDPOINT_NAME / 8; w++) {
		u64 word = 0;

		if (length >= 8 * w + 8)
			word = from[w];
		else if (length > 8 * w)
			word = from[w] & ((1ULL << (8 * (length - 8 * w))) - 1);
		if (to[w] != word) {
			to[w] = word;
			same = false;
		}
	}
	if (!same)
		h->cached = 0;
}

#define put_text(h, text)                                              \
	do {                                                           \
		__builtin_memcpy((h)->scratch, text, sizeof(text) - 1); \
		(h)->cursor.out = sizeof(text) - 1;                     \
	} while (0)

#endif
