/* shape_rnn.c - RNN, GRU and LSTM: shapes, and everything in attributes. */
#include "common/mem.h"
#include "runtime/model/shape_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_STEPS 4096 /* of both directions: each becomes operations of its own */

enum { X, W, R, BIAS, LENS, HIDDEN, CELL, PEEPHOLE };

struct rnn {
    int64_t steps, samples, width, hidden, directions, gates, layout;
};

static int want_shape(struct shape_ctx *c, uint32_t i, int rank, const int64_t *dims)
{
    char text[GRAPH_SHAPE_TEXT], want[GRAPH_SHAPE_TEXT];
    struct graph_value w = {.rank = rank};
    const struct graph_value *v;

    if (!shape__has(c, i))
        return c->err->rc;
    v = shape__in(c, i);
    w.dtype = v->dtype;
    memcpy(w.dims, dims, sizeof(dims[0]) * (size_t)rank);
    if (v->rank == rank && memcmp(v->dims, dims, sizeof(dims[0]) * (size_t)rank) == 0)
        return c->err->rc;
    return shape__fail(c, SH_E_INVALID, "input %u is %s, it must be %s", i,
                       graph__shape_text(v, text, sizeof(text)),
                       graph__shape_text(&w, want, sizeof(want)));
}

static int check_rnn_inputs(struct shape_ctx *c, const struct rnn *r)
{
    const int64_t d = r->directions, h = r->hidden, rows = r->gates * h;
    const int64_t state[3] = {r->layout ? r->samples : d, r->layout ? d : r->samples, h};

    want_shape(c, W, 3, (int64_t[]){d, rows, r->width});
    want_shape(c, R, 3, (int64_t[]){d, rows, h});
    want_shape(c, BIAS, 2, (int64_t[]){d, 2 * rows});
    want_shape(c, LENS, 1, (int64_t[]){r->samples});
    want_shape(c, HIDDEN, 3, state);
    want_shape(c, CELL, 3, state);
    want_shape(c, PEEPHOLE, 2, (int64_t[]){d, 3 * h});
    if (shape__has(c, LENS) && shape__in(c, LENS)->dtype != SH_I32)
        shape__fail(c, SH_E_INVALID, "input 4 must be INT32");
    for (uint32_t i = W; i < c->n.n_in; i++)
        if (i != LENS && shape__has(c, i))
            shape__want_same_type(c, X, i);
    return c->err->rc;
}

/* The names of the activations for each direction, the defaults where the file has none. */
static int activations(struct shape_ctx *c, const struct rnn *r)
{
    const char *def = r->gates == 4 ? "Sigmoid,Tanh,Tanh" : r->gates == 3 ? "Sigmoid,Tanh" : "Tanh";
    char both[64];

    snprintf(both, sizeof(both), "%s,%s", def, def);
    if (shape__str(c, "activations", "")[0])
        return c->err->rc;
    return shape__set_str(c, "activations", r->directions == 2 ? both : def);
}

static int check_rnn_words(struct shape_ctx *c, struct rnn *r)
{
    const char *how = shape__own_str(c, "direction", "forward");
    int64_t v;
    double clip;

    if (strcmp(how, "forward") != 0 && strcmp(how, "reverse") != 0 &&
        strcmp(how, "bidirectional") != 0)
        shape__fail(c, SH_E_INVALID, "direction %.32s is not known", how);
    r->directions = strcmp(how, "bidirectional") == 0 ? 2 : 1;
    r->layout = shape__int(c, "layout", 0);
    if (r->layout != 0 && r->layout != 1)
        shape__fail(c, SH_E_INVALID, "layout is %lld", (long long)r->layout);
    v = shape__int(c, "hidden_size", 0);
    if (v != 0 && v != r->hidden)
        shape__fail(c, SH_E_INVALID, "hidden_size is %lld, the weights have %lld", (long long)v,
                    (long long)r->hidden);
    clip = shape__float(c, "clip", 0.0);
    if (!(clip >= 0 && isfinite(clip)))
        shape__fail(c, SH_E_INVALID, "clip is %g", clip);
    return activations(c, r);
}

static bool is_zero_value(const struct graph_value *v)
{
    const char *p = v->data;

    for (size_t i = 0; i < v->bytes; i++)
        if (p[i])
            return false;
    return true;
}

