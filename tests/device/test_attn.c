/* test_attn.c - Without it a wrong stride, mask or tail of a tile in the attention shows only as a
 * model that answers a little worse. The reference is the formula in double precision.
 */
#include "common/mem.h"
#include "runtime/device/philox.h"
#include "tests/device/dev_test.h"

#include <float.h>
#include <math.h>

/* Place of element e of `full` in a mask that broadcasts to it. */
static int64_t mask_at(const struct dev_tensor *full, const struct dev_tensor *mask, int64_t e)
{
    int64_t at = 0, step = 1;

    for (uint32_t i = full->rank, k = mask->rank; k > 0;) {
        const int64_t c = e % full->dims[--i];

        e /= full->dims[i];
        k--;
        at += c % mask->dims[k] * step; /* of samples, every so many have the same */
        step *= mask->dims[k];
    }
    return at;
}

enum packing { APART, BATCH_FIRST, ROWS_FIRST }; /* [B, S, 3, H, D], [S, B, 3, H, D] */

struct attn_case {
    int64_t batch, heads, q_rows, k_rows, width;
    enum packing packed;
    struct t_dims mask; /* rank 0: none */
    bool hidden;        /* the mask hides all keys from every second row, which gives zeros */
};

static const struct attn_case ATTNS[] = {
    {2, 3, 5, 7, 4, APART, {.rank = 0}},
    {2, 2, 9, 6, 5, APART, {.rank = 4, .d = {2, 1, 1, 6}}},
    {1, 2, 16, 16, 32, BATCH_FIRST, {.rank = 4, .d = {1, 1, 16, 16}}},
    {3, 2, 130, 130, 64, BATCH_FIRST, {.rank = 4, .d = {3, 1, 1, 130}}},
    {2, 2, 65, 70, 64, APART, {.rank = 3, .d = {2, 65, 70}}},
    {2, 3, 33, 33, 16, BATCH_FIRST, {.rank = 1, .d = {33}}},
    {3, 2, 33, 33, 16, ROWS_FIRST, {.rank = 0}},
    {2, 3, 70, 70, 64, ROWS_FIRST, {.rank = 4, .d = {2, 1, 1, 70}}},
    {1, 3, 33, 33, 16, ROWS_FIRST, {.rank = 0}}, /* one sample, one head: any stride */
    {3, 1, 33, 33, 16, ROWS_FIRST, {.rank = 0}},
    {1, 2, 40, 100, 80, APART, {.rank = 4, .d = {1, 2, 40, 1}}},
    {1, 1, 70, 200, 128, APART, {.rank = 2, .d = {70, 200}}},
    {1, 2, 3, 300, 136, APART, {.rank = 0}},
    {1, 1, 1, 1, 64, APART, {.rank = 0}},
    {6, 2, 17, 17, 32, BATCH_FIRST, {.rank = 4, .d = {3, 2, 17, 17}}},
    {4, 1, 9, 11, 16, APART, {.rank = 4, .d = {2, 1, 9, 11}}},
    {4, 2, 5, 6, 12, APART, {.rank = 4, .d = {2, 2, 1, 6}}},
    {2, 2, 70, 65, 64, APART, {.rank = 2, .d = {70, 65}}, true},
    {2, 2, 9, 6, 5, APART, {.rank = 2, .d = {9, 6}}, true},
    {1, 2, 33, 40, 20, APART, {.rank = 2, .d = {33, 40}}, true},
};

static struct t_dims packed_dims(const struct attn_case *c)
{
    return c->packed == BATCH_FIRST ? DIMS(c->batch, c->q_rows, 3, c->heads, c->width)
                                    : DIMS(c->q_rows, c->batch, 3, c->heads, c->width);
}

static struct dev_heads view_of(const struct attn_case *c, int64_t plane)
{
    const int64_t line = c->heads * c->width;

    return c->packed == BATCH_FIRST
               ? (struct dev_heads){plane * line, c->q_rows * 3 * line, 3 * line}
               : (struct dev_heads){plane * line, 3 * line, c->batch * 3 * line};
}

