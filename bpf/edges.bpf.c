//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Bytes, transactions and connection lifecycle per edge. The state of a connection lies in its
 * socket's own storage, so that it is found without a hash look-up and ends with the socket.
 */
#include "kernel.h"
#include "histogram.h"
#include "cgroup_id.h"
#include "edges.h"
#include "lru.h"
#include "quotas.h"
#include "requests.h"
#include "datagrams.h"

char LICENSE[] SEC("license") = "GPL";

/* Length of a jiffy; set by the loader. */
const volatile u64 jiffy_ns = 4000000;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct edge);
} edges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} edge_latency SEC(".maps");

/* Histograms that edges take when they first need them; place 0 is nobody's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} histogram_pool SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_histograms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct edge_key);
	__type(value, u32);
} edge_of_key SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_edges SEC(".maps");

/*
 * Kept back for when free_edges is used up: for the first edge of a control group, for servers whose
 * clients get one edge all together, and for what a control group has beyond its quota.
 */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} reserved_edges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct listener_key);
	__type(value, struct listener);
} listeners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EDGE_DROPS);
	__type(key, u32);
	__type(value, u64);
} edge_drops SEC(".maps");

static __always_inline void count_drop(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&edge_drops, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

/* The edge, unless its index was given to another one: an edge may go when all of its connections are closed. */
static __always_inline struct edge *edge_at(u32 index, u32 generation)
{
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);

	return edge && edge->generation == generation ? edge : NULL;
}

static __always_inline void use_edge(struct connection *c, u32 index)
{
	struct edge *edge = bpf_map_lookup_elem(&edges, &index);

	c->edge_generation = edge ? edge->generation : 0;
	c->edge = index;
}

/* One thread may send while another receives, and a packet may end the connection meanwhile. */
static __always_inline void set_flags(struct connection *c, u32 which)
{
	__sync_fetch_and_or(&c->flags, which);
}

static __always_inline void clear_flags(struct connection *c, u32 which)
{
	if (c->flags & which)
		__sync_fetch_and_and(&c->flags, ~which);
}

/* --- addresses --- */

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

#include "meeting.h"

/* --- listeners --- */

/* The kernel takes a port that it chose itself away from a socket before it tells of the close. */
static __always_inline u16 local_port(struct sock *sk, const struct connection *c)
{
	return c && c->local_port ? c->local_port : sk->__sk_common.skc_num;
}

static __always_inline void listener_key_of(struct sock *sk, const struct connection *c,
					    struct listener_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	local_address(sk, &key->address);
	key->netns = netns_of(sk);
	key->port = local_port(sk, c);
}

/* The listener that accepts connections to a socket's local address, if there is one. */
static __always_inline struct listener *listener_of(struct sock *sk)
{
	struct listener_key key;
	struct listener *found;

	listener_key_of(sk, NULL, &key);
	found = bpf_map_lookup_elem(&listeners, &key);
	if (found)
		return found;
	/* 0.0.0.0 before [::], which may be another process's and be for IPv6 alone. */
	if (is_ipv4(&key.address)) {
		map_ipv4(&key.address, 0);
		found = bpf_map_lookup_elem(&listeners, &key);
		if (found)
			return found;
	}
	__builtin_memset(&key.address, 0, sizeof(key.address));
	return bpf_map_lookup_elem(&listeners, &key);
}

static __always_inline void add_listener(struct sock *sk, struct task_struct *task)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	struct listener_key key;

	if (!c) {
		count_drop(DROP_LISTENER);
		return;
	}
	if (c->flags & CONNECTION_LISTENER)
		return;
	c->local_port = sk->__sk_common.skc_num;
	c->drops = sk->sk_drops.counter;
	listener_key_of(sk, c, &key);
	struct listener *known = bpf_map_lookup_elem(&listeners, &key);
	if (known) {
		__sync_fetch_and_add(&known->sockets, 1);
	} else {
		struct listener first = {.owner = task_cgroup_id(task), .sockets = 1};

		if (owner_has(first.owner, QUOTA_LISTENERS) >= max_owner_listeners) {
			owner_is_over(first.owner, QUOTA_LISTENERS);
			return;
		}
		process_of(task, &first.process);
		if (is_forwarder(&first.process, key.netns)) {
			u64 none = 0;

			first.forwarder = 1;
			bpf_map_update_elem(&proxies, &first.process.id, &none, BPF_NOEXIST);
		}
		if (bpf_map_update_elem(&listeners, &key, &first, BPF_NOEXIST)) {
			count_drop(DROP_LISTENER);
			return;
		}
		owner_gains(first.owner, QUOTA_LISTENERS);
	}
	set_flags(c, CONNECTION_LISTENER);
}

/* Brings what the kernel counts at the socket to its address. Sweeps and the end may be at once. */
static __always_inline void count_listener_drops(struct sock *sk, struct connection *c, struct listener *listener)
{
	u32 now = sk->sk_drops.counter;
	u32 gained = now - __sync_lock_test_and_set(&c->drops, now);

	if ((s32)gained > 0)
		__sync_fetch_and_add(&listener->drops, (u64)gained);
}

