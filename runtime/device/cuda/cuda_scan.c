/* cuda_scan.c - builders of CUMSUM and TOPK (scan.cu), LOCATE and SCATTER (scatter.cu).
 *
 * All take their operands row-major, in the type in which they are stored.
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"

#define MAX_LINES INT32_MAX    /* blocks of a grid, along x */
#define MAX_COMBINED (1 << 18) /* updates that are added and so on: quadratic */

static bool is_number_type(enum sh_dtype t)
{
    return t == SH_F32 || t == SH_I64 || t == SH_I32;
}

/* in[0] along an axis, and out[0] of the same type. */
static int lines_new(struct cuda_build *b, int64_t axis, struct k_scan **out)
{
    const struct dev_tensor *x = cuda__t(b, b->op->in[0]), *y = cuda__t(b, b->op->out[0]);
    uint32_t at;
    int rc = cuda__axis(b, b->op->in[0], axis, &at);

    if (!rc && (x->dtype != y->dtype || x->rank != y->rank || !is_number_type(x->dtype)))
        rc = cuda__refuse(b, SH_E_UNSUPPORTED, "types %s and %s cannot be computed",
                          sh_dtype_st(x->dtype), sh_dtype_st(y->dtype));
    if (!rc)
        rc = cuda__in_plain(b, 0);
    if (!rc)
        rc = cuda__out_plain(b, 0);
    if (rc)
        return rc;
    *out = cuda__aux_new(b, sizeof(**out), &rc);
    if (rc)
        return rc;
    **out = (struct k_scan){.outer = dev_axes_elements(x, 0, at),
                            .n = x->dims[at],
                            .inner = dev_axes_elements(x, at + 1, x->rank)};
    if ((*out)->outer > MAX_LINES / (*out)->inner)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "more than 2^31 lines");
    return SH_OK;
}

static int run_cumsum(const struct cuda_call *c, struct sh_err *err)
{
    k_cumsum(c->stream, c->aux, cuda__operand_in(c, 0), cuda__operand_out(c, 0),
             c->op->u.scan.exclusive, c->op->u.scan.reverse);
    return cuda__launched(c, err);
}

int cuda__cumsum(struct cuda_build *b)
{
    struct k_scan *l;
    int rc = cuda__same_shape(b, b->op->in[0], b->op->out[0]);

    b->co->run = run_cumsum;
    return rc ? rc : lines_new(b, b->op->u.scan.axis, &l);
}

static int run_topk(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_tensor *y = &c->plan->base.g->tensors[c->op->out[0]];
    const struct k_scan *l = c->aux;

    k_topk(c->stream, l, dev_tensor_elements(y) / (l->outer * l->inner), cuda__operand_in(c, 0),
           cuda__operand_out(c, 0), c->out[1], c->op->u.topk.largest, c->op->u.topk.last);
    return cuda__launched(c, err);
}

int cuda__topk(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    struct k_scan *l;
    int rc = cuda__same_shape(b, op->out[0], op->out[1]);

    if (!rc)
        rc = lines_new(b, op->u.topk.axis, &l);
    if (!rc)
        rc = cuda__out_plain(b, 1);
    if (!rc && (cuda__t(b, op->out[1])->dtype != SH_I64 ||
                dev_tensor_elements(cuda__t(b, op->out[0])) > l->outer * l->inner * l->n))
        rc = cuda__refuse(b, SH_E_BUG, "the results do not fit the input");
    b->co->run = run_topk;
    return rc;
}

/* ------------------------------------------------------------------ locate, scatter */

static int run_locate(const struct cuda_call *c, struct sh_err *err)
{
    k_locate(c->stream, c->aux, c->in[0], c->out[0]);
    return cuda__launched(c, err);
}

