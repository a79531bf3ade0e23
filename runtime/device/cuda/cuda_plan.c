/* cuda_plan.c - a plan: how each tensor is stored, one builder call per operation, then nothing but
 * launches. */
#include "common/clock.h"
#include "common/mem.h"
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/cuda_mem.h"
#include "runtime/device/cuda/cuda_record.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_KEEP 65536u

/* Weak: NULL of an operation that this back end does not have. */
#define DEV_OP(kind, in, max_in, out, max_out, builder) \
    extern cuda_builder cuda__##builder __attribute__((weak));
#include "runtime/device/op.def"
#undef DEV_OP

static cuda_builder *const BUILDERS[DEV_N_OPS] = {
#define DEV_OP(kind, in, max_in, out, max_out, builder) [DEV_OP_##kind] = cuda__##builder,
#include "runtime/device/op.def"
#undef DEV_OP
};

static struct cuda_plan *plan_of(const struct dev_plan *p)
{
    return (struct cuda_plan *)(uintptr_t)p;
}

/* ------------------------------------------------------------------ types and layouts */

size_t cuda__type_bytes(enum cuda_type t)
{
    static const size_t BYTES[CUDA_N_TYPES] = {
        [CUDA_T_F32] = 4, [CUDA_T_F16] = 2, [CUDA_T_BF16] = 2, [CUDA_T_F64] = 8,
        [CUDA_T_I64] = 8, [CUDA_T_I32] = 4, [CUDA_T_U8] = 1,   [CUDA_T_I8] = 1,
        [CUDA_T_I16] = 2, [CUDA_T_U16] = 2, [CUDA_T_U32] = 4,  [CUDA_T_U64] = 8};

    return BYTES[t];
}

/* dtype as the caller knows it, stored unchanged. */
static enum cuda_type cuda_type_of(enum sh_dtype t)
{
    static const enum cuda_type TYPES[SH_N_DTYPES] = {
        [SH_F32] = CUDA_T_F32,   [SH_F64] = CUDA_T_F64, [SH_F16] = CUDA_T_F16,
        [SH_BF16] = CUDA_T_BF16, [SH_I8] = CUDA_T_I8,   [SH_I16] = CUDA_T_I16,
        [SH_I32] = CUDA_T_I32,   [SH_I64] = CUDA_T_I64, [SH_U8] = CUDA_T_U8,
        [SH_U16] = CUDA_T_U16,   [SH_U32] = CUDA_T_U32, [SH_U64] = CUDA_T_U64,
        [SH_BOOL] = CUDA_T_U8};

    return TYPES[t];
}

void cuda__strides(const struct dev_tensor *t, enum cuda_layout layout,
                   int64_t out[static SH_MAX_RANK])
{
    int64_t n = 1;

    if (layout == CUDA_NHWC && t->rank == 4) {
        out[1] = 1;
        out[3] = t->dims[1];
        out[2] = out[3] * t->dims[3];
        out[0] = out[2] * t->dims[2];
        return;
    }
    for (uint32_t i = t->rank; i-- > 0;) {
        out[i] = n;
        n *= t->dims[i];
    }
}

/* Channels-last and plain are the same bytes when there is one channel or one pixel. */
static bool same_form(const struct dev_tensor *t, struct cuda_form a, struct cuda_form b)
{
    if (a.type != b.type)
        return false;
    return a.layout == b.layout || t->rank != 4 || t->dims[1] == 1 || t->dims[2] * t->dims[3] == 1;
}

static size_t form_bytes(const struct dev_tensor *t, struct cuda_form f)
{
    return (size_t)dev_tensor_elements(t) * cuda__type_bytes(f.type);
}

/* ------------------------------------------------------------------ tensors */

/* What the rules of storage (cuda.h) ask about a tensor, collected in one pass over the graph. */
struct traits {
    bool is_aliased, is_conv_weight, is_bias, is_statistic;
    bool is_spatial; /* a convolution or pooling reads or writes it, or what has its layout */
};

