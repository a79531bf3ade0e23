/* test_run_parts.c - parts of runs, with and without memory for them.
 *
 * Without it: a part for which there was no memory could be lost, and its API wait for an answer
 * until the request's time is over. */
/* uses: executor/runs/parts.o */
/* link: -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc */
#include "common/mem.h"
#include "executor/runs/switch_int.h"
#include "tests/unit/oom.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>

#define RUN 5
#define N 3

void run__free_part(struct run_part *p)
{
    free(p->in);
    free(p->out);
    *p = (struct run_part){0};
}

static void free_run(struct run *r)
{
    for (size_t i = 0; i < r->n_parts; i++)
        run__free_part(&r->parts[i]);
    free(r->parts);
}

/* Adds parts 1 to N, and collects them. known: who hears of his part, by rid: of its failure here,
 * as a part of the run, or as one that is left. */
static int add_and_collect(int (*known)[N + 1], struct sh_err *err)
{
    struct msg_span span = {0};
    struct loose_parts ls = {.n = 0};
    struct run r = {.id = RUN, .batch = N};
    struct run_part left;
    struct sh_err none = {0};
    int rc;

    for (uint64_t rid = 1; rid <= N; rid++)
        (*known)[rid] = parts__add(&ls,
                                   &(struct msg_run_part){.run_id = RUN,
                                                          .rid = rid,
                                                          .api_id = 1,
                                                          .batch = 1,
                                                          .in_spans = {&span, sizeof(span)}},
                                   &none) != SH_OK;
    rc = parts__collect(&ls, &r, N, err);
    calls_left = -1;
    for (size_t i = 0; i < r.n_parts; i++)
        (*known)[r.parts[i].rid]++;
    while (parts__take(&ls, RUN, &left)) {
        (*known)[left.rid]++;
        run__free_part(&left);
    }
    assert_int_equal(ls.n, 0);
    if (!rc)
        for (size_t i = 0; i < N; i++)
            assert_int_equal(r.parts[i].rid, i + 1); /* as they came */
    free_run(&r);
    return rc;
}

static void each_part_is_somebodys_whatever_there_is_no_memory_for(void **state)
{
    int n = 0;

    (void)state;
    for (bool failed = true; failed; n++) {
        int known[N + 1] = {0};
        struct sh_err err = {0};
        int rc;

        calls_left = n;
        fails_once = true;
        rc = add_and_collect(&known, &err);
        failed = rc != SH_OK;
        for (uint64_t rid = 1; rid <= N; rid++)
            assert_int_equal(known[rid], 1);
        if (failed)
            assert_int_equal(rc, SH_E_NOMEM); /* it may be tried again */
    }
    assert_true(n > N);
}

static void a_part_that_is_none_is_refused(void **state)
{
    struct loose_parts ls = {.n = 0};
    struct sh_err err = {0};
    struct run r = {.id = RUN + 1, .batch = 1};

    (void)state;
    assert_fails(parts__add(&ls, &(struct msg_run_part){.run_id = RUN, .rid = 1}, &err), SH_E_PROTO,
                 &err, "no samples");
    err = (struct sh_err){0};
    assert_fails(parts__collect(&ls, &r, 0, &err), SH_E_PROTO, &err, "0 of 0");
    err = (struct sh_err){0};
    assert_fails(parts__collect(&ls, &r, SWITCH_MAX_PARTS + 1, &err), SH_E_TOOBIG, &err, "parts");
    free_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_is_somebodys_whatever_there_is_no_memory_for),
        cmocka_unit_test(a_part_that_is_none_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
