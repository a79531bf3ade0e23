/* test_decide_gangs.c - without it, a job of several GPUs could start with some of them, take more
 * than its tenant's quota or what another one is guaranteed, wait for ever behind jobs of one GPU
 * or keep them waiting for ever, or start later than its reservation said because others were let
 * past it. */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o */
#include "common/mem.h"
#include "scheduler/decide/jobpool.h"
#include "tests/unit/decide_world.h"

#include <math.h>

#define S (1000 * MS)

/* ------------------------------------------------------------------ small worlds */

static struct snap_job *add_gang(struct world *w, uint32_t tenant, uint32_t gpus)
{
    struct snap_job *j = add_job(w, tenant);

    j->gpus = gpus;
    return j;
}

static struct snap_job *add_running_gang(struct world *w, uint32_t tenant, uint32_t from,
                                         uint32_t gpus, int64_t for_ms)
{
    struct snap_job *j = add_running(w, tenant, from, for_ms);

    j->gpus = gpus;
    for (uint32_t e = from; e < from + gpus; e++)
        w->execs[e].job = (uint32_t)(j - w->jobs);
    return j;
}

static void a_gang_starts_with_all_its_executors_at_once(void **state)
{
    static struct world w;
    const struct decision *d;

    (void)state;
    world_init(&w, 4);
    add_running(&w, 1, 2, 1000);
    add_gang(&w, 0, 3);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 1);
    d = nth(&w, DECISION_START, 0);
    assert_int_equal(d->n, 3);
    assert_int_equal(w.out.members[d->first], 0);
    assert_int_equal(w.out.members[d->first + 1], 1);
    assert_int_equal(w.out.members[d->first + 2], 3);
    decisions_fini(&w.out);
}

static void a_gang_that_has_not_all_waits_and_says_why(void **state)
{
    static struct world w;
    struct snap_job *gang, *wide;

    (void)state;
    world_init(&w, 4);
    add_running(&w, 1, 0, 1000)->is_fixed = true;
    add_running(&w, 1, 1, 1000)->is_fixed = true;
    gang = add_gang(&w, 0, 3);
    wide = add_gang(&w, 0, 5);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 0);
    assert_int_equal(about(&w, DECISION_WAIT, gang)->reason, DECIDE_RESOURCES);
    assert_int_equal(about(&w, DECISION_WAIT, wide)->reason, DECIDE_TOO_FEW_GPUS);
    decisions_fini(&w.out);
}

/* Who may go past a gang of 3 that waits for the end of another job in 100 s, on one of two free
 * executors? */
static const struct decision *past_a_gang(struct world *w, bool is_fixed, int64_t lasts_s,
                                          int64_t min_run_s)
{
    struct snap_job *j;

    decisions_fini(&w->out);
    world_init(w, 4);
    for (uint32_t e = 0; e < 2; e++) {
        j = add_running(w, 1, e, 1000);
        j->is_fixed = true;
        j->lasts_ns = NOW - j->since_ns + (int64_t)(e ? 500 : 100) * S;
    }
    w->tenants[0].guaranteed_gpus = 8;
    add_gang(w, 0, 3);
    j = add_job(w, 0);
    j->is_fixed = is_fixed;
    j->lasts_ns = lasts_s * S;
    j->min_run_ns = min_run_s * S;
    world_decide(w);
    return about(w, DECISION_START, j);
}

static void others_go_past_a_gang_only_if_they_are_off_in_time(void **state)
{
    static struct world w;

    (void)state;
    assert_non_null(past_a_gang(&w, true, 99, 30));
    assert_null(past_a_gang(&w, true, 101, 30));
    assert_null(past_a_gang(&w, true, 0, 30)); /* nobody knows */
    assert_non_null(past_a_gang(&w, false, 0, 30));
    assert_null(past_a_gang(&w, false, 0, 101)); /* it would have to be left its minimum run */
    assert_int_equal(about(&w, DECISION_WAIT, &w.jobs[3])->reason, DECIDE_GANG);
    decisions_fini(&w.out);
}

