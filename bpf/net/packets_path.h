/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Packets with data on their way between sockets: the part of edges.bpf.c that is called where a
 * socket's packets leave for the network, before they are segmented, and where they arrive, after
 * they were put together. Its answer is always to let them pass.
 *
 * It finds out the delay of packets and their order. How many there are is known without it: so
 * the reader attaches it for slices of time only.
 */
#ifndef OUTSIGHT_PACKETS_PATH_H
#define OUTSIGHT_PACKETS_PATH_H

#include "include/kernel.h"
#include "net/addresses.h"
#include "net/connections.h"
#include "net/datagram_flows.h"
#include "net/packet_cards.h"
#include "net/packet_counts.h"
#include "net/packet_samples.h"
#include "net/packet_stamps.h"
#include "net/packets.h"

#define LET_PASS 1
#define TCX_NEXT -1
#define ETHERNET_HEADER 14
#define ETH_P_TEB 0x6558 /* a frame of Ethernet */
#define IPPROTO_IPIP 4
#define IPPROTO_IPV6 41
#define IPPROTO_DSTOPTS 60

#define VXLAN_PORT 4789
#define OLDER_VXLAN_PORT 8472 /* Linux's before that one was assigned; flannel and Cilium have it */
#define VXLAN_HAS_NUMBER 0x08
#define GENEVE_PORT 6081
#define GENEVE_OPTIONS 0x3f /* their length, in words of four bytes */

/* The present slice of time; set by the reader. 0: packets are not observed. */
volatile u32 packet_slice = 0;

/* A slice may last for several periods. In each, a CPU observes so many packets in each direction. */
volatile u32 packet_period = 0;
volatile u32 packet_limit = 0;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PACKET_HOOKS);
	__type(key, u32);
	__type(value, struct packet_hook);
} packet_hooks SEC(".maps");

/* As the kernel's interface has them. */
struct bpf_sock {
	u32 bound_dev_if;
	u32 family;
	u32 type;
	u32 protocol;
	u32 mark;
	u32 priority;
	u32 src_ip4;
	u32 src_ip6[4];
	u32 src_port;
	__be16 dst_port;
	u16 : 16;
	u32 dst_ip4;
	u32 dst_ip6[4];
	u32 state;
};

struct bpf_tcp_sock {
	u32 snd_cwnd;
	u32 srtt_us;
	u32 rtt_min;
	u32 snd_ssthresh;
	u32 rcv_nxt;
};

struct __sk_buff {
	u32 len;
	u32 unused[35];
	u64 flow_keys;
	u64 tstamp;
	u32 wire_len;
	u32 gso_segs;
	union {
		struct bpf_sock *sk;
		u64 : 64;
	} __attribute__((aligned(8)));
	u32 gso_size;
};

_Static_assert(__builtin_offsetof(struct __sk_buff, gso_segs) == 164, "gso_segs");
_Static_assert(__builtin_offsetof(struct __sk_buff, sk) == 168, "sk");
_Static_assert(__builtin_offsetof(struct bpf_tcp_sock, rcv_nxt) == 16, "rcv_nxt");

/* One packet with data. */
struct packet {
	u32 length;   /* of its data */
	u32 segments; /* that it becomes, or was put together of */
	u32 first;    /* TCP: sequence number of the first byte */
	u32 timestamp; /* TCP: 0 where the connection has none */
	u16 id;	      /* IPv4: identification; 0: none */
	u16 greater_port;
	u16 network;   /* where the header of IP begins */
	u16 transport; /* where the header of TCP or UDP begins */
	u16 sent;
	u32 end;
	struct address from, to;
};

#define IP_FRAGMENT 0x3fff /* more fragments, or an offset */
#define HOP_BY_HOP 0

/* Where a packet ends that has so many bytes from its IP header on: a frame may be padded. */
static __always_inline u32 end_of(struct __sk_buff *skb, u32 network, u32 bytes)
{
	u32 end = skb->len;

	return network + bytes < end && !skb->gso_size ? network + bytes : end;
}

