/* cuda_shape.c - builders of what moves elements (CONCAT, SLICE, PAD, TRANSPOSE, COPY, EXPAND) and
 * of REDUCE.
 *
 * A move reads and writes its tensors as stored: the strides of both forms go into one nest, and
 * k_convert finds the fast way. Element types matter only where COPY converts.
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"

#include <string.h>

/* ------------------------------------------------------------------ strided moves */

struct move {
    struct k_nd nd;
    int64_t from, to; /* first element in x, in y */
    bool fills;       /* PAD: y is filled first */
    bool is_empty;    /* nothing of x is seen */
};

/* The operand from its element i on. */
static struct k_operand element(struct k_operand o, int64_t i)
{
    o.p = (unsigned char *)o.p + i * (int64_t)cuda__type_bytes((enum cuda_type)o.type);
    return o;
}

static int move_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_tensor *y = &c->plan->base.g->tensors[c->op->out[0]];
    const struct k_operand from = cuda__operand_in(c, 0), to = cuda__operand_out(c, 0);
    const struct move *m = c->aux;

    if (m->fills)
        k_fill(c->stream, to.p, to.type, y->dtype == SH_BOOL, dev_tensor_elements(y),
               c->op->u.pad.value);
    if (!m->is_empty)
        k_convert(c->stream, &m->nd, element(from, m->from), element(to, m->to));
    return cuda__launched(c, err);
}

static int check_same_type(struct cuda_build *b)
{
    const struct dev_tensor *x = cuda__t(b, b->op->in[0]), *y = cuda__t(b, b->op->out[0]);

    return x->dtype == y->dtype ? SH_OK
                                : cuda__refuse(b, SH_E_BUG, "types %s and %s differ",
                                               sh_dtype_st(x->dtype), sh_dtype_st(y->dtype));
}

static void stored_strides(struct cuda_build *b, uint32_t tensor, int64_t out[SH_MAX_RANK])
{
    memset(out, 0, SH_MAX_RANK * sizeof(*out));
    cuda__strides(cuda__t(b, tensor), cuda__form(b, tensor).layout, out);
}

/* A move over y's shape with y's strides; the caller sets those of x. */
static struct move *move_new(struct cuda_build *b, int *rc)
{
    const struct dev_tensor *y = cuda__t(b, b->op->out[0]);
    struct move *m = cuda__aux_new(b, sizeof(*m), rc);

    if (!m)
        return NULL;
    m->nd.rank = (int)y->rank;
    memcpy(m->nd.dims, y->dims, y->rank * sizeof(y->dims[0]));
    stored_strides(b, b->op->out[0], m->nd.stride[1]);
    b->co->run = move_run;
    return m;
}

/* The same for operations that keep the axes; x: the strides of x, for the caller to arrange. */
static struct move *move_axes(struct cuda_build *b, int64_t x[SH_MAX_RANK], int *rc)
{
    const uint32_t rank = cuda__t(b, b->op->in[0])->rank;

    *rc = check_same_type(b);
    if (!*rc && rank != cuda__t(b, b->op->out[0])->rank)
        *rc = cuda__refuse(b, SH_E_BUG, "input and output differ in rank");
    if (*rc)
        return NULL;
    stored_strides(b, b->op->in[0], x);
    return move_new(b, rc);
}

/* Once all strides of a move that shows the whole of x are known. */
static int note_same(struct cuda_build *b, const struct move *m)
{
    bool is_same = cuda__form(b, b->op->in[0]).type == cuda__form(b, b->op->out[0]).type;

    for (int i = 0; i < m->nd.rank && is_same; i++)
        is_same = m->nd.dims[i] <= 1 || m->nd.stride[0][i] == m->nd.stride[1][i];
    b->co->is_same = is_same;
    return SH_OK;
}

int cuda__slice(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cuda__t(b, op->in[0]), *y = cuda__t(b, op->out[0]);
    int64_t own[SH_MAX_RANK];
    int rc;
    struct move *m = move_axes(b, own, &rc);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < x->rank; i++) {
        int64_t first = op->u.slice.start[i], step = op->u.slice.step[i];
        int64_t last = first + (y->dims[i] - 1) * step;

        if (first < 0 || first >= x->dims[i] || last < 0 || last >= x->dims[i])
            return cuda__refuse(b, SH_E_BUG, "the slice leaves axis %u of \"%s\"", i, x->name);
        m->from += first * own[i];
        m->nd.stride[0][i] = step * own[i];
    }
    return SH_OK;
}

