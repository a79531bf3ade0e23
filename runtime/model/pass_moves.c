/* pass_moves.c - a chain of operations that only move elements becomes one.
 *
 *   x - SLICE, SLICE, CONCAT - SLICE, SLICE, CONCAT - TRANSPOSE - y
 *
 * is how exporters write that windows of a picture are shifted and cut out: y has all of x, in rows
 * of channels that stay together, in another order. Each step reads and writes everything; one
 * GATHER of rows by a constant list does it once. An operation that moves nothing (a PAD by 0, a
 * SLICE of everything) becomes another name of its operand, and of a TRANSPOSE that another one
 * turns back neither is left.
 *
 * The first axis stays in front and whole on all of the way, so a list for one sample serves all.
 * Every row must move to exactly one place: the gradient is then the GATHER by the inverse list
 * (autodiff_elem.c), and otherwise slow.
 *
 * Only training gets lists. At inference they would be part of the weights, which all batch sizes
 * share, and a chain can be longer at batch size 1, where swapping samples and rows does nothing.
 */
#include "common/mem.h"
#include "runtime/model/pass.h"

#include <stdlib.h>

#define LEAST_ROW 8                 /* elements that stay together: what one access moves */
#define MAX_ROWS ((int64_t)1 << 20) /* of a list */
#define MAX_STEPS 64                /* on the way up */

struct moves {
    struct ir *ir;
    struct ir_uses u;
};

/* Of x, whose rank is that of `dims`: elements behind axis i. */
static int64_t inner(const struct dev_tensor *t, uint32_t i)
{
    return dev_axes_elements(t, i + 1, t->rank);
}

static bool is_whole_axis(const struct ir *ir, const struct dev_op *op, uint32_t axis)
{
    return ir_t(ir, op->in[0])->dims[axis] == ir_t(ir, op->out[0])->dims[axis];
}

