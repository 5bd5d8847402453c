/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The fields of header blocks (HPACK, RFC 7541), as far as they name a request or tell how it was
 * answered. Fields of no interest are passed over. Of the peer's table it is remembered which
 * entries are of interest, and by their number, not by their index: what was evicted, a valid peer
 * does not refer to.
 */
#ifndef OUTSIGHT_HPACK_H
#define OUTSIGHT_HPACK_H

#include "include/kernel.h"
#include "net/http2/direction.h"
#include "net/http2/hpack_tables.h"

/*
 * Paths in the tables of peers, by the number of their entry; the least recently used are evicted.
 */
struct http2_path_key {
	u64 connection;
	u64 number;
};

struct http2_path {
	u8 text[HTTP2_PATH];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct http2_path_key);
	__type(value, struct http2_path);
} http2_paths SEC(".maps");

/* What the next bytes of a block are. */
enum http2_part {
	PART_FIELD = 0,
	PART_NAME = 1,
	PART_VALUE = 2,
};

/* What a field is. An entry of the table is this, and its value from bit 8 on. */
enum http2_kind {
	KIND_UNSEEN = 0,
	KIND_OTHER = 1,
	KIND_METHOD = 2,
	KIND_PATH = 3,
	KIND_STATUS = 4,
	KIND_TYPE = 5, /* 1: of gRPC */
	KIND_GRPC_STATUS = 6, /* and one */
};

enum http2_method {
	METHOD_OTHER = 0,
	METHOD_GET = 1,
	METHOD_POST = 2,
	METHOD_PUT = 3,
	METHOD_DELETE = 4,
	METHOD_HEAD = 5,
	METHOD_OPTIONS = 6,
	METHOD_PATCH = 7,
};

#define HPACK_STATIC 61 /* entries of the static table */

#define WORD(a, b, c, d, e, f, g, h)                                                     \
	((u64)(a) | (u64)(b) << 8 | (u64)(c) << 16 | (u64)(d) << 24 | (u64)(e) << 32 |   \
	 (u64)(f) << 40 | (u64)(g) << 48 | (u64)(h) << 56)

static __always_inline u8 window_at(const struct http2_direction *h, u32 i)
{
	barrier_var(i);
	return h->window[i & (HTTP2_WINDOW - 1)];
}

/* What was inserted so far is not known any more; what will be, has other numbers. */
static __always_inline void forget_entries(struct http2_direction *h)
{
	h->inserted += HTTP2_ENTRIES;
	h->forgotten = h->inserted;
}

/* The entry of the static or the peer's table, and its number in the latter in h->number. */
static __always_inline u16 entry_of(struct http2_direction *h, u32 index)
{
	if (index <= HPACK_STATIC) {
		switch (index) {
		case 2: return KIND_METHOD | METHOD_GET << 8;
		case 3: return KIND_METHOD | METHOD_POST << 8;
		case 4:
		case 5: return KIND_PATH | index << 8;
		case 8:
		case 9:
		case 10: return KIND_STATUS | 2 << 8;
		case 11: return KIND_STATUS | 3 << 8;
		case 12:
		case 13: return KIND_STATUS | 4 << 8;
		case 14: return KIND_STATUS | 5 << 8;
		case 31: return KIND_TYPE;
		}
		return KIND_OTHER;
	}
	u32 back = index - HPACK_STATIC - 1;
	if (back >= HTTP2_ENTRIES || back >= h->inserted - h->forgotten)
		return KIND_UNSEEN;
	u32 number = h->inserted - back;
	h->number = number;
	barrier_var(number);
	return h->entries[number & (HTTP2_ENTRIES - 1)];
}

static __always_inline void insert_entry(struct http2_direction *h, u16 entry)
{
	u32 number = h->inserted + 1;

	h->inserted = number;
	barrier_var(number);
	h->entries[number & (HTTP2_ENTRIES - 1)] = entry;
}

static __always_inline void understand(struct http2_direction *h, u16 entry)
{
	u8 value = entry >> 8;

	switch (entry & 0xff) {
	case KIND_UNSEEN: h->unseen = 1; break;
	case KIND_METHOD: h->method = value; break;
	case KIND_STATUS: h->status = value; break;
	case KIND_TYPE: h->grpc = value; break;
	case KIND_GRPC_STATUS: h->grpc_status = value; break;
	}
}

