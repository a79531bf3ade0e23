/* cpu_resample.c - sums of a few elements along one axis or two, by tables (Resize).
 *
 * The rows that make up a row of the result are added first, in one pass over memory; along the
 * second axis it is then a sum of elements of that row.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

struct resample { /* x [outer, n0, n1, inner] -> y [outer, m0, m1, inner] */
    int64_t outer, n0, n1, m0, m1, inner;
    int64_t taps0, taps1; /* taps1 0: nothing along the second axis */
};

struct ctx {
    const struct resample *r;
    const float *x, *weight0, *weight1;
    const int32_t *from0, *from1;
    float *y, *rows; /* a row for each part of the work */
    int64_t parts;
};

SH_VECTORISE static void add_weighted_row(float *to, const float *x, float w, int64_t n, bool first)
{
    if (first)
        for (int64_t i = 0; i < n; i++)
            to[i] = w * x[i];
    else
        for (int64_t i = 0; i < n; i++)
            to[i] += w * x[i];
}

/* y[q] = sum of row[from[q, k]] weight[q, k] */
static void along_row(const struct ctx *c, const float *row, float *y)
{
    const struct resample *r = c->r;

    for (int64_t q = 0; q < r->m1; q++) {
        const int32_t *from = c->from1 + q * r->taps1;
        const float *w = c->weight1 + q * r->taps1;

        if (r->inner == 1) {
            float sum = 0;

            for (int64_t k = 0; k < r->taps1; k++)
                sum += w[k] * row[from[k]];
            y[q] = sum;
            continue;
        }
        for (int64_t k = 0; k < r->taps1; k++)
            add_weighted_row(y + q * r->inner, row + from[k] * r->inner, w[k], r->inner, k == 0);
    }
}

/* Parts [from, to) of the rows of the result; a part has a row of its own to add up in. */
static void resample_range(void *ctx, int64_t from, int64_t to)
{
    const struct ctx *c = ctx;
    const struct resample *r = c->r;
    const int64_t n = r->outer * r->m0, line = r->n1 * r->inner;

    for (int64_t part = from; part < to; part++)
        for (int64_t i = n * part / c->parts; i < n * (part + 1) / c->parts; i++) {
            const int64_t p = i % r->m0;
            const float *x = c->x + i / r->m0 * r->n0 * line;
            float *y = c->y + i * r->m1 * r->inner, *row = r->taps1 ? c->rows + part * line : y;

            for (int64_t k = 0; k < r->taps0; k++)
                add_weighted_row(row, x + c->from0[p * r->taps0 + k] * line,
                                 c->weight0[p * r->taps0 + k], line, k == 0);
            if (r->taps1)
                along_row(c, row, y);
        }
}

/* A table comes from the model's compiler, never from a request; still it must not reach outside.
 */
static bool is_within(const int32_t *from, int64_t count, int64_t n)
{
    for (int64_t i = 0; i < count; i++)
        if (from[i] < 0 || from[i] >= n)
            return false;
    return true;
}

/* p: x from0 weight0 [from1 weight1] y rows */
static void resample_fn(const struct cpu_call *call)
{
    const struct resample *r = call->aux;
    void *const *out = call->p + (r->taps1 ? 5 : 3);
    struct ctx c = {.r = r,
                    .x = call->p[0],
                    .from0 = call->p[1],
                    .weight0 = call->p[2],
                    .from1 = r->taps1 ? call->p[3] : NULL,
                    .weight1 = r->taps1 ? call->p[4] : NULL,
                    .y = out[0],
                    .rows = out[1],
                    .parts = call->threads};

    if (!is_within(c.from0, r->m0 * r->taps0, r->n0) ||
        (r->taps1 && !is_within(c.from1, r->m1 * r->taps1, r->n1)))
        SH_FAIL(call->err, SH_E_INVALID, "RESAMPLE (node \"%s\"): its table points outside",
                call->op->name);
    else
        cpu__parallel(call->threads, c.parts, 1, resample_range, &c);
}

static int check_table(struct cpu_build *b, uint32_t slot, int64_t m, int64_t *taps)
{
    const struct dev_tensor *from = cpu__t(b, b->op->in[slot]),
                            *weight = cpu__t(b, b->op->in[slot + 1]);
    const int64_t n = dev_tensor_elements(from);

    *taps = n / m;
    if (from->dtype != SH_I32 || weight->dtype != SH_F32 || from->rank != 1 || weight->rank != 1 ||
        n % m != 0 || dev_tensor_elements(weight) != n)
        return cpu__refuse(b, SH_E_BUG, "its tables do not fit");
    return b->err->rc;
}

static int read_resample_shape(struct cpu_build *b, struct resample *r)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cpu__t(b, op->in[0]), *y = cpu__t(b, op->out[0]);
    const uint32_t two = op->n_in > 3;
    uint32_t a;

    if (cpu__axis(b, op->in[0], op->u.axis.axis, &a))
        return b->err->rc;
    if (op->n_in == 4 || a + two >= x->rank || x->rank != y->rank)
        return cpu__refuse(b, SH_E_BUG, "input and result do not fit");
    *r = (struct resample){.outer = dev_axes_elements(x, 0, a),
                           .n0 = x->dims[a],
                           .m0 = y->dims[a],
                           .n1 = two ? x->dims[a + 1] : 1,
                           .m1 = two ? y->dims[a + 1] : 1,
                           .inner = dev_axes_elements(x, a + 1 + two, x->rank)};
    if (dev_tensor_elements(y) != r->outer * r->m0 * r->m1 * r->inner)
        return cpu__refuse(b, SH_E_BUG, "input and result do not fit");
    check_table(b, 1, r->m0, &r->taps0);
    return two ? check_table(b, 3, r->m1, &r->taps1) : b->err->rc;
}

int cpu__resample(struct cpu_build *b)
{
    struct resample r;
    struct cpu_ref refs[7];
    uint32_t n;

    cpu__need_f32(b, (const uint32_t[]){b->op->in[0], b->op->out[0]}, 2);
    if (read_resample_shape(b, &r))
        return b->err->rc;
    n = cpu__all_plain(b, refs);
    refs[n++] = cpu__scratch(b, (size_t)(r.n1 * r.inner) * sizeof(float) * b->plan->threads);
    return cpu__step_fn(b, resample_fn, refs, n, &r, sizeof(r));
}