/* Element (b, s, h, d) of operand i. */
static double attn_at(struct t_graph *t, const struct attn_case *c, uint32_t x, int i, int64_t b,
                      int64_t s, int64_t h, int64_t d)
{
    const int64_t rows = i == 0 ? c->q_rows : c->k_rows;
    const int64_t line = c->packed == ROWS_FIRST ? s * c->batch + b : b * rows + s;
    const int64_t at = (c->packed ? line * 3 + 2 - i : line) * c->heads + h;

    return (double)t_f(t, x)[at * c->width + d];
}

static void attn_row(struct t_graph *t, const struct attn_case *c, const uint32_t in[4], int64_t b,
                     int64_t s, int64_t h, float scale, double *y)
{
    const struct dev_tensor full = {.rank = 4, .dims = {c->batch, c->heads, c->q_rows, c->k_rows}};
    double *p = t_doubles((size_t)c->k_rows), max = -INFINITY, sum = 0;

    for (int64_t j = 0; j < c->k_rows; j++) {
        const int64_t e = ((b * c->heads + h) * c->q_rows + s) * c->k_rows + j;

        for (int64_t d = 0; d < c->width; d++)
            p[j] += attn_at(t, c, in[0], 0, b, s, h, d) * attn_at(t, c, in[1], 1, b, j, h, d);
        p[j] *= (double)scale;
        if (c->mask.rank)
            p[j] += (double)t_f(t, in[3])[mask_at(&full, &t->tensors[in[3]], e)];
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j < c->k_rows; j++)
        sum += p[j] = exp(p[j] - max);
    for (int64_t d = 0; d < c->width; d++)
        for (int64_t j = 0; j < c->k_rows; j++)
            y[d] += p[j] / sum * attn_at(t, c, in[2], 2, b, j, h, d);
    free(p);
}

/* The operands go through a COPY, so that they are activations, in whatever form the device likes;
 * packed: one tensor with the values first. */
static void one_attention(const struct attn_case *c)
{
    const float scale = 1.0f / sqrtf((float)c->width);
    const int64_t rows = c->batch * c->q_rows * c->heads;
    double *want = t_doubles((size_t)(rows * c->width));
    uint32_t in[4], act[4] = {0}, y;
    struct dev_op *op;
    struct t_graph t;

    t_init(&t);
    for (uint32_t i = 0; i < 3; i++) {
        const struct t_dims d = c->packed
                                    ? packed_dims(c)
                                    : DIMS(c->batch, i ? c->k_rows : c->q_rows, c->heads, c->width);

        in[i] = c->packed && i ? in[0] : t_in(&t, d);
        act[i] = c->packed && i ? act[0] : t_act(&t, d);
        if (act[i] != act[0] || i == 0) {
            t_map(&t, in[i], 2, 0);
            t_op(&t, DEV_OP_COPY, IN(in[i]), OUT(act[i]));
        }
    }
    in[3] = c->mask.rank ? t_in(&t, c->mask) : DEV_NONE;
    if (in[3] != DEV_NONE && c->mask.d[c->mask.rank - 1] > 1) /* every third key is masked out */
        for (int64_t i = 0; i < dev_tensor_elements(&t.tensors[in[3]]); i++)
            t_f(&t, in[3])[i] = i % 3 == 2 ? -10000.0f : t_f(&t, in[3])[i] * 2;
    for (int64_t i = 0; c->hidden && i < c->q_rows * c->k_rows; i++)
        if (i / c->k_rows % 2)
            t_f(&t, in[3])[i] = -INFINITY;
    y = t_out(&t, DIMS(c->batch, c->q_rows, c->heads, c->width));
    op = c->mask.rank ? t_op(&t, DEV_OP_ATTENTION, IN(act[0], act[1], act[2], in[3]), OUT(y))
                      : t_op(&t, DEV_OP_ATTENTION, IN(act[0], act[1], act[2]), OUT(y));
    op->u.attn.scale = scale;
    op->u.attn.zero_hidden = c->hidden;
    for (uint32_t i = 0; i < 3 && c->packed; i++)
        op->u.attn.view[i] = view_of(c, 2 - i);
    op->u.attn.k_rows = c->k_rows;
    for (int64_t r = 0; r < rows; r++)
        if (!c->hidden || r / c->heads % c->q_rows % 2 == 0)
            attn_row(&t, c, in, r / c->heads / c->q_rows, r / c->heads % c->q_rows, r % c->heads,
                     scale, want + r * c->width);
    t_run(&t);
    t_close(&t, y, want, 1e-11);
    t_fini(&t);
    free(want);
}