/* Negative widths cut: only what both sides have is copied. */
int cuda__pad(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cuda__t(b, op->in[0]), *y = cuda__t(b, op->out[0]);
    int64_t own[SH_MAX_RANK];
    int rc;
    struct move *m = move_axes(b, own, &rc);

    if (rc)
        return rc;
    m->fills = true;
    for (uint32_t i = 0; i < x->rank; i++) {
        int64_t before = op->u.pad.before[i];
        int64_t lo = SH_MAX(0, -before), hi = SH_MIN(x->dims[i], y->dims[i] - before);

        m->nd.dims[i] = hi - lo;
        m->is_empty = m->is_empty || hi <= lo;
        m->from += lo * own[i];
        m->to += SH_MAX(before, 0) * m->nd.stride[1][i];
        m->nd.stride[0][i] = own[i];
    }
    return SH_OK;
}

int cuda__expand(struct cuda_build *b)
{
    const struct dev_tensor *x = cuda__t(b, b->op->in[0]), *y = cuda__t(b, b->op->out[0]);
    struct k_nest n;
    struct move *m;
    int rc = check_same_type(b);

    if (!rc)
        rc = cuda__nest_move(b, &n, b->op->in[0], b->op->out[0]);
    if (rc)
        return rc;
    m = move_new(b, &rc);
    if (!rc && x->rank && y->rank)
        memcpy(m->nd.stride[0], n.stride[1], sizeof(m->nd.stride[0]));
    return rc;
}

int cuda__transpose(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cuda__t(b, op->in[0]), *y = cuda__t(b, op->out[0]);
    int64_t own[SH_MAX_RANK];
    uint32_t seen = 0;
    int rc;
    struct move *m = move_axes(b, own, &rc);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < x->rank; i++) {
        uint32_t from = op->u.perm.perm[i];

        if (from >= x->rank || y->dims[i] != x->dims[from])
            return cuda__refuse(b, SH_E_BUG, "the permutation does not fit the shapes");
        m->nd.stride[0][i] = own[from];
        seen |= 1u << from;
    }
    return seen == (1u << x->rank) - 1
               ? note_same(b, m)
               : cuda__refuse(b, SH_E_BUG, "the permutation names an axis twice");
}

/* ------------------------------------------------------------------ copy and cast */

struct cast {
    struct k_nest to, from;
};

static int cast_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct k_operand x = cuda__operand_in(c, 0), y = cuda__operand_out(c, 0);
    const bool is_bool = c->plan->base.g->tensors[c->op->out[0]].dtype == SH_BOOL;
    const struct cast *k = c->aux;

    k_cast(c->stream, &k->to, &k->from, x, y, is_bool);
    return cuda__launched(c, err);
}

/* Operand 0: the tensor as stored; 1: the row-major number of an element. */
static void numbered(struct cuda_build *b, uint32_t tensor, int by, struct k_nest *n)
{
    const struct dev_tensor *t = cuda__t(b, tensor);

    cuda__nest_init(n, t->rank, t->dims);
    stored_strides(b, tensor, n->stride[0]);
    cuda__strides(t, CUDA_PLAIN, n->stride[1]);
    k_nest_pack(n, by);
}

/* Between types, and reshapes where neither side lies in the order of its numbers. */
static int cast_way(struct cuda_build *b)
{
    int rc;
    struct cast *k = cuda__aux_new(b, sizeof(*k), &rc);

    if (rc)
        return rc;
    numbered(b, b->op->out[0], 0, &k->to);
    numbered(b, b->op->in[0], 1, &k->from);
    b->co->run = cast_run;
    return SH_OK;
}

