/* test_jobpool.c - without it, the scheduler's thread could decide about jobs otherwise than by
 * looking at all of them: somebody would wait behind those that come later, or lose an executor to
 * who has no right to it, and only in a few of all worlds. */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o tests/unit/decide_scan.o */
#include "scheduler/decide/jobpool.h"
#include "tests/unit/decide_scan.h"
#include "tests/unit/sh_test.h"

#include <math.h>

#define MS INT64_C(1000000)
#define NOW (100000 * MS)
#define MIN_RUN (30000 * MS)
#define N_WORLDS 150000
#define N_LIVES 400 /* worlds in which things happen */
#define N_EVENTS 500
#define HALF_LIFE_S 20.0

struct world {
    struct snap_exec execs[SCAN_MAX];
    struct snap_tenant tenants[SCAN_MAX];
    struct snap_job jobs[SCAN_MAX];
    struct snapshot in;
    uint64_t seed;
};

static uint32_t below(struct world *w, uint32_t n)
{
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((w->seed >> 33) % n);
}

static bool one_in(struct world *w, uint32_t n)
{
    return below(w, n) == 0;
}

/* ------------------------------------------------------------------ worlds */

static void draw_exec(struct world *w, struct snap_exec *x)
{
    x->up = !one_in(w, 6);
    x->n_runs = below(w, 3);
    x->slot_taken = one_in(w, 10);
    x->pool_bytes = 10 * (1 + below(w, 3));
    x->unfit = one_in(w, 3) ? (1 + below(w, 7)) << 1 : 0;
}

static void draw_tenant(struct world *w, struct snap_tenant *t)
{
    *t = (struct snap_tenant){.active = !one_in(w, 12),
                              .weight = one_in(w, 8) ? 0 : 1 + below(w, 3),
                              .guaranteed_gpus = one_in(w, 2) ? 0 : below(w, 9) / 2.0,
                              .max_gpus = one_in(w, 5) ? below(w, 9) / 2.0 : -1,
                              .lending_limit = one_in(w, 2) ? below(w, 5) / 2.0 : -1,
                              .max_running_jobs = one_in(w, 5) ? below(w, 4) : 16,
                              .max_memory_bytes = one_in(w, 6) ? 15 : 0,
                              .usage_ns = one_in(w, 2) ? 0 : below(w, 9) * 15e9};
}

/* What may be of it in any state. */
static void draw_job(struct world *w, struct snap_job *j, int64_t id)
{
    *j = (struct snap_job){.id = id,
                           .line_us = below(w, 20),
                           .tenant = below(w, (uint32_t)w->in.n_tenants),
                           .level = one_in(w, 2) ? 0 : below(w, 3),
                           .exec = SNAP_NONE,
                           .priority = (int32_t)below(w, 3),
                           .queue_open = !one_in(w, 12),
                           .model_ready = !one_in(w, 12),
                           .is_fixed = one_in(w, 6),
                           .min_run_ns = one_in(w, 6) ? MIN_RUN / 2 : 0,
                           .version = one_in(w, 4) ? 1 + below(w, 3) : 0,
                           .need_bytes = one_in(w, 4) ? 5 * below(w, 8) : 0};
    if (one_in(w, 10))
        j->not_before_ns = w->in.now_ns + (int64_t)below(w, 9) * 1000 * MS;
    if (one_in(w, 4)) {
        j->array = 1 + below(w, 3);
        j->array_max = j->array;
    }
}

static void put_on(struct world *w, struct snap_job *j, uint32_t e)
{
    static const enum snap_job_state STATES[] = {SNAP_STARTING, SNAP_RUNNING, SNAP_RUNNING,
                                                 SNAP_RUNNING,  SNAP_RUNNING, SNAP_STOPPING};

    j->state = STATES[below(w, 6)];
    j->may_suspend = j->state == SNAP_RUNNING && !one_in(w, 8);
    j->since_ns = w->in.now_ns - (int64_t)below(w, 60) * 1000 * MS;
    j->loss_ns = below(w, 4);
    j->exec = e;
    w->execs[e].job = (uint32_t)(j - w->jobs);
}

