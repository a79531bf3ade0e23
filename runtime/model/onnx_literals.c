/* onnx_literals.c - see onnx_literals.h. */
#include "runtime/model/onnx_literals.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_build.h"
#include "runtime/model/onnx_calls.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/param_forms.h"
#include "runtime/model/param_rules.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_NAME 256 /* of a module */
#define MAX_DEPTH 12 /* of a module in modules */

struct literals {
    struct onnx_build b;
    struct onnx_source *source;
    const struct param_kinds *kinds;
    struct names params; /* of one number, and what was computed of them; to their initializers */
    struct names values; /* of inputs, and of what nodes give */
};

static bool is_number_tensor(const Onnx__TensorProto *t)
{
    bool is = t->data_type == sh_dtype_onnx(SH_F32) && t->name;

    for (size_t i = 0; i < t->n_dims && is; i++)
        is = t->dims[i] == 1;
    return is;
}

/* Is the number of t an argument as it is? */
static bool is_argument(struct literals *l, const char *call, const Onnx__TensorProto *t)
{
    const void *data = onnx_tensor_look(t, l->source);
    const char *p = onnx_call_args(call);
    bool is = false;

    for (p = data && p ? strpbrk(p, ",") : NULL; p && !is; p = strpbrk(p + 1, ",")) {
        char *end;
        const double x = strtod(p + 1, &end);

        is = end != p + 1 && (float)x == param_number(data, 0);
    }
    return is;
}

/* The parameter is not among the arguments, and they all have a name that the graph has. */
static bool was_called_without(const struct literals *l, const char *call, const char *param)
{
    char name[ONNX_CALL_NAME];

    for (const char *p = onnx_call_args(call); p && (p = onnx_call_next(p, name));)
        if (strcmp(name, param) == 0 || onnx_call_is_param(name, param) ||
            names_get(&l->values, name) == NAMES_NONE)
            return false;
    return onnx_call_args(call);
}

/* Input k of the node gets a constant with the numbers of t. */
static int split_literal(struct literals *l, Onnx__NodeProto *n, size_t k,
                         const Onnx__TensorProto *t)
{
    const void *from = onnx_tensor_look(t, l->source);
    float *data = from ? malloc(sizeof(*data)) : NULL;
    char *name = NULL, *input = NULL;
    int rc;

    if (!from)
        return SH_OK;
    rc = data ? sh_asprintf(l->b.err, &name, "val_%s@%s:%zu", t->name, n->output[0], k)
              : SH_FAIL(l->b.err, SH_E_NOMEM, "could not allocate a number");
    if (!rc)
        rc = sh_strdup(name, &input, l->b.err);
    if (rc) {
        free(data);
        free(name);
        return rc;
    }
    memcpy(data, from, sizeof(*data));
    free(n->input[k]);
    n->input[k] = input;
    return onnx_build_tensor(&l->b, name, SH_F32, t->dims, t->n_dims, data, sizeof(*data));
}

static int look_at_node(struct literals *l, Onnx__NodeProto *n)
{
    char *call = NULL;
    int rc = SH_OK;

    if (n->n_input > ONNX_CALL_MOST)
        return SH_OK;
    for (size_t k = 0; k < n->n_input && !rc && n->n_output > 0 && n->output[0]; k++) {
        const char *name = n->input[k] ? n->input[k] : "";
        const uint32_t i = names_get(&l->params, name);

        if (i == NAMES_NONE)
            continue;
        call = call ? call : onnx_call(n);
        if (call && was_called_without(l, call, name) &&
            (param_kind(l->kinds, name) || is_argument(l, call, l->b.g->initializer[i])))
            rc = split_literal(l, n, k, l->b.g->initializer[i]);
    }
    free(call);
    return rc;
}

/* Constants of one number with a name by which a call can have it, that were computed of something:
 * "neg" of t. */
