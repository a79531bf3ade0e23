/* counted_numbers.c - lists of sizes that follow from counts, number by number.
 *
 * Exporters take the shape of a tensor apart, compute with its sizes, and reassemble them. A
 * constant size must not be lost on the way because a neighbour is known only from the data. So
 * each number is a constant, or an element of a value with its bounds. Operators that move numbers
 * are evaluated on tickets in their place, so that their own evaluation shows where each went;
 * operators that compute are evaluated with intervals.
 */
#include "common/mem.h"
#include "runtime/model/counted_int.h"

#include <stdlib.h>

#define MAX_VISITS 1024 /* nodes that are compared to tell that two counts are the same */

/* ---------------------------------------------------------------- single numbers */

struct graph_number number__const(int64_t v)
{
    return (struct graph_number){.lo = v, .hi = v, .of = GRAPH_NONE};
}

bool number__is_const(const struct graph_number *n)
{
    return n->of == GRAPH_NONE;
}

bool number__get(const struct graph_value *v, size_t i, struct graph_number *out)
{
    if (v->numbers) {
        *out = v->numbers[i];
        return true;
    }
    if (!v->data || !shape__is_int(v->dtype))
        return false;
    *out = number__const(shape__get_i64(v->dtype, v->data, i));
    return true;
}

struct graph_number number__any(const struct shape_ctx *c, uint32_t v)
{
    struct graph_number n;

    if (!number__get(&c->g->values[v], 0, &n))
        n = (struct graph_number){.lo = INT64_MIN, .hi = INT64_MAX, .of = v};
    return n;
}

