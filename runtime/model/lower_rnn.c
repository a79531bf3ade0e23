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
    struct sh_err *err;
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

static int read_acts(struct rnn *r)
{
    const struct graph_attr *alphas = graph__attr(r->n, "activation_alpha");
    const struct graph_attr *betas = graph__attr(r->n, "activation_beta");
    const size_t want = (size_t)r->directions * (r->gates == 4 ? 3u : r->gates == 3 ? 2u : 1u);
    size_t n = 0, a = 0, b = 0;
    const char *s;
    int rc = graph_str(r->n, "activations", "", &s, r->err);

    for (; rc == SH_OK && *s && n < want; n++) {
        const size_t len = strcspn(s, ",");
        struct act *act = &r->acts[n];
        int k;

        snprintf(act->name, sizeof(act->name), "%.*s", (int)len, s);
        s += len + (s[len] == ',');
        k = find_act(act->name);
        if (k < 0)
            return lower__unsupported(r->n, r->err,
                                      "an activation is none of Relu, Tanh, Sigmoid, Affine, "
                                      "LeakyRelu, HardSigmoid, ScaledTanh");
        act->alpha = ACTS[k].alpha;
        act->beta = ACTS[k].beta;
        if (uses_alpha(act->name))
            next_number(alphas, &a, &act->alpha);
        if (uses_beta(act->name))
            next_number(betas, &b, &act->beta);
    }
    if (!rc && (n != want || *s))
        rc = SH_FAIL(r->err, SH_E_INVALID, "%s \"%s\": it needs %zu activations", r->n->op,
                     r->n->name, want);
    return rc;
}

static int read_rnn(struct rnn *r)
{
    const struct graph_value *x = lower__in(r->lo, r->n, X), *rec = lower__in(r->lo, r->n, R);
    int64_t lbr, input_forget;
    int rc = graph_int(r->n, "layout", 0, &r->layout, r->err);

    if (!rc)
        rc = graph_int(r->n, "linear_before_reset", 0, &lbr, r->err);
    if (!rc)
        rc = graph_int(r->n, "input_forget", 0, &input_forget, r->err);
    if (!rc)
        rc = lower__float(r->n, "clip", &r->clip, r->err);
    if (rc)
        return rc;
    r->linear_before_reset = lbr != 0;
    r->input_forget = input_forget != 0;
    r->steps = x->dims[r->layout ? 1 : 0];
    r->samples = x->dims[r->layout ? 0 : 1];
    r->width = x->dims[2];
    r->hidden = rec->dims[2];
    r->directions = rec->dims[0];
    r->gates = rec->dims[1] / r->hidden;
    rc = read_acts(r);
    for (uint32_t i = 0; i < N_IN; i++)
        r->in[i] = DEV_NONE;
    for (uint32_t i = 0; i < r->n->n_in && rc == SH_OK; i++)
        rc = lower__use(r->lo, r->n, i, &r->in[i], r->err);
    return rc;
}

/* ------------------------------------------------------------------ pieces */

static int binary(struct rnn *r, enum dev_bin k, uint32_t a, uint32_t b, uint32_t *y)
{
    return ir_binary(r->lo->ir, k, r->name, a, b, a, y, r->err);
}

/* Columns [g, g + n) of gates of t [samples, .. hidden]. */
static int gate(struct rnn *r, uint32_t t, int64_t g, int64_t n, uint32_t *y)
{
    return lower__cut(r->lo, r->name, t, (struct lower_cut){1, g * r->hidden, 1, n * r->hidden}, y,
                      r->err);
}

/* f of clipped x */
static int apply(struct rnn *r, const struct act *f, uint32_t x, uint32_t *y)
{
    struct ir *ir = r->lo->ir;
    const bool scaled = strcasecmp(f->name, "ScaledTanh") == 0;
    int rc = SH_OK;

    if (r->clip > 0)
        rc = ir_act(ir, DEV_ACT_CLIP, -r->clip, r->clip, r->name, x, &x, r->err);
    if (!rc && scaled)
        rc = ir_act(ir, DEV_ACT_LINEAR, f->beta, 0.0f, r->name, x, &x, r->err);
    if (!rc)
        rc = ir_act(ir, ACTS[find_act(f->name)].act, scaled ? 0.0f : f->alpha,
                    scaled ? 0.0f : f->beta, r->name, x, y, r->err);
    if (!rc && scaled)
        rc = ir_act(ir, DEV_ACT_LINEAR, f->alpha, 0.0f, r->name, *y, y, r->err);
    return rc;
}

