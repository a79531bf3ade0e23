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
 * Pure: no clock; keeps no memory except *ends.
 */
#ifndef SH_RUNTIME_GROUP_H
#define SH_RUNTIME_GROUP_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define GROUP_MAX_LAYERS 65536u

struct group_plan {
    uint32_t *
        ends; /* OWNED, group_plan_fini(): one past each group's last layer; ends[n-1] = n layers */
    uint32_t n;        /* groups; resident layers at the front form a first group without a copy */
    int64_t finish_ns; /* predicted: from the first copy to the last computation */
};

/* *out: OWNED, group_plan_fini(). Fails: SH_E_INVALID (an impossible time), SH_E_NOMEM. */
int group_solve(const int64_t *copy_ns, const int64_t *compute_ns, uint32_t n, int64_t alpha_ns,
                struct group_plan *out, struct sh_err *err);
/* Predicted finish with given cuts, for reports: per layer, fixed size, one group. */
int64_t group_evaluate(const int64_t *copy_ns, const int64_t *compute_ns, uint32_t n,
                       int64_t alpha_ns, const uint32_t *ends, uint32_t n_groups);
void group_plan_fini(struct group_plan *p);

#endif