static int64_t common(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static int64_t row_of_concat(const struct ir *ir, const struct dev_op *op)
{
    int64_t row = 0;
    uint32_t axis;

    if (!dev_axis_of(ir_t(ir, op->in[0]), op->u.axis.axis, &axis) || axis == 0)
        return 0;
    for (uint32_t i = 0; i < op->n_in; i++) {
        const struct dev_tensor *x = ir_t(ir, op->in[i]);

        row = common(x->dims[axis] * inner(x, axis), row);
    }
    return row;
}

/* Elements that stay side by side; 0: it does not only move elements, or moves the first axis. */
static int64_t elements_in_row(const struct ir *ir, const struct dev_op *op)
{
    const struct dev_tensor *x = ir_t(ir, op->in[0]);
    uint32_t i = x->rank;

    if (x->rank == 0)
        return 0;
    switch (op->kind) {
    case DEV_OP_TRANSPOSE:
        while (i > 0 && op->u.perm.perm[i - 1] == i - 1)
            i--;
        return op->u.perm.perm[0] == 0 ? (i ? inner(x, i - 1) : ir_elements(ir, op->in[0])) : 0;
    case DEV_OP_SLICE:
        for (uint32_t k = 0; k < x->rank; k++)
            if (op->u.slice.step[k] < 1)
                return 0;
        while (i > 0 && is_whole_axis(ir, op, i - 1))
            i--;
        return is_whole_axis(ir, op, 0) ? (i ? inner(x, i - 1) : ir_elements(ir, op->in[0])) : 0;
    case DEV_OP_PAD:
        for (; i > 0; i--)
            if (op->u.pad.before[i - 1] != 0 || !is_whole_axis(ir, op, i - 1))
                return 0;
        return ir_elements(ir, op->in[0]);
    case DEV_OP_CONCAT:
        return row_of_concat(ir, op);
    default:
        return 0;
    }
}

static const struct dev_op *mover(const struct moves *m, uint32_t root)
{
    const uint32_t w = m->u.writer[root];
    const struct dev_op *op = w == DEV_NONE ? NULL : &m->ir->g.ops[w];

    return op && elements_in_row(m->ir, op) > 0 ? op : NULL;
}

/* Element *at of what op writes, as one of its operand *t. */
static void step_up_op(const struct ir *ir, const struct dev_op *op, uint32_t *t, int64_t *at)
{
    const struct dev_tensor *y = ir_t(ir, op->out[0]);
    int64_t place[SH_MAX_RANK] = {0}, to[SH_MAX_RANK], sum = 0;
    uint32_t from = op->in[0], axis = 0;

    for (uint32_t i = y->rank; i-- > 0;) {
        place[i] = *at % y->dims[i];
        *at /= y->dims[i];
    }
    memcpy(to, place, sizeof(to));
    if (op->kind == DEV_OP_TRANSPOSE) {
        for (uint32_t i = 0; i < y->rank; i++)
            to[op->u.perm.perm[i]] = place[i];
    } else if (op->kind == DEV_OP_SLICE) {
        for (uint32_t i = 0; i < y->rank; i++)
            to[i] = op->u.slice.start[i] + place[i] * op->u.slice.step[i];
    } else if (op->kind == DEV_OP_CONCAT) {
        dev_axis_of(y, op->u.axis.axis, &axis);
        for (uint32_t k = 0; to[axis] >= ir_t(ir, from)->dims[axis]; from = op->in[++k])
            to[axis] -= ir_t(ir, from)->dims[axis];
    }
    for (uint32_t i = 0; i < y->rank; i++)
        sum = sum * ir_t(ir, from)->dims[i] + to[i];
    *t = ir_root(ir, from);
    *at = sum;
}

/* ------------------------------------------------------------------ one chain */

struct chain {
    uint32_t y, source;
    int64_t row;     /* elements that stay together */
    int64_t samples; /* that go the same way */
    int64_t rows;    /* of each sample */
    uint32_t steps;  /* on the longest way */
    int32_t *from;   /* OWNED: [rows[0]] */
    bool is_same;
};

/* What all ways up from root end in, and how much stays together on all of them. false: they end
 * in several tensors, or are too many. */
static bool survey(const struct moves *m, uint32_t root, uint32_t depth, uint32_t *left,
                   struct chain *c)
{
    const struct dev_op *op = mover(m, root);

    if (!op) {
        if (c->source != DEV_NONE && c->source != root)
            return false;
        c->source = root;
        c->steps = SH_MAX(c->steps, depth);
        return true;
    }
    if ((*left)-- == 0)
        return false;
    c->row = common(elements_in_row(m->ir, op), c->row);
    for (uint32_t i = 0; i < (op->kind == DEV_OP_CONCAT ? op->n_in : 1); i++)
        if (!survey(m, ir_root(m->ir, op->in[i]), depth + 1, left, c))
            return false;
    return true;
}

/* Fills from[], if all samples go the same way and every row goes to one place. */
static bool follow_chain(const struct moves *m, struct chain *c)
{
    uint8_t *seen = calloc((size_t)c->rows, 1);
    bool fits = seen != NULL;

    c->is_same = true;
    for (int64_t i = 0; i < c->rows * c->samples && fits; i++) {
        uint32_t t = c->y;
        int64_t at = i * c->row;

        for (const struct dev_op *op; (op = mover(m, t)) != NULL;)
            step_up_op(m->ir, op, &t, &at);
        at = at / c->row - i / c->rows * c->rows;
        fits = at >= 0 && at < c->rows && (i < c->rows ? !seen[at] : at == c->from[i % c->rows]);
        if (fits && i < c->rows) {
            c->from[i] = (int32_t)at;
            c->is_same = c->is_same && at == i;
            seen[at] = 1;
        }
    }
    free(seen);
    return fits;
}

/* Does somebody read t who does more than move it? */
static bool is_chain_needed(const struct moves *m, uint32_t root)
{
    const struct ir *ir = m->ir;

    for (uint32_t i = 0; i < ir->g.n_ops; i++)
        for (uint32_t k = 0; k < ir->g.ops[i].n_in; k++)
            if (ir->g.ops[i].in[k] != DEV_NONE && ir_root(ir, ir->g.ops[i].in[k]) == root &&
                elements_in_row(ir, &ir->g.ops[i]) == 0)
                return true;
    return false;
}

/* The operation that writes y becomes a GATHER of rows of the source. TAKES c->from. */
static void to_gather(const struct moves *m, struct chain *c, struct dev_op *last)
{
    const int64_t dims[3] = {c->samples, c->rows, c->row};
    const uint32_t source = ir_alias(m->ir, c->source, 3, dims);
    const uint32_t from = ir_const(m->ir, ir_name(m->ir, "%s#rows", last->name), DEV_ROLE_STATE,
                                   SH_I32, 1, &c->rows, c->from);
    struct dev_op op = ir_op(DEV_OP_GATHER, last->name, 2, (uint32_t[]){source, from});

    op.layer = last->layer;
    op.u.axis.axis = 1;
    op.out[op.n_out++] = last->out[0];
    *last = op;
}

static bool is_given_out(const struct ir *ir, uint32_t t)
{
    for (uint32_t i = 0; i < ir->n_outputs; i++)
        if (ir_root(ir, ir->outputs[i]) == t)
            return true;
    return false;
}

/* y, which is the source element for element, becomes another name of it. */
static bool rename_to(struct ir *ir, uint32_t y, uint32_t source, struct dev_op *last)
{
    if (y < source || is_given_out(ir, y) || ir_t(ir, y)->dtype != ir_t(ir, source)->dtype)
        return false;
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        if (i == y || ir_t(ir, i)->alias_of == y)
            ir_t(ir, i)->alias_of = source;
    ir_kill(last);
    return true;
}

/* As many samples as go the same way. */
static bool find_rows(const struct moves *m, struct chain *c)
{
    const int64_t n = ir_elements(m->ir, c->y) / c->row;
    const int64_t tries[] = {ir_t(m->ir, c->y)->dims[0], ir_t(m->ir, c->source)->dims[0], 1};

    for (size_t i = 0; i < SH_ARRAY_LEN(tries); i++) {
        c->samples = tries[i];
        c->rows = n / c->samples;
        if (n % c->samples == 0 && c->rows > 0 && follow_chain(m, c))
            return true;
    }
    return false;
}

static void try_chain(const struct moves *m, struct dev_op *last)
{
    struct ir *ir = m->ir;
    const uint32_t y = last->out[0];
    struct chain c = {.y = y, .source = DEV_NONE};
    uint32_t left = MAX_STEPS;

    if (!survey(m, y, 0, &left, &c) || c.steps < 2 || c.row < LEAST_ROW ||
        ir_t(ir, y)->dtype != SH_F32 || ir_t(ir, c.source)->rank == 0 ||
        ir_is_const(ir, c.source) || ir_elements(ir, y) != ir_elements(ir, c.source) ||
        ir_elements(ir, y) / c.row > MAX_ROWS ||
        !is_chain_needed(m, y)) /* the last walks all of it */
        return;
    c.from = ir_alloc(ir, ir_elements(ir, y) / c.row, sizeof(*c.from));
    if (c.from && find_rows(m, &c) && !(c.is_same && rename_to(ir, y, c.source, last)))
        to_gather(m, &c, last);
    else
        free(c.from);
}

/* PAD by 0, SLICE of everything. */
static void drop_idle(struct ir *ir)
{
    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        struct dev_op *op = &ir->g.ops[i];

        if (op->kind != DEV_OP_CONCAT && elements_in_row(ir, op) == ir_elements(ir, op->in[0]))
            rename_to(ir, op->out[0], ir_root(ir, op->in[0]), op);
    }
    ir_sweep(ir);
}