/* h op(w) + bias + residual */
static int product(struct rnn *r, uint32_t h, uint32_t w, uint32_t bias, uint32_t residual,
                   uint32_t *y)
{
    struct dev_op op = ir_op(DEV_OP_MATMUL, r->name, 4, (uint32_t[]){h, w, bias, residual});
    const int64_t dims[2] = {ir_t(r->lo->ir, h)->dims[0], ir_t(r->lo->ir, w)->dims[0]};

    op.u.matmul.trans_b = true;
    op.u.matmul.alpha = 1.0f;
    return ir_emit(r->lo->ir, &op, SH_F32, 2, dims, y, r->err);
}

/* ------------------------------------------------------------------ one step */

/* z, r, h: h' = (1 - z) g + z h */
static int gru_step(struct rnn *r, uint32_t x, uint32_t *h)
{
    const bool late = r->linear_before_reset;
    uint32_t hr = DEV_NONE, zr, z, reset, g, rest;
    int rc;

    if (late) { /* the whole product first, then the reset */
        rc = product(r, *h, r->r, r->rb, DEV_NONE, &hr);
        if (!rc)
            rc = gate(r, x, 0, 2, &zr);
        if (!rc)
            rc = gate(r, hr, 0, 2, &rest);
        if (!rc)
            rc = binary(r, DEV_BIN_ADD, zr, rest, &zr);
    } else {
        rc = gate(r, x, 0, 2, &zr);
        if (!rc)
            rc = product(r, *h, r->r, r->rb, zr, &zr);
    }
    if (!rc)
        rc = apply(r, &r->act[0], zr, &zr);
    if (!rc)
        rc = gate(r, zr, 0, 1, &z);
    if (!rc)
        rc = gate(r, zr, 1, 1, &reset);
    if (!rc)
        rc = gate(r, x, 2, 1, &g);
    if (!rc && late) {
        rc = gate(r, hr, 2, 1, &rest);
        if (!rc)
            rc = binary(r, DEV_BIN_MUL, rest, reset, &rest);
        if (!rc)
            rc = binary(r, DEV_BIN_ADD, g, rest, &g);
    } else if (!rc) {
        rc = binary(r, DEV_BIN_MUL, reset, *h, &rest);
        if (!rc)
            rc = product(r, rest, r->late_r, r->late_rb, g, &g);
    }
    if (!rc)
        rc = apply(r, &r->act[1], g, &g);
    if (!rc)
        rc = binary(r, DEV_BIN_SUB, *h, g, &rest);
    if (!rc)
        rc = binary(r, DEV_BIN_MUL, rest, z, &rest);
    return rc ? rc : binary(r, DEV_BIN_ADD, g, rest, h);
}

/* Gate k of the sums, with the part of the cell that its peephole shows. */
static int lstm_gate(struct rnn *r, uint32_t sums, int64_t k, uint32_t cell, uint32_t *y)
{
    uint32_t seen;
    int rc = gate(r, sums, k, 1, y);

    if (rc || k == 3 || r->hole[k] == DEV_NONE)
        return rc;
    rc = binary(r, DEV_BIN_MUL, cell, r->hole[k], &seen);
    return rc ? rc : binary(r, DEV_BIN_ADD, *y, seen, y);
}

/* Nearly every LSTM: what the device has as one operation. */
static bool is_plain_lstm(const struct rnn *r)
{
    return strcasecmp(r->act[0].name, "Sigmoid") == 0 && strcasecmp(r->act[1].name, "Tanh") == 0 &&
           strcasecmp(r->act[2].name, "Tanh") == 0 && r->clip <= 0 && !r->input_forget &&
           r->hole[0] == DEV_NONE;
}

static int plain_lstm_step(struct rnn *r, uint32_t sums, uint32_t *h, uint32_t *cell)
{
    struct dev_op op = ir_op(DEV_OP_LSTM_CELL, r->name, 2, (uint32_t[]){sums, *cell});
    uint32_t hidden;
    int rc = ir_like(r->lo->ir, *cell, r->name, DEV_ROLE_ACT, &hidden, r->err);

    if (rc)
        return rc;
    op.out[op.n_out++] = *h = hidden;
    return ir_emit_like(r->lo->ir, &op, *cell, cell, r->err);
}

