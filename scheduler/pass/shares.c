/* shares.c - see shares.h. */
#include "scheduler/pass/shares.h"

#include "scheduler/sched.h"

#include <math.h>
#include <stdlib.h>

#define USAGE_STEP 0.001 /* usage that changed by a smaller part is not written again */
#define USAGE_MIN_NS 1e6

static bool is_same_amount(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

static bool is_share_known(const struct sched *s, const struct tenant *t,
                           const struct store_share *now, int64_t now_ns)
{
    const struct store_share *was = &t->shown;
    double decayed = tenants_decay(&s->tenants, was->usage_ns, now_ns - t->shown_ns);

    if (t->shown_ns == 0) /* nothing to say of who never had anything */
        return now->running_gpus + now->waiting_gpus + now->reserved_gpus <= 0 &&
               now->usage_ns < USAGE_MIN_NS;
    return is_same_amount(was->guaranteed_gpus, now->guaranteed_gpus) &&
           is_same_amount(was->max_gpus, now->max_gpus) &&
           is_same_amount(was->weight, now->weight) &&
           is_same_amount(was->running_gpus, now->running_gpus) &&
           is_same_amount(was->waiting_gpus, now->waiting_gpus) &&
           is_same_amount(was->fair_gpus, now->fair_gpus) &&
           is_same_amount(was->reserved_gpus, now->reserved_gpus) &&
           fabs(decayed - now->usage_ns) <= fmax(USAGE_STEP * now->usage_ns, USAGE_MIN_NS);
}

static void on_shown(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;
    const struct store_shares *w = arg;

    s->shares.writing = false;
    if (sched_op_ok(s, "share.put", rc, err))
        return;
    for (size_t i = 0; i < w->n && s->epoch; i++) {
        struct tenant *t = tenants_by_id(&s->tenants, w->rows[i].tenant_id);

        if (t)
            t->shown.running_gpus = -1; /* which is never so: it is written once more */
    }
}

static struct store_share store_share_of(const struct decide_share *d, const struct snap_tenant *t,
                                         int64_t id)
{
    return (struct store_share){.tenant_id = id,
                                .guaranteed_gpus = t->guaranteed_gpus,
                                .max_gpus = t->max_gpus,
                                .weight = t->weight,
                                .running_gpus = d->running,
                                .waiting_gpus = d->waiting,
                                .fair_gpus = d->fair,
                                .reserved_gpus = d->reserved,
                                .usage_ns = t->usage_ns};
}

bool shares_are_due(const struct sched *s, const struct snapshot *in)
{
    return !s->shares.writing && s->tenants.n && in->db_up &&
           in->now_ns - s->shares.shown_at_ns >= SHARES_EVERY_NS;
}

void shares_show(struct sched *s, const struct snapshot *in)
{
    static const struct sched_op OP = {"share.put", store_share_put, on_shown, free,
                                       DBOP_ANY_ORDER};
    struct shares *x = &s->shares;
    struct store_shares *w;
    struct sh_err err = {0};

    w = calloc(1, sizeof(*w));
    if (!w)
        return; /* the next pass tries again */
    x->shown_at_ns = in->now_ns;
    w->fence = sched_fence(s);
    w->half_life_s = s->tenants.half_life_s;
    for (size_t k = 0; k < in->n_tenants && w->n < STORE_MAX_SHARES; k++, x->next++) {
        size_t i = x->next % in->n_tenants;
        struct tenant *t = s->tenants.items[i];
        struct store_share now = store_share_of(&s->pass.out.shares[i], &in->tenants[i], t->id);

        if (t->id == 0 || is_share_known(s, t, &now, in->now_ns))
            continue;
        t->shown = now;
        t->shown_ns = in->now_ns;
        w->rows[w->n++] = now;
    }
    if (w->n == 0) {
        free(w);
        return;
    }
    x->writing = true;
    if (sched_submit(s, &OP, w, &err))
        x->writing = false;
}
