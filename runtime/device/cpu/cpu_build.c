/* cpu_build.c - what the builders share: layouts of operands, steps, primitive descriptors. */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_STEPS 64

/* ------------------------------------------------------------------ errors */

int cpu__refuse(struct cpu_build *b, int rc, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    SH_FAIL(b->err, rc, "%s (node \"%s\"): %s", dev_op_name(b->op->kind),
            b->op->name ? b->op->name : "?", text);
    return b->err->rc;
}

int cpu__status(struct cpu_build *b, dnnl_status_t s, const char *what)
{
    if (s == dnnl_success)
        return b->err->rc;
    if (s == dnnl_out_of_memory)
        return cpu__refuse(b, SH_E_NOMEM, "could not allocate memory for %s", what);
    if (s == dnnl_unimplemented)
        return cpu__refuse(b, SH_E_UNSUPPORTED, "the cpu device has no %s for these shapes", what);
    return cpu__refuse(b, SH_E_UNSUPPORTED, "the cpu device refuses this %s (oneDNN status %d)",
                       what, (int)s);
}

/* ------------------------------------------------------------------ descriptors */

bool cpu__type(enum sh_dtype t, dnnl_data_type_t *out)
{
    switch (t) {
    case SH_F32:
        *out = dnnl_f32;
        return true;
    case SH_I32:
        *out = dnnl_s32;
        return true;
    case SH_U8:
    case SH_BOOL:
        *out = dnnl_u8;
        return true;
    case SH_I8:
        *out = dnnl_s8;
        return true;
    default:
        return false;
    }
}

int cpu__md_plain(uint32_t rank, const int64_t *dims, dnnl_data_type_t type,
                  dnnl_memory_desc_t *out)
{
    dnnl_dims_t own = {1}, strides = {1}; /* rank 0: one element */

    for (uint32_t i = 0; i < rank; i++)
        own[i] = dims[i];
    rank = SH_MAX(rank, 1);
    cpu__strides(rank, own, strides);
    return dnnl_memory_desc_init_by_strides(out, (int)rank, own, type, strides) == dnnl_success
               ? SH_OK
               : SH_E_BUG;
}

dnnl_status_t cpu__pd(struct cpu_build *b, const void *desc, const_dnnl_post_ops_t po,
                      const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out)
{
    const struct cpu_dev *d = (const struct cpu_dev *)b->plan->base.dev;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(&attr);

    *out = NULL;
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success && po)
        s = dnnl_primitive_attr_set_post_ops(attr, po);
    if (s == dnnl_success)
        s = dnnl_primitive_desc_create(out, desc, attr, d->engine, hint);
    dnnl_primitive_attr_destroy(attr);
    return s;
}

const dnnl_memory_desc_t *cpu__pd_md(const_dnnl_primitive_desc_t pd, int arg)
{
    return dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
}

bool cpu__pd_is_slow(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;

    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success || !name)
        return true;
    return strncmp(name, "ref", 3) == 0;
}

/* ------------------------------------------------------------------ checks */

int cpu__need_f32(struct cpu_build *b, const uint32_t *tensors, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (tensors[i] != DEV_NONE && cpu__t(b, tensors[i])->dtype != SH_F32)
            return cpu__refuse(b, SH_E_UNSUPPORTED, "tensor \"%s\" is %s; only F32 can be computed",
                               cpu__t(b, tensors[i])->name,
                               sh_dtype_st(cpu__t(b, tensors[i])->dtype));
    return b->err->rc;
}

int cpu__same_shape(struct cpu_build *b, uint32_t x, uint32_t y)
{
    const struct dev_tensor *s = cpu__t(b, x), *t = cpu__t(b, y);

    return dev_same_dims(s, t)
               ? b->err->rc
               : cpu__refuse(b, SH_E_BUG, "tensors \"%s\" and \"%s\" differ in shape", s->name,
                             t->name);
}