static void those_that_fill_give_way_at_once_and_only_all_that_are_needed(void **state)
{
    static struct world w;
    struct snap_job *a, *b;

    (void)state;
    world_init(&w, 4);
    a = add_running(&w, 1, 0, 1);
    b = add_running(&w, 1, 1, 5);
    a->fills = b->fills = true;
    add_running(&w, 1, 2, 1);
    w.tenants[1].usage_ns = 1e9; /* it is behind in the order, and far from a margin */
    add_gang(&w, 0, 2);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 1); /* one is free; the last one goes first */
    assert_int_equal(about(&w, DECISION_SUSPEND, a)->reason, DECIDE_GANG);
    b->since_ns = a->since_ns; /* of two that started together, the one that loses least */
    a->loss_ns = 200 * MS;
    b->loss_ns = 100 * MS;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 1);
    assert_int_equal(about(&w, DECISION_SUSPEND, b)->reason, DECIDE_GANG);
    w.jobs[3].gpus = 4; /* not all would be there: nobody gives way */
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    decisions_fini(&w.out);
}

static void a_gang_is_stopped_as_one_and_only_by_those_that_have_less_without_it(void **state)
{
    static struct world w;
    struct snap_job *gang;

    (void)state;
    world_init(&w, 4);
    gang = add_running_gang(&w, 1, 0, 4, 100000);
    w.tenants[1].usage_ns = 1e15;
    add_job(&w, 0);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 1);
    assert_non_null(about(&w, DECISION_SUSPEND, gang));
    w.tenants[1].guaranteed_gpus = 1;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0); /* its tenant would be below its guarantee */
    decisions_fini(&w.out);
}

static void quotas_count_the_executors_of_a_gang(void **state)
{
    static struct world w;
    struct snap_job *gang, *behind, *never;

    (void)state;
    world_init(&w, 4);
    w.tenants[0].max_gpus = 2;
    add_running(&w, 0, 0, 1000);
    never = add_gang(&w, 0, 3);
    gang = add_gang(&w, 0, 2);
    behind = add_job(&w, 0);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 0); /* or the gang would wait for ever */
    assert_int_equal(about(&w, DECISION_WAIT, never)->reason, DECIDE_QUOTA_LIMIT);
    assert_int_equal(about(&w, DECISION_WAIT, gang)->reason, DECIDE_QUOTA_LIMIT);
    assert_non_null(about(&w, DECISION_WAIT, behind));
    w.in.jobs = w.jobs + 1; /* the one that ran is over */
    w.in.n_jobs--;
    for (int e = 0; e < 4; e++)
        w.execs[e].job = SNAP_NONE;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 1);
    assert_int_equal(nth(&w, DECISION_START, 0)->n, 2);
    decisions_fini(&w.out);
}

static void the_quota_of_a_gang_that_waits_is_kept_for_it_as_well(void **state)
{
    static struct world w;
    struct snap_job *own, *other;

    (void)state;
    world_init(&w, 4);
    add_running(&w, 1, 0, 1000)->is_fixed = true;
    add_running(&w, 1, 1, 1000)->is_fixed = true;
    w.tenants[0].max_gpus = 3;
    add_gang(&w, 0, 3);
    own = add_job(&w, 0);
    other = add_job(&w, 2);
    w.tenants[2].usage_ns = 1e9; /* behind both */
    world_decide(&w);
    assert_null(about(&w, DECISION_START, own));
    assert_non_null(about(&w, DECISION_START, other));
    decisions_fini(&w.out);
}

/* ------------------------------------------------------------------ worlds in which time passes */

#define N_LIVES 30
#define L_SLOTS 12
#define L_TENANTS 4
#define L_JOBS 120
#define ARRIVE_S 1500
#define END_S 400000

enum phase { COMES, WAITS, RUNS, STOPS, OVER };

struct run {
    enum phase phase;
    int64_t at_s, needs_s, since_s, promised_s; /* promised: the first reservation; -1: none */
    struct snap_job is;
    struct jobpool_job pooled;
};

struct life {
    uint64_t seed, digest;
    int64_t now_s;
    bool is_exact, is_one_line; /* ends are known; one tenant, whose gang comes first */
    size_t n_tenants, n_over, n_filled, n_gangs, n_stopped;
    struct jobpool q;
    struct jobpool_slot slots[L_SLOTS];
    uint32_t holder[L_SLOTS];
    struct jobpool_tenant tenants[L_TENANTS];
    struct snap_tenant rules[L_TENANTS];
    struct run jobs[L_JOBS];
};

static uint32_t below(struct life *l, uint32_t n)
{
    l->seed = l->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((l->seed >> 33) % n);
}

static uint32_t width(const struct run *r)
{
    return SH_MAX(r->is.gpus, 1u);
}