/* Exporters expand a first state to the batch. Left so, the weights of a model would depend on it:
 * zeros go, and what is the same for every sample becomes one. */
static int shrink_state(struct shape_ctx *c, const struct rnn *r, uint32_t i)
{
    const struct graph_value *v = shape__has(c, i) ? shape__in(c, i) : NULL;
    const int64_t n = r->samples, d = r->directions;
    const size_t row = (size_t)r->hidden * (v ? sh_dtype_bytes(v->dtype) : 0);
    const int64_t dims[3] = {r->layout ? 1 : d, r->layout ? d : 1, r->hidden};
    char *data;

    if (!v || !v->data || v->is_param)
        return c->err->rc;
    if (is_zero_value(v)) {
        c->n.in[i] = GRAPH_NONE;
        return c->err->rc;
    }
    data = malloc((size_t)d * row);
    if (!data)
        return SH_FAIL(c->err, SH_E_NOMEM, "could not allocate a constant");
    for (int64_t k = 0; k < n * d; k++) {
        const int64_t at = r->layout ? k % d : k / n;
        const char *from = (const char *)v->data + (size_t)k * row;

        if ((r->layout ? k / d : k % n) == 0)
            memcpy(data + (size_t)at * row, from, row);
        else if (memcmp(data + (size_t)at * row, from, row) != 0) {
            free(data);
            return c->err->rc; /* samples differ */
        }
    }
    if (shape__temp(c, "state", v->dtype, 3, dims, &c->n.in[i])) {
        free(data);
        return c->err->rc;
    }
    c->g->values[c->n.in[i]].data = data;
    c->g->values[c->n.in[i]].bytes = (size_t)d * row;
    return c->err->rc;
}

/* Lengths that are all of the sequence say nothing. */
static void drop_full_lengths(struct shape_ctx *c, const struct rnn *r)
{
    const struct graph_value *v = shape__has(c, LENS) ? shape__in(c, LENS) : NULL;
    bool all = v && v->data;

    for (int64_t i = 0; all && i < r->samples; i++)
        all = ((const int32_t *)v->data)[i] == r->steps;
    if (all)
        c->n.in[LENS] = GRAPH_NONE;
}

static int outputs(struct shape_ctx *c, const struct rnn *r)
{
    const enum sh_dtype t = shape__in(c, X)->dtype;
    const int64_t l = r->steps, n = r->samples, d = r->directions, h = r->hidden;
    const int64_t all[2][4] = {{l, d, n, h}, {n, l, d, h}}, last[2][3] = {{d, n, h}, {n, d, h}};

    shape__out(c, 0, t, 4, all[r->layout]);
    for (uint32_t k = 1; k < c->n.n_out; k++)
        shape__out(c, k, t, 3, last[r->layout]);
    return c->err->rc;
}

static int infer_rnn(struct shape_ctx *c, int64_t gates)
{
    const struct graph_value *x = shape__in(c, X), *rec = shape__in(c, R);
    struct rnn r = {.gates = gates};

    shape__want_float(c, X);
    if (x->rank != 3 || rec->rank != 3)
        return shape__fail(c, SH_E_INVALID, "its input and weights must have 3 axes");
    r.hidden = rec->dims[2];
    if (check_rnn_words(c, &r))
        return c->err->rc;
    r.steps = x->dims[r.layout ? 1 : 0];
    r.samples = x->dims[r.layout ? 0 : 1];
    r.width = x->dims[2];
    check_rnn_inputs(c, &r);
    if (r.steps * r.directions > MAX_STEPS)
        shape__fail(c, SH_E_UNSUPPORTED, WHY_STEPS, (long long)(r.steps * r.directions), MAX_STEPS);
    if (c->n.n_out > (gates == 4 ? 3u : 2u))
        shape__fail(c, SH_E_INVALID, "has too many outputs");
    if (c->err->rc || shrink_state(c, &r, HIDDEN) || shrink_state(c, &r, CELL))
        return c->err->rc;
    drop_full_lengths(c, &r);
    return outputs(c, &r);
}

int shape__infer_lstm(struct shape_ctx *c)
{
    return infer_rnn(c, 4);
}

int shape__infer_gru(struct shape_ctx *c)
{
    return infer_rnn(c, 3);
}

int shape__infer_rnn(struct shape_ctx *c)
{
    return infer_rnn(c, 1);
}
