/* jobs_ideal.c - see jobs.h: what fair shares without any loss would give.
 *
 * All jobs of a tenant run at one rate, so each tenant has a clock of its own that counts work; a
 * job ends when it has counted as much as the job has, from its arrival on. */
#include "common/mem.h"
#include "simulate/jobs.h"

#include <math.h>
#include <stdlib.h>

struct member {
    double wants; /* GPUs of its unfinished jobs */
    double rate;  /* of its clock */
    double clock_ns;
    struct queue ends; /* by its clock */
};

struct ideal {
    struct member *members;
    uint32_t *order; /* scratch */
    size_t n;
    double n_gpus;
    int64_t now_ns;
};

/* The least wish first; who wants less than an equal part of what is left leaves the rest. */
static void share_out(struct ideal *x)
{
    double left = x->n_gpus;
    size_t n = 0;

    for (uint32_t t = 0; t < x->n; t++) {
        size_t k = n;

        if (x->members[t].wants <= 0)
            continue;
        for (; k > 0 && x->members[x->order[k - 1]].wants > x->members[t].wants; k--)
            x->order[k] = x->order[k - 1];
        x->order[k] = t;
        n++;
    }
    for (size_t k = 0; k < n; k++) {
        struct member *m = &x->members[x->order[k]];
        const double part = fmin(m->wants, left / (double)(n - k));

        m->rate = part / m->wants;
        left -= part;
    }
}

static void go_on(struct ideal *x, int64_t now_ns)
{
    for (size_t t = 0; t < x->n; t++)
        if (x->members[t].wants > 0)
            x->members[t].clock_ns += x->members[t].rate * (double)(now_ns - x->now_ns);
    x->now_ns = now_ns;
}

/* The tenant whose next job ends first, and when. */
static size_t next_end(const struct ideal *x, int64_t *at_ns)
{
    size_t best = x->n;

    *at_ns = INT64_MAX;
    for (size_t t = 0; t < x->n; t++) {
        const struct member *m = &x->members[t];
        double in_ns;

        if (!m->ends.n)
            continue;
        in_ns = fmax(((double)m->ends.items[0].at_ns - m->clock_ns) / m->rate, 0);
        if (x->now_ns + (int64_t)ceil(in_ns) < *at_ns) {
            *at_ns = x->now_ns + (int64_t)ceil(in_ns);
            best = t;
        }
    }
    return best;
}

static int arrive(struct ideal *x, const struct trace_job *j, uint32_t i, struct sh_err *err)
{
    struct member *m = &x->members[j->tenant];
    const double ends = m->clock_ns + (double)j->run_ns;

    m->wants += j->gpus;
    return queue_put(&m->ends, (struct event){.at_ns = (int64_t)ends, .a = i, .b = j->gpus}, err);
}

int jobs_ideal(const struct trace_jobs *t, uint32_t n_gpus, int64_t *end_ns, struct sh_err *err)
{
    struct ideal x = {.members = calloc(t->tenants.n + 1, sizeof(*x.members)),
                      .order = calloc(t->tenants.n + 1, sizeof(*x.order)),
                      .n = t->tenants.n,
                      .n_gpus = n_gpus};
    size_t i = 0;
    int rc = x.members && x.order ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate tenants");

    while (!rc) {
        int64_t at_ns;
        const size_t first = next_end(&x, &at_ns);
        struct event e;

        if (i == t->n && first == x.n)
            break;
        if (i < t->n && t->items[i].at_ns <= at_ns) {
            go_on(&x, t->items[i].at_ns);
            rc = arrive(&x, &t->items[i], (uint32_t)i, err);
            i++;
        } else {
            go_on(&x, at_ns);
            queue_take(&x.members[first].ends, &e);
            x.members[first].wants -= e.b;
            end_ns[e.a] = SH_MAX(at_ns, t->items[e.a].at_ns + 1);
        }
        share_out(&x);
    }
    for (size_t k = 0; x.members && k < x.n; k++)
        queue_fini(&x.members[k].ends);
    free(x.members);
    free(x.order);
    return rc;
}
