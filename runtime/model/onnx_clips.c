/* onnx_clips.c - see onnx_clips.h. */
#include "runtime/model/onnx_clips.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_again.h"
#include "runtime/model/onnx_build.h"
#include "runtime/model/onnx_calls.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/param_rules.h"

#include <stdlib.h>

enum { LOW = 1, HIGH = 2 }; /* inputs of a Clip */

#define MAX_SEARCHES 1024 /* for parameters by what calls name them */

struct clips {
    struct onnx_build b;
    struct onnx_source *source;
    const struct param_kinds *kinds;
    struct names names; /* of initializers, and of what is one by Identity, to their numbers */
    bool as_written;    /* by PyTorch's older exporter */
    bool any_missing;   /* a parameter of which the file has nothing */
    size_t n_searches;
};

/* Is input k of the node a single number that the file has? */
static bool find_number(const struct clips *c, const Onnx__NodeProto *n, int k, float *out)
{
    const char *name = (size_t)k < n->n_input && n->input[k] ? n->input[k] : "";
    const uint32_t i = names_get(&c->names, name);
    const Onnx__TensorProto *t = i == NAMES_NONE ? NULL : c->b.g->initializer[i];
    const void *data = t && onnx_tensor_floats(t, 1) == 1 ? onnx_tensor_look(t, c->source) : NULL;

    if (data)
        *out = param_number(data, 0);
    return data;
}

/* ---------------------------------------------------------------- the call */

/* Argument `at` of the call, as it stands there. false: there is none. */
static bool argument_at(const char *call, int at, char out[static ONNX_CALL_NAME])
{
    const char *p = onnx_call_args(call);
    size_t n;

    p = p ? p + strlen("(args = (") : NULL;
    for (int k = 0; k < at && p; k++) {
        p += strcspn(p, ",)");
        p = *p == ',' ? p + 1 + strspn(p + 1, " ") : NULL;
    }
    n = p ? strcspn(p, ",)") : 0;
    if (n == 0 || n >= ONNX_CALL_NAME)
        return false;
    memcpy(out, p, n);
    out[n] = '\0';
    return true;
}

/* What the call has for the bound: of clamp in its place, of minimum or maximum either of two.
 * false: it is another call, or the bound was of one before it. */
static bool find_argument(const char *call, int k, char out[static ONNX_CALL_NAME])
{
    char first[ONNX_CALL_NAME];

    if (strstr(call, "aten.clamp."))
        return argument_at(call, k, out);
    if (!strstr(call, k == LOW ? "aten.maximum." : "aten.minimum."))
        return false;
    if (!argument_at(call, 0, first) || !argument_at(call, 1, out))
        return false;
    if (strncmp(first, "%p_", 3) == 0)
        memcpy(out, first, sizeof(first));
    return true;
}

/* The parameter that calls name so. BORROWED; NULL: it is none. */
static const char *param_called(struct clips *c, const char *arg)
{
    if (arg[0] != '%' || c->n_searches++ >= MAX_SEARCHES)
        return NULL;
    for (size_t i = 0; i < c->kinds->names.cap; i++) {
        const struct names_slot *s = &c->kinds->names.slots[i];

        if (s->key && s->number == GRAPH_SAID_PARAM && onnx_call_is_param(arg + 1, s->key))
            return s->key;
    }
    return NULL;
}

/* ---------------------------------------------------------------- what a bound is */

struct bound {
    bool is;     /* there is one, */
    bool known;  /* which is the number x, */
    bool learns; /* and of the module */
    float x;
    char *name; /* OWNED; of what it is from then on */
};

/* An initializer of that number. */
static int add_bound(struct clips *c, const char *name, float x)
{
    float *data = malloc(sizeof(*data));
    char *copy = NULL;
    int rc = data ? sh_strdup(name, &copy, c->b.err)
                  : SH_FAIL(c->b.err, SH_E_NOMEM, "could not allocate a number");

    if (rc) {
        free(data);
        return rc;
    }
    *data = x;
    rc = onnx_build_tensor(&c->b, copy, SH_F32, NULL, 0, data, sizeof(*data));
    return rc ? rc : names_put(&c->names, copy, (uint32_t)c->b.g->n_initializer - 1, c->b.err);
}

static int find_bound(struct clips *c, const Onnx__NodeProto *n, int k, const char *call,
                      struct bound *b)
{
    char arg[ONNX_CALL_NAME] = "";
    const char *param;

    b->is = (size_t)k < n->n_input && n->input[k] && n->input[k][0];
    b->known = find_number(c, n, k, &b->x);
    if (!b->known)
        return SH_OK;
    b->learns = c->as_written || param_kind(c->kinds, n->input[k]) == GRAPH_SAID_PARAM;
    if (b->learns)
        return sh_strdup(n->input[k], &b->name, c->b.err);
    param = call && find_argument(call, k, arg) ? param_called(c, arg) : NULL;
    if (!param)
        return SH_OK;
    b->learns = true;
    if (names_get(&c->names, param) == NAMES_NONE) {
        const int rc = add_bound(c, param, b->x);

        if (rc)
            return rc;
    }
    return sh_strdup(param, &b->name, c->b.err);
}

/* An argument that is no number of the code, nor a buffer: "%neg". */
static bool is_computed(const char *arg)
{
    return arg[0] == '%' && param_is_made_up(arg + 1) && !param_is_maker(arg + 1) &&
           strncmp(arg, "%c_", 3) != 0 && !strstr(arg, "lift") && !strstr(arg, "tensor");
}

