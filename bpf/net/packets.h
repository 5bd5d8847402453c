/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of the packets of edges, shared with their reader. */
#ifndef OUTSIGHT_PACKETS_H
#define OUTSIGHT_PACKETS_H

#include "include/kernel.h"

/*
 * Packets with data as they go over the network: of one that was handed over whole and is segmented
 * later, each segment counts. Bytes are those of the data. Those of UDP that were sent and received
 * are in struct edge and struct datagram_edge.
 */
struct packet_counts {
	u64 sent_packets; /* TCP: retransmissions among them */
	u64 sent_bytes;
	u64 received_packets; /* TCP: copies among them */
	u64 received_bytes;   /* TCP: each byte once, when all before it have come */
	u64 reordered_packets;	/* observed: an older one than the newest before, and no copy */
	u64 duplicated_packets; /* observed: copies of what had been received, made on the way */
	u64 repeated_packets;	/* observed: sent again, although it had been received */
	u64 observed_packets;	/* received while the hooks of packets were attached */
	u64 retransmitted_packets; /* TCP: sent again, those without data among them */
	u64 out_of_order_packets;  /* TCP: received when one before them was missing */
};

/* What an edge has of its packets; at the same index of a table of its own. */
struct edge_packets {
	struct packet_counts counts;
	u64 delay_sum_ns; /* from the sender's stack to this end's, of the packets that were timed */
	u64 delay_variation_ns; /* sum of the differences between a delay and the one before */
	u64 last_delay_ns;	/* 0: none so far */
	u64 unread_sum_ns;	/* for which requests lay in the server's sockets until they were read */
	u64 unread_requests;	/* of how many reads that is the sum */
	u32 delay_histogram;	/* index in the pool, 0 until first needed */
	/* by enum packet_direction: packets that are less round are not sampled; set by the reader */
	u8 sample_levels[2];
	u16 unused;
};

/* What of the kernel's counters of a connection its edge has. */
struct counted_segments {
	u64 sent_bytes;
	u64 received_bytes;
	u32 sent_packets;
	u32 received_packets;
	u32 retransmitted_packets;
	u32 out_of_order_packets;
};

/* The order of the packets that were observed of one connection, or of one flow of UDP. */
struct packet_path {
	u64 ids;       /* which of the 64 ids up to newest_id were received; bit 0: newest_id */
	u32 highest;   /* TCP: the end of the highest sequence received */
	u32 timestamp; /* TCP: the timestamp of the newest packet received */
	u32 contiguous; /* TCP: up to here all was received, or more */
	u32 slice;	/* of time: of what was received in another one, nothing is remembered */
	u16 newest_id; /* IPv4: the identification of the newest packet received */
	u16 flags;
	u32 unused;
};

#define PATH_RECEIVED 1 /* highest, timestamp and contiguous are set */
#define PATH_IDS 2	/* newest_id is set */

/* Of one of the hooks of packets, on one CPU. */
struct packet_hook {
	u64 runs;
	u32 period;
	u32 observed; /* in this period */
};

enum packet_direction {
	PACKET_SENT = 0,
	PACKET_RECEIVED = 1,
	PACKET_DIRECTIONS = 2,
};

/* By these, the counts of hooks. Those of uplinks are attached between slices, too, and do nothing. */
enum packet_hook_number {
	HOOK_SOCKET_SENT = PACKET_SENT,
	HOOK_SOCKET_RECEIVED = PACKET_RECEIVED,
	HOOK_CARD_SENT = 2,
	HOOK_CARD_RECEIVED = 3,
	PACKET_HOOKS = 4,
};

/* A packet that was sent from this host, and not received on it so far. */
struct packet_stamp {
	u64 packet; /* what identifies it among those of its connection or port; 0: none */
	u64 check;  /* what identifies the connection, or more of the packet */
	u64 ns;	    /* when it was sent; 0: two that cannot be told apart were */
	u64 unused;
};

/* When a packet was sent to another host, or received from one. */
struct packet_sample {
	u64 number; /* counted from one; written last, and 0 while the rest is written */
	u64 packet; /* a hash of what identifies it, the same on both hosts */
	u64 ns;	    /* CLOCK_MONOTONIC */
	u64 card_ns; /* when it left by an uplink, or came in by one; 0: that was not seen */
	u32 edge;   /* its index */
	u16 direction; /* enum packet_direction */
	u16 level;     /* how round it is: a packet that is sampled on one host is on the other one */
};

/* A packet between a socket of this host and one of its uplinks. */
struct card_packet {
	u64 packet; /* as in struct packet_sample; 0: none */
	u64 value;  /* the number of its sample where it was sent; when it came where it was received */
};

/* A power of two: of more samples between two readings the newest are there. */
#define PACKET_SAMPLES 4096

/*
 * A packet that nobody received for so long was lost, or is another host's: the next one with the
 * same identity is not taken for a copy.
 */
#define STAMP_FORGOTTEN_NS 1000000000ULL

#endif
