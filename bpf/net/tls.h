/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Plaintext of encrypted connections, as the programs at TLS libraries (tls.bpf.c) leave it for
 * those that see the data of sockets (tls_text.h).
 */
#ifndef OUTSIGHT_TLS_H
#define OUTSIGHT_TLS_H

#include "include/kernel.h"
#include "include/lru.h"
#include "net/proto/endpoints.h"

enum tls_call_kind {
	TLS_WRITES = 0, /* who is a thread */
	TLS_READS = 1,
	TLS_GO_WRITES = 2, /* who is a goroutine: it may change its thread within the call */
	TLS_GO_READS = 3,
};

/* A thread, or goroutine, within a call of a library. */
struct tls_call_key {
	u64 who;
	u32 group; /* process */
	u32 kind;
};

struct tls_call {
	u64 connection; /* where the library keeps it; a name for it */
	u64 text;	/* where the plaintext is, or is to be */
	u64 size;
	u64 result; /* where the length is put in the end, of calls that return another thing */
};

struct tls_connection_key {
	u64 connection;
	u32 group;
	u32 unused;
};

/* What was read last on a connection: a request at a server, a reply at a client. */
struct tls_connection {
	u64 read_ns; /* when its beginning was read */
	u32 size;
	u8 length;  /* of bytes */
	u8 written; /* something was written since: what is read next is a new message */
	u16 unused;
	u8 bytes[HEAD_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct tls_call_key);
	__type(value, struct tls_call);
} tls_calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct tls_connection_key);
	__type(value, struct tls_connection);
} tls_connections SEC(".maps");

#endif
