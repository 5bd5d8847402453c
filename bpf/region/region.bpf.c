//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Answers requests to read memory of an array map, where packets come in: no process runs for it. The first
 * program checks the requests of a packet and calls the one of their region, which has that region's map alone and
 * answers. Where the packet has requests of other regions it calls the program of the next one, and so on.
 */
#include "include/kernel.h"
#include "region/region.h"
#include "region/packet.h"
#include "region/siphash.h"

char LICENSE[] SEC("license") = "GPL";

#define XDP_DROP 1
#define XDP_PASS 2
#define XDP_TX 3
#define TCX_NEXT -1
#define TCX_DROP 2

/* As the kernel's interface has them. */
struct xdp_md {
	u32 data;
	u32 data_end;
};

struct __sk_buff {
	u32 len;
	u32 unused[9];
	u32 ifindex;
	u32 more[8];
	u32 data;
	u32 data_end;
};

_Static_assert(__builtin_offsetof(struct __sk_buff, ifindex) == 40, "ifindex");
_Static_assert(__builtin_offsetof(struct __sk_buff, data) == 76, "data");

struct bpf_spin_lock {
	u32 val;
};

/* Set by the loader. */
const volatile u16 port; /* in network byte order */
const volatile u64 interval_ns = 1; /* between two requests at the highest rate */
const volatile u64 burst_ns = 1; /* by how much requests may be early */
const volatile bool has_buffer; /* packets are in socket buffers: not native XDP */
const volatile u64 region_bytes; /* of the region that a program answers for */
const volatile u32 region_number; /* of the same */
const volatile u32 no_region; /* the index of the program that answers for regions that there are not */

/* Where requests may be sent to. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, u8);
} addresses SEC(".maps");

struct prefix {
	u32 bits;
	struct address address;
};

/* Who may ask. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct prefix);
	__type(value, u8);
} allowed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, struct read_key);
} keys SEC(".maps");

struct rate {
	struct bpf_spin_lock lock;
	u64 due_ns; /* when the next request would come at the highest rate */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rate);
} rates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct read_counters);
} counters SEC(".maps");

/* The program that answers for a region, by the region's number, and after them the one that answers for no region. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} regions SEC(".maps");

/* The region of an answering program: the loader puts the map here, with its size of values and flags. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} region SEC(".maps");

/* What a CPU knows of the packet that it looks at. */
struct work {
	u64 sum; /* of what is answered, for the checksum */
	u32 next; /* the region of the first request that is not answered yet */
	u32 missing; /* the region that there is not, where the program of no region answers */
	u8 has_missing;
	u8 has_next;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct work);
} works SEC(".maps");

enum verdict {
	PASS,
	DROP,
	ANSWER, /* by the region's program, if there is one */
	SEND,
};

static __always_inline struct read_counters *counters_of_cpu(void)
{
	u32 only = 0;

	return bpf_map_lookup_elem(&counters, &only);
}

static __always_inline struct work *work_of_cpu(void)
{
	u32 only = 0;

	return bpf_map_lookup_elem(&works, &only);
}

static __always_inline bool is_for_us(const struct datagram *d)
{
	struct address to = {};

	if (d->udp->to != port)
		return false;
	receiver_of(d, &to);
	return bpf_map_lookup_elem(&addresses, &to) != NULL;
}

static __always_inline u64 mac_of(const struct read_header *h, const struct address *from, u16 from_port,
				  const struct read_key *key)
{
	const u64 *words = (const void *)h;
	struct siphash s;

	siphash_begin(&s, key->words);
	siphash_add(&s, (u64)from->words[1] << 32 | from->words[0]);
	siphash_add(&s, (u64)from->words[3] << 32 | from->words[2]);
	siphash_add(&s, bpf_ntohs(from_port));
	for (u32 i = 0; i < 4; i++)
		siphash_add(&s, words[i]);
	return siphash_end(&s, 7);
}

/* A bucket of tokens, told as the time at which it is full again. */
static __always_inline bool within_rate(u32 requests)
{
	u32 only = 0;
	struct rate *r = bpf_map_lookup_elem(&rates, &only);

	if (!r)
		return false;
	u64 now = bpf_ktime_get_ns();
	bpf_spin_lock(&r->lock);
	u64 due = r->due_ns > now ? r->due_ns : now;
	bool within = due + (requests - 1) * interval_ns - now <= burst_ns;
	if (within)
		r->due_ns = due + requests * interval_ns;
	bpf_spin_unlock(&r->lock);
	return within;
}

