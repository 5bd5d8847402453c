/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of edges.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_EDGES_H
#define OUTSIGHT_EDGES_H

#include "include/kernel.h"
#include "net/packets.h"
#include "net/proxies.h"
#include "net/proto/endpoints.h"
#include "net/table_index.h"

enum edge_role {
	ROLE_UNKNOWN = 0,
	ROLE_CLIENT = 1,
	ROLE_SERVER = 2,
};

enum transport {
	TRANSPORT_TCP = 0,
	TRANSPORT_UDP = 1,
};

/* Addresses are IPv6; IPv4 ones are mapped (::ffff:a.b.c.d). Bytes in network order. */
struct address {
	u8 bytes[16];
};

/* Length of a process's name, ended by a zero. */
#define PROCESS_NAME 16

/* A process: its name, and an id that only helps to look it up while it lives. */
struct process {
	char name[PROCESS_NAME] __attribute__((aligned(8)));
	u32 id;
	u32 unused;
};

#define FORWARDS 1  /* this end only passes on what others send */
#define FORWARDED 2 /* on a server: the client dialled a forwarder, which dialled this end */

/* All connections that share a key are counted together; the client's port is never part of it. */
struct edge_key {
	u64 owner;		/* control group of the end that counts */
	u64 peer;		/* control group of the other end, if it is on this host */
	struct address service;	/* the server's address as this end sees it */
	struct address client;	/* on a server: the client's address; zero if masked */
	/*
	 * The server's address as the other end sees it, if that is on this host and sees another
	 * one; on a forwarder's own client end: the address where the forwarder was dialled.
	 */
	struct address far;
	char process[PROCESS_NAME];	 /* of this end */
	char peer_process[PROCESS_NAME]; /* of the other end, if it is on this host */
	u32 netns;
	u16 port;	/* of the service, host byte order */
	u16 far_port;	/* 0 where far is not set */
	u8 role;
	u8 forwarder;	/* FORWARDS or FORWARDED, or 0 */
	u8 transport;	/* enum transport */
	/* 1: what its owner has beyond its quota; only owner, role and transport are set */
	u8 others;
	u8 pad[4];
};

#define EDGE_HISTOGRAMS 3

/* How many connections of an edge are told in a round. */
#define SAMPLES 4

struct edge {
	struct edge_key key;
	u64 used; /* 0 while the index is free */
	u64 sent_bytes;
	u64 received_bytes;
	u64 opens;
	u64 closes;
	u64 failures;
	u64 retransmits;
	u64 aborts;
	u64 continued;
	u64 latency_sum_ns;
	u64 requests; /* transactions begun */
	u64 replies;  /* transactions whose reply has begun */
	/* transactions whose reply took over BULK_TRANSFER_AFTER_NS from first to last byte */
	u64 bulk_transfers;
	/* transactions whose reply began over LONG_POLL_AFTER_NS after the request */
	u64 long_polls;
	u64 pushes;    /* times that a server sent without a request */
	u64 resets;    /* connections that ended with a reset */
	u64 timeouts;  /* connections that ended because the other end was silent */
	u64 failures_refused;
	u64 failures_timeout;
	u64 failures_unreachable;
	u64 unseen_bytes; /* received by the kernel, not by a call that the hooks see (splice) */
	u64 jitter_sum_ns; /* mean deviation of the round-trip time; as many samples as rtt has */
	u64 window_limited_ns; /* time in which the receiver's window held the sender up */
	u64 rtt_min_ns;
	u64 ttfb_sum_ns;
	u64 rtt_sum_ns;
	u64 duration_sum_ns;
	u32 histograms[EDGE_HISTOGRAMS]; /* indexes in the pool, 0 until first needed */
	u32 process; /* one that uses the edge, to look it up */
	u32 proxy; /* set by the reader: index of the proxy whose end this is; 0: of none */
	/*
	 * The most requests in flight (requests - replies - aborts - lost) that there were since the
	 * reader made it 0, which it does when it reads it. Of TCP alone.
	 */
	u32 most_in_flight;
	u64 upgrades; /* connections that became streams by agreement: WebSocket, replication */
	/* transactions that could not be followed to their end, and had no reply yet */
	u64 lost;
	u64 lost_replies; /* those whose reply had begun */
	u64 send_limited_ns; /* time in which this end's own send buffer held it up */
	/* hashes of some connections of a round and of an earlier one; 0 for none. See samples.h */
	u64 samples[2 * SAMPLES];
	u32 sample_rounds[2];
	u32 open; /* connections that the last sweep found open */
	u32 generation; /* last: the reader changes it, and then clears the rest */
};

