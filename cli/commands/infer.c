/* infer.c - `shunt infer`: requests with binary tensors over /v2, their answers, their latency. */
#include "cli/client/rest.h"
#include "cli/client/upload.h"
#include "cli/commands.h"
#include "cli/data/inputs.h"
#include "cli/data/tensors.h"
#include "cli/text/field.h"
#include "cli/text/out.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/sample.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_BODY (1u << 30)
#define MAX_OUTPUTS (4ull << 30)
#define MAX_LATENCIES 10000000
#define SHOWN_ROWS 8
#define LISTED 100000 /* latencies and classes in the JSON */
#define REQUEST_MS 120000
#define MAX_SIZES 16

struct load {
    struct cli *c;
    char model[129], base[REST_PATH_MAX];
    char *url; /* OWNED */
    int64_t max_batch;
    char choice[REST_CHOICE_MAX]; /* a version or an alias; "": none */
    int64_t fixed; /* the only number of rows that the model takes; 0: any up to max_batch */
    json_t *meta;  /* OWNED */
    struct tensors in, out;
    int64_t first, rows, per_request; /* of one pass */
    double *ms;                       /* OWNED */
    size_t n_ms, cap_ms;
    int64_t n_errors, start_ns, end_ns;
    struct sh_err first_error;
    struct sh_buf body;
    struct progress bar;
};

/* ---------------------------------------------------------------- what to send */

static int load_meta(struct load *l, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    json_t *config = NULL;
    int rc;

    rc = l->choice[0]
             ? rest_path(l->base, err, "v2", "models", l->model, "versions", l->choice, NULL)
             : rest_path(l->base, err, "v2", "models", l->model, NULL);
    if (!rc)
        rc = rest_get(l->c, l->base, REST_TENANT, &l->meta, err);
    if (!rc && snprintf(path, sizeof(path), "%s/config", l->base) >= (int)sizeof(path))
        rc = SH_FAIL(err, SH_E_TOOBIG, "the model's name is too long");
    if (!rc)
        rc = rest_get(l->c, path, REST_TENANT, &config, err);
    l->max_batch = json_integer_value(json_object_get(config, "max_batch_size"));
    if (l->max_batch < 1) { /* the shapes have the batch in them */
        l->fixed = sh_sample_fixed_batch(json_object_get(l->meta, "inputs"));
        l->max_batch = SH_MAX(l->fixed, (int64_t)1);
    }
    if (!rc && snprintf(path, sizeof(path), "%s/infer", l->base) >= (int)sizeof(path))
        rc = SH_FAIL(err, SH_E_TOOBIG, "the model's name is too long");
    if (!rc)
        rc = rest_with_tenant(l->c, path, &l->url, err);
    json_decref(config);
    return rc;
}

static bool is_option_given(const char *text)
{
    return text && text[0];
}

/* What --resize, --crop, --mean, --std and --layout say. */
static int load_image(struct load *l, const json_t *wanted, struct sh_err *err)
{
    const struct cli_conf *o = l->c->conf;
    struct image_plan plan = {.shape = {.resize = o->resize, .width = o->crop, .height = o->crop},
                              .std = {1, 1, 1},
                              .scales = is_option_given(o->mean) || is_option_given(o->std),
                              .is_last = is_option_given(o->layout) ? strcmp(o->layout, "nhwc") == 0
                                                                    : image_is_last(wanted)};
    int rc = SH_OK;

    if (is_option_given(o->layout) && !plan.is_last && strcmp(o->layout, "nchw") != 0)
        return cli_usage(l->c, err, "--layout is nchw or nhwc, not \"%.40s\"", o->layout);
    if (is_option_given(o->mean))
        rc = image_numbers(o->mean, "mean", plan.mean, err);
    if (!rc && is_option_given(o->std))
        rc = image_numbers(o->std, "std", plan.std, err);
    if (!rc && (plan.std[0] <= 0 || plan.std[1] <= 0 || plan.std[2] <= 0))
        rc = SH_FAIL(err, SH_E_INVALID, "--std must be above 0");
    if (rc) {
        l->c->exit_code = CLI_USAGE;
        return rc;
    }
    return image_read(o->image, &plan, wanted, &l->in, err);
}

