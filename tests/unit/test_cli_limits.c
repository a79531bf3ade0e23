/* test_cli_limits.c - the defaults and limits that `shunt COMMAND --help` shows are the server's.
 *
 * Without it the help could promise a batch of 100000, or a default that nobody uses any more. */
/* uses: libapi.a libcli.a libmodel.a libdevice.a */
/* link: -lmicrohttpd -lcurl -lpq -lturbojpeg -lpng16 -lz -ldl */
#include "api/openapi.h"
#include "cli/cli.h"
#include "cli/text/find.h"
#include "common/mem.h"
#include "runtime/model/program.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>

static json_t *schema(const char *name)
{
    for (size_t i = 0; i < API_N_SCHEMAS; i++) {
        json_t *j;

        if (strcmp(API_SCHEMAS[i].name, name) != 0)
            continue;
        j = schema_build(&API_SCHEMAS[i].schema);
        assert_non_null(j);
        return j;
    }
    fail_msg("there is no schema %s", name);
    return NULL;
}

/* The property with a range, wherever it is in there: the first one. */
static const json_t *ranged(const json_t *j, const char *name)
{
    const json_t *hit = json_object_get(json_object_get(j, "properties"), name), *v;
    const char *key;
    size_t i;

    if (json_object_get(hit, "maximum"))
        return hit;
    json_object_foreach((json_t *)j, key, v)
    {
        hit = ranged(v, name);
        if (hit)
            return hit;
    }
    json_array_foreach((json_t *)j, i, v)
    {
        hit = ranged(v, name);
        if (hit)
            return hit;
    }
    return NULL;
}

static const struct cli_cmd *command(const char *verb, const char *noun)
{
    for (size_t i = 0; i < CLI_TABLE.n_cmds; i++)
        if (strcmp(CLI_TABLE.cmds[i].verb, verb) == 0 &&
            (noun ? CLI_TABLE.cmds[i].noun && strcmp(CLI_TABLE.cmds[i].noun, noun) == 0
                  : !CLI_TABLE.cmds[i].noun))
            return &CLI_TABLE.cmds[i];
    fail_msg("there is no command %s %s", verb, noun ? noun : "");
    return NULL;
}

/* Each option with a range is a field of the body with the same range. */
static size_t compare_options(const char *verb, const char *noun, const char *body)
{
    const struct cli_cmd *k = command(verb, noun);
    const struct sh_conf_opt *o = k->opts;
    json_t *all = schema(body);
    size_t compared = 0;

    for (size_t i = 0; i < k->n_opts; i++) {
        const json_t *want;
        char name[64];

        if (!(o[i].flags & SH_CONF_THEIRS) || o[i].min == o[i].max)
            continue;
        /* --eval-every is "every" of the evaluation */
        sh_strlcpy(name, o[i].name + (strncmp(o[i].name, "eval-", 5) == 0 ? 5 : 0), sizeof(name));
        for (char *p = name; *p; p++)
            *p = *p == '-' ? '_' : *p;
        want = ranged(all, name);
        if (!want)
            fail_msg("%s has no field \"%s\" with a range", body, name);
        if (o[i].min != json_number_value(json_object_get(want, "minimum")) ||
            o[i].max != json_number_value(json_object_get(want, "maximum")))
            fail_msg("%s of %s: the help says %g to %g", name, body, o[i].min, o[i].max);
        compared++;
    }
    json_decref(all);
    return compared;
}

static void limits_are_those_of_the_bodies(void **state)
{
    (void)state;
    assert_int_equal(compare_options("submit", NULL, "JobCreate"), 16);
    assert_int_equal(compare_options("push", "model", "VersionCreate"), 1);
    assert_int_equal(compare_options("set", "job", "JobPatch"), 1);
    assert_int_equal(compare_options("set", "array", "JobArrayPatch"), 1);
    assert_int_equal(compare_options("set", "slo", "SloPut"), 3);
    assert_int_equal(compare_options("set", "alias", "AliasPut"), 4);
    assert_int_equal(compare_options("set", "queue", "QueuePatch"), 1);
}

static const char *shown(const char *option)
{
    const struct cli_cmd *k = command("submit", NULL);

    for (size_t i = 0; i < k->n_opts; i++)
        if (strcmp(k->opts[i].name, option) == 0)
            return k->opts[i].def;
    fail_msg("submit has no option %s", option);
    return NULL;
}

static double number(const char *text)
{
    double v = -1;

    assert_ok(sh_parse_f64(text, 0, 1e12, "it", &v, NULL));
    return v;
}

static void read_defaults(const char *optimizer, struct train_spec *out)
{
    json_t *j = json_pack("{s:{s:s}, s:i}", "optimizer", "name", optimizer, "steps", 1);

    assert_ok(train_spec_read(j, out, NULL));
    json_decref(j);
}

static void defaults_are_those_that_training_takes(void **state)
{
    struct train_spec t = {0}, adamw = {0};

    (void)state;
    read_defaults(shown("optimizer"), &t);
    read_defaults("adamw", &adamw);
    assert_true(number(shown("lr")) == t.lr);
    assert_true(number(shown("momentum")) == t.momentum);
    assert_true(number(shown("weight-decay")) == t.weight_decay);
    assert_true(adamw.weight_decay == 0.01); /* as its help says */
    assert_true(number(shown("beta1")) == t.beta1);
    assert_true(number(shown("beta2")) == t.beta2);
    assert_true(number(shown("eps")) == t.eps);
    assert_true(number(shown("batch")) == (double)t.batch);
    assert_true(number(shown("seed")) == (double)t.seed);
    assert_string_equal(shown("labels"), t.heads[0].labels);
    assert_string_equal(shown("loss"), "cross-entropy");
    assert_int_equal(t.heads[0].loss, TRAIN_LOSS_XENT);
}

/* They are shown, and not sent: what the server takes by default may change without us. */
static void defaults_of_others_are_not_filled_in(void **state)
{
    struct sh_conf_opt opts[CLI_MAX_OPTS];
    size_t n = cli_options(&CLI_TABLE, command("submit", NULL), opts);
    struct sh_conf_table t = {"shunt", "", opts, n, sizeof(struct cli_conf), NULL};
    struct cli_conf conf;
    enum sh_conf_action action;
    char *argv[] = {(char *)"shunt", NULL}, **rest;
    int n_rest;

    (void)state;
    assert_ok(sh_conf_load(&t, &conf, 1, argv, &rest, &n_rest, &action, NULL));
    assert_null(conf.train.SPEC_batch);
    assert_null(conf.train.OPTIMIZER_lr);
    assert_null(conf.train.SPEC_loss);
    assert_string_equal(conf.kind, "training");
    sh_conf_free(&t, &conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_those_of_the_bodies),
        cmocka_unit_test(defaults_are_those_that_training_takes),
        cmocka_unit_test(defaults_of_others_are_not_filled_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
