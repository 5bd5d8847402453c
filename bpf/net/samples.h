/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * A sample of the connections of an edge, by which the halves of an edge between two hosts are found
 * to be one. A connection is told by a hash of its two initial sequence numbers.
 * Both hosts must choose the same connections of thousands: in each round, which is a minute of the
 * wall clock, those with the least hashes are kept.
 */
#ifndef OUTSIGHT_SAMPLES_H
#define OUTSIGHT_SAMPLES_H

#include "include/kernel.h"
#include "net/edge_maps.h"

/* The present round; set by the reader. 0: no connection is sampled. */
volatile u32 sample_round = 0;

/* 48 bits of the finalizer of MurmurHash3 (public domain): the numbers themselves stay here. */
static __always_inline u64 sequence_hash(const struct connection *c)
{
	u64 hash = (u64)c->client_sequence << 32 | c->server_sequence;

	hash ^= hash >> 33;
	hash *= 0xff51afd7ed558ccdULL;
	hash ^= hash >> 33;
	hash *= 0xc4ceb9fe1a85ec53ULL;
	return hash >> 16 | 1;
}

/* Two CPUs at once may lose a sample: one less is known then. */
static __noinline int sample_connection(struct connection *c, struct edge *edge)
{
	u32 round = sample_round;

	if (!c || !edge || !round || !(c->flags & CONNECTION_WHOLE))
		return 0;
	u32 half = round & 1, first = half * SAMPLES, at = first;
	u64 hash = sequence_hash(c), greatest = 0;

	if (edge->sample_rounds[half] != round) {
		edge->sample_rounds[half] = round;
		for (u32 i = 0; i < SAMPLES; i++)
			edge->samples[first + i] = 0;
	}
	for (u32 i = 0; i < SAMPLES; i++) {
		u64 sample = edge->samples[first + i];

		if (sample == hash)
			return 0;
		if (!sample)
			sample = ~0ULL;
		if (sample > greatest) {
			greatest = sample;
			at = first + i;
		}
	}
	if (hash < greatest && at < 2 * SAMPLES)
		edge->samples[at] = hash;
	return 0;
}

#endif
