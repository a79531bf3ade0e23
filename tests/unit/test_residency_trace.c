/* test_residency_trace.c - the policies of residency on the order in which a real service asked for
 * its models: Alibaba's GenTD26, 26,823 requests for 87 base models.
 *
 * The trace states no licence, so it is not part of this tree: TRACES names the folder that has
 * gentd26_requests.csv (else ../shared/traces); without the file the test is skipped. What it must
 * give was computed by another program: k equal images fit, and a request is a use.
 *
 * Without it: a policy could turn the wrong way and still pass every rule of the other tests; only
 * the share of hits on real requests would be worse. */
/* uses: executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o */
#include "executor/memory/residency.h"
#include "tests/unit/sh_test.h"

#include <math.h>
#include <stdio.h>

enum { MAX_REQUESTS = 40000, MAX_MODELS = 256, TIME_LEN = 19 };

struct request {
    char time[TIME_LEN + 1];
    uint32_t line, model;
};

struct trace {
    struct request *items; /* OWNED, by time, equal ones as in the file */
    size_t n;
    uint32_t n_models;
};

struct rates {
    double hit, soft, hard;
};

static int by_time(const void *a, const void *b)
{
    const struct request *x = a, *y = b;
    const int c = strcmp(x->time, y->time);

    return c ? c : (x->line > y->line) - (x->line < y->line);
}

static uint32_t model_of(struct trace *t, char (*names)[16], const char *name)
{
    uint32_t i = 0;

    while (i < t->n_models && strcmp(names[i], name) != 0)
        i++;
    if (i == t->n_models) {
        assert_true(i < MAX_MODELS);
        snprintf(names[t->n_models++], sizeof(names[0]), "%s", name);
    }
    return i;
}

static bool read_trace(struct trace *t)
{
    static char names[MAX_MODELS][16];
    const char *folder = getenv("TRACES");
    char path[4096], line[1024];
    FILE *f;

    *t = (struct trace){0};
    snprintf(path, sizeof(path), "%s/gentd26_requests.csv", folder ? folder : "../shared/traces");
    f = fopen(path, "r");
    if (!f)
        return false;
    t->items = calloc(MAX_REQUESTS, sizeof(*t->items));
    assert_non_null(t->items);
    assert_non_null(fgets(line, sizeof(line), f));
    while (fgets(line, sizeof(line), f)) {
        struct request *r = &t->items[t->n];
        char *at = line, name[16];

        assert_true(t->n < MAX_REQUESTS);
        for (int column = 0; column < 9; column++) {
            at = strchr(at, ',');
            assert_non_null(at);
            at++;
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, ","), at);
        snprintf(r->time, sizeof(r->time), "%.*s", TIME_LEN, line);
        r->line = (uint32_t)t->n++;
        r->model = model_of(t, names, name);
    }
    fclose(f);
    qsort(t->items, t->n, sizeof(*t->items), by_time);
    return true;
}

static struct rates replay(const struct trace *t, uint32_t k, const struct residency_conf *conf)
{
    struct residency *r = NULL;
    uint32_t id[MAX_MODELS];
    struct residency_counts n;

    assert_ok(residency_new(k, conf, &r, NULL));
    for (uint32_t m = 0; m < t->n_models; m++)
        assert_ok(
            residency_add(r, &(struct residency_image){.n_blocks = 1, .tag = 1}, &id[m], NULL));
    for (size_t i = 0; i < t->n; i++) {
        struct residency_place p;

        assert_ok(residency_place(r, id[t->items[i].model], true, &p, NULL));
        residency_touch(r, id[t->items[i].model], (int64_t)i);
    }
    assert_ok(residency_check(r, NULL));
    n = residency_counts(r);
    assert_int_equal(n.hits + n.soft + n.hard, t->n);
    residency_free(r);
    return (struct rates){.hit = (double)n.hits / (double)t->n,
                          .soft = (double)n.soft / (double)t->n,
                          .hard = (double)n.hard / (double)t->n};
}

/* What nobody can beat: the model that is asked for again last gives way (Belady). */
static double replay_opt(const struct trace *t, uint32_t k)
{
    size_t *next = calloc(t->n, sizeof(*next)), later[MAX_MODELS], hits = 0;
    uint32_t n_in = 0;
    bool in[MAX_MODELS] = {false};

    assert_non_null(next);
    for (uint32_t m = 0; m < t->n_models; m++)
        later[m] = SIZE_MAX;
    for (size_t i = t->n; i-- > 0; later[t->items[i].model] = i)
        next[i] = later[t->items[i].model];
    for (size_t i = 0; i < t->n; i++) {
        const uint32_t x = t->items[i].model;
        uint32_t victim = x;

        hits += in[x];
        later[x] = next[i];
        if (in[x])
            continue;
        for (uint32_t m = 0; m < t->n_models && n_in == k; m++)
            if (in[m] && (victim == x || later[m] > later[victim]))
                victim = m;
        in[victim] = false;
        in[x] = true;
        n_in += victim == x;
    }
    free(next);
    return (double)hits / (double)t->n;
}

