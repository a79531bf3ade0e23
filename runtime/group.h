/* group.h - the exact optimum of the grouping problem (PipeSwitch, OSDI'20, section 4.2).
 *
 * n layers in order; layer i has copy_ns[i] (its missing bytes times beta, 0 when resident) and
 * compute_ns[i]. A grouping cuts them into consecutive groups; a group costs alpha_ns once, travels
 * in one copy, and its computing starts when it and all before have arrived. The least finish time
 * is found by bisection over the makespan with a greedy test, O(n log T), exact for integer times:
 * groups g = 1..k ending at layers e_g satisfy  g alpha + T(e_g) <= D - C(n) + C(e_{g-1}).
 *
 * Pure: no clock; what it allocates is freed before it returns, but for *ends.
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
/* Predicted finish of given cuts, for reports: per layer, fixed size, one group. */
int64_t group_evaluate(const int64_t *copy_ns, const int64_t *compute_ns, uint32_t n,
                       int64_t alpha_ns, const uint32_t *ends, uint32_t n_groups);
void group_plan_fini(struct group_plan *p);

#endif
