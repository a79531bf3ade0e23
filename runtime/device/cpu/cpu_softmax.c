/* cpu_softmax.c - softmax by oneDNN; its logarithm and the gradients by loops.
 *
 * oneDNN's logarithm is 1e-6 off, where its result is near 1: ten times what rounding allows.
 *
 *   softmax      d_x = y (d_y - sum(d_y y))
 *   log-softmax  d_x = d_y - exp(y) sum(d_y)
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#include <math.h>

struct fold { /* x as [outer, n, inner] around the axis */
    int64_t outer, n, inner;
};

static int fold_axis(struct cpu_build *b, uint32_t tensor, struct fold *f)
{
    const struct dev_tensor *t = cpu__t(b, tensor);
    uint32_t axis;

    if (cpu__axis(b, tensor, b->op->u.axis.axis, &axis) == SH_OK)
        *f = (struct fold){dev_axes_elements(t, 0, axis), t->dims[axis],
                           dev_axes_elements(t, axis + 1, t->rank)};
    return b->err->rc;
}

static int by_library(struct cpu_build *b, const struct fold *f, struct cpu_ref x, struct cpu_ref y)
{
    /* Two axes where that is all there is: the fast kernel wants the last axis dense. */
    const int64_t dims[] = {f->outer, f->n, f->inner};
    const struct cpu_bind binds[] = {{DNNL_ARG_SRC, x, NULL}, {DNNL_ARG_DST, y, NULL}};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_softmax_v2_desc_t desc;
    dnnl_memory_desc_t md;
    dnnl_status_t s = dnnl_invalid_arguments;

    if (cpu__md_plain(f->inner == 1 ? 2 : 3, dims, dnnl_f32, &md) == SH_OK)
        s = dnnl_softmax_v2_forward_desc_init(&desc, dnnl_forward_inference, dnnl_softmax_accurate,
                                              &md, &md, 1);
    if (s == dnnl_success)
        s = cpu__pd(b, &desc, NULL, NULL, &pd);
    cpu__status(b, s, "softmax");
    return cpu__step_prim(b, pd, binds, 2);
}

struct log_ctx {
    struct fold f;
    const float *x;
    float *y;
};

static void log_range(void *ctx, int64_t from, int64_t to)
{
    const struct log_ctx *c = ctx;
    const int64_t step = c->f.inner;

    for (int64_t r = from; r < to; r++) {
        const int64_t at = r / step * c->f.n * step + r % step;
        const float *x = c->x + at;
        float most = -INFINITY, off;
        double sum = 0;

        for (int64_t i = 0; i < c->f.n; i++)
            most = x[i * step] > most ? x[i * step] : most;
        for (int64_t i = 0; i < c->f.n; i++)
            sum += (double)expf(x[i * step] - most);
        off = (float)log(sum);
        for (int64_t i = 0; i < c->f.n; i++)
            c->y[at + i * step] = x[i * step] - most - off;
    }
}

/* p: x y */
static void log_fn(const struct cpu_call *c)
{
    struct log_ctx s = {.f = *(const struct fold *)c->aux, .x = c->p[0], .y = c->p[1]};

    cpu__parallel(c->threads, s.f.outer * s.f.inner, SH_MAX(1, 8192 / s.f.n), log_range, &s);
}

int cpu__softmax(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct cpu_ref refs[2];
    struct fold f;
    uint32_t n;

    cpu__need_f32(b, (const uint32_t[]){op->in[0], op->out[0]}, 2);
    cpu__same_shape(b, op->in[0], op->out[0]);
    if (fold_axis(b, op->in[0], &f))
        return b->err->rc;
    n = cpu__all_plain(b, refs);
    return op->u.axis.log ? cpu__step_fn(b, log_fn, refs, n, &f, sizeof(f))
                          : by_library(b, &f, refs[0], refs[1]);
}

struct bwd_ctx {
    struct fold f;
    bool log;
    const float *y, *dy;
    float *dx;
};

/* One column of the axis: element i at k + i * step. */
static void bwd_column(const struct bwd_ctx *c, int64_t k, int64_t step)
{
    double sum = 0;
    float s;

    for (int64_t i = 0; i < c->f.n; i++)
        sum +=
            c->log ? (double)c->dy[k + i * step] : (double)c->dy[k + i * step] * c->y[k + i * step];
    s = (float)sum;
    for (int64_t i = 0; i < c->f.n; i++) {
        int64_t e = k + i * step;

        c->dx[e] = c->log ? c->dy[e] - expf(c->y[e]) * s : c->y[e] * (c->dy[e] - s);
    }
}

static void softmax_bwd_range(void *ctx, int64_t from, int64_t to)
{
    const struct bwd_ctx *c = ctx;

    for (int64_t r = from; r < to; r++)
        bwd_column(c, r / c->f.inner * c->f.n * c->f.inner + r % c->f.inner, c->f.inner);
}

/* p: y d_y d_x */
static void bwd_fn(const struct cpu_call *c)
{
    struct bwd_ctx s = {.f = *(const struct fold *)c->aux,
                        .log = c->op->u.axis.log,
                        .y = c->p[0],
                        .dy = c->p[1],
                        .dx = c->p[2]};

    cpu__parallel(c->threads, s.f.outer * s.f.inner, SH_MAX(1, 8192 / s.f.n), softmax_bwd_range,
                  &s);
}

int cpu__softmax_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct fold f;

    cpu__need_f32(b, (const uint32_t[]){op->in[0], op->in[1], op->out[0]}, 3);
    cpu__same_shape(b, op->in[0], op->in[1]);
    cpu__same_shape(b, op->in[0], op->out[0]);
    fold_axis(b, op->in[0], &f);
    return cpu__step_plain(b, bwd_fn, &f, sizeof(f));
}