/* Reads the header of IP, and tells the protocol in it. Addresses are wanted of UDP alone. */
static __noinline int read_ip(struct __sk_buff *skb, struct packet *packet)
{
	u8 header[40];

	if (!packet)
		return -1;
	u32 network = packet->network;
	if (bpf_skb_load_bytes(skb, network, header, 20))
		return -1;
	if (header[0] >> 4 == 4) {
		packet->transport = network + (header[0] & 15) * 4;
		packet->id = (u16)header[4] << 8 | header[5];
		packet->end = end_of(skb, network, (u32)header[2] << 8 | header[3]);
		map_ipv4(&packet->from, *(u32 *)&header[12]);
		map_ipv4(&packet->to, *(u32 *)&header[16]);
		return header[9];
	}
	if (header[0] >> 4 != 6 || bpf_skb_load_bytes(skb, network, header, 40))
		return -1;
	packet->transport = network + 40;
	packet->id = 0;
	packet->end = end_of(skb, network, 40 + ((u32)header[4] << 8 | header[5]));
	/* Packets of more than 64 KiB have one extension of eight bytes. */
	if (header[6] == HOP_BY_HOP && !bpf_skb_load_bytes(skb, network + 40, &header[6], 2) &&
	    !header[7]) {
		packet->transport = network + 48;
		packet->end = skb->len;
	}
	copy_ipv6(&packet->from, (struct in6_addr *)&header[8]);
	copy_ipv6(&packet->to, (struct in6_addr *)&header[24]);
	return header[6];
}

static __always_inline u32 segments_of(struct __sk_buff *skb, u32 length)
{
	u32 segments = skb->gso_segs, size = skb->gso_size;

	if (segments || !size)
		return segments ? segments : 1;
	return (length + size - 1) / size;
}

/* --- order --- */

enum order {
	IN_ORDER = 0,
	ORDER_OLDER = 1,
	ORDER_COPY = 2,
};

/*
 * Senders number their packets in IPv4: for each connection, one after another. Returns how much
 * newer the packet is than the newest; has says whether it was received before.
 */
static __always_inline s32 note_id(struct packet_path *path, u16 id, u32 segments, bool *has)
{
	u16 last = id + segments - 1;
	s32 newer = (__s16)(last - path->newest_id);
	u64 bits = segments < 64 ? (1ULL << (segments & 63)) - 1 : ~0ULL;

	*has = false;
	if (!(path->flags & PATH_IDS)) {
		path->flags |= PATH_IDS;
		newer = 64;
	}
	if (newer > 0) {
		path->ids = (newer < 64 ? path->ids << (newer & 63) : 0) | bits;
		path->newest_id = last;
	} else if (newer > -64) {
		bits <<= -newer & 63;
		*has = (path->ids & bits) == bits;
		path->ids |= bits;
	}
	return newer;
}

/*
 * The order of what was sent is that of the timestamps, which are in milliseconds; of those that
 * have the same, of their ids. Of what has neither it is not known: what fills a gap may have been
 * sent again.
 */
static __always_inline u32 tcp_order(struct packet_path *path, const struct packet *packet,
				     u32 expected, bool *repeated)
{
	u32 end = packet->first + packet->length;
	bool first = !(path->flags & PATH_RECEIVED), has = false, older;
	s32 newer = packet->id ? note_id(path, packet->id, packet->segments, &has) : 0;
	s32 later = first ? 1 : (s32)(packet->timestamp - path->timestamp);
	bool gap = !first && (s32)(packet->first - path->highest) < 0;

	/* The socket may not have taken what waits for it. */
	if (first || (s32)(expected - path->contiguous) > 0)
		path->contiguous = expected;
	bool known = (s32)(end - path->contiguous) <= 0; /* all of it has been received */
	if (!known && (s32)(packet->first - path->contiguous) <= 0)
		path->contiguous = end;

	older = packet->timestamp && later < 0;
	if (!later && packet->id)
		older = newer <= 0;
	if (later > 0)
		path->timestamp = packet->timestamp;
	if (first || (s32)(end - path->highest) > 0)
		path->highest = end;
	path->flags |= PATH_RECEIVED;
	*repeated = known && !older;
	/* What was late may have been sent again, and have come that way before: it is no copy. */
	if (older && (has || (known && (!packet->id || newer <= -64))))
		return ORDER_COPY;
	return older && gap ? ORDER_OLDER : IN_ORDER;
}

