/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Transfers of data on kernels without the tracepoints sock_send_length and sock_recv_length
 * (before 6.3): the ends of the functions that all of a socket's calls go through, one layer below
 * the tracepoints. They know the same: the socket, the result and the flags.
 *
 * Not the functions of TCP itself: those that report the received bytes are called more than once
 * for one call of the program, for bytes that it only peeks at, and for some socket options.
 */
#ifndef OUTSIGHT_FALLBACK_H
#define OUTSIGHT_FALLBACK_H

#include "include/kernel.h"
#include "net/transfer.h"

struct msghdr;
struct page;

/* Nothing is shared by calling it: older verifiers allow too little stack. */
static __always_inline int sent_on(struct sock *sk, int bytes, u32 readable)
{
	return sk ? transferred(sk, bytes, readable, true) : 0;
}

static __always_inline int received_by(struct socket *socket, int flags, int ret)
{
	if (flags & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	return socket->sk ? transferred(socket->sk, ret, flags & MSG_TRUNC ? 0 : ret, false) : 0;
}

SEC("fexit/inet_sendmsg")
int BPF_PROG(after_inet_sendmsg, struct socket *socket, struct msghdr *message, u64 size, int ret)
{
	return sent_on(socket->sk, ret, ret);
}

SEC("fexit/inet6_sendmsg")
int BPF_PROG(after_inet6_sendmsg, struct socket *socket, struct msghdr *message, u64 size, int ret)
{
	return sent_on(socket->sk, ret, ret);
}

SEC("fexit/inet_recvmsg")
int BPF_PROG(after_inet_recvmsg, struct socket *socket, struct msghdr *message, u64 size, int flags,
	     int ret)
{
	return received_by(socket, flags, ret);
}

SEC("fexit/inet6_recvmsg")
int BPF_PROG(after_inet6_recvmsg, struct socket *socket, struct msghdr *message, u64 size,
	     int flags, int ret)
{
	return received_by(socket, flags, ret);
}

/* What sendfile and splice called until 6.5, past the tracepoint as well. */
SEC("fexit/inet_sendpage")
int BPF_PROG(after_inet_sendpage, struct socket *socket, struct page *page, int offset, u64 size,
	     int flags, int ret)
{
	return sent_on(socket->sk, ret, 0);
}

#endif