/* i, o, f, c: c' = f c + i g, h' = o tanh(c') */
static int lstm_step(struct rnn *r, uint32_t x, uint32_t *h, uint32_t *cell)
{
    uint32_t sums, i, f, g, o;
    int rc = product(r, *h, r->r, r->rb, x, &sums);

    if (!rc && is_plain_lstm(r))
        return plain_lstm_step(r, sums, h, cell);
    if (!rc)
        rc = lstm_gate(r, sums, 0, *cell, &i);
    if (!rc)
        rc = apply(r, &r->act[0], i, &i);
    if (!rc && r->input_forget) {
        rc = ir_act(r->lo->ir, DEV_ACT_LINEAR, -1.0f, 1.0f, r->name, i, &f, r->err);
    } else if (!rc) {
        rc = lstm_gate(r, sums, 2, *cell, &f);
        if (!rc)
            rc = apply(r, &r->act[0], f, &f);
    }
    if (!rc)
        rc = lstm_gate(r, sums, 3, *cell, &g);
    if (!rc)
        rc = apply(r, &r->act[1], g, &g);
    if (!rc)
        rc = binary(r, DEV_BIN_MUL, f, *cell, &f);
    if (!rc)
        rc = binary(r, DEV_BIN_MUL, i, g, &g);
    if (!rc)
        rc = binary(r, DEV_BIN_ADD, f, g, cell);
    if (!rc)
        rc = lstm_gate(r, sums, 1, *cell, &o);
    if (!rc)
        rc = apply(r, &r->act[0], o, &o);
    if (!rc)
        rc = apply(r, &r->act[2], *cell, &g);
    return rc ? rc : binary(r, DEV_BIN_MUL, o, g, h);
}

/* now: where the mask says so, else before. */
static int keep(struct rnn *r, uint32_t mask, uint32_t before, uint32_t *now)
{
    struct dev_op op = ir_op(DEV_OP_WHERE, r->name, 3, (uint32_t[]){mask, *now, before});

    return ir_emit_like(r->lo->ir, &op, *now, now, r->err);
}

/* Step t: the states go on, *y is what comes out. zero: [samples, hidden]. */
static int step(struct rnn *r, int64_t t, uint32_t zero, uint32_t *h, uint32_t *cell, uint32_t *y)
{
    const uint32_t axis = r->layout ? 1 : 0, before = *h, cell_before = *cell;
    const int64_t dims[2] = {r->samples, r->gates * r->hidden};
    uint32_t x, mask;
    int rc = lower__cut(r->lo, r->name, r->xw, (struct lower_cut){axis, t, 1, 1}, &x, r->err);

    if (!rc)
        rc = ir_alias(r->lo->ir, x, 2, dims, &x, r->err);
    if (!rc && r->gates == 4)
        rc = lstm_step(r, x, h, cell);
    else if (!rc && r->gates == 3)
        rc = gru_step(r, x, h);
    else if (!rc) {
        rc = product(r, *h, r->r, r->rb, x, &x);
        if (!rc)
            rc = apply(r, &r->act[0], x, h);
    }
    *y = *h;
    if (rc || r->masks == DEV_NONE)
        return rc;
    rc = lower__cut(r->lo, r->name, r->masks, (struct lower_cut){0, t, 1, 1}, &mask, r->err);
    if (!rc)
        rc = ir_alias(r->lo->ir, mask, 2, (int64_t[]){r->samples, 1}, &mask, r->err);
    if (!rc)
        rc = keep(r, mask, zero, y);
    if (!rc)
        rc = keep(r, mask, before, h);
    return rc || r->gates != 4 ? rc : keep(r, mask, cell_before, cell);
}

/* ------------------------------------------------------------------ one direction */

/* Of direction d: the part of a parameter, without that axis. */
static int part_of(struct rnn *r, uint32_t i, int64_t d, uint32_t *out)
{
    struct dev_tensor t;
    int rc;

    *out = r->in[i];
    if (*out == DEV_NONE)
        return SH_OK;
    t = *ir_t(r->lo->ir, *out);
    rc = lower__rows(r->lo, r->name, *out, d, 1, out, r->err);
    return rc ? rc : ir_alias(r->lo->ir, *out, t.rank - 1, &t.dims[1], out, r->err);
}

