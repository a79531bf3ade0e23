/* shape_loop.c - Loop, Scan and SequenceMap: see shape_run.h.
 *
 * DESIGN. A program is a list of operations that is fixed before it runs, so a body is repeated in
 * it as often as it runs. That number follows from constants and sizes: the trip count, a condition
 * computed from constants, the axis of a Scan. If only the condition of a Loop depends on data, all
 * trips of its trip count are there, and a trip's results are used only while the condition holds.
 *
 * Limits: the number of nodes of bodies, nested ones counted as often as they run, and the bytes of
 * constants that bodies use.
 */
#include "common/mem.h"
#include "runtime/model/loop_form.h"
#include "runtime/model/shape_run.h"

#include <stdlib.h>

#define MAX_STEPS 65536u             /* nodes of bodies */
#define TRIP_STEPS 4u                /* what a trip takes beside its nodes, an empty one too */
#define MAX_FOLDED ((size_t)1 << 30) /* bytes */
#define MAX_DEPTH 32u

/* ---------------------------------------------------------------- bodies */

int run__find_bodies(struct run *r, struct sh_err *err)
{
    const struct graph *g = r->from;
    int64_t k;

    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (!graph_int(&g->nodes[i], GRAPH_LOOP, 0, &k, NULL) && k > 0 && k <= g->n_nodes)
            r->n_bodies = SH_MAX(r->n_bodies, (uint32_t)k + 1);
    if (r->n_bodies == 0)
        return SH_OK;
    r->body_first = malloc(r->n_bodies * sizeof(*r->body_first));
    r->body_next = malloc(g->n_nodes * sizeof(*r->body_next));
    if (!r->body_first || !r->body_next)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the bodies of loops");
    for (uint32_t i = 0; i < r->n_bodies; i++)
        r->body_first[i] = GRAPH_NONE;
    for (uint32_t i = g->n_nodes; i-- > 0;) {
        if (graph_int(&g->nodes[i], GRAPH_LOOP, 0, &k, NULL) || k < 1 || k > g->n_nodes)
            continue;
        r->body_next[i] = r->body_first[k];
        r->body_first[k] = i;
    }
    return SH_OK;
}

/* A node with a body, at work. */
struct loop {
    struct run *r;
    const struct graph_node *n, *body; /* body: what gives its inputs */
    struct shape_ctx *c;
    uint32_t id, given, n_results; /* inputs of its own; results of the body */
    uint32_t *state;               /* OWNED: carried values */
    uint32_t **rows;               /* OWNED: [n_rows]: what is to be stacked, for each output */
    uint32_t n_state, n_rows, n_trips;
    size_t cap_trips;
    bool by_size;
};

static uint32_t loop_result(const struct loop *l, uint32_t i)
{
    return l->r->map[l->n->in[l->given + i]];
}

static int open_loop(struct loop *l, struct run *r, const struct graph_node *n, struct shape_ctx *c)
{
    int64_t id, given;

    *l = (struct loop){.r = r, .n = n, .c = c};
    graph_int(n, GRAPH_BODY, 0, &id, c->err);
    graph_int(n, GRAPH_GIVEN, -1, &given, c->err);
    if (id < 1 || id >= r->n_bodies || given < 0 || given > n->n_in)
        return shape__fail(c, SH_E_INVALID, "has no body");
    l->id = (uint32_t)id;
    l->given = (uint32_t)given;
    l->n_results = n->n_in - l->given;
    for (uint32_t i = r->body_first[id]; i != GRAPH_NONE && !l->body; i = r->body_next[i])
        if (strcmp(r->from->nodes[i].op, "Body") == 0)
            l->body = &r->from->nodes[i];
    if (!l->body)
        return shape__fail(c, SH_E_INVALID, "has no body");
    for (uint32_t i = 0; i < l->given; i++)
        if (shape__has(c, i) && !run__is_sequence(c->n.in[i]))
            l->by_size |= shape__in(c, i)->by_size;
    for (uint32_t i = l->given; i < n->n_in; i++)
        if (n->in[i] == GRAPH_NONE)
            return shape__fail(c, SH_E_INVALID, "lacks a result of its body");
    return c->err->rc;
}

