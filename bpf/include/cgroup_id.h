/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Which control group a task is in, in the one hierarchy that identifies containers. */
#ifndef OUTSIGHT_CGROUP_ID_H
#define OUTSIGHT_CGROUP_ID_H

#include "include/kernel.h"

/*
 * Index in css_set.subsys of the controller whose hierarchy is used (memory, else cpu, on a v1
 * or hybrid host); -1 for the default hierarchy (v2). Ids of different hierarchies are different
 * number spaces, so only one is ever used.
 */
const volatile s32 cgroup_subsys_index = -1;

static __always_inline struct cgroup *task_cgroup(struct task_struct *task)
{
	struct css_set *set = task->cgroups;

	switch (cgroup_subsys_index) {
	case 0: return set->subsys[0]->cgroup;
	case 1: return set->subsys[1]->cgroup;
	case 2: return set->subsys[2]->cgroup;
	case 3: return set->subsys[3]->cgroup;
	case 4: return set->subsys[4]->cgroup;
	case 5: return set->subsys[5]->cgroup;
	case 6: return set->subsys[6]->cgroup;
	case 7: return set->subsys[7]->cgroup;
	}
	return set->dfl_cgrp;
}

static __always_inline u64 task_cgroup_id(struct task_struct *task)
{
	return task_cgroup(task)->kn->id;
}

#endif