static void note_op(const struct dev_op *op, struct traits *t)
{
    uint32_t first = UINT32_MAX, bias = DEV_NONE;

    if (op->kind == DEV_OP_CONV || op->kind == DEV_OP_CONV_BWD_DATA || op->kind == DEV_OP_QCONV)
        t[op->in[1]].is_conv_weight = true;
    if (op->kind == DEV_OP_CONV || op->kind == DEV_OP_MATMUL)
        bias = cuda__opt_in(op, 2);
    if (bias != DEV_NONE)
        t[bias].is_bias = true;
    if (op->kind == DEV_OP_BN_TRAIN || op->kind == DEV_OP_LAYERNORM || op->kind == DEV_OP_ATTENTION)
        first = 1;
    for (uint32_t k = first; k < op->n_out; k++)
        if (op->out[k] != DEV_NONE)
            t[op->out[k]].is_statistic = true;
}

static bool works_on_planes(enum dev_op_kind k)
{
    return k == DEV_OP_CONV || k == DEV_OP_QCONV || k == DEV_OP_POOL_MAX || k == DEV_OP_POOL_AVG ||
           k == DEV_OP_BN_INFER || k == DEV_OP_BN_TRAIN || k == DEV_OP_CONV_BWD_DATA ||
           k == DEV_OP_CONV_BWD_WEIGHT || k == DEV_OP_POOL_MAX_BWD || k == DEV_OP_POOL_AVG_BWD ||
           k == DEV_OP_BN_TRAIN_BWD;
}

/* What comes out in another order of axes, or goes line by line, has no layout to keep. */
static bool keeps_layout(enum dev_op_kind k)
{
    return k != DEV_OP_TRANSPOSE && k != DEV_OP_MATMUL && k != DEV_OP_QMATMUL &&
           k != DEV_OP_ATTENTION && k != DEV_OP_ATTENTION_BWD && k != DEV_OP_SOFTMAX &&
           k != DEV_OP_SOFTMAX_BWD && k != DEV_OP_LAYERNORM && k != DEV_OP_LAYERNORM_BWD &&
           k != DEV_OP_GATHER && k != DEV_OP_GATHER_BWD && k != DEV_OP_CUMSUM &&
           k != DEV_OP_JITTER && k != DEV_OP_PIXELS && k != DEV_OP_TOPK && k != DEV_OP_LOCATE &&
           k != DEV_OP_SCATTER && k != DEV_OP_NONZERO && k != DEV_OP_NMS && k != DEV_OP_LSTM_CELL &&
           k != DEV_OP_LSTM_CELL_BWD;
}

/* Marks what op has in common with spatial tensors; false: nothing new. */
static bool spread_op(const struct dev_op *op, struct traits *t)
{
    bool any = works_on_planes(op->kind), changed = false;

    if (!any && !keeps_layout(op->kind))
        return false;
    for (uint32_t k = 0; k < op->n_in && !any; k++)
        any = op->in[k] != DEV_NONE && t[op->in[k]].is_spatial;
    for (uint32_t k = 0; k < op->n_out && !any; k++)
        any = op->out[k] != DEV_NONE && t[op->out[k]].is_spatial;
    for (uint32_t k = 0; any && k < op->n_in + op->n_out; k++) {
        const uint32_t at = k < op->n_in ? op->in[k] : op->out[k - op->n_in];

        if (at != DEV_NONE && !t[at].is_spatial)
            t[at].is_spatial = changed = true;
    }
    return changed;
}

/* Along a chain of operations in one turn, in the direction of the turn. */
static void spread_traits(const struct dev_graph *g, struct traits *t)
{
    bool changed = true;

    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < g->n_ops; i++)
            changed |= spread_op(&g->ops[i], t);
        for (uint32_t i = g->n_ops; i-- > 0;)
            changed |= spread_op(&g->ops[i], t);
    }
}

static struct traits *collect_traits(const struct dev_graph *g, bool has_conv)
{
    struct traits *t = calloc((size_t)g->n_tensors + 1, sizeof(*t));