/* The request at a place of a datagram, NULL where that does not have one there. */
static __always_inline struct read_header *request_at(const struct datagram *d, void *end, u32 at)
{
	if (at > READ_MOST * (READ_MAX + sizeof(struct read_header)))
		return NULL;
	struct read_header *h = (void *)(d->udp + 1) + at;
	return (void *)(h + 1) > end ? NULL : h;
}

static __always_inline u32 payload_of(const struct datagram *d)
{
	return (bpf_ntohs(d->udp->length) - sizeof(*d->udp)) & 0xffff;
}

/* How long the request at a place of a datagram is; 0 where it is to be dropped, and was counted. */
static __always_inline u32 check_one(void *data, void *end, u32 at)
{
	struct read_counters *c = counters_of_cpu();
	struct work *w = work_of_cpu();
	struct address from = {};
	struct datagram d;

	if (!c || !w || !find_datagram(&d, data, end))
		return 0;
	struct read_header *h = request_at(&d, end, at);
	if (!h) {
		c->truncated++;
		return 0;
	}
	if (h->magic != READ_MAGIC || h->version != READ_VERSION || h->kind != READ_REQUEST || h->status) {
		c->malformed++;
		return 0;
	}
	u32 id = h->key;
	struct read_key *key = bpf_map_lookup_elem(&keys, &id);
	if (!key) {
		c->unknown_key++;
		return 0;
	}
	sender_of(&d, &from);
	if (mac_of(h, &from, d.udp->from, key) != h->mac) {
		c->wrong_mac++;
		return 0;
	}
	u32 length = h->length, rest = payload_of(&d) - at;
	if (!length || length % READ_BLOCK || h->offset % READ_BLOCK) {
		c->misaligned++;
		return 0;
	}
	if (length > READ_MAX) {
		c->oversized++;
		return 0;
	}
	u32 size = length + sizeof(*h);
	if (size > rest) {
		c->truncated++;
		return 0;
	}
	if (size < rest && rest - size < sizeof(*h)) { /* what follows is no request */
		c->oversized++;
		return 0;
	}
	if (!at)
		w->next = h->region;
	return size;
}

/*
 * What is not authentic gets no answer, and takes nothing of what others may ask. A packet is answered as a whole or
 * not at all; of one that is not, the first wrong request is counted.
 */
static __always_inline bool check_packet(const struct datagram *d, void *end, u32 *payload)
{
	struct read_counters *c = counters_of_cpu();
	struct prefix from = { .bits = 128 };

	if (!c)
		return false;
	sender_of(d, &from.address);
	if (!bpf_map_lookup_elem(&allowed, &from)) {
		c->not_allowed++;
		return false;
	}
	*payload = payload_of(d);
	if (bpf_ntohs(d->udp->length) < sizeof(*d->udp) + sizeof(struct read_header) ||
	    (void *)(d->udp + 1) + *payload > end) {
		c->truncated++;
		return false;
	}
	if (!lengths_agree(d)) {
		c->malformed++;
		return false;
	}
	return true;
}

/* All of a packet's requests are right, and so many. */
static __always_inline enum verdict check_number(u32 requests, bool all, u32 *number)
{
	struct read_counters *c = counters_of_cpu();
	struct work *w = work_of_cpu();

	if (!c || !w)
		return DROP;
	if (!all) {
		c->oversized++;
		return DROP;
	}
	if (!within_rate(requests)) {
		c->over_rate += requests;
		return DROP;
	}
	w->sum = 0;
	*number = w->next;
	return ANSWER;
}

/*
 * Fills the data of a request from memory of the kernel, or with zeros, and makes it a reply. A word of 8 bytes is read
 * whole and words in ascending order, as copy_from_kernel_nofault does (mm/maccess.c).
 */
static __always_inline bool fill(struct read_header *h, void *end, const void *from, u16 status, u64 *total)
{
	u32 length = h->length;
	u64 *to = (void *)(h + 1);
	u64 sum = 0;

	for (u32 at = 0; at < READ_MAX && at < length; at += READ_BLOCK, to += READ_BLOCK / 8) {
		u64 words[READ_BLOCK / 8] = {};
		if (from && bpf_probe_read_kernel(words, sizeof(words), from + at)) {
			struct read_counters *c = counters_of_cpu();
			if (c)
				c->faults++;
			return false;
		}
		if ((void *)(to + READ_BLOCK / 8) > end)
			return false;
#pragma clang loop unroll(full)
		for (u32 i = 0; i < READ_BLOCK / 8; i++) {
			to[i] = words[i];
			sum += sum_of(words[i]);
		}
	}
	h->kind = READ_REPLY;
	h->status = status;
	const u64 *words = (const void *)h;
	for (u32 i = 0; i < sizeof(*h) / 8; i++)
		sum += sum_of(words[i]);
	*total += sum;
	return true;
}

