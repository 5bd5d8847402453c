/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Kafka: the request's key, whose name the reader knows. */
#ifndef OUTSIGHT_PROTO_KAFKA_H
#define OUTSIGHT_PROTO_KAFKA_H

#include "include/kernel.h"
#include "net/proto/proto_text.h"

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
	if (length < 10 || byte_at(h, 4) || key > 127 || byte_at(h, 6) || version > 31 ||
	    byte_at(h, 8) & 0x80)
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

#endif
