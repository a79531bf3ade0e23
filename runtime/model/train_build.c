/* train_build.c - loss and update around the backward pass. */
#include "common/mem.h"
#include "runtime/model/autodiff.h"
#include "runtime/model/pass.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of x and d_y that one operation may read for the weight gradient of a convolution: when
 * training is told to stop, the operation that runs goes on to its end, and these are the longest
 * of all (docs/decisions/0009). A step of the usual models at a batch of 32 has few that read more:
 * cutting those that read less would cost throughput and gain nothing. */
#define CONV_PIECE_BYTES ((int64_t)160 << 20)

/* ------------------------------------------------------------------ loss */

/* What the loss compares with: of the dataset, or the ids that were masked. */
struct target {
    const struct train_head *head;
    bool is_made;
    uint32_t label;
};

static void made_label(struct ir *ir, struct target *to, enum sh_dtype dtype, uint32_t rank,
                       const int64_t *dims)
{
    const struct dev_tensor *m = ir_t(ir, ir->masked);
    bool fits = dtype == SH_I64 && m->rank == rank;

    for (uint32_t i = 0; i < rank && fits; i++)
        fits = m->dims[i] == dims[i];
    to->label = ir->masked;
    ir->labels[ir->n_labels++] = DEV_NONE;
    if (!fits)
        IR_FAIL(ir, SH_E_INVALID,
                "\"mask-tokens\" makes labels of the shape of its input, and the loss of output "
                "\"%s\" wants others: of cross-entropy, the output without its axis of the classes",
                to->head->output);
}

static void label_tensor(struct ir *ir, struct target *to, enum sh_dtype dtype, uint32_t rank,
                         const int64_t *dims)
{
    if (to->is_made) {
        made_label(ir, to, dtype, rank, dims);
        return;
    }
    to->label =
        ir_tensor(ir, ir_name(ir, "%s", to->head->labels), dtype, DEV_ROLE_LABEL, rank, dims);
    ir->labels[ir->n_labels++] = to->label;
}

/* The logits as [before, classes, behind], and labels of the shape without the classes. */
static void class_label(struct ir *ir, struct target *to, uint32_t *pred)
{
    const struct train_head *h = to->head;
    const struct dev_tensor y = *ir_t(ir, *pred);
    int64_t dims[SH_MAX_RANK] = {0}, as[3] = {1, 1, 1};
    uint32_t axis, n = 0;

    if (train_class_axis(h, y.name, y.rank, y.dims, &axis, &ir->err) ||
        train_check_weights(h, y.dims[axis], &ir->err))
        return;
    for (uint32_t i = 0; i < y.rank; i++) {
        as[i < axis ? 0 : i == axis ? 1 : 2] *= y.dims[i];
        if (i != axis)
            dims[n++] = y.dims[i];
    }
    *pred = ir_alias(ir, *pred, as[2] == 1 ? 2 : 3, as);
    label_tensor(ir, to, SH_I64, n, dims);
}

static void label_for(struct ir *ir, struct target *to, uint32_t *pred)
{
    const struct train_head *h = to->head;
    const struct dev_tensor y = *ir_t(ir, *pred);

    if (y.dtype != SH_F32)
        IR_FAIL(ir, SH_E_INVALID, "cannot train on output \"%s\": it is %s, not FP32", y.name,
                sh_dtype_v2(y.dtype));
    if (h->loss == TRAIN_LOSS_XENT) {
        class_label(ir, to, pred);
        return;
    }
    if (h->loss == TRAIN_LOSS_BCE && h->weights)
        train_check_weights(h, y.rank ? y.dims[y.rank - 1] : 1, &ir->err);
    label_tensor(ir, to, SH_F32, y.rank, y.dims);
}

