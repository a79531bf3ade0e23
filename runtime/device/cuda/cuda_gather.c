/* cuda_gather.c - rows of a table by index; the kernels are in gather.cu. */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"

#define MAX_BLOCKS INT32_MAX /* of a grid, along x */
#define MAX_BLOCKS_Y 65535   /* along y */
#define BLOCK_COLUMNS 32     /* that a block of the gradient takes, at least */

/* table: what is indexed (or its gradient); y: what comes out (or its gradient). */
static int gather_new(struct cuda_build *b, uint32_t table, uint32_t indices, uint32_t y,
                      struct k_gather **out)
{
    const struct dev_tensor *t = cuda__t(b, table), *ti = cuda__t(b, indices), *ty = cuda__t(b, y);
    struct k_gather *g;
    uint32_t axis;
    int rc = cuda__axis(b, table, b->op->u.axis.axis, &axis);

    if (rc)
        return rc;
    if (ti->dtype != SH_I64 && ti->dtype != SH_I32)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "indices are %s; I64 or I32 are supported",
                            sh_dtype_st(ti->dtype));
    *out = g = cuda__aux_new(b, sizeof(*g), &rc);
    if (rc)
        return rc;
    *g = (struct k_gather){.outer = dev_axes_elements(t, 0, axis),
                           .n = t->dims[axis],
                           .inner = dev_axes_elements(t, axis + 1, t->rank),
                           .n_index = dev_tensor_elements(ti),
                           .is_wide = ti->dtype == SH_I64,
                           .op = b->index,
                           .fault = cuda__dev(b->plan)->fault};
    if (t->dtype != ty->dtype || dev_tensor_elements(ty) != g->outer * g->n_index * g->inner)
        return cuda__refuse(b, SH_E_BUG, "the shapes of table, indices and result do not fit");
    return SH_OK;
}

/* All operands row-major, each in the type that it has. */
static int take_plain_table(struct cuda_build *b)
{
    int rc = cuda__in_plain(b, 0);

    if (!rc)
        rc = cuda__in_plain(b, 1);
    return rc ? rc : cuda__out_plain(b, 0);
}

static int run_gather(const struct cuda_call *c, struct sh_err *err)
{
    const struct k_operand table = cuda__operand_in(c, 0), y = cuda__operand_out(c, 0);
    struct k_gather *g = c->aux;

    g->indices = c->in[1];
    k_gather(c->stream, g, table.type, cuda__type_bytes((enum cuda_type)table.type), table.p,
             y.type, y.p);
    return cuda__launched(c, err);
}

int cuda__gather(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    struct k_gather *g;
    int rc = gather_new(b, op->in[0], op->in[1], op->out[0], &g);

    if (!rc)
        rc = take_plain_table(b);
    b->co->run = run_gather;
    return rc;
}

static int run_gather_bwd(const struct cuda_call *c, struct sh_err *err)
{
    const struct k_operand d_y = cuda__operand_in(c, 1), d_table = cuda__operand_out(c, 0);
    struct k_gather *g = c->aux;

    g->indices = c->in[0];
    k_gather_bwd(c->stream, g, d_y.type, d_y.p, d_table.type,
                 cuda__type_bytes((enum cuda_type)d_table.type), d_table.p);
    return cuda__launched(c, err);
}

int cuda__gather_bwd(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    struct k_gather *g;
    int rc = gather_new(b, op->out[0], op->in[0], op->in[1], &g);

    if (!rc && cuda__t(b, op->out[0])->dtype != SH_F32)
        rc = cuda__refuse(b, SH_E_UNSUPPORTED, "only F32 has gradients");
    if (!rc && (g->n_index > MAX_BLOCKS / g->outer || g->inner / BLOCK_COLUMNS > MAX_BLOCKS_Y))
        rc = cuda__refuse(b, SH_E_UNSUPPORTED, "%lld rows of %lld elements are too many",
                          (long long)(g->outer * g->n_index), (long long)g->inner);
    if (!rc)
        rc = take_plain_table(b);
    b->co->run = run_gather_bwd;
    return rc;
}
