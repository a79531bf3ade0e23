/* job.c - jobs: submit, show, control. */
#include "cli/commands/job.h"

#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/commands/spec.h"
#include "cli/text/field.h"
#include "common/field.h"
#include "common/hash.h"
#include "common/job_state.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MS 250
#define LOSSES_PAGE 10000

int job_path(struct cli *c, char path[static REST_PATH_MAX], const char *id, const char *below,
             struct sh_err *err)
{
    int64_t n;

    if (sh_parse_i64(id, 1, INT64_MAX, "job", &n, NULL))
        return cli_usage(c, err, "\"%.40s\" is not a job's number", id);
    return rest_path(path, err, "api", "v1", "jobs", id, below, NULL);
}

bool job_is_final(const char *state)
{
    return sh_words_have(SH_JOB_ENDED(SH_JOB_TEXT, ","), state);
}

bool job_waits(const json_t *job)
{
    return sh_words_have(SH_JOB_WAITING(SH_JOB_TEXT, ","), sh_json_text(job, "state"));
}

/* ---------------------------------------------------------------- lists */

static int job_rank(const json_t *j)
{
    static const char *const ORDER[] = {"COMPLETING", "RUNNING",   "STARTING", "CANCELLING",
                                        "PREEMPTED",  "SUSPENDED", "QUEUED",   "HELD"};
    int i = 0;

    while (i < (int)SH_ARRAY_LEN(ORDER) && strcmp(ORDER[i], sh_json_text(j, "state")) != 0)
        i++;
    return i;
}

static bool job_goes_before(const json_t *a, const json_t *b)
{
    json_int_t pa = json_integer_value(json_object_get(a, "priority"));
    json_int_t pb = json_integer_value(json_object_get(b, "priority"));
    int ended = strcmp(sh_json_text(a, "finished_at"), sh_json_text(b, "finished_at"));

    if (job_rank(a) != job_rank(b))
        return job_rank(a) < job_rank(b);
    if (job_is_final(sh_json_text(a, "state")) && ended != 0)
        return ended > 0;
    return pa != pb ? pa > pb
                    : json_integer_value(json_object_get(a, "id")) <
                          json_integer_value(json_object_get(b, "id"));
}

static int job_compare(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;

    return job_goes_before(x, y) ? -1 : job_goes_before(y, x);
}

void job_sort(json_t *jobs)
{
    list_sort(jobs, job_compare);
}

int job_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {
        {"JOB", "id", OUT_TEXT},
        {"NAME", "name", OUT_TEXT},
        {"STATE", "state", OUT_TEXT},
        {"ARRAY", "array", OUT_TEXT, .spare = 7},
        {"INDEX", "array_index", OUT_TEXT, .spare = 6},
        {"MODEL", "model", OUT_TEXT},
        {"STEP", "step", OUT_TEXT, .spare = 2},
        {"STEPS", "steps", OUT_TEXT, .spare = 3},
        {"LOSS", "loss", OUT_NUMBER, .spare = 4},
        {"SAMPLES/S", "samples_per_s", OUT_NUMBER, .spare = 8},
        {"STEPS/S", "steps_per_s", OUT_NUMBER, true},
        {"PREEMPTED", "preemptions", OUT_TEXT, .spare = 9},
        {"AGE", "created_at", OUT_AGE, .spare = 1},
        {"REASON", "reason", OUT_TEXT},
        {"KIND", "kind", OUT_TEXT, true},
        {"QUEUE", "queue", OUT_TEXT, true},
        {"PRIORITY", "priority", OUT_TEXT, true},
        {"GPUS", "gpus", OUT_TEXT, true},
        {"EXECUTOR", "executor", OUT_TEXT, true},
        {"ATTEMPT", "attempt", OUT_TEXT, true},
        {"DATASET", "dataset", OUT_TEXT, true},
        {"STARTED", "started_at", OUT_TIME, true},
        {"FINISHED", "finished_at", OUT_TIME, true},
        {"LABELS", "labels", OUT_TEXT, true},
        {"FLAGS", "flags", OUT_TEXT, true},
    };
    struct list_view v = {.path = "/api/v1/jobs",
                          .flags = REST_TENANT,
                          LIST_COLS(COLS),
                          .name = "id",
                          .prepare = c->conf->live ? job_sort : NULL};
    const char *state = c->conf->state;
    char path[REST_PATH_MAX], *url = NULL;
    int rc;

    if (c->n_args > 0) {
        rc = job_path(c, path, c->args[0], NULL, err);
        return rc ? rc : list_show_one(c, path, &v, err);
    }
    if (c->conf->live && state && state[0])
        return cli_usage(c, err, "give either --live or --state");
    rc = rest_query(v.path, &url, err, "state",
                    c->conf->live ? SH_JOB_LIVE(SH_JOB_TEXT, ",") : state, "queue", c->conf->queue,
                    "label", c->conf->job_labels, "array", c->conf->array, NULL);
    if (!rc)
        rc = list_show(c, url, &v, err);
    free(url);
    return rc;
}

