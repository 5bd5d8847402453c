//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * How long packets take through a network namespace that forwards: noted where they come in, found
 * again where they leave. What identifies a packet is what address translation, a lower time to
 * live and a program that passes it on leave alone.
 */
#include "include/kernel.h"
#include "include/mix.h"
#include "forward/forward.h"

char LICENSE[] SEC("license") = "GPL";

#define TCX_NEXT -1
#define BPF_HDR_START_NET 1

/* As the kernel's interface has it. */
struct __sk_buff {
	u32 len;
	u32 unused[9];
	u32 ifindex;
	u32 more[33];
	u32 gso_size;
};

_Static_assert(__builtin_offsetof(struct __sk_buff, ifindex) == 40, "ifindex");
_Static_assert(__builtin_offsetof(struct __sk_buff, gso_size) == 176, "gso_size");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net_device {
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
};

#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *) __ksym;

struct forwarder_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct forwarder);
};

/* By the inode of the network namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct forwarder_map);
} forwarders SEC(".maps");

struct signature {
	u64 packet;
	u64 check;
};

static __always_inline struct forwarder *forwarder_of(struct __sk_buff *skb)
{
	struct sk_buff *buffer = bpf_cast_to_kern_ctx(skb);
	u32 netns = buffer->dev->nd_net.net->ns.inum, only = 0;
	void *map = bpf_map_lookup_elem(&forwarders, &netns);

	return map ? bpf_map_lookup_elem(map, &only) : NULL;
}

static __always_inline long load(struct __sk_buff *skb, u32 offset, void *to, u32 size)
{
	return bpf_skb_load_bytes_relative(skb, offset, to, size, BPF_HDR_START_NET);
}

#define TCP_TIMESTAMP bpf_htonl(0x0101080a) /* no operation twice, kind 8, length 10 */

/*
 * A segment that is cut up, or put together with those after it, begins with the same byte. The
 * acknowledged number and the timestamp part connections, directions and what is sent again.
 */
static __always_inline bool sign_tcp(struct __sk_buff *skb, u32 at, u32 end, struct signature *of)
{
	u32 header[8] = {}, options[3] = {};

	if (load(skb, at, header, 20))
		return false;
	u32 size = (bpf_ntohl(header[3]) >> 28) * 4;
	if (size < 20 || end <= at + size)
		return false; /* without data: not one of its kind */
	if (size >= 32 && !load(skb, at + 20, options, 12) && options[0] == TCP_TIMESTAMP)
		of->check = (u64)options[1] << 32;
	of->packet = (u64)header[1] << 32 | header[2];
	of->check |= IPPROTO_TCP;
	return true;
}

#define SIGNED_BYTES 16

static __always_inline bool sign_udp(struct __sk_buff *skb, u32 at, u16 id, struct signature *of)
{
	u64 data[SIGNED_BYTES / 8] = {};
	u16 header[4];

	if (load(skb, at, header, 8))
		return false;
	/* Several datagrams in one buffer: the first one. */
	u32 length = skb->gso_size ? skb->gso_size + 8 : bpf_ntohs(header[2]);
	if (length < 8)
		return false;
	u32 bytes = length - 8;
	/* Before Linux 6.2, a size that a branch keeps from being 0 is refused. */
	if (bytes && load(skb, at + 8, data, at_most(bytes - 1, SIGNED_BYTES - 1) + 1))
		return false;
	of->packet = mixed(data[0] ^ mixed(data[1]));
	of->check = (u64)id << 48 | (u64)length << 16 | IPPROTO_UDP;
	return true;
}

#define IP_OFFSET 0x1fff

/* False: it is a packet of which nothing identifies it. */
static __noinline int sign(struct __sk_buff *skb, struct signature *of)
{
	u8 header[40];
	u32 at, end;
	u16 id = 0, protocol;

	if (!of || load(skb, 0, header, 20))
		return false;
	if (header[0] >> 4 == 4) {
		at = (header[0] & 15) * 4;
		end = (u32)header[2] << 8 | header[3];
		id = (u16)header[4] << 8 | header[5];
		protocol = header[9];
		if (((u16)header[6] << 8 | header[7]) & IP_OFFSET)
			return false;
	} else if (header[0] >> 4 == 6) {
		at = 40;
		end = at + ((u32)header[4] << 8 | header[5]);
		protocol = header[6];
	} else {
		return false;
	}
	/* More than the field can say. */
	if (skb->gso_size && end <= at)
		end = skb->len;
	bool is_signed = protocol == IPPROTO_TCP ? sign_tcp(skb, at, end, of) :
			 protocol == IPPROTO_UDP ? sign_udp(skb, at, id, of) :
						   false;
	if (!of->packet)
		of->packet = 1;
	return is_signed;
}

/* The place of a packet; none of one that is not among those that are noted. */
static __noinline struct forward_stamp *place_of(struct forwarder *f,
						      const struct signature *of)
{
	u64 hash = mixed(of->packet ^ mixed(of->check));

	if (hash & ((1ULL << (f->level & 31)) - 1))
		return NULL;
	return &f->stamps[hash >> (64 - FORWARD_STAMPS_BITS)];
}

SEC("tcx/ingress")
int packet_enters(struct __sk_buff *skb)
{
	struct forwarder *f = forwarder_of(skb);
	struct signature of = {};

	if (!f || !sign(skb, &of))
		return TCX_NEXT;
	struct forward_stamp *s = place_of(f, &of);
	if (!s)
		return TCX_NEXT;
	u64 now = bpf_ktime_get_ns();
	__sync_fetch_and_add(&f->stamped, 1);
	if (s->packet) {
		__sync_fetch_and_add(&f->unmatched, 1);
		if (s->packet == of.packet && s->check == of.check &&
		    elapsed(s->ns, now) < FORWARD_COPY_NS) {
			s->ns = 0;
			return TCX_NEXT;
		}
	}
	s->packet = 0;
	s->check = of.check;
	s->ns = now;
	s->ifindex = skb->ifindex;
	__sync_lock_test_and_set(&s->packet, of.packet);
	return TCX_NEXT;
}

/* What leaves where it came in is not it: an answer may repeat what was asked. */
SEC("tcx/egress")
int packet_leaves(struct __sk_buff *skb)
{
	struct forwarder *f = forwarder_of(skb);
	struct signature of = {};

	if (!f || !sign(skb, &of))
		return TCX_NEXT;
	struct forward_stamp *s = place_of(f, &of);
	if (!s || s->packet != of.packet || s->check != of.check || s->ifindex == skb->ifindex)
		return TCX_NEXT;
	u64 came_ns = s->ns;
	if (!came_ns || __sync_val_compare_and_swap(&s->packet, of.packet, 0) != of.packet)
		return TCX_NEXT;
	u64 took = elapsed(came_ns, bpf_ktime_get_ns());
	__sync_fetch_and_add(&f->sum_ns, took);
	histogram_add(&f->took, took);
	__sync_fetch_and_add(&f->matched, 1);
	return TCX_NEXT;
}
