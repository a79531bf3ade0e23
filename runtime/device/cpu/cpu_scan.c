/* cpu_scan.c - along the lines of one axis: sums so far, the best elements in order.
 *
 * A line belongs to one thread. TOPK sorts whole lines, but takes the single best in one pass.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#define GRAIN 16384 /* elements below which a second thread costs more than it gives */

struct lines { /* [outer, n, inner]: a line is n elements, inner apart */
    int64_t outer, n, inner;
    int64_t k; /* TOPK: elements of a line of y */
    enum sh_dtype type;
};

static int read_scan_lines(struct cpu_build *b, int64_t axis, struct lines *l)
{
    const struct dev_tensor *x = cpu__t(b, b->op->in[0]), *y = cpu__t(b, b->op->out[0]);
    uint32_t at;

    if (cpu__axis(b, b->op->in[0], axis, &at))
        return b->err->rc;
    if (x->dtype != y->dtype || x->rank != y->rank ||
        !(x->dtype == SH_F32 || x->dtype == SH_I64 || x->dtype == SH_I32))
        return cpu__refuse(b, SH_E_UNSUPPORTED, "types %s and %s cannot be computed",
                           sh_dtype_st(x->dtype), sh_dtype_st(y->dtype));
    *l = (struct lines){.outer = dev_axes_elements(x, 0, at),
                        .n = x->dims[at],
                        .inner = dev_axes_elements(x, at + 1, x->rank),
                        .k = y->dims[at],
                        .type = x->dtype};
    return SH_OK;
}

static int64_t grain_of(const struct lines *l)
{
    return SH_MAX(1, GRAIN / l->n);
}

/* ------------------------------------------------------------------ sums so far */

struct scan_job {
    const struct lines *l;
    const struct dev_op *op;
    const void *x;
    void *y;
};

#define SCAN(TYPE, SUM)                                                \
    do {                                                               \
        const TYPE *x = (const TYPE *)j->x + at;                       \
        TYPE *y = (TYPE *)j->y + at;                                   \
        SUM sum = 0;                                                   \
        for (int64_t i = 0; i < l->n; i++) {                           \
            const int64_t e = (reverse ? l->n - 1 - i : i) * l->inner; \
            const SUM before = sum;                                    \
            sum += (SUM)x[e];                                          \
            y[e] = (TYPE)(exclusive ? before : sum);                   \
        }                                                              \
    } while (0)

static void scan_range(void *ctx, int64_t from, int64_t to)
{
    const struct scan_job *j = ctx;
    const struct lines *l = j->l;
    const bool reverse = j->op->u.scan.reverse, exclusive = j->op->u.scan.exclusive;

    for (int64_t k = from; k < to; k++) {
        const int64_t at = k / l->inner * l->n * l->inner + k % l->inner;

        if (l->type == SH_F32)
            SCAN(float, double);
        else if (l->type == SH_I64)
            SCAN(int64_t, uint64_t);
        else
            SCAN(int32_t, uint32_t);
    }
}

/* p: x y */
static void scan_fn(const struct cpu_call *c)
{
    struct scan_job j = {.l = c->aux, .op = c->op, .x = c->p[0], .y = c->p[1]};

    cpu__parallel(c->threads, j.l->outer * j.l->inner, grain_of(j.l), scan_range, &j);
}

int cpu__cumsum(struct cpu_build *b)
{
    struct lines l;

    cpu__same_shape(b, b->op->in[0], b->op->out[0]);
    read_scan_lines(b, b->op->u.scan.axis, &l);
    return cpu__step_plain(b, scan_fn, &l, sizeof(l));
}

/* ------------------------------------------------------------------ the best */

struct item {
    double f;
    int64_t v; /* of integers, which a double would round */
    int64_t at;
};

struct top_job {
    const struct lines *l;
    const struct dev_op *op;
    const void *x;
    void *y;
    int64_t *where;
    struct item *items; /* a line's for each thread's first line, at that line's number */
};

static struct item item_at(const struct top_job *j, int64_t base, int64_t i)
{
    const int64_t e = base + i * j->l->inner;