static __always_inline void clear_path(struct http2_direction *h)
{
	u64 *text = (u64 *)h->text;

#pragma unroll
	for (u32 w = 0; w < HTTP2_PATH / 8; w++)
		text[w] = 0;
}

/* A whole field out of a table. */
static __always_inline void take_entry(struct http2_direction *h, u32 index)
{
	u16 entry = entry_of(h, index);

	if ((entry & 0xff) != KIND_PATH) {
		understand(h, entry);
		return;
	}
	if (index <= HPACK_STATIC) {
		clear_path(h);
		if (index == 5)
			__builtin_memcpy(h->text, "/index.html", 11);
		else
			h->text[0] = '/';
		h->has_path = 1;
		return;
	}
	struct http2_path_key key = {.connection = h->connection, .number = h->number};
	struct http2_path *path = bpf_map_lookup_elem(&http2_paths, &key);
	if (!path) {
		h->unseen = 1;
		h->gone = 1;
		return;
	}
	__builtin_memcpy(h->text, path->text, HTTP2_PATH);
	h->has_path = 1;
}

/* --- strings --- */

#define NO_SYMBOL 0xffff

/* The next byte of the string, encoded or not; NO_SYMBOL at its end or where it is invalid. */
static __always_inline u32 next_symbol(struct http2_direction *h)
{
	u32 in = h->in, end = h->in_end, bits_left = h->bits_left;
	u64 bits = h->bits;

	if (!h->huffman) {
		if (in == end)
			return NO_SYMBOL;
		h->in = in + 1;
		return window_at(h, in);
	}
	if (bits_left < 15 && in != end) {
		bits = bits << 8 | window_at(h, in++);
		bits_left += 8;
	}
	if (bits_left < 15 && in != end) {
		bits = bits << 8 | window_at(h, in++);
		bits_left += 8;
	}
	/* The next 15 bits; past the end are ones, as in the padding. */
	u32 next = bits_left >= 15 ?
			   bits >> ((bits_left - 15) & 63) :
			   (bits << ((15 - bits_left) & 63)) | ((1 << ((15 - bits_left) & 15)) - 1);
	u32 symbol = huffman_short[(next >> 7) & 255];
	if (!symbol)
		symbol = huffman_long[next & 255];
	u32 length = symbol >> 8;
	if (!length || length > bits_left) {
		/* Less than a byte of ones is padding. */
		if (in != end || bits_left > 7 || (next & 0x7fff) != 0x7fff)
			h->cut = 2;
		return NO_SYMBOL;
	}
	h->in = in;
	h->bits_left = bits_left - length;
	h->bits = bits & 0xffffffff;
	return symbol & 0xff;
}

/*
 * Takes one byte into h->text; 0 at the end. A path ends where its query begins. h->cut says 1 if
 * there is more than room for it, and 2 if the string is not valid.
 */
__noinline int http2_symbol(struct http2_direction *h)
{
	if (!h)
		return 0;
	u32 out = h->out;
	u32 b = next_symbol(h);
	if (b == NO_SYMBOL)
		return 0;
	if (b <= 0x20 || b >= 0x7f) {
		h->cut = 2;
		return 0;
	}
	if (b == '?' || b == '#') {
		h->cut = 0;
		return 0;
	}
	if (out >= h->out_end) {
		h->cut = 1;
		return 0;
	}
	barrier_var(out);
	h->text[out & 127] = b;
	h->out = out + 1;
	return 1;
}

static __always_inline void decode(struct http2_direction *h, u32 at, u32 length)
{
	h->in = at;
	h->in_end = at + length;
	h->bits = 0;
	h->bits_left = 0;
	for (u32 i = 0; i <= HTTP2_PATH; i++)
		if (!http2_symbol(h))
			break;
}

