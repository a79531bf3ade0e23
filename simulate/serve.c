/* serve.c - see serve.h: GPUs, and what came of a replay. */
#include "simulate/serve.h"

#include "common/clock.h"
#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT_ARRIVES, EVENT_RUN_ENDS, EVENT_TIMER };

static void put_serve_event(struct serve *s, int64_t at_ns, uint32_t kind, uint32_t a)
{
    if (!s->rc)
        s->rc = queue_put(&s->events, (struct event){at_ns, 0, kind, a, 0}, &s->err);
}

void serve_timer(struct serve *s, int64_t at_ns, uint32_t arg)
{
    put_serve_event(s, at_ns, EVENT_TIMER, arg);
}

static void count_missed(struct serve *s, uint32_t request)
{
    s->n_missed += s->trace->items[request].at_ns >= s->conf.from_ns;
}

void serve_refuse(struct serve *s, uint32_t request)
{
    count_missed(s, request);
    s->digest = (s->digest ^ request) * UINT64_C(1099511628211);
}

uint64_t serve_image(const struct serve *s, uint32_t model)
{
    return s->models[model].layer_ends[s->models[model].n_layers - 1];
}

uint32_t serve_samples(const struct serve *s, uint32_t request)
{
    return SH_MAX(s->trace->items[request].batch, 1u);
}

int64_t serve_copy_ns(const struct serve *s, uint32_t g, uint64_t bytes)
{
    return bytes ? (int64_t)((double)bytes * s->gpus[g].ns_per_byte) + s->conf.latency_ns : 0;
}

static bool is_time_counted(const struct serve *s)
{
    return s->now_ns >= s->conf.from_ns && s->now_ns <= s->last_ns;
}

/* How much of this time counts. */
static int64_t counted_ns(const struct serve *s, int64_t from_ns, int64_t until_ns)
{
    return SH_MAX(SH_MIN(until_ns, s->last_ns) - SH_MAX(from_ns, s->conf.from_ns), 0);
}

int64_t serve_copy(struct serve *s, uint32_t g, uint64_t bytes)
{
    struct gpu *x = &s->gpus[g];

    x->lane_ns = SH_MAX(x->lane_ns, s->now_ns) + serve_copy_ns(s, g, bytes);
    s->bytes += is_time_counted(s) ? bytes : 0;
    return x->lane_ns;
}

/* ------------------------------------------------------------------ a run */

