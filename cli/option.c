/* option.c - options of the API: what they are, and a change of those that may change. */
#include "cli/lists.h"
#include "common/mem.h"

#include <string.h>

#define OPTIONS "/api/v1/config"

static int show_options(struct cli *c, const json_t *j, bool live_only, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"OPTION", "name", OUT_TEXT},
                                          {"VALUE", "value", OUT_TEXT},
                                          {"LIVE", "live", OUT_TEXT},
                                          {"CHANGED", "changed", OUT_TEXT},
                                          {"MEANING", "help", OUT_TEXT}};
    json_t *list = json_array(), *o;
    size_t i;
    int rc = list ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");

    json_array_foreach(json_object_get(j, "options"), i, o)
    {
        if (!rc && (!live_only || json_is_true(json_object_get(o, "live"))) &&
            json_array_append(list, o))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");
    }
    if (!rc)
        rc = out_list(c, list, COLS, SH_ARRAY_LEN(COLS), "name", err);
    json_decref(list);
    return rc;
}

int option_get(struct cli *c, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = rest_get(c, OPTIONS, 0, &j, err);

    if (!rc)
        rc = show_options(c, j, false, err);
    json_decref(j);
    return rc;
}

/* NAME=VALUE: a number, null, or else a text. */
static int add_option(struct cli *c, json_t *body, const char *word, struct sh_err *err)
{
    const char *eq = strchr(word, '=');
    char name[128];
    json_t *value;

    if (!eq || eq == word || (size_t)(eq - word) >= sizeof(name))
        return cli_usage(c, err, "\"%.60s\" is not OPTION=VALUE", word);
    memcpy(name, word, (size_t)(eq - word));
    name[eq - word] = '\0';
    value = json_loads(eq + 1, JSON_DECODE_ANY, NULL);
    if (!json_is_integer(value) && !json_is_null(value)) {
        json_decref(value);
        value = json_string(eq + 1);
    }
    return json_object_set_new(body, name, value)
               ? SH_FAIL(err, SH_E_INVALID, "the value of %.60s is not UTF-8", name)
               : SH_OK;
}

int option_set(struct cli *c, struct sh_err *err)
{
    json_t *body = json_object(), *j = NULL;
    int rc = body ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the options");

    for (int i = 0; !rc && i < c->n_args; i++)
        rc = add_option(c, body, c->args[i], err);
    if (!rc)
        rc = rest_call(c, "PATCH", OPTIONS, body, 0, &j, err);
    if (!rc)
        rc = show_options(c, j, true, err);
    if (!rc && c->output == OUTPUT_TABLE)
        list_said_dry_run(c);
    json_decref(body);
    json_decref(j);
    return rc;
}
