/* test_decide_load.c - without it, fewer and fewer requests could be answered in time the more are
 * asked for, and requests could be refused that a device with little to do would have answered. */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o */
/* link: -lm */
#include "common/mem.h"
#include "tests/unit/decide_world.h"

#include <math.h>

#define MOST 3000u
#define TARGET (50 * MS)
#define N_RUNS 2u
#define NOT_NEEDED 0.005 /* of the requests at half the load may be refused without need */

static const double LOADS[] = {0.5, 1, 1.5, 3}; /* of what full batches could do */

struct load_case {
    uint32_t max_batch;
    double one_ms, slope;                /* a run of one sample; each more takes this part of it */
    double slow_ms;                      /* one of fifty is slower by that, as is known of them */
    double noise;                        /* the others are so much longer or shorter, as a part */
    uint32_t n_models, n_tenants, burst; /* the second model is twice as fast */
};

struct load_run {
    uint32_t n, members[W_REQUESTS];
    int64_t sent_ns, predicted_ns, slack_ns;
};

struct load { /* one executor in virtual time, requests at random */
    struct world w;
    struct predict asked[W_MODELS];
    uint64_t seed;
    int64_t now_ns, end_ns, done_ns;
    int64_t at_ns[MOST];
    uint32_t model[MOST], tenant[MOST];
    bool is_over[MOST], is_in[MOST];
    uint32_t of[W_REQUESTS], n, n_come, n_first; /* those before n_first are over */
    struct load_run runs[N_RUNS];
    size_t n_met, n_full, n_broken; /* n_full: of those met, while more came and a queue stood */
    int64_t *least_end_ns;          /* ideal() */
};

static double part(struct load *l)
{
    l->seed = l->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(l->seed >> 11) / 9007199254740992.0;
}

static int64_t run_ns(const struct load_case *c, uint32_t model, uint32_t batch)
{
    const double size = 1u << predict_bucket(batch);

    return (int64_t)(c->one_ms * (1 + c->slope * (size - 1)) * 1e6 / (model + 1));
}

/* Samples a ns with full batches. */
static double capacity(const struct load_case *c)
{
    double ns = 0;

    for (uint32_t m = 0; m < c->n_models; m++)
        ns += (double)run_ns(c, m, c->max_batch) / c->max_batch / c->n_models;
    return 1 / ns;
}

static void start(struct load *l, const struct load_case *c)
{
    double took = (double)l->runs[0].predicted_ns * (1 + c->noise * (part(l) - 0.5));

    if (part(l) < 0.02)
        took += c->slow_ms * 1e6;
    if (l->runs[0].n)
        l->end_ns = SH_MAX(l->runs[0].sent_ns, l->done_ns) + (int64_t)took;
}

static void end_run(struct load *l, const struct load_case *c)
{
    for (uint32_t k = 0; k < l->runs[0].n; k++) {
        const uint32_t i = l->runs[0].members[k];

        const bool is_met = l->now_ns <= l->at_ns[i] + TARGET;

        l->n_met += is_met;
        l->n_full += is_met && l->now_ns >= NOW + TARGET && l->now_ns <= l->at_ns[l->n - 1];
        l->n_broken += !is_met;
    }
    l->done_ns = l->now_ns;
    l->runs[0] = l->runs[1];
    l->runs[1] = (struct load_run){0};
    start(l, c);
}

/* As exec_busy_until_ns() of the scheduler. */
static void take_exec(struct load *l)
{
    struct snap_exec *x = &l->w.execs[0];

    x->n_runs = 0;
    x->slack_ns = 0;
    x->busy_until_ns = l->done_ns;
    for (size_t k = 0; k < N_RUNS && l->runs[k].n; k++, x->n_runs++) {
        x->busy_until_ns = SH_MAX(x->busy_until_ns, l->runs[k].sent_ns) + l->runs[k].predicted_ns;
        if (k == 0 && x->busy_until_ns < l->now_ns)
            x->busy_until_ns = 2 * l->now_ns - x->busy_until_ns;
        x->slack_ns = predict_slack(x->slack_ns, l->runs[k].slack_ns);
    }
    x->busy_until_ns = SH_MAX(x->busy_until_ns, l->now_ns);
}