int cpu__axis(struct cpu_build *b, uint32_t tensor, int64_t axis, uint32_t *out)
{
    return dev_axis_of(cpu__t(b, tensor), axis, out)
               ? b->err->rc
               : cpu__refuse(b, SH_E_BUG, "axis %lld does not exist", (long long)axis);
}

/* ------------------------------------------------------------------ steps */

struct cpu_ref cpu__scratch(struct cpu_build *b, size_t bytes)
{
    struct cpu_ref r = {.tensor = DEV_NONE, .off = b->co->scratch_bytes};

    b->co->scratch_bytes += SH_ALIGN_UP(bytes, (size_t)DEV_ALIGN);
    return r;
}

static struct cpu_step *add_plan_step(struct cpu_build *b, uint32_t n)
{
    struct cpu_op *co = b->co;
    struct cpu_step *s;

    if (cpu__failed(b) || sh_grow(&co->steps, &co->cap_steps, co->n_steps + 1, sizeof(*co->steps),
                                  MAX_STEPS, "steps of an operation", b->err))
        return NULL;
    s = &co->steps[co->n_steps++];
    *s = (struct cpu_step){.n = n};
    s->refs = calloc(n ? n : 1, sizeof(*s->refs));
    s->last = calloc(n ? n : 1, sizeof(*s->last));
    if (!s->refs || !s->last) {
        cpu__refuse(b, SH_E_NOMEM, "could not allocate a step");
        return NULL;
    }
    return s;
}

/* A memory object without memory: the pointer is set when the plan runs. */
static int bind_arg(struct cpu_build *b, struct cpu_step *s, uint32_t i,
                    const struct cpu_bind *bind)
{
    const struct cpu_dev *d = (const struct cpu_dev *)b->plan->base.dev;
    const dnnl_memory_desc_t *md = bind->md ? bind->md : cpu__pd_md(s->pd, bind->arg);

    s->refs[i] = bind->ref;
    s->args[i].arg = bind->arg;
    return cpu__status(b, dnnl_memory_create(&s->args[i].memory, md, d->engine, DNNL_MEMORY_NONE),
                       "memory object");
}

int cpu__step_prim(struct cpu_build *b, dnnl_primitive_desc_t pd, const struct cpu_bind *binds,
                   uint32_t n)
{
    const dnnl_memory_desc_t *pad =
        cpu__failed(b) ? NULL : dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    size_t pad_bytes = pad ? dnnl_memory_desc_get_size(pad) : 0;
    struct cpu_step *s = add_plan_step(b, n + (pad_bytes > 0));

    if (!s) {
        if (pd)
            dnnl_primitive_desc_destroy(pd);
        return b->err->rc;
    }
    s->pd = pd;
    s->args = calloc(s->n ? s->n : 1, sizeof(*s->args));
    if (!s->args)
        return cpu__refuse(b, SH_E_NOMEM, "could not allocate a step");
    for (uint32_t i = 0; i < n; i++)
        bind_arg(b, s, i, &binds[i]);
    if (pad_bytes > 0)
        bind_arg(b, s, n, &(struct cpu_bind){DNNL_ARG_SCRATCHPAD, cpu__scratch(b, pad_bytes), pad});
    return b->err->rc;
}

int cpu__step_fn(struct cpu_build *b, cpu_fn *fn, const struct cpu_ref *refs, uint32_t n,
                 const void *aux, size_t bytes)
{
    struct cpu_step *s = add_plan_step(b, n);

    if (!s)
        return b->err->rc;
    s->fn = fn;
    memcpy(s->refs, refs, n * sizeof(*refs));
    if (!bytes)
        return SH_OK;
    s->aux = malloc(bytes);
    if (!s->aux)
        return cpu__refuse(b, SH_E_NOMEM, "could not allocate a step");
    memcpy(s->aux, aux, bytes);
    return SH_OK;
}