/* One number, or one for each class. */
static void loss_weights(struct ir *ir, const struct train_head *t, struct dev_op *op)
{
    const bool is_list = json_is_array(t->weights);
    const int64_t n = is_list ? (int64_t)json_array_size(t->weights) : 1;
    float *data;

    if (!t->weights)
        return;
    data = ir_alloc(ir, n, sizeof(*data));
    for (int64_t i = 0; data && i < n; i++)
        data[i] =
            (float)json_number_value(is_list ? json_array_get(t->weights, (size_t)i) : t->weights);
    op->in[op->n_in++] = ir_const(ir, "loss#weights", DEV_ROLE_STATE, SH_F32, 1, &n, data);
}

/* The scale of the loss is state as an optimizer's is: it commits with the step, and goes into
 * checkpoints. */
static void add_scaler(struct ir *ir, const struct train_spec *t)
{
    const int64_t n = DEV_SCALER;
    float *data;

    if (!(t->scale.init > 0))
        return;
    data = ir_alloc(ir, n, sizeof(*data));
    if (data)
        data[0] = (float)t->scale.init;
    ir->scaler = ir_const(ir, "loss", DEV_ROLE_STATE, SH_F32, 1, &n, data);
    ir_info(ir, ir->scaler)->state = IR_OPTIM;
    ir_info(ir, ir->scaler)->suffix = "scale";
}

/* As an input behind the optional ones, up to number `at`. */
static void take_scaler(const struct ir *ir, struct dev_op *op, uint32_t at)
{
    if (ir->scaler == DEV_NONE)
        return;
    while (op->n_in < at)
        op->in[op->n_in++] = DEV_NONE;
    op->in[op->n_in++] = ir->scaler;
}

static uint32_t loss_number(struct ir *ir)
{
    return ir_tensor(ir, "loss", SH_F32, DEV_ROLE_KEEP, 1, (int64_t[]){1});
}

/* Returns the loss, and its gradient. */
static uint32_t add_loss(struct ir *ir, const struct train_head *h, const uint32_t in[static 2],
                         uint32_t *gradient)
{
    static const enum dev_loss EACH[] = {[TRAIN_LOSS_MSE] = DEV_LOSS_MSE,
                                         [TRAIN_LOSS_L1] = DEV_LOSS_L1,
                                         [TRAIN_LOSS_HUBER] = DEV_LOSS_HUBER,
                                         [TRAIN_LOSS_BCE] = DEV_LOSS_BCE};
    struct dev_op op =
        ir_op(h->loss == TRAIN_LOSS_XENT ? DEV_OP_LOSS_XENT : DEV_OP_LOSS_EACH, "loss", 2, in);

    op.out[op.n_out++] = loss_number(ir);
    op.out[op.n_out++] = *gradient = ir_like(ir, in[0], "loss#gradient", DEV_ROLE_ACT);
    loss_weights(ir, h, &op);
    take_scaler(ir, &op, 3);
    op.u.loss.ignore = h->ignore_index;
    op.u.loss.smoothing = (float)h->label_smoothing;
    op.u.loss.kind = EACH[h->loss];
    op.u.loss.delta = (float)h->delta;
    op.u.loss.weight = (float)h->weight;
    ir_push(ir, &op);
    return op.out[0];
}

/* ir->loss becomes the sum with another, if there is one already. */
static void join_loss(struct ir *ir, uint32_t loss)
{
    struct dev_op op = ir_op(DEV_OP_BINARY, "loss", 2, (uint32_t[]){ir->loss, loss});

    if (ir->loss == DEV_NONE) {
        ir->loss = loss;
        return;
    }
    op.u.binary.kind = DEV_BIN_ADD;
    op.out[op.n_out++] = ir->loss = loss_number(ir);
    ir_push(ir, &op);
}

/* A mixture is as far from the labels of one sample as its part of it says, and from those of the
 * other by the rest: so are loss and gradient mixed. in: predictions and labels. */
