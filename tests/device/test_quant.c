/* test_quant.c - products of integers of 8 bits and what is around them, against sums in 64 bits.
 *
 * Without it: a sum that saturates, a zero point that is forgotten at the padding, or a rounding
 * that is left out shows as a loss of accuracy and nowhere else. Sums are compared exactly; what
 * is scaled may differ by one step of its type where the number lies between two.
 */
#include "common/mem.h"
#include "tests/device/dev_test.h"

#include <math.h>

static int32_t load8(enum sh_dtype t, const void *p, int64_t i)
{
    return t == SH_I8 ? (int32_t)((const int8_t *)p)[i] : (int32_t)((const uint8_t *)p)[i];
}

static uint32_t mixed(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Numbers of the whole range, the ends often. */
static void fill8(struct t_graph *t, uint32_t tensor, uint32_t seed)
{
    uint8_t *p = t->plain[tensor];

    for (int64_t i = 0; i < dev_tensor_elements(&t->tensors[tensor]); i++) {
        const uint32_t r = mixed(&seed);

        p[i] = r % 7 == 0 ? 127 : r % 7 == 1 ? 128 : r % 7 == 2 ? 255 : (uint8_t)(r >> 3);
    }
}

static uint32_t in8(struct t_graph *t, enum dev_role role, enum sh_dtype type, struct t_dims d,
                    uint32_t seed)
{
    const uint32_t x = t_add(t, role, type, d);

    fill8(t, x, seed);
    return x;
}

static double act(enum dev_act a, float p0, double x)
{
    return a == DEV_ACT_RELU         ? fmax(x, 0)
           : a == DEV_ACT_LEAKY_RELU ? (x < 0 ? (double)p0 * x : x)
           : a == DEV_ACT_GELU_ERF   ? x / 2 * (1 + erf(x / sqrt(2)))
           : a == DEV_ACT_SIGMOID    ? 1 / (1 + exp(-x))
                                     : x;
}

static double to8(double v, struct dev_quant q, enum sh_dtype t)
{
    int32_t lo, hi;

    if (!dev_range8(t, &lo, &hi))
        return v;
    return fmin(fmax(nearbyint(v / (double)q.scale) + q.zero, lo), hi);
}

static double from8(double n, struct dev_quant q, enum sh_dtype t)
{
    return t == SH_F32 ? n : (n - q.zero) * (double)q.scale;
}

/* ------------------------------------------------------------------ products */

struct prod_case {
    int64_t n, c, h, w, m, k; /* h = 0: matrices, [n, c] by [m, c] */
    int64_t stride, dilation, pad, groups;
    enum sh_dtype x, y, residual, mid; /* residual SH_BOOL: none */
    int32_t x_zero;
    bool has_offset, has_mid;
    enum dev_act act;
};

static int64_t out_size(const struct prod_case *c, int64_t in)
{
    return (in + 2 * c->pad - (c->k - 1) * c->dilation - 1) / c->stride + 1;
}

struct made {
    struct t_graph t;
    uint32_t x, w, factor, offset, residual, sums, y;
    struct dev_product q;
    int64_t rows, channels, oh, ow;
};

static int64_t sum_at(const struct prod_case *c, const struct made *m, int64_t n, int64_t k,
                      int64_t p, int64_t q)
{
    const int64_t per = c->c / c->groups, first = k / (c->m / c->groups) * per;
    const int8_t *w = m->t.plain[m->w];
    int64_t sum = 0;

    if (c->h == 0) {
        for (int64_t i = 0; i < c->c; i++)
            sum += (int64_t)(load8(c->x, m->t.plain[m->x], n * c->c + i) - c->x_zero) *
                   w[k * c->c + i];
        return sum;
    }
    for (int64_t i = 0; i < per; i++)
        for (int64_t r = 0; r < c->k; r++)
            for (int64_t s = 0; s < c->k; s++) {
                const int64_t y = p * c->stride - c->pad + r * c->dilation;
                const int64_t x = q * c->stride - c->pad + s * c->dilation;

                if (y < 0 || y >= c->h || x < 0 || x >= c->w)
                    continue;
                sum += (int64_t)(load8(c->x, m->t.plain[m->x],
                                       ((n * c->c + first + i) * c->h + y) * c->w + x) -
                                 c->x_zero) *
                       w[((k * per + i) * c->k + r) * c->k + s];
            }
    return sum;
}

static void add_vectors(const struct prod_case *c, struct made *m)
{
    struct t_graph *t = &m->t;
    const double spread = 30000.0 * sqrt((double)c->c * (double)c->k);

    m->factor = m->offset = m->sums = m->residual = DEV_NONE;
    if (c->y != SH_I32) {
        m->factor = t_add(t, DEV_ROLE_WEIGHT, SH_F32, DIMS(c->m));
        for (int64_t i = 0; i < c->m; i++)
            t_f(t, m->factor)[i] = (float)((1.0 + (double)(i % 5)) / spread);
        if (c->has_offset)
            m->offset = t_add(t, DEV_ROLE_WEIGHT, SH_F32, DIMS(c->m));
    }
    if (c->x_zero != 0) {
        const int64_t terms = dev_tensor_elements(&t->tensors[m->w]) / c->m;

        m->sums = t_add(t, DEV_ROLE_WEIGHT, SH_I32, DIMS(c->m));
        for (int64_t i = 0; i < c->m; i++) {
            int32_t sum = 0;

            for (int64_t k = 0; k < terms; k++)
                sum += ((int8_t *)t->plain[m->w])[i * terms + k];
            ((int32_t *)t->plain[m->sums])[i] = sum * c->x_zero;
        }
    }
}

static void make(const struct prod_case *c, struct made *m)
{
    struct t_graph *t = &m->t;
    const bool is_conv = c->h > 0;
    struct t_dims dy = DIMS(c->n, c->m);
    struct dev_op *op;

    t_init(t);
    m->channels = c->m;
    m->oh = m->ow = 1;
    m->x =
        in8(t, DEV_ROLE_INPUT, c->x, is_conv ? DIMS(c->n, c->c, c->h, c->w) : DIMS(c->n, c->c), 1);
    m->w = in8(t, DEV_ROLE_WEIGHT, SH_I8,
               is_conv ? DIMS(c->m, c->c / c->groups, c->k, c->k) : DIMS(c->m, c->c), 2);
    if (is_conv) {
        m->oh = out_size(c, c->h);
        m->ow = out_size(c, c->w);
        dy = DIMS(c->n, c->m, m->oh, m->ow);
    }
    add_vectors(c, m);
    if (c->residual == SH_F32)
        m->residual = t_in(t, dy);
    else if (c->residual != SH_BOOL)
        m->residual = in8(t, DEV_ROLE_INPUT, c->residual, dy, 3);
    m->y = c->y == SH_F32 ? t_out(t, dy) : t_add(t, DEV_ROLE_OUTPUT, c->y, dy);
    op = t_op(t, is_conv ? DEV_OP_QCONV : DEV_OP_QMATMUL,
              IN(m->x, m->w, m->factor, m->offset, m->residual, m->sums), OUT(m->y));
    op->u.qconv.conv = (struct dev_conv){.kernel = {c->k, c->k},
                                         .stride = {c->stride, c->stride},
                                         .dilation = {c->dilation, c->dilation},
                                         .pad_begin = {c->pad, c->pad},
                                         .pad_end = {c->pad, c->pad},
                                         .groups = c->groups};
    op->act = c->act;
    op->act_p0 = c->act == DEV_ACT_LEAKY_RELU ? 0.125f : 0;
    m->q = (struct dev_product){.x_zero = c->x_zero,
                                .residual = {0.0113f, c->residual == SH_U8 ? 100 : -3},
                                .y = {0.0217f, c->y == SH_U8 ? 70 : 5},
                                .mid_type = c->mid};
    if (c->has_mid)
        m->q.mid = (struct dev_quant){0.0307f, c->mid == SH_U8 ? 120 : -7};
    op->u.qconv.q = m->q;
}

/* The number before it is rounded to y. */
static double number_at(const struct prod_case *c, const struct made *m, int64_t sum, int64_t k,
                        int64_t at)
{
    const float *f = m->t.plain[m->factor];
    double v = (double)f[k] * (double)sum;

    if (m->offset != DEV_NONE)
        v += (double)((const float *)m->t.plain[m->offset])[k];
    if (c->has_mid)
        v = from8(to8(v, m->q.mid, c->mid), m->q.mid, c->mid);
    if (c->residual == SH_F32)
        v += (double)((const float *)m->t.plain[m->residual])[at];
    else if (c->residual != SH_BOOL)
        v += from8(load8(c->residual, m->t.plain[m->residual], at), m->q.residual, c->residual);
    return act(c->act, 0.125f, v);
}

/* How far a result may be off: where a number lies between two integers, or the rounding in between
 * took the other one, by one step. */
static void compare(const struct prod_case *c, struct made *m, const double *want)
{
    const int64_t n = dev_tensor_elements(&m->t.tensors[m->y]);
    const double step = c->has_mid ? (double)m->q.mid.scale / (double)m->q.y.scale : 0;
    int64_t off = 0;

    if (c->y == SH_F32) {
        t_close(&m->t, m->y, want, c->has_mid ? 1e-5 : 1e-9);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const double got = c->y == SH_I32 ? (double)((int32_t *)m->t.plain[m->y])[i]
                                          : (double)load8(c->y, m->t.plain[m->y], i);

        if (c->y == SH_I32)
            assert_true(got == want[i]);
        assert_true(fabs(got - want[i]) <= 1 + ceil(step));
        off += got != want[i];
    }
    assert_true(off * (t_unit() > 0 ? 20 : 100) <= n);
}

static void one_product(const struct prod_case *c)
{
    struct made m;
    double *want;
    int64_t at = 0;

    make(c, &m);
    want = t_doubles((size_t)dev_tensor_elements(&m.t.tensors[m.y]));
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t k = 0; k < c->m; k++)
            for (int64_t i = 0; i < m.oh * m.ow; i++, at++) {
                const int64_t sum = sum_at(c, &m, n, k, i / m.ow, i % m.ow);

                want[at] =
                    c->y == SH_I32 ? (double)sum : to8(number_at(c, &m, sum, k, at), m.q.y, c->y);
            }
    t_run(&m.t);
    compare(c, &m, want);
    t_fini(&m.t);
    free(want);
}

