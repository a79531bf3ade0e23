/* onnx_untie.c - see onnx_untie.h. */
#include "runtime/model/onnx_untie.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_calls.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/param_forms.h"
#include "runtime/model/param_rules.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_BYTES ((size_t)256 << 10) /* of one that is looked at: norms and biases are small */
#define MAX_COPIES ((size_t)64 << 20) /* bytes that all copies may take */
#define MAX_VIEWS 256  /* of constants whose parameters are compared with all others */
#define MAX_SEEN 1024u /* uses of one initializer that are compared */

/* An initializer as it is used beside another one, by which a module is known that is called again:
 * a bias beside the weight. */
struct use {
    uint32_t beside, is, next; /* is: who stands for it there; next: 1 + a use; 0: none */
};

struct untie {
    Onnx__GraphProto *g;
    const struct param_kinds *kinds;
    struct onnx_source *source;
    bool by_name;         /* merged initializers keep their names: each is one parameter */
    bool only_taken;      /* nothing of the module was merged, but maybe what was taken of it */
    struct names names;   /* of initializers, and of what is one by Identity, to its number */
    struct names makers;  /* of what products give, to their nodes */
    struct names ids;     /* as names, each to another number */
    struct names buffers; /* that were merged and have their names again, to their initializers */
    struct names called;  /* what was taken of parameters before it was merged, each to a number */
    char **texts;         /* OWNED; those names */
    size_t texts_cap;
    struct names there; /* what the file has, or computed something of, to 1 + an initializer */
    char **lists;       /* OWNED; names of `there` lie in them */
    uint8_t *views;     /* of each: are all its uses of one parameter? YES, NO; 0: not looked yet */
    uint32_t *said;     /* OWNED; of the first n_said: 1 + what is said of it; 0: nothing */
    size_t n_said, n_views;
    uint32_t *uses;  /* of each; once it is decided: 0, leave it */
    bool *slopes;    /* of each: of PRelu, so it learns whatever it is called */
    uint32_t *first; /* of each, 1 + a use in list; 0: none yet */
    struct use *list;
    size_t n_list, cap_list;
    uint32_t n_new;
    size_t cap, bytes;
    struct sh_err *err;
};

static const char *tensor_name(const Onnx__TensorProto *t)
{
    return t->name ? t->name : "";
}

static uint32_t find_untied(struct untie *u, const char *input)
{
    return input && input[0] ? names_get(&u->names, input) : NAMES_NONE;
}

/* Exporters also merge by a node that hands an initializer on under the name of another. Then it is
 * the uses of that name that count. */
static bool hands_on(struct untie *u, const Onnx__NodeProto *n)
{
    return n->op_type && strcmp(n->op_type, "Identity") == 0 && n->n_input == 1 &&
           n->n_output == 1 && find_untied(u, n->input[0]) != NAMES_NONE;
}

static int add_untied_name(struct untie *u, const Onnx__NodeProto *n)
{
    int rc;

    if (!hands_on(u, n) || !n->output[0] || !n->output[0][0] ||
        find_untied(u, n->output[0]) != NAMES_NONE)
        return SH_OK;
    rc = names_put(&u->names, n->output[0], find_untied(u, n->input[0]), u->err);
    return rc ? rc
              : names_put(&u->ids, n->output[0], (uint32_t)(u->g->n_initializer + u->ids.n),
                          u->err);
}

static void count_node(struct untie *u, const Onnx__NodeProto *n)
{
    for (size_t k = 0; k < n->n_input && !hands_on(u, n); k++) {
        uint32_t v = find_untied(u, n->input[k]);

        if (v == NAMES_NONE)
            continue;
        u->uses[v]++;
        u->slopes[v] |= k == 1 && n->op_type && strcmp(n->op_type, "PRelu") == 0;
    }
}

static bool is_product_node(const Onnx__NodeProto *n)
{
    return n->op_type &&
           (strcmp(n->op_type, "MatMul") == 0 || strcmp(n->op_type, "Gemm") == 0 ||
            strcmp(n->op_type, "Conv") == 0 || strcmp(n->op_type, "ConvTranspose") == 0);
}

