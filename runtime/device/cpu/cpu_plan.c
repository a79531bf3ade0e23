/* cpu_plan.c - a plan: one builder call per operation, then nothing but execution. */
#include "common/clock.h"
#include "common/mem.h"
#include "runtime/device/cpu/cpu_wide.h"
#include "runtime/device/cpu/cpu_wino.h"

#include <stdlib.h>

/* Weak: NULL of an operation that this back end does not have. */
#define DEV_OP(kind, in, max_in, out, max_out, builder) \
    extern cpu_builder cpu__##builder __attribute__((weak));
#include "runtime/device/op.def"
#undef DEV_OP

static cpu_builder *const BUILDERS[DEV_N_OPS] = {
#define DEV_OP(kind, in, max_in, out, max_out, builder) [DEV_OP_##kind] = cpu__##builder,
#include "runtime/device/op.def"
#undef DEV_OP
};

static struct cpu_plan *plan_of(const struct dev_plan *p)
{
    return (struct cpu_plan *)(uintptr_t)p;
}

static const struct cpu_dev *dev_of_plan(const struct cpu_plan *p)
{
    return (const struct cpu_dev *)p->base.dev;
}

/* ------------------------------------------------------------------ tensors */

static void init_tensor(struct cpu_plan *p, uint32_t i)
{
    const struct dev_tensor *t = &p->base.g->tensors[i];
    struct cpu_tensor *c = &p->tensors[i];
    dnnl_data_type_t type;

    c->lay = &p->layouts[i];
    c->producer = DEV_NONE;
    c->root = t->alias_of == DEV_NONE ? i : p->tensors[t->alias_of].root;
    switch (p->base.g->tensors[c->root].role) {
    case DEV_ROLE_WEIGHT:
        c->space = CPU_IMAGE;
        break;
    case DEV_ROLE_STATE:
        c->space = CPU_STATE;
        break;
    case DEV_ROLE_TABLE:
        c->space = CPU_TABLES;
        break;
    default:
        c->space = CPU_WORK;
    }
    c->has_md =
        cpu__type(t->dtype, &type) && !cpu__md_plain(t->rank, t->dims, type, &c->lay->plain);
    c->lay->md = c->lay->plain;
    c->is_fixed = !(t->role == DEV_ROLE_ACT || t->role == DEV_ROLE_WEIGHT) || !c->has_md ||
                  (t->dtype != SH_F32 && !dev_is8(t->dtype));
    if (t->alias_of != DEV_NONE && c->space == CPU_IMAGE) {
        c->is_fixed = true;               /* what counts is the layout of the root: cpu__stored() */
    } else if (t->alias_of != DEV_NONE) { /* both names see plain bytes */
        c->is_fixed = true;
        p->tensors[c->root].is_fixed = true;
        p->tensors[t->alias_of].is_fixed = true;
    }
}

/* The stored layouts of weights come from a plan of the same model: matched by name, since an
 * operation that only one batch size needs would shift the indices. */
static void share_layouts(struct cpu_plan *p, const struct cpu_plan *from)
{
    const struct dev_graph *g = p->base.g, *h = from->base.g;
    uint32_t k = 0;

    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct dev_tensor *t = &g->tensors[i];

        if (t->role != DEV_ROLE_WEIGHT || t->alias_of != DEV_NONE)
            continue;
        for (uint32_t tries = 0; tries < h->n_tensors; tries++, k = (k + 1) % h->n_tensors) {
            const struct dev_tensor *s = &h->tensors[k];

            if (s->role != DEV_ROLE_WEIGHT || s->alias_of != DEV_NONE || s->dtype != t->dtype ||
                strcmp(s->name, t->name) != 0 || dev_tensor_elements(s) != dev_tensor_elements(t))
                continue;
            if (from->tensors[k].has_md) {
                p->tensors[i].lay->md = from->tensors[k].lay->md;
                p->tensors[i].lay->plain = from->tensors[k].lay->plain;
                p->tensors[i].is_blocked = from->tensors[k].is_blocked;
                p->tensors[i].is_wino = from->tensors[k].is_wino;
            }
            p->tensors[i].is_fixed = true;
            break;
        }
    }
}

static enum pack_type packs_as(const struct cpu_plan *p, uint32_t i)
{
    const enum sh_dtype type = p->base.g->tensors[i].dtype;

