/* test_decide_jobs.c - without it, a tenant could take every device, a guarantee could be worth
 * nothing, jobs could chase each other off a device, and random loads could break a limit. */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o */
#include "tests/unit/decide_world.h"

#include <math.h>

static void a_free_executor_starts_the_oldest_job(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_job(&w, 0);
    add_job(&w, 0);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 1);
    assert_int_equal(nth(&w, DECISION_START, 0)->job, 0);
    assert_int_equal(nth(&w, DECISION_WAIT, 0)->reason, DECIDE_RESOURCES);
    decisions_fini(&w.out);
}

static void a_higher_priority_starts_first(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_job(&w, 0);
    add_job(&w, 0)->priority = 5;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_START, 0)->job, 1);
    decisions_fini(&w.out);
}

static void the_tenant_that_used_less_for_its_weight_starts_first(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.tenants[0].usage_ns = 100e9;
    w.tenants[1].usage_ns = 150e9;
    w.tenants[1].weight = 2;
    add_job(&w, 0);
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_START, 0)->job, 1);
    decisions_fini(&w.out);
}

static void free_executors_are_shared_and_not_given_to_one_tenant(void **state)
{
    struct world w;
    size_t of[2] = {0};

    (void)state;
    world_init(&w, 4);
    for (int i = 0; i < 4; i++)
        add_job(&w, 0);
    for (int i = 0; i < 4; i++)
        add_job(&w, 1);
    world_decide(&w);
    for (size_t i = 0; i < 4; i++)
        of[w.jobs[nth(&w, DECISION_START, i)->job].tenant]++;
    assert_int_equal(of[0], 2);
    assert_int_equal(of[1], 2);
    decisions_fini(&w.out);
}

static void a_tenant_below_its_guarantee_goes_before_a_smaller_share(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.tenants[0].guaranteed_gpus = 1;
    w.tenants[0].usage_ns = 1e15;
    add_job(&w, 1);
    add_job(&w, 0);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_START, 0)->job, 1);
    decisions_fini(&w.out);
}

static void what_blocks_a_job_is_named(void **state)
{
    static const enum decide_reason WANT[] = {
        DECIDE_TENANT_SUSPENDED, DECIDE_QUEUE_HELD,    DECIDE_MODEL_LOADING,
        DECIDE_BACKOFF,          DECIDE_QUOTA_LIMIT,   DECIDE_QUOTA_LIMIT,
        DECIDE_QUOTA_LIMIT,      DECIDE_DATABASE_DOWN, DECIDE_NO_EXECUTOR,
    };

    (void)state;
    for (size_t i = 0; i < sizeof(WANT) / sizeof(WANT[0]); i++) {
        struct world w;
        struct snap_job *j;

        world_init(&w, 1);
        j = add_job(&w, 0);
        w.tenants[0].active = i != 0;
        j->queue_open = i != 1;
        j->model_ready = i != 2;
        j->not_before_ns = i == 3 ? NOW + 1 : NOW;
        w.tenants[0].max_gpus = i == 4 ? 0 : -1;
        w.tenants[0].max_running_jobs = i == 5 ? 0 : 1;
        w.tenants[0].weight = i == 6 ? 0 : 1;
        w.in.db_up = i != 7;
        w.execs[0].up = i != 8;
        world_decide(&w);
        assert_int_equal(count(&w, DECISION_START), 0);
        if (nth(&w, DECISION_WAIT, 0)->reason != WANT[i])
            fail_msg("case %zu: %s", i, decide_reason_name(nth(&w, DECISION_WAIT, 0)->reason));
        decisions_fini(&w.out);
    }
}

static void a_quota_counts_jobs_that_are_still_giving_up_their_slot(void **state)
{
    struct world w;
    struct snap_job *queued;

    (void)state;
    world_init(&w, 2);
    w.tenants[0].max_gpus = 1;
    add_running(&w, 0, 0, 60000)->state = SNAP_STOPPING;
    queued = add_job(&w, 0);
    world_decide(&w);
    assert_non_null(about(&w, DECISION_WAIT, queued));
    assert_int_equal(about(&w, DECISION_WAIT, queued)->reason, DECIDE_QUOTA_LIMIT);
    decisions_fini(&w.out);
}

