/* test_conv.c - convolution, pooling and matrix product, forward and backward.
 *
 * Without it a wrong stride, padding, group or fused epilogue shows as a model that is only a
 * little worse. References are the textbook loops in double precision.
 */
#include "common/mem.h"
#include "runtime/device/cuda/conv_variants.h"
#include "tests/device/dev_test.h"

#include <math.h>

#define CONV_BOUND 1e-11 /* F32 sums of some hundred products */

struct cc {
    int64_t n, c, h, w, m, k[2], stride[2], dil[2], pad[4], groups;
};

static int64_t out_size(const struct cc *s, int i)
{
    int64_t in = i ? s->w : s->h, reach = (s->k[i] - 1) * s->dil[i] + 1;

    return (in + s->pad[i] + s->pad[2 + i] - reach) / s->stride[i] + 1;
}

static struct dev_conv conv_of(const struct cc *s)
{
    struct dev_conv c = {.groups = s->groups};

    for (int i = 0; i < 2; i++) {
        c.kernel[i] = s->k[i];
        c.stride[i] = s->stride[i];
        c.dilation[i] = s->dil[i];
        c.pad_begin[i] = s->pad[i];
        c.pad_end[i] = s->pad[2 + i];
    }
    return c;
}

/* Calls visit(x index, w index, y index) for every product of the convolution. */
struct visit {
    const float *x, *w, *dy;
    double *y, *dx, *dw;
};

static void walk(const struct cc *s, struct visit *v)
{
    const int64_t oh = out_size(s, 0), ow = out_size(s, 1), cg = s->c / s->groups;
    const int64_t mg = s->m / s->groups;

    for (int64_t n = 0; n < s->n; n++)
        for (int64_t m = 0; m < s->m; m++)
            for (int64_t o = 0; o < oh * ow; o++)
                for (int64_t q = 0; q < cg * s->k[0] * s->k[1]; q++) {
                    int64_t c = q / (s->k[0] * s->k[1]), r = q % (s->k[0] * s->k[1]);
                    int64_t i = o / ow * s->stride[0] - s->pad[0] + r / s->k[1] * s->dil[0];
                    int64_t j = o % ow * s->stride[1] - s->pad[1] + r % s->k[1] * s->dil[1];
                    int64_t xi, wi, yi;

                    if (i < 0 || i >= s->h || j < 0 || j >= s->w)
                        continue;
                    xi = ((n * s->c + m / mg * cg + c) * s->h + i) * s->w + j;
                    wi = (m * cg + c) * s->k[0] * s->k[1] + r;
                    yi = (n * s->m + m) * oh * ow + o;
                    if (v->y)
                        v->y[yi] += (double)v->x[xi] * v->w[wi];
                    if (v->dx)
                        v->dx[xi] += (double)v->dy[yi] * v->w[wi];
                    if (v->dw)
                        v->dw[wi] += (double)v->dy[yi] * v->x[xi];
                }
}

static const struct cc CASES[] = {
    {2, 3, 17, 15, 20, {7, 7}, {2, 2}, {1, 1}, {3, 3, 3, 3}, 1},   /* a stem */
    {1, 32, 8, 8, 48, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1},    /* whole blocks */
    {3, 5, 9, 7, 11, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1},     /* nothing fits a block */
    {2, 64, 7, 7, 32, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}, 1},    /* strided shortcut */
    {2, 16, 12, 12, 16, {1, 7}, {1, 1}, {1, 1}, {0, 3, 0, 3}, 1},  /* 1x7 */
    {2, 24, 10, 10, 24, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, 24}, /* depthwise */
    {2, 40, 11, 9, 40, {7, 7}, {1, 1}, {1, 1}, {3, 3, 3, 3}, 40},  /* depthwise and wide */
    {2, 12, 9, 9, 18, {3, 3}, {1, 1}, {2, 2}, {2, 2, 2, 2}, 3},    /* grouped and dilated */
    {1, 4, 1, 33, 6, {1, 5}, {1, 2}, {1, 1}, {0, 2, 0, 1}, 1},     /* one dimension, lopsided */
    {2, 8, 8, 8, 8, {3, 3}, {2, 2}, {1, 1}, {0, 0, 1, 1}, 1},      /* padding partly unused */
    {2, 32, 21, 20, 48, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1},  /* many pixels, in tiles */
    {3, 16, 23, 22, 80, {3, 3}, {1, 1}, {1, 1}, {0, 1, 2, 1}, 1},  /* and lopsided */
    {2, 16, 1, 450, 16, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1},  /* one row of tiles, cut */
    {3, 36, 9, 11, 36, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 36},  /* depthwise, every window */
    {2, 144, 7, 10, 144, {5, 5}, {1, 1}, {1, 1}, {2, 2, 2, 2}, 144},
    {2, 32, 13, 10, 32, {5, 5}, {2, 2}, {1, 1}, {2, 2, 2, 2}, 32},
    {2, 16, 9, 12, 16, {3, 3}, {2, 2}, {1, 1}, {0, 0, 1, 1}, 16}, /* and paddings */
    {1, 8, 12, 9, 8, {5, 5}, {2, 2}, {1, 1}, {1, 1, 2, 2}, 8},
    {2, 6, 8, 9, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 6},
    {1, 20, 9, 9, 20, {3, 3}, {1, 1}, {2, 2}, {2, 2, 2, 2}, 20},
    {2, 48, 9, 11, 48, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 2},  /* groups, for matrix units */
    {3, 96, 9, 10, 160, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, 4}, /* that become wider */
    {2, 168, 7, 5, 120, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 3}, /* narrower, in parts */
    {1, 48, 13, 9, 48, {5, 5}, {2, 1}, {1, 1}, {2, 1, 2, 3}, 2},  /* lopsided */
    {2, 80, 12, 9, 80, {3, 3}, {1, 1}, {2, 2}, {2, 2, 2, 2}, 2},  /* dilated */
    {2, 112, 4, 4, 112, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 2}, /* no window */
};

