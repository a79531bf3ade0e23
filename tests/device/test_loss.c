/* test_loss.c - losses and their gradients, against their formulas in double precision.
 *
 * Without it: a mean over the wrong number of labels, or a weight that counts twice, trains all the
 * same, only worse than elsewhere. */
#include "common/mem.h"
#include "tests/device/dev_test.h"

#include <math.h>

#define IGNORE 255
#define WEIGHT 0.75
#define SCALE 8.0

/* A loss; is_scaled: with a weight, and a scaler as an input. */
static struct dev_op *add_loss(struct t_graph *t, enum dev_op_kind kind, const uint32_t *in,
                               const uint32_t *out, bool is_scaled)
{
    struct dev_op *op = t_op(t, kind, in, out);

    op->u.loss.weight = is_scaled ? (float)WEIGHT : 1;
    if (!is_scaled)
        return op;
    while (op->n_in < 3)
        op->in[op->n_in++] = DEV_NONE;
    op->in[op->n_in++] = t_state(t, DIMS(DEV_SCALER));
    t_f(t, op->in[3])[0] = (float)SCALE;
    return op;
}

struct xent {
    int64_t before, classes, behind; /* behind 0: [before, classes] */
    double smoothing;
    bool has_weights, ignores;
};

static const struct xent XENTS[] = {
    {6, 11, 0, 0, false, false},      {6, 11, 0, 0.25, false, false}, {40, 11, 0, 0, true, true},
    {40, 300, 0, 0.125, true, true},  {3, 5, 70, 0, false, false},    {3, 5, 700, 0.25, true, true},
    {2, 40, 33, 0.0625, true, false}, {2000, 33, 0, 0, true, true},
};

/* Row r's element i is at at + i behind. */
static void one_row(const struct xent *k, const float *x, const float *w, int64_t target,
                    int64_t at, double *loss, double *d)
{
    const int64_t step = k->behind ? k->behind : 1;
    double sum = 0, all = 0;

    for (int64_t i = 0; i < k->classes; i++)
        sum += exp((double)x[at + i * step]);
    for (int64_t i = 0; i < k->classes; i++) {
        const double part = (w ? (double)w[i] : 1) * ((i == target ? 1 - k->smoothing : 0) +
                                                      k->smoothing / (double)k->classes);

        *loss -= part * ((double)x[at + i * step] - log(sum));
        d[at + i * step] = -part;
        all += part;
    }
    for (int64_t i = 0; i < k->classes; i++)
        d[at + i * step] += all * exp((double)x[at + i * step]) / sum;
}

static void expect_xent(struct t_graph *t, const struct xent *k, uint32_t x, uint32_t label,
                        uint32_t w, uint32_t loss, uint32_t grad, bool is_scaled)
{
    const int64_t step = k->behind ? k->behind : 1, rows = k->before * step;
    double *d = t_doubles((size_t)(rows * k->classes)), sum = 0, count = 0;

    for (int64_t r = 0; r < rows; r++) {
        const int64_t target = ((int64_t *)t->plain[label])[r];

        if (target == IGNORE)
            continue;
        count += k->has_weights ? (double)t_f(t, w)[target] : 1;
        one_row(k, t_f(t, x), k->has_weights ? t_f(t, w) : NULL, target,
                r / step * k->classes * step + r % step, &sum, d);
    }
    for (int64_t i = 0; i < rows * k->classes; i++)
        d[i] *= (is_scaled ? WEIGHT * SCALE : 1) / count;
    sum *= (is_scaled ? WEIGHT : 1) / count;
    t_run(t);
    t_close_f32(t, loss, &sum, 1e-12);
    t_close(t, grad, d, 1e-12);
    free(d);
}

static void cross_entropy_and_its_gradient_match(void **state)
{
    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(XENTS); i++) {
        const struct xent *k = &XENTS[i];
        struct t_dims dims = DIMS(k->before, k->classes, k->behind);
        const int64_t rows = k->before * (k->behind ? k->behind : 1);
        uint32_t x, label, w = DEV_NONE, loss, grad;
        struct dev_op *op;
        struct t_graph t;

        dims.rank = k->behind ? 3 : 2;
        t_init(&t);
        x = t_in(&t, dims);
        t_map(&t, x, 4, 0);
        label = t_index(&t, DIMS(rows), k->classes);
        for (int64_t r = 0; k->ignores && r < rows; r += 3)
            ((int64_t *)t.plain[label])[r] = IGNORE;
        if (k->has_weights) {
            w = t_state(&t, DIMS(k->classes));
            t_map(&t, w, 1, 1.5);
        }
        loss = t_add(&t, DEV_ROLE_KEEP, SH_F32, SCALAR);
        grad = t_act(&t, dims);
        op = add_loss(&t, DEV_OP_LOSS_XENT, IN(x, label, w), OUT(loss, grad), i % 2);
        op->u.loss.ignore = k->ignores ? IGNORE : -100;
        op->u.loss.smoothing = (float)k->smoothing;
        expect_xent(&t, k, x, label, w, loss, grad, i % 2);
        t_fini(&t);
    }
}

#define ROWS 700
#define WIDTH 11