    if (p->tensors[p->tensors[i].root].is_wide)
        return PACK_BYTES;
    return type == SH_F32    ? PACK_32
           : type == SH_F16  ? PACK_F16
           : type == SH_BF16 ? PACK_BF16
                             : PACK_BYTES;
}

static size_t stored_bytes(const struct cpu_plan *p, uint32_t i)
{
    const struct dev_tensor *t = &p->base.g->tensors[i];
    const struct cpu_tensor *c = &p->tensors[i];

    if (p->tensors[c->root].is_wide)
        return (size_t)dev_tensor_elements(t) * sizeof(double);
    if (c->has_md)
        return dnnl_memory_desc_get_size(&c->lay->md);
    return (size_t)dev_tensor_elements(t) * sh_dtype_bytes(t->dtype);
}

/* ------------------------------------------------------------------ building */

static int build_op(struct cpu_plan *p, uint32_t i, struct sh_err *err)
{
    const struct dev_op *op = &p->base.g->ops[i];
    struct sh_err first = {0};
    struct cpu_build b = {.plan = p, .op = op, .co = &p->ops[i], .index = i, .err = &first};

    if (!BUILDERS[op->kind])
        cpu__refuse(&b, SH_E_UNSUPPORTED, "the cpu device does not have this operation");
    else if (p->wide && p->wide->has(p->base.g, op))
        p->wide->build(&b);
    else
        BUILDERS[op->kind](&b);
    cpu__build_end(&b);
    /* At once, so that the next operation takes the memory; but a hint is asked for later. */
    for (size_t k = 0; k < p->ops[i].n_steps; k++)
        if (p->ops[i].steps[k].pd != p->ops[i].hint)
            cpu__step_finish(&b, &p->ops[i].steps[k]);
    for (uint32_t k = 0; k < op->n_out; k++)
        if (op->out[k] != DEV_NONE && p->tensors[op->out[k]].producer == DEV_NONE)
            p->tensors[op->out[k]].producer = i;
    return sh_err_copy(err, &first);
}

int cpu__plan_make(struct dev *d, struct dev_graph *g, const struct cpu_wide *wide,
                   const struct dev_plan *layout_of, struct dev_plan **out, struct sh_err *err)
{
    struct cpu_plan *p = NULL;
    int rc = SH_OK;

    *out = NULL;
    p = calloc(1, sizeof(*p));
    if (!p) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a plan");
        goto out;
    }
    p->base = (struct dev_plan){.dev = d, .g = g};
    p->threads = dev_of_plan(p)->threads;
    p->wide = wide;
    p->tensors = calloc(g->n_tensors ? g->n_tensors : 1, sizeof(*p->tensors));
    p->layouts = calloc(g->n_tensors ? g->n_tensors : 1, sizeof(*p->layouts));
    p->ops = calloc(g->n_ops ? g->n_ops : 1, sizeof(*p->ops));
    if (!p->tensors || !p->layouts || !p->ops) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a plan of %u operations", g->n_ops);
        goto out;
    }
    cpu__set_threads(p->threads);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        init_tensor(p, i);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (p->tensors[i].root == i && p->tensors[i].space == CPU_IMAGE)
            p->wino_room += stored_bytes(p, i) / 2;
    if (wide)
        wide->begin(p);
    if (!rc && layout_of)
        share_layouts(p, plan_of(layout_of));
    for (uint32_t i = 0; i < g->n_ops && !rc; i++)
        rc = build_op(p, i, err);
    if (rc)
        goto out;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        g->tensors[i].bytes = stored_bytes(p, i);
        g->tensors[i].stored = packs_as(p, i);
    }
    *out = &p->base;
    p = NULL;
out:
    cpu__plan_free(p ? &p->base : NULL);
    return rc;
}

int cpu__plan_new(struct dev *d, struct dev_graph *g, enum dev_precision precision,
                  const struct dev_plan *layout_of, struct dev_plan **out, struct sh_err *err)
{
    *out = NULL;
    if (precision == DEV_FP64)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "the cpu device computes in fp32; fp64 is for checking, of the back end "
                       "\"oracle\" that the tests build");
    if (precision != DEV_FP32 && precision != DEV_TF32)
        return SH_FAIL(
            err, SH_E_UNSUPPORTED,
            "the cpu device computes in fp32; %s needs tensors of 16 bits, which it does "
            "not store",
            precision == DEV_FP16 ? "fp16" : "bf16");
    return cpu__plan_make(d, g, NULL, layout_of, out, err);
}

