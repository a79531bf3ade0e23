/* test_alias.c - which version an alias gives to a request, and when it is rolled back by itself.
 *
 * Without it a canary with a tenth of the weights could get a half of the requests, a session could
 * wander between versions, and an alias could be rolled back for what both versions do, or never.
 */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/spec/alias.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <inttypes.h>
#include <math.h>

#define N 20000

static void names_are_lower_case_and_begin_with_a_letter(void **state)
{
    static const char *const GOOD[] = {"stable", "canary", "a", "v2", "blue-green", "latest"};
    static const char *const BAD[] = {"",    "1",   "2a",  "-a",       "Stable", "a_b",
                                      "a b", "a/b", "a.b", "\xc3\xa4", "a\n"};
    char longest[66];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(GOOD); i++)
        assert_true(sh_alias_is_name(GOOD[i]));
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++)
        assert_false(sh_alias_is_name(BAD[i]));
    memset(longest, 'a', 64);
    longest[64] = '\0';
    assert_false(sh_alias_is_name(longest));
    longest[63] = '\0';
    assert_true(sh_alias_is_name(longest));
}

static int read_text(const char *text, struct alias_targets *t, struct sh_err *err)
{
    json_t *j = json_loads(text, 0, NULL);
    int rc;

    assert_non_null(j);
    rc = alias_read_targets(j, t, err);
    json_decref(j);
    return rc;
}

static void targets_are_in_order_and_named_once(void **state)
{
    struct sh_err err = {0};
    struct alias_targets t;
    json_t *j;
    char *text = NULL;

    (void)state;
    assert_ok(read_text("[{\"version\": 7, \"weight\": 9}, {\"version\": 2}]", &t, NULL));
    j = alias_targets_json(&t);
    assert_ok(sh_json_dump(j, &text, NULL));
    assert_string_equal(text, "[{\"version\":2,\"weight\":1},{\"version\":7,\"weight\":9}]");
    free(text);
    json_decref(j);
    assert_true(alias_has(&t, 7));
    assert_false(alias_has(&t, 1));
    assert_fails(read_text("[{\"version\": 2}, {\"version\": 2}]", &t, &err), SH_E_INVALID, &err,
                 "twice");
    err = (struct sh_err){0};
    assert_fails(read_text("[]", &t, &err), SH_E_INVALID, &err, "1 to 8");
    err = (struct sh_err){0};
    assert_fails(read_text("[{\"version\": 0}]", &t, &err), SH_E_INVALID, &err, "version");
    err = (struct sh_err){0};
    assert_fails(read_text("[{\"version\": 1, \"weight\": 0}]", &t, &err), SH_E_INVALID, &err,
                 "weight");
    err = (struct sh_err){0};
    assert_fails(read_text("[{\"version\": 1, \"wait\": 1}]", &t, &err), SH_E_INVALID, &err,
                 "wait");
}

/* Keys as they come: random, or numbered, which are alike. Five sigma. */
static void shares_follow_the_weights(void **state)
{
    static const struct alias_target T[] = {{1, 9}, {2, 1}, {5, 90}};
    int64_t n[3] = {0};
    char key[40];

    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof(key), "client-%d", i);
        n[alias_choose(T, 3, 77, key) - T]++;
    }
    for (int i = 0; i < 3; i++) {
        double p = (double)T[i].weight / 100, want = N * p;

        if (fabs((double)n[i] - want) > 5 * sqrt(N * p * (1 - p)))
            fail_msg("%" PRId64 " of %d, want %g", n[i], N, want);
    }
}

static void the_same_key_has_the_same_version_and_aliases_choose_apart(void **state)
{
    static const struct alias_target T[] = {{1, 1}, {2, 1}};
    int both = 0;
    char key[40];

    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof(key), "%d", i);
        assert_ptr_equal(alias_choose(T, 2, 1, key), alias_choose(T, 2, 1, key));
        both += alias_choose(T, 2, 1, key) == alias_choose(T, 2, 2, key);
    }
    assert_in_range(both, N / 2 - 400, N / 2 + 400);
}

