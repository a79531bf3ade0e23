/* test_train.c - normalisation, dropout and losses.
 *
 * Without it a model trains, only worse: a biased variance, a decay on the wrong side or a mean
 * over the wrong count does not crash. References are the formulas in double precision; the
 * gradients of the normalisations are central differences of them.
 */
#include "common/mem.h"
#include "runtime/device/philox.h"
#include "tests/device/dev_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ batch normalisation */

struct bn {
    int64_t n, c, hw;
    double eps;
};

static void bn_stats(const struct bn *s, const double *x, int64_t c, double *mean, double *var)
{
    const double count = (double)(s->n * s->hw);

    *mean = *var = 0;
    for (int64_t i = 0; i < s->n * s->hw; i++)
        *mean += x[(i / s->hw * s->c + c) * s->hw + i % s->hw] / count;
    for (int64_t i = 0; i < s->n * s->hw; i++)
        *var += pow(x[(i / s->hw * s->c + c) * s->hw + i % s->hw] - *mean, 2) / count;
}

/* sum(d_y y) as a function of x: its derivative is d_x */
static double bn_scalar(const struct bn *s, const double *x, const float *dy, double scale,
                        int64_t c)
{
    double mean, var, sum = 0;

    bn_stats(s, x, c, &mean, &var);
    for (int64_t i = 0; i < s->n * s->hw; i++) {
        int64_t e = (i / s->hw * s->c + c) * s->hw + i % s->hw;

        sum += dy[e] * scale * (x[e] - mean) / sqrt(var + s->eps);
    }
    return sum;
}

static void one_bn_train(int64_t n, int64_t c, int64_t h, int64_t w, bool blocked)
{
    const struct bn s = {n, c, h * w, 1e-3};
    const int64_t total = n * c * h * w;
    const struct t_dims dims = DIMS(n, c, h, w), vec = DIMS(c);
    double *x = t_doubles((size_t)total), *y = t_doubles((size_t)total);
    double *dx = t_doubles((size_t)total), *v = t_doubles((size_t)c * 6);
    uint32_t ix, iy, in[4], out[5], g[3], xb, dyb;
    struct t_graph t;
    struct dev_op *op;

    t_init(&t);
    ix = t_in(&t, dims);
    t_map(&t, ix, 3, 1);
    iy = t_in(&t, dims);
    for (int i = 0; i < 4; i++)
        in[i] = t_state(&t, vec);
    t_map(&t, in[3], 1, 2); /* a variance is positive */
    out[0] = t_act(&t, dims);
    for (int i = 1; i < 5; i++)
        out[i] = t_act(&t, vec);
    g[0] = t_act(&t, dims);
    g[1] = t_act(&t, vec);
    g[2] = t_act(&t, vec);
    xb = blocked ? t_blocked(&t, ix) : ix;
    dyb = blocked ? t_blocked(&t, iy) : iy;
    op = t_op(&t, DEV_OP_BN_TRAIN, IN(xb, in[0], in[1], in[2], in[3]),
              OUT(out[0], out[1], out[2], out[3], out[4]));
    op->u.norm.eps = 1e-3f;
    op->u.norm.momentum = 0.9f;
    op = t_op(&t, DEV_OP_BN_TRAIN_BWD, IN(xb, dyb, in[0], out[1], out[2]), OUT(g[0], g[1], g[2]));
    op->u.norm.eps = 1e-3f;
    t_op(&t, DEV_OP_COMMIT, IN(out[3]), OUT(in[2]));
    for (int64_t i = 0; i < total; i++)
        x[i] = t_f(&t, ix)[i];
    for (int64_t k = 0; k < c; k++) {
        double mean, var, scale = t_f(&t, in[0])[k], shift = t_f(&t, in[1])[k];
        double count = (double)(n * h * w);

        bn_stats(&s, x, k, &mean, &var);
        v[k] = mean;
        v[c + k] = 1 / sqrt(var + s.eps);
        v[2 * c + k] = 0.9 * t_f(&t, in[2])[k] + 0.1 * mean;
        v[3 * c + k] = 0.9 * t_f(&t, in[3])[k] + 0.1 * var * count / (count - 1);
        for (int64_t i = 0; i < n * h * w; i++) {
            int64_t e = (i / (h * w) * c + k) * h * w + i % (h * w);
            double keep = x[e], up, h0 = 1e-5;

            y[e] = (x[e] - mean) / sqrt(var + s.eps) * scale + shift;
            v[4 * c + k] += t_f(&t, iy)[e] * (x[e] - mean) / sqrt(var + s.eps);
            v[5 * c + k] += t_f(&t, iy)[e];
            x[e] = keep + h0;
            up = bn_scalar(&s, x, t_f(&t, iy), scale, k);
            x[e] = keep - h0;
            dx[e] = (up - bn_scalar(&s, x, t_f(&t, iy), scale, k)) / (2 * h0);
            x[e] = keep;
        }
    }
    t_run(&t);
    t_close(&t, out[0], y, 1e-11);
    for (int i = 0; i < 4; i++)
        t_close(&t, out[i + 1], v + i * c, 1e-11);
    t_close(&t, g[0], dx, 1e-9);
    t_close(&t, g[1], v + 4 * c, 1e-10);
    t_close(&t, g[2], v + 5 * c, 1e-10);
    assert_memory_equal(t.plain[in[2]], t.plain[out[3]], (size_t)c * 4); /* committed */
    t_fini(&t);
    free(x);
    free(y);
    free(dx);
    free(v);
}

