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

/* One number for each channel, along their axis. TAKES values. */
static uint32_t channel_const(struct ir *ir, const char *name, const struct dev_tensor *x,
                              float *values)
{
    const uint32_t axis = augment_channels(x->dims);
    const int64_t dims[] = {x->dims[axis], 1, 1};

    return ir_const(ir, name, DEV_ROLE_STATE, SH_F32, axis == 1 ? 3 : 1, dims, values);
}

/* to = a + b */
static void add_to(struct ir *ir, const char *name, uint32_t a, uint32_t b, uint32_t to)
{
    struct dev_op op = ir_op(DEV_OP_BINARY, name, 2, (uint32_t[]){a, b});

    op.u.binary.kind = DEV_BIN_ADD;
    op.out[op.n_out++] = to;
    ir_push(ir, &op);
}

/* to = x times a number for each channel, plus another. */
static void scale_picture(struct ir *ir, const struct augment *a, bool is_byte, uint32_t x,
                          uint32_t to)
{
    const struct dev_tensor like = *ir_t(ir, to);
    const int64_t n = like.dims[augment_channels(like.dims)];
    float *factor = ir_alloc(ir, n, sizeof(*factor)), *sum = ir_alloc(ir, n, sizeof(*sum));
    uint32_t f, s;

    for (int64_t c = 0; sum && c < n; c++) {
        double by, plus;

        augment_scale(a, is_byte, (size_t)c, &by, &plus);
        factor[c] = (float)by;
        sum[c] = (float)plus;
    }
    f = channel_const(ir, "pictures#scale", &like, factor);
    s = channel_const(ir, "pictures#shift", &like, sum);
    add_to(ir, like.name, ir_binary(ir, DEV_BIN_MUL, like.name, x, f, to), s, to);
}

static bool jitters(const struct train_spec *t)
{
    return t->augment.crop_padding > 0 || t->augment.flip > 0;
}

static struct dev_op jitter_op(const struct ir *ir, const struct train_spec *t, uint32_t v,
                               bool channels_last)
{
    struct dev_op op = ir_op(DEV_OP_JITTER, ir_t(ir, v)->name, 1, &v);

    op.u.jitter = (struct dev_jitter){.pad = t->augment.crop_padding,
                                      .flip = (float)t->augment.flip,
                                      .channels_last = channels_last,
                                      .seed = t->seed};
    return op;
}

/* Moved and mirrored as the dataset has it, so that what comes from outside is black. */
static uint32_t jittered(struct ir *ir, const struct train_spec *t, uint32_t v)
{
    struct dev_op op = jitter_op(ir, t, v, augment_channels(ir_t(ir, v)->dims) == 3);

    return jitters(t) ? ir_emit_like(ir, &op, v) : v;
}

/* to = the part of a sample of its own, and the rest of the one at its place from the other end. */
void pass_mix(struct ir *ir, uint32_t part, uint32_t own, uint32_t other, uint32_t to)
{
    const char *name = ir_t(ir, own)->name;
    const uint32_t v = ir_binary(ir, DEV_BIN_SUB, name, own, other, own);

    add_to(ir, name, other, ir_binary(ir, DEV_BIN_MUL, name, v, part, own), to);
}

uint32_t pass_turned_round(struct ir *ir, uint32_t x)
{
    const struct dev_tensor t = *ir_t(ir, x);
    struct dev_op op = ir_op(DEV_OP_SLICE, t.name, 1, &x);

    for (uint32_t i = 0; i < t.rank; i++)
        op.u.slice.step[i] = 1;
    op.u.slice.start[0] = t.dims[0] - 1;
    op.u.slice.step[0] = -1;
    return ir_emit_like(ir, &op, x);
}

uint32_t pass_mix_part(struct ir *ir)
{
    struct dev_op op = ir_op(DEV_OP_MIX, "mixup", 0, NULL);

    return ir_emit(ir, &op, SH_F32, 1, (int64_t[]){1});
}

/* As the last thing before the model. */
static void mix_pictures(struct ir *ir, uint32_t v, uint32_t to)
{
    const uint32_t part = pass_mix_part(ir);

    pass_mix(ir, part, v, pass_turned_round(ir, v), to);
}

/* Input number i comes in as another tensor; what it was is computed from that. */
static void prepare_picture(struct ir *ir, const struct train_spec *t, uint32_t i)
{
    const uint32_t to = ir->inputs[i];
    const struct dev_tensor x = *ir_t(ir, to);
    const bool is_byte = t->byte_inputs >> i & 1;
    struct dev_op cast;
    uint32_t v, scaled = to;

    if (augment_check(&t->augment, x.name, x.dims, &ir->err))
        return;
    v = ir->inputs[i] =
        ir_tensor(ir, x.name, is_byte ? SH_U8 : x.dtype, DEV_ROLE_INPUT, x.rank, x.dims);
    ir_t(ir, to)->role = DEV_ROLE_ACT;
    v = jittered(ir, t, v);
    cast = ir_op(DEV_OP_COPY, x.name, 1, &v);
    if (is_byte)
        v = ir_emit_like(ir, &cast, to);
    if (t->augment.mixup > 0)
        scaled = ir_like(ir, to, x.name, DEV_ROLE_ACT);
    scale_picture(ir, &t->augment, is_byte, v, scaled);
    if (t->augment.mixup > 0)
        mix_pictures(ir, scaled, to);
}

