/* test_placement.c - where versions live: chosen worlds, and random ones in which things happen.
 *
 * Without it: a version could have no home while one has room, an executor could be given more than
 * it holds, versions could be loaded here and there for ever, and a popular one could stay with its
 * one copy, or beside another popular one while a device idles. */
/* uses: scheduler/decide/placement.o */
#include "common/mem.h"
#include "scheduler/decide/placement.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)
#define SECOND INT64_C(1000000000)
#define GRACE (3 * SECOND)
#define MAX_EXECS 12u
#define MAX_VERSIONS 24u
#define N_WORLDS 300u
#define CALM 150u /* seconds after which nothing may move any more */

static struct world {
    struct placement p;
    struct place_exec x[MAX_EXECS];
    struct place_version v[MAX_VERSIONS];
    unsigned n_x, n_v, n_moves[PLACE_N_WHYS];
    bool refuses[MAX_VERSIONS][MAX_EXECS];
    int64_t now, comes_ns[MAX_VERSIONS][MAX_EXECS];
    int64_t takes_ns;             /* a load */
    unsigned lacks[MAX_VERSIONS]; /* a home that it could have, for so many seconds */
    uint64_t seed;
} w;

static bool takes(void *arg, const struct place_version *v, const struct place_exec *x)
{
    (void)arg;
    return !w.refuses[v - w.v][x->f.index];
}

static bool is_near(void *arg, const struct place_version *v, const struct place_exec *x)
{
    (void)arg;
    return w.comes_ns[v - w.v][x->f.index] > 0;
}

static void begin(unsigned n_x, unsigned n_v)
{
    w = (struct world){
        .p = {.takes = takes, .is_near = is_near, .grace_ns = GRACE},
        .n_x = n_x,
        .n_v = n_v,
        .now = 1000 * SECOND,
        .takes_ns = SECOND,
        .seed = w.seed,
    };
}

static int end(void **state)
{
    (void)state;
    for (unsigned i = 0; i < w.n_v; i++)
        placement_del_version(&w.p, &w.v[i]);
    for (unsigned i = 0; i < w.n_x; i++) {
        assert_int_equal(w.x[i].host_used, 0);
        assert_int_equal(w.x[i].device_used, 0);
        assert_int_equal(w.x[i].tenants.n, 0);
        assert_true(w.x[i].load < 1e-6);
        placement_del_exec(&w.p, &w.x[i]);
    }
    assert_int_equal(w.p.execs.n, 0);
    assert_int_equal(w.p.n_extra, 0);
    w.n_v = w.n_x = 0;
    return 0;
}

static void exec_is(unsigned i, bool is_up, uint64_t device, uint64_t host, double speed)
{
    const struct place_exec_facts f = {
        .is_up = is_up, .index = i, .device_bytes = device, .host_bytes = host, .speed = speed};

    placement_set_exec(&w.p, &w.x[i], &f, w.now);
}

static void version_is(unsigned i, uint64_t bytes, double load)
{
    const struct place_version_facts f = {.is_wanted = true,
                                          .tenant = 1,
                                          .tenant_host_bytes = UINT64_MAX / 2,
                                          .device_bytes = bytes,
                                          .host_bytes = bytes,
                                          .load = load,
                                          .most = 0.7,
                                          .min_copies = 1,
                                          .load_ns = w.takes_ns};

    placement_set_version(&w.v[i], &w.p, &f);
}

/* ------------------------------------------------------------------ time */

static void act(const struct place_move *m)
{
    const size_t v = (size_t)(m->version - w.v), x = m->exec->f.index;

    w.n_moves[m->why]++;
    if (!m->is_drop)
        w.comes_ns[v][x] = w.now + w.takes_ns;
}

static void look(unsigned v)
{
    struct place_move m;
    unsigned n = 0;

    while (placement_look(&w.p, &w.v[v], w.now, &m)) {
        assert_true(n++ < 50); /* it comes to an end */
        act(&m);
    }
}

static void finish_loads(void)
{
    for (unsigned v = 0; v < w.n_v; v++)
        for (size_t i = 0; i < w.v[v].n; i++) {
            struct place_home *h = &w.v[v].homes[i];

            if (!h->is_ready && h->exec->f.is_up && w.now >= w.comes_ns[v][h->exec->f.index])
                placement_tell(&w.p, &w.v[v], h->exec, true, false, w.now);
        }
}

