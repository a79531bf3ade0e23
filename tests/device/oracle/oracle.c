/* oracle.c - the back end "oracle": the cpu device, whose plans may be of precision fp64 as well.
 * The tests alone have it (docs/decisions/0006).
 */
#include "tests/device/oracle/f64.h"

/* What only operations see is stored as doubles; everything is plain. */
static void widen_tensor(struct cpu_plan *p, uint32_t i)
{
    const struct dev_tensor *t = &p->base.g->tensors[i];
    struct cpu_tensor *c = &p->tensors[i];

    c->is_fixed = true;
    c->is_wide = t->role == DEV_ROLE_ACT && t->dtype == SH_F32 && t->alias_of == DEV_NONE;
    if (t->alias_of != DEV_NONE && t->role != DEV_ROLE_ACT)
        p->tensors[c->root].is_wide = false; /* seen from outside under this name */
}

/* The other operations (updates, integers) see floats as they are at fp32. */
static void narrow_operands(struct cpu_plan *p, const struct dev_op *op)
{
    if (f64__has(p->base.g, op))
        return;
    for (uint32_t k = 0; k < op->n_in; k++)
        if (op->in[k] != DEV_NONE)
            p->tensors[p->tensors[op->in[k]].root].is_wide = false;
    for (uint32_t k = 0; k < op->n_out; k++)
        if (op->out[k] != DEV_NONE)
            p->tensors[p->tensors[op->out[k]].root].is_wide = false;
}

static void begin(struct cpu_plan *p)
{
    for (uint32_t i = 0; i < p->base.g->n_tensors; i++)
        widen_tensor(p, i);
    for (uint32_t i = 0; i < p->base.g->n_ops; i++)
        narrow_operands(p, &p->base.g->ops[i]);
}

static void convert(const void *from, void *to, size_t n, bool to_doubles)
{
    for (size_t i = 0; i < n; i++)
        if (to_doubles)
            ((double *)to)[i] = ((const float *)from)[i];
        else
            ((float *)to)[i] = (float)((const double *)from)[i];
}

static int create(struct dev *d, struct dev_graph *g, enum dev_precision p,
                  const struct dev_plan *layout_of, struct dev_plan **out, struct sh_err *err)
{
    static const struct cpu_wide WIDE = {
        .begin = begin, .has = f64__has, .build = f64__build, .convert = convert};

    if (p != DEV_FP64)
        return cpu__plan_new(d, g, p, layout_of, out, err);
    return cpu__plan_make(d, g, &WIDE, layout_of, out, err);
}

static const struct dev_plan_ops PLAN = {
    .create = create,
    .free = cpu__plan_free,
    .scratch_bytes = cpu__plan_scratch_bytes,
    .set_scratch = cpu__plan_set_scratch,
    .finish = cpu__plan_finish,
    .pack = cpu__plan_pack,
    .unpack = cpu__plan_unpack,
    .run = cpu__plan_run,
    .profile = cpu__plan_profile,
};

extern const struct dev_ops shunt_dev_ops;
__attribute__((visibility("default"))) const struct dev_ops shunt_dev_ops = {
    .abi = DEV_ABI,
    .name = "oracle",
    .mem = &CPU__MEM,
    .stream = &CPU__STREAM,
    .plan = &PLAN,
};
