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

static int made_label(struct ir *ir, struct target *to, enum sh_dtype dtype, uint32_t rank,
                      const int64_t *dims, struct sh_err *err)
{
    const struct dev_tensor *m = ir_t(ir, ir->masked);
    bool fits = dtype == SH_I64 && m->rank == rank;

    for (uint32_t i = 0; i < rank && fits; i++)
        fits = m->dims[i] == dims[i];
    to->label = ir->masked;
    ir->labels[ir->n_labels++] = DEV_NONE;
    return fits ? SH_OK
                : SH_FAIL(err, SH_E_INVALID,
                          "\"mask-tokens\" makes labels of the shape of its input, and the loss of "
                          "output \"%s\" wants others: of cross-entropy, the output without its "
                          "axis of the classes",
                          to->head->output);
}

static int label_tensor(struct ir *ir, struct target *to, enum sh_dtype dtype, uint32_t rank,
                        const int64_t *dims, struct sh_err *err)
{
    const char *name;
    int rc;

    if (to->is_made)
        return made_label(ir, to, dtype, rank, dims, err);
    rc = ir_name(ir, &name, err, "%s", to->head->labels);
    if (!rc)
        rc = ir_tensor(ir, name, dtype, DEV_ROLE_LABEL, rank, dims, &to->label, err);
    ir->labels[ir->n_labels++] = to->label;
    return rc;
}

/* The logits as [before, classes, behind], and labels of the shape without the classes. */
static int class_label(struct ir *ir, struct target *to, uint32_t *pred, struct sh_err *err)
{
    const struct train_head *h = to->head;
    const struct dev_tensor y = *ir_t(ir, *pred);
    int64_t dims[SH_MAX_RANK] = {0}, as[3] = {1, 1, 1};
    uint32_t axis, n = 0;
    int rc = train_class_axis(h, y.name, y.rank, y.dims, &axis, err);

    if (!rc)
        rc = train_check_weights(h, y.dims[axis], err);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < y.rank; i++) {
        as[i < axis ? 0 : i == axis ? 1 : 2] *= y.dims[i];
        if (i != axis)
            dims[n++] = y.dims[i];
    }
    rc = ir_alias(ir, *pred, as[2] == 1 ? 2 : 3, as, pred, err);
    return rc ? rc : label_tensor(ir, to, SH_I64, n, dims, err);
}

static int label_for(struct ir *ir, struct target *to, uint32_t *pred, struct sh_err *err)
{
    const struct train_head *h = to->head;
    const struct dev_tensor y = *ir_t(ir, *pred);
    int rc = SH_OK;

    if (y.dtype != SH_F32)
        return SH_FAIL(err, SH_E_INVALID, "cannot train on output \"%s\": it is %s, not FP32",
                       y.name, sh_dtype_v2(y.dtype));
    if (h->loss == TRAIN_LOSS_XENT)
        return class_label(ir, to, pred, err);
    if (h->loss == TRAIN_LOSS_BCE && h->weights)
        rc = train_check_weights(h, y.rank ? y.dims[y.rank - 1] : 1, err);
    return rc ? rc : label_tensor(ir, to, SH_F32, y.rank, y.dims, err);
}

/* One number, or one for each class. */
static int loss_weights(struct ir *ir, const struct train_head *t, struct dev_op *op,
                        struct sh_err *err)
{
    const bool is_list = json_is_array(t->weights);
    const int64_t n = is_list ? (int64_t)json_array_size(t->weights) : 1;
    float *data;
    int rc;

    if (!t->weights)
        return SH_OK;
    data = malloc((size_t)n * sizeof(*data));
    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %lld weights", (long long)n);
    for (int64_t i = 0; i < n; i++)
        data[i] =
            (float)json_number_value(is_list ? json_array_get(t->weights, (size_t)i) : t->weights);
    rc = ir_const(ir, "loss#weights", DEV_ROLE_STATE, SH_F32, 1, &n, data, &op->in[2], err);
    if (rc)
        free(data);
    op->n_in = 3;
    return rc;
}