static void set_slot(struct life *l, uint32_t e)
{
    jobpool_set_slot(
        &l->q, &l->slots[e],
        &(struct jobpool_slot_facts){
            .index = e, .pool_bytes = 1, .is_up = true, .is_taken = l->holder[e] != SNAP_NONE});
}

static void set_job(struct life *l, uint32_t i)
{
    static const enum snap_job_state STATES[] = {
        [WAITS] = SNAP_QUEUED, [RUNS] = SNAP_RUNNING, [STOPS] = SNAP_STOPPING};
    struct run *r = &l->jobs[i];
    struct sh_err err = {0};
    struct jobpool_job_facts f = {.is = r->is,
                                  .tenant = &l->tenants[r->is.tenant],
                                  .is_on_exec = r->phase != WAITS,
                                  .exec_bytes = r->phase != WAITS};

    f.is.state = STATES[r->phase];
    f.is.since_ns = r->phase == WAITS ? 0 : r->since_s * S;
    f.is.may_suspend = r->phase == RUNS;
    f.is.fills = r->is.fills && r->phase != WAITS;
    f.is.lasts_ns = l->is_exact ? r->needs_s * S : 0;
    assert_ok_err(jobpool_set_job(&l->q, &r->pooled, &f, &err), &err);
}

static void let_go(struct life *l, uint32_t i)
{
    uint32_t n = 0;

    for (uint32_t e = 0; e < L_SLOTS; e++) {
        if (l->holder[e] != i)
            continue;
        l->holder[e] = SNAP_NONE;
        set_slot(l, e);
        n++;
    }
    assert_int_equal(n, width(&l->jobs[i]));
}

/* What its quota and the guarantees that others do not lend leave: more would wait for ever. */
static uint32_t most_gpus(const struct life *l, uint32_t tenant)
{
    double most = L_SLOTS;

    for (uint32_t t = 0; t < l->n_tenants; t++)
        if (t != tenant && l->rules[t].lending_limit >= 0)
            most -= fmax(l->rules[t].guaranteed_gpus - l->rules[t].lending_limit, 0);
    if (l->rules[tenant].max_gpus >= 0)
        most = fmin(most, l->rules[tenant].max_gpus);
    return (uint32_t)fmax(most, 1);
}

static void draw_life(struct life *l, uint64_t seed, bool is_one_line)
{
    *l = (struct life){.seed = seed, .is_one_line = is_one_line};
    l->is_exact = is_one_line || below(l, 2);
    l->n_tenants = is_one_line ? 1 : 1 + below(l, L_TENANTS);
    l->q.min_run_ns = 30 * S;
    for (size_t t = 0; t < l->n_tenants; t++) {
        l->rules[t] = (struct snap_tenant){.active = true,
                                           .weight = 1 + below(l, 3),
                                           .guaranteed_gpus = below(l, 4),
                                           .max_gpus = -1,
                                           .lending_limit = -1,
                                           .max_running_jobs = 1000};
        if (!is_one_line && below(l, 3) == 0)
            l->rules[t].max_gpus = 4 + below(l, 9);
        if (!is_one_line && below(l, 3) == 0)
            l->rules[t].lending_limit = below(l, 3);
        if (!is_one_line && below(l, 3) == 0)
            l->rules[t].max_running_jobs = 1 + below(l, 9);
        if (is_one_line)
            l->rules[t].guaranteed_gpus = L_SLOTS;
        jobpool_set_tenant(&l->q, &l->tenants[t], &l->rules[t]);
    }
    for (uint32_t e = 0; e < L_SLOTS; e++) {
        l->holder[e] = SNAP_NONE;
        set_slot(l, e);
    }
    for (uint32_t i = 0; i < L_JOBS; i++) {
        struct run *r = &l->jobs[i];
        const uint32_t t = below(l, (uint32_t)l->n_tenants);
        const uint32_t most = most_gpus(l, t);

        r->at_s = below(l, ARRIVE_S);
        r->needs_s = 1 + below(l, below(l, 4) ? 200 : 3000);
        r->promised_s = -1;
        r->is = (struct snap_job){.id = i,
                                  .line_us = r->at_s,
                                  .tenant = t,
                                  .queue_open = true,
                                  .model_ready = true,
                                  .gpus = below(l, 3) ? 1 : 1 + below(l, most),
                                  .priority = is_one_line ? 0 : (int32_t)below(l, 2)};
        r->is.is_fixed = below(l, 5) == 0 && r->is.gpus <= l->rules[t].guaranteed_gpus;
        if (is_one_line && i == 0) { /* it finds others that run, and all that come go behind it */
            r->at_s = 300;
            r->is.gpus = 4 + below(l, 9);
            r->is.line_us = -1;
            r->is.is_fixed = false;
        } else if (is_one_line) {
            r->is.gpus = 1 + below(l, 3);
        }
    }
}

