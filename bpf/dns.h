/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * DNS over UDP: transactions by the id in each message, so that queries that are sent at once are
 * told apart, and endpoints by type, name and response code. Included by datagrams_path.h.
 *
 * A name is of bounded length: of one that is too long its end stays, "*.svc.cluster.local", and
 * addresses that are looked up backwards are all "*.in-addr.arpa".
 */
#ifndef OUTSIGHT_DNS_H
#define OUTSIGHT_DNS_H

#define DNS_PORT 53
#define DNS_HEADER 12
#define DNS_HEAD 128 /* how much of a message is looked at */

/* Queries without a reply so far. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key);
	__type(value, struct dns_query);
} dns_queries SEC(".maps");

struct dns_scratch {
	u8 packet[DNS_HEAD];
	u8 text[DNS_HEAD]; /* the packet's name with dots, at the same place */
	struct dns_query query;
	struct endpoint_key key;
	volatile u32 left;  /* of the label */
	volatile u32 end;   /* of the name in the packet */
	volatile u32 start; /* of what is kept of it */
	volatile u32 at;    /* where in the endpoint's name it goes */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct dns_scratch);
} dns_scratch SEC(".maps");

/* --- the message --- */

/* The system call that sends or receives several messages: their array and its length. */
static __always_inline bool current_batch(u64 *at, u64 *count)
{
	void *saved = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

	if (machine == MACHINE_X86_64) {
		struct pt_regs___x86_64 *regs = saved;

		if (regs->cs != X86_64_USER_CS || (regs->orig_ax != 307 && regs->orig_ax != 299))
			return false;
		*at = regs->si;
		*count = regs->dx;
		return true;
	}
	if (machine == MACHINE_ARM64) {
		struct pt_regs___arm64 *regs = saved;

		if (regs->syscallno != 269 && regs->syscallno != 243)
			return false;
		*at = regs->regs[1];
		*count = regs->regs[2];
		return true;
	}
	return false;
}

/*
 * Reads the head of the message that has just been sent or received. Which of a call's several
 * messages it is, nobody tells: they come in order, and one that was not sent ends the call.
 */
static __always_inline u32 read_message(struct datagram_socket *s, u8 *to, u32 size, bool sent)
{
	struct datagram_batch *batch = sent ? &s->sending : &s->receiving;
	struct user_iovec part;
	u64 at, count, message[2];

	if (!current_batch(&at, &count))
		return read_buffer(to, DNS_HEAD, size);
	u64 task = bpf_get_current_task();
	u32 i = batch->task == task && batch->at == at && batch->next < count ? batch->next : 0;
	batch->task = task;
	batch->at = at;
	batch->next = i + 1;
	/* struct mmsghdr: 64 bytes; of its struct msghdr, the vector and its length. */
	if (bpf_probe_read_user(message, sizeof(message), (void *)(at + i * 64 + 16)) || !message[1])
		return 0;
	if (bpf_probe_read_user(&part, sizeof(part), (void *)message[0]))
		return 0;
	if (size > part.size)
		size = part.size;
	if (size > DNS_HEAD)
		size = DNS_HEAD;
	return bpf_probe_read_user(to, size, (void *)part.base) ? 0 : size;
}

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
static __always_inline void find_name_end(struct dns_scratch *x, u32 n)
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
static __always_inline void find_name_start(struct dns_scratch *x, u32 room)
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

static __always_inline bool is_arpa(const struct dns_scratch *x, u32 end)
{
	return end > DNS_FIRST + 8 && x->text[(end - 5) & 127] == '.' && x->text[(end - 4) & 127] == 'a' &&
	       x->text[(end - 3) & 127] == 'r' && x->text[(end - 2) & 127] == 'p' && x->text[(end - 1) & 127] == 'a';
}

/*
 * Sets the query's name from the first n bytes of the packet. Like dns_datagram it is not static, so
 * that the verifier looks at it by itself, and once.
 */
__noinline int dns_name(struct dns_scratch *x, u32 n)
{
	if (!x)
		return 0;
	u8 *name = x->query.name;
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
		name[to] = x->text[from & 127];
	}
	return 0;
}

/* --- transactions --- */

static __always_inline void count_answer(struct dns_scratch *x, struct edge *edge, u32 place, u64 ns)
{
	u32 code = x->packet[3] & 15;

	count_exchange(edge, place, ns);
	x->key.edge = place;
	x->key.protocol = PROTOCOL_DNS;
	x->key.status = code ? STATUS_RCODE + code : STATUS_OK;
	x->key.pad = 0;
	__builtin_memcpy(x->key.name, x->query.name, ENDPOINT_NAME);
	u32 *known = bpf_map_lookup_elem(&endpoint_of_key, &x->key);
	count_endpoint(known ? target_of(*known) : new_endpoint(&x->key), ns, histogram_cell(ns));
}

/* Whether the datagram was a query, or the reply to one, and has been counted. */
__noinline int dns_datagram(struct datagram_socket *s, struct datagram_flow *f,
				   struct datagram_peer *peer, u32 size, bool sent)
{
	u32 zero = 0;
	struct dns_scratch *x = bpf_map_lookup_elem(&dns_scratch, &zero);

	if (!s || !f || !peer || !x)
		return false;
	u32 n = read_message(s, x->packet, size, sent);
	bool query = sent == (f->role == ROLE_CLIENT);
	/* A standard query or its reply, with one question. */
	if (n < DNS_HEADER || (x->packet[2] & 0x78) || query != !(x->packet[2] & 0x80) || x->packet[4] ||
	    x->packet[5] != 1)
		return false;
	struct flow_key key = {.socket = s->id, .peer = *peer, .query = x->packet[0] << 8 | x->packet[1]};
	u32 place = f->edge;
	struct edge *edge = bpf_map_lookup_elem(&edges, &place);
	if (!edge)
		return false;
	u64 now = bpf_ktime_get_ns();
	if (query) {
		x->query.first_ns = now;
		x->query.edge = place;
		x->query.generation = f->generation;
		dns_name(x, n);
		bpf_map_update_elem(&dns_queries, &key, &x->query, BPF_ANY);
		__sync_fetch_and_add(&edge->requests, 1);
		return true;
	}
	struct dns_query *asked = bpf_map_lookup_elem(&dns_queries, &key);
	if (!asked)
		return false;
	x->query = *asked;
	if (!bpf_map_delete_elem(&dns_queries, &key))
		count_answer(x, edge, place, elapsed(x->query.first_ns, now));
	return true;
}

/* Counts the queries that wait, and gives up those that have waited for long. */
SEC("iter/bpf_map_elem")
int sweep_dns_queries(struct bpf_iter__bpf_map_elem *ctx)
{
	struct dns_query *q = ctx->value;
	struct flow_key *found = ctx->key;

	if (!q || !found)
		return 0;
	if (elapsed(q->first_ns, bpf_ktime_get_ns()) > UNANSWERED_AFTER_NS) {
		struct flow_key key = *found;

		bpf_map_delete_elem(&dns_queries, &key);
		return 0;
	}
	u32 place = q->edge;
	struct datagram_edge *d = bpf_map_lookup_elem(&datagram_edges, &place);
	if (d && q->generation == (u32)d->generation)
		__sync_fetch_and_add(&d->pending, 1);
	return 0;
}

#endif
