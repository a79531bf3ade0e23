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
static void walk(const struct table *t, struct turned *out, int64_t *count, int64_t *seen)
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

static int turn(const struct dev_op *op, const struct table *t, struct turned *out,
                struct sh_err *err)
{
    int64_t *count = malloc((size_t)t->n * sizeof(*count));
    int64_t *seen = malloc((size_t)t->n * sizeof(*seen));
    int rc = SH_OK;

    *out = (struct turned){.taps = 1};
    if (!count || !seen) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the tables of \"%s\"", op->name);
        goto out;
    }
    walk(t, out, count, seen);
    for (int64_t i = 0; i < t->n; i++)
        out->taps = SH_MAX(out->taps, count[i]);
    if (out->taps > MAX_TABLE / t->n) {
        rc = ad__unsupported(op, err, "too many elements depend on one");
        goto out;
    }
    out->from = calloc((size_t)(t->n * out->taps), sizeof(*out->from));
    out->weight = calloc((size_t)(t->n * out->taps), sizeof(*out->weight));
    if (out->from && out->weight)
        walk(t, out, count, seen);
    else
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the tables of \"%s\"", op->name);
out:
    free(count);
    free(seen);
    return rc;
}

/* A constant of rank 1. TAKES *data. */
static int constant(struct ad *a, const char *owner, enum sh_dtype t, int64_t n, void **data,
                    uint32_t *out, struct sh_err *err)
{
    const char *name;
    int rc = ir_name(a->ir, &name, err, "%s#turned", owner);

    if (!rc)
        rc = ir_const(a->ir, name, DEV_ROLE_STATE, t, 1, &n, *data, out, err);
    if (!rc)
        *data = NULL;
    return rc;
}

/* The tables in in[slot] and in[slot + 1], of axis `axis`, for the way back. */
static int turn_tables(struct ad *a, const struct dev_op *op, uint32_t slot, int64_t axis,
                       uint32_t out[2], struct sh_err *err)
{
    const struct ir *ir = a->ir;
    struct table t = {.m = ir_t(ir, op->out[0])->dims[axis],
                      .n = ir_t(ir, op->in[0])->dims[axis],
                      .from = ir_data(ir, op->in[slot]),
                      .weight = ir_data(ir, op->in[slot + 1])};
    void *from, *weight;
    struct turned b;
    int64_t n;
    int rc;

    t.taps = ir_elements(ir, op->in[slot]) / t.m;
    rc = turn(op, &t, &b, err);
    from = b.from;
    weight = b.weight;
    n = t.n * b.taps;
    if (!rc)
        rc = constant(a, ir_t(ir, op->in[slot])->name, SH_I32, n, &from, &out[0], err);
    if (!rc)
        rc = constant(a, ir_t(ir, op->in[slot + 1])->name, SH_F32, n, &weight, &out[1], err);
    free(from);
    free(weight);
    return rc;
}

int ad__resample(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    uint32_t in[5] = {dy}, dx;
    struct dev_op b;
    int rc = SH_OK;

    for (uint32_t slot = 1; slot < op->n_in && rc == SH_OK; slot += 2)
        rc = turn_tables(a, op, slot, op->u.axis.axis + slot / 2, &in[slot], err);
    if (rc)
        return rc;
    b = ir_op(DEV_OP_RESAMPLE, op->name, op->n_in, in);
    b.u.axis = op->u.axis;
    rc = ir_emit_like(a->ir, &b, op->in[0], &dx, err);
    return rc ? rc : ad__add(a, op->in[0], dx, err);
}