int job_checkpoints(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"ATTEMPT", "attempt", OUT_TEXT},
                                          {"STEP", "step", OUT_TEXT},
                                          {"BYTES", "bytes", OUT_BYTES},
                                          {"CREATED", "created_at", OUT_TIME}};
    static const struct list_view VIEW = {.flags = REST_TENANT, LIST_COLS(COLS), .name = "step"};
    char path[REST_PATH_MAX];
    int rc = job_path(c, path, c->args[0], "checkpoints", err);

    return rc ? rc : list_show(c, path, &VIEW, err);
}

/* ---------------------------------------------------------------- submit */

struct setting { /* an option that becomes a number of the spec */
    const char *name, *text;
    bool is_int;
};

static int set_numbers(struct cli *c, json_t *obj, const struct setting *s, size_t n,
                       struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < n; i++)
        rc = cli_set_number(c, obj, s[i].name, s[i].text, s[i].is_int, err);
    return rc;
}

static int set_spec_text(json_t *obj, const char *name, const char *text, struct sh_err *err)
{
    if (text && text[0] && json_object_set_new(obj, name, json_string(text)))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    return SH_OK;
}

/* A connection that breaks leaves unknown whether the job was taken; with a token a second try
 * cannot make a second job. */
static int fill_token(struct cli *c, json_t *job, struct sh_err *err)
{
    if (c->conf->token && c->conf->token[0])
        return set_spec_text(job, "client_token", c->conf->token, err);
    return job_draw_token(job, err);
}

int job_draw_token(json_t *job, struct sh_err *err)
{
    uint8_t random[16];
    char hex[33];
    int rc = sh_random(random, sizeof(random), err);
    sh_hex(random, sizeof(random), hex);
    return rc ? rc : set_spec_text(job, "client_token", hex, err);
}

/* "KEY=VALUE,KEY=VALUE" as the member "labels"; KEY= is null where that removes one. */
static int set_labels(struct cli *c, json_t *obj, bool may_remove, struct sh_err *err)
{
    const char *text = c->conf->job_labels;
    json_t *labels = text && text[0] ? json_object() : NULL;

    for (const char *p = labels ? text : NULL; p;) {
        size_t len = strcspn(p, ","), key = strcspn(p, "=");
        json_t *v;

        if (key == 0 || key >= len) {
            json_decref(labels);
            return cli_usage(c, err, "--label wants KEY=VALUE,KEY=VALUE, not \"%.60s\"", text);
        }
        v = may_remove && key + 1 == len ? json_null() : json_stringn(p + key + 1, len - key - 1);
        if (!v || json_object_setn_new(labels, p, key, v)) {
            json_decref(labels);
            return cli_usage(c, err, "--label is not UTF-8");
        }
        p = p[len] ? p + len + 1 : NULL;
    }
    if (labels && json_object_set_new(obj, "labels", labels))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    return SH_OK;
}

