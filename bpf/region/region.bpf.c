//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Answers requests to read memory of an array map, where packets come in: no process runs for it. The first
 * program checks a request and calls the one of its region, which has that region's map alone and answers.
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

/* The program that answers for a region, by the region's number. */
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
static __always_inline bool within_rate(void)
{
	u32 only = 0;
	struct rate *r = bpf_map_lookup_elem(&rates, &only);

	if (!r)
		return false;
	u64 now = bpf_ktime_get_ns();
	bpf_spin_lock(&r->lock);
	u64 due = r->due_ns > now ? r->due_ns : now;
	bool within = due - now <= burst_ns;
	if (within)
		r->due_ns = due + interval_ns;
	bpf_spin_unlock(&r->lock);
	return within;
}

/* What is not authentic gets no answer, and takes nothing of what others may ask. */
static __always_inline enum verdict check(const struct datagram *d, void *end, u32 *number)
{
	struct read_header *h = (void *)(d->udp + 1);
	struct read_counters *c = counters_of_cpu();
	struct prefix from = { .bits = 128 };

	if (!c)
		return DROP;
	sender_of(d, &from.address);
	if (!bpf_map_lookup_elem(&allowed, &from)) {
		c->not_allowed++;
		return DROP;
	}
	u32 payload = bpf_ntohs(d->udp->length) - sizeof(*d->udp);
	if (bpf_ntohs(d->udp->length) < sizeof(*d->udp) + sizeof(*h) || (void *)(h + 1) > end ||
	    (void *)h + (payload & 0xffff) > end) {
		c->truncated++;
		return DROP;
	}
	if (!lengths_agree(d) || h->magic != READ_MAGIC || h->version != READ_VERSION || h->kind != READ_REQUEST ||
	    h->status) {
		c->malformed++;
		return DROP;
	}
	u32 id = h->key;
	struct read_key *key = bpf_map_lookup_elem(&keys, &id);
	if (!key) {
		c->unknown_key++;
		return DROP;
	}
	if (mac_of(h, &from.address, d->udp->from, key) != h->mac) {
		c->wrong_mac++;
		return DROP;
	}
	if (!within_rate()) {
		c->over_rate++;
		return DROP;
	}
	u32 length = h->length;
	if (!length || length % READ_BLOCK || h->offset % READ_BLOCK) {
		c->misaligned++;
		return DROP;
	}
	if (length > READ_MAX || payload > length + sizeof(*h)) {
		c->oversized++;
		return DROP;
	}
	if (payload < length + sizeof(*h)) {
		c->truncated++;
		return DROP;
	}
	*number = h->region;
	return ANSWER;
}

/*
 * Fills the data from memory of the kernel, or with zeros, and turns the packet around. A word of 8 bytes is read
 * whole and words in ascending order, as copy_from_kernel_nofault does (mm/maccess.c).
 */
static __always_inline enum verdict answer(struct datagram *d, void *end, const void *from, u16 status)
{
	struct read_header *h = (void *)(d->udp + 1);
	u64 sum = 0;

	if ((void *)(h + 1) > end)
		return DROP;
	u32 length = h->length;
	u64 *to = (void *)(h + 1);
	for (u32 at = 0; at < READ_MAX && at < length; at += READ_BLOCK, to += READ_BLOCK / 8) {
		u64 words[READ_BLOCK / 8] = {};
		if (from && bpf_probe_read_kernel(words, sizeof(words), from + at)) {
			struct read_counters *c = counters_of_cpu();
			if (c)
				c->faults++;
			return DROP;
		}
		if ((void *)(to + READ_BLOCK / 8) > end)
			return DROP;
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
	turn_around(d, sum, has_buffer);
	return SEND;
}

/* No program answers for the region: its call has come back, after which nothing is known of the packet any more. */
static __always_inline enum verdict answer_unknown(void *data, void *end)
{
	struct read_counters *c = counters_of_cpu();
	struct datagram d;

	if (!find_datagram(&d, data, end))
		return DROP;
	if (c)
		c->unknown_region++;
	return answer(&d, end, NULL, READ_UNKNOWN_REGION);
}

/* The program of a region: what it can read is its map, whatever the packet says. */
static __always_inline enum verdict answer_from_region(void *data, void *end)
{
	struct read_counters *c = counters_of_cpu();
	struct datagram d;
	u32 first = 0;

	if (!c || !find_datagram(&d, data, end))
		return DROP;
	struct read_header *h = (void *)(d.udp + 1);
	void *base = bpf_map_lookup_elem(&region, &first);
	if (!base || (void *)(h + 1) > end)
		return DROP;
	u64 offset = h->offset, length = h->length;
	if (offset >= region_bytes || length > region_bytes - offset) {
		c->out_of_bounds++;
		return answer(&d, end, NULL, READ_OUT_OF_BOUNDS);
	}
	enum verdict v = answer(&d, end, base + offset, READ_DONE);
	if (v == SEND) {
		c->reads++;
		c->bytes += length;
	}
	return v;
}

static __always_inline int xdp_action(enum verdict v)
{
	return v == PASS ? XDP_PASS : v == SEND ? XDP_TX : XDP_DROP;
}

SEC("xdp")
int read_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct datagram d;
	u32 number = 0;

	if (!find_datagram(&d, data, end) || !is_for_us(&d))
		return XDP_PASS;
	enum verdict v = check(&d, end, &number);
	if (v == ANSWER) {
		bpf_tail_call(ctx, &regions, number);
		v = answer_unknown((void *)(long)ctx->data, (void *)(long)ctx->data_end);
	}
	return xdp_action(v);
}

SEC("xdp")
int answer_xdp(struct xdp_md *ctx)
{
	return xdp_action(answer_from_region((void *)(long)ctx->data, (void *)(long)ctx->data_end));
}

static __always_inline int tcx_action(struct __sk_buff *skb, enum verdict v)
{
	return v == PASS ? TCX_NEXT : v == SEND ? (int)bpf_redirect(skb->ifindex, 0) : TCX_DROP;
}

SEC("tcx/ingress")
int read_tcx(struct __sk_buff *skb)
{
	struct datagram d;
	u32 number = 0;

	/* What is not in the buffer's first piece is not seen: the headers, then all of a request. */
	long there = (long)skb->data_end - (long)skb->data;
	if (there < (long)LEAST_HEADERS && skb->len >= LEAST_HEADERS)
		bpf_skb_pull_data(skb, skb->len < MOST_HEADERS ? skb->len : MOST_HEADERS);
	if (!find_datagram(&d, (void *)(long)skb->data, (void *)(long)skb->data_end) || !is_for_us(&d))
		return TCX_NEXT;
	bpf_skb_pull_data(skb, skb->len);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (!find_datagram(&d, data, end))
		return TCX_DROP;
	enum verdict v = check(&d, end, &number);
	if (v == ANSWER) {
		bpf_tail_call(skb, &regions, number);
		v = answer_unknown((void *)(long)skb->data, (void *)(long)skb->data_end);
	}
	return tcx_action(skb, v);
}

SEC("tcx/ingress")
int answer_tcx(struct __sk_buff *skb)
{
	return tcx_action(skb, answer_from_region((void *)(long)skb->data, (void *)(long)skb->data_end));
}