int cpu__step_plain(struct cpu_build *b, cpu_fn *fn, const void *aux, size_t bytes)
{
    struct cpu_ref refs[DEV_MAX_IN + DEV_MAX_OUT];
    const uint32_t n = cpu__all_plain(b, refs);

    return cpu__step_fn(b, fn, refs, n, aux, bytes);
}

int cpu__step_reorder(struct cpu_build *b, struct cpu_ref from, const dnnl_memory_desc_t *have,
                      struct cpu_ref to, const dnnl_memory_desc_t *want)
{
    const struct cpu_dev *d = (const struct cpu_dev *)b->plan->base.dev;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    struct cpu_bind binds[] = {{DNNL_ARG_FROM, from, have}, {DNNL_ARG_TO, to, want}};
    dnnl_status_t s;

    if (cpu__failed(b))
        return b->err->rc;
    s = dnnl_primitive_attr_create(&attr);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success)
        s = dnnl_reorder_primitive_desc_create(&pd, have, d->engine, want, d->engine, attr);
    dnnl_primitive_attr_destroy(attr);
    cpu__status(b, s, "reorder");
    return cpu__step_prim(b, pd, binds, SH_ARRAY_LEN(binds));
}

void cpu__op_fini(struct cpu_op *co)
{
    for (size_t i = 0; i < co->n_steps; i++) {
        struct cpu_step *s = &co->steps[i];

        for (uint32_t k = 0; s->args && k < s->n; k++)
            if (s->args[k].memory)
                dnnl_memory_destroy(s->args[k].memory);
        if (s->prim)
            dnnl_primitive_destroy(s->prim);
        if (s->pd)
            dnnl_primitive_desc_destroy(s->pd);
        free(s->refs);
        free(s->args);
        free(s->last);
        free(s->aux);
    }
    free(co->steps);
    *co = (struct cpu_op){0};
}

/* ------------------------------------------------------------------ operands */

static bool same_dims(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b)
{
    return a->ndims == b->ndims &&
           memcmp(a->dims, b->dims, (size_t)a->ndims * sizeof(a->dims[0])) == 0;
}

/* Row-major with the dimensions that the operation uses: [M,C/g,h,w] seen as [g,M/g,C/g,h,w]. */
static int row_major_like(struct cpu_build *b, const dnnl_memory_desc_t *like, uint32_t tensor,
                          dnnl_memory_desc_t *out)
{
    return cpu__md_plain((uint32_t)like->ndims, like->dims, like->data_type, out)
               ? cpu__refuse(b, SH_E_BUG, "no row-major form of tensor \"%s\"",
                             cpu__t(b, tensor)->name)
               : SH_OK;
}

struct cpu_tensor *cpu__stored(const struct cpu_build *b, uint32_t tensor)
{
    struct cpu_tensor *ts = b->plan->tensors;
    const uint32_t root = ts[tensor].root;

    return &ts[cpu__t(b, root)->role == DEV_ROLE_WEIGHT ? root : tensor];
}

struct cpu_ref cpu__in_plain(struct cpu_build *b, uint32_t tensor)
{
    const struct cpu_ref from = {.tensor = tensor};
    struct cpu_tensor *t = cpu__stored(b, tensor);
    struct cpu_ref out;

    t->is_fixed = true;
    if (!t->is_blocked || cpu__same_bytes(&t->lay->md, &t->lay->plain))
        return from;
    out = cpu__scratch(b, dnnl_memory_desc_get_size(&t->lay->plain));
    cpu__step_reorder(b, from, &t->lay->md, out, &t->lay->plain);
    return out;
}