static int fill_job_options(struct cli *c, json_t *job, struct sh_err *err)
{
    const struct cli_conf *o = c->conf;
    bool is_batch = strcmp(o->kind, "batch-inference") == 0;
    const struct setting numbers[] = {{"min_runtime_ms", o->min_runtime_ms, true},
                                      {"gpus", o->n_gpus, true}};
    json_t *spec = NULL;
    char model[129];
    int64_t version = 0;
    int rc;

    if (!is_batch && strcmp(o->kind, "training") != 0)
        return cli_usage(c, err, "--kind is training or batch-inference, not \"%.40s\"", o->kind);
    if (!o->model || !o->model[0] || !o->dataset || !o->dataset[0])
        return cli_usage(c, err, "--model and --dataset are needed");
    rc = rest_model_ref(c, o->model, model, &version, err);
    if (!rc)
        rc = set_spec_text(job, "kind", is_batch ? "batch_inference" : "training", err);
    if (!rc)
        rc = set_spec_text(job, "model", model, err);
    if (!rc && version && o->go_on && !is_batch)
        rc = cli_usage(c, err, "give either --model %s or --continue", o->model);
    if (!rc && (version || o->go_on) &&
        json_object_set_new(job, "version",
                            version ? json_integer(version) : json_string("latest")))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    if (!rc)
        rc = set_spec_text(job, "dataset", o->dataset, err);
    if (!rc)
        rc = set_spec_text(job, "eval_dataset", o->eval_dataset, err);
    if (!rc)
        rc = set_spec_text(job, "queue", o->queue, err);
    if (!rc)
        rc = set_spec_text(job, "name", o->job_name, err);
    if (!rc)
        rc = set_spec_text(job, "deadline", o->deadline, err);
    if (!rc)
        rc = set_labels(c, job, false, err);
    if (!rc)
        rc = set_numbers(c, job, numbers, SH_ARRAY_LEN(numbers), err);
    if (!rc && (json_object_set_new(job, "hold", json_boolean(o->hold)) ||
                json_object_set_new(job, "preemptible", json_boolean(!o->no_preempt))))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    if (!rc)
        rc = fill_token(c, job, err);
    if (!rc)
        rc = spec_fill(c, is_batch, &spec, err);
    if (!rc && json_object_set_new(job, "spec", spec))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    return rc;
}

int job_set(struct cli *c, struct sh_err *err)
{
    const struct setting priority = {"priority", c->conf->new_priority, true};
    const char *deadline = c->conf->deadline;
    json_t *patch = json_object();
    char path[REST_PATH_MAX];
    int rc = patch ? job_path(c, path, c->args[0], NULL, err)
                   : SH_FAIL(err, SH_E_NOMEM, "could not allocate a change");

    if (!rc)
        rc = set_numbers(c, patch, &priority, 1, err);
    if (!rc)
        rc = set_labels(c, patch, true, err);
    if (!rc && deadline && strcmp(deadline, "none") == 0)
        json_object_set_new(patch, "deadline", json_null());
    else if (!rc)
        rc = set_spec_text(patch, "deadline", deadline, err);
    if (!rc && json_object_size(patch) == 0)
        rc = cli_usage(c, err, "say what to change: --priority, --label or --deadline");
    if (!rc)
        return list_change(
            c,
            &(struct change){
                .method = "PATCH", .path = path, .name = "id", .flags = REST_TENANT, .body = patch},
            err, NULL);
    json_decref(patch);
    return rc;
}

int job_send(struct cli *c, const char *path, const json_t *body, json_t **out, struct sh_err *err)
{
    struct sh_err first = {0};
    int rc = rest_call(c, "POST", path, body, REST_TENANT, out, &first);

    if (rc && c->exit_code == CLI_NOT_REACHABLE) { /* once more, with the same token */
        cli_sleep_ms(AGAIN_MS);
        return rest_call(c, "POST", path, body, REST_TENANT, out, err);
    }
    return rc ? sh_err_copy(err, &first) : SH_OK;
}

/* ---------------------------------------------------------------- submit one, control several */

/* A job that is not preemptible starts only where the tenant's guarantee has room for it: never,
 * with the default of 0. Who may not see the quota hears of it from `shunt explain`. */
