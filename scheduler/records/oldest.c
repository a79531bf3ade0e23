/* oldest.c - see oldest.h. */
#include "scheduler/records/oldest.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/sched.h"

static void note_age(struct tenant *t, enum tenant_wait kind, int64_t age_ns)
{
    t->oldest_ns[kind] = SH_MAX(t->oldest_ns[kind], age_ns);
}

static void note_requests(struct sched *s, int64_t now)
{
    for (size_t i = 0; i < s->requests.n; i++) {
        const struct request *r = s->requests.items[i];

        if (r->state != REQUEST_RUNNING)
            note_age(r->tenant, TENANT_WAIT_REQUEST, now - r->open_ns);
    }
}

static void note_jobs(struct sched *s, int64_t wall_us)
{
    for (size_t i = 0; i < s->jobs.n; i++) {
        const struct job *j = s->jobs.items[i];
        struct tenant *t = j->state == JOB_QUEUED ? tenants_by_id(&s->tenants, j->tenant_id) : NULL;

        if (t)
            note_age(t, TENANT_WAIT_JOB, SH_US(wall_us - j->queued_us));
    }
}

void oldest_second(struct sched *s)
{
    for (size_t i = 0; i < s->tenants.n; i++)
        memset(s->tenants.items[i]->oldest_ns, 0, sizeof(s->tenants.items[i]->oldest_ns));
    note_requests(s, sh_clock_ns());
    note_jobs(s, sh_clock_wall_ms() * 1000);
    for (size_t i = 0; i < s->tenants.n; i++) {
        const struct tenant *t = s->tenants.items[i];

        for (int k = 0; k < TENANT_N_WAITS; k++)
            sh_metric_set(M_shunt_oldest_waiting_seconds, SH_LABELS(t->name, TENANT_WAIT_NAME[k]),
                          (double)t->oldest_ns[k] / 1e9);
    }
}