static int make_loop_room(struct loop *l, uint32_t n_state, uint32_t n_rows)
{
    l->n_state = n_state;
    l->n_rows = n_rows;
    l->state = calloc((size_t)n_state + 1, sizeof(*l->state));
    l->rows = calloc((size_t)n_rows + 1, sizeof(*l->rows));
    if (!l->state || !l->rows)
        SH_FAIL(l->c->err, SH_E_NOMEM, "could not allocate a loop");
    return l->c->err->rc;
}

static void close_loop(struct loop *l)
{
    for (uint32_t j = 0; l->rows && j < l->n_rows; j++)
        free(l->rows[j]);
    free(l->rows);
    free(l->state);
}

/* Bytes of constants that the last node was computed from, and gave. */
static void count_folded(struct run *r, const struct graph_node *n, uint32_t before)
{
    const struct graph *g = r->c.g;
    bool folds = false;

    for (uint32_t v = before; v < g->n_values; v++)
        if (g->values[v].data && !g->values[v].data_borrowed) {
            r->folded += g->values[v].bytes;
            folds = true;
        }
    for (uint32_t i = 0; folds && i < n->n_in; i++) {
        const uint32_t v = n->in[i] == GRAPH_NONE ? GRAPH_NONE : r->map[n->in[i]];

        if (v != GRAPH_NONE && !run__is_sequence(v) && g->values[v].data)
            r->folded += g->values[v].bytes;
    }
}

/* The body once; its inputs are in the map. */
static int run_body(struct loop *l)
{
    struct run *r = l->r;
    struct sh_err *err = l->c->err;

    if (err->rc)
        return err->rc;
    if (r->depth >= MAX_DEPTH)
        return shape__fail(l->c, SH_E_INVALID, "loops are more than %u levels deep", MAX_DEPTH);
    r->depth++;
    r->n_steps += TRIP_STEPS;
    for (uint32_t i = r->body_first[l->id]; i != GRAPH_NONE && err->rc == SH_OK;
         i = r->body_next[i]) {
        const struct graph_node *n = &r->from->nodes[i];
        const uint32_t before = r->c.g->n_values;

        if (n == l->body)
            continue;
        if (++r->n_steps > MAX_STEPS)
            shape__fail(l->c, SH_E_UNSUPPORTED, WHY_LOOP_LONG, MAX_STEPS);
        else if (r->folded > MAX_FOLDED)
            shape__fail(l->c, SH_E_UNSUPPORTED, WHY_LOOP_FOLDS, MAX_FOLDED >> 20);
        else if (run__step(r, i) == SH_OK)
            count_folded(r, n, before);
    }
    r->depth--;
    for (uint32_t i = 0; i < l->n_results; i++)
        if (loop_result(l, i) == GRAPH_NONE)
            shape__fail(l->c, SH_E_UNSUPPORTED, WHY_NO_RESULT);
    if (r->n_steps > MAX_STEPS)
        shape__fail(l->c, SH_E_UNSUPPORTED, WHY_LOOP_LONG, MAX_STEPS);
    return err->rc;
}

static void set_input(struct loop *l, uint32_t i, uint32_t v)
{
    if (l->body->out[i] != GRAPH_NONE)
        l->r->map[l->body->out[i]] = v;
}

/* Keeps results [from, from + n_rows) of this trip. */
static int keep_scan_rows(struct loop *l, uint32_t from)
{
    size_t cap = l->cap_trips;

    for (uint32_t j = 0; j < l->n_rows && l->c->err->rc == SH_OK; j++) {
        cap = l->cap_trips; /* all rows have as many */
        if (sh_grow(&l->rows[j], &cap, (size_t)l->n_trips + 1, sizeof(*l->rows[j]), SIZE_MAX,
                    "the rows of a loop", l->c->err))
            break;
        l->rows[j][l->n_trips] = loop_result(l, from + j);
        if (run__is_sequence(l->rows[j][l->n_trips]) && strcmp(l->n->op, "SequenceMap") != 0)
            shape__fail(l->c, SH_E_INVALID, "an output is a sequence of sequences");
    }
    l->cap_trips = cap;
    l->n_trips++;
    return l->c->err->rc;
}

