/* onnx_tie.c - see onnx_tie.h. */
#include "runtime/model/onnx_tie.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/param_rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MIN_NUMBERS 16u /* of a matrix: smaller ones may be equal by chance, */
#define MIN_DRAWN 3u    /* unless so many that differ are such as nobody writes */
#define MAX_LOOKS 16u   /* matrices with which one is compared */
#define TILE 64u

enum tie { APART, EQUAL, TURNED };

struct matrix { /* a tensor with at most two axes that are not 1; of a vector rows is 1 */
    uint32_t initializer;
    size_t rows, cols;
    size_t n_dims, axis[2];       /* where the two are */
    const char *name;             /* BORROWED */
    const uint8_t *data;          /* F32, aligned to 1; BORROWED */
    uint64_t print;               /* of its diagonal, so it is the same of one that is turned */
    bool is_table, weighs;        /* rows of it are taken; it is an operand of a product */
    const Onnx__NodeProto *first; /* that reads it */
    struct matrix *source;        /* what it is made of; NULL: it stays */
    bool is_turned;               /* of source */
    bool stays;
    bool is_detached; /* of the same numbers, and never learns */
};

struct tying {
    Onnx__GraphProto *g;
    struct names names; /* of matrices, to their number */
    struct matrix *all; /* in the order of initializers */
    struct matrix **list;
    uint32_t n;
    struct sh_err *err;
};

/* ---------------------------------------------------------------- which are there */

static bool is_matrix_uniform(const struct matrix *m)
{
    const size_t bytes = m->rows * m->cols * sizeof(float);

    return memcmp(m->data, m->data + sizeof(float), bytes - sizeof(float)) == 0;
}

/* Have some of its numbers more than three decimals? Those are in no two places by chance. */
static bool is_matrix_drawn(const struct matrix *m)
{
    float seen[MIN_DRAWN];
    size_t n = 0;

    for (size_t i = 0; i < m->rows * m->cols && n < MIN_DRAWN; i++) {
        const float x = fabsf(param_number(m->data, (int64_t)i));
        bool is = fabsf(x * 1000 - roundf(x * 1000)) > 1e-2f;

        for (size_t k = 0; k < n && is; k++)
            is = x != seen[k];
        if (is)
            seen[n++] = x;
    }
    return n == MIN_DRAWN;
}

static uint64_t print_of(const struct matrix *m)
{
    const size_t n = SH_MIN(SH_MIN(m->rows, m->cols), (size_t)TILE);
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n * sizeof(float); i++) {
        size_t at = (i / sizeof(float)) * (m->cols + 1) * sizeof(float) + i % sizeof(float);

        h = (h ^ m->data[at]) * 0x100000001b3u;
    }
    return h;
}

/* false: more than two axes are not 1, or none is. */
static bool find_axes(const Onnx__TensorProto *o, struct matrix *m)
{
    size_t wide = 0;

    m->n_dims = o->n_dims;
    for (size_t i = 0; i < o->n_dims; i++) {
        if (o->dims[i] == 1)
            continue;
        if (o->dims[i] < 1 || wide == 2)
            return false;
        m->axis[wide++] = i;
    }
    if (wide == 0)
        return false;
    m->axis[1] = m->axis[wide - 1];
    m->rows = wide == 2 ? (size_t)o->dims[m->axis[0]] : 1;
    m->cols = (size_t)o->dims[m->axis[1]];
    return true;
}

static int add_matrix(struct tying *t, uint32_t i, struct onnx_source *source)
{
    const Onnx__TensorProto *o = t->g->initializer[i];
    struct matrix *m = &t->all[t->n];

    if (o->data_type != sh_dtype_onnx(SH_F32) || !o->name || !o->name[0] ||
        names_get(&t->names, o->name) != NAMES_NONE)
        return SH_OK;
    *m = (struct matrix){.initializer = i, .name = o->name};
    if (!find_axes(o, m))
        return SH_OK;
    m->data = onnx_tensor_look(o, source);
    if (!m->data || is_matrix_uniform(m) ||
        (m->rows * m->cols < MIN_NUMBERS && !is_matrix_drawn(m)))
        return SH_OK;
    m->print = print_of(m);
    return names_put(&t->names, o->name, t->n++, t->err);
}

