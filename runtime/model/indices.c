/* indices.c - see indices.h. */
#include "runtime/model/indices.h"

#include <stdlib.h>
#include <string.h>

struct table { /* that an input points into; of several the smallest, which speaks for all */
    int64_t rows[SH_MAX_RANK]; /* of number i of an index: rows[i % depth] */
    uint32_t depth;
    const char *name, *node; /* BORROWED; node NULL: it points into none */
};

struct indices {
    struct table *of; /* OWNED: of each input */
};

/* Is every value of y one of x, and every one of x in y? */
static bool keeps_values(const struct ir *ir, const struct dev_op *op)
{
    enum sh_dtype x, y;

    if (op->kind != DEV_OP_COPY && op->kind != DEV_OP_TRANSPOSE)
        return false;
    x = ir_t(ir, op->in[0])->dtype;
    y = ir_t(ir, op->out[0])->dtype;
    return x == y || (x == SH_I32 && y == SH_I64);
}

/* The operation's table; false: its input is none of indices. */
static bool table_of(const struct ir *ir, const struct dev_op *op, struct table *out)
{
    uint32_t axis;

    *out = (struct table){.depth = 1, .node = op->name};
    if (op->kind == DEV_OP_GATHER) {
        if (!dev_axis_of(ir_t(ir, op->in[0]), op->u.axis.axis, &axis))
            return false;
        out->rows[0] = ir_t(ir, op->in[0])->dims[axis];
        return true;
    }
    out->depth = op->u.locate.depth;
    memcpy(out->rows, op->u.locate.size, sizeof(out->rows));
    return op->kind == DEV_OP_LOCATE;
}

/* Tables of other depths: the first one speaks; what it lets through the run checks again. */
static void note_table(const struct ir *ir, const struct dev_op *op, uint32_t input,
                       struct indices *x)
{
    const struct dev_tensor *in = ir_t(ir, ir->inputs[input]);
    struct table *of = &x->of[input], t;

    if ((in->dtype != SH_I32 && in->dtype != SH_I64) || !table_of(ir, op, &t))
        return;
    t.name = in->name;
    if (!of->node)
        *of = t;
    for (uint32_t i = 0; i < of->depth && of->depth == t.depth; i++)
        if (t.rows[i] < of->rows[i]) {
            of->rows[i] = t.rows[i];
            of->node = t.node;
        }
}

/* The input that holds the operation's indices; DEV_NONE: it has none. */
static uint32_t indices_of(const struct dev_op *op)
{
    return op->kind == DEV_OP_GATHER ? op->in[1] : op->kind == DEV_OP_LOCATE ? op->in[0] : DEV_NONE;
}

/* source[t]: the input that tensor t is, under whatever name and shape; DEV_NONE if it is none. */
static void follow_inputs(const struct ir *ir, uint32_t *source, struct indices *x)
{
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        source[i] = DEV_NONE;
    for (uint32_t i = 0; i < ir->n_inputs; i++)
        source[ir_root(ir, ir->inputs[i])] = i;
    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        const struct dev_op *op = &ir->g.ops[i];

        if (keeps_values(ir, op))
            source[ir_root(ir, op->out[0])] = source[ir_root(ir, op->in[0])];
        else if (indices_of(op) != DEV_NONE && source[ir_root(ir, indices_of(op))] != DEV_NONE)
            note_table(ir, op, source[ir_root(ir, indices_of(op))], x);
    }
}

int indices_find(const struct ir *ir, struct indices **out, struct sh_err *err)
{
    struct indices *x = calloc(1, sizeof(*x));
    uint32_t *source = malloc((ir->g.n_tensors + 1u) * sizeof(*source));

    *out = NULL;
    if (x)
        x->of = calloc(ir->n_inputs + 1u, sizeof(*x->of));
    if (!x || !x->of || !source) {
        indices_free(x);
        free(source);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the tables that inputs point into");
    }
    follow_inputs(ir, source, x);
    free(source);
    *out = x;
    return SH_OK;
}

void indices_free(struct indices *x)
{
    if (!x)
        return;
    free(x->of);
    free(x);
}

static int64_t index_value(const void *values, enum sh_dtype t, size_t i)
{
    int64_t wide;
    int32_t narrow;

    if (t == SH_I32) {
        memcpy(&narrow, (const char *)values + i * sizeof(narrow), sizeof(narrow));
        return narrow;
    }
    memcpy(&wide, (const char *)values + i * sizeof(wide), sizeof(wide));
    return wide;
}

int indices_check(const struct indices *x, uint32_t input, enum sh_dtype t, const void *values,
                  size_t n, struct sh_err *err)
{
    const struct table *of = &x->of[input];

    for (size_t i = 0; of->node && i < n; i++) {
        const int64_t v = index_value(values, t, i), rows = of->rows[i % of->depth];

        if (v < -rows || v >= rows)
            return SH_FAIL(err, SH_E_INVALID,
                           "input \"%s\": index %lld at position %zu is outside the table of %lld "
                           "(node \"%s\")",
                           of->name, (long long)v, i, (long long)rows, of->node);
    }
    return SH_OK;
}