    for (uint32_t i = 0; t && i < g->n_ops; i++)
        note_op(&g->ops[i], t);
    if (t && has_conv)
        spread_traits(g, t);
    for (uint32_t i = 0; t && i < g->n_tensors; i++)
        if (g->tensors[i].alias_of != DEV_NONE)
            t[i].is_aliased = t[g->tensors[i].alias_of].is_aliased = true;
    return t;
}

static struct cuda_form form_of(const struct cuda_plan *p, const struct dev_tensor *t,
                                const struct traits *traits)
{
    struct cuda_form f = {.type = CUDA_T_F32, .layout = CUDA_PLAIN};
    bool is_ours =
        t->role == DEV_ROLE_ACT || t->role == DEV_ROLE_WEIGHT || t->role == DEV_ROLE_TABLE;

    if (t->dtype != SH_F32)
        f.type = cuda_type_of(t->dtype);
    else if (is_ours && !traits->is_statistic &&
             (t->rank >= 2 || (t->role == DEV_ROLE_WEIGHT && traits->is_bias)))
        f.type = p->compute;
    if (traits->is_spatial && t->rank == 4 && !traits->is_aliased &&
        (t->role == DEV_ROLE_ACT || traits->is_conv_weight) && is_ours)
        f.layout = CUDA_NHWC;
    return f;
}

static enum cuda_space space_of(enum dev_role r)
{
    return r == DEV_ROLE_WEIGHT  ? CUDA_IMAGE
           : r == DEV_ROLE_STATE ? CUDA_STATE
           : r == DEV_ROLE_TABLE ? CUDA_TABLES
                                 : CUDA_WORK;
}

static int init_tensors(struct cuda_plan *p, struct sh_err *err)
{
    const struct dev_graph *g = p->base.g;
    struct traits *traits = collect_traits(g, p->has_conv);

    if (!traits)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a plan of %u tensors", g->n_tensors);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct dev_tensor *t = &g->tensors[i];
        struct cuda_tensor *c = &p->tensors[i];
        c->root = t->alias_of == DEV_NONE ? i : p->tensors[t->alias_of].root;
        c->space = space_of(g->tensors[c->root].role);
        c->form = t->alias_of == DEV_NONE ? form_of(p, t, &traits[i]) : p->tensors[c->root].form;
    }
    free(traits);
    return SH_OK;
}

/* ------------------------------------------------------------------ building */

int cuda__refuse(struct cuda_build *b, int rc, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return SH_FAIL(b->err, rc, "%s (node \"%s\"): %s", dev_op_name(b->op->kind), b->op->name, text);
}

static size_t take_op_scratch(struct cuda_op *co, size_t bytes)
{
    size_t at = co->scratch_bytes;

    co->scratch_bytes += SH_ALIGN_UP(bytes, (size_t)DEV_ALIGN);
    return at;
}

void cuda__scratch(struct cuda_build *b, size_t bytes)
{
    b->co->own_off = take_op_scratch(b->co, bytes);
}

void cuda__aux(struct cuda_build *b, void *aux, void (*fn)(void *aux))
{
    b->co->aux = aux;
    b->co->free_aux = fn;
}

static void fill_nd(const struct dev_tensor *t, enum cuda_layout from, enum cuda_layout to,
                    struct k_nd *nd)
{
    nd->rank = (int)t->rank;
    memcpy(nd->dims, t->dims, sizeof(nd->dims));
    cuda__strides(t, from, nd->stride[0]);
    cuda__strides(t, to, nd->stride[1]);
}