static struct matrix *find_matrix(struct tying *t, const char *name)
{
    uint32_t i = name && name[0] ? names_get(&t->names, name) : NAMES_NONE;

    return i == NAMES_NONE ? NULL : &t->all[i];
}

static bool takes_rows(const Onnx__NodeProto *n)
{
    for (size_t i = 0; i < n->n_attribute; i++)
        if (n->attribute[i]->name && strcmp(n->attribute[i]->name, "axis") == 0)
            return n->attribute[i]->i == 0;
    return true;
}

static bool is_recurrent(const Onnx__NodeProto *n)
{
    return strcmp(n->op_type, "LSTM") == 0 || strcmp(n->op_type, "GRU") == 0 ||
           strcmp(n->op_type, "RNN") == 0;
}

static void add_use(struct tying *t, const Onnx__NodeProto *n, size_t k)
{
    struct matrix *m = find_matrix(t, n->input[k]);

    if (!m || !n->op_type)
        return;
    m->first = m->first ? m->first : n;
    m->is_table |= k == 0 && strcmp(n->op_type, "Gather") == 0 && takes_rows(n);
    m->weighs |= k < 2 && (strcmp(n->op_type, "MatMul") == 0 || strcmp(n->op_type, "Gemm") == 0);
    m->weighs |= k >= 1 && k <= 3 && is_recurrent(n); /* also its biases */
}

static int find_matrices(struct tying *t, struct onnx_source *source)
{
    int rc = names_init(&t->names, t->err);

    t->all = calloc(t->g->n_initializer + 1, sizeof(*t->all));
    t->list = calloc(t->g->n_initializer + 1, sizeof(struct matrix *));
    if (!rc && (!t->all || !t->list))
        rc = SH_FAIL(t->err, SH_E_NOMEM, "could not allocate a list of %zu initializers",
                     t->g->n_initializer);
    for (size_t i = 0; i < t->g->n_initializer && rc == SH_OK; i++)
        rc = add_matrix(t, (uint32_t)i, source);
    for (size_t i = 0; i < t->g->n_input && rc == SH_OK; i++) {
        struct matrix *m = find_matrix(t, t->g->input[i]->name);

        if (m) /* only what it is if the caller gives no other */
            m->stays = true;
    }
    for (size_t i = 0; i < t->g->n_value_info && rc == SH_OK; i++) {
        struct matrix *m = find_matrix(t, t->g->value_info[i]->name);

        if (m)
            m->is_detached |= onnx_is_detached(t->g->value_info[i]);
    }
    for (size_t i = 0; i < t->g->n_node && rc == SH_OK; i++)
        for (size_t k = 0; k < t->g->node[i]->n_input; k++)
            add_use(t, t->g->node[i], k);
    return rc;
}

/* ---------------------------------------------------------------- which are the same */

static bool is_matrix_turned(const struct matrix *a, const struct matrix *b)
{
    if (a->rows != b->cols || a->cols != b->rows)
        return false;
    for (size_t i = 0; i < a->rows * a->cols; i += TILE * a->cols) /* a tile of both in the cache */
        for (size_t j = 0; j < a->cols; j += TILE)
            for (size_t r = i / a->cols; r < SH_MIN(a->rows, i / a->cols + TILE); r++)
                for (size_t c = j; c < SH_MIN(a->cols, j + TILE); c++)
                    if (memcmp(a->data + (r * a->cols + c) * sizeof(float),
                               b->data + (c * b->cols + r) * sizeof(float), sizeof(float)) != 0)
                        return false;
    return true;
}

