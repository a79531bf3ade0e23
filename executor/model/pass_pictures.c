/* pass_pictures.c - see pass.h: from pictures as the dataset has them to what the model takes.
 *
 * Operations of the program, so that bytes travel as bytes to the device and become four times as
 * many only there.
 */
#include "common/mem.h"
#include "executor/model/pass.h"

#include <stdlib.h>
#include <string.h>

/* One number for each channel, along their axis. */
static int channel_const(struct ir *ir, const char *name, const struct dev_tensor *x,
                         const float *values, uint32_t *out, struct sh_err *err)
{
    const uint32_t axis = augment_channels(x->dims);
    const int64_t n = x->dims[axis], dims[] = {n, 1, 1};
    float *data = malloc((size_t)n * sizeof(*data));
    int rc;

    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the numbers of %lld channels",
                       (long long)n);
    memcpy(data, values, (size_t)n * sizeof(*data));
    rc = ir_const(ir, name, DEV_ROLE_STATE, SH_F32, axis == 1 ? 3 : 1, dims, data, out, err);
    if (rc)
        free(data);
    return rc;
}

/* to = x times a number for each channel, plus another. */
static int scale(struct ir *ir, const struct augment *a, bool is_byte, uint32_t x, uint32_t to,
                 struct sh_err *err)
{
    const struct dev_tensor like = *ir_t(ir, to);
    const size_t n = (size_t)like.dims[augment_channels(like.dims)];
    float *factor = calloc(n, sizeof(*factor)), *sum = calloc(n, sizeof(*sum));
    uint32_t f = DEV_NONE, s = DEV_NONE, v = x;
    int rc = factor && sum ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate channels");

    for (size_t c = 0; !rc && c < n; c++) {
        double by, plus;

        augment_scale(a, is_byte, c, &by, &plus);
        factor[c] = (float)by;
        sum[c] = (float)plus;
    }
    if (!rc)
        rc = channel_const(ir, "pictures#scale", &like, factor, &f, err);
    if (!rc)
        rc = channel_const(ir, "pictures#shift", &like, sum, &s, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_MUL, like.name, x, f, to, &v, err);
    if (!rc) {
        struct dev_op op = ir_op(DEV_OP_BINARY, like.name, 2, (uint32_t[]){v, s});

        op.u.binary.kind = DEV_BIN_ADD;
        op.out[0] = to;
        op.n_out = 1;
        rc = ir_push(ir, &op, err);
    }
    free(factor);
    free(sum);
    return rc;
}

/* Input number i comes in as `in`; what it was is computed from that. */
static int prepare(struct ir *ir, const struct train_spec *t, uint32_t i, struct sh_err *err)
{
    const uint32_t to = ir->inputs[i];
    const struct dev_tensor x = *ir_t(ir, to);
    const bool is_byte = t->byte_inputs >> i & 1;
    struct dev_op cast;
    uint32_t in, v;
    int rc = augment_check(&t->augment, x.name, x.dims[augment_channels(x.dims)], err);

    if (!rc)
        rc = ir_tensor(ir, x.name, is_byte ? SH_U8 : x.dtype, DEV_ROLE_INPUT, x.rank, x.dims, &in,
                       err);
    if (rc)
        return rc;
    ir->inputs[i] = v = in;
    ir_t(ir, to)->role = DEV_ROLE_ACT;
    cast = ir_op(DEV_OP_COPY, x.name, 1, &in);
    if (is_byte)
        rc = ir_emit_like(ir, &cast, to, &v, err);
    return rc ? rc : scale(ir, &t->augment, is_byte, v, to, err);
}

/* The operations from `first` on go before all others. */
static int put_first(struct ir *ir, uint32_t first, struct sh_err *err)
{
    const uint32_t n = ir->g.n_ops - first;
    struct dev_op *ops = calloc(n + 1u, sizeof(*ops));

    if (!ops)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %u operations", n);
    memcpy(ops, ir->g.ops + first, n * sizeof(*ops));
    memmove(ir->g.ops + n, ir->g.ops, first * sizeof(*ops));
    memcpy(ir->g.ops, ops, n * sizeof(*ops));
    free(ops);
    return SH_OK;
}

int pass_pictures(struct ir *ir, const struct train_spec *t, struct sh_err *err)
{
    const uint32_t first = ir->g.n_ops;
    bool any = false;
    int rc = SH_OK;

    for (uint32_t i = 0; !rc && i < ir->n_inputs; i++) {
        const struct dev_tensor *x = ir_t(ir, ir->inputs[i]);
        const bool is_byte = i < TRAIN_MAX_INPUTS && (t->byte_inputs >> i & 1);

        if (!augment_is_picture(x->dtype, x->rank))
            continue;
        any = true;
        if (is_byte || t->augment.normalises)
            rc = prepare(ir, t, i, err);
    }
    if (!rc && t->augment.normalises && !any)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "\"spec.augment\" is for pictures, and the model has no FP32 input of shape "
                     "[batch, channels, height, width]");
    return rc ? rc : put_first(ir, first, err);
}