void cpu__plan_free(struct dev_plan *base)
{
    struct cpu_plan *p = plan_of(base);
    int kept;

    if (!p)
        return;
    for (uint32_t i = 0; p->ops && i < p->base.g->n_ops; i++)
        cpu__op_fini(&p->ops[i]);
    free(p->ops);
    free(p->tensors);
    free(p->layouts);
    free(p);
    /* oneDNN keeps the last thousand primitives, whoever had them. */
    if (dnnl_get_primitive_cache_capacity(&kept) == dnnl_success) {
        dnnl_set_primitive_cache_capacity(0);
        dnnl_set_primitive_cache_capacity(kept);
    }
}

size_t cpu__plan_scratch_bytes(const struct dev_plan *p, uint32_t op)
{
    return plan_of(p)->ops[op].scratch_bytes;
}

void cpu__plan_set_scratch(struct dev_plan *p, uint32_t op, size_t ws_offset)
{
    plan_of(p)->ops[op].scratch_off = ws_offset;
}

/* ------------------------------------------------------------------ finishing */

/* The root's bytes are the alias's bytes, wherever the planner noted the alias to be. */
static size_t tensor_offset(const struct cpu_plan *p, uint32_t tensor)
{
    return p->base.g->tensors[p->tensors[tensor].root].offset;
}

static int check_plan_offsets(struct cpu_plan *p, struct sh_err *err)
{
    const struct dev_graph *g = p->base.g;

    memset(p->extent, 0, sizeof(p->extent));
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        size_t *extent = &p->extent[p->tensors[i].space], end;
        int rc = sh_add_size(tensor_offset(p, i), g->tensors[i].bytes, &end, err);

        if (rc)
            return rc;
        if (tensor_offset(p, i) % DEV_ALIGN != 0)
            return SH_FAIL(err, SH_E_BUG, "tensor \"%s\" is not aligned to %u bytes",
                           g->tensors[i].name, DEV_ALIGN);
        *extent = SH_MAX(*extent, end);
    }
    for (uint32_t i = 0; i < g->n_ops; i++) {
        size_t end;
        int rc = sh_add_size(p->ops[i].scratch_off, p->ops[i].scratch_bytes, &end, err);

        if (rc)
            return rc;
        if (p->ops[i].scratch_off % DEV_ALIGN != 0)
            return SH_FAIL(err, SH_E_BUG, "scratch of operation %u is not aligned to %u bytes", i,
                           DEV_ALIGN);
        p->extent[CPU_WORK] = SH_MAX(p->extent[CPU_WORK], end);
    }
    return SH_OK;
}

static bool needs_layout(const struct cpu_plan *p, uint32_t i)
{
    return p->tensors[i].is_blocked || p->base.g->tensors[i].role == DEV_ROLE_WEIGHT;
}

/* What was built needs the layouts of blocked tensors alone, and of weights, which another plan may
 * share. Without memory to say so all are kept. */
static void drop_layouts(struct cpu_plan *p)
{
    const uint32_t n = p->base.g->n_tensors;
    struct cpu_layout *kept;
    size_t k = 0;

    for (uint32_t i = 0; i < n; i++)
        k += needs_layout(p, i);
    kept = malloc((k + 1) * sizeof(*kept));
    if (!kept)
        return;
    k = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (needs_layout(p, i)) {
            kept[k] = *p->tensors[i].lay;
            p->tensors[i].lay = &kept[k++];
        } else {
            p->tensors[i].lay = NULL;
        }
    }
    free(p->layouts);
    p->layouts = kept;
}

int cpu__plan_finish(struct dev_plan *base, struct sh_err *err)
{
    struct cpu_plan *p = plan_of(base);
    struct sh_err first = {0};
    struct cpu_build b = {.plan = p, .err = &first};

    check_plan_offsets(p, &first);
    cpu__set_threads(p->threads);
    for (uint32_t i = 0; i < base->g->n_ops; i++) {
        b.op = &base->g->ops[i];
        for (size_t k = 0; k < p->ops[i].n_steps; k++)
            cpu__step_finish(&b, &p->ops[i].steps[k]);
    }
    p->is_finished = first.rc == SH_OK;
    if (p->is_finished)
        drop_layouts(p);
    return sh_err_copy(err, &first);
}