static int load_random(struct load *l, const json_t *wanted, struct sh_err *err)
{
    const struct cli_conf *o = l->c->conf;
    const int64_t rows = o->offset + SH_MAX(o->rows, SH_MAX(l->fixed, (int64_t)1));
    int64_t sizes[MAX_SIZES];
    size_t n = 0;
    char copy[160], *rest = copy, *p;
    int rc = SH_OK;

    if (is_option_given(o->sizes) && !sh_strlcpy(copy, o->sizes, sizeof(copy)))
        rc = SH_E_INVALID;
    while (!rc && is_option_given(o->sizes) && (p = strsep(&rest, ",")))
        rc = n == MAX_SIZES ? SH_E_INVALID
                            : sh_parse_i64(p, 1, INT32_MAX, "sizes", &sizes[n++], NULL);
    if (rc)
        return cli_usage(l->c, err, "--sizes wants up to %d whole numbers from 1 on: 224,160",
                         MAX_SIZES);
    return tensors_random(wanted, rows, sizes, n, (uint64_t)o->random, &l->in, err);
}

static int load_inputs(struct load *l, struct sh_err *err)
{
    const struct cli_conf *o = l->c->conf;
    const json_t *wanted = json_object_get(l->meta, "inputs");
    bool is_file = is_option_given(o->inputs), is_image = is_option_given(o->image);
    int rc;

    if (is_file + is_image + (o->random >= 0) != 1)
        return cli_usage(l->c, err, "give either --inputs FILE, --image FILE or --random SEED");
    if (is_option_given(o->sizes) && o->random < 0)
        return cli_usage(l->c, err, "--sizes belongs to --random");
    if (!is_image && (o->resize || o->crop || is_option_given(o->mean) || is_option_given(o->std)))
        return cli_usage(l->c, err, "--resize, --crop, --mean and --std belong to --image");
    if (is_file)
        rc = inputs_from_files(o->inputs, wanted, &l->in, err);
    else if (is_image)
        rc = load_image(l, wanted, err);
    else
        rc = load_random(l, wanted, err);
    if (rc)
        return rc;
    if (l->in.n == 0)
        return SH_FAIL(err, SH_E_PROTO, "the model's metadata names no inputs");
    l->first = o->offset;
    l->rows = o->rows > 0 ? o->rows : l->in.rows - l->first;
    l->per_request = o->rows > 0 ? o->rows : SH_MIN(l->max_batch, l->rows);
    if (l->rows < 1 || l->first + l->rows > l->in.rows)
        return cli_usage(l->c, err,
                         "the inputs have %" PRId64 " rows; rows %" PRId64 " to %" PRId64
                         " are asked for",
                         l->in.rows, l->first, l->first + SH_MAX(l->rows, (int64_t)1) - 1);
    if (l->fixed && (o->rows > 0 ? o->rows != l->fixed : l->rows < l->fixed))
        return cli_usage(l->c, err,
                         "the model takes %" PRId64 " rows at once, no more and no fewer: its file "
                         "has a fixed batch; %" PRId64 " are asked for",
                         l->fixed, l->rows);
    return SH_OK;
}

/* ---------------------------------------------------------------- sending */

static int keep_latency(struct load *l, int64_t ns, struct sh_err *err)
{
    int rc = sh_grow(&l->ms, &l->cap_ms, l->n_ms + 1, sizeof(*l->ms), MAX_LATENCIES,
                     "the list of latencies", err);

    if (!rc)
        l->ms[l->n_ms++] = (double)ns / 1e6;
    return rc;
}