static uint32_t add_mixed_loss(struct ir *ir, const struct train_head *h,
                               const uint32_t in[static 2], uint32_t *gradient)
{
    const uint32_t part = pass_mix_part(ir);
    const uint32_t other[2] = {in[0], pass_turned_round(ir, in[1])};
    uint32_t losses[2], gradients[2], loss;

    losses[0] = add_loss(ir, h, in, &gradients[0]);
    losses[1] = add_loss(ir, h, other, &gradients[1]);
    loss = loss_number(ir);
    *gradient = ir_like(ir, in[0], "loss#gradient", DEV_ROLE_ACT);
    pass_mix(ir, part, losses[0], losses[1], loss);
    pass_mix(ir, part, gradients[0], gradients[1], *gradient);
    return loss;
}

/* The losses of all heads. *seeds: where the backward pass begins. */
static void add_losses(struct ir *ir, const struct train_spec *t,
                       struct autodiff_seed seeds[static TRAIN_MAX_HEADS])
{
    add_scaler(ir, t);
    for (uint32_t i = 0; i < t->n_heads && ir->err.rc == SH_OK; i++) {
        struct target to = {&t->heads[i], augment_makes_labels(&t->augment, t->heads[i].labels),
                            DEV_NONE};

        seeds[i].from = ir->outputs[i];
        label_for(ir, &to, &seeds[i].from);
        join_loss(ir, (t->augment.mixup > 0 ? add_mixed_loss : add_loss)(
                          ir, to.head, (uint32_t[]){seeds[i].from, to.label}, &seeds[i].gradient));
    }
}

/* ------------------------------------------------------------------ update */

static void optim_state(struct ir *ir, uint32_t param, const char *suffix, struct dev_op *op)
{
    const uint32_t t = ir_like(ir, param, ir_t(ir, param)->name, DEV_ROLE_STATE);

    ir_info(ir, t)->state = IR_OPTIM;
    ir_info(ir, t)->suffix = suffix;
    op->in[op->n_in++] = t;
}

static bool has_gradient(const struct ir *ir, uint32_t t)
{
    return ir->info[t].state == IR_PARAM && ir->info[t].grad != DEV_NONE;
}

static bool has_decay(const struct ir *ir, const struct train_spec *t, uint32_t param)
{
    const struct dev_tensor *p = ir_t(ir, param);

    return !(t->no_decay_vectors && p->rank <= 1) && !ir_is_named(ir, param, t->no_decay);
}

static void update_param(struct ir *ir, const struct train_spec *t, uint32_t param,
                         uint32_t gradient, uint32_t squares)
{
    const bool is_sgd = t->optimizer == TRAIN_SGD;
    struct dev_op op = ir_op(is_sgd ? DEV_OP_SGD : DEV_OP_ADAM, ir_t(ir, param)->name, 2,
                             (uint32_t[]){param, gradient});

    op.u.optim.clip_norm = (float)t->clip_norm;
    op.u.optim.clip_value = (float)t->clip_value;
    op.u.optim.momentum = (float)t->momentum;
    op.u.optim.weight_decay = has_decay(ir, t, param) ? (float)t->weight_decay : 0;
    op.u.optim.beta1 = (float)t->beta1;
    op.u.optim.beta2 = (float)t->beta2;
    op.u.optim.eps = (float)t->eps;
    op.u.optim.nesterov = t->nesterov;
    op.u.optim.decoupled = t->optimizer == TRAIN_ADAMW;
    if (is_sgd && t->momentum != 0.0)
        optim_state(ir, param, "momentum", &op);
    if (!is_sgd) {
        optim_state(ir, param, "m", &op);
        optim_state(ir, param, "v", &op);
    }
    if (squares != DEV_NONE) {
        while (op.n_in < (is_sgd ? 3u : 4u))
            op.in[op.n_in++] = DEV_NONE;
        op.in[op.n_in++] = squares;
    }
    take_scaler(ir, &op, is_sgd ? 4 : 5);
    ir_push(ir, &op);
}

/* The sums of gradients over the steps of an update; they take the gradients' places in `of`. */
static void add_sums(struct ir *ir, uint32_t n, uint32_t *of)
{
    for (uint32_t i = 0; i < n; i++) {
        struct dev_op op = ir_op(DEV_OP_ACCUM, ir_t(ir, i)->name, 0, NULL);

        if (of[i] == DEV_NONE)
            continue;
        optim_state(ir, i, "sum", &op);
        op.in[op.n_in++] = of[i];
        of[i] = op.in[0];
        ir_push(ir, &op);
    }
}