static void snapshot(struct load *l)
{
    l->w.in.now_ns = l->now_ns;
    l->w.in.n_requests = 0;
    take_exec(l);
    for (size_t m = 0; m < W_MODELS; m++)
        l->w.models[m].asked = predict_asked(&l->asked[m], l->now_ns);
    while (l->n_first < l->n_come && l->is_over[l->n_first])
        l->n_first++;
    for (uint32_t i = l->n_first; i < l->n_come; i++) {
        if (l->is_over[i])
            continue;
        assert_true(l->w.in.n_requests < W_REQUESTS);
        l->of[l->w.in.n_requests] = i;
        l->w.requests[l->w.in.n_requests++] =
            (struct snap_request){.state = SNAP_READY,
                                  .model = l->model[i],
                                  .tenant = l->tenant[i],
                                  .exec = l->is_in[i] ? 0 : SNAP_NONE,
                                  .promised = l->is_in[i],
                                  .batch = 1,
                                  .arrived_ns = l->at_ns[i],
                                  .deadline_ns = l->at_ns[i] + TARGET,
                                  .limit_ns = l->at_ns[i] + TARGET,
                                  .on_miss = SNAP_REJECT};
    }
}

static void act(struct load *l, const struct load_case *c, const struct decision *d)
{
    struct load_run *r = &l->runs[l->runs[0].n > 0];

    if (d->kind == DECISION_PLACE) {
        l->is_in[l->of[d->request]] = true;
    } else if (d->kind == DECISION_REFUSE) {
        l->n_broken += l->is_in[l->of[d->request]];
        l->is_over[l->of[d->request]] = true;
    } else if (d->kind == DECISION_RUN) {
        *r = (struct load_run){.n = d->n,
                               .sent_ns = l->now_ns,
                               .predicted_ns = d->predicted_ns,
                               .slack_ns = d->slack_ns};
        for (uint32_t k = 0; k < d->n; k++) {
            r->members[k] = l->of[l->w.out.members[d->first + k]];
            l->is_over[r->members[k]] = true;
        }
        if (r == &l->runs[0])
            start(l, c);
    }
}

static void load_init(struct load *l, const struct load_case *c, double load, uint32_t most)
{
    const double rate = capacity(c) * load;
    int64_t at = NOW;

    *l = (struct load){.seed = 7, .now_ns = NOW, .done_ns = NOW, .least_end_ns = l->least_end_ns};
    l->n = (uint32_t)SH_MIN(SH_MAX(rate * 400e6, 700), most);
    world_init(&l->w, 1);
    l->w.in.max_runs = N_RUNS;
    l->w.in.margin_ns = MS;
    l->w.in.with_jobs = false;
    for (uint32_t m = 0; m < c->n_models; m++) {
        l->w.models[m].max_batch = c->max_batch;
        for (unsigned b = 0; b < PREDICT_N_BUCKETS; b++) {
            const int64_t ns = run_ns(c, m, 1u << b);

            l->w.models[m].run_ns[b] = ns;
            l->w.models[m].slow_ns[b] =
                ns + (int64_t)((double)ns * c->noise / 2 + c->slow_ms * 1e6);
        }
    }
    for (uint32_t i = 0; i < l->n; i++) {
        if (i % c->burst == 0)
            at += (int64_t)(-log(1 - part(l)) / rate * c->burst);
        l->at_ns[i] = at;
        l->model[i] = (uint32_t)(part(l) * c->n_models);
        l->tenant[i] = (uint32_t)(part(l) * c->n_tenants);
    }
}

/* Answered in time, as a part of what full batches could do, from when a queue can stand until the
 * last has come. */
