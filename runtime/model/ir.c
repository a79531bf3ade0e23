/* ir.c - building and cleaning a dev_graph. */
#include "runtime/model/ir.h"

#include "common/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int ir_new(struct ir **out, struct sh_err *err)
{
    struct ir *ir = calloc(1, sizeof(*ir));

    *out = ir;
    if (!ir)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a device graph");
    ir->loss = ir->scaler = ir->masked = DEV_NONE;
    ir->none = calloc(1, sizeof(*ir->none));
    if (!ir->none)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a device graph");
    ir->none->info.grad = ir->none->tensor.alias_of = DEV_NONE;
    ir->none->tensor.name = "";
    ir->none->tensor.rank = SH_MAX_RANK;
    for (uint32_t i = 0; i < SH_MAX_RANK; i++)
        ir->none->tensor.dims[i] = 1;
    return SH_OK;
}

static void free_info(struct ir_info *info)
{
    free(info->owned);
    free(info->ctx);
}

void ir_free(struct ir *ir)
{
    if (!ir)
        return;
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        free_info(&ir->info[i]);
    for (size_t i = 0; i < ir->n_names; i++)
        free(ir->names[i]);
    free(ir->names);
    free(ir->none);
    free(ir->info);
    free(ir->commits);
    free(ir->inputs);
    free(ir->outputs);
    free(ir->g.tensors);
    free(ir->g.ops);
    free(ir);
}

uint32_t ir_tensor(struct ir *ir, const char *name, enum sh_dtype t, enum dev_role role,
                   uint32_t rank, const int64_t *dims)
{
    uint32_t n = ir->g.n_tensors;
    struct dev_tensor *d;

    if (rank > SH_MAX_RANK)
        IR_FAIL(ir, SH_E_UNSUPPORTED, "\"%s\" has %u dimensions, at most %d are supported", name,
                rank, SH_MAX_RANK);
    if (ir->err.rc ||
        sh_grow(&ir->g.tensors, &ir->cap_tensors, (size_t)n + 1, sizeof(*ir->g.tensors),
                IR_MAX_TENSORS, "tensors of a program", &ir->err) ||
        sh_grow(&ir->info, &ir->cap_info, (size_t)n + 1, sizeof(*ir->info), IR_MAX_TENSORS,
                "tensors of a program", &ir->err))
        return DEV_NONE;
    d = &ir->g.tensors[n];
    *d = (struct dev_tensor){
        .name = name, .dtype = t, .role = role, .rank = rank, .alias_of = DEV_NONE};
    for (uint32_t i = 0; i < rank; i++)
        d->dims[i] = dims[i];
    ir->info[n] = (struct ir_info){.grad = DEV_NONE};
    ir->g.n_tensors++;
    return n;
}

uint32_t ir_like(struct ir *ir, uint32_t like, const char *name, enum dev_role role)
{
    struct dev_tensor l = *ir_t(ir, like); /* a copy: the array may move */

    return ir_tensor(ir, name, l.dtype, role, l.rank, l.dims);
}

uint32_t ir_root(const struct ir *ir, uint32_t t)
{
    return ir_t(ir, t)->alias_of == DEV_NONE ? t : ir_t(ir, t)->alias_of;
}

static bool dims_equal(const struct dev_tensor *t, uint32_t rank, const int64_t *dims)
{
    if (t->rank != rank)
        return false;
    for (uint32_t i = 0; i < rank; i++)
        if (t->dims[i] != dims[i])
            return false;
    return true;
}

uint32_t ir_alias(struct ir *ir, uint32_t t, uint32_t rank, const int64_t *dims)
{
    uint32_t root = ir_root(ir, t), out;
    struct dev_tensor r = *ir_t(ir, root);
    int64_t n = 1;

    if (dims_equal(ir_t(ir, t), rank, dims))
        return t;
    if (dims_equal(&r, rank, dims))
        return root;
    for (uint32_t i = 0; i < rank; i++)
        n *= dims[i];
    if (n != ir_elements(ir, t))
        IR_FAIL(ir, SH_E_BUG, "\"%s\" has %lld elements and cannot be seen as %lld", r.name,
                (long long)ir_elements(ir, t), (long long)n);
    out = ir_tensor(ir, r.name, r.dtype, r.role, rank, dims);
    ir_t(ir, out)->alias_of = root;
    return out;
}

