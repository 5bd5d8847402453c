/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* SipHash-2-4 (Aumasson, Bernstein: SipHash, a fast short-input PRF, 2012) of whole 8-byte words. */
#ifndef OUTSIGHT_SIPHASH_H
#define OUTSIGHT_SIPHASH_H

#include "include/kernel.h"

struct siphash {
	u64 v0;
	u64 v1;
	u64 v2;
	u64 v3;
};

static __always_inline u64 rotated(u64 n, u32 bits)
{
	return n << bits | n >> (64 - bits);
}

static __always_inline void siphash_round(struct siphash *s)
{
	s->v0 += s->v1;
	s->v1 = rotated(s->v1, 13) ^ s->v0;
	s->v0 = rotated(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = rotated(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = rotated(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = rotated(s->v1, 17) ^ s->v2;
	s->v2 = rotated(s->v2, 32);
}

static __always_inline void siphash_add(struct siphash *s, u64 word)
{
	s->v3 ^= word;
	siphash_round(s);
	siphash_round(s);
	s->v0 ^= word;
}

static __always_inline void siphash_begin(struct siphash *s, const u64 key[2])
{
	s->v0 = key[0] ^ 0x736f6d6570736575ULL;
	s->v1 = key[1] ^ 0x646f72616e646f6dULL;
	s->v2 = key[0] ^ 0x6c7967656e657261ULL;
	s->v3 = key[1] ^ 0x7465646279746573ULL;
}

static __always_inline u64 siphash_end(struct siphash *s, u32 words)
{
	siphash_add(s, (u64)(words * 8 & 255) << 56);
	s->v2 ^= 0xff;
	for (u32 i = 0; i < 4; i++)
		siphash_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
