/* top.c - `shunt status` and `shunt top`: what runs. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/commands/gpu.h"
#include "cli/commands/job.h"
#include "cli/commands/model.h"
#include "cli/local/state.h"
#include "cli/text/field.h"
#include "common/clock.h"
#include "common/job_state.h"
#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LAST_ENDED 10
#define FIRST_WAITING 20
/* Of a tenant's jobs that ended, the last by number: among them are those that ended last. */
#define PAGE_ENDED 100

/* ---------------------------------------------------------------- pieces */

/* A list, or why there is none. what: "models". TAKES j, NULL if it could not be read. */
static void print_list(struct cli *c, const char *what, json_t *j, const struct sh_err *why,
                       const struct out_col *cols, size_t n_cols)
{
    if (!j)
        printf("no %s are shown: %s\n", what, why->msg);
    else if (json_array_size(j) == 0)
        printf("no %s\n", what);
    else
        out_list(c, j, cols, n_cols, "name", NULL);
    json_decref(j);
}

/* What does not hold whoever takes a worker over, and why. */
static void print_fences(const json_t *executors)
{
    const json_t *e;
    size_t i;

    json_array_foreach(executors, i, e)
    {
        char missing[64];
        const char *reason = sh_json_text(json_object_get(e, "fences"), "reason");

        if (gpu_lacks_fences(e, missing, sizeof(missing)))
            printf("workers of %s are not fenced by %s%s%s (docs/security.md)\n",
                   sh_json_text(e, "name"), missing, reason[0] ? ": " : "", reason);
    }
}

static void print_executors(struct cli *c)
{
    static const struct out_col COLS[] = {{"EXECUTOR", "name", OUT_TEXT},
                                          {"STATE", "state", OUT_TEXT},
                                          {"DEVICE", "device", OUT_TEXT},
                                          {"POOL", "pool_bytes", OUT_BYTES}};
    struct sh_err why = {0};
    json_t *j = NULL;

    if (rest_list(c, "/api/v1/executors", REST_QUIET, &j, &why))
        j = NULL;
    print_list(c, "executors", json_incref(j), &why, COLS, SH_ARRAY_LEN(COLS));
    print_fences(j);
    json_decref(j);
}

/* Of all tenants that the key may see: an admin's key sees every one, another its own. NULL with
 * the reason, such as that the key may not. */
static json_t *of_all_tenants(struct cli *c, const char *path, size_t most, struct sh_err *why)
{
    json_t *all = NULL;

    list_of_all_tenants(c, path, most, REST_QUIET, &all, why);
    return all;
}

static json_t *get_models(struct cli *c, struct sh_err *why)
{
    return of_all_tenants(c, "/api/v1/models", REST_MOST, why);
}

static void print_models(struct cli *c)
{
    static const struct out_col COLS[] = {{"TENANT", "tenant", OUT_TEXT},
                                          {"MODEL", "name", OUT_TEXT},
                                          {"REQ/S", "traffic.per_s", OUT_RATE, .spare = 1},
                                          {"P50 MS", "traffic.p50_ms", OUT_RATE, .spare = 3},
                                          {"P99 MS", "traffic.p99_ms", OUT_RATE, .spare = 2},
                                          {"VERSIONS", "summary", OUT_TEXT}};
    struct sh_err why = {0};
    json_t *j = get_models(c, &why);

    model_add_summary(j);
    print_list(c, "models", j, &why, COLS, SH_ARRAY_LEN(COLS));
}

static json_int_t members(const json_t *row)
{
    const json_t *n = json_object_get(row, "members");

    return n ? json_integer_value(n) : 1;
}

/* One more member in the row of the first; what is of that one alone goes. */
static void count_into_row(json_t *row, const char *or_more)
{
    static const char *const OF_ONE[] = {"step", "steps", "loss", "samples_per_s", "preemptions"};
    json_int_t n = members(row) + 1, array = json_integer_value(json_object_get(row, "array"));

    for (size_t i = 0; i < SH_ARRAY_LEN(OF_ONE); i++)
        json_object_del(row, OF_ONE[i]);
    json_object_set_new(row, "members", json_integer(n));
    json_object_set_new(row, "id",
                        json_sprintf("array %" JSON_INTEGER_FORMAT ": %" JSON_INTEGER_FORMAT
                                     "%s jobs",
                                     array, n, or_more));
}