static bool is_equal(const struct matrix *a, const struct matrix *b)
{
    return a->rows == b->rows && memcmp(a->data, b->data, a->rows * a->cols * sizeof(float)) == 0;
}

/* "['', 'encoder', 'encoder.query', 'linear_3']": all but the call itself. */
static bool same_module(const struct matrix *a, const struct matrix *b)
{
    static const char KEY[] = "pkg.torch.onnx.name_scopes";
    char *x = a->first ? onnx_meta(a->first, KEY) : NULL;
    char *y = b->first ? onnx_meta(b->first, KEY) : NULL;
    const char *end_x = x ? strrchr(x, ',') : NULL, *end_y = y ? strrchr(y, ',') : NULL;
    bool same = end_x && end_y && end_x - x == end_y - y && strncmp(x, y, (size_t)(end_x - x)) == 0;

    free(x);
    free(y);
    return same;
}

/* "decoder.weight" or "L", and not "onnx::MatMul_12", "val_3" or "/decoder/Transpose_output_0". */
static bool has_name(const struct matrix *m)
{
    return (strchr(m->name, '.') || !param_is_made_up(m->name)) && !strchr(m->name, '/') &&
           !strchr(m->name, ':');
}

static bool is_one(const struct matrix *a, const struct matrix *b)
{
    return (a->is_table && b->weighs) || (a->weighs && b->weighs && same_module(a, b));
}

static bool are_matrices_alike(const struct matrix *a, const struct matrix *b)
{
    return a->n_dims == b->n_dims && a->axis[0] == b->axis[0] && a->axis[1] == b->axis[1];
}

/* One is a form of the other that the exporter computed. Two that weigh products might be a decoder
 * that began as its encoder turned. */
static bool is_form(const struct matrix *a, const struct matrix *b)
{
    return has_name(a) != has_name(b) || (!has_name(a) && !(a->weighs && b->weighs));
}

static enum tie compare_matrices(const struct matrix *a, const struct matrix *b)
{
    if (!are_matrices_alike(a, b) || a->is_detached != b->is_detached)
        return APART;
    if (is_equal(a, b))
        return is_one(a, b) ? EQUAL : APART;
    return is_matrix_turned(a, b) && (is_form(a, b) || is_one(a, b)) ? TURNED : APART;
}

/* Those that may be the same stand together, tables first, then as in the file. */
static int by_print(const void *a, const void *b)
{
    const struct matrix *x = *(struct matrix *const *)a, *y = *(struct matrix *const *)b;
    const size_t nx = x->rows * x->cols, ny = y->rows * y->cols;

    if (nx != ny)
        return nx < ny ? -1 : 1;
    if (x->print != y->print)
        return x->print < y->print ? -1 : 1;
    if (x->is_table != y->is_table)
        return x->is_table ? -1 : 1;
    return x->initializer < y->initializer ? -1 : x->initializer > y->initializer;
}

static void decide_ties(struct tying *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        t->list[i] = &t->all[i];
    qsort(t->list, t->n, sizeof(struct matrix *), by_print);
    for (uint32_t i = 1, first = 0; i < t->n; i++) {
        struct matrix *m = t->list[i];

        if (m->print != t->list[first]->print ||
            m->rows * m->cols != t->list[first]->rows * t->list[first]->cols)
            first = i;
        for (uint32_t k = first; k < SH_MIN(i, first + MAX_LOOKS) && !m->source && !m->stays; k++) {
            enum tie tie = t->list[k]->source ? APART : compare_matrices(t->list[k], m);

            m->source = tie == APART ? NULL : t->list[k];
            m->is_turned = tie == TURNED;
        }
    }
}

/* ---------------------------------------------------------------- what becomes of them */

static char **one_name(const char *name)
{
    char **list = malloc(sizeof(*list));

    if (list && !(list[0] = strdup(name))) {
        free(list);
        list = NULL;
    }
    return list;
}