/* t: the tensor, or so many samples of it. */
static int add_form_move(struct cuda_build *b, uint32_t slot, uint32_t tensor,
                         const struct dev_tensor *t, struct cuda_form form, bool before)
{
    struct cuda_move **list = before ? &b->co->before : &b->co->after;
    uint32_t *n = before ? &b->co->n_before : &b->co->n_after;
    struct cuda_move *more = realloc(*list, (*n + 1) * sizeof(*more));
    enum cuda_layout stored = cuda__form(b, tensor).layout;

    if (!more)
        return SH_FAIL(b->err, SH_E_NOMEM, "could not allocate a move");
    *list = more;
    more[*n] = (struct cuda_move){.slot = slot, .tensor = tensor, .form = form};
    more[*n].scratch_off = take_op_scratch(b->co, form_bytes(t, form));
    fill_nd(t, before ? stored : form.layout, before ? form.layout : stored, &more[*n].nd);
    ++*n;
    return SH_OK;
}

/* One entry per (parameter, form), however many operations want it. */
static int keep_entry(struct cuda_build *b, uint32_t tensor, struct cuda_form form, uint32_t *out)
{
    struct cuda_plan *p = b->plan;
    int rc;

    for (uint32_t i = 0; i < p->n_keep; i++)
        if (p->keep[i].tensor == tensor && same_form(cuda__t(b, tensor), p->keep[i].form, form)) {
            *out = i;
            return SH_OK;
        }
    rc = sh_grow(&p->keep, &p->cap_keep, (size_t)p->n_keep + 1, sizeof(*p->keep), MAX_KEEP,
                 "converted parameters of one plan", b->err);
    if (rc)
        return rc;
    p->keep[p->n_keep] = (struct cuda_keep){.tensor = tensor, .form = form, .off = p->keep_bytes};
    p->keep_bytes += SH_ALIGN_UP(form_bytes(cuda__t(b, tensor), form), (size_t)DEV_ALIGN);
    *out = p->n_keep++;
    return SH_OK;
}

int cuda__in(struct cuda_build *b, uint32_t slot, struct cuda_form form)
{
    uint32_t tensor = cuda__opt_in(b->op, slot), keep;
    int rc;

    if (tensor == DEV_NONE || same_form(cuda__t(b, tensor), cuda__form(b, tensor), form))
        return SH_OK;
    if (b->plan->tensors[tensor].space != CUDA_STATE)
        return add_form_move(b, slot, tensor, cuda__t(b, tensor), form, true);
    rc = keep_entry(b, tensor, form, &keep);
    if (!rc)
        b->co->keep_in[slot] = keep + 1;
    return rc;
}

int cuda__out(struct cuda_build *b, uint32_t slot, struct cuda_form form)
{
    uint32_t tensor = cuda__opt_out(b->op, slot);

    if (tensor == DEV_NONE || same_form(cuda__t(b, tensor), cuda__form(b, tensor), form))
        return SH_OK;
    return add_form_move(b, slot, tensor, cuda__t(b, tensor), form, false);
}

int cuda__in_samples(struct cuda_build *b, uint32_t slot, struct cuda_form form, int64_t first,
                     int64_t count, size_t *off)
{
    const uint32_t tensor = b->op->in[slot];
    const struct cuda_form stored = cuda__form(b, tensor);
    struct dev_tensor part = *cuda__t(b, tensor);
    const size_t before = (size_t)(first * dev_axes_elements(&part, 1, part.rank));
    int rc;

    *off = before * cuda__type_bytes(form.type);
    if (*off % DEV_ALIGN == 0 &&
        (same_form(&part, stored, form) || b->plan->tensors[tensor].space == CUDA_STATE))
        return cuda__in(b, slot, form);
    *off = 0;
    part.dims[0] = count;
    rc = add_form_move(b, slot, tensor, &part, form, true);
    if (!rc)
        b->co->before[b->co->n_before - 1].stored_off = before * cuda__type_bytes(stored.type);
    return rc;
}

int cuda__in_plain(struct cuda_build *b, uint32_t slot)
{
    const uint32_t t = cuda__opt_in(b->op, slot);

    return t == DEV_NONE ? SH_OK : cuda__in(b, slot, cuda__plain(cuda__form(b, t).type));
}