/* What was decided holds what the tenants are owed, and takes whole sets of free slots. */
static void check_start(struct life *l, const struct jobpool_job *j)
{
    const struct run *r = SH_TREE_OF(j, const struct run, pooled);
    const struct snap_tenant *t = &l->rules[r->is.tenant];
    uint32_t held = 0, fixed = 0, n_held = 0, n = 0;

    for (uint32_t i = 0; i < L_JOBS; i++) {
        const struct run *o = &l->jobs[i];

        if (o->is.tenant != r->is.tenant || (o->phase != RUNS && o->phase != STOPS))
            continue;
        held += width(o);
        fixed += o->is.is_fixed ? width(o) : 0;
        n_held++;
    }
    for (const struct jobpool_slot *x = j->slot; x; x = x->next, n++)
        assert_int_equal(l->holder[x - l->slots], SNAP_NONE);
    assert_int_equal(n, width(r));
    assert_int_equal(r->phase, WAITS);
    assert_true(t->max_gpus < 0 || held + n <= t->max_gpus);
    assert_true(n_held < t->max_running_jobs);
    assert_true(!r->is.is_fixed || fixed + n <= t->guaranteed_gpus);
}

static void check_stop(struct life *l, const struct jobpool_job *j)
{
    const struct run *r = SH_TREE_OF(j, const struct run, pooled);

    assert_int_equal(r->phase, RUNS);
    assert_false(r->is.is_fixed);
    if (j->why == DECIDE_FAIR_SHARE || j->why == DECIDE_QUOTA_GUARANTEED) {
        uint32_t running =
            0; /* with what is promised to a gang of it: slots that come or are free */

        for (uint32_t i = 0; i < L_JOBS; i++)
            if (l->jobs[i].phase == STOPS ||
                (l->jobs[i].phase == RUNS && l->jobs[i].is.tenant == r->is.tenant))
                running += width(&l->jobs[i]);
        for (uint32_t e = 0; e < L_SLOTS; e++)
            running += l->holder[e] == SNAP_NONE;
        assert_true(running >= width(r));
        assert_true(running - width(r) >= l->rules[r->is.tenant].guaranteed_gpus);
    }
}

static void act(struct life *l, struct jobpool_job *started, struct jobpool_job *stopped)
{
    struct jobpool_job *next;

    for (struct jobpool_job *j = started; j; j = next) {
        struct run *r = SH_TREE_OF(j, struct run, pooled);
        const uint32_t i = (uint32_t)(r - l->jobs);

        next = j->next_moved;
        check_start(l, j);
        for (struct jobpool_slot *x = j->slot; x; x = x->next) {
            l->holder[x - l->slots] = i;
            l->digest = (l->digest ^ (uint64_t)(x - l->slots)) * 1099511628211u;
        }
        r->phase = RUNS;
        r->since_s = l->now_s;
        r->is.fills = j->f.is.fills;
        l->n_filled += r->is.fills;
        l->n_gangs += width(r) > 1;
        l->digest = (l->digest ^ (uint64_t)(r->is.id * 2) ^ (uint64_t)l->now_s) * 1099511628211u;
        if (r->promised_s >= 0 && l->is_one_line && i == 0)
            assert_true(l->now_s <= r->promised_s + 1); /* and the second in which others stop */
    }
    for (struct jobpool_job *j = stopped; j; j = next) {
        struct run *r = SH_TREE_OF(j, struct run, pooled);

        next = j->next_moved;
        check_stop(l, j);
        r->phase = STOPS;
        r->needs_s -= l->now_s - r->since_s;
        r->since_s = l->now_s;
        l->n_stopped++;
        l->digest =
            (l->digest ^ (uint64_t)(r->is.id * 2 + 1) ^ (uint64_t)l->now_s) * 1099511628211u;
    }
    for (uint32_t e = 0; e < L_SLOTS; e++)
        set_slot(l, e);
    for (uint32_t i = 0; i < L_JOBS; i++)
        if (l->jobs[i].phase == RUNS || l->jobs[i].phase == STOPS)
            set_job(l, i);
}