struct cpu_ref cpu__in(struct cpu_build *b, uint32_t tensor, const dnnl_memory_desc_t *view,
                       const dnnl_memory_desc_t *want)
{
    struct cpu_tensor *t = cpu__stored(b, tensor);
    struct cpu_ref from = {.tensor = tensor}, out;
    dnnl_memory_desc_t seen;

    if (cpu__failed(b))
        return from;
    if (view)
        seen = *view;
    else if (same_dims(&t->lay->plain, want))
        seen = t->lay->plain;
    else if (row_major_like(b, want, tensor, &seen))
        return from;
    if (!t->is_fixed) { /* nobody has laid out this weight yet */
        t->lay->md = *want;
        t->lay->plain = seen;
        t->is_fixed = true;
        t->is_blocked = !dnnl_memory_desc_equal(want, &seen);
        return from;
    }
    if (t->is_blocked && same_dims(&t->lay->md, want) &&
        dnnl_memory_desc_equal(&t->lay->plain, &seen)) {
        seen = t->lay->md; /* from what is stored at once */
    } else {
        from = cpu__in_plain(b, tensor);
    }
    if (cpu__same_bytes(&seen, want))
        return from;
    out = cpu__scratch(b, dnnl_memory_desc_get_size(want));
    cpu__step_reorder(b, from, &seen, out, want);
    return out;
}

struct cpu_ref cpu__out(struct cpu_build *b, uint32_t tensor, const dnnl_memory_desc_t *have,
                        bool may_keep)
{
    struct cpu_tensor *t = &b->plan->tensors[tensor];
    struct cpu_ref out = {.tensor = tensor};
    dnnl_memory_desc_t want;

    if (cpu__failed(b))
        return out;
    if (!t->is_fixed && may_keep && same_dims(&t->lay->plain, have)) {
        t->lay->md = *have;
        t->is_blocked = !dnnl_memory_desc_equal(have, &t->lay->plain);
    }
    t->is_fixed = true;
    want = t->lay->md;
    if ((!same_dims(&want, have) && row_major_like(b, have, tensor, &want)) ||
        cpu__same_bytes(&want, have))
        return out;
    if (b->n_late == CPU_MAX_LATE) {
        cpu__refuse(b, SH_E_BUG, "too many results to reorder");
        return out;
    }
    out = cpu__scratch(b, dnnl_memory_desc_get_size(have));
    b->late[b->n_late++] =
        (struct cpu_late){.from = out, .have = *have, .want = want, .tensor = tensor};
    return out;
}

struct cpu_ref cpu__out_plain(struct cpu_build *b, uint32_t tensor)
{
    struct cpu_tensor *t = &b->plan->tensors[tensor];

    if (t->has_md)
        return cpu__out(b, tensor, &t->lay->plain, true);
    t->is_fixed = true;
    return (struct cpu_ref){.tensor = tensor};
}

uint32_t cpu__all_plain(struct cpu_build *b, struct cpu_ref *refs)
{
    const struct dev_op *op = b->op;
    uint32_t n = 0;

    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] != DEV_NONE)
            refs[n++] = cpu__in_plain(b, op->in[i]);
    for (uint32_t i = 0; i < op->n_out; i++)
        if (op->out[i] != DEV_NONE)
            refs[n++] = cpu__out_plain(b, op->out[i]);
    return n;
}

/* The primitive knows its description, and shares it with its like; ours is another copy. */
int cpu__step_finish(struct cpu_build *b, struct cpu_step *s)
{
    if (cpu__failed(b) || !s->pd || s->prim ||
        cpu__status(b, dnnl_primitive_create(&s->prim, s->pd), "primitive"))
        return b->err->rc;
    dnnl_primitive_desc_destroy(s->pd);
    s->pd = NULL;
    return SH_OK;
}

int cpu__build_end(struct cpu_build *b)
{
    for (uint32_t i = 0; i < b->n_late; i++) {
        struct cpu_late *l = &b->late[i];

        cpu__step_reorder(b, l->from, &l->have, (struct cpu_ref){.tensor = l->tensor}, &l->want);
    }
    b->n_late = 0;
    if (!cpu__failed(b))
        sh_shrink(&b->co->steps, &b->co->cap_steps, b->co->n_steps, sizeof(*b->co->steps));
    return b->err->rc;
}