static void world_draw(struct world *w, uint64_t seed)
{
    *w = (struct world){.seed = seed};
    w->in = (struct snapshot){.now_ns = NOW,
                              .db_up = !one_in(w, 40),
                              .with_jobs = true,
                              .min_run_ns = one_in(w, 10) ? 0 : MIN_RUN,
                              .execs = w->execs,
                              .n_execs = below(w, 9),
                              .tenants = w->tenants,
                              .n_tenants = 1 + below(w, 6),
                              .jobs = w->jobs,
                              .n_jobs = below(w, 30),
                              .n_arrays = 3};
    for (size_t e = 0; e < w->in.n_execs; e++) {
        w->execs[e].job = SNAP_NONE;
        draw_exec(w, &w->execs[e]);
    }
    for (size_t t = 0; t < w->in.n_tenants; t++)
        draw_tenant(w, &w->tenants[t]);
    for (size_t i = 0; i < w->in.n_jobs; i++) {
        const uint32_t e = w->in.n_execs ? below(w, (uint32_t)w->in.n_execs) : 0;

        draw_job(w, &w->jobs[i], 1000 - (int64_t)i);
        if (w->in.n_execs && w->execs[e].job == SNAP_NONE && one_in(w, 3))
            put_on(w, &w->jobs[i], e);
        else if (one_in(w, 15))
            w->jobs[i].state = SNAP_LEFT;
    }
}

/* ------------------------------------------------------------------ the decision of a snapshot */

static uint64_t n_started, n_stopped, n_waits[DECIDE_N_REASONS];

static void compare_one(const struct world *w, const struct scan *want, const struct decisions *got)
{
    size_t n_start = 0, n_stop = 0, n_wait = 0;

    for (size_t i = 0; i < got->n; i++) {
        const struct decision *d = &got->items[i];

        if (d->kind == DECISION_START) {
            assert_true(n_start < want->n_started);
            assert_int_equal(d->job, want->started[n_start]);
            assert_int_equal(d->exec, want->start_exec[n_start++]);
        } else if (d->kind == DECISION_SUSPEND) {
            assert_true(n_stop < want->n_stopped);
            assert_int_equal(d->job, want->stopped[n_stop]);
            assert_int_equal(d->reason, want->stop_why[n_stop++]);
        } else if (d->reason != want->wait[d->job]) {
            fail_msg("job %u of %zu: it waits for %s, and not for %s", d->job, w->in.n_jobs,
                     decide_reason_name(d->reason), decide_reason_name(want->wait[d->job]));
        } else {
            n_wait++;
            n_waits[d->reason]++;
        }
    }
    assert_int_equal(n_start, want->n_started);
    assert_int_equal(n_stop, want->n_stopped);
    for (size_t i = 0; i < w->in.n_jobs; i++)
        n_wait -= w->jobs[i].state == SNAP_QUEUED && want->taken[i] != SCAN_STARTS;
    assert_int_equal(n_wait, 0);
    n_started += n_start;
    n_stopped += n_stop;
}

static void what_is_decided_is_what_a_look_at_everything_decides(void **state)
{
    static struct world w;
    static struct scan scan;
    struct decisions out = {0};
    struct sh_err err = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= N_WORLDS; seed++) {
        world_draw(&w, seed * 2654435761u);
        assert_ok_err(decide(&w.in, &out, &err), &err);
        scan_decide(&scan, &w.in);
        compare_one(&w, &scan, &out);
    }
    decisions_fini(&out);
    print_message("%d worlds: %llu starts, %llu suspensions\n", N_WORLDS,
                  (unsigned long long)n_started, (unsigned long long)n_stopped);
    assert_true(n_started > N_WORLDS / 4 && n_stopped > N_WORLDS / 40);
    for (int r = DECIDE_RESOURCES; r < DECIDE_N_REASONS; r++) /* all that a job can wait for */
        assert_true(n_waits[r] > 50 || r == DECIDE_FAIR_SHARE || r == DECIDE_THRASHING ||
                    r == DECIDE_GANG || r == DECIDE_TOO_FEW_GPUS);
}

