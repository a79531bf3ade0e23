/* import.c - ONNX files in and out, inside the sandbox. */
#include "runtime/import/import.h"

#include "common/buf.h"
#include "common/importer.h"
#include "common/json.h"
#include "common/mem.h"
#include "runtime/model/graph.h"
#include "runtime/model/looks.h"
#include "runtime/model/onnx.h"
#include "runtime/model/package.h"
#include "runtime/model/pads.h"
#include "runtime/model/samples.h"
#include "runtime/model/sandbox.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---------------------------------------------------------------- the reply */

/* Names in messages come from the file; what is no UTF-8 is left out rather than the message. */
static json_t *json_or_null_text(const char *s)
{
    json_t *j = json_string(s);
    char clean[512];
    size_t n = 0;

    if (j)
        return j;
    for (; *s && n + 1 < sizeof(clean); s++)
        clean[n++] = *s >= 0x20 && *s < 0x7F ? *s : '?';
    clean[n] = '\0';
    return json_string(clean);
}

/* common/dim.h. derived: of an output; NULL: the shape of v says all. */
static json_t *tensor_json(const struct graph *g, const struct graph_value *v,
                           const struct sh_dim *derived)
{
    struct sh_dim dims[SH_MAX_RANK];
    json_t *shape = json_array(), *j;

    if (derived)
        memcpy(dims, derived, sizeof(dims));
    else
        graph_axes(v, dims);
    for (int i = 0; shape && i < v->rank; i++) {
        json_array_append_new(shape, json_integer(sh_dim_is_fixed(&dims[i]) ? dims[i].add : -1));
    }
    j = json_pack("{s:o,s:s,s:o}", "name", json_or_null_text(v->name), "datatype",
                  sh_dtype_v2(v->dtype), "shape", shape);
    if (j && !sh_dims_are_plain(dims, (size_t)v->rank))
        json_object_set_new(j, "dims", sh_dims_json(dims, (size_t)v->rank, &g->symbols));
    return j;
}

static json_t *io_json(const struct graph *g, const uint32_t *list, uint32_t n, bool are_outputs)
{
    json_t *a = json_array();

    for (uint32_t i = 0; a && i < n; i++)
        json_array_append_new(
            a, tensor_json(g, &g->values[list[i]], are_outputs ? g->output_dims[i] : NULL));
    return a;
}

/* Lines "operator node: reason". */
static json_t *nodes_json(const char *list)
{
    json_t *a = json_array();

    while (a && list && *list) {
        size_t n = strcspn(list, "\n"), op = strcspn(list, " ");
        const char *why = strstr(list, ": ");

        if (op < n && why && why < list + n)
            json_array_append_new(a, json_pack("{s:s%,s:s%,s:s%}", "op", list, op, "node",
                                               list + op + 1, (size_t)(why - list) - op - 1,
                                               "reason", why + 2, n - (size_t)(why + 2 - list)));
        list += n + (list[n] == '\n');
    }
    return a;
}

static json_t *failure_json(const struct sh_err *err, const char *list)
{
    json_t *j = json_pack("{s:b,s:s,s:o}", "ok", 0, "code", sh_rc_name(err->rc), "error",
                          json_or_null_text(err->msg));

    if (j && list)
        json_object_set_new(j, "nodes", nodes_json(list));
    return j;
}

