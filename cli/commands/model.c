/* model.c - models, versions, latency targets. */
#include "cli/commands/model.h"

#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/client/upload.h"
#include "cli/commands.h"
#include "cli/files/user_file.h"
#include "cli/text/field.h"
#include "common/buckets.h"
#include "common/clock.h"
#include "common/external.h"
#include "common/mem.h"
#include "common/preprocess.h"
#include "common/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODELS "/api/v1/models"
#define POLL_MS 200
#define SUMMARY_VERSIONS 5 /* in one line of a table */

int model_path(char path[static REST_PATH_MAX], const char *model, const char *below,
               struct sh_err *err)
{
    return rest_path(path, err, "api", "v1", "models", model, below, NULL);
}

int version_path(char path[static REST_PATH_MAX], const char *model, int64_t version,
                 const char *below, struct sh_err *err)
{
    char number[24];

    snprintf(number, sizeof(number), "%" PRId64, version);
    return rest_path(path, err, "api", "v1", "models", model, "versions", number, below, NULL);
}

int model_ref_path(struct cli *c, char path[static REST_PATH_MAX], const char *ref,
                   const char *below, struct sh_err *err)
{
    char name[129];
    int64_t version;
    int rc = rest_model_ref(c, ref, name, &version, err);

    if (rc)
        return rc;
    return version ? version_path(path, name, version, below, err)
                   : model_path(path, name, below, err);
}

/* ---------------------------------------------------------------- models */

int model_create(struct cli *c, struct sh_err *err)
{
    return list_change(c,
                       &(struct change){.method = "POST",
                                        .path = MODELS,
                                        .name = "name",
                                        .flags = REST_TENANT,
                                        .body = json_pack("{s:s, s:s*}", "name", c->args[0],
                                                          "visibility", c->conf->visibility)},
                       err, "Model %s is created. Next: shunt push model %s FILE.onnx", c->args[0],
                       c->args[0]);
}

/* Whether the one at i is shown: the newest, and the newest that is READY, which serves. */
static bool is_in_summary(const json_t *versions, size_t i)
{
    size_t n = json_array_size(versions);

    if (i + SUMMARY_VERSIONS >= n)
        return true;
    for (size_t k = n; k-- > i;)
        if (strcmp(sh_json_text(json_array_get(versions, k), "state"), "READY") == 0)
            return k == i;
    return false;
}

/* "compile 2/5, about 3.0 s left": how far the loading of a version is; "" if nobody loads it. */
static void describe_loading(const json_t *version, char *out, size_t size)
{
    const json_t *l = json_object_get(version, "loading");
    const json_t *left = json_object_get(l, "seconds_left");
    json_int_t total;
    int n;

    out[0] = '\0';
    if (!json_is_object(l))
        return;
    total = json_integer_value(json_object_get(l, "total"));
    n = total == 0 ? snprintf(out, size, "%.15s", sh_json_text(l, "step"))
                   : snprintf(out, size, "%.15s %" JSON_INTEGER_FORMAT "/%" JSON_INTEGER_FORMAT,
                              sh_json_text(l, "step"),
                              json_integer_value(json_object_get(l, "done")), total);
    if (!json_is_number(left) || n <= 0 || (size_t)n >= size)
        return;
    if (json_number_value(left) < 0.05) /* an estimate that is over says nothing more */
        snprintf(out + n, size - (size_t)n, ", longer than estimated");
    else
        snprintf(out + n, size - (size_t)n, ", about %.1f s left", json_number_value(left));
}

/* A column that tells how far the versions are that are being loaded. */
static void add_progress(json_t *items)
{
    json_t *v;
    size_t i;

    json_array_foreach(items, i, v)
    {
        char text[80];

        describe_loading(v, text, sizeof(text));
        json_object_set_new(v, "progress", json_string(text));
    }
}

