/* test_cli_words.c - Without it: a mistyped command could run another one, and a name with a slash
 * or a question mark could reach another resource of the server. */
/* uses: libcli.a */
/* link: -lcurl -lpq -lturbojpeg -lpng16 -lz */
#include "cli/cli.h"
#include "cli/client/rest.h"
#include "cli/commands/job.h"
#include "cli/commands/model.h"
#include "cli/text/find.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

static const struct sh_conf_opt UP[] = {{.type = SH_CONF_INT, .name = "wait", .def = "60"}};
static const struct sh_conf_opt JOBS[] = {{.type = SH_CONF_STR, .name = "state"},
                                          {.type = SH_CONF_STR, .name = "server"}};
static const struct sh_conf_opt QUEUES[] = {{.type = SH_CONF_INT, .name = "every-ms"}};
static const struct sh_conf_opt READ[] = {{.type = SH_CONF_BOOL, .name = "watch", .def = "true"}};
static const struct sh_conf_opt COMMON[] = {{.type = SH_CONF_STR, .name = "server", .def = "x"}};
static const struct cli_verb VERBS[] = {{"get", "See", READ, SH_ARRAY_LEN(READ)}};
static const struct cli_cmd CMDS[] = {
    {.verb = "up", .args = "", .opts = UP, .n_opts = SH_ARRAY_LEN(UP)},
    {.verb = "get", .noun = "jobs", .args = "[JOB]", .opts = JOBS, .n_opts = SH_ARRAY_LEN(JOBS)},
    {.verb = "get", .noun = "queues", .args = "", .opts = QUEUES, .n_opts = SH_ARRAY_LEN(QUEUES)},
    {.verb = "get", .noun = "slo", .args = ""},
    {.verb = "push", .noun = "model", .args = "NAME FILE"},
    {.verb = "set", .noun = "quota", .args = "TENANT FIELD=VALUE..."},
    {.verb = "wait", .noun = "model", .args = "MODEL[:VERSION]"},
};
static const struct cli_table TABLE = {
    .cmds = CMDS,
    .n_cmds = SH_ARRAY_LEN(CMDS),
    .verbs = VERBS,
    .n_verbs = SH_ARRAY_LEN(VERBS),
    .common = COMMON,
    .n_common = SH_ARRAY_LEN(COMMON),
};

static const struct cli_cmd *find(const char *a, const char *b, int *used, struct sh_err *err)
{
    char *words[] = {(char *)a, (char *)b};

    return cli_find(&TABLE, words, b ? 2 : a ? 1 : 0, used, err);
}

static void singular_and_plural_name_the_same(void **state)
{
    int used = 0;
    (void)state;

    assert_ptr_equal(find("get", "job", &used, NULL), &CMDS[1]);
    assert_int_equal(used, 2);
    assert_ptr_equal(find("get", "jobs", &used, NULL), &CMDS[1]);
    assert_ptr_equal(find("push", "models", &used, NULL), &CMDS[4]);
    assert_ptr_equal(find("up", "x", &used, NULL), &CMDS[0]);
    assert_int_equal(used, 1);
}

static void a_wrong_word_is_refused_and_says_what_there_is(void **state)
{
    struct sh_err err = {0};
    int used = 0;
    (void)state;

    assert_null(find("get", "thing", &used, &err));
    assert_fails(err.rc, SH_E_INVALID, &err, "jobs, queues");
    err = (struct sh_err){0};
    assert_null(find("get", NULL, &used, &err));
    assert_fails(err.rc, SH_E_INVALID, &err, "say what to get");
    err = (struct sh_err){0};
    assert_null(find("fly", NULL, &used, &err));
    assert_fails(err.rc, SH_E_INVALID, &err, "no command \"fly\"");
    err = (struct sh_err){0};
    assert_null(find(NULL, NULL, &used, &err));
    assert_fails(err.rc, SH_E_INVALID, &err, "no command is given");
}