static void attention_matches_the_formula(void **state)
{
    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(ATTNS); i++)
        one_attention(&ATTNS[i]);
}

/* ------------------------------------------------------------------ training */

/* [B, 1, 1, Sk], [Sq, Sk], and, with a gradient, [B or B / 2, H, Sq, Sk] */
enum { NO_MASK, MASK_OF_KEYS, MASK_OF_ROWS, MASK_OF_ALL };

struct train_case {
    struct attn_case c;
    int mask;
    float ratio;
    bool hides;
};

static const struct attn_case TRAINED[] = {
    {.batch = 2, .heads = 3, .q_rows = 5, .k_rows = 7, .width = 16},
    {.batch = 2, .heads = 2, .q_rows = 65, .k_rows = 70, .width = 64},
    {.batch = 1, .heads = 2, .q_rows = 130, .k_rows = 130, .width = 32},
    {.batch = 3, .heads = 2, .q_rows = 128, .k_rows = 128, .width = 64},
    {.batch = 1, .heads = 1, .q_rows = 33, .k_rows = 40, .width = 48},
    {.batch = 1, .heads = 2, .q_rows = 6, .k_rows = 301, .width = 16},
    {4, 3, 49, 49, 32, BATCH_FIRST, {.rank = 0}, false},
    {2, 2, 130, 130, 16, BATCH_FIRST, {.rank = 0}, false},
    {3, 2, 70, 70, 64, ROWS_FIRST, {.rank = 0}, false},
};

#define SEED 0x123456789abcdef1u
#define STEP (((int64_t)3 << 32) + 5)

enum { Q, K, V, MASK, D_Y, N_IN };
enum { Y, LSE, D_Q, D_K, D_V, D_MASK, N_OUT };

struct train_graph {
    struct t_graph t;
    uint32_t in[N_IN], act[N_IN], out[N_OUT];
    double *want[N_OUT]; /* OWNED */
};

/* What dropout multiplies the weight of a key with; row counts over batch, heads and queries. */
static double factor(const struct train_case *c, int64_t row, int64_t key)
{
    const uint32_t counter[4] = {(uint32_t)(row * ((c->c.k_rows + 7) / 8) + key / 8), 0,
                                 (uint32_t)STEP, (uint32_t)(STEP >> 32)};
    uint32_t r[4];

    if (c->ratio <= 0)
        return 1;
    dev_philox(SEED, counter, r);
    return c->ratio < 1 &&
                   dev_philox_half(r, (uint32_t)(key % 8)) >= dev_philox_half_threshold(c->ratio)
               ? 1 / (1 - (double)c->ratio)
               : 0;
}

/* Of element (b, s, h, 0) of operand i: attn_at(). */
static int64_t place_of(const struct attn_case *c, int i, int64_t b, int64_t s, int64_t h)
{
    const int64_t rows = i == 0 ? c->q_rows : c->k_rows;
    const int64_t line = c->packed == ROWS_FIRST ? s * c->batch + b : b * rows + s;

    return ((c->packed ? line * 3 + 2 - i : line) * c->heads + h) * c->width;
}

static int64_t mask_parts(const struct attn_case *c)
{
    return c->batch % 2 == 0 ? c->batch / 2 : c->batch;
}

/* Of operand i: of the one that packs all. */
static double *gradient_of(struct train_graph *g, const struct attn_case *c, int i)
{
    return g->want[c->packed ? D_Q : D_Q + i];
}

