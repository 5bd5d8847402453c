/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Recognises protocols by the first bytes of requests and gives requests bounded names.
 *
 * The rules ask for structure, not for single bytes: what is not recognised is an ordinary
 * TCP transaction, what is recognised wrongly would be a lie. bpf/headtest holds these rules
 * against a model of them.
 */
#ifndef OUTSIGHT_HEADS_H
#define OUTSIGHT_HEADS_H

#include "endpoints.h"

/* What a parser says beside the states of a head: it is not this protocol. */
#define HEAD_OTHER 9

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
	return (u32)byte_at(h, i) << 24 | byte_at(h, i + 1) << 16 | byte_at(h, i + 2) << 8 | byte_at(h, i + 3);
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

/* --- HTTP/1 --- */

/* Ends a path's segment: names stay, ids become "{}". */
static __always_inline void end_segment(struct head *h, volatile struct cursor *c)
{
	u8 length = c->length, digits = c->digits, segment = c->segment;

	if (!length)
		return;
	if (digits != length && length < 32 && !(length >= 16 && c->hex == length)) {
		if (digits < 2)
			return;
		if (length == 3 && digits == 2 && h->scratch[segment & 63] == 'v') /* a version: v10 */
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

	return ((low | word) & TOP) | first_equal(word, '/') | first_equal(word, '?') | first_equal(word, '#') |
	       first_equal(word, 0x7f);
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
	u64 hex = digits | (each_from(lower, 'a') & ~each_from(lower, 'f' + 1)) | (~((word ^ ALL('-')) + ALL(0x7f)) & TOP);
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
		if (byte_at(h, i + 1) != 't' || byte_at(h, i + 2) != 't' || byte_at(h, i + 3) != 'p')
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

/* --- Redis --- */

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

/* --- SQL --- */

/* Whether a word's first eight letters begin a statement. Only these make a protocol known. */
static __always_inline bool is_statement(u64 word)
{
	switch (word) {
	case W('S', 'E', 'L', 'E', 'C', 'T', 0, 0):
	case W('I', 'N', 'S', 'E', 'R', 'T', 0, 0):
	case W('U', 'P', 'D', 'A', 'T', 'E', 0, 0):
	case W('D', 'E', 'L', 'E', 'T', 'E', 0, 0):
	case W('B', 'E', 'G', 'I', 'N', 0, 0, 0):
	case W('S', 'T', 'A', 'R', 'T', 0, 0, 0):
	case W('C', 'O', 'M', 'M', 'I', 'T', 0, 0):
	case W('R', 'O', 'L', 'L', 'B', 'A', 'C', 'K'):
	case W('S', 'E', 'T', 0, 0, 0, 0, 0):
	case W('S', 'H', 'O', 'W', 0, 0, 0, 0):
	case W('C', 'R', 'E', 'A', 'T', 'E', 0, 0):
	case W('D', 'R', 'O', 'P', 0, 0, 0, 0):
	case W('A', 'L', 'T', 'E', 'R', 0, 0, 0):
	case W('W', 'I', 'T', 'H', 0, 0, 0, 0):
	case W('V', 'A', 'L', 'U', 'E', 'S', 0, 0):
	case W('C', 'O', 'P', 'Y', 0, 0, 0, 0):
	case W('L', 'I', 'S', 'T', 'E', 'N', 0, 0):
	case W('N', 'O', 'T', 'I', 'F', 'Y', 0, 0):
	case W('E', 'X', 'P', 'L', 'A', 'I', 'N', 0):
	case W('T', 'R', 'U', 'N', 'C', 'A', 'T', 'E'):
	case W('C', 'A', 'L', 'L', 0, 0, 0, 0):
	case W('R', 'E', 'P', 'L', 'A', 'C', 'E', 0):
	case W('U', 'S', 'E', 0, 0, 0, 0, 0):
	case W('P', 'R', 'E', 'P', 'A', 'R', 'E', 0):
	case W('E', 'X', 'E', 'C', 'U', 'T', 'E', 0):
	case W('E', 'N', 'D', 0, 0, 0, 0, 0):
		return true;
	}
	return false;
}

#define SQL_LISTEN W('L', 'I', 'S', 'T', 'E', 'N', 0, 0)

/* A byte before a statement's first word: blanks, brackets and comments; 0 where the word begins. */
__noinline int skip_blank(struct head *h, u32 at)
{
	if (!h)
		return 0;
	u8 b = byte_at(h, at);

	if (h->cursor.comment) {
		h->cursor.comment = !(b == '/' && byte_at(h, at - 1) == '*');
		return 1;
	}
	if (b == '/' && byte_at(h, at + 1) == '*') {
		h->cursor.comment = 1;
		return 1;
	}
	return b == ' ' || b == '\n' || b == '\r' || b == '\t' || b == '(' || b == ';';
}

/*
 * Adds the first word of a statement, from the cursor's place to byte end, to what is put together.
 * Blanks, brackets and comments before it are skipped.
 */
__noinline int parse_sql(struct head *h, u32 end)
{
	if (!h)
		return HEAD_OTHER;
	volatile struct cursor *c = &h->cursor;
	u32 n = h->length, length = 0, at;
	u64 word = 0;

	c->comment = 0;
	for (u32 k = 0; k < HEAD_BYTES; k++) {
		at = c->in;
		if (at >= n || at >= end)
			break;
		if (!skip_blank(h, at))
			break;
		c->in = at + 1;
	}
	at = c->in;
	u32 out = c->out;
	for (length = 0; length < SQL_WORD; length++) {
		if (at + length >= n || at + length >= end)
			break;
		u8 b = byte_at(h, at + length);
		if (!is_letter(b))
			break;
		b &= ~0x20;
		if (length < 8)
			word |= (u64)b << (8 * length);
		put(h, out + length, b);
	}
	c->word = word;
	c->in = at + length;
	c->out = length ? out + length : out - 1; /* or without the blank at the end */
	at = c->in;
	if (at >= n && at < end && n < HEAD_ENOUGH)
		return HEAD_PARTIAL;
	/* The byte that ends the word, and the next one, by which a comment would be known. */
	h->used = at + 1 < n ? at + 2 : 0;
	return HEAD_NAMED;
}

/* --- PostgreSQL --- */

static __always_inline int parse_startup(struct head *h, u32 length)
{
	u32 code = be32_at(h, 4);

	switch (code) {
	case 80877103:
		if (length != 8)
			return HEAD_OTHER;
		put_text(h, "tls request");
		break;
	case 80877104:
		if (length != 8)
			return HEAD_OTHER;
		put_text(h, "gss request");
		break;
	case 80877102:
		if (length != 16)
			return HEAD_OTHER;
		put_text(h, "cancel");
		h->protocol = PROTOCOL_POSTGRESQL;
		return HEAD_SILENT;
	case 196608: /* version 3.0 */
	case 196610: /* version 3.2 */
		if (length < 9 || length > 10000)
			return HEAD_OTHER;
		if (h->length < 9)
			return HEAD_PARTIAL;
		if (!is_letter(byte_at(h, 8)))
			return HEAD_OTHER;
		put_text(h, "startup");
		break;
	default:
		return HEAD_OTHER;
	}
	h->used = 9;
	if (h->length < 9)
		h->used = 8;
	return HEAD_NAMED;
}

/* Moves the cursor from byte 5 past the name of a statement; false if the name does not end. */
static __always_inline bool skip_string(struct head *h)
{
	volatile struct cursor *c = &h->cursor;

	c->in = 5;
	for (u32 k = 0; k < 64; k++) {
		u32 at = c->in;

		if (at >= h->length)
			return false;
		c->in = at + 1;
		if (!byte_at(h, at))
			return true;
	}
	return false;
}

__noinline int parse_postgresql(struct head *h)
{
	if (!h)
		return HEAD_OTHER;
	u32 n = h->length;
	u8 type = h->bytes[0];
	bool known = h->protocol == PROTOCOL_POSTGRESQL;
	u64 word;
	int state;

	if (n < 8 && !(known && n >= 5))
		return HEAD_PARTIAL;
	if (!type)
		return parse_startup(h, be32_at(h, 0));
	u32 end = be32_at(h, 1) + 1;
	if (end < 5 || end > 1 << 30)
		return HEAD_OTHER;
	h->used = 5;
	switch (type) {
	case 'Q':
		if (!known && end != h->size)
			return h->size < end ? HEAD_PARTIAL : HEAD_OTHER;
		put_text(h, "query ");
		h->cursor.in = 5;
		break;
	case 'P':
		if (!skip_string(h))
			return n < HEAD_ENOUGH ? HEAD_PARTIAL : HEAD_OTHER;
		put_text(h, "parse ");
		break;
	case 'B':
		if (!known) {
			/* The default portal, and another message after this one. */
			if (byte_at(h, 5) || end < 12)
				return HEAD_OTHER;
			if (end >= n)
				return HEAD_OTHER;
			u8 next = byte_at(h, end);
			if (next != 'D' && next != 'E')
				return HEAD_OTHER;
			if (end + 4 < n && (byte_at(h, end + 1) || byte_at(h, end + 2) || byte_at(h, end + 3)))
				return HEAD_OTHER;
			h->used = 0;
		}
		put_text(h, "execute");
		return HEAD_NAMED;
	case 'E':
		put_text(h, "execute");
		return known ? HEAD_NAMED : HEAD_OTHER;
	case 'X':
		put_text(h, "terminate");
		return known && end == 5 ? HEAD_SILENT : HEAD_OTHER;
	case 'D':
		put_text(h, "describe");
		return known ? HEAD_NAMED : HEAD_OTHER;
	case 'C':
		put_text(h, "close");
		return known ? HEAD_NAMED : HEAD_OTHER;
	case 'S':
		put_text(h, "sync");
		return known ? HEAD_NAMED : HEAD_OTHER;
	case 'p':
		put_text(h, "password");
		return known ? HEAD_NAMED : HEAD_OTHER;
	case 'F':
		put_text(h, "function");
		return known ? HEAD_NAMED : HEAD_OTHER;
	case 'd':
	case 'c':
	case 'f':
		put_text(h, "copy data");
		return known ? HEAD_NAMED : HEAD_OTHER;
	default:
		return HEAD_OTHER;
	}
	state = parse_sql(h, end);
	word = h->cursor.word;
	if (state == HEAD_NAMED && !known && !is_statement(word))
		return HEAD_OTHER;
	if (state == HEAD_NAMED && word == SQL_LISTEN)
		h->watch |= HEAD_WATCH_NOTICE;
	return state;
}

/* --- MySQL --- */

__noinline int parse_mysql(struct head *h)
{
	if (!h)
		return HEAD_OTHER;
	u32 n = h->length, length;
	bool known = h->protocol == PROTOCOL_MYSQL;
	int state;

	if (n < 5)
		return HEAD_PARTIAL;
	length = h->bytes[0] | h->bytes[1] << 8 | h->bytes[2] << 16;
	if (!length)
		return HEAD_OTHER;
	h->used = 5;
	if (h->bytes[3]) { /* within a conversation: what follows the greeting */
		put_text(h, "login");
		return known ? HEAD_NAMED : HEAD_OTHER;
	}
	if (!known && h->size != length + 4)
		return h->size < 8 && h->size < length + 4 ? HEAD_PARTIAL : HEAD_OTHER;
	if (h->bytes[4] == 0x03 || h->bytes[4] == 0x16) {
		if (n < 8 && n < length + 4)
			return HEAD_PARTIAL;
		h->cursor.in = 5;
		/* Query attributes: none, in one set. */
		if (h->bytes[4] == 0x03 && !h->bytes[5] && h->bytes[6] == 1)
			h->cursor.in = 7;
		if (h->bytes[4] == 0x03)
			put_text(h, "query ");
		else
			put_text(h, "prepare ");
		state = parse_sql(h, length + 4);
		if (state == HEAD_NAMED && !known && !is_statement(h->cursor.word))
			return HEAD_OTHER;
		return state;
	}
	if (!known)
		return HEAD_OTHER;
	switch (h->bytes[4]) {
	case 0x01:
		put_text(h, "quit");
		return HEAD_SILENT;
	case 0x02: put_text(h, "use"); break;
	case 0x0e: put_text(h, "ping"); break;
	case 0x11: put_text(h, "change user"); break;
	case 0x12:
		put_text(h, "binlog dump");
		h->streams = 1;
		break;
	case 0x17: put_text(h, "execute"); break;
	case 0x18:
		put_text(h, "long data");
		return HEAD_SILENT;
	case 0x19:
		put_text(h, "close");
		h->used = 0;
		/* Without a reply, and often sent together with what has one. */
		return h->size > length + 4 ? HEAD_NAMED : HEAD_SILENT;
	case 0x1a: put_text(h, "reset"); break;
	case 0x1c: put_text(h, "fetch"); break;
	case 0x1f: put_text(h, "reset connection"); break;
	default: put_text(h, "command"); break;
	}
	return HEAD_NAMED;
}

/* --- Kafka --- */

__noinline int parse_kafka(struct head *h)
{
	if (!h)
		return HEAD_OTHER;
	u32 n = h->length, o = 0;
	bool known = h->protocol == PROTOCOL_KAFKA;

	if (h->bytes[0] & 0x80)
		return HEAD_OTHER;
	if (n < 18 && !(known && n >= 12))
		return HEAD_PARTIAL;
	u32 length = be32_at(h, 0), key = byte_at(h, 5), version = byte_at(h, 7);
	if (length < 10 || byte_at(h, 4) || key > 127 || byte_at(h, 6) || version > 31 || byte_at(h, 8) & 0x80)
		return HEAD_OTHER;
	if (!known) {
		u32 client = byte_at(h, 12) << 8 | byte_at(h, 13);

		/* One request as a whole, from a client that has a name. */
		if (length + 4 != h->size || client < 4 || client > 255 || client + 10 > length)
			return HEAD_OTHER;
		for (u32 k = 14; k < 18; k++)
			if (!is_printable(byte_at(h, k)))
				return HEAD_OTHER;
	}
	if (key > 99)
		put(h, o++, '1');
	if (key > 9)
		put(h, o++, '0' + key / 10 % 10);
	put(h, o++, '0' + key % 10);
	h->used = 0; /* each request has a number of its own */
	h->cursor.out = o;
	return HEAD_NAMED;
}

/* --- Memcached, text --- */

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

/* --- any protocol --- */

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
	/* HTTP/2 says so at once; its requests are not one after another. */
	if (is_tls(h) || *(u64 *)h->bytes == W('P', 'R', 'I', ' ', '*', ' ', 'H', 'T')) {
		h->protocol = PROTOCOL_OPAQUE;
		return HEAD_NONE;
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

/* --- replies --- */

#define REPLY_PARTIAL 0x100 /* too few bytes to tell */
#define REPLY_INTERIM 0x200 /* a word in between: the reply itself comes later */

static __always_inline u8 reply_at(const struct head *h, u32 i)
{
	barrier_var(i);
	return h->reply[i & (REPLY_BYTES - 1)];
}

static __always_inline int http_status(const struct head *h, u32 i)
{
	if (i + 12 > h->reply_length)
		return REPLY_PARTIAL;
	if (reply_at(h, i) != 'H' || reply_at(h, i + 1) != 'T' || reply_at(h, i + 4) != '/' || reply_at(h, i + 8) != ' ')
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
	if (status == REPLY_INTERIM && h->reply_length > 25 && reply_at(h, 24) == '\n' && reply_at(h, 22) == '\n')
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
		if (i + 5 > h->reply_length || reply_at(h, i + 1) || reply_at(h, i + 2) || reply_at(h, i + 3))
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

/* The status that the beginning of a reply in h tells, or one of the two words above. */
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