static void batch_normalisation_trains_as_the_formula_says(void **state)
{
    (void)state;
    one_bn_train(4, 5, 3, 3, false);
    one_bn_train(3, 20, 3, 5, true);
    one_bn_train(2, 16, 4, 4, true);
    one_bn_train(9, 7, 1, 1, false);
}

struct bn_fused {
    int64_t n, c, h, w;
    enum dev_act act;
    float lo, hi;
    bool residual, d_y2, d_residual, blocked;
};

/* act(v), and its slope there. */
static double gated(enum dev_act act, double v, double *slope)
{
    const double s = 1 / (1 + exp(-v));

    if (act == DEV_ACT_SILU) {
        *slope = s * (1 + v * (1 - s));
        return v * s;
    }
    *slope = v <= -3 ? 0 : v >= 3 ? 1 : v / 3 + 0.5;
    return v * fmin(fmax(v / 6 + 0.5, 0), 1);
}

/* The same from the parts: y and the gradients behind activation and residual. */
static void bn_fused_want(const struct bn_fused *f, struct t_graph *t, const uint32_t *id,
                          double *y, double *g, double *dx, double *vec)
{
    const struct bn s = {f->n, f->c, f->h * f->w, 1e-3};
    const double count = (double)(s.n * s.hw);
    double *x = t_doubles((size_t)(s.n * s.c * s.hw));

    for (int64_t i = 0; i < s.n * s.c * s.hw; i++)
        x[i] = t_f(t, id[0])[i];
    for (int64_t k = 0; k < s.c; k++) {
        double mean, var, inv, scale = t_f(t, id[4])[k], *ds = vec + k, *db = vec + s.c + k;

        bn_stats(&s, x, k, &mean, &var);
        inv = 1 / sqrt(var + s.eps);
        for (int64_t i = 0; i < s.n * s.hw; i++) {
            int64_t e = (i / s.hw * s.c + k) * s.hw + i % s.hw;
            double v = (x[e] - mean) * inv * scale + t_f(t, id[5])[k], slope = 0;

            v += f->residual ? t_f(t, id[1])[e] : 0;
            y[e] = f->act == DEV_ACT_NONE ? v : fmin(fmax(v, f->lo), f->hi);
            if (dev_act_is_gated(f->act))
                y[e] = gated(f->act, v, &slope);
            g[e] = t_f(t, id[2])[e] + (f->d_y2 ? t_f(t, id[3])[e] : 0);
            if (dev_act_is_gated(f->act))
                g[e] *= slope;
            else if (f->act != DEV_ACT_NONE && !(v > f->lo && v < f->hi))
                g[e] = 0;
            *ds += g[e] * (x[e] - mean) * inv;
            *db += g[e];
        }
        for (int64_t i = 0; i < s.n * s.hw; i++) {
            int64_t e = (i / s.hw * s.c + k) * s.hw + i % s.hw;

            dx[e] = scale * inv * (g[e] - *db / count - (x[e] - mean) * inv * *ds / count);
        }
    }
    free(x);
}