static __always_inline void remove_listener(struct sock *sk)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	struct listener_key key;

	if (!c || !(c->flags & CONNECTION_LISTENER))
		return;
	listener_key_of(sk, c, &key);
	clear_flags(c, CONNECTION_LISTENER);
	struct listener *known = bpf_map_lookup_elem(&listeners, &key);
	if (known)
		count_listener_drops(sk, c, known);
	if (known && __sync_fetch_and_add(&known->sockets, -1) <= 1) {
		if (known->forwarder)
			bpf_map_delete_elem(&proxies, &known->process.id);
		owner_loses(known->owner, QUOTA_LISTENERS);
		bpf_map_delete_elem(&listeners, &key);
	}
}

/* --- edges --- */

static __always_inline void key_of(struct sock *sk, struct connection *c, struct edge_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->owner = c->owner;
	key->netns = netns_of(sk);
	key->role = c->role;
	__builtin_memcpy(key->process, c->process.name, PROCESS_NAME);
	key->forwarder = c->flags & CONNECTION_FORWARDER ? FORWARDS : 0;
	if (c->role == ROLE_CLIENT) {
		remote_address(sk, &key->service);
		key->port = remote_port(sk);
		meet_server(sk, c, key);
		u32 behind = c->behind;
		struct edge *dialled = behind ? bpf_map_lookup_elem(&edges, &behind) : NULL;
		if (dialled) {
			key->far = dialled->key.service;
			key->far_port = dialled->key.port;
		}
		return;
	}
	local_address(sk, &key->service);
	remote_address(sk, &key->client);
	key->port = sk->__sk_common.skc_num;
	meet_client(sk, c, key);
}

/* A free place; every eighth is of the reserve. */
static __always_inline bool take_place(u32 *place, bool reserve)
{
	if (reserve && !bpf_map_pop_elem(&reserved_edges, place))
		return true;
	return !bpf_map_pop_elem(&free_edges, place);
}

static __always_inline u32 place_edge(struct edge_key *key, u32 place)
{
	struct edge *edge = bpf_map_lookup_elem(&edges, &place);
	struct edge_endpoints *endpoints_of = bpf_map_lookup_elem(&edge_endpoints, &place);

	if (!edge)
		return EDGE_OVERFLOW;
	edge->key = *key;
	edge->used = 1;
	if (!bpf_map_update_elem(&edge_of_key, key, &place, BPF_NOEXIST)) {
		if (endpoints_of)
			endpoints_of->owner = key->owner;
		owner_gains(key->owner, QUOTA_EDGES);
		return place;
	}
	/* Another CPU was first. */
	edge->used = 0;
	if (place % EDGE_RESERVE == 0)
		bpf_map_push_elem(&reserved_edges, &place, BPF_ANY);
	else
		bpf_map_push_elem(&free_edges, &place, BPF_ANY);
	u32 *theirs = bpf_map_lookup_elem(&edge_of_key, key);
	return theirs ? *theirs : EDGE_OVERFLOW;
}

/*
 * The edge of what an owner has beyond its quota, or beyond all room. The key becomes that edge's: there
 * is no stack for another one.
 */
static __always_inline u32 others_edge(struct edge_key *key)
{
	u64 owner = key->owner;
	u8 role = key->role, transport = key->transport, forwarder = key->forwarder & FORWARDS;
	u32 place;

	__builtin_memset(key, 0, sizeof(*key));
	key->owner = owner;
	key->role = role;
	key->transport = transport;
	key->forwarder = forwarder;
	key->others = 1;
	u32 *known = bpf_map_lookup_elem(&edge_of_key, key);
	if (known)
		return *known;
	if (owner && take_place(&place, true))
		return place_edge(key, place);
	return EDGE_OVERFLOW;
}

static __always_inline void leave_client_out(struct edge_key *key)
{
	__builtin_memset(&key->client, 0, sizeof(key->client));
	__builtin_memset(&key->far, 0, sizeof(key->far));
	__builtin_memset(key->peer_process, 0, sizeof(key->peer_process));
	key->far_port = 0;
	key->peer = 0;
}

/*
 * An owner that has half of its quota gets no more edges that differ in the other end's process: the
 * other end may choose any name. With the whole quota, clients of one service count together, for as
 * many services as an eighth of the quota; all else is one edge.
 */
static __noinline u32 new_edge(struct edge_key *key)
{
	u32 place, *known;

	if (!key)
		return EDGE_OVERFLOW;
	u32 has = owner_has(key->owner, QUOTA_EDGES);
	if (has >= max_owner_edges / 2 && key->peer_process[0]) {
		__builtin_memset(key->peer_process, 0, sizeof(key->peer_process));
		known = bpf_map_lookup_elem(&edge_of_key, key);
		if (known)
			return *known;
	}
	bool over = has >= max_owner_edges;
	if (!over && (take_place(&place, false) || (!has && take_place(&place, true))))
		return place_edge(key, place);
	if (over)
		owner_is_over(key->owner, QUOTA_EDGES);
	if (key->role == ROLE_SERVER) {
		if (!over)
			count_drop(DROP_EDGE_CLIENT);
		leave_client_out(key);
		known = bpf_map_lookup_elem(&edge_of_key, key);
		if (known)
			return *known;
		if (has < max_owner_edges + max_owner_edges / 8 && take_place(&place, true))
			return place_edge(key, place);
	}
	place = others_edge(key);
	if (!over || place == EDGE_OVERFLOW)
		count_drop(DROP_EDGE);
	return place;
}

