/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Packets that the kernel drops, by whose they are, why, and at which device. */
#ifndef OUTSIGHT_PACKET_DROPS_PATH_H
#define OUTSIGHT_PACKET_DROPS_PATH_H

#include "include/kernel.h"
#include "include/cgroup_id.h"
#include "net/addresses.h"
#include "net/datagram_flows.h"
#include "net/edge_maps.h"
#include "net/listeners.h"
#include "net/packet_drops.h"

/* kfree_skb tells the receiving socket since Linux 6.11 (c53795d48ee8). */
const volatile bool drop_has_receiver = true;

/* Reasons for which a packet that nobody misses is freed; set by the reader. */
const volatile bool no_loss[PACKET_DROP_REASONS] = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct packet_drop_key);
	__type(value, struct packet_drop);
} packet_drops SEC(".maps");

#define ROOT_CGROUP 1 /* of kernel sockets too */
#define TCP_TIME_WAIT 6
#define TCP_NEW_SYN_RECV 12

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct net___devices {
	struct hlist_head *dev_index_head;
};

struct net_device {
	char name[16];
	int ifindex;
	possible_net_t nd_net;
	struct hlist_node index_hlist;
};

struct skb_shared_info {
	u16 gso_segs;
};

struct sk_buff {
	struct sock *sk;
	struct net_device *dev;
	__be16 protocol;
	int skb_iif;
	u32 end;
	u8 *head;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock___cgroup {
	struct sock_cgroup_data sk_cgrp_data;
};

#pragma clang attribute pop

/* The buckets of a namespace's devices by their index: NETDEV_HASHENTRIES. */
#define DEVICE_BUCKETS 256
#define DEVICES_IN_BUCKET 16

/* As dev_get_by_index_rcu finds it. */
static __always_inline void name_by_index(struct net *net, u32 ifindex, void *to, u32 size)
{
	struct net___devices *devices = (void *)net;

	if (!bpf_core_field_exists(devices->dev_index_head))
		return;
	struct hlist_head *bucket = BPF_CORE_READ(devices, dev_index_head);
	struct hlist_node *node = BPF_CORE_READ(bucket + (ifindex & (DEVICE_BUCKETS - 1)), first);

	for (int i = 0; i < DEVICES_IN_BUCKET && node; i++) {
		struct net_device *dev =
			(void *)node - bpf_core_field_offset(struct net_device, index_hlist);

		if ((u32)BPF_CORE_READ(dev, ifindex) == ifindex) {
			bpf_core_read_str(to, size, &dev->name);
			return;
		}
		node = BPF_CORE_READ(node, next);
	}
}

/* The control group that a socket is of; 0 where that is not known. */
static __noinline u64 owner_of(struct sock *sk)
{
	struct sock___cgroup *of = (void *)sk;

	if (sk->__sk_common.skc_state == TCP_LISTEN) {
		struct listener *listener = listener_of(sk);

		if (listener)
			return listener->owner;
	} else if (is_tcp(sk)) {
		struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);

		if (c && c->owner)
			return c->owner;
	} else {
		struct datagram_socket *s = bpf_sk_storage_get(&datagram_sockets, sk, 0, 0);

		if (s && s->owner)
			return s->owner;
	}
	if (cgroup_subsys_index >= 0 || !bpf_core_field_exists(of->sk_cgrp_data.cgroup))
		return 0;
	u64 id = BPF_CORE_READ(of, sk_cgrp_data.cgroup, kn, id);
	return id == ROOT_CGROUP ? 0 : id;
}

static __always_inline u32 packets_in(struct sk_buff *skb)
{
	struct skb_shared_info *info = (void *)(skb->head + skb->end);
	u32 segments = BPF_CORE_READ(info, gso_segs);

	return segments ?: 1;
}

static __always_inline void count_packet_drop(const struct packet_drop_key *key, struct net *net,
					      u32 packets)
{
	struct packet_drop *known = bpf_map_lookup_elem(&packet_drops, key);

	if (!known) {
		struct packet_drop first = {};

		if (net && key->ifindex)
			name_by_index(net, key->ifindex, &first.device, sizeof(first.device));
		/* It fails where another CPU was the first, too. */
		bpf_map_update_elem(&packet_drops, key, &first, BPF_NOEXIST);
		known = bpf_map_lookup_elem(&packet_drops, key);
		if (!known) {
			count_drop(DROP_PACKET_DROP);
			return;
		}
	}
	__sync_fetch_and_add(&known->packets, (u64)packets);
}

SEC("tp_btf/kfree_skb")
int kfree_skb(u64 *ctx)
{
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	struct packet_drop_key key = {.reason = (u32)ctx[2]};

	if (key.reason < PACKET_DROP_REASONS && no_loss[key.reason])
		return 0;
	struct sock *sk = drop_has_receiver ? (struct sock *)ctx[3] : NULL;
	if (!sk)
		sk = skb->sk;
	u16 protocol = bpf_ntohs(skb->protocol);
	/* What is dropped on its way to a device may not have its protocol yet. */
	if (protocol ? protocol != ETH_P_IP && protocol != ETH_P_IPV6 : !sk || !is_inet(sk))
		return 0;
	struct net *net = NULL;
	if (sk) {
		u8 state = sk->__sk_common.skc_state;

		net = sk->__sk_common.skc_net.net;
		if (state != TCP_TIME_WAIT && state != TCP_NEW_SYN_RECV)
			key.owner = owner_of(sk);
	}
	/* A queue of UDP keeps other data there: then this reads 0. */
	key.ifindex = skb->dev->ifindex;
	if (key.ifindex)
		net = skb->dev->nd_net.net;
	else
		key.ifindex = skb->skb_iif;
	if (net)
		key.netns = net->ns.inum;
	count_packet_drop(&key, net, packets_in(skb));
	return 0;
}

#endif