int cuda__copy(struct cuda_build *b)
{
    const uint32_t x = b->op->in[0], y = b->op->out[0];
    const struct dev_tensor *tx = cuda__t(b, x), *ty = cuda__t(b, y);
    const bool x_plain = cuda__form(b, x).layout == CUDA_PLAIN;
    const bool y_plain = cuda__form(b, y).layout == CUDA_PLAIN;
    const struct dev_tensor *over = y_plain ? tx : ty; /* whose axes both sides have */
    struct move *m;
    int rc;

    if (dev_tensor_elements(tx) != dev_tensor_elements(ty))
        return cuda__refuse(b, SH_E_BUG, "input and output differ in number of elements");
    if (tx->dtype != ty->dtype || (!x_plain && !y_plain && !dev_same_dims(tx, ty)))
        return cast_way(b);
    m = move_new(b, &rc);
    if (rc)
        return rc;
    m->nd.rank = (int)over->rank;
    memcpy(m->nd.dims, over->dims, over->rank * sizeof(over->dims[0]));
    for (int k = 0; k < 2; k++) {
        const uint32_t tensor = k ? y : x;

        if (cuda__form(b, tensor).layout == CUDA_PLAIN)
            cuda__strides(over, CUDA_PLAIN, m->nd.stride[k]);
        else
            stored_strides(b, tensor, m->nd.stride[k]);
    }
    return note_same(b, m);
}

/* ------------------------------------------------------------------ concat */

struct joined { /* an input in another form than the result: moved by itself */
    struct k_nd nd;
    uint32_t slot;
    int64_t to; /* first element in y */
};

struct joins {
    struct k_concat table; /* of the others, without the addresses */
    uint32_t slot[K_MAX_JOINS];
    uint32_t n_moves;
    struct joined moves[K_MAX_JOINS];
};

_Static_assert(K_MAX_JOINS >= DEV_MAX_IN, "a Concat fits into the table");

static int concat_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct joins *j = c->aux;
    struct k_concat table = j->table;
    const struct k_operand to = cuda__operand_out(c, 0);

    table.dst = to.p;
    for (int k = 0; k < table.n; k++)
        table.src[k] = c->in[j->slot[k]];
    if (table.n > 0)
        k_concat(c->stream, &table);
    for (uint32_t k = 0; k < j->n_moves; k++) {
        const struct joined *m = &j->moves[k];
        const struct k_operand from = cuda__operand_in(c, m->slot);

        k_convert(c->stream, &m->nd, from, element(to, m->to));
    }
    return cuda__launched(c, err);
}

static int check_concat(struct cuda_build *b, uint32_t *axis)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *y = cuda__t(b, op->out[0]);
    int64_t sum = 0;
    int rc = cuda__axis(b, op->out[0], op->u.axis.axis, axis);

    if (rc)
        return rc;
    for (uint32_t k = 0; k < op->n_in; k++) {
        const struct dev_tensor *x = cuda__t(b, op->in[k]);
        bool fits = x->rank == y->rank && x->dtype == y->dtype;

        for (uint32_t i = 0; fits && i < y->rank; i++)
            fits = i == *axis || x->dims[i] == y->dims[i];
        if (!fits)
            return cuda__refuse(b, SH_E_BUG, "\"%s\" does not fit the result", x->name);
        sum += x->dims[*axis];
    }
    return sum == y->dims[*axis]
               ? SH_OK
               : cuda__refuse(b, SH_E_BUG, "the parts do not add up to the result");
}

int cuda__concat(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *y = cuda__t(b, op->out[0]);
    const struct cuda_form form = cuda__form(b, op->out[0]);
    const int64_t size = (int64_t)cuda__type_bytes(form.type);
    int64_t strides[SH_MAX_RANK], at = 0;
    struct joins *j;
    uint32_t axis = 0;
    int rc = check_concat(b, &axis);

    if (rc)
        return rc;
    j = cuda__aux_new(b, sizeof(*j), &rc);
    if (rc)
        return rc;
    stored_strides(b, op->out[0], strides);
    j->table.row = y->dims[axis] * strides[axis] * size;
    j->table.outer = dev_tensor_elements(y) * size / j->table.row;
    for (uint32_t k = 0; k < op->n_in; k++) {
        const struct dev_tensor *x = cuda__t(b, op->in[k]);
        const struct cuda_form own = cuda__form(b, op->in[k]);

        if (own.type == form.type && own.layout == form.layout) {
            j->table.at[j->table.n] = at * strides[axis] * size;
            j->table.len[j->table.n] = x->dims[axis] * strides[axis] * size;
            j->slot[j->table.n++] = k;
        } else {
            struct joined *m = &j->moves[j->n_moves++];

            *m = (struct joined){.slot = k, .to = at * strides[axis]};
            m->nd.rank = (int)x->rank;
            memcpy(m->nd.dims, x->dims, x->rank * sizeof(x->dims[0]));
            stored_strides(b, op->in[k], m->nd.stride[0]);
            memcpy(m->nd.stride[1], strides, sizeof(strides));
        }
        at += x->dims[axis];
    }
    b->co->run = concat_run;
    return SH_OK;
}