static int add_maker(struct untie *u, size_t i)
{
    const Onnx__NodeProto *n = u->g->node[i];

    return is_product_node(n) && n->n_output == 1
               ? names_put_first(&u->makers, n->output[0], (uint32_t)i, u->err)
               : SH_OK;
}

static int count_init_uses(struct untie *u)
{
    int rc = names_init(&u->names, u->err);

    if (!rc)
        rc = names_init(&u->makers, u->err);
    if (!rc)
        rc = names_init(&u->ids, u->err);
    for (size_t i = 0; i < u->g->n_initializer && rc == SH_OK; i++) {
        const char *name = tensor_name(u->g->initializer[i]);

        if (names_get(&u->names, name) != NAMES_NONE)
            continue;
        rc = names_put(&u->names, name, (uint32_t)i, u->err);
        if (!rc)
            rc = names_put(&u->ids, name, (uint32_t)i, u->err);
    }
    u->uses = calloc(u->g->n_initializer + 1, sizeof(*u->uses));
    u->first = calloc(u->g->n_initializer + 1, sizeof(*u->first));
    u->slopes = calloc(u->g->n_initializer + 1, sizeof(*u->slopes));
    if (!rc && (!u->uses || !u->first || !u->slopes))
        rc = SH_FAIL(u->err, SH_E_NOMEM, "could not allocate %zu counts", u->g->n_initializer);
    for (size_t i = 0; i < u->g->n_node && rc == SH_OK; i++)
        rc = add_untied_name(u, u->g->node[i]);
    for (size_t i = 0; i < u->g->n_node && rc == SH_OK; i++)
        rc = add_maker(u, i);
    for (size_t i = 0; i < u->g->n_node && rc == SH_OK; i++) /* also those before their name */
        count_node(u, u->g->node[i]);
    return rc;
}

/* Bytes of a small tensor of F32; 0: it is none. A single number is one only by the name of a
 * module, by its axes, as a slope, or where the code's are no initializers: others are the code's.
 */
static size_t small_bytes(const struct untie *u, const Onnx__TensorProto *t, bool is_slope)
{
    size_t n = sizeof(float);

    if (t->data_type != sh_dtype_onnx(SH_F32))
        return 0;
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] < 1 || __builtin_mul_overflow(n, (size_t)t->dims[i], &n) || n > MAX_BYTES)
            return 0;
    return n > sizeof(float) || is_slope || !param_is_made_up(tensor_name(t)) ||
                   param_is_lone(tensor_name(t), (int)t->n_dims) ||
                   (u->by_name && param_is_folded(tensor_name(t)))
               ? n
               : 0;
}

static bool is_tensor_uniform(const Onnx__TensorProto *t)
{
    const uint8_t *p = t->raw_data.data;

    return memcmp(p, p + sizeof(float), t->raw_data.len - sizeof(float)) == 0;
}

static int copy_initializer(const Onnx__TensorProto *from, char *name, Onnx__TensorProto **out)
{
    Onnx__TensorProto *t = malloc(sizeof(*t));

    *out = t;
    if (!t)
        return SH_E_NOMEM;
    onnx__tensor_proto__init(t);
    t->dims = malloc(SH_MAX(from->n_dims, (size_t)1) * sizeof(*t->dims));
    t->raw_data.data = malloc(from->raw_data.len);
    if (!t->dims || !t->raw_data.data) {
        free(t->dims);
        free(t->raw_data.data);
        free(t);
        return SH_E_NOMEM;
    }
    if (from->n_dims) /* a single number's are NULL */
        memcpy(t->dims, from->dims, from->n_dims * sizeof(*t->dims));
    memcpy(t->raw_data.data, from->raw_data.data, from->raw_data.len);
    t->n_dims = from->n_dims;
    t->has_data_type = 1;
    t->data_type = from->data_type;
    t->has_raw_data = 1;
    t->raw_data.len = from->raw_data.len;
    t->name = name;
    return SH_OK;
}

