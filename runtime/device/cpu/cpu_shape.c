/* cpu_shape.c - operations that only move elements: concat, slice, pad, transpose, copy, expand,
 * fill. Element types matter by their size only, except where COPY converts.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#include <math.h>

#define GRAIN 16384

/* ------------------------------------------------------------------ strided copies */

struct move {
    struct cpu_nd nd; /* operand 0: destination, 1: source */
    size_t size;      /* of an element: 1, 2, 4 or 8 */
    bool fills;       /* PAD: the destination is filled first */
    uint64_t bits;    /* with this element */
    int64_t dst_total;
};

struct move_ctx {
    const struct move *m;
    unsigned char *dst;
    const unsigned char *src;
};

#define MOVE_ROW(TYPE)                                 \
    do {                                               \
        TYPE *d = (TYPE *)c->dst + off[0];             \
        const TYPE *s = (const TYPE *)c->src + off[1]; \
        for (int64_t i = 0; i < n; i++)                \
            d[i * sd] = s[i * ss];                     \
    } while (0)

static void move_nd_row(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    const struct move_ctx *c = ctx;
    const int64_t sd = nd->stride[0][nd->rank - 1], ss = nd->stride[1][nd->rank - 1];
    const size_t size = c->m->size;

    if (sd == 1 && ss == 1)
        memcpy(c->dst + (size_t)off[0] * size, c->src + (size_t)off[1] * size, (size_t)n * size);
    else if (size == 8)
        MOVE_ROW(uint64_t);
    else if (size == 4)
        MOVE_ROW(uint32_t);
    else if (size == 2)
        MOVE_ROW(uint16_t);
    else
        MOVE_ROW(uint8_t);
}

static void move_range(void *ctx, int64_t from, int64_t to)
{
    struct move_ctx *c = ctx;

    cpu__nd_run(&c->m->nd, from, to, move_nd_row, c);
}

static void fill_range(void *ctx, int64_t from, int64_t to)
{
    const struct move_ctx *c = ctx;
    const uint64_t bits = c->m->bits;

    for (int64_t i = from; i < to; i++)
        if (c->m->size == 8)
            ((uint64_t *)c->dst)[i] = bits;
        else if (c->m->size == 4)
            ((uint32_t *)c->dst)[i] = (uint32_t)bits;
        else if (c->m->size == 2)
            ((uint16_t *)c->dst)[i] = (uint16_t)bits;
        else
            c->dst[i] = (uint8_t)bits;
}

/* p: [src] dst */
static void move_fn(const struct cpu_call *c)
{
    struct move_ctx m = {.m = c->aux, .dst = c->p[c->op->n_in], .src = c->p[0]};

    if (m.m->fills)
        cpu__parallel(c->threads, m.m->dst_total, GRAIN, fill_range, &m);
    if (m.m->nd.total > 0)
        cpu__parallel(c->threads, m.m->nd.total, GRAIN, move_range, &m);
}

/* The element with value v, as bits of its type. */
static uint64_t value_bits(enum sh_dtype t, double v)
{
    uint64_t bits = 0;

    cpu__store(t, &bits, 0, v);
    return bits;
}

static struct move move_of(struct cpu_build *b, uint32_t rank, const int64_t *dims)
{
    const struct dev_tensor *y = cpu__t(b, b->op->out[0]);
    struct move m = {.size = sh_dtype_bytes(y->dtype), .dst_total = dev_tensor_elements(y)};

    cpu__nd_init(&m.nd, rank, dims, 2);
    return m;
}

static int move_step(struct cpu_build *b, struct move *m)
{
    cpu__nd_merge(&m->nd);
    return cpu__step_plain(b, move_fn, m, sizeof(*m));
}

static int check_same_type(struct cpu_build *b)
{
    const struct dev_tensor *x = cpu__t(b, b->op->in[0]), *y = cpu__t(b, b->op->out[0]);

    return x->dtype == y->dtype ? SH_OK
                                : cpu__refuse(b, SH_E_BUG, "types %s and %s differ",
                                              sh_dtype_st(x->dtype), sh_dtype_st(y->dtype));
}

static int check_same_rank(struct cpu_build *b)
{
    if (cpu__t(b, b->op->in[0])->rank != cpu__t(b, b->op->out[0])->rank)
        return cpu__refuse(b, SH_E_BUG, "input and output differ in rank");
    return check_same_type(b);
}

