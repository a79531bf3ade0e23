/* decide_share.c - see decide.h: what each tenant holds, wants and would get. */
#include "common/mem.h"
#include "scheduler/decide/decide.h"

#include <math.h>
#include <stdlib.h>

/* What each tenant holds, asks for, keeps for itself and would get: the base of decide_jobs.c, and
 * what people are shown. */

#define MAX_TENANTS 1000000u
#define MOST_RUNS 20 /* of the margin: minimum runs of all slots that a tenant has */

struct claim { /* of a tenant that wants more than it was given by its guarantee */
    uint32_t tenant;
    double want, weight;
};

double decide__reserved(const struct snap_tenant *t, double held)
{
    double kept = t->lending_limit >= 0 ? t->guaranteed_gpus - t->lending_limit : 0;

    return t->active ? fmax(kept - held, 0) : 0;
}

double decide__margin(double n_slots, double n_tenants)
{
    const double each = fmax(n_slots / fmax(n_tenants, 1), 1);

    return each * fmin(each, MOST_RUNS);
}

/* The most that the quota allows. */
static double limit_of(const struct snap_tenant *t)
{
    double most = t->max_running_jobs;

    if (t->max_gpus >= 0)
        most = fmin(most, t->max_gpus);
    return t->weight > 0 ? most : fmin(most, t->guaranteed_gpus);
}

static int by_level(const void *a, const void *b)
{
    const struct claim *x = a, *y = b;
    double lx = x->want / x->weight, ly = y->want / y->weight;

    return (lx > ly) - (lx < ly);
}

/* Shares out what is left by weight; nobody gets more than it wants. */
static void share_rest(struct claim *claims, size_t n, double rest, struct decide_share *shares)
{
    double weights = 0;

    for (size_t i = 0; i < n; i++)
        weights += claims[i].weight;
    if (n > 0)
        qsort(claims, n, sizeof(*claims), by_level);
    for (size_t i = 0; i < n && rest > 0; i++) {
        double part = fmin(claims[i].want, rest * claims[i].weight / weights);

        shares[claims[i].tenant].fair += part;
        rest -= part;
        weights -= claims[i].weight;
    }
}

static void share_out(const struct snapshot *in, double slots, struct decisions *out,
                      struct claim *claims)
{
    double promised = 0, scale;
    size_t n = 0;

    for (size_t t = 0; t < in->n_tenants; t++) {
        struct decide_share *s = &out->shares[t];
        double want = fmin(s->running + s->waiting, limit_of(&in->tenants[t]));

        s->fair = fmin(want, in->tenants[t].guaranteed_gpus);
        promised += s->fair;
        if (want > s->fair && in->tenants[t].weight > 0)
            claims[n++] = (struct claim){(uint32_t)t, want - s->fair, in->tenants[t].weight};
    }
    scale = promised > slots ? slots / promised : 1;
    for (size_t t = 0; t < in->n_tenants && scale < 1; t++)
        out->shares[t].fair *= scale;
    share_rest(claims, n, slots - promised, out->shares);
}

int decide_shares_room(struct decisions *out, size_t n, struct sh_err *err)
{
    int rc = sh_grow(&out->shares, &out->cap_shares, n, sizeof(*out->shares), MAX_TENANTS,
                     "tenants of one pass", err);

    for (size_t t = 0; t < n && !rc; t++)
        out->shares[t] = (struct decide_share){0};
    return rc;
}

int decide_shares(const struct snapshot *in, double slots, struct decisions *out,
                  struct sh_err *err)
{
    void *claims = NULL;
    int rc = decide__scratch(out, in->n_tenants * sizeof(struct claim), &claims, err);

    if (rc)
        return rc;
    for (size_t t = 0; t < in->n_tenants; t++) {
        out->shares[t].waiting += fmax(in->tenants[t].backlog, 0);
        out->shares[t].reserved = decide__reserved(&in->tenants[t], out->shares[t].running);
    }
    share_out(in, slots, out, claims);
    return SH_OK;
}
