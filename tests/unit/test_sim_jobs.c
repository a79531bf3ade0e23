/* test_sim_jobs.c - without it, the replay of job traces could compare policies wrongly: a policy
 * that runs two jobs on one GPU, an ideal that nobody could be measured by, results that are others
 * each time. */
/* uses: simulate/jobs.o bench/sim/jobs_fifo.o bench/sim/jobs_las.o simulate/jobs_ours.o */
/* uses: bench/sim/jobs_ideal.o simulate/queue.o simulate/trace.o libscheduler.a */
/* link: -lm -lpq -lmicrohttpd */
#include "common/units.h"
#include "simulate/jobs.h"
#include "tests/unit/sh_test.h"

#define MAX_JOBS 300
#define N_WORLDS 60

static const struct job_policy *const POLICIES[] = {&JOBS_FIFO, &JOBS_LAS, &JOBS_THEMIS, &JOBS_DRF,
                                                    &JOBS_OURS};
#define N_POLICIES (sizeof(POLICIES) / sizeof(POLICIES[0]))

static struct trace_job rows[MAX_JOBS];

static struct trace_jobs trace_of(size_t n, size_t n_tenants)
{
    return (struct trace_jobs){.items = rows, .n = n, .tenants = {.n = n_tenants}};
}

static void add(size_t i, int64_t at_s, int64_t run_s, uint32_t gpus, uint32_t tenant)
{
    rows[i] = (struct trace_job){SH_S(at_s), SH_S(run_s), gpus, tenant};
}

static struct job_result replay(const struct trace_jobs *t, const struct job_policy *p,
                                const struct job_conf *conf, const int64_t *ideal)
{
    struct job_result r;
    struct sh_err err = {0};

    if (jobs_replay(t, p, conf, ideal, &r, &err))
        fail_msg("%s: %s", p->name, err.msg);
    return r;
}

/* 4 GPUs: 0 has 3 of them, 1 wants 2 and waits, 2 ends before 1 can start and goes in front of it,
 * 3 would delay it and does not. */
static void backfill_does_not_delay_the_reservation(void **state)
{
    const struct job_conf conf = {.n_gpus = 4};
    const struct trace_jobs t = trace_of(4, 1);
    struct job_result r;

    (void)state;
    add(0, 0, 100, 3, 0);
    add(1, 1, 50, 2, 0);
    add(2, 2, 90, 1, 0);
    add(3, 3, 500, 1, 0);
    r = replay(&t, &JOBS_FIFO, &conf, NULL);
    /* 0: 0..100, 1: 100..150, 2: 2..92, 3 beside 1 from 92 on, when spare GPUs stay: 92..592. */
    assert_true(r.mean_s == (100 + 149 + 90 + 589) / 4.0);
    assert_true(r.longest_wait_s == 99);
}

/* Two tenants on two GPUs: each has one; a tenant's two jobs share its own. */
static void the_ideal_is_each_tenants_share(void **state)
{
    const struct trace_jobs t = trace_of(3, 2);
    int64_t end[3];

    (void)state;
    add(0, 0, 100, 1, 0);
    add(1, 0, 100, 1, 0);
    add(2, 0, 50, 1, 1);
    assert_ok(jobs_ideal(&t, 2, end, NULL));
    /* Until 50 jobs 0 and 1 have half a GPU each; then a whole one: 25 + 75. */
    assert_int_equal(end[2], SH_S(50));
    assert_in_range(end[0], SH_S(125) - 2, SH_S(125) + 2);
    assert_in_range(end[1], SH_S(125) - 2, SH_S(125) + 2);
}

static uint32_t below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*seed >> 33) % n);
}

static void draw_world(uint64_t seed, struct trace_jobs *t, struct job_conf *conf)
{
    const uint32_t n = 20 + below(&seed, MAX_JOBS - 20), n_tenants = 1 + below(&seed, 5);
    const uint32_t n_gpus = 1 + below(&seed, 12);
    const bool with_gangs = below(&seed, 2);
    int64_t at = 0;

    for (uint32_t i = 0; i < n; i++) {
        at += below(&seed, 40);
        add(i, at, 1 + below(&seed, below(&seed, 8) ? 60 : 3000),
            with_gangs && !below(&seed, 3) ? 1 + below(&seed, n_gpus) : 1, below(&seed, n_tenants));
    }
    *t = trace_of(n, n_tenants);
    *conf = (struct job_conf){.n_gpus = n_gpus,
                              .start_ns = SH_S(below(&seed, 3)),
                              .stop_ns = SH_S(below(&seed, 2)) / 2,
                              .min_run_ns = SH_S((1 + below(&seed, 3)) * 20),
                              .level_ns = SH_S(below(&seed, 3) * 20),
                              .half_life_s = 60 + below(&seed, 3600)};
}