/* Stacks values along a new first axis. */
static uint32_t stack_rows(struct shape_ctx *c, const uint32_t *parts, uint32_t n)
{
    const struct sh_err *err = c->err;
    uint32_t *of = err->rc ? NULL : calloc((size_t)n + 1, sizeof(*of)), v = GRAPH_NONE;
    const int64_t first = 0;

    if (!of)
        SH_FAIL(c->err, SH_E_NOMEM, "could not allocate the rows of a loop");
    for (uint32_t i = 0; i < n && err->rc == SH_OK; i++)
        of[i] = rw2(c, "Unsqueeze", parts[i], rw_list(c, &first, 1));
    if (err->rc == SH_OK)
        v = rw_concat(c, of, n, 0);
    free(of);
    return v;
}

/* As stack_rows() of no rows that are like `row`. */
static uint32_t no_rows(struct shape_ctx *c, uint32_t row, int axis)
{
    const struct graph_value v = *rw_v(c, row);
    int64_t dims[SH_MAX_RANK];
    int rank = v.rank + 1;

    if (rank > SH_MAX_RANK) {
        shape__fail(c, SH_E_UNSUPPORTED, WHY_AXES, SH_MAX_RANK);
        return GRAPH_NONE;
    }
    for (int i = 0, k = 0; i < rank; i++)
        dims[i] = i == axis ? 0 : v.dims[k++];
    return rw_const(c, v.dtype, rank, dims, rw_alloc(c, v.dtype, 0));
}

static void give_loop_output(struct loop *l, uint32_t k, uint32_t v)
{
    if (l->c->err->rc == SH_OK && k < l->n->n_out && l->n->out[k] != GRAPH_NONE)
        l->r->map[l->n->out[k]] = v;
}

/* How often the body ran may follow from sizes: so may all that it gave. */
static int finish_loop(struct loop *l, uint32_t before)
{
    struct graph *g = l->r->c.g;

    for (uint32_t v = before; l->by_size && v < g->n_values; v++)
        g->values[v].by_size = true;
    close_loop(l);
    return l->c->err->rc;
}

/* ---------------------------------------------------------------- Loop */

enum { TRIPS, CONDITION, STATE };

/* One number of input i. */
static int read_trips(struct loop *l, int64_t *out)
{
    const struct graph_value *v;
    size_t k;

    *out = INT64_MAX;
    if (!shape__has(l->c, TRIPS))
        return l->c->err->rc;
    if (run__is_sequence(l->c->n.in[TRIPS]))
        return shape__fail(l->c, SH_E_INVALID, "the trip count is a sequence");
    v = shape__in(l->c, TRIPS);
    if (!v->data && shape__is_int(v->dtype) && v->rank <= 1) {
        l->c->wanted = l->c->n.in[TRIPS];
        return shape__fail(l->c, SH_E_UNSUPPORTED, WHY_LOOP_TRIPS);
    }
    shape__ints(l->c, TRIPS, out, 1, &k);
    if (k != 1)
        shape__fail(l->c, SH_E_INVALID, "the trip count is no number");
    return l->c->err->rc;
}

static int check_condition(const struct loop *l, uint32_t v)
{
    if (v == GRAPH_NONE)
        return l->c->err->rc;
    if (run__is_sequence(v) || l->c->g->values[v].dtype != SH_BOOL ||
        graph_elements(&l->c->g->values[v]) != 1)
        shape__fail(l->c, SH_E_INVALID, "the condition must be one BOOL");
    return l->c->err->rc;
}

/* Does the value say by itself whether to go on? */
static bool is_cond_known(const struct loop *l, uint32_t cond, bool *goes_on)
{
    *goes_on = cond == GRAPH_NONE ||
               (l->c->g->values[cond].data && *(const bool *)l->c->g->values[cond].data);
    return cond == GRAPH_NONE || l->c->g->values[cond].data;
}

/* The carried value behind a trip that is made only if cond. */
static uint32_t choose_carried(struct loop *l, uint32_t cond, uint32_t old, uint32_t new)
{
    const struct graph_value *a, *b;

    if (old == new || l->c->err->rc)
        return new;
    if (!run__is_sequence(old) && !run__is_sequence(new)) {
        a = rw_v(l->c, old);
        b = rw_v(l->c, new);
        if (a->dtype == b->dtype && a->rank == b->rank &&
            memcmp(a->dims, b->dims, sizeof(a->dims[0]) * (size_t)a->rank) == 0)
            return rw3(l->c, "Where", cond, new, old);
    }
    shape__fail(l->c, SH_E_UNSUPPORTED, WHY_LOOP_GROWS);
    return GRAPH_NONE;
}