/*
 * Answers the request at a place of a datagram if it is of this program's region; without one (no base), if it is of the
 * region of the first request that was not answered before. What a program can read is its own map, whatever the packet
 * says. How long the request is, 0 where the packet is to be dropped.
 */
static __always_inline u32 answer_one(void *data, void *end, const void *base, u32 at)
{
	struct read_counters *c = counters_of_cpu();
	struct work *w = work_of_cpu();
	struct datagram d;

	if (!c || !w || !find_datagram(&d, data, end))
		return 0;
	struct read_header *h = request_at(&d, end, at);
	if (!h || h->length > READ_MAX)
		return 0;
	u64 offset = h->offset, length = h->length;
	u32 size = length + sizeof(*h);
	if (h->kind != READ_REQUEST)
		return size;
	if (!base && !w->has_missing) {
		w->missing = h->region;
		w->has_missing = 1;
	}
	if (h->region != (base ? region_number : w->missing)) {
		if (!w->has_next)
			w->next = h->region;
		w->has_next = 1;
		return size;
	}
	if (!base) {
		c->unknown_region++;
		return fill(h, end, NULL, READ_UNKNOWN_REGION, &w->sum) ? size : 0;
	}
	if (offset >= region_bytes || length > region_bytes - offset) {
		c->out_of_bounds++;
		return fill(h, end, NULL, READ_OUT_OF_BOUNDS, &w->sum) ? size : 0;
	}
	if (!fill(h, end, base + offset, READ_DONE, &w->sum))
		return 0;
	c->reads++;
	c->bytes += length;
	return size;
}

/* What a program has to do before it answers: how long the datagram is. */
static __always_inline u32 begin_answers(void *data, void *end)
{
	struct work *w = work_of_cpu();
	struct datagram d;

	if (!w || !find_datagram(&d, data, end))
		return 0;
	w->has_missing = 0;
	w->has_next = 0;
	return payload_of(&d);
}

/* What is to be done when a program has answered: where requests are left, the program of the next one is to be called. */
static __always_inline enum verdict end_answers(void *data, void *end, u32 *number)
{
	struct work *w = work_of_cpu();
	struct datagram d;

	if (!w || !find_datagram(&d, data, end))
		return DROP;
	*number = w->next;
	if (w->has_next)
		return ANSWER;
	turn_around(&d, w->sum, has_buffer);
	return SEND;
}

#define DATA(ctx) ((void *)(long)(ctx)->data)
#define END(ctx) ((void *)(long)(ctx)->data_end)

/* Calls the program of a region, or that of no region. It comes back only where there is none of both. */
#define CALL_PROGRAM_OF(ctx, number)                          \
	do {                                                  \
		if ((number) != no_region)                    \
			bpf_tail_call(ctx, &regions, number); \
		bpf_tail_call(ctx, &regions, no_region);      \
	} while (0)

/* Calls one for each request of a datagram; where it answers 0, the packet is dropped. */
#define EACH_REQUEST(one, ctx, payload, at, requests)                           \
	for (; (requests) < READ_MOST && (at) < (payload); (requests)++) {      \
		u32 size = one(ctx, at);                                        \
		if (!size)                                                      \
			return DROP;                                            \
		(at) += size;                                                   \
	}

/* What is done for each request are global functions: they are verified once, and not for each of them anew. */
__noinline u32 check_one_xdp(struct xdp_md *ctx, u32 at)
{
	return check_one(DATA(ctx), END(ctx), at);
}

__noinline u32 answer_one_xdp(struct xdp_md *ctx, u32 at)
{
	u32 first = 0;
	void *base = bpf_map_lookup_elem(&region, &first);

	return base ? answer_one(DATA(ctx), END(ctx), base, at) : 0;
}

__noinline u32 refuse_one_xdp(struct xdp_md *ctx, u32 at)
{
	return answer_one(DATA(ctx), END(ctx), NULL, at);
}

static __always_inline int xdp_action(enum verdict v)
{
	return v == PASS ? XDP_PASS : v == SEND ? XDP_TX : XDP_DROP;
}

static __always_inline enum verdict check_xdp(struct xdp_md *ctx, u32 *number)
{
	u32 at = 0, requests = 0, payload;
	struct datagram d;

	if (!find_datagram(&d, DATA(ctx), END(ctx)) || !is_for_us(&d))
		return PASS;
	if (!check_packet(&d, END(ctx), &payload))
		return DROP;
	EACH_REQUEST(check_one_xdp, ctx, payload, at, requests)
	return check_number(requests, at == payload, number);
}