static void one_forward(const struct cc *s, bool bias, bool residual, enum dev_act act)
{
    const int64_t oh = out_size(s, 0), ow = out_size(s, 1), plane = oh * ow;
    double *want = t_doubles((size_t)(s->n * s->m * plane));
    struct t_graph t;
    uint32_t x, w, b = DEV_NONE, r = DEV_NONE, y;
    struct dev_op *op;
    struct visit v = {.y = want};

    t_init(&t);
    x = t_in(&t, DIMS(s->n, s->c, s->h, s->w));
    w = t_weight(&t, DIMS(s->m, s->c / s->groups, s->k[0], s->k[1]));
    if (bias)
        b = t_weight(&t, DIMS(s->m));
    if (residual)
        r = t_in(&t, DIMS(s->n, s->m, oh, ow));
    y = t_act(&t, DIMS(s->n, s->m, oh, ow));
    op = t_op(&t, DEV_OP_CONV, IN(x, w, b, r), OUT(y));
    op->u.conv = conv_of(s);
    op->act = act;
    v.x = t_f(&t, x);
    v.w = t_f(&t, w);
    walk(s, &v);
    for (int64_t i = 0; i < s->n * s->m * plane; i++) {
        want[i] += bias ? t_f(&t, b)[i / plane % s->m] : 0;
        want[i] += residual ? t_f(&t, r)[i] : 0;
        if (act == DEV_ACT_RELU)
            want[i] = want[i] > 0 ? want[i] : 0;
        if (act == DEV_ACT_ERF)
            want[i] = erf(want[i]);
        if (act == DEV_ACT_SILU)
            want[i] /= 1 + exp(-want[i]);
    }
    t_run(&t);
    t_close(&t, y, want, CONV_BOUND);
    t_fini(&t);
    free(want);
}

static void convolution_matches_the_loops(void **state)
{
    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        one_forward(&CASES[i], false, false, DEV_ACT_NONE);
        one_forward(&CASES[i], true, false, DEV_ACT_RELU);
        one_forward(&CASES[i], true, true, DEV_ACT_RELU);
    }
    one_forward(&CASES[2], true, true, DEV_ACT_ERF);
    one_forward(&CASES[1], true, false, DEV_ACT_SILU);
    one_forward(&CASES[5], true, false, DEV_ACT_SILU);
    one_forward(&CASES[10], true, true, DEV_ACT_SILU);
}

/* Where the cuda device has several kernels to choose from. */
static const struct cc DEPTHWISE[] = {
    {1, 128, 7, 7, 128, {7, 7}, {1, 1}, {1, 1}, {3, 3, 3, 3}, 128},   /* the size chooses one */
    {1, 384, 14, 14, 384, {7, 7}, {1, 1}, {1, 1}, {3, 3, 3, 3}, 384}, /* another */
    {1, 192, 28, 28, 192, {7, 7}, {1, 1}, {1, 1}, {3, 3, 3, 3}, 192}, /* and another */
    {2, 40, 11, 9, 40, {7, 7}, {2, 1}, {1, 1}, {3, 2, 1, 4}, 40},     /* lopsided */
    {3, 56, 5, 6, 56, {5, 5}, {1, 1}, {1, 1}, {2, 2, 2, 2}, 56},
    {3, 36, 9, 11, 36, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 36},
    {1, 16, 1, 2, 16, {3, 3}, {2, 1}, {1, 1}, {1, 1, 1, 1}, 16},
    {2, 144, 9, 12, 144, {3, 3}, {2, 2}, {1, 1}, {0, 0, 1, 1}, 144},
    {1, 1032, 3, 3, 1032, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1032},
};