/* The same for a request whatever the policy: drawn from its number. */
static uint64_t drawn(const struct serve *s, uint32_t request)
{
    uint64_t x = (request + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ s->seed;

    x ^= x >> 31;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 29;
}

static double noise(const struct serve_model *m, uint64_t x)
{
    if (m->n_factors)
        return m->factors[x % m->n_factors];
    return (x % 100 == 0 ? 1.2 : 1) * (0.98 + 0.04 * (double)(x >> 40) / 16777216.0);
}

/* Beyond what is said of, in proportion. */
static double usual_ns_of(const struct serve_model *m, uint32_t samples)
{
    const uint32_t n = SH_MIN(samples, SERVE_MAX_BATCH);

    return m->times[n] * samples / n;
}

/* When a run ends that begins at start_ns: layer after layer, each when it is there. */
static int64_t pipelined_end(const struct serve_model *m, double times, int64_t start_ns,
                             uint64_t missing, int64_t arrives_ns, double ns_per_byte)
{
    const uint64_t bytes = m->layer_ends[m->n_layers - 1], had = bytes - missing;
    int64_t t = start_ns;

    for (uint32_t i = 0; i < m->n_layers; i++) {
        if (m->layer_ends[i] > had) {
            const double rest = (double)(bytes - m->layer_ends[i]);

            t = SH_MAX(t, arrives_ns - (int64_t)(rest * ns_per_byte));
        }
        t += (int64_t)((double)m->layer_ns[i] * times);
    }
    return t;
}

/* Training runs on g from idle_ns on, once it has resumed. */
static void count_training(const struct serve *s, struct gpu *x, int64_t until_ns)
{
    if (x->may_train && !x->is_held_off)
        x->trained_ns += counted_ns(s, x->idle_ns + s->conf.resume_ns, until_ns);
}

/* Between two runs, one at once behind the other, training does not go on. */
static bool is_training_now(const struct serve *s, const struct gpu *x)
{
    return x->may_train && !x->is_held_off && x->n == 0 && s->now_ns > x->idle_ns;
}

void serve_hold_off(struct serve *s, uint32_t g, bool is_held_off, int64_t most_lost_ns)
{
    struct gpu *x = &s->gpus[g];

    if (x->n == 0 && is_held_off)
        count_training(s, x, s->now_ns);
    if (x->n == 0)
        x->idle_ns = s->now_ns;
    x->is_held_off = is_held_off;
    x->trained_ns -= SH_MIN(most_lost_ns, x->trained_ns - x->back_ns);
    x->back_ns = x->trained_ns;
}

static void note_begin(const struct serve *s, uint32_t first, uint32_t n, int64_t end_ns)
{
    for (uint32_t i = first, k = 0; k < n; k++, i = s->next[i]) {
        s->conf.ends[i].begun_ns = s->now_ns;
        s->conf.ends[i].device_ns = (double)(end_ns - s->now_ns) / n;
    }
}

void serve_begin(struct serve *s, uint32_t g, uint32_t first, uint32_t n, enum serve_copy how,
                 uint64_t missing, int64_t arrives_ns, int64_t extra_ns)
{
    struct gpu *x = &s->gpus[g];
    const uint32_t model = s->trace->items[first].model;
    const struct serve_model *m = &s->models[model];
    const uint64_t x_drawn = drawn(s, first);
    int64_t start = s->now_ns + extra_ns, end;
    uint32_t samples = 0;
    double times;

    for (uint32_t i = first, k = 0; k < n; k++, i = s->next[i])
        samples += serve_samples(s, i);
    times = usual_ns_of(m, samples) * noise(m, x_drawn);
    if (is_training_now(s, x))
        start += x->stop_ns;
    count_training(s, x, s->now_ns);
    x->was_cold = missing > 0 && arrives_ns > start;
    if (how == SERVE_WHOLE)
        start = SH_MAX(start, missing ? arrives_ns : start);
    end = pipelined_end(m, times, start, how == SERVE_WHOLE ? 0 : missing, arrives_ns,
                        x->ns_per_byte);
    end = SH_MAX(end + (x->was_cold ? m->over_ns : 0), start);
    if (s->conf.ends)
        note_begin(s, first, n, end);
    x->compute_ns = pipelined_end(m, times, 0, 0, 0, 0);
    x->begun_ns = s->now_ns;
    x->model = model;
    x->first = first;
    x->n = n;
    if (is_time_counted(s)) {
        s->n_switches += x->last_model != model;
        s->n_runs++;
        s->n_samples += samples;
    }
    s->run_ns += counted_ns(s, s->now_ns, end);
    x->last_model = model;
    put_serve_event(s, end, EVENT_RUN_ENDS, g);
}

static void end_gpu_run(struct serve *s, uint32_t g)
{
    struct gpu *x = &s->gpus[g];

    for (uint32_t i = x->first, k = 0; k < x->n; k++, i = s->next[i]) {
        const struct trace_request *r = &s->trace->items[i];

        s->end_ns[i] = s->now_ns;
        if (s->now_ns - r->at_ns > s->models[r->model].slo_ns)
            count_missed(s, i);
        if (s->conf.ends)
            s->conf.ends[i].end_ns = s->now_ns;
        s->digest = (s->digest ^ i ^ (uint64_t)s->now_ns) * UINT64_C(1099511628211);
    }
    x->n = 0;
    x->idle_ns = s->now_ns;
}

static bool is_replay_over(struct serve *s)
{
    if (s->conf.most_missed && s->n_missed > s->conf.most_missed)
        return true;
    s->by_clock =
        s->conf.most_cpu_s > 0 && (double)sh_clock_cpu_ns() / 1e9 - s->began_s > s->conf.most_cpu_s;
    return s->by_clock;
}

static void run_replay(struct serve *s, const struct serve_policy *p, void *policy)
{
    struct event e;

    while (!s->rc && !is_replay_over(s) && queue_take(&s->events, &e)) {
        s->now_ns = e.at_ns;
        if (e.kind == EVENT_ARRIVES) {
            if (e.a + 1 < s->trace->n)
                put_serve_event(s, s->trace->items[e.a + 1].at_ns, EVENT_ARRIVES, e.a + 1);
            p->arrived(policy, e.a);
        } else if (e.kind == EVENT_RUN_ENDS) {
            end_gpu_run(s, e.a);
            p->idle(policy, e.a);
        } else {
            p->timer(policy, e.a);
        }
    }
}

/* ------------------------------------------------------------------ whole images */

/* The one that was not used for longest, but for the one that runs. */
static uint32_t oldest_image(const struct serve *s, uint32_t g, uint32_t spare)
{
    const struct gpu *x = &s->gpus[g];
    uint32_t best = SERVE_NONE;

    for (uint32_t m = 0; m < s->n_models; m++)
        if (x->has[m] && m != spare && !(x->n && x->model == m) &&
            (best == SERVE_NONE || x->used_ns[m] < x->used_ns[best]))
            best = m;
    return best;
}

int64_t serve_bring(struct serve *s, uint32_t g, uint32_t model,
                    void (*gone)(void *ctx, uint32_t g, uint32_t model), void *ctx)
{
    struct gpu *x = &s->gpus[g];
    const uint64_t bytes = serve_image(s, model);

    x->used_ns[model] = s->now_ns;
    if (x->has[model])
        return x->arrives_ns[model];
    while (x->held + bytes > x->room) {
        const uint32_t m = oldest_image(s, g, model);

        if (m == SERVE_NONE)
            return INT64_MAX;
        x->has[m] = false;
        x->held -= serve_image(s, m);
        if (gone)
            gone(ctx, g, m);
    }
    x->has[model] = true;
    x->held += bytes;
    return x->arrives_ns[model] = serve_copy(s, g, bytes);
}

/* ------------------------------------------------------------------ the world */

static void take_models(struct serve *s)
{
    for (size_t i = 0; i < s->n_models; i++) {
        struct serve_model *m = &s->models[i];

        m->asked = 0;
        for (uint32_t b = 1; b <= SH_MIN(m->max_batch, SERVE_MAX_BATCH); b++)
            m->run_ns[b] = pipelined_end(m, m->times[b], 0, 0, 0, 0);
    }
    for (size_t i = 0; i < s->trace->n; i++)
        s->models[s->trace->items[i].model].asked += 1e9 / (double)SH_MAX(s->last_ns, INT64_C(1));
}

static int take_gpus(struct serve *s, bool may_train, struct sh_err *err)
{
    for (uint32_t g = 0; g < s->conf.n_gpus; g++) {
        struct gpu *x = &s->gpus[g];

        x->may_train = may_train && !s->conf.places[g].has_no_job;
        x->stop_ns = s->conf.places[g].stop_ns ? s->conf.places[g].stop_ns : s->conf.stop_ns;
        x->last_model = SERVE_NONE;
        x->idle_ns = -1; /* it trains already */
        x->room = s->conf.places[g].pool_bytes;
        x->ns_per_byte = s->conf.places[g].ns_per_byte;
        x->has = calloc(s->n_models, sizeof(*x->has));
        x->used_ns = calloc(s->n_models, sizeof(*x->used_ns));
        x->arrives_ns = calloc(s->n_models, sizeof(*x->arrives_ns));
        if (!x->has || !x->used_ns || !x->arrives_ns)
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate a GPU");
    }
    return SH_OK;
}

static void serve_fini(struct serve *s)
{
    for (uint32_t g = 0; s->gpus && g < s->conf.n_gpus; g++) {
        free(s->gpus[g].has);
        free(s->gpus[g].used_ns);
        free(s->gpus[g].arrives_ns);
    }
    free(s->gpus);
    free(s->next);
    free(s->end_ns);
    queue_fini(&s->events);
}

static int serve_init(struct serve *s, bool may_train, struct sh_err *err)
{
    const size_t n = s->trace->n;
    int rc;

    s->n_models = s->trace->models.n;
    s->last_ns = s->trace->items[n - 1].at_ns;
    s->gpus = calloc(s->conf.n_gpus, sizeof(*s->gpus));
    s->next = malloc(n * sizeof(*s->next));
    s->end_ns = malloc(n * sizeof(*s->end_ns));
    if (!s->gpus || !s->next || !s->end_ns)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu requests", n);
    for (size_t i = 0; i < n; i++)
        s->end_ns[i] = -1;
    for (size_t i = 0; s->conf.ends && i < n; i++)
        s->conf.ends[i] = (struct serve_end){.begun_ns = -1, .end_ns = -1};
    take_models(s);
    rc = take_gpus(s, may_train, err);
    put_serve_event(s, s->trace->items[0].at_ns, EVENT_ARRIVES, 0);
    return rc;
}

static int sum_up_replay(struct serve *s, struct serve_result *out, struct sh_err *err)
{
    const double seconds = (double)SH_MAX(s->last_ns - s->conf.from_ns, INT64_C(1)) / 1e9;
    double *ms = malloc(s->trace->n * sizeof(*ms));
    size_t n = 0, n_ends = 0, n_met = 0;

    if (!ms)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the results");
    for (size_t i = 0; i < s->trace->n; i++) {
        const int64_t slo_ns = s->models[s->trace->items[i].model].slo_ns;

        if (s->trace->items[i].at_ns < s->conf.from_ns)
            continue;
        n++;
        if (s->end_ns[i] < 0)
            continue;
        n_met += s->end_ns[i] - s->trace->items[i].at_ns <= slo_ns;
        ms[n_ends++] = (double)(s->end_ns[i] - s->trace->items[i].at_ns) / 1e6;
    }
    sh_sort_f64(ms, n_ends);
    out->attained = (double)n_met / (double)n;
    out->refused = (double)(n - n_ends) / (double)n;
    out->p50_ms = n_ends ? ms[n_ends / 2] : 0;
    out->p99_ms = n_ends ? ms[n_ends * 99 / 100] : 0;
    free(ms);
    for (uint32_t g = 0; g < s->conf.n_gpus; g++) {
        if (!s->gpus[g].n && s->gpus[g].idle_ns < s->last_ns)
            count_training(s, &s->gpus[g], s->last_ns);
        out->trained += (double)s->gpus[g].trained_ns / 1e9 / seconds / s->conf.n_gpus;
    }
    out->mean_batch = (double)s->n_samples / (double)SH_MAX(s->n_runs, UINT64_C(1));
    out->busy = (double)s->run_ns / 1e9 / seconds / s->conf.n_gpus;
    out->switches_s = (double)s->n_switches / seconds;
    out->gb_s = (double)s->bytes / 1e9 / seconds;
    out->digest = s->digest;
    out->by_clock = s->by_clock;
    return SH_OK;
}

int serve_replay(const struct trace_requests *t, struct serve_model *models,
                 const struct serve_policy *p, const struct serve_conf *conf,
                 struct serve_result *out, struct sh_err *err)
{
    struct serve s = {.trace = t,
                      .began_s = (double)sh_clock_cpu_ns() / 1e9,
                      .conf = *conf,
                      .models = models,
                      .seed = 1,
                      .digest = UINT64_C(14695981039346656037)};
    void *policy = NULL;
    int rc = serve_init(&s, p->trains, err);

    *out = (struct serve_result){0};
    if (!rc && !(policy = p->create(&s))) {
        *err = s.err;
        rc = s.err.rc ? s.err.rc : SH_FAIL(err, SH_E_NOMEM, "could not allocate a policy");
    }
    if (!rc) {
        run_replay(&s, p, policy);
        out->cpu_s = (double)sh_clock_cpu_ns() / 1e9 - s.began_s;
        *err = s.err;
        rc = s.rc;
    }
    if (!rc)
        rc = sum_up_replay(&s, out, err);
    if (policy)
        p->destroy(policy);
    serve_fini(&s);
    return rc;
}
