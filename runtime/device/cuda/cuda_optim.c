/* cuda_optim.c - the updates of a training step; the kernels are in optim.cu.
 *
 * There are hundreds of small parameters, so operations that follow each other with the same kind
 * and the same numbers are done by the first of them, in one launch. That is allowed: their
 * gradients are all there when the first one runs, nothing of STATE that one writes is touched by
 * another (checked here), and a step that pauses between two of them goes on with higher numbers.
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda.h"

#include <math.h>
#include <stdlib.h>

#define OPTIM_SLOTS 4 /* p, gradient, m, v */
/* Elements of one launch, beyond the first operation's: it bounds how long a stop waits. */
#define MAX_ELEMENTS ((int64_t)8 << 20)

struct batch {
    uint32_t end; /* one behind its last operation */
    uint32_t n_pieces;
    uint32_t slots[K_OPTIM_MAX][OPTIM_SLOTS]; /* tensors; DEV_NONE: absent */
    struct k_optim o;
};

static uint32_t squares_of(const struct dev_op *op)
{
    return op->kind == DEV_OP_SGD    ? cuda__opt_in(op, 3)
           : op->kind == DEV_OP_ADAM ? cuda__opt_in(op, 4)
                                     : DEV_NONE;
}

/* What depends on the step. */
static void take_update_turn(const struct cuda_call *c, struct k_optim *o)
{
    const double t = (double)c->turn.update + 1;
    const uint32_t squares = squares_of(c->op), scaler = dev_op_scaler(c->op);

    o->is_first = o->kind == K_OPTIM_ADD ? c->turn.part == 0 : c->turn.update == 0;
    o->mean = (float)(1 / (double)(c->turn.last + 1));
    o->squares = squares == DEV_NONE ? NULL : cuda__ptr(c, squares);
    o->scaler = scaler == DEV_NONE ? NULL : cuda__ptr(c, scaler);
    o->update = (float)t;
    o->lr = (float)c->turn.lr;
    o->shrink = o->is_decoupled ? 1 - o->lr * c->op->u.optim.weight_decay : 1;
    o->step_size = o->root_bias2 = 1;
    if (o->kind == K_OPTIM_ADAM) {
        o->step_size = (float)(c->turn.lr / (1 - pow(c->op->u.optim.beta1, t)));
        o->root_bias2 = (float)sqrt(1 - pow(c->op->u.optim.beta2, t));
    }
}

static int run_optim_batch(const struct cuda_call *c, struct sh_err *err)
{
    struct batch *b = c->aux;
    struct k_optim *o = &b->o;
    const bool is_each_step = o->kind == K_OPTIM_ADD || o->kind == K_OPTIM_COPY;

    if (!is_each_step && c->turn.part < c->turn.last)
        return SH_OK;

    for (int i = 0; i < o->n_items; i++) {
        const uint32_t *t = b->slots[i];

        o->items[i].p = cuda__ptr(c, t[0]);
        o->items[i].g = cuda__ptr(c, t[1]);
        o->items[i].m = t[2] == DEV_NONE ? NULL : cuda__ptr(c, t[2]);
        o->items[i].v = t[3] == DEV_NONE ? NULL : cuda__ptr(c, t[3]);
    }
    if (o->kind != K_OPTIM_COPY)
        take_update_turn(c, o);
    k_optim_update(c->stream, o, b->n_pieces);
    return cuda__launched(c, err);
}

/* ------------------------------------------------------------------ one operation */

static void optim_slots(const struct dev_op *op, uint32_t slots[static OPTIM_SLOTS])
{
    for (uint32_t i = 0; i < OPTIM_SLOTS; i++)
        slots[i] = cuda__opt_in(op, i);
    if (op->kind == DEV_OP_SGD)
        slots[3] = DEV_NONE; /* squares */
    if (op->kind == DEV_OP_COMMIT) {
        slots[0] = op->out[0];
        slots[1] = op->in[0];
    }
}

