/* test_optim.c - the updates of a training step, alone and many in a row.
 *
 * A back end may do many of them at once. Then a table that is off by one, a piece that ends where
 * a tensor does not, or an update done too early trains a little worse and nothing crashes. So
 * there are tensors of every awkward size, and every graph runs cut in two at every position as
 * well. The references are the formulas in double precision.
 */
#include "common/mem.h"
#include "tests/device/dev_test.h"

#include <math.h>

#define LR 0.125f
#define MOMENTUM 0.875f
#define DECAY 0.0625f
#define BETA1 0.9f
#define BETA2 0.999f
#define EPS 1e-8f

struct rule {
    enum dev_op_kind kind;
    bool has_momentum, nesterov, decoupled;
    int64_t step;
};

static const struct rule RULES[] = {
    {DEV_OP_SGD, false, false, false, 0},  {DEV_OP_SGD, true, false, false, 0},
    {DEV_OP_SGD, true, true, false, 0},    {DEV_OP_ADAM, false, false, false, 0},
    {DEV_OP_ADAM, false, false, false, 9}, {DEV_OP_ADAM, false, false, true, 3},
};

struct param {
    uint32_t p, g, m, v; /* tensors; m: the momentum as well */
};

/* The gradient as the backward pass leaves it: as the back end wants activations. */
static uint32_t add_gradient(struct t_graph *t, struct t_dims dims)
{
    uint32_t i = t_add(t, DEV_ROLE_ACT, SH_F32, dims);

    t->given[i] = true;
    return i;
}

/* Far from 0, where a difference would leave nothing but rounding. */
static uint32_t add_state(struct t_graph *t, struct t_dims dims)
{
    uint32_t i = t_state(t, dims);

    t_map(t, i, 1, 3);
    return i;
}

static struct param add_param(struct t_graph *t, const struct rule *r, struct t_dims dims)
{
    const bool is_adam = r->kind == DEV_OP_ADAM;
    struct param a = {.m = DEV_NONE, .v = DEV_NONE};

    a.p = add_state(t, dims);
    a.g = dims.rank == 4 || t->g.n_tensors % 2 ? add_gradient(t, dims) : t_in(t, dims);
    if (is_adam || r->has_momentum)
        a.m = add_state(t, dims);
    if (is_adam)
        a.v = add_state(t, dims);
    return a;
}

static struct dev_op *add_update(struct t_graph *t, const struct rule *r, const struct param *a)
{
    struct dev_op *op = r->kind == DEV_OP_ADAM ? t_op(t, r->kind, IN(a->p, a->g, a->m, a->v), NO_IN)
                                               : t_op(t, r->kind, IN(a->p, a->g, a->m), NO_IN);

    op->u.optim.momentum = r->has_momentum ? MOMENTUM : 0;
    op->u.optim.weight_decay = DECAY;
    op->u.optim.nesterov = r->nesterov;
    op->u.optim.beta1 = BETA1;
    op->u.optim.beta2 = BETA2;
    op->u.optim.eps = EPS;
    op->u.optim.decoupled = r->decoupled;
    return op;
}

/* One element. */
static void update(const struct rule *r, double decay, double grad, double *p, double *m, double *v)
{
    const double b1 = BETA1, b2 = BETA2, t = (double)r->step + 1, lr = LR;
    const double g = grad + (r->decoupled ? 0 : decay * *p);

    if (r->kind == DEV_OP_SGD) {
        *m = r->has_momentum ? MOMENTUM * *m + g : g;
        *p -= lr * (r->nesterov ? g + MOMENTUM * *m : *m);
        return;
    }
    *m = b1 * *m + (1 - b1) * g;
    *v = b2 * *v + (1 - b2) * g * g;
    *p -= r->decoupled ? lr * decay * *p : 0;
    *p -= lr * *m / (1 - pow(b1, t)) / (sqrt(*v / (1 - pow(b2, t))) + EPS);
}

struct want {
    double *p, *m, *v; /* OWNED; as they are before the first update */
};

static double *doubles_of(struct t_graph *t, uint32_t tensor, int64_t n)
{
    double *d = t_doubles((size_t)n);

    for (int64_t i = 0; i < n && tensor != DEV_NONE; i++)
        d[i] = t_f(t, tensor)[i];
    return d;
}

