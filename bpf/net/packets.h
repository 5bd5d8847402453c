/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of the packets of edges, shared with their reader. */
#ifndef OUTSIGHT_PACKETS_H
#define OUTSIGHT_PACKETS_H

#include "include/kernel.h"

/*
 * Packets with data as they go over the network: of one that was handed over whole and is segmented
 * later, each segment counts. Bytes are those of the data.
 */
struct packet_counts {
	u64 sent_packets; /* retransmissions among them */
	u64 sent_bytes;
	u64 received_packets; /* copies among them */
	u64 received_bytes;
	u64 reordered_packets;	/* received: an older one than the newest before, and no copy */
	u64 duplicated_packets; /* received: copies of what had been received, made on the way */
	u64 repeated_packets;	/* received: sent again, although it had been received */
};

#define PACKET_COUNTS (sizeof(struct packet_counts) / sizeof(u64))

/* What an edge has of its packets; at the same index of a table of its own. */
struct edge_packets {
	struct packet_counts counts;
	u64 delay_sum_ns; /* from the sender's stack to this end's, of the packets that were timed */
	u64 delay_variation_ns; /* sum of the differences between a delay and the one before */
	u64 last_delay_ns;	/* 0: none so far */
	u64 unread_sum_ns;	/* for which requests lay in the server's sockets until they were read */
	u64 unread_requests;	/* of how many reads that is the sum */
	u32 delay_histogram;	/* index in the pool, 0 until first needed */
	/* Set by the reader: of 2^level bytes (TCP) or packets (UDP) one is timed. */
	u32 sent_level;
	u32 received_level;
	u32 unused[3];
};

/* What is known of the packets of one connection, or of one flow of UDP. */
struct packet_path {
	struct packet_counts waiting; /* until the edge is known */
	u64 ids;       /* which of the 64 ids up to newest_id were received; bit 0: newest_id */
	u32 highest;   /* TCP: the end of the highest sequence received */
	u32 timestamp; /* TCP: the timestamp of the newest packet received */
	u32 contiguous; /* TCP: up to here all was received, or more */
	u16 newest_id; /* IPv4: the identification of the newest packet received */
	u16 flags;
};

#define PATH_BEGUN 1	/* a packet was received */
#define PATH_RECEIVED 2 /* one with data was: highest, timestamp and contiguous are set */
#define PATH_IDS 4	/* newest_id is set */

/* A packet that was sent from this host, and not received on it so far. */
struct packet_stamp {
	u64 packet; /* what identifies it among those of its connection or port; 0: none */
	u64 check;  /* what identifies the connection, or more of the packet */
	u64 ns;	    /* when it was sent; 0: two that cannot be told apart were */
	u64 unused;
};

/*
 * A packet that nobody received for so long was lost, or is another host's: the next one with the
 * same identity is not taken for a copy.
 */
#define STAMP_FORGOTTEN_NS 1000000000ULL

#endif
