/* onnx_inner.c - see onnx_inner.h. */
#include "runtime/model/onnx_inner.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_calls.h"
#include "runtime/model/onnx_meta.h"

#include <stdlib.h>

#define TARGET "target=torch.ops.aten."

/* What a call does to constants inside of it; the greater one counts if several calls read one. */
enum inner { UNKNOWN, MOVES, EXPONENTIAL, CHANGES };

static const char *const ADDED[] = {
    [MOVES] = "t@inner", [EXPONENTIAL] = "exp@inner', 't@inner", [CHANGES] = "mul@inner"};

/* Calls that take numbers as they are, but for the order. */
static const char *const MOVING[] = {
    "addmm",       "bilinear",  "bmm", "clamp",      "conv1d",   "conv2d",   "conv3d", "dot",
    "einsum",      "embedding", "gru", "group_norm", "index",    "linear",   "lstm",   "matmul",
    "masked_fill", "mm",        "mv",  "prelu",      "rnn_relu", "rnn_tanh", "stack",  "where"};

/* Calls that compute something of a constant alone, of which the file has only that. */
static const char *const CHANGING[] = {"addbmm", "addr",       "baddbmm",      "heaviside",
                                       "lerp",   "logaddexp2", "logcumsumexp", "xlogy"};

static bool is_target(const char *target, const char *const *list, size_t n)
{
    const size_t len = strcspn(target, ".]");

    for (size_t i = 0; i < n; i++)
        if (strlen(list[i]) == len && strncmp(list[i], target, len) == 0)
            return true;
    return false;
}

static enum inner inner_of(const char *call)
{
    const char *target = strstr(call, TARGET);
    const char *kwargs = strstr(call, "kwargs = {");

    if (!target)
        return UNKNOWN;
    target += strlen(TARGET);
    if (kwargs && (strstr(kwargs, "alpha:") || strstr(kwargs, "beta:")))
        return CHANGES;
    if (is_target(target, (const char *const[]){"logaddexp"}, 1))
        return EXPONENTIAL;
    if (is_target(target, CHANGING, SH_ARRAY_LEN(CHANGING)))
        return CHANGES;
    return is_target(target, MOVING, SH_ARRAY_LEN(MOVING)) ? MOVES : UNKNOWN;
}

/* Constants that have a number for a name, and a list, to their value_info. */
static int see_constants(const Onnx__GraphProto *g, struct names *to, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < g->n_value_info && rc == SH_OK; i++) {
        const char *name = g->value_info[i]->name;
        char *list =
            name && strncmp(name, "val_", 4) == 0 ? onnx_folded_from(g->value_info[i]) : NULL;

        if (list)
            rc = names_put_first(to, name, (uint32_t)i, err);
        free(list);
    }
    return rc;
}

static void look_at(const Onnx__NodeProto *n, const struct names *constants, uint8_t *found)
{
    char *call = NULL;

    for (size_t k = 0; k < n->n_input; k++) {
        const uint32_t i = n->input[k] ? names_get(constants, n->input[k]) : NAMES_NONE;
        enum inner is;

        if (i == NAMES_NONE)
            continue;
        call = call ? call : onnx_call(n);
        is = call ? inner_of(call) : UNKNOWN;
        found[i] = (uint8_t)SH_MAX((int)found[i], (int)is);
    }
    free(call);
}

/* "['p']" becomes "['p', 't@inner']". */
static int add_name(Onnx__ValueInfoProto *v, enum inner is, struct sh_err *err)
{
    char *list = onnx_folded_from(v), *more = NULL;
    const size_t n = list ? strlen(list) : 0;
    int rc = SH_OK;

    if (n > 2 && list[n - 1] == ']' && list[n - 2] == '\'')
        rc = sh_asprintf(err, &more, "%.*s, '%s']", (int)(n - 1), list, ADDED[is]);
    if (!rc && more)
        rc = onnx_fold_from(v, more, err);
    free(more);
    free(list);
    return rc;
}

int onnx_inner(Onnx__ModelProto *m, struct sh_err *err)
{
    const Onnx__GraphProto *g = m->graph;
    uint8_t *found = calloc(g->n_value_info + 1, sizeof(*found));
    struct names constants;
    int rc = names_init(&constants, err);

    if (!rc && !found)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate marks of %zu values", g->n_value_info);
    if (!rc)
        rc = see_constants(g, &constants, err);
    for (size_t i = 0; i < g->n_node && rc == SH_OK && constants.n > 0; i++)
        look_at(g->node[i], &constants, found);
    for (size_t i = 0; i < g->n_value_info && rc == SH_OK && constants.n > 0; i++)
        if (found[i])
            rc = add_name(g->value_info[i], found[i], err);
    names_fini(&constants);
    free(found);
    return rc;
}