static struct want want_of(struct t_graph *t, const struct param *a)
{
    const int64_t n = dev_tensor_elements(&t->tensors[a->p]);

    return (struct want){doubles_of(t, a->p, n), doubles_of(t, a->m, n), doubles_of(t, a->v, n)};
}

static void update_all(struct t_graph *t, const struct rule *r, double decay, const struct param *a,
                       struct want *w)
{
    for (int64_t i = 0; i < dev_tensor_elements(&t->tensors[a->p]); i++)
        update(r, decay, t_f(t, a->g)[i], &w->p[i], &w->m[i], &w->v[i]);
}

static void expect(struct t_graph *t, const struct param *a, struct want *w)
{
    t_close_f32(t, a->p, w->p, 1e-12);
    if (a->m != DEV_NONE)
        t_close_f32(t, a->m, w->m, 1e-12);
    if (a->v != DEV_NONE)
        t_close_f32(t, a->v, w->v, 1e-12);
    free(w->p);
    free(w->m);
    free(w->v);
}

static void each_update_follows_its_formula(void **state)
{
    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(RULES); k++) {
        struct t_graph t;
        struct param a;
        struct want w;

        t_init(&t);
        t.turn = (struct dev_turn){.lr = LR, .update = RULES[k].step};
        a = add_param(&t, &RULES[k], DIMS(3, 6667));
        add_update(&t, &RULES[k], &a);
        w = want_of(&t, &a);
        update_all(&t, &RULES[k], DECAY, &a, &w);
        t_run(&t);
        expect(&t, &a, &w);
        t_fini(&t);
    }
}

/* Vectors of all kinds of ends, matrices, and weights of convolutions: few and many channels, one,
 * more taps in all than a block may take at once, rows that begin at odd places. */
#define N_SHAPES 16
static void shapes(struct t_dims out[static N_SHAPES])
{
    const struct t_dims all[N_SHAPES] = {
        DIMS(1),
        DIMS(3),
        DIMS(7),
        DIMS(64),
        DIMS(1000),
        DIMS(5, 13),
        DIMS(8192),
        DIMS(3, 8191),
        DIMS(16, 3, 3, 3),
        DIMS(400, 3, 3, 3),
        DIMS(2, 1000, 3, 3),
        DIMS(8, 4, 1, 1),
        DIMS(5, 1, 3, 3),
        DIMS(9, 16, 5, 5),
        DIMS(70, 64, 3, 3),
        DIMS(3, 1368, 3, 2),
    };

    memcpy(out, all, sizeof(all));
}

static void one_step(const struct rule *r)
{
    struct param a[N_SHAPES];
    struct want w[N_SHAPES];
    struct t_dims dims[N_SHAPES];
    uint32_t src[N_SHAPES], dst[N_SHAPES];
    struct t_graph t;

    shapes(dims);
    t_init(&t);
    t.turn = (struct dev_turn){.lr = LR, .update = r->step};
    t.cuts = true;
    t_blocked(&t, t_in(&t, DIMS(1, 8, 2, 2))); /* a model with convolutions stores otherwise */
    for (int i = 0; i < N_SHAPES; i++) {
        a[i] = add_param(&t, r, dims[i]);
        src[i] = add_gradient(&t, dims[i]);
        dst[i] = t_state(&t, dims[i]);
    }
    for (int i = 0; i < N_SHAPES; i++) {
        add_update(&t, r, &a[i]);
        w[i] = want_of(&t, &a[i]);
        update_all(&t, r, DECAY, &a[i], &w[i]);
    }
    for (int i = 0; i < N_SHAPES; i++)
        t_op(&t, DEV_OP_COMMIT, IN(src[i]), OUT(dst[i]));
    t_run(&t);
    for (int i = 0; i < N_SHAPES; i++) {
        expect(&t, &a[i], &w[i]);
        assert_memory_equal(t_f(&t, dst[i]), t_f(&t, src[i]),
                            (size_t)dev_tensor_elements(&t.tensors[dst[i]]) * 4);
    }
    t_fini(&t);
}