static void a_word_from_elsewhere_or_with_a_slip_finds_ours(void **state)
{
    static const struct {
        const char *a, *b, *say;
    } ROWS[] = {
        {"jobs", NULL, "say what to do with \"jobs\": get"},
        {"model", "x", "push, wait"},
        {"squeue", NULL, "shunt get jobs --live"},
        {"psuh", "model", "did you mean push?"},
        {"get", "jbos", "did you mean jobs?"},
        {"get", "a-noun-of-more-letters-than-any-of-ours-has", "there are: jobs, queues, slo"},
        {"get", "foo", "there is no \"get foo\"; there are: jobs"},
    };
    int used = 0;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++) {
        struct sh_err err = {0};

        assert_null(find(ROWS[i].a, ROWS[i].b, &used, &err));
        assert_fails(err.rc, SH_E_INVALID, &err, ROWS[i].say);
    }
    assert_ptr_equal(find("list", "jobs", &used, NULL), &CMDS[1]);
    assert_ptr_equal(find("describe", "job", &used, NULL), &CMDS[1]);
}

/* The first look must know which options take a value, or "get --state X jobs" gets X. */
static void the_first_look_knows_each_option_once(void **state)
{
    struct sh_conf_opt opts[CLI_MAX_OPTS];
    size_t n = cli_options(&TABLE, NULL, opts);
    (void)state;

    assert_int_equal(n, 5); /* server, watch, wait, state, every-ms */
    for (size_t i = 0; i < n; i++) {
        bool is_flag = strcmp(opts[i].name, "watch") == 0;

        assert_int_equal(opts[i].type, is_flag ? SH_CONF_BOOL : SH_CONF_STR);
        assert_null(opts[i].def);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(opts[k].offset, opts[i].offset);
    }
    assert_int_equal(cli_options(&TABLE, &CMDS[1], opts), 3);
    assert_int_equal(cli_options(&TABLE, &CMDS[4], opts), 1);
    assert_string_equal(cli_like_option(&TABLE, &CMDS[1], "--sate=X"), "state");
    assert_string_equal(cli_like_option(&TABLE, &CMDS[2], "--every"), "every-ms");
    assert_null(cli_like_option(&TABLE, &CMDS[2], "--eve"));
    assert_null(cli_like_option(&TABLE, &CMDS[2], "--"));
    assert_null(cli_like_option(&TABLE, &CMDS[1], "--epochs"));
    assert_null(cli_like_option(&TABLE, &CMDS[4], "--sate"));
}

/* Which command a line names is found before its options are known: by then it must be clear of
 * each option whether a value follows. */
static void an_option_of_several_commands_takes_a_value_in_all_or_in_none(void **state)
{
    const struct cli_table *t = &CLI_TABLE;

    (void)state;
    for (size_t i = 0; i < t->n_cmds; i++)
        for (size_t k = 0; k < t->cmds[i].n_opts; k++)
            for (size_t j = 0; j < i; j++)
                for (size_t l = 0; l < t->cmds[j].n_opts; l++) {
                    const struct sh_conf_opt *a = &t->cmds[i].opts[k], *b = &t->cmds[j].opts[l];

                    if (strcmp(a->name, b->name) == 0 &&
                        (a->type == SH_CONF_BOOL) != (b->type == SH_CONF_BOOL))
                        fail_msg("--%s of %s and of %s", a->name, t->cmds[i].verb, t->cmds[j].verb);
                }
}

static void the_number_of_arguments_is_read_from_the_table(void **state)
{
    static const int WANT[][2] = {{0, 0}, {0, 1}, {0, 0}, {0, 0}, {2, 2}, {2, 1001}, {1, 1}};
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(CMDS); i++) {
        int min = -1, max = -1;

        cli_arg_range(&CMDS[i], &min, &max);
        assert_int_equal(min, WANT[i][0]);
        assert_int_equal(max, WANT[i][1]);
    }
}

static void a_name_cannot_leave_its_place_in_a_path(void **state)
{
    char path[REST_PATH_MAX];
    struct sh_err err = {0};
    (void)state;

    assert_ok(rest_path(path, NULL, "api", "a?c=d&e #%", NULL));
    assert_string_equal(path, "/api/a%3Fc%3Dd%26e%20%23%25");
    assert_fails(rest_path(path, &err, "api", "a/b", NULL), SH_E_INVALID, &err, "has a slash");
    err = (struct sh_err){0};
    assert_fails(rest_path(path, &err, "api", "..", NULL), SH_E_INVALID, &err, "not a name");
    err = (struct sh_err){0};
    assert_fails(rest_path(path, &err, "api", "", NULL), SH_E_INVALID, &err, "not a name");
}

