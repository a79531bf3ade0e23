/* serve_queues.c - policies with a queue for each GPU.
 *
 * PipeSwitch. Z. Bai et al., "PipeSwitch", OSDI 2020, and its public code: one model is resident,
 * requests are answered in the order of their arrival, a switch copies the model while it runs, and
 * training has the GPU in between. Simplified: several GPUs, where a request goes to the one with
 * the least work; its training state is copied back each time (resume_ns is ours, of a swap).
 *
 * Stop-and-start. The same paper's baseline: the same with a new process for each other model, and
 * for training.
 *
 * Everything resident with LRU and queues. Triton Inference Server's way (queue and dynamic batcher
 * of each model, models loaded and unloaded whole), with an order of unloading by last use as
 * KServe's ModelMesh has it. A request goes to the GPU that has its model and least work, or to the
 * one with least work at all if that is sooner even with the load. Its queue drops what has waited
 * for as long as the SLO (Triton: default_queue_policy). Simplified: no training beside it.
 *
 * Static partition. Each model has a fixed set of GPUs, by its known mean demand and as memory
 * allows, and some GPUs only train; first come first served with batches. */
#include "common/mem.h"
#include "simulate/serve.h"

#include <stdlib.h>
#include <string.h>

#define LOOK 256u     /* requests of a queue that are looked through for a batch */
#define BUSY_PART 0.5 /* static: so much of its GPUs' time a model may need */

struct gpu_line {
    uint32_t first, last;
    int64_t until_ns; /* its work ends then, roughly */
};

enum kind { KIND_PIPESWITCH, KIND_STOP_START, KIND_TRITON, KIND_STATIC };

struct queues {
    struct serve *s;
    enum kind kind;
    struct gpu_line *lines; /* by GPU */
    uint32_t **where;       /* by model: GPUs that have it */
    uint32_t *n_where;
};

static void queues_destroy(void *p)
{
    struct queues *q = p;

    for (size_t m = 0; q->where && m < q->s->n_models; m++)
        free(q->where[m]);
    free(q->where);
    free(q->n_where);
    free(q->lines);
    free(q);
}

static struct queues *create(struct serve *s, enum kind kind)
{
    struct queues *q = calloc(1, sizeof(*q));
    bool ok = true;

    if (!q)
        return NULL;
    q->s = s;
    q->kind = kind;
    q->lines = calloc(s->conf.n_gpus, sizeof(*q->lines));
    q->where = calloc(s->n_models, sizeof(*q->where));
    q->n_where = calloc(s->n_models, sizeof(*q->n_where));
    for (size_t m = 0; ok && q->where && m < s->n_models; m++)
        ok = (q->where[m] = calloc(s->conf.n_gpus, sizeof(**q->where))) != NULL;
    if (!ok || !q->lines || !q->where || !q->n_where) {
        queues_destroy(q);
        return NULL;
    }
    for (uint32_t g = 0; g < s->conf.n_gpus; g++)
        q->lines[g].first = q->lines[g].last = SERVE_NONE;
    return q;
}

static void *create_pipeswitch(struct serve *s)
{
    return create(s, KIND_PIPESWITCH);
}

static void *create_stop_start(struct serve *s)
{
    s->conf.resume_ns = s->conf.process_ns;
    return create(s, KIND_STOP_START);
}

static void *create_triton(struct serve *s)
{
    return create(s, KIND_TRITON);
}

/* ------------------------------------------------------------------ static partition */

/* The GPU with the least demand that has room for it and does not have it yet. */
static uint32_t best_home(const struct queues *q, uint32_t model, const double *busy, uint32_t n)
{
    const struct serve *s = q->s;
    uint32_t best = SERVE_NONE;

    for (uint32_t g = 0; g < n; g++)
        if (!s->gpus[g].has[model] && s->gpus[g].held + serve_image(s, model) <= s->gpus[g].room &&
            (best == SERVE_NONE || busy[g] < busy[best]))
            best = g;
    return best;
}

