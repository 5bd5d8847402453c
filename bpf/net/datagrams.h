/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of UDP sockets and edges, shared with their reader. */
#ifndef OUTSIGHT_DATAGRAMS_H
#define OUTSIGHT_DATAGRAMS_H

#include "include/kernel.h"
#include "net/edges.h"
#include "net/packets.h"

/* What an edge of UDP has besides struct edge; at the same index of a table of its own. */
struct datagram_edge {
	u64 sent_packets;     /* calls that sent */
	u64 received_packets; /* calls that received */
	u64 one_way;	      /* requests' datagrams in streams without replies */
	u64 streams;	      /* requests that turned out to be the beginning of a stream */
	u64 pending;	      /* requests without a reply, found by the last sweep */
	u64 generation;	      /* changed by the reader: flows must look for their edge again */
	/* datagrams beyond one for each call: of UDP_SEGMENT and UDP_GRO */
	u64 sent_extra;
	u64 received_extra;
};

struct datagram_peer {
	struct address address;
	u16 port; /* host byte order */
	u16 unused;
} __attribute__((aligned(4)));

enum flow_phase {
	FLOW_IDLE = 0,
	FLOW_REQUEST = 1, /* the client has sent */
	FLOW_STREAM = 2,  /* it has sent often, and nothing was received */
};

/* What passes between a socket and one of its peers. */
struct datagram_flow {
	u64 first_ns; /* of the request: its first datagram */
	u32 edge;
	u32 generation; /* of the edge when it was found */
	u32 phase;
	u32 requests; /* datagrams since the last reply */
	u32 role;     /* 0: new */
	u32 known;    /* 1: edge is set, for packets that come while a call looks for it */
	u64 owner; /* whose quota it is of; 0: of none */
	struct packet_path packets;
};

struct flow_key {
	u64 socket; /* cookie */
	struct datagram_peer peer;
	u32 query; /* of a DNS query: its id */
};

/* A DNS query without a reply so far. */
struct dns_query {
	u64 first_ns;
	u32 edge;
	u32 generation; /* of the edge */
	u64 owner;	/* whose quota it is of; 0: of none */
	u8 name[ENDPOINT_NAME];
};

/* A call for several messages, and which is next. */
struct datagram_batch {
	u64 task;
	u64 at;
	u32 next;
	u32 unused;
};

/* The peer of a call that has not returned yet. */
struct datagram_call {
	u64 task;
	struct datagram_peer peer;
	u32 unused;
};

/* A power of two. Threads that call at once on one socket, and share an index, lose their peer. */
#define DATAGRAM_CALLS 4

static __always_inline u32 call_index(u64 task)
{
	return task * 0x9e3779b97f4a7c15ULL >> 62;
}

#define DATAGRAM_OLDER 1 /* it was there before the programs */
#define DATAGRAM_PEER 2	 /* peer is set */
#define DATAGRAM_PEERS 4 /* it has had several */

/* What is known of one socket. It lives and ends with the socket. */
struct datagram_socket {
	u64 owner;
	u64 id; /* cookie, 0 until the first use */
	/* Its first or only peer: the flow to it is here, the others are in a hash. */
	struct datagram_peer peer;
	u32 flags;
	struct process process;
	u32 swept; /* the last sweep of all files that met it */
	struct datagram_flow flow;
	struct datagram_call calls[DATAGRAM_CALLS];
	struct datagram_batch sending, receiving; /* DNS alone */
};

/* So many datagrams without one in return are a stream, not a request. */
#define STREAM_AFTER_DATAGRAMS 16

/* A request that waits for longer will not be answered. */
#define UNANSWERED_AFTER_NS 5000000000ULL

/* Where ports that clients get begin, by default. */
#define FIRST_CLIENT_PORT 32768

#endif