/* ------------------------------------------------------------------ a pool that lasts */

#define L_EXECS 8
#define L_TENANTS 6
#define L_JOBS 40

struct life {
    struct world w; /* what a look at everything sees: only the jobs that are there */
    struct snap_job jobs[L_JOBS];
    bool is_there[L_JOBS];
    double usage_ns[L_TENANTS];
    int64_t usage_at_ns[L_TENANTS], last_id;

    struct jobpool q;
    struct jobpool_slot slots[L_EXECS];
    struct jobpool_tenant tenants[L_TENANTS];
    struct jobpool_job pooled[L_JOBS];
};

static double halvings(int64_t ns)
{
    return (double)ns / 1e9 / HALF_LIFE_S;
}

static void set_slot(struct life *l, uint32_t e)
{
    const struct snap_exec *x = &l->w.execs[e];
    const struct jobpool_slot_facts f = {.index = e,
                                         .n_runs = x->n_runs,
                                         .pool_bytes = x->pool_bytes,
                                         .is_up = x->up,
                                         .is_taken = x->slot_taken || x->job != SNAP_NONE};

    jobpool_set_slot(&l->q, &l->slots[e], &f);
}

static void set_tenant(struct life *l, uint32_t t)
{
    struct snap_tenant f = l->w.tenants[t];

    f.usage_ns = l->usage_ns[t] * exp2(halvings(l->usage_at_ns[t] - NOW));
    jobpool_set_tenant(&l->q, &l->tenants[t], &f);
}

static void set_job(struct life *l, size_t i)
{
    const struct snap_job *j = &l->jobs[i];
    struct jobpool_job_facts f = {.is = *j, .tenant = &l->tenants[j->tenant], .array = j->array};
    struct sh_err err = {0};

    f.is_on_exec = j->exec != SNAP_NONE && l->w.execs[j->exec].up;
    f.exec_bytes = f.is_on_exec ? l->w.execs[j->exec].pool_bytes : 0;
    f.on = f.is_on_exec ? &l->slots[j->exec] : NULL;
    if (l->is_there[i])
        assert_ok_err(jobpool_set_job(&l->q, &l->pooled[i], &f, &err), &err);
    else
        jobpool_del_job(&l->q, &l->pooled[i]);
}

static void leave_exec(struct life *l, size_t i)
{
    const uint32_t e = l->jobs[i].exec;

    l->jobs[i].exec = SNAP_NONE;
    if (e == SNAP_NONE)
        return;
    l->w.execs[e].job = SNAP_NONE;
    set_slot(l, e);
}

static void change_job(struct life *l, size_t i)
{
    struct snap_job *j = &l->jobs[i], fresh;

    if (!l->is_there[i]) {
        l->is_there[i] = true;
        draw_job(&l->w, j, ++l->last_id);
    } else if (j->state == SNAP_QUEUED) {
        draw_job(&l->w, &fresh, j->id);
        fresh.tenant = j->tenant;
        *j = fresh;
        l->is_there[i] = !one_in(&l->w, 3);
    } else if (j->state == SNAP_STARTING && !one_in(&l->w, 3)) {
        j->state = SNAP_RUNNING;
        j->may_suspend = true;
        j->since_ns = l->w.in.now_ns;
        j->loss_ns = below(&l->w, 4);
    } else if (j->state == SNAP_LEFT) {
        l->is_there[i] = false;
    } else if (j->state == SNAP_RUNNING && one_in(&l->w, 3)) {
        j->may_suspend = !j->may_suspend;
    } else if (j->state == SNAP_RUNNING && one_in(&l->w, 3)) {
        j->loss_ns = below(&l->w, 4);
    } else if (j->state == SNAP_RUNNING && one_in(&l->w, 3)) {
        j->level++;
        j->line_us += below(&l->w, 20);
    } else { /* it ends, or waits again */
        j->state = one_in(&l->w, 2) ? SNAP_LEFT : SNAP_QUEUED;
        j->line_us = 20;
        j->loss_ns = 0;
        leave_exec(l, i);
    }
    set_job(l, i);
}