/* n as a value of `rank` axes of one and type t. */
static uint32_t single(struct shape_ctx *c, struct graph_number n, enum sh_dtype t, int rank)
{
    static const int64_t ONE[SH_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    const struct graph_value *v;
    uint32_t of = n.of;
    int64_t all;

    if (number__is_const(&n))
        return rw_reshape(c, rw_number(c, t, (double)n.lo), rank, ONE);
    v = rw_v(c, of);
    all = graph_elements(v);
    if (all != 1)
        of = rw_slice(c, rw_reshape(c, of, 1, &all), 0, n.at, (int64_t)n.at + 1, 1);
    if (c->err->rc == SH_OK && rw_v(c, of)->dtype != t)
        of = rw_cast(c, of, t);
    if (c->err->rc == SH_OK && rw_v(c, of)->rank != rank)
        of = rw_reshape(c, of, rank, ONE);
    return of;
}

uint32_t number__value(struct shape_ctx *c, struct graph_number n)
{
    const bool plain = c->plain;
    uint32_t v;

    c->plain = true;
    v = single(c, n, SH_I64, 0);
    c->plain = plain;
    return v;
}

struct graph_number number__op(struct shape_ctx *c, const char *op, struct graph_number a,
                               struct graph_number b)
{
    struct graph_value *v;
    const bool plain = c->plain;
    uint32_t x, y, out;

    if ((strcmp(op, "Min") == 0 || strcmp(op, "Max") == 0) && number__same(c->g, &a, &b))
        return a;
    x = number__value(c, a);
    y = number__value(c, b);
    /* Values that were shaped for this are known as what they are of. */
    for (int i = 0; i < 2 && c->err->rc == SH_OK; i++) {
        v = &c->g->values[i ? y : x];
        if (!v->data && !v->numbers) {
            v->numbers = malloc(sizeof(*v->numbers));
            if (!v->numbers)
                SH_FAIL(c->err, SH_E_NOMEM, "could not allocate a number");
            else
                *v->numbers = i ? b : a;
        }
    }
    c->plain = false;
    out = rw2(c, op, x, y);
    c->plain = plain;
    return c->err->rc ? number__const(0) : number__any(c, out);
}

/* ---------------------------------------------------------------- the same whatever the data */

const struct graph_node *counted__writer(const struct graph *g, uint32_t v)
{
    return g->values[v].writer ? &g->nodes[g->values[v].writer - 1] : NULL;
}

static uint32_t node_slot(const struct graph_node *n, uint32_t v)
{
    uint32_t k = 0;

    while (k < n->n_out && n->out[k] != v)
        k++;
    return k;
}

static bool same_value(const struct graph *g, uint32_t a, uint32_t b, int *visits)
{
    const struct graph_value *x, *y;
    const struct graph_node *m, *n;

    if (a == b)
        return true;
    if (a == GRAPH_NONE || b == GRAPH_NONE || ++*visits > MAX_VISITS)
        return false;
    x = &g->values[a];
    y = &g->values[b];
    if (x->dtype != y->dtype || x->rank != y->rank ||
        memcmp(x->dims, y->dims, sizeof(x->dims[0]) * (size_t)x->rank) != 0)
        return false;
    if (x->data || y->data)
        return x->data && y->data && x->bytes == y->bytes &&
               memcmp(x->data, y->data, x->bytes) == 0;
    m = counted__writer(g, a);
    n = counted__writer(g, b);
    if (!m || !n || node_slot(m, a) != node_slot(n, b) || m->n_in != n->n_in ||
        m->n_attrs != n->n_attrs || strcmp(m->op, n->op) != 0)
        return false;
    for (uint32_t i = 0; i < m->n_attrs; i++)
        if (!graph__same_attr(&m->attrs[i], graph__attr(n, m->attrs[i].name)))
            return false;
    for (uint32_t i = 0; i < m->n_in; i++)
        if (!same_value(g, m->in[i], n->in[i], visits))
            return false;
    return true;
}

bool number__same(const struct graph *g, const struct graph_number *a, const struct graph_number *b)
{
    int visits = 0;

    if (number__is_const(a) || number__is_const(b))
        return number__is_const(a) && number__is_const(b) && a->lo == b->lo;
    return a->at == b->at && same_value(g, a->of, b->of, &visits);
}

/* ---------------------------------------------------------------- lists */

static bool are_numbers_known(const struct graph_value *v)
{
    const int64_t n = graph_elements(v);

    return !v->counted && n <= COUNTED_NUMBERS &&
           (v->numbers || (v->data && shape__is_int(v->dtype)));
}

static int note_value_numbers(struct counted *k, uint32_t v, const struct graph_number *n,
                              size_t count)
{
    struct graph_value *x = &k->c->g->values[v];

    free(x->numbers);
    x->numbers = malloc((count + 1) * sizeof(*n));
    if (!x->numbers)
        return SH_FAIL(k->c->err, SH_E_NOMEM, "could not allocate %zu numbers", count);
    memcpy(x->numbers, n, count * sizeof(*n));
    return SH_OK;
}

/* All constants: a value with data. */
static uint32_t as_const(struct shape_ctx *c, const struct graph_value *like,
                         const struct graph_number *n, size_t count)
{
    void *data = rw_alloc(c, like->dtype, (int64_t)count);

    for (size_t i = 0; data && i < count; i++)
        shape__put_i64(like->dtype, data, i, n[i].lo);
    return rw_const(c, like->dtype, like->rank, like->dims, data);
}

int counted__is_numbers(struct counted *k, uint32_t out, const struct graph_number *n)
{
    struct shape_ctx *c = k->c;
    const struct graph_value like = *shape__outv(c, out);
    const size_t count = (size_t)graph_elements(&like);
    uint32_t parts[COUNTED_NUMBERS], v;
    bool all = true;

    for (size_t i = 0; i < count; i++)
        all = all && number__is_const(&n[i]);
    if (all)
        return rw_is(c, out, as_const(c, &like, n, count));
    for (size_t i = 0; i < count; i++)
        parts[i] = single(c, n[i], like.dtype, count == 1 ? like.rank : 1);
    v = count == 1 ? parts[0]
                   : rw_reshape(c, rw_concat(c, parts, (uint32_t)count, 0), like.rank, like.dims);
    rw_is(c, out, v);
    if (c->err->rc == SH_OK && !c->g->values[v].numbers)
        note_value_numbers(k, v, n, count);
    return c->err->rc;
}

/* ---------------------------------------------------------------- moved */

#define ALL 0xffffffffu

static uint32_t moved_inputs(const char *op)
{
    static const struct {
        const char *op;
        uint32_t in;
    } MOVES[] = {{"Cast", 1},      {"Concat", ALL},       {"Expand", 1},   {"Flatten", 1},
                 {"Gather", 1},    {"GatherElements", 1}, {"GatherND", 1}, {"Identity", 1},
                 {"Reshape", 1},   {"Slice", 1},          {"Split", 1},    {"Squeeze", 1},
                 {"Transpose", 1}, {"Unsqueeze", 1},      {"Where", 6}};

    for (size_t i = 0; i < SH_ARRAY_LEN(MOVES); i++)
        if (strcmp(MOVES[i].op, op) == 0)
            return MOVES[i].in;
    return 0;
}

/* Are the numbers that move known, and all else constants? */
static bool can_move(struct counted *k, uint32_t moved)
{
    const struct shape_ctx *c = k->c;
    int64_t to = 0;

    for (uint32_t i = 0; i < c->n.n_in; i++) {
        const bool moves = moved == ALL || (i < 32 && moved >> i & 1u);

        if (c->n.in[i] == GRAPH_NONE)
            continue;
        if (moves ? !are_numbers_known(shape__in(c, i)) : !shape__in(c, i)->data)
            return false;
    }
    if (strcmp(c->n.op, "Cast") != 0)
        return true;
    return !graph_int(&c->n, "to", 0, &to, NULL) && (to == 6 || to == 7); /* INT32, INT64 */
}

struct tickets {
    struct graph_number n[512];
    size_t count;
};

/* Input i as tickets. */
static uint32_t draw_tickets(struct counted *k, uint32_t i, struct tickets *t)
{
    const struct graph_value x = *shape__in(k->c, i);
    const int64_t n = graph_elements(&x);
    void *data;

    if (t->count + (size_t)n > SH_ARRAY_LEN(t->n)) {
        shape__computed(k->c, i);
        return GRAPH_NONE;
    }
    data = rw_alloc(k->c, x.dtype, n);
    for (size_t j = 0; data && j < (size_t)n; j++) {
        shape__put_i64(x.dtype, data, j, (int64_t)t->count);
        number__get(&x, j, &t->n[t->count++]);
    }
    return rw_const(k->c, x.dtype, x.rank, x.dims, data);
}

static int move_numbers(struct counted *k, uint32_t moved)
{
    struct shape_ctx *c = k->c;
    struct tickets t = {.count = 0};
    struct graph_number n[COUNTED_NUMBERS];

    for (uint32_t i = 0; i < c->n.n_in && c->err->rc == SH_OK; i++)
        if (c->n.in[i] != GRAPH_NONE && (moved == ALL || (i < 32 && moved >> i & 1u)))
            c->n.in[i] = draw_tickets(k, i, &t);
    if (c->err->rc == SH_OK)
        shape__steps(c, k->op);
    for (uint32_t out = 0; out < c->n.n_out && c->err->rc == SH_OK; out++) {
        const struct graph_value *v = shape__outv(c, out);
        const int64_t count = graph_elements(v);

        if (!v->data || count > COUNTED_NUMBERS)
            return shape__computed(c, 0);
        for (size_t i = 0; i < (size_t)count; i++)
            n[i] = t.n[shape__get_i64(v->dtype, v->data, i)];
        counted__is_numbers(k, out, n);
    }
    return c->err->rc;
}

/* ---------------------------------------------------------------- computed */

static const struct graph_number UNKNOWN = {.lo = INT64_MIN, .hi = INT64_MAX, .of = GRAPH_NONE};

/* An interval; `of` says that it is just one of the operands. */
static struct graph_number interval(int64_t lo, int64_t hi)
{
    return (struct graph_number){.lo = lo, .hi = hi, .of = GRAPH_NONE};
}

static int64_t added(int64_t a, int64_t b)
{
    int64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? INT64_MIN : INT64_MAX) : sum;
}