static int see_computed(struct literals *l)
{
    const Onnx__GraphProto *g = l->b.g;
    struct names all;
    int rc = names_init(&all, l->b.err);

    for (size_t i = 0; i < g->n_initializer && !rc; i++)
        if (is_number_tensor(g->initializer[i]) && param_is_word(g->initializer[i]->name))
            rc = names_put_first(&all, g->initializer[i]->name, (uint32_t)i, l->b.err);
    for (size_t i = 0; i < g->n_value_info && !rc && all.n > 0; i++) {
        const char *name = g->value_info[i]->name;
        const uint32_t k = name ? names_get(&all, name) : NAMES_NONE;
        char *list = k != NAMES_NONE ? onnx_folded_from(g->value_info[i]) : NULL;

        if (list && !param_is_of_code(list, l->kinds))
            rc = names_put_first(&l->params, g->initializer[k]->name, k, l->b.err);
        free(list);
    }
    names_fini(&all);
    return rc;
}

static int see_literals(struct literals *l)
{
    const Onnx__GraphProto *g = l->b.g;
    int rc = see_computed(l);

    for (size_t i = 0; i < g->n_initializer && !rc; i++)
        if (is_number_tensor(g->initializer[i]) &&
            param_kind(l->kinds, g->initializer[i]->name) == GRAPH_SAID_PARAM)
            rc = names_put_first(&l->params, g->initializer[i]->name, (uint32_t)i, l->b.err);
    for (size_t i = 0; i < g->n_input && !rc && l->params.n > 0; i++)
        rc = names_put_first(&l->values, g->input[i]->name, 0, l->b.err);
    for (size_t i = 0; i < g->n_node && l->params.n > 0; i++)
        for (size_t k = 0; k < g->node[i]->n_output && !rc; k++)
            rc = names_put_first(&l->values, g->node[i]->output[k], 0, l->b.err);
    return rc;
}

int onnx_literals(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
                  struct sh_err *err)
{
    struct literals l = {.source = source, .kinds = kinds};
    int rc = names_init(&l.params, err);

    if (!rc)
        rc = names_init(&l.values, err);
    if (!rc)
        rc = onnx_build_init(&l.b, m->graph, err);
    onnx_source_walk(source);
    if (!rc && param_kinds_known(kinds))
        rc = see_literals(&l);
    for (size_t i = 0; i < m->graph->n_node && !rc && l.params.n > 0; i++)
        rc = look_at_node(&l, m->graph->node[i]);
    if (!rc)
        rc = onnx_build_finish(&l.b);
    onnx_build_fini(&l.b);
    names_fini(&l.params);
    names_fini(&l.values);
    return rc;
}

/* ---------------------------------------------------------------- what was left out */

struct search {
    const Onnx__GraphProto *g;
    const struct param_kinds *kinds;
    struct names there; /* initializers, inputs, results, and what constants were computed of */
    struct names run;   /* modules with a parameter that is there; keys OWNED, as the next */
    struct names idle;  /* modules with a layer of PyTorch that is not */
    struct names made;  /* what was computed of parameters, to the number of its list */
    struct names args;  /* what nodes were called with */
    char **lists;       /* OWNED; names lie in them */
    char **calls;       /* OWNED; of nodes, likewise */
    char **first;       /* OWNED; of each list: what the first node with it was called with */
    bool merged;        /* another node with it was called with something else */
    char taken[ONNX_CALL_NAME]; /* a parameter with which such a node was called; "": none */
    struct sh_err *err;
};

static int see_literal_list(struct search *s, char *list)
{
    size_t n = 0;
    int rc = SH_OK;

    for (const char *p = param_next_name(list, &n); p && !rc;) {
        char *name = list + (p - list), *next = name + n + 1;

        name[n] = '\0';
        rc = names_put_first(&s->there, name, 0, s->err);
        p = param_next_name(next, &n);
    }
    return rc;
}

/* Was it computed of a parameter, and not only moved (onnx_untie.h)? */
static bool is_made_of_param(const struct search *s, const Onnx__ValueInfoProto *v,
                             const char *list)
{
    struct param_move is;
    size_t n = 0;
    bool any = false;

    for (const char *p = param_next_name(list, &n); p && !any; p = param_next_name(p + n + 1, &n)) {
        char name[MAX_NAME];

        if (n >= sizeof(name))
            continue;
        memcpy(name, p, n);
        name[n] = '\0';
        any = param_kind(s->kinds, name) == GRAPH_SAID_PARAM;
    }
    return any && !param_form_moved(v->name, list, s->kinds, &is) &&
           !param_form_of_zeros(v->name, list, s->kinds);
}

