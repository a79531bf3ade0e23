/* onnx_live.c - see onnx_live.h. */
#include "runtime/model/onnx_live.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/param_rules.h"

#include <stdlib.h>

/* Inputs that have no initializer. */
static int see_inputs(const Onnx__GraphProto *g, struct names *live, struct sh_err *err)
{
    struct names given;
    int rc = names_init(&given, err);

    for (size_t i = 0; i < g->n_initializer && !rc; i++)
        rc = names_put_first(&given, g->initializer[i]->name, 0, err);
    for (size_t i = 0; i < g->n_input && !rc; i++)
        if (g->input[i]->name && names_get(&given, g->input[i]->name) == NAMES_NONE)
            rc = names_put_first(live, g->input[i]->name, 0, err);
    names_fini(&given);
    return rc;
}

static int see_live(const Onnx__GraphProto *g, struct names *live, struct sh_err *err)
{
    int rc = names_init(live, err);

    if (!rc)
        rc = see_inputs(g, live, err);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output && !rc; k++)
            rc = names_put_first(live, g->node[i]->output[k], 0, err);
    return rc;
}

/* The list without those that are live, in place. Returns whether there were any. */
static bool drop_dead(const struct names *live, char *list)
{
    char *to = list, *from = list; /* from here on it is not moved yet */
    bool any = false;
    size_t n = 0;

    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n)) {
        char *name = list + (p - list), *end = name + n;
        bool is;

        *end = '\0';
        is = names_get(live, name) != NAMES_NONE;
        *end = '\'';
        if (is) { /* quotes and all */
            memmove(to, from, (size_t)(name - 1 - from));
            to += name - 1 - from;
            from = end + 1;
        }
        any |= is;
    }
    memmove(to, from, strlen(from) + 1);
    return any;
}

static bool has_lists(const Onnx__GraphProto *g)
{
    bool has = false;

    for (size_t i = 0; i < g->n_value_info && !has; i++) {
        char *list = onnx_folded_from(g->value_info[i]);

        has = list;
        free(list);
    }
    return has;
}

int onnx_live(Onnx__ModelProto *m, struct sh_err *err)
{
    struct names live;
    int rc;

    if (!has_lists(m->graph))
        return SH_OK;
    rc = see_live(m->graph, &live, err);
    for (size_t i = 0; i < m->graph->n_value_info && !rc; i++) {
        char *list = onnx_folded_from(m->graph->value_info[i]);

        if (list && drop_dead(&live, list))
            rc = onnx_fold_from(m->graph->value_info[i], list, err);
        free(list);
    }
    names_fini(&live);
    return rc;
}