/* One trip. *cond: of data, of constants or absent; it is brought up to date. */
static int loop_trip(struct loop *l, int64_t i, uint32_t *cond)
{
    struct shape_ctx *c = l->c;
    bool goes_on;
    const bool known = is_cond_known(l, *cond, &goes_on);
    uint32_t next;

    set_input(l, TRIPS, rw_number(c, SH_I64, (double)i));
    set_input(l, CONDITION, known ? rw_number(c, SH_BOOL, 1) : *cond);
    for (uint32_t s = 0; s < l->n_state; s++)
        set_input(l, STATE + s, l->state[s]);
    if (run_body(l) || keep_scan_rows(l, 1 + l->n_state) || check_condition(l, loop_result(l, 0)))
        return c->err->rc;
    for (uint32_t s = 0; s < l->n_state; s++) {
        next = loop_result(l, 1 + s);
        l->state[s] = known ? next : choose_carried(l, *cond, l->state[s], next);
    }
    next = rw_reshape(c, loop_result(l, 0), 0, NULL);
    *cond = known ? next : rw2(c, "And", *cond, next);
    return c->err->rc;
}

static int loop_trips(struct loop *l)
{
    uint32_t cond = shape__has(l->c, CONDITION) ? l->c->n.in[CONDITION] : GRAPH_NONE;
    int64_t n;
    bool goes_on;

    read_trips(l, &n);
    if (check_condition(l, cond))
        return l->c->err->rc;
    if (cond != GRAPH_NONE)
        cond = rw_reshape(l->c, cond, 0, NULL);
    for (int64_t i = 0; i < n && l->c->err->rc == SH_OK; i++) {
        if (is_cond_known(l, cond, &goes_on)) {
            if (!goes_on)
                break;
        } else if (n > (int64_t)MAX_STEPS || l->n_rows > 0) {
            l->c->wanted = cond;
            return shape__fail(l->c, SH_E_UNSUPPORTED,
                               l->n_rows > 0 ? WHY_LOOP_ROWS : WHY_LOOP_NO_BOUND);
        }
        loop_trip(l, i, &cond);
    }
    return l->c->err->rc;
}

/* For the shapes of outputs that get no rows: a trip of which nothing is used. */
static int loop_shapes(struct loop *l)
{
    set_input(l, TRIPS, rw_number(l->c, SH_I64, 0));
    set_input(l, CONDITION, rw_number(l->c, SH_BOOL, 1));
    for (uint32_t s = 0; s < l->n_state; s++)
        set_input(l, STATE + s, l->state[s]);
    return run_body(l);
}

static void give_all(struct loop *l)
{
    for (uint32_t s = 0; s < l->n_state; s++)
        give_loop_output(l, s, l->state[s]);
    for (uint32_t j = 0; j < l->n_rows; j++) {
        const uint32_t v = l->n_trips ? stack_rows(l->c, l->rows[j], l->n_trips)
                                      : no_rows(l->c, loop_result(l, 1 + l->n_state + j), 0);

        give_loop_output(l, l->n_state + j, v);
    }
}

/* Is it one whose turns are known to be one expression? Then its results are there. */
static bool is_one_expression(struct loop *l,
                              bool (*known)(struct run *r, const struct loop_known *l))
{
    uint32_t *out = calloc((size_t)l->n_state + 1, sizeof(*out));
    const struct loop_known k = {.node = l->n,
                                 .of = {.body = l->body,
                                        .first = l->r->body_first[l->id],
                                        .results = l->n->in + l->given,
                                        .n_results = l->n_results},
                                 .state = l->state,
                                 .trips = l->c->n.in[TRIPS],
                                 .n_state = l->n_state,
                                 .out = out};
    bool is;

    if (!out)
        SH_FAIL(l->c->err, SH_E_NOMEM, "could not allocate the results of a loop");
    is = out && known(l->r, &k);
    for (uint32_t s = 0; is && s < l->n_state; s++)
        give_loop_output(l, s, out[s]);
    free(out);
    return is;
}

/* May it end before its trips do, or not begin? */
static bool has_condition(const struct loop *l)
{
    const uint32_t v = shape__has(l->c, CONDITION) ? l->c->n.in[CONDITION] : GRAPH_NONE;
    bool goes_on = false;

    return check_condition(l, v) || !is_cond_known(l, v, &goes_on) || !goes_on;
}