static void every_depthwise_kernel_matches_the_loops(void **state)
{
    (void)state;
    for (int v = K_DW_BY_SIZE; v < K_DW_N; v++) {
        const char number[] = {(char)('0' + v), '\0'};

        setenv("SHUNT_CUDA_DEPTHWISE", number, 1);
        for (size_t i = 0; i < SH_ARRAY_LEN(DEPTHWISE); i++) {
            one_forward(&DEPTHWISE[i], true, false, DEV_ACT_NONE);
            one_forward(&DEPTHWISE[i], i % 2, true, DEV_ACT_SILU);
        }
        unsetenv("SHUNT_CUDA_DEPTHWISE");
    }
}

/* A weight of convolutions over a large picture and a small one: how it is stored suits the first
 * that comes, and the other reads it so; whichever is first. */
static void one_weight_serves_pictures_of_all_sizes(void **state)
{
    static const struct cc BOTH[] = {{1, 16, 24, 22, 16, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1},
                                     {2, 16, 5, 3, 16, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1}};

    (void)state;
    for (int first = 0; first < 2; first++) {
        double *want[2], *given = t_doubles(16 * 16 * 9);
        struct t_graph t;
        uint32_t w, y[2];

        t_init(&t);
        w = t_weight(&t, DIMS(16, 16, 3, 3));
        for (int i = 0; i < 16 * 16 * 9; i++)
            given[i] = t_f(&t, w)[i];
        for (int i = 0; i < 2; i++) {
            const struct cc *s = &BOTH[i ^ first];
            uint32_t x = t_in(&t, DIMS(s->n, s->c, s->h, s->w));
            struct visit v = {.x = t_f(&t, x), .w = t_f(&t, w)};

            y[i] = t_out(&t, DIMS(s->n, s->m, s->h, s->w));
            t_op(&t, DEV_OP_CONV, IN(x, w), OUT(y[i]))->u.conv = conv_of(s);
            want[i] = v.y = t_doubles((size_t)(s->n * s->m * s->h * s->w));
            walk(s, &v);
        }
        t_run(&t);
        for (int i = 0; i < 2; i++) {
            t_close(&t, y[i], want[i], CONV_BOUND);
            free(want[i]);
        }
        t_close(&t, w, given, CONV_BOUND);
        t_fini(&t);
        free(given);
    }
}

static void convolution_gradients_match_the_loops(void **state)
{
    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const struct cc *s = &CASES[i];
        const int64_t oh = out_size(s, 0), ow = out_size(s, 1), cg = s->c / s->groups;
        double *dx = t_doubles((size_t)(s->n * s->c * s->h * s->w));
        double *dw = t_doubles((size_t)(s->m * cg * s->k[0] * s->k[1]));
        double *db = t_doubles((size_t)s->m);
        struct visit v = {.dx = dx, .dw = dw};
        uint32_t x, w, dy, odx, odw, odb;
        struct t_graph t;

        t_init(&t);
        x = t_in(&t, DIMS(s->n, s->c, s->h, s->w));
        w = t_state(&t, DIMS(s->m, cg, s->k[0], s->k[1]));
        dy = t_in(&t, DIMS(s->n, s->m, oh, ow));
        odx = t_act(&t, DIMS(s->n, s->c, s->h, s->w));
        odw = t_act(&t, DIMS(s->m, cg, s->k[0], s->k[1]));
        odb = t_act(&t, DIMS(s->m));
        t_op(&t, DEV_OP_CONV_BWD_DATA, IN(dy, w), OUT(odx))->u.conv = conv_of(s);
        t_op(&t, DEV_OP_CONV_BWD_WEIGHT, IN(x, dy), OUT(odw, odb))->u.conv = conv_of(s);
        v.x = t_f(&t, x);
        v.w = t_f(&t, w);
        v.dy = t_f(&t, dy);
        walk(s, &v);
        for (int64_t k = 0; k < s->n * s->m * oh * ow; k++)
            db[k / (oh * ow) % s->m] += t_f(&t, dy)[k];
        t_run(&t);
        t_close(&t, odx, dx, CONV_BOUND);
        t_close(&t, odw, dw, CONV_BOUND);
        t_close(&t, odb, db, CONV_BOUND);
        t_fini(&t);
        free(dx);
        free(dw);
        free(db);
    }
}

enum held { AS_INPUT, AS_ACT, AS_STATE, N_HELD }; /* stored plain, as the device likes, in F32 */