void model_add_summary(json_t *items)
{
    json_t *m, *v;
    size_t i, k;

    json_array_foreach(items, i, m)
    {
        const json_t *versions = json_object_get(m, "versions");
        char text[64 + SUMMARY_VERSIONS * 112], left[40] = "", progress[80];
        size_t n = 0, n_left = 0;

        text[0] = '\0';
        json_array_foreach((json_t *)versions, k, v)
        {
            if (!is_in_summary(versions, k))
                n_left++;
            else if (n < sizeof(text)) {
                describe_loading(v, progress, sizeof(progress));
                n += (size_t)snprintf(text + n, sizeof(text) - n,
                                      "%s%" JSON_INTEGER_FORMAT " %s%s%s%s", n ? ", " : "",
                                      json_integer_value(json_object_get(v, "version")),
                                      sh_json_text(v, "state"), progress[0] ? " (" : "", progress,
                                      progress[0] ? ")" : "");
            }
        }
        if (n_left > 0)
            snprintf(left, sizeof(left), "... %zu older, ", n_left);
        json_object_set_new(m, "summary", json_sprintf("%s%s", left, text));
    }
}

int model_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"NAME", "name", OUT_TEXT},
                                          {"TENANT", "tenant", OUT_TEXT},
                                          {"VISIBILITY", "visibility", OUT_TEXT, .spare = 4},
                                          {"VERSIONS", "summary", OUT_TEXT},
                                          {"REQ/S", "traffic.per_s", OUT_RATE, .spare = 1},
                                          {"P50 MS", "traffic.p50_ms", OUT_RATE, .spare = 3},
                                          {"P99 MS", "traffic.p99_ms", OUT_RATE, .spare = 2},
                                          {"AGE", "created_at", OUT_AGE},
                                          {"CREATED", "created_at", OUT_TIME, true}};
    static const struct list_view VIEW = {.path = MODELS,
                                          .flags = REST_TENANT,
                                          LIST_COLS(COLS),
                                          .name = "name",
                                          .prepare = model_add_summary};

    return list_get(c, &VIEW, err);
}

int model_delete(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = model_ref_path(c, path, c->args[0], NULL, err);

    return rc ? rc
              : list_change(
                    c, &(struct change){.method = "DELETE", .path = path, .flags = REST_TENANT},
                    err, "%s is deleted.", c->args[0]);
}

int version_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"VERSION", "version", OUT_TEXT},
                                          {"STATE", "state", OUT_TEXT},
                                          {"LOADING", "progress", OUT_TEXT},
                                          {"PINNED", "pinned", OUT_TEXT},
                                          {"BYTES", "bytes", OUT_BYTES},
                                          {"MAX BATCH", "max_batch", OUT_TEXT, .spare = 2},
                                          {"PRECISION", "precision", OUT_TEXT, .spare = 1},
                                          {"FROM JOB", "source_job", OUT_TEXT},
                                          {"AGE", "created_at", OUT_AGE},
                                          {"REASON", "reason", OUT_TEXT},
                                          {"IMAGE", "image_bytes", OUT_BYTES, true},
                                          {"RUNS ALONE", "meta.solo_note", OUT_TEXT, true},
                                          {"BUCKETS", "meta.buckets", OUT_TEXT, true},
                                          {"PREPROCESS", "meta.preprocess", OUT_TEXT, true},
                                          {"CREATED", "created_at", OUT_TIME, true},
                                          {"READY", "ready_at", OUT_TIME, true},
                                          {"DIGEST", "digest", OUT_TEXT, true}};
    static const struct list_view VIEW = {
        .flags = REST_TENANT, LIST_COLS(COLS), .name = "version", .prepare = add_progress};
    char path[REST_PATH_MAX], name[129];
    int64_t version;
    int rc = rest_model_ref(c, c->args[0], name, &version, err);

    if (!rc)
        rc = version ? version_path(path, name, version, NULL, err)
                     : model_path(path, name, "versions", err);
    if (rc)
        return rc;
    return version ? list_show_one(c, path, &VIEW, err) : list_show(c, path, &VIEW, err);
}

/* ---------------------------------------------------------------- waiting */

int model_newest(struct cli *c, const char *model, int64_t *version, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    json_t *j = NULL, *v;
    size_t i;
    int rc = model_path(path, model, NULL, err);

    if (!rc)
        rc = rest_get(c, path, REST_TENANT, &j, err);
    *version = 0;
    json_array_foreach(json_object_get(j, "versions"), i, v)
    {
        *version = SH_MAX(*version, json_integer_value(json_object_get(v, "version")));
    }
    json_decref(j);
    if (!rc && *version == 0)
        rc = SH_FAIL(err, SH_E_NOTFOUND, "the model \"%s\" has no version yet", model);
    return rc;
}

