/* lower_rnn.c - RNN, GRU and LSTM, one step at a time.
 *
 * The product of the whole sequence with W is one operation. Then each step adds its product of the
 * state with R and applies the gates to the sum. Steps are ordinary operations, so training and
 * every device support them; shape inference limits their number.
 *
 * A mask ends samples early: from its length on a sample's state stays and its output is 0. The
 * reverse direction then begins with steps that do not change it.
 */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/lower_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { X, W, R, BIAS, LENS, HIDDEN, CELL, PEEPHOLE, N_IN };
enum { MAX_ACTS = 6, MAX_NAME = 24 };

struct act { /* of one gate */
    char name[MAX_NAME];
    float alpha, beta;
};

struct rnn {
    struct lower *lo;
    const struct graph_node *n;
    const char *name;
    int64_t steps, samples, width, hidden, directions, gates, layout;
    bool linear_before_reset, input_forget;
    float clip; /* 0: none */
    struct act acts[MAX_ACTS];
    uint32_t in[N_IN], masks; /* masks: BOOL [steps, samples, 1] or DEV_NONE */
    /* of the direction at work */
    uint32_t xw, r, rb, hole[3]; /* hole: of i, o, f */
    uint32_t late_r, late_rb;    /* GRU that resets first: of its last gate; r, rb of the others */
    const struct act *act;
};

/* ------------------------------------------------------------------ attributes */

static const struct {
    const char *name;
    float alpha, beta;
    enum dev_act act;
} ACTS[] = {
    {"Relu", 0, 0, DEV_ACT_RELU},
    {"Tanh", 0, 0, DEV_ACT_TANH},
    {"Sigmoid", 0, 0, DEV_ACT_SIGMOID},
    {"Affine", 1, 0, DEV_ACT_LINEAR},
    {"LeakyRelu", 0.01f, 0, DEV_ACT_LEAKY_RELU},
    {"HardSigmoid", 0.2f, 0.5f, DEV_ACT_HARDSIGMOID},
    {"ScaledTanh", 1, 1, DEV_ACT_TANH},
};

static int find_act(const char *name)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(ACTS); i++)
        if (strcasecmp(ACTS[i].name, name) == 0)
            return (int)i;
    return -1;
}

static bool uses_beta(const char *name)
{
    return strcasecmp(name, "Affine") == 0 || strcasecmp(name, "HardSigmoid") == 0 ||
           strcasecmp(name, "ScaledTanh") == 0;
}

static bool uses_alpha(const char *name)
{
    return strcasecmp(name, "LeakyRelu") == 0 || uses_beta(name);
}

/* The next number of a list that only activations which want one take from. */
static void next_number(const struct graph_attr *list, size_t *at, float *out)
{
    if (list && list->kind == GRAPH_ATTR_FLOATS && *at < list->n)
        *out = list->floats[(*at)++];
}

static void read_acts(struct rnn *r)
{
    const struct graph_attr *alphas = graph__attr(r->n, "activation_alpha");
    const struct graph_attr *betas = graph__attr(r->n, "activation_beta");
    const size_t want = (size_t)r->directions * (r->gates == 4 ? 3u : r->gates == 3 ? 2u : 1u);
    const char *s = lower__str(r->lo, r->n, "activations", "");
    size_t n = 0, a = 0, b = 0;

    for (; *s && n < want; n++) {
        const size_t len = strcspn(s, ",");
        struct act *act = &r->acts[n];
        int k;

        snprintf(act->name, sizeof(act->name), "%.*s", (int)len, s);
        s += len + (s[len] == ',');
        k = find_act(act->name);
        if (k < 0) {
            lower__unsupported(r->lo, r->n,
                               "an activation is none of Relu, Tanh, Sigmoid, Affine, LeakyRelu, "
                               "HardSigmoid, ScaledTanh");
            return;
        }
        act->alpha = ACTS[k].alpha;
        act->beta = ACTS[k].beta;
        if (uses_alpha(act->name))
            next_number(alphas, &a, &act->alpha);
        if (uses_beta(act->name))
            next_number(betas, &b, &act->beta);
    }
    if (n != want || *s)
        IR_FAIL(r->lo->ir, SH_E_INVALID, "%s \"%s\": it needs %zu activations", r->n->op,
                r->n->name, want);
}