/* A target is away for a while, or gets another weight: who was with the others stays there. */
static void only_those_of_a_target_that_is_away_move(void **state)
{
    static const struct alias_target ALL[] = {{1, 1}, {2, 3}, {3, 2}};
    static const struct alias_target LEFT[] = {{1, 1}, {3, 2}};
    static const struct alias_target LESS[] = {{1, 1}, {2, 1}, {3, 2}};
    int to_first = 0, moved = 0;
    char key[40];

    (void)state;
    for (int i = 0; i < N; i++) {
        int64_t was, is;

        snprintf(key, sizeof(key), "user-%d", i);
        was = alias_choose(ALL, 3, 9, key)->version;
        is = alias_choose(LEFT, 2, 9, key)->version;
        if (was != 2)
            assert_int_equal(is, was);
        else
            to_first += is == 1;
        is = alias_choose(LESS, 3, 9, key)->version;
        if (was != 2)
            assert_int_equal(is, was);
        moved += is != was;
    }
    assert_in_range(to_first, N / 6 - 300, N / 6 + 300); /* a third of a half */
    assert_in_range(moved, N / 4 - 320, N / 4 + 320);    /* of a half to a quarter */
}

/* ---------------------------------------------------------------- rollback by itself */

static struct alias_case a_case(void)
{
    return (struct alias_case){
        .policy = {.window_s = 60, .min_requests = 50, .error_percent = 5, .burn_rate = 10},
        .percentile = 99,
        .now = {.list = {{1, 9}, {2, 1}}, .n = 2},
        .before = {.list = {{1, 1}}, .n = 1},
        .counts = {{1, 900, 0, 900, 0}, {2, 100, 0, 100, 0}},
        .n_counts = 2};
}

static void check_verdict(const struct alias_case *c, enum alias_verdict want, const char *says)
{
    char why[256];
    struct alias_targets left;
    enum alias_verdict v = alias_judge(c, &left, why);

    if (v != want)
        fail_msg("verdict \"%s\" (%s), want \"%s\"", alias_verdict_code(v), why,
                 alias_verdict_code(want));
    assert_has(why, says);
}

static void a_version_that_does_as_well_stays(void **state)
{
    struct alias_case c = a_case();

    (void)state;
    check_verdict(&c, ALIAS_KEEP, "");
    c.counts[1].failed = 4; /* 3.8 % */
    check_verdict(&c, ALIAS_KEEP, "");
    c.counts[1] = (struct alias_count){2, 0, 49, 0, 49}; /* all fail, and too few */
    check_verdict(&c, ALIAS_KEEP, "");
    c.counts[1] = (struct alias_count){2, 0, 100, 0, 0};
    c.counts[0] = (struct alias_count){1, 0, 900, 0, 0}; /* so does the other */
    check_verdict(&c, ALIAS_KEEP, "");
    c.n_counts = 0;
    check_verdict(&c, ALIAS_KEEP, "");
}

static void failures_above_those_before_roll_it_back(void **state)
{
    struct alias_case c = a_case();

    (void)state;
    c.counts[1] = (struct alias_count){2, 90, 10, 90, 0};
    check_verdict(&c, ALIAS_ERRORS, "version 2 failed 10.0 % of 100 requests");
    c.counts[0] = (struct alias_count){1, 840, 60, 0, 0}; /* 6.7 % */
    check_verdict(&c, ALIAS_KEEP, "");
    c.counts[0] = (struct alias_count){1, 0, 49, 0, 0}; /* too few to compare with */
    check_verdict(&c, ALIAS_ERRORS, "the versions before it 0.0 %");
    c.policy.error_percent = 0;
    check_verdict(&c, ALIAS_KEEP, "");
}

