/* limits.c - see limits.h. */
#include "scheduler/peers/limits.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/sched.h"

#include <inttypes.h>

#define SAY_AGAIN_NS SH_S(3600)

static const struct {
    const char *option, *what;
} LIMITS[N_LIMITS] = {
    [LIMIT_TENANTS] = {"max-tenants", "tenants"},
    [LIMIT_VERSIONS] = {"max-versions", "model versions"},
    [LIMIT_LINES] = {"max-lines", "lines of queued jobs"},
    [LIMIT_BUSY] = {"max-busy-jobs", "jobs that wait for their next attempt"},
};

static int64_t most_of(const struct sched *s, enum limit which)
{
    return ((const int64_t[N_LIMITS]){s->conf->max_tenants, s->conf->max_versions,
                                      s->conf->max_lines, s->conf->max_busy_jobs})[which];
}

struct store_limits limits_of(const struct sched *s)
{
    return (struct store_limits){
        .tenants = (size_t)most_of(s, LIMIT_TENANTS),
        .versions = (size_t)most_of(s, LIMIT_VERSIONS),
        .lines = (size_t)most_of(s, LIMIT_LINES),
        .busy = (size_t)(s->conf->max_executors + most_of(s, LIMIT_BUSY)),
    };
}

void limits_note(struct sched *s, enum limit which, bool is_reached)
{
    const int64_t now = sh_clock_ns();
    int64_t *said_ns = &s->limits.of[which].said_ns;

    s->limits.of[which].is_reached = is_reached;
    sh_metric_set(M_shunt_limit_reached, SH_LABELS(LIMITS[which].option), is_reached);
    if (!is_reached || (*said_ns && now - *said_ns < SAY_AGAIN_NS))
        return;
    *said_ns = now;
    SH_WARN("sched.limit",
            "option=%s n=%" PRId64 " msg=\"as many %s as the option allows: what there is beyond "
            "that has to wait, or is refused\"",
            LIMITS[which].option, most_of(s, which), LIMITS[which].what);
}

int limits_check(const struct sched *s, bool has_tenant, bool has_version, struct sh_err *err)
{
    const enum limit which = has_tenant ? LIMIT_VERSIONS : LIMIT_TENANTS;

    if ((has_tenant && has_version) || !s->limits.of[which].is_reached)
        return SH_OK;
    return SH_FAIL(err, SH_E_UNAVAILABLE,
                   "the scheduler has %" PRId64 " %s, as many as its option %s allows, and this "
                   "one is not among them",
                   most_of(s, which), LIMITS[which].what, LIMITS[which].option);
}
