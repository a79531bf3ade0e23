/* group.h - the exact optimum of the grouping problem (PipeSwitch, OSDI'20, section 4.2).
 *
 * There are n layers in order; layer i has copy_ns[i] (its missing bytes times beta; 0: resident)
 * and compute_ns[i], which includes unpacking it where it travels packed: the stream that computes
 * does that, as the first thing once the layer's group has arrived, so of the three stages the last
 * two follow each other in one order. A grouping cuts them into consecutive groups. A group costs
 * alpha_ns once and travels in one copy; its computation starts when it and all groups before it
 * have arrived. The
 * earliest finish is found by bisection over the makespan with a greedy test, in O(n log T), and is
 * exact for integer times: groups g = 1..k that end at layers e_g satisfy  g alpha + T(e_g) <= D -
 * C(n) + C(e_{g-1}).
 *
 * Over several links a group has several ways to travel, and takes the quickest: a small one by the
 * link that begins soonest, a large one divided over all of them, which costs more at its start and
 * less for each byte. When a group arrives then depends on where those before it were cut, so the
 * test is a dynamic program over the earliest arrival of each prefix: O(w n) for w ways, between
 * bounds that the greedy test gives. It is as exact.
 *
 * Pure: no clock; keeps no memory except *ends.
 */
#ifndef SH_RUNTIME_GROUP_H
#define SH_RUNTIME_GROUP_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define GROUP_MAX_LAYERS 65536u
#define GROUP_MAX_WAYS 8u

struct group_way { /* what a group costs: alpha_ns, and copy_ns[i] of each of its layers */
    int64_t alpha_ns;
    const int64_t *copy_ns; /* BORROWED; 0 of a layer that is resident, in all ways alike */
};

struct group_plan {
    uint32_t *
        ends; /* OWNED, group_plan_fini(): one past each group's last layer; ends[n-1] = n layers */
    uint32_t n;        /* groups; resident layers at the front form a first group without a copy */
    int64_t finish_ns; /* predicted: from the first copy to the last computation */
};

/* *out: OWNED, group_plan_fini(). Fails: SH_E_INVALID (an impossible time), SH_E_NOMEM. */
int group_solve(const struct group_way *ways, uint32_t n_ways, const int64_t *compute_ns,
                uint32_t n, struct group_plan *out, struct sh_err *err);
/* Predicted finish with given cuts, for reports: per layer, fixed size, one group. */
int64_t group_evaluate(const struct group_way *ways, uint32_t n_ways, const int64_t *compute_ns,
                       uint32_t n, const uint32_t *ends, uint32_t n_groups);
void group_plan_fini(struct group_plan *p);

#endif