static void second(struct life *l)
{
    for (uint32_t i = 0; i < L_JOBS; i++) {
        struct run *r = &l->jobs[i];

        if (r->phase == COMES && r->at_s <= l->now_s) {
            r->phase = WAITS;
            set_job(l, i);
        } else if (r->phase == RUNS && r->since_s + r->needs_s <= l->now_s) {
            let_go(l, i);
            r->phase = OVER;
            l->n_over++;
            jobpool_del_job(&l->q, &r->pooled);
        } else if (r->phase == STOPS) {
            let_go(l, i);
            r->phase = WAITS;
            set_job(l, i);
        }
        if (r->phase == RUNS && l->n_tenants > 1) {
            struct snap_tenant *t = &l->rules[r->is.tenant];

            t->usage_ns += width(r) * 1e9;
            jobpool_set_tenant(&l->q, &l->tenants[r->is.tenant], t);
        }
    }
}

static void live(struct life *l)
{
    for (l->now_s = 0; l->n_over < L_JOBS; l->now_s++) {
        struct jobpool *q = &l->q;
        struct jobpool_job *started, *stopped;

        if (l->now_s > END_S) {
            for (uint32_t i = 0; i < L_JOBS; i++)
                if (l->jobs[i].phase != OVER)
                    print_message("job %u of tenant %u waits for ever: %u GPUs, phase %d\n", i,
                                  l->jobs[i].is.tenant, width(&l->jobs[i]), l->jobs[i].phase);
            fail_msg("a job starves");
        }
        second(l);
        jobpool_begin(q, &(struct jobpool_now){l->now_s * S, true, 1});
        jobpool_decide(q);
        if (q->kept && q->kept_ns != SNAP_NEVER) {
            struct run *r = SH_TREE_OF(q->kept, struct run, pooled);

            if (r->promised_s < 0)
                r->promised_s = (q->kept_ns + S - 1) / S;
        }
        started = q->started;
        stopped = q->stopped;
        jobpool_end(q);
        act(l, started, stopped);
    }
    for (size_t t = 0; t < l->n_tenants; t++)
        jobpool_forget_tenant(&l->tenants[t]);
    jobpool_fini(&l->q);
}

static void
no_world_starves_a_job_or_goes_beyond_quotas_and_each_decides_the_same_again(void **state)
{
    static struct life l;
    size_t filled = 0, gangs = 0, stopped = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= N_LIVES; seed++) {
        uint64_t digest;

        draw_life(&l, seed, false);
        live(&l);
        digest = l.digest;
        draw_life(&l, seed, false);
        live(&l);
        assert_true(digest == l.digest);
        filled += l.n_filled;
        gangs += l.n_gangs;
        stopped += l.n_stopped;
    }
    print_message("%zu gangs, %zu filled, %zu stopped\n", gangs, filled, stopped);
    assert_true(filled > N_LIVES && gangs > 20 * N_LIVES && stopped > N_LIVES);
}

static void a_reservation_is_never_delayed_by_those_that_go_past_it(void **state)
{
    static struct life l;
    size_t filled = 0, promised = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 4 * N_LIVES; seed++) {
        draw_life(&l, seed, true);
        live(&l);
        filled += l.n_filled;
        promised += l.jobs[0].promised_s >= 0;
    }
    print_message("%zu reservations, %zu filled\n", promised, filled);
    assert_true(promised > N_LIVES && filled > 4 * N_LIVES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gang_starts_with_all_its_executors_at_once),
        cmocka_unit_test(a_gang_that_has_not_all_waits_and_says_why),
        cmocka_unit_test(others_go_past_a_gang_only_if_they_are_off_in_time),
        cmocka_unit_test(those_that_fill_give_way_at_once_and_only_all_that_are_needed),
        cmocka_unit_test(a_gang_is_stopped_as_one_and_only_by_those_that_have_less_without_it),
        cmocka_unit_test(quotas_count_the_executors_of_a_gang),
        cmocka_unit_test(the_quota_of_a_gang_that_waits_is_kept_for_it_as_well),
        cmocka_unit_test(
            no_world_starves_a_job_or_goes_beyond_quotas_and_each_decides_the_same_again),
        cmocka_unit_test(a_reservation_is_never_delayed_by_those_that_go_past_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