static void hint_guarantee(struct cli *c)
{
    struct sh_err ignored = {0};
    char path[REST_PATH_MAX];
    json_t *quota = NULL;
    const char *tenant;

    if (!rest_tenant(c, "quota", &tenant, &ignored) &&
        !rest_path(path, &ignored, "api", "v1", "tenants", tenant, "quota", NULL) &&
        !rest_get(c, path, REST_QUIET, &quota, &ignored) &&
        json_number_value(json_object_get(quota, "guaranteed_gpus")) < 1)
        fprintf(stderr,
                "With --no-preempt it starts only within the tenant's guarantee, which is %.4g "
                "GPUs: it waits until an admin raises that: shunt set quota %s guaranteed_gpus=1\n",
                json_number_value(json_object_get(quota, "guaranteed_gpus")), tenant);
    json_decref(quota);
}

void job_base_text(const struct cli *c, const json_t *j, const char *it, char *out, size_t size)
{
    bool is_named = c->conf->go_on || strchr(c->conf->model, ':');

    if (size > 0)
        out[0] = '\0';
    if (strcmp(sh_json_text(j, "kind"), "training") == 0)
        snprintf(out, size, " %s %s from version %" JSON_INTEGER_FORMAT "%s.", it,
                 sh_json_text(j, "model"), json_integer_value(json_object_get(j, "version")),
                 is_named ? "" : ", the newest that was uploaded");
}

void job_say_made(struct cli *c, const json_t *j, const char *noun, const char *id,
                  const char *text)
{
    if (c->output == OUTPUT_NAME && !c->conf->dry_run)
        puts(id);
    else if (c->output == OUTPUT_DATA && (!c->conf->wait || c->conf->dry_run))
        out_data(c, j);
    else if (list_said_dry_run(c))
        ;
    else if (c->conf->wait)
        out_say(c, "%s", text);
    else if (c->conf->hold)
        out_say(c, "%s Next: shunt release %s%s, then shunt wait %s %s", text,
                strcmp(noun, "array") == 0 ? "--array " : "", id, noun, id);
    else
        out_say(c, "%s Next: shunt wait %s %s", text, noun, id);
    if (c->conf->no_preempt && !c->conf->wait && !c->conf->quiet)
        hint_guarantee(c);
}

void job_say_assumes(struct cli *c, const json_t *answer)
{
    const json_t *list = json_object_get(answer, "training_assumes"), *name;
    char text[300] = "";
    size_t n = 0, i;

    json_array_foreach(list, i, name)
    {
        if (n + json_string_length(name) + 3 < sizeof(text))
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n ? ", " : "",
                                  json_string_value(name));
    }
    if (n > 0)
        out_say(c,
                "It trains %zu constants because of how they are used, since the model's file does "
                "not say whether they are parameters or buffers: %s. If some are buffers, push "
                "the file again with --buffers, or name them in \"frozen\" of the spec.",
                json_array_size(list), text);
}