/* Elements that one operation reads for the norm: it bounds how long a stop waits. */
#define SQUARES_ELEMENTS ((int64_t)16 << 20)

/* The sum of the squares of all elements of `of`. */
static uint32_t add_squares(struct ir *ir, uint32_t n, const uint32_t *of)
{
    struct dev_op op = ir_op(DEV_OP_SQUARES, "gradients", 1, (uint32_t[]){DEV_NONE});
    uint32_t sum = DEV_NONE;
    int64_t elements = 0;

    for (uint32_t i = 0; i <= n; i++) {
        const bool is_end = i == n;
        const int64_t more = is_end || of[i] == DEV_NONE ? 0 : ir_elements(ir, i);

        if (!is_end && of[i] == DEV_NONE)
            continue;
        if (op.n_in > 1 &&
            (is_end || op.n_in == DEV_MAX_IN || elements + more > SQUARES_ELEMENTS)) {
            op.in[0] = sum;
            op.out[0] = sum = ir_tensor(ir, "squares", SH_F32, DEV_ROLE_KEEP, 1, (int64_t[]){1});
            op.n_out = 1;
            ir_push(ir, &op);
            op.n_in = 1;
            elements = 0;
        }
        if (!is_end)
            op.in[op.n_in++] = of[i];
        elements += more;
    }
    return sum;
}

static void add_mean(struct ir *ir, const struct train_spec *t, uint32_t param)
{
    struct dev_op op = ir_op(DEV_OP_EMA, ir_t(ir, param)->name, 0, NULL);

    optim_state(ir, param, "ema", &op);
    ir_info(ir, op.in[0])->state = IR_EMA;
    op.in[op.n_in++] = param;
    op.u.optim.beta1 = (float)t->ema;
    ir_push(ir, &op);
}

static void add_scale(struct ir *ir, const struct train_spec *t, uint32_t squares)
{
    struct dev_op op = ir_op(DEV_OP_LOSS_SCALE, "loss#scale", 2, (uint32_t[]){ir->scaler, squares});

    op.u.scaler.growth = (float)t->scale.growth;
    op.u.scaler.backoff = (float)t->scale.backoff;
    op.u.scaler.interval = (float)t->scale.interval;
    ir_push(ir, &op);
}

/* of: by parameter its gradient, or DEV_NONE. Updates of the same kind in a row are done together,
 * so those without decay come last. */
static void add_updates(struct ir *ir, const struct train_spec *t, uint32_t n, uint32_t *of)
{
    uint32_t squares = DEV_NONE;

    if (t->accumulate > 1)
        add_sums(ir, n, of);
    if (t->clip_norm > 0 || ir->scaler != DEV_NONE)
        squares = add_squares(ir, n, of);
    for (int decays = 1; decays >= 0; decays--)
        for (uint32_t i = 0; i < n; i++)
            if (of[i] != DEV_NONE && has_decay(ir, t, i) == decays)
                update_param(ir, t, i, of[i], squares);
    if (ir->scaler != DEV_NONE)
        add_scale(ir, t, squares);
    for (uint32_t i = 0; i < n && t->ema > 0; i++)
        if (of[i] != DEV_NONE)
            add_mean(ir, t, i);
}

static void add_update(struct ir *ir, const struct train_spec *t)
{
    const uint32_t n = ir->g.n_tensors;
    uint32_t *of = ir_alloc(ir, n, sizeof(*of));

    for (uint32_t i = 0; of && i < n; i++)
        of[i] = has_gradient(ir, i) ? ir->info[i].grad : DEV_NONE;
    if (of)
        add_updates(ir, t, n, of);
    free(of);
    for (size_t i = 0; i < ir->n_commits; i++) {
        struct dev_op op =
            ir_op(DEV_OP_COMMIT, ir_t(ir, ir->commits[i].dst)->name, 1, &ir->commits[i].src);

        op.out[op.n_out++] = ir->commits[i].dst;
        ir_push(ir, &op);
    }
}

