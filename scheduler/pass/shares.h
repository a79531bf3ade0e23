/* shares.h - shows people what the passes decide by, in rows of tenant_share.
 *
 * A row is written when its numbers change, at most once in SHARES_EVERY_NS for all tenants
 * together. Usage decays by itself, so a reader can compute its present value.
 */
#ifndef SH_SCHEDULER_PASS_SHARES_H
#define SH_SCHEDULER_PASS_SHARES_H

#include "common/units.h"
#include "scheduler/decide/snapshot.h"

#define SHARES_EVERY_NS SH_S(1)

struct sched;

struct shares {
    int64_t shown_at_ns;
    size_t next; /* tenant to look at first, so that all get their turn */
    bool writing;
};

bool shares_are_due(const struct sched *s, const struct snapshot *in);
/* When they are: in: the tenants; s->pass.out.shares: what each has, and would get. */
void shares_show(struct sched *s, const struct snapshot *in);

#endif
