/* autodiff_resample.c - the gradient of a RESAMPLE is another one with inverted tables: for each
 * element of the input, the elements of the result to which it contributes. */
#include "common/mem.h"
#include "runtime/model/autodiff_int.h"

#include <stdlib.h>

#define MAX_TABLE ((int64_t)1 << 26)

struct table { /* for each of m, taps elements of n */
    int64_t m, taps, n;
    const int32_t *from;
    const float *weight;
};

struct turned { /* for each of n, taps elements of m */
    int64_t taps;
    int32_t *from;
    float *weight;
};

/* Where the edge repeats, an element is there several times; it counts once. seen: the last p and
 * its place, by element. */
static void walk_table(const struct table *t, struct turned *out, int64_t *count, int64_t *seen)
{
    for (int64_t i = 0; i < t->n; i++) {
        count[i] = 0;
        seen[i] = -1;
    }
    for (int64_t k = 0; k < t->m * t->taps; k++) {
        const int64_t p = k / t->taps, i = t->from[k];

        if (t->weight[k] == 0.0f)
            continue;
        if (seen[i] != p)
            count[i]++;
        seen[i] = p;
        if (out->from) {
            out->from[i * out->taps + count[i] - 1] = (int32_t)p;
            out->weight[i * out->taps + count[i] - 1] += t->weight[k];
        }
    }
}

static void turn_table(struct ad *a, const struct dev_op *op, const struct table *t,
                       struct turned *out)
{
    int64_t *count = ir_alloc(a->ir, t->n, sizeof(*count));
    int64_t *seen = ir_alloc(a->ir, t->n, sizeof(*seen));

    *out = (struct turned){.taps = 1};
    if (seen)
        walk_table(t, out, count, seen);
    for (int64_t i = 0; seen && i < t->n; i++)
        out->taps = SH_MAX(out->taps, count[i]);
    if (out->taps > MAX_TABLE / t->n)
        ad__unsupported(a, op, "too many elements depend on one");
    out->from = ir_alloc(a->ir, t->n * out->taps, sizeof(*out->from));
    out->weight = ir_alloc(a->ir, t->n * out->taps, sizeof(*out->weight));
    if (out->weight)
        walk_table(t, out, count, seen);
    free(count);
    free(seen);
}

/* A constant of rank 1. TAKES data. */
static uint32_t constant(struct ad *a, uint32_t owner, enum sh_dtype t, int64_t n, void *data)
{
    const char *name = ir_name(a->ir, "%s#turned", ir_t(a->ir, owner)->name);

    return ir_const(a->ir, name, DEV_ROLE_STATE, t, 1, &n, data);
}

/* The tables in in[slot] and in[slot + 1], of axis `axis`, for the way back. */
static void turn_tables(struct ad *a, const struct dev_op *op, uint32_t slot, int64_t axis,
                        uint32_t out[2])
{
    const struct ir *ir = a->ir;
    struct table t = {.m = ir_t(ir, op->out[0])->dims[axis],
                      .n = ir_t(ir, op->in[0])->dims[axis],
                      .from = ir_data(ir, op->in[slot]),
                      .weight = ir_data(ir, op->in[slot + 1])};
    struct turned b;

    t.taps = ir_elements(ir, op->in[slot]) / t.m;
    turn_table(a, op, &t, &b);
    out[0] = constant(a, op->in[slot], SH_I32, t.n * b.taps, b.from);
    out[1] = constant(a, op->in[slot + 1], SH_F32, t.n * b.taps, b.weight);
}

void ad__resample(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op b;
    uint32_t in[5] = {dy};

    for (uint32_t slot = 1; slot < op->n_in; slot += 2)
        turn_tables(a, op, slot, op->u.axis.axis + slot / 2, &in[slot]);
    b = ir_op(DEV_OP_RESAMPLE, op->name, op->n_in, in);
    b.u.axis = op->u.axis;
    ad__add_op(a, op->in[0], &b);
}