static void read_rnn(struct rnn *r)
{
    const struct graph_value *x = lower__in(r->lo, r->n, X), *rec = lower__in(r->lo, r->n, R);

    r->layout = lower__int(r->lo, r->n, "layout", 0);
    r->linear_before_reset = lower__int(r->lo, r->n, "linear_before_reset", 0) != 0;
    r->input_forget = lower__int(r->lo, r->n, "input_forget", 0) != 0;
    r->clip = lower__float(r->lo, r->n, "clip");
    r->steps = x->dims[r->layout ? 1 : 0];
    r->samples = x->dims[r->layout ? 0 : 1];
    r->width = x->dims[2];
    r->hidden = rec->dims[2];
    r->directions = rec->dims[0];
    r->gates = rec->dims[1] / r->hidden;
    read_acts(r);
    lower__use_all(r->lo, r->n, N_IN, r->in);
}

/* ------------------------------------------------------------------ pieces */

static uint32_t rnn_binary(struct rnn *r, enum dev_bin k, uint32_t a, uint32_t b)
{
    return ir_binary(r->lo->ir, k, r->name, a, b, a);
}

static uint32_t linear(struct rnn *r, float factor, float sum, uint32_t x)
{
    return ir_act(r->lo->ir, DEV_ACT_LINEAR, factor, sum, r->name, x);
}

/* Columns [g, g + n) of gates of t [samples, .. hidden]. */
static uint32_t gate(struct rnn *r, uint32_t t, int64_t g, int64_t n)
{
    return lower__cut(r->lo, r->name, t, (struct lower_cut){1, g * r->hidden, 1, n * r->hidden});
}

/* f of clipped x */
static uint32_t apply_gate_act(struct rnn *r, const struct act *f, uint32_t x)
{
    struct ir *ir = r->lo->ir;
    const enum dev_act act = ACTS[find_act(f->name)].act;

    if (r->clip > 0)
        x = ir_act(ir, DEV_ACT_CLIP, -r->clip, r->clip, r->name, x);
    if (strcasecmp(f->name, "ScaledTanh") != 0)
        return ir_act(ir, act, f->alpha, f->beta, r->name, x);
    x = linear(r, f->beta, 0.0f, x);
    x = ir_act(ir, act, 0.0f, 0.0f, r->name, x);
    return linear(r, f->alpha, 0.0f, x);
}

/* h op(w) + bias + residual */
static uint32_t rnn_product(struct rnn *r, uint32_t h, uint32_t w, uint32_t bias, uint32_t residual)
{
    struct dev_op op = ir_op(DEV_OP_MATMUL, r->name, 4, (uint32_t[]){h, w, bias, residual});
    const int64_t dims[2] = {ir_t(r->lo->ir, h)->dims[0], ir_t(r->lo->ir, w)->dims[0]};

    op.u.matmul.trans_b = true;
    op.u.matmul.alpha = 1.0f;
    return ir_emit(r->lo->ir, &op, SH_F32, 2, dims);
}

/* ------------------------------------------------------------------ one step */

/* z, r, h: h' = (1 - z) g + z h */
static void gru_step(struct rnn *r, uint32_t x, uint32_t *h)
{
    const bool late = r->linear_before_reset;
    uint32_t hr = DEV_NONE, zr, z, reset, g, rest;

    if (late) { /* the whole product first, then the reset */
        hr = rnn_product(r, *h, r->r, r->rb, DEV_NONE);
        zr = gate(r, x, 0, 2);
        zr = rnn_binary(r, DEV_BIN_ADD, zr, gate(r, hr, 0, 2));
    } else {
        zr = rnn_product(r, *h, r->r, r->rb, gate(r, x, 0, 2));
    }
    zr = apply_gate_act(r, &r->act[0], zr);
    z = gate(r, zr, 0, 1);
    reset = gate(r, zr, 1, 1);
    g = gate(r, x, 2, 1);
    if (late) {
        rest = rnn_binary(r, DEV_BIN_MUL, gate(r, hr, 2, 1), reset);
        g = rnn_binary(r, DEV_BIN_ADD, g, rest);
    } else {
        rest = rnn_binary(r, DEV_BIN_MUL, reset, *h);
        g = rnn_product(r, rest, r->late_r, r->late_rb, g);
    }
    g = apply_gate_act(r, &r->act[1], g);
    rest = rnn_binary(r, DEV_BIN_SUB, *h, g);
    rest = rnn_binary(r, DEV_BIN_MUL, rest, z);
    *h = rnn_binary(r, DEV_BIN_ADD, g, rest);
}

