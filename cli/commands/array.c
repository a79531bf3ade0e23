/* array.c - arrays of jobs: submit, show, wait, change. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/commands/job.h"
#include "cli/text/field.h"
#include "common/job.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 5000 /* at all that wait, to find the first */

static int array_path(struct cli *c, char path[static REST_PATH_MAX], const char *id,
                      const char *below, struct sh_err *err)
{
    int64_t n;

    if (sh_parse_i64(id, 1, INT64_MAX, "array", &n, NULL))
        return cli_usage(c, err, "\"%.40s\" is not the number of an array", id);
    return rest_path(path, err, "api", "v1", "job-arrays", id, below, NULL);
}

/* ---------------------------------------------------------------- look */

enum group { WAITING, RUNNING, SUCCEEDED, FAILED, CANCELLED, N_GROUPS };

static const struct {
    const char *field, *states;
} GROUPS[N_GROUPS] = {
    [WAITING] = {"waiting", SH_JOB_WAITING(SH_JOB_TEXT, " ")},
    [RUNNING] = {"running", SH_JOB_ON_EXECUTOR(SH_JOB_TEXT, " ")},
    [SUCCEEDED] = {"succeeded", "SUCCEEDED"},
    [FAILED] = {"failed", "FAILED EXPIRED"},
    [CANCELLED] = {"cancelled", "CANCELLED"},
};

/* How many of its jobs are in a state of this group. */
static json_int_t n_in(const json_t *array, enum group group)
{
    const char *states = GROUPS[group].states, *state;
    json_t *n;
    json_int_t sum = 0;

    json_object_foreach(json_object_get(array, "states"), state, n)
    {
        const char *at = strstr(states, state);

        /* A word of the list, and not a part of one. */
        if (at && (at == states || at[-1] == ' ') && strchr(" ", at[strlen(state)]))
            sum += json_integer_value(n);
    }
    return sum;
}

static void add_groups_to_all(json_t *arrays)
{
    json_t *one;
    size_t i;

    json_array_foreach(arrays, i, one)
    {
        for (enum group g = 0; g < N_GROUPS; g++)
            json_object_set_new(one, GROUPS[g].field, json_integer(n_in(one, g)));
    }
}

int array_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"ARRAY", "id", OUT_TEXT},
                                          {"NAME", "name", OUT_TEXT},
                                          {"MODEL", "model", OUT_TEXT, .spare = 3},
                                          {"INDICES", "indices", OUT_TEXT, .spare = 4},
                                          {"JOBS", "jobs", OUT_TEXT},
                                          {"LIMIT", "max_parallel", OUT_TEXT, .spare = 1},
                                          {"WAIT", "waiting", OUT_TEXT},
                                          {"RUN", "running", OUT_TEXT},
                                          {"OK", "succeeded", OUT_TEXT},
                                          {"FAIL", "failed", OUT_TEXT},
                                          {"CANCELLED", "cancelled", OUT_TEXT},
                                          {"AGE", "created_at", OUT_AGE, .spare = 2},
                                          {"GRID", "grid", OUT_TEXT, true},
                                          {"KIND", "kind", OUT_TEXT, true},
                                          {"QUEUE", "queue", OUT_TEXT, true},
                                          {"DATASET", "dataset", OUT_TEXT, true}};
    static const struct list_view VIEW = {.path = "/api/v1/job-arrays",
                                          .flags = REST_TENANT,
                                          LIST_COLS(COLS),
                                          .name = "id",
                                          .prepare = add_groups_to_all};

    return list_get(c, &VIEW, err);
}

/* ---------------------------------------------------------------- wait */

static bool has_array_ended(const json_t *array)
{
    return n_in(array, WAITING) + n_in(array, RUNNING) == 0;
}

static void array_show(struct progress *bar, const json_t *array)
{
    double n = json_number_value(json_object_get(array, "jobs"));
    json_int_t waiting = n_in(array, WAITING), running = n_in(array, RUNNING);
    double ended = n - (double)(waiting + running);

    progress_show(
        bar, n > 0 ? ended / n : -1,
        "array %" JSON_INTEGER_FORMAT ": %.0f of %.0f jobs have ended, %" JSON_INTEGER_FORMAT
        " failed, %" JSON_INTEGER_FORMAT " run",
        json_integer_value(json_object_get(array, "id")), ended, n, n_in(array, FAILED), running);
}

