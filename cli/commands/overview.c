/* overview.c - see overview.h. */
#include "cli/commands/overview.h"

#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/commands/gpu.h"
#include "cli/commands/job.h"
#include "cli/commands/model.h"
#include "cli/text/out.h"
#include "common/job_state.h"
#include "common/mem.h"

#include <stdio.h>

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

json_t *overview_models(struct cli *c, struct sh_err *why)
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
    json_t *j = overview_models(c, &why);

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

json_t *overview_jobs(struct cli *c, bool for_people, struct overview_left *left,
                      struct sh_err *why)
{
    json_t *live =
        of_all_tenants(c, "/api/v1/jobs?state=" SH_JOB_LIVE(SH_JOB_TEXT, ","), REST_MOST, why);
    json_t *ended = NULL;
    size_t placed = 0;

    *left = (struct overview_left){0};
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
    struct overview_left left;
    json_t *j = overview_jobs(c, true, &left, &why);

    print_list(c, "jobs", j, &why, COLS, SH_ARRAY_LEN(COLS));
    if (left.waiting > 0)
        printf("%zu more wait: shunt get jobs --live --all-tenants\n", left.waiting);
    if (left.or_more) /* no number that we know is the true one */
        printf("%s have ended before: shunt get jobs --all-tenants\n",
               left.ended > 0 ? "Others" : "Others may");
    else if (left.ended > 0)
        printf("%zu more have ended: shunt get jobs --all-tenants\n", left.ended);
}

void overview_print(struct cli *c)
{
    putchar('\n');
    print_executors(c);
    putchar('\n');
    print_models(c);
    putchar('\n');
    print_jobs(c);
}

bool overview_health(struct cli *c, const char *path, char *why, size_t size)
{
    struct sh_err err = {0};
    int rc = rest_get(c, path, REST_QUIET, NULL, &err);

    sh_strlcpy(why, rc ? err.msg : "ok", size);
    return rc == SH_OK;
}