/* Gate k of the sums, with the part of the cell that its peephole shows. */
static uint32_t lstm_gate(struct rnn *r, uint32_t sums, int64_t k, uint32_t cell)
{
    const uint32_t y = gate(r, sums, k, 1);

    if (k == 3 || r->hole[k] == DEV_NONE)
        return y;
    return rnn_binary(r, DEV_BIN_ADD, y, rnn_binary(r, DEV_BIN_MUL, cell, r->hole[k]));
}

/* Nearly every LSTM: what the device has as one operation. */
static bool is_plain_lstm(const struct rnn *r)
{
    return strcasecmp(r->act[0].name, "Sigmoid") == 0 && strcasecmp(r->act[1].name, "Tanh") == 0 &&
           strcasecmp(r->act[2].name, "Tanh") == 0 && r->clip <= 0 && !r->input_forget &&
           r->hole[0] == DEV_NONE;
}

static void plain_lstm_step(struct rnn *r, uint32_t sums, uint32_t *h, uint32_t *cell)
{
    struct dev_op op = ir_op(DEV_OP_LSTM_CELL, r->name, 2, (uint32_t[]){sums, *cell});

    op.out[op.n_out++] = *h = ir_like(r->lo->ir, *cell, r->name, DEV_ROLE_ACT);
    *cell = ir_emit_like(r->lo->ir, &op, *cell);
}

/* i, o, f, c: c' = f c + i g, h' = o tanh(c') */
static void lstm_step(struct rnn *r, uint32_t x, uint32_t *h, uint32_t *cell)
{
    const uint32_t sums = rnn_product(r, *h, r->r, r->rb, x);
    uint32_t i, f, g, o;

    if (is_plain_lstm(r)) {
        plain_lstm_step(r, sums, h, cell);
        return;
    }
    i = apply_gate_act(r, &r->act[0], lstm_gate(r, sums, 0, *cell));
    f = r->input_forget ? linear(r, -1.0f, 1.0f, i)
                        : apply_gate_act(r, &r->act[0], lstm_gate(r, sums, 2, *cell));
    g = apply_gate_act(r, &r->act[1], lstm_gate(r, sums, 3, *cell));
    f = rnn_binary(r, DEV_BIN_MUL, f, *cell);
    g = rnn_binary(r, DEV_BIN_MUL, i, g);
    *cell = rnn_binary(r, DEV_BIN_ADD, f, g);
    o = apply_gate_act(r, &r->act[0], lstm_gate(r, sums, 1, *cell));
    g = apply_gate_act(r, &r->act[2], *cell);
    *h = rnn_binary(r, DEV_BIN_MUL, o, g);
}

/* now: where the mask says so, else before. */
static uint32_t kept(struct rnn *r, uint32_t mask, uint32_t before, uint32_t now)
{
    struct dev_op op = ir_op(DEV_OP_WHERE, r->name, 3, (uint32_t[]){mask, now, before});

    return ir_emit_like(r->lo->ir, &op, now);
}