/* Input k of the node gets an initializer of its own, of this name or, NULL, of a new one. */
static int split_input(struct untie *u, Onnx__NodeProto *n, size_t k, uint32_t v, const char *as)
{
    const char *output = n->n_output && n->output[0] ? n->output[0] : "";
    Onnx__TensorProto *t = NULL;
    char *name = NULL, *input = NULL;
    int rc =
        as ? sh_strdup(as, &name, u->err)
           : sh_asprintf(u->err, &name, "%s@%s:%zu", tensor_name(u->g->initializer[v]), output, k);

    if (!rc)
        rc = sh_strdup(name, &input, u->err);
    if (!rc)
        rc = sh_grow(&u->g->initializer, &u->cap, u->g->n_initializer + 1,
                     sizeof(*u->g->initializer), GRAPH_MAX_VALUES, "values of a model", u->err);
    if (!rc && copy_initializer(u->g->initializer[v], name, &t))
        rc = SH_FAIL(u->err, SH_E_NOMEM, "could not allocate an initializer");
    if (rc) {
        free(name);
        free(input);
        return rc;
    }
    u->g->initializer[u->g->n_initializer++] = t;
    free(n->input[k]);
    n->input[k] = input;
    u->n_new += !as;
    return SH_OK;
}

static int decide_untied(struct untie *u, struct onnx_source *source)
{
    int rc = SH_OK;

    for (size_t i = 0; i < u->g->n_initializer && rc == SH_OK; i++) {
        Onnx__TensorProto *t = u->g->initializer[i];
        size_t bytes =
            u->only_taken && !param_is_moved(tensor_name(t)) ? 0 : small_bytes(u, t, u->slopes[i]);
        size_t more = (u->uses[i] - (u->uses[i] > 0)) * bytes;

        if (more == 0 || more > MAX_COPIES - u->bytes) {
            u->uses[i] = 0;
            continue;
        }
        rc = onnx_tensor_settle(t, source, u->err);
        if (!rc && !is_tensor_uniform(t))
            u->uses[i] = 0;
        else
            u->bytes += more;
    }
    return rc;
}

/* An input of the node that stays what it is, another one than k. */
static uint32_t beside_in(struct untie *u, const Onnx__NodeProto *n, size_t k)
{
    for (size_t i = 0; i < n->n_input; i++) {
        const uint32_t v = i == k ? NAMES_NONE : find_untied(u, n->input[i]);

        if (v != NAMES_NONE && u->uses[v] == 0)
            return v;
    }
    return NAMES_NONE;
}

/* What input k of the node is beside; or, where a product and a sum are nodes of their own, what
 * the product weighs with; or, where names count, what it is called. */
static uint32_t input_beside(struct untie *u, const Onnx__NodeProto *n, size_t k)
{
    uint32_t v = u->by_name ? names_get(&u->ids, n->input[k]) : beside_in(u, n, k);

    for (size_t i = 0; i < n->n_input && v == NAMES_NONE; i++) {
        const uint32_t made =
            i == k || !n->input[i] ? NAMES_NONE : names_get(&u->makers, n->input[i]);

        if (made != NAMES_NONE)
            v = beside_in(u, u->g->node[made], SIZE_MAX);
    }
    return v;
}

/* What input k of the node was called with. False: it is not said. */
static bool read_product_call(const Onnx__NodeProto *n, size_t k, char name[static ONNX_CALL_NAME])
{
    char *call = n->n_input <= ONNX_CALL_MOST ? onnx_call(n) : NULL; /* as often as it has inputs */
    const bool is = call && onnx_called_with(n, call, k, name);

    free(call);
    return is;
}