/* ------------------------------------------------------------------ names */

/* Is there a parameter for a glob? The message lists some that there are. */
static void check_glob(struct ir *ir, const char *field, const char *glob)
{
    char known[256] = "";
    size_t len = 0, more = 0;
    bool found = false;

    for (uint32_t i = 0; i < ir->g.n_tensors && !found; i++) {
        const char *name = ir_t(ir, i)->name;

        if (ir->info[i].state != IR_PARAM)
            continue;
        found = fnmatch(glob, name, 0) == 0 ||
                (ir->info[i].of && fnmatch(glob, ir->info[i].of, 0) == 0);
        if (len + strlen(name) + 3 < sizeof(known))
            len +=
                (size_t)snprintf(known + len, sizeof(known) - len, "%s%s", len ? ", " : "", name);
        else
            more++;
    }
    if (!found)
        IR_FAIL(ir, SH_E_INVALID, "\"spec.%s\": no parameter is called \"%s\"; there are %s%s",
                field, glob, known, more ? ", ..." : "");
}

static void check_field_globs(struct ir *ir, const char *field, const json_t *globs)
{
    if (json_is_string(globs))
        check_glob(ir, field, json_string_value(globs));
    for (size_t i = 0; i < json_array_size(globs); i++)
        check_glob(ir, field, json_string_value(json_array_get(globs, i)));
}

static void freeze(struct ir *ir, const struct train_spec *t)
{
    check_field_globs(ir, "frozen", t->frozen);
    check_field_globs(ir, "no_decay", t->no_decay);
    check_field_globs(ir, "init.random", t->init);
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        if (ir->info[i].state == IR_PARAM)
            ir->info[i].is_frozen = ir_is_named(ir, i, t->frozen);
}

static bool is_update(const struct ir *ir, const struct dev_op *op)
{
    uint32_t list[DEV_MAX_IN + DEV_MAX_OUT];

    return dev_op_written(&ir->g, op, list) > 0;
}

/* Each mask is drawn from (seed, operation, step). */
static void seed_dropout(struct ir *ir, uint64_t seed)
{
    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        struct dev_op *op = &ir->g.ops[i];
        uint64_t x = seed ^ ((uint64_t)(i + 1) * 0x9e3779b97f4a7c15u);

        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        x ^= x >> 31;
        if (op->kind == DEV_OP_DROPOUT)
            op->u.dropout.seed = x;
        else if (op->kind == DEV_OP_ATTENTION && op->u.attn.ratio > 0)
            op->u.attn.seed = x;
    }
}

/* In elements, as the device stores activations at this precision. FP64 checks what FP32 runs. */
static int64_t conv_piece(const struct train_spec *t)
{
    const bool is_short = t->precision == DEV_FP16 || t->precision == DEV_BF16;
    const int64_t bytes = t->conv_piece_bytes ? t->conv_piece_bytes : CONV_PIECE_BYTES;

    return SH_MAX(bytes / (is_short ? 2 : 4), 1);
}

int autodiff_train(struct ir *ir, const struct train_spec *t, struct sh_err *err)
{
    struct autodiff_seed seeds[TRAIN_MAX_HEADS];

    seed_dropout(ir, t->seed);
    freeze(ir, t);
    pass_pictures(ir, t);
    add_losses(ir, t, seeds);
    if (ir_done(ir, err) || autodiff_backward(ir, seeds, t->n_heads, NULL, conv_piece(t), err))
        return ir_done(ir, err);
    add_update(ir, t);
    pass_fuse_sums(ir);
    if (t->precision == DEV_TF32)
        pass_turn(ir);
    ir_drop_unused(ir);
    ir->g.update_begin = 0;
    while (ir->g.update_begin < ir->g.n_ops && !is_update(ir, &ir->g.ops[ir->g.update_begin]))
        ir->g.update_begin++;
    return ir_done(ir, err);
}