#define NONE SH_BOOL

static void sums_are_exact(void **state)
{
    static const struct prod_case CASES[] = {
        {5, 33, 0, 0, 7, 1, 1, 1, 0, 1, SH_I8, SH_I32, NONE, SH_I8, 0, 0, 0, 0},
        {130, 64, 0, 0, 70, 1, 1, 1, 0, 1, SH_U8, SH_I32, NONE, SH_I8, 128, 0, 0, 0},
        {3, 4096, 0, 0, 5, 1, 1, 1, 0, 1, SH_U8, SH_I32, NONE, SH_I8, 3, 0, 0, 0},
        {1, 65536, 0, 0, 2, 1, 1, 1, 0, 1, SH_U8, SH_I32, NONE, SH_I8, 255, 0, 0, 0},
        {2, 3, 9, 11, 5, 3, 1, 1, 1, 1, SH_U8, SH_I32, NONE, SH_I8, 7, 0, 0, 0},
        {2, 16, 13, 6, 20, 3, 2, 1, 1, 1, SH_I8, SH_I32, NONE, SH_I8, -128, 0, 0, 0},
        {1, 24, 10, 10, 36, 3, 1, 2, 2, 3, SH_U8, SH_I32, NONE, SH_I8, 130, 0, 0, 0},
        {2, 12, 7, 7, 12, 3, 1, 1, 1, 12, SH_U8, SH_I32, NONE, SH_I8, 0, 0, 0, 0},
        /* images: few channels with a stride of 2 */
        {2, 3, 21, 18, 16, 7, 2, 1, 3, 1, SH_I8, SH_I32, NONE, SH_I8, -17, 0, 0, 0},
        {2, 4, 16, 15, 5, 3, 2, 1, 0, 1, SH_U8, SH_I32, NONE, SH_I8, 200, 0, 0, 0},
        {1, 1, 14, 14, 8, 4, 2, 1, 2, 1, SH_U8, SH_I32, NONE, SH_I8, 0, 0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++)
        one_product(&CASES[i]);
}

static void results_are_scaled_and_rounded(void **state)
{
    static const enum sh_dtype Y[] = {SH_U8, SH_I8, SH_F32}, R[] = {NONE, SH_U8, SH_I8, SH_F32};
    static const enum dev_act ACTS[] = {DEV_ACT_NONE, DEV_ACT_RELU, DEV_ACT_GELU_ERF,
                                        DEV_ACT_LEAKY_RELU};
    static const int64_t CHANNELS[] = {40, 37, 64, 208, 80};
    uint32_t n = 0;

    (void)state;
    for (size_t y = 0; y < SH_ARRAY_LEN(Y); y++)
        for (size_t r = 0; r < SH_ARRAY_LEN(R); r++)
            for (int mid = 0; mid < 2; mid++)
                for (int conv = 0; conv < 3; conv++, n++) {
                    struct prod_case c = {.n = 3,
                                          .c = 32,
                                          .m = CHANNELS[n % SH_ARRAY_LEN(CHANNELS)],
                                          .k = 1,
                                          .stride = 1,
                                          .dilation = 1,
                                          .groups = 1,
                                          .x = n % 3 ? SH_U8 : SH_I8,
                                          .y = Y[y],
                                          .residual = R[r],
                                          .mid = n % 2 ? SH_U8 : SH_I8,
                                          .x_zero = n % 4 ? 11 : 0,
                                          .has_offset = n % 5 != 0,
                                          .has_mid = mid,
                                          .act = ACTS[n % 4]};

                    c.h = conv ? 9 : 0;
                    c.w = conv ? 7 : 0;
                    if (conv == 2)
                        c.k = 3, c.pad = 1, c.stride = 1 + n % 2;
                    if (conv == 0)
                        c.n = 150;
                    one_product(&c);
                }
}

/* A tile of a sum is read in many parts, the last of them not a whole one. */
static void long_sums_are_scaled(void **state)
{
    static const struct prod_case CASES[] = {
        {300, 1040, 0, 0, 64, 1, 1, 1, 0, 1, SH_I8, SH_I8, NONE, SH_I8, 0, 1, 0, DEV_ACT_NONE},
        {257, 528, 0, 0, 320, 1, 1, 1, 0, 1, SH_U8, SH_U8, SH_U8, SH_U8, 9, 1, 1, DEV_ACT_RELU},
        {130, 2064, 0, 0, 128, 1, 1, 1, 0, 1, SH_I8, SH_U8, SH_I8, SH_I8, -7, 0, 0, DEV_ACT_RELU},
        {3, 96, 9, 8, 192, 3, 1, 1, 1, 1, SH_I8, SH_I8, SH_I8, SH_I8, -128, 1, 1, DEV_ACT_NONE},
        {1, 64, 17, 16, 64, 5, 2, 1, 2, 1, SH_U8, SH_I8, NONE, SH_I8, 0, 1, 0, DEV_ACT_GELU_ERF},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++)
        one_product(&CASES[i]);
}

/* ------------------------------------------------------------------ element by element */

static void one_quantize(enum sh_dtype tx, enum sh_dtype ta, enum sh_dtype ty, enum dev_act a,
                         struct t_dims dims)
{
    const struct dev_quant qx = {0.0213f, tx == SH_U8 ? 99 : -5};
    const struct dev_quant qa = {0.0117f, ta == SH_U8 ? 3 : 20}, qy = {0.0311f, ty == SH_U8};
    const bool has_add = ta != NONE;
    uint32_t x, add = DEV_NONE, y;
    struct dev_op *op;
    struct t_graph t;
    double *want;
    int64_t n, off = 0;

    t_init(&t);
    x = tx == SH_F32 ? t_in(&t, dims) : in8(&t, DEV_ROLE_INPUT, tx, dims, 5);
    if (has_add)
        add = ta == SH_F32 ? t_in(&t, dims) : in8(&t, DEV_ROLE_INPUT, ta, dims, 6);
    y = ty == SH_F32 ? t_out(&t, dims) : t_add(&t, DEV_ROLE_OUTPUT, ty, dims);
    if (tx == SH_F32)
        t_map(&t, x, 4, 0);
    op = t_op(&t, DEV_OP_QUANTIZE, IN(x, add), OUT(y));
    op->u.quant = (struct dev_quantize){qx, qa, qy};
    op->act = a;
    n = dev_tensor_elements(&t.tensors[y]);
    want = t_doubles((size_t)n);
    for (int64_t i = 0; i < n; i++) {
        double v = tx == SH_F32 ? (double)t_f(&t, x)[i] : from8(load8(tx, t.plain[x], i), qx, tx);

        if (has_add)
            v += ta == SH_F32 ? (double)t_f(&t, add)[i] : from8(load8(ta, t.plain[add], i), qa, ta);
        want[i] = to8(act(a, 0, v), qy, ty);
    }
    t_run(&t);
    if (ty == SH_F32)
        t_close(&t, y, want, 1e-9);
    for (int64_t i = 0; i < n && ty != SH_F32; i++) {
        const double got = load8(ty, t.plain[y], i);

        assert_true(fabs(got - want[i]) <= 1);
        off += got != want[i];
    }
    assert_true(off * 100 <= n);
    t_fini(&t);
    free(want);
}

static void elements_are_quantised(void **state)
{
    static const enum sh_dtype ALL[] = {SH_F32, SH_I8, SH_U8, NONE};

    (void)state;
    for (size_t x = 0; x < 3; x++)
        for (size_t a = 0; a < 4; a++)
            for (size_t y = 0; y < 3; y++) {
                one_quantize(ALL[x], ALL[a], ALL[y], DEV_ACT_NONE, DIMS(2, 5, 7, 3));
                one_quantize(ALL[x], ALL[a], ALL[y], DEV_ACT_RELU, DIMS(1, 33, 61));
                one_quantize(ALL[x], ALL[a], ALL[y], DEV_ACT_SIGMOID, DIMS(2, 16, 9, 8));
            }
}

/* A layer normalisation gives its floats and what QUANTIZE would make of them. */
static void a_norm_gives_integers_too(void **state)
{
    static const int64_t COLUMNS[] = {64, 192, 1024, 37, 1300};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(COLUMNS); k++) {
        const enum sh_dtype type = k % 2 ? SH_U8 : SH_I8;
        const struct dev_quant q = {0.0213f, k % 2 ? 120 : -7};
        const int64_t n = COLUMNS[k], rows = 11;
        uint32_t x, scale, bias, y, y8;
        int64_t off = 0;
        struct t_graph t;
        struct dev_op *op;

        t_init(&t);
        x = t_in(&t, DIMS(rows, n));
        scale = t_weight(&t, DIMS(n));
        bias = t_weight(&t, DIMS(n));
        y = t_out(&t, DIMS(rows, n));
        y8 = t_add(&t, DEV_ROLE_OUTPUT, type, DIMS(rows, n));
        t_map(&t, x, 3, 1);
        op = t_op(&t, DEV_OP_LAYERNORM, IN(x, scale, bias), OUT(y, DEV_NONE, DEV_NONE, y8));
        op->u.norm.axis = -1;
        op->u.norm.eps = 1e-5f;
        op->u.norm.q = q;
        t_run(&t);
        for (int64_t i = 0; i < rows * n; i++) {
            const double want = to8((double)t_f(&t, y)[i], q, type);
            const double got = load8(type, t.plain[y8], i);

            assert_true(fabs(got - want) <= 1);
            off += got != want;
        }
        assert_true(off * (t_unit() > 0 ? 4 : 100) <= rows * n);
        t_fini(&t);
    }
}

