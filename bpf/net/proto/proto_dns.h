/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * DNS: names of queries, and its messages over TCP, which come after their length (RFC 1035,
 * 4.2.2).
 *
 * A name is of bounded length: of one that is too long its end stays, "*.svc.cluster.local", and
 * addresses that are looked up backwards are all "*.in-addr.arpa".
 */
#ifndef OUTSIGHT_PROTO_DNS_H
#define OUTSIGHT_PROTO_DNS_H

#include "include/kernel.h"
#include "net/proto/proto_text.h"

#define DNS_HEADER 12
#define DNS_HEAD 128 /* how much of a message is looked at */

struct dns_question {
	u8 packet[DNS_HEAD];
	u8 text[DNS_HEAD]; /* the packet's name with dots, at the same index */
	u8 name[ENDPOINT_NAME];
	volatile u32 left;  /* of the label */
	volatile u32 end;   /* of the name in the packet, 0 if it is not there */
	volatile u32 start; /* of what is kept of it */
	volatile u32 at;    /* where in the endpoint's name it goes */
};

/* --- names --- */

static __always_inline u8 dns_letter(u8 b)
{
	if (b >= 'A' && b <= 'Z')
		return b | 0x20;
	return b > 0x20 && b < 0x7f ? b : '?';
}

static __always_inline u32 put_type(u8 *name, u32 type)
{
	u64 word = W('?', ' ', 0, 0, 0, 0, 0, 0);
	u32 length = 2;

#define DNS_TYPE(number, text)                            \
	case number:                                      \
		word = 0;                                 \
		__builtin_memcpy(&word, text " ", sizeof(text)); \
		length = sizeof(text);                    \
		break
	switch (type) {
		DNS_TYPE(1, "A");
		DNS_TYPE(2, "NS");
		DNS_TYPE(5, "CNAME");
		DNS_TYPE(6, "SOA");
		DNS_TYPE(12, "PTR");
		DNS_TYPE(15, "MX");
		DNS_TYPE(16, "TXT");
		DNS_TYPE(28, "AAAA");
		DNS_TYPE(33, "SRV");
		DNS_TYPE(64, "SVCB");
		DNS_TYPE(65, "HTTPS");
		DNS_TYPE(255, "ANY");
	}
#undef DNS_TYPE
	*(u64 *)name = word;
	return length;
}

#define DNS_PTR 12
#define DNS_FIRST (DNS_HEADER + 1) /* the first letter; the byte before is its label's length */

/*
 * What the loops below find is kept in memory, and volatile: the verifier would follow each value
 * that it may have through all that comes after.
 */
static __always_inline void find_name_end(struct dns_question *x, u32 n)
{
	x->left = 0;
	x->end = 0;
	for (u32 i = DNS_HEADER; i < DNS_HEAD - 2; i++) {
		u8 b = x->packet[i];

		if (i + 2 >= n)
			return;
		if (x->left) {
			x->left--;
			x->text[i] = dns_letter(b);
		} else if (!b) {
			x->end = i;
			return;
		} else if (b > 63) {
			return;
		} else {
			x->left = b;
			x->text[i] = '.';
		}
	}
}

/* Where the part of the name that is kept begins, which is room long at most. */
static __always_inline void find_name_start(struct dns_question *x, u32 room)
{
	u32 end = x->end;

	x->start = DNS_FIRST;
	if (end - DNS_FIRST <= room)
		return;
	for (u32 i = DNS_FIRST; i < DNS_HEAD; i++) {
		if (i >= end)
			return;
		if (x->text[i] == '.' && end - i < room) {
			x->start = i;
			return;
		}
	}
}

static __always_inline bool is_arpa(const struct dns_question *x, u32 end)
{
	return end > DNS_FIRST + 8 && x->text[(end - 5) & 127] == '.' &&
	       x->text[(end - 4) & 127] == 'a' && x->text[(end - 3) & 127] == 'r' &&
	       x->text[(end - 2) & 127] == 'p' && x->text[(end - 1) & 127] == 'a';
}

/*
 * Sets the name from the first n bytes of the packet. Like parse_dns it is not static, so
 * that the verifier looks at it by itself, and once.
 */
__noinline int dns_name(struct dns_question *x, u32 n)
{
	if (!x)
		return 0;
	u8 *name = x->name;
	__builtin_memset(name, 0, ENDPOINT_NAME);
	find_name_end(x, n);
	u32 end = x->end;
	if (end < DNS_HEADER || end > DNS_HEAD - 3) {
		__builtin_memcpy(name, "invalid", 7);
		return 0;
	}
	u32 type = (u32)x->packet[(end + 1) & 127] << 8 | x->packet[(end + 2) & 127];
	x->at = put_type(name, type);
	if (end == DNS_HEADER) {
		name[x->at & 7] = '.'; /* the root */
		return 0;
	}
	if (type == DNS_PTR && is_arpa(x, end))
		/* ...ip6.arpa or ...in-addr.arpa */
		x->start = x->text[(end - 6) & 127] == '6' ? end - 9 : end - 13;
	else
		find_name_start(x, ENDPOINT_NAME - 1 - x->at);
	u32 at = x->at, start = x->start;
	if (x->text[start & 127] == '.')
		name[at++ & 7] = '*';
	for (u32 i = 0; i < ENDPOINT_NAME - 1; i++) {
		u32 to = at + i, from = start + i;

		/* Else the compiler checks another value than it uses. */
		asm volatile("" : "+r"(to));
		if (to >= ENDPOINT_NAME - 1 || from >= end)
			break;
		name[at_most(to, ENDPOINT_NAME - 1)] = x->text[from & 127];
	}
	return 0;
}

