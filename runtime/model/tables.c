/* tables.c - see tables.h. */
#include "runtime/model/tables.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

#define READ_NS 5e3 /* of the first row that is read over the link: it comes all the way */

struct reads { /* of a tensor */
    bool by_others;
    uint64_t bytes; /* by GATHER, along the first axis, by indices of the run */
};

static uint64_t tensor_bytes(const struct ir *ir, uint32_t t)
{
    return (uint64_t)ir_elements(ir, t) * sh_dtype_bytes(ir_t(ir, t)->dtype);
}

/* Does the operation read in[0] by rows? any: also by indices that are known already. */
static bool reads_rows(const struct ir *ir, const struct dev_op *op, bool any)
{
    uint32_t axis;

    return op->kind == DEV_OP_GATHER && ir_t(ir, op->in[0])->rank > 0 &&
           dev_axis_of(ir_t(ir, op->in[0]), op->u.axis.axis, &axis) && axis == 0 &&
           (any || !ir_is_const(ir, op->in[1]));
}

static uint64_t rows_bytes(const struct ir *ir, const struct dev_op *op)
{
    const struct dev_tensor *t = ir_t(ir, op->in[0]);
    const uint64_t row = t->dims[0] > 0 ? tensor_bytes(ir, op->in[0]) / (uint64_t)t->dims[0] : 0;
    const uint64_t n = (uint64_t)ir_elements(ir, op->in[1]);

    return row && n > UINT64_MAX / 2 / row ? UINT64_MAX / 2 : n * row;
}

/* By tensor; an alias speaks for its root, too. *out: OWNED, free(); NULL: no memory. */
static struct reads *list_reads(const struct ir *ir, bool any)
{
    struct reads *v = calloc((size_t)ir->g.n_tensors + 1, sizeof(*v));

    for (uint32_t i = 0; v && i < ir->g.n_ops; i++) {
        const struct dev_op *op = &ir->g.ops[i];

        for (uint32_t k = 0; k < op->n_in; k++) {
            const uint32_t t = op->in[k];

            if (t == DEV_NONE)
                continue;
            if (k == 0 && ir_root(ir, t) == t && reads_rows(ir, op, any))
                v[t].bytes = SH_MIN(v[t].bytes, UINT64_MAX / 2) + rows_bytes(ir, op);
            else
                v[ir_root(ir, t)].by_others = true;
        }
    }
    for (uint32_t i = 0; v && i < ir->n_outputs; i++)
        v[ir_root(ir, ir->outputs[i])].by_others = true;
    return v;
}

bool tables_pays(const struct tables_cost *c, uint64_t bytes, uint64_t rows)
{
    const double copy = c->copy_ns + (double)bytes * c->link_ns;
    const double read = READ_NS + (double)rows * c->reach_ns;

    if (bytes < TABLES_LEAST_BYTES || rows >= bytes)
        return false;
    return c->any || (copy - read >= TABLES_LEAST_NS && read <= copy / 2);
}

static bool is_weight(const struct ir *ir, uint32_t t)
{
    return ir_t(ir, t)->role == DEV_ROLE_WEIGHT && ir_t(ir, t)->alias_of == DEV_NONE;
}

int tables_choose(struct ir *ir, const struct tables_cost *c, struct sh_err *err)
{
    struct reads *v = list_reads(ir, false);
    bool has_others = false;

    if (!v)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the tables of a model");
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        has_others |= is_weight(ir, i) && v[i].by_others;
    for (uint32_t i = 0; has_others && i < ir->g.n_tensors; i++)
        if (is_weight(ir, i) && v[i].bytes && !v[i].by_others &&
            tables_pays(c, tensor_bytes(ir, i), v[i].bytes))
            ir_t(ir, i)->role = DEV_ROLE_TABLE;
    free(v);
    return SH_OK;
}

static bool is_table_of(const struct ir *share, const char *name)
{
    for (uint32_t i = 0; i < share->g.n_tensors; i++)
        if (ir_t(share, i)->role == DEV_ROLE_TABLE && strcmp(ir_t(share, i)->name, name) == 0)
            return true;
    return false;
}

static bool has_tables(const struct ir *ir)
{
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        if (ir_t(ir, i)->role == DEV_ROLE_TABLE)
            return true;
    return false;
}

/* One that this program reads in another way stays what it is: then it cannot share the image,
 * which program.c finds. */
int tables_follow(struct ir *ir, const struct ir *share, struct sh_err *err)
{
    struct reads *v = has_tables(share) ? list_reads(ir, true) : NULL;

    if (!has_tables(share))
        return SH_OK;
    if (!v)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the tables of a model");
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        if (is_weight(ir, i) && v[i].bytes && !v[i].by_others &&
            is_table_of(share, ir_t(ir, i)->name))
            ir_t(ir, i)->role = DEV_ROLE_TABLE;
    free(v);
    return SH_OK;
}

uint64_t tables_rows_bytes(const struct ir *ir)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        const struct dev_op *op = &ir->g.ops[i];

        if (op->kind == DEV_OP_GATHER && ir_t(ir, op->in[0])->role == DEV_ROLE_TABLE)
            n = SH_MIN(n, UINT64_MAX / 2) + rows_bytes(ir, op);
    }
    return n;
}
