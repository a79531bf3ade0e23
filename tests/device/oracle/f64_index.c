/* f64_index.c - sums along an axis, the largest elements, reads and writes by index, in double. */
#include "common/mem.h"
#include "common/preprocess.h"
#include "tests/device/oracle/f64.h"

struct lines { /* [outer, n, inner]: a line is n elements, inner apart */
    int64_t outer, n, inner;
};

static struct lines lines_of(const struct dev_tensor *t, int64_t axis)
{
    struct lines r = {1, 1, 1};

    axis += axis < 0 ? (int64_t)t->rank : 0;
    for (int64_t i = 0; i < (int64_t)t->rank; i++)
        *(i < axis ? &r.outer : i == axis ? &r.n : &r.inner) *= t->dims[i];
    return r;
}

int f64__cumsum(const struct f64_call *c, struct sh_err *err)
{
    const struct lines l = lines_of(c->in[0], c->op->u.scan.axis);
    const bool reverse = c->op->u.scan.reverse;

    (void)err;
    for (int64_t k = 0; k < l.outer * l.inner; k++) {
        const int64_t at = k / l.inner * l.n * l.inner + k % l.inner;
        double sum = 0;

        for (int64_t i = 0; i < l.n; i++) {
            const int64_t e = at + (reverse ? l.n - 1 - i : i) * l.inner;
            const double before = sum;

            sum += c->x[0][e];
            c->y[0][e] = c->op->u.scan.exclusive ? before : sum;
        }
    }
    return SH_OK;
}

/* Is element a (at place i) before b (at place j)? */
static bool is_before(const struct dev_op *op, double a, int64_t i, double b, int64_t j)
{
    const bool a_nan = a != a, b_nan = b != b;
    const bool more = a_nan ? !b_nan : !b_nan && a > b, less = b_nan ? !a_nan : !a_nan && a < b;

    if (more || less)
        return op->u.topk.largest ? more : less;
    return op->u.topk.last ? i > j : i < j;
}

int f64__topk(const struct f64_call *c, struct sh_err *err)
{
    const struct lines l = lines_of(c->in[0], c->op->u.topk.axis);
    const int64_t k = lines_of(c->out[0], c->op->u.topk.axis).n;

    (void)err;
    for (int64_t line = 0; line < l.outer * l.inner; line++) {
        const double *x = c->x[0] + line / l.inner * l.n * l.inner + line % l.inner;
        const int64_t to = line / l.inner * k * l.inner + line % l.inner;

        for (int64_t i = 0; i < l.n; i++) {
            int64_t rank = 0;

            for (int64_t j = 0; j < l.n; j++)
                rank += is_before(c->op, x[j * l.inner], j, x[i * l.inner], i);
            if (rank >= k)
                continue;
            c->y[0][to + rank * l.inner] = x[i * l.inner];
            c->y[1][to + rank * l.inner] = (double)i;
        }
    }
    return SH_OK;
}

static double combined(enum dev_scatter k, double a, double b)
{
    switch (k) {
    case DEV_SCATTER_ADD:
        return a + b;
    case DEV_SCATTER_MUL:
        return a * b;
    case DEV_SCATTER_MAX:
        return a > b || a != a ? a : b;
    case DEV_SCATTER_MIN:
        return a < b || a != a ? a : b;
    default:
        return b;
    }
}

int f64__scatter(const struct f64_call *c, struct sh_err *err)
{
    const int64_t inner = f64__n(c->in[0]) / c->in[0]->dims[0], n = f64__n(c->in[1]);

    (void)err;
    memcpy(c->y[0], c->x[0], (size_t)f64__n(c->in[0]) * sizeof(double));
    for (int64_t i = 0; i < n * inner; i++) {
        const int64_t row = (int64_t)c->x[1][i / inner];
        double *y = &c->y[0][row * inner + i % inner];

        if (row >= 0)
            *y = combined(c->op->u.scatter.kind, *y, c->x[2][i]);
    }
    return SH_OK;
}

int f64__pixels(const struct f64_call *c, struct sh_err *err)
{
    const bool x_last = c->op->u.pixels.x_last, y_last = c->op->u.pixels.y_last;
    const int64_t *dims = c->in[0]->dims, channels = dims[x_last ? 3 : 1];
    const int64_t plane = dims[1] * dims[2] * dims[3] / channels;

    (void)err;
    for (int64_t k = 0; k < f64__n(c->in[0]); k++) {
        const int64_t i = k % plane, ch = k / plane % channels, n = k / plane / channels;
        const int64_t all = n * plane * channels;
        const double byte = c->x[0][all + (x_last ? i * channels + ch : ch * plane + i)];

        c->y[0][all + (y_last ? i * channels + ch : ch * plane + i)] =
            c->x[1][ch * SH_PREPROCESS_BYTES + (int64_t)byte];
    }
    return SH_OK;
}
