/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Follows one direction of an HTTP/2 connection (RFC 9113) through the calls that transfer it:
 * where frames begin, what header blocks say, when streams end. What it keeps between calls is
 * bounded, and what it cannot follow it says: it never guesses where a frame begins.
 *
 * The functions that are not static are verified each by itself, and once.
 * internal/kernel/parsertest holds them against an independent implementation.
 */
#ifndef OUTSIGHT_HTTP2_H
#define OUTSIGHT_HTTP2_H

#include "include/kernel.h"
#include "net/http2/direction.h"
#include "net/http2/hpack.h"
#include "net/http2/name.h"

/* --- frames --- */

static __always_inline u32 least(u64 a, u64 b)
{
	return a < b ? a : b;
}

static __always_inline void pass(struct http2_direction *h, u32 n)
{
	h->source.at += n;
	h->source.room -= n;
	h->source.left -= n;
}

static __always_inline int lose(struct http2_direction *h)
{
	h->state = HTTP2_LOST;
	return HTTP2_LOSES;
}

/*
 * Where in the bytes that were read ahead the source goes on, if the next n are among them or can
 * be; else -1.
 */
static __always_inline int read_ahead(struct http2_direction *h, u32 there, u32 n)
{
	struct http2_source *s = &h->source;
	u64 off = s->at - s->ahead_at;

	if (off < s->ahead && n <= s->ahead - off)
		return off & (HTTP2_AHEAD - 1);
	u32 more = at_most(there, HTTP2_AHEAD);
	if (n > more || bpf_probe_read_user(s->bytes, more, (void *)s->at))
		return -1;
	s->ahead_at = s->at;
	s->ahead = more;
	return 0;
}

/* The next part of what the call sends or receives. */
static __always_inline int next_part(struct http2_direction *h)
{
	struct http2_source *s = &h->source;
	u64 part[2];

	if (!s->parts || bpf_probe_read_user(part, sizeof(part), (void *)s->vector))
		return lose(h);
	s->vector += sizeof(part);
	s->parts--;
	s->at = part[0];
	s->room = part[1];
	return HTTP2_GOES_ON;
}

static __always_inline int take_preface(struct http2_direction *h, u32 there)
{
	static const char preface[32] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
	u32 got = h->got, n = least(HTTP2_PREFACE - got, there);

	/* One byte after the other: it is once in a connection's life. */
	for (u32 i = 0; i < HTTP2_PREFACE; i++) {
		u8 b;

		if (i >= n)
			break;
		barrier_var(got);
		if (bpf_probe_read_user(&b, 1, (void *)(h->source.at + i)) ||
		    b != preface[got & 31])
			return lose(h);
		got++;
	}
	pass(h, n);
	h->got = got;
	if (got == HTTP2_PREFACE) {
		h->got = 0;
		h->state = HTTP2_FOLLOWED;
	}
	return HTTP2_GOES_ON;
}

static __always_inline void begin_block(struct http2_direction *h)
{
	h->in_block = 1;
	h->block_stream = h->stream;
	h->ends = h->type == FRAME_HEADERS && h->flags & FRAME_END_STREAM;
	h->pushed = h->type == FRAME_PUSH_PROMISE;
	h->first_ns = h->now_ns;
	h->broken = 0;
	h->unseen = 0;
	h->gone = 0;
	h->method = 0;
	h->status = 0;
	h->grpc_status = 0;
	h->grpc = 0;
	h->has_path = 0;
	h->part = PART_FIELD;
	h->at = 0;
	h->end = 0;
	h->skip = 0;
}

static __always_inline int end_frame(struct http2_direction *h)
{
	h->got = 0;
	switch (h->type) {
	case FRAME_DATA:
		return h->flags & FRAME_END_STREAM ? HTTP2_END : HTTP2_GOES_ON;
	case FRAME_RST_STREAM:
		return HTTP2_RESET;
	case FRAME_HEADERS:
	case FRAME_PUSH_PROMISE:
	case FRAME_CONTINUATION:
		break;
	default:
		return HTTP2_GOES_ON;
	}
	if (!(h->flags & FRAME_END_HEADERS))
		return HTTP2_GOES_ON;
	h->in_block = 0;
	h->stream = h->block_stream;
	if (h->end != h->at || h->part != PART_FIELD || h->skip)
		h->broken = 1;
	/* The path claims to be longer than the block. */
	if (h->skip && h->part == PART_FIELD && h->kind == KIND_PATH)
		h->has_path = 0;
	if (h->broken)
		forget_entries(h);
	return h->pushed ? HTTP2_PUSH : HTTP2_BLOCK;
}

