/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of requests that were recognised, shared with their reader. */
#ifndef OUTSIGHT_ENDPOINTS_H
#define OUTSIGHT_ENDPOINTS_H

#include "include/kernel.h"

#define HEAD_BYTES 128	 /* how much of a request is looked at */
#define REPLY_BYTES 64	 /* how much of a reply is looked at */
#define ENDPOINT_NAME 48 /* padded with zeros */
#define ENDPOINT_KEY_NAME 96 /* HTTP/2 has longer ones: names of services are in them */

enum protocol {
	PROTOCOL_UNKNOWN = 0,
	PROTOCOL_HTTP = 1,
	PROTOCOL_REDIS = 2,
	PROTOCOL_POSTGRESQL = 3,
	PROTOCOL_MYSQL = 4,
	PROTOCOL_KAFKA = 5,
	PROTOCOL_MEMCACHED = 6,
	PROTOCOL_DNS = 7,
	PROTOCOL_HTTP2 = 8,
	PROTOCOL_GRPC = 9, /* of endpoints; the connection is HTTP/2 */
	/* Nothing to be read here: encrypted, or not recognised several times. */
	PROTOCOL_OPAQUE = 255,
};

/* What the first bytes of a reply say. 1 to 5 are the classes of HTTP's status codes. */
enum status {
	STATUS_UNKNOWN = 0,
	STATUS_OK = 6,
	STATUS_ERROR = 7,
	STATUS_SWITCHED = 8, /* HTTP 101: what follows is another protocol */
	STATUS_RCODE = 16, /* and the response code of DNS, 1 to 15 */
	STATUS_GRPC = 32,  /* and the status of a gRPC call, 0 to 16 */
};

struct endpoint_key {
	u32 edge; /* its index */
	u8 protocol;
	u8 status;
	u16 pad;
	u8 name[ENDPOINT_KEY_NAME];
};

struct endpoint {
	struct endpoint_key key;
	u32 used;	/* 0 while the index is free */
	u32 generation; /* of the index: connections that remember an older one look again */
	u64 latency_sum_ns;
	u64 aside; /* transactions that are in no latency: bulk transfers and long polls */
	u64 begun; /* its number in endpoints_begun; 0 until all but the counters is written */
	u32 edge_generation;
	u32 unused;
	u64 unused_too[4];
};

/* How many endpoints an edge has, other than those called "other", and whose the edge is. */
struct edge_endpoints {
	u64 owner;
	u32 count;
	u32 unused;
};

enum head_state {
	HEAD_NONE = 0,	  /* not recognised */
	HEAD_PARTIAL = 1, /* too few bytes so far */
	HEAD_NAMED = 2,
	HEAD_SILENT = 3, /* named; the protocol has no reply to it */
	HEAD_HTTP2 = 4,	 /* the preface of HTTP/2 */
};

#define HEAD_WATCH_STATUS 1 /* the reply's status is not known yet */
#define HEAD_WATCH_NOTICE 2 /* the server may send notices at any time (PostgreSQL: LISTEN) */

/*
 * Where a parser is. It lies in the map's memory, not in registers: the verifier follows each value
 * of a register through a loop by itself, and would give up.
 */
struct cursor {
	u64 word;    /* up to eight characters */
	u8 in;	     /* index in bytes */
	u8 out;	     /* index in scratch; at the end, the name's length */
	u8 segment;  /* of a path: where it begins in scratch */
	u8 length;   /* of the segment */
	u8 digits;   /* in the segment */
	u8 hex;	     /* digits, letters to f and hyphens in the segment */
	u8 slashes;  /* still to come before the path */
	u8 comment;  /* within a comment */
};

/* What is remembered of a connection's requests. */
struct head {
	/* endpoint of the current transaction: index, generation << 32; 0 if not known */
	u64 target;
	u64 cached; /* the target of name with cached_status on cached_edge */
	u32 cached_edge;
	u32 size;	 /* bytes of the request so far */
	u8 protocol;
	u8 state;
	u8 cached_status;
	u8 length;	 /* of bytes */
	u8 used;	 /* by how many bytes name was decided; 0: by more than is kept */
	u8 reply_length; /* of reply */
	u8 watch;
	u8 failures; /* requests that were not recognised, while the protocol is not known */
	u8 streams;  /* if the reply is no error, the connection has transactions no more */
	u8 greeted;  /* the server sent before the first request, and it was not HTTP/2 */
	u8 pad[2];
	u32 looks;   /* parts of requests in which HTTP/2 was looked for; see may_join_http2 */
	/*
	 * What follows up to name is touched by every transaction, the rest by new requests only.
	 */
	u8 reply[REPLY_BYTES];
	u8 bytes[HEAD_BYTES];
	u8 name[ENDPOINT_NAME];
	struct cursor cursor;
	u8 scratch[72]; /* where a name is put together */
};

/* After so many requests that were not recognised a connection is left alone. */
#define HEAD_FAILURES 8

/*
 * HTTP/2 is looked for in so many parts of requests of a connection that is older than the probes,
 * then in every JOIN_THEN_EVERYth, a prime, lest a regular pattern of calls is always looked at in
 * the same place. Looking costs as much as two transfers.
 */
#define JOIN_LOOKS 64
#define JOIN_THEN_EVERY 31

enum endpoint_drop {
	DROP_ENDPOINT = 0,     /* counted under "other" of its edge */
	DROP_ENDPOINT_ALL = 1, /* counted under ENDPOINT_OVERFLOW */
	ENDPOINT_DROPS = 2,
};

#endif