static void many_updates_in_a_row_are_those_of_each(void **state)
{
    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(RULES); k++)
        one_step(&RULES[k]);
}

/* A parameter that is updated twice, one with another decay, a commit of what was just updated, and
 * one of what was just committed: each must see what the one before it left. */
static void an_update_sees_what_those_before_it_wrote(void **state)
{
    const struct rule *r = &RULES[1];
    struct param a, b;
    struct want wa, wb;
    uint32_t c, d;
    struct t_graph t;

    (void)state;
    t_init(&t);
    t.cuts = true;
    t.turn.lr = LR;
    a = add_param(&t, r, DIMS(1000));
    b = add_param(&t, r, DIMS(333));
    c = t_state(&t, DIMS(1000));
    d = t_state(&t, DIMS(1000));
    wa = want_of(&t, &a);
    wb = want_of(&t, &b);
    add_update(&t, r, &a);
    add_update(&t, r, &a);
    add_update(&t, r, &b)->u.optim.weight_decay = 0.5f;
    add_update(&t, r, &a);
    t_op(&t, DEV_OP_COMMIT, IN(a.p), OUT(c));
    t_op(&t, DEV_OP_COMMIT, IN(c), OUT(d));
    add_update(&t, r, &a);
    for (int i = 0; i < 3; i++)
        update_all(&t, r, DECAY, &a, &wa);
    update_all(&t, r, 0.5, &b, &wb);
    t_run(&t);
    t_close_f32(&t, c, wa.p, 1e-12);
    t_close_f32(&t, d, wa.p, 1e-12);
    update_all(&t, r, DECAY, &a, &wa);
    expect(&t, &a, &wa);
    expect(&t, &b, &wb);
    t_fini(&t);
}

/* Where they are done by the first of them, that one has their time, and the others none. */
static void a_profile_says_which_update_does_the_work(void **state)
{
    const struct rule *r = &RULES[1];
    double ns[T_MAX_OPS] = {0}, sum = 0;
    const int n = 20;
    struct t_graph t;

    (void)state;
    t_init(&t);
    for (int i = 0; i < n; i++) {
        struct param a = add_param(&t, r, DIMS(1000));

        add_update(&t, r, &a);
    }
    t_profile(&t, ns);
    for (int i = 0; i < n; i++) {
        assert_true(ns[i] >= 0);
        sum += ns[i];
    }
    assert_true(sum > 0);
    if (strcmp(t_kind(), "cuda") == 0)
        assert_true(ns[0] == sum);
    t_fini(&t);
}

/* ------------------------------------------------------------------ turns */

#define N_CUT 4
#define MEAN_DECAY 0.75

/* What is asked of the gradients on their way to the update. */
struct cut {
    double norm, value;
    bool sums;
    struct dev_turn turn;
    double scale; /* of the loss; 0: none */
    bool skips;   /* a gradient is not finite */
};

#define SKIPPED 2 /* updates so far */
#define INTERVAL 5

static const struct cut CUTS[] = {
    {0, 0.25, false, {.lr = LR, .update = 3}},
    {2, 0, false, {.lr = LR, .update = 3}},
    {1e6, 0, false, {.lr = LR}},
    {0, 0, true, {.lr = LR}},
    {0, 0, true, {.lr = LR, .update = 3, .part = 0, .last = 2}},
    {0, 0, true, {.lr = LR, .update = 3, .part = 1, .last = 2}},
    {0, 0, true, {.lr = LR, .update = 3, .part = 2, .last = 2}},
    {2, 0, true, {.lr = LR, .update = 3, .part = 1, .last = 2}},
    {2, 0, true, {.lr = LR, .update = 3, .part = 2, .last = 2}},
    {0, 0.25, true, {.lr = LR, .update = 3, .part = 2, .last = 2}},
    {0, 0, false, {.lr = LR, .update = 3}, .scale = 1024},
    {0, 0.25, false, {.lr = LR, .update = 3}, .scale = 4},
    {2, 0, false, {.lr = LR, .update = 3}, .scale = 0.5},
    {2, 0, true, {.lr = LR, .update = 9, .part = 1, .last = 2}, .scale = 8, .skips = true},
    {2, 0, true, {.lr = LR, .update = 9, .part = 2, .last = 2}, .scale = 8},
    {0, 0, true, {.lr = LR, .update = 9, .part = 2, .last = 2}, .scale = 8, .skips = true},
    {2, 0, false, {.lr = LR, .update = 3}, .scale = 1024, .skips = true},
    {0, 0, false, {.lr = LR, .update = 3}, .scale = 2e38},
};