/* --- over TCP --- */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct dns_question);
} dns_questions SEC(".maps");

#define DNS_PREFIX 2 /* the message's length */
#define DNS_LEAST (DNS_HEADER + 5)
#define DNS_NOTIFY 4
#define DNS_UPDATE 5

static __always_inline u32 dns_length(const struct head *h)
{
	return (u32)byte_at(h, 0) << 8 | byte_at(h, 1);
}

/*
 * Several queries before the first reply: which of them that is for, and which replies are still to
 * come, is not guessed.
 */
static __always_inline bool is_dns_pipeline(const struct head *h)
{
	return h->size > dns_length(h) + DNS_PREFIX;
}

/*
 * The header that queries of clients have: no bits of replies, one question, nothing but additions.
 */
static __always_inline bool is_plain_query(const struct head *h)
{
	return !(byte_at(h, 4) & 0xfe) && !(byte_at(h, 5) & 0xcf) && !byte_at(h, 8) &&
	       !byte_at(h, 9) && !byte_at(h, 10) && !byte_at(h, 11) && !byte_at(h, 12) &&
	       byte_at(h, 13) <= 2;
}

/* Whether the message ends where its question does, unless it has additions. */
static __always_inline bool is_whole_query(const struct head *h, const struct dns_question *x)
{
	u32 end = x->end, length = dns_length(h);
	u8 class = x->packet[(end + 4) & 127];

	if (!end || end + 5 > DNS_HEAD - DNS_PREFIX || x->packet[(end + 3) & 127])
		return false;
	if (class != 1 && class != 3 && class != 255)
		return false;
	return byte_at(h, 13) ? length > end + 5 : length == end + 5;
}

__noinline int parse_dns(struct head *h)
{
	u32 zero = 0;
	struct dns_question *x = bpf_map_lookup_elem(&dns_questions, &zero);

	if (!h || !x)
		return HEAD_OTHER;
	bool known = h->protocol == PROTOCOL_DNS;
	u32 n = h->length, length = dns_length(h);
	if (n >= DNS_PREFIX && length < DNS_LEAST)
		return HEAD_OTHER;
	if (n < DNS_PREFIX + DNS_HEADER)
		return HEAD_PARTIAL;
	u32 operation = byte_at(h, 4) >> 3;
	if (byte_at(h, 6) || byte_at(h, 7) != 1 || (operation & 0x10) ||
	    (!known && !is_plain_query(h)))
		return HEAD_OTHER;
	h->used = 0; /* each has a number of its own */
	if (is_dns_pipeline(h)) {
		put_text(h, "pipelined");
		return known ? HEAD_NAMED : HEAD_OTHER;
	}
	if (operation == DNS_NOTIFY) {
		put_text(h, "notify");
		return HEAD_NAMED;
	}
	if (operation == DNS_UPDATE) {
		put_text(h, "update");
		return HEAD_NAMED;
	}
	if (operation)
		return HEAD_OTHER;
	__builtin_memcpy(x->packet, h->bytes + DNS_PREFIX, DNS_HEAD - DNS_PREFIX);
	dns_name(x, n - DNS_PREFIX);
	bool more = h->size < length + DNS_PREFIX;
	if (more && n < HEAD_ENOUGH && (!x->end || !known))
		return HEAD_PARTIAL;
	if (!known && (more || !is_whole_query(h, x)))
		return HEAD_OTHER;
	__builtin_memcpy(h->scratch, x->name, ENDPOINT_NAME);
	h->cursor.out = ENDPOINT_NAME;
	return HEAD_NAMED;
}

static __always_inline void name_pipeline(struct head *h)
{
	put_text(h, "pipelined");
	set_name(h);
}

static __always_inline int parse_dns_reply(struct head *h)
{
	if (h->reply_length < 6)
		return REPLY_PARTIAL;
	if (!(h->reply[4] & 0x80) || is_dns_pipeline(h))
		return STATUS_UNKNOWN;
	if (h->reply[2] != h->bytes[2] || h->reply[3] != h->bytes[3]) {
		name_pipeline(h);
		return STATUS_UNKNOWN;
	}
	u32 code = h->reply[5] & 15;
	return code ? STATUS_RCODE + code : STATUS_OK;
}

#endif