/* A bound that the call does not name: the negative of the other one, or of a parameter that
 * nothing else shows, unless it is 0 or the code has it. */
static int find_rest(struct clips *c, const Onnx__NodeProto *n, int k, const char *call,
                     struct bound *b, const struct bound *other)
{
    char arg[ONNX_CALL_NAME] = "";
    const bool is_named = call && find_argument(call, k, arg);
    int rc;

    if (!b->known || b->learns || c->as_written || (is_named && !is_computed(arg)))
        return SH_OK;
    if (is_named && other->learns && b->x == -other->x) {
        rc = sh_asprintf(c->b.err, &b->name, "%s@negated", n->input[k]);
        if (!rc)
            rc = onnx_build_node(&c->b, "Neg", other->name, NULL, b->name, 0);
        b->learns = !rc;
        return rc;
    }
    if (!(is_named || other->learns) || b->x == 0 || !c->any_missing)
        return SH_OK;
    rc = sh_asprintf(c->b.err, &b->name, "%s@%s", n->input[k], ONNX_FACTOR);
    if (!rc && names_get(&c->names, b->name) == NAMES_NONE)
        rc = add_bound(c, b->name, b->x);
    b->learns = !rc;
    return rc;
}

/* ---------------------------------------------------------------- the node */

/* The node becomes op(x, name), of what it was to clip. */
static int become(struct clips *c, Onnx__NodeProto *n, const char *op, const char *x,
                  const char *name)
{
    char *texts[3] = {NULL};
    int rc = sh_strdup(op, &texts[0], c->b.err);

    if (!rc)
        rc = sh_strdup(x, &texts[1], c->b.err);
    if (!rc)
        rc = sh_strdup(name, &texts[2], c->b.err);
    if (rc) {
        for (int i = 0; i < 3; i++)
            free(texts[i]);
        return rc;
    }
    for (size_t i = 0; i < n->n_input; i++)
        free(n->input[i]);
    free(n->op_type);
    n->op_type = texts[0];
    n->input[0] = texts[1];
    n->input[1] = texts[2];
    n->n_input = 2;
    return SH_OK;
}

/* One that is of the code stays, in a node of its own. */
static int replace_clip(struct clips *c, Onnx__NodeProto *n, const struct bound *low,
                        const struct bound *high)
{
    const char *lower = low->learns ? low->name : low->is ? n->input[LOW] : NULL;
    const char *upper = high->learns ? high->name : high->is ? n->input[HIGH] : NULL;
    char *between = NULL;
    int rc = SH_OK;

    if (!lower || !upper)
        return become(c, n, lower ? "Max" : "Min", n->input[0], lower ? lower : upper);
    rc = sh_asprintf(c->b.err, &between, "%s@low", n->output[0]);
    if (!rc)
        rc = onnx_build_node(&c->b, "Max", n->input[0], lower, between, 0);
    if (!rc)
        rc = become(c, n, "Min", between, upper);
    free(between);
    return rc;
}

static int look_at_clip(struct clips *c, Onnx__NodeProto *n)
{
    struct bound low = {.name = NULL}, high = {.name = NULL};
    char *call = NULL;
    int rc;

    if (!n->op_type || strcmp(n->op_type, "Clip") != 0 || n->n_input < 2 || n->n_output != 1)
        return SH_OK;
    call = onnx_call(n);
    rc = find_bound(c, n, LOW, call, &low);
    if (!rc)
        rc = find_bound(c, n, HIGH, call, &high);
    if (!rc)
        rc = find_rest(c, n, LOW, call, &low, &high);
    if (!rc)
        rc = find_rest(c, n, HIGH, call, &high, &low);
    if (!rc && (low.learns || high.learns))
        rc = replace_clip(c, n, &low, &high);
    free(low.name);
    free(high.name);
    free(call);
    return rc;
}

static int add_alias(struct clips *c, const Onnx__NodeProto *n)
{
    const bool is = n->op_type && strcmp(n->op_type, "Identity") == 0 && n->n_input == 1 &&
                    n->n_output == 1 && n->input[0] && n->output[0];
    const uint32_t of = is ? names_get(&c->names, n->input[0]) : NAMES_NONE;

    return of == NAMES_NONE ? SH_OK : names_put_first(&c->names, n->output[0], of, c->b.err);
}

int onnx_clips(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
               struct sh_err *err)
{
    struct clips c = {.source = source, .kinds = kinds};
    const Onnx__GraphProto *g = m->graph;
    int rc = names_init(&c.names, err);

    c.as_written = !param_kinds_known(kinds) && onnx_is_as_written(m);
    if (!rc)
        rc = onnx_build_init(&c.b, m->graph, err);
    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = names_put_first(&c.names, g->initializer[i]->name, (uint32_t)i, err);
    for (size_t i = 0; i < g->n_node && rc == SH_OK; i++)
        rc = add_alias(&c, g->node[i]);
    for (size_t i = 0; i < kinds->names.cap && rc == SH_OK; i++) {
        const struct names_slot *s = &kinds->names.slots[i];

        c.any_missing |= s->key && s->number == GRAPH_SAID_PARAM && !param_is_of_torch(s->key) &&
                         names_get(&c.names, s->key) == NAMES_NONE;
    }
    onnx_source_walk(source);
    for (size_t i = 0; i < g->n_node && rc == SH_OK && (c.as_written || param_kinds_known(kinds));
         i++)
        rc = look_at_clip(&c, g->node[i]);
    if (!rc)
        rc = onnx_build_finish(&c.b);
    onnx_build_fini(&c.b);
    names_fini(&c.names);
    return rc;
}