static void second(void)
{
    w.now += SECOND;
    finish_loads();
    for (unsigned v = 0; v < w.n_v; v++)
        look(v);
}

static void seconds(unsigned n)
{
    while (n--)
        second();
}

static unsigned n_moves(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < PLACE_N_WHYS; i++)
        n += w.n_moves[i];
    return n;
}

static bool is_home(unsigned v, unsigned x)
{
    return placement_home(&w.v[v], &w.x[x]) != NULL;
}

/* ------------------------------------------------------------------ chosen worlds */

static void four(unsigned n_v)
{
    begin(4, n_v);
    for (unsigned i = 0; i < 4; i++)
        exec_is(i, true, 100 * MIB, 1000 * MIB, 1);
}

static void what_nobody_asks_for_is_packed_as_long_as_the_device_holds_it(void **state)
{
    (void)state;
    four(12);
    for (unsigned v = 0; v < 12; v++)
        version_is(v, 24 * MIB, 0);
    seconds(3);
    for (unsigned v = 0; v < 12; v++) {
        assert_int_equal(w.v[v].n, 1);
        assert_true(is_home(v, v / 4));
    }
    assert_int_equal(w.n_moves[PLACE_HOMELESS], 12);
}

static void popular_ones_part_and_come_together_no_more(void **state)
{
    (void)state;
    four(2);
    version_is(0, MIB, 0);
    version_is(1, MIB, 0);
    seconds(2);
    assert_true(is_home(0, 0) && is_home(1, 0));
    version_is(0, MIB, 0.5);
    version_is(1, MIB, 0.5);
    seconds(10);
    assert_int_equal(w.n_moves[PLACE_APART], 1);
    assert_int_equal(w.n_moves[PLACE_MOVED], 1);
    assert_int_equal(w.v[0].n + w.v[1].n, 2);
    assert_ptr_not_equal(w.v[0].homes[0].exec, w.v[1].homes[0].exec);
    version_is(0, MIB, 0.1);
    version_is(1, MIB, 0.1);
    seconds(100);
    assert_int_equal(n_moves(), 4); /* both are well where they are */
}

static void one_that_moves_serves_until_the_other_one_can(void **state)
{
    (void)state;
    four(2);
    w.takes_ns = 4 * SECOND;
    version_is(0, MIB, 0);
    version_is(1, MIB, 0);
    seconds(6);
    version_is(0, MIB, 0.5);
    version_is(1, MIB, 0.5);
    for (int i = 0; i < 12; i++) {
        second();
        for (unsigned v = 0; v < 2; v++) {
            unsigned ready = 0;

            for (size_t k = 0; k < w.v[v].n; k++)
                ready += w.v[v].homes[k].is_ready;
            assert_int_equal(ready, 1);
        }
    }
    assert_int_equal(w.n_moves[PLACE_MOVED], 1);
}

static void demand_brings_copies_and_their_end_takes_them_away(void **state)
{
    (void)state;
    four(1);
    version_is(0, MIB, 0);
    seconds(2);
    version_is(0, MIB, 2.4);
    seconds(8);
    assert_int_equal(w.v[0].n, 4);
    assert_true(w.x[3].load > 0.59 && w.x[3].load < 0.61);
    version_is(0, MIB, 0.5);
    seconds(4);
    assert_int_equal(w.v[0].n, 4); /* it may be back */
    seconds(40);
    assert_int_equal(w.v[0].n, 2); /* 0.5 is more than 0.6 of what one may bear */
    version_is(0, MIB, 0);
    seconds(20);
    assert_int_equal(w.v[0].n, 1);
}

static void a_copy_that_costs_more_than_it_saves_is_not_made(void **state)
{
    (void)state;
    four(1);
    version_is(0, MIB, 0);
    seconds(2);
    w.takes_ns = 600 * SECOND;
    version_is(0, MIB, 0.8);
    seconds(20);
    assert_int_equal(w.v[0].n, 1);
    w.takes_ns = SECOND;
    version_is(0, MIB, 0.8);
    seconds(4);
    assert_int_equal(w.v[0].n, 2);
}