/* An id far from the others is the beginning of another row of them. */
static __always_inline u32 udp_order(struct packet_path *path, const struct packet *packet)
{
	bool has = false;

	if (!packet->id)
		return IN_ORDER;
	s32 newer = note_id(path, packet->id, packet->segments, &has);
	if (newer > 0)
		return IN_ORDER;
	if (newer > -64)
		return has ? ORDER_COPY : ORDER_OLDER;
	path->newest_id = packet->id + packet->segments - 1;
	path->ids = 1;
	return IN_ORDER;
}

/* What was found out about the order of packets. */
static __always_inline void count_order(struct packet_counts *to, u32 segments, u32 order,
					bool repeated)
{
	__sync_fetch_and_add(&to->observed_packets, segments);
	if (order == ORDER_OLDER)
		__sync_fetch_and_add(&to->reordered_packets, segments);
	else if (order == ORDER_COPY)
		__sync_fetch_and_add(&to->duplicated_packets, segments);
	if (repeated)
		__sync_fetch_and_add(&to->repeated_packets, segments);
}

/* What came before this slice is not remembered: of what came between the two, nothing is known. */
static __always_inline void begin_slice(struct packet_path *path)
{
	u32 slice = packet_slice;

	if (path->slice == slice)
		return;
	path->slice = slice;
	path->flags = 0;
}

/* --- TCP --- */

/*
 * Of the sequence numbers of a packet the one with most trailing zeros: that of a part which has it
 * is the same, and so is that of a whole in which no other has more.
 */
static __always_inline u32 position_of(const struct packet *packet, u32 *zeros)
{
	u32 last = packet->first + packet->length - 1;
	u32 bit = 63 - __builtin_clzll((u64)((packet->first - 1) ^ last) | 1);

	*zeros = bit & 31;
	return last >> *zeros << *zeros;
}

static __always_inline struct edge *known_edge(const struct connection *c)
{
	return c->flags & CONNECTION_OPEN ? edge_at(c->edge, c->edge_generation) : NULL;
}

static __always_inline u32 direction_of(const struct packet *packet)
{
	return packet->sent ? PACKET_SENT : PACKET_RECEIVED;
}

/* What identifies a packet among those of its connection. */
static __always_inline u64 tcp_identity(const struct packet *packet, u32 *zeros)
{
	return (u64)position_of(packet, zeros) << 32 | packet->timestamp;
}

static __always_inline void time_tcp(struct connection *c, struct edge *edge,
				     struct edge_packets *p, const struct packet *packet)
{
	u32 zeros, direction = direction_of(packet);
	u64 identity = tcp_identity(packet, &zeros);

	if (edge && p && is_between_hosts(edge) && zeros >= p->sample_levels[direction])
		sample_packet(c->edge, mixed(identity), zeros, direction);
	/* Which connection, and which way. */
	u64 check = c->flags & CONNECTION_WHOLE ?
			    (u64)c->client_sequence << 32 | c->server_sequence :
			    0;
	check += (c->role == ROLE_CLIENT) == packet->sent;
	if (packet->sent)
		stamp_packet(identity, check);
	else if (p)
		match_packet(p, identity, check);
}