static void every_policy_has_its_own_order(void **state)
{
    static struct request refs[] = {{.model = 0}, {.model = 1}, {.model = 2}, {.model = 0},
                                    {.model = 3}, {.model = 0}, {.model = 1}};
    static const struct {
        struct residency_conf conf;
        double hits, soft, hard;
    } CASES[] = {
        {{.policy = RESIDENCY_CLOCK}, 1, 0, 6},
        {{.policy = RESIDENCY_FIFO}, 1, 0, 6},
        {{.policy = RESIDENCY_LRU}, 2, 0, 5},
        {{.policy = RESIDENCY_SECOND_CHANCE, .second_share = 1.0 / 3}, 1, 1, 5},
        {{.policy = RESIDENCY_NONE}, 0, 0, 7},
    };
    const struct trace t = {refs, sizeof(refs) / sizeof(refs[0]), 4};

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const struct rates is = replay(&t, 3, &CASES[i].conf);

        assert_int_equal(round(is.hit * (double)t.n), CASES[i].hits);
        assert_int_equal(round(is.soft * (double)t.n), CASES[i].soft);
        assert_int_equal(round(is.hard * (double)t.n), CASES[i].hard);
    }
}

static void assert_rate(double is, double golden)
{
    if (fabs(is - golden) > 0.0005)
        fail_msg("%.4f, not %.3f", is, golden);
}

static void hits_of_every_policy_are_those_of_the_table(void **state)
{
    static const struct {
        uint32_t k;
        double fifo, clock, two, four, lru, opt;
    } TABLE[] = {
        {1, .253, .253, .253, .253, .253, .253},  {2, .411, .411, .411, .411, .425, .555},
        {4, .625, .637, .638, .638, .661, .781},  {8, .810, .838, .840, .840, .852, .916},
        {16, .918, .942, .944, .944, .947, .971}, {32, .968, .978, .978, .978, .979, .989},
        {64, .992, .995, .995, .995, .995, .997},
    };
    struct trace t;

    (void)state;
    if (!read_trace(&t))
        skip();
    assert_int_equal(t.n, 26823);
    for (size_t i = 0; i < sizeof(TABLE) / sizeof(TABLE[0]); i++) {
        const uint32_t k = TABLE[i].k;
        const struct residency_conf fifo = {.policy = RESIDENCY_FIFO}, lru = {RESIDENCY_LRU, 0, 0};

        assert_rate(replay(&t, k, &fifo).hit, TABLE[i].fifo);
        assert_rate(replay(&t, k, &lru).hit, TABLE[i].lru);
        assert_rate(replay(&t, k, &(struct residency_conf){.n_chance = 1}).hit, TABLE[i].clock);
        assert_rate(replay(&t, k, &(struct residency_conf){.n_chance = 2}).hit, TABLE[i].two);
        assert_rate(replay(&t, k, &(struct residency_conf){.n_chance = 4}).hit, TABLE[i].four);
        assert_rate(replay_opt(&t, k), TABLE[i].opt);
    }
    free(t.items);
}

static void faults_of_the_second_chance_list_are_those_of_the_table(void **state)
{
    static const struct {
        uint32_t k, second;
        double hard, soft;
    } TABLE[] = {
        {8, 0, .190, .000}, {8, 1, .169, .051}, {8, 2, .157, .102},  {8, 4, .150, .225},
        {8, 6, .148, .442}, {16, 0, .082, 0},   {16, 4, .057, .056}, {16, 8, .053, .137},
    };
    struct trace t;

    (void)state;
    if (!read_trace(&t))
        skip();
    for (size_t i = 0; i < sizeof(TABLE) / sizeof(TABLE[0]); i++) {
        const struct residency_conf conf = {.policy = RESIDENCY_SECOND_CHANCE,
                                            .second_share = (double)TABLE[i].second / TABLE[i].k};
        const struct rates is = replay(&t, TABLE[i].k, &conf);

        assert_rate(is.hard, TABLE[i].hard);
        assert_rate(is.soft, TABLE[i].soft);
    }
    free(t.items);
}

/* With no second chance list it is FIFO, with nothing but it LRU. */
static void second_chance_is_fifo_at_one_end_and_lru_at_the_other(void **state)
{
    const struct residency_conf none = {.policy = RESIDENCY_SECOND_CHANCE, .second_share = 0},
                                all = {.policy = RESIDENCY_SECOND_CHANCE, .second_share = 1},
                                fifo = {.policy = RESIDENCY_FIFO}, lru = {.policy = RESIDENCY_LRU};
    struct trace t;

    (void)state;
    if (!read_trace(&t))
        skip();
    for (uint32_t k = 2; k <= 32; k *= 2) {
        assert_true(replay(&t, k, &none).hard == replay(&t, k, &fifo).hard);
        assert_true(replay(&t, k, &all).hard == replay(&t, k, &lru).hard);
    }
    free(t.items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_has_its_own_order),
        cmocka_unit_test(hits_of_every_policy_are_those_of_the_table),
        cmocka_unit_test(faults_of_the_second_chance_list_are_those_of_the_table),
        cmocka_unit_test(second_chance_is_fifo_at_one_end_and_lru_at_the_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