/* What was asked for does not come: it failed, or others have asked for something else since. */
static bool is_state_lost(const char *state, const char *want)
{
    return strcmp(state, "FAILED") == 0 ||
           (strcmp(want, "UNLOADED") == 0 && strcmp(state, "UNLOADING") != 0);
}

int model_wait_version(struct cli *c, const char *model, int64_t version, const char *want,
                       struct sh_err *err)
{
    int64_t start = sh_clock_ns(), end = start + SH_S(c->conf->wait_s);
    char path[REST_PATH_MAX], state[32] = "", how_far[80];
    struct progress bar;
    int rc = version_path(path, model, version, NULL, err);

    progress_begin(c, &bar);
    while (!rc && strcmp(state, want) != 0) {
        json_t *j = NULL;

        rc = rest_get(c, path, REST_TENANT, &j, err);
        sh_strlcpy(state, sh_json_text(j, "state"), sizeof(state));
        if (rc || strcmp(state, want) == 0)
            ;
        else if (is_state_lost(state, want))
            rc =
                SH_FAIL(err, SH_E_CONFLICT, "version %" PRId64 " of %s is %s%s%s", version, model,
                        state, sh_json_text(j, "reason")[0] ? ": " : "", sh_json_text(j, "reason"));
        else if (sh_clock_ns() > end)
            rc = SH_FAIL(err, SH_E_TIMEOUT,
                         "version %" PRId64 " of %s is still %s after %lld s; is an executor up? "
                         "(shunt get executors)",
                         version, model, state, (long long)c->conf->wait_s);
        describe_loading(j, how_far, sizeof(how_far));
        json_decref(j);
        progress_show(&bar, -1, "%s:%" PRId64 " is %s%s%s%s, for %.1f s", model, version, state,
                      how_far[0] ? " (" : "", how_far, how_far[0] ? ")" : "",
                      (double)(sh_clock_ns() - start) / 1e9);
        if (!rc && strcmp(state, want) != 0)
            cli_sleep_ms(POLL_MS);
    }
    progress_end(&bar);
    return rc;
}

int model_wait(struct cli *c, struct sh_err *err)
{
    char name[129];
    int64_t version;
    int rc = rest_model_ref(c, c->args[0], name, &version, err);

    if (!rc && version == 0)
        rc = model_newest(c, name, &version, err);
    if (!rc)
        rc = model_wait_version(c, name, version, "READY", err);
    if (!rc && c->output == OUTPUT_NAME)
        printf("%s:%" PRId64 "\n", name, version);
    else if (!rc)
        out_say(c, "%s:%" PRId64 " is READY.", name, version);
    return rc;
}

/* Versions that are pinned stay where they are. */
static int say_version_gone(struct cli *c, const char *path, int64_t version, struct sh_err *err)
{
    json_t *j = NULL, *v;
    char pinned[200] = "";
    size_t i, n = 0;
    int rc = rest_get(c, path, REST_TENANT, &j, err);

    json_array_foreach(json_object_get(j, "versions"), i, v)
    {
        if (!version && json_is_true(json_object_get(v, "pinned")) && n < sizeof(pinned))
            n += (size_t)snprintf(pinned + n, sizeof(pinned) - n, "%s%" JSON_INTEGER_FORMAT,
                                  n ? ", " : "", json_integer_value(json_object_get(v, "version")));
    }
    if (!rc && n > 0)
        out_say(c, "%s is on no executor any more but for what is pinned: version %s (shunt unpin)",
                c->args[0], pinned);
    else if (!rc)
        out_say(c, "%s is on no executor any more.", c->args[0]);
    json_decref(j);
    return rc;
}

int model_wait_gone(struct cli *c, struct sh_err *err)
{
    char name[129], path[REST_PATH_MAX];
    json_t *j = NULL, *v;
    int64_t version;
    size_t i;
    int rc = rest_model_ref(c, c->args[0], name, &version, err);

    if (!rc)
        rc = model_path(path, name, NULL, err);
    if (!rc)
        rc = rest_get(c, path, REST_TENANT, &j, err);
    json_array_foreach(json_object_get(j, "versions"), i, v)
    {
        int64_t one = json_integer_value(json_object_get(v, "version"));

        if (!rc && (!version || one == version) &&
            strcmp(sh_json_text(v, "state"), "UNLOADING") == 0)
            rc = model_wait_version(c, name, one, "UNLOADED", err);
    }
    if (!rc)
        rc = say_version_gone(c, path, version, err);
    json_decref(j);
    return rc;
}

