/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The bytes that the current task's system call sends or receives, in its own memory. */
#ifndef OUTSIGHT_USER_BUFFER_H
#define OUTSIGHT_USER_BUFFER_H

#include "include/architecture.h"
#include "include/kernel.h"
#include "net/edges.h"
#include "net/proto/proto_text.h"

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

/* What the current system call is, its second argument and its third. */
static __always_inline u32 current_call(u64 *second, u64 *third)
{
	void *saved = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

	if (architecture == ARCHITECTURE_AMD64) {
		struct pt_regs___x86_64 *regs = saved;

		if (regs->cs != X86_64_USER_CS)
			return CALL_OTHER;
		*second = regs->si;
		*third = regs->dx;
		return call_of_x86_64(regs->orig_ax);
	}
	if (architecture == ARCHITECTURE_ARM64) {
		struct pt_regs___arm64 *regs = saved;

		*second = regs->regs[1];
		*third = regs->regs[2];
		return call_of_arm64(regs->syscallno);
	}
	return CALL_OTHER;
}

/*
 * Where the bytes are that the current system call hands over: a buffer and its size, or a vector,
 * also that of a message, and its length. CALL_OTHER if that cannot be had.
 */
static __always_inline u32 current_bytes(u64 *at, u64 *count)
{
	u64 message[2];
	u32 call = current_call(at, count);

	if (call == CALL_BUFFER || call == CALL_VECTOR)
		return call;
	/* struct msghdr: the vector and its length begin at byte 16. */
	if (call != CALL_MESSAGE ||
	    bpf_probe_read_user(message, sizeof(message), (void *)(*at + 16)))
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
static __always_inline u32 read_transfer(struct connection *c, u8 *to, u32 limit, u32 size,
					 bool early)
{
	if (!early)
		return read_buffer(to, limit, size);
	u32 n = at_most(c->early.length, limit);
	return bpf_probe_read_kernel(to, n, c->early.text) ? 0 : n;
}

#endif
