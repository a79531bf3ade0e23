/* traffic.c - see traffic.h. */
#include "scheduler/peers/traffic.h"

#include "common/latency.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

struct traffic {
    struct traffic *next;
    int64_t model_id;
    char *tenant, *model;                               /* OWNED */
    int64_t newest;                                     /* number of the newest slice */
    uint32_t slice[TRAFFIC_SLICES][SH_LATENCY_BUCKETS]; /* by number, modulo */
    int64_t sum[SH_LATENCY_BUCKETS], n_requests;        /* of all slices */
};

static void traffic_free(struct traffic *x)
{
    if (!x)
        return;
    free(x->tenant);
    free(x->model);
    free(x);
}

void traffics_begin(struct traffics *t, int64_t now_ns)
{
    t->begun_ns = now_ns;
}

void traffics_fini(struct traffics *t)
{
    while (t->all) {
        struct traffic *next = t->all->next;

        traffic_free(t->all);
        t->all = next;
    }
    idmap_fini(&t->by_id);
    *t = (struct traffics){0};
}

/* Empties the slices that have begun since the last look. */
static void advance_slices(struct traffic *x, int64_t now_ns)
{
    const int64_t now = now_ns / TRAFFIC_SLICE_NS;

    for (int64_t n = SH_MAX(x->newest, now - TRAFFIC_SLICES) + 1; n <= now; n++) {
        uint32_t *old = x->slice[n % TRAFFIC_SLICES];

        for (unsigned b = 0; b < SH_LATENCY_BUCKETS; b++) {
            x->sum[b] -= old[b];
            x->n_requests -= old[b];
        }
        memset(old, 0, sizeof(x->slice[0]));
    }
    x->newest = SH_MAX(x->newest, now);
}

static void unlink_traffic_at(struct traffics *t, struct traffic **at)
{
    struct traffic *x = *at;

    *at = x->next;
    idmap_del(&t->by_id, (uint64_t)x->model_id);
    traffic_free(x);
}

/* Of a model that was deleted: its name has another one now. */
static void forget_name(struct traffics *t, const struct traffic *now)
{
    for (struct traffic **at = &t->all; *at; at = &(*at)->next)
        if (strcmp((*at)->tenant, now->tenant) == 0 && strcmp((*at)->model, now->model) == 0) {
            unlink_traffic_at(t, at);
            return;
        }
}

static struct traffic *make_traffic(struct traffics *t, int64_t model_id, const char *tenant,
                                    const char *model, int64_t now_ns)
{
    struct traffic *x = calloc(1, sizeof(*x));

    if (!x || sh_strdup(tenant, &x->tenant, NULL) || sh_strdup(model, &x->model, NULL) ||
        idmap_put(&t->by_id, (uint64_t)model_id, x, NULL)) {
        traffic_free(x);
        return NULL;
    }
    forget_name(t, x);
    x->model_id = model_id;
    x->newest = now_ns / TRAFFIC_SLICE_NS;
    x->next = t->all;
    t->all = x;
    return x;
}

void traffics_count(struct traffics *t, int64_t model_id, const char *tenant, const char *model,
                    int64_t latency_ns, int64_t now_ns)
{
    struct traffic *x = idmap_get(&t->by_id, (uint64_t)model_id);
    const unsigned b = sh_latency_bucket(latency_ns);

    if (!x)
        x = make_traffic(t, model_id, tenant, model, now_ns);
    if (!x)
        return;
    advance_slices(x, now_ns);
    x->slice[x->newest % TRAFFIC_SLICES][b]++;
    x->sum[b]++;
    x->n_requests++;
}

double traffics_window_s(const struct traffics *t, int64_t now_ns)
{
    const int64_t first = (now_ns / TRAFFIC_SLICE_NS - TRAFFIC_SLICES + 1) * TRAFFIC_SLICE_NS;

    return (double)(now_ns - SH_MAX(first, t->begun_ns)) / 1e9;
}

struct traffic *traffics_next(const struct traffics *t, const struct traffic *at)
{
    return at ? at->next : t->all;
}

void traffic_look(struct traffic *x, int64_t now_ns, struct traffic_line *out)
{
    advance_slices(x, now_ns);
    *out = (struct traffic_line){.tenant = x->tenant,
                                 .model = x->model,
                                 .n_requests = (uint64_t)x->n_requests,
                                 .p50_ms = sh_latency_percentile_ms(x->sum, 50),
                                 .p99_ms = sh_latency_percentile_ms(x->sum, 99)};
}

void traffics_sweep(struct traffics *t, int64_t now_ns)
{
    struct traffic **at = &t->all;

    while (*at) {
        struct traffic *x = *at;

        advance_slices(x, now_ns);
        if (x->n_requests)
            at = &x->next;
        else
            unlink_traffic_at(t, at);
    }
}