int cuda__out_plain(struct cuda_build *b, uint32_t slot)
{
    const uint32_t t = cuda__opt_out(b->op, slot);

    return t == DEV_NONE ? SH_OK : cuda__out(b, slot, cuda__plain(cuda__form(b, t).type));
}

static int build_ops(struct cuda_plan *p, struct sh_err *err)
{
    const struct dev_graph *g = p->base.g;
    int rc = SH_OK;

    for (uint32_t i = 0; i < g->n_ops && !rc; i++) {
        struct cuda_build b = {
            .plan = p, .op = &g->ops[i], .co = &p->ops[i], .index = i, .err = err};

        rc = BUILDERS[b.op->kind]
                 ? BUILDERS[b.op->kind](&b)
                 : cuda__refuse(&b, SH_E_UNSUPPORTED, "the cuda device does not have it");
    }
    return rc;
}

struct uses {
    uint32_t n_writers;
    bool is_read;
};

/* Written by one operation and read by another: nobody else sees its bytes. */
static bool is_inner(const struct cuda_plan *p, uint32_t root, const struct uses *u)
{
    return p->base.g->tensors[root].role == DEV_ROLE_ACT && u[root].n_writers == 1 &&
           u[root].is_read;
}

/* y becomes another name of x's bytes, and nothing runs: a transposition between the layouts of a
 * convolution and of a matrix, say. The planner goes by alias_of. */
static void join_spaces(struct cuda_plan *p, struct cuda_op *co, uint32_t x, uint32_t y)
{
    for (uint32_t i = 0; i < p->base.g->n_tensors; i++)
        if (p->tensors[i].root == y) {
            p->tensors[i].root = x;
            p->base.g->tensors[i].alias_of = x;
        }
    co->run = NULL;
}

static void count_tensor_uses(const struct cuda_plan *p, struct uses *u)
{
    const struct dev_graph *g = p->base.g;

    for (uint32_t i = 0; i < g->n_ops; i++) {
        const struct dev_op *op = &g->ops[i];

        for (uint32_t k = 0; k < op->n_in; k++)
            if (op->in[k] != DEV_NONE)
                u[p->tensors[op->in[k]].root].is_read = true;
        for (uint32_t k = 0; k < op->n_out; k++)
            if (op->out[k] != DEV_NONE)
                u[p->tensors[op->out[k]].root].n_writers++;
    }
}

static int join_moves(struct cuda_plan *p, struct sh_err *err)
{
    const struct dev_graph *g = p->base.g;
    struct uses *u = calloc((size_t)g->n_tensors + 1, sizeof(*u));

    if (!u)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a plan of %u tensors", g->n_tensors);
    count_tensor_uses(p, u);
    for (uint32_t i = 0; i < g->n_ops; i++) {
        const struct dev_op *op = &g->ops[i];
        uint32_t x, y;

        if (!p->ops[i].is_same)
            continue;
        x = p->tensors[op->in[0]].root;
        y = p->tensors[op->out[0]].root;
        if (x != y && is_inner(p, x, u) && is_inner(p, y, u))
            join_spaces(p, &p->ops[i], x, y);
    }
    free(u);
    return SH_OK;
}

static int set_precision(struct cuda_plan *p, enum dev_precision precision, struct sh_err *err)
{
    p->precision = precision;
    switch (precision) {
    case DEV_FP32:
    case DEV_TF32:
        p->compute = CUDA_T_F32;
        break;
    case DEV_FP16:
        p->compute = CUDA_T_F16;
        break;
    case DEV_BF16:
        p->compute = CUDA_T_BF16;
        break;
    default:
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "the cuda device computes in fp32, tf32, fp16 or bf16, not in fp64");
    }
    return SH_OK;
}