void *ir_alloc(struct ir *ir, int64_t n, size_t element)
{
    void *p = ir->err.rc ? NULL : calloc((size_t)SH_MAX(n, 1), element);

    if (!p)
        IR_FAIL(ir, SH_E_NOMEM, "could not allocate %lld numbers of a constant", (long long)n);
    return p;
}

uint32_t ir_const(struct ir *ir, const char *name, enum dev_role role, enum sh_dtype t,
                  uint32_t rank, const int64_t *dims, void *data)
{
    uint32_t out = ir_tensor(ir, name, t, role, rank, dims);

    if (out == DEV_NONE)
        free(data);
    else
        ir->info[out].data = ir->info[out].owned = data;
    return out;
}

uint32_t ir_later(struct ir *ir, const struct dev_tensor *like, const char *name, ir_fill *fill,
                  void *ctx)
{
    const struct dev_tensor l = *like; /* it may lie in what grows here */
    uint32_t out = ir_tensor(ir, name, l.dtype, DEV_ROLE_WEIGHT, l.rank, l.dims);

    if (out == DEV_NONE) {
        free(ctx);
        return out;
    }
    ir->info[out].fill = fill;
    ir->info[out].ctx = ctx;
    return out;
}

bool ir_is_given(const struct ir *ir, uint32_t t)
{
    const struct ir_info *info = ir_info(ir, ir_root(ir, t));

    return info->data && !info->owned;
}

const void *ir_settle(struct ir *ir, uint32_t t)
{
    uint32_t r = ir_root(ir, t);
    struct ir_info *info = ir_info(ir, r);
    void *data;

    if (info->fill && !info->data) {
        data = ir_alloc(ir, ir_elements(ir, r), sh_dtype_bytes(ir_t(ir, r)->dtype));
        if (data)
            info->fill(info->ctx, data);
        info->data = info->owned = data;
    }
    return ir->err.rc ? NULL : ir_data(ir, t);
}

const char *ir_name(struct ir *ir, const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    int n;

    if (ir->err.rc || sh_grow(&ir->names, &ir->cap_names, ir->n_names + 1, sizeof(*ir->names),
                              IR_MAX_TENSORS, "names of a program", &ir->err))
        return "";
    va_start(ap, fmt);
    n = vasprintf(&s, fmt, ap);
    va_end(ap);
    if (n < 0) {
        IR_FAIL(ir, SH_E_NOMEM, "could not allocate a name");
        return "";
    }
    ir->names[ir->n_names++] = s;
    return s;
}

struct dev_op ir_op(enum dev_op_kind k, const char *name, uint32_t n_in, const uint32_t *in)
{
    struct dev_op op;

    memset(&op, 0, sizeof(op)); /* the union too */
    op.kind = k;
    op.name = name;
    op.n_in = n_in;
    for (uint32_t i = 0; i < n_in; i++)
        op.in[i] = in[i];
    return op;
}

void ir_push(struct ir *ir, const struct dev_op *op)
{
    if (ir->err.rc == SH_OK &&
        sh_grow(&ir->g.ops, &ir->cap_ops, (size_t)ir->g.n_ops + 1, sizeof(*ir->g.ops), IR_MAX_OPS,
                "operations of a program", &ir->err) == SH_OK)
        ir->g.ops[ir->g.n_ops++] = *op;
}

uint32_t ir_emit(struct ir *ir, struct dev_op *op, enum sh_dtype t, uint32_t rank,
                 const int64_t *dims)
{
    const uint32_t out = ir_tensor(ir, op->name, t, DEV_ROLE_ACT, rank, dims);

    op->out[op->n_out++] = out;
    ir_push(ir, op);
    return out;
}

uint32_t ir_emit_like(struct ir *ir, struct dev_op *op, uint32_t like)
{
    struct dev_tensor l = *ir_t(ir, like);

    return ir_emit(ir, op, l.dtype, l.rank, l.dims);
}

uint32_t ir_binary(struct ir *ir, enum dev_bin k, const char *name, uint32_t a, uint32_t b,
                   uint32_t like)
{
    struct dev_op op = ir_op(DEV_OP_BINARY, name, 2, (uint32_t[]){a, b});

    op.u.binary.kind = k;
    return ir_emit_like(ir, &op, like);
}

