/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Packets that the kernel dropped: records shared with their reader. */
#ifndef OUTSIGHT_PACKET_DROPS_H
#define OUTSIGHT_PACKET_DROPS_H

#include "include/kernel.h"

struct packet_drop_key {
	u64 owner;   /* control group whose socket sent it or was to receive it; 0: not known */
	u32 netns;   /* of the device, or of the socket where there is none */
	u32 ifindex; /* of the device, in netns; 0: none */
	u32 reason;  /* enum skb_drop_reason of the running kernel */
	u32 unused;
};

struct packet_drop {
	u64 packets;   /* a buffer of several segments is as many */
	char device[16]; /* its name at the first drop */
};

/* Of reasons below the reader tells which are no losses; further ones are all losses. */
enum packet_drop_limit {
	PACKET_DROP_REASONS = 256,
};

#endif
