/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The clock of the run queue that a task is on; nanoseconds, of the same rate on all CPUs. */
#ifndef OUTSIGHT_RUN_QUEUE_CLOCK_H
#define OUTSIGHT_RUN_QUEUE_CLOCK_H

#include "include/kernel.h"

static __always_inline u64 run_queue_clock(struct task_struct *task)
{
	return task->se.cfs_rq->rq->clock;
}

/*
 * By how much that clock is ahead of the run queue's clock of its tasks, which leaves out stolen
 * time.
 */
static __always_inline u64 run_queue_steal(struct task_struct *task)
{
	struct rq *rq = task->se.cfs_rq->rq;

	return rq->clock - rq->clock_task;
}

#endif