/* The first state of direction d, [samples, hidden]. */
static int first_state(struct rnn *r, uint32_t i, int64_t d, uint32_t zero, uint32_t *out)
{
    const int64_t dims[2] = {r->samples, r->hidden};
    struct dev_op op;
    int64_t n;
    int rc;

    *out = zero;
    if (r->in[i] == DEV_NONE)
        return SH_OK;
    rc = lower__cut(r->lo, r->name, r->in[i], (struct lower_cut){r->layout ? 1 : 0, d, 1, 1}, out,
                    r->err);
    if (rc)
        return rc;
    n = ir_elements(r->lo->ir, *out) / r->hidden;
    rc = ir_alias(r->lo->ir, *out, 2, (int64_t[]){n, r->hidden}, out, r->err);
    if (rc || n == r->samples)
        return rc;
    op = ir_op(DEV_OP_EXPAND, r->name, 1, out);
    return ir_emit(r->lo->ir, &op, SH_F32, 2, dims, out, r->err);
}

/* X W^T + its bias for all steps: [steps, samples, ..] or, with layout 1, [samples, steps, ..]. */
static int input_product(struct rnn *r, int64_t d)
{
    const int64_t rows = r->gates * r->hidden, n = r->steps * r->samples;
    const int64_t dims[3] = {r->layout ? r->samples : r->steps, r->layout ? r->steps : r->samples,
                             rows};
    uint32_t x, w, b, wb = DEV_NONE;
    int rc = part_of(r, W, d, &w);

    r->rb = DEV_NONE;
    if (!rc)
        rc = part_of(r, BIAS, d, &b);
    if (!rc && b != DEV_NONE) {
        rc = lower__rows(r->lo, r->name, b, 0, rows, &wb, r->err);
        if (!rc)
            rc = lower__rows(r->lo, r->name, b, rows, rows, &r->rb, r->err);
    }
    if (!rc)
        rc = ir_alias(r->lo->ir, r->in[X], 2, (int64_t[]){n, r->width}, &x, r->err);
    if (!rc)
        rc = product(r, x, w, wb, DEV_NONE, &r->xw);
    return rc ? rc : ir_alias(r->lo->ir, r->xw, 3, dims, &r->xw, r->err);
}

/* What every step reads, cut into the parts that it wants. */
static int step_parts(struct rnn *r, int64_t d)
{
    const int64_t h = r->hidden;
    const bool splits = r->gates == 3 && !r->linear_before_reset;
    uint32_t holes;
    int rc = part_of(r, R, d, &r->r);

    if (!rc)
        rc = part_of(r, PEEPHOLE, d, &holes);
    for (int k = 0; k < 3 && rc == SH_OK; k++) {
        r->hole[k] = DEV_NONE;
        if (holes != DEV_NONE)
            rc = lower__rows(r->lo, r->name, holes, k * h, h, &r->hole[k], r->err);
    }
    if (rc || !splits)
        return rc;
    r->late_rb = DEV_NONE;
    rc = lower__rows(r->lo, r->name, r->r, 2 * h, h, &r->late_r, r->err);
    if (!rc)
        rc = lower__rows(r->lo, r->name, r->r, 0, 2 * h, &r->r, r->err);
    if (rc || r->rb == DEV_NONE)
        return rc;
    rc = lower__rows(r->lo, r->name, r->rb, 2 * h, h, &r->late_rb, r->err);
    return rc ? rc : lower__rows(r->lo, r->name, r->rb, 0, 2 * h, &r->rb, r->err);
}

/* y: [steps, 1, samples, hidden] or [samples, steps, 1, hidden] */
static int direction(struct rnn *r, int64_t d, bool backward, uint32_t *y, uint32_t *h,
                     uint32_t *cell)
{
    const uint32_t axis = r->layout ? 1 : 0;
    const int64_t l = r->steps, n = r->samples, w = r->hidden;
    const int64_t row[3] = {r->layout ? n : 1, r->layout ? 1 : n, w};
    const int64_t all[2][4] = {{l, 1, n, w}, {n, l, 1, w}};
    struct dev_op fill = ir_op(DEV_OP_FILL, r->name, 0, NULL);
    uint32_t *steps = malloc((size_t)l * sizeof(*steps)), zero;
    int rc;

    if (!steps)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate %lld steps", (long long)l);
    r->act = &r->acts[d * (r->gates == 4 ? 3 : r->gates == 3 ? 2 : 1)];
    rc = ir_emit(r->lo->ir, &fill, SH_F32, 2, (int64_t[]){n, w}, &zero, r->err);
    if (!rc)
        rc = input_product(r, d);
    if (!rc)
        rc = step_parts(r, d);
    if (!rc)
        rc = first_state(r, HIDDEN, d, zero, h);
    if (!rc)
        rc = first_state(r, CELL, d, zero, cell);
    for (int64_t i = 0; i < l && rc == SH_OK; i++) {
        const int64_t t = backward ? l - 1 - i : i;

        rc = step(r, t, zero, h, cell, &steps[t]);
        if (!rc)
            rc = ir_alias(r->lo->ir, steps[t], 3, row, &steps[t], r->err);
    }
    if (!rc)
        rc = lower__joined(r->lo, r->name, steps, (uint32_t)l, axis, y, r->err);
    if (!rc)
        rc = ir_alias(r->lo->ir, *y, 4, all[r->layout], y, r->err);
    free(steps);
    return rc;
}

