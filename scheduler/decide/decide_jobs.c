/* decide_jobs.c - see decide.h: training, of a snapshot. All of it goes into a jobpool, which knows
 * the rules; the leader has one that lasts (pass.c). */
#include "common/mem.h"
#include "scheduler/decide/jobpool.h"

#include <stdlib.h>

struct built {
    const struct snapshot *in;
    struct jobpool q;
    struct jobpool_slot *slots;
    struct jobpool_tenant *tenants;
    struct jobpool_job *jobs;
};

static void built_fini(struct built *b)
{
    for (size_t t = 0; b->tenants && t < b->in->n_tenants; t++)
        jobpool_forget_tenant(&b->tenants[t]);
    jobpool_fini(&b->q);
}

/* Of the devices that a job has. */
static uint64_t least_bytes(const struct snapshot *in, const struct snap_job *j, uint32_t i)
{
    uint64_t least = in->execs[j->exec].pool_bytes;

    for (size_t e = 0; j->gpus > 1 && e < in->n_execs; e++)
        if (in->execs[e].job == i)
            least = SH_MIN(least, in->execs[e].pool_bytes);
    return least;
}

static int set_jobs(struct built *b, struct sh_err *err)
{
    const struct snapshot *in = b->in;
    int rc = SH_OK;

    for (size_t i = 0; i < in->n_jobs && !rc; i++) {
        const struct snap_job *j = &in->jobs[i];
        struct jobpool_job_facts f = {
            .is = *j, .tenant = &b->tenants[j->tenant], .array = j->array};

        f.is_on_exec = j->state != SNAP_QUEUED && j->exec != SNAP_NONE;
        f.on = f.is_on_exec ? &b->slots[j->exec] : NULL;
        f.exec_bytes = f.is_on_exec ? least_bytes(in, j, (uint32_t)i) : 0;
        rc = jobpool_set_job(&b->q, &b->jobs[i], &f, err);
    }
    return rc;
}

static bool fits_slot(const void *arg, uint64_t version, const struct jobpool_slot *x)
{
    const struct built *b = arg;

    return !(b->in->execs[x - b->slots].unfit >> version & 1);
}

static int build_pool(struct built *b, const struct snapshot *in, struct decisions *out,
                      struct sh_err *err)
{
    const size_t at_tenants = in->n_execs * sizeof(*b->slots);
    const size_t at_jobs = at_tenants + in->n_tenants * sizeof(*b->tenants);
    void *mem = NULL;
    int rc = decide__scratch(out, at_jobs + in->n_jobs * sizeof(*b->jobs), &mem, err);

    *b = (struct built){.in = in,
                        .q.min_run_ns = in->min_run_ns,
                        .q.fits = fits_slot,
                        .q.fits_arg = b,
                        .q.at.now_ns = in->now_ns};
    if (rc)
        return rc;
    b->slots = mem;
    b->tenants = (void *)((char *)mem + at_tenants);
    b->jobs = (void *)((char *)mem + at_jobs);
    for (uint32_t e = 0; e < in->n_execs; e++) {
        const struct snap_exec *x = &in->execs[e];
        const struct jobpool_slot_facts f = {.index = e,
                                             .n_runs = x->n_runs,
                                             .pool_bytes = x->pool_bytes,
                                             .is_up = x->up,
                                             .is_taken = x->slot_taken || x->job != SNAP_NONE};

        jobpool_set_slot(&b->q, &b->slots[e], &f);
    }
    for (size_t t = 0; t < in->n_tenants; t++)
        jobpool_set_tenant(&b->q, &b->tenants[t], &in->tenants[t]);
    rc = set_jobs(b, err);
    jobpool_begin(&b->q, &(struct jobpool_now){in->now_ns, in->db_up, 1});
    return rc;
}

int decide_order(const struct snapshot *in, struct decisions *d, uint32_t *order, size_t *n,
                 struct sh_err *err)
{
    struct built b;
    int rc = build_pool(&b, in, d, err);
    struct jobpool_job *j;

    *n = 0;
    while (!rc && (j = jobpool_next(&b.q)))
        order[(*n)++] = (uint32_t)(j - b.jobs);
    built_fini(&b);
    return rc;
}

static void add_decision(const struct built *b, struct decisions *out, enum decision_kind kind,
                         const struct jobpool_job *j, enum decide_reason why)
{
    const uint32_t i = (uint32_t)(j - b->jobs);
    const uint32_t first = (uint32_t)out->n_members;
    uint32_t exec = SNAP_NONE;

    if (kind == DECISION_START)
        exec = (uint32_t)(j->slot - b->slots);
    else if (kind == DECISION_SUSPEND)
        exec = b->in->jobs[i].exec;
    for (const struct jobpool_slot *x = kind == DECISION_START ? j->slot : NULL; x; x = x->next)
        out->members[out->n_members++] = (uint32_t)(x - b->slots);
    decide__add(out, &(struct decision){.kind = kind,
                                        .job = i,
                                        .exec = exec,
                                        .request = SNAP_NONE,
                                        .first = first,
                                        .n = (uint32_t)out->n_members - first,
                                        .reason = why});
}

/* Those that were looked at before the others, the next one first. */
static void add_taken(struct built *b, struct decisions *out)
{
    struct jobpool_job *turned = NULL, *next;

    for (struct jobpool_job *j = b->q.taken; j; j = next) {
        next = j->next_taken;
        j->next_taken = turned;
        turned = j;
    }
    for (struct jobpool_job *j = turned; j; j = j->next_taken)
        add_decision(b, out, DECISION_WAIT, j, jobpool_why(&b->q, j));
}

static int share_slots(const struct snapshot *in, struct decisions *out, struct sh_err *err)
{
    double slots = 0;
    int rc = decide_shares_room(out, in->n_tenants, err);

    if (rc)
        return rc;
    for (size_t i = 0; i < in->n_jobs; i++) {
        struct decide_share *s = &out->shares[in->jobs[i].tenant];

        if (in->jobs[i].state == SNAP_QUEUED)
            s->waiting += SH_MAX(in->jobs[i].gpus, 1u);
        else if (in->jobs[i].state != SNAP_LEFT)
            s->running += SH_MAX(in->jobs[i].gpus, 1u);
    }
    for (size_t e = 0; e < in->n_execs; e++)
        slots += in->execs[e].up;
    return decide_shares(in, slots, out, err);
}

int decide__jobs(const struct snapshot *in, struct decisions *out, struct sh_err *err)
{
    struct built b;
    int rc = share_slots(in, out, err);

    if (rc)
        return rc;
    rc = build_pool(&b, in, out, err);
    if (rc)
        goto out;
    jobpool_decide(&b.q);
    for (const struct jobpool_job *j = b.q.started; j; j = j->next_moved)
        add_decision(&b, out, DECISION_START, j, DECIDE_NONE);
    for (const struct jobpool_job *j = b.q.stopped; j; j = j->next_moved)
        add_decision(&b, out, DECISION_SUSPEND, j, j->why);
    jobpool_look(&b.q, in->n_execs);
    add_taken(&b, out);
    for (size_t i = 0; i < in->n_jobs; i++)
        if (b.jobs[i].f.is.state == SNAP_QUEUED && !b.jobs[i].taken)
            add_decision(&b, out, DECISION_WAIT, &b.jobs[i], jobpool_why(&b.q, &b.jobs[i]));
out:
    built_fini(&b);
    return rc;
}