#define TCP_TIMESTAMP bpf_htonl(0x0101080a) /* no operation twice, kind 8, length 10 */

/* Reads the header of TCP. False: it has no data. */
static __noinline int read_tcp(struct __sk_buff *skb, struct packet *packet)
{
	u32 header[8];

	if (!packet || bpf_skb_load_bytes(skb, packet->transport, header, 20))
		return false;
	u32 size = (bpf_ntohl(header[3]) >> 28) * 4, before = packet->transport + size;
	if (size < 20 || packet->end <= before)
		return false;
	packet->length = packet->end - before;
	packet->segments = segments_of(skb, packet->length);
	packet->first = bpf_ntohl(header[1]);
	if (size >= 32 && !bpf_skb_load_bytes(skb, packet->transport + 20, &header[5], 12) &&
	    header[5] == TCP_TIMESTAMP)
		packet->timestamp = bpf_ntohl(header[6]);
	return true;
}

static __noinline int tcp_packet(struct __sk_buff *skb, struct bpf_sock *sk, bool sent)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	struct packet packet = {.sent = sent};

	if (!c || c->flags & CONNECTION_LISTENER || read_ip(skb, &packet) != IPPROTO_TCP)
		return 0;
	struct bpf_tcp_sock *tcp = NULL;
	if (!sent) {
		tcp = bpf_tcp_sock(sk);
		if (!tcp)
			return 0;
	}
	if (!read_tcp(skb, &packet))
		return 0;
	struct edge_packets *p = NULL;
	struct edge *edge = known_edge(c);
	if (edge) {
		u32 index = c->edge;
		p = bpf_map_lookup_elem(&packets_of_edge, &index);
	}
	if (!sent && !c->unread_since_ns && c->role == ROLE_SERVER)
		c->unread_since_ns = bpf_ktime_get_ns();
	if (tcp) {
		begin_slice(&c->packets);
		bool repeated = false;
		u32 order = tcp_order(&c->packets, &packet, tcp->rcv_nxt, &repeated);
		if (p)
			count_order(&p->counts, packet.segments, order, repeated);
	}
	time_tcp(c, edge, p, &packet);
	return 0;
}

/* --- UDP --- */

static __always_inline bool flow_is_known(const struct datagram_flow *f)
{
	u32 index = f->edge;
	struct datagram_edge *d = bpf_map_lookup_elem(&datagram_edges, &index);

	return f->known && d && f->generation == (u32)d->generation;
}

/* A datagram is as round as its hash. */
static __always_inline void sample_udp(struct edge_packets *p, u32 edge, u64 packet, u32 direction)
{
	if (!(packet & ((1ULL << (p->sample_levels[direction] & 63)) - 1)))
		sample_packet(edge, packet, 63 - __builtin_clzll((packet & -packet) | 1), direction);
}

#define TIMED_BYTES 16

/*
 * What identifies a datagram, by its data and by its headers; 0: it cannot be read. The greater port
 * is the client's, most often: translation of the server's address does not change it.
 */
static __always_inline u64 udp_identity(struct __sk_buff *skb, const struct packet *packet,
					u64 *check)
{
	u64 data[TIMED_BYTES / 8] = {};
	u32 size = skb->gso_size, length = packet->segments > 1 && size ? size : packet->length;

	/* Before Linux 6.2, a size that a branch keeps from being 0 is refused. */
	if (length && bpf_skb_load_bytes(skb, packet->transport + 8, data,
					 at_most(length - 1, TIMED_BYTES - 1) + 1))
		return 0;
	*check = (u64)packet->greater_port << 48 | (u64)packet->id << 32 | length;
	return mixed(data[0] ^ mixed(data[1])) | 1;
}

static __noinline int time_udp(struct __sk_buff *skb, const struct packet *packet,
			       struct edge_packets *p, u32 edge)
{
	u64 check = 0, identity = packet ? udp_identity(skb, packet, &check) : 0;