int cpu__slice(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cpu__t(b, op->in[0]), *y = cpu__t(b, op->out[0]);
    struct move m = move_of(b, y->rank, y->dims);
    int64_t own[SH_MAX_RANK];

    if (check_same_rank(b))
        return b->err->rc;
    cpu__strides(x->rank, x->dims, own);
    cpu__strides(y->rank, y->dims, m.nd.stride[0]);
    for (uint32_t i = 0; i < x->rank; i++) {
        int64_t first = op->u.slice.start[i], step = op->u.slice.step[i];
        int64_t last = first + (y->dims[i] - 1) * step;

        if (first < 0 || first >= x->dims[i] || last < 0 || last >= x->dims[i])
            return cpu__refuse(b, SH_E_BUG, "the slice leaves axis %u of \"%s\"", i, x->name);
        m.nd.base[1] += first * own[i];
        m.nd.stride[1][i] = step * own[i];
    }
    return move_step(b, &m);
}

/* Negative widths cut: only what both sides have is copied. */
int cpu__pad(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cpu__t(b, op->in[0]), *y = cpu__t(b, op->out[0]);
    int64_t own_x[SH_MAX_RANK], own_y[SH_MAX_RANK], dims[SH_MAX_RANK];
    struct move m;
    bool is_empty = false;

    if (check_same_rank(b))
        return b->err->rc;
    for (uint32_t i = 0; i < x->rank; i++) {
        int64_t before = op->u.pad.before[i];
        int64_t lo = SH_MAX(0, -before), hi = SH_MIN(x->dims[i], y->dims[i] - before);

        dims[i] = SH_MAX(hi - lo, 0);
        is_empty = is_empty || dims[i] == 0;
    }
    m = move_of(b, x->rank, dims);
    cpu__strides(x->rank, x->dims, own_x);
    cpu__strides(y->rank, y->dims, own_y);
    for (uint32_t i = 0; i < x->rank; i++) {
        int64_t before = op->u.pad.before[i];

        m.nd.base[0] += SH_MAX(before, 0) * own_y[i];
        m.nd.base[1] += SH_MAX(-before, 0) * own_x[i];
        m.nd.stride[0][i] = own_y[i];
        m.nd.stride[1][i] = own_x[i];
    }
    if (is_empty)
        m.nd.total = 0;
    m.fills = true;
    m.bits = value_bits(y->dtype, op->u.pad.value);
    return move_step(b, &m);
}

int cpu__fill(struct cpu_build *b)
{
    const struct dev_tensor *y = cpu__t(b, b->op->out[0]);
    struct move m = move_of(b, y->rank, y->dims);

    m.nd.total = 0;
    m.fills = true;
    m.bits = value_bits(y->dtype, b->op->u.pad.value);
    return move_step(b, &m);
}

int cpu__expand(struct cpu_build *b)
{
    const struct dev_tensor *x = cpu__t(b, b->op->in[0]), *y = cpu__t(b, b->op->out[0]);
    struct move m = move_of(b, y->rank, y->dims);

    check_same_type(b);
    cpu__strides(y->rank, y->dims, m.nd.stride[0]);
    if (!cpu__nd_broadcast(&m.nd, 1, x))
        return cpu__refuse(b, SH_E_BUG, "\"%s\" does not broadcast to \"%s\"", x->name, y->name);
    return move_step(b, &m);
}

/* ------------------------------------------------------------------ transpose */

/* By oneDNN's reorder, which tiles for the cache; 64-bit elements by the loop above. */
static int reorder_way(struct cpu_build *b, const int64_t *strides)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *y = cpu__t(b, op->out[0]);
    dnnl_memory_desc_t from, to;
    dnnl_dims_t dims = {1}, steps = {1};
    dnnl_data_type_t type;
    struct cpu_ref x, out;
    dnnl_status_t s;

    cpu__type(y->dtype, &type);
    for (uint32_t i = 0; i < y->rank; i++) {
        dims[i] = y->dims[i];
        steps[i] = strides[i];
    }
    s = dnnl_memory_desc_init_by_strides(&from, (int)SH_MAX(y->rank, 1), dims, type, steps);
    if (s == dnnl_success && cpu__md_plain(y->rank, y->dims, type, &to))
        s = dnnl_invalid_arguments;
    cpu__status(b, s, "transpose");
    x = cpu__in_plain(b, op->in[0]);
    out = cpu__out_plain(b, op->out[0]);
    return cpu__step_reorder(b, x, &from, out, &to);
}