static void nothing_starts_on_an_executor_that_is_down_or_taken(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 2);
    w.execs[0].up = false;
    w.execs[1].slot_taken = true;
    add_job(&w, 0);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 0);
    assert_int_equal(nth(&w, DECISION_WAIT, 0)->reason, DECIDE_RESOURCES);
    decisions_fini(&w.out);
}

static void a_smaller_share_takes_the_slot_only_after_the_minimum_run_time(void **state)
{
    struct world w;
    struct snap_job *runs, *wants;

    (void)state;
    world_init(&w, 1);
    w.tenants[0].usage_ns = 100e9;
    runs = add_running(&w, 0, 0, 29000);
    wants = add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    assert_int_equal(about(&w, DECISION_WAIT, wants)->reason, DECIDE_MIN_RUN);
    runs->since_ns = NOW - 31000 * MS;
    world_decide(&w);
    assert_non_null(about(&w, DECISION_SUSPEND, runs));
    assert_int_equal(about(&w, DECISION_SUSPEND, runs)->reason, DECIDE_FAIR_SHARE);
    decisions_fini(&w.out);
}

static void a_share_that_is_smaller_by_little_takes_nothing(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.tenants[0].usage_ns = 100e9;
    w.tenants[1].usage_ns = 80e9; /* the difference is less than one minimum run of 30 s */
    add_running(&w, 0, 0, 60000);
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    decisions_fini(&w.out);
}

static void a_guarantee_takes_a_slot_from_who_has_more_than_its_own(void **state)
{
    struct world w;
    struct snap_job *first, *second;

    (void)state;
    world_init(&w, 2);
    w.tenants[0].guaranteed_gpus = 1;
    w.tenants[1].guaranteed_gpus = 1;
    first = add_running(&w, 0, 0, 60000);
    second = add_running(&w, 0, 1, 50000);
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 1);
    assert_int_equal(nth(&w, DECISION_SUSPEND, 0)->reason, DECIDE_QUOTA_GUARANTEED);
    assert_non_null(about(&w, DECISION_SUSPEND, second)); /* the younger one */
    assert_null(about(&w, DECISION_SUSPEND, first));
    decisions_fini(&w.out);
}

static void of_one_tenant_the_lowest_priority_gives_way_and_then_the_youngest(void **state)
{
    static const int32_t PRIORITY[][3] = {{0, 5, 5}, {5, 0, 5}, {5, 5, 0}};
    struct world w;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        world_init(&w, 3);
        w.tenants[0].usage_ns = 1e15;
        for (uint32_t e = 0; e < 3; e++)
            add_running(&w, 0, e, 60000)->priority = PRIORITY[i][e];
        add_job(&w, 1);
        world_decide(&w);
        assert_int_equal(nth(&w, DECISION_SUSPEND, 0)->job, i);
        w.jobs[i].priority = 5; /* now all are equal */
        world_decide(&w);
        assert_int_equal(nth(&w, DECISION_SUSPEND, 0)->job, 2);
        decisions_fini(&w.out);
    }
}

static void a_tenant_within_its_guarantee_keeps_its_slot(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.tenants[0].guaranteed_gpus = 1;
    w.tenants[0].usage_ns = 1e15;
    add_running(&w, 0, 0, 60000);
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    decisions_fini(&w.out);
}

static void a_higher_priority_of_the_same_tenant_takes_the_slot(void **state)
{
    struct world w;
    struct snap_job *runs;

    (void)state;
    world_init(&w, 1);
    runs = add_running(&w, 0, 0, 60000);
    add_job(&w, 0)->priority = 1;
    world_decide(&w);
    assert_non_null(about(&w, DECISION_SUSPEND, runs));
    assert_int_equal(about(&w, DECISION_SUSPEND, runs)->reason, DECIDE_PRIORITY);
    decisions_fini(&w.out);
}

static void a_job_that_starts_or_completes_is_not_suspended(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_running(&w, 0, 0, 60000)->may_suspend = false;
    add_job(&w, 0)->priority = 1;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    decisions_fini(&w.out);
}