static __noinline u32 edge_of(struct sock *sk, struct connection *c)
{
	struct edge_key key;

	if (!sk || !c)
		return EDGE_OVERFLOW;
	key_of(sk, c, &key);
	u32 *known = bpf_map_lookup_elem(&edge_of_key, &key);
	u32 place = known ? *known : new_edge(&key);
	struct edge *edge = bpf_map_lookup_elem(&edges, &place);
	if (edge && place)
		edge->process = c->process.id;
	return place;
}

/* --- transactions --- */

static __noinline int take_histogram(struct edge *edge, u32 which)
{
	u32 place;

	if (!edge || which >= EDGE_HISTOGRAMS)
		return 0;
	if (bpf_map_pop_elem(&free_histograms, &place)) {
		count_drop(DROP_HISTOGRAM);
		return 0;
	}
	u32 before = __sync_val_compare_and_swap(&edge->histograms[which], 0, place);
	if (!before)
		return place;
	bpf_map_push_elem(&free_histograms, &place, BPF_ANY);
	return before;
}

/* Adds to one of the edge's histograms; the sum tells the reader that it changed. */
static __always_inline void add_sample(struct edge *edge, u32 which, u64 *sum, u64 ns)
{
	u32 place = edge->histograms[which];

	if (!place)
		place = take_histogram(edge, which);
	if (!place)
		return;
	struct histogram *h = bpf_map_lookup_elem(&histogram_pool, &place);
	if (!h)
		return;
	histogram_add(h, ns);
	__sync_fetch_and_add(sum, ns ? ns : 1);
}

static __always_inline u64 elapsed(u64 from_ns, u64 to_ns)
{
	return to_ns > from_ns ? to_ns - from_ns : 0;
}

/*
 * What the kernel measured of the path: smoothed round-trip time and its mean deviation. They change
 * slowly, and a sample costs as much as the latency itself: a connection gives at most a hundred a second.
 */
static __always_inline void sample_path(struct edge *edge, struct sock *sk, struct connection *c, u64 now)
{
	if (now - c->sampled_ns < SAMPLE_EVERY_NS)
		return;
	c->sampled_ns = now;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (!tcp || !tcp->srtt_us)
		return;
	add_sample(edge, EDGE_RTT, &edge->rtt_sum_ns, (u64)tcp->srtt_us * 1000 / 8);
	__sync_fetch_and_add(&edge->jitter_sum_ns, (u64)tcp->mdev_us * 1000 / 4);
}

#include "transactions.h"

static __always_inline void count_time(struct edge *edge, u32 place, u64 first_ns, u64 reply_ns, u64 last_ns,
				       u64 target)
{
	struct histogram *latency = bpf_map_lookup_elem(&edge_latency, &place);

	if (!latency)
		return;
	if (elapsed(first_ns, reply_ns) > HELD_AFTER_NS) {
		__sync_fetch_and_add(&edge->held, 1);
		count_endpoint(target, 0, CELL_ASIDE);
		return;
	}
	if (elapsed(reply_ns, last_ns) > TRANSFER_AFTER_NS) {
		__sync_fetch_and_add(&edge->transfers, 1);
		count_endpoint(target, 0, CELL_ASIDE);
		return;
	}
	u64 ns = elapsed(first_ns, last_ns);
	if (log_transactions)
		log_transaction(place, edge->key.role, first_ns, reply_ns, last_ns);
	u32 cell = histogram_cell(ns);
	histogram_add_cell(latency, cell);
	count_endpoint(target, ns, cell);
	/* The sum tells the reader that the histogram changed, so it grows even by a zero. */
	__sync_fetch_and_add(&edge->latency_sum_ns, ns ? ns : 1);
}

static __always_inline void count_transaction(struct sock *sk, struct connection *c, u64 first_ns,
					      u64 reply_ns, u64 last_ns, u64 target)
{
	u32 place = c->edge;
	struct edge *edge = edge_at(place, c->edge_generation);

	if (!edge)
		return;
	sample_path(edge, sk, c, last_ns);
	count_time(edge, place, first_ns, reply_ns, last_ns, target);
}

/* Counts the connection's finished transaction, once, whoever comes first. */
static __always_inline bool finish(struct sock *sk, struct connection *c)
{
	u64 first_ns = c->first_ns, reply_ns = c->reply_ns, last_ns = c->last_ns;
	u64 target = c->head.target;

	if (__sync_val_compare_and_swap(&c->phase, PHASE_REPLY, PHASE_IDLE) != PHASE_REPLY)
		return false;
	if (!target && c->head.state == HEAD_NAMED) {
		u32 status = reads_tls && (c->flags & CONNECTION_TLS) ? tls_status(c) : STATUS_UNKNOWN;

		if (status == STATUS_SWITCHED)
			set_flags(c, CONNECTION_STREAM);
		resolve_endpoint(c, status < REPLY_PARTIAL ? status : STATUS_UNKNOWN);
		target = c->head.target;
	}
	count_transaction(sk, c, first_ns, reply_ns, last_ns, target);
	return true;
}