static int see_there(struct search *s)
{
    int rc = SH_OK;

    for (size_t i = 0; i < s->g->n_initializer && !rc; i++)
        rc = names_put_first(&s->there, s->g->initializer[i]->name, 0, s->err);
    for (size_t i = 0; i < s->g->n_input && !rc; i++)
        rc = names_put_first(&s->there, s->g->input[i]->name, 0, s->err);
    for (size_t i = 0; i < s->g->n_node; i++)
        for (size_t k = 0; k < s->g->node[i]->n_output && !rc; k++)
            rc = names_put_first(&s->there, s->g->node[i]->output[k], 0, s->err);
    for (size_t i = 0; i < s->g->n_value_info && !rc; i++) {
        const Onnx__ValueInfoProto *v = s->g->value_info[i];

        s->lists[i] = onnx_folded_from(v);
        if (s->lists[i] && is_made_of_param(s, v, s->lists[i]))
            rc = names_put_first(&s->made, v->name, (uint32_t)i, s->err);
        if (s->lists[i] && !rc)
            rc = see_literal_list(s, s->lists[i]);
    }
    return rc;
}

/* The modules that a parameter is in: of a.b.weight a.b and a. */
static int see_literal_modules(struct search *s, struct names *to, const char *param)
{
    const char *dot = strchr(param, '.');
    int rc = SH_OK;

    for (int k = 0; dot && k < MAX_DEPTH && dot - param < MAX_NAME && !rc; k++) {
        char *module = strndup(param, (size_t)(dot - param));
        bool is_new;

        if (!module)
            return SH_FAIL(s->err, SH_E_NOMEM, "could not allocate the name of a module");
        is_new = names_get(to, module) == NAMES_NONE;
        rc = is_new ? names_put(to, module, 0, s->err) : SH_OK;
        if (rc || !is_new)
            free(module);
        dot = strchr(dot + 1, '.');
    }
    return rc;
}

static int see_all_modules(struct search *s)
{
    int rc = SH_OK;

    for (size_t i = 0; i < s->kinds->names.cap && !rc; i++) {
        const struct names_slot *k = &s->kinds->names.slots[i];

        if (!k->key || k->number != GRAPH_SAID_PARAM)
            continue;
        if (names_get(&s->there, k->key) != NAMES_NONE)
            rc = see_literal_modules(s, &s->run, k->key);
        else if (param_is_of_torch(k->key))
            rc = see_literal_modules(s, &s->idle, k->key);
    }
    return rc;
}

/* Is it of a module that was not run? Layers of PyTorch are not left out because of their numbers,
 * so one that has some, and nothing in the file, was not. */
static bool is_module_idle(const struct search *s, const char *param)
{
    char module[MAX_NAME];

    for (const char *dot = strchr(param, '.'); dot; dot = strchr(dot + 1, '.')) {
        const size_t n = (size_t)(dot - param);

        if (n >= sizeof(module))
            return false;
        memcpy(module, param, n);
        module[n] = '\0';
        if (names_get(&s->idle, module) != NAMES_NONE && names_get(&s->run, module) == NAMES_NONE)
            return true;
    }
    return false;
}

static void forget_modules(struct names *modules)
{
    for (size_t i = 0; i < modules->cap; i++)
        free((char *)(uintptr_t)modules->slots[i].key);
    names_fini(modules);
}

/* A parameter that is not in the file, of none of PyTorch's layers, which are not left out. */
static bool is_param_missing(const struct search *s, const struct names_slot *k)
{
    return k->key && k->number == GRAPH_SAID_PARAM && !param_is_of_torch(k->key) &&
           names_get(&s->there, k->key) == NAMES_NONE && !is_module_idle(s, k->key);
}

/* How many parameters are missing that may have been one number; *name: one of them. */
static uint32_t count_missing(const struct search *s, const char **name)
{
    uint32_t n = 0;

    for (size_t i = 0; i < s->kinds->names.cap; i++) {
        const struct names_slot *k = &s->kinds->names.slots[i];

        if (!is_param_missing(s, k))
            continue;
        *name = !*name || strcmp(k->key, *name) < 0 ? k->key : *name; /* in whatever order */
        n++;
    }
    return n;
}