static void the_order_of_those_that_wait_is_that_of_their_starts(void **state)
{
    struct world w;
    uint32_t order[W_JOBS];
    size_t n = 0;
    struct sh_err err = {0};

    (void)state;
    world_init(&w, 1);
    w.tenants[0].usage_ns = 100e9;
    add_running(&w, 2, 0, 1000);
    add_job(&w, 0);                          /* 1: a great share */
    add_job(&w, 1)->line_us = 5;             /* 2: went to the end */
    add_job(&w, 1);                          /* 3 */
    add_job(&w, 1)->priority = 1;            /* 4 */
    add_job(&w, 1)->queue_open = false;      /* 5: may not start */
    add_job(&w, 3)->not_before_ns = NOW + 1; /* 6: neither */
    assert_ok_err(decide_order(&w.in, &w.out, order, &n, &err), &err);
    assert_int_equal(n, 4);
    assert_int_equal(order[0], 4);
    assert_int_equal(order[1], 3);
    assert_int_equal(order[2], 2);
    assert_int_equal(order[3], 1);
    world_decide(&w); /* the policy itself names the same one as next in line */
    assert_int_equal(about(&w, DECISION_WAIT, &w.jobs[5])->reason, DECIDE_QUEUE_HELD);
    assert_int_equal(about(&w, DECISION_WAIT, &w.jobs[1])->reason, DECIDE_PRIORITY);
    w.execs[0].job = SNAP_NONE;
    w.jobs[0].state = SNAP_STOPPING;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_START, 0)->job, 4);
    decisions_fini(&w.out);
}

static void a_fixed_job_is_no_victim_and_runs_within_the_guarantee_only(void **state)
{
    struct world w;
    struct snap_job *fixed, *wants;

    (void)state;
    world_init(&w, 1);
    w.tenants[0].guaranteed_gpus = 1;
    fixed = add_running(&w, 0, 0, 60000);
    fixed->is_fixed = true;
    wants = add_job(&w, 0);
    wants->priority = 9;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    assert_int_equal(about(&w, DECISION_WAIT, wants)->reason, DECIDE_RESOURCES);
    wants->is_fixed = true; /* the second one of a guarantee of 1 */
    world_decide(&w);
    assert_int_equal(about(&w, DECISION_WAIT, wants)->reason, DECIDE_QUOTA_GUARANTEED);
    decisions_fini(&w.out);
}

static void a_jobs_own_minimum_run_replaces_the_common_one(void **state)
{
    struct world w;
    struct snap_job *runs, *wants;

    (void)state;
    world_init(&w, 1);
    runs = add_running(&w, 0, 0, 10000); /* of 30 s */
    wants = add_job(&w, 0);
    wants->priority = 9;
    runs->min_run_ns = 9000 * MS;
    world_decide(&w);
    assert_non_null(about(&w, DECISION_SUSPEND, runs));
    runs->min_run_ns = 11000 * MS;
    world_decide(&w);
    assert_int_equal(about(&w, DECISION_WAIT, wants)->reason, DECIDE_MIN_RUN);
    decisions_fini(&w.out);
}

static void one_job_that_waits_suspends_one_job_and_not_another_while_that_stops(void **state)
{
    struct world w;
    struct snap_job *victim;

    (void)state;
    world_init(&w, 2);
    victim = add_running(&w, 0, 0, 60000);
    add_running(&w, 0, 1, 60000);
    w.tenants[0].usage_ns = 1000e9;
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 1);
    victim = &w.jobs[nth(&w, DECISION_SUSPEND, 0)->job];
    victim->state = SNAP_STOPPING;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    decisions_fini(&w.out);
}

/* ------------------------------------------------------------------ lending, shares */

static void what_is_not_lent_stays_free_for_its_owner(void **state)
{
    struct world w;
    struct snap_job *owned;

    (void)state;
    world_init(&w, 3);
    w.tenants[0].guaranteed_gpus = 2;
    w.tenants[0].lending_limit = 1;
    for (int i = 0; i < 4; i++)
        add_job(&w, 1);
    world_decide(&w); /* one slot is nobody's, one is lent, one is kept */
    assert_int_equal(count(&w, DECISION_START), 2);
    assert_int_equal(nth(&w, DECISION_WAIT, 0)->reason, DECIDE_LENDING_LIMIT);
    assert_true(w.out.shares[0].reserved == 1);
    owned = add_job(&w, 0);
    world_decide(&w);
    assert_non_null(about(&w, DECISION_START, owned)); /* who keeps it gets it */
    decisions_fini(&w.out);
}

