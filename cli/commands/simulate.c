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
static json_t *change_value(const char *text)
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
        rc = add_change(c, changes, line, change_value(eq + 1), err);
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

struct question {
    json_t *changes; /* OWNED */
    char *trace;     /* OWNED; NULL: none */
};

static int read_cli_question(struct cli *c, struct question *q, struct sh_err *err)
{
    size_t len;
    int rc = read_changes(c, &q->changes, err);

    if (!rc && c->conf->trace)
        rc = file_read(c->conf->trace, SH_WHATIF_MAX_TRACE, &q->trace, &len, err);
    if (!rc && c->conf->snapshot && c->conf->save)
        rc = cli_usage(c, err, "give --snapshot or --save, not both");
    return rc;
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

static int ask_here(struct cli *c, const struct question *q, json_t **out, struct sh_err *err)
{
    json_t *snapshot = NULL, *question = NULL;
    int rc = read_snapshot(c, &snapshot, err);

    if (!rc) {
        question = json_pack("{s:O, s:O, s:f, s:s*}", "snapshot", snapshot, "changes", q->changes,
                             "hours", c->conf->hours, "trace", q->trace);
        rc = question ? sh_whatif_ask(question, LIMIT_MS, NULL, out, err)
                      : SH_FAIL(err, SH_E_NOMEM, "could not allocate the question");
    }
    json_decref(snapshot);
    json_decref(question);
    return rc;
}

static int ask_server(struct cli *c, const struct question *q, json_t **out, struct sh_err *err)
{
    json_t *body = json_pack("{s:O, s:f, s:s*}", "changes", q->changes, "hours", c->conf->hours,
                             "trace", q->trace);
    int rc;

    c->timeout_ms = LIMIT_MS;
    rc = body ? rest_call(c, "POST", "/api/v1/simulate", body, 0, out, err)
              : SH_FAIL(err, SH_E_NOMEM, "could not allocate the question");
    json_decref(body);
    return rc;
}

/* ------------------------------------------------------------------ the answer */

struct side { /* a member that is shown twice: NAME_before, NAME_after */
    const char *member, *name;
};
static const struct side OF_JOBS[] = {{"mean_wait_s", "wait"}, {"p95_wait_s", "p95"},
                                      {"mean_s", "mean"},      {"last_end_s", "end"},
                                      {"share", "share"},      {"preemptions", "stops"}};
static const struct side OF_REQUESTS[] = {
    {"attained", "met"}, {"p50_ms", "p50"},      {"p99_ms", "p99"}, {"mean_wait_ms", "wait"},
    {"share", "share"},  {"refused", "refused"}, {"slo_ms", "slo"}};

static const struct out_col JOB_COLS[] = {
    {"TENANT", "tenant", OUT_TEXT},
    {"JOBS", "n", OUT_TEXT},
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
static const struct out_col REQUEST_COLS[] = {
    {"TENANT", "tenant", OUT_TEXT},
    {"MODEL", "model", OUT_TEXT},
    {"REQUESTS", "n", OUT_TEXT},
    {"MET", "met_before", OUT_RATE},
    {"THEN", "met_after", OUT_RATE},
    {"P99 MS", "p99_before", OUT_RATE},
    {"THEN", "p99_after", OUT_RATE},
    {"P50 MS", "p50_before", OUT_RATE, .spare = 2},
    {"THEN", "p50_after", OUT_RATE, .spare = 2},
    {"REFUSED", "refused_before", OUT_TEXT, .spare = 1},
    {"THEN", "refused_after", OUT_TEXT, .spare = 1},
    {"SLO MS", "slo_before", OUT_RATE, true},
    {"THEN", "slo_after", OUT_RATE, true},
    {"WAIT MS", "wait_before", OUT_RATE, true},
    {"THEN", "wait_after", OUT_RATE, true},
    {"SHARE", "share_before", OUT_RATE, true},
    {"THEN", "share_after", OUT_RATE, true},
};
struct table {
    const char *list, *all; /* members of what was before, and is after */
    const char *name;       /* of a row */
    const struct side *sides;
    size_t n_sides;
    const struct out_col *cols;
    size_t n_cols;
};
static const struct table JOBS = {.list = "tenants",
                                  .all = "jobs",
                                  .name = "tenant",
                                  .sides = OF_JOBS,
                                  .n_sides = SH_ARRAY_LEN(OF_JOBS),
                                  .cols = JOB_COLS,
                                  .n_cols = SH_ARRAY_LEN(JOB_COLS)};
static const struct table REQUESTS = {.list = "models",
                                      .all = "requests",
                                      .name = "model",
                                      .sides = OF_REQUESTS,
                                      .n_sides = SH_ARRAY_LEN(OF_REQUESTS),
                                      .cols = REQUEST_COLS,
                                      .n_cols = SH_ARRAY_LEN(REQUEST_COLS)};

static void put_beside(json_t *row, const json_t *of, const char *when, const struct table *t)
{
    char name[40];

    for (size_t i = 0; i < t->n_sides; i++) {
        snprintf(name, sizeof(name), "%s_%s", t->sides[i].name, when);
        if (json_object_get(of, t->sides[i].member))
            json_object_set(row, name, json_object_get(of, t->sides[i].member));
    }
}

/* The one of a list that is of the same tenant, and model if it has one. */
static const json_t *same_in(const json_t *list, const json_t *of)
{
    json_t *t;
    size_t i;

    json_array_foreach(list, i, t)
    {
        if (strcmp(sh_json_text(t, "tenant"), sh_json_text(of, "tenant")) == 0 &&
            strcmp(sh_json_text(t, "model"), sh_json_text(of, "model")) == 0)
            return t;
    }
    return NULL;
}

/* A row for each of the list, and one for all. */
static json_t *answer_rows(const json_t *answer, const struct table *t)
{
    const json_t *before = json_object_get(answer, "before");
    const json_t *after = json_object_get(answer, "after");
    const json_t *others = json_object_get(after, t->list);
    json_t *rows = json_array(), *row, *of;
    size_t i;

    json_array_foreach(json_object_get(before, t->list), i, of)
    {
        row = json_pack("{s:O?, s:O?, s:O?}", "tenant", json_object_get(of, "tenant"), "model",
                        json_object_get(of, "model"), "n", json_object_get(of, t->all));
        put_beside(row, of, "before", t);
        put_beside(row, same_in(others, of), "after", t);
        json_array_append_new(rows, row);
    }
    row = json_pack("{s:s, s:O?}", "tenant", "all of them", "n",
                    json_object_get(json_object_get(before, t->all), t->all));
    put_beside(row, json_object_get(before, t->all), "before", t);
    put_beside(row, json_object_get(after, t->all), "after", t);
    json_array_append_new(rows, row);
    return rows;
}

static int show_table(struct cli *c, const json_t *answer, const struct table *t,
                      struct sh_err *err)
{
    json_t *rows = answer_rows(answer, t);
    int rc = out_list(c, rows, t->cols, t->n_cols, t->name, err);

    json_decref(rows);
    return rc;
}

static double answer_number(const json_t *answer, const char *when, const char *of,
                            const char *member)
{
    return json_number_value(
        json_object_get(json_object_get(json_object_get(answer, when), of), member));
}

static int show_answer(struct cli *c, const json_t *answer, struct sh_err *err)
{
    const json_int_t guessed = json_integer_value(json_object_get(answer, "guessed"));
    const json_int_t left_out = json_integer_value(json_object_get(answer, "left_out"));
    const json_t *recorded = json_object_get(answer, "recorded");
    const double missing = json_number_value(json_object_get(recorded, "left_out"));
    int rc;

    if (c->output == OUTPUT_DATA) {
        out_data(c, answer);
        return SH_OK;
    }
    rc = show_table(c, answer, &JOBS, err);
    if (!rc && answer_number(answer, "before", "requests", "requests") > 0) {
        out_say(c, "\nRequests of %.0f s; of the GPU time %.3g is left to training, then %.3g:",
                json_number_value(json_object_get(recorded, "seconds")),
                answer_number(answer, "before", "requests", "training_kept"),
                answer_number(answer, "after", "requests", "training_kept"));
        rc = show_table(c, answer, &REQUESTS, err);
    }
    if (guessed)
        out_say(c, "%lld jobs are of unknown length: no similar job has ended.",
                (long long)guessed);
    if (left_out)
        out_say(c, "%lld waiting jobs are too many, and left out.", (long long)left_out);
    if (missing > 0)
        out_say(c, "%.0f requests were for versions that are not served now, and are left out.",
                missing);
    return rc;
}

int simulate_main(struct cli *c, struct sh_err *err)
{
    struct question q = {.changes = NULL};
    json_t *answer = NULL;
    int rc = read_cli_question(c, &q, err);

    if (!rc)
        rc = c->conf->snapshot || c->conf->save ? ask_here(c, &q, &answer, err)
                                                : ask_server(c, &q, &answer, err);
    if (!rc)
        rc = show_answer(c, answer, err);
    json_decref(q.changes);
    free(q.trace);
    json_decref(answer);
    return rc;
}