/* One request with `rows` from `first` on. Where the model takes a fixed number and fewer are left,
 * some go with them that went before, and their answers are left out. A refusal is counted, and the
 * run goes on. */
static int send_one(struct load *l, int64_t first, int64_t rows, bool keep, struct sh_err *err)
{
    int64_t again = SH_MAX(l->fixed - rows, (int64_t)0);
    struct sh_http_reply r = {0};
    struct sh_err refusal = {0};
    char header[64];
    size_t json_len;
    int64_t start;
    int rc = tensors_encode(&l->in, first - again, rows + again, &l->body, &json_len, err);

    if (rc)
        return rc;
    snprintf(header, sizeof(header), "Inference-Header-Content-Length: %zu", json_len);
    start = sh_clock_ns();
    rc = sh_http_call(l->c->http,
                      &(struct sh_http_req){.method = "POST",
                                            .path = l->url,
                                            .body = l->body.data,
                                            .body_len = l->body.len,
                                            .type = "application/octet-stream",
                                            .headers = {header},
                                            .timeout_ms = REQUEST_MS},
                      &r, err);
    if (rc) {
        l->c->exit_code = CLI_NOT_REACHABLE;
        return rc;
    }
    if (rest_check(l->c, &r, 0, &refusal)) {
        l->n_errors++;
        sh_err_copy(&l->first_error, &refusal);
    } else {
        rc = keep_latency(l, sh_clock_ns() - start, err);
        l->out.skip = again;
        if (!rc && keep)
            rc = tensors_append(&l->out, r.body, r.len, r.json_len, MAX_OUTPUTS, err);
    }
    sh_http_reply_fini(&r);
    return rc;
}

static int send_requests(struct load *l, struct sh_err *err)
{
    int64_t passes = l->c->conf->repeat, end = l->first + l->rows;
    int rc = SH_OK;

    l->start_ns = sh_clock_ns();
    progress_begin(l->c, &l->bar);
    for (int64_t pass = 0; !rc && pass < passes; pass++) {
        for (int64_t at = l->first; !rc && at < end; at += l->per_request) {
            rc = send_one(l, at, SH_MIN(l->per_request, end - at), pass + 1 == passes, err);
            progress_show(
                &l->bar,
                ((double)pass + (double)(at - l->first) / (double)l->rows) / (double)passes,
                "%zu requests, %" PRId64 " errors", l->n_ms + (size_t)l->n_errors, l->n_errors);
        }
    }
    progress_end(&l->bar);
    l->end_ns = sh_clock_ns();
    return rc;
}

/* ---------------------------------------------------------------- what came back */

/* Nearest rank over a sorted list. */
static double quantile(const double *sorted, size_t n, double q)
{
    size_t i = (size_t)(q * (double)n);

    return n == 0 ? 0 : sorted[SH_MIN(i, n - 1)];
}

static int64_t label_at(const struct sh_st_tensor *t, int64_t row)
{
    int64_t v64 = -1;
    int32_t v32;

    if (t->dtype == SH_I64) {
        memcpy(&v64, (const char *)t->data + (size_t)row * sizeof(v64), sizeof(v64));
    } else {
        memcpy(&v32, (const char *)t->data + (size_t)row * sizeof(v32), sizeof(v32));
        v64 = v32;
    }
    return v64;
}