/* Of the members of an array those that stand alike are one row, unless an executor has them: a
 * hundred that were cancelled hide the one that has failed. or_more: "+" if there may be others.
 * TAKES jobs. OWNED; NULL without memory. */
static json_t *fold_jobs(json_t *jobs, const char *or_more)
{
    json_t *rows = json_array(), *firsts = json_object(), *j;
    size_t i;

    json_array_foreach(jobs, i, j)
    {
        json_t *first;
        char key[256];

        snprintf(key, sizeof(key), "%s %" JSON_INTEGER_FORMAT " %s %s", sh_json_text(j, "tenant"),
                 json_integer_value(json_object_get(j, "array")), sh_json_text(j, "state"),
                 sh_json_text(j, "reason"));
        first = json_object_get(firsts, key);
        if (first)
            count_into_row(first, or_more);
        else
            json_array_append(rows, j);
        if (!first && json_is_integer(json_object_get(j, "array")) &&
            (job_waits(j) || job_is_final(sh_json_text(j, "state"))))
            json_object_set(firsts, key, j);
    }
    json_decref(firsts);
    json_decref(jobs);
    return rows;
}

/* Removes the rows from there on. How many jobs they were. */
static size_t cut_rows(json_t *rows, size_t from)
{
    size_t n = 0;

    for (size_t last = json_array_size(rows); last-- > from;) {
        n += (size_t)members(json_array_get(rows, last));
        json_array_remove(rows, last);
    }
    return n;
}

struct left_out { /* as far as we know */
    size_t waiting, ended;
    bool or_more; /* others may have ended */
};

/* The last that ended, by number: of two kinds, so that an array of a thousand that were cancelled
 * does not push what has failed out of its page. NULL with the reason. */
static json_t *get_ended(struct cli *c, bool *or_more, struct sh_err *why)
{
    json_t *done = of_all_tenants(c, "/api/v1/jobs?state=SUCCEEDED,CANCELLED", PAGE_ENDED, why);
    json_t *failed =
        done ? of_all_tenants(c, "/api/v1/jobs?state=FAILED,EXPIRED", PAGE_ENDED, why) : NULL;

    *or_more = json_array_size(done) >= PAGE_ENDED || json_array_size(failed) >= PAGE_ENDED;
    if (failed)
        json_array_extend(done, failed);
    else
        json_decref(done);
    json_decref(failed);
    return failed ? done : NULL;
}

/* Those that live and the last few that ended: a system that has been up for a month has ten
 * thousand. for_people: folded, and of those that wait the first few. */
static json_t *get_jobs(struct cli *c, bool for_people, struct left_out *left, struct sh_err *why)
{
    json_t *live =
        of_all_tenants(c, "/api/v1/jobs?state=" SH_JOB_LIVE(SH_JOB_TEXT, ","), REST_MOST, why);
    json_t *ended = NULL;
    size_t placed = 0;

    *left = (struct left_out){0};
    if (live)
        ended = get_ended(c, &left->or_more, why);
    if (!ended) {
        json_decref(live);
        return NULL;
    }
    job_sort(live);
    job_sort(ended);
    if (for_people) {
        live = fold_jobs(live, "");
        ended = fold_jobs(ended, left->or_more ? "+" : "");
        while (placed < json_array_size(live) && !job_waits(json_array_get(live, placed)))
            placed++;
        left->waiting = cut_rows(live, placed + FIRST_WAITING);
    }
    left->ended = cut_rows(ended, LAST_ENDED);
    json_array_extend(live, ended);
    json_decref(ended);
    return live;
}