/* Histograms that an edge has only when it needs them. */
#define EDGE_TTFB 0	/* from the request's first byte to the reply's first byte */
#define EDGE_RTT 1	/* the kernel's smoothed round-trip time, at each transaction's end */
#define EDGE_DURATION 2 /* of connections */

/* A listening socket; several may share an address (SO_REUSEPORT). */
struct listener_key {
	struct address address;
	u32 netns;
	u16 port;
	u16 pad;
};

struct listener {
	u64 owner; /* of the last one who accepted, or else who listens */
	u64 sockets;
	struct process process;
	u32 forwarder;
	/* connections that found no room in the accept queue, or were refused otherwise */
	u64 drops;
	/*
	 * At the last sweep, whose number is swept: connections that waited to be accepted, and how many
	 * fit; of several sockets those of the fullest.
	 */
	u32 queued;
	u32 queue_limit;
	u32 swept;
	u32 unused;
};

/* The address pair of a connection, as its client sees it; see pairing.h. */
struct pair_key {
	struct address client;
	struct address service;
	u32 netns; /* of loopback connections only: their addresses are not unique on a host */
	u16 client_port;
	u16 service_port;
};

enum connection_phase {
	PHASE_IDLE = 0,	   /* nothing sent yet, or the last transaction is counted */
	PHASE_REQUEST = 1, /* the client has begun to send */
	PHASE_REPLY = 2,   /* the server has begun to reply */
};

#define CONNECTION_OWNED 1	 /* owner is that of the task that uses the socket */
#define CONNECTION_OPEN 2	 /* counted in edge.opens */
#define CONNECTION_SWEPT 4	 /* its last transaction was counted after a silence */
#define CONNECTION_WHOLE 16	 /* seen since it was opened */
#define CONNECTION_STREAM 32	 /* not a sequence of transactions: messages go either way */
#define CONNECTION_LISTENER 8	 /* a listening socket, counted in listeners */
#define CONNECTION_OLD 64	 /* older than the programs: its opening was not seen */
#define CONNECTION_PAIRED 128	 /* a server that knows its client */
#define CONNECTION_FORWARDER 256 /* this end only passes on what others send */
#define CONNECTION_HTTP2 512	 /* followed by http2_streams.h */
#define CONNECTION_REJOINED 2048 /* nothing was seen of it for a while */
#define CONNECTION_TLS 1024	 /* encrypted: its plaintext is at a library, if anywhere */

enum early_state {
	EARLY_NONE = 0,
	EARLY_KEPT = 1,
	EARLY_TAKEN = 2, /* by one who fills or counts it */
};

/* What was received before the call that sent what it answers has returned; see reorder.h. */
struct early {
	u64 first_ns; /* when it was received */
	u64 last_ns;  /* and the last of what followed it */
	/* when the kernel had sent what it answers, or the last of it that was acknowledged */
	u64 sent_ns;
	u32 state;    /* enum early_state */
	u32 sequence; /* of what had been handed to the socket by then */
	u32 size;
	u32 length; /* of text */
	u8 text[HEAD_BYTES];
};