static void without_a_lending_limit_all_of_an_idle_guarantee_is_lent(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 2);
    w.tenants[0].guaranteed_gpus = 2;
    add_job(&w, 1);
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 2);
    decisions_fini(&w.out);
}

static void a_tenant_that_uses_its_guarantee_keeps_nothing_free(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 2);
    w.tenants[0].guaranteed_gpus = 1;
    w.tenants[0].lending_limit = 0;
    add_running(&w, 0, 0, 1000);
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 1);
    assert_true(w.out.shares[0].reserved == 0);
    decisions_fini(&w.out);
}

static void a_suspended_tenant_keeps_nothing_free(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.tenants[0] = (struct snap_tenant){
        .active = false, .guaranteed_gpus = 1, .weight = 1, .max_gpus = -1, .max_running_jobs = 16};
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 1);
    decisions_fini(&w.out);
}

static void a_guarantee_takes_what_another_reserved_when_there_is_too_little_for_both(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    for (int t = 0; t < 2; t++) {
        w.tenants[t].guaranteed_gpus = 1;
        w.tenants[t].lending_limit = 0;
    }
    add_job(&w, 0);
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 1);
    decisions_fini(&w.out);
}

static void a_borrower_may_still_take_its_turn_of_another_borrowers_slot(void **state)
{
    struct world w;
    struct snap_job *runs;

    (void)state;
    world_init(&w, 2);
    w.tenants[0].guaranteed_gpus = 1;
    w.tenants[0].lending_limit = 0;
    w.tenants[1].usage_ns = 100e9;
    runs = add_running(&w, 1, 0, 60000);
    add_job(&w, 2);
    world_decide(&w); /* the free slot is kept, the other one changes hands */
    assert_int_equal(count(&w, DECISION_START), 0);
    assert_non_null(about(&w, DECISION_SUSPEND, runs));
    decisions_fini(&w.out);
}

static void assert_fair(const struct world *w, const double *want)
{
    for (size_t t = 0; t < W_TENANTS; t++)
        if (fabs(w->out.shares[t].fair - want[t]) > 1e-9)
            fail_msg("tenant %zu: fair share %g, not %g", t, w->out.shares[t].fair, want[t]);
}

static void a_fair_share_is_the_guarantee_and_the_rest_by_weight(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 4);
    w.tenants[0].guaranteed_gpus = 1;
    w.tenants[1].weight = 2;
    for (int i = 0; i < 8; i++)
        add_job(&w, (uint32_t)i % 2);
    add_running(&w, 0, 0, 1000);
    world_decide(&w);
    assert_fair(&w, (const double[]){1 + 1, 2, 0, 0});
    assert_true(w.out.shares[0].running == 1 && w.out.shares[0].waiting == 4);
    decisions_fini(&w.out);
    world_init(&w, 4);
    for (int i = 0; i < 8; i++)
        add_job(&w, (uint32_t)i % 2);
    add_job(&w, 2); /* wants less than a third of four */
    world_decide(&w);
    assert_fair(&w, (const double[]){1.5, 1.5, 1, 0});
    decisions_fini(&w.out);
}

static void fair_shares_respect_limits_and_shrink_with_the_executors(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 3);
    w.tenants[0].max_gpus = 1;
    w.tenants[1].weight = 0;
    w.tenants[1].guaranteed_gpus = 1;
    for (int i = 0; i < 9; i++)
        add_job(&w, (uint32_t)i % 3);
    world_decide(&w);
    assert_fair(&w, (const double[]){1, 1, 1, 0});
    w.execs[0].up = w.execs[1].up = false;
    w.tenants[2].guaranteed_gpus = 3;
    world_decide(&w);
    assert_fair(&w, (const double[]){0, 0.25, 0.75, 0});
    decisions_fini(&w.out);
}