static void change_exec(struct life *l, uint32_t e)
{
    struct snap_exec *x = &l->w.execs[e];

    draw_exec(&l->w, x);
    set_slot(l, e);
    for (size_t i = 0; i < L_JOBS; i++)
        if (l->is_there[i] && l->jobs[i].exec == e)
            set_job(l, i);
}

static void charge_tenant(struct life *l, uint32_t t)
{
    const int64_t now = l->w.in.now_ns;

    l->usage_ns[t] =
        l->usage_ns[t] * exp2(halvings(l->usage_at_ns[t] - now)) + 1e6 * (1 + below(&l->w, 60000));
    l->usage_at_ns[t] = now;
    set_tenant(l, t);
}

static void something_happens(struct life *l)
{
    const uint32_t t = below(&l->w, L_TENANTS);

    switch (below(&l->w, 12)) {
    case 0:
        change_exec(l, below(&l->w, L_EXECS));
        break;
    case 1:
        if (one_in(&l->w, 4)) {
            draw_tenant(&l->w, &l->w.tenants[t]);
            set_tenant(l, t);
        }
        break;
    case 2:
        charge_tenant(l, t);
        break;
    case 3:
    case 4:
        l->w.in.now_ns += below(&l->w, 5000) * MS;
        break;
    default:
        change_job(l, below(&l->w, L_JOBS));
    }
}

/* w.in: what there is now; index[]: of the jobs in it. */
static void look_at_all(struct life *l, size_t index[])
{
    struct snapshot *in = &l->w.in;

    in->n_jobs = 0;
    for (size_t i = 0; i < L_JOBS; i++) {
        if (!l->is_there[i])
            continue;
        index[in->n_jobs] = i;
        l->w.jobs[in->n_jobs] = l->jobs[i];
        if (l->jobs[i].exec != SNAP_NONE && !l->w.execs[l->jobs[i].exec].up)
            l->w.jobs[in->n_jobs].exec = SNAP_NONE;
        in->n_jobs++;
    }
    for (size_t t = 0; t < L_TENANTS; t++)
        l->w.tenants[t].usage_ns = l->usage_ns[t] * exp2(halvings(l->usage_at_ns[t] - in->now_ns));
}

static void compare_all(struct life *l, const struct scan *want, const size_t index[])
{
    const struct jobpool *q = &l->q;
    size_t n = 0;

    for (const struct jobpool_job *j = q->started; j; j = j->next_moved, n++) {
        assert_true(n < want->n_started);
        assert_int_equal(j - l->pooled, index[want->started[n]]);
        assert_int_equal(j->slot - l->slots, want->start_exec[n]);
    }
    assert_int_equal(n, want->n_started);
    n = 0;
    for (const struct jobpool_job *j = q->stopped; j; j = j->next_moved, n++) {
        assert_true(n < want->n_stopped);
        assert_int_equal(j - l->pooled, index[want->stopped[n]]);
        assert_int_equal(j->why, want->stop_why[n]);
        assert_int_not_equal(j->why, DECIDE_NONE);
    }
    assert_int_equal(n, want->n_stopped);
    for (size_t i = 0; i < l->w.in.n_jobs; i++)
        if (l->w.jobs[i].state == SNAP_QUEUED && want->taken[i] != SCAN_STARTS) {
            assert_int_equal(jobpool_why(q, &l->pooled[index[i]]), want->wait[i]);
            assert_int_not_equal(want->wait[i], DECIDE_NONE);
        }
}