/* The scale of the loss is state as an optimizer's is: it commits with the step, and goes into
 * checkpoints. */
static int add_scaler(struct ir *ir, const struct train_spec *t, struct sh_err *err)
{
    const int64_t n = DEV_SCALER;
    float *data;
    int rc;

    if (!(t->scale.init > 0))
        return SH_OK;
    data = calloc(DEV_SCALER, sizeof(*data));
    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the scale of the loss");
    data[0] = (float)t->scale.init;
    rc = ir_const(ir, "loss", DEV_ROLE_STATE, SH_F32, 1, &n, data, &ir->scaler, err);
    if (rc) {
        free(data);
        return rc;
    }
    ir->info[ir->scaler].state = IR_OPTIM;
    ir->info[ir->scaler].suffix = "scale";
    return SH_OK;
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

/* *loss, and its gradient. */
static int add_loss(struct ir *ir, const struct train_head *h, const uint32_t in[static 2],
                    uint32_t *loss, uint32_t *gradient, struct sh_err *err)
{
    static const enum dev_loss EACH[] = {[TRAIN_LOSS_MSE] = DEV_LOSS_MSE,
                                         [TRAIN_LOSS_L1] = DEV_LOSS_L1,
                                         [TRAIN_LOSS_HUBER] = DEV_LOSS_HUBER,
                                         [TRAIN_LOSS_BCE] = DEV_LOSS_BCE};
    struct dev_op op =
        ir_op(h->loss == TRAIN_LOSS_XENT ? DEV_OP_LOSS_XENT : DEV_OP_LOSS_EACH, "loss", 2, in);
    int rc = ir_tensor(ir, "loss", SH_F32, DEV_ROLE_KEEP, 1, (int64_t[]){1}, loss, err);

    if (!rc)
        rc = ir_like(ir, in[0], "loss#gradient", DEV_ROLE_ACT, gradient, err);
    if (!rc)
        rc = loss_weights(ir, h, &op, err);
    if (rc)
        return rc;
    take_scaler(ir, &op, 3);
    op.out[0] = *loss;
    op.out[1] = *gradient;
    op.n_out = 2;
    op.u.loss.ignore = h->ignore_index;
    op.u.loss.smoothing = (float)h->label_smoothing;
    op.u.loss.kind = EACH[h->loss];
    op.u.loss.delta = (float)h->delta;
    op.u.loss.weight = (float)h->weight;
    return ir_push(ir, &op, err);
}

/* ir->loss becomes the sum with another, if there is one already. */
static int join_loss(struct ir *ir, uint32_t loss, struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_BINARY, "loss", 2, (uint32_t[]){ir->loss, loss});
    uint32_t sum;
    int rc;

    if (ir->loss == DEV_NONE) {
        ir->loss = loss;
        return SH_OK;
    }
    rc = ir_tensor(ir, "loss", SH_F32, DEV_ROLE_KEEP, 1, (int64_t[]){1}, &sum, err);
    if (rc)
        return rc;
    op.u.binary.kind = DEV_BIN_ADD;
    op.out[0] = ir->loss = sum;
    op.n_out = 1;
    return ir_push(ir, &op, err);
}

/* A mixture is as far from the labels of one sample as its part of it says, and from those of the
 * other by the rest: so are loss and gradient mixed. in: predictions and labels. */
