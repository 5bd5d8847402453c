/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Names of requests, out of what header fields said. */
#ifndef OUTSIGHT_NAME_H
#define OUTSIGHT_NAME_H

#include "include/kernel.h"
#include "net/http2/direction.h"
#include "net/http2/hpack.h"

static __always_inline void put_name(struct http2_direction *h, u32 i, u8 b)
{
	barrier_var(i);
	h->name[i & 127] = b;
}

/* Ends a path's segment, by the rules of proto_http.h: names stay, ids become "{}". */
static __always_inline void end_name_segment(struct http2_direction *h)
{
	u32 length = h->length, digits = h->digits, segment = h->segment;

	if (!length)
		return;
	if (digits != length && length < 32 && !(length >= 16 && h->hex == length)) {
		if (digits < 2)
			return;
		if (length == 3 && digits == 2 && h->name[segment & 127] == 'v')
			return;
	}
	put_name(h, segment, '{');
	put_name(h, segment + 1, '}');
	h->out = segment + 2;
}

static __always_inline u8 path_at(const struct http2_direction *h, u32 i)
{
	barrier_var(i);
	return i < HTTP2_PATH ? h->text[i & 127] : 0;
}

/* Whether the path is longer, and only so much of it is known. */
static __always_inline bool is_cut(const struct http2_direction *h, u32 i)
{
	return path_at(h, i) == '.' && path_at(h, i + 1) == '.' && path_at(h, i + 2) == '.' &&
	       !path_at(h, i + 3);
}

/* Takes a byte of the path into the name; 0 at its end. */
__noinline int http2_name_byte(struct http2_direction *h)
{
	if (!h)
		return 0;
	u32 in = h->in;
	u8 b = path_at(h, in);
	if (!b || b == '/')
		end_name_segment(h);
	if (!b)
		return 0;
	u32 out = h->out;
	if (out >= ENDPOINT_KEY_NAME - 3 || is_cut(h, in)) {
		/* A part of a segment may be a part of an id. */
		out = h->segment;
		put_name(h, out, '.');
		put_name(h, out + 1, '.');
		put_name(h, out + 2, '.');
		h->out = out + 3;
		return 0;
	}
	put_name(h, out, b);
	h->in = in + 1;
	h->out = out + 1;
	if (b == '/') {
		h->segment = out + 1;
		h->length = 0;
		h->digits = 0;
		h->hex = 0;
		return 1;
	}
	bool digit = b >= '0' && b <= '9';
	u8 lower = b | 0x20;
	h->length++;
	h->digits += digit;
	h->hex += digit || (lower >= 'a' && lower <= 'f') || b == '-';
	return 1;
}

static __always_inline u32 put_method(struct http2_direction *h)
{
	u64 *name = (u64 *)h->name;

	switch (h->method) {
	case METHOD_GET: name[0] = WORD('G', 'E', 'T', ' ', 0, 0, 0, 0); return 4;
	case METHOD_POST: name[0] = WORD('P', 'O', 'S', 'T', ' ', 0, 0, 0); return 5;
	case METHOD_PUT: name[0] = WORD('P', 'U', 'T', ' ', 0, 0, 0, 0); return 4;
	case METHOD_DELETE: name[0] = WORD('D', 'E', 'L', 'E', 'T', 'E', ' ', 0); return 7;
	case METHOD_HEAD: name[0] = WORD('H', 'E', 'A', 'D', ' ', 0, 0, 0); return 5;
	case METHOD_OPTIONS: name[0] = WORD('O', 'P', 'T', 'I', 'O', 'N', 'S', ' '); return 8;
	case METHOD_PATCH: name[0] = WORD('P', 'A', 'T', 'C', 'H', ' ', 0, 0); return 6;
	}
	return 0;
}

/* Names the request that the block has begun. Paths of gRPC are names as they are. */
__noinline int http2_name(struct http2_direction *h)
{
	if (!h)
		return 0;
	u64 *name = (u64 *)h->name, *text = (u64 *)h->text;
#pragma unroll
	for (u32 w = 0; w < sizeof(h->name) / 8; w++)
		name[w] = 0;
	if (!h->has_path) {
		__builtin_memcpy(h->name, "unknown", 7);
		return 0;
	}
	if (h->text[0] != '/' && h->text[0] != '*') {
		__builtin_memcpy(h->name, "invalid", 7);
		return 0;
	}
	u32 out = put_method(h);
	if (h->grpc) {
#pragma unroll
		for (u32 w = 0; w < HTTP2_PATH / 8; w++)
			*(u64 *)(h->name + out + 8 * w) = text[w];
		return 0;
	}
	h->in = 0;
	h->out = out;
	h->segment = out;
	h->length = 0;
	h->digits = 0;
	h->hex = 0;
	for (u32 i = 0; i <= HTTP2_PATH; i++)
		if (!http2_name_byte(h))
			break;
	/*
	 * Bytes of an id are longer than what stands for it. Where the name ends is read each time: of
	 * a value at hand, the verifier would follow what each turn tells of it.
	 */
	for (u32 i = 0; i < ENDPOINT_KEY_NAME; i++)
		if (i >= *(volatile u32 *)&h->out)
			h->name[i] = 0;
	return 0;
}

#endif