/* Of samples [0, at), of the others, and the sum of both, each against the loops. */
static void one_split(const struct cc *s, int64_t at, enum held held)
{
    const int64_t oh = out_size(s, 0), ow = out_size(s, 1), cg = s->c / s->groups;
    const size_t n_dw = (size_t)(s->m * cg * s->k[0] * s->k[1]);
    const int64_t x_size = s->c * s->h * s->w, y_size = s->m * oh * ow;
    double *dw[3], *db[2] = {t_doubles((size_t)s->m), t_doubles((size_t)s->m)};
    uint32_t x, dy, rx, rdy, odw[3], odb[2];
    struct t_graph t;

    t_init(&t);
    x = (held == AS_STATE ? t_state : t_in)(&t, DIMS(s->n, s->c, s->h, s->w));
    dy = (held == AS_STATE ? t_state : t_in)(&t, DIMS(s->n, s->m, oh, ow));
    rx = held == AS_ACT ? t_blocked(&t, x) : x;
    rdy = held == AS_ACT ? t_blocked(&t, dy) : dy;
    for (int i = 0; i < 3; i++) {
        dw[i] = t_doubles(n_dw);
        odw[i] = t_act(&t, DIMS(s->m, cg, s->k[0], s->k[1]));
    }
    for (int i = 0; i < 2; i++) {
        const int64_t first = i ? at : 0, count = i ? s->n - at : at;
        struct cc part = *s;
        struct visit v = {
            .x = t_f(&t, x) + first * x_size, .dy = t_f(&t, dy) + first * y_size, .dw = dw[i]};
        struct dev_op *op;

        odb[i] = t_act(&t, DIMS(s->m));
        op = t_op(&t, DEV_OP_CONV_BWD_WEIGHT, IN(rx, rdy), OUT(odw[i], odb[i]));
        op->u.conv = conv_of(s);
        op->u.conv.first = first;
        op->u.conv.count = count;
        part.n = count;
        walk(&part, &v);
        for (int64_t k = 0; k < count * y_size; k++)
            db[i][k / (oh * ow) % s->m] += v.dy[k];
        for (size_t k = 0; k < n_dw; k++)
            dw[2][k] += dw[i][k];
    }
    t_op(&t, DEV_OP_BINARY, IN(odw[0], odw[1]), OUT(odw[2]))->u.binary.kind = DEV_BIN_ADD;
    t_run(&t);
    for (int i = 0; i < 3; i++) {
        t_close(&t, odw[i], dw[i], CONV_BOUND);
        free(dw[i]);
    }
    for (int i = 0; i < 2; i++) {
        t_close(&t, odb[i], db[i], CONV_BOUND);
        free(db[i]);
    }
    t_fini(&t);
}

/* The samples behind the first begin where a library may rely on the alignment of the whole, and
 * where it may not. */
static void weight_gradients_of_parts_of_the_samples_add_up(void **state)
{
    static const struct cc MORE[] = {
        {4, 32, 8, 8, 64, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1}, /* whole blocks */
        {5, 64, 6, 6, 32, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1}, /* a matrix product */
    };

    (void)state;
    for (int held = 0; held < N_HELD; held++) {
        for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++)
            if (CASES[i].n > 1)
                one_split(&CASES[i], 1, held);
        for (size_t i = 0; i < SH_ARRAY_LEN(MORE); i++) {
            one_split(&MORE[i], 2, held);
            one_split(&MORE[i], 3, held);
        }
    }
}

static void samples_that_do_not_exist_are_refused(void **state)
{
    static const struct {
        enum dev_op_kind kind;
        int64_t first, count;
        const char *text;
    } BAD[] = {
        {DEV_OP_CONV_BWD_WEIGHT, 0, 5, "cannot read 5 samples from 0 on"},
        {DEV_OP_CONV_BWD_WEIGHT, 2, 3, "cannot read 3 samples from 2 on"},
        {DEV_OP_CONV_BWD_WEIGHT, 1, 0, "cannot read 0 samples from 1 on"},
        {DEV_OP_CONV_BWD_WEIGHT, -1, 2, "cannot read 2 samples from -1 on"},
        {DEV_OP_CONV_BWD_WEIGHT, 0, -1, "cannot read -1 samples"},
        {DEV_OP_CONV_BWD_WEIGHT, INT64_MAX, 2, "cannot read 2 samples"},
        {DEV_OP_CONV_BWD_WEIGHT, 1, INT64_MAX, "cannot read"},
        {DEV_OP_CONV, 0, 2, "cannot be of a range of samples"},
        {DEV_OP_CONV_BWD_DATA, 1, 2, "cannot be of a range of samples"},
    };
    const struct cc c = {4, 3, 5, 5, 3, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        const bool is_weight = BAD[i].kind == DEV_OP_CONV_BWD_WEIGHT;
        uint32_t a, b, w, out;
        struct sh_err err = {0};
        struct dev_op *op;
        struct t_graph t;

        t_init(&t);
        a = t_in(&t, DIMS(4, 3, 5, 5));
        b = t_in(&t, DIMS(4, 3, 5, 5));
        w = t_state(&t, DIMS(3, 3, 1, 1));
        out = is_weight ? t_act(&t, DIMS(3, 3, 1, 1)) : t_act(&t, DIMS(4, 3, 5, 5));
        op = t_op(&t, BAD[i].kind, IN(a, is_weight ? b : w), OUT(out));
        op->u.conv = conv_of(&c);
        assert_ok_err(t_plan_fails(&t, DEV_FP32, &err), &err);
        op->u.conv.first = BAD[i].first;
        op->u.conv.count = BAD[i].count;
        assert_fails(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG, &err, BAD[i].text);
        t_fini(&t);
    }
}