/* ---------------------------------------------------------------- push */

/* "64,128" */
static json_t *sizes_of_text(const char *text)
{
    json_t *list = json_array();
    char *copy = strdup(text), *rest = copy, *one;

    while (list && rest && (one = strsep(&rest, ","))) {
        int64_t v;

        if (sh_parse_i64(one, 1, INT32_MAX, "size", &v, NULL)) {
            json_decref(list);
            list = NULL;
        } else {
            json_array_append_new(list, json_integer(v));
        }
    }
    free(copy);
    return list;
}

/* --buckets, "length=64,128 width=32". *out: OWNED; NULL: there are none. */
static int read_bucket_options(struct cli *c, json_t **out, struct sh_err *err)
{
    char *copy = c->conf->buckets ? strdup(c->conf->buckets) : NULL, *rest = copy, *one;
    int rc = SH_OK;

    *out = copy ? json_object() : NULL;
    while (!rc && rest && (one = strsep(&rest, " "))) {
        char *eq = strrchr(one, '=');
        json_t *list = eq && eq > one ? sizes_of_text(eq + 1) : NULL;

        if (!one[0])
            continue;
        if (!list)
            rc = cli_usage(c, err, "\"%.60s\" is not AXIS=SIZE,SIZE... (--buckets)", one);
        else
            *eq = '\0';
        if (!rc && json_object_set(*out, one, list))
            rc = SH_FAIL(err, SH_E_INVALID, "the name of an axis is not UTF-8");
        json_decref(list);
    }
    free(copy);
    return rc;
}

/* --preprocess, as JSON. *out: OWNED; NULL: there is none. */
static int read_preprocess_option(const struct cli *c, char **out, struct sh_err *err)
{
    struct sh_preprocess p[SH_PREPROCESS_INPUTS];
    json_t *j = NULL;
    size_t n;
    int rc = c->conf->preprocess ? sh_preprocess_typed(c->conf->preprocess, &j, err) : SH_OK;

    *out = NULL;
    if (!rc && j)
        rc = sh_preprocess_read(j, p, &n, err);
    if (!rc && j)
        rc = sh_json_dump(j, out, err);
    json_decref(j);
    return rc;
}

static int new_version(struct cli *c, const char *model, const json_t *buckets, int64_t *version,
                       struct sh_err *err)
{
    json_t *body = json_pack("{s:s}", "precision", c->conf->precision);
    char path[REST_PATH_MAX];
    json_t *j = NULL;
    int rc = model_path(path, model, "versions", err);

    if (!rc)
        rc = cli_set_number(c, body, "max_batch", c->conf->max_batch, true, err);
    if (!rc && buckets)
        json_object_set(body, "buckets", (json_t *)(uintptr_t)buckets);
    if (!rc)
        rc = rest_call(c, "POST", path, body, REST_TENANT, &j, err);
    if (!rc)
        *version = json_integer_value(json_object_get(j, "version"));
    json_decref(body);
    json_decref(j);
    return rc;
}