/* While none of its jobs runs, the first that waits. */
static json_t *first_waiting(struct cli *c, const json_t *array)
{
    json_t *jobs = NULL, *first = NULL;
    char id[24], *url = NULL;

    snprintf(id, sizeof(id), "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(array, "id")));
    if (n_in(array, RUNNING) == 0 && n_in(array, WAITING) > 0 &&
        !rest_query("/api/v1/jobs", &url, NULL, "array", id, "state", "QUEUED,HELD,SUSPENDED",
                    NULL) &&
        !rest_list(c, url, REST_TENANT | REST_QUIET, &jobs, NULL) && json_array_size(jobs) > 0)
        first = json_incref(json_array_get(jobs, json_array_size(jobs) - 1)); /* newest first */
    json_decref(jobs);
    free(url);
    return first;
}

static int wait_for_array(struct cli *c, const char *id, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    const struct job_end e = {path,       "array",       id,     has_array_ended,
                              array_show, first_waiting, LOOK_MS};
    json_t *j = NULL;
    json_int_t failed, n;
    int rc = array_path(c, path, id, NULL, err);

    if (!rc)
        rc = job_wait_end(c, &e, &j, err);
    if (rc)
        return rc;
    failed = n_in(j, FAILED) + n_in(j, CANCELLED);
    n = json_integer_value(json_object_get(j, "jobs"));
    if (c->output == OUTPUT_DATA)
        out_data(c, j);
    json_decref(j);
    if (failed) {
        c->exit_code = CLI_REFUSED;
        return SH_FAIL(err, SH_E_CONFLICT,
                       "%" JSON_INTEGER_FORMAT " of the %" JSON_INTEGER_FORMAT
                       " jobs of array %s did not succeed; shunt get jobs --array %s says why",
                       failed, n, id, id);
    }
    if (n == 1)
        out_say(c, "The job of array %s SUCCEEDED.", id);
    else
        out_say(c, "All %" JSON_INTEGER_FORMAT " jobs of array %s SUCCEEDED.", n, id);
    return SH_OK;
}

int array_wait(struct cli *c, struct sh_err *err)
{
    return wait_for_array(c, c->args[0], err);
}

/* ---------------------------------------------------------------- submit */

/* A number, true, false, or a text. OWNED; NULL: not UTF-8. */
static json_t *grid_value(const char *text)
{
    int64_t whole;
    double real;

    if (!sh_parse_i64(text, INT64_MIN, INT64_MAX, "", &whole, NULL))
        return json_integer(whole);
    if (!sh_parse_f64(text, -1e300, 1e300, "", &real, NULL))
        return json_real(real);
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return json_boolean(text[0] == 't');
    return json_string(text);
}

/* "lr=0.1,0.01"; the name as the option has it or the field. */
static int add_grid_values(struct cli *c, char *text, json_t *grid, struct sh_err *err)
{
    char *eq = strchr(text, '='), *rest;
    json_t *values = eq && eq != text ? json_array() : NULL;
    bool is_none;
    int rc = SH_OK;

    if (!values)
        return cli_usage(c, err,
                         "--set wants FIELD=VALUE,VALUE, such as lr=0.1,0.01, not \"%.60s\"", text);
    *eq = '\0';
    for (char *p = text; *p; p++)
        *p = *p == '-' ? '_' : *p;
    rest = eq + 1;
    is_none = !rest[0]; /* the server says what the field takes, or which fields there are */
    for (char *p; !rc && (p = strsep(&rest, ","));)
        if ((!p[0] && !is_none) || json_array_append_new(values, grid_value(p)))
            rc = cli_usage(c, err, "--set %.60s has a value that is empty or not UTF-8", text);
    if (!rc && json_object_get(grid, text))
        rc = cli_usage(c, err, "--set names %.60s twice: give its values as one list", text);
    if (rc || json_object_set(grid, text, values))
        rc = rc ? rc : cli_usage(c, err, "--set is not UTF-8");
    json_decref(values);
    return rc;
}

static int fill_grid(struct cli *c, json_t *array, struct sh_err *err)
{
    char *text = NULL, *rest;
    json_t *grid = json_object();
    int rc = grid ? sh_strdup(c->conf->grid, &text, err)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate an array");

    rest = text;
    for (char *line; !rc && (line = strsep(&rest, "\n"));)
        rc = add_grid_values(c, line, grid, err);
    if (!rc && json_object_set(array, "grid", grid))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate an array");
    json_decref(grid);
    free(text);
    return rc;
}

/* Do the texts of the job have words in braces, which only an array fills in? */
static bool has_words(const struct cli_conf *o)
{
    return (o->job_name && strchr(o->job_name, '{')) ||
           (o->job_labels && strchr(o->job_labels, '{'));
}

/* Do --array and --set ask for one? If not, the values of --set are put into the job. */
static int look_at_options(struct cli *c, json_t *job, bool *out, struct sh_err *err)
{
    const struct cli_conf *o = c->conf;
    json_t *holder = json_object(), *values;
    const char *name;
    int rc = SH_OK;

    *out = (o->array && o->array[0]) || (o->grid && o->grid[0] && has_words(o));
    if (!*out && o->grid && o->grid[0])
        rc = fill_grid(c, holder, err);
    json_object_foreach(json_object_get(holder, "grid"), name, values) *out |=
        json_array_size(values) > 1;
    json_object_foreach(json_object_get(holder, "grid"), name, values)
    {
        if (!rc && !*out)
            rc = sh_job_set_field(job, name, json_array_get(values, 0), err);
    }
    json_decref(holder);
    return rc;
}

/* "0-99%4": indices, and how many at once; with a grid "%4" will do, or nothing. */
static int fill_array(struct cli *c, json_t *array, struct sh_err *err)
{
    const char *text = c->conf->array ? c->conf->array : "", *limit = strchr(text, '%');
    bool is_grid = c->conf->grid && c->conf->grid[0];
    int64_t n = 0;
    int rc = is_grid ? fill_grid(c, array, err) : SH_OK;

    if (rc)
        return rc;
    if (limit && sh_parse_i64(limit + 1, 1, INT32_MAX, "limit", &n, NULL))
        return cli_usage(c, err, "--array wants INDICES or INDICES%%LIMIT, such as 0-99%%4");
    if ((!(is_grid && (!text[0] || text == limit)) &&
         json_object_set_new(array, "indices",
                             json_stringn(text, limit ? (size_t)(limit - text) : strlen(text)))) ||
        (limit && json_object_set_new(array, "max_parallel", json_integer(n))))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an array");
    return SH_OK;
}

static int send_array(struct cli *c, json_t *job, struct sh_err *err)
{
    json_t *array =
        json_pack("{s:O, s:O}", "job", job, "client_token", json_object_get(job, "client_token"));
    json_t *j = NULL;
    char id[24] = "", base[256], text[400];
    json_int_t n;
    int rc =
        array ? fill_array(c, array, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");

    json_object_del(job, "client_token");
    if (!rc)
        rc = job_send(c, "/api/v1/job-arrays", array, &j, err);
    if (!rc) {
        n = json_integer_value(json_object_get(j, "jobs"));
        snprintf(id, sizeof(id), "%" JSON_INTEGER_FORMAT,
                 json_integer_value(json_object_get(j, "id")));
        job_base_text(c, j, n == 1 ? "It trains" : "They train", base, sizeof(base));
        snprintf(text, sizeof(text), "Array %s has %" JSON_INTEGER_FORMAT " job%s.%s", id, n,
                 n == 1 ? "" : "s", base);
        job_say_made(c, j, "array", id, text);
        job_say_assumes(c, j);
    }
    if (!rc && c->conf->wait && !c->conf->dry_run)
        rc = wait_for_array(c, id, err);
    json_decref(array);
    json_decref(j);
    return rc;
}

/* *is_array false: nothing was sent, and the job has the values of --set. */
int array_submit(struct cli *c, json_t *job, bool *is_array, struct sh_err *err)
{
    int rc = look_at_options(c, job, is_array, err);

    return !rc && *is_array ? send_array(c, job, err) : rc;
}

/* ---------------------------------------------------------------- change */

int array_set(struct cli *c, struct sh_err *err)
{
    const char *max = c->conf->max_parallel;
    bool none = max && strcmp(max, "none") == 0;
    char path[REST_PATH_MAX];
    struct change ch = {.method = "PATCH", .path = path, .name = "id", .flags = REST_TENANT};
    int64_t n = 0;
    int rc = array_path(c, path, c->args[0], NULL, err);

    if (!rc && (!max || (!none && sh_parse_i64(max, 1, INT32_MAX, "limit", &n, NULL))))
        return cli_usage(c, err, "--max-parallel is needed: a number, or none");
    ch.body = none ? json_pack("{s:n}", "max_parallel")
                   : json_pack("{s:I}", "max_parallel", (json_int_t)n);
    if (!rc)
        return list_change(c, &ch, err, NULL);
    json_decref(ch.body);
    return rc;
}

int array_control(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    json_t *j = NULL;
    int rc = array_path(c, path, c->conf->array, c->cmd->verb, err);

    if (!rc)
        rc = rest_call(c, "POST", path, NULL, REST_TENANT, &j, err);
    if (!rc && c->output != OUTPUT_TABLE)
        rc = out_object(c, j, "changed", err);
    else if (!rc && !list_said_dry_run(c))
        out_say(c, "%s: %" JSON_INTEGER_FORMAT " of the %" JSON_INTEGER_FORMAT " jobs of array %s.",
                c->cmd->verb, json_integer_value(json_object_get(j, "changed")),
                json_integer_value(json_object_get(json_object_get(j, "array"), "jobs")),
                c->conf->array);
    json_decref(j);
    if (!rc && c->conf->wait && !c->conf->dry_run)
        rc = array_path(c, path, c->conf->array, NULL, err);
    if (!rc && c->conf->wait && !c->conf->dry_run)
        rc = job_wait_off(c, path, "array", c->conf->array, err);
    return rc;
}
