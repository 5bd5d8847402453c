/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Requests and replies of TLS connections, out of what the programs at TLS libraries have left.
 *
 * What an end sends is read at the system call, out of the plaintext of the library's call around
 * it. What an end receives is plaintext only after the library's call: a server's request is named
 * when its reply is sent, a client's reply gives its status when the transaction is counted.
 */
#ifndef OUTSIGHT_TLS_TEXT_H
#define OUTSIGHT_TLS_TEXT_H

#include "include/kernel.h"
#include "net/edges.h"
#include "net/proto/parse.h"
#include "net/proto/proto_reply.h"
#include "net/tls.h"
#include "net/user_buffer.h"

/* Whether the programs at TLS libraries are there. Constant: without them there is no cost. */
const volatile bool reads_tls = false;

#define TLS_HANDSHAKE 0x16
#define TLS_DATA 0x17
#define TLS_HEADER 5
#define TLS_MOST (1 << 14)  /* plaintext in a record */
#define TLS_LEAST_MORE 16   /* what encryption adds to it: an authentication tag alone... */
#define TLS_MOST_MORE 128   /* ... or a vector, another digest and padding to a block */

struct pt_regs___go {
	unsigned long r14;
} __attribute__((preserve_access_index));

static __always_inline bool is_tls_record(const u8 *b, u32 n)
{
	return n >= 3 && b[0] >= 0x14 && b[0] <= TLS_DATA && b[1] == 3 && b[2] && b[2] <= 4;
}

/* The library's call, on this thread or by this goroutine, that writes. */
static __noinline int current_tls_write(struct tls_call *to, struct tls_call_key *who)
{
	u64 id = bpf_get_current_pid_tgid();

	if (!to || !who)
		return false;
	who->who = (u32)id;
	who->group = id >> 32;
	who->kind = TLS_WRITES;
	struct tls_call *by_thread = bpf_map_lookup_elem(&tls_calls, who);
	if (by_thread) {
		*to = *by_thread;
		return true;
	}
	if (architecture != ARCHITECTURE_AMD64)
		return false;
	struct pt_regs___go *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	who->who = regs->r14;
	who->kind = TLS_GO_WRITES;
	struct tls_call *by_goroutine = bpf_map_lookup_elem(&tls_calls, who);
	if (!by_goroutine)
		return false;
	*to = *by_goroutine;
	return true;
}

/*
 * Whether the record that begins so can hold what the call writes, or its beginning. Handshakes
 * within a call, and other connections that the same thread sends on, are told apart by it.
 */
static __always_inline bool holds(const u8 *record, u64 size)
{
	u32 length = (u32)record[3] << 8 | record[4];

	if (record[0] != TLS_DATA || length <= TLS_LEAST_MORE)
		return false;
	if (length > size + TLS_MOST_MORE)
		return false;
	/* Some send the first records of a connection short, so that they fit into one packet. */
	return length >= (size < 1024 ? size : 1024) + TLS_LEAST_MORE;
}

/*
 * Reads the plaintext of what is sent in an encrypted record, of which the beginning is there. The
 * answer is how much was read; 0 if it is not known.
 */
static __always_inline u32 read_tls_sent(struct connection *c, u8 *to, const u32 limit,
					 const u8 *record, u32 *size)
{
	struct tls_call_key who = {};
	struct tls_call call = {};

	if (!current_tls_write(&call, &who) || !holds(record, call.size))
		return 0;
	u64 all = call.size;
	u32 n = at_most(all, limit);
	if (!n || bpf_probe_read_user(to, n, (void *)call.text))
		return 0;
	c->tls_connection = call.connection;
	c->tls_group = who.group;
	*size = all > 1 << 30 ? 1 << 30 : all;
	return n;
}

/* What this end has read last on the connection, if that was after its transaction began. */
static __always_inline struct tls_connection *tls_received(struct connection *c)
{
	struct tls_connection_key key = {.connection = c->tls_connection, .group = c->tls_group};
	struct tls_connection *found = bpf_map_lookup_elem(&tls_connections, &key);

	if (!found)
		return NULL;
	if (!found->length || found->read_ns < c->first_ns)
		return NULL;
	return found;
}

/*
 * Whether what is transferred is encrypted. Once a connection has sent a record it is: it may have
 * begun in the clear. The same bytes may be the length of a long statement of MySQL.
 */
static __always_inline bool is_tls_transfer(struct connection *c, const u8 *b, u32 n, u32 size)
{
	if (c->flags & CONNECTION_TLS)
		return true;
	if (!is_tls_record(b, n))
		return false;
	if (c->head.protocol == PROTOCOL_MYSQL && size == (b[0] | 3 << 8 | b[2] << 16) + 4)
		return false;
	__sync_fetch_and_or(&c->flags, CONNECTION_TLS);
	return true;
}

/*
 * Puts the plaintext of a client's request, of which n encrypted bytes are there, in their place.
 */
static __always_inline u32 read_tls_request(struct connection *c, u64 *bytes, u32 n, u32 *size)
{
	u64 record = bytes[0];

	__builtin_memset(bytes, 0, HEAD_BYTES);
	if (c->role != ROLE_CLIENT || n < TLS_HEADER)
		return 0;
	return read_tls_sent(c, (u8 *)bytes, HEAD_BYTES, (u8 *)&record, size);
}

/* Reads the plaintext of a server's reply. */
static __noinline int read_tls_reply(struct connection *c, u32 size)
{
	struct user_buffer from;
	u64 record = 0;

	if (!c)
		return STATUS_UNKNOWN;
	c->head.reply_length = 0;
	if (c->role != ROLE_SERVER || !find_buffer(&from) || from.size < TLS_HEADER ||
	    size < TLS_HEADER)
		return STATUS_UNKNOWN;
	if (bpf_probe_read_user(&record, TLS_HEADER, (void *)from.at))
		return STATUS_UNKNOWN;
	u32 n = read_tls_sent(c, c->head.reply, REPLY_BYTES * 3 / 4, (u8 *)&record, &size);
	c->head.reply_length = n;
	return n ? parse_reply(&c->head) : STATUS_UNKNOWN;
}

/*
 * Names the request of a server's transaction, now that it is known which of the library's
 * connections it came on. False where its name or its status cannot be known now.
 */
static __noinline int begin_tls_reply(struct connection *c, u32 size)
{
	if (!c || c->role != ROLE_SERVER || c->head.protocol == PROTOCOL_OPAQUE)
		return false;
	struct head *h = &c->head;
	read_tls_reply(c, size);
	if (!h->reply_length)
		return false;
	struct tls_connection *request = tls_received(c);
	if (!request)
		return false;
	h->length = request->length;
	h->size = request->size;
	__builtin_memcpy(h->bytes, request->bytes, HEAD_BYTES);
	h->state = parse_head(h);
	return h->state == HEAD_NAMED;
}

/* What the reply to a client's request says, as far as the client has read it. */
static __noinline int tls_status(struct connection *c)
{
	if (!c || c->role != ROLE_CLIENT)
		return STATUS_UNKNOWN;
	struct head *h = &c->head;
	struct tls_connection *reply = tls_received(c);
	if (!reply)
		return STATUS_UNKNOWN;
	__builtin_memcpy(h->reply, reply->bytes, REPLY_BYTES);
	h->reply_length = reply->length < REPLY_BYTES ? reply->length : REPLY_BYTES;
	return parse_reply(h);
}

#endif