static int add_mixed_loss(struct ir *ir, const struct train_head *h, const uint32_t in[static 2],
                          uint32_t *loss, uint32_t *gradient, struct sh_err *err)
{
    uint32_t part, other[2] = {in[0], DEV_NONE}, losses[2], gradients[2];
    int rc = pass_mix_part(ir, &part, err);

    if (!rc)
        rc = pass_turned_round(ir, in[1], &other[1], err);
    if (!rc)
        rc = add_loss(ir, h, in, &losses[0], &gradients[0], err);
    if (!rc)
        rc = add_loss(ir, h, other, &losses[1], &gradients[1], err);
    if (!rc)
        rc = ir_tensor(ir, "loss", SH_F32, DEV_ROLE_KEEP, 1, (int64_t[]){1}, loss, err);
    if (!rc)
        rc = ir_like(ir, in[0], "loss#gradient", DEV_ROLE_ACT, gradient, err);
    if (!rc)
        rc = pass_mix(ir, part, losses[0], losses[1], *loss, err);
    return rc ? rc : pass_mix(ir, part, gradients[0], gradients[1], *gradient, err);
}

/* The losses of all heads. *seeds: where the backward pass begins. */
static int add_losses(struct ir *ir, const struct train_spec *t,
                      struct autodiff_seed seeds[static TRAIN_MAX_HEADS], struct sh_err *err)
{
    int rc = add_scaler(ir, t, err);

    for (uint32_t i = 0; i < t->n_heads && !rc; i++) {
        struct target to = {&t->heads[i], augment_makes_labels(&t->augment, t->heads[i].labels),
                            DEV_NONE};
        uint32_t loss = DEV_NONE;

        seeds[i].from = ir->outputs[i];
        rc = label_for(ir, &to, &seeds[i].from, err);
        if (!rc)
            rc = (t->augment.mixup > 0 ? add_mixed_loss : add_loss)(
                ir, to.head, (uint32_t[]){seeds[i].from, to.label}, &loss, &seeds[i].gradient, err);
        if (!rc)
            rc = join_loss(ir, loss, err);
    }
    return rc;
}

/* ------------------------------------------------------------------ update */

static int optim_state(struct ir *ir, uint32_t param, const char *suffix, struct dev_op *op,
                       struct sh_err *err)
{
    uint32_t t;
    int rc = ir_like(ir, param, ir_t(ir, param)->name, DEV_ROLE_STATE, &t, err);

    if (rc)
        return rc;
    ir->info[t].state = IR_OPTIM;
    ir->info[t].suffix = suffix;
    op->in[op->n_in++] = t;
    return SH_OK;
}

static bool is_trained(const struct ir *ir, uint32_t t)
{
    return ir->info[t].state == IR_PARAM && ir->info[t].grad != DEV_NONE;
}

static bool has_decay(const struct ir *ir, const struct train_spec *t, uint32_t param)
{
    const struct dev_tensor *p = ir_t(ir, param);

    return !(t->no_decay_vectors && p->rank <= 1) && !train_names(t->no_decay, p->name);
}

static int update_param(struct ir *ir, const struct train_spec *t, uint32_t param,
                        uint32_t gradient, uint32_t squares, struct sh_err *err)
{
    bool is_sgd = t->optimizer == TRAIN_SGD;
    struct dev_op op = ir_op(is_sgd ? DEV_OP_SGD : DEV_OP_ADAM, ir_t(ir, param)->name, 2,
                             (uint32_t[]){param, gradient});
    int rc = SH_OK;

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
        rc = optim_state(ir, param, "momentum", &op, err);
    if (!is_sgd)
        rc = optim_state(ir, param, "m", &op, err);
    if (!rc && !is_sgd)
        rc = optim_state(ir, param, "v", &op, err);
    if (squares != DEV_NONE) {
        while (op.n_in < (is_sgd ? 3u : 4u))
            op.in[op.n_in++] = DEV_NONE;
        op.in[op.n_in++] = squares;
    }
    take_scaler(ir, &op, is_sgd ? 4 : 5);
    return rc ? rc : ir_push(ir, &op, err);
}

/* The sums of gradients over the steps of an update; they take the gradients' places in `of`. */
static int add_sums(struct ir *ir, uint32_t n, uint32_t *of, struct sh_err *err)
{
    int rc = SH_OK;

    for (uint32_t i = 0; i < n && !rc; i++) {
        struct dev_op op = ir_op(DEV_OP_ACCUM, ir_t(ir, i)->name, 0, NULL);

        if (of[i] == DEV_NONE)
            continue;
        rc = optim_state(ir, i, "sum", &op, err);
        op.in[op.n_in++] = of[i];
        of[i] = op.in[0];
        rc = rc ? rc : ir_push(ir, &op, err);
    }
    return rc;
}

