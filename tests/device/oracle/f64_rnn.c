/* f64_rnn.c - one step of an LSTM's cell and its gradient in double. */
#include "tests/device/oracle/f64.h"

#include <math.h>

struct gates {
    double i, o, f, g, next; /* next: the cell's new state */
};

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* Of element e of the state, with `width` a sample. */
static struct gates gates_of(const struct f64_call *c, int64_t e, int64_t width)
{
    const double *s = c->x[0] + e / width * 4 * width + e % width;
    struct gates a = {.i = logistic(s[0]),
                      .o = logistic(s[width]),
                      .f = logistic(s[2 * width]),
                      .g = tanh(s[3 * width])};

    a.next = a.f * c->x[1][e] + a.i * a.g;
    return a;
}

int f64__lstm_cell(const struct f64_call *c, struct sh_err *err)
{
    (void)err;
    for (int64_t e = 0; e < f64__n(c->in[1]); e++) {
        const struct gates a = gates_of(c, e, c->in[1]->dims[1]);

        c->y[0][e] = a.o * tanh(a.next);
        c->y[1][e] = a.next;
    }
    return SH_OK;
}

int f64__lstm_cell_bwd(const struct f64_call *c, struct sh_err *err)
{
    const int64_t width = c->in[1]->dims[1];

    (void)err;
    for (int64_t e = 0; e < f64__n(c->in[1]); e++) {
        const struct gates a = gates_of(c, e, width);
        double *ds = c->y[0] + e / width * 4 * width + e % width;
        const double t = tanh(a.next), dh = c->x[2][e];
        const double d = dh * a.o * (1 - t * t) + (c->op->n_in > 3 && c->x[3] ? c->x[3][e] : 0);

        ds[0] = d * a.g * a.i * (1 - a.i);
        ds[width] = dh * t * a.o * (1 - a.o);
        ds[2 * width] = d * c->x[1][e] * a.f * (1 - a.f);
        ds[3 * width] = d * a.i * (1 - a.g * a.g);
        c->y[1][e] = d * a.f;
    }
    return SH_OK;
}
