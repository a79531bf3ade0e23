/* cuda_gather.c - rows of a table by index; the kernels are in gather.cu. */
#include "common/mem.h"
#include "executor/device/cuda/cuda.h"

#include <stdlib.h>

#define MAX_BLOCKS INT32_MAX /* of a grid, along x */
#define MAX_BLOCKS_Y 65535   /* along y */
#define BLOCK_COLUMNS 32     /* that a block of the gradient takes, at least */

struct gather {
    struct k_gather k;
    enum cuda_type table, y;
};

/* table: what is indexed (or its gradient); y: what comes out (or its gradient). */
static int gather_new(struct cuda_build *b, uint32_t table, uint32_t indices, uint32_t y,
                      struct gather **out)
{
    const struct dev_tensor *t = cuda__t(b, table), *ti = cuda__t(b, indices), *ty = cuda__t(b, y);
    int64_t axis = b->op->u.axis.axis + (b->op->u.axis.axis < 0 ? (int64_t)t->rank : 0);
    struct gather g = {.table = cuda__form(b, table).type,
                       .y = cuda__form(b, y).type,
                       .k = {.outer = 1,
                             .inner = 1,
                             .n_index = dev_tensor_elements(ti),
                             .is_wide = ti->dtype == SH_I64,
                             .op = b->index,
                             .fault = cuda__dev(b->plan)->fault}};

    if (axis < 0 || axis >= (int64_t)t->rank)
        return cuda__refuse(b, SH_E_BUG, "axis %lld does not exist", (long long)b->op->u.axis.axis);
    if (ti->dtype != SH_I64 && ti->dtype != SH_I32)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "indices are %s; I64 or I32 are supported",
                            sh_dtype_st(ti->dtype));
    for (uint32_t i = 0; i < t->rank; i++) {
        if (i < (uint64_t)axis)
            g.k.outer *= t->dims[i];
        else if (i > (uint64_t)axis)
            g.k.inner *= t->dims[i];
    }
    g.k.n = t->dims[axis];
    if (t->dtype != ty->dtype || dev_tensor_elements(ty) != g.k.outer * g.k.n_index * g.k.inner)
        return cuda__refuse(b, SH_E_BUG, "the shapes of table, indices and result do not fit");
    *out = malloc(sizeof(**out));
    if (!*out)
        return cuda__refuse(b, SH_E_NOMEM, "could not allocate an operation");
    **out = g;
    cuda__aux(b, *out, free);
    return SH_OK;
}

/* Each operand row-major, in the type that it has. */
static int take_plain(struct cuda_build *b, uint32_t slot, bool is_in)
{
    uint32_t t = is_in ? b->op->in[slot] : b->op->out[slot];
    struct cuda_form f = {cuda__form(b, t).type, CUDA_PLAIN};

    return is_in ? cuda__in(b, slot, f) : cuda__out(b, slot, f);
}

static int run_gather(const struct cuda_call *c, struct sh_err *err)
{
    struct gather *g = c->aux;

    g->k.indices = c->in[1];
    k_gather(c->stream, &g->k, (int)g->table, cuda__type_bytes(g->table), c->in[0], (int)g->y,
             c->out[0]);
    return cuda__launched(c, err);
}

int cuda__gather(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    struct gather *g;
    int rc = gather_new(b, op->in[0], op->in[1], op->out[0], &g);

    for (uint32_t i = 0; i < 2 && !rc; i++)
        rc = take_plain(b, i, true);
    if (!rc)
        rc = take_plain(b, 0, false);
    b->co->run = run_gather;
    return rc;
}

static int run_bwd(const struct cuda_call *c, struct sh_err *err)
{
    struct gather *g = c->aux;

    g->k.indices = c->in[0];
    k_gather_bwd(c->stream, &g->k, (int)g->y, c->in[1], (int)g->table, cuda__type_bytes(g->table),
                 c->out[0]);
    return cuda__launched(c, err);
}

int cuda__gather_bwd(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    struct gather *g;
    int rc = gather_new(b, op->out[0], op->in[0], op->in[1], &g);

    if (!rc && cuda__t(b, op->out[0])->dtype != SH_F32)
        rc = cuda__refuse(b, SH_E_UNSUPPORTED, "only F32 has gradients");
    if (!rc &&
        (g->k.n_index > MAX_BLOCKS / g->k.outer || g->k.inner / BLOCK_COLUMNS > MAX_BLOCKS_Y))
        rc = cuda__refuse(b, SH_E_UNSUPPORTED, "%lld rows of %lld elements are too many",
                          (long long)(g->k.outer * g->k.n_index), (long long)g->k.inner);
    for (uint32_t i = 0; i < 2 && !rc; i++)
        rc = take_plain(b, i, true);
    if (!rc)
        rc = take_plain(b, 0, false);
    b->co->run = run_bwd;
    return rc;
}