static int print_answer(json_t *j, struct sh_err *err)
{
    int rc = SH_OK;

    if (!j)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    if (json_dumpf(j, stdout, JSON_COMPACT) != 0 || fputc('\n', stdout) == EOF ||
        fflush(stdout) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write the reply");
    json_decref(j);
    return rc;
}

/* ---------------------------------------------------------------- package */

struct weights {
    int64_t n_parameters, bytes;
    bool plain; /* every parameter is FP32 */
};

#define IS_STATISTIC (1u << 31)

/* Per value how many inputs of nodes it feeds, and whether it is a running statistic of
 * BatchNormalization: a float of the file, but no parameter. OWNED, free(); NULL without memory. */
static uint32_t *count_value_uses(const struct graph *g)
{
    uint32_t *uses = calloc((size_t)g->n_values + 1, sizeof(*uses));

    for (uint32_t i = 0; uses && i < g->n_nodes; i++) {
        const struct graph_node *n = &g->nodes[i];
        bool norm = strcmp(n->op, "BatchNormalization") == 0;

        for (uint32_t j = 0; j < n->n_in; j++)
            if (n->in[j] != GRAPH_NONE)
                uses[n->in[j]] = (uses[n->in[j]] + 1) | (norm && j >= 3 ? IS_STATISTIC : 0);
    }
    return uses;
}

static struct weights count_weights(const struct graph *g)
{
    struct weights w = {.plain = true};
    uint32_t *uses = count_value_uses(g);

    for (uint32_t i = 0; i < g->n_values; i++) {
        const struct graph_value *v = &g->values[i];

        if (v->data)
            w.bytes += (int64_t)v->bytes;
        if (!v->is_param || (uses && (uses[i] & IS_STATISTIC)))
            continue;
        w.n_parameters += graph_elements(v);
        w.plain &= v->dtype == SH_F32;
    }
    free(uses);
    return w;
}

/* How many parameters feed more than one place. */
static uint32_t count_shared(const struct graph *g)
{
    uint32_t *uses = count_value_uses(g), shared = 0;

    for (uint32_t i = 0; uses && i < g->n_values; i++)
        shared += g->values[i].is_param && (uses[i] & ~IS_STATISTIC) > 1;
    free(uses);
    return shared;
}

static bool has_op(const struct graph *g, const char *op)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i].op, op) == 0)
            return true;
    return false;
}

/* Floats of several numbers that training leaves as they are, though nobody said that they are
 * buffers; *first: BORROWED, the name of one. */
static uint32_t count_fixed(const struct graph *g, const char **first)
{
    uint32_t n = 0;

    *first = NULL;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const struct graph_value *v = &g->values[i];

        if (!v->data || v->is_param || v->is_held || v->said == GRAPH_SAID_BUFFER ||
            v->dtype != SH_F32 || graph_elements(v) < 2)
            continue;
        *first = *first ? *first : v->name;
        n++;
    }
    return n;
}

#define MAX_ASSUMED 256u
#define SAID_ASSUMED 6u

/* The names of what is trained because of its use alone, of which the note has some. OWNED. */
static json_t *describe_assumed(const struct graph *t, struct sh_buf *note, int *rc,
                                struct sh_err *err)
{
    json_t *list = json_array();
    uint32_t n = 0;

    for (uint32_t i = 0; i < t->n_values; i++)
        n += t->values[i].is_assumed;
    if (n > 0)
        *rc = sh_buf_printf(note, err,
                            "the file does not say whether %u of its constants are parameters, "
                            "buffers or computed of them, and they are trained because of how they "
                            "are used (",
                            n);
    for (uint32_t i = 0; i < t->n_values && json_array_size(list) < MAX_ASSUMED; i++) {
        const size_t k = json_array_size(list);

        if (!t->values[i].is_assumed)
            continue;
        json_array_append_new(list, json_or_null_text(t->values[i].name));
        if (!*rc && k < SAID_ASSUMED)
            *rc = sh_buf_printf(note, err, "%s%.64s", k ? ", " : "",
                                json_string_value(json_array_get(list, k)));
    }
    if (!*rc && n > 0)
        *rc = sh_buf_printf(note, err,
                            "%s): name buffers when you push the file (--buffers), or in "
                            "\"frozen\" when you train it",
                            n > SAID_ASSUMED ? ", ..." : "");
    return list;
}

/* *n: how many are held fixed though their numbers may be learned; the note names some. */
static int describe_held(const struct graph *g, struct sh_buf *note, uint32_t *n,
                         struct sh_err *err)
{
    int rc = SH_OK;

    *n = 0;
    for (uint32_t i = 0; i < g->n_values && !rc; i++) {
        const char *before = *n ? ", " : note->len ? "; held fixed are " : "held fixed are ";

        if (g->values[i].is_held && (*n)++ < SAID_ASSUMED)
            rc = sh_buf_printf(note, err, "%s%.64s", before, g->values[i].name);
    }
    if (!rc && *n > 0)
        rc = sh_buf_printf(note, err,
                           "%s because of names, use or numbers, though the file does not say that "
                           "they are buffers: name those that learn when you push it "
                           "(--parameters)",
                           *n > SAID_ASSUMED ? ", ..." : "");
    return rc;
}

/* What training does that the file may not show. g: as read; t: in training form; again: of
 * looks.h. */