static void one_bn_fused(const struct bn_fused *f)
{
    const int64_t total = f->n * f->c * f->h * f->w;
    const struct t_dims dims = DIMS(f->n, f->c, f->h, f->w), vec = DIMS(f->c);
    double *y = t_doubles((size_t)total), *g = t_doubles((size_t)total);
    double *dx = t_doubles((size_t)total), *v = t_doubles((size_t)f->c * 2);
    uint32_t id[8], b[4], out[5], d[4];
    struct t_graph t;

    t_init(&t);
    for (int i = 0; i < 4; i++) /* x, residual, d_y, d_y2 */
        id[i] = t_in(&t, dims);
    for (int i = 4; i < 8; i++) /* scale, bias, statistics */
        id[i] = t_state(&t, vec);
    for (int i = 0; i < 5; i++)
        out[i] = t_act(&t, i ? vec : dims);
    for (int i = 0; i < 4; i++)
        d[i] = t_act(&t, i == 1 || i == 2 ? vec : dims);
    for (int i = 0; i < 4; i++)
        b[i] = f->blocked ? t_blocked(&t, id[i]) : id[i];
    for (int i = 0; i < 2; i++) {
        const uint32_t y_or_bias = f->residual ? DEV_NONE : id[5];
        struct dev_op *op =
            i == 0 ? t_op(&t, DEV_OP_BN_TRAIN,
                          IN(b[0], id[4], id[5], id[6], id[7], f->residual ? b[1] : DEV_NONE),
                          OUT(out[0], out[1], out[2], out[3], out[4]))
                   : t_op(&t, DEV_OP_BN_TRAIN_BWD,
                          IN(b[0], b[2], id[4], out[1], out[2], y_or_bias,
                             f->residual ? out[0] : DEV_NONE, f->d_y2 ? b[3] : DEV_NONE),
                          OUT(d[0], d[1], d[2], f->d_residual ? d[3] : DEV_NONE));

        op->u.norm.eps = 1e-3f;
        op->act = f->act;
        op->act_p0 = f->lo;
        op->act_p1 = f->hi;
    }
    bn_fused_want(f, &t, id, y, g, dx, v);
    t_run(&t);
    t_close(&t, out[0], y, 1e-11);
    t_close(&t, d[0], dx, 1e-9);
    t_close(&t, d[1], v, 1e-10);
    t_close(&t, d[2], v + f->c, 1e-10);
    if (f->d_residual)
        t_close(&t, d[3], g, 1e-12);
    t_fini(&t);
    free(y);
    free(g);
    free(dx);
    free(v);
}

static void batch_normalisation_takes_in_residual_and_activation(void **state)
{
    const enum dev_act none = DEV_ACT_NONE, relu = DEV_ACT_RELU, cut = DEV_ACT_CLIP;
    const float inf = INFINITY;
    const struct bn_fused cases[] = {
        {4, 5, 3, 3, relu, 0, inf, false, false, false, false},
        {3, 20, 3, 5, relu, 0, inf, false, false, false, true},
        {3, 20, 3, 5, relu, 0, inf, true, false, true, true},
        {2, 64, 5, 4, relu, 0, inf, true, true, true, true},
        {5, 24, 7, 7, relu, 0, inf, true, true, true, false},
        {2, 16, 4, 4, cut, 0, 0.75f, false, true, false, true},
        {3, 20, 3, 5, cut, -0.5f, 0.5f, true, false, true, true},
        {3, 20, 3, 5, none, 0, 0, true, false, false, true},
        {3, 8, 3, 5, none, 0, 0, true, true, true, true},
        {9, 7, 1, 1, none, 0, 0, false, true, false, false},
        {9, 512, 1, 1, relu, 0, inf, true, true, true, true},
        {3, 20, 3, 5, DEV_ACT_SILU, 0, 0, false, false, false, true},
        {4, 5, 3, 3, DEV_ACT_SILU, 0, 0, false, true, false, false},
        {2, 64, 5, 4, DEV_ACT_HARDSWISH, 0, 0, false, true, false, true},
        {9, 7, 1, 1, DEV_ACT_HARDSWISH, 0, 0, false, false, false, false},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(cases); i++)
        one_bn_fused(&cases[i]);
}

/* So much that many blocks share a channel and each thread has several rows. A sanitizer takes long
 * over each of them. */