/* Elements that one operation reads for the norm: it bounds how long a stop waits. */
#define SQUARES_ELEMENTS ((int64_t)16 << 20)

/* The sum of the squares of all elements of `of`, in *out. */
static int add_squares(struct ir *ir, uint32_t n, const uint32_t *of, uint32_t *out,
                       struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_SQUARES, "gradients", 1, (uint32_t[]){DEV_NONE});
    int64_t elements = 0;
    int rc = SH_OK;

    *out = DEV_NONE;
    for (uint32_t i = 0; i <= n && !rc; i++) {
        const bool is_end = i == n;
        const int64_t more = is_end || of[i] == DEV_NONE ? 0 : ir_elements(ir, i);

        if (!is_end && of[i] == DEV_NONE)
            continue;
        if (op.n_in > 1 &&
            (is_end || op.n_in == DEV_MAX_IN || elements + more > SQUARES_ELEMENTS)) {
            op.in[0] = *out;
            op.n_out = 0;
            rc = ir_tensor(ir, "squares", SH_F32, DEV_ROLE_KEEP, 1, (int64_t[]){1}, out, err);
            op.out[op.n_out++] = *out;
            rc = rc ? rc : ir_push(ir, &op, err);
            op.n_in = 1;
            elements = 0;
        }
        if (!is_end)
            op.in[op.n_in++] = of[i];
        elements += more;
    }
    return rc;
}

static int add_mean(struct ir *ir, const struct train_spec *t, uint32_t param, struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_EMA, ir_t(ir, param)->name, 0, NULL);
    int rc = optim_state(ir, param, "ema", &op, err);

    if (rc)
        return rc;
    ir->info[op.in[0]].state = IR_EMA;
    op.in[op.n_in++] = param;
    op.u.optim.beta1 = (float)t->ema;
    return ir_push(ir, &op, err);
}

static int add_scale(struct ir *ir, const struct train_spec *t, uint32_t squares,
                     struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_LOSS_SCALE, "loss#scale", 2, (uint32_t[]){ir->scaler, squares});

    op.u.scaler.growth = (float)t->scale.growth;
    op.u.scaler.backoff = (float)t->scale.backoff;
    op.u.scaler.interval = (float)t->scale.interval;
    return ir_push(ir, &op, err);
}

/* of: by parameter its gradient, or DEV_NONE. Updates of the same kind in a row are done together,
 * so those without decay come last. */
static int add_updates(struct ir *ir, const struct train_spec *t, uint32_t n, uint32_t *of,
                       struct sh_err *err)
{
    uint32_t squares = DEV_NONE;
    int rc = SH_OK;

    if (t->accumulate > 1)
        rc = add_sums(ir, n, of, err);
    if (!rc && (t->clip_norm > 0 || ir->scaler != DEV_NONE))
        rc = add_squares(ir, n, of, &squares, err);
    for (int decays = 1; decays >= 0; decays--)
        for (uint32_t i = 0; i < n && rc == SH_OK; i++)
            if (of[i] != DEV_NONE && has_decay(ir, t, i) == decays)
                rc = update_param(ir, t, i, of[i], squares, err);
    if (!rc && ir->scaler != DEV_NONE)
        rc = add_scale(ir, t, squares, err);
    for (uint32_t i = 0; i < n && rc == SH_OK && t->ema > 0; i++)
        if (of[i] != DEV_NONE)
            rc = add_mean(ir, t, i, err);
    return rc;
}

