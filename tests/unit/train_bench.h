/* train_bench.h - compiles a graph for training on the cpu device and asks for loss and gradients.
 */
#ifndef SH_TESTS_UNIT_TRAIN_BENCH_H
#define SH_TESTS_UNIT_TRAIN_BENCH_H

#include "common/mem.h"
#include "runtime/device/dev.h"
#include "runtime/model/graph.h"
#include "runtime/model/program.h"
#include "tests/unit/sh_test.h"

#include <float.h>
#include <math.h>

#define ARENA ((size_t)16 << 20)

#define SLOPE_STEP 2e-3

struct bench {
    struct dev_lib *lib;
    struct dev *dev;
    struct graph *g;
    struct program *p;
    struct dev_bases bases;
    float *state, *probe; /* as bytes of the state; floats by entry */
    enum dev_precision precision;
};

static inline double uniform(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (double)(*x >> 40) / (double)(1u << 24);
}

static inline int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    struct dev_conf conf = {.threads = 1, .arena_bytes = ARENA, .deterministic = true};
    struct sh_err err = {0};

    assert_non_null(b);
    assert_ok_err(dev_lib_open("oracle", &b->lib, &err), &err);
    assert_ok_err(dev_open(b->lib, &conf, &b->dev, &err), &err);
    *state = b;
    return 0;
}

static inline int teardown(void **state)
{
    struct bench *b = *state;

    dev_close(b->dev);
    dev_lib_close(b->lib);
    free(b);
    return 0;
}

/* Takes g. */
static inline void compile(struct bench *b, struct graph *g, double lo, double hi,
                           const struct train_spec *t)
{
    struct sh_err err = {0};
    uint64_t x = 12345;
    size_t ws;
    float *work;

    b->g = g;
    b->precision = t->precision;
    for (uint32_t i = 0; i < g->n_values; i++)
        for (int64_t k = 0; g->values[i].is_param && k < graph_elements(&g->values[i]); k++)
            ((float *)g->values[i].data)[k] = (float)(lo + (hi - lo) * uniform(&x));
    assert_ok_err(program_train(b->dev, g, t, &b->p, &err), &err);
    b->bases = (struct dev_bases){.state = 0,
                                  .workspace = SH_ALIGN_UP(program_state_bytes(b->p), DEV_BLOCK),
                                  .turn.lr = t->lr};
    ws = program_workspace_bytes(b->p);
    assert_true(b->bases.workspace + ws <= ARENA);
    b->state = calloc(1, program_state_bytes(b->p) + 1);
    b->probe = calloc(1, program_state_bytes(b->p) + 1);
    work = calloc(1, ws + 1);
    assert_true(b->state && b->probe && work);
    assert_ok(program_write_state(b->p, b->state, NULL));
    for (size_t i = 0; i < ws / 4; i++) /* inputs, labels, and garbage everywhere else */
        work[i] = (float)(uniform(&x) - 0.5);
    assert_ok(dev_upload(b->dev, b->bases.workspace, work, ws, NULL));
    assert_ok(dev_sync(b->dev, NULL));
    free(work);
}

static inline void put_state(struct bench *b, const float *s)
{
    assert_ok(dev_upload(b->dev, b->bases.state, s, program_state_bytes(b->p), NULL));
    assert_ok(dev_sync(b->dev, NULL));
}

static inline void get(struct bench *b, size_t at, void *to, size_t bytes)
{
    assert_ok(dev_download(b->dev, to, at, bytes, NULL));
    assert_ok(dev_sync(b->dev, NULL));
}

/* The label lies in the workspace among what a run overwrites: it is put back each time. */
static inline double loss_at(struct bench *b, const float *s, const float *label)
{
    const struct program_io *io = program_label(b->p, 0);
    struct sh_err err = {0};
    float loss;

    put_state(b, s);
    assert_ok(dev_upload(b->dev, b->bases.workspace + io->offset, label, io->bytes, NULL));
    assert_ok_err(program_run(b->p, &b->bases, 0, program_update_begin(b->p), &err), &err);
    get(b, b->bases.workspace + program_loss_offset(b->p), &loss, sizeof(loss));
    return (double)loss;
}

static inline void clear(struct bench *b)
{
    program_free(b->p);
    graph_free(b->g);
    free(b->state);
    free(b->probe);
    b->p = NULL;
    b->g = NULL;
    b->state = b->probe = NULL;
}

static inline float *some_label(const struct bench *b)
{
    float *label = calloc(1, program_label(b->p, 0)->bytes + 1);
    uint64_t x = 99;

    assert_non_null(label);
    for (size_t i = 0; i < program_label(b->p, 0)->bytes / sizeof(float); i++)
        label[i] = (float)(uniform(&x) - 0.5);
    return label;
}