uint32_t ir_act(struct ir *ir, enum dev_act act, float p0, float p1, const char *name, uint32_t x)
{
    struct dev_op op = ir_op(DEV_OP_ACT, name, 1, &x);

    op.act = act;
    op.act_p0 = p0;
    op.act_p1 = p1;
    return ir_emit_like(ir, &op, x);
}

static uint32_t concat(struct ir *ir, const char *name, const uint32_t *in, uint32_t n,
                       uint32_t axis)
{
    struct dev_op op = ir_op(DEV_OP_CONCAT, name, n, in);
    struct dev_tensor d = *ir_t(ir, in[0]);

    if (n == 1)
        return in[0];
    for (uint32_t i = 1; i < n; i++)
        d.dims[axis] += ir_t(ir, in[i])->dims[axis];
    op.u.axis.axis = axis;
    return ir_emit(ir, &op, d.dtype, d.rank, d.dims);
}

uint32_t ir_joined(struct ir *ir, const char *name, uint32_t *in, uint32_t n, uint32_t axis)
{
    while (n > 1) {
        uint32_t left = 0;

        for (uint32_t i = 0; i < n; i += DEV_MAX_IN)
            in[left++] = concat(ir, name, &in[i], SH_MIN(n - i, (uint32_t)DEV_MAX_IN), axis);
        n = left;
    }
    return in[0];
}

int64_t ir_elements(const struct ir *ir, uint32_t t)
{
    const struct dev_tensor *d = ir_t(ir, t);
    int64_t n = 1;

    for (uint32_t i = 0; i < d->rank; i++)
        n *= d->dims[i];
    return n;
}

bool ir_same_shape(const struct ir *ir, uint32_t a, uint32_t b)
{
    return dims_equal(ir_t(ir, a), ir_t(ir, b)->rank, ir_t(ir, b)->dims);
}

bool ir_is_const(const struct ir *ir, uint32_t t)
{
    const struct ir_info *info = ir_info(ir, ir_root(ir, t));

    return info->state == IR_NO_STATE && (info->data || info->fill);
}

const void *ir_data(const struct ir *ir, uint32_t t)
{
    const struct ir_info *info = ir_info(ir, ir_root(ir, t));

    return info->state == IR_NO_STATE ? info->data : NULL;
}

void ir_kill(struct dev_op *op)
{
    op->kind = IR_DEAD;
}

void ir_sweep(struct ir *ir)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < ir->g.n_ops; i++)
        if (ir->g.ops[i].kind != IR_DEAD)
            ir->g.ops[n++] = ir->g.ops[i];
    ir->g.n_ops = n;
}

void ir_drop_unused(struct ir *ir)
{
    bool *live = ir_alloc(ir, ir->g.n_tensors, sizeof(*live));

    if (!live)
        return;
    for (uint32_t i = 0; i < ir->n_outputs; i++)
        live[ir_root(ir, ir->outputs[i])] = true;
    if (ir->loss != DEV_NONE)
        live[ir_root(ir, ir->loss)] = true;
    for (size_t i = 0; i < ir->n_commits; i++)
        live[ir_root(ir, ir->commits[i].src)] = true;
    for (uint32_t i = ir->g.n_ops; i-- > 0;) {
        struct dev_op *op = &ir->g.ops[i];
        bool needed = op->n_out == 0; /* an update in place */

        for (uint32_t k = 0; k < op->n_out; k++)
            needed |= op->out[k] != DEV_NONE && (live[ir_root(ir, op->out[k])] ||
                                                 ir_t(ir, op->out[k])->role == DEV_ROLE_STATE);
        if (!needed) {
            ir_kill(op);
            continue;
        }
        for (uint32_t k = 0; k < op->n_in; k++)
            if (op->in[k] != DEV_NONE)
                live[ir_root(ir, op->in[k])] = true;
    }
    ir_sweep(ir);
    free(live);
}

/* Calls fn on every tensor number that the ir holds outside of the table of tensors. */
static void each_ref(struct ir *ir, void (*fn)(void *ctx, uint32_t *t), void *ctx)
{
    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        struct dev_op *op = &ir->g.ops[i];

        for (uint32_t k = 0; k < op->n_in; k++)
            fn(ctx, &op->in[k]);
        for (uint32_t k = 0; k < op->n_out; k++)
            fn(ctx, &op->out[k]);
    }
    for (uint32_t i = 0; i < ir->n_inputs; i++)
        fn(ctx, &ir->inputs[i]);
    for (uint32_t i = 0; i < ir->n_outputs; i++)
        fn(ctx, &ir->outputs[i]);
    for (size_t i = 0; i < ir->n_commits; i++) {
        fn(ctx, &ir->commits[i].src);
        fn(ctx, &ir->commits[i].dst);
    }
    for (uint32_t i = 0; i < ir->n_labels; i++)
        fn(ctx, &ir->labels[i]);
    fn(ctx, &ir->loss);
    fn(ctx, &ir->scaler);
    fn(ctx, &ir->masked);
}