/* Adds what row s of head h does to all results. */
static void train_row(struct train_graph *g, const struct train_case *tc, int64_t b, int64_t s,
                      int64_t h)
{
    const struct attn_case *c = &tc->c;
    const int64_t row = (b * c->heads + h) * c->q_rows + s, w = c->width;
    const int64_t at = ((b * c->q_rows + s) * c->heads + h) * w;
    const float *dy = t_f(&g->t, g->in[D_Y]) + at;
    double *p = t_doubles((size_t)c->k_rows), max = -INFINITY, sum = 0, delta = 0;
    const double scale = (double)(1.0f / sqrtf((float)w));
    const float *mask = tc->mask == NO_MASK ? NULL : t_f(&g->t, g->in[MASK]);

    for (int64_t j = 0; j < c->k_rows; j++) {
        for (int64_t d = 0; d < w; d++)
            p[j] += attn_at(&g->t, c, g->in[Q], 0, b, s, h, d) *
                    attn_at(&g->t, c, g->in[K], 1, b, j, h, d) * scale;
        if (mask && tc->mask == MASK_OF_ALL)
            p[j] +=
                (double)mask[((b % mask_parts(c) * c->heads + h) * c->q_rows + s) * c->k_rows + j];
        else if (mask)
            p[j] += (double)mask[(tc->mask == MASK_OF_KEYS ? b : s) * c->k_rows + j];
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j < c->k_rows; j++)
        sum += p[j] = exp(p[j] - max);
    g->want[LSE][row] = max + log(sum);
    for (int64_t j = 0; j < c->k_rows; j++)
        for (int64_t d = 0; d < w; d++)
            g->want[Y][at + d] +=
                p[j] / sum * factor(tc, row, j) * attn_at(&g->t, c, g->in[V], 2, b, j, h, d);
    for (int64_t d = 0; d < w; d++)
        delta += g->want[Y][at + d] * (double)dy[d];
    for (int64_t j = 0; j < c->k_rows; j++) {
        const int64_t query = place_of(c, 0, b, s, h), key = place_of(c, 1, b, j, h);
        const int64_t value = place_of(c, 2, b, j, h);
        const double f = factor(tc, row, j);
        double ds = 0;

        for (int64_t d = 0; d < w; d++)
            ds += f * (double)dy[d] * attn_at(&g->t, c, g->in[V], 2, b, j, h, d);
        ds = p[j] / sum * (ds - delta);
        if (tc->mask == MASK_OF_ALL)
            g->want[D_MASK][row * c->k_rows + j] = ds;
        for (int64_t d = 0; d < w; d++) {
            gradient_of(g, c, 0)[query + d] +=
                ds * scale * attn_at(&g->t, c, g->in[K], 1, b, j, h, d);
            gradient_of(g, c, 1)[key + d] +=
                ds * scale * attn_at(&g->t, c, g->in[Q], 0, b, s, h, d);
            gradient_of(g, c, 2)[value + d] += p[j] / sum * f * (double)dy[d];
        }
    }
    free(p);
}

/* Every fifth key is masked out, another one in each row. */
static void fill_mask(struct train_graph *g, const struct train_case *c)
{
    float *mask = t_f(&g->t, g->in[MASK]);

    for (int64_t i = 0; i < dev_tensor_elements(&g->t.tensors[g->in[MASK]]); i++)
        if ((i / c->c.k_rows + i % c->c.k_rows) % 5 == 3)
            mask[i] = -INFINITY;
}

/* All keys of some rows are masked out by the lowest number, as exporters do it: of sample 0, or of
 * row 0 of each. Nobody reads what such rows give, so no gradient comes of them. Where queries are
 * 0, it does not matter which low number is stored. */
static void hide_rows(struct train_graph *g, const struct train_case *tc)
{
    const struct attn_case *c = &tc->c;
    const int64_t row = c->heads * c->width;

    for (int64_t r = 0; r < c->batch * c->q_rows; r++)
        for (int64_t i = r * row; i < (r + 1) * row; i++)
            if (tc->mask == MASK_OF_KEYS ? r < c->q_rows : r % c->q_rows == 0)
                t_f(&g->t, g->in[Q])[i] = t_f(&g->t, g->in[D_Y])[i] = 0;
    for (int64_t j = 0; j < c->k_rows; j++)
        t_f(&g->t, g->in[MASK])[j] = -FLT_MAX;
}