/* Uses of initializers of one number beyond the first: of those that were merged. */
static int count_merged(const struct search *s, uint32_t *out)
{
    bool *used = calloc(s->g->n_initializer + 1, sizeof(*used));
    struct names numbers;
    int rc = names_init(&numbers, s->err);

    *out = 0;
    if (!used && !rc)
        rc = SH_FAIL(s->err, SH_E_NOMEM, "could not allocate %zu marks", s->g->n_initializer);
    for (size_t i = 0; i < s->g->n_initializer && !rc; i++) {
        const Onnx__TensorProto *t = s->g->initializer[i];

        if (is_number_tensor(t) && param_kind(s->kinds, t->name) == GRAPH_SAID_PARAM)
            rc = names_put_first(&numbers, t->name, (uint32_t)i, s->err);
    }
    for (size_t k = 0; k < s->g->n_node && !rc; k++)
        for (size_t j = 0; j < s->g->node[k]->n_input; j++) {
            const char *name = s->g->node[k]->input[j];
            const uint32_t i = name ? names_get(&numbers, name) : NAMES_NONE;

            *out += i != NAMES_NONE && used[i];
            if (i != NAMES_NONE)
                used[i] = true;
        }
    names_fini(&numbers);
    free(used);
    return rc;
}

/* A small number against a division by zero is left out too: 1e-8. */
static bool may_have_epsilon(const char *call)
{
    static const char *const TARGETS[] = {"aten.div",        "aten.log.",  "aten.pow",
                                          "aten.reciprocal", "aten.rsqrt", "aten.sqrt"};
    bool may = false;

    for (size_t i = 0; i < SH_ARRAY_LEN(TARGETS); i++)
        may |= strstr(call, TARGETS[i]) != NULL;
    return may;
}

/* Was the node called with a sum or product that is not there? */
static bool lacks_result(const struct search *s, const char *call)
{
    static const char *const SUMS[] = {"add", "rsub", "sub"}, *const OTHERS[] = {"div", "mul",
                                                                                 "pow"};
    char name[ONNX_CALL_NAME];
    bool lacks = false;

    for (const char *p = onnx_call_args(call); p && !lacks && (p = onnx_call_next(p, name));)
        for (size_t k = 0; k < SH_ARRAY_LEN(SUMS) && !lacks; k++)
            lacks = names_get(&s->there, name) == NAMES_NONE &&
                    (param_is_called(name, OTHERS[k]) ||
                     (param_is_called(name, SUMS[k]) && !may_have_epsilon(call)));
    return lacks;
}

static bool is_any_gone(const struct search *s)
{
    bool gone = false;

    for (size_t i = 0; i < s->g->n_node && !gone; i++) {
        char *call = onnx_call(s->g->node[i]);

        gone = call && lacks_result(s, call);
        free(call);
    }
    return gone;
}

/* ---------------------------------------------------------------- what was merged */

/* What the node was called with where it has what was computed of a parameter. */
static int look_at_merged(struct search *s, const Onnx__NodeProto *n, const char *call)
{
    char name[ONNX_CALL_NAME];

    for (size_t k = 0; k < n->n_input && n->n_input <= ONNX_CALL_MOST; k++) {
        const char *input = n->input[k] ? n->input[k] : "";
        const uint32_t i = names_get(&s->made, input);

        if (i == NAMES_NONE || !onnx_called_with(n, call, k, name))
            continue;
        s->merged |= s->first[i] && strcmp(s->first[i], name) != 0;
        if (strncmp(name, "p_", 2) == 0)
            sh_strlcpy(s->taken, name, sizeof(s->taken));
        s->first[i] = s->first[i] ? s->first[i] : strdup(name);
        if (!s->first[i])
            return SH_FAIL(s->err, SH_E_NOMEM, "could not allocate the name of an argument");
    }
    return SH_OK;
}

/* Its arguments, whose names are ended there. */
static int see_args(struct search *s, char *call)
{
    const char *p = onnx_call_args(call);
    char name[ONNX_CALL_NAME];
    int rc = SH_OK;

    while (p && !rc && (p = onnx_call_next(p, name))) {
        char *from = call + (p - call), *end = from + strlen(name);
        const bool is_last = !*end;

        *end = '\0';
        rc = names_put_first(&s->args, from, 0, s->err);
        p = is_last ? NULL : end + 1;
    }
    return rc;
}

