/* pass_pictures.c - see pass.h: from the dataset's inputs to what the model takes.
 *
 * These are operations of the program, so bytes travel to the device as bytes and become four times
 * as many only there.
 */
#include "common/mem.h"
#include "runtime/model/indices.h"
#include "runtime/model/pass.h"

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

/* Moved and mirrored as the dataset has it, so that what comes from outside is black. */
static int jitter(struct ir *ir, const struct train_spec *t, uint32_t *v, struct sh_err *err)
{
    const struct dev_tensor x = *ir_t(ir, *v);
    struct dev_op op = ir_op(DEV_OP_JITTER, x.name, 1, v);

    if (t->augment.crop_padding == 0 && !(t->augment.flip > 0))
        return SH_OK;
    op.u.jitter = (struct dev_jitter){.pad = t->augment.crop_padding,
                                      .flip = (float)t->augment.flip,
                                      .channels_last = augment_channels(x.dims) == 3,
                                      .seed = t->seed};
    return ir_emit_like(ir, &op, *v, v, err);
}

/* to = the part of a sample of its own, and the rest of the one at its place from the other end. */
int pass_mix(struct ir *ir, uint32_t part, uint32_t own, uint32_t other, uint32_t to,
             struct sh_err *err)
{
    const char *name = ir_t(ir, own)->name;
    struct dev_op op;
    uint32_t v;
    int rc = ir_binary(ir, DEV_BIN_SUB, name, own, other, own, &v, err);

    if (!rc)
        rc = ir_binary(ir, DEV_BIN_MUL, name, v, part, own, &v, err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_BINARY, name, 2, (uint32_t[]){other, v});
    op.u.binary.kind = DEV_BIN_ADD;
    op.out[0] = to;
    op.n_out = 1;
    return ir_push(ir, &op, err);
}

int pass_turned_round(struct ir *ir, uint32_t x, uint32_t *out, struct sh_err *err)
{
    const struct dev_tensor t = *ir_t(ir, x);
    struct dev_op op = ir_op(DEV_OP_SLICE, t.name, 1, &x);

    for (uint32_t i = 0; i < t.rank; i++)
        op.u.slice.step[i] = 1;
    op.u.slice.start[0] = t.dims[0] - 1;
    op.u.slice.step[0] = -1;
    return ir_emit_like(ir, &op, x, out, err);
}

int pass_mix_part(struct ir *ir, uint32_t *part, struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_MIX, "mixup", 0, NULL);

    return ir_emit(ir, &op, SH_F32, 1, (int64_t[]){1}, part, err);
}

/* As the last thing before the model. */
static int mix(struct ir *ir, uint32_t v, uint32_t to, struct sh_err *err)
{
    uint32_t part, other;
    int rc = pass_mix_part(ir, &part, err);

    if (!rc)
        rc = pass_turned_round(ir, v, &other, err);
    return rc ? rc : pass_mix(ir, part, v, other, to, err);
}

/* Input number i comes in as `in`; what it was is computed from that. */
static int prepare(struct ir *ir, const struct train_spec *t, uint32_t i, struct sh_err *err)
{
    const uint32_t to = ir->inputs[i];
    const struct dev_tensor x = *ir_t(ir, to);
    const bool is_byte = t->byte_inputs >> i & 1;
    struct dev_op cast;
    uint32_t in, v, scaled;
    int rc = augment_check(&t->augment, x.name, x.dims, err);

    if (!rc)
        rc = ir_tensor(ir, x.name, is_byte ? SH_U8 : x.dtype, DEV_ROLE_INPUT, x.rank, x.dims, &in,
                       err);
    if (rc)
        return rc;
    ir->inputs[i] = v = in;
    ir_t(ir, to)->role = DEV_ROLE_ACT;
    cast = ir_op(DEV_OP_COPY, x.name, 1, &in);
    rc = jitter(ir, t, &v, err);
    cast.in[0] = v;
    if (!rc && is_byte)
        rc = ir_emit_like(ir, &cast, to, &v, err);
    if (rc || !(t->augment.mixup > 0))
        return rc ? rc : scale(ir, &t->augment, is_byte, v, to, err);
    rc = ir_like(ir, to, x.name, DEV_ROLE_ACT, &scaled, err);
    if (!rc)
        rc = scale(ir, &t->augment, is_byte, v, scaled, err);
    return rc ? rc : mix(ir, scaled, to, err);
}

