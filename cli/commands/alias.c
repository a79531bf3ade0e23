/* alias.c - aliases of models: names that stand for versions, and moving them forth and back. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/text/field.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define STABLE "stable" /* what a command that names no alias means, as requests do */

/* The alias in the first argument, "MODEL:ALIAS". otherwise: if it names none; NULL: it has to. */
static int alias_path(struct cli *c, const char *otherwise, const char *below,
                      char path[static REST_PATH_MAX], struct sh_err *err)
{
    char model[129], alias[REST_CHOICE_MAX];
    int rc = rest_model_choice(c, c->args[0], model, alias, err);

    if (!rc && !alias[0] && !otherwise)
        rc = cli_usage(c, err, "name the alias: %.128s:ALIAS", model);
    return rc ? rc
              : rest_path(path, err, "api", "v1", "models", model, "aliases",
                          alias[0] ? alias : otherwise, below, NULL);
}

/* "1=9, 2": versions with the weights that say something. */
static void say_targets(const json_t *list, char *out, size_t size)
{
    const json_t *t;
    size_t i, n = 0;

    snprintf(out, size, "-");
    json_array_foreach((json_t *)(uintptr_t)list, i, t)
    {
        if (n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%" JSON_INTEGER_FORMAT, i ? ", " : "",
                                  json_integer_value(json_object_get(t, "version")));
        if (n < size && json_array_size(list) > 1)
            n += (size_t)snprintf(out + n, size - n, "=%" JSON_INTEGER_FORMAT,
                                  json_integer_value(json_object_get(t, "weight")));
    }
}

static void add_words(json_t *items)
{
    char text[160];
    json_t *a;
    size_t i;

    json_array_foreach(items, i, a)
    {
        say_targets(json_object_get(a, "targets"), text, sizeof(text));
        json_object_set_new(a, "serves", json_string(text));
        say_targets(json_object_get(a, "previous"), text, sizeof(text));
        json_object_set_new(a, "before", json_string(text));
    }
}

int alias_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"NAME", "name", OUT_TEXT},
                                          {"VERSIONS", "serves", OUT_TEXT},
                                          {"BEFORE", "before", OUT_TEXT},
                                          {"CHANGED", "changed_at", OUT_TIME, .spare = 1},
                                          {"ROLLED BACK", "rolled_back.reason", OUT_TEXT},
                                          {"STICKY", "sticky", OUT_TEXT, true},
                                          {"BY", "changed_by", OUT_TEXT, true}};
    static const struct list_view VIEW = {
        .flags = REST_TENANT, LIST_COLS(COLS), .name = "name", .prepare = add_words};
    char path[REST_PATH_MAX], model[129], alias[REST_CHOICE_MAX];
    int rc = rest_model_choice(c, c->args[0], model, alias, err);

    if (!rc)
        rc = rest_path(path, err, "api", "v1", "models", model, "aliases", alias[0] ? alias : NULL,
                       NULL);
    if (rc)
        return rc;
    return alias[0] ? list_show_one(c, path, &VIEW, err) : list_show(c, path, &VIEW, err);
}

/* "VERSION" or "VERSION=WEIGHT" */
static int add_target(struct cli *c, const char *word, json_t *list, struct sh_err *err)
{
    const char *equals = strchr(word, '=');
    int64_t version = 0, weight = 1;
    char number[24];

    snprintf(number, sizeof(number), "%.*s", equals ? (int)SH_MIN(equals - word, 23) : 23, word);
    if (sh_parse_i64(number, 1, INT32_MAX, "version", &version, NULL) ||
        (equals && sh_parse_i64(equals + 1, 1, INT32_MAX, "weight", &weight, NULL)))
        return cli_usage(c, err,
                         "\"%.40s\" is not a version with a weight: give VERSION or "
                         "VERSION=WEIGHT",
                         word);
    if (json_array_append_new(list, json_pack("{s:I, s:I}", "version", (json_int_t)version,
                                              "weight", (json_int_t)weight)))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an alias");
    return SH_OK;
}

static int add_rollback(struct cli *c, json_t *body, struct sh_err *err)
{
    const struct cli_conf *o = c->conf;
    json_t *rule = json_object();
    int rc = cli_set_number(c, rule, "window_s", o->window_s, true, err);

    if (!rc)
        rc = cli_set_number(c, rule, "min_requests", o->min_requests, true, err);
    if (!rc)
        rc = cli_set_number(c, rule, "error_percent", o->error_percent, false, err);
    if (!rc)
        rc = cli_set_number(c, rule, "burn_rate", o->burn_rate, false, err);
    if (!rc && (o->auto_rollback || json_object_size(rule) > 0) &&
        json_object_set(body, "rollback", rule))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate an alias");
    json_decref(rule);
    return rc;
}

int alias_set(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    json_t *list = json_array();
    struct change ch = {.method = "PUT", .path = path, .name = "name", .flags = REST_TENANT};
    int rc = alias_path(c, NULL, NULL, path, err);

    ch.body = json_pack("{s:o, s:b}", "targets", list, "sticky", c->conf->sticky);
    if (!rc && !ch.body)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate an alias");
    for (int i = 1; !rc && i < c->n_args; i++)
        rc = add_target(c, c->args[i], list, err);
    if (!rc)
        rc = add_rollback(c, ch.body, err);
    if (!rc)
        return list_change(c, &ch, err, NULL);
    json_decref(ch.body);
    return rc;
}

int alias_delete(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = alias_path(c, NULL, NULL, path, err);

    return rc ? rc
              : list_change(
                    c, &(struct change){.method = "DELETE", .path = path, .flags = REST_TENANT},
                    err, "%s is deleted; its versions stay.", c->args[0]);
}

int alias_promote(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int64_t version = 0;
    struct change ch = {.method = "POST", .path = path, .name = "name", .flags = REST_TENANT};
    int rc = alias_path(c, STABLE, "promote", path, err);

    if (rc)
        return rc;
    if (sh_parse_i64(c->args[1], 1, INT32_MAX, "version", &version, NULL) == SH_OK)
        ch.body = json_pack("{s:I}", "version", (json_int_t)version);
    else
        ch.body = json_pack("{s:s}", "from", c->args[1]);
    if (!ch.body)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an alias");
    return list_change(c, &ch, err, "%s serves %s%s now.", c->args[0],
                       version ? "version " : "what is served by ", c->args[1]);
}

int alias_rollback(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = alias_path(c, STABLE, "rollback", path, err);

    return rc ? rc
              : list_change(
                    c,
                    &(struct change){
                        .method = "POST", .path = path, .name = "name", .flags = REST_TENANT},
                    err, "%s serves again what it served before its last change.", c->args[0]);
}