/* A bottleneck: everything that stays blocked between convolutions must agree on the layout. */
static void blocked_layouts_pass_from_operation_to_operation(void **state)
{
    const struct cc a = {2, 3, 9, 9, 20, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1};
    const struct cc b = {2, 20, 9, 9, 20, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1};
    const size_t n = 2 * 20 * 81;
    double *mid = t_doubles(n), *want = t_doubles(n);
    float *copy = calloc(n, sizeof(*copy));
    struct t_graph t;
    struct visit v = {.y = mid};
    uint32_t x, w1, w2, y1, y2, y3;
    struct dev_op *op;

    (void)state;
    assert_non_null(copy);
    t_init(&t);
    x = t_in(&t, DIMS(2, 3, 9, 9));
    w1 = t_weight(&t, DIMS(20, 3, 3, 3));
    w2 = t_weight(&t, DIMS(20, 20, 1, 1));
    y1 = t_act(&t, DIMS(2, 20, 9, 9));
    y2 = t_act(&t, DIMS(2, 20, 9, 9));
    y3 = t_out(&t, DIMS(2, 20, 9, 9));
    t_op(&t, DEV_OP_CONV, IN(x, w1), OUT(y1))->u.conv = conv_of(&a);
    t_op(&t, DEV_OP_CONV, IN(y1, w2, DEV_NONE, y1), OUT(y2))->u.conv = conv_of(&b);
    op = t_op(&t, DEV_OP_BINARY, IN(y1, y2), OUT(y3));
    op->u.binary.kind = DEV_BIN_MUL;
    op->act = DEV_ACT_RELU;
    v.x = t_f(&t, x);
    v.w = t_f(&t, w1);
    walk(&a, &v);
    for (size_t i = 0; i < n; i++) {
        want[i] = mid[i];
        copy[i] = (float)mid[i];
    }
    v = (struct visit){.x = copy, .w = t_f(&t, w2), .y = want};
    walk(&b, &v);
    for (size_t i = 0; i < n; i++)
        want[i] = SH_MAX(mid[i] * want[i], 0);
    t_run(&t);
    t_close(&t, y3, want, CONV_BOUND);
    t_fini(&t);
    free(mid);
    free(want);
    free(copy);
}