static void batch_normalisation_adds_what_many_blocks_have(void **state)
{
    const struct bn_fused cases[] = {
        {3, 64, 56, 56, DEV_ACT_RELU, 0, INFINITY, false, false, false, true},
        {3, 64, 56, 56, DEV_ACT_RELU, 0, INFINITY, true, true, true, true},
        {5, 33, 43, 43, DEV_ACT_RELU, 0, INFINITY, true, true, false, true},
        {6, 2048, 7, 7, DEV_ACT_RELU, 0, INFINITY, false, true, false, true},
        {3, 64, 56, 56, DEV_ACT_SILU, 0, 0, false, false, false, true},
        {5, 33, 43, 43, DEV_ACT_HARDSWISH, 0, 0, false, true, false, true},
    };

    (void)state;
    if (strcmp(t_kind(), "cuda") != 0)
        skip(); /* has no blocks, and the arena is small */
    for (size_t i = 0; i < (getenv("SANITIZED") ? 1 : SH_ARRAY_LEN(cases)); i++)
        one_bn_fused(&cases[i]);
}

/* More rows than the multiprocessors of a large GPU keep in shared memory (28 MB): those that do
 * not stay are read again, which depends on what else there is to read. */
static void batch_normalisation_reads_again_what_did_not_stay(void **state)
{
    const struct bn_fused cases[] = {
        {4, 32, 256, 256, DEV_ACT_RELU, 0, INFINITY, false, false, false, true},
        {4, 32, 256, 256, DEV_ACT_RELU, 0, INFINITY, true, true, true, true},
    };
    const char *precision = getenv("PRECISION");

    (void)state;
    if (strcmp(t_kind(), "cuda") != 0 || getenv("SANITIZED"))
        skip(); /* there is no such limit; it takes long */
    if (precision && (strcmp(precision, "tf32") == 0 || strcmp(precision, "fp16") == 0))
        skip(); /* the same kernels as in fp32; as in bf16 */
    for (size_t i = 0; i < SH_ARRAY_LEN(cases); i++)
        one_bn_fused(&cases[i]);
}

static void batch_normalisation_infers_with_given_statistics(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        const enum dev_act act = k < 2 ? DEV_ACT_RELU : DEV_ACT_HARDSWISH;
        double *want = t_doubles(3 * 20 * 20);
        uint32_t x, xb, p[4], y;
        struct t_graph t;
        struct dev_op *op;

        t_init(&t);
        x = t_in(&t, DIMS(3, 20, 4, 5));
        for (int i = 0; i < 4; i++)
            p[i] = t_weight(&t, DIMS(20));
        t_map(&t, p[3], 1, 2);
        xb = k % 2 ? t_blocked(&t, x) : x;
        y = t_out(&t, DIMS(3, 20, 4, 5));
        op = t_op(&t, DEV_OP_BN_INFER, IN(xb, p[0], p[1], p[2], p[3]), OUT(y));
        op->u.norm.eps = 1e-3f;
        op->act = act;
        for (int i = 0; i < 1200; i++) {
            int c = i / 20 % 20;
            double v = (t_f(&t, x)[i] - t_f(&t, p[2])[c]) / sqrt(t_f(&t, p[3])[c] + 1e-3) *
                           t_f(&t, p[0])[c] +
                       t_f(&t, p[1])[c];

            want[i] = act == DEV_ACT_RELU ? fmax(v, 0) : v * fmax(0, fmin(1, v / 6 + 0.5));
        }
        t_run(&t);
        t_close(&t, y, want, 1e-11);
        t_fini(&t);
        free(want);
    }
}

/* ------------------------------------------------------------------ layer normalisation */

static double ln_scalar(const double *x, const float *dy, const float *scale, int64_t n, double eps)
{
    double mean = 0, var = 0, sum = 0;

    for (int64_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        var += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++)
        sum += dy[i] * (scale ? scale[i] : 1) * (x[i] - mean) / sqrt(var + eps);
    return sum;
}

