/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Reads the beginnings of requests and replies out of the memory of the task that sends or
 * receives them, and counts transactions by endpoint.
 */
#ifndef OUTSIGHT_REQUESTS_H
#define OUTSIGHT_REQUESTS_H

#include "heads.h"

enum machine {
	MACHINE_OTHER = 0, /* its registers are not known: requests are not read */
	MACHINE_X86_64 = 1,
	MACHINE_ARM64 = 2,
};

const volatile u32 machine = MACHINE_OTHER;

/* Endpoints of one edge; further ones are its "other". */
const volatile u32 max_edge_endpoints = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct endpoint);
} endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} endpoint_latency SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct edge_endpoints);
} edge_endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct endpoint_key);
	__type(value, u32);
} endpoint_of_key SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_endpoints SEC(".maps");

/* Kept back for the endpoints called "other". */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} reserved_endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ENDPOINT_DROPS);
	__type(key, u32);
	__type(value, u64);
} endpoint_drops SEC(".maps");

static __always_inline void count_endpoint_drop(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&endpoint_drops, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

/* --- the caller's buffer --- */

/* The first two parts of what a system call sends or receives. */
struct user_buffer {
	u64 at;
	u64 size;
	u64 next;
	u64 next_size;
};

struct user_iovec {
	u64 base;
	u64 size;
};

/* Registers as a system call was entered with; the names of the arguments follow the machine. */
struct pt_regs___x86_64 {
	unsigned long si;
	unsigned long di;
	unsigned long dx;
	unsigned long orig_ax;
	unsigned long cs;
} __attribute__((preserve_access_index));

struct pt_regs___arm64 {
	u64 regs[31];
	s32 syscallno;
} __attribute__((preserve_access_index));

enum call {
	CALL_OTHER = 0,
	CALL_BUFFER = 1,
	CALL_VECTOR = 2,
	CALL_MESSAGE = 3,
	CALL_BATCH = 4, /* of messages */
};

static __always_inline u32 call_of_x86_64(u64 number)
{
	switch (number) {
	case 0:	 /* read */
	case 1:	 /* write */
	case 44: /* sendto */
	case 45: /* recvfrom */
		return CALL_BUFFER;
	case 19: /* readv */
	case 20: /* writev */
		return CALL_VECTOR;
	case 46: /* sendmsg */
	case 47: /* recvmsg */
		return CALL_MESSAGE;
	case 299: /* recvmmsg */
	case 307: /* sendmmsg */
		return CALL_BATCH;
	}
	return CALL_OTHER; /* sendfile, splice, io_uring and others have no buffer here */
}

static __always_inline u32 call_of_arm64(s32 number)
{
	switch (number) {
	case 63:  /* read */
	case 64:  /* write */
	case 206: /* sendto */
	case 207: /* recvfrom */
		return CALL_BUFFER;
	case 65: /* readv */
	case 66: /* writev */
		return CALL_VECTOR;
	case 211: /* sendmsg */
	case 212: /* recvmsg */
		return CALL_MESSAGE;
	case 243: /* recvmmsg */
	case 269: /* sendmmsg */
		return CALL_BATCH;
	}
	return CALL_OTHER;
}

#define X86_64_USER_CS 0x33 /* a 32-bit program counts its system calls in another way */

/* What the current system call is, its second argument and its third. */
static __always_inline u32 current_call(u64 *second, u64 *third)
{
	void *saved = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

	if (machine == MACHINE_X86_64) {
		struct pt_regs___x86_64 *regs = saved;

		if (regs->cs != X86_64_USER_CS)
			return CALL_OTHER;
		*second = regs->si;
		*third = regs->dx;
		return call_of_x86_64(regs->orig_ax);
	}
	if (machine == MACHINE_ARM64) {
		struct pt_regs___arm64 *regs = saved;

		*second = regs->regs[1];
		*third = regs->regs[2];
		return call_of_arm64(regs->syscallno);
	}
	return CALL_OTHER;
}

/*
 * Where the bytes are that the current system call hands over: a buffer and its size, or a vector, also
 * that of a message, and its length. CALL_OTHER if that cannot be had.
 */
static __always_inline u32 current_bytes(u64 *at, u64 *count)
{
	u64 message[2];
	u32 call = current_call(at, count);

	if (call == CALL_BUFFER || call == CALL_VECTOR)
		return call;
	/* struct msghdr: the vector and its length begin at byte 16. */
	if (call != CALL_MESSAGE || bpf_probe_read_user(message, sizeof(message), (void *)(*at + 16)))
		return CALL_OTHER;
	*at = message[0];
	*count = message[1];
	return CALL_VECTOR;
}

static __always_inline bool find_buffer(struct user_buffer *to)
{
	struct user_iovec part = {};
	u64 at, count;

	switch (current_bytes(&at, &count)) {
	case CALL_BUFFER:
		to->at = at;
		to->size = count;
		to->next_size = 0;
		return true;
	case CALL_OTHER:
		return false;
	}
	if (!count || bpf_probe_read_user(&part, sizeof(part), (void *)at))
		return false;
	to->at = part.base;
	to->size = part.size;
	to->next_size = 0;
	if (part.size >= HEAD_ENOUGH || count < 2)
		return true;
	if (bpf_probe_read_user(&part, sizeof(part), (void *)(at + sizeof(part))))
		return true;
	to->next = part.base;
	to->next_size = part.size;
	return true;
}

/*
 * Reads up to limit of the bytes that the current call has transferred, of which there are
 * size. The answer is how many were read; 0 where they cannot be had.
 */
static __always_inline u32 read_buffer(u8 *to, u32 limit, u32 size)
{
	struct user_buffer from;
	u32 first, second;

	if (!find_buffer(&from))
		return 0;
	first = from.size < size ? from.size : size;
	second = size - first;
	first = at_most(first, limit);
	if (bpf_probe_read_user(to, first, (void *)from.at))
		return 0;
	if (!second || !from.next_size || first >= limit / 2)
		return first;
	if (second > from.next_size)
		second = from.next_size;
	second = at_most(second, limit / 2);
	if (bpf_probe_read_user(to + at_most(first, limit / 2), second, (void *)from.next))
		return first;
	return first + second;
}

/* As read_buffer, or of what was kept of an early transfer. */
static __always_inline u32 read_transfer(struct connection *c, u8 *to, u32 limit, u32 size, bool early)
{
	if (!early)
		return read_buffer(to, limit, size);
	u32 n = at_most(c->early.length, limit);
	return bpf_probe_read_kernel(to, n, c->early.text) ? 0 : n;
}

#include "tls_text.h"

/* --- endpoints --- */

static __always_inline u64 target_of(u32 place)
{
	struct endpoint *e = bpf_map_lookup_elem(&endpoints, &place);

	return e ? place | (u64)e->generation << 32 : 0;
}

static __always_inline u64 place_endpoint(struct endpoint_key *key, u32 place, bool reserved)
{
	struct endpoint *e = bpf_map_lookup_elem(&endpoints, &place);

	if (!e)
		return 0;
	e->key = *key;
	e->used = 1;
	if (!bpf_map_update_elem(&endpoint_of_key, key, &place, BPF_NOEXIST)) {
		u32 edge = key->edge;
		struct edge_endpoints *of_edge = bpf_map_lookup_elem(&edge_endpoints, &edge);

		if (of_edge && !reserved)
			__sync_fetch_and_add(&of_edge->count, 1);
		if (of_edge)
			owner_gains(of_edge->owner, QUOTA_ENDPOINTS);
		return place | (u64)e->generation << 32;
	}
	/* Another CPU was first. */
	e->used = 0;
	if (reserved)
		bpf_map_push_elem(&reserved_endpoints, &place, BPF_ANY);
	else
		bpf_map_push_elem(&free_endpoints, &place, BPF_ANY);
	u32 *theirs = bpf_map_lookup_elem(&endpoint_of_key, key);
	return target_of(theirs ? *theirs : ENDPOINT_OVERFLOW);
}

static __noinline u64 new_endpoint(struct endpoint_key *key)
{
	u32 place;

	if (!key)
		return 0;
	u32 edge = key->edge;
	struct edge_endpoints *of_edge = bpf_map_lookup_elem(&edge_endpoints, &edge);
	if (!of_edge)
		return 0;
	u32 has = owner_has(of_edge->owner, QUOTA_ENDPOINTS);
	bool over = has >= max_owner_endpoints;
	if (over)
		owner_is_over(of_edge->owner, QUOTA_ENDPOINTS);
	else if (of_edge->count < max_edge_endpoints && !bpf_map_pop_elem(&free_endpoints, &place))
		return place_endpoint(key, place, false);

	count_endpoint_drop(DROP_ENDPOINT);
	__builtin_memset(key->name, 0, sizeof(key->name));
	__builtin_memcpy(key->name, "other", 5);
	u32 *known = bpf_map_lookup_elem(&endpoint_of_key, key);
	if (known)
		return target_of(*known);
	if (has < max_owner_endpoints + max_owner_endpoints / 8 && !bpf_map_pop_elem(&reserved_endpoints, &place))
		return place_endpoint(key, place, true);
	count_endpoint_drop(DROP_ENDPOINT_ALL);
	return target_of(ENDPOINT_OVERFLOW);
}

static __noinline int find_endpoint(struct connection *c, u32 status)
{
	struct endpoint_key key = {};

	if (!c)
		return 0;
	struct head *h = &c->head;
	key.edge = c->edge;
	key.protocol = h->protocol;
	key.status = status;
	__builtin_memcpy(key.name, h->name, sizeof(h->name));
	u32 *known = bpf_map_lookup_elem(&endpoint_of_key, &key);
	h->target = known ? target_of(*known) : new_endpoint(&key);
	h->cached = h->target;
	h->cached_status = status;
	h->cached_edge = c->edge;
	return 0;
}

/* Decides which endpoint the connection's transaction belongs to. */
static __always_inline void resolve_endpoint(struct connection *c, u32 status)
{
	struct head *h = &c->head;

	if (h->cached && h->cached_status == status && h->cached_edge == c->edge) {
		u32 place = h->cached;
		struct endpoint *e = bpf_map_lookup_elem(&endpoints, &place);

		if (e && e->generation == h->cached >> 32) {
			h->target = h->cached;
			return;
		}
	}
	find_endpoint(c, status);
}

/* No cell of a histogram: of transactions whose time does not tell of the service. */
#define CELL_ASIDE HISTOGRAM_CELLS

/* Counts a transaction that took so long, in that cell of the histogram. */
static __always_inline void count_endpoint(u64 target, u64 ns, u32 cell)
{
	u32 place = target;

	if (!target)
		return;
	struct endpoint *e = bpf_map_lookup_elem(&endpoints, &place);
	if (e && e->generation != target >> 32) {
		/* The place was given up while the transaction took its time. */
		place = ENDPOINT_OVERFLOW;
		e = bpf_map_lookup_elem(&endpoints, &place);
		count_endpoint_drop(DROP_ENDPOINT_ALL);
	}
	struct histogram *latency = bpf_map_lookup_elem(&endpoint_latency, &place);
	if (!e || !latency)
		return;
	if (cell == CELL_ASIDE) {
		__sync_fetch_and_add(&e->aside, 1);
		return;
	}
	histogram_add_cell(latency, cell);
	__sync_fetch_and_add(&e->latency_sum_ns, ns ? ns : 1);
}

/* --- requests and replies --- */

/* Whether a request with the same first bytes as the last one has the same name. */
static __always_inline bool is_same_head(const struct head *h, const u64 *fresh, u32 n)
{
	u32 used = h->used;
	const u64 *old = (const u64 *)h->bytes;

	if (!used || n < used || h->state < HEAD_NAMED)
		return false;
	u32 whole = used / 8;
#pragma unroll
	for (u32 w = 0; w < HEAD_BYTES / 8; w++) {
		if (w < whole && fresh[w] != old[w])
			return false;
	}
	if (!(used & 7))
		return true;
	barrier_var(whole);
	whole &= HEAD_BYTES / 8 - 1;
	return !((fresh[whole] ^ old[whole]) & ((1ULL << (8 * (used & 7))) - 1));
}

static __noinline int read_request(struct connection *c, u32 size, bool early)
{
	u64 fresh[HEAD_BYTES / 8] = {};

	if (!c)
		return HEAD_NONE;
	struct head *h = &c->head;
	u32 n = read_transfer(c, (u8 *)fresh, HEAD_BYTES, size, early);
	if (reads_tls && is_tls_transfer(c, (u8 *)fresh, n, size))
		n = read_tls_request(c, fresh, n, &size);
	h->target = 0;
	h->reply_length = 0;
	h->size = size;
	if (n && is_same_head(h, fresh, n))
		return h->state;
	if (n)
		__builtin_memcpy(h->bytes, fresh, sizeof(fresh));
	h->length = n;
	h->state = HEAD_NONE;
	h->state = parse_head(h);
	return h->state;
}

static __noinline int read_more_request(struct connection *c, u32 size, bool early)
{
	if (!c)
		return HEAD_NONE;
	struct head *h = &c->head;
	u32 at = h->length;

	if (reads_tls && (c->flags & CONNECTION_TLS)) {
		h->state = HEAD_NONE;
		return h->state;
	}
	h->size += size;
	if (at < HEAD_BYTES / 2) {
		u32 n = read_transfer(c, h->bytes + at_most(at, HEAD_BYTES / 2), HEAD_BYTES / 2, size, early);

		h->length = at + n;
	}
	h->state = parse_head(h);
	return h->state;
}

/* More of DNS is sent before the reply: the rest of a long query, or another one. */
static __noinline int another_query(struct head *h, u32 size)
{
	if (!h)
		return 0;
	h->size += size;
	if (is_dns_pipeline(h))
		name_pipeline(h);
	return 0;
}

/* Reads a part of a reply behind what is there of it. */
static __always_inline int read_reply(struct connection *c, u32 size, bool early)
{
	if (reads_tls && (c->flags & CONNECTION_TLS))
		return read_tls_reply(c, size);
	struct head *h = &c->head;
	u32 at = h->reply_length;

	if (at > REPLY_BYTES / 4)
		at = 0;
	u32 n = read_transfer(c, h->reply + at_most(at, REPLY_BYTES / 4), REPLY_BYTES * 3 / 4, size, early);
	if (!n)
		return STATUS_UNKNOWN;
	h->reply_length = at + n;
	return parse_reply(h);
}

/* A request of which too few bytes came to name it. */
static __always_inline void give_up(struct head *h)
{
	h->state = HEAD_NONE;
	h->used = 0;
	if (h->protocol) {
		put_text(h, "invalid");
		set_name(h);
		h->state = HEAD_NAMED;
	} else if (++h->failures >= HEAD_FAILURES) {
		h->protocol = PROTOCOL_OPAQUE;
	}
}

enum reply {
	REPLY_BEGINS = 0,
	REPLY_WAITS = 1,   /* only a word in between */
	REPLY_SWITCHES = 2, /* the last reply: what follows are no transactions */
};

static __noinline int begin_reply(struct connection *c, u32 size, bool early)
{
	if (!c)
		return REPLY_BEGINS;
	struct head *h = &c->head;

	h->watch &= ~HEAD_WATCH_STATUS;
	if (h->state == HEAD_PARTIAL)
		give_up(h);
	if (reads_tls && (c->flags & CONNECTION_TLS) && !begin_tls_reply(c, size))
		return REPLY_BEGINS;
	if (h->state != HEAD_NAMED)
		return REPLY_BEGINS;
	int status = read_reply(c, size, early);
	if (status == REPLY_INTERIM) {
		h->reply_length = 0;
		return REPLY_WAITS;
	}
	if (status == REPLY_PARTIAL) {
		h->watch |= HEAD_WATCH_STATUS;
		return REPLY_BEGINS;
	}
	if (status == 1) {
		h->reply_length = 0;
		h->watch |= HEAD_WATCH_STATUS;
	}
	resolve_endpoint(c, status);
	if (status == STATUS_SWITCHED || (h->streams && (status == STATUS_OK || status == 2)))
		return REPLY_SWITCHES;
	return REPLY_BEGINS;
}

/* Looks at a further part of a reply where that is needed; true if it is no part of it. */
static __noinline int is_notice(struct connection *c, u32 size, bool early)
{
	if (!c)
		return false;
	struct head *h = &c->head;

	if (h->watch & HEAD_WATCH_STATUS) {
		int status = read_reply(c, size, early);

		if (status == REPLY_PARTIAL || status == REPLY_INTERIM || status == 1)
			return false;
		h->watch &= ~HEAD_WATCH_STATUS;
		resolve_endpoint(c, status);
		return false;
	}
	/* PostgreSQL tells of what was listened for between replies, not within one. */
	h->reply_length = 0;
	read_reply(c, size, early);
	return h->reply_length && h->reply[0] == 'A';
}

static __noinline int read_greeting(struct connection *c, u32 size)
{
	if (!c)
		return 0;
	struct head *h = &c->head;

	h->size += size;
	read_reply(c, size, false);
	if (is_mysql_greeting(h, h->size)) {
		h->protocol = PROTOCOL_MYSQL;
		h->reply_length = 0;
	}
	return 0;
}

#endif