/* ------------------------------------------------------------------ the node */

/* masks: is step t before the end of the sample? */
static int make_masks(struct rnn *r)
{
    struct lower_table table = {
        .dtype = SH_I32, .n = r->steps, .by_size = lower__out(r->lo, r->n)->by_size};
    int32_t *data;
    uint32_t steps, lens;
    const char *name;
    struct dev_op op;
    int rc;

    r->masks = DEV_NONE;
    if (r->in[LENS] == DEV_NONE)
        return SH_OK;
    rc = ir_name(r->lo->ir, &name, r->err, "%s#steps", lower__out(r->lo, r->n)->name);
    if (rc)
        return rc;
    data = malloc((size_t)r->steps * sizeof(*data));
    if (!data)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a constant");
    for (int64_t i = 0; i < r->steps; i++)
        data[i] = (int32_t)i;
    table.name = name;
    rc = lower__table(r->lo, &table, data, &steps, r->err);
    if (!rc)
        rc = ir_alias(r->lo->ir, steps, 3, (int64_t[]){r->steps, 1, 1}, &steps, r->err);
    if (!rc)
        rc = ir_alias(r->lo->ir, r->in[LENS], 3, (int64_t[]){1, r->samples, 1}, &lens, r->err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_BINARY, r->name, 2, (uint32_t[]){steps, lens});
    op.u.binary.kind = DEV_BIN_LESS;
    return ir_emit(r->lo->ir, &op, SH_BOOL, 3, (int64_t[]){r->steps, r->samples, 1}, &r->masks,
                   r->err);
}

/* Output k of the node, from one tensor for each direction, which stand side by side along axis. */
static int give(struct rnn *r, uint32_t k, const uint32_t *t, int64_t axis)
{
    const struct graph_value *v;
    uint32_t y;
    int rc;

    if (k >= r->n->n_out || r->n->out[k] == GRAPH_NONE)
        return SH_OK;
    v = &r->lo->g->values[r->n->out[k]];
    rc = lower__joined(r->lo, r->name, t, (uint32_t)r->directions, axis, &y, r->err);
    return rc ? rc
              : ir_alias(r->lo->ir, y, (uint32_t)v->rank, v->dims, &r->lo->tensor_of[r->n->out[k]],
                         r->err);
}

int lower__rnn(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct rnn r = {.lo = lo, .n = n, .name = n->name, .err = err};
    uint32_t y[2], h[2], cell[2];
    const char *how;
    int rc = graph_str(n, "direction", "", &how, err);

    if (!rc)
        rc = read_rnn(&r);
    if (!rc)
        rc = make_masks(&r);
    for (int64_t d = 0; d < r.directions && rc == SH_OK; d++) {
        const int64_t dims[3] = {r.layout ? r.samples : 1, r.layout ? 1 : r.samples, r.hidden};

        rc = direction(&r, d, d == 1 || strcmp(how, "reverse") == 0, &y[d], &h[d], &cell[d]);
        if (!rc)
            rc = ir_alias(lo->ir, h[d], 3, dims, &h[d], err);
        if (!rc)
            rc = ir_alias(lo->ir, cell[d], 3, dims, &cell[d], err);
    }
    if (!rc)
        rc = give(&r, 0, y, r.layout ? 2 : 1);
    if (!rc)
        rc = give(&r, 1, h, r.layout ? 1 : 0);
    return rc ? rc : give(&r, 2, cell, r.layout ? 1 : 0);
}