/* stored: x and d_y are activations, not inputs of the program. */
static void one_layernorm(int64_t rows, int64_t n, bool affine, bool stored)
{
    const double eps = 1e-5;
    double *x = t_doubles((size_t)(rows * n)), *y = t_doubles((size_t)(rows * n));
    double *dx = t_doubles((size_t)(rows * n)), *ds = t_doubles((size_t)n);
    double *db = t_doubles((size_t)n), *stats = t_doubles((size_t)rows * 2);
    uint32_t ix, idy, s = DEV_NONE, b = DEV_NONE, oy, m, inv, odx, ods, odb, x_as, dy_as;
    struct t_graph t;
    struct dev_op *op;

    t_init(&t);
    ix = t_in(&t, DIMS(rows, n));
    t_map(&t, ix, 2, 0.5f);
    idy = t_in(&t, DIMS(rows, n));
    if (affine) {
        s = t_state(&t, DIMS(n));
        b = t_state(&t, DIMS(n));
    }
    oy = t_act(&t, DIMS(rows, n));
    m = t_act(&t, DIMS(rows, 1));
    inv = t_act(&t, DIMS(rows, 1));
    odx = t_act(&t, DIMS(rows, n));
    ods = t_act(&t, DIMS(n));
    odb = t_act(&t, DIMS(n));
    x_as = stored ? t_stored(&t, ix) : ix;
    dy_as = stored ? t_stored(&t, idy) : idy;
    op = t_op(&t, DEV_OP_LAYERNORM, IN(x_as, s, b), OUT(oy, m, inv));
    op->u.norm.eps = (float)eps;
    op->u.norm.axis = -1;
    op = t_op(&t, DEV_OP_LAYERNORM_BWD, IN(x_as, dy_as, s, m, inv), OUT(odx, ods, odb));
    op->u.norm.axis = 1;
    for (int64_t i = 0; i < rows * n; i++)
        x[i] = t_f(&t, ix)[i];
    for (int64_t r = 0; r < rows; r++) {
        const float *dy = t_f(&t, idy) + r * n, *scale = affine ? t_f(&t, s) : NULL;
        double mean = 0, var = 0, *xr = x + r * n;

        for (int64_t i = 0; i < n; i++)
            mean += xr[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            var += (xr[i] - mean) * (xr[i] - mean) / (double)n;
        stats[r] = mean;
        stats[rows + r] = 1 / sqrt(var + eps);
        for (int64_t i = 0; i < n; i++) {
            double hat = (xr[i] - mean) / sqrt(var + eps), keep = xr[i], up;

            y[r * n + i] = affine ? hat * scale[i] + t_f(&t, b)[i] : hat;
            ds[i] += dy[i] * hat;
            db[i] += dy[i];
            xr[i] = keep + 1e-5;
            up = ln_scalar(xr, dy, scale, n, eps);
            xr[i] = keep - 1e-5;
            dx[r * n + i] = (up - ln_scalar(xr, dy, scale, n, eps)) / 2e-5;
            xr[i] = keep;
        }
    }
    t_run(&t);
    t_close(&t, oy, y, 1e-11);
    t_close(&t, m, stats, 1e-11);
    t_close(&t, inv, stats + rows, 1e-11);
    t_close(&t, odx, dx, 1e-9);
    t_close(&t, ods, ds, 1e-10);
    t_close(&t, odb, db, 1e-10);
    t_fini(&t);
    free(x);
    free(y);
    free(dx);
    free(ds);
    free(db);
    free(stats);
}

static void layer_normalisation_and_its_gradients_match(void **state)
{
    (void)state;
    one_layernorm(5, 33, true, false);
    one_layernorm(70, 129, true, true);
    one_layernorm(3, 16, false, false);
}

/* A line in one warp and in several, longer ones than that; in fours and odd; more lines than the
 * device has at once. */
static void layer_normalisation_matches_for_any_length(void **state)
{
    (void)state;
    for (int stored = 0; stored < 2; stored++) {
        one_layernorm(2200, 20, true, stored);
        one_layernorm(2200, 9, true, stored);
        one_layernorm(40, 260, false, stored);
        one_layernorm(9, 768, true, stored);
        one_layernorm(3, 1000, true, stored);
        one_layernorm(3, 1027, true, stored);
        one_layernorm(2, 1540, true, stored);
    }
    one_layernorm(1, 6148, true, true);
}

/* ------------------------------------------------------------------ dropout */

static void philox_gives_the_published_numbers(void **state)
{
    const uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    const uint32_t want0[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t want1[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    uint32_t got[4];

    (void)state;
    dev_philox(0, zero, got);
    assert_memory_equal(got, want0, sizeof(got));
    dev_philox(~UINT64_C(0), ones, got);
    assert_memory_equal(got, want1, sizeof(got));
}

static void assert_scaled(float got, float want)
{
    assert_true(fabs((double)got - (double)want) < 1e-6 + t_unit() * fabs((double)want));
}

#define N_DROPS 5005 /* no multiple of what a thread does at once */

/* mask: N_DROPS bytes, what was kept. */
static void one_dropout(int step, bool has_residual, uint8_t *mask_out)
{
    const struct t_dims dims = DIMS(5, N_DROPS / 5);
    uint32_t x, res = DEV_NONE, dy, y, mask, dx;
    struct t_graph t;

    t_init(&t);
    t.step = step;
    x = t_in(&t, dims);
    dy = t_in(&t, dims);
    if (has_residual)
        res = t_in(&t, dims);
    y = t_act(&t, dims);
    mask = t_add(&t, DEV_ROLE_ACT, SH_U8, dims);
    dx = t_act(&t, dims);
    for (int k = 0; k < 2; k++) {
        struct dev_op *op = k              ? t_op(&t, DEV_OP_DROPOUT_BWD, IN(dy, mask), OUT(dx))
                            : has_residual ? t_op(&t, DEV_OP_DROPOUT, IN(x, res), OUT(y, mask))
                                           : t_op(&t, DEV_OP_DROPOUT, IN(x), OUT(y, mask));

        op->u.dropout.ratio = 0.25f;
        op->u.dropout.seed = 7;
    }
    t_run(&t);
    for (int i = 0; i < N_DROPS; i++) {
        uint8_t m = ((uint8_t *)t.plain[mask])[i];

        assert_scaled(t_f(&t, y)[i],
                      (m ? t_f(&t, x)[i] / 0.75f : 0) + (has_residual ? t_f(&t, res)[i] : 0));
        assert_scaled(t_f(&t, dx)[i], m ? t_f(&t, dy)[i] / 0.75f : 0);
    }
    memcpy(mask_out, t.plain[mask], N_DROPS);
    t_fini(&t);
}

static void dropout_depends_on_seed_and_step_alone(void **state)
{
    uint8_t *mask = calloc(3, N_DROPS);
    size_t kept = 0;

    (void)state;
    assert_non_null(mask);
    one_dropout(0, false, mask);
    one_dropout(1, false, mask + N_DROPS);
    one_dropout(1, true, mask + (size_t)2 * N_DROPS);
    assert_memory_not_equal(mask, mask + N_DROPS, N_DROPS);
    assert_memory_equal(mask + N_DROPS, mask + (size_t)2 * N_DROPS, N_DROPS);
    for (int i = 0; i < 2 * N_DROPS; i++)
        kept += mask[i];
    assert_in_range(kept, 7507 - 217, 7507 + 217); /* five standard deviations */
    free(mask);
}

/* Without a mask nothing can go back, and in a program with convolutions the residual comes in the
 * device's own layout. */
static void dropout_adds_images_as_they_lie(void **state)
{
    const struct t_dims dims = DIMS(2, 20, 5, 7);
    const int n = 2 * 20 * 35;
    uint32_t x, res, y, only;
    struct t_graph t;
    int kept = 0;

    (void)state;
    t_init(&t);
    x = t_in(&t, dims);
    res = t_in(&t, dims);
    y = t_out(&t, dims);
    only = t_out(&t, dims);
    for (int k = 0; k < 2; k++) { /* ratios of nothing and of all */
        struct dev_op *op =
            t_op(&t, DEV_OP_DROPOUT, IN(t_blocked(&t, x), t_blocked(&t, res)), OUT(k ? only : y));

        op->u.dropout.ratio = k ? 1 : 0.5f;
        op->u.dropout.seed = 3;
    }
    t_run(&t);
    for (int i = 0; i < n; i++) {
        const float dropped = t_f(&t, res)[i], held = 2 * t_f(&t, x)[i] + dropped;
        const float got = t_f(&t, y)[i];
        const bool is_held = fabs((double)(got - held)) < fabs((double)(got - dropped));

        kept += is_held;
        assert_scaled(got, is_held ? held : dropped);
        assert_scaled(t_f(&t, only)[i], dropped);
    }
    assert_in_range(kept, n / 2 - 94, n / 2 + 94);
    t_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_normalisation_trains_as_the_formula_says),
        cmocka_unit_test(batch_normalisation_takes_in_residual_and_activation),
        cmocka_unit_test(batch_normalisation_adds_what_many_blocks_have),
        cmocka_unit_test(batch_normalisation_reads_again_what_did_not_stay),
        cmocka_unit_test(batch_normalisation_infers_with_given_statistics),
        cmocka_unit_test(layer_normalisation_and_its_gradients_match),
        cmocka_unit_test(layer_normalisation_matches_for_any_length),
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(dropout_depends_on_seed_and_step_alone),
        cmocka_unit_test(dropout_adds_images_as_they_lie),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