static double goodput(struct load *l, const struct load_case *c, double load, uint32_t most)
{
    load_init(l, c, load, most);
    for (;;) {
        int64_t next = l->n_come < l->n ? l->at_ns[l->n_come] : INT64_MAX;

        next = l->runs[0].n ? SH_MIN(next, l->end_ns) : next;
        if (next == INT64_MAX)
            break;
        l->now_ns = next;
        if (l->runs[0].n && l->end_ns <= next)
            end_run(l, c);
        while (l->n_come < l->n && l->at_ns[l->n_come] <= next)
            predict_ask(&l->asked[l->model[l->n_come++]], 1, next);
        snapshot(l);
        world_decide(&l->w);
        for (size_t i = 0; i < l->w.out.n; i++)
            act(l, c, &l->w.out.items[i]);
    }
    decisions_fini(&l->w.out);
    return (double)l->n_full / (double)(l->at_ns[l->n - 1] - NOW - TARGET) / capacity(c);
}

/* How many could be answered in time by one who knows all that will come. Batches of his take
 * requests that follow each other, for of two it is the later that leaves more time; so the least
 * end of a schedule for the first i of which q are refused follows from those for fewer. */
static size_t ideal(const struct load *l, const struct load_case *c)
{
    const int64_t time_ns = TARGET - l->w.in.margin_ns;
    const size_t row = l->n + 1;

    for (size_t i = 0; i <= l->n; i++) {
        for (size_t q = 0; q <= i; q++) {
            int64_t least = i == 0 ? 0 : q ? l->least_end_ns[(i - 1) * row + q - 1] : INT64_MAX;

            for (size_t b = 1; b <= c->max_batch && b + q <= i; b++) {
                const int64_t before = l->least_end_ns[(i - b) * row + q];
                int64_t end;

                if (l->at_ns[i - b] + time_ns < l->at_ns[i - 1])
                    break;
                if (before == INT64_MAX)
                    continue;
                end = SH_MAX(before, l->at_ns[i - 1]) + run_ns(c, 0, (uint32_t)b);
                if (end <= l->at_ns[i - b] + time_ns)
                    least = SH_MIN(least, end);
            }
            l->least_end_ns[i * row + q] = least;
        }
    }
    for (size_t q = 0; q < l->n; q++)
        if (l->least_end_ns[l->n * row + q] < INT64_MAX)
            return l->n - q;
    return 0;
}

static void fail_at(const struct load_case *c, double load, const char *what, double a, double b)
{
    fail_msg("max_batch %u, one %g ms, slope %g, %u models, %u tenants, bursts of %u, load %g: "
             "%s: %.3f, %.3f",
             c->max_batch, c->one_ms, c->slope, c->n_models, c->n_tenants, c->burst, load, what, a,
             b);
}

/* What is asked for beyond the peak costs nothing of it, and more never means less. */
static void check_falls(const struct load_case *c, const double *got, bool has_peak)
{
    double peak = 0, before = 0;

    for (size_t k = 0; k < SH_ARRAY_LEN(LOADS); k++)
        peak = SH_MAX(peak, got[k]);
    for (size_t k = 0; k < SH_ARRAY_LEN(LOADS); k++) {
        before = SH_MAX(before, got[k]);
        /* At the peak itself long runs leave a short queue, that now and then is empty. */
        if (got[k] < 0.9 * (has_peak && LOADS[k] > 1.05 * peak ? peak : before))
            fail_at(c, LOADS[k], "falls below the peak", got[k], peak);
    }
}

