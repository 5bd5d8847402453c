/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* What a responder counts, and its keys and packets: docs/format/region-read.md. */
#ifndef OUTSIGHT_REGION_H
#define OUTSIGHT_REGION_H

#include "include/kernel.h"

#define READ_MAGIC 0x4452534f /* "OSRD" */
#define READ_VERSION 1
#define READ_BLOCK 128 /* offsets and lengths are multiples of it */
#define READ_MAX 1024
#define READ_MOST 16 /* requests in one packet */

enum read_kind {
	READ_REQUEST = 1,
	READ_REPLY = 2,
};

enum read_status {
	READ_DONE = 0,
	READ_UNKNOWN_REGION = 1,
	READ_OUT_OF_BOUNDS = 2,
};

/* Begins each packet; the data, or as many bytes of padding, follow. Little endian. */
struct read_header {
	u32 magic;
	u8 version;
	u8 kind;
	u16 key;
	u32 region;
	u16 length;
	u16 status;
	u64 offset;
	u64 nonce;
	u64 mac;
};

struct read_key {
	u64 words[2];
};

/*
 * Of requests to the responder's port and addresses: each is counted once. Of a packet that is not answered the first
 * wrong one is counted, or all that are over the rate.
 */
struct read_counters {
	u64 reads;
	u64 bytes;
	u64 not_allowed;
	u64 truncated;
	u64 malformed;
	u64 unknown_key;
	u64 wrong_mac;
	u64 over_rate;
	u64 misaligned;
	u64 oversized;
	u64 unknown_region;
	u64 out_of_bounds;
	u64 faults;
};

#endif