/* Step t: the states go on. Returns what comes out. zero: [samples, hidden]. */
static uint32_t rnn_step(struct rnn *r, int64_t t, uint32_t zero, uint32_t *h, uint32_t *cell)
{
    const uint32_t axis = r->layout ? 1 : 0, before = *h, cell_before = *cell;
    const int64_t dims[2] = {r->samples, r->gates * r->hidden};
    uint32_t x = lower__cut(r->lo, r->name, r->xw, (struct lower_cut){axis, t, 1, 1}), mask, y;

    x = ir_alias(r->lo->ir, x, 2, dims);
    if (r->gates == 4)
        lstm_step(r, x, h, cell);
    else if (r->gates == 3)
        gru_step(r, x, h);
    else
        *h = apply_gate_act(r, &r->act[0], rnn_product(r, *h, r->r, r->rb, x));
    if (r->masks == DEV_NONE)
        return *h;
    mask = lower__cut(r->lo, r->name, r->masks, (struct lower_cut){0, t, 1, 1});
    mask = ir_alias(r->lo->ir, mask, 2, (int64_t[]){r->samples, 1});
    y = kept(r, mask, zero, *h);
    *h = kept(r, mask, before, *h);
    if (r->gates == 4)
        *cell = kept(r, mask, cell_before, *cell);
    return y;
}

/* ------------------------------------------------------------------ one direction */

static uint32_t rnn_rows(struct rnn *r, uint32_t x, int64_t first, int64_t n)
{
    return x == DEV_NONE ? x : lower__rows(r->lo, r->name, x, first, n);
}

/* Of direction d: the part of a parameter, without that axis. */
static uint32_t direction_part(struct rnn *r, uint32_t i, int64_t d)
{
    const struct dev_tensor t = *ir_t(r->lo->ir, r->in[i]);
    const uint32_t x = rnn_rows(r, r->in[i], d, 1);

    return x == DEV_NONE ? x : ir_alias(r->lo->ir, x, t.rank - 1, &t.dims[1]);
}

/* The first state of direction d, [samples, hidden]. */
static uint32_t first_state(struct rnn *r, uint32_t i, int64_t d, uint32_t zero)
{
    const int64_t dims[2] = {r->samples, r->hidden};
    struct dev_op op;
    uint32_t x;
    int64_t n;

    if (r->in[i] == DEV_NONE)
        return zero;
    x = lower__cut(r->lo, r->name, r->in[i], (struct lower_cut){r->layout ? 1 : 0, d, 1, 1});
    n = ir_elements(r->lo->ir, x) / r->hidden;
    x = ir_alias(r->lo->ir, x, 2, (int64_t[]){n, r->hidden});
    if (n == r->samples)
        return x;
    op = ir_op(DEV_OP_EXPAND, r->name, 1, &x);
    return ir_emit(r->lo->ir, &op, SH_F32, 2, dims);
}

/* X W^T + its bias for all steps: [steps, samples, ..] or, with layout 1, [samples, steps, ..]. */
static void input_product(struct rnn *r, int64_t d)
{
    const int64_t n_rows = r->gates * r->hidden, n = r->steps * r->samples;
    const int64_t dims[3] = {r->layout ? r->samples : r->steps, r->layout ? r->steps : r->samples,
                             n_rows};
    const uint32_t w = direction_part(r, W, d), b = direction_part(r, BIAS, d),
                   wb = rnn_rows(r, b, 0, n_rows);
    uint32_t x;

    r->rb = rnn_rows(r, b, n_rows, n_rows);
    x = ir_alias(r->lo->ir, r->in[X], 2, (int64_t[]){n, r->width});
    r->xw = ir_alias(r->lo->ir, rnn_product(r, x, w, wb, DEV_NONE), 3, dims);
}

/* What every step reads, cut into the parts that it wants. */
static void step_parts(struct rnn *r, int64_t d)
{
    const int64_t h = r->hidden;
    uint32_t holes;

    r->r = direction_part(r, R, d);
    holes = direction_part(r, PEEPHOLE, d);
    for (int k = 0; k < 3; k++)
        r->hole[k] = rnn_rows(r, holes, k * h, h);
    if (r->gates != 3 || r->linear_before_reset)
        return;
    r->late_r = rnn_rows(r, r->r, 2 * h, h);
    r->r = rnn_rows(r, r->r, 0, 2 * h);
    r->late_rb = rnn_rows(r, r->rb, 2 * h, h);
    r->rb = rnn_rows(r, r->rb, 0, 2 * h);
}