static struct graph_number number_product(const struct graph_number *a,
                                          const struct graph_number *b)
{
    int64_t lo, hi;

    if (a->lo < 0 || b->lo < 0 || __builtin_mul_overflow(a->lo, b->lo, &lo) ||
        __builtin_mul_overflow(a->hi, b->hi, &hi))
        return UNKNOWN;
    return interval(lo, hi);
}

/* *is: 0: neither operand; 1, 2: it is just that one. false: not known here. */
static bool compute(const char *op, const struct graph_number *a, const struct graph_number *b,
                    struct graph_number *y, int *is)
{
    const bool c = number__is_const(b);

    *is = 0;
    if (strcmp(op, "Add") == 0 || strcmp(op, "Sum") == 0 || strcmp(op, "ReduceSum") == 0) {
        *y = interval(added(a->lo, b->lo), added(a->hi, b->hi));
        *is = c && b->lo == 0 ? 1 : number__is_const(a) && a->lo == 0 ? 2 : 0;
    } else if (strcmp(op, "Sub") == 0) {
        if (b->lo == INT64_MIN || b->hi == INT64_MIN)
            *y = UNKNOWN;
        else
            *y = interval(added(a->lo, -b->hi), added(a->hi, -b->lo));
        *is = c && b->lo == 0 ? 1 : 0;
    } else if (strcmp(op, "Mul") == 0 || strcmp(op, "ReduceProd") == 0) {
        *y = number_product(a, b);
        *is = c && b->lo == 1 ? 1 : number__is_const(a) && a->lo == 1 ? 2 : 0;
    } else if (strcmp(op, "Div") == 0 && c && b->lo > 0) {
        *y = interval(a->lo / b->lo, a->hi / b->lo);
        *is = b->lo == 1 ? 1 : 0;
    } else if (strcmp(op, "Min") == 0 || strcmp(op, "ReduceMin") == 0) {
        *y = interval(SH_MIN(a->lo, b->lo), SH_MIN(a->hi, b->hi));
        *is = a->hi <= b->lo ? 1 : b->hi <= a->lo ? 2 : 0;
    } else if (strcmp(op, "Max") == 0 || strcmp(op, "ReduceMax") == 0) {
        *y = interval(SH_MAX(a->lo, b->lo), SH_MAX(a->hi, b->hi));
        *is = a->lo >= b->hi ? 1 : b->lo >= a->hi ? 2 : 0;
    } else if (strcmp(op, "Equal") == 0) {
        *y = interval(a->lo == a->hi && b->lo == b->hi && a->lo == b->lo,
                      a->lo <= b->hi && b->lo <= a->hi);
    } else if (strcmp(op, "Less") == 0) {
        *y = interval(a->hi < b->lo, a->lo < b->hi);
    } else if (strcmp(op, "LessOrEqual") == 0) {
        *y = interval(a->hi <= b->lo, a->lo <= b->hi);
    } else if (strcmp(op, "Greater") == 0) {
        *y = interval(a->lo > b->hi, a->hi > b->lo);
    } else if (strcmp(op, "GreaterOrEqual") == 0) {
        *y = interval(a->lo >= b->hi, a->hi >= b->lo);
    } else {
        return false;
    }
    return true;
}