static void print_jobs(struct cli *c)
{
    static const struct out_col COLS[] = {{"TENANT", "tenant", OUT_TEXT},
                                          {"JOB", "id", OUT_TEXT},
                                          {"STATE", "state", OUT_TEXT},
                                          {"MODEL", "model", OUT_TEXT},
                                          {"STEP", "step", OUT_TEXT, .spare = 2},
                                          {"STEPS", "steps", OUT_TEXT, .spare = 3},
                                          {"LOSS", "loss", OUT_NUMBER, .spare = 4},
                                          {"SAMPLES/S", "samples_per_s", OUT_NUMBER, .spare = 5},
                                          {"PREEMPTED", "preemptions", OUT_TEXT, .spare = 6},
                                          {"REASON", "reason", OUT_TEXT}};
    struct sh_err why = {0};
    struct left_out left;
    json_t *j = get_jobs(c, true, &left, &why);

    print_list(c, "jobs", j, &why, COLS, SH_ARRAY_LEN(COLS));
    if (left.waiting > 0)
        printf("%zu more wait: shunt get jobs --live --all-tenants\n", left.waiting);
    if (left.or_more) /* no number that we know is the true one */
        printf("%s have ended before: shunt get jobs --all-tenants\n",
               left.ended > 0 ? "Others" : "Others may");
    else if (left.ended > 0)
        printf("%zu more have ended: shunt get jobs --all-tenants\n", left.ended);
}

/* What the API tells, below a line. */
static void print_api(struct cli *c)
{
    putchar('\n');
    print_executors(c);
    putchar('\n');
    print_models(c);
    putchar('\n');
    print_jobs(c);
}

static bool is_healthy(struct cli *c, const char *path, char *why, size_t size)
{
    struct sh_err err = {0};
    int rc = rest_get(c, path, REST_QUIET, NULL, &err);

    sh_strlcpy(why, rc ? err.msg : "ok", size);
    return rc == SH_OK;
}

/* ---------------------------------------------------------------- status */

/* The supervisor's list, checked against the processes themselves. */
static int read_processes(const struct state *s, json_t **out, struct sh_err *err)
{
    json_t *system = NULL, *p;
    size_t i;
    int rc = state_read_system(s, &system, err);

    if (!rc && !system)
        system = json_pack("{s:[]}", "processes");
    json_array_foreach(json_object_get(system, "processes"), i, p)
    {
        pid_t pid = state_pid(s, sh_json_text(p, "name"));
        json_int_t port = json_integer_value(
            json_object_get(json_object_get(system, "metrics_ports"), sh_json_text(p, "name")));
        char url[STATE_URL_MAX] = "";
        int64_t age =
            (sh_clock_wall_ms() - json_integer_value(json_object_get(p, "since_ms"))) / 1000;

        if (pid == 0 && strcmp(sh_json_text(p, "state"), "running") == 0)
            json_object_set_new(p, "state", json_string("gone"));
        json_object_set_new(p, "pid", pid > 0 ? json_integer(pid) : json_null());
        json_object_set_new(p, "age_s", json_integer(age));
        if (port > 0)
            state_metrics_url(json_string_value(json_object_get(system, "metrics_host")), (int)port,
                              url);
        json_object_set_new(p, "metrics", port > 0 ? json_string(url) : json_null());
    }
    *out = system;
    return rc;
}

/* TAKES list; NULL: the key may not see it. */
static void set_system_list(json_t *system, const char *name, json_t *list)
{
    json_object_set_new(system, name, list ? list : json_null());
}

static void print_processes(struct cli *c, const json_t *system)
{
    static const struct out_col COLS[] = {
        {"PROCESS", "name", OUT_TEXT},      {"STATE", "state", OUT_TEXT},
        {"PID", "pid", OUT_TEXT},           {"FOR, S", "age_s", OUT_TEXT, .spare = 1},
        {"RESTARTS", "restarts", OUT_TEXT}, {"LAST END", "last_end", OUT_TEXT, .spare = 2},
        {"METRICS", "metrics", OUT_TEXT}};

    out_list(c, json_object_get(system, "processes"), COLS, SH_ARRAY_LEN(COLS), "name", NULL);
}