static void two_equal_tenants_take_turns_of_at_least_the_minimum_run(void **state)
{
    struct world w;
    struct snap_job *job[2];
    int64_t used[2] = {0}, turn_began = 0, shortest = INT64_MAX;
    uint32_t on = SNAP_NONE;

    (void)state;
    world_init(&w, 1);
    job[0] = add_job(&w, 0);
    job[1] = add_job(&w, 1);
    for (int64_t s = 0; s < 3600; s++) {
        w.in.now_ns = NOW + s * 1000 * MS;
        world_decide(&w);
        if (on == SNAP_NONE && count(&w, DECISION_START) == 1) {
            on = nth(&w, DECISION_START, 0)->job;
            job[on]->state = SNAP_RUNNING;
            job[on]->exec = 0;
            job[on]->since_ns = w.in.now_ns;
            job[on]->may_suspend = true;
            w.execs[0].job = on;
            turn_began = s;
        } else if (on != SNAP_NONE && about(&w, DECISION_SUSPEND, job[on])) {
            if (s - turn_began < shortest)
                shortest = s - turn_began;
            job[on]->state = SNAP_QUEUED;
            job[on]->exec = SNAP_NONE;
            w.execs[0].job = on = SNAP_NONE;
        }
        if (on != SNAP_NONE) {
            used[on]++;
            w.tenants[on].usage_ns += 1e9;
        }
    }
    assert_true(shortest >= 30);
    assert_true(llabs(used[0] - used[1]) < 120);
    assert_true(used[0] + used[1] > 3400);
    decisions_fini(&w.out);
}

/* ------------------------------------------------------------------ whatever comes */

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x >> 11;
}

static void random_world(struct world *w, uint64_t *s)
{
    world_init(w, next(s) % (W_EXECS + 1));
    w->in.max_runs = 1 + (uint32_t)(next(s) % 3);
    w->in.db_up = next(s) % 8 != 0;
    for (size_t e = 0; e < w->in.n_execs; e++) {
        w->execs[e].up = next(s) % 4 != 0;
        w->execs[e].n_runs = (uint32_t)(next(s) % (w->in.max_runs + 1));
        w->execs[e].busy_until_ns = NOW + (int64_t)(next(s) % 50) * MS;
    }
    for (size_t i = 0; i < W_MODELS * w->in.n_execs; i++)
        w->places[i] = (struct snap_place){next(s) % 4 != 0, next(s) % (200u << 20)};
    for (size_t m = 0; m < W_MODELS; m++)
        w->models[m].max_batch = 1 + (uint32_t)(next(s) % 16);
    for (size_t t = 0; t < W_TENANTS; t++)
        w->tenants[t] = (struct snap_tenant){.active = next(s) % 8 != 0,
                                             .weight = (double)(next(s) % 3),
                                             .guaranteed_gpus = (double)(next(s) % 3),
                                             .max_gpus = (double)(next(s) % 4) - 1,
                                             .lending_limit = (double)(next(s) % 4) - 1,
                                             .max_running_jobs = (uint32_t)(next(s) % 4),
                                             .usage_ns = (double)(next(s) % 1000) * 1e9};
    for (size_t n = next(s) % 60; n > 0; n--) {
        struct snap_request *r = add_request(w, (uint32_t)(next(s) % W_MODELS));

        r->tenant = (uint32_t)(next(s) % W_TENANTS);
        r->is_modest = r->tenant == 0;
        r->state = next(s) % 2 ? SNAP_READY : SNAP_OPEN;
        r->exec = w->in.n_execs && next(s) % 2 ? (uint32_t)(next(s) % w->in.n_execs) : SNAP_NONE;
        r->batch = 1 + (uint32_t)(next(s) % w->models[r->model].max_batch);
        r->priority = (int32_t)(next(s) % 3);
        if (next(s) % 2)
            r->deadline_ns = NOW - 20 * MS + (int64_t)(next(s) % 200) * MS;
        if (next(s) % 2)
            r->limit_ns = r->deadline_ns;
    }
    for (size_t n = next(s) % 20; n > 0; n--) {
        uint32_t t = (uint32_t)(next(s) % W_TENANTS);
        uint32_t e = w->in.n_execs ? (uint32_t)(next(s) % w->in.n_execs) : SNAP_NONE;

        if (e != SNAP_NONE && w->execs[e].job == SNAP_NONE && next(s) % 3 == 0)
            add_running(w, t, e, (int64_t)(next(s) % 60000))->state =
                next(s) % 4 ? SNAP_RUNNING : SNAP_STOPPING;
        else
            add_job(w, t)->priority = (int32_t)(next(s) % 3);
    }
}