/* jobs_replay() fails if one waits for ever, and aborts if there are not as many GPUs. */
static void in_every_world_all_jobs_end_and_twice_the_same_way(void **state)
{
    uint64_t n_stops = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= N_WORLDS; seed++) {
        struct trace_jobs t;
        struct job_conf conf;
        static int64_t ideal[MAX_JOBS];

        draw_world(seed, &t, &conf);
        assert_ok(jobs_ideal(&t, conf.n_gpus, ideal, NULL));
        for (size_t p = 0; p < N_POLICIES; p++) {
            const struct job_result a = replay(&t, POLICIES[p], &conf, ideal);
            const struct job_result b = replay(&t, POLICIES[p], &conf, ideal);

            assert_true(a.digest == b.digest && a.mean_s == b.mean_s && a.n_starts == b.n_starts);
            assert_true(a.used <= 1 + 1e-9 && a.mean_wait_s > -1e-6);
            assert_int_equal(a.n_starts, t.n + a.n_stops);
            n_stops += p == N_POLICIES - 1 ? a.n_stops : 0;
        }
    }
    assert_true(n_stops > N_WORLDS); /* ours had something to decide */
}

/* A tenant with one short job at a time beside one that floods: it waits no longer than a minimum
 * run and what stopping and starting take, however many the other has. */
static void who_asks_for_little_does_not_wait_behind_who_asks_for_much(void **state)
{
    static struct sim_job ends[MAX_JOBS];
    const struct job_conf conf = {.n_gpus = 4,
                                  .start_ns = SH_S(1),
                                  .stop_ns = SH_S(1),
                                  .min_run_ns = SH_S(30),
                                  .half_life_s = 3600,
                                  .ends = ends};
    struct trace_jobs t;
    size_t n = 0;

    (void)state;
    for (; n < 200; n++)
        add(n, 0, 600, 1, 0);
    for (int64_t i = 0; i < 20; i++, n++)
        add(n, 100 + 700 * i, 10, 1, 1);
    t = trace_of(n, 2);
    replay(&t, &JOBS_FIFO, &conf, NULL);
    assert_true(ends[200].first_ns - rows[200].at_ns > SH_S(10000));
    replay(&t, &JOBS_OURS, &conf, NULL);
    for (size_t i = 200; i < n; i++)
        assert_in_range(ends[i].first_ns - rows[i].at_ns, 0, conf.min_run_ns + SH_S(3));
}

/* Short jobs come to a tenant for ever, more than it has GPUs for: a long one has its time all the
 * same. It waits until those that came up to its handicap later have had theirs, and no longer. */
static void a_long_job_among_short_ones_without_end_has_its_time(void **state)
{
    static struct sim_job ends[MAX_JOBS];
    struct job_conf conf = {
        .n_gpus = 1, .min_run_ns = SH_S(1), .level_ns = SH_S(1), .half_life_s = 3600, .ends = ends};
    struct trace_jobs t;

    (void)state;
    add(0, 0, 10, 1, 0);
    for (size_t i = 1; i < MAX_JOBS; i++)
        add(i, 2 * (int64_t)i, 3, 1, 0);
    t = trace_of(MAX_JOBS, 1);
    replay(&t, &JOBS_OURS, &conf, NULL);
    /* It takes 10 s, so it is as one that came at 640 s. */
    assert_in_range(ends[0].end_ns, SH_S(640), SH_S(800));
    conf.level_ns = 0;
    replay(&t, &JOBS_OURS, &conf, NULL);
    assert_int_equal(ends[0].end_ns, SH_S(10));
}

/* Two of a tenant that have had the same, and one GPU: when it is known how long they take, the one
 * that takes less ends first, although it came later. */
static void who_takes_less_ends_first(void **state)
{
    static struct sim_job ends[3];
    const struct job_conf conf = {.n_gpus = 1,
                                  .min_run_ns = SH_S(1),
                                  .level_ns = SH_S(10),
                                  .half_life_s = 3600,
                                  .ends = ends};
    struct trace_jobs t;

    (void)state;
    add(0, 0, 1000, 1, 0);
    add(1, 1, 300, 1, 0);
    add(2, 2, 100, 1, 0);
    t = trace_of(3, 1);
    replay(&t, &JOBS_OURS, &conf, NULL);
    /* Each has the first level's time before anybody knows. */
    assert_in_range(ends[2].end_ns, SH_S(100), SH_S(125));
    assert_in_range(ends[1].end_ns, SH_S(400), SH_S(425));
    assert_in_range(ends[0].end_ns, SH_S(1400), SH_S(1405));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backfill_does_not_delay_the_reservation),
        cmocka_unit_test(the_ideal_is_each_tenants_share),
        cmocka_unit_test(in_every_world_all_jobs_end_and_twice_the_same_way),
        cmocka_unit_test(who_asks_for_little_does_not_wait_behind_who_asks_for_much),
        cmocka_unit_test(a_long_job_among_short_ones_without_end_has_its_time),
        cmocka_unit_test(who_takes_less_ends_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