/* Any id below the vocabulary may take the place of a hidden one. */
static int fits_tables(const struct ir *ir, uint32_t input, int64_t vocabulary, struct sh_err *err)
{
    const int64_t last = vocabulary - 1;
    struct indices *tables;
    struct sh_err why = {0};
    int rc = indices_find(ir, &tables, err);

    if (!rc && indices_check(tables, input, SH_I64, &last, 1, &why))
        rc = SH_FAIL(err, SH_E_INVALID, "\"vocabulary\" of \"mask-tokens\" is %lld: %.300s",
                     (long long)vocabulary, why.msg);
    indices_free(tables);
    return rc;
}

/* Some of the ids of an input are hidden, and what they were are labels: ir->masked. */
static int hide_tokens(struct ir *ir, const struct train_spec *t, uint32_t i, struct sh_err *err)
{
    const uint32_t to = ir->inputs[i];
    const struct dev_tensor x = *ir_t(ir, to);
    struct dev_op op = ir_op(DEV_OP_TOKENS, x.name, 0, NULL);
    int rc;

    if (x.dtype != SH_I64)
        return SH_FAIL(err, SH_E_INVALID, "\"mask-tokens\": input \"%s\" is %s, not INT64", x.name,
                       sh_dtype_v2(x.dtype));
    rc = fits_tables(ir, i, t->augment.tokens.vocabulary, err);
    if (!rc)
        rc = ir_tensor(ir, x.name, SH_I64, DEV_ROLE_INPUT, x.rank, x.dims, &ir->inputs[i], err);
    if (!rc)
        rc = ir_tensor(ir, "masked", SH_I64, DEV_ROLE_ACT, x.rank, x.dims, &ir->masked, err);
    if (rc)
        return rc;
    ir_t(ir, to)->role = DEV_ROLE_ACT;
    op.in[0] = ir->inputs[i];
    op.n_in = 1;
    op.out[0] = to;
    op.out[1] = ir->masked;
    op.n_out = 2;
    op.u.tokens = (struct dev_tokens){.share = (float)t->augment.tokens.probability,
                                      .n_keep = (uint32_t)t->augment.tokens.n_special,
                                      .mask = t->augment.tokens.mask,
                                      .size = t->augment.tokens.vocabulary,
                                      .ignore = TRAIN_IGNORE_INDEX,
                                      .seed = t->seed};
    for (uint32_t k = 0; k < op.u.tokens.n_keep; k++)
        op.u.tokens.keep[k] = t->augment.tokens.special[k];
    for (uint32_t k = 0; k < t->n_heads; k++)
        if (augment_makes_labels(&t->augment, t->heads[k].labels))
            op.u.tokens.ignore = t->heads[k].ignore_index;
    return ir_push(ir, &op, err);
}

static int find_tokens(struct ir *ir, const struct train_spec *t, struct sh_err *err)
{
    const char *name = t->augment.tokens.input;

    for (uint32_t i = 0; i < ir->n_inputs && name[0]; i++)
        if (strcmp(ir_t(ir, ir->inputs[i])->name, name) == 0)
            return hide_tokens(ir, t, i, err);
    return name[0]
               ? SH_FAIL(err, SH_E_INVALID, "\"mask-tokens\": the model has no input \"%s\"", name)
               : SH_OK;
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
    int rc = find_tokens(ir, t, err);

    for (uint32_t i = 0; !rc && i < ir->n_inputs; i++) {
        const struct dev_tensor *x = ir_t(ir, ir->inputs[i]);
        const bool is_byte = i < TRAIN_MAX_INPUTS && (t->byte_inputs >> i & 1);

        if (!augment_is_picture(x->dtype, x->rank))
            continue;
        any = true;
        if (is_byte || augment_has_pictures(&t->augment))
            rc = prepare(ir, t, i, err);
    }
    if (!rc && augment_has_pictures(&t->augment) && !any)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "\"spec.augment\" is for pictures, and the model has no FP32 input of shape "
                     "[batch, channels, height, width]");
    return rc ? rc : put_first(ir, first, err);
}
