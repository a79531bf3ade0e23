/* test_claim.c - whose a job's folder is.
 *
 * Without it: an executor that was stopped while its job was done again elsewhere could give its
 * own file the name of the result that the database has the digest of. */
/* uses: executor/files/claim.o */
#include "common/mem.h"
#include "executor/files/claim.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "result"

struct rig {
    char dir[SH_TEST_DIR_BYTES], path[SH_TEST_DIR_BYTES + 32];
};

static void setup(struct rig *r)
{
    sh_test_dir_make(r->dir);
    snprintf(r->path, sizeof(r->path), "%s/" NAME, r->dir);
}

/* What has the name now; 0: nothing. */
static char published(const struct rig *r)
{
    FILE *f = fopen(r->path, "re");
    int c = f ? fgetc(f) : 0;

    if (f)
        fclose(f);
    return (char)c;
}

/* The steps of a start, in their order: a start that is stopped makes the rest of them later. */
enum step { CLAIMS, STAGES, PUBLISHES, N_STEPS };

struct start {
    int64_t number;
    enum step at;
    int rc; /* of the first step that failed; then it does nothing more */
};

static void go(const struct rig *r, struct start *s)
{
    char *staged = NULL;

    assert_ok(claim_stage(r->dir, s->number, NAME, &staged, NULL));
    if (!s->rc && s->at == CLAIMS)
        s->rc = claim_take(r->dir, s->number, NULL);
    else if (!s->rc && s->at == STAGES)
        sh_test_write_file(staged, &(char){(char)('0' + s->number)}, 1);
    else if (!s->rc)
        s->rc = claim_publish(r->dir, s->number, staged, NAME, NULL);
    s->at++;
    free(staged);
}

static void a_start_publishes_and_the_next_one_takes_its_place(void **state)
{
    struct rig r;
    (void)state;

    setup(&r);
    for (int64_t n = 1; n < 4; n++) {
        struct start s = {.number = n};

        while (s.at < N_STEPS)
            go(&r, &s);
        assert_ok(s.rc);
        assert_int_equal(published(&r), '0' + n);
        assert_int_equal(sh_test_dir_walk(r.dir, false), 2); /* and its claim */
        assert_ok(claim_take(r.dir, n, NULL));               /* it may be said twice */
        assert_ok(claim_check(r.dir, n, NULL));
    }
    sh_test_dir_remove(r.dir);
}

/* Each order of the steps of two starts: when the later one has published, that stays. */
static void an_earlier_start_never_replaces_what_a_later_one_published(void **state)
{
    unsigned n_orders = 0, n_refused = 0;
    (void)state;

    for (unsigned order = 0; order < 1u << (2 * N_STEPS); order++) {
        struct start s[2] = {{.number = 1}, {.number = 2}};
        struct rig r;

        if (__builtin_popcount(order) != N_STEPS)
            continue;
        setup(&r);
        for (unsigned i = 0; i < 2 * N_STEPS; i++) {
            struct start *of = &s[order >> i & 1];

            go(&r, of);
            if (s[1].at == N_STEPS)
                assert_int_equal(published(&r), '2');
        }
        assert_ok(s[1].rc);
        assert_true(s[0].rc == SH_OK || s[0].rc == SH_E_CONFLICT);
        assert_int_equal(sh_test_dir_walk(r.dir, false),
                         2); /* what it has staged is not left there */
        n_refused += s[0].rc != SH_OK;
        n_orders++;
        sh_test_dir_remove(r.dir);
    }
    assert_int_equal(n_orders, 20);
    assert_int_equal(n_refused, 19); /* all but one after the other */
}

/* Two starts that trained the same model link the same package, which has two names then. */
static void what_has_its_name_already_is_published(void **state)
{
    struct start s = {.number = 1};
    char *staged = NULL;
    struct rig r;
    (void)state;

    setup(&r);
    while (s.at < N_STEPS)
        go(&r, &s);
    assert_ok(claim_take(r.dir, 2, NULL));
    assert_ok(claim_stage(r.dir, 2, NAME, &staged, NULL));
    assert_int_equal(link(r.path, staged), 0);
    assert_ok(claim_publish(r.dir, 2, staged, NAME, NULL));
    assert_int_equal(published(&r), '1');
    assert_int_equal(sh_test_dir_walk(r.dir, false), 2);
    free(staged);
    sh_test_dir_remove(r.dir);
}

static void what_the_disk_refuses_is_said(void **state)
{
    struct sh_err err = {0}, none = {0};
    (void)state;

    assert_int_equal(claim_take("/does/not/exist", 1, &err), SH_E_NOTFOUND);
    assert_int_equal(claim_check("/does/not/exist", 1, &none), SH_E_NOTFOUND);
    assert_int_equal(claim_check("/does/not/exist", 1, NULL), SH_E_NOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_publishes_and_the_next_one_takes_its_place),
        cmocka_unit_test(an_earlier_start_never_replaces_what_a_later_one_published),
        cmocka_unit_test(what_has_its_name_already_is_published),
        cmocka_unit_test(what_the_disk_refuses_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