/* Was a node called with the parameter as it is? Then it was merged with another one, if at all
 * (onnx_untie.h), and not with what was computed. */
static bool is_called_as_it_is(const struct search *s, const char *param)
{
    char arg[ONNX_CALL_NAME];
    const int n = snprintf(arg, sizeof(arg), "p_%s", param);

    for (int i = 2; i < n && i < (int)sizeof(arg) - 1; i++)
        arg[i] = isalnum((unsigned char)arg[i]) ? arg[i] : '_';
    return names_get(&s->args, arg) != NAMES_NONE && strcmp(arg, s->taken) != 0;
}

/* exp(a) and exp(b) + 1e-9, which begin as ones, are in the file once, as exp(a). Nodes were called
 * with one or the other, but what the other was computed of by what is said nowhere. *name: a
 * parameter that is missing then. */
static int find_merged(struct search *s, const char **name)
{
    int rc = SH_OK;

    *name = NULL;
    s->calls = calloc(s->g->n_node + 1, sizeof(*s->calls));
    s->first = calloc(s->g->n_value_info + 1, sizeof(*s->first));
    if (!s->calls || !s->first)
        return SH_FAIL(s->err, SH_E_NOMEM, "could not allocate calls of %zu nodes", s->g->n_node);
    for (size_t i = 0; i < s->g->n_node && !rc; i++) {
        s->calls[i] = onnx_call(s->g->node[i]);
        rc = s->calls[i] ? look_at_merged(s, s->g->node[i], s->calls[i]) : SH_OK;
        if (s->calls[i] && !rc)
            rc = see_args(s, s->calls[i]);
    }
    for (size_t i = 0; i < s->kinds->names.cap && s->merged && !rc; i++) {
        const struct names_slot *k = &s->kinds->names.slots[i];

        if (is_param_missing(s, k) && !is_called_as_it_is(s, k->key))
            *name = !*name || strcmp(k->key, *name) < 0 ? k->key : *name;
    }
    return rc;
}

static void fini_search(struct search *s)
{
    for (size_t i = 0; i < s->g->n_value_info && s->lists; i++)
        free(s->lists[i]);
    for (size_t i = 0; i < s->g->n_value_info && s->first; i++)
        free(s->first[i]);
    for (size_t i = 0; i < s->g->n_node && s->calls; i++)
        free(s->calls[i]);
    free(s->lists);
    free(s->first);
    free(s->calls);
    names_fini(&s->there);
    names_fini(&s->made);
    names_fini(&s->args);
    forget_modules(&s->run);
    forget_modules(&s->idle);
}

int onnx_left_out(Onnx__ModelProto *m, const struct param_kinds *kinds,
                  char out[static ONNX_LEFT_OUT], struct sh_err *err)
{
    struct search s = {.g = m->graph, .kinds = kinds, .err = err};
    const char *name = NULL;
    uint32_t missing, merged = 0;
    int rc;

    out[0] = '\0';
    if (!param_kinds_known(kinds))
        return SH_OK;
    s.lists = calloc(s.g->n_value_info + 1, sizeof(*s.lists));
    rc = names_init(&s.there, err);
    if (!rc && !s.lists)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu lists", s.g->n_value_info);
    if (!rc)
        rc = names_init(&s.run, err);
    if (!rc)
        rc = names_init(&s.idle, err);
    if (!rc)
        rc = names_init(&s.made, err);
    if (!rc)
        rc = names_init(&s.args, err);
    if (!rc)
        rc = see_there(&s);
    if (!rc)
        rc = see_all_modules(&s);
    missing = rc ? 0 : count_missing(&s, &name);
    if (missing > 0)
        rc = count_merged(&s, &merged);
    if (!rc && missing > merged && is_any_gone(&s))
        sh_strlcpy(out, name, ONNX_LEFT_OUT);
    if (!rc && missing > 0 && s.made.n > 0 && !out[0])
        rc = find_merged(&s, &name);
    if (!rc && s.merged && name)
        sh_strlcpy(out, name, ONNX_LEFT_OUT);
    fini_search(&s);
    return rc;
}