/* q, k, v and d_y go through a COPY, as in one_attention(). */
static void train_graph(struct train_graph *g, const struct train_case *tc)
{
    const struct attn_case *c = &tc->c;
    const struct t_dims rows = DIMS(c->batch, c->q_rows, c->heads, c->width);
    const struct t_dims keys = DIMS(c->batch, c->k_rows, c->heads, c->width);
    struct t_graph *t = &g->t;
    struct dev_op *fwd, *bwd;

    t_init(t);
    t->step = STEP;
    g->in[MASK] = g->act[MASK] = DEV_NONE;
    for (int i = 0; i < N_IN; i++) {
        const struct t_dims d = c->packed && i < MASK ? packed_dims(c)
                                : i == K || i == V    ? keys
                                                      : rows;

        if (i == MASK)
            continue;
        g->in[i] = g->in[Q];
        g->act[i] = g->act[Q];
        if (c->packed && (i == K || i == V))
            continue;
        g->in[i] = t_in(t, d);
        g->act[i] = t_act(t, d);
        t_map(t, g->in[i], i == D_Y ? 1 : 2, 0);
        t_op(t, DEV_OP_COPY, IN(g->in[i]), OUT(g->act[i]));
    }
    if (tc->mask != NO_MASK) {
        g->in[MASK] = g->act[MASK] =
            t_in(t, tc->mask == MASK_OF_KEYS  ? DIMS(c->batch, 1, 1, c->k_rows)
                    : tc->mask == MASK_OF_ALL ? DIMS(mask_parts(c), c->heads, c->q_rows, c->k_rows)
                                              : DIMS(c->q_rows, c->k_rows));
        fill_mask(g, tc);
    }
    for (int i = 0; i < N_OUT; i++) {
        g->want[i] = NULL;
        g->out[i] = DEV_NONE;
        if (i == D_MASK ? tc->mask != MASK_OF_ALL : c->packed && (i == D_K || i == D_V))
            continue;
        g->out[i] = i == LSE      ? t_act(t, DIMS(c->batch, c->heads, c->q_rows))
                    : i == D_MASK ? t_out(t, DIMS(c->batch, c->heads, c->q_rows, c->k_rows))
                    : i == D_Q && c->packed ? t_out(t, packed_dims(c))
                                            : t_out(t, i == D_K || i == D_V ? keys : rows);
        g->want[i] = t_doubles((size_t)dev_tensor_elements(&t->tensors[g->out[i]]));
    }
    fwd = tc->mask == NO_MASK
              ? t_op(t, DEV_OP_ATTENTION, IN(g->act[Q], g->act[K], g->act[V]),
                     OUT(g->out[Y], g->out[LSE]))
              : t_op(t, DEV_OP_ATTENTION, IN(g->act[Q], g->act[K], g->act[V], g->act[MASK]),
                     OUT(g->out[Y], g->out[LSE]));
    bwd =
        t_op(t, DEV_OP_ATTENTION_BWD,
             IN(g->act[Q], g->act[K], g->act[V], g->act[MASK], g->out[Y], g->act[D_Y], g->out[LSE]),
             OUT(g->out[D_Q], g->out[D_K], g->out[D_V], g->out[D_MASK]));
    for (int i = 0; i < 3 && c->packed; i++)
        fwd->u.attn.view[i] = view_of(c, 2 - i);
    fwd->u.attn.k_rows = c->k_rows;
    fwd->u.attn.scale = 1.0f / sqrtf((float)c->width);
    fwd->u.attn.ratio = tc->ratio;
    fwd->u.attn.seed = SEED;
    bwd->u.attn = fwd->u.attn;
}

static void one_training(const struct train_case *c)
{
    struct train_graph g;

    train_graph(&g, c);
    if (c->hides)
        hide_rows(&g, c);
    for (int64_t r = 0; r < c->c.batch * c->c.q_rows * c->c.heads; r++)
        train_row(&g, c, r / c->c.heads / c->c.q_rows, r / c->c.heads % c->c.q_rows,
                  r % c->c.heads);
    t_run(&g.t);
    for (int i = 0; i < N_OUT; i++)
        if (g.want[i] &&
            (i == LSE ? !c->hides : c->ratio < 1)) /* otherwise very large, and all of it 0 */
            t_close(&g.t, g.out[i], g.want[i], 1e-10);
    for (int i = 0; i < N_OUT && c->ratio >= 1; i++)
        for (int64_t k = 0;
             g.want[i] && k < dev_tensor_elements(&g.t.tensors[g.out[i]]) && i != LSE; k++)
            assert_true(t_f(&g.t, g.out[i])[k] == 0);
    for (int i = 0; i < N_OUT; i++)
        free(g.want[i]);
    t_fini(&g.t);
}