static bool has_known_trips(const struct loop *l)
{
    return !shape__has(l->c, TRIPS) || run__is_sequence(l->c->n.in[TRIPS]) ||
           shape__in(l->c, TRIPS)->data;
}

/* Does it begin with an empty sequence and a place, and run until its own condition ends it? */
static bool builds_sequence(const struct loop *l)
{
    const bool is_first = l->n_state == 2 && run__is_sequence(l->state[0]);

    return l->r->depth == 0 && l->n_state == 2 && !shape__has(l->c, TRIPS) && !has_condition(l) &&
           run__is_sequence(l->state[1]) != is_first &&
           (is_first || run__is_sequence(l->state[1])) &&
           run__sequence(l->r, l->state[is_first ? 0 : 1])->n == 0;
}

int run__loop(struct run *r, const struct graph_node *n, struct shape_ctx *c)
{
    const uint32_t before = r->c.g->n_values;
    struct loop l;

    if (open_loop(&l, r, n, c))
        return c->err->rc;
    if (l.given < STATE || l.body->n_out != l.given || l.n_results < l.given - 1 ||
        n->n_out > l.n_results - 1)
        return shape__fail(c, SH_E_INVALID, "its body has a wrong number of inputs or outputs");
    make_loop_room(&l, l.given - STATE, l.n_results - (l.given - 1));
    for (uint32_t s = 0; c->err->rc == SH_OK && s < l.n_state; s++) {
        l.state[s] = c->n.in[STATE + s];
        if (l.state[s] == GRAPH_NONE)
            shape__fail(c, SH_E_INVALID, "lacks the first value of what it carries");
    }
    if (c->err->rc == SH_OK && l.n_rows == 0 && !has_known_trips(&l) && !has_condition(&l) &&
        is_one_expression(&l, loop_known))
        return finish_loop(&l, before);
    if (c->err->rc == SH_OK && l.n_rows == 0 && builds_sequence(&l) &&
        is_one_expression(&l, loop_bags))
        return finish_loop(&l, before);
    if (c->err->rc == SH_OK)
        loop_trips(&l);
    if (c->err->rc == SH_OK && l.n_trips == 0 && l.n_rows > 0)
        loop_shapes(&l);
    if (c->err->rc == SH_OK)
        give_all(&l);
    return finish_loop(&l, before);
}

/* ---------------------------------------------------------------- Scan */

struct scan {
    struct loop l;
    uint32_t n_in; /* values that are scanned */
    int64_t in_axis[GRAPH_MAX_IO], in_back[GRAPH_MAX_IO], out_axis[GRAPH_MAX_IO],
        out_back[GRAPH_MAX_IO];
    int64_t trips;
};

static int read_scan_list(struct scan *s, const char *name, uint32_t n, int64_t *out)
{
    size_t k;

    memset(out, 0, n * sizeof(*out));
    graph_ints(s->l.n, name, out, GRAPH_MAX_IO, &k, s->l.c->err);
    if (k != 0 && k != n)
        shape__fail(s->l.c, SH_E_INVALID, "attribute %s must have %u numbers", name, n);
    return s->l.c->err->rc;
}

static int read_scan_attrs(struct scan *s, bool by_sample)
{
    const uint32_t n_out = s->l.n_rows;

    read_scan_list(s, by_sample ? "directions" : "scan_input_directions", s->n_in, s->in_back);
    read_scan_list(s, "scan_input_axes", s->n_in, s->in_axis);
    read_scan_list(s, "scan_output_axes", n_out, s->out_axis);
    return read_scan_list(s, "scan_output_directions", n_out, s->out_back);
}

/* The axis of each input, and its size, which all have. `v`: the values that are scanned. */
static int read_scan_sizes(struct scan *s, const uint32_t *v)
{
    struct shape_ctx *c = s->l.c;

    s->trips = -1;
    for (uint32_t i = 0; i < s->n_in; i++) {
        const struct graph_value *x;

        if (v[i] == GRAPH_NONE || run__is_sequence(v[i]))
            return shape__fail(c, SH_E_INVALID, "lacks a tensor to scan");
        x = &c->g->values[v[i]];
        shape__axis(c, s->in_axis[i], x->rank, &s->in_axis[i]);
        if (s->trips >= 0 && s->trips != x->dims[s->in_axis[i]])
            shape__fail(c, SH_E_INVALID, "the inputs have %lld and %lld steps", (long long)s->trips,
                        (long long)x->dims[s->in_axis[i]]);
        s->trips = x->dims[s->in_axis[i]];
    }
    if (s->trips <= 0)
        shape__fail(c, SH_E_INVALID, "has no steps");
    return c->err->rc;
}