static void a_target_leaves_less_of_a_device_to_its_runs(void **state)
{
    (void)state;
    assert_true(place_most(0, SECOND, 99) == place_most(1, 0, 99));
    assert_true(place_most(10, 1000, 99) == 0.7);
    assert_true(place_most(10, 40, 99) < 0.25); /* 1 - 4.6 / 6 */
    assert_true(place_most(10, 40, 90) > 0.6);
    assert_true(place_most(10, 9, 99) > 0);
}

static void faster_devices_bear_more(void **state)
{
    (void)state;
    begin(3, 1);
    exec_is(0, true, 100 * MIB, 0, 1);
    exec_is(1, true, 100 * MIB, 0, 1);
    exec_is(2, true, 100 * MIB, 0, 4);
    version_is(0, MIB, 2);
    seconds(20);
    assert_true(is_home(0, 2));
    assert_int_equal(w.v[0].n, 1);
}

static void the_end_of_an_executor_moves_what_is_asked_for_at_once(void **state)
{
    (void)state;
    four(3);
    version_is(0, MIB, 0.3);
    version_is(1, MIB, 0);
    version_is(2, MIB, 0);
    seconds(3);
    for (unsigned x = 0; x < 4; x++)
        if (is_home(0, x) || is_home(1, x) || is_home(2, x))
            exec_is(x, false, 100 * MIB, 1000 * MIB, 1);
    w.v[2].f.is_urgent = true;
    for (unsigned v = 0; v < 3; v++)
        look(v);
    assert_true(w.v[0].homes[w.v[0].n - 1].exec->f.is_up);
    assert_true(w.v[2].homes[w.v[2].n - 1].exec->f.is_up);
    assert_int_equal(w.v[1].n, 1); /* its home may be back */
    assert_false(w.v[1].homes[0].exec->f.is_up);
    w.now += GRACE;
    look(1);
    assert_int_equal(w.v[1].n, 1);
    assert_true(w.v[1].homes[0].exec->f.is_up);
}

static void what_fits_nowhere_goes_where_most_is_free(void **state)
{
    struct place_move m;

    (void)state;
    begin(2, 3);
    exec_is(0, true, 100 * MIB, 10 * MIB, 1);
    exec_is(1, true, 100 * MIB, 20 * MIB, 1);
    version_is(0, 9 * MIB, 0);
    version_is(1, 12 * MIB, 0);
    look(0);
    look(1);
    assert_true(is_home(0, 0) && is_home(1, 1));
    version_is(2, 9 * MIB, 0);
    assert_true(placement_look(&w.p, &w.v[2], w.now, &m));
    assert_true(m.is_over && m.exec == &w.x[1]);
    placement_tell(&w.p, &w.v[1], &w.x[1], false, true, w.now); /* it has made room */
    assert_int_equal(w.x[1].host_used, 9 * MIB);
}

static void a_job_keeps_a_home_and_a_failure_ends_a_move(void **state)
{
    (void)state;
    four(2);
    version_is(0, MIB, 0);
    version_is(1, MIB, 0);
    seconds(2);
    w.v[0].homes[0].is_held = w.v[1].homes[0].is_held = true;
    version_is(0, MIB, 0.6);
    version_is(1, MIB, 0.6);
    seconds(5);
    assert_int_equal(n_moves(), 2);
    w.v[0].homes[0].is_held = false;
    w.now += SECOND;
    look(0);
    assert_int_equal(w.v[0].n, 2);
    placement_take(&w.p, &w.v[0], w.v[0].homes[1].exec);
    assert_false(w.v[0].homes[0].leaves);
    assert_true(w.x[0].load > 1.1);
    seconds(5);
    assert_int_equal(w.n_moves[PLACE_MOVED], 1);
}

static void a_move_ends_when_the_old_home_is_held_no_more(void **state)
{
    unsigned moved = 0;

    (void)state;
    four(2);
    version_is(0, MIB, 0);
    version_is(1, MIB, 0);
    seconds(2);
    version_is(0, MIB, 0.6);
    version_is(1, MIB, 0.6);
    look(0);
    look(1);
    assert_int_equal(w.n_moves[PLACE_APART], 1);
    moved = w.v[1].n == 2;
    placement_home(&w.v[moved], &w.x[0])->is_held = true; /* since it began */
    seconds(20);
    assert_int_equal(w.v[moved].n, 2);
    assert_int_equal(w.n_moves[PLACE_APART], 1);
    placement_home(&w.v[moved], &w.x[0])->is_held = false;
    look(moved);
    assert_false(is_home(moved, 0));
    assert_int_equal(w.v[moved].n, 1);
    assert_int_equal(w.n_moves[PLACE_MOVED], 1);
}