struct turn {
    struct param a[N_CUT];
    struct want w[N_CUT];
    uint32_t sum[N_CUT], mean[N_CUT], scaler;
    double *sums[N_CUT], *means[N_CUT]; /* OWNED: as they must become */
};

static void add_turn(struct t_graph *t, const struct rule *r, const struct cut *c, struct turn *u)
{
    const struct t_dims dims[N_CUT] = {DIMS(1000), DIMS(16, 3, 3, 3), DIMS(3, 16391),
                                       DIMS(70, 64, 3, 3)};
    const uint32_t some = t_add(t, DEV_ROLE_KEEP, SH_F32, DIMS(1));
    const uint32_t all = t_add(t, DEV_ROLE_KEEP, SH_F32, DIMS(1));
    uint32_t from[N_CUT];

    t_blocked(t, t_in(t, DIMS(1, 8, 2, 2)));
    for (int i = 0; i < N_CUT; i++) {
        u->a[i] = add_param(t, r, dims[i]);
        u->sum[i] = add_state(t, dims[i]);
        u->mean[i] = add_state(t, dims[i]);
        from[i] = c->sums ? u->sum[i] : u->a[i].g;
    }
    for (int i = 0; i < N_CUT && c->sums; i++)
        t_op(t, DEV_OP_ACCUM, IN(u->sum[i], u->a[i].g), NO_IN);
    if (c->scale > 0) {
        const float begin[DEV_SCALER] = {(float)c->scale, INTERVAL - 1, SKIPPED, 1};

        u->scaler = t_state(t, DIMS(DEV_SCALER));
        memcpy(t_f(t, u->scaler), begin, sizeof(begin));
    }
    if (c->skips) /* in the last place that is looked at */
        t_f(t, from[3])[dev_tensor_elements(&t->tensors[from[3]]) - 1] = INFINITY;
    if (c->norm > 0 || c->scale > 0) {
        t_op(t, DEV_OP_SQUARES, IN(DEV_NONE, from[0], from[1], from[2]), OUT(some));
        t_op(t, DEV_OP_SQUARES, IN(some, from[3]), OUT(all));
    }
    for (int i = 0; i < N_CUT; i++) {
        struct param a = u->a[i];
        struct dev_op *op;

        a.g = from[i];
        op = add_update(t, r, &a);
        op->u.optim.clip_norm = (float)c->norm;
        op->u.optim.clip_value = (float)c->value;
        if (c->norm > 0 || c->scale > 0) {
            op->n_in = r->kind == DEV_OP_ADAM ? 5 : 4;
            op->in[op->n_in - 1] = all;
        }
        if (c->scale > 0)
            op->in[op->n_in++] = u->scaler;
    }
    if (c->scale > 0) {
        struct dev_op *op = t_op(t, DEV_OP_LOSS_SCALE, IN(u->scaler, all), NO_IN);

        op->u.scaler.growth = 3;
        op->u.scaler.backoff = 0.25f;
        op->u.scaler.interval = INTERVAL;
    }
    for (int i = 0; i < N_CUT; i++)
        t_op(t, DEV_OP_EMA, IN(u->mean[i], u->a[i].p), NO_IN)->u.optim.beta1 = (float)MEAN_DECAY;
}

/* What the update takes for the gradient, before it is cut; *norm: of all. */
static void sum_up(struct t_graph *t, const struct cut *c, struct turn *u, double *norm)
{
    const double parts = ((double)c->turn.last + 1) * (c->scale > 0 ? c->scale : 1);
    double squares = 0;

    for (int i = 0; i < N_CUT; i++) {
        const int64_t n = dev_tensor_elements(&t->tensors[u->a[i].p]);

        u->sums[i] = t_doubles((size_t)n);
        for (int64_t k = 0; k < n; k++) {
            const double sum = c->sums && c->turn.part > 0 ? (double)t_f(t, u->sum[i])[k] : 0;

            u->sums[i][k] = sum + (double)t_f(t, u->a[i].g)[k];
            squares += pow(u->sums[i][k] / parts, 2);
        }
    }
    *norm = sqrt(squares);
}