/* A number of that name. */
static int number_call(struct untie *u, const char *name, uint32_t *out)
{
    int rc;

    *out = names_get(&u->called, name);
    if (*out != NAMES_NONE)
        return SH_OK;
    *out = GRAPH_MAX_VALUES + (uint32_t)u->called.n; /* none of those of input_beside() */
    rc = sh_grow(&u->texts, &u->texts_cap, u->called.n + 1, sizeof(*u->texts), GRAPH_MAX_VALUES,
                 "names of arguments", u->err);
    if (!rc)
        rc = sh_strdup(name, &u->texts[u->called.n], u->err);
    if (rc)
        return rc;
    rc = names_put(&u->called, u->texts[u->called.n], *out, u->err);
    if (rc)
        free(u->texts[u->called.n]);
    return rc;
}

#define YES 1
#define NO 2

/* May the parameter, seen in another form, have the numbers of v, which are all equal? Modules read
 * what PyTorch's layers have as it is. */
static bool may_look_like(const struct untie *u, const char *param, uint32_t v)
{
    const uint32_t at = names_get(&u->there, param);
    const Onnx__TensorProto *t = u->g->initializer[v], *of;
    const uint8_t *data;

    if (at == NAMES_NONE)
        return true;
    of = at ? u->g->initializer[at - 1] : t; /* 0: of another constant, which is not in the file */
    if (of == t || onnx_tensor_floats(of, MAX_BYTES) * sizeof(float) != t->raw_data.len ||
        (param_is_of_torch(param) && strcmp(param, tensor_name(of)) == 0))
        return false;
    data = onnx_tensor_look(of, u->source);
    return !data || memcmp(data, t->raw_data.data, t->raw_data.len) == 0;
}

/* Was v, a parameter that was moved, merged with nothing but other views of it? gain[None] and
 * gain.view(1, 8), both of ones: no other parameter can have these numbers. */
static bool is_of_one(struct untie *u, uint32_t v)
{
    const char *name = tensor_name(u->g->initializer[v]);
    const bool is_new = !u->views[v] && v < u->n_said && u->said[v] && u->n_views++ < MAX_VIEWS;
    char *list = is_new ? onnx_folded_from(u->g->value_info[u->said[v] - 1]) : NULL;
    struct param_move move;

    if (list && param_form_moved(name, list, u->kinds, &move)) {
        u->views[v] = YES;
        for (size_t i = 0; i < u->kinds->names.cap; i++) {
            const struct names_slot *s = &u->kinds->names.slots[i];

            if (s->key && s->number == GRAPH_SAID_PARAM && strcmp(s->key, move.param) != 0 &&
                may_look_like(u, s->key, v))
                u->views[v] = NO;
        }
    } else if (!u->views[v]) {
        u->views[v] = NO;
    }
    free(list);
    return u->views[v] == YES;
}

/* Is that what the exporter calls a parameter of the module: "p_net_0_scale"? */
static bool is_param_called(const struct untie *u, const char *name)
{
    bool is = false;

    for (size_t i = 0; i < u->kinds->names.cap && strncmp(name, "p_", 2) == 0 && !is; i++) {
        const struct names_slot *s = &u->kinds->names.slots[i];

        is = s->key && s->number == GRAPH_SAID_PARAM && onnx_call_is_param(name, s->key);
    }
    return is;
}

/* What tells input k of the node, which is v, from other uses of v. called: as what it was called
 * with; "": it is not said. What was called with one parameter is one, whatever it is beside. */
static int find_that(struct untie *u, const Onnx__NodeProto *n, size_t k, uint32_t v,
                     const char *called, uint32_t *out)
{
    const char *own = tensor_name(u->g->initializer[v]);
    int rc = SH_OK;

    *out = NAMES_NONE;
    if (called[0] && !u->by_name && param_is_moved(own))
        rc = number_call(u, param_is_moved(called) && is_of_one(u, v) ? own : called, out);
    else if (!u->by_name && !u->only_taken && is_param_called(u, called))
        rc = number_call(u, called, out);
    if (!rc && *out == NAMES_NONE && !u->only_taken)
        *out = input_beside(u, n, k);
    return rc;
}