static void check_run(const struct world *w, const struct decision *d, unsigned *used,
                      uint32_t *new_runs)
{
    const struct snap_request *head = &w->requests[d->request];
    uint32_t batch = 0;

    assert_true(d->exec < w->in.n_execs && w->execs[d->exec].up && d->n > 0);
    assert_true(w->places[head->model * w->in.n_execs + d->exec].ready);
    assert_true(w->execs[d->exec].n_runs + ++new_runs[d->exec] <= w->in.max_runs);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct snap_request *r = &w->requests[w->out.members[d->first + i]];

        assert_int_equal(used[r - w->requests]++, 0);
        assert_int_equal(r->state, SNAP_READY);
        assert_int_equal(r->model, head->model);
        assert_true(r->is_modest || !head->is_modest);
        assert_true(r->exec == SNAP_NONE || r->exec == d->exec);
        batch += r->batch;
    }
    assert_int_equal(batch, d->batch);
    assert_true(batch <= w->models[head->model].max_batch);
}

static void check_start(const struct world *w, const struct decision *d, uint32_t *slots)
{
    assert_true(w->in.db_up && d->exec < w->in.n_execs && w->execs[d->exec].up);
    assert_int_equal(w->execs[d->exec].job, SNAP_NONE);
    assert_int_equal(slots[d->exec]++, 0);
    assert_int_equal(w->jobs[d->job].state, SNAP_QUEUED);
}

static void check_tenants(const struct world *w)
{
    double held[W_TENANTS] = {0}, before[W_TENANTS] = {0};

    for (size_t i = 0; i < w->in.n_jobs; i++) {
        bool starts = about(w, DECISION_START, &w->jobs[i]) != NULL;

        before[w->jobs[i].tenant] += w->jobs[i].state != SNAP_QUEUED;
        held[w->jobs[i].tenant] += w->jobs[i].state != SNAP_QUEUED || starts;
    }
    for (size_t t = 0; t < W_TENANTS; t++) {
        const struct snap_tenant *x = &w->tenants[t];

        if (held[t] == before[t])
            continue; /* it may be above a limit that was lowered, but it gets nothing more */
        assert_true(x->active && held[t] <= x->max_running_jobs);
        assert_true(x->max_gpus < 0 || held[t] < x->max_gpus + 1);
    }
}

/* Who starts a job beyond its guarantee leaves free what others have reserved. */
static void check_reserved(const struct world *w)
{
    double n_free = 0, held[W_TENANTS] = {0}, keeps[W_TENANTS] = {0};
    bool starts[W_TENANTS] = {false};

    for (size_t e = 0; e < w->in.n_execs; e++)
        n_free += w->execs[e].up && !w->execs[e].slot_taken && w->execs[e].job == SNAP_NONE;
    for (size_t i = 0; i < w->in.n_jobs; i++) {
        bool started = about(w, DECISION_START, &w->jobs[i]) != NULL;

        held[w->jobs[i].tenant] += w->jobs[i].state != SNAP_QUEUED || started;
        keeps[w->jobs[i].tenant] += w->jobs[i].state == SNAP_RUNNING || started;
        starts[w->jobs[i].tenant] |= started;
        n_free -= started;
    }
    for (size_t t = 0; t < W_TENANTS; t++) {
        double others = 0;

        for (size_t o = 0; o < W_TENANTS; o++)
            if (o != t && w->tenants[o].active && w->tenants[o].lending_limit >= 0)
                others +=
                    fmax(w->tenants[o].guaranteed_gpus - w->tenants[o].lending_limit - held[o], 0);
        if (starts[t] && keeps[t] > ceil(w->tenants[t].guaranteed_gpus))
            assert_true(n_free >= others);
    }
}

static void check_shares(const struct world *w)
{
    double slots = 0, fair = 0;

    for (size_t e = 0; e < w->in.n_execs; e++)
        slots += w->execs[e].up;
    for (size_t t = 0; t < W_TENANTS; t++) {
        assert_true(w->out.shares[t].fair >= 0);
        assert_true(w->out.shares[t].fair <=
                    w->out.shares[t].running + w->out.shares[t].waiting + 1e-9);
        fair += w->out.shares[t].fair;
    }
    assert_true(fair <= slots + 1e-9);
}