static double each(enum dev_loss kind, double w, double x, double y, double *d)
{
    const double e = x - y, s = 1 / (1 + exp(-x));

    switch (kind) {
    case DEV_LOSS_L1:
        *d = e > 0 ? 1 : -1;
        return fabs(e);
    case DEV_LOSS_HUBER: /* delta 0.5 */
        *d = fabs(e) < 0.5 ? e : e > 0 ? 0.5 : -0.5;
        return fabs(e) < 0.5 ? e * e / 2 : 0.5 * (fabs(e) - 0.25);
    case DEV_LOSS_BCE:
        *d = -w * y * (1 - s) + (1 - y) * s;
        return -w * y * log(s) - (1 - y) * log(1 - s);
    default:
        *d = 2 * e;
        return e * e;
    }
}

static void losses_of_each_element_match(void **state)
{
    static const struct {
        enum dev_loss kind;
        int64_t weights; /* 0: none */
    } CASES[] = {{DEV_LOSS_MSE, 0}, {DEV_LOSS_L1, 0},  {DEV_LOSS_HUBER, 0},
                 {DEV_LOSS_BCE, 0}, {DEV_LOSS_BCE, 1}, {DEV_LOSS_BCE, WIDTH}};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(CASES); k++) {
        double *d = t_doubles(ROWS * WIDTH), sum = 0, n = ROWS * WIDTH;
        uint32_t x, y, w = DEV_NONE, loss, grad;
        struct dev_op *op;
        struct t_graph t;

        t_init(&t);
        x = t_in(&t, DIMS(ROWS, WIDTH));
        t_map(&t, x, 2, 0);
        y = t_in(&t, DIMS(ROWS, WIDTH));
        if (CASES[k].kind == DEV_LOSS_BCE)
            t_map(&t, y, 0.5, 0.5);
        /* Numbers of every precision, and no two equal: there the slope of L1 leaps. */
        for (int64_t i = 0; i < ROWS * WIDTH; i++) {
            t_f(&t, x)[i] = rintf(t_f(&t, x)[i] * 32) / 32;
            t_f(&t, y)[i] = rintf(t_f(&t, y)[i] * 32) / 32 + 1.0f / 64;
        }
        if (CASES[k].weights) {
            w = t_state(&t, DIMS(CASES[k].weights));
            t_map(&t, w, 1, 2);
        }
        loss = t_add(&t, DEV_ROLE_KEEP, SH_F32, DIMS(1));
        grad = t_act(&t, DIMS(ROWS, WIDTH));
        op = add_loss(&t, DEV_OP_LOSS_EACH, IN(x, y, w), OUT(loss, grad), k % 2);
        op->u.loss.kind = CASES[k].kind;
        op->u.loss.delta = 0.5f;
        for (int64_t i = 0; i < ROWS * WIDTH; i++) {
            const double weight = w == DEV_NONE ? 1 : t_f(&t, w)[i % CASES[k].weights];

            sum += each(CASES[k].kind, weight, t_f(&t, x)[i], t_f(&t, y)[i], &d[i]) / n;
            d[i] *= (k % 2 ? WEIGHT * SCALE : 1) / n;
        }
        sum *= k % 2 ? WEIGHT : 1;
        t_run(&t);
        t_close_f32(&t, loss, &sum, 1e-12);
        t_close(&t, grad, d, 1e-12);
        t_fini(&t);
        free(d);
    }
}

/* Logits whose exp() overflows. */
static void large_logits_have_finite_losses(void **state)
{
    const float logits[] = {1000, -1000, 500, -500}, targets[] = {1, 0, 0, 1};
    const double want = 250, slope[] = {0, 0, 0.25, -0.25};
    uint32_t x, y, loss, grad;
    struct dev_op *op;
    struct t_graph t;

    (void)state;
    t_init(&t);
    x = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(4));
    memcpy(t_f(&t, x), logits, sizeof(logits));
    y = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(4));
    memcpy(t_f(&t, y), targets, sizeof(targets));
    loss = t_add(&t, DEV_ROLE_KEEP, SH_F32, DIMS(1));
    grad = t_act(&t, DIMS(4));
    op = add_loss(&t, DEV_OP_LOSS_EACH, IN(x, y), OUT(loss, grad), false);
    op->u.loss.kind = DEV_LOSS_BCE;
    t_run(&t);
    t_close_f32(&t, loss, &want, 1e-12);
    t_close(&t, grad, slope, 1e-12);
    t_fini(&t);
}

static void a_label_that_is_no_class_is_an_error_of_the_run(void **state)
{
    struct sh_err err = {0};
    uint32_t x, label, loss, d;
    struct t_graph t;

    (void)state;
    t_init(&t);
    x = t_in(&t, DIMS(2, 3));
    label = t_index(&t, DIMS(2), 3);
    loss = t_add(&t, DEV_ROLE_KEEP, SH_F32, SCALAR);
    d = t_act(&t, DIMS(2, 3));
    ((int64_t *)t.plain[label])[1] = 3;
    add_loss(&t, DEV_OP_LOSS_XENT, IN(x, label), OUT(loss, d), false)->u.loss.ignore = -100;
    assert_fails(t_run_fails(&t, &err), SH_E_INVALID, &err, "label 3 at position 1");
    t_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_and_its_gradient_match),
        cmocka_unit_test(losses_of_each_element_match),
        cmocka_unit_test(large_logits_have_finite_losses),
        cmocka_unit_test(a_label_that_is_no_class_is_an_error_of_the_run),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