static void a_budget_that_burns_rolls_it_back(void **state)
{
    struct alias_case c = a_case();

    (void)state;
    c.counts[1] = (struct alias_count){2, 100, 0, 89, 11}; /* 11 times what 1 % allows */
    check_verdict(&c, ALIAS_BUDGET, "missed the latency target in 11 of 100 requests, 11.0 times");
    c.counts[0] = (struct alias_count){1, 900, 0, 882, 18}; /* 2 times */
    check_verdict(&c, ALIAS_KEEP, "");
    c.counts[0] = (struct alias_count){1, 900, 0, 900, 0};
    c.percentile = 0; /* there is no target any more */
    check_verdict(&c, ALIAS_KEEP, "");
    c.percentile = 99;
    c.policy.burn_rate = 0;
    check_verdict(&c, ALIAS_KEEP, "");
}

static void only_versions_whose_share_grew_are_judged(void **state)
{
    struct alias_case c = a_case();

    (void)state;
    c.counts[0] = (struct alias_count){1, 0, 900, 0, 900}; /* the old one is bad */
    check_verdict(&c, ALIAS_KEEP, "");
    c.before = (struct alias_targets){.list = {{1, 1}, {2, 1}}, .n = 2}; /* it got more now */
    check_verdict(&c, ALIAS_ERRORS, "version 1 failed");
    c.before = c.now; /* nothing has changed */
    check_verdict(&c, ALIAS_KEEP, "");
    c.before = (struct alias_targets){0}; /* there is nothing to go back to */
    check_verdict(&c, ALIAS_KEEP, "");
    c.before = (struct alias_targets){.list = {{1, 90}, {2, 10}}, .n = 2}; /* the same shares */
    check_verdict(&c, ALIAS_KEEP, "");
}

/* What goes back goes without what was found bad: it had a share before, too, and then nobody would
 * look at it any more. */
static void what_is_bad_gets_nothing_where_the_alias_goes_back_to(void **state)
{
    struct alias_case c = a_case();
    struct alias_targets left;
    char why[256];

    (void)state;
    c.now = (struct alias_targets){.list = {{1, 1}, {2, 1}, {3, 1}, {4, 1}}, .n = 4};
    c.before = (struct alias_targets){.list = {{1, 7}, {2, 1}, {4, 1}}, .n = 3};
    c.counts[1] = (struct alias_count){2, 50, 50, 50, 0};
    c.counts[2] = (struct alias_count){3, 100, 0, 100, 0};
    c.counts[3] = (struct alias_count){4, 0, 100, 100, 0};
    c.n_counts = 4;
    assert_int_equal(alias_judge(&c, &left, why), ALIAS_ERRORS);
    assert_has(why, "version 2 failed 50.0 %");
    assert_int_equal(left.n, 1);
    assert_int_equal(left.list[0].version, 1);
    assert_int_equal(left.list[0].weight, 7);
    c.counts[3] = (struct alias_count){4, 100, 0, 100, 0};
    assert_int_equal(alias_judge(&c, &left, why), ALIAS_ERRORS);
    assert_int_equal(left.n, 2); /* 4 does as well as 1 */
    assert_int_equal(left.list[1].version, 4);
    c.counts[1] = (struct alias_count){2, 100, 0, 100, 0};
    assert_int_equal(alias_judge(&c, &left, why), ALIAS_KEEP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_lower_case_and_begin_with_a_letter),
        cmocka_unit_test(targets_are_in_order_and_named_once),
        cmocka_unit_test(shares_follow_the_weights),
        cmocka_unit_test(the_same_key_has_the_same_version_and_aliases_choose_apart),
        cmocka_unit_test(only_those_of_a_target_that_is_away_move),
        cmocka_unit_test(a_version_that_does_as_well_stays),
        cmocka_unit_test(failures_above_those_before_roll_it_back),
        cmocka_unit_test(a_budget_that_burns_rolls_it_back),
        cmocka_unit_test(only_versions_whose_share_grew_are_judged),
        cmocka_unit_test(what_is_bad_gets_nothing_where_the_alias_goes_back_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