/* Makes the string the path; nothing where it is not valid. */
static __always_inline void decode_path(struct http2_direction *h, u32 at, u32 length, bool longer)
{
	clear_path(h);
	h->out = 0;
	h->out_end = HTTP2_PATH;
	h->cut = longer;
	decode(h, at, length);
	if (h->cut == 2 && !longer) {
		clear_path(h);
	} else if (h->cut) {
		u32 out = at_most(h->out, HTTP2_PATH - 3);

		h->text[out] = '.';
		h->text[out + 1] = '.';
		h->text[out + 2] = '.';
	}
	h->has_path = 1;
}

static __always_inline u8 method_of(u64 word)
{
	switch (word) {
	case WORD('G', 'E', 'T', 0, 0, 0, 0, 0): return METHOD_GET;
	case WORD('P', 'O', 'S', 'T', 0, 0, 0, 0): return METHOD_POST;
	case WORD('P', 'U', 'T', 0, 0, 0, 0, 0): return METHOD_PUT;
	case WORD('D', 'E', 'L', 'E', 'T', 'E', 0, 0): return METHOD_DELETE;
	case WORD('H', 'E', 'A', 'D', 0, 0, 0, 0): return METHOD_HEAD;
	case WORD('O', 'P', 'T', 'I', 'O', 'N', 'S', 0): return METHOD_OPTIONS;
	case WORD('P', 'A', 'T', 'C', 'H', 0, 0, 0): return METHOD_PATCH;
	}
	return METHOD_OTHER;
}

/* What a value of that kind says, in a byte. */
static __always_inline u32 value_of(struct http2_direction *h, u32 at, u32 length, u32 kind)
{
	u64 *word = (u64 *)(h->text + HTTP2_WORD);
	word[0] = 0;
	word[1] = 0;
	word[2] = 0;
	h->out = HTTP2_WORD;
	h->out_end = HTTP2_WORD + HTTP2_WORD_LIMIT;
	h->cut = 0;
	decode(h, at, length);
	u32 n = h->out - HTTP2_WORD;
	u8 first = word[0], second = word[0] >> 8, next = word[2];

	switch (kind) {
	case KIND_METHOD:
		return word[1] ? METHOD_OTHER : method_of(word[0]);
	case KIND_STATUS:
		return n == 3 && first >= '1' && first <= '5' ? first - '0' : 0;
	case KIND_TYPE:
		/* gRPC-web goes on with a hyphen: its status is not in fields. */
		return (!next || next == '+' || next == ';') &&
		       word[0] == WORD('a', 'p', 'p', 'l', 'i', 'c', 'a', 't') &&
		       (word[1] & ~(0xffULL << 56)) ==
			       WORD('i', 'o', 'n', '/', 'g', 'r', 'p', 'c') - ((u64)'c' << 56) &&
		       word[1] >> 56 == 'c';
	case KIND_GRPC_STATUS:
		if (n == 1 && first >= '0' && first <= '9')
			return first - '0' + 1;
		if (n == 2 && first == '1' && second >= '0' && second <= '6')
			return second - '0' + 11;
	}
	return 0;
}

/* --- fields --- */

/*
 * Reads a number of which the first byte has the bits of mask (RFC 7541, 5.1) into h->number. The
 * answer is how many bytes it has, 0 if they are not all there, or -1.
 */
static __always_inline int take_number(struct http2_direction *h, u32 at, u32 there, u32 mask)
{
	u32 n = window_at(h, at) & mask;

	h->number = n;
	if (n < mask)
		return 1;
#pragma unroll
	for (u32 k = 1; k <= 4; k++) {
		if (there <= k)
			return 0;
		u8 b = window_at(h, at + k);
		n += (b & 0x7f) << (7 * (k - 1));
		if (!(b & 0x80)) {
			h->number = n;
			return k + 1;
		}
	}
	return -1;
}

static __always_inline int break_block(struct http2_direction *h)
{
	h->broken = 1;
	h->at = h->end;
	return 0;
}

