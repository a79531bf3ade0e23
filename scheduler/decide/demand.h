/* demand.h - what is asked of one executor, by tenant and model, and how much of it each may have.
 *
 * Where more is asked for than an executor can do, somebody is refused. If all that counted were
 * who comes first, models with much time would take all of it: their requests can be promised long
 * ahead, and then nobody who has less time finds a gap. A tenant that sends ten times as much would
 * get ten times as much. So the time is shared out: as much to each tenant as to any other, but no
 * more than it asks for (max-min); what a tenant gets, to its models in the same way. Nobody may
 * have more promised ahead than this part of the time until the promise is due (decide.c). Who asks
 * for less than his part is modest: his requests go first where that breaks no promise, and other
 * tenants' runs are not sent before the device is free, so that he waits for one of them at most.
 *
 * What was asked for includes what was refused, and halves every DEMAND_HALF_NS. DEMAND_MAX are
 * known. When one more comes, a small one is added to another one of its tenant, so a tenant is not
 * let in beyond its part for having many models; of more tenants the largest are known, others are
 * let in as if nobody asked.
 *
 * Pure: times are arguments. Not thread-safe.
 */
#ifndef SH_SCHEDULER_DECIDE_DEMAND_H
#define SH_SCHEDULER_DECIDE_DEMAND_H

#include "common/units.h"

#include <stdbool.h>
#include <stdint.h>

#define DEMAND_MAX 32u
#define DEMAND_HALF_NS SH_MS(250)

struct demand { /* zeroed: nothing was asked for */
    struct demand_of {
        int64_t tenant, model; /* ids */
        double ns;             /* device time, as of at_ns */
    } of[DEMAND_MAX];
    uint32_t n;
    double sum_ns; /* of all in `of` */
    int64_t at_ns;
};

void demand_add(struct demand *d, int64_t tenant, int64_t model, double ns, int64_t now_ns);
struct demand_part { /* of a tenant */
    double part; /* of the time, that may be promised to any one of its models; 1: all. Above 0 */
    bool is_modest; /* more is asked for than there is, but by others: it has less than its part */
};
struct demand_part demand_part(const struct demand *d, int64_t tenant, int64_t now_ns);
/* Is any tenant modest? */
bool demand_has_modest(const struct demand *d, int64_t now_ns);

#endif