/* Who stands for v beside that; NAMES_NONE: it was not there yet. */
static uint32_t used_as(const struct untie *u, uint32_t v, uint32_t that)
{
    uint32_t n = 0;

    for (uint32_t at = u->first[v]; at && n < MAX_SEEN; at = u->list[at - 1].next, n++)
        if (u->list[at - 1].beside == that)
            return u->list[at - 1].is;
    return NAMES_NONE;
}

static int note_use(struct untie *u, uint32_t v, uint32_t that, uint32_t is)
{
    int rc = sh_grow(&u->list, &u->cap_list, u->n_list + 1, sizeof(*u->list), UINT32_MAX,
                     "uses of parameters", u->err);

    if (rc)
        return rc;
    u->list[u->n_list] = (struct use){.beside = that, .is = is, .next = u->first[v]};
    u->first[v] = (uint32_t)++u->n_list;
    return SH_OK;
}

static int rename_input(struct untie *u, Onnx__NodeProto *n, size_t k, uint32_t to)
{
    char *name;
    int rc = sh_strdup(tensor_name(u->g->initializer[to]), &name, u->err);

    if (rc)
        return rc;
    free(n->input[k]);
    n->input[k] = name;
    return SH_OK;
}

/* The buffer of that name: "b_net_0_mean". BORROWED; NULL: it is none. */
static const char *buffer_called(const struct untie *u, const char *name)
{
    const bool is = !u->only_taken && strncmp(name, "b_", 2) == 0;

    for (size_t i = 0; i < u->kinds->names.cap && is; i++) {
        const struct names_slot *s = &u->kinds->names.slots[i];

        if (s->key && s->number == GRAPH_SAID_BUFFER && onnx_call_is_param(name, s->key))
            return s->key;
    }
    return NULL;
}

/* Input k of the node, which a parameter of equal numbers was merged with, is that buffer again. */
static int give_input_back(struct untie *u, Onnx__NodeProto *n, size_t k, uint32_t v,
                           const char *buffer)
{
    const uint32_t there = names_get(&u->buffers, buffer);
    int rc;

    if (there != NAMES_NONE)
        return rename_input(u, n, k, there);
    rc = split_input(u, n, k, v, buffer);
    return rc ? rc : names_put(&u->buffers, buffer, (uint32_t)u->g->n_initializer - 1, u->err);
}

/* seen: initializers that have a use already, which keeps them. */
static int split_node(struct untie *u, Onnx__NodeProto *n, bool *seen)
{
    int rc = SH_OK;

    for (size_t k = 0; k < n->n_input && rc == SH_OK && !hands_on(u, n); k++) {
        const uint32_t v = find_untied(u, n->input[k]);
        char called[ONNX_CALL_NAME];
        const char *buffer;
        uint32_t that, is;

        if (v == NAMES_NONE || u->uses[v] == 0)
            continue;
        if (!read_product_call(n, k, called))
            called[0] = '\0';
        buffer = buffer_called(u, called);
        if (buffer && find_untied(u, buffer) == NAMES_NONE) {
            rc = give_input_back(u, n, k, v, buffer);
            continue;
        }
        rc = find_that(u, n, k, v, called, &that);
        if (rc || (that == NAMES_NONE && u->only_taken))
            continue;
        is = that == NAMES_NONE ? NAMES_NONE : used_as(u, v, that);
        if (is != NAMES_NONE) {
            if (is != v)
                rc = rename_input(u, n, k, is);
            continue;
        }
        is = v;
        if (seen[v]) {
            rc = split_input(u, n, k, v, NULL);
            is = (uint32_t)u->g->n_initializer - 1;
        }
        seen[v] = true;
        if (!rc && that != NAMES_NONE)
            rc = note_use(u, v, that, is);
    }
    return rc;
}

/* ---------------------------------------------------------------- has anything been merged? */