static int check_op(struct cuda_build *b, const struct dev_op *op, struct k_optim_item *item)
{
    uint32_t slots[OPTIM_SLOTS];
    const struct dev_tensor *p, *g;
    struct cuda_form f;

    optim_slots(op, slots);
    p = cuda__t(b, slots[0]);
    g = cuda__t(b, slots[1]);
    f = cuda__form(b, slots[1]);
    if (squares_of(op) != DEV_NONE && dev_tensor_elements(cuda__t(b, squares_of(op))) != 1)
        return cuda__refuse(b, SH_E_BUG, "the sum of squares is not one F32");
    *item = (struct k_optim_item){
        .n = dev_tensor_elements(p), .g_type = (int)f.type, .c = 1, .taps = 1};
    for (uint32_t i = 0; i < OPTIM_SLOTS; i++) {
        const struct dev_tensor *t = slots[i] == DEV_NONE ? p : cuda__t(b, slots[i]);

        if (t->dtype != SH_F32 || dev_tensor_elements(t) != item->n)
            return cuda__refuse(b, SH_E_BUG, "\"%s\" does not fit the parameter", t->name);
        if (i != 1 && t->role != DEV_ROLE_STATE)
            return cuda__refuse(b, SH_E_BUG, "\"%s\" is not part of the training state", t->name);
    }
    if (op->kind == DEV_OP_SGD && op->u.optim.momentum != 0 && slots[2] == DEV_NONE)
        return cuda__refuse(b, SH_E_BUG, "momentum without a buffer for it");
    if (f.layout != CUDA_NHWC || g->dims[1] == 1 || g->dims[2] * g->dims[3] == 1)
        return SH_OK;
    if (g->dims[2] * g->dims[3] > K_OPTIM_PIECE || g->dims[1] > INT32_MAX / K_OPTIM_PIECE)
        return cuda__refuse(b, SH_E_UNSUPPORTED,
                            "\"%s\" has %lld channels of %lld taps; at most %d of %d are supported",
                            p->name, (long long)g->dims[1], (long long)(g->dims[2] * g->dims[3]),
                            INT32_MAX / K_OPTIM_PIECE, K_OPTIM_PIECE);
    item->c = (int)g->dims[1];
    item->taps = (int)(g->dims[2] * g->dims[3]);
    return SH_OK;
}

/* ------------------------------------------------------------------ a batch of them */

static bool same_numbers(const struct dev_op *a, const struct dev_op *b)
{
    return a->kind == b->kind && squares_of(a) == squares_of(b) &&
           dev_op_scaler(a) == dev_op_scaler(b) && a->u.optim.clip_norm == b->u.optim.clip_norm &&
           a->u.optim.clip_value == b->u.optim.clip_value &&
           (cuda__opt_in(a, 2) == DEV_NONE) == (cuda__opt_in(b, 2) == DEV_NONE) &&
           a->u.optim.momentum == b->u.optim.momentum &&
           a->u.optim.weight_decay == b->u.optim.weight_decay &&
           a->u.optim.beta1 == b->u.optim.beta1 && a->u.optim.beta2 == b->u.optim.beta2 &&
           a->u.optim.eps == b->u.optim.eps && a->u.optim.nesterov == b->u.optim.nesterov &&
           a->u.optim.decoupled == b->u.optim.decoupled;
}

enum { IS_READ = 1, IS_WRITTEN = 2 };

/* Notes what the operation touches. false: it must come after what is noted already. */
static bool is_independent(const struct cuda_build *b, const uint32_t *slots, uint8_t *marks)
{
    for (uint32_t i = 0; i < OPTIM_SLOTS; i++)
        if (slots[i] != DEV_NONE &&
            (marks[b->plan->tensors[slots[i]].root] & (i == 1 ? IS_WRITTEN : IS_READ | IS_WRITTEN)))
            return false;
    for (uint32_t i = 0; i < OPTIM_SLOTS; i++)
        if (slots[i] != DEV_NONE)
            marks[b->plan->tensors[slots[i]].root] |= i == 1 ? IS_READ : IS_WRITTEN;
    return true;
}