/* Requests are only timed, not read, while this is 1. */
volatile u32 names_shed = 0;

#include "http2_streams.h"

static __always_inline void count_request(struct edge *edge)
{
	__sync_fetch_and_add(&edge->requests, 1);
}

/* The connection is closed before the reply. */
static __always_inline void abort_request(struct connection *c, struct edge *edge)
{
	c->phase = PHASE_IDLE;
	if (c->head.state == HEAD_PARTIAL)
		count_request(edge);
	__sync_fetch_and_add(&edge->aborts, 1);
}

/*
 * 0 until the hooks of both directions are attached, which the loader does one after the other: what is
 * seen of one direction alone is no sequence of transactions. Then another number for each time
 * that they were.
 */
volatile u32 watching = 0;

/* Since when, on the monotonic clock. */
volatile u64 watched_since_ns = 0;

/*
 * Whether a part of a request may be where following HTTP/2 can begin. A long request of an unknown
 * protocol, such as a stream, has no end at which it would be found to be none.
 */
static __always_inline bool may_join_http2(struct connection *c)
{
	if (!(c->flags & (CONNECTION_OLD | CONNECTION_REJOINED)) || !machine || c->head.protocol)
		return false;
	return c->phase != PHASE_REQUEST || ++c->head.looks <= JOIN_LOOKS || c->head.looks % JOIN_THEN_EVERY == 0;
}

/*
 * Here and in on_reply the clock is read only where a time is kept: it is a third of the cost of
 * a part of a long request.
 *
 * readable is how many of the bytes the calling task has in its buffer. A request that cannot be
 * named yet is counted when more of it, or its reply, tells that it has one.
 */
static __always_inline void on_request(struct sock *sk, struct connection *c, struct edge *edge, u32 readable,
				       bool early)
{
	if (c->flags & CONNECTION_STREAM)
		return;
	if (!early && may_join_http2(c) && join_http2(sk, c, edge, readable))
		return;
	if (c->phase == PHASE_REQUEST) {
		if (reads_tls && (c->flags & CONNECTION_TLS) && c->head.state == HEAD_NONE) {
			/* What was sent before was of the handshake. */
			if (c->role == ROLE_CLIENT && c->head.protocol != PROTOCOL_OPAQUE &&
			    read_request(c, readable, early) == HEAD_NAMED)
				c->first_ns = bpf_ktime_get_ns();
			else
				c->head.state = HEAD_NONE;
			return;
		}
		if (c->head.state != HEAD_PARTIAL) {
			if (c->head.protocol == PROTOCOL_DNS)
				another_query(&c->head, readable);
			return;
		}
		u32 before = c->head.length;
		int state = read_more_request(c, readable, early);
		if (state == HEAD_HTTP2 && early) {
			c->head.protocol = PROTOCOL_OPAQUE;
		} else if (state == HEAD_HTTP2) {
			c->head.length = before;
			c->head.state = HEAD_PARTIAL; /* of the preface: begin_half */
			begin_http2(sk, c, readable);
			return;
		}
		if (state == HEAD_SILENT)
			c->phase = PHASE_IDLE;
		else if (state != HEAD_PARTIAL)
			count_request(edge);
		return;
	}
	if (c->phase == PHASE_REPLY) {
		/* The body of a request whose server has told to go on. */
		if (reads_tls && (c->flags & CONNECTION_TLS) && c->head.state == HEAD_NAMED &&
		    tls_status(c) == REPLY_INTERIM)
			return;
		finish(sk, c);
	}
	clear_flags(c, CONNECTION_SWEPT);
	c->pushes = 0;
	u64 now = early ? c->early.first_ns : bpf_ktime_get_ns();
	if (names_shed) {
		c->head.state = HEAD_NONE;
		c->head.target = 0;
	} else if (machine && c->head.protocol != PROTOCOL_OPAQUE) {
		int state = read_request(c, readable, early);

		if (state == HEAD_HTTP2) {
			/* Of an encrypted connection, only the beginnings of requests are seen. */
			if (early || (c->flags & CONNECTION_TLS)) {
				c->head.protocol = PROTOCOL_OPAQUE;
				state = HEAD_NONE;
			} else {
				begin_http2(sk, c, readable);
			}
		}
		if (state == HEAD_SILENT || state == HEAD_HTTP2)
			return;
	}
	c->first_ns = now;
	c->phase = PHASE_REQUEST;
	if (c->head.state != HEAD_PARTIAL)
		count_request(edge);
}

/* The server sends without having been asked: it greets, goes on after a silence, or pushes. */
static __always_inline void on_push(struct connection *c, struct edge *edge)
{
	if (c->flags & CONNECTION_SWEPT) {
		clear_flags(c, CONNECTION_SWEPT);
		__sync_fetch_and_add(&edge->continued, 1);
		return;
	}
	if ((c->flags & (CONNECTION_OLD | CONNECTION_REJOINED)) && !c->first_ns)
		return; /* its request was not seen */
	if (c->state == TCP_CLOSE)
		return; /* the rest of a reply that is read after the end */
	__sync_fetch_and_add(&edge->pushes, 1);
	if (c->head.watch & HEAD_WATCH_NOTICE)
		return;
	if (++c->pushes >= STREAM_AFTER_PUSHES)
		set_flags(c, CONNECTION_STREAM);
}

