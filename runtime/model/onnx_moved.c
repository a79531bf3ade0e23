/* onnx_moved.c - see onnx_moved.h. */
#include "runtime/model/onnx_moved.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_build.h"
#include "runtime/model/onnx_mentions.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/param_forms.h"
#include "runtime/model/param_rules.h"

#include <stdlib.h>

#define MAX_ELEMENTS ((size_t)1 << 26) /* of one that is looked at */
#define MAX_FORMS 1024                 /* of all parameters */
#define MAX_LOOKS 8                    /* forms with which one is compared */

struct form {    /* a constant that is a parameter */
    char *param; /* OWNED */
    uint32_t of; /* initializer */
};

struct list {    /* what is said of a constant */
    uint32_t of; /* initializer */
    char *list;  /* OWNED */
};

struct moved {
    struct onnx_build b;
    struct onnx_source *source;
    const struct param_kinds *kinds;
    struct names names, inputs; /* of initializers; what the caller may give stays */
    struct form *forms;         /* OWNED */
    struct list *lists;         /* OWNED */
    struct onnx_mentions mentions;
    size_t n, cap, n_lists;
};

/* The two axes of a tensor that are not 1, as rows and columns. */
static bool matrix_of(const Onnx__TensorProto *t, size_t *rows, size_t *cols)
{
    size_t wide = 0;

    *rows = *cols = 1;
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] != 1) {
            *(wide == 0 ? rows : cols) = (size_t)t->dims[i];
            wide++;
        }
    return wide == 2;
}

static bool is_data_turned(const Onnx__TensorProto *a, const Onnx__TensorProto *b, const uint8_t *x,
                           const uint8_t *y)
{
    size_t rows, cols, r, c;

    if (!matrix_of(a, &rows, &cols) || !matrix_of(b, &r, &c) || rows != c || cols != r)
        return false;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            if (memcmp(x + (i * cols + j) * sizeof(float), y + (j * rows + i) * sizeof(float),
                       sizeof(float)) != 0)
                return false;
    return true;
}

/* Initializer i becomes what is made of `of`. */
static int put_moved(struct moved *m, uint32_t i, const Onnx__TensorProto *of, bool turned)
{
    const Onnx__TensorProto *t = m->b.g->initializer[i];
    char *name = NULL;
    int rc;

    if (turned) {
        rc = sh_asprintf(m->b.err, &name, "%s@turned", t->name);
        if (!rc)
            rc = onnx_build_node(&m->b, "Transpose", of->name, NULL, name, 0);
    } else {
        rc = sh_strdup(of->name, &name, m->b.err);
    }
    if (!rc)
        rc = onnx_build_shaped(&m->b, "Reshape", name, t);
    if (!rc)
        m->b.gone[i] = true;
    free(name);
    return rc;
}

/* *done: initializer i is made of initializer `of` now. */
static int try_moved(struct moved *m, uint32_t i, uint32_t of, bool *done)
{
    const Onnx__TensorProto *t = m->b.g->initializer[i], *o = m->b.g->initializer[of];
    const size_t n = onnx_tensor_floats(t, MAX_ELEMENTS);
    const uint8_t *x, *y;
    bool same;

    if (i == of || n == 0 || onnx_tensor_floats(o, MAX_ELEMENTS) != n)
        return SH_OK;
    if (of < m->b.n_file && m->b.gone[of]) /* of this one, maybe */
        return SH_OK;
    x = onnx_tensor_look(t, m->source);
    y = onnx_tensor_look(o, m->source);
    if (!x || !y)
        return SH_OK;
    same = memcmp(x, y, n * sizeof(float)) == 0;
    if (!same && (t->n_dims == o->n_dims || !is_data_turned(t, o, x, y)))
        return SH_OK; /* one of as many axes that is turned: onnx_tie.h */
    *done = true;
    return put_moved(m, i, o, !same);
}

static int add_form(struct moved *m, const char *param, uint32_t i)
{
    int rc;

    if (m->n == MAX_FORMS)
        return SH_OK;
    rc = sh_grow(&m->forms, &m->cap, m->n + 1, sizeof(*m->forms), MAX_FORMS, "forms of parameters",
                 m->b.err);
    if (!rc)
        rc = sh_strdup(param, &m->forms[m->n].param, m->b.err);
    if (!rc)
        m->forms[m->n++].of = i;
    return rc;
}