/* ------------------------------------------------------------------ random worlds */

static unsigned below(unsigned n)
{
    w.seed = w.seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((w.seed >> 33) % n);
}

static void draw_version(unsigned i)
{
    const double loads[] = {0, 0, 0, 0.001, 0.02, 0.1, 0.3, 0.6, 0.9, 1.5, 3, 8};
    const uint64_t bytes = (1 + below(60)) * MIB;
    const struct place_version_facts f = {
        .is_wanted = below(20) > 0,
        .is_urgent = below(8) == 0,
        .is_pinned = below(12) == 0,
        .tenant = 1 + below(3),
        .tenant_host_bytes = below(4) ? 0 : (20 + below(200)) * MIB,
        .device_bytes = bytes,
        .host_bytes = below(3) ? bytes + below(20) * MIB : bytes,
        .load = loads[below(SH_ARRAY_LEN(loads))],
        .most = 0.2 + 0.05 * below(11),
        .min_copies = below(6) ? 1 : 1 + below(4),
        .load_ns = (1 + below(8)) * SECOND,
    };

    placement_set_version(&w.v[i], &w.p, &f);
}

static void draw_exec(unsigned i)
{
    const uint64_t host[] = {0, 60, 150, 400, 2000};
    const double speed[] = {1, 1, 1, 0.5, 2};

    exec_is(i, below(8) > 0, (50 + below(200)) * MIB, host[below(SH_ARRAY_LEN(host))] * MIB,
            speed[below(SH_ARRAY_LEN(speed))]);
}

static uint64_t host_sum(unsigned x, uint64_t tenant)
{
    uint64_t n = 0;

    for (unsigned v = 0; v < w.n_v; v++)
        if (is_home(v, x) && (!tenant || w.v[v].f.tenant == tenant))
            n += w.v[v].f.host_bytes;
    return n;
}

static bool fits(unsigned v, unsigned x)
{
    const struct place_exec *e = &w.x[x];
    const struct place_version_facts *f = &w.v[v].f;
    const uint64_t most = f->tenant_host_bytes ? f->tenant_host_bytes : e->f.host_bytes / 2;

    return e->f.is_up && !w.refuses[v][x] && f->device_bytes <= e->f.device_bytes &&
           (!e->f.host_bytes || host_sum(x, 0) + w.v[v].f.host_bytes <= e->f.host_bytes) &&
           (!most || host_sum(x, f->tenant) + w.v[v].f.host_bytes <= most) &&
           (!f->is_pinned || e->device_used + f->device_bytes <= e->f.device_bytes);
}

/* What must hold of a move, just before it is made known to the model of the world above. */
static void check_move(const struct place_move *m)
{
    const unsigned v = (unsigned)(m->version - w.v), x = m->exec->f.index;
    bool anywhere = false;

    if (m->is_drop)
        return;
    /* It is noted already. */
    if (m->is_over) {
        for (unsigned i = 0; i < w.n_x; i++)
            anywhere |= i != x && fits(v, i);
        assert_false(anywhere);
        return;
    }
    assert_true(m->exec->f.is_up && !w.refuses[v][x]);
    assert_true(!m->exec->f.host_bytes || host_sum(x, 0) <= m->exec->f.host_bytes);
    assert_true(w.v[v].f.device_bytes <= m->exec->f.device_bytes);
}

static void look_checked(unsigned v)
{
    struct place_move m;
    unsigned n = 0;

    while (placement_look(&w.p, &w.v[v], w.now, &m)) {
        assert_true(n++ < 50);
        check_move(&m);
        act(&m);
    }
}

static void check_homes(void)
{
    for (unsigned v = 0; v < w.n_v; v++) {
        const struct place_version *p = &w.v[v];
        unsigned up = 0;
        bool fit = false;

        for (size_t i = 0; i < p->n; i++)
            up += p->homes[i].exec->f.is_up;
        for (unsigned x = 0; x < w.n_x; x++)
            fit |= !is_home(v, x) && fits(v, x);
        /* Room that another one has left is seen by the next look. */
        if (p->f.is_wanted && p->f.load > 0 && fit && up < p->f.min_copies)
            assert_true(w.lacks[v]++ < 2);
        else
            w.lacks[v] = 0;
    }
    for (unsigned x = 0; x < w.n_x; x++) {
        double load = 0;

        assert_int_equal(w.x[x].host_used, host_sum(x, 0));
        for (unsigned v = 0; v < w.n_v; v++)
            if (is_home(v, x))
                load += placement_home(&w.v[v], &w.x[x])->share;
        assert_true(load - w.x[x].load < 1e-6 && w.x[x].load - load < 1e-6);
    }
}