static void try_case(struct load *l, const struct load_case *c)
{
    /* Else nobody can answer full batches in time, by which loads count, or only one who knows
     * what will come. */
    const bool is_short = 3 * run_ns(c, 0, c->max_batch) < TARGET - MS;
    double got[SH_ARRAY_LEN(LOADS)];

    for (size_t k = 0; k < SH_ARRAY_LEN(LOADS); k++) {
        const uint32_t most = LOADS[k] > (is_short ? 0.5 : 1) ? 1000 : 400;
        double best;

        got[k] = goodput(l, c, LOADS[k], most);
        if (l->n_broken)
            fail_at(c, LOADS[k], "broken promises", (double)l->n_broken, l->n);
        if (most > 400)
            continue;
        best = (double)ideal(l, c);
        if (k == 0 && (is_short || c->max_batch == 1) &&
            best - (double)l->n_met > NOT_NEEDED * l->n)
            fail_at(c, LOADS[k], "needless refusals", (double)l->n_met, best);
        /* He knows what will come, and whether to wait for a larger batch. */
        if (2 * run_ns(c, 0, 1) < TARGET &&
            (double)l->n_met < (c->max_batch == 1 ? 0.97 : 0.6) * best)
            fail_at(c, LOADS[k], "far from what could be done", (double)l->n_met, best);
    }
    check_falls(c, got, is_short);
}

static struct load *new_load(void)
{
    struct load *l = calloc(1, sizeof(*l));

    assert_non_null(l);
    l->least_end_ns = calloc(401u * 401u, sizeof(*l->least_end_ns));
    assert_non_null(l->least_end_ns);
    return l;
}

static void free_load(struct load *l)
{
    free(l->least_end_ns);
    free(l);
}

static void more_load_never_means_less_in_time_and_little_refuses_nobody(void **state)
{
    static const uint32_t BATCHES[] = {1, 2, 8, 32};
    static const double ONE_MS[] = {2, 5, 12, 24, 45}, SLOPES[] = {0, 0.05, 0.2, 1};
    struct load *l = new_load();

    (void)state;
    for (size_t b = 0; b < SH_ARRAY_LEN(BATCHES); b++)
        for (size_t o = 0; o < SH_ARRAY_LEN(ONE_MS); o++)
            for (size_t s = 0; s < SH_ARRAY_LEN(SLOPES); s++) {
                const struct load_case c = {.max_batch = BATCHES[b],
                                            .one_ms = ONE_MS[o],
                                            .slope = SLOPES[s],
                                            .n_models = 1,
                                            .n_tenants = 1,
                                            .burst = 1};

                /* Of more a ms, no test could wait for as long as matters. */
                if (capacity(&c) < 3e-6 && (BATCHES[b] > 1 || s == 0))
                    try_case(l, &c);
            }
    free_load(l);
}

/* Where runs differ from what is predicted, models and tenants from each other, and requests come
 * many at once. */
static void nor_where_several_share_a_device_or_come_at_once(void **state)
{
    static const struct load_case CASES[] = {
        {1, 5, 0, 0, 0, 2, 2, 1},       {1, 5, 0, 20, 0.3, 1, 1, 1},   {1, 3, 0, 0, 0, 2, 1, 2},
        {8, 5, 0.2, 0, 0, 2, 2, 1},     {8, 3, 0.5, 5, 0.2, 2, 1, 4},  {32, 8, 0.04, 0, 0, 2, 1, 1},
        {32, 5, 0.05, 0, 0, 1, 2, 1},   {32, 5, 0.05, 0, 0, 1, 1, 8},  {32, 8, 0, 0, 0, 2, 2, 8},
        {32, 5, 0.04, 5, 0.2, 1, 1, 1}, {32, 4, 0.1, 5, 0.3, 2, 1, 1},
    };
    struct load *l = new_load();

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        double got[SH_ARRAY_LEN(LOADS)];

        for (size_t k = 0; k < SH_ARRAY_LEN(LOADS); k++) {
            got[k] = goodput(l, &CASES[i], LOADS[k], 1500);
            if (k == 0 && (double)(l->n - l->n_met) > 2 * NOT_NEEDED * l->n)
                fail_at(&CASES[i], LOADS[k], "refused", (double)l->n_met, l->n);
        }
        check_falls(&CASES[i], got, CASES[i].n_models == 1);
    }
    free_load(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_load_never_means_less_in_time_and_little_refuses_nobody),
        cmocka_unit_test(nor_where_several_share_a_device_or_come_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