	if (!identity)
		return 0;
	if (p)
		sample_udp(p, edge, mixed(identity ^ check), direction_of(packet));
	if (packet->sent)
		stamp_packet(identity, check);
	else if (p)
		match_packet(p, identity, check);
	return 0;
}

/* The flow of a packet, if a call has made it. */
static __always_inline struct datagram_flow *made_flow(struct datagram_socket *s,
						       struct flow_key *key)
{
	if (!s || !s->id)
		return NULL;
	if (same_peer(&s->peer, &key->peer))
		return s->flow.role ? &s->flow : NULL;
	struct datagram_flow *f = bpf_map_lookup_elem(&datagram_flows, key);
	return f ? f : bpf_map_lookup_elem(&crowded_flows, key);
}

/* Reads the header of UDP, and tells the ports. */
static __always_inline bool read_udp(struct __sk_buff *skb, struct packet *packet, u16 *source,
				     u16 *destination)
{
	u16 header[4];
	u32 before = packet->transport + 8;

	if (bpf_skb_load_bytes(skb, packet->transport, header, 8) || packet->end < before)
		return false;
	*source = bpf_ntohs(header[0]);
	*destination = bpf_ntohs(header[1]);
	packet->greater_port = *source > *destination ? *source : *destination;
	packet->length = packet->end - before;
	packet->segments = segments_of(skb, packet->length);
	return true;
}

static __noinline int udp_packet(struct __sk_buff *skb, struct bpf_sock *sk, bool sent)
{
	struct packet packet = {.sent = sent};
	struct flow_key key = {};
	u16 source, destination;

	if (read_ip(skb, &packet) != IPPROTO_UDP || !read_udp(skb, &packet, &source, &destination))
		return 0;
	key.socket = bpf_get_socket_cookie(skb);
	key.peer.address = sent ? packet.to : packet.from;
	key.peer.port = sent ? destination : source;
	struct datagram_flow *f = made_flow(bpf_sk_storage_get(&datagram_sockets, sk, 0, 0), &key);
	struct edge_packets *p = NULL;
	u32 index = 0;
	if (f && flow_is_known(f)) {
		index = f->edge;
		p = bpf_map_lookup_elem(&packets_of_edge, &index);
	}
	if (sent)
		return time_udp(skb, &packet, p, index);
	if (!p)
		return 0;
	begin_slice(&f->packets);
	count_order(&p->counts, packet.segments, udp_order(&f->packets, &packet), false);
	return time_udp(skb, &packet, p, index);
}

/* Counts the run of a hook in a slice; says whether this packet is one more that may be observed. */
static __always_inline bool may_observe(u32 which)
{
	if (!packet_slice)
		return false;
	u32 period = packet_period;
	struct packet_hook *hook = bpf_map_lookup_elem(&packet_hooks, &which);
	if (!hook)
		return false;
	hook->runs++;
	if (hook->period != period) {
		hook->period = period;
		hook->observed = 0;
	}
	if (hook->observed >= packet_limit)
		return false;
	hook->observed++;
	return true;
}

static __always_inline int packet_passes(struct __sk_buff *skb, bool sent)
{
	struct bpf_sock *sk = skb->sk;

	if (!may_observe(sent ? HOOK_SOCKET_SENT : HOOK_SOCKET_RECEIVED) || !sk)
		return LET_PASS;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return LET_PASS;
	if (sk->protocol == IPPROTO_TCP)
		tcp_packet(skb, sk, sent);
	else if (sk->protocol == IPPROTO_UDP)
		udp_packet(skb, sk, sent);
	return LET_PASS;
}

SEC("cgroup_skb/egress")
int packet_sent(struct __sk_buff *skb)
{
	return packet_passes(skb, true);
}

SEC("cgroup_skb/ingress")
int packet_received(struct __sk_buff *skb)
{
	return packet_passes(skb, false);
}

/* --- uplinks, which are Ethernet --- */