static int describe_training(const struct graph *g, const struct graph *t, const char *again,
                             struct sh_buf *note, json_t **assumed, uint32_t *held,
                             struct sh_err *err)
{
    uint32_t shared = count_shared(t), fixed;
    const char *first;
    int rc = SH_OK;

    *assumed = describe_assumed(t, note, &rc, err);
    if (!rc)
        rc = describe_held(g, note, held, err);
    if (!rc && g->unmatched[0])
        rc = sh_buf_printf(
            note, err, "%sit has no constant of a name that --buffers or --parameters lists: %s",
            note->len ? "; " : "", g->unmatched);
    if (!rc && shared > 0)
        rc = sh_buf_printf(note, err,
                           "%s%u parameters are used in several places and trained as one",
                           note->len ? "; " : "", shared);
    if (!rc && g->n_untied > 0)
        rc = sh_buf_printf(note, err,
                           "%s%u parameters of equal numbers (ones, zeros) that the file has as "
                           "one are trained apart, as exporters merge them; if the model shares "
                           "them by design, give them other numbers before the export",
                           note->len ? "; " : "", g->n_untied);
    if (!rc && g->n_guessed > 0)
        rc = sh_buf_printf(note, err,
                           "%s%u numbers are computed from parameters that they match (-p, 1 - p), "
                           "though the file does not say what they are; export with dynamo=True, "
                           "which does",
                           note->len ? "; " : "", g->n_guessed);
    if (!rc && g->n_unbounded > 0)
        rc = sh_buf_printf(note, err,
                           "%s%u parameters are trained without the bounds (clamp) that the model "
                           "puts on them, which the exporter left out; torch.onnx.export(..., "
                           "dynamo=True, optimize=False) keeps them",
                           note->len ? "; " : "", g->n_unbounded);
    if (!rc && g->n_unfolded > 0)
        rc = sh_buf_printf(note, err,
                           "%s%u norms that the exporter put into convolutions are norms again, as "
                           "the file shows that they are new",
                           note->len ? "; " : "", g->n_unfolded);
    if (!rc && g->n_folded > 0)
        rc = sh_buf_printf(note, err,
                           "%s%u norms were put into weights by the exporter and are trained as "
                           "part of them; torch.onnx.export(..., dynamo=True, optimize=False) "
                           "keeps norms",
                           note->len ? "; " : "", g->n_folded);
    fixed = count_fixed(g, &first);
    if (!rc && fixed > 0)
        rc = sh_buf_printf(note, err,
                           "%s%u constants are held fixed, since neither their use nor their name "
                           "is that of a parameter: %.64s%s",
                           note->len ? "; " : "", fixed, first, fixed > 1 ? ", ..." : "");
    if (!rc && again)
        rc = sh_buf_printf(note, err,
                           "%sgradients flow through sampling positions computed from earlier "
                           "samples (%.64s); PyTorch code often detaches them, but this file does "
                           "not say; export with dynamo=True",
                           note->len ? "; " : "", again);
    if (!rc && has_op(t, "BatchNormalization"))
        rc = sh_buf_printf(note, err,
                           "%sBatchNormalization is trained with the statistics of the batch",
                           note->len ? "; " : "");
    return rc;
}

static bool has_float_output(const struct graph *g)
{
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (g->values[g->outputs[i]].dtype == SH_F32)
            return true;
    return false;
}

/* Can this graph be trained? note says why not, or what training will do; *warns: who trains it
 * should know that first. */
static bool trainable(const struct graph *g, const struct weights *w, char *note, size_t size,
                      bool *warns, json_t **assumed)
{
    struct sh_err err = {0};
    struct graph *t = NULL;
    const char *again = NULL;
    struct sh_buf text_of;
    uint32_t held = 0;
    bool ok = false;

    *warns = false;
    *assumed = NULL;
    if (w->n_parameters == 0)
        sh_strlcpy(note, "the model has no parameters", size);
    else if (!w->plain)
        sh_strlcpy(note, "only FP32 parameters can be trained; export the model in FP32", size);
    else if (!has_float_output(g))
        sh_strlcpy(note, "no output is FP32, so there is no loss", size);
    else {
        ok = graph_at_batch(g, graph_some_batch(g), true, &t, &err) == SH_OK &&
             looks_again(g, &again, &err) == SH_OK;
        *warns =
            !ok || g->n_untied > 0 || g->n_guessed > 0 || g->n_folded > 0 || g->n_unbounded > 0;
        sh_strlcpy(note, err.msg, size);
    }
    sh_buf_init(&text_of, size);
    if (ok && describe_training(g, t, again, &text_of, assumed, &held, NULL) == SH_OK &&
        text_of.len)
        sh_strlcpy(note, text_of.data, size);
    *warns |= json_array_size(*assumed) > 0 || held > 0 || g->unmatched[0] || again;
    sh_buf_fini(&text_of);
    graph_free(t);
    return ok;
}