static void second_checked(void)
{
    w.now += SECOND;
    finish_loads();
    for (unsigned v = 0; v < w.n_v; v++) {
        const struct place_version_facts f = w.v[v].f;

        placement_set_version(&w.v[v], &w.p, &f); /* as the scheduler does: who is up has changed */
        look_checked(v);
    }
    check_homes();
}

static void disturb(void)
{
    for (unsigned i = 0; i < 1 + w.n_v / 4; i++) {
        const unsigned v = below(w.n_v);
        struct place_version_facts f = w.v[v].f;

        f.load = below(3) * f.load;
        placement_set_version(&w.v[v], &w.p, &f);
        if (below(2))
            continue;
        placement_del_version(&w.p, &w.v[v]); /* its bytes and its tenant stay as long as it does */
        draw_version(v);
        for (unsigned x = 0; x < w.n_x; x++)
            w.refuses[v][x] = below(15) == 0;
    }
    for (unsigned x = 0; x < w.n_x; x++)
        if (below(6) == 0)
            exec_is(x, !w.x[x].f.is_up, w.x[x].f.device_bytes, w.x[x].f.host_bytes, w.x[x].f.speed);
}

static void in_no_world_does_it_go_on_for_ever_or_give_more_than_there_is(void **state)
{
    unsigned moved = 0, apart = 0, grown = 0, shrunk = 0;

    (void)state;
    for (unsigned n = 0; n < N_WORLDS; n++) {
        begin(1 + below(MAX_EXECS), 1 + below(MAX_VERSIONS));
        w.seed += n;
        w.takes_ns = below(4) * SECOND;
        for (unsigned x = 0; x < w.n_x; x++)
            draw_exec(x);
        for (unsigned v = 0; v < w.n_v; v++)
            draw_version(v);
        for (int k = 0; k < 3; k++) {
            unsigned before;

            for (unsigned i = 0; i < CALM; i++)
                second_checked();
            before = n_moves();
            for (unsigned i = 0; i < 70; i++)
                second_checked();
            if (n_moves() != before)
                fprintf(stderr, "world %u, part %d: moves go on\n", n, k);
            assert_int_equal(n_moves(), before);
            if (k < 2)
                disturb();
        }
        moved += w.n_moves[PLACE_MOVED];
        apart += w.n_moves[PLACE_APART];
        grown += w.n_moves[PLACE_GROW];
        shrunk += w.n_moves[PLACE_SHRUNK];
        end(NULL);
    }
    assert_true(moved > N_WORLDS / 20 && apart > N_WORLDS / 20);
    assert_true(grown > N_WORLDS && shrunk > N_WORLDS / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_nobody_asks_for_is_packed_as_long_as_the_device_holds_it,
                                  end),
        cmocka_unit_test_teardown(popular_ones_part_and_come_together_no_more, end),
        cmocka_unit_test_teardown(one_that_moves_serves_until_the_other_one_can, end),
        cmocka_unit_test_teardown(demand_brings_copies_and_their_end_takes_them_away, end),
        cmocka_unit_test_teardown(a_copy_that_costs_more_than_it_saves_is_not_made, end),
        cmocka_unit_test(a_target_leaves_less_of_a_device_to_its_runs),
        cmocka_unit_test_teardown(faster_devices_bear_more, end),
        cmocka_unit_test_teardown(the_end_of_an_executor_moves_what_is_asked_for_at_once, end),
        cmocka_unit_test_teardown(what_fits_nowhere_goes_where_most_is_free, end),
        cmocka_unit_test_teardown(a_job_keeps_a_home_and_a_failure_ends_a_move, end),
        cmocka_unit_test_teardown(a_move_ends_when_the_old_home_is_held_no_more, end),
        cmocka_unit_test_teardown(in_no_world_does_it_go_on_for_ever_or_give_more_than_there_is,
                                  end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