static void look_at_gradients(struct cuda_plan *p)
{
    const struct dev_graph *g = p->base.g;

    p->gradients_from = DEV_NONE;
    for (uint32_t i = g->n_ops; i-- > 0;) {
        p->has_conv |= g->ops[i].kind == DEV_OP_CONV || g->ops[i].kind == DEV_OP_QCONV ||
                       g->ops[i].kind == DEV_OP_CONV_BWD_DATA;
        p->is_training |= g->ops[i].kind == DEV_OP_SGD || g->ops[i].kind == DEV_OP_ADAM;
        if (g->ops[i].kind == DEV_OP_LOSS_XENT || g->ops[i].kind == DEV_OP_LOSS_EACH)
            p->gradients_from = i;
    }
}

int cuda__plan_new(struct dev *d, struct dev_graph *g, enum dev_precision precision,
                   const struct dev_plan *layout_of, struct dev_plan **out, struct sh_err *err)
{
    struct cuda_plan *p = calloc(1, sizeof(*p));
    int rc;

    (void)layout_of; /* the rules of storage give every batch size the same */
    *out = NULL;
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a plan");
    p->base = (struct dev_plan){.dev = d, .g = g};
    look_at_gradients(p);
    rc = set_precision(p, precision, err);
    if (rc)
        goto out;
    p->tensors = calloc((size_t)g->n_tensors + 1, sizeof(*p->tensors));
    p->ops = calloc((size_t)g->n_ops + 1, sizeof(*p->ops));
    if (!p->tensors || !p->ops) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a plan of %u operations", g->n_ops);
        goto out;
    }
    rc = init_tensors(p, err);
    if (!rc)
        rc = build_ops(p, err);
    if (!rc)
        rc = join_moves(p, err);
    if (rc)
        goto out;
    rc = cuda__note_stored(p, err);
    if (rc)
        goto out;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        g->tensors[i].bytes = form_bytes(&g->tensors[i], p->tensors[i].form);
    *out = &p->base;
    p = NULL;
out:
    cuda__plan_free(p ? &p->base : NULL);
    return rc;
}

void cuda__plan_free(struct dev_plan *base)
{
    struct cuda_plan *p = plan_of(base);

    if (!p)
        return;
    if (cuda__dev(p)->running == p)
        cuda__dev(p)->running = NULL;
    /* What a failure left in the queue may use it. If that waits for a ticket which does not come,
     * only the end of the process frees it. */
    if (!cuda__wait_idle(cuda__dev(p)->stream, sh_clock_ns() + CUDA_CLOSE_NS))
        return;
    cuda__graphs_free(p);
    cuda__records_free(p);
    for (uint32_t i = 0; p->ops && i < p->base.g->n_ops; i++) {
        struct cuda_op *co = &p->ops[i];

        if (co->free_aux)
            co->free_aux(co->aux);
        free(co->before);
        free(co->after);
    }
    free(p->ops);
    free(p->tensors);
    free(p->keep);
    free(p);
}

size_t cuda__plan_scratch_bytes(const struct dev_plan *p, uint32_t op)
{
    return plan_of(p)->ops[op].scratch_bytes;
}

void cuda__plan_set_scratch(struct dev_plan *p, uint32_t op, size_t ws_offset)
{
    plan_of(p)->ops[op].scratch_off = ws_offset;
}

size_t cuda__plan_keep_bytes(const struct dev_plan *p)
{
    return plan_of(p)->keep_bytes;
}

void cuda__plan_set_keep(struct dev_plan *p, size_t ws_offset)
{
    plan_of(p)->keep_off = ws_offset;
}

/* ------------------------------------------------------------------ finishing */

static size_t tensor_offset(const struct cuda_plan *p, uint32_t tensor)
{
    return p->base.g->tensors[p->tensors[tensor].root].offset;
}

static int reach_space(struct cuda_plan *p, enum cuda_space s, size_t off, size_t bytes,
                       const char *what, struct sh_err *err)
{
    size_t end;
    int rc = sh_add_size(off, bytes, &end, err);

    if (!rc && off % DEV_ALIGN != 0)
        rc = SH_FAIL(err, SH_E_BUG, "%s is not aligned to %u bytes", what, DEV_ALIGN);
    p->extent[s] = SH_MAX(p->extent[s], rc ? 0 : end);
    return rc;
}