/* ---------------------------------------------------------------- buckets */

static int read_import_buckets(const char *text_of, const struct graph *g, json_t **j,
                               struct sh_buckets *out, struct sh_err *err)
{
    int rc;

    *out = (struct sh_buckets){0};
    *j = NULL;
    if (!text_of)
        return SH_OK;
    rc = sh_json_parse(text_of, strlen(text_of), SH_BUCKETS_TEXT, j, err);
    return rc ? rc : sh_buckets_read(*j, &g->symbols, out, err);
}

static int check_buckets(const struct graph *g, const struct sh_buckets *b, bool *masks,
                         struct sh_err *err)
{
    char why[PADS_WHY];
    bool harmless = true;
    int rc = SH_OK;

    for (uint32_t k = 0; k < g->symbols.n && !rc; k++) {
        rc = pads_check(g, k, b->v[k], b->n[k], &harmless, masks, why, err);
        if (!rc && !harmless)
            rc = SH_FAIL(err, SH_E_UNSUPPORTED,
                         "requests cannot be filled up along \"%s\" without changing answers: %s. "
                         "Push it without buckets (it runs at each size as it comes), or export it "
                         "with a mask as an input",
                         g->symbols.name[k], why);
    }
    return rc;
}

/* Marks the inputs that mask: a request is not filled up where one masks all of a sample. */
static void mark_masks(json_t *inputs, const bool *masks)
{
    for (size_t i = 0; i < json_array_size(inputs); i++)
        if (masks[i])
            json_object_set_new(json_array_get(inputs, i), "mask", json_true());
}

/* The first program is one that will be used. */
static void begin_at_buckets(struct graph *g, const struct sh_buckets *b)
{
    const struct sh_sizes own = g->own;
    struct graph *at = NULL;

    for (uint32_t k = 0; k < g->symbols.n; k++)
        if (b->n[k])
            g->own.v[k] = b->v[k][0];
    if (graph_at_batch(g, graph_some_batch(g), false, &at, NULL))
        g->own = own;
    graph_free(at);
}

/* Lists of sizes, in the order of the symbols, that are worth compiling before somebody asks: all
 * of them have buckets, and there are few combinations. */
static json_t *warm_json(const struct graph *g, const struct sh_buckets *b)
{
    json_t *all = json_array();
    uint64_t n = g->symbols.n > 0;

    for (size_t k = 0; k < g->symbols.n && n <= SH_MAX_BUCKETS; k++)
        n *= b->n[k];
    for (uint64_t i = 0; all && n <= SH_MAX_BUCKETS && i < n; i++) {
        json_t *one = json_array();
        uint64_t at = i;

        for (size_t k = 0; one && k < g->symbols.n; k++) {
            json_array_append_new(one, json_integer(b->v[k][at % b->n[k]]));
            at /= b->n[k];
        }
        json_array_append_new(all, one);
    }
    return all;
}

static json_t *success_json(const struct graph *g, const char *why_solo)
{
    struct weights w = count_weights(g);
    char note[2048] = "";
    json_t *assumed, *j;
    bool warns, ok = trainable(g, &w, note, sizeof(note), &warns, &assumed);

    j = json_pack("{s:b,s:i,s:o,s:o,s:I,s:I,s:I,s:I,s:b,s:o,s:b,s:o*,s:b,s:o,s:O*}", "ok", 1,
                  "importer", SH_IMPORTER, "inputs", io_json(g, g->inputs, g->n_inputs, false),
                  "outputs", io_json(g, g->outputs, g->n_outputs, true), "opset",
                  (json_int_t)g->opset, "n_nodes", (json_int_t)g->n_nodes, "n_parameters",
                  (json_int_t)w.n_parameters, "weight_bytes", (json_int_t)w.bytes, "trainable", ok,
                  "training_note", json_or_null_text(note), "training_warns", warns,
                  "training_assumes", assumed, "solo", g->is_solo, "solo_note",
                  json_or_null_text(why_solo), "preprocess", g->preprocess);
    return j;
}