static __always_inline void reply_began(struct connection *c, struct edge *edge, u64 now)
{
	c->last_ns = now;
	c->reply_ns = now;
	c->phase = PHASE_REPLY;
	__sync_fetch_and_add(&edge->replies, 1);
	add_sample(edge, EDGE_TTFB, &edge->ttfb_sum_ns, elapsed(c->first_ns, now));
}

static __always_inline void on_reply(struct sock *sk, struct connection *c, struct edge *edge, u32 readable,
				     bool early)
{
	int reply = REPLY_BEGINS;

	if (c->phase == PHASE_IDLE) {
		if (!early && machine && !c->head.protocol && !c->head.failures && (c->flags & CONNECTION_WHOLE) &&
		    !(c->flags & (CONNECTION_STREAM | CONNECTION_REJOINED))) {
			read_greeting(c, readable);
			c->head.greeted = 1;
		}
		on_push(c, edge);
		return;
	}
	u64 now = early ? c->early.first_ns : bpf_ktime_get_ns();
	if (c->phase == PHASE_REPLY) {
		if (c->head.watch && is_notice(c, readable, early))
			__sync_fetch_and_add(&edge->pushes, 1);
		else
			c->last_ns = now;
		return;
	}
	if (c->head.state || (reads_tls && (c->flags & CONNECTION_TLS))) {
		bool late = c->head.state == HEAD_PARTIAL;

		reply = begin_reply(c, readable, early);
		if (late)
			count_request(edge);
	}
	/* Of what is kept, only the first part is. */
	if (reply == REPLY_WAITS && !(early && c->early.last_ns != c->early.first_ns))
		return;
	reply_began(c, edge, now);
	if (reply == REPLY_SWITCHES) {
		set_flags(c, CONNECTION_STREAM);
		__sync_fetch_and_add(&edge->upgrades, 1);
		finish(sk, c);
	}
}

#include "early.h"

/* --- connections --- */

static __always_inline void open_on(struct connection *c, u32 place)
{
	struct edge *edge = bpf_map_lookup_elem(&edges, &place);

	if (edge)
		__sync_fetch_and_add(&edge->opens, 1);
	use_edge(c, place);
	set_flags(c, CONNECTION_OPEN);
}

/*
 * A connection that a client opened is counted from its first use on, or the next sweep, or its
 * end: by then the server's end has told who it is.
 */
static __always_inline void settle(struct sock *sk, struct connection *c)
{
	u32 place = edge_of(sk, c);

	/* It may be used, swept and closed at once: all find the same edge, and one counts. */
	use_edge(c, place);
	set_flags(c, CONNECTION_OWNED | CONNECTION_OPEN);
	if (__sync_val_compare_and_swap(&c->unsettled, 1, 0) == 1)
		open_on(c, place);
}

static __always_inline void close_on(struct connection *c)
{
	struct edge *edge = edge_at(c->edge, c->edge_generation);

	if (edge)
		__sync_fetch_and_add(&edge->closes, 1);
	clear_flags(c, CONNECTION_OPEN);
}

/* The role of a socket whose opening was not seen. */
static __always_inline u32 role_of(struct sock *sk)
{
	return listener_of(sk) ? ROLE_SERVER : ROLE_CLIENT;
}

/* Whether the other of the two programs has been here already; see inet_sock_set_state_too. */
static __always_inline bool handled(struct connection *c, u16 state)
{
	if (c->state == state)
		return true;
	c->state = state;
	return false;
}

/*
 * The task that uses a socket owns it: an accepted socket is the accepting task's, not the
 * listener's creator's. The first use decides.
 */
static __noinline int own(struct sock *sk, struct connection *c, struct task_struct *task, bool used)
{
	if (!sk || !c || !task)
		return 0;
	u8 state = sk->__sk_common.skc_state;
	if (c->role == ROLE_CLIENT && (c->flags & CONNECTION_WHOLE || c->unsettled)) {
		/* TCP Fast Open: the first data goes with the request for the connection. */
		if (state == TCP_SYN_SENT) {
			use_edge(c, edge_of(sk, c));
			return 0;
		}
		/* It is established, and nobody told. */
		if (c->state == TCP_SYN_SENT && !handled(c, TCP_ESTABLISHED)) {
			c->unsettled = 1;
			note_told(sk, c);
		}
		if (used)
			settle(sk, c);
		return 0;
	}
	if (!c->role) {
		c->role = role_of(sk);
		/* TCP Fast Open: data is received before the connection is established; see accepted. */
		set_flags(c, state == TCP_SYN_RECV ? CONNECTION_WHOLE : CONNECTION_OLD);
		if (state == TCP_SYN_RECV)
			c->opened_ns = bpf_ktime_get_ns();
		sequences_of(sk, c);
	}
	u64 owner = task_cgroup_id(task);
	set_flags(c, CONNECTION_OWNED);
	if ((c->flags & CONNECTION_OPEN) && c->owner == owner)
		return 0;
	if (c->flags & CONNECTION_OPEN)
		close_on(c);
	c->owner = owner;
	process_of(task, &c->process);
	if (c->role == ROLE_CLIENT) {
		clear_flags(c, CONNECTION_OWNED);
		publish_client(sk, c);
		c->unsettled = 1;
		if (used)
			settle(sk, c);
		return 0;
	}
	/* Who listens is not who accepts: the next connections begin with the right owner. */
	struct listener *listener = listener_of(sk);
	if (listener)
		listener->owner = owner;
	open_on(c, edge_of(sk, c));
	return 0;
}