int cpu__transpose(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cpu__t(b, op->in[0]), *y = cpu__t(b, op->out[0]);
    int64_t own[SH_MAX_RANK], strides[SH_MAX_RANK] = {0};
    dnnl_data_type_t type;
    uint32_t seen = 0;
    struct move m;

    if (check_same_rank(b))
        return b->err->rc;
    cpu__strides(x->rank, x->dims, own);
    for (uint32_t i = 0; i < x->rank; i++) {
        uint32_t from = op->u.perm.perm[i];

        if (from >= x->rank || y->dims[i] != x->dims[from])
            return cpu__refuse(b, SH_E_BUG, "the permutation does not fit the shapes");
        strides[i] = own[from];
        seen |= 1u << from;
    }
    if (seen != (1u << x->rank) - 1)
        return cpu__refuse(b, SH_E_BUG, "the permutation names an axis twice");
    if (cpu__type(y->dtype, &type))
        return reorder_way(b, strides);
    m = move_of(b, y->rank, y->dims);
    cpu__strides(y->rank, y->dims, m.nd.stride[0]);
    memcpy(m.nd.stride[1], strides, sizeof(strides));
    return move_step(b, &m);
}

/* ------------------------------------------------------------------ copy and cast */

struct cast_ctx {
    enum sh_dtype from, to;
    const void *src;
    void *dst;
};

static void cast_range(void *ctx, int64_t from, int64_t to)
{
    const struct cast_ctx *c = ctx;

    if (c->from == SH_U8 && c->to == SH_F32) { /* pictures, of every step that trains on them */
        for (int64_t i = from; i < to; i++)
            ((float *)c->dst)[i] = ((const uint8_t *)c->src)[i];
        return;
    }
    for (int64_t i = from; i < to; i++) {
        if (cpu__is_int(c->from) && cpu__is_int(c->to)) /* exact: the low bits, as ONNX */
            cpu__store_int(c->to, c->dst, i, cpu__load_int(c->from, c->src, i));
        else
            cpu__store(c->to, c->dst, i, cpu__load(c->from, c->src, i));
    }
}

struct bytes_ctx {
    unsigned char *dst;
    const unsigned char *src;
};

static void bytes_range(void *ctx, int64_t from, int64_t to)
{
    const struct bytes_ctx *c = ctx;

    memcpy(c->dst + from, c->src + from, (size_t)(to - from));
}

/* p: src dst */
static void shape_copy_fn(const struct cpu_call *c)
{
    const struct dev_tensor *t = c->plan->base.g->tensors;
    const struct dev_tensor *x = &t[c->op->in[0]], *y = &t[c->op->out[0]];
    struct cast_ctx cast = {.from = x->dtype, .to = y->dtype, .src = c->p[0], .dst = c->p[1]};
    struct bytes_ctx bytes = {.src = c->p[0], .dst = c->p[1]};
    int64_t n = dev_tensor_elements(y);

    if (x->dtype != y->dtype)
        cpu__parallel(c->threads, n, GRAIN, cast_range, &cast);
    else if (cast.dst != cast.src)
        cpu__parallel(c->threads, n * (int64_t)sh_dtype_bytes(y->dtype), 8 * GRAIN, bytes_range,
                      &bytes);
}

int cpu__copy(struct cpu_build *b)
{
    if (dev_tensor_elements(cpu__t(b, b->op->in[0])) !=
        dev_tensor_elements(cpu__t(b, b->op->out[0])))
        return cpu__refuse(b, SH_E_BUG, "input and output differ in number of elements");
    return cpu__step_plain(b, shape_copy_fn, NULL, 0);
}

/* The same bytes into STATE, at the end of a training step. */
int cpu__commit(struct cpu_build *b)
{
    check_same_type(b);
    return cpu__copy(b);
}

/* ------------------------------------------------------------------ concat */

struct joins {
    int64_t outer, n_out;     /* rows; elements of one row of y */
    int64_t n_in[DEV_MAX_IN]; /* elements of one row of each input */
    size_t size;
};

struct concat_ctx {
    const struct joins *j;
    void *const *p;
    uint32_t n;
};

/* Elements [from, to) of y, wherever they lie in its rows. */
static void concat_range(void *ctx, int64_t from, int64_t to)
{
    const struct concat_ctx *c = ctx;
    const struct joins *j = c->j;

    for (int64_t r = from / j->n_out; r * j->n_out < to; r++) {
        int64_t at = r * j->n_out; /* where the row of input k begins in y */

        for (uint32_t k = 0; k < c->n && at < to; at += j->n_in[k++]) {
            const int64_t lo = SH_MAX(at, from), hi = SH_MIN(at + j->n_in[k], to);

            if (lo < hi)
                memcpy((unsigned char *)c->p[0] + (size_t)lo * j->size,
                       (const unsigned char *)c->p[k + 1] +
                           (size_t)(r * j->n_in[k] + lo - at) * j->size,
                       (size_t)(hi - lo) * j->size);
        }
    }
}