/* --labels FILE:TENSOR. *right: rows whose largest output is the label; -1 without the option. */
static int count_right(struct load *l, int64_t *right, struct sh_err *err)
{
    const char *ref = l->c->conf->truth, *colon = ref ? strrchr(ref, ':') : NULL;
    const struct tensor *out = &l->out.list[0];
    const struct sh_st_tensor *t = NULL;
    struct sh_st *file = NULL;
    char *path = NULL;
    int rc;

    *right = -1;
    if (!ref || !ref[0])
        return SH_OK;
    if (!colon || colon == ref)
        return cli_usage(l->c, err, "--labels wants FILE:TENSOR");
    rc = sh_asprintf(err, &path, "%.*s", (int)(colon - ref), ref);
    if (!rc)
        rc = upload_check(path, SH_FILE_SAFETENSORS, err);
    if (!rc)
        rc = sh_st_open(path, &file, err);
    if (!rc)
        t = sh_st_find(file, colon + 1);
    if (!rc && (!t || t->rank != 1 || (t->dtype != SH_I64 && t->dtype != SH_I32) ||
                t->dims[0] < l->first + l->rows))
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the labels must be a tensor \"%.60s\" of whole numbers, one for each row",
                     colon + 1);
    if (!rc && (l->out.n < 1 || tensor_argmax(out, 0) < 0))
        rc = SH_FAIL(err, SH_E_UNSUPPORTED, "the model's output is not a list of scores");
    *right = rc ? -1 : 0;
    for (int64_t i = 0; !rc && i < out->dims[0]; i++)
        *right += tensor_argmax(out, i) == label_at(t, l->first + i);
    sh_st_close(file);
    free(path);
    return rc;
}

/* --top K above 1: of each row the K classes of the first output, with their scores. */
static json_t *tops(const struct load *l)
{
    const struct tensor *out = &l->out.list[0];
    size_t k = (size_t)l->c->conf->top;
    struct tensor_score *best = calloc(k, sizeof(*best));
    json_t *list = json_array();

    for (int64_t i = 0; best && l->out.n > 0 && i < SH_MIN(out->dims[0], (int64_t)LISTED); i++) {
        size_t n = tensor_top(out, i, k, best);
        json_t *row = json_array();

        for (size_t r = 0; r < n; r++)
            json_array_append_new(row, json_pack("{s:I, s:f}", "class", (json_int_t)best[r].index,
                                                 "score", best[r].score));
        json_array_append_new(list, row);
    }
    free(best);
    return list;
}

static json_t *classes(const struct load *l)
{
    const struct tensor *out = &l->out.list[0];
    json_t *list = json_array();

    for (int64_t i = 0; l->out.n > 0 && i < SH_MIN(out->dims[0], (int64_t)LISTED); i++)
        json_array_append_new(list, json_integer(tensor_argmax(out, i)));
    return list;
}

static void print_json(const struct load *l, const double *sorted, int64_t right)
{
    json_t *ms = json_array(), *outputs = json_array(), *j;

    for (size_t i = 0; i < SH_MIN(l->n_ms, (size_t)LISTED); i++)
        json_array_append_new(ms, json_real(l->ms[i]));
    for (size_t i = 0; i < l->out.n; i++)
        json_array_append_new(outputs, json_pack("{s:s, s:s, s:I}", "name", l->out.list[i].name,
                                                 "datatype", sh_dtype_v2(l->out.list[i].dtype),
                                                 "rows", (json_int_t)l->out.list[i].dims[0]));
    j = json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "model", l->model,
                  "requests", (json_int_t)l->n_ms + l->n_errors, "errors", (json_int_t)l->n_errors,
                  "batch", (json_int_t)l->per_request, "p50_ms", quantile(sorted, l->n_ms, 0.5),
                  "p99_ms", quantile(sorted, l->n_ms, 0.99), "max_ms", quantile(sorted, l->n_ms, 1),
                  "seconds", (double)(l->end_ns - l->start_ns) / 1e9, "latency_ms", ms, "outputs",
                  outputs, "classes", classes(l));
    if (l->c->conf->top > 1)
        json_object_set_new(j, "top", tops(l));
    if (right >= 0) {
        json_object_set_new(j, "correct", json_integer(right));
        json_object_set_new(j, "rows", json_integer(l->out.list[0].dims[0]));
        json_object_set_new(j, "accuracy",
                            json_real((double)right / (double)l->out.list[0].dims[0]));
    }
    out_data(l->c, j);
    json_decref(j);
}