/* Nothing was seen of a connection for a while: how its transaction went on is not known. */
static __noinline int rejoin(struct sock *sk, struct connection *c, struct edge *edge)
{
	if (!sk || !c || !edge)
		return 0;
	if (c->flags & CONNECTION_HTTP2) {
		struct http2_connection *h = bpf_sk_storage_get(&http2_connections, sk, 0, 0);

		if (h && !h->lost)
			leave_streams(h, bpf_ktime_get_ns() | ENDED_LOST);
		bpf_sk_storage_delete(&http2_connections, sk);
		clear_flags(c, CONNECTION_HTTP2);
	} else if (c->phase == PHASE_REQUEST && c->head.state != HEAD_PARTIAL) {
		__sync_fetch_and_add(&edge->lost, 1);
	} else if (c->phase == PHASE_REPLY) {
		finish(sk, c);
	}
	c->phase = PHASE_IDLE;
	c->first_ns = 0;
	c->pushes = 0;
	__builtin_memset(&c->head, 0, sizeof(c->head));
	c->early.state = EARLY_NONE;
	note_told(sk, c);
	set_flags(c, CONNECTION_REJOINED);
	c->watched = watching;
	return 0;
}

static __always_inline struct connection *adopt(struct sock *sk)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!c)
		count_drop(DROP_CONNECTION);
	return c;
}

#include "datagrams_path.h"

/* What is received after the connection's end, and after its edge was given up: without a transaction. */
static __noinline struct edge *find_edge_again(struct sock *sk, struct connection *c)
{
	if (!sk || !c)
		return NULL;
	c->phase = PHASE_IDLE;
	c->head.target = 0;
	use_edge(c, edge_of(sk, c));
	return edge_at(c->edge, c->edge_generation);
}