/* Slice t of x along the axis, without it. */
static uint32_t scan_part(struct shape_ctx *c, uint32_t x, int64_t axis, int64_t t)
{
    const uint32_t y = rw_slice(c, x, (int)axis, t, t + 1, 1);

    return rw2(c, "Squeeze", y, rw_list(c, &axis, 1));
}

static int scan_trips(struct scan *s, const uint32_t *v)
{
    struct loop *l = &s->l;

    read_scan_sizes(s, v);
    l->n_trips = 0;
    for (int64_t t = 0; t < s->trips && l->c->err->rc == SH_OK; t++) {
        for (uint32_t k = 0; k < l->n_state; k++)
            set_input(l, k, l->state[k]);
        for (uint32_t i = 0; i < s->n_in; i++)
            set_input(l, l->n_state + i,
                      scan_part(l->c, v[i], s->in_axis[i], s->in_back[i] ? s->trips - 1 - t : t));
        run_body(l);
        for (uint32_t k = 0; k < l->n_state; k++)
            l->state[k] = loop_result(l, k);
        keep_scan_rows(l, l->n_state);
    }
    return l->c->err->rc;
}

/* Output j: its rows along its axis, in its direction. */
static uint32_t joined(struct scan *s, uint32_t j)
{
    struct loop *l = &s->l;
    int64_t axis = 0, perm[SH_MAX_RANK];
    uint32_t y, *rows = l->rows[j], n = l->n_trips;
    int rank = rw_v(l->c, rows[0])->rank + 1;

    shape__axis(l->c, s->out_axis[j], rank, &axis);
    if (rank > SH_MAX_RANK) {
        shape__fail(l->c, SH_E_UNSUPPORTED, WHY_AXES, SH_MAX_RANK);
        return GRAPH_NONE;
    }
    for (uint32_t t = 0; s->out_back[j] && t < n / 2; t++) {
        const uint32_t swap = rows[t];

        rows[t] = rows[n - 1 - t];
        rows[n - 1 - t] = swap;
    }
    y = stack_rows(l->c, rows, n);
    for (int i = 0; i < rank; i++)
        perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
    return rw_transpose(l->c, y, perm, rank);
}

static int scan_all(struct scan *s)
{
    struct loop *l = &s->l;

    for (uint32_t k = 0; k < l->n_state; k++)
        l->state[k] = l->c->n.in[k];
    if (scan_trips(s, l->c->n.in + l->n_state))
        return l->c->err->rc;
    for (uint32_t k = 0; k < l->n_state; k++)
        give_loop_output(l, k, l->state[k]);
    for (uint32_t j = 0; j < l->n_rows; j++)
        give_loop_output(l, l->n_state + j, joined(s, j));
    return l->c->err->rc;
}

/* Before opset 9: axis 0 of everything is that of samples, each of which is scanned by itself. */
static int scan_samples(struct scan *s)
{
    struct loop *l = &s->l;
    const uint32_t n = l->n_state + s->n_in, n_out = l->n_state + l->n_rows;
    const int64_t samples = shape__has(l->c, 1) && !run__is_sequence(l->c->n.in[1])
                                ? (shape__in(l->c, 1)->rank ? shape__in(l->c, 1)->dims[0] : 0)
                                : 0;
    const struct sh_err *err = l->c->err;
    uint32_t *in, *out;

    if (samples < 1 || samples > (int64_t)MAX_STEPS)
        return shape__fail(l->c, SH_E_INVALID, "its inputs have no axis of samples");
    in = calloc((size_t)n + 1, sizeof(*in));
    out = calloc((size_t)n_out * (size_t)samples + 1, sizeof(*out));
    if (!in || !out)
        SH_FAIL(l->c->err, SH_E_NOMEM, "could not allocate the samples of a scan");
    for (uint32_t i = 0; i < n; i++) {
        const struct graph_value *v =
            shape__has(l->c, 1 + i) && !run__is_sequence(l->c->n.in[1 + i]) ? shape__in(l->c, 1 + i)
                                                                            : NULL;
        if (!v || v->rank < 1 || v->dims[0] != samples)
            shape__fail(l->c, SH_E_INVALID, "its inputs do not all have %lld samples",
                        (long long)samples);
    }
    for (int64_t b = 0; b < samples && err->rc == SH_OK; b++) {
        for (uint32_t i = 0; i < n; i++)
            in[i] = scan_part(l->c, l->c->n.in[1 + i], 0, b);
        memcpy(l->state, in, l->n_state * sizeof(*in));
        if (err->rc == SH_OK)
            scan_trips(s, in + l->n_state);
        for (uint32_t k = 0; k < n_out && err->rc == SH_OK; k++)
            out[(int64_t)k * samples + b] =
                k < l->n_state ? l->state[k] : joined(s, k - l->n_state);
    }
    for (uint32_t k = 0; k < n_out && err->rc == SH_OK; k++)
        give_loop_output(l, k, stack_rows(l->c, out + (int64_t)k * samples, (uint32_t)samples));
    free(in);
    free(out);
    return err->rc;
}