/* The folder that a file lies in. OWNED. */
static int folder_of(const char *path, char **out, struct sh_err *err)
{
    const char *slash = strrchr(path, '/');

    *out = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    return *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a path");
}

/* The model is mapped, and its weights are written again: both limits are on what comes on top. */
static int enter_sandbox(const struct import_conf *c, const char *dir, struct sh_err *err)
{
    const char *files[] = {c->onnx, NULL, NULL, NULL};
    struct sandbox box = {.read_paths = files, .write_dir = dir, .cpu_seconds = c->cpu_seconds};
    char *folder = NULL;
    struct stat st;
    int64_t bytes = stat(c->onnx, &st) == 0 ? (int64_t)st.st_size : 0;
    size_t n = 1;
    int rc = c->beside ? folder_of(c->onnx, &folder, err) : SH_OK;

    if (rc)
        return rc;
    if (c->state)
        files[n++] = c->state;
    if (folder)
        files[n++] = folder;
    box.memory_bytes = c->memory_bytes + bytes;
    box.file_bytes = c->file_bytes + bytes;
    rc = sandbox_enter(&box, err);
    free(folder);
    return rc;
}

static int make_import_package(const struct import_conf *c, struct sh_err *err)
{
    char why_solo[SAMPLES_WHY] = "";
    struct sh_err why = {0};
    struct sh_buckets buckets;
    bool independent = true, *masks = NULL;
    struct graph *g = NULL;
    json_t *reply = NULL, *asked = NULL;
    char *list = NULL;
    int rc = enter_sandbox(c, c->dir, &why);

    if (!rc)
        rc = onnx_read_list(c->onnx, c->beside, &g, &list, &why);
    if (!rc)
        rc = graph_check(g, c->training, &list, &why);
    if (!rc)
        rc = graph_infer_outputs(g, c->training, &why);
    if (!rc)
        rc = samples_check(g, &independent, why_solo, &why);
    if (!rc)
        rc = read_import_buckets(c->buckets, g, &asked, &buckets, &why);
    if (!rc && !(masks = calloc((size_t)g->n_inputs + 1, sizeof(*masks))))
        rc = SH_FAIL(&why, SH_E_NOMEM, "could not allocate marks of %u inputs", g->n_inputs);
    if (!rc)
        rc = check_buckets(g, &buckets, masks, &why);
    if (!rc) {
        begin_at_buckets(g, &buckets);
        g->is_solo = !independent;
        reply = success_json(g, why_solo);
        if (asked && reply) {
            json_object_set(reply, "buckets", asked);
            json_object_set_new(reply, "warm", warm_json(g, &buckets));
            mark_masks(json_object_get(reply, "inputs"), masks);
        }
        rc = package_write(g, c->dir, &why);
    }
    if (rc) {
        json_decref(reply);
        reply = failure_json(&why, list);
    }
    json_decref(asked);
    free(masks);
    free(list);
    graph_free(g);
    return print_answer(reply, err);
}

/* ---------------------------------------------------------------- export */

static int make_export(const struct import_conf *c, struct sh_err *err)
{
    struct sh_err why = {0};
    char *dir = NULL;
    int rc = folder_of(c->out, &dir, &why);

    if (!rc)
        rc = enter_sandbox(c, dir, &why);
    if (!rc)
        rc = onnx_export(c->onnx, c->state, c->out, &why);
    free(dir);
    return print_answer(rc ? failure_json(&why, NULL) : json_pack("{s:b}", "ok", 1), err);
}

int import_run(const char *command, const struct import_conf *c, struct sh_err *err)
{
    if (!c->onnx)
        return SH_FAIL(err, SH_E_INVALID, "give the model with --onnx FILE");
    if (strcmp(command, "package") == 0) {
        if (!c->dir)
            return SH_FAIL(err, SH_E_INVALID, "give the folder for the package with --dir DIR");
        return make_import_package(c, err);
    }
    if (strcmp(command, "export") != 0)
        return SH_FAIL(err, SH_E_INVALID, "no command \"%s\": use package or export", command);
    if (!c->state || !c->out)
        return SH_FAIL(err, SH_E_INVALID,
                       "give the state with --state FILE and the result with --out FILE");
    return make_export(c, err);
}