/* Planes of floats, as pictures come, in the order in which a convolution takes their bytes. */
static void pictures_are_quantised(void **state)
{
    static const int64_t CHANNELS[] = {1, 2, 3, 4, 5};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CHANNELS); i++)
        for (int64_t w = 6; w < 9; w++) {
            const struct prod_case c = {3, CHANNELS[i], 6,      w,    8,     3, 1, 1, 1,
                                        1, SH_I8,       SH_I32, NONE, SH_I8, 2, 0, 0, 0};
            const int64_t n = c.n * c.c * c.h * w;
            struct made m;
            double *want;
            uint32_t x;
            int64_t at = 0;

            make(&c, &m);
            want = t_doubles((size_t)(c.n * c.m * m.oh * m.ow));
            for (int64_t k = 0; k < c.n * c.m; k++)
                for (int64_t p = 0; p < m.oh * m.ow; p++)
                    want[at++] = (double)sum_at(&c, &m, k / c.m, k % c.m, p / m.ow, p % m.ow);
            x = t_in(&m.t, DIMS(c.n, c.c, c.h, w));
            for (int64_t k = 0; k < n; k++)
                t_f(&m.t, x)[k] = 0.5f * (float)(((int8_t *)m.t.plain[m.x])[k] - 2);
            m.t.tensors[m.x].role = DEV_ROLE_ACT;
            t_op(&m.t, DEV_OP_QUANTIZE, IN(x), OUT(m.x))->u.quant.y = (struct dev_quant){0.5f, 2};
            m.t.ops[2] = m.t.ops[0]; /* first what is quantised, then its product */
            m.t.ops[0] = m.t.ops[1];
            m.t.ops[1] = m.t.ops[2];
            t_run(&m.t);
            compare(&c, &m, want);
            t_fini(&m.t);
            free(want);
        }
}