    if (j->l->type == SH_F32)
        return (struct item){.f = (double)((const float *)j->x)[e], .at = i};
    if (j->l->type == SH_I64)
        return (struct item){.v = ((const int64_t *)j->x)[e], .at = i};
    return (struct item){.v = ((const int32_t *)j->x)[e], .at = i};
}

static bool is_more(const struct item *a, const struct item *b)
{
    const bool a_nan = a->f != a->f, b_nan = b->f != b->f;

    return a_nan || b_nan ? a_nan && !b_nan : a->f > b->f || a->v > b->v;
}

/* Does a come before b? */
static bool is_item_before(const struct dev_op *op, const struct item *a, const struct item *b)
{
    if (is_more(a, b))
        return op->u.topk.largest;
    if (is_more(b, a))
        return !op->u.topk.largest;
    return op->u.topk.last ? a->at > b->at : a->at < b->at;
}

/* The heap's top comes last of all in it. */
static void sift(const struct dev_op *op, struct item *heap, int64_t n, int64_t i)
{
    for (;;) {
        int64_t child = 2 * i + 1;
        struct item keep = heap[i];

        if (child >= n)
            return;
        if (child + 1 < n && is_item_before(op, &heap[child], &heap[child + 1]))
            child++;
        if (!is_item_before(op, &heap[i], &heap[child]))
            return;
        heap[i] = heap[child];
        heap[child] = keep;
        i = child;
    }
}

/* The k first of a line, in order: a heap of k, emptied from its end. */
static void choose_top(const struct top_job *j, int64_t base, struct item *heap)
{
    const int64_t k = j->l->k;

    for (int64_t i = 0; i < k; i++)
        heap[i] = item_at(j, base, i);
    for (int64_t i = k / 2; i-- > 0;)
        sift(j->op, heap, k, i);
    for (int64_t i = k; i < j->l->n; i++) {
        const struct item it = item_at(j, base, i);

        if (!is_item_before(j->op, &it, &heap[0]))
            continue;
        heap[0] = it;
        sift(j->op, heap, k, 0);
    }
    for (int64_t n = k; n-- > 1;) {
        const struct item last = heap[0];

        heap[0] = heap[n];
        heap[n] = last;
        sift(j->op, heap, n, 0);
    }
}

static void top_range(void *ctx, int64_t from, int64_t to)
{
    const struct top_job *j = ctx;
    const struct lines *l = j->l;

    for (int64_t line = from; line < to; line++) {
        struct item *heap = j->items + from * l->k; /* this range's own */
        const int64_t base = line / l->inner * l->n * l->inner + line % l->inner;
        const int64_t at = line / l->inner * l->k * l->inner + line % l->inner;

        choose_top(j, base, heap);
        for (int64_t i = 0; i < l->k; i++) {
            const int64_t e = at + i * l->inner;

            j->where[e] = heap[i].at;
            if (l->type == SH_F32)
                ((float *)j->y)[e] = (float)heap[i].f;
            else if (l->type == SH_I64)
                ((int64_t *)j->y)[e] = heap[i].v;
            else
                ((int32_t *)j->y)[e] = (int32_t)heap[i].v;
        }
    }
}

/* p: x y indices items */
static void top_fn(const struct cpu_call *c)
{
    struct top_job j = {
        .l = c->aux, .op = c->op, .x = c->p[0], .y = c->p[1], .where = c->p[2], .items = c->p[3]};

    cpu__parallel(c->threads, j.l->outer * j.l->inner, grain_of(j.l), top_range, &j);
}

int cpu__topk(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct cpu_ref refs[4];
    struct lines l;
    uint32_t n;

    cpu__same_shape(b, op->out[0], op->out[1]);
    if (read_scan_lines(b, op->u.topk.axis, &l))
        return b->err->rc;
    if (cpu__t(b, op->out[1])->dtype != SH_I64 || l.k > l.n)
        return cpu__refuse(b, SH_E_BUG, "the results do not fit the input");
    n = cpu__all_plain(b, refs);
    refs[n++] = cpu__scratch(b, (size_t)(l.outer * l.inner * l.k) * sizeof(struct item));
    return cpu__step_fn(b, top_fn, refs, n, &l, sizeof(l));
}
