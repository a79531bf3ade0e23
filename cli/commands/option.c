/* option.c - options of the API: shows them, and changes the live ones. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/text/field.h"
#include "common/mem.h"

#include <string.h>

#define OPTIONS "/api/v1/config"

/* For people, and as `set` takes it. */
static void say_size(const struct cli *c, json_t *option)
{
    char text[32];

    if (c->output != OUTPUT_TABLE || !cli_is_bytes(sh_json_text(option, "name")))
        return;
    out_text(option, "value", OUT_BYTES, text, sizeof(text));
    json_object_set_new(option, "value", json_string(text));
}

static int show_options(struct cli *c, const json_t *j, bool live_only, struct sh_err *err)
{
    /* Values and what they mean are long: at the end, where they are cut. */
    static const struct out_col COLS[] = {{"OPTION", "name", OUT_TEXT},
                                          {"LIVE", "live", OUT_TEXT},
                                          {"CHANGED", "changed", OUT_TEXT},
                                          {"VALUE", "value", OUT_TEXT},
                                          {"MEANING", "help", OUT_TEXT, .spare = 1}};
    json_t *list = json_array(), *o;
    size_t i;
    int rc = list ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");

    json_array_foreach(json_object_get(j, "options"), i, o)
    {
        say_size(c, o);
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
static int add_body_option(struct cli *c, json_t *body, const char *word, struct sh_err *err)
{
    const char *eq = strchr(word, '=');
    char name[128];
    json_t *value = NULL;
    int rc;

    if (!eq || eq == word || (size_t)(eq - word) >= sizeof(name))
        return cli_usage(c, err, "\"%.60s\" is not OPTION=VALUE", word);
    memcpy(name, word, (size_t)(eq - word));
    name[eq - word] = '\0';
    rc = cli_value(c, name, eq + 1, &value, err);
    if (!rc && !json_is_integer(value) && !json_is_null(value)) {
        json_decref(value);
        value = json_string(eq + 1);
    }
    if (!rc && json_object_set(body, name, value))
        rc = SH_FAIL(err, SH_E_INVALID, "the value of %.60s is not UTF-8", name);
    json_decref(value);
    return rc;
}

int option_set(struct cli *c, struct sh_err *err)
{
    json_t *body = json_object(), *j = NULL;
    int rc = body ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the options");

    for (int i = 0; !rc && i < c->n_args; i++)
        rc = add_body_option(c, body, c->args[i], err);
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
