/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Where the parts of a packet lie, and how it is sent back. */
#ifndef OUTSIGHT_REGION_PACKET_H
#define OUTSIGHT_REGION_PACKET_H

#include "include/kernel.h"
#include "region/region.h"

#define ETH_P_IP bpf_htons(0x0800)
#define ETH_P_IPV6 bpf_htons(0x86dd)
#define IPV4_WITHOUT_OPTIONS 0x45
#define IPV4_FRAGMENT bpf_htons(0x3fff) /* more of them, and the offset */
#define HOPS 64

struct ethernet_header {
	u16 to[3];
	u16 from[3];
	u16 protocol;
};

struct ipv4_header {
	u8 version;
	u8 service;
	u16 length;
	u16 id;
	u16 fragment;
	u8 hops;
	u8 protocol;
	u16 check;
	u32 from;
	u32 to;
};

struct ipv6_header {
	u32 version;
	u16 length;
	u8 next;
	u8 hops;
	u32 from[4];
	u32 to[4];
};

struct udp_header {
	u16 from;
	u16 to;
	u16 length;
	u16 check;
};

#define LEAST_HEADERS (sizeof(struct ethernet_header) + sizeof(struct ipv4_header) + sizeof(struct udp_header))
#define MOST_HEADERS (sizeof(struct ethernet_header) + sizeof(struct ipv6_header) + sizeof(struct udp_header))

/* A datagram. One of ipv4 and ipv6 is set; the others are within the packet. */
struct datagram {
	struct ethernet_header *ethernet;
	struct ipv4_header *ipv4;
	struct ipv6_header *ipv6;
	struct udp_header *udp;
};

/* False: it is no datagram, or a fragment of one, or has options or extension headers. */
static __always_inline bool find_datagram(struct datagram *d, void *data, void *end)
{
	struct ethernet_header *ethernet = data;

	*d = (struct datagram){ .ethernet = ethernet };
	if ((void *)(ethernet + 1) > end)
		return false;
	if (ethernet->protocol == ETH_P_IP) {
		struct ipv4_header *ip = (void *)(ethernet + 1);
		if ((void *)(ip + 1) > end || ip->version != IPV4_WITHOUT_OPTIONS || ip->protocol != IPPROTO_UDP ||
		    ip->fragment & IPV4_FRAGMENT)
			return false;
		d->ipv4 = ip;
		d->udp = (void *)(ip + 1);
	} else if (ethernet->protocol == ETH_P_IPV6) {
		struct ipv6_header *ip = (void *)(ethernet + 1);
		if ((void *)(ip + 1) > end || ip->next != IPPROTO_UDP)
			return false;
		d->ipv6 = ip;
		d->udp = (void *)(ip + 1);
	} else {
		return false;
	}
	return (void *)(d->udp + 1) <= end;
}

/* The length of IP and that of UDP are of the same datagram. */
static __always_inline bool lengths_agree(const struct datagram *d)
{
	u32 udp = bpf_ntohs(d->udp->length);

	if (d->ipv4)
		return bpf_ntohs(d->ipv4->length) == udp + sizeof(*d->ipv4);
	return d->ipv6 && bpf_ntohs(d->ipv6->length) == udp;
}

/* An address as one of IPv6: an IPv4 address is ::ffff:a.b.c.d. */
struct address {
	u32 words[4];
};

static __always_inline void sender_of(const struct datagram *d, struct address *a)
{
	if (d->ipv4)
		*a = (struct address){ { 0, 0, bpf_htonl(0xffff), d->ipv4->from } };
	else if (d->ipv6)
		for (u32 i = 0; i < 4; i++)
			a->words[i] = d->ipv6->from[i];
}

static __always_inline void receiver_of(const struct datagram *d, struct address *a)
{
	if (d->ipv4)
		*a = (struct address){ { 0, 0, bpf_htonl(0xffff), d->ipv4->to } };
	else if (d->ipv6)
		for (u32 i = 0; i < 4; i++)
			a->words[i] = d->ipv6->to[i];
}

/* The sum of the Internet checksum (RFC 1071) of 8 bytes, not folded: there is room for 2^30 of them. */
static __always_inline u64 sum_of(u64 word)
{
	return (word & 0xffffffff) + (word >> 32);
}

static __always_inline u16 folded(u64 sum)
{
	sum = sum_of(sum);
	sum = sum_of(sum);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __always_inline u64 sum_of_pseudo_header(const struct datagram *d)
{
	u64 sum = (u64)bpf_htons(IPPROTO_UDP) + d->udp->length;

	if (d->ipv4)
		return sum + d->ipv4->from + d->ipv4->to;
	for (u32 i = 0; i < 4 && d->ipv6; i++)
		sum += (u64)d->ipv6->from[i] + d->ipv6->to[i];
	return sum;
}

static __always_inline void swap32(u32 *a, u32 *b)
{
	u32 kept = *a;

	*a = *b;
	*b = kept;
}

static __always_inline void swap16(u16 *a, u16 *b)
{
	u16 kept = *a;

	*a = *b;
	*b = kept;
}

/*
 * Turns a datagram around; payload is the sum of what is in it. A sender on this host may have left the
 * checksum to hardware that does not follow: then the field has the pseudo-header's sum, which is the answer's
 * as well, and the buffer says that it is not complete. Native XDP has no such buffer.
 */
static __always_inline void turn_around(struct datagram *d, u64 payload, bool has_buffer)
{
	u64 pseudo = sum_of_pseudo_header(d);

	for (u32 i = 0; i < 3; i++)
		swap16(&d->ethernet->from[i], &d->ethernet->to[i]);
	if (d->ipv4) {
		u16 *words = (void *)d->ipv4;
		u64 sum = 0;
		swap32(&d->ipv4->from, &d->ipv4->to);
		d->ipv4->hops = HOPS;
		d->ipv4->check = 0;
		for (u32 i = 0; i < sizeof(*d->ipv4) / 2; i++)
			sum += words[i];
		d->ipv4->check = ~folded(sum);
	} else if (d->ipv6) {
		for (u32 i = 0; i < 4; i++)
			swap32(&d->ipv6->from[i], &d->ipv6->to[i]);
		d->ipv6->hops = HOPS;
	}
	swap16(&d->udp->from, &d->udp->to);
	if (has_buffer && d->udp->check == folded(pseudo))
		return;
	u16 check = ~folded(pseudo + payload + d->udp->from + d->udp->to + d->udp->length);
	d->udp->check = check ? check : 0xffff;
}

#endif