static int add_update(struct ir *ir, const struct train_spec *t, struct sh_err *err)
{
    const uint32_t n = ir->g.n_tensors;
    uint32_t *of = malloc((n + 1u) * sizeof(*of));
    int rc;

    if (!of)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the gradients of %u tensors", n);
    for (uint32_t i = 0; i < n; i++)
        of[i] = is_trained(ir, i) ? ir->info[i].grad : DEV_NONE;
    rc = add_updates(ir, t, n, of, err);
    free(of);
    for (size_t i = 0; i < ir->n_commits && rc == SH_OK; i++) {
        struct dev_op op =
            ir_op(DEV_OP_COMMIT, ir_t(ir, ir->commits[i].dst)->name, 1, &ir->commits[i].src);

        op.out[0] = ir->commits[i].dst;
        op.n_out = 1;
        rc = ir_push(ir, &op, err);
    }
    return rc;
}

/* ------------------------------------------------------------------ names */

/* Is there a parameter for a glob? The message lists some that there are. */
static int check_glob(const struct ir *ir, const char *field, const char *glob, struct sh_err *err)
{
    char known[256] = "";
    size_t len = 0, more = 0;
    bool found = false;

    for (uint32_t i = 0; i < ir->g.n_tensors && !found; i++) {
        const char *name = ir_t(ir, i)->name;

        if (ir->info[i].state != IR_PARAM)
            continue;
        found = fnmatch(glob, name, 0) == 0;
        if (len + strlen(name) + 3 < sizeof(known))
            len +=
                (size_t)snprintf(known + len, sizeof(known) - len, "%s%s", len ? ", " : "", name);
        else
            more++;
    }
    return found ? SH_OK
                 : SH_FAIL(err, SH_E_INVALID,
                           "\"spec.%s\": no parameter is called \"%s\"; there are %s%s", field,
                           glob, known, more ? ", ..." : "");
}

static int check_globs(const struct ir *ir, const char *field, const json_t *globs,
                       struct sh_err *err)
{
    int rc = SH_OK;

    if (json_is_string(globs))
        return check_glob(ir, field, json_string_value(globs), err);
    for (size_t i = 0; i < json_array_size(globs) && !rc; i++)
        rc = check_glob(ir, field, json_string_value(json_array_get(globs, i)), err);
    return rc;
}

static int freeze(struct ir *ir, const struct train_spec *t, struct sh_err *err)
{
    int rc = check_globs(ir, "frozen", t->frozen, err);

    if (!rc)
        rc = check_globs(ir, "no_decay", t->no_decay, err);
    if (!rc)
        rc = check_globs(ir, "init.random", t->init, err);
    for (uint32_t i = 0; i < ir->g.n_tensors && !rc; i++)
        if (ir->info[i].state == IR_PARAM)
            ir->info[i].is_frozen = train_names(t->frozen, ir_t(ir, i)->name);
    return rc;
}

static bool is_update(const struct dev_op *op)
{
    return op->kind == DEV_OP_ACCUM || op->kind == DEV_OP_SGD || op->kind == DEV_OP_ADAM ||
           op->kind == DEV_OP_LOSS_SCALE || op->kind == DEV_OP_EMA || op->kind == DEV_OP_COMMIT;
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
    int rc;

    seed_dropout(ir, t->seed);
    rc = freeze(ir, t, err);
    if (!rc)
        rc = pass_pictures(ir, t, err);
    if (!rc)
        rc = add_losses(ir, t, seeds, err);
    if (!rc)
        rc = autodiff_backward(ir, seeds, t->n_heads, NULL, conv_piece(t), err);
    if (!rc)
        rc = add_update(ir, t, err);
    if (!rc)
        rc = pass_fuse_sums(ir, err);
    if (!rc && t->precision == DEV_TF32)
        rc = pass_turn(ir, err);
    if (!rc)
        rc = ir_drop_unused(ir, err);
    if (rc)
        return rc;
    ir->g.update_begin = 0;
    while (ir->g.update_begin < ir->g.n_ops && !is_update(&ir->g.ops[ir->g.update_begin]))
        ir->g.update_begin++;
    return SH_OK;
}