struct compact {
    struct ir *ir;
    uint32_t *to; /* old number -> new; first 0 or 1: is it used? */
};

static void mark_ref(void *ctx, uint32_t *t)
{
    struct compact *c = ctx;

    if (*t == DEV_NONE)
        return;
    c->to[*t] = 1;
    c->to[ir_root(c->ir, *t)] = 1;
}

static void move_ref(void *ctx, uint32_t *t)
{
    struct compact *c = ctx;

    if (*t != DEV_NONE)
        *t = c->to[*t];
}

int ir_compact(struct ir *ir, struct sh_err *err)
{
    struct compact c = {.ir = ir, .to = calloc(ir->g.n_tensors + 1u, sizeof(uint32_t))};
    uint32_t n = 0, n_old = ir->g.n_tensors;

    if (!c.to)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the numbers of %u tensors", n_old);
    each_ref(ir, mark_ref, &c);
    for (uint32_t i = 0; i < n_old; i++)
        if (c.to[i] && ir->info[i].grad != DEV_NONE)
            mark_ref(&c, &ir->info[i].grad);
    for (uint32_t i = 0; i < n_old; i++) {
        if (!c.to[i]) {
            free_info(&ir->info[i]);
            continue;
        }
        ir->g.tensors[n] = ir->g.tensors[i];
        ir->info[n] = ir->info[i];
        c.to[i] = n++;
    }
    ir->g.n_tensors = n;
    for (uint32_t i = 0; i < n; i++) {
        move_ref(&c, &ir->g.tensors[i].alias_of);
        move_ref(&c, &ir->info[i].grad);
    }
    each_ref(ir, move_ref, &c);
    free(c.to);
    sh_shrink(&ir->g.tensors, &ir->cap_tensors, n, sizeof(*ir->g.tensors));
    sh_shrink(&ir->info, &ir->cap_info, n, sizeof(*ir->info));
    sh_shrink(&ir->g.ops, &ir->cap_ops, ir->g.n_ops, sizeof(*ir->g.ops));
    return SH_OK;
}

bool ir_uses_init(struct ir_uses *u, struct ir *ir)
{
    const int64_t n = ir->g.n_tensors;

    *u = (struct ir_uses){.writer = ir_alloc(ir, n, sizeof(uint32_t)),
                          .reads = ir_alloc(ir, n, sizeof(uint32_t)),
                          .reader = ir_alloc(ir, n, sizeof(uint32_t))};
    if (!u->reader)
        return false;
    for (int64_t i = 0; i < n; i++)
        u->writer[i] = u->reader[i] = DEV_NONE;
    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        const struct dev_op *op = &ir->g.ops[i];

        if (op->kind == IR_DEAD)
            continue;
        for (uint32_t k = 0; k < op->n_in; k++) {
            if (op->in[k] == DEV_NONE)
                continue;
            u->reads[ir_root(ir, op->in[k])]++;
            u->reader[ir_root(ir, op->in[k])] = i;
        }
        for (uint32_t k = 0; k < op->n_out; k++)
            if (op->out[k] != DEV_NONE)
                u->writer[ir_root(ir, op->out[k])] = i;
    }
    for (uint32_t i = 0; i < ir->n_outputs; i++)
        u->reads[ir_root(ir, ir->outputs[i])]++;
    for (size_t i = 0; i < ir->n_commits; i++)
        u->reads[ir_root(ir, ir->commits[i].src)]++;
    return true;
}

void ir_uses_fini(struct ir_uses *u)
{
    free(u->writer);
    free(u->reads);
    free(u->reader);
    *u = (struct ir_uses){0};
}

bool ir_is_named(const struct ir *ir, uint32_t t, const json_t *globs)
{
    const char *of = ir->info[t].of;

    return train_names(globs, ir_t(ir, t)->name) || (of && train_names(globs, of));
}