/* The operation that makes floats of input number i, a picture of bytes. NULL: it is none. */
static const struct dev_op *bytes_to_floats(const struct ir *ir, uint32_t i)
{
    for (uint32_t k = 0; k < ir->g.n_ops; k++)
        if (ir->g.ops[k].kind == DEV_OP_PIXELS && ir->g.ops[k].in[0] == ir->inputs[i])
            return &ir->g.ops[k];
    return NULL;
}

/* Bytes are moved before the model makes floats of them. */
static void move_bytes(struct ir *ir, const struct train_spec *t, uint32_t i, bool channels_last)
{
    const uint32_t to = ir->inputs[i];
    const struct dev_tensor x = *ir_t(ir, to);
    struct dev_op op;

    if (augment_check_bytes(&t->augment, x.name, x.dims, channels_last, &ir->err) || !jitters(t))
        return;
    ir->inputs[i] = ir_tensor(ir, x.name, x.dtype, DEV_ROLE_INPUT, x.rank, x.dims);
    ir_t(ir, to)->role = DEV_ROLE_ACT;
    op = jitter_op(ir, t, ir->inputs[i], channels_last);
    op.out[op.n_out++] = to;
    ir_push(ir, &op);
}

/* Any id below the vocabulary may take the place of a hidden one. */
static void fits_tables(struct ir *ir, uint32_t input, int64_t vocabulary)
{
    const int64_t last = vocabulary - 1;
    struct indices *tables;
    struct sh_err why = {0};

    if (indices_find(ir, &tables, &ir->err) == SH_OK &&
        indices_check(tables, input, SH_I64, &last, 1, &why))
        IR_FAIL(ir, SH_E_INVALID, "\"vocabulary\" of \"mask-tokens\" is %lld: %.300s",
                (long long)vocabulary, why.msg);
    indices_free(tables);
}

/* Some of the ids of an input are hidden, and what they were are labels: ir->masked. */
static void hide_tokens(struct ir *ir, const struct train_spec *t, uint32_t i)
{
    const uint32_t to = ir->inputs[i];
    const struct dev_tensor x = *ir_t(ir, to);
    struct dev_op op = ir_op(DEV_OP_TOKENS, x.name, 0, NULL);

    if (x.dtype != SH_I64) {
        IR_FAIL(ir, SH_E_INVALID, "\"mask-tokens\": input \"%s\" is %s, not INT64", x.name,
                sh_dtype_v2(x.dtype));
        return;
    }
    fits_tables(ir, i, t->augment.tokens.vocabulary);
    ir->inputs[i] = ir_tensor(ir, x.name, SH_I64, DEV_ROLE_INPUT, x.rank, x.dims);
    ir->masked = ir_tensor(ir, "masked", SH_I64, DEV_ROLE_ACT, x.rank, x.dims);
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
    ir_push(ir, &op);
}

static void find_tokens(struct ir *ir, const struct train_spec *t)
{
    const char *name = t->augment.tokens.input;

    for (uint32_t i = 0; i < ir->n_inputs && name[0]; i++)
        if (strcmp(ir_t(ir, ir->inputs[i])->name, name) == 0) {
            hide_tokens(ir, t, i);
            return;
        }
    if (name[0])
        IR_FAIL(ir, SH_E_INVALID, "\"mask-tokens\": the model has no input \"%s\"", name);
}

/* The operations from `first` on go before all others. */
static void put_ops_first(struct ir *ir, uint32_t first)
{
    const uint32_t n = ir->g.n_ops - first;
    struct dev_op *ops = ir_alloc(ir, n, sizeof(*ops));

    if (!ops)
        return;
    memcpy(ops, ir->g.ops + first, n * sizeof(*ops));
    memmove(ir->g.ops + n, ir->g.ops, first * sizeof(*ops));
    memcpy(ir->g.ops, ops, n * sizeof(*ops));
    free(ops);
}

void pass_pictures(struct ir *ir, const struct train_spec *t)
{
    const uint32_t first = ir->g.n_ops;
    bool any = false;

    find_tokens(ir, t);
    for (uint32_t i = 0; i < ir->n_inputs; i++) {
        const struct dev_tensor *x = ir_t(ir, ir->inputs[i]);
        const bool is_byte = i < TRAIN_MAX_INPUTS && (t->byte_inputs >> i & 1);
        const struct dev_op *pixels = bytes_to_floats(ir, i);

        if (!pixels && !augment_is_picture(x->dtype, x->rank))
            continue;
        any = true;
        if (pixels)
            move_bytes(ir, t, i, pixels->u.pixels.x_last);
        else if (is_byte || augment_has_pictures(&t->augment))
            prepare_picture(ir, t, i);
    }
    if (augment_has_pictures(&t->augment) && !any)
        IR_FAIL(
            ir, SH_E_INVALID,
            "\"spec.augment\" is for pictures, and the model has no FP32 input of shape [batch, "
            "channels, height, width]");
    put_ops_first(ir, first);
}