static __always_inline enum verdict answer_packet_xdp(struct xdp_md *ctx, bool known, u32 *number)
{
	u32 at = 0, requests = 0, payload = begin_answers(DATA(ctx), END(ctx));

	if (known)
		EACH_REQUEST(answer_one_xdp, ctx, payload, at, requests)
	else
		EACH_REQUEST(refuse_one_xdp, ctx, payload, at, requests)
	return end_answers(DATA(ctx), END(ctx), number);
}

SEC("xdp")
int read_xdp(struct xdp_md *ctx)
{
	u32 number = 0;
	enum verdict v = check_xdp(ctx, &number);

	if (v == ANSWER)
		CALL_PROGRAM_OF(ctx, number);
	return xdp_action(v);
}

SEC("xdp")
int answer_xdp(struct xdp_md *ctx)
{
	u32 number = 0;
	enum verdict v = answer_packet_xdp(ctx, true, &number);

	if (v == ANSWER)
		CALL_PROGRAM_OF(ctx, number);
	return xdp_action(v);
}

SEC("xdp")
int refuse_xdp(struct xdp_md *ctx)
{
	u32 number = 0;
	enum verdict v = answer_packet_xdp(ctx, false, &number);

	if (v == ANSWER)
		CALL_PROGRAM_OF(ctx, number);
	return xdp_action(v);
}

__noinline u32 check_one_tcx(struct __sk_buff *skb, u32 at)
{
	return check_one(DATA(skb), END(skb), at);
}

__noinline u32 answer_one_tcx(struct __sk_buff *skb, u32 at)
{
	u32 first = 0;
	void *base = bpf_map_lookup_elem(&region, &first);

	return base ? answer_one(DATA(skb), END(skb), base, at) : 0;
}

__noinline u32 refuse_one_tcx(struct __sk_buff *skb, u32 at)
{
	return answer_one(DATA(skb), END(skb), NULL, at);
}

static __always_inline int tcx_action(struct __sk_buff *skb, enum verdict v)
{
	return v == PASS ? TCX_NEXT : v == SEND ? (int)bpf_redirect(skb->ifindex, 0) : TCX_DROP;
}

static __always_inline enum verdict check_tcx(struct __sk_buff *skb, u32 *number)
{
	u32 at = 0, requests = 0, payload;
	struct datagram d;

	/* What is not in the buffer's first piece is not seen: the headers, then all of a packet. */
	long there = (long)skb->data_end - (long)skb->data;
	if (there < (long)LEAST_HEADERS && skb->len >= LEAST_HEADERS)
		bpf_skb_pull_data(skb, skb->len < MOST_HEADERS ? skb->len : MOST_HEADERS);
	if (!find_datagram(&d, DATA(skb), END(skb)) || !is_for_us(&d))
		return PASS;
	bpf_skb_pull_data(skb, skb->len);
	if (!find_datagram(&d, DATA(skb), END(skb)) || !check_packet(&d, END(skb), &payload))
		return DROP;
	EACH_REQUEST(check_one_tcx, skb, payload, at, requests)
	return check_number(requests, at == payload, number);
}

static __always_inline enum verdict answer_packet_tcx(struct __sk_buff *skb, bool known, u32 *number)
{
	u32 at = 0, requests = 0, payload = begin_answers(DATA(skb), END(skb));

	if (known)
		EACH_REQUEST(answer_one_tcx, skb, payload, at, requests)
	else
		EACH_REQUEST(refuse_one_tcx, skb, payload, at, requests)
	return end_answers(DATA(skb), END(skb), number);
}

SEC("tcx/ingress")
int read_tcx(struct __sk_buff *skb)
{
	u32 number = 0;
	enum verdict v = check_tcx(skb, &number);

	if (v == ANSWER)
		CALL_PROGRAM_OF(skb, number);
	return tcx_action(skb, v);
}

SEC("tcx/ingress")
int answer_tcx(struct __sk_buff *skb)
{
	u32 number = 0;
	enum verdict v = answer_packet_tcx(skb, true, &number);

	if (v == ANSWER)
		CALL_PROGRAM_OF(skb, number);
	return tcx_action(skb, v);
}

SEC("tcx/ingress")
int refuse_tcx(struct __sk_buff *skb)
{
	u32 number = 0;
	enum verdict v = answer_packet_tcx(skb, false, &number);

	if (v == ANSWER)
		CALL_PROGRAM_OF(skb, number);
	return tcx_action(skb, v);
}