/* "perm", which has the two axes change places. */
static Onnx__AttributeProto *make_perm(const struct matrix *m)
{
    Onnx__AttributeProto *a = malloc(sizeof(*a));

    if (!a)
        return NULL;
    onnx__attribute_proto__init(a);
    a->name = strdup("perm");
    a->has_type = 1;
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    a->ints = malloc(m->n_dims * sizeof(*a->ints));
    if (!a->name || !a->ints) {
        onnx__attribute_proto__free_unpacked(a, NULL);
        return NULL;
    }
    for (size_t i = 0; i < m->n_dims; i++)
        a->ints[a->n_ints++] = (int64_t)i;
    a->ints[m->axis[0]] = (int64_t)m->axis[1];
    a->ints[m->axis[1]] = (int64_t)m->axis[0];
    return a;
}

static Onnx__NodeProto *make_node(const struct tying *t, const struct matrix *m)
{
    Onnx__NodeProto *n = malloc(sizeof(*n));

    if (!n)
        return NULL;
    onnx__node_proto__init(n);
    n->op_type = strdup(m->is_turned ? "Transpose" : "Identity");
    n->name = strdup(t->g->initializer[m->initializer]->name);
    n->input = one_name(t->g->initializer[m->source->initializer]->name);
    n->output = one_name(t->g->initializer[m->initializer]->name);
    n->n_input = n->input != NULL;
    n->n_output = n->output != NULL;
    n->attribute = m->is_turned ? calloc(1, sizeof(*n->attribute)) : NULL;
    if (n->attribute && (n->attribute[0] = make_perm(m)))
        n->n_attribute = 1;
    if (n->op_type && n->name && n->input && n->output && n->n_attribute == m->is_turned)
        return n;
    onnx__node_proto__free_unpacked(n, NULL);
    return NULL;
}

/* The new nodes come before all others: files have nodes in the order of their use. */
static int make_nodes(struct tying *t, uint32_t n)
{
    Onnx__NodeProto **nodes = calloc(t->g->n_node + n, sizeof(Onnx__NodeProto *));
    size_t at = 0;

    for (uint32_t i = 0; i < t->n && nodes; i++)
        if (t->all[i].source && !(nodes[at++] = make_node(t, &t->all[i])))
            break;
    if (!nodes || nodes[n - 1] == NULL) {
        for (size_t i = 0; nodes && i < at && nodes[i]; i++)
            onnx__node_proto__free_unpacked(nodes[i], NULL);
        free(nodes);
        return SH_FAIL(t->err, SH_E_NOMEM, "could not allocate %u nodes", n);
    }
    for (size_t i = 0; i < t->g->n_node; i++)
        nodes[n + i] = t->g->node[i];
    free(t->g->node);
    t->g->node = nodes;
    t->g->n_node += n;
    return SH_OK;
}

static void drop_initializers(struct tying *t)
{
    Onnx__GraphProto *g = t->g;
    size_t kept = 0;

    for (uint32_t i = 0; i < t->n; i++)
        if (t->all[i].source) {
            onnx__tensor_proto__free_unpacked(g->initializer[t->all[i].initializer], NULL);
            g->initializer[t->all[i].initializer] = NULL;
        }
    for (size_t i = 0; i < g->n_initializer; i++)
        if (g->initializer[i])
            g->initializer[kept++] = g->initializer[i];
    g->n_initializer = kept;
}

int onnx_tie(Onnx__ModelProto *m, struct onnx_source *source, struct sh_err *err)
{
    struct tying t = {.g = m->graph, .err = err};
    uint32_t n = 0;
    int rc;

    onnx_source_walk(source);
    rc = find_matrices(&t, source);

    if (!rc) {
        decide_ties(&t);
        for (uint32_t i = 0; i < t.n; i++)
            n += t.all[i].source != NULL;
        rc = n > 0 ? make_nodes(&t, n) : SH_OK;
        if (!rc)
            drop_initializers(&t);
    }
    names_fini(&t.names);
    free(t.list);
    free(t.all);
    return rc;
}
