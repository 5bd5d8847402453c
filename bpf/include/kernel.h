/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The kernel's types, as far as the programs here use them. Each field is found by name in the
 * running kernel's BTF when a program is loaded, so order and completeness do not matter here.
 */
#ifndef OUTSIGHT_KERNEL_H
#define OUTSIGHT_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef short __s16;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_HASH_OF_MAPS = 13,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
	BPF_SK_STORAGE_GET_F_CREATE = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

#define TASK_DEAD 0x80

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_MPTCP 262
#define MSG_PEEK 2
#define MSG_TRUNC 0x20
#define MSG_ERRQUEUE 0x2000
#define RCV_SHUTDOWN 1
#define SOCK_DONE 1 /* a bit's number in skc_flags: the other end has sent its FIN */

#define EEXIST 17
#define EPIPE 32
#define ENETUNREACH 101
#define ECONNRESET 104
#define ETIMEDOUT 110
#define ECONNREFUSED 111
#define EHOSTUNREACH 113

enum tcp_state {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT = 2,
	TCP_SYN_RECV = 3,
	TCP_FIN_WAIT1 = 4,
	TCP_FIN_WAIT2 = 5,
	TCP_CLOSE = 7,
	TCP_CLOSE_WAIT = 8,
	TCP_LISTEN = 10,
	TCP_CLOSING = 11,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	unsigned int flags;
};

/* Flags of cgroup_subsys_state, include/linux/cgroup-defs.h. */
#define CSS_ONLINE 2

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_root *root;
};

struct css_set {
	struct cgroup_subsys_state *subsys[16];
	struct cgroup *dfl_cgrp;
};

struct sched_info {
	unsigned long pcount;
	unsigned long long run_delay;
	unsigned long long last_arrival;
	unsigned long long last_queued;
};

struct rq {
	u64 clock;
	u64 clock_task;
};

struct cfs_rq {
	struct rq *rq;
	u64 throttled_clock_self;
	u64 throttled_clock_self_time;
	int throttle_count;
};

struct sched_entity {
	u64 exec_start;
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	struct sched_entity se;
	unsigned int __state;
	s32 pid;
	s32 tgid;
	struct task_struct *group_leader;
	char comm[16];
	struct css_set *cgroups;
	struct sched_info sched_info;
	unsigned long min_flt;
	unsigned long maj_flt;
};

struct in6_addr {
	union {
		u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

struct ns_common {
	u32 inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	volatile u8 skc_state;
	unsigned long skc_flags;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

typedef struct {
	int counter;
} atomic_t;

struct sk_buff_head {
	u32 qlen;
};

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket; /* none once it is closed */
	struct sk_buff_head sk_receive_queue;
	u16 sk_protocol;
	int sk_err;
	u8 sk_shutdown;
	atomic_t sk_drops;
	u32 sk_ack_backlog;	/* of a listening socket: connections that wait to be accepted */
	u32 sk_max_ack_backlog;
};

struct minmax_sample {
	u32 t;
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	u32 snd_una;
	u32 rcv_nxt;
	u32 copied_seq;
	u32 write_seq;
	u64 first_tx_mstamp; /* microseconds */
	u32 srtt_us; /* eight times the value */
	u32 mdev_us; /* four times the value */
	u32 chrono_stat[3]; /* jiffies; the second: limited by the receiver's window */
	u64 bytes_received;
	u64 bytes_sent; /* retransmissions among them */
	u32 data_segs_out; /* the same */
	u32 data_segs_in;
	u32 total_retrans;
	u32 rcv_ooopack;
	struct minmax rtt_min;
};

struct udp_sock {
	u16 gso_size;
	u8 gro_enabled : 1; /* before Linux 6.7 */
	unsigned long udp_flags;
};

struct socket {
	struct sock *sk;
};

struct file;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
	u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

struct bpf_map;

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key;
	void *value;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

#pragma clang attribute pop

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_endian.h>

/*
 * The lesser of a number and a constant. In assembly, so that the very register is compared that is
 * used: older verifiers (before 6.3) do not follow a bound to a copy, which compilers may compare.
 */
static __always_inline u32 at_most(u64 n, const u32 limit)
{
	/*
	 * First without a branch, and for all numbers of 64 bits: the verifier of 6.1 took the
	 * branch below for one that is never taken, removed it, and a copy of 4 MB went over 128
	 * bytes of kernel memory.
	 */
	s64 room = (s64)limit - (s64)n;
	barrier_var(room);
	s64 over = (room | (s64)n) >> 63;
	barrier_var(over);
	n += room & over;
	asm volatile("if %0 <= %1 goto +1\n\t%0 = %1" : "+r"(n) : "i"(limit));
	return n;
}

static __always_inline u64 elapsed(u64 from_ns, u64 to_ns)
{
	return to_ns > from_ns ? to_ns - from_ns : 0;
}

/*
 * What a map of storage keeps of a socket, made of zeros where there is nothing. Of two CPUs that
 * make it at once, the kernel serves one and refuses the other (bpf_local_storage_update, of
 * BPF_NOEXIST), which finds then what the first has made. NULL where there is no memory.
 */
#define SOCKET_STORAGE(map, sk)                                                                    \
	({                                                                                         \
		void *kept = bpf_sk_storage_get(map, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);          \
		if (!kept)                                                                         \
			kept = bpf_sk_storage_get(map, sk, 0, 0);                                  \
		kept;                                                                              \
	})

#endif