static void collect_items(struct cuda_build *b, struct batch *t, uint8_t *marks)
{
    const struct dev_graph *g = b->plan->base.g;
    struct k_optim *o = &t->o;

    for (t->end = b->index; t->end < g->n_ops && o->n_items < K_OPTIM_MAX; t->end++) {
        const struct dev_op *op = &g->ops[t->end];
        struct k_optim_item *item = &o->items[o->n_items];
        struct cuda_build quiet = *b;
        uint32_t *slots = t->slots[o->n_items];
        int64_t pieces;

        quiet.err = NULL; /* its own builder will say what is wrong with it */
        if (!same_numbers(b->op, op) || check_op(&quiet, op, item))
            return;
        pieces = k_optim_pieces(item);
        optim_slots(op, slots);
        if (o->n_items > 0 && (t->n_pieces + pieces) * K_OPTIM_PIECE > MAX_ELEMENTS)
            return;
        if (pieces > INT32_MAX - (int64_t)t->n_pieces || !is_independent(b, slots, marks))
            return;
        item->first = t->n_pieces;
        t->n_pieces += (uint32_t)pieces;
        o->n_items++;
    }
}

static bool is_done_before(const struct cuda_build *b)
{
    for (uint32_t i = b->index; i-- > 0;) {
        const struct cuda_op *co = &b->plan->ops[i];

        if (co->run)
            return co->run == run_optim_batch && ((const struct batch *)co->aux)->end > b->index;
    }
    return false;
}

static int build_optim(struct cuda_build *b, enum k_optim_kind kind)
{
    const struct dev_op *op = b->op;
    bool is_decoupled = kind == K_OPTIM_ADAM && op->u.optim.decoupled;
    struct k_optim_item item;
    uint8_t *marks;
    struct batch *t;
    int rc = check_op(b, op, &item);

    if (rc || is_done_before(b))
        return rc;
    t = calloc(1, sizeof(*t));
    marks = calloc((size_t)b->plan->base.g->n_tensors + 1, 1);
    if (!t || !marks) {
        free(t);
        free(marks);
        return cuda__refuse(b, SH_E_NOMEM, "could not allocate the updates of a step");
    }
    t->o.kind = kind;
    if (kind != K_OPTIM_COPY) {
        t->o.momentum = op->u.optim.momentum;
        t->o.decay = is_decoupled ? 0 : op->u.optim.weight_decay;
        t->o.is_decoupled = is_decoupled;
        t->o.clip_norm = op->u.optim.clip_norm;
        t->o.limit = op->u.optim.clip_value > 0 ? op->u.optim.clip_value : INFINITY;
        t->o.beta1 = op->u.optim.beta1;
        t->o.beta2 = op->u.optim.beta2;
        t->o.eps = op->u.optim.eps;
        t->o.nesterov = op->u.optim.nesterov;
        t->o.has_momentum = cuda__opt_in(op, 2) != DEV_NONE;
    }
    collect_items(b, t, marks);
    free(marks);
    cuda__aux(b, t, free);
    if (t->o.n_items == 0)
        return cuda__refuse(b, SH_E_TOOBIG, "\"%s\" is too large", cuda__t(b, op->in[0])->name);
    b->co->run = run_optim_batch;
    b->co->by_step = kind != K_OPTIM_COPY;
    return SH_OK;
}

int cuda__accum(struct cuda_build *b)
{
    return build_optim(b, K_OPTIM_ADD);
}

int cuda__ema(struct cuda_build *b)
{
    return build_optim(b, K_OPTIM_EMA);
}

int cuda__sgd(struct cuda_build *b)
{
    return build_optim(b, K_OPTIM_SGD);
}

int cuda__adam(struct cuda_build *b)
{
    return build_optim(b, K_OPTIM_ADAM);
}

int cuda__commit(struct cuda_build *b)
{
    return build_optim(b, K_OPTIM_COPY);
}
