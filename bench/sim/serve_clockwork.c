/* serve_clockwork.c - Clockwork's admission and windows.
 *
 * A. Gujarati et al., "Serving DNNs like Clockwork", OSDI 2020: one controller knows how long each
 * run and each load takes; a run is sent only if it ends before its requests' deadlines, as the
 * largest batch that does, the most urgent model first; what can no longer be in time is given up;
 * models whose waiting work the GPUs that have them cannot do in time are loaded, on the GPU with
 * the least work, where the least recently used leave. Simplified: decisions are made when a GPU
 * becomes free, with no need of windows ahead, as messages take no time here; usual times, not
 * percentiles; no training beside it. */
#include "common/mem.h"
#include "simulate/serve.h"

#include <stdlib.h>

struct wait { /* of a model: by arrival, which is by deadline */
    uint32_t first, last, n;
};

struct clockwork {
    struct serve *s;
    struct wait *waits; /* by model */
    uint32_t *n_where;  /* by model: GPUs that have it */
    int64_t *load_ns;   /* by GPU: work that its loads were made for ends then */
};

static void clockwork_destroy(void *p)
{
    struct clockwork *c = p;

    free(c->waits);
    free(c->n_where);
    free(c->load_ns);
    free(c);
}

static void *clockwork_create(struct serve *s)
{
    struct clockwork *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->s = s;
    c->waits = calloc(s->n_models, sizeof(*c->waits));
    c->n_where = calloc(s->n_models, sizeof(*c->n_where));
    c->load_ns = calloc(s->conf.n_gpus, sizeof(*c->load_ns));
    if (!c->waits || !c->n_where || !c->load_ns) {
        clockwork_destroy(c);
        return NULL;
    }
    for (size_t m = 0; m < s->n_models; m++)
        c->waits[m].first = c->waits[m].last = SERVE_NONE;
    return c;
}

static int64_t deadline(const struct clockwork *c, uint32_t request)
{
    return c->s->trace->items[request].at_ns +
           c->s->models[c->s->trace->items[request].model].slo_ns;
}

static void pop(struct clockwork *c, struct wait *w)
{
    w->first = c->s->next[w->first];
    w->n--;
    if (w->first == SERVE_NONE)
        w->last = SERVE_NONE;
}

static void give_up(struct clockwork *c, uint32_t m)
{
    struct wait *w = &c->waits[m];

    while (w->n && c->s->now_ns + c->s->models[m].run_ns[1] > deadline(c, w->first)) {
        serve_refuse(c->s, w->first);
        pop(c, w);
    }
}

/* Of the models that are on g: the one whose run has to begin first. */
static uint32_t most_urgent(struct clockwork *c, uint32_t g)
{
    const struct serve *s = c->s;
    uint32_t best = SERVE_NONE;
    int64_t first_ns = INT64_MAX;

    for (uint32_t m = 0; m < s->n_models; m++) {
        int64_t at;

        if (!c->waits[m].n || !s->gpus[g].has[m] || s->gpus[g].arrives_ns[m] > s->now_ns)
            continue;
        give_up(c, m);
        if (!c->waits[m].n)
            continue;
        at = deadline(c, c->waits[m].first) - s->models[m].run_ns[1];
        if (at < first_ns) {
            first_ns = at;
            best = m;
        }
    }
    return best;
}

static void go_on(void *p, uint32_t g)
{
    struct clockwork *c = p;
    struct serve *s = c->s;
    uint32_t m, n, first, last = SERVE_NONE;
    struct wait *w;

    if (s->gpus[g].n || (m = most_urgent(c, g)) == SERVE_NONE)
        return;
    w = &c->waits[m];
    n = SH_MIN(w->n, s->models[m].max_batch);
    while (n > 1 && s->now_ns + s->models[m].run_ns[n] > deadline(c, w->first))
        n--;
    first = w->first;
    for (uint32_t k = 0; k < n; k++) {
        last = w->first;
        pop(c, w);
    }
    if (last != SERVE_NONE)
        s->next[last] = SERVE_NONE;
    s->gpus[g].used_ns[m] = s->now_ns;
    serve_begin(s, g, first, n, SERVE_WHOLE, 0, 0, 0);
}

static void leaves(void *ctx, uint32_t g, uint32_t model)
{
    (void)g;
    ((struct clockwork *)ctx)->n_where[model]--;
}

/* Can those who have the model do what waits for it, in time? */
static bool is_served(const struct clockwork *c, uint32_t m)
{
    const struct serve *s = c->s;
    const uint32_t each =
        (c->waits[m].n + SH_MAX(c->n_where[m], 1u) - 1) / SH_MAX(c->n_where[m], 1u);
    const uint32_t runs = (each + s->models[m].max_batch - 1) / s->models[m].max_batch;

    return c->n_where[m] &&
           runs * s->models[m].run_ns[s->models[m].max_batch] <= s->models[m].slo_ns / 2;
}

/* On the GPU whose loads were made for the least work. The timer is for when it is there. */
static void load(struct clockwork *c, uint32_t m)
{
    struct serve *s = c->s;
    uint32_t best = SERVE_NONE;
    int64_t at;

    for (uint32_t g = 0; g < s->conf.n_gpus; g++)
        if (!s->gpus[g].has[m] && s->gpus[g].lane_ns <= s->now_ns &&
            (best == SERVE_NONE || c->load_ns[g] < c->load_ns[best]))
            best = g;
    if (best == SERVE_NONE || (at = serve_bring(s, best, m, leaves, c)) == INT64_MAX)
        return;
    c->n_where[m]++;
    c->load_ns[best] = SH_MAX(c->load_ns[best], s->now_ns) + s->models[m].run_ns[1] * c->waits[m].n;
    serve_timer(s, at, best);
}

static void arrived(void *p, uint32_t i)
{
    struct clockwork *c = p;
    struct serve *s = c->s;
    const uint32_t m = s->trace->items[i].model;
    struct wait *w = &c->waits[m];

    s->next[i] = SERVE_NONE;
    *(w->last == SERVE_NONE ? &w->first : &s->next[w->last]) = i;
    w->last = i;
    w->n++;
    give_up(c, m);
    if (!is_served(c, m))
        load(c, m);
    for (uint32_t g = 0; c->n_where[m] && w->n && g < s->conf.n_gpus; g++)
        if (s->gpus[g].n == 0 && s->gpus[g].has[m] && s->gpus[g].arrives_ns[m] <= s->now_ns)
            go_on(c, g);
}

const struct serve_policy SERVE_CLOCKWORK = {
    "clockwork", false, clockwork_create, clockwork_destroy, arrived, go_on, go_on};