/* Was the version created with the max_batch and buckets of this command, or without as well? */
static bool has_our_options(const struct cli *c, const json_t *buckets, const json_t *v)
{
    const json_t *has = json_object_get(json_object_get(v, "meta"), "buckets");
    const char *want = c->conf->max_batch;
    char have[24];

    if (buckets ? !json_equal(buckets, has) : json_object_size(has) > 0)
        return false;
    if (!json_is_true(json_object_get(json_object_get(v, "meta"), "max_batch_named")))
        return !want;
    snprintf(have, sizeof(have), "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(v, "max_batch")));
    return want && strcmp(want, have) == 0;
}

/* One of the same options that a push of this file has begun, which was stopped or lost its server:
 * it goes on there. 0: there is none. */
static int64_t begun_version(struct cli *c, const char *model, const json_t *buckets,
                             struct upload *u)
{
    char path[REST_PATH_MAX];
    json_t *list = NULL, *v;
    int64_t found = 0;
    size_t i;

    if (upload_is_large(u) && !model_path(path, model, "versions", NULL))
        rest_list(c, path, REST_TENANT | REST_QUIET, &list, NULL);
    json_array_foreach(list, i, v)
    {
        int64_t version = json_integer_value(json_object_get(v, "version"));

        if (strcmp(sh_json_text(v, "state"), "UPLOADING") == 0 &&
            strcmp(sh_json_text(v, "precision"), c->conf->precision) == 0 &&
            has_our_options(c, buckets, v) &&
            !version_path(path, model, version, "artifact", NULL) && upload_has_part(u, path))
            found = version;
    }
    json_decref(list);
    return found;
}

/* The model that was made for a push which failed; not what others pushed to it meanwhile, nor a
 * file of which the server has a part. */
static void take_model_back(struct cli *c, const char *path, const char *model)
{
    struct rest_req q = {.method = "DELETE", .path = path, .flags = REST_TENANT | REST_QUIET};
    json_t *j = NULL;
    int rc = rest_get(c, path, q.flags, &j, NULL);

    if (!rc && json_array_size(json_object_get(j, "versions")) == 0) {
        q.row_version = json_integer_value(json_object_get(j, "row_version"));
        rc = rest_send(c, &q, NULL, NULL);
    }
    if (rc && rc != SH_E_NOTFOUND && rc != SH_E_CONFLICT)
        out_say(c, "The model %s is new and empty: push a file, or shunt delete model %s", model,
                model);
    json_decref(j);
}

static int check_files(struct cli *c, const char *file, struct sh_err *err)
{
    enum sh_file_kind kind = SH_FILE_ONNX;
    int rc = upload_check(file, SH_FILE_ONNX, err);

    if (rc || !(c->conf->weights || c->conf->buffers || c->conf->parameters || c->conf->preprocess))
        return rc;
    rc = user_file_kind(file, &kind, err);
    if (!rc && kind == SH_FILE_TAR)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "--weights, --buffers, --parameters and --preprocess need the ONNX file "
                     "itself; into a tar file put the weights as " SH_EXTERNAL_WEIGHTS " and what "
                     "is declared of inputs as " SH_EXTERNAL_PREPROCESS_FILE " beside the model, "
                     "and the names as metadata " SH_EXTERNAL_BUFFERS " or " SH_EXTERNAL_PARAMETERS
                     " into the model");
    return rc || !c->conf->weights ? rc : upload_check(c->conf->weights, SH_FILE_SAFETENSORS, err);
}

static int version_push(struct cli *c, const char *model, const char *file, json_t **out,
                        struct sh_err *err)
{
    char owner[REST_PATH_MAX];
    char path[REST_PATH_MAX];
    struct cargo_with with = {c->conf->weights, c->conf->buffers, c->conf->parameters, NULL};
    char *preprocess = NULL;
    struct upload *u = NULL;
    json_t *buckets = NULL;
    int64_t version = 0;
    bool made = false;
    int rc = model_path(owner, model, NULL, err);

    if (!rc)
        rc = read_bucket_options(c, &buckets, err);
    if (!rc)
        rc = read_preprocess_option(c, &preprocess, err);
    with.preprocess = preprocess;
    if (!rc)
        rc = check_files(c, file, err);
    if (!rc)
        rc = upload_open(c, file, &with, &u, err);
    if (!rc)
        rc = rest_ensure(c, owner, MODELS, model, &made, err);
    if (!rc)
        version = begun_version(c, model, buckets, u);
    if (!rc && !version)
        rc = new_version(c, model, buckets, &version, err);
    if (!rc)
        rc = version_path(path, model, version, "artifact", err);
    if (!rc)
        rc = upload_send(u, path, out, err);
    if (rc && version > 0)
        upload_undo(u, path);
    if (rc && made)
        take_model_back(c, owner, model);
    upload_close(u);
    json_decref(buckets);
    free(preprocess);
    if (!rc && c->conf->wait)
        rc = model_wait_version(c, model, version, "READY", err);
    return rc;
}

