/* simulate.c - what-if questions: asked of the server, or of a kept snapshot on this machine. */
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/files/file.h"
#include "cli/text/field.h"
#include "cli/text/out.h"
#include "common/mem.h"
#include "common/whatif.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT_MS 90000
#define MAX_SNAPSHOT (size_t)(256 << 20)
#define MAX_CHANGES (size_t)(64 << 10)

/* ------------------------------------------------------------------ the question */

/* A number, true, false or null as in JSON; all else is a text. */
static json_t *value_of(const char *text)
{
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);

    if (v && !json_is_object(v) && !json_is_array(v) && !json_is_string(v))
        return v;
    json_decref(v);
    return json_string(text);
}

static int add_change(struct cli *c, json_t *changes, const char *path, json_t *value,
                      struct sh_err *err)
{
    json_t *o = value ? json_pack("{s:s, s:o}", "set", path, "to", value) : NULL;

    if (!o || json_array_append_new(changes, o))
        return cli_usage(c, err, "--set %.60s is not UTF-8", path);
    return SH_OK;
}

static int add_sets(struct cli *c, json_t *changes, struct sh_err *err)
{
    char *text = NULL, *rest;
    int rc = c->conf->grid ? sh_strdup(c->conf->grid, &text, err) : SH_OK;

    rest = text;
    for (char *line; !rc && rest && (line = strsep(&rest, "\n"));) {
        char *eq = strchr(line, '=');

        if (!eq || eq == line)
            rc = cli_usage(c, err,
                           "--set wants PATH=VALUE, such as tenant.anna.guarantee=4, not \"%.60s\"",
                           line);
        if (rc)
            break;
        *eq = '\0';
        rc = add_change(c, changes, line, value_of(eq + 1), err);
    }
    free(text);
    return rc;
}

static int read_changes(struct cli *c, json_t **out, struct sh_err *err)
{
    int rc = SH_OK;

    if (c->conf->file)
        rc = sh_json_load_file(c->conf->file, MAX_CHANGES, out, err);
    else
        *out = json_array();
    if (!rc && !json_is_array(*out))
        rc = cli_usage(c, err, "--file wants a JSON list of {\"set\": PATH, \"to\": VALUE}");
    if (!rc && c->conf->gpus)
        rc = add_change(c, *out, "gpus", json_string(c->conf->gpus), err);
    return rc ? rc : add_sets(c, *out, err);
}

/* ------------------------------------------------------------------ who answers */

static int read_snapshot(struct cli *c, json_t **out, struct sh_err *err)
{
    int rc;

    if (c->conf->snapshot)
        return sh_json_load_file(c->conf->snapshot, MAX_SNAPSHOT, out, err);
    rc = rest_get(c, "/api/v1/snapshot", 0, out, err);
    return rc ? rc : file_write_json(c->conf->save, *out, 0600, err);
}

static int ask_here(struct cli *c, const json_t *changes, json_t **out, struct sh_err *err)
{
    json_t *snapshot = NULL, *question = NULL;
    int rc = read_snapshot(c, &snapshot, err);

    if (!rc) {
        question = json_pack("{s:O, s:O, s:f}", "snapshot", snapshot, "changes", changes, "hours",
                             c->conf->hours);
        rc = question ? sh_whatif_ask(question, LIMIT_MS, NULL, out, err)
                      : SH_FAIL(err, SH_E_NOMEM, "could not allocate the question");
    }
    json_decref(snapshot);
    json_decref(question);
    return rc;
}

static int ask_server(struct cli *c, const json_t *changes, json_t **out, struct sh_err *err)
{
    json_t *body = json_pack("{s:O, s:f}", "changes", changes, "hours", c->conf->hours);
    int rc;

    c->timeout_ms = LIMIT_MS;
    rc = body ? rest_call(c, "POST", "/api/v1/simulate", body, 0, out, err)
              : SH_FAIL(err, SH_E_NOMEM, "could not allocate the question");
    json_decref(body);
    return rc;
}

/* ------------------------------------------------------------------ the answer */