/* p: y x... */
static void concat_fn(const struct cpu_call *c)
{
    struct concat_ctx x = {.j = c->aux, .p = c->p, .n = c->op->n_in};

    cpu__parallel(c->threads, x.j->outer * x.j->n_out, GRAIN, concat_range, &x);
}

static int check_concat(struct cpu_build *b, uint32_t *axis)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *y = cpu__t(b, op->out[0]);
    int64_t sum = 0;

    if (cpu__axis(b, op->out[0], op->u.axis.axis, axis))
        return b->err->rc;
    for (uint32_t k = 0; k < op->n_in; k++) {
        const struct dev_tensor *x = cpu__t(b, op->in[k]);

        if (x->rank != y->rank || x->dtype != y->dtype)
            return cpu__refuse(b, SH_E_BUG, "\"%s\" does not fit the result", x->name);
        for (uint32_t i = 0; i < y->rank; i++)
            if (i != *axis && x->dims[i] != y->dims[i])
                return cpu__refuse(b, SH_E_BUG, "\"%s\" does not fit the result", x->name);
        sum += x->dims[*axis];
    }
    return sum == y->dims[*axis]
               ? SH_OK
               : cpu__refuse(b, SH_E_BUG, "the parts do not add up to the result");
}

/* The layout of the result if blocks of whole inputs lie one behind the other in it. false: no. */
static int blocked_md(struct cpu_build *b, uint32_t axis, dnnl_memory_desc_t *md, bool *fits)
{
    const struct dev_op *op = b->op;
    const struct cpu_tensor *ts = b->plan->tensors;
    const dnnl_memory_desc_t *first = &ts[op->in[0]].lay->md;
    const int64_t block = cpu__channel_block(first);
    dnnl_dims_t dims;

    *fits = block > 0 && axis == 1;
    for (uint32_t k = 0; k < op->n_in && *fits; k++) {
        const struct cpu_tensor *t = &ts[op->in[k]];

        *fits = t->is_blocked && cpu__channel_block(&t->lay->md) == block &&
                (k + 1 == op->n_in || t->lay->md.dims[1] % block == 0);
    }
    if (!*fits)
        return SH_OK;
    memcpy(dims, first->dims, sizeof(dims));
    dims[1] = cpu__t(b, op->out[0])->dims[1];
    return cpu__md_like(b, first, dims, md);
}

/* Inputs and result as they lie, in rows of so many elements. */
static int emit_concat(struct cpu_build *b, const struct cpu_ref *refs, const struct joins *j)
{
    return cpu__step_fn(b, concat_fn, refs, b->op->n_in + 1, j, sizeof(*j));
}

static int blocked_way(struct cpu_build *b, const dnnl_memory_desc_t *md)
{
    const struct dev_op *op = b->op;
    struct joins j = {.outer = md->dims[0], .size = sizeof(float)};
    struct cpu_ref refs[DEV_MAX_IN + 1];

    refs[0] = cpu__out(b, op->out[0], md, true);
    for (uint32_t k = 0; k < op->n_in; k++) {
        const dnnl_memory_desc_t *x = &b->plan->tensors[op->in[k]].lay->md;

        refs[k + 1] = cpu__in(b, op->in[k], NULL, x);
        j.n_in[k] = (int64_t)(dnnl_memory_desc_get_size(x) / j.size) / j.outer;
        j.n_out += j.n_in[k];
    }
    return emit_concat(b, refs, &j);
}

static int plain_way(struct cpu_build *b, uint32_t axis)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *y = cpu__t(b, op->out[0]);
    struct joins j = {.outer = dev_axes_elements(y, 0, axis), .size = sh_dtype_bytes(y->dtype)};
    struct cpu_ref refs[DEV_MAX_IN + 1];

    refs[0] = cpu__out_plain(b, op->out[0]);
    j.n_out = dev_tensor_elements(y) / j.outer;
    for (uint32_t k = 0; k < op->n_in; k++) {
        refs[k + 1] = cpu__in_plain(b, op->in[k]);
        j.n_in[k] = dev_tensor_elements(cpu__t(b, op->in[k])) / j.outer;
    }
    return emit_concat(b, refs, &j);
}

int cpu__concat(struct cpu_build *b)
{
    dnnl_memory_desc_t md;
    bool is_blocked = false;
    uint32_t axis;

    if (check_concat(b, &axis) || blocked_md(b, axis, &md, &is_blocked))
        return b->err->rc;
    return is_blocked ? blocked_way(b, &md) : plain_way(b, axis);
}
