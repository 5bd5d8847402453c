//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Bytes, transactions and connection lifecycle per edge. The state of a connection lies in its
 * socket's own storage, so that it is found without a hash look-up and ends with the socket.
 */
#include "include/kernel.h"
#include "include/cgroup_id.h"
#include "net/addresses.h"
#include "net/connections.h"
#include "net/edge_maps.h"
#include "net/edge_table.h"
#include "net/exchange.h"
#include "net/fallback.h"
#include "net/latency.h"
#include "net/listeners.h"
#include "net/packet_drops_path.h"
#include "net/packets_path.h"
#include "net/pairing.h"
#include "net/reorder.h"
#include "net/transfer.h"

char LICENSE[] SEC("license") = "GPL";

/* Length of a jiffy; set by the loader. */
const volatile u64 jiffy_ns = 4000000;

/*
 * Keeps the enums whose values the reader uses among the object's types: only then are they
 * generated into Go.
 */
const struct reader_enums {
	enum table_index table_index;
	enum edge_role edge_role;
	enum transport transport;
	enum protocol protocol;
	enum status status;
	enum cpu_architecture cpu_architecture;
	enum quota quota;
	enum lru_table lru_table;
	enum packet_direction packet_direction;
	enum packet_drop_limit packet_drop_limit;
	enum edge_drop edge_drop;
	enum endpoint_drop endpoint_drop;
} *reader_enums __attribute__((unused));

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
	/* a buffer that was skipped holds old bytes */
	return transferred(sk, ret, flags & MSG_TRUNC ? 0 : ret, false);
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
	__builtin_memset(&c->packets, 0, sizeof(c->packets));
	skip_segments(sk, c);
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

/* What was received of which no call has reported. The other end's FIN counts as a byte. */
static __always_inline u64 unreported_bytes(const struct tcp_sock *tcp, const struct connection *c)
{
	u64 reported = c->received_bytes + 1;

	return (c->flags & CONNECTION_WHOLE) && tcp->bytes_received > reported ?
		       tcp->bytes_received - reported :
		       0;
}

/* How the connection ended, and what is known only then. */
static __always_inline void count_end(struct sock *sk, struct connection *c, struct edge *edge)
{
	int error = sk->sk_err;

	if (error == ECONNRESET || error == EPIPE)
		__sync_fetch_and_add(&edge->resets, 1);
	else if (error == ETIMEDOUT)
		__sync_fetch_and_add(&edge->timeouts, 1);
	if (c->opened_ns)
		add_sample(&edge->histograms[EDGE_DURATION], &edge->duration_sum_ns,
			   elapsed(c->opened_ns, bpf_ktime_get_ns()));
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return;
	u64 limited_ns = (u64)tcp->chrono_stat[1] * jiffy_ns;
	if (limited_ns)
		__sync_fetch_and_add(&edge->window_limited_ns, limited_ns);
	if (tcp->chrono_stat[2])
		__sync_fetch_and_add(&edge->send_limited_ns, (u64)tcp->chrono_stat[2] * jiffy_ns);
	u64 rtt_min_ns = (u64)tcp->rtt_min.s[0].v * 1000;
	/* ~0 microseconds: never measured. Two ends of two connections at once may lose a minimum
	 * to one another; the next one mends it. */
	if (tcp->rtt_min.s[0].v != ~0U && (!edge->rtt_min_ns || rtt_min_ns < edge->rtt_min_ns))
		edge->rtt_min_ns = rtt_min_ns;
	u64 unreported = unreported_bytes(tcp, c);
	if (unreported)
		__sync_fetch_and_add(&edge->unseen_bytes, unreported);
}

/*
 * Whether a client that had ended its own side before has a reply that no call has read yet:
 * reading ends its transaction.
 */
static __always_inline bool may_read_on(struct sock *sk, struct connection *c, int old_state)
{
	if (c->role != ROLE_CLIENT || sk->sk_err || !sk->sk_socket)
		return false;
	if (old_state != TCP_FIN_WAIT1 && old_state != TCP_FIN_WAIT2 && old_state != TCP_CLOSING)
		return false;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp || !unreported_bytes(tcp, c))
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
		/* a program may keep the socket: it is none that is open */
		clear_flags(c, CONNECTION_OPEN);
		count_failure(sk, edge);
		return;
	}
	if (!(c->flags & CONNECTION_OPEN))
		return;
	if (c->watched != watching)
		rejoin(sk, c, edge);
	/* A call that sends, or receives, may still return. */
	if (!finish(sk, c) && c->phase == PHASE_REQUEST && !c->early.state &&
	    !may_read_on(sk, c, old_state))
		abort_request(c, edge);
	if (c->flags & CONNECTION_HTTP2)
		http2_closed(sk);
	leave_pair(sk, c);
	count_segments(sk, c);
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
	/* The first segment of a connection that may never be established. */
	if (!c->edge && c->role == ROLE_CLIENT)
		use_edge(c, edge_of(sk, c));
	struct edge *edge = edge_at(c->edge, c->edge_generation);
	if (edge)
		__sync_fetch_and_add(&edge->retransmits, 1);
	return 0;
}

/*
 * Sockets that are older than these programs, in four passes over all tasks' files: listeners (by
 * which servers and clients are told apart), then clients (servers look their peers up), then
 * servers, then clients again, which look their servers up.
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
	struct sock *sk = sock_of_file(ctx);

	if (!task || !sk)
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

static __always_inline void sweep_connection(struct sock *sk, struct connection *c)
{
	if (c->flags & CONNECTION_LISTENER) {
		struct listener_key key;

		listener_key_of(sk, c, &key);
		struct listener *listener = bpf_map_lookup_elem(&listeners, &key);
		if (listener) {
			count_listener_drops(sk, c, listener);
			see_accept_queue(sk, listener);
		}
		return;
	}
	if (marks_pairs && sk->__sk_common.skc_state != TCP_CLOSE)
		mark_pairs(sk, c);
	if (c->unsettled && bpf_ktime_get_ns() - c->opened_ns > SETTLE_AFTER_NS)
		settle(sk, c);
	if (c->flags & CONNECTION_OPEN) {
		struct edge *edge = edge_at(c->edge, c->edge_generation);

		if (edge)
			__sync_fetch_and_add(&edge->open, 1);
		count_segments(sk, c);
	}
	u64 now = bpf_ktime_get_ns();
	if (c->early.state == EARLY_KEPT && elapsed(c->early.first_ns, now) > SWEEP_AFTER_NS)
		give_up_call(sk, c);
	if (c->phase != PHASE_REPLY || elapsed(c->last_ns, now) < SWEEP_AFTER_NS)
		return;
	set_flags(c, CONNECTION_SWEPT);
	finish(sk, c);
}

SEC("iter/bpf_sk_storage_map")
int sweep_connections(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	/* Read once: a second reading is another pointer to the verifier, which may be NULL. */
	struct sock *sk = ctx->sk;
	void *value = ctx->value;

	if (sk && value)
		sweep_connection(sk, value);
	return 0;
}

/*
 * Where the kernel refuses iterators over maps: the sockets of all files. It does not meet those
 * that no file has, which wait to be accepted, or go on after their file was closed.
 */
SEC("iter/task_file")
int sweep_connection_files(struct bpf_iter__task_file *ctx)
{
	struct sock *sk = sock_of_file(ctx);

	if (!sk)
		return 0;
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (!c || c->swept == sweep_number)
		return 0;
	c->swept = sweep_number;
	sweep_connection(sk, c);
	return 0;
}