static void numbers_beyond_the_type_become_its_ends(void **state)
{
    static const float X[] = {INFINITY, -INFINITY, NAN, 1e30f, -1e30f, 0.5f, 1.5f, 2.5f, -0.5f};
    static const uint8_t WANT[] = {255, 0, 0, 255, 0, 10, 12, 12, 10};
    uint32_t x, y;
    struct t_graph t;

    (void)state;
    t_init(&t);
    x = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(9));
    y = t_add(&t, DEV_ROLE_OUTPUT, SH_U8, DIMS(9));
    memcpy(t_f(&t, x), X, sizeof(X));
    t_op(&t, DEV_OP_QUANTIZE, IN(x), OUT(y))->u.quant.y = (struct dev_quant){1, 10};
    t_run(&t);
    assert_memory_equal(t.plain[y], WANT, sizeof(WANT));
    t_fini(&t);
}

static void the_largest_of_a_window(void **state)
{
    static const enum sh_dtype TYPES[] = {SH_I8, SH_U8};

    (void)state;
    for (int k = 0; k < 2; k++)
        for (int64_t c = 5; c <= 32; c += 27) {
            const struct dev_conv window = {.kernel = {3, 3},
                                            .stride = {2, 2},
                                            .dilation = {1, 1},
                                            .pad_begin = {1, 1},
                                            .pad_end = {1, 1},
                                            .groups = 1};
            struct t_graph t;
            uint32_t x, y;

            t_init(&t);
            x = in8(&t, DEV_ROLE_INPUT, TYPES[k], DIMS(2, c, 9, 7), 8);
            y = t_add(&t, DEV_ROLE_OUTPUT, TYPES[k], DIMS(2, c, 5, 4));
            t_op(&t, DEV_OP_POOL_MAX, IN(x), OUT(y))->u.pool = window;
            t_run(&t);
            for (int64_t i = 0; i < 2 * c * 20; i++) {
                int32_t best = INT32_MIN;

                for (int64_t h = i / 4 % 5 * 2 - 1; h < i / 4 % 5 * 2 + 2; h++)
                    for (int64_t w = i % 4 * 2 - 1; w < i % 4 * 2 + 2; w++)
                        if (h >= 0 && h < 9 && w >= 0 && w < 7)
                            best =
                                SH_MAX(best, load8(TYPES[k], t.plain[x], (i / 20 * 9 + h) * 7 + w));
                assert_int_equal(load8(TYPES[k], t.plain[y], i), best);
            }
            t_fini(&t);
        }
}