/* One image serves all batch sizes: a plan that follows another stores weights the same way. */
static void weights_have_one_layout_for_all_batch_sizes(void **state)
{
    const int64_t batch[] = {8, 1, 2, 5};
    struct dev_plan *p[4] = {NULL};
    struct t_graph t[4];
    struct sh_err err = {0};

    (void)state;
    for (int i = 0; i < 4; i++) {
        uint32_t x, w, y, f, v, z;
        size_t size = 0;
        void *image, *first;

        t_init(&t[i]);
        x = t_in(&t[i], DIMS(batch[i], 16, 6, 6));
        w = t_weight(&t[i], DIMS(40, 16, 3, 3));
        y = t_act(&t[i], DIMS(batch[i], 40, 4, 4));
        f = t_act(&t[i], DIMS(batch[i], 640));
        v = t_weight(&t[i], DIMS(30, 640));
        z = t_out(&t[i], DIMS(batch[i], 30));
        t_op(&t[i], DEV_OP_CONV, IN(x, w), OUT(y))->u.conv =
            (struct dev_conv){.kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
        t_op(&t[i], DEV_OP_COPY, IN(y), OUT(f));
        t_op(&t[i], DEV_OP_MATMUL, IN(f, v), OUT(z))->u.matmul.trans_b = true;
        t[i].ops[2].u.matmul.alpha = 1;
        assert_ok_err(dev_plan_new(t_dev(), &t[i].g, DEV_FP32, p[0], &p[i], &err), &err);
        for (int k = 0; k < 2; k++) {
            uint32_t weight = k ? v : w;

            size = t[0].tensors[weight].bytes;
            assert_int_equal(t[i].tensors[weight].bytes, size);
            image = calloc(2, size);
            assert_non_null(image);
            first = (char *)image + size;
            assert_ok(dev_plan_pack(p[i], weight, t[i].plain[weight], image, &err));
            assert_ok(dev_plan_pack(p[0], weight, t[i].plain[weight], first, &err));
            assert_memory_equal(image, first, size);
            free(image);
        }
    }
    for (int i = 3; i >= 0; i--) {
        dev_plan_free(p[i]);
        t_fini(&t[i]);
    }
}

/* ------------------------------------------------------------------ pooling */

struct pc {
    int64_t n, c, h, w, k, stride, pad, oh, ow;
    bool include, max;
};

static void pool_reference(const struct pc *p, const float *x, const float *dy, double *y,
                           double *dx)
{
    for (int64_t q = 0; q < p->n * p->c; q++)
        for (int64_t o = 0; o < p->oh * p->ow; o++) {
            int64_t i0 = o / p->ow * p->stride - p->pad, j0 = o % p->ow * p->stride - p->pad;
            int64_t i1 = SH_MIN(i0 + p->k, p->h + p->pad), j1 = SH_MIN(j0 + p->k, p->w + p->pad);
            int64_t count = (i1 - i0) * (j1 - j0), inside = 0, best = -1;
            int64_t at = q * p->oh * p->ow + o;
            double sum = 0;

            for (int64_t i = SH_MAX(i0, 0); i < SH_MIN(i1, p->h); i++)
                for (int64_t j = SH_MAX(j0, 0); j < SH_MIN(j1, p->w); j++) {
                    int64_t e = (q * p->h + i) * p->w + j;

                    inside++;
                    sum += x[e];
                    if (best < 0 || x[e] > x[best])
                        best = e;
                }
            count = p->include ? count : inside;
            y[at] = p->max ? x[best] : sum / (double)count;
            for (int64_t i = SH_MAX(i0, 0); i < SH_MIN(i1, p->h); i++)
                for (int64_t j = SH_MAX(j0, 0); j < SH_MIN(j1, p->w); j++) {
                    int64_t e = (q * p->h + i) * p->w + j;

                    dx[e] += p->max ? (e == best) * dy[at] : dy[at] / (double)count;
                }
        }
}

static void one_pool(const struct pc *p, bool blocked)
{
    const struct t_dims in = DIMS(p->n, p->c, p->h, p->w), out = DIMS(p->n, p->c, p->oh, p->ow);
    const struct dev_conv win = {.kernel = {p->k, p->k},
                                 .stride = {p->stride, p->stride},
                                 .dilation = {1, 1},
                                 .pad_begin = {p->pad, p->pad},
                                 .pad_end = {p->pad, p->pad},
                                 .groups = 1,
                                 .count_include_pad = p->include};
    double *y = t_doubles((size_t)(p->n * p->c * p->oh * p->ow));
    double *dx = t_doubles((size_t)(p->n * p->c * p->h * p->w));
    uint32_t x, xb, dy, dyb, oy, idx, odx;
    struct t_graph t;

    t_init(&t);
    x = t_in(&t, in);
    dy = t_in(&t, out);
    oy = t_act(&t, out);
    odx = t_act(&t, in);
    xb = blocked ? t_blocked(&t, x) : x;
    dyb = blocked ? t_blocked(&t, dy) : dy;
    pool_reference(p, t_f(&t, x), t_f(&t, dy), y, dx);
    if (p->max) {
        idx = t_add(&t, DEV_ROLE_ACT, SH_I32, out);
        t_op(&t, DEV_OP_POOL_MAX, IN(xb), OUT(oy, idx))->u.pool = win;
        t_op(&t, DEV_OP_POOL_MAX_BWD, IN(dyb, idx), OUT(odx))->u.pool = win;
    } else {
        t_op(&t, DEV_OP_POOL_AVG, IN(xb), OUT(oy))->u.pool = win;
        t_op(&t, DEV_OP_POOL_AVG_BWD, IN(dyb), OUT(odx))->u.pool = win;
    }
    t_run(&t);
    t_close(&t, oy, y, 1e-12);
    t_close(&t, odx, dx, 1e-12);
    t_fini(&t);
    free(y);
    free(dx);
}

static void pooling_and_its_gradients_match_the_loops(void **state)
{
    static const struct pc P[] = {
        {2, 20, 11, 9, 3, 2, 1, 6, 5, false, true}, {2, 16, 8, 8, 2, 2, 0, 4, 4, false, true},
        {1, 5, 7, 7, 3, 1, 1, 7, 7, true, false},   {2, 33, 8, 6, 3, 2, 1, 4, 3, false, false},
        {2, 19, 7, 7, 7, 1, 0, 1, 1, false, false}, {2, 7, 8, 8, 3, 2, 0, 4, 4, true, false},
        {2, 7, 8, 8, 3, 2, 0, 4, 4, false, true},   {2, 32, 7, 7, 7, 1, 0, 1, 1, false, false},
        {2, 24, 9, 9, 3, 1, 1, 9, 9, false, false}, {3, 8, 9, 7, 5, 2, 2, 5, 4, false, true},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(P); i++) {
        one_pool(&P[i], false);
        one_pool(&P[i], true);
    }
}

static void maximum_without_indices_is_the_same(void **state)
{
    const struct pc p = {2, 16, 8, 8, 2, 2, 0, 4, 4, false, true};
    double *y = t_doubles(2 * 16 * 16), *dx = t_doubles(2 * 16 * 64);
    struct t_graph t;
    uint32_t x, out;

    (void)state;
    t_init(&t);
    x = t_in(&t, DIMS(2, 16, 8, 8));
    out = t_out(&t, DIMS(2, 16, 4, 4));
    pool_reference(&p, t_f(&t, x), t_f(&t, x), y, dx);
    t_op(&t, DEV_OP_POOL_MAX, IN(x), OUT(out))->u.pool =
        (struct dev_conv){.kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}, .groups = 1};
    t_run(&t);
    t_close(&t, out, y, 1e-12);
    t_fini(&t);
    free(y);
    free(dx);
}