int cuda__plan_finish(struct dev_plan *base, struct sh_err *err)
{
    struct cuda_plan *p = plan_of(base);
    const struct dev_graph *g = base->g;
    int rc = reach_space(p, CUDA_WORK, p->keep_off, p->keep_bytes, "the memory of parameters", err);

    for (uint32_t i = 0; i < g->n_tensors && !rc; i++)
        rc = reach_space(p, p->tensors[i].space, tensor_offset(p, i), g->tensors[i].bytes,
                         g->tensors[i].name, err);
    for (uint32_t i = 0; i < g->n_ops && !rc; i++)
        if (p->ops[i].scratch_bytes)
            rc = reach_space(p, CUDA_WORK, p->ops[i].scratch_off, p->ops[i].scratch_bytes,
                             g->ops[i].name, err);
    p->is_finished = rc == SH_OK;
    return rc;
}

/* ------------------------------------------------------------------ running */

int cuda__begin(const struct cuda_plan *p, const struct dev_bases *b, struct cuda_call *c,
                struct sh_err *err)
{
    const size_t off[CUDA_N_SPACES] = {b->image, b->state, b->workspace, b->tables};
    struct cuda_dev *d = cuda__dev(p);

    if (!p->is_finished)
        return SH_FAIL(err, SH_E_BUG, "the plan is not finished");
    for (int i = 0; i < CUDA_N_SPACES; i++) {
        size_t end;

        if (p->extent[i] == 0)
            continue;
        if (i == CUDA_TABLES && b->host_tables) {
            if (p->extent[i] > b->host_bytes || (uintptr_t)b->host_tables % DEV_ALIGN != 0)
                return SH_FAIL(err, SH_E_BUG, "%zu bytes of tables are not in %zu of host memory",
                               p->extent[i], b->host_bytes);
            c->base[i] = (unsigned char *)(uintptr_t)b->host_tables; /* only read */
            continue;
        }
        if (sh_add_size(off[i], p->extent[i], &end, NULL) || end > d->base.arena_bytes ||
            off[i] % DEV_ALIGN != 0)
            return SH_FAIL(err, SH_E_BUG, "%zu bytes at %zu do not lie in the arena of %zu bytes",
                           p->extent[i], off[i], d->base.arena_bytes);
        c->base[i] = d->arena + off[i];
    }
    c->dev = d;
    c->plan = p;
    c->stream = d->stream;
    c->step = b->step;
    c->turn = b->turn;
    return SH_OK;
}

void *cuda__ptr(const struct cuda_call *c, uint32_t tensor)
{
    return c->base[c->plan->tensors[tensor].space] + tensor_offset(c->plan, tensor);
}

/* Parameters in the forms that operations want, all in a few launches. */
static int refresh_keep(const struct cuda_plan *p, const struct cuda_call *c, struct sh_err *err)
{
    struct k_convert_item items[K_CONVERT_BATCH];
    int n = 0;

    for (uint32_t i = 0; i < p->n_keep; i++) {
        const struct cuda_keep *k = &p->keep[i];
        const struct dev_tensor *t = &p->base.g->tensors[k->tensor];
        bool is_nhwc = k->form.layout == CUDA_NHWC && t->rank == 4;

        items[n] = (struct k_convert_item){.src = cuda__ptr(c, k->tensor),
                                           .dst = c->base[CUDA_WORK] + p->keep_off + k->off,
                                           .outer = is_nhwc ? t->dims[0] : dev_tensor_elements(t),
                                           .c = is_nhwc ? t->dims[1] : 1,
                                           .inner = is_nhwc ? t->dims[2] * t->dims[3] : 1};
        n++;
        if (n == K_CONVERT_BATCH || i + 1 == p->n_keep ||
            p->keep[i + 1].form.type != k->form.type) {
            k_convert_many(c->stream, items, n, (int)k->form.type);
            n = 0;
        }
    }
    return cuda__check(cudaGetLastError(), "convert the parameters of a step", err);
}