/* s NULL: of a system elsewhere, whose processes are not known here. */
static int print_status(struct cli *c, const struct state *s, struct sh_err *err)
{
    json_t *system = NULL;
    char live[200], ready[200];
    bool is_live, is_ready;
    struct left_out left;
    int rc = s ? read_processes(s, &system, err) : SH_OK;

    if (rc)
        return rc;
    is_live = is_healthy(c, "/v2/health/live", live, sizeof(live));
    is_ready = is_live && is_healthy(c, "/v2/health/ready", ready, sizeof(ready));
    if (!s)
        system = json_pack("{s:s, s:n}", "server", c->conf->server, "processes");
    if (c->output == OUTPUT_DATA) {
        json_object_set_new(system, "live", json_boolean(is_live));
        json_object_set_new(system, "ready", json_boolean(is_ready));
        set_system_list(system, "models", get_models(c, NULL));
        set_system_list(system, "jobs", get_jobs(c, false, &left, NULL));
        out_data(c, system);
    } else {
        printf("%s  API %s  requests %s%s\n",
               !s                                   ? "elsewhere"
               : state_pid(s, STATE_SUPERVISOR) > 0 ? "up"
                                                    : "no supervisor: shunt down, then shunt up",
               is_live ? c->server : live,
               !is_live   ? "-"
               : is_ready ? "ready"
                          : "not ready: ",
               is_live && !is_ready ? ready : "");
        if (s)
            print_processes(c, system);
        if (is_live && c->output == OUTPUT_TABLE)
            print_api(c);
    }
    json_decref(system);
    if (!is_live)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the API does not answer");
    if (is_ready)
        return SH_OK;
    c->exit_code = CLI_REFUSED; /* it was reached */
    return SH_FAIL(err, SH_E_UNAVAILABLE, "not ready: %s", ready);
}

/* Of the system in the state folder, whatever server a profile names; without one here, of that
 * server. */
int status_main(struct cli *c, struct sh_err *err)
{
    const bool is_named = c->conf->server && c->conf->server[0];
    struct sh_err now = {0};
    struct state s;
    json_t *system = NULL;
    int rc = state_open(c->conf->state_dir, false, &s, &now);

    if (!rc)
        rc = state_read_system(&s, &system, &now);
    if (rc && rc != SH_E_NOTFOUND) {
        sh_err_copy(err, &now);
        goto out;
    }
    c->exit_code = CLI_NOT_REACHABLE;
    if (system) {
        free(c->conf->server);
        c->conf->server = NULL;
        rc = print_status(c, &s, err);
    } else if (is_named) {
        rc = print_status(c, NULL, err);
    } else {
        rc = rest_no_system(c, err);
    }
out:
    json_decref(system);
    state_close(&s);
    return rc;
}

/* ---------------------------------------------------------------- top */

int top_main(struct cli *c, struct sh_err *err)
{
    bool tty = isatty(STDOUT_FILENO) == 1, once = c->conf->once;
    char live[200], ready[200], now[25];
    int rc = c->output == OUTPUT_TABLE
                 ? SH_OK
                 : cli_usage(c, err, "top needs a terminal; use shunt status -o json");

    while (!rc) {
        bool ok = is_healthy(c, "/v2/health/live", live, sizeof(live));

        if (!ok && once) {
            c->exit_code = CLI_NOT_REACHABLE;
            rc = SH_FAIL(err, SH_E_UNAVAILABLE, "%s", live);
            break;
        }
        is_healthy(c, "/v2/health/ready", ready, sizeof(ready));
        if (tty && !once)
            printf("\033[H\033[2J");
        sh_clock_format(sh_clock_wall_ms(), now);
        printf("%.19s  %s  %s\n", now, c->server ? c->server : "", ok ? ready : live);
        if (ok)
            print_api(c);
        if (fflush(stdout) != 0)
            rc = SH_FAIL(err, SH_E_IO, "could not write");
        if (once)
            break;
        cli_sleep_ms(c->conf->interval_ms);
    }
    return rc;
}