static int by_demand(const void *a, const void *b, void *arg)
{
    const struct serve *s = arg;
    const struct serve_model *x = &s->models[*(const uint32_t *)a];
    const struct serve_model *y = &s->models[*(const uint32_t *)b];
    const double dx = x->asked * (double)x->run_ns[1], dy = y->asked * (double)y->run_ns[1];

    return (dx < dy) - (dx > dy);
}

static void settle(struct queues *q, const uint32_t *order, double *busy, uint32_t n)
{
    struct serve *s = q->s;

    for (size_t k = 0; k < s->n_models; k++) {
        const uint32_t m = order[k];
        const double need = s->models[m].asked * (double)s->models[m].run_ns[1] / 1e9;

        for (double left = need; q->n_where[m] == 0 || left > 0; left -= BUSY_PART) {
            const uint32_t g = best_home(q, m, busy, n);

            if (g == SERVE_NONE)
                break;
            s->gpus[g].has[m] = true;
            s->gpus[g].held += serve_image(s, m);
            q->where[m][q->n_where[m]++] = g;
            busy[g] += SH_MIN(left, BUSY_PART);
        }
    }
}

static void *create_static(struct serve *s)
{
    struct queues *q = create(s, KIND_STATIC);
    const uint32_t n_train = (uint32_t)(s->conf.train_part * s->conf.n_gpus);
    uint32_t *order = calloc(s->n_models, sizeof(*order));
    double *busy = calloc(s->conf.n_gpus, sizeof(*busy));

    if (q && order && busy) {
        for (uint32_t m = 0; m < s->n_models; m++)
            order[m] = m;
        qsort_r(order, s->n_models, sizeof(*order), by_demand, s);
        settle(q, order, busy, s->conf.n_gpus - n_train);
        for (uint32_t g = 0; g < s->conf.n_gpus; g++)
            s->gpus[g].may_train = g >= s->conf.n_gpus - n_train;
    }
    free(order);
    free(busy);
    return q;
}

/* ------------------------------------------------------------------ where to */

static uint32_t least_work(const struct queues *q)
{
    uint32_t best = 0;

    for (uint32_t g = 1; g < q->s->conf.n_gpus; g++)
        if (q->lines[g].until_ns < q->lines[best].until_ns)
            best = g;
    return best;
}

static uint32_t least_of(const struct queues *q, uint32_t model)
{
    uint32_t best = SERVE_NONE;

    for (uint32_t k = 0; k < q->n_where[model]; k++) {
        const uint32_t g = q->where[model][k];

        if (best == SERVE_NONE || q->lines[g].until_ns < q->lines[best].until_ns)
            best = g;
    }
    return best;
}

static void leaves(void *ctx, uint32_t g, uint32_t model)
{
    struct queues *q = ctx;

    for (uint32_t k = 0; k < q->n_where[model]; k++)
        if (q->where[model][k] == g) {
            q->where[model][k] = q->where[model][--q->n_where[model]];
            return;
        }
}

/* INT64_MAX: everything there is in use. */
static int64_t come(struct queues *q, uint32_t g, uint32_t model)
{
    const bool had = q->s->gpus[g].has[model];
    const int64_t at = serve_bring(q->s, g, model, leaves, q);

    if (!had && at != INT64_MAX)
        q->where[model][q->n_where[model]++] = g;
    return at;
}

static uint32_t choose(struct queues *q, uint32_t model)
{
    const int64_t load = serve_copy_ns(q->s, 0, serve_image(q->s, model)), now = q->s->now_ns;
    uint32_t has, any;

    if (q->kind == KIND_STATIC)
        return least_of(q, model);
    any = least_work(q);
    if (q->kind != KIND_TRITON)
        return any;
    has = least_of(q, model);
    if (has != SERVE_NONE &&
        SH_MAX(q->lines[has].until_ns, now) <= SH_MAX(q->lines[any].until_ns, now) + load)
        return has;
    return come(q, any, model) == INT64_MAX && has != SERVE_NONE ? has : any;
}

/* ------------------------------------------------------------------ runs */

static bool batches(const struct queues *q)
{
    return q->kind == KIND_TRITON || q->kind == KIND_STATIC;
}