/* ------------------------------------------------------------------ packing */

static int reorder_once(const struct cpu_plan *p, const dnnl_memory_desc_t *from_md,
                        const void *from, const dnnl_memory_desc_t *to_md, void *to)
{
    const struct cpu_dev *d = dev_of_plan(p);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t prim = NULL;
    dnnl_exec_arg_t args[] = {{.arg = DNNL_ARG_FROM}, {.arg = DNNL_ARG_TO}};
    dnnl_status_t s;

    s = dnnl_reorder_primitive_desc_create(&pd, from_md, d->engine, to_md, d->engine, NULL);
    if (s == dnnl_success)
        s = dnnl_primitive_create(&prim, pd);
    if (s == dnnl_success)
        s = dnnl_memory_create(&args[0].memory, from_md, d->engine, (void *)(uintptr_t)from);
    if (s == dnnl_success)
        s = dnnl_memory_create(&args[1].memory, to_md, d->engine, to);
    if (s == dnnl_success)
        s = dnnl_primitive_execute(prim, d->stream, 2, args);
    if (s == dnnl_success)
        s = dnnl_stream_wait(d->stream);
    for (int i = 0; i < 2; i++)
        if (args[i].memory)
            dnnl_memory_destroy(args[i].memory);
    if (prim)
        dnnl_primitive_destroy(prim);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return (int)s;
}

static int pack_tensor(const struct cpu_plan *p, uint32_t tensor, const void *from, void *to,
                       bool in, struct sh_err *err)
{
    const struct cpu_tensor *c = &p->tensors[tensor];
    const struct dev_tensor *t = &p->base.g->tensors[tensor];
    size_t n = (size_t)dev_tensor_elements(t);
    int s;

    if (p->tensors[c->root].is_wide) {
        p->wide->convert(from, to, n, in);
        return SH_OK;
    }
    if (c->is_wino) {
        (in ? cpu__wino_pack : cpu__wino_unpack)(t, from, to);
        return SH_OK;
    }
    if (!c->is_blocked) {
        memcpy(to, from, n * sh_dtype_bytes(t->dtype));
        return SH_OK;
    }
    s = reorder_once(p, in ? &c->lay->plain : &c->lay->md, from, in ? &c->lay->md : &c->lay->plain,
                     to);
    if (s)
        return SH_FAIL(err, s == (int)dnnl_out_of_memory ? SH_E_NOMEM : SH_E_BUG,
                       "could not reorder tensor \"%s\" (oneDNN status %d)", t->name, s);
    return SH_OK;
}

int cpu__plan_pack(struct dev_plan *p, uint32_t tensor, const void *plain, void *stored,
                   struct sh_err *err)
{
    return pack_tensor(plan_of(p), tensor, plain, stored, true, err);
}

int cpu__plan_unpack(struct dev_plan *p, uint32_t tensor, const void *stored, void *plain,
                     struct sh_err *err)
{
    return pack_tensor(plan_of(p), tensor, stored, plain, false, err);
}

/* ------------------------------------------------------------------ running */

#define MAX_REFS (2 * (DEV_MAX_IN + DEV_MAX_OUT))

struct run {
    unsigned char *base[CPU_N_SPACES];
    int64_t step;
    struct dev_turn turn;
    struct sh_err err;
};

static void *resolve_ref(const struct cpu_plan *p, const struct run *r, const struct cpu_op *co,
                         struct cpu_ref ref)
{
    if (ref.tensor == DEV_NONE)
        return r->base[CPU_WORK] + co->scratch_off + ref.off;
    return r->base[p->tensors[ref.tensor].space] + tensor_offset(p, ref.tensor) + ref.off;
}