/* The results: [steps, 1, samples, hidden] or [samples, steps, 1, hidden] */
static uint32_t direction(struct rnn *r, int64_t d, bool backward, uint32_t *h, uint32_t *cell)
{
    const uint32_t axis = r->layout ? 1 : 0;
    const int64_t l = r->steps, n = r->samples, w = r->hidden;
    const int64_t row[3] = {r->layout ? n : 1, r->layout ? 1 : n, w};
    const int64_t all[2][4] = {{l, 1, n, w}, {n, l, 1, w}};
    struct dev_op fill = ir_op(DEV_OP_FILL, r->name, 0, NULL);
    uint32_t *steps = ir_alloc(r->lo->ir, l, sizeof(*steps)), zero, y;

    if (!steps)
        return DEV_NONE;
    r->act = &r->acts[d * (r->gates == 4 ? 3 : r->gates == 3 ? 2 : 1)];
    zero = ir_emit(r->lo->ir, &fill, SH_F32, 2, (int64_t[]){n, w});
    input_product(r, d);
    step_parts(r, d);
    *h = first_state(r, HIDDEN, d, zero);
    *cell = first_state(r, CELL, d, zero);
    for (int64_t i = 0; i < l; i++) {
        const int64_t t = backward ? l - 1 - i : i;

        steps[t] = ir_alias(r->lo->ir, rnn_step(r, t, zero, h, cell), 3, row);
    }
    y = ir_joined(r->lo->ir, r->name, steps, (uint32_t)l, axis);
    free(steps);
    return ir_alias(r->lo->ir, y, 4, all[r->layout]);
}

/* ------------------------------------------------------------------ the node */

/* masks: is step t before the end of the sample? */
static void make_masks(struct rnn *r)
{
    const struct graph_value *owner = lower__out(r->lo, r->n);
    struct lower_table table = {.dtype = SH_I32, .n = r->steps, .by_size = owner->by_size};
    int32_t *data;
    struct dev_op op;

    r->masks = DEV_NONE;
    if (r->in[LENS] == DEV_NONE)
        return;
    data = ir_alloc(r->lo->ir, r->steps, sizeof(*data));
    for (int64_t i = 0; data && i < r->steps; i++)
        data[i] = (int32_t)i;
    table.name = ir_name(r->lo->ir, "%s#steps", owner->name);
    op = ir_op(DEV_OP_BINARY, r->name, 1, (uint32_t[]){lower__table(r->lo, &table, data)});
    op.in[0] = ir_alias(r->lo->ir, op.in[0], 3, (int64_t[]){r->steps, 1, 1});
    op.in[op.n_in++] = ir_alias(r->lo->ir, r->in[LENS], 3, (int64_t[]){1, r->samples, 1});
    op.u.binary.kind = DEV_BIN_LESS;
    r->masks = ir_emit(r->lo->ir, &op, SH_BOOL, 3, (int64_t[]){r->steps, r->samples, 1});
}

/* Output k of the node, from one tensor for each direction, which stand side by side along axis. */
static void give_output(struct rnn *r, uint32_t k, uint32_t *t, uint32_t axis)
{
    if (k < r->n->n_out && r->n->out[k] != GRAPH_NONE)
        lower__gives(r->lo, r->n, k,
                     ir_joined(r->lo->ir, r->name, t, (uint32_t)r->directions, axis));
}

void lower__rnn(struct lower *lo, const struct graph_node *n)
{
    struct rnn r = {.lo = lo, .n = n, .name = n->name};
    const bool reverse = strcmp(lower__str(lo, n, "direction", ""), "reverse") == 0;
    uint32_t y[2], h[2], cell[2];

    read_rnn(&r);
    make_masks(&r);
    for (int64_t d = 0; d < r.directions && lo->ir->err.rc == SH_OK; d++) {
        const int64_t dims[3] = {r.layout ? r.samples : 1, r.layout ? 1 : r.samples, r.hidden};

        y[d] = direction(&r, d, d == 1 || reverse, &h[d], &cell[d]);
        h[d] = ir_alias(lo->ir, h[d], 3, dims);
        cell[d] = ir_alias(lo->ir, cell[d], 3, dims);
    }
    if (lo->ir->err.rc)
        return;
    give_output(&r, 0, y, r.layout ? 2 : 1);
    give_output(&r, 1, h, r.layout ? 1 : 0);
    give_output(&r, 2, cell, r.layout ? 1 : 0);
}
