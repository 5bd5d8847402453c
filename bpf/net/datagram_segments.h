/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * How many datagrams one call sends or receives. With UDP_SEGMENT the kernel makes several of one
 * buffer, of the size that the socket has or the call's control message; with UDP_GRO it puts
 * several of one size together, and says the size in a control message.
 */
#ifndef OUTSIGHT_DATAGRAM_SEGMENTS_H
#define OUTSIGHT_DATAGRAM_SEGMENTS_H

#include "include/kernel.h"
#include "net/user_buffer.h"

#define SOL_UDP 17
#define UDP_SEGMENT 103
#define UDP_GRO 104
#define UDP_FLAGS_GRO_ENABLED 3 /* a bit's number in udp_flags; include/linux/udp.h has no name */

/*
 * Finding out how many datagrams a call has takes as long as half of counting it. What fits into one
 * of this size is one datagram: nobody gains by dividing that.
 */
#define ONE_DATAGRAM 512

/* Which of a call's control messages are looked at. */
#define CONTROL_MESSAGES 4

/* Where control messages are, and how long: in struct msghdr of the system call. */
#define MESSAGE_CONTROL 32

struct user_control {
	u64 length;
	s32 level;
	s32 type;
	u16 size; /* the data of UDP_SEGMENT, and the lower half of that of UDP_GRO */
};

/* The size in a control message of the current call; 0 if it has none, or has several messages. */
static __noinline u32 size_in_control(s32 type)
{
	struct user_control control;
	u64 at, count, where[2];

	if (current_call(&at, &count) != CALL_MESSAGE ||
	    bpf_probe_read_user(where, sizeof(where), (void *)(at + MESSAGE_CONTROL)))
		return 0;
	u64 room = where[1];
	at = where[0];
	for (u32 i = 0; i < CONTROL_MESSAGES && room >= 18; i++) {
		if (bpf_probe_read_user(&control, 18, (void *)at))
			return 0;
		if (control.level == SOL_UDP && control.type == type)
			return control.size;
		u64 next = (control.length + 7) & ~7ULL;
		if (next < 16 || next > room)
			return 0;
		at += next;
		room -= next;
	}
	return 0;
}

/* Linux 6.7 put the flag of a socket where others are, e1dc0615c6b0. */
static __always_inline bool receives_several(struct sock *sk)
{
	struct udp_sock *udp = (struct udp_sock *)sk;

	if (bpf_core_field_exists(udp->udp_flags))
		return BPF_CORE_READ(udp, udp_flags) >> UDP_FLAGS_GRO_ENABLED & 1;
	return BPF_CORE_READ_BITFIELD_PROBED(udp, gro_enabled);
}

static __always_inline u32 datagrams_of_call(struct sock *sk, u32 bytes, bool sent)
{
	u32 size, own = 0;

	if (bytes <= ONE_DATAGRAM)
		return 1;
	if (sent)
		own = BPF_CORE_READ((struct udp_sock *)sk, gso_size);
	else if (!receives_several(sk))
		return 1;
	size = size_in_control(sent ? UDP_SEGMENT : UDP_GRO);
	if (!size)
		size = own;
	return size && bytes > size ? (bytes + size - 1) / size : 1;
}

#endif