/* ------------------------------------------------------------------ reduce */

static int run_reduce(const struct cuda_call *c, struct sh_err *err)
{
    k_reduce(c->stream, c->aux, cuda__operand_in(c, 0), cuda__operand_out(c, 0), c->scratch);
    return cuda__launched(c, err);
}

/* Splits x's axes into kept and dropped ones. y holds the kept ones in row-major order; or, in
 * channels-last, where x has them. */
static int split_axes(struct cuda_build *b, struct k_reduce *r)
{
    const uint32_t tx = b->op->in[0], ty = b->op->out[0];
    const struct dev_tensor *x = cuda__t(b, tx), *y = cuda__t(b, ty);
    const bool y_plain = cuda__form(b, ty).layout == CUDA_PLAIN || y->rank != x->rank;
    const uint32_t axes = b->op->u.reduce.axes;
    int64_t own[SH_MAX_RANK], of_y[SH_MAX_RANK], step = 1;
    int nk = 0, nd = 0, rc;

    rc = y_plain ? cuda__out_plain(b, 0) : SH_OK;
    if (rc)
        return rc;
    stored_strides(b, tx, own);
    stored_strides(b, ty, of_y);
    cuda__nest_init(&r->keep, 0, NULL);
    cuda__nest_init(&r->drop, 0, NULL);
    for (uint32_t i = x->rank; i-- > 0;) { /* from the right; the order is found by packing */
        struct k_nest *n = axes >> i & 1 ? &r->drop : &r->keep;
        int *rank = axes >> i & 1 ? &nd : &nk;

        n->dims[*rank] = x->dims[i];
        n->total *= x->dims[i];
        n->stride[n == &r->drop ? 0 : 1][*rank] = own[i];
        if (n == &r->keep) {
            if (!y_plain && y->dims[i] != x->dims[i])
                return cuda__refuse(b, SH_E_BUG, "the output does not have the shape that is left");
            n->stride[0][*rank] = y_plain ? step : of_y[i];
            step *= x->dims[i];
        }
        ++*rank;
    }
    r->keep.rank = nk;
    r->drop.rank = nd;
    if (r->keep.total != dev_tensor_elements(y))
        return cuda__refuse(b, SH_E_BUG, "the output does not have the shape that is left");
    k_nest_pack(&r->keep, 1);
    k_nest_pack(&r->drop, 0);
    return SH_OK;
}

int cuda__reduce(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cuda__t(b, op->in[0]);
    const uint32_t all[] = {op->in[0], op->out[0]};
    const bool is_int =
        (x->dtype == SH_I64 || x->dtype == SH_I32) && cuda__t(b, op->out[0])->dtype == x->dtype;
    struct k_reduce *r;
    int rc = is_int ? SH_OK : cuda__need_f32(b, all, 2);

    if (!rc && x->rank < 32 && (op->u.reduce.axes >> x->rank) != 0)
        rc = cuda__refuse(b, SH_E_BUG, "an axis does not exist");
    if (rc)
        return rc;
    r = cuda__aux_new(b, sizeof(*r), &rc);
    if (!rc)
        rc = split_axes(b, r);
    if (rc)
        return rc;
    r->kind = (int)op->u.reduce.kind;
    if (!k_reduce_fits(r))
        return cuda__refuse(b, SH_E_UNSUPPORTED, "more than 2^31 results or summands");
    cuda__scratch(b, k_reduce_scratch(r));
    b->co->run = run_reduce;
    return SH_OK;
}