/* ------------------------------------------------------------------ refusals */

static void what_means_nothing_is_refused(void **state)
{
    static const struct dev_quant BAD[] = {{0, 0},        {-1, 0},  {NAN, 0},
                                           {INFINITY, 0}, {1, 256}, {1, -1}};
    struct sh_err err;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct prod_case c = {.n = 2,
                              .c = 8,
                              .m = 4,
                              .k = 1,
                              .stride = 1,
                              .dilation = 1,
                              .groups = 1,
                              .x = SH_U8,
                              .y = SH_U8,
                              .residual = NONE};
        struct made m;
        struct t_graph t;
        uint32_t x, y;

        t_init(&t);
        x = t_in(&t, DIMS(4));
        y = t_add(&t, DEV_ROLE_OUTPUT, SH_U8, DIMS(4));
        t_op(&t, DEV_OP_QUANTIZE, IN(x), OUT(y))->u.quant.y = BAD[i];
        assert_int_equal(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG);
        t_fini(&t);
        make(&c, &m);
        m.t.ops[0].u.qconv.q.y = BAD[i];
        assert_int_equal(t_plan_fails(&m.t, DEV_FP32, &err), SH_E_BUG);
        t_fini(&m.t);
    }
}

static void sums_that_do_not_fit_are_refused(void **state)
{
    struct prod_case c = {.n = 1,
                          .c = 65537,
                          .m = 1,
                          .k = 1,
                          .stride = 1,
                          .dilation = 1,
                          .groups = 1,
                          .x = SH_U8,
                          .y = SH_I32,
                          .residual = NONE};
    struct sh_err err;
    struct made m;

    (void)state;
    make(&c, &m);
    assert_int_equal(t_plan_fails(&m.t, DEV_FP32, &err), SH_E_BUG);
    t_fini(&m.t);
    c.c = 8;
    make(&c, &m);
    m.t.ops[0].u.qconv.q.x_zero = 9; /* and no sums */
    assert_int_equal(t_plan_fails(&m.t, DEV_FP32, &err), SH_E_BUG);
    t_fini(&m.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(results_are_scaled_and_rounded),
        cmocka_unit_test(long_sums_are_scaled),
        cmocka_unit_test(elements_are_quantised),
        cmocka_unit_test(a_norm_gives_integers_too),
        cmocka_unit_test(pictures_are_quantised),
        cmocka_unit_test(numbers_beyond_the_type_become_its_ends),
        cmocka_unit_test(the_largest_of_a_window),
        cmocka_unit_test(what_means_nothing_is_refused),
        cmocka_unit_test(sums_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