static __always_inline int transferred(struct sock *sk, int bytes, u32 readable, bool sent)
{
	if (!watching)
		return 0;
	if (!is_tcp(sk)) {
		if (is_udp(sk))
			return datagram(sk, bytes, sent);
		if (bytes > 0 && is_mptcp(sk))
			count_drop(DROP_MULTIPATH);
		return 0;
	}
	if (bytes <= 0)
		return 0;
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (!c) {
		c = adopt(sk);
		if (!c)
			return 0;
		c->watched = watching;
	}
	if (!(c->flags & CONNECTION_OWNED))
		own(sk, c, bpf_get_current_task_btf(), true);

	struct edge *edge = edge_at(c->edge, c->edge_generation);
	if (!edge)
		edge = find_edge_again(sk, c);
	if (!edge)
		return 0;
	__sync_fetch_and_add(sent ? &edge->sent_bytes : &edge->received_bytes, (u64)bytes);
	if (c->watched != watching)
		rejoin(sk, c, edge);
	if (!sent)
		__sync_fetch_and_add(&c->received_bytes, bytes); /* several threads may receive at once */
	bool reply = sent != (c->role == ROLE_CLIENT);
	if ((c->flags & CONNECTION_HTTP2 || (reply && greets_http2(sk, c, readable))) &&
	    http2_transferred(sk, c, bytes, readable, reply))
		return 0;
	u32 met = EARLY_NONE;
	if (c->flags & CONNECTION_STREAM)
		;
	else if (sent)
		met = meets_early(sk, c, edge, bytes);
	else if ((c->early.state || is_sending(sk, c)) && keep_early(sk, c, readable))
		return 0;
	/* 1 is the call; 0 and 2 are what was received early, which goes the other way, before it or after it. */
#pragma clang loop unroll(disable)
	for (u32 turn = met == EARLY_BEFORE ? 0 : 1; turn < 3; turn++) {
		bool early = turn != 1;
		u32 part = early ? c->early.size : readable;

		if ((sent != early) == (c->role == ROLE_CLIENT))
			on_request(sk, c, edge, part, early);
		else
			on_reply(sk, c, edge, part, early);
		if (early)
			end_early(c);
		else if (!sent || !comes_late(sk, c, met == EARLY_AFTER))
			break;
	}
	/* The end came within the call, or before a reply was read: nothing follows that could end the transaction. */
	if (c->state == TCP_CLOSE && !finish(sk, c) && c->phase == PHASE_REQUEST)
		abort_request(c, edge);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(sock_send_length, struct sock *sk, int ret, int flags)
{
	return transferred(sk, ret, ret, true);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(sock_recv_length, struct sock *sk, int ret, int flags)
{
	if (flags & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	return transferred(sk, ret, flags & MSG_TRUNC ? 0 : ret, false); /* a buffer that was skipped holds old bytes */
}

static __always_inline void connecting(struct sock *sk)
{
	struct connection *c = adopt(sk);

	if (!c || handled(c, TCP_SYN_SENT))
		return;
	struct task_struct *task = bpf_get_current_task_btf();

	c->role = ROLE_CLIENT;
	c->owner = task_cgroup_id(task);
	process_of(task, &c->process);
	c->edge = 0;
	c->edge_generation = 0;
	c->flags = CONNECTION_WHOLE;
	c->watched = watching;
	c->phase = PHASE_IDLE;
	c->unsettled = 0;
	c->behind = 0;
	/* The socket may have had another connection. */
	c->first_ns = 0;
	c->received_bytes = 0;
	c->pushes = 0;
	c->tls_connection = 0;
	c->tls_group = 0;
	__builtin_memset(&c->head, 0, sizeof(c->head));
	c->early.state = EARLY_NONE;
	bpf_sk_storage_delete(&http2_connections, sk);
	if (is_forwarder(&c->process, netns_of(sk))) {
		set_flags(c, CONNECTION_FORWARDER);
		c->behind = forwarder_dials(c->process.id);
	}
}

static __always_inline void connected(struct sock *sk)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);

	if (!c || c->role != ROLE_CLIENT || handled(c, TCP_ESTABLISHED))
		return;
	sequences_of(sk, c);
	publish_client(sk, c);
	c->opened_ns = bpf_ktime_get_ns();
	c->unsettled = 1;
}

/* Runs in softirq: current is not the server. Until it uses the socket, its listener's owner is. */
static __always_inline void accepted(struct sock *sk)
{
	struct connection *c = adopt(sk);

	if (!c || handled(c, TCP_ESTABLISHED) || c->flags & CONNECTION_OWNED)
		return;
	c->role = ROLE_SERVER;
	c->flags = CONNECTION_WHOLE;
	c->watched = watching;
	c->phase = PHASE_IDLE;
	c->opened_ns = bpf_ktime_get_ns();
	sequences_of(sk, c);
	struct listener *listener = listener_of(sk);
	if (!listener)
		return;
	c->owner = listener->owner;
	c->process = listener->process;
	if (listener->forwarder)
		set_flags(c, CONNECTION_FORWARDER);
	open_on(c, edge_of(sk, c));
	if (listener->forwarder)
		forwarder_accepted(listener->process.id, c->edge);
}

static __always_inline void count_failure(struct sock *sk, struct edge *edge)
{
	int error = sk->sk_err;

	__sync_fetch_and_add(&edge->failures, 1);
	if (error == ECONNREFUSED)
		__sync_fetch_and_add(&edge->failures_refused, 1);
	else if (error == ETIMEDOUT)
		__sync_fetch_and_add(&edge->failures_timeout, 1);
	else if (error == EHOSTUNREACH || error == ENETUNREACH)
		__sync_fetch_and_add(&edge->failures_unreachable, 1);
}

/* What was received of which no call has told. The other end's FIN counts as a byte. */
static __always_inline u64 untold_bytes(const struct tcp_sock *tcp, const struct connection *c)
{
	u64 told = c->received_bytes + 1;

	return (c->flags & CONNECTION_WHOLE) && tcp->bytes_received > told ? tcp->bytes_received - told : 0;
}

/* How the connection ended, and what only its end tells. */
static __always_inline void count_end(struct sock *sk, struct connection *c, struct edge *edge)
{
	int error = sk->sk_err;

	if (error == ECONNRESET || error == EPIPE)
		__sync_fetch_and_add(&edge->resets, 1);
	else if (error == ETIMEDOUT)
		__sync_fetch_and_add(&edge->timeouts, 1);
	if (c->opened_ns)
		add_sample(edge, EDGE_DURATION, &edge->duration_sum_ns,
			   elapsed(c->opened_ns, bpf_ktime_get_ns()));
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return;
	u64 limited_ns = (u64)tcp->chrono_stat[1] * jiffy_ns;
	if (limited_ns)
		__sync_fetch_and_add(&edge->window_limited_ns, limited_ns);
	u64 rtt_min_ns = (u64)tcp->rtt_min.s[0].v * 1000;
	/* ~0 microseconds: never measured. Two ends of two connections at once may lose a minimum to
	 * one another; the next one mends it. */
	if (tcp->rtt_min.s[0].v != ~0U && (!edge->rtt_min_ns || rtt_min_ns < edge->rtt_min_ns))
		edge->rtt_min_ns = rtt_min_ns;
	u64 untold = untold_bytes(tcp, c);
	if (untold)
		__sync_fetch_and_add(&edge->unseen_bytes, untold);
}

/*
 * Whether a client that had ended its own side before has a reply that no call has told of yet: reading ends
 * its transaction.
 */
static __always_inline bool may_read_on(struct sock *sk, struct connection *c, int old_state)
{
	if (c->role != ROLE_CLIENT || sk->sk_err || !sk->sk_socket)
		return false;
	if (old_state != TCP_FIN_WAIT1 && old_state != TCP_FIN_WAIT2 && old_state != TCP_CLOSING)
		return false;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp || !untold_bytes(tcp, c))
		return false;
	/* Closing has thrown away what was not read. */
	return tcp->rcv_nxt - tcp->copied_seq <= 1 || sk->sk_receive_queue.qlen;
}