static void *operand_bytes(const struct cuda_call *c, uint32_t tensor)
{
    return tensor == DEV_NONE ? NULL : cuda__ptr(c, tensor);
}

static void move_all(const struct cuda_call *c, const struct cuda_move *moves, uint32_t n,
                     unsigned char *scratch, bool before)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct cuda_move *m = &moves[i];
        const bool overflows = cuda__overflows(c);
        const struct k_operand stored = {(unsigned char *)cuda__ptr(c, m->tensor) + m->stored_off,
                                         (int)c->plan->tensors[m->tensor].form.type, overflows};
        const struct k_operand moved = {scratch + m->scratch_off, (int)m->form.type, overflows};

        k_convert(c->stream, &m->nd, before ? stored : moved, before ? moved : stored);
    }
}

int cuda__run_op(struct cuda_plan *p, struct cuda_call *c, uint32_t i, struct sh_err *err)
{
    const struct cuda_op *co = &p->ops[i];
    const struct dev_op *op = &p->base.g->ops[i];
    unsigned char *scratch = c->base[CUDA_WORK] + co->scratch_off;
    int rc;

    if (!co->run)
        return SH_OK;
    c->op = op;
    c->index = i;
    c->aux = co->aux;
    c->scratch = scratch + co->own_off;
    for (uint32_t k = 0; k < DEV_MAX_IN; k++)
        c->in[k] = k >= op->n_in ? NULL
                   : co->keep_in[k]
                       ? c->base[CUDA_WORK] + p->keep_off + p->keep[co->keep_in[k] - 1].off
                       : operand_bytes(c, op->in[k]);
    for (uint32_t k = 0; k < DEV_MAX_OUT; k++)
        c->out[k] = k < op->n_out ? operand_bytes(c, op->out[k]) : NULL;
    for (uint32_t k = 0; k < co->n_before; k++)
        c->in[co->before[k].slot] = scratch + co->before[k].scratch_off;
    for (uint32_t k = 0; k < co->n_after; k++)
        c->out[co->after[k].slot] = scratch + co->after[k].scratch_off;
    move_all(c, co->before, co->n_before, scratch, true);
    rc = co->run(c, err);
    if (rc || !co->n_after)
        return rc;
    move_all(c, co->after, co->n_after, scratch, false);
    return cuda__launched(c, err);
}

int cuda__run_range(struct cuda_plan *p, struct cuda_call *c, uint32_t from, uint32_t to,
                    struct sh_err *err)
{
    int rc = SH_OK;

    if (from == 0 && p->n_keep)
        rc = refresh_keep(p, c, err);
    for (uint32_t i = from; i < to && !rc; i++)
        if (!cuda__record_run(p, c, i, &rc, err))
            rc = cuda__run_op(p, c, i, err);
    return rc;
}

int cuda__enqueue(struct cuda_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                  struct sh_err *err)
{
    struct cuda_call c = {.step = 0};
    int rc = cuda__begin(p, b, &c, err);

    return rc ? rc : cuda__run_range(p, &c, from, to, err);
}

int cuda__plan_run(struct dev_plan *base, const struct dev_bases *b, uint32_t from, uint32_t to,
                   struct sh_err *err)
{
    struct cuda_plan *p = plan_of(base);
    int rc = cuda__dev(p)->debug_fault ? cuda__debug_fault(p, err) : SH_OK;

    if (rc)
        return rc;
    cuda__dev(p)->running = p;
    if (cuda__graph_launch(p, b, from, to, &rc, err))
        return rc;
    return cuda__enqueue(p, b, from, to, err);
}

int cuda__plan_prepare(struct dev_plan *base, const struct dev_bases *b, uint32_t from, uint32_t to,
                       struct sh_err *err)
{
    struct cuda_plan *p = plan_of(base);

    return p->is_training ? SH_OK : cuda__graph_capture(p, b, from, to, err);
}