/* What was decided is done, unless that fails. */
static void do_it(struct life *l, const struct scan *done, const size_t index[])
{
    for (size_t k = 0; k < done->n_started; k++) {
        const size_t i = index[done->started[k]];

        if (!one_in(&l->w, 20)) {
            l->jobs[i].state = SNAP_STARTING;
            l->jobs[i].exec = done->start_exec[k];
            l->w.execs[done->start_exec[k]].job = (uint32_t)i;
        }
        set_job(l, i);
        set_slot(l, done->start_exec[k]);
        n_started++;
    }
    for (size_t k = 0; k < done->n_stopped; k++) {
        const size_t i = index[done->stopped[k]];

        if (!one_in(&l->w, 20))
            l->jobs[i].state = SNAP_STOPPING;
        set_job(l, i);
        n_stopped++;
    }
}

static bool fits(const void *arg, uint64_t version, const struct jobpool_slot *x)
{
    const struct life *l = arg;

    return !(l->w.execs[x - l->slots].unfit >> version & 1);
}

static void life_begin(struct life *l, uint64_t seed)
{
    *l = (struct life){
        .w.seed = seed, .q.min_run_ns = MIN_RUN / 10, .q.fits = fits, .q.fits_arg = l};
    l->w.in = (struct snapshot){.now_ns = NOW,
                                .db_up = true,
                                .min_run_ns = MIN_RUN / 10,
                                .execs = l->w.execs,
                                .n_execs = L_EXECS,
                                .tenants = l->w.tenants,
                                .n_tenants = L_TENANTS,
                                .jobs = l->w.jobs,
                                .n_arrays = 3};
    for (uint32_t e = 0; e < L_EXECS; e++) {
        l->w.execs[e].job = SNAP_NONE;
        draw_exec(&l->w, &l->w.execs[e]);
        set_slot(l, e);
    }
    for (uint32_t t = 0; t < L_TENANTS; t++) {
        draw_tenant(&l->w, &l->w.tenants[t]);
        set_tenant(l, t);
    }
}

static void a_pool_that_lasts_decides_as_one_that_is_new(void **state)
{
    static struct life l;
    static struct scan scan;
    size_t index[L_JOBS];

    (void)state;
    n_started = n_stopped = 0;
    for (uint64_t seed = 1; seed <= N_LIVES; seed++) {
        life_begin(&l, seed * 2654435761u);
        for (int i = 0; i < N_EVENTS; i++) {
            something_happens(&l);
            look_at_all(&l, index);
            l.w.in.db_up = !one_in(&l.w, 40);
            scan_decide(&scan, &l.w.in);
            jobpool_begin(&l.q, &(struct jobpool_now){l.w.in.now_ns, l.w.in.db_up,
                                                      exp2(halvings(NOW - l.w.in.now_ns))});
            jobpool_decide(&l.q);
            jobpool_look(&l.q, L_EXECS);
            compare_all(&l, &scan, index);
            jobpool_end(&l.q);
            do_it(&l, &scan, index);
        }
        for (size_t i = 0; i < L_JOBS; i++)
            jobpool_del_job(&l.q, &l.pooled[i]);
        for (size_t t = 0; t < L_TENANTS; t++) {
            assert_int_equal(l.tenants[t].n_jobs, 0);
            assert_null(l.tenants[t].groups.root);
        }
        assert_int_equal(l.q.arrays.n, 0);
        jobpool_fini(&l.q);
    }
    print_message("%d events: %llu starts, %llu suspensions\n", N_LIVES * N_EVENTS,
                  (unsigned long long)n_started, (unsigned long long)n_stopped);
    assert_true(n_started > N_LIVES * 25 && n_stopped > N_LIVES * 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_that_lasts_decides_as_one_that_is_new),
        cmocka_unit_test(what_is_decided_is_what_a_look_at_everything_decides),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
