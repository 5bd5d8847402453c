/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* PostgreSQL and MySQL: kind of message, and first word of the statement. */
#ifndef OUTSIGHT_PROTO_SQL_H
#define OUTSIGHT_PROTO_SQL_H

#include "include/kernel.h"
#include "net/proto/proto_text.h"

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

/*
 * A byte before a statement's first word: blanks, brackets and comments; 0 where the word begins.
 */
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
 * Adds the first word of a statement, from the cursor to byte end, to what is put together.
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
			if (end + 4 < n &&
			    (byte_at(h, end + 1) || byte_at(h, end + 2) || byte_at(h, end + 3)))
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

#endif