int cuda__locate(struct cuda_build *b)
{
    const struct dev_tensor *ix = cuda__t(b, b->op->in[0]), *y = cuda__t(b, b->op->out[0]);
    const uint32_t depth = b->op->u.locate.depth;
    struct k_locate *l;
    int rc;

    if ((ix->dtype != SH_I64 && ix->dtype != SH_I32) || y->dtype != SH_I64)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "indices are %s; I64 or I32 are supported",
                            sh_dtype_st(ix->dtype));
    if (depth < 1 || depth > SH_MAX_RANK ||
        dev_tensor_elements(ix) != dev_tensor_elements(y) * depth)
        return cuda__refuse(b, SH_E_BUG, "the shapes of indices and rows do not fit");
    rc = cuda__in_plain(b, 0);
    if (!rc)
        rc = cuda__out_plain(b, 0);
    if (rc)
        return rc;
    l = cuda__aux_new(b, sizeof(*l), &rc);
    if (rc)
        return rc;
    *l = (struct k_locate){.n = dev_tensor_elements(y),
                           .rank = (int)y->rank,
                           .depth = (int)depth,
                           .is_wide = ix->dtype == SH_I64,
                           .op = b->index,
                           .fault = cuda__dev(b->plan)->fault};
    for (uint32_t i = 0; i < SH_MAX_RANK; i++) {
        l->dims[i] = i < y->rank ? y->dims[i] : 1;
        l->base[i] = b->op->u.locate.base[i];
        l->size[i] = b->op->u.locate.size[i];
        l->stride[i] = b->op->u.locate.stride[i];
    }
    b->co->run = run_locate;
    return SH_OK;
}

static int run_scatter(const struct cuda_call *c, struct sh_err *err)
{
    k_scatter(c->stream, c->aux, cuda__operand_in(c, 0), c->in[1], cuda__operand_in(c, 2),
              cuda__operand_out(c, 0), c->scratch);
    return cuda__launched(c, err);
}

static int check_scatter(struct cuda_build *b, const struct k_scatter *s)
{
    const struct dev_op *op = b->op;
    const enum sh_dtype t = cuda__t(b, op->in[0])->dtype;

    if (cuda__t(b, op->in[2])->dtype != t || cuda__t(b, op->out[0])->dtype != t ||
        cuda__t(b, op->in[1])->dtype != SH_I64 ||
        (!is_number_type(t) && s->kind != DEV_SCATTER_SET))
        return cuda__refuse(b, SH_E_UNSUPPORTED, "cannot write %s into %s",
                            sh_dtype_st(cuda__t(b, op->in[2])->dtype), sh_dtype_st(t));
    if (cuda__t(b, op->in[0])->rank < 1 || (unsigned)s->kind >= DEV_N_SCATTERS ||
        dev_tensor_elements(cuda__t(b, op->in[2])) != s->n * s->inner)
        return cuda__refuse(b, SH_E_BUG, "the shapes of data, rows and updates do not fit");
    if (s->n > (s->kind == DEV_SCATTER_SET ? MAX_LINES : MAX_COMBINED))
        return cuda__refuse(b, SH_E_UNSUPPORTED, "%lld updates are too many", (long long)s->n);
    return cuda__same_shape(b, op->in[0], op->out[0]);
}

int cuda__scatter(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cuda__t(b, op->in[0]);
    struct k_scatter *s;
    int rc;

    s = cuda__aux_new(b, sizeof(*s), &rc);
    if (rc)
        return rc;
    *s = (struct k_scatter){.rows = x->rank ? x->dims[0] : 1,
                            .n = dev_tensor_elements(cuda__t(b, op->in[1])),
                            .kind = (int)op->u.scatter.kind};
    s->inner = dev_tensor_elements(x) / s->rows;
    rc = check_scatter(b, s);
    for (uint32_t i = 0; i < 3 && !rc; i++)
        rc = cuda__in_plain(b, i);
    if (!rc)
        rc = cuda__out_plain(b, 0);
    if (!rc)
        cuda__scratch(b, k_scatter_scratch(s));
    b->co->run = run_scatter;
    return rc;
}