static int submit_one(struct cli *c, struct sh_err *err)
{
    json_t *job = json_pack("{s:I, s:I}", "priority", (json_int_t)c->conf->priority, "max_attempts",
                            (json_int_t)c->conf->max_attempts);
    json_t *j = NULL;
    char id[24] = "", base[256], text[400];
    bool is_array = false;
    int rc =
        job ? fill_job_options(c, job, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");

    if (!rc)
        rc = array_submit(c, job, &is_array, err);
    if (rc || is_array) {
        json_decref(job);
        return rc;
    }
    if (!rc)
        rc = job_send(c, "/api/v1/jobs", job, &j, err);
    if (!rc) {
        snprintf(id, sizeof(id), "%" JSON_INTEGER_FORMAT,
                 json_integer_value(json_object_get(j, "id")));
        job_base_text(c, j, "It trains", base, sizeof(base));
        snprintf(text, sizeof(text), "Job %s is %s.%s", id, sh_json_text(j, "state"), base);
        job_say_made(c, j, "job", id, text);
        job_say_assumes(c, j);
    }
    if (!rc && c->conf->wait && !c->conf->dry_run)
        rc = job_wait_and_serve(c, id, err);
    json_decref(job);
    json_decref(j);
    return rc;
}

int job_submit(struct cli *c, struct sh_err *err)
{
    return c->conf->file && c->conf->file[0] ? jobs_submit_file(c, err) : submit_one(c, err);
}

static int control(struct cli *c, const char *id, struct sh_err *err)
{
    char path[REST_PATH_MAX], flags[128];
    json_t *j = NULL;
    int rc = job_path(c, path, id, c->cmd->verb, err);

    if (!rc)
        rc = rest_call(c, "POST", path, NULL, REST_TENANT, &j, err);
    if (!rc && c->output != OUTPUT_TABLE)
        rc = out_object(c, j, "state", err);
    out_text(j, "flags", OUT_TEXT, flags, sizeof(flags));
    if (!rc && c->output == OUTPUT_TABLE && !list_said_dry_run(c))
        out_say(c, "Job %s is %s%s%s.", id, sh_json_text(j, "state"),
                strcmp(flags, "-") == 0 ? "" : ", ", strcmp(flags, "-") == 0 ? "" : flags);
    json_decref(j);
    if (!rc && c->conf->wait && !c->conf->dry_run)
        rc = job_path(c, path, id, NULL, err);
    if (!rc && c->conf->wait && !c->conf->dry_run)
        rc = job_wait_off(c, path, "job", id, err);
    return rc;
}

/* cancel, hold, release, suspend, resume, requeue, checkpoint: the verb is the server's word too.
 * One job that refuses does not save the others; the last refusal is the command's. */
int job_control(struct cli *c, struct sh_err *err)
{
    bool is_array = c->conf->array && c->conf->array[0];
    struct sh_err last = {0};

    if (is_array == (c->n_args > 0))
        return cli_usage(c, err, "give the number of a job, or --array and that of an array");
    if (is_array)
        return array_control(c, err);
    for (int i = 0; i < c->n_args; i++) {
        struct sh_err now = {0};

        if (!control(c, c->args[i], &now))
            continue;
        if (last.rc)
            fprintf(stderr, "shunt: %s\n", last.msg);
        last = now;
        if (c->exit_code == CLI_NOT_REACHABLE)
            break;
    }
    return last.rc ? sh_err_copy(err, &last) : SH_OK;
}

/* ---------------------------------------------------------------- losses */

static int get_losses(struct cli *c, const char *path, size_t offset, size_t limit, json_t **out,
                      struct sh_err *err)
{
    char *url = NULL;
    int rc = sh_asprintf(err, &url, "%s?offset=%zu&limit=%zu", path, offset, limit);

    if (!rc)
        rc = rest_get(c, url, REST_TENANT, out, err);
    free(url);
    return rc;
}

/* Appends the losses from `from` on. */
static int collect_losses(struct cli *c, const char *path, size_t from, json_t *all,
                          struct sh_err *err)
{
    bool more = true;
    int rc = SH_OK;

    while (!rc && more) {
        json_t *j = NULL;

        rc = get_losses(c, path, from + json_array_size(all), LOSSES_PAGE, &j, err);
        more = json_array_size(json_object_get(j, "losses")) == LOSSES_PAGE;
        if (!rc && json_array_extend(all, json_object_get(j, "losses")))
            rc = SH_FAIL(err, SH_E_PROTO, "the server's answer holds no losses");
        json_decref(j);
    }
    return rc;
}

int job_losses(struct cli *c, struct sh_err *err)
{
    json_t *j = NULL, *all = json_array();
    char path[REST_PATH_MAX];
    size_t n, from = 0;
    int rc = all ? job_path(c, path, c->args[0], "losses", err)
                 : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");

    if (!rc)
        rc = get_losses(c, path, 0, 1, &j, err);
    n = (size_t)json_integer_value(json_object_get(j, "total"));
    if (c->output != OUTPUT_DATA && n > (size_t)c->conf->last)
        from = n - (size_t)c->conf->last;
    if (!rc)
        rc = collect_losses(c, path, from, all, err);
    if (!rc && c->output == OUTPUT_DATA)
        out_data(c, all);
    if (!rc && c->output != OUTPUT_DATA)
        for (size_t i = 0; i < json_array_size(all); i++)
            printf("%8zu  %.6g\n", from + i + 1, json_number_value(json_array_get(all, i)));
    json_decref(all);
    json_decref(j);
    return rc;
}