/* y = a (op) b, as far as it is known without running: a constant, an operand, or bounds (of is
 * then GRAPH_NONE and *own is set). */
static bool combine_numbers(const char *op, const struct graph_number *a,
                            const struct graph_number *b, struct graph_number *y, bool *own)
{
    int is;

    if (!compute(op, a, b, y, &is))
        return false;
    *own = is == 0 && y->lo != y->hi;
    if (is)
        *y = is == 1 ? *a : *b;
    return true;
}

static bool is_reduction(const char *op)
{
    return strncmp(op, "Reduce", 6) == 0;
}

/* All of one list, together. */
static bool reduce_known(struct counted *k, struct graph_number *y, bool *own)
{
    const struct graph_value *x = shape__in(k->c, 0);
    const size_t n = (size_t)graph_elements(x);
    bool any = false, mine;

    if (n < 1 || !number__get(x, 0, y))
        return false;
    for (size_t i = 1; i < n; i++) {
        struct graph_number a = *y, b;

        if (!number__get(x, i, &b) || !combine_numbers(k->c->n.op, &a, &b, y, &mine))
            return false;
        any |= mine;
        if (mine)
            y->of = 0; /* no constant, whatever it is of */
    }
    *own = any;
    return true;
}

static bool each_known(struct counted *k, size_t i, struct graph_number *y, bool *own)
{
    bool any = false, mine;

    for (uint32_t j = 0; j < k->c->n.n_in; j++) {
        const struct graph_value *x = shape__in(k->c, j);
        struct graph_number a = *y, b;

        if (!number__get(x, graph_elements(x) == 1 ? 0 : i, &b))
            return false;
        if (j == 0) {
            *y = b;
            continue;
        }
        if (!combine_numbers(k->c->n.op, &a, &b, y, &mine))
            return false;
        any |= mine;
        if (mine)
            y->of = 0;
    }
    *own = any;
    return true;
}