/* The quoted names of a list, which are ended there; at: 1 + the initializer whose list it is. */
static int see_listed_names(struct names *there, char *list, uint32_t at, struct sh_err *err)
{
    size_t n = 0;
    int rc = SH_OK;

    for (const char *p = param_next_name(list, &n); p && rc == SH_OK;) {
        char *name = list + (p - list), *next = name + n + 1;

        name[n] = '\0';
        rc = names_put_first(there, name, at, err);
        p = param_next_name(next, &n);
    }
    return rc;
}

/* Is there a name of the signature that is neither in the file, nor anything was computed of it? */
static int look_for_missing(struct untie *u, bool *any)
{
    const Onnx__GraphProto *g = u->g;
    int rc = SH_OK;

    u->lists = calloc(g->n_value_info + 1, sizeof(*u->lists));
    u->said = calloc(g->n_initializer + 1, sizeof(*u->said));
    u->n_said = g->n_initializer;
    if (!u->lists || !u->said)
        rc = SH_FAIL(u->err, SH_E_NOMEM, "could not allocate %zu lists", g->n_value_info);
    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = names_put_first(&u->there, g->initializer[i]->name, (uint32_t)i + 1, u->err);
    for (size_t i = 0; i < g->n_value_info && rc == SH_OK; i++) {
        const char *name = g->value_info[i]->name;
        const uint32_t at = name ? names_get(&u->there, name) : NAMES_NONE;

        u->lists[i] = onnx_folded_from(g->value_info[i]);
        if (u->lists[i] && at != NAMES_NONE && at > 0 && !u->said[at - 1])
            u->said[at - 1] = (uint32_t)i + 1;
        rc = u->lists[i]
                 ? see_listed_names(&u->there, u->lists[i], at == NAMES_NONE ? 0 : at, u->err)
                 : SH_OK;
    }
    *any = false;
    for (size_t i = 0; i < u->kinds->names.cap && rc == SH_OK; i++) {
        const char *name = u->kinds->names.slots[i].key;

        *any |= name && !strstr(name, "num_batches_tracked") &&
                names_get(&u->there, name) == NAMES_NONE;
    }
    return rc;
}

static void fini(struct untie *u, size_t n_lists)
{
    for (size_t i = 0; i < n_lists && u->lists; i++)
        free(u->lists[i]);
    for (size_t i = 0; i < u->called.n; i++)
        free(u->texts[i]);
    free(u->lists);
    free(u->views);
    free(u->said);
    free(u->uses);
    free(u->first);
    free(u->slopes);
    free(u->list);
    free(u->texts);
    names_fini(&u->there);
    names_fini(&u->called);
    names_fini(&u->buffers);
    names_fini(&u->names);
    names_fini(&u->makers);
    names_fini(&u->ids);
}

int onnx_untie(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
               uint32_t *n, struct sh_err *err)
{
    struct untie u = {.g = m->graph,
                      .kinds = kinds,
                      .source = source,
                      .cap = m->graph->n_initializer,
                      .err = err};
    bool *seen = calloc(m->graph->n_initializer + 1, sizeof(*seen)), any = true;
    int rc = names_init(&u.there, err);

    *n = 0;
    u.views = calloc(m->graph->n_initializer + 1, sizeof(*u.views));
    if (!rc && (!seen || !u.views))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate marks");
    if (!rc && param_kinds_known(kinds))
        rc = look_for_missing(&u, &any);
    u.only_taken = !any;
    u.by_name = !param_kinds_known(kinds) && onnx_is_as_written(m);
    if (!rc)
        rc = names_init(&u.called, err);
    if (!rc)
        rc = names_init(&u.buffers, err);
    if (!rc)
        rc = count_init_uses(&u);
    if (!rc)
        rc = decide_untied(&u, source);
    onnx_source_walk(source);
    for (size_t i = 0; i < u.g->n_node && rc == SH_OK; i++)
        rc = split_node(&u, u.g->node[i], seen);
    *n = u.n_new;
    free(seen);
    fini(&u, m->graph->n_value_info);
    return rc;
}
