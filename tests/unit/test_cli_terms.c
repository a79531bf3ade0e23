/* test_cli_terms.c - Without it: whoever mistypes --epochs reads of "spec.epochs", which no help
 * explains, or a dataset of the name of an option is called one. */
/* uses: libcli.a */
/* link: -lcurl -lpq -lturbojpeg -lpng16 -lz */
#include "cli/cli.h"
#include "cli/client/terms.h"
#include "cli/text/find.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>

static const struct cli_cmd *command(const char *verb, const char *noun)
{
    char *words[] = {(char *)verb, (char *)noun}; /* never written to */
    int used = 0;
    const struct cli_cmd *cmd = cli_find(&CLI_TABLE, words, noun ? 2 : 1, &used, NULL);

    assert_non_null(cmd);
    return cmd;
}

static void says(const struct cli_cmd *cmd, const char *text, const char *want)
{
    const struct cli c = {.table = &CLI_TABLE, .cmd = cmd};
    char *got = NULL;

    assert_ok(terms_put(&c, text, &got, NULL));
    assert_string_equal(got, want);
    free(got);
}

static void a_field_is_the_option_that_fills_it(void **state)
{
    const struct cli_cmd *submit = command("submit", NULL);
    (void)state;

    says(submit, "\"min_runtime_ms\" must be a number", "--min-runtime-ms must be a number");
    says(submit, "\"spec.optimizer.lr\" must be a number", "--lr must be a number");
    says(submit, "\"job.spec.epochs\" must be a number", "--epochs must be a number");
    says(submit, "give either \"spec.steps\" or \"spec.epochs\"",
         "give either --steps or --epochs");
    says(submit, "\"spec.inputs\" names \"x\"", "--map names \"x\"");
    says(submit, "\"spec.evaluation.every\" is missing", "--eval-every is missing");
    says(submit, "\"client_token\" must be a string", "--token must be a string");
    says(command("get", "jobs"), "\"state\" must be one of: A", "--state must be one of: A");
    says(submit, "name it: add ?tenant=NAME", "name it: add --tenant NAME");
}

static void a_name_is_what_is_named(void **state)
{
    (void)state;

    says(command("submit", NULL), "\"spec.optimizer.name\" must be", "--optimizer must be");
    says(command("submit", NULL), "\"job.name\" must be", "--name must be");
    says(command("push", "model"), "\"name\" must be", "NAME must be");
    says(command("get", "versions"), "\"version\" must be", "VERSION must be");
}

static void values_and_fields_without_an_option_stay(void **state)
{
    static const char *const SAME[] = {
        "there is no queue \"queue\"",
        "dataset \"lr\" has no tensor \"label\"",
        "\"spec.nesterov\" must be true or false",
        "\"spec.schedule.name\" must be one of: a, b",
        "\"spec.schedule.every\" must be above 0",
        "\"spec.augment.labels\" must be a string",
        "\"\" is empty",
        "\"Lr\" is not ours",
        "\"spec.a.name.that_is_longer_than_any_of_ours_and_fills_the_room_there_is_for_one\" is",
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(SAME); i++)
        says(command("submit", NULL), SAME[i], SAME[i]);
    says(command("submit", NULL), "\"queue\" and \"no end", "--queue and \"no end");
    says(command("set", "quota"), "\"max_gpus\" must be a number", "\"max_gpus\" must be a number");
}

static void what_a_file_holds_is_called_as_the_file_does(void **state)
{
    json_t *problem = json_pack("{s:s, s:[{s:s}]}", "detail", "\"spec.lr\" is", "errors", "detail",
                                "\"priority\" must be");
    struct cli_conf conf = {.spec = (char *)"spec.json"}; /* never written to */
    struct cli c = {.table = &CLI_TABLE, .cmd = command("submit", NULL), .conf = &conf};
    (void)state;

    terms_translate(&c, problem);
    assert_string_equal(sh_json_text(problem, "detail"), "\"spec.lr\" is");
    conf.spec = NULL;
    terms_translate(&c, problem);
    assert_string_equal(sh_json_text(problem, "detail"), "--lr is");
    assert_string_equal(
        sh_json_text(json_array_get(json_object_get(problem, "errors"), 0), "detail"),
        "--priority must be");
    json_decref(problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_is_the_option_that_fills_it),
        cmocka_unit_test(a_name_is_what_is_named),
        cmocka_unit_test(values_and_fields_without_an_option_stay),
        cmocka_unit_test(what_a_file_holds_is_called_as_the_file_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