/* Members of both, side by side: wait_before, wait_after, ... */
static void put_beside(json_t *row, const json_t *of, const char *when)
{
    static const char *const SHOWN[][2] = {{"mean_wait_s", "wait"}, {"p95_wait_s", "p95"},
                                           {"mean_s", "mean"},      {"last_end_s", "end"},
                                           {"share", "share"},      {"preemptions", "stops"}};
    char name[40];

    for (size_t i = 0; i < SH_ARRAY_LEN(SHOWN); i++) {
        snprintf(name, sizeof(name), "%s_%s", SHOWN[i][1], when);
        if (json_object_get(of, SHOWN[i][0]))
            json_object_set(row, name, json_object_get(of, SHOWN[i][0]));
    }
}

static const json_t *of_tenant(const json_t *list, const char *name)
{
    json_t *t;
    size_t i;

    json_array_foreach(list, i, t)
    {
        if (strcmp(sh_json_text(t, "tenant"), name) == 0)
            return t;
    }
    return NULL;
}

static json_t *rows_of(const json_t *answer)
{
    const json_t *before = json_object_get(answer, "before");
    const json_t *after = json_object_get(answer, "after");
    const json_t *others = json_object_get(after, "tenants");
    json_t *rows = json_array(), *row = json_pack("{s:s}", "tenant", "all of them"), *t;
    size_t i;

    json_array_foreach(json_object_get(before, "tenants"), i, t)
    {
        const char *name = sh_json_text(t, "tenant");
        json_t *o = json_pack("{s:s, s:O?}", "tenant", name, "jobs", json_object_get(t, "jobs"));

        put_beside(o, t, "before");
        put_beside(o, of_tenant(others, name), "after");
        json_array_append_new(rows, o);
    }
    json_object_set(row, "jobs", json_object_get(json_object_get(before, "jobs"), "jobs"));
    put_beside(row, json_object_get(before, "jobs"), "before");
    put_beside(row, json_object_get(after, "jobs"), "after");
    json_array_append_new(rows, row);
    return rows;
}

static int show(struct cli *c, const json_t *answer, struct sh_err *err)
{
    static const struct out_col COLS[] = {
        {"TENANT", "tenant", OUT_TEXT},
        {"JOBS", "jobs", OUT_TEXT},
        {"WAIT S", "wait_before", OUT_RATE},
        {"THEN", "wait_after", OUT_RATE},
        {"P95 S", "p95_before", OUT_RATE, .spare = 2},
        {"THEN", "p95_after", OUT_RATE, .spare = 2},
        {"TO END S", "mean_before", OUT_RATE, .spare = 1},
        {"THEN", "mean_after", OUT_RATE, .spare = 1},
        {"SHARE", "share_before", OUT_RATE},
        {"THEN", "share_after", OUT_RATE},
        {"ALL ENDED S", "end_before", OUT_RATE, true},
        {"THEN", "end_after", OUT_RATE, true},
        {"PREEMPTED", "stops_before", OUT_TEXT, true},
        {"THEN", "stops_after", OUT_TEXT, true},
    };
    const json_int_t guessed = json_integer_value(json_object_get(answer, "guessed"));
    const json_int_t left_out = json_integer_value(json_object_get(answer, "left_out"));
    json_t *rows;
    int rc;

    if (c->output == OUTPUT_DATA) {
        out_data(c, answer);
        return SH_OK;
    }
    rows = rows_of(answer);
    rc = rows ? out_list(c, rows, COLS, SH_ARRAY_LEN(COLS), "tenant", err)
              : SH_FAIL(err, SH_E_NOMEM, "could not allocate a table");
    json_decref(rows);
    if (guessed)
        out_say(c, "%lld jobs are of unknown length: no similar job has ended.",
                (long long)guessed);
    if (left_out)
        out_say(c, "%lld waiting jobs are too many, and left out.", (long long)left_out);
    return rc;
}

int simulate_main(struct cli *c, struct sh_err *err)
{
    json_t *changes = NULL, *answer = NULL;
    int rc = read_changes(c, &changes, err);

    if (!rc && c->conf->snapshot && c->conf->save)
        rc = cli_usage(c, err, "give --snapshot or --save, not both");
    if (!rc)
        rc = c->conf->snapshot || c->conf->save ? ask_here(c, changes, &answer, err)
                                                : ask_server(c, changes, &answer, err);
    if (!rc)
        rc = show(c, answer, err);
    json_decref(changes);
    json_decref(answer);
    return rc;
}