/* ------------------------------------------------------------------ matrix product */

struct mc {
    int64_t lead_a, lead_b; /* leading axis, 0 = none, 1 = broadcast */
    int64_t m, n, k;
    bool ta, tb, constant_b;
    float alpha;
    int bias; /* 0 none, 1 row [n], 2 column [m,1], 3 row and a residual, 4 a residual */
    enum dev_act act;
    float p0, p1;
};

static void one_matmul(const struct mc *c)
{
    const int64_t lead = SH_MAX(SH_MAX(c->lead_a, c->lead_b), 1);
    const struct t_dims da =
        c->ta ? DIMS(SH_MAX(c->lead_a, 1), c->k, c->m) : DIMS(SH_MAX(c->lead_a, 1), c->m, c->k);
    const struct t_dims db =
        c->tb ? DIMS(SH_MAX(c->lead_b, 1), c->n, c->k) : DIMS(SH_MAX(c->lead_b, 1), c->k, c->n);
    const struct t_dims flat_a = DIMS(da.d[1], da.d[2]), flat_b = DIMS(db.d[1], db.d[2]);
    const bool is_flat = !c->lead_a && !c->lead_b;
    double *want = t_doubles((size_t)(lead * c->m * c->n));
    uint32_t a, b, bias = DEV_NONE, res = DEV_NONE, y;
    struct dev_op *op;
    struct t_graph t;

    t_init(&t);
    a = t_in(&t, c->lead_a ? da : flat_a);
    b = t_add(&t, c->constant_b ? DEV_ROLE_WEIGHT : DEV_ROLE_INPUT, SH_F32,
              c->lead_b ? db : flat_b);
    if (c->bias == 1)
        bias = t_weight(&t, DIMS(c->n));
    if (c->bias == 2)
        bias = t_weight(&t, DIMS(c->m, 1));
    if (c->bias == 3)
        bias = t_weight(&t, DIMS(c->n));
    if (c->bias >= 3)
        res = t_in(&t, is_flat ? DIMS(c->m, c->n) : DIMS(lead, c->m, c->n));
    y = t_out(&t, is_flat ? DIMS(c->m, c->n) : DIMS(lead, c->m, c->n));
    op = t_op(&t, DEV_OP_MATMUL, IN(a, b, bias, res), OUT(y));
    op->u.matmul.trans_a = c->ta;
    op->u.matmul.trans_b = c->tb;
    op->u.matmul.alpha = c->alpha;
    op->act = c->act;
    op->act_p0 = c->p0;
    op->act_p1 = c->p1;
    for (int64_t e = 0; e < lead * c->m * c->n; e++) {
        int64_t l = e / (c->m * c->n), i = e / c->n % c->m, j = e % c->n;
        const float *pa = t_f(&t, a) + (c->lead_a > 1 ? l : 0) * c->m * c->k;
        const float *pb = t_f(&t, b) + (c->lead_b > 1 ? l : 0) * c->n * c->k;
        double s = 0;

        for (int64_t q = 0; q < c->k; q++)
            s += (double)(c->ta ? pa[q * c->m + i] : pa[i * c->k + q]) *
                 (c->tb ? pb[j * c->k + q] : pb[q * c->n + j]);
        s *= c->alpha;
        s += c->bias == 1 || c->bias == 3 ? t_f(&t, bias)[j] : 0;
        s += c->bias == 2 ? t_f(&t, bias)[i] : 0;
        s += c->bias >= 3 ? t_f(&t, res)[e] : 0;
        want[e] = c->act == DEV_ACT_RELU          ? SH_MAX(s, 0)
                  : c->act == DEV_ACT_GELU_ERF    ? s / 2 * (1 + erf(s / sqrt(2)))
                  : c->act == DEV_ACT_LINEAR      ? c->p0 * s + c->p1
                  : c->act == DEV_ACT_HARDSIGMOID ? SH_MAX(0, SH_MIN(1, c->p0 * s + c->p1))
                                                  : s;
    }
    t_run(&t);
    t_close(&t, y, want, 1e-11);
    t_fini(&t);
    free(want);
}