/* The slope along a direction: by the gradients, and by two losses. */
static inline void slopes(struct bench *b, const float *label, uint64_t *x, double *by_gradient,
                          double *by_loss)
{
    const double h = SLOPE_STEP;
    float *back = calloc(1, program_state_bytes(b->p) + 1), *grad;

    assert_non_null(back);
    *by_gradient = 0;
    (void)loss_at(b, b->state, label);
    memcpy(b->probe, b->state, program_state_bytes(b->p));
    memcpy(back, b->state, program_state_bytes(b->p));
    for (size_t i = 0; i < program_n_state(b->p); i++) {
        const struct program_state_entry *e = program_state(b->p, i);
        size_t n = e->bytes / sizeof(float), at = e->offset / sizeof(float);

        if (e->kind != PROGRAM_STATE_PARAM)
            continue;
        assert_true(e->has_gradient);
        grad = malloc(e->bytes);
        assert_non_null(grad);
        assert_ok(program_gradient(b->p, &b->bases, i, grad, NULL));
        for (size_t k = 0; k < n; k++) {
            double d = uniform(x) * 2 - 1;

            b->probe[at + k] = (float)((double)b->state[at + k] + h * d);
            back[at + k] = (float)((double)b->state[at + k] - h * d);
            *by_gradient += (double)grad[k] * d;
        }
        free(grad);
    }
    *by_loss = (loss_at(b, b->probe, label) - loss_at(b, back, label)) / (2 * h);
    free(back);
}

static inline uint32_t some_node(struct graph *g, const char *op, const char *name,
                                 const uint32_t *in, uint32_t n_in)
{
    uint32_t y, node;

    assert_ok(graph_add_value(g, name, SH_F32, -1, NULL, &y, NULL));
    assert_ok(graph_add_node(g, name, op, in, n_in, &y, 1, &node, NULL));
    return y;
}

static inline uint32_t count_ops(const struct bench *b, const char *kind)
{
    const size_t n = strlen(kind);
    uint32_t found = 0;

    for (uint32_t i = 0; i < program_n_ops(b->p); i++) {
        const char *op = program_op_label(b->p, i);

        found += strncmp(op, kind, n) == 0 && op[n] == ' ';
    }
    return found;
}

/* The gradients agree with the slopes of the loss along some directions. A loss in single precision
 * is a few units in the last place off, which a short step makes a difference in its slope. */
static inline void expect_slopes(struct bench *b, uint64_t *x, int directions, double tolerance,
                                 const char *what)
{
    float *label = some_label(b);
    const double units = b->precision == DEV_FP64 ? 1 : 8;
    const double rounding =
        units * (double)FLT_EPSILON * fabs(loss_at(b, b->state, label)) / SLOPE_STEP;

    for (int k = 0; k < directions; k++) {
        double by_gradient, by_loss;

        slopes(b, label, x, &by_gradient, &by_loss);
        if (fabs(by_gradient - by_loss) > tolerance * (fabs(by_gradient) + 0.02) + rounding)
            fail_msg("%s: the gradient says %g, the loss %g", what, by_gradient, by_loss);
    }
    free(label);
}

/* OWNED: the gradients of all parameters, as they lie in the state, and the loss they are of. */
static inline float *all_gradients(struct bench *b, double *loss)
{
    float *label = some_label(b), *all = calloc(1, program_state_bytes(b->p));

    assert_non_null(all);
    *loss = loss_at(b, b->state, label);
    for (size_t k = 0; k < program_n_state(b->p); k++)
        assert_ok(program_gradient(b->p, &b->bases, k,
                                   all + program_state(b->p, k)->offset / sizeof(float), NULL));
    free(label);
    return all;
}

/* A parameter, whose values compile() chooses. */
static inline uint32_t some_weight(struct graph *g, const char *name, int rank, const int64_t *dims)
{
    int64_t n = 1;
    uint32_t w;

    for (int i = 0; i < rank; i++)
        n *= dims[i];
    assert_ok(
        graph_add_const(g, name, SH_F32, rank, dims, calloc((size_t)n, sizeof(float)), &w, NULL));
    g->values[w].is_param = true;
    return w;
}

/* Of sums in another order, as another kernel of the same product takes them: which one the library
 * takes depends on the processor. */
static inline void expect_close(const float *got, const float *want, size_t bytes, const char *what)
{
    const size_t n = bytes / sizeof(float);
    double mean = 0;

    for (size_t i = 0; i < n; i++)
        mean += fabs((double)want[i]) / (double)n;
    assert_true(mean > 0);
    for (size_t i = 0; i < n; i++)
        if (fabs((double)got[i] - (double)want[i]) > 5e-6 * (fabs((double)want[i]) + mean))
            fail_msg("%s %zu: %.9g, not %.9g", what, i, (double)got[i], (double)want[i]);
}

#endif