/* What is known of one socket. It lives and ends with the socket. */
struct connection {
	u64 owner;
	u64 first_ns; /* of the transaction: its first byte */
	u64 reply_ns; /* of the transaction: the first byte of the reply */
	u64 last_ns;  /* of the transaction: the last byte of the reply so far */
	u64 opened_ns;
	u64 sampled_ns; /* when the path was last looked at */
	u64 unread_since_ns; /* server: when the first packet arrived that was not read; 0: none */
	u64 received_bytes;
	u32 edge;
	u32 phase;
	u32 role;
	u32 flags; /* changed on several CPUs at once: set_flags, clear_flags */
	u16 local_port;
	u16 state; /* the last TCP state that was handled */
	u32 pushes;
	u32 unsettled; /* 1: established by a client, and not yet counted on an edge */
	u32 client_sequence;
	u32 server_sequence;
	u32 behind; /* of a forwarder's client end: the edge that it serves, 0 if not known */
	u32 drops;  /* of a listening socket: those that its listener has counted */
	u32 watched; /* what watching was at its last transfer */
	/* with tls_connection, what a TLS library calls the connection; see tls.h */
	u32 tls_group;
	u64 tls_connection;
	struct process process;
	/* of what was handed to the socket when a call that sends last returned */
	u32 reported_sequence;
	u32 edge_generation; /* of edge, when it was found */
	u32 swept;	     /* the last sweep of all files that met it */
	u32 unused;
	struct proxy_request at_proxy;
	struct counted_segments counted;
	struct packet_path packets;
	struct early early;
	struct head head;
};

/*
 * What a control group may have of the tables that all share. What is over a quota is counted under
 * fewer keys, so that one group cannot take the room of the others.
 */
enum quota {
	QUOTA_EDGES = 0,
	QUOTA_LISTENERS = 1,
	QUOTA_ENDPOINTS = 2,
	QUOTA_PAIRS = 3,
	QUOTA_STREAMS = 4,
	QUOTAS = 5,
};

/*
 * Entries that a control group has. The programs only add; the reader counts anew at each reading,
 * and takes groups of one container together.
 */
struct owner_use {
	u32 used[QUOTAS];
};

/* How often a control group would have had more. */
struct owner_drops {
	u64 over[QUOTAS];
};

/*
 * Entries of a control group in datagram_flows and in dns_queries. With its quota used up, its next
 * ones are put into a smaller table, where they evict only one another and those of others that
 * have used up theirs.
 */
#define CROWDED_FLOWS 0
#define CROWDED_QUERIES 1

struct flow_use {
	u32 used[2];
	u32 found[2]; /* by the sweep */
};

enum edge_drop {
	/* no free edge: counted under its owner's others, or under EDGE_OVERFLOW */
	DROP_EDGE = 0,
	DROP_EDGE_CLIENT = 1, /* few free edges: the client's address was masked */
	DROP_CONNECTION = 2, /* no memory for a connection's state: its traffic is not counted */
	DROP_PAIR = 3,	     /* pairs is full: the server will not know its client's group */
	DROP_LISTENER = 4,
	DROP_MULTIPATH = 5, /* transfers on multipath TCP connections are not counted */
	DROP_HISTOGRAM = 6, /* the pool of histograms is empty */
	DROP_PROXIED = 7, /* a forwarder's client is one of several */
	DROP_DATAGRAM_PEER = 8, /* the peer of a datagram is not known: counted, not timed */
	DROP_DATAGRAM_FLOW = 9, /* no memory for a flow: its datagram is not counted */
	DROP_STREAM = 10, /* no room for a stream of HTTP/2: it is not counted */
	DROP_HTTP2 = 11,  /* a connection of HTTP/2 could not be followed, or no further */
	DROP_HTTP2_PATH = 12, /* a request of HTTP/2 has no name: its path was evicted */
	DROP_PACKET_DROP = 13, /* packet_drops is full: packets that were dropped are not counted */
	EDGE_DROPS = 14,
};

/* A transaction whose reply has been silent for so long is counted without waiting for the next. */
#define SWEEP_AFTER_NS 1000000000ULL

/* A client's connection that was not used for so long is counted as open all the same. */
#define SETTLE_AFTER_NS 100000000ULL

/*
 * A reply that flows for longer than this is a bulk transfer: its time depends on its size and on
 * its reader, not on the service, so it is counted and left out of the latency.
 */
#define BULK_TRANSFER_AFTER_NS 1000000000ULL

/* The least time between two samples of a connection's path. */
#define SAMPLE_EVERY_NS 10000000ULL

/* A request that is answered only after this is a long poll: the server let it wait on purpose. */
#define LONG_POLL_AFTER_NS 10000000000ULL

/* A server that sends so often without being asked makes a connection a stream. */
#define STREAM_AFTER_PUSHES 3

#endif
