/* test_rnn.c - one step of an LSTM's cell and its gradient, against formulas in double.
 *
 * Without it: a text model's state could go wrong step by step, and train towards nothing. */
#include "common/mem.h"
#include "tests/device/dev_test.h"

#include <math.h>

enum { N = 5, WIDTH = 37 };

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

struct want {
    double *hidden, *next, *d_sums, *d_cell;
};

/* dc NULL: of the last step. */
static void one_cell(const float *sums, const float *cell, const float *dh, const float *dc,
                     struct want *w)
{
    for (int64_t e = 0; e < N * WIDTH; e++) {
        const int64_t at = e / WIDTH * 4 * WIDTH + e % WIDTH;
        const double i = logistic(sums[at]), o = logistic(sums[at + WIDTH]);
        const double f = logistic(sums[at + 2 * WIDTH]), g = tanh(sums[at + 3 * WIDTH]);
        const double next = f * cell[e] + i * g, t = tanh(next);
        const double d = (double)dh[e] * o * (1 - t * t) + (dc ? (double)dc[e] : 0);

        w->next[e] = next;
        w->hidden[e] = o * t;
        w->d_sums[at] = d * g * i * (1 - i);
        w->d_sums[at + WIDTH] = (double)dh[e] * t * o * (1 - o);
        w->d_sums[at + 2 * WIDTH] = d * cell[e] * f * (1 - f);
        w->d_sums[at + 3 * WIDTH] = d * i * (1 - g * g);
        w->d_cell[e] = d * f;
    }
}

static void one_case(float scale, bool has_next)
{
    struct want w = {t_doubles(N * WIDTH), t_doubles(N * WIDTH), t_doubles(4 * N * WIDTH),
                     t_doubles(N * WIDTH)};
    uint32_t sums, cell, dh, dc, y, next, ds, d_cell;
    struct t_graph t;

    t_init(&t);
    sums = t_in(&t, DIMS(N, 4 * WIDTH));
    t_map(&t, sums, scale, 0);
    cell = t_in(&t, DIMS(N, WIDTH));
    dh = t_in(&t, DIMS(N, WIDTH));
    dc = t_in(&t, DIMS(N, WIDTH));
    y = t_out(&t, DIMS(N, WIDTH));
    next = t_out(&t, DIMS(N, WIDTH));
    ds = t_out(&t, DIMS(N, 4 * WIDTH));
    d_cell = t_out(&t, DIMS(N, WIDTH));
    t_op(&t, DEV_OP_LSTM_CELL, IN(sums, cell), OUT(y, next));
    t_op(&t, DEV_OP_LSTM_CELL_BWD, IN(sums, cell, dh, has_next ? dc : DEV_NONE), OUT(ds, d_cell));
    one_cell(t_f(&t, sums), t_f(&t, cell), t_f(&t, dh), has_next ? t_f(&t, dc) : NULL, &w);
    t_run(&t);
    t_close(&t, y, w.hidden, 1e-12);
    t_close(&t, next, w.next, 1e-12);
    t_close(&t, ds, w.d_sums, 1e-12);
    t_close(&t, d_cell, w.d_cell, 1e-12);
    t_fini(&t);
    free(w.hidden);
    free(w.next);
    free(w.d_sums);
    free(w.d_cell);
}

static void a_cell_and_its_gradient_match(void **state)
{
    (void)state;
    one_case(1, true);
    one_case(1, false);
    one_case(100, true); /* gates that are open or closed for good */
}

static void what_is_no_number_stays_none(void **state)
{
    uint32_t sums, cell, y, next;
    struct t_graph t;

    (void)state;
    t_init(&t);
    sums = t_in(&t, DIMS(1, 4));
    cell = t_in(&t, DIMS(1, 1));
    y = t_out(&t, DIMS(1, 1));
    next = t_out(&t, DIMS(1, 1));
    t_f(&t, sums)[3] = NAN;
    t_op(&t, DEV_OP_LSTM_CELL, IN(sums, cell), OUT(y, next));
    t_run(&t);
    assert_true(isnan(t_f(&t, y)[0]) && isnan(t_f(&t, next)[0]));
    t_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cell_and_its_gradient_match),
        cmocka_unit_test(what_is_no_number_stays_none),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