static void matrix_product_matches_the_loops(void **state)
{
    static const struct mc M[] = {
        {0, 0, 4, 10, 33, false, true, true, 1, 1, DEV_ACT_NONE},
        {0, 0, 1, 1000, 257, false, true, true, 1, 1, DEV_ACT_RELU},
        {0, 0, 17, 31, 65, true, false, false, 1, 0, DEV_ACT_NONE},
        {0, 0, 17, 31, 65, true, true, false, 0.5f, 1, DEV_ACT_NONE},
        {0, 0, 8, 16, 16, false, false, false, 2, 2, DEV_ACT_RELU},
        {3, 0, 9, 20, 24, false, false, true, 1, 3, DEV_ACT_GELU_ERF},
        {3, 3, 9, 7, 24, false, true, false, 0.125f, 0, DEV_ACT_NONE},
        {3, 1, 9, 7, 5, true, false, false, 1, 1, DEV_ACT_NONE},
        {0, 0, 17, 31, 65, true, false, false, 1, 4, DEV_ACT_NONE}, /* sums of gradients */
        {0, 0, 17, 31, 65, false, true, false, 0.5f, 4, DEV_ACT_NONE},
        {3, 0, 9, 20, 24, false, true, false, 1, 4, DEV_ACT_NONE},
        {3, 3, 9, 7, 24, true, false, false, 0.125f, 4, DEV_ACT_NONE},
        {3, 3, 9, 7, 24, false, true, false, 1, 4, DEV_ACT_NONE},
        {3, 0, 1, 20, 24, false, false, true, 1, 3, DEV_ACT_NONE}, /* one row for each residual */
        {1, 4, 9, 7, 5, false, false, false, 1, 0, DEV_ACT_NONE},
        {0, 0, 1, 1, 1, false, false, false, 1, 0, DEV_ACT_NONE},
        /* alpha, and an activation that multiplies too */
        {0, 0, 17, 31, 65, false, true, true, 0.5f, 1, DEV_ACT_HARDSIGMOID, 0.2f, 0.5f},
        {3, 3, 9, 7, 24, false, true, false, 0.125f, 0, DEV_ACT_LINEAR, -2, 0.25f},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(M); i++)
        one_matmul(&M[i]);
}

/* Attention: [B, heads, S, d] x [B, heads, S, d]^T */
static void matrix_product_takes_two_leading_axes(void **state)
{
    double *want = t_doubles(2 * 3 * 5 * 6);
    struct t_graph t;
    uint32_t a, b, y;
    struct dev_op *op;

    (void)state;
    t_init(&t);
    a = t_in(&t, DIMS(2, 3, 5, 8));
    b = t_in(&t, DIMS(2, 3, 6, 8));
    y = t_out(&t, DIMS(2, 3, 5, 6));
    op = t_op(&t, DEV_OP_MATMUL, IN(a, b), OUT(y));
    op->u.matmul.trans_b = true;
    op->u.matmul.alpha = 0.25f;
    for (int64_t e = 0; e < 180; e++)
        for (int q = 0; q < 8; q++)
            want[e] += 0.25 * t_f(&t, a)[e / 6 * 8 + q] * t_f(&t, b)[(e / 30 * 6 + e % 6) * 8 + q];
    t_run(&t);
    t_close(&t, y, want, 1e-11);
    t_fini(&t);
    free(want);
}

/* A weight [1,N,K] that one product sees as [N,K], as recurrent layers have them, and another as it
 * is: however it is stored, both read what was given. */
static void a_weight_has_several_names(void **state)
{
    const int64_t m = 3, n = 70, k = 33;
    double *want = t_doubles((size_t)(m * n));
    uint32_t x, w, flat, y, again;
    struct t_graph t;

    (void)state;
    t_init(&t);
    x = t_in(&t, DIMS(m, k));
    w = t_weight(&t, DIMS(1, n, k));
    flat = t_weight(&t, DIMS(n, k));
    t.tensors[flat].alias_of = w;
    y = t_out(&t, DIMS(m, n));
    again = t_out(&t, DIMS(1, m, n));
    for (int i = 0; i < 2; i++) {
        struct dev_op *op = t_op(&t, DEV_OP_MATMUL, IN(x, i ? w : flat), i ? OUT(again) : OUT(y));

        op->u.matmul.trans_b = true;
        op->u.matmul.alpha = 1;
    }
    for (int64_t i = 0; i < m * n; i++)
        for (int64_t j = 0; j < k; j++)
            want[i] += (double)t_f(&t, x)[i / n * k + j] * (double)t_f(&t, w)[i % n * k + j];
    t_run(&t);
    t_close(&t, y, want, 1e-11);
    t_close(&t, again, want, 1e-11);
    t_fini(&t);
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolution_matches_the_loops),
        cmocka_unit_test(every_depthwise_kernel_matches_the_loops),
        cmocka_unit_test(one_weight_serves_pictures_of_all_sizes),
        cmocka_unit_test(convolution_gradients_match_the_loops),
        cmocka_unit_test(weight_gradients_of_parts_of_the_samples_add_up),
        cmocka_unit_test(samples_that_do_not_exist_are_refused),
        cmocka_unit_test(blocked_layouts_pass_from_operation_to_operation),
        cmocka_unit_test(weights_have_one_layout_for_all_batch_sizes),
        cmocka_unit_test(pooling_and_its_gradients_match_the_loops),
        cmocka_unit_test(maximum_without_indices_is_the_same),
        cmocka_unit_test(matrix_product_matches_the_loops),
        cmocka_unit_test(matrix_product_takes_two_leading_axes),
        cmocka_unit_test(a_weight_has_several_names),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