static void decisions_never_exceed_a_limit(void **state)
{
    uint64_t seed = 20261121;
    struct world *w = malloc(sizeof(*w));

    (void)state;
    assert_non_null(w);
    for (int round = 0; round < 20000; round++) {
        unsigned used[W_REQUESTS] = {0}, said[W_JOBS] = {0};
        uint32_t new_runs[W_EXECS] = {0}, slots[W_EXECS] = {0};

        random_world(w, &seed);
        world_decide(w);
        for (size_t i = 0; i < w->out.n; i++) {
            const struct decision *d = &w->out.items[i];

            if (d->kind == DECISION_RUN)
                check_run(w, d, used, new_runs);
            else if (d->kind == DECISION_REFUSE)
                assert_int_equal(used[d->request]++, 0);
            else if (d->kind == DECISION_START)
                check_start(w, d, slots);
            else if (d->kind == DECISION_PLACE)
                assert_true(w->execs[d->exec].up);
            else if (d->kind == DECISION_SUSPEND)
                assert_true(w->in.now_ns - w->jobs[d->job].since_ns >= w->in.min_run_ns);
            if (d->kind >= DECISION_START)
                assert_int_equal(said[d->job]++, 0);
        }
        for (size_t i = 0; i < w->in.n_jobs; i++) /* every queued job starts or learns why not */
            assert_int_equal(w->jobs[i].state == SNAP_QUEUED && !said[i], 0);
        check_tenants(w);
        check_reserved(w);
        check_shares(w);
        decisions_fini(&w->out);
    }
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_free_executor_starts_the_oldest_job),
        cmocka_unit_test(a_higher_priority_starts_first),
        cmocka_unit_test(the_tenant_that_used_less_for_its_weight_starts_first),
        cmocka_unit_test(free_executors_are_shared_and_not_given_to_one_tenant),
        cmocka_unit_test(a_tenant_below_its_guarantee_goes_before_a_smaller_share),
        cmocka_unit_test(what_blocks_a_job_is_named),
        cmocka_unit_test(a_quota_counts_jobs_that_are_still_giving_up_their_slot),
        cmocka_unit_test(nothing_starts_on_an_executor_that_is_down_or_taken),
        cmocka_unit_test(a_smaller_share_takes_the_slot_only_after_the_minimum_run_time),
        cmocka_unit_test(a_share_that_is_smaller_by_little_takes_nothing),
        cmocka_unit_test(a_guarantee_takes_a_slot_from_who_has_more_than_its_own),
        cmocka_unit_test(of_one_tenant_the_lowest_priority_gives_way_and_then_the_youngest),
        cmocka_unit_test(a_tenant_within_its_guarantee_keeps_its_slot),
        cmocka_unit_test(a_higher_priority_of_the_same_tenant_takes_the_slot),
        cmocka_unit_test(a_job_that_starts_or_completes_is_not_suspended),
        cmocka_unit_test(the_order_of_those_that_wait_is_that_of_their_starts),
        cmocka_unit_test(a_fixed_job_is_no_victim_and_runs_within_the_guarantee_only),
        cmocka_unit_test(a_jobs_own_minimum_run_replaces_the_common_one),
        cmocka_unit_test(one_job_that_waits_suspends_one_job_and_not_another_while_that_stops),
        cmocka_unit_test(what_is_not_lent_stays_free_for_its_owner),
        cmocka_unit_test(without_a_lending_limit_all_of_an_idle_guarantee_is_lent),
        cmocka_unit_test(a_tenant_that_uses_its_guarantee_keeps_nothing_free),
        cmocka_unit_test(a_suspended_tenant_keeps_nothing_free),
        cmocka_unit_test(a_guarantee_takes_what_another_reserved_when_there_is_too_little_for_both),
        cmocka_unit_test(a_borrower_may_still_take_its_turn_of_another_borrowers_slot),
        cmocka_unit_test(a_fair_share_is_the_guarantee_and_the_rest_by_weight),
        cmocka_unit_test(fair_shares_respect_limits_and_shrink_with_the_executors),
        cmocka_unit_test(two_equal_tenants_take_turns_of_at_least_the_minimum_run),
        cmocka_unit_test(decisions_never_exceed_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