static void a_model_may_carry_a_version(void **state)
{
    struct cli c = {.table = &TABLE, .cmd = &CMDS[6]};
    struct sh_err err = {0};
    char name[129];
    int64_t version = -1;
    (void)state;

    assert_ok(rest_model_ref(&c, "resnet", name, &version, NULL));
    assert_string_equal(name, "resnet");
    assert_int_equal(version, 0);
    assert_ok(rest_model_ref(&c, "resnet:12", name, &version, NULL));
    assert_string_equal(name, "resnet");
    assert_int_equal(version, 12);
    assert_fails(rest_model_ref(&c, "resnet:x", name, &version, &err), SH_E_INVALID, &err,
                 "not a version");
    assert_int_equal(c.exit_code, CLI_USAGE);
}

static void a_refusal_carries_the_servers_words(void **state)
{
    char body[] = "{\"code\":\"QUOTA\",\"detail\":\"too many jobs\",\"nodes\":[\"n1\"]}";
    struct sh_http_reply r = {
        .status = 429, .body = body, .len = sizeof(body) - 1, .retry_after_s = 2};
    struct sh_http_reply html = {
        .status = 502, .body = (char *)"<html>", .len = 6, .retry_after_s = -1};
    struct cli_conf conf = {0};
    struct cli c = {.table = &TABLE, .cmd = &CMDS[0], .conf = &conf};
    struct sh_err err = {0};
    (void)state;

    assert_fails(rest_check(&c, &r, 0, &err), SH_E_QUOTA, &err, "too many jobs");
    assert_non_null(strstr(err.msg, "try again in 2 s"));
    assert_int_equal(c.exit_code, CLI_REFUSED);
    assert_int_equal(json_array_size(json_object_get(c.problem, "nodes")), 1);
    err = (struct sh_err){0};
    assert_fails(rest_check(&c, &html, 0, &err), SH_E_UNAVAILABLE, &err, "HTTP status 502");
    json_decref(c.problem);
}

static void summary_of(int n, int ready, const char *want)
{
    json_t *models = json_pack("[{s:[]}]", "versions"), *m = json_array_get(models, 0);

    for (int i = 1; i <= n; i++)
        json_array_append_new(
            json_object_get(m, "versions"),
            json_pack("{s:i, s:s}", "version", i, "state", i <= ready ? "READY" : "FAILED"));
    model_add_summary(models);
    assert_string_equal(sh_json_text(m, "summary"), want);
    json_decref(models);
}

static void of_many_versions_the_newest_and_the_serving_one_are_shown(void **state)
{
    (void)state;

    summary_of(0, 0, "");
    summary_of(5, 1, "1 READY, 2 FAILED, 3 FAILED, 4 FAILED, 5 FAILED");
    summary_of(105, 105, "... 100 older, 101 READY, 102 READY, 103 READY, 104 READY, 105 READY");
    summary_of(8, 2, "... 2 older, 2 READY, 4 FAILED, 5 FAILED, 6 FAILED, 7 FAILED, 8 FAILED");
    summary_of(7, 0, "... 2 older, 3 FAILED, 4 FAILED, 5 FAILED, 6 FAILED, 7 FAILED");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(singular_and_plural_name_the_same),
        cmocka_unit_test(a_wrong_word_is_refused_and_says_what_there_is),
        cmocka_unit_test(a_word_from_elsewhere_or_with_a_slip_finds_ours),
        cmocka_unit_test(the_first_look_knows_each_option_once),
        cmocka_unit_test(an_option_of_several_commands_takes_a_value_in_all_or_in_none),
        cmocka_unit_test(the_number_of_arguments_is_read_from_the_table),
        cmocka_unit_test(a_name_cannot_leave_its_place_in_a_path),
        cmocka_unit_test(a_model_may_carry_a_version),
        cmocka_unit_test(a_refusal_carries_the_servers_words),
        cmocka_unit_test(of_many_versions_the_newest_and_the_serving_one_are_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