static __always_inline bool is_fragment(const struct http2_direction *h)
{
	return h->type == FRAME_HEADERS || h->type == FRAME_PUSH_PROMISE ||
	       h->type == FRAME_CONTINUATION;
}

static __always_inline int take_frame_header(struct http2_direction *h, u32 there)
{
	u32 got = h->got & 15, n = least(HTTP2_FRAME_HEADER - got, there);
	int off = n == HTTP2_FRAME_HEADER ? read_ahead(h, there, n) : -1;

	if (off >= 0) {
		const u8 *from = h->source.bytes + (off & (HTTP2_AHEAD - 1));

		*(u64 *)h->header = *(u64 *)from;
		h->header[8] = from[8];
	} else if (bpf_probe_read_user(h->header + got, at_most(n, HTTP2_FRAME_HEADER),
				       (void *)h->source.at)) {
		return lose(h);
	}
	pass(h, n);
	h->got = got + n;
	if (h->got < HTTP2_FRAME_HEADER)
		return HTTP2_GOES_ON;
	h->payload = h->header[0] << 16 | h->header[1] << 8 | h->header[2];
	h->type = h->header[3];
	h->flags = h->header[4];
	h->stream =
		(h->header[5] & 0x7f) << 24 | h->header[6] << 16 | h->header[7] << 8 | h->header[8];
	h->padded = 0;
	h->pad = 0;
	h->front = 0;
	/* A block's frames follow one another, and the others are none. */
	if (h->in_block ? h->type != FRAME_CONTINUATION || h->stream != h->block_stream :
			  h->type == FRAME_CONTINUATION)
		return lose(h);
	if (h->type == FRAME_HEADERS || h->type == FRAME_PUSH_PROMISE) {
		if (!h->stream)
			return lose(h);
		begin_block(h);
		h->padded = !!(h->flags & FRAME_PADDED);
		if (h->pushed)
			h->front = 4;
		else if (h->flags & FRAME_HAS_PRIORITY)
			h->front = 5;
		if (h->payload < h->padded + h->front)
			return lose(h);
	}
	/* Most others are there as a whole, and passed over at once. */
	if (!is_fragment(h) && h->payload <= h->source.left && h->payload <= h->source.room) {
		pass(h, h->payload);
		h->payload = 0;
	}
	return h->payload ? HTTP2_GOES_ON : end_frame(h);
}

/* Reads as much of a header block as there is room for, and its fields. */
static __always_inline int take_fragment(struct http2_direction *h, u32 there)
{
	u32 end = h->end, used = end - h->at, index = end & (HTTP2_WINDOW - 1);
	u32 n = least(there, least(HTTP2_WINDOW - used, HTTP2_WINDOW - index));

	if (used >= HTTP2_WINDOW) {
		h->broken = 1;
		return 0;
	}
	barrier_var(index);
	index &= HTTP2_WINDOW - 1;
	/*
	 * Copied by eights, which may write past the end where nothing is: only into an empty
	 * window.
	 */
	int off = !used && n <= HTTP2_AHEAD - 8 ? read_ahead(h, there, n) : -1;
	if (off >= 0) {
		for (u32 i = 0; i < HTTP2_AHEAD; i += 8) {
			if (i >= n)
				break;
			*(u64 *)(h->window + index + i) =
				*(u64 *)(h->source.bytes + ((off + i) & (HTTP2_AHEAD - 1)));
		}
	} else if (bpf_probe_read_user(h->window + index, at_most(n, HTTP2_WINDOW),
				       (void *)h->source.at)) {
		return lose(h);
	}
	h->end = end + n;
	pass(h, n);
	h->payload -= n;
	take_fields(h);
	return 0;
}