/* The parameter is there under its name, and initializer i is made of it. */
static int add_param(struct moved *m, const char *param, uint32_t i)
{
    const Onnx__TensorProto *t = m->b.g->initializer[i];
    const size_t bytes = onnx_tensor_floats(t, MAX_ELEMENTS) * sizeof(float);
    const void *x = bytes ? onnx_tensor_look(t, m->source) : NULL;
    char *name = NULL;
    void *data;
    int rc;

    if (!x)
        return SH_OK;
    rc = sh_strdup(param, &name, m->b.err);
    if (rc)
        return rc;
    data = malloc(bytes);
    if (data)
        memcpy(data, x, bytes);
    rc = onnx_build_tensor(&m->b, name, SH_F32, t->dims, t->n_dims, data, bytes);
    if (!rc)
        rc = names_put(&m->names, name, (uint32_t)m->b.g->n_initializer - 1, m->b.err);
    return rc ? rc : put_moved(m, i, m->b.g->initializer[m->b.g->n_initializer - 1], false);
}

/* Are all its numbers the same, and so maybe those of a parameter with fewer? */
static bool is_init_uniform(const struct moved *m, uint32_t i)
{
    const Onnx__TensorProto *t = m->b.g->initializer[i];
    const size_t bytes = onnx_tensor_floats(t, MAX_ELEMENTS) * sizeof(float);
    const uint8_t *x = bytes ? onnx_tensor_look(t, m->source) : NULL;

    return x && memcmp(x, x + sizeof(float), bytes - sizeof(float)) == 0;
}

static int look_at_moved(struct moved *m, uint32_t i, const char *list)
{
    const char *name = m->b.g->initializer[i]->name;
    struct param_move is;
    bool done = false;
    int rc = SH_OK, looks = 0;
    uint32_t own;

    if (!param_form_moved(name, list, m->kinds, &is))
        return SH_OK;
    own = names_get(&m->names, is.param);
    if (own != NAMES_NONE && names_get(&m->inputs, is.param) == NAMES_NONE)
        rc = try_moved(m, i, own, &done);
    if (rc || done || (is.repeats && is_init_uniform(m, i)))
        return rc;
    for (size_t k = 0; k < m->n && !rc && !done && looks < MAX_LOOKS; k++)
        if (strcmp(m->forms[k].param, is.param) == 0) {
            rc = try_moved(m, i, m->forms[k].of, &done);
            looks++;
        }
    if (rc || done)
        return rc;
    if (own == NAMES_NONE && !is.turns && onnx_mentioned_again(&m->mentions, is.param))
        return add_param(m, is.param, i);
    return add_form(m, is.param, i);
}

/* What is said of each constant. */
static int read_lists(struct moved *m)
{
    const Onnx__GraphProto *g = m->b.g;

    int rc = SH_OK;

    m->lists = calloc(g->n_value_info + 1, sizeof(*m->lists));
    if (!m->lists)
        return SH_FAIL(m->b.err, SH_E_NOMEM, "could not allocate a list of constants");
    for (size_t k = 0; k < g->n_value_info && !rc; k++) {
        const char *name = g->value_info[k]->name;
        const uint32_t i = name ? names_get(&m->names, name) : NAMES_NONE;
        const bool is = i < m->b.n_file && names_get(&m->inputs, name) == NAMES_NONE;
        char *list = is ? onnx_folded_from(g->value_info[k]) : NULL;

        if (!list)
            continue;
        m->lists[m->n_lists++] = (struct list){.of = i, .list = list};
        rc = onnx_mentions_add(&m->mentions, list, m->kinds, m->b.err);
    }
    return rc;
}

static int look_at_all_moved(struct moved *m)
{
    int rc = read_lists(m);

    onnx_source_walk(m->source);
    for (size_t k = 0; k < m->n_lists && rc == SH_OK; k++)
        rc = look_at_moved(m, m->lists[k].of, m->lists[k].list);
    return rc;
}

int onnx_moved(Onnx__ModelProto *model, struct onnx_source *source, const struct param_kinds *kinds,
               struct sh_err *err)
{
    struct moved m = {.source = source, .kinds = kinds};
    const Onnx__GraphProto *g = model->graph;
    int rc;

    if (!param_kinds_known(kinds))
        return SH_OK;
    rc = names_init(&m.names, err);
    if (!rc)
        rc = names_init(&m.inputs, err);
    if (!rc)
        rc = onnx_build_init(&m.b, model->graph, err);
    for (size_t i = 0; i < g->n_input && rc == SH_OK; i++)
        rc = names_put_first(&m.inputs, g->input[i]->name, (uint32_t)i, err);
    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = names_put_first(&m.names, g->initializer[i]->name, (uint32_t)i, err);
    if (!rc)
        rc = look_at_all_moved(&m);
    if (!rc)
        rc = onnx_build_finish(&m.b);
    for (size_t i = 0; i < m.n; i++)
        free(m.forms[i].param);
    for (size_t i = 0; i < m.n_lists; i++)
        free(m.lists[i].list);
    free(m.lists);
    free(m.forms);
    onnx_mentions_fini(&m.mentions);
    onnx_build_fini(&m.b);
    names_fini(&m.names);
    names_fini(&m.inputs);
    return rc;
}
