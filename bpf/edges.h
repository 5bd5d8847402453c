/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of edges.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_EDGES_H
#define OUTSIGHT_EDGES_H

/* The edge that collects what found no room in the table. */
#define EDGE_OVERFLOW 0

enum edge_role {
	ROLE_UNKNOWN = 0,
	ROLE_CLIENT = 1,
	ROLE_SERVER = 2,
};

/* Addresses are IPv6; IPv4 ones are mapped (::ffff:a.b.c.d). Bytes in network order. */
struct address {
	u8 bytes[16];
};

/* All connections that share a key are counted together; the client's port is never part of it. */
struct edge_key {
	u64 owner;		/* control group of the end that counts */
	u64 peer;		/* on a server: the client's group, if it is on this host */
	struct address service;	/* the server's address as this end sees it */
	struct address client;	/* on a server: the client's address; zero if masked */
	u32 netns;
	u16 port;		/* of the service, host byte order */
	u8 role;
	u8 pad;
};

struct edge {
	struct edge_key key;
	u64 used; /* 0 while the place is free */
	u64 sent_bytes;
	u64 received_bytes;
	u64 opens;
	u64 closes;
	u64 failures;
	u64 retransmits;
	u64 aborts;
	u64 continued;
	u64 latency_sum_ns;
	u64 unused[7];
};

/* A listening socket; several may share an address (SO_REUSEPORT). */
struct listener_key {
	struct address address;
	u32 netns;
	u16 port;
	u16 pad;
};

struct listener {
	u64 owner;
	u64 sockets;
};

/* The address pair of a connection, as its client sees it. */
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
#define CONNECTION_LISTENER 8	 /* a listening socket, counted in listeners */

/* What is known of one socket. It lives and ends with the socket. */
struct connection {
	u64 owner;
	u64 first_ns; /* of the transaction: its first byte */
	u64 last_ns;  /* of the transaction: the last byte of the reply so far */
	u32 edge;
	u32 phase;
	u32 role;
	u16 flags;
	u16 local_port;
};

enum edge_drop {
	DROP_EDGE = 0,	     /* no free edge: counted under EDGE_OVERFLOW */
	DROP_EDGE_CLIENT = 1, /* few free edges: the client's address was masked */
	DROP_CONNECTION = 2, /* no memory for a connection's state: its traffic is not counted */
	DROP_PAIR = 3,	     /* pairs is full: the server will not know its client's group */
	DROP_LISTENER = 4,
	DROP_MULTIPATH = 5, /* transfers on multipath TCP connections are not counted */
	EDGE_DROPS = 6,
};

/* A transaction whose reply has been silent for so long is counted without waiting for the next. */
#define SWEEP_AFTER_NS 1000000000ULL

#endif