static __always_inline bool is_ip(u16 ethernet_type)
{
	return ethernet_type == ETH_P_IP || ethernet_type == ETH_P_IPV6;
}

/* Where the header of IP is in what a datagram encapsulates, as far as its headers tell; 0: nowhere. */
static __noinline u32 ip_in_datagram(struct __sk_buff *skb, u32 data, u16 port)
{
	u32 frame = data + 8; /* as long are the headers of VXLAN (RFC 7348) and Geneve (RFC 8926) */
	u8 header[4];
	u16 type;

	if ((port != VXLAN_PORT && port != OLDER_VXLAN_PORT && port != GENEVE_PORT) ||
	    bpf_skb_load_bytes(skb, data, header, sizeof(header)))
		return 0;
	if (port == GENEVE_PORT) {
		frame += (header[0] & GENEVE_OPTIONS) * 4;
		type = (u16)header[2] << 8 | header[3];
		if (is_ip(type))
			return frame;
		if (type != ETH_P_TEB)
			return 0;
	} else if (!(header[0] & VXLAN_HAS_NUMBER)) {
		return 0;
	}
	if (bpf_skb_load_bytes(skb, frame + ETHERNET_HEADER - 2, &type, sizeof(type)))
		return 0;
	return is_ip(bpf_ntohs(type)) ? frame + ETHERNET_HEADER : 0;
}

/* The protocol after the options by which IPv6 bounds how often a packet is encapsulated (RFC 2473). */
static __always_inline int skip_options(struct __sk_buff *skb, struct packet *packet)
{
	u8 header[2];

	if (bpf_skb_load_bytes(skb, packet->transport, header, sizeof(header)))
		return -1;
	packet->transport += (header[1] + 1) * 8;
	return header[0];
}

static __always_inline u64 udp_at_card(struct __sk_buff *skb, const struct packet *packet)
{
	u64 check = 0, identity = udp_identity(skb, packet, &check);

	return identity ? mixed(identity ^ check) : 0;
}

/*
 * What identifies a packet as its sample does; 0: it is none that may have one. Of one that is
 * encapsulated, once, what it was before that.
 */
static __noinline u64 packet_at_card(struct __sk_buff *skb)
{
	struct packet packet = {.network = ETHERNET_HEADER};
	int protocol = read_ip(skb, &packet);
	u32 inner = 0, zeros;
	u16 source, destination;

	if (protocol == IPPROTO_DSTOPTS)
		protocol = skip_options(skb, &packet);
	if (protocol == IPPROTO_IPIP || protocol == IPPROTO_IPV6) {
		inner = packet.transport;
	} else if (protocol == IPPROTO_UDP) {
		if (!read_udp(skb, &packet, &source, &destination))
			return 0;
		inner = ip_in_datagram(skb, packet.transport + 8, destination);
		if (!inner)
			return udp_at_card(skb, &packet);
	}
	if (inner) {
		packet.network = inner;
		protocol = read_ip(skb, &packet);
		if (protocol == IPPROTO_UDP && read_udp(skb, &packet, &source, &destination))
			return udp_at_card(skb, &packet);
	}
	if (protocol != IPPROTO_TCP || !read_tcp(skb, &packet))
		return 0;
	return mixed(tcp_identity(&packet, &zeros));
}

SEC("tcx/egress")
int packet_leaves_host(struct __sk_buff *skb)
{
	u64 packet = may_observe(HOOK_CARD_SENT) ? packet_at_card(skb) : 0;

	if (packet)
		leaves_by_card(packet);
	return TCX_NEXT;
}

SEC("tcx/ingress")
int packet_enters_host(struct __sk_buff *skb)
{
	u64 packet = may_observe(HOOK_CARD_RECEIVED) ? packet_at_card(skb) : 0;

	if (packet)
		comes_by_card(packet);
	return TCX_NEXT;
}

#endif