static __always_inline int begin_field(struct http2_direction *h, u32 there)
{
	u32 at = h->at;
	u8 b = window_at(h, at);
	bool whole = b & 0x80, resize = (b & 0xe0) == 0x20;
	int n = take_number(h, at, there, whole ? 0x7f : b & 0x40 ? 0x3f : resize ? 0x1f : 0x0f);

	if (n <= 0)
		return n ? break_block(h) : 0;
	h->at = at + n;
	if (resize)
		return 1;
	u32 index = h->number;
	if (whole) {
		if (!index)
			return break_block(h);
		take_entry(h, index);
		return 1;
	}
	h->insert = !!(b & 0x40);
	h->part = index ? PART_VALUE : PART_NAME;
	h->kind = index ? entry_of(h, index) & 0xff : KIND_OTHER;
	return 1;
}

/* "grpc-status", as it is and with the code of RFC 7541. */
static __always_inline bool is_grpc_status(const struct http2_direction *h, u32 at, u32 length)
{
	static const u8 plain[16] = "grpc-status";
	static const u8 coded[16] = {0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f};
	const u32 want = h->huffman ? 8 : 11;

	if (length != want)
		return false;
	for (u32 i = 0; i < 11; i++) {
		if (i >= want)
			break;
		if (window_at(h, at + i) != (want == 8 ? coded[i] : plain[i]))
			return false;
	}
	return true;
}

static __always_inline int take_name(struct http2_direction *h, u32 there)
{
	u32 at = h->at;
	int n = take_number(h, at, there, 0x7f);

	if (n <= 0)
		return n ? break_block(h) : 0;
	u32 length = h->number;
	h->huffman = window_at(h, at) >> 7;
	if (length <= 16) {
		if (there < n + length)
			return 0;
		if (is_grpc_status(h, at + n, length))
			h->kind = KIND_GRPC_STATUS;
	}
	h->at = at + n;
	h->skip = length;
	h->part = PART_VALUE;
	return 1;
}

static const struct http2_path no_path;

/*
 * Puts the path into the table's newest entry. An empty one first: older verifiers take a map's
 * value from few places.
 */
static __always_inline void keep_path(struct http2_direction *h)
{
	struct http2_path_key key = {.connection = h->connection, .number = h->inserted};

	if (bpf_map_update_elem(&http2_paths, &key, &no_path, BPF_ANY))
		return;
	struct http2_path *path = bpf_map_lookup_elem(&http2_paths, &key);
	if (path)
		__builtin_memcpy(path->text, h->text, HTTP2_PATH);
}

static __always_inline int take_value(struct http2_direction *h, u32 there)
{
	u32 at = h->at, kind = h->kind, value = 0;
	int n = take_number(h, at, there, 0x7f);

	if (n <= 0)
		return n ? break_block(h) : 0;
	u32 length = h->number;
	if (kind > KIND_OTHER) {
		u32 enough = length < HTTP2_VALUE ? length : HTTP2_VALUE;

		if (there < n + enough)
			return 0;
		h->huffman = window_at(h, at) >> 7;
		if (kind == KIND_PATH) {
			decode_path(h, at + n, enough, enough < length);
		} else {
			value = value_of(h, at + n, enough, kind) & 0xff;
			understand(h, kind | value << 8);
		}
	} else if (kind == KIND_UNSEEN) {
		h->unseen = 1;
	}
	h->at = at + n;
	h->skip = length;
	h->part = PART_FIELD;
	if (!h->insert)
		return 1;
	insert_entry(h, kind | value << 8);
	if (kind == KIND_PATH)
		keep_path(h);
	return 1;
}

/* Reads one part of a field; 0 if it is not all there. */
__noinline int http2_field(struct http2_direction *h)
{
	if (!h)
		return 0;
	u32 there = h->end - h->at;
	if (!there)
		return 0;
	if (h->skip) {
		u32 n = h->skip < there ? h->skip : there;

		h->at += n;
		h->skip -= n;
		return 1;
	}
	switch (h->part) {
	case PART_FIELD: return begin_field(h, there);
	case PART_NAME: return take_name(h, there);
	}
	return take_value(h, there);
}

/* Reads the fields that are in the window: each takes at least a byte of it. */
static __always_inline void take_fields(struct http2_direction *h)
{
	for (u32 i = 0; i < 2 * HTTP2_WINDOW; i++)
		if (!http2_field(h))
			break;
}

#endif
