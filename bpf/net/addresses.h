/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* What a socket is, and its addresses. */
#ifndef OUTSIGHT_ADDRESSES_H
#define OUTSIGHT_ADDRESSES_H

#include "include/kernel.h"
#include "net/edges.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

static __always_inline void map_ipv4(struct address *to, __be32 from)
{
	u32 *word = (u32 *)to->bytes;

	word[0] = 0;
	word[1] = 0;
	word[2] = bpf_htonl(0xffff);
	word[3] = from;
}

static __always_inline void copy_ipv6(struct address *to, const struct in6_addr *from)
{
	u32 *word = (u32 *)to->bytes;

	word[0] = from->in6_u.u6_addr32[0];
	word[1] = from->in6_u.u6_addr32[1];
	word[2] = from->in6_u.u6_addr32[2];
	word[3] = from->in6_u.u6_addr32[3];
}

static __always_inline void local_address(struct sock *sk, struct address *to)
{
	if (sk->__sk_common.skc_family == AF_INET6)
		copy_ipv6(to, &sk->__sk_common.skc_v6_rcv_saddr);
	else
		map_ipv4(to, sk->__sk_common.skc_rcv_saddr);
}

static __always_inline void remote_address(struct sock *sk, struct address *to)
{
	if (sk->__sk_common.skc_family == AF_INET6)
		copy_ipv6(to, &sk->__sk_common.skc_v6_daddr);
	else
		map_ipv4(to, sk->__sk_common.skc_daddr);
}

static __always_inline bool is_ipv4(const struct address *a)
{
	const u32 *word = (const u32 *)a->bytes;

	return !word[0] && !word[1] && word[2] == bpf_htonl(0xffff);
}

static __always_inline bool is_loopback(const struct address *a)
{
	const u32 *word = (const u32 *)a->bytes;

	if (word[0] || word[1])
		return false;
	if (word[2] == bpf_htonl(0xffff))
		return a->bytes[12] == 127;
	return !word[2] && word[3] == bpf_htonl(1);
}

static __always_inline u16 remote_port(struct sock *sk)
{
	return bpf_ntohs(sk->__sk_common.skc_dport);
}

static __always_inline u32 netns_of(struct sock *sk)
{
	return sk->__sk_common.skc_net.net->ns.inum;
}

static __always_inline bool is_inet(struct sock *sk)
{
	u16 family = sk->__sk_common.skc_family;

	return family == AF_INET || family == AF_INET6;
}

static __always_inline bool is_tcp(struct sock *sk)
{
	return is_inet(sk) && sk->sk_protocol == IPPROTO_TCP;
}

/*
 * A multipath TCP socket. Some runtimes listen with one by default; connections from ordinary
 * clients are nevertheless ordinary TCP sockets, so that only the listener is of interest here.
 */
static __always_inline bool is_mptcp(struct sock *sk)
{
	return is_inet(sk) && sk->sk_protocol == IPPROTO_MPTCP;
}

#endif