static __always_inline void closed(struct sock *sk, int old_state)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);

	if (!c || handled(c, TCP_CLOSE))
		return;
	if (c->unsettled || old_state == TCP_SYN_SENT)
		settle(sk, c);
	struct edge *edge = edge_at(c->edge, c->edge_generation);
	if (!edge)
		return;
	if (old_state == TCP_SYN_SENT) {
		clear_flags(c, CONNECTION_OPEN); /* a program may keep the socket: it is none that is open */
		count_failure(sk, edge);
		return;
	}
	if (!(c->flags & CONNECTION_OPEN))
		return;
	if (c->watched != watching)
		rejoin(sk, c, edge);
	/* A call that sends, or receives, may still be told of. */
	if (!finish(sk, c) && c->phase == PHASE_REQUEST && !c->early.state && !may_read_on(sk, c, old_state))
		abort_request(c, edge);
	if (c->flags & CONNECTION_HTTP2)
		http2_closed(sk);
	leave_meeting(sk, c);
	count_end(sk, c, edge);
	close_on(c);
}

static __always_inline int state_changed(struct sock *sk, int old_state, int new_state)
{
	if (!is_tcp(sk) && !is_mptcp(sk))
		return 0;
	if (new_state == TCP_LISTEN)
		add_listener(sk, bpf_get_current_task_btf());
	else if (old_state == TCP_LISTEN)
		remove_listener(sk);
	else if (is_mptcp(sk))
		return 0;
	else if (new_state == TCP_SYN_SENT)
		connecting(sk);
	else if (new_state == TCP_ESTABLISHED && old_state == TCP_SYN_SENT)
		connected(sk);
	else if (new_state == TCP_ESTABLISHED && old_state == TCP_SYN_RECV)
		accepted(sk);
	else if (new_state == TCP_CLOSE)
		closed(sk, old_state);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_sock_set_state, struct sock *sk, int old_state, int new_state)
{
	return state_changed(sk, old_state, new_state);
}

/*
 * The kernel does not run a program that is already running on the same CPU: where a packet
 * interrupts it, the changes of state that the packet makes would be lost. Hence there are two of
 * it, one after the other: at least one of them is not interrupted, and the second finds the work
 * done.
 */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_sock_set_state_too, struct sock *sk, int old_state, int new_state)
{
	return state_changed(sk, old_state, new_state);
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(tcp_retransmit_skb, struct sock *sk)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);

	if (!c)
		return 0;
	/* The first segment of a connection that may never come to be. */
	if (!c->edge && c->role == ROLE_CLIENT)
		use_edge(c, edge_of(sk, c));
	struct edge *edge = edge_at(c->edge, c->edge_generation);
	if (edge)
		__sync_fetch_and_add(&edge->retransmits, 1);
	return 0;
}

/*
 * Sockets that are older than these programs, in four passes over all tasks' files: listeners
 * (they tell servers from clients), then clients (servers look their peers up), then servers,
 * then clients again, which look their servers up.
 */
enum {
	PASS_LISTENERS = 1,
	PASS_CLIENTS = 2,
	PASS_SERVERS = 3,
	PASS_SETTLE = 4,
};

volatile u32 iterator_pass = 0;

SEC("iter/task_file")
int open_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;

	if (!task || !file)
		return 0;
	struct socket *socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	struct sock *sk = socket->sk;
	if (!sk)
		return 0;

	u32 pass = iterator_pass;
	u8 state = sk->__sk_common.skc_state;
	if (pass == PASS_LISTENERS) {
		if (state == TCP_LISTEN && (is_tcp(sk) || is_mptcp(sk)))
			add_listener(sk, task);
		return 0;
	}
	if (!is_tcp(sk))
		return 0;
	if (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT)
		return 0;
	u32 role = role_of(sk);
	if (role != (pass == PASS_SERVERS ? ROLE_SERVER : ROLE_CLIENT))
		return 0;
	struct connection *c = adopt(sk);
	if (c && !(c->flags & CONNECTION_OWNED))
		own(sk, c, task, pass == PASS_SETTLE);
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int sweep_connections(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct connection *c = ctx->value;
	struct sock *sk = ctx->sk;

	if (!c || !sk)
		return 0;
	if (c->flags & CONNECTION_LISTENER) {
		struct listener_key key;

		listener_key_of(sk, c, &key);
		struct listener *listener = bpf_map_lookup_elem(&listeners, &key);
		if (listener)
			count_listener_drops(sk, c, listener);
		return 0;
	}
	if (marks_meetings && sk->__sk_common.skc_state != TCP_CLOSE)
		attend_meeting(sk, c);
	if (c->unsettled && bpf_ktime_get_ns() - c->opened_ns > SETTLE_AFTER_NS)
		settle(sk, c);
	if (c->flags & CONNECTION_OPEN) {
		struct edge *edge = edge_at(c->edge, c->edge_generation);

		if (edge)
			__sync_fetch_and_add(&edge->open, 1);
	}
	u64 now = bpf_ktime_get_ns();
	if (c->early.state == EARLY_KEPT && elapsed(c->early.first_ns, now) > SWEEP_AFTER_NS)
		give_up_call(sk, c);
	if (c->phase != PHASE_REPLY || elapsed(c->last_ns, now) < SWEEP_AFTER_NS)
		return 0;
	set_flags(c, CONNECTION_SWEPT);
	finish(sk, c);
	return 0;
}

#include "fallback.h"