static void want_turn(struct t_graph *t, struct rule r, const struct cut *c, struct turn *u)
{
    const double parts = ((double)c->turn.last + 1) * (c->scale > 0 ? c->scale : 1);
    double norm, factor;

    r.step = c->turn.update - (c->scale > 0 ? SKIPPED : 0);
    sum_up(t, c, u, &norm);
    factor = c->norm > 0 ? fmin(1, c->norm / (norm + 1e-6)) : 1;
    for (int i = 0; i < N_CUT; i++) {
        const int64_t n = dev_tensor_elements(&t->tensors[u->a[i].p]);

        u->w[i] = want_of(t, &u->a[i]);
        u->means[i] = doubles_of(t, u->mean[i], n);
        for (int64_t k = 0; k < n && c->turn.part == c->turn.last; k++) {
            const double g = u->sums[i][k] / parts * factor,
                         cut = c->value > 0 ? c->value : g * g + 1;
            double *mean = &u->means[i][k];

            if (!c->skips)
                update(&r, DECAY, fmax(-cut, fmin(cut, g)), &u->w[i].p[k], &u->w[i].m[k],
                       &u->w[i].v[k]);
            *mean = c->turn.update ? MEAN_DECAY * *mean + (1 - MEAN_DECAY) * u->w[i].p[k]
                                   : u->w[i].p[k];
        }
    }
}

/* The interval is over, unless something is not finite; but only in the last part. */
static void expect_scale(const float *s, const struct cut *c)
{
    const bool ends = c->turn.part == c->turn.last;
    const float scale = (float)c->scale, grown = isfinite(3 * scale) ? 3 * scale : scale;

    assert_float_equal(s[0], !ends ? scale : c->skips ? scale / 4 : grown, 0);
    assert_float_equal(s[1], ends ? 0 : INTERVAL - 1, 0);
    assert_float_equal(s[2], SKIPPED + (ends && c->skips), 0);
    assert_float_equal(s[3], !ends ? 1 : c->skips ? 2 : 0, 0);
}

static void one_turn(const struct rule *r, const struct cut *c)
{
    struct turn u;
    struct t_graph t;

    t_init(&t);
    t.turn = c->turn;
    add_turn(&t, r, c, &u);
    want_turn(&t, *r, c, &u);
    t_run(&t);
    if (c->scale > 0)
        expect_scale(t_f(&t, u.scaler), c);
    for (int i = 0; i < N_CUT; i++) {
        if (c->sums && !c->skips)
            t_close_f32(&t, u.sum[i], u.sums[i], 1e-12);
        t_close_f32(&t, u.mean[i], u.means[i], 1e-12);
        expect(&t, &u.a[i], &u.w[i]);
        free(u.sums[i]);
        free(u.means[i]);
    }
    t_fini(&t);
}

/* Clipping, sums over several steps and means of weights: torch.nn.utils.clip_grad_norm_ and
 * clip_grad_value_, backward() several times before one step(), AveragedModel with an EMA; and the
 * scale of the loss, as torch.amp.GradScaler has it. */
static void gradients_are_summed_and_cut_on_their_way(void **state)
{
    const struct rule *const rules[] = {&RULES[0], &RULES[1], &RULES[4]};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(CUTS); k++)
        for (size_t i = 0; i < SH_ARRAY_LEN(rules); i++)
            one_turn(rules[i], &CUTS[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_update_follows_its_formula),
        cmocka_unit_test(many_updates_in_a_row_are_those_of_each),
        cmocka_unit_test(an_update_sees_what_those_before_it_wrote),
        cmocka_unit_test(gradients_are_summed_and_cut_on_their_way),
        cmocka_unit_test(a_profile_says_which_update_does_the_work),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