static int open_scan(struct scan *s, bool by_sample)
{
    struct loop *l = &s->l;
    int64_t n_in;
    const uint32_t n = l->given - by_sample;

    graph_int(l->n, "num_scan_inputs", 0, &n_in, l->c->err);
    if (l->given < by_sample || n_in < 1 || n_in > n || n > GRAPH_MAX_IO || l->body->n_out != n ||
        l->n_results > GRAPH_MAX_IO || l->n_results < n - (uint32_t)n_in ||
        l->n->n_out > l->n_results)
        return shape__fail(l->c, SH_E_INVALID, "its body has a wrong number of inputs or outputs");
    s->n_in = (uint32_t)n_in;
    if (by_sample && shape__has(l->c, 0))
        return shape__fail(l->c, SH_E_UNSUPPORTED, WHY_SCAN_LENGTHS);
    make_loop_room(l, n - s->n_in, l->n_results - (n - s->n_in));
    return read_scan_attrs(s, by_sample);
}

int run__scan(struct run *r, const struct graph_node *n, struct shape_ctx *c)
{
    const uint32_t before = r->c.g->n_values;
    struct scan *s = calloc(1, sizeof(*s));
    int64_t by_sample;

    if (!s)
        return SH_FAIL(c->err, SH_E_NOMEM, "could not allocate a scan");
    graph_int(n, GRAPH_BY_SAMPLE, 0, &by_sample, c->err);
    if (open_loop(&s->l, r, n, c) == SH_OK && open_scan(s, by_sample != 0) == SH_OK) {
        if (by_sample)
            scan_samples(s);
        else
            scan_all(s);
    }
    finish_loop(&s->l, before);
    free(s);
    return c->err->rc;
}

/* ---------------------------------------------------------------- SequenceMap */

int run__sequence_map(struct run *r, const struct graph_node *n, struct shape_ctx *c)
{
    const uint32_t before = r->c.g->n_values;
    uint32_t len, v;
    struct loop l;

    if (open_loop(&l, r, n, c))
        return c->err->rc;
    if (l.given < 1 || l.body->n_out != l.given || n->n_out > l.n_results ||
        !run__is_sequence(c->n.in[0]))
        return shape__fail(c, SH_E_INVALID, "needs a sequence, and a body with its inputs");
    make_loop_room(&l, 0, l.n_results);
    len = run__sequence(r, c->n.in[0])->n;
    for (uint32_t t = 0; t < len && c->err->rc == SH_OK; t++) {
        for (uint32_t i = 0; i < l.given; i++) {
            v = c->n.in[i];
            if (run__is_sequence(v) && run__sequence(r, v)->n != len)
                shape__fail(c, SH_E_INVALID, "its sequences differ in length");
            else
                set_input(&l, i, run__is_sequence(v) ? run__sequence(r, v)->of[t] : v);
        }
        run_body(&l);
        keep_scan_rows(&l, 0);
    }
    for (uint32_t j = 0; j < l.n_rows && c->err->rc == SH_OK; j++) {
        for (uint32_t t = 0; t < l.n_trips; t++)
            if (run__is_sequence(l.rows[j][t]))
                shape__fail(c, SH_E_INVALID, "an output is a sequence of sequences");
        if (c->err->rc == SH_OK && run__add_sequence(r, l.rows[j], l.n_trips, &v, c->err) == SH_OK)
            give_loop_output(&l, j, v);
    }
    return finish_loop(&l, before);
}