static __always_inline int take_payload(struct http2_direction *h, u32 there)
{
	u32 n = least(h->payload, there);

	if (is_fragment(h)) {
		if (h->padded) {
			if (h->source.blind ||
			    bpf_probe_read_user(&h->pad, 1, (void *)h->source.at))
				return lose(h);
			h->padded = 0;
			n = 1;
			if (h->payload < 1U + h->pad + h->front)
				return lose(h);
		} else if (h->front) {
			n = least(h->front, there);
			h->front -= n;
		} else if (h->payload > h->pad) {
			n = least(h->payload - h->pad, there);
			if (h->broken) {
				;
			} else if (h->skip) {
				n = least(n, h->skip);
				h->skip -= n;
			} else {
				if (h->source.blind || take_fragment(h, n))
					return lose(h);
				n = 0;
			}
		}
	}
	pass(h, n);
	h->payload -= n;
	return h->payload ? HTTP2_GOES_ON : end_frame(h);
}

/* Goes on by some bytes: to the end of a frame's header, of its payload, or of a part of them. */
__noinline int http2_step(struct http2_direction *h)
{
	if (!h || !h->source.left || h->state == HTTP2_LOST)
		return HTTP2_DONE;
	if (!h->source.room)
		return next_part(h);
	u32 there = least(h->source.left, h->source.room);
	if (h->state == HTTP2_FOLLOWED && h->got == HTTP2_FRAME_HEADER)
		return take_payload(h, there);
	if (h->source.blind)
		return lose(h);
	return h->state == HTTP2_GREETS ? take_preface(h, there) : take_frame_header(h, there);
}

/* Goes on to the next event, or to the end of the call. */
__noinline int http2_run(struct http2_direction *h)
{
	for (u32 i = 0; i < HTTP2_STEPS; i++) {
		int event = http2_step(h);

		if (event != HTTP2_GOES_ON)
			return event;
	}
	return HTTP2_GOES_ON;
}

/* --- joining --- */

/* Whether a frame's header is one that peers send, by what the type allows. */
static __always_inline bool is_plausible(const u8 *f)
{
	u32 length = f[0] << 16 | f[1] << 8 | f[2];
	bool of_stream = (f[5] | f[6] | f[7] | f[8]) != 0, odd = f[8] & 1;

	if (length > 1 << 14 || f[5] & 0x80)
		return false;
	switch (f[3]) {
	case FRAME_DATA:
		return of_stream && !(f[4] & ~(FRAME_END_STREAM | FRAME_PADDED));
	case FRAME_HEADERS:
		return odd && length &&
		       !(f[4] & ~(FRAME_END_STREAM | FRAME_END_HEADERS | FRAME_PADDED |
				  FRAME_HAS_PRIORITY));
	case FRAME_PRIORITY:
		return of_stream && length == 5 && !f[4];
	case FRAME_RST_STREAM:
		return of_stream && length == 4 && !f[4];
	case FRAME_SETTINGS:
		return !of_stream && !(f[4] & ~1) && length % 6 == 0;
	case FRAME_PING:
		return !of_stream && length == 8 && !(f[4] & ~1);
	case FRAME_GOAWAY:
		return !of_stream && length >= 8 && !f[4];
	case FRAME_WINDOW_UPDATE:
		return length == 4 && !f[4];
	}
	return false;
}

#define CHAIN_BROKEN 0
#define CHAIN_WHOLE 1	/* frames, the last of which ends with the bytes */
#define CHAIN_REQUEST 2 /* whole, and one of them begins and ends a header block */

/* Whether bytes are frames from the first to the last. */
__noinline int http2_chain(u64 at, u32 size)
{
	u32 found = CHAIN_WHOLE;

	for (u32 i = 0; i < 32; i++) {
		u8 f[HTTP2_FRAME_HEADER];

		if (!size)
			return i ? found : CHAIN_BROKEN;
		if (size < sizeof(f) || bpf_probe_read_user(f, sizeof(f), (void *)at) ||
		    !is_plausible(f))
			return CHAIN_BROKEN;
		u32 length = (f[0] << 16 | f[1] << 8 | f[2]) + sizeof(f);
		if (length > size)
			return CHAIN_BROKEN;
		if (f[3] == FRAME_HEADERS && f[4] & FRAME_END_HEADERS)
			found = CHAIN_REQUEST;
		at += length;
		size -= length;
	}
	return CHAIN_BROKEN;
}

#endif