/* "Requests are filled up along length to 64, 128." */
static void say_buckets(struct cli *c, const json_t *buckets)
{
    const char *axis;
    json_t *sizes, *size;
    size_t i;

    json_object_foreach((json_t *)(uintptr_t)buckets, axis, sizes)
    {
        char text[SH_MAX_BUCKETS * 10] = "";
        size_t n = 0;

        json_array_foreach(sizes, i, size)
        {
            if (n < sizeof(text))
                n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%" JSON_INTEGER_FORMAT,
                                      i ? ", " : "", json_integer_value(size));
        }
        out_say(c, "Requests are filled up along %s to %s.", axis, text);
    }
}

/* "Requests bring image as UINT8, NHWC." */
static void say_preprocess(struct cli *c, const json_t *preprocess)
{
    const char *input;
    json_t *p;

    json_object_foreach((json_t *)(uintptr_t)preprocess, input, p)
    {
        out_say(c, "Requests bring %s as UINT8, %s.", input, sh_json_text(p, "layout"));
    }
}

/* What the importer found that a user should know of. */
static void say_notes(struct cli *c, const json_t *version)
{
    const json_t *meta = json_object_get(version, "meta");

    say_preprocess(c, json_object_get(meta, "preprocess"));
    say_buckets(c, json_object_get(meta, "buckets"));
    if (json_is_true(json_object_get(meta, "solo")))
        out_say(c, "Each request to it runs by itself, since samples may affect each other: %s.",
                sh_json_text(meta, "solo_note"));
    if (json_is_true(json_object_get(meta, "training_warns")))
        out_say(c, "%s: %s.",
                json_is_true(json_object_get(meta, "trainable")) ? "When it is trained"
                                                                 : "It cannot be trained",
                sh_json_text(meta, "training_note"));
}

int model_push(struct cli *c, struct sh_err *err)
{
    json_t *j = NULL;
    char bytes[32];
    int rc = version_push(c, c->args[0], c->args[1], &j, err);

    out_bytes(json_number_value(json_object_get(j, "bytes")), bytes, sizeof(bytes));
    if (!rc && c->output == OUTPUT_DATA)
        out_data(c, j);
    else if (!rc && c->output == OUTPUT_NAME)
        printf("%s:%" JSON_INTEGER_FORMAT "\n", c->args[0],
               json_integer_value(json_object_get(j, "version")));
    else if (!rc)
        out_say(c, "%s:%" JSON_INTEGER_FORMAT " is %s (%s, sha256 %.12s).", c->args[0],
                json_integer_value(json_object_get(j, "version")),
                c->conf->wait ? "READY" : sh_json_text(j, "state"), bytes,
                sh_json_text(j, "digest"));
    if (!rc && c->output != OUTPUT_DATA && c->output != OUTPUT_NAME)
        say_notes(c, j);
    json_decref(j);
    return rc;
}

/* ---------------------------------------------------------------- latency targets */

int slo_set(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    struct change ch = {.method = "PUT",
                        .path = path,
                        .name = "model",
                        .flags = REST_TENANT,
                        .body = json_pack("{s:s*}", "on_miss", c->conf->on_miss)};
    int rc = model_path(path, c->args[0], "slo", err);

    if (!rc && (!c->conf->latency_ms || !c->conf->latency_ms[0]))
        rc = cli_usage(c, err, "--latency-ms is needed");
    if (!rc)
        rc = cli_set_number(c, ch.body, "latency_ms", c->conf->latency_ms, false, err);
    if (!rc)
        rc = cli_set_number(c, ch.body, "percentile", c->conf->percentile, false, err);
    if (!rc)
        rc = cli_set_number(c, ch.body, "priority", c->conf->target_priority, true, err);
    if (!rc)
        return list_change(c, &ch, err, NULL);
    json_decref(ch.body);
    return rc;
}

int slo_get(struct cli *c, struct sh_err *err)
{
    static const struct list_view VIEW = {.flags = REST_TENANT, .name = "model"};
    char path[REST_PATH_MAX];
    int rc = model_path(path, c->args[0], "slo", err);

    return rc ? rc : list_show_one(c, path, &VIEW, err);
}

int slo_delete(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = model_path(path, c->args[0], "slo", err);

    return rc ? rc
              : list_change(
                    c, &(struct change){.method = "DELETE", .path = path, .flags = REST_TENANT},
                    err, "The latency target of %s is removed.", c->args[0]);
}