static void training_matches_the_formula(void **state)
{
    const bool is_short = getenv("SANITIZED") != NULL;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(TRAINED); i++)
        /* A sanitizer takes its time, and looks for what does not depend on the numbers. */
        for (int mask = is_short ? MASK_OF_ROWS : NO_MASK; mask <= MASK_OF_ALL; mask++)
            for (int drops = is_short; drops < 2; drops++)
                one_training(&(struct train_case){TRAINED[i], mask, drops ? 0.1f : 0, false});
    one_training(&(struct train_case){TRAINED[0], MASK_OF_KEYS, 1, false});
}

static void rows_without_keys_harm_nothing(void **state)
{
    (void)state;
    if (getenv("SANITIZED"))
        return;
    for (size_t i = 0; i < 3; i++)
        for (int mask = TRAINED[i].batch > 1 ? MASK_OF_KEYS : MASK_OF_ROWS; mask <= MASK_OF_ROWS;
             mask++)
            one_training(&(struct train_case){TRAINED[i], mask, 0.1f, true});
}

/* More weights than random numbers. Only planned, so the data may be small. */
static void make_large(struct train_graph *g, const struct attn_case *c)
{
    for (uint32_t i = 0; i < g->t.g.n_tensors; i++) {
        int64_t *rows = &g->t.tensors[i].dims[g->t.tensors[i].rank == 3 ? 2 : 1];

        *rows = *rows == c->q_rows ? ((int64_t)1 << 32) / (DEV_MAX_KEYS / 8) : DEV_MAX_KEYS;
    }
}

static void training_refuses_what_it_cannot_do(void **state)
{
    static const int RC[] = {SH_E_BUG, SH_E_BUG, SH_E_BUG, SH_E_INVALID, SH_E_TOOBIG};
    const struct train_case c = {TRAINED[0], NO_MASK, 0.1f, false};
    struct train_graph g;

    (void)state;
    for (int i = 0; i < (int)SH_ARRAY_LEN(RC); i++) {
        struct sh_err err = {0};
        struct dev_op *fwd, *bwd;

        train_graph(&g, &c);
        bwd = &g.t.ops[g.t.g.n_ops - 1];
        fwd = bwd - 1;
        if (i == 0)
            bwd->out[0] = g.out[D_K]; /* another shape than q */
        else if (i == 1)
            bwd->in[6] = g.out[Y]; /* not lse */
        else if (i == 2)
            fwd->n_out = 1; /* dropout without lse */
        else if (i == 3)
            fwd->u.attn.ratio = 1.5f;
        else
            make_large(&g, &c.c);
        assert_fails(t_plan_fails(&g.t, DEV_FP32, &err), RC[i], &err, "ATTENTION");
        for (int k = 0; k < N_OUT; k++)
            free(g.want[k]);
        t_fini(&g.t);
    }
}

static void attention_refuses_shapes_that_do_not_fit(void **state)
{
    struct sh_err err = {0};
    struct t_graph t;
    uint32_t q, k, v, y;

    (void)state;
    t_init(&t);
    q = t_in(&t, DIMS(2, 5, 3, 8));
    k = t_in(&t, DIMS(2, 7, 3, 8));
    v = t_in(&t, DIMS(2, 6, 3, 8));
    y = t_out(&t, DIMS(2, 5, 3, 8));
    t_op(&t, DEV_OP_ATTENTION, IN(q, k, v), OUT(y))->u.attn.scale = 1;
    assert_fails(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG, &err, "ATTENTION");
    t_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_the_formula),
        cmocka_unit_test(attention_refuses_shapes_that_do_not_fit),
        cmocka_unit_test(training_matches_the_formula),
        cmocka_unit_test(rows_without_keys_harm_nothing),
        cmocka_unit_test(training_refuses_what_it_cannot_do),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
