/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* What is remembered of one direction of an HTTP/2 connection. */
#ifndef OUTSIGHT_DIRECTION_H
#define OUTSIGHT_DIRECTION_H

#include "include/kernel.h"
#include "net/proto/endpoints.h"

#define HTTP2_PREFACE 24
#define HTTP2_FRAME_HEADER 9

enum http2_frame {
	FRAME_DATA = 0,
	FRAME_HEADERS = 1,
	FRAME_PRIORITY = 2,
	FRAME_RST_STREAM = 3,
	FRAME_SETTINGS = 4,
	FRAME_PUSH_PROMISE = 5,
	FRAME_PING = 6,
	FRAME_GOAWAY = 7,
	FRAME_WINDOW_UPDATE = 8,
	FRAME_CONTINUATION = 9,
};

#define FRAME_END_STREAM 0x1
#define FRAME_END_HEADERS 0x4
#define FRAME_PADDED 0x8
#define FRAME_HAS_PRIORITY 0x20

/* Where a direction is. */
enum http2_state {
	HTTP2_NEW = 0,	  /* nothing of it was seen since the connection is known to be HTTP/2 */
	HTTP2_GREETS = 1, /* within the client's preface */
	HTTP2_FOLLOWED = 2,
	HTTP2_LOST = 3,
	HTTP2_JOINING = 4, /* the next call that holds whole frames is where it begins */
};

/* What a step has found. */
enum http2_event {
	HTTP2_DONE = 0, /* all bytes of the call are used */
	HTTP2_GOES_ON = 1,
	HTTP2_BLOCK = 2, /* a block of header fields, which may end the stream */
	HTTP2_END = 3,	 /* data that ends the stream */
	HTTP2_RESET = 4,
	HTTP2_PUSH = 5,
	HTTP2_LOSES = 6,
};

/*
 * Findings of one call, and steps to the next one: more than fit into what programs write at a
 * time.
 */
#define HTTP2_FINDINGS 4096
#define HTTP2_FINDINGS_AT_ONCE 64
#define HTTP2_STEPS 256

/* Bytes of a header block that are at hand, a power of two; a field of interest is shorter. */
#define HTTP2_WINDOW 256
#define HTTP2_VALUE 128 /* encoded */
#define HTTP2_PATH 88

#define HTTP2_AHEAD 128

/* The last entries that the peer has put into its table. A table of the usual size holds fewer. */
#define HTTP2_ENTRIES 128

/* What is left of the bytes that a call has transferred: of a buffer, and the vector behind it. */
struct http2_source {
	u64 at;
	u64 room;
	u64 vector;
	u64 parts;
	u32 left;
	u32 blind; /* the bytes cannot be read */
	/* Bytes that were read ahead: frames are short, and each read costs more than a copy. */
	u64 ahead_at;
	u64 ahead;
	u8 bytes[HTTP2_AHEAD + 16];
};

struct http2_direction {
	u64 connection; /* a number that no other end has */
	u64 first_ns;	/* when the block's first byte was received */
	u64 now_ns;
	u64 sent_ns;	/* of replies, at a client: when the kernel sent what they answer; else 0 */
	struct http2_source source;

	/* The frame. */
	u32 payload; /* bytes still to come, with padding */
	u32 stream;
	u8 type;
	u8 flags;
	u8 got;	   /* bytes of the frame's header; all of them within a frame */
	u8 padded; /* its length of padding is still to come */
	u8 pad;
	u8 front; /* bytes before the block that say nothing here */
	u8 state;
	/* longer than a header, for the verifier's sake */
	u8 header[33] __attribute__((aligned(8)));

	/* The block, what it said, and the field that is being read. */
	u8 in_block;
	u8 ends; /* the stream */
	u8 pushed;
	u8 broken;
	u8 unseen; /* it refers to fields that were not seen */
	u8 method;
	u8 status;	/* class */
	u8 grpc_status; /* and one */
	u8 grpc;
	u8 has_path;
	u8 part;
	u8 kind;
	u8 insert;
	u8 huffman;
	u8 cut;
	u8 gone; /* its path was evicted */
	u32 block_stream;
	u32 at;	  /* in the window */
	u32 end;  /* of what is in the window */
	u32 skip; /* bytes of a string that are of no interest */
	u32 number;
	u32 inserted; /* entries of the peer's table so far */
	u32 forgotten; /* and how many of the first of them are not known */

	/* A string that is being decoded, or a path that is being made a name. */
	u32 in;
	u32 in_end;
	u32 out;
	u32 out_end;
	u64 bits;
	u32 bits_left;
	u32 segment;
	u32 length;
	u32 digits;
	u32 hex;
	u32 pad1;
	u16 entries[HTTP2_ENTRIES];
	u8 text[128]; /* the path, and from HTTP2_WORD on other values */
	u8 name[128]; /* ENDPOINT_KEY_NAME of them */
	u8 window[2 * HTTP2_WINDOW]; /* twice, for the verifier's sake */
};

#define HTTP2_WORD 96
#define HTTP2_WORD_LIMIT 17

#endif
