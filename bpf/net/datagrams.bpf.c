//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * The peers of unconnected UDP sockets. Neither a socket nor the data hooks know them: the kernel
 * has the address of a call on its stack alone. These hooks are shown it, a moment before the data
 * hook counts the call. They change nothing, and their answer is always to go on.
 */
#include "include/kernel.h"
#include "net/datagrams.h"
#include "net/edges.h"

char LICENSE[] SEC("license") = "GPL";

/* The context of these hooks, as the kernel's interface has it. */
struct bpf_sock_addr {
	u32 user_family;
	u32 user_ip4;
	u32 user_ip6[4];
	u32 user_port;
	u32 family;
	u32 type;
	u32 protocol;
	u32 msg_src_ip4;
	u32 msg_src_ip6[4];
	union {
		struct bpf_sock *sk;
		u64 : 64;
	} __attribute__((aligned(8)));
};

#define GO_ON 1

/* The map of edges.bpf.c. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct datagram_socket);
} datagram_sockets SEC(".maps");

static __always_inline struct datagram_call *call_of(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	u64 task = bpf_get_current_task();
	struct datagram_socket *s;
	u16 port = bpf_ntohs((u16)ctx->user_port);

	/* A connected socket comes here without an address where its call has control messages. */
	if (!sk || !port)
		return NULL;
	s = SOCKET_STORAGE(&datagram_sockets, sk);
	if (!s)
		return NULL;
	struct datagram_call *call = &s->calls[call_index(task)];
	call->task = task;
	call->peer.port = port;
	call->peer.unused = 0;
	return call;
}

static __always_inline int note_ipv4(struct bpf_sock_addr *ctx)
{
	struct datagram_call *call = call_of(ctx);

	if (call) {
		u32 *word = (u32 *)call->peer.address.bytes;

		word[0] = 0;
		word[1] = 0;
		word[2] = bpf_htonl(0xffff);
		word[3] = ctx->user_ip4;
	}
	return GO_ON;
}

static __always_inline int note_ipv6(struct bpf_sock_addr *ctx)
{
	struct datagram_call *call = call_of(ctx);

	if (call) {
		u32 *word = (u32 *)call->peer.address.bytes;

		word[0] = ctx->user_ip6[0];
		word[1] = ctx->user_ip6[1];
		word[2] = ctx->user_ip6[2];
		word[3] = ctx->user_ip6[3];
	}
	return GO_ON;
}

SEC("cgroup/sendmsg4")
int sendmsg_ipv4(struct bpf_sock_addr *ctx)
{
	return note_ipv4(ctx);
}

SEC("cgroup/sendmsg6")
int sendmsg_ipv6(struct bpf_sock_addr *ctx)
{
	return note_ipv6(ctx);
}

SEC("cgroup/recvmsg4")
int recvmsg_ipv4(struct bpf_sock_addr *ctx)
{
	return note_ipv4(ctx);
}

SEC("cgroup/recvmsg6")
int recvmsg_ipv6(struct bpf_sock_addr *ctx)
{
	return note_ipv6(ctx);
}