/* The first rows, or with --top K above 1 the K classes of each. */
static void print_classes(const struct load *l)
{
    const struct tensor *out = &l->out.list[0];
    json_t *top = l->c->conf->top > 1 ? tops(l) : NULL;
    const json_t *one;
    size_t k;

    for (int64_t i = 0; l->out.n > 0 && i < SH_MIN(out->dims[0], (int64_t)SHOWN_ROWS); i++) {
        if (tensor_argmax(out, i) < 0)
            continue;
        if (!top) {
            printf("row %" PRId64 ": class %" PRId64 "\n", l->first + i, tensor_argmax(out, i));
            continue;
        }
        printf("row %" PRId64 ":\n", l->first + i);
        json_array_foreach(json_array_get(top, (size_t)i), k, one)
        {
            printf("%5zu.  class %-6" JSON_INTEGER_FORMAT "  %.6g\n", k + 1,
                   json_integer_value(json_object_get(one, "class")),
                   json_number_value(json_object_get(one, "score")));
        }
    }
    json_decref(top);
}

static void print_latencies(const struct load *l, const double *sorted, int64_t right)
{
    double seconds = (double)(l->end_ns - l->start_ns) / 1e9;
    const struct tensor *out = &l->out.list[0];

    if (right < 0)
        print_classes(l);
    if (right >= 0)
        printf("accuracy %.4f (%" PRId64 " of %" PRId64 " rows)\n",
               (double)right / (double)out->dims[0], right, out->dims[0]);
    if (l->n_ms == 1)
        printf("%" PRId64 " row%s in %.1f ms\n", l->rows, l->rows == 1 ? "" : "s", l->ms[0]);
    else
        printf("%zu requests, %" PRId64 " errors; latency p50 %.1f, p99 %.1f, max %.1f ms; %.1f "
               "requests/s\n",
               l->n_ms + (size_t)l->n_errors, l->n_errors, quantile(sorted, l->n_ms, 0.5),
               quantile(sorted, l->n_ms, 0.99), quantile(sorted, l->n_ms, 1),
               (double)l->n_ms / (seconds > 0 ? seconds : 1));
}

static int load_report(struct load *l, struct sh_err *err)
{
    const char *file = l->c->conf->outputs;
    double *sorted = NULL;
    int64_t right = -1;
    int rc = SH_OK;

    if (l->n_ms > 0) {
        sorted = malloc(l->n_ms * sizeof(*sorted));
        if (!sorted)
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");
        memcpy(sorted, l->ms, l->n_ms * sizeof(*sorted));
        sh_sort_f64(sorted, l->n_ms);
    }
    if (l->n_errors == 0)
        rc = count_right(l, &right, err);
    if (!rc && l->n_errors == 0 && file && file[0])
        rc = tensors_write(&l->out, file, err);
    if (!rc && l->c->output == OUTPUT_DATA)
        print_json(l, sorted, right);
    else if (!rc && l->n_ms > 0 && l->c->output == OUTPUT_TABLE)
        print_latencies(l, sorted, right);
    free(sorted);
    if (!rc && l->n_errors > 0) {
        l->c->exit_code = CLI_REFUSED;
        rc = sh_err_copy(err, &l->first_error);
    }
    return rc;
}

int infer_main(struct cli *c, struct sh_err *err)
{
    struct load *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a run");
    l->c = c;
    sh_buf_init(&l->body, MAX_BODY);
    rc = rest_model_choice(c, c->args[0], l->model, l->choice, err);
    if (!rc)
        rc = load_meta(l, err);
    if (!rc)
        rc = load_inputs(l, err);
    if (!rc)
        rc = send_requests(l, err);
    if (!rc)
        rc = load_report(l, err);
    tensors_fini(&l->in);
    tensors_fini(&l->out);
    sh_buf_fini(&l->body);
    json_decref(l->meta);
    free(l->url);
    free(l->ms);
    free(l);
    return rc;
}
