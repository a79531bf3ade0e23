/* shares.h - shows people what the passes decide by: rows of tenant_share, kept up to date.
 *
 * A row is written when its numbers change, at most once in SHARES_EVERY_NS for all tenants
 * together; usage decays by itself, so whoever reads a row can tell what it is by now.
 */
#ifndef SH_SCHEDULER_PASS_SHARES_H
#define SH_SCHEDULER_PASS_SHARES_H

#include "scheduler/decide/snapshot.h"

#define SHARES_EVERY_NS INT64_C(1000000000)

struct sched;

struct shares {
    int64_t shown_at_ns;
    size_t next; /* tenant to look at first: all get their turn */
    bool writing;
};

/* Right after decide(): in is what it decided from, and s->pass.out.shares what it made of it. */
void shares_show(struct sched *s, const struct snapshot *in);

#endif
