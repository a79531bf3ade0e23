/* limits.h - what there is more of in the database than the leader reads: its options max-tenants,
 * max-versions, max-lines and max-busy-jobs. The log says so when it begins, and at most once an
 * hour.
 *
 * Quotas and states of a tenant that was not read are not known, so nothing is run for it. Loop's
 * thread. */
#ifndef SH_SCHEDULER_PEERS_LIMITS_H
#define SH_SCHEDULER_PEERS_LIMITS_H

#include "scheduler/database/store_view.h"

enum limit { LIMIT_TENANTS, LIMIT_VERSIONS, LIMIT_LINES, LIMIT_BUSY, N_LIMITS };

struct limits {
    struct {
        bool is_reached; /* by the last look that read them: there may be more */
        int64_t said_ns; /* 0: not yet */
    } of[N_LIMITS];
};

struct sched;

struct store_limits limits_of(const struct sched *s); /* for a look at the database */
void limits_note(struct sched *s, enum limit which, bool is_reached);
/* For a request whose tenant or version nobody has read (false). Fails: SH_E_UNAVAILABLE, with the
 * option, if there are too many of them. */
int limits_check(const struct sched *s, bool has_tenant, bool has_version, struct sh_err *err);

#endif