/* Takes the first and, where batches are formed, others of its model out of the line. */
static uint32_t take(struct queues *q, uint32_t g, uint32_t *n_out)
{
    struct serve *s = q->s;
    struct gpu_line *l = &q->lines[g];
    const uint32_t first = l->first, model = s->trace->items[first].model;
    uint32_t last = first, before = SERVE_NONE;

    *n_out = 1;
    l->first = s->next[first];
    if (l->first == SERVE_NONE)
        l->last = SERVE_NONE;
    for (uint32_t i = l->first, k = 0, next;
         batches(q) && i != SERVE_NONE && k < LOOK && *n_out < s->models[model].max_batch;
         i = next, k++) {
        next = s->next[i];
        if (s->trace->items[i].model != model) {
            before = i;
            continue;
        }
        *(before == SERVE_NONE ? &l->first : &s->next[before]) = next;
        if (l->last == i)
            l->last = before;
        s->next[last] = i;
        last = i;
        ++*n_out;
    }
    s->next[last] = SERVE_NONE;
    return first;
}

static void drop_late(struct queues *q, uint32_t g)
{
    struct serve *s = q->s;
    struct gpu_line *l = &q->lines[g];

    while (q->kind == KIND_TRITON && l->first != SERVE_NONE &&
           s->now_ns - s->trace->items[l->first].at_ns >
               s->models[s->trace->items[l->first].model].slo_ns) {
        serve_refuse(s, l->first);
        l->first = s->next[l->first];
    }
    if (l->first == SERVE_NONE)
        l->last = SERVE_NONE;
}

static void go_on(void *p, uint32_t g)
{
    struct queues *q = p;
    struct serve *s = q->s;
    struct gpu *x = &s->gpus[g];
    uint32_t first, n, model;
    bool same;

    drop_late(q, g);
    if (q->lines[g].first == SERVE_NONE) {
        q->lines[g].until_ns = s->now_ns;
        return;
    }
    first = take(q, g, &n);
    model = s->trace->items[first].model;
    same = x->last_model == model && x->idle_ns == s->now_ns; /* no training came between */
    if (q->kind == KIND_PIPESWITCH) {
        const uint64_t bytes = same ? 0 : serve_image(s, model);

        serve_begin(s, g, first, n, SERVE_PIPELINED, bytes, serve_copy(s, g, bytes), 0);
    } else if (q->kind == KIND_STOP_START) {
        serve_begin(s, g, first, n, SERVE_WHOLE, 0, 0, same ? 0 : s->conf.process_ns);
    } else {
        const int64_t at = q->kind == KIND_STATIC ? 0 : come(q, g, model);

        serve_begin(s, g, first, n, SERVE_WHOLE, at > s->now_ns ? serve_image(s, model) : 0, at, 0);
    }
}

static void arrived(void *p, uint32_t i)
{
    struct queues *q = p;
    struct serve *s = q->s;
    const uint32_t model = s->trace->items[i].model, g = choose(q, model);
    struct gpu_line *l;

    if (g == SERVE_NONE) { /* no GPU of the partition has room for it */
        serve_refuse(s, i);
        return;
    }
    l = &q->lines[g];
    s->next[i] = SERVE_NONE;
    *(l->last == SERVE_NONE ? &l->first : &s->next[l->last]) = i;
    l->last = i;
    l->until_ns = SH_MAX(l->until_ns, s->now_ns) + s->models[model].run_ns[1];
    if (q->kind == KIND_PIPESWITCH)
        l->until_ns += serve_copy_ns(s, g, serve_image(s, model));
    if (s->gpus[g].n == 0)
        go_on(q, g);
}

const struct serve_policy SERVE_PIPESWITCH = {
    "pipeswitch", true, create_pipeswitch, queues_destroy, arrived, go_on, NULL};
const struct serve_policy SERVE_STOP_START = {
    "stop-and-start", true, create_stop_start, queues_destroy, arrived, go_on, NULL};
const struct serve_policy SERVE_TRITON = {"triton", false, create_triton, queues_destroy,
                                          arrived,  go_on, NULL};
const struct serve_policy SERVE_STATIC = {"static", false, create_static, queues_destroy,
                                          arrived,  go_on, NULL};