static int run_prim(const struct cpu_plan *p, const struct run *r, const struct cpu_op *co,
                    struct cpu_step *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        void *at = resolve_ref(p, r, co, s->refs[i]);
        dnnl_status_t rc;

        /* Setting a handle also clears the padding of a blocked tensor: skip it when nothing
         * moved, which is the rule. */
        if (at == s->last[i])
            continue;
        rc = dnnl_memory_set_data_handle(s->args[i].memory, at);
        if (rc != dnnl_success)
            return (int)rc;
        s->last[i] = at;
    }
    return (int)dnnl_primitive_execute(s->prim, dev_of_plan(p)->stream, (int)s->n, s->args);
}

static int run_op(struct cpu_plan *p, struct run *r, uint32_t i)
{
    struct cpu_op *co = &p->ops[i];
    const struct dev_op *op = &p->base.g->ops[i];

    for (size_t k = 0; k < co->n_steps; k++) {
        struct cpu_step *s = &co->steps[k];
        int rc;

        if (s->fn) {
            void *ptrs[MAX_REFS];
            struct cpu_call c = {.plan = p,
                                 .op = op,
                                 .index = i,
                                 .threads = p->threads,
                                 .step = r->step,
                                 .turn = &r->turn,
                                 .p = ptrs,
                                 .aux = s->aux,
                                 .err = &r->err};

            for (uint32_t a = 0; a < s->n; a++)
                ptrs[a] = resolve_ref(p, r, co, s->refs[a]);
            s->fn(&c);
            if (r->err.rc)
                return r->err.rc;
            continue;
        }
        rc = run_prim(p, r, co, s);
        if (rc)
            return SH_FAIL(&r->err, SH_E_DEVLOST, "%s (node \"%s\") failed with oneDNN status %d",
                           dev_op_name(op->kind), op->name, rc);
    }
    return SH_OK;
}

static int begin_run(struct cpu_plan *p, const struct dev_bases *b, struct run *r)
{
    const size_t off[CPU_N_SPACES] = {b->image, b->state, b->workspace, b->tables};

    if (!p->is_finished)
        return SH_FAIL(&r->err, SH_E_BUG, "the plan is not finished");
    for (int i = 0; i < CPU_N_SPACES; i++) {
        size_t end;

        if (p->extent[i] == 0)
            continue;
        if (i == CPU_TABLES && b->host_tables) {
            if (p->extent[i] > b->host_bytes || (uintptr_t)b->host_tables % DEV_ALIGN != 0)
                return SH_FAIL(&r->err, SH_E_BUG,
                               "%zu bytes of tables are not in %zu of host memory", p->extent[i],
                               b->host_bytes);
            r->base[i] = (unsigned char *)(uintptr_t)b->host_tables; /* only read */
            continue;
        }
        if (sh_add_size(off[i], p->extent[i], &end, NULL) || end > p->base.dev->arena_bytes ||
            off[i] % DEV_ALIGN != 0)
            return SH_FAIL(&r->err, SH_E_BUG,
                           "%zu bytes at %zu do not lie in the arena of %zu bytes", p->extent[i],
                           off[i], p->base.dev->arena_bytes);
        r->base[i] = dev_of_plan(p)->memory + off[i];
    }
    r->step = b->step;
    r->turn = b->turn;
    cpu__set_threads(p->threads);
    return SH_OK;
}

int cpu__plan_run(struct dev_plan *base, const struct dev_bases *b, uint32_t from, uint32_t to,
                  struct sh_err *err)
{
    struct cpu_plan *p = plan_of(base);
    struct run r = {.step = 0};
    int rc = begin_run(p, b, &r);

    for (uint32_t i = from; i < to && !rc; i++)
        rc = run_op(p, &r, i);
    return sh_err_copy(err, &r.err);
}

int cpu__plan_profile(struct dev_plan *base, const struct dev_bases *b, uint32_t repeat, double *ns,
                      struct sh_err *err)
{
    struct cpu_plan *p = plan_of(base);
    struct run r = {.step = 0};
    int rc = begin_run(p, b, &r);

    /* In order of the list, so that every operation finds its inputs as in a real run. */
    for (uint32_t n = 0; n <= repeat; n++) /* the first round only warms up */
        for (uint32_t i = 0; i < base->g->n_ops && !rc; i++) {
            int64_t t0 = sh_clock_ns();
            double took;

            rc = run_op(p, &r, i);
            took = (double)(sh_clock_ns() - t0);
            if (n == 1 || (n > 1 && took < ns[i]))
                ns[i] = took;
        }
    return sh_err_copy(err, &r.err);
}