static bool can_compute(struct counted *k)
{
    const struct shape_ctx *c = k->c;
    const uint32_t n = is_reduction(c->n.op) ? 1 : c->n.n_in;
    const struct graph_number a = number__const(1), b = number__const(1);
    struct graph_number y;
    int is;

    if (!compute(c->n.op, &a, &b, &y, &is) || (n < 2 && !is_reduction(c->n.op)))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (c->n.in[i] == GRAPH_NONE || !are_numbers_known(shape__in(c, i)) ||
            shape__in(c, i)->rank > 1)
            return false;
    return true;
}

/* The node as it is gives the value; what of it is known without it takes its place. */
static int compute_known(struct counted *k, bool *done)
{
    struct shape_ctx *c = k->c;
    struct graph_number n[COUNTED_NUMBERS] = {{0}};
    bool own[COUNTED_NUMBERS] = {false}, any_own = false, known = true;
    size_t count = 1;

    for (uint32_t i = 0; i < c->n.n_in && !is_reduction(c->n.op); i++)
        count = SH_MAX(count, (size_t)graph_elements(shape__in(c, i)));
    for (uint32_t i = 0; i < c->n.n_in && !is_reduction(c->n.op); i++)
        known = known && (graph_elements(shape__in(c, i)) == 1 ||
                          (size_t)graph_elements(shape__in(c, i)) == count);
    for (size_t i = 0; i < count && known; i++) {
        known = is_reduction(c->n.op) ? reduce_known(k, &n[i], &own[i])
                                      : each_known(k, i, &n[i], &own[i]);
        any_own |= own[i];
    }
    if (!known)
        return SH_OK;
    if (shape__steps(c, k->op))
        return c->err->rc;
    *done = true;
    if ((size_t)graph_elements(shape__outv(c, 0)) != count)
        return SH_OK;
    for (size_t i = 0; i < count; i++)
        if (own[i]) {
            n[i].of = c->outv[0];
            n[i].at = (uint32_t)i;
        }
    return any_own ? note_value_numbers(k, c->outv[0], n, count) : counted__is_numbers(k, 0, n);
}

int counted__numbers(struct counted *k, bool *done)
{
    const uint32_t moved = moved_inputs(k->c->n.op);

    *done = false;
    if (moved && can_move(k, moved)) {
        *done = true;
        return move_numbers(k, moved);
    }
    return can_compute(k) ? compute_known(k, done) : SH_OK;
}