/* op turns back what the TRANSPOSE before it turned. *x: as it was before both. */
static bool turns_back(const struct moves *m, const struct dev_op *op, uint32_t *x)
{
    const struct dev_op *first = pass__writer(m->ir, &m->u, op->in[0], DEV_OP_TRANSPOSE);

    if (op->kind != DEV_OP_TRANSPOSE || !first || !ir_same_shape(m->ir, op->in[0], first->out[0]))
        return false;
    *x = first->in[0];
    for (uint32_t i = 0; i < ir_t(m->ir, *x)->rank; i++)
        if (first->u.perm.perm[op->u.perm.perm[i]] != i)
            return false;
    return ir_same_shape(m->ir, *x, op->out[0]) && !is_given_out(m->ir, op->out[0]);
}

/* Whoever reads y reads x. No alias: x may be stored in a layout of its own. */
static void read_instead(struct ir *ir, uint32_t y, uint32_t x)
{
    for (uint32_t i = 0; i < ir->g.n_ops; i++)
        for (uint32_t k = 0; k < ir->g.ops[i].n_in; k++)
            if (ir->g.ops[i].in[k] == y)
                ir->g.ops[i].in[k] = x;
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        if (ir_t(ir, i)->alias_of == y)
            ir_t(ir, i)->alias_of = ir_root(ir, x);
}

static void drop_turned_back(struct moves *m)
{
    for (uint32_t i = 0; i < m->ir->g.n_ops; i++) {
        struct dev_op *op = &m->ir->g.ops[i];
        uint32_t x;

        if (turns_back(m, op, &x) && ir_root(m->ir, x) < op->out[0]) {
            read_instead(m->ir, op->out[0], x);
            ir_kill(op);
        }
    }
}

/* The last of a chain first: those before it are then read by nobody. */
void pass_moves(struct ir *ir, bool training)
{
    struct moves m = {.ir = ir};
    bool is_ready;

    drop_idle(ir);
    is_ready = ir_uses_init(&m.u, ir);
    if (is_ready && !training)
        drop_turned_back(&m);
    for (uint32_t i = ir->g.n_ops; is_ready && training && i-- > 0;)
        if (elements_in_row(ir, &ir->g.ops[i]) > 0)
            try_chain(&m, &ir->g.ops[i]);
    ir_uses_fini(&m.u);
    ir_sweep(ir);
    ir_drop_unused(ir);
}
